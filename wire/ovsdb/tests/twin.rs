//! Random transactions against a twin that recomputes everything from all rows each time.

use fv_ovsdb::{Context, Database, Datum, Outcome, Schema, Uuid, logrec, transact};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Tables by number; rows are numbered within their table.
const TABLES: [&str; 3] = ["Kid", "Root", "W1"];
const KID: usize = 0;
const ROOT: usize = 1;
const W1: usize = 2;
const ROWS: u8 = 6;
const KID_MAX_ROWS: usize = 4;

/// (column, is weak): all refer to Kid.
fn ref_columns(t: usize) -> &'static [(&'static str, bool)] {
    match t {
        KID => &[("next", false)],
        ROOT => &[("kids", false), ("weak", true), ("one", false)],
        _ => &[("w", true)],
    }
}

/// Fewest and most elements of a reference column.
fn bounds(column: &str) -> (usize, usize) {
    match column {
        "w" => (1, 2),
        "next" | "one" => (0, 1),
        _ => (0, usize::MAX),
    }
}

#[derive(Clone, PartialEq, Debug, Default)]
struct TwinRow {
    /// Root's unique name, Kid's number.
    key: u8,
    refs: BTreeMap<&'static str, BTreeSet<u8>>,
}

type Twin = BTreeMap<(usize, u8), TwinRow>;

#[derive(Clone, Debug)]
enum Op {
    Insert { t: usize, row: u8, key: u8, refs: Vec<BTreeSet<u8>> },
    Update { t: usize, row: Option<u8>, key: Option<u8>, column: usize, refs: BTreeSet<u8> },
    Mutate { t: usize, row: Option<u8>, column: usize, insert: bool, refs: BTreeSet<u8> },
    Delete { t: usize, row: Option<u8> },
}

fn uuid(t: usize, row: u8) -> Uuid {
    Uuid::from_u128(((t as u128 + 1) << 64) | u128::from(row))
}

fn uuid_json(t: usize, row: u8) -> Value {
    json!(["uuid", uuid(t, row).to_string()])
}

fn refs_json(refs: &BTreeSet<u8>) -> Value {
    json!(["set", refs.iter().map(|r| uuid_json(KID, *r)).collect::<Vec<_>>()])
}

fn condition(t: usize, row: Option<u8>) -> Value {
    row.map_or(json!([]), |r| json!([["_uuid", "==", uuid_json(t, r)]]))
}

fn key_json(t: usize, key: u8) -> (&'static str, Value) {
    if t == KID { ("k", key.into()) } else { ("name", key.to_string().into()) }
}

impl Op {
    fn to_json(&self) -> Value {
        match self {
            Op::Insert { t, row, key, refs } => {
                let mut columns = json!({});
                if *t != W1 {
                    let (c, v) = key_json(*t, *key);
                    columns[c] = v;
                }
                for ((c, _), r) in ref_columns(*t).iter().zip(refs) {
                    columns[*c] = refs_json(r);
                }
                json!({"op": "insert", "table": TABLES[*t], "uuid": uuid(*t, *row).to_string(), "row": columns})
            }
            Op::Update { t, row, key, column, refs } => {
                let mut columns = json!({ref_columns(*t)[*column].0: refs_json(refs)});
                if let (Some(k), true) = (key, *t != W1) {
                    let (c, v) = key_json(*t, *k);
                    columns[c] = v;
                }
                json!({"op": "update", "table": TABLES[*t], "where": condition(*t, *row), "row": columns})
            }
            Op::Mutate { t, row, column, insert, refs } => {
                let mutator = if *insert { "insert" } else { "delete" };
                let m = json!([[ref_columns(*t)[*column].0, mutator, refs_json(refs)]]);
                json!({"op": "mutate", "table": TABLES[*t], "where": condition(*t, *row), "mutations": m})
            }
            Op::Delete { t, row } => {
                json!({"op": "delete", "table": TABLES[*t], "where": condition(*t, *row)})
            }
        }
    }
}

/// The error's tag, if the transaction is refused.
fn twin_transact(twin: &mut Twin, ops: &[Op]) -> Option<&'static str> {
    let before = twin.clone();
    let mut new = twin.clone();
    let mut touched: BTreeSet<(usize, u8)> = BTreeSet::new();
    for op in ops {
        if let Err(tag) = twin_op(&mut new, &mut touched, op) {
            return Some(tag);
        }
    }
    if new == before {
        return None;
    }
    let strong = |rows: &Twin| {
        let mut counts: BTreeMap<u8, usize> = BTreeMap::new();
        for ((t, n), r) in rows {
            for (c, _) in ref_columns(*t).iter().filter(|c| !c.1) {
                for dst in r.refs[c].iter().filter(|d| (*t, *n) != (KID, **d)) {
                    *counts.entry(*dst).or_default() += 1;
                }
            }
        }
        counts
    };
    // References to rows that are not there, whether deleted now or never made. A row that refers
    // to itself needs nothing else.
    if strong(&new).keys().any(|d| !new.contains_key(&(KID, *d))) {
        return Some("referential integrity violation");
    }
    loop {
        let counts = strong(&new);
        let garbage: Vec<_> = new.keys().filter(|k| k.0 == KID && !counts.contains_key(&k.1)).copied().collect();
        if garbage.is_empty() {
            break;
        }
        garbage.iter().for_each(|k| {
            new.remove(k);
        });
    }
    let kids = |rows: &Twin| rows.keys().filter(|k| k.0 == KID).count();
    if kids(&new) > KID_MAX_ROWS {
        return Some("constraint violation");
    }
    let alive: BTreeSet<u8> = new.keys().filter(|k| k.0 == KID).map(|k| k.1).collect();
    for ((t, _), r) in new.iter_mut() {
        for (c, _) in ref_columns(*t).iter().filter(|c| c.1) {
            let set = r.refs.get_mut(c).unwrap();
            set.retain(|d| alive.contains(d));
            if set.len() < bounds(c).0 {
                return Some("constraint violation");
            }
        }
    }
    let names: Vec<u8> = new.iter().filter(|(k, _)| k.0 == ROOT).map(|(_, r)| r.key).collect();
    if names.iter().collect::<BTreeSet<_>>().len() < names.len() {
        return Some("constraint violation");
    }
    *twin = new;
    None
}

fn twin_op(rows: &mut Twin, touched: &mut BTreeSet<(usize, u8)>, op: &Op) -> Result<(), &'static str> {
    let legal = |column: &str, n: usize| n >= bounds(column).0 && n <= bounds(column).1;
    match op {
        Op::Insert { t, row, key, refs } => {
            if rows.contains_key(&(*t, *row)) || touched.contains(&(*t, *row)) {
                return Err("duplicate uuid");
            }
            for ((c, _), r) in ref_columns(*t).iter().zip(refs) {
                if !legal(c, r.len()) {
                    return Err("syntax error");
                }
            }
            let refs = ref_columns(*t).iter().map(|c| c.0).zip(refs.iter().cloned()).collect();
            rows.insert((*t, *row), TwinRow { key: if *t == W1 { 0 } else { *key }, refs });
            touched.insert((*t, *row));
        }
        Op::Update { t, row, key, column, refs } => {
            let c = ref_columns(*t)[*column].0;
            if !legal(c, refs.len()) {
                return Err("syntax error");
            }
            for (k, r) in rows.iter_mut().filter(|(k, _)| k.0 == *t && row.is_none_or(|n| n == k.1)) {
                touched.insert(*k);
                r.refs.insert(c, refs.clone());
                if *t != W1 {
                    r.key = key.unwrap_or(r.key);
                }
            }
        }
        Op::Mutate { t, row, column, insert, refs } => {
            let c = ref_columns(*t)[*column].0;
            if *insert && refs.len() > bounds(c).1 {
                return Err("syntax error");
            }
            for (k, r) in rows.iter_mut().filter(|(k, _)| k.0 == *t && row.is_none_or(|n| n == k.1)) {
                touched.insert(*k);
                let set = r.refs.get_mut(c).unwrap();
                if *insert {
                    set.extend(refs);
                } else {
                    set.retain(|d| !refs.contains(d));
                }
                if !legal(c, set.len()) {
                    return Err("constraint violation");
                }
            }
        }
        Op::Delete { t, row } => {
            let gone: Vec<_> = rows.keys().filter(|k| k.0 == *t && row.is_none_or(|n| n == k.1)).copied().collect();
            for k in gone {
                rows.remove(&k);
                touched.insert(k);
            }
        }
    }
    Ok(())
}

fn state(db: &Database) -> Twin {
    let schema = db.schema();
    let mut out = Twin::new();
    for (t, name) in TABLES.iter().enumerate() {
        let n = schema.table(name).unwrap();
        let ts = &schema.tables[n];
        let column = |c: &str| ts.column(c).unwrap();
        for (u, row) in db.rows(n) {
            let key = match t {
                KID => row[column("k")].as_i64().unwrap() as u8,
                ROOT => row[column("name")].as_str().unwrap().parse().unwrap(),
                _ => 0,
            };
            let refs = ref_columns(t)
                .iter()
                .map(|(c, _)| (*c, row[column(c)].uuid_keys().map(|u| u.as_u128() as u8).collect()))
                .collect();
            out.insert((t, u.as_u128() as u8), TwinRow { key, refs });
        }
    }
    out
}

fn refs(max: usize) -> impl Strategy<Value = BTreeSet<u8>> {
    proptest::collection::btree_set(0..ROWS, 0..=max)
}

fn op() -> impl Strategy<Value = Op> {
    let table = 0..3usize;
    let row = prop_oneof![4 => (0..ROWS).prop_map(Some), 1 => Just(None)];
    prop_oneof![
        4 => (table.clone(), 0..ROWS, 0..ROWS, proptest::collection::vec(refs(2), 3))
            .prop_map(|(t, row, key, refs)| Op::Insert { t, row, key, refs }),
        2 => (table.clone(), row.clone(), proptest::option::of(0..ROWS), 0..3usize, refs(2)).prop_map(
            |(t, row, key, column, refs)| Op::Update { t, row, key, column: column % ref_columns(t).len(), refs }
        ),
        2 => (table.clone(), row.clone(), 0..3usize, any::<bool>(), refs(2)).prop_map(
            |(t, row, column, insert, refs)| Op::Mutate { t, row, column: column % ref_columns(t).len(), insert, refs }
        ),
        1 => (table, row).prop_map(|(t, row)| Op::Delete { t, row }),
    ]
}

/// One that keeps rows alive, so that there is something to break.
fn growth() -> impl Strategy<Value = Vec<Op>> {
    (0..ROWS, 0..ROWS, 0..ROWS, 0..60u8).prop_map(|(root, a, b, key)| {
        let both: BTreeSet<u8> = [a, b].into();
        let kid = |row| Op::Insert { t: KID, row, key: row, refs: vec![BTreeSet::new(); 3] };
        let refs = vec![both.clone(), both.clone(), BTreeSet::new()];
        let mut ops: Vec<Op> = both.iter().map(|k| kid(*k)).collect();
        ops.push(Op::Insert { t: ROOT, row: root, key, refs });
        ops
    })
}

fn txn() -> impl Strategy<Value = Vec<Op>> {
    prop_oneof![
        2 => proptest::collection::vec(op(), 1..5),
        2 => growth(),
        1 => (0..ROWS).prop_map(|k| vec![Op::Delete { t: KID, row: Some(k) }]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn transactions_equal_the_twins(txns in proptest::collection::vec(txn(), 1..25)) {
        let schema = Arc::new(Schema::parse(include_str!("zoo.ovsschema")).unwrap());
        let mut db = Database::new(schema.clone());
        let mut logged = Database::new(schema.clone());
        let mut twin = Twin::new();
        let mut n = 1u128 << 100;
        let mut fresh = || { n += 1; Uuid::from_u128(n) };
        for ops in txns {
            let json: Vec<Value> = ops.iter().map(Op::to_json).collect();
            let ctx = Context { elapsed_ms: 0, read_only: false, owns_lock: &|_| false };
            let Outcome::Done { results, commit } = transact(&db, &json, &ctx, &mut fresh) else {
                panic!("nothing waits here");
            };
            let want = twin_transact(&mut twin, &ops);
            let got = results.iter().find_map(|r| r.get("error").and_then(Value::as_str));
            prop_assert_eq!(got, want, "{:?} -> {:?}", ops, results);
            if let Some(c) = commit {
                if let Some(record) = logrec::to_record(&schema, &c, 7) {
                    logrec::replay(&mut logged, &record, &mut fresh).unwrap();
                }
                db.apply(&c);
            }
            prop_assert_eq!(&state(&db), &twin, "{:?}", ops);
            prop_assert_eq!(&state(&logged), &twin, "{:?}", ops);
        }
        let mut snapshot = Database::new(schema.clone());
        if let Some(r) = logrec::snapshot_record(&db, 1, "c") {
            logrec::replay(&mut snapshot, &r, &mut fresh).unwrap();
        }
        prop_assert_eq!(state(&snapshot), twin);
    }

    /// `old.apply_diff(old.diff(new)) == new`, for sets and maps, also through JSON.
    #[test]
    fn differences_apply(a in pairs(), b in pairs()) {
        let schema = Schema::parse(include_str!("zoo.ovsschema")).unwrap();
        let root = &schema.tables[schema.table("Root").unwrap()];
        let (set, map) = (&root.columns[root.column("ints").unwrap()].ty, &root.columns[root.column("im").unwrap()].ty);
        let int = |v: i64| fv_ovsdb::Atom::Integer(v);
        for (ty, x, y) in [
            (set, Datum::from_keys(a.iter().map(|p| int(p.0))), Datum::from_keys(b.iter().map(|p| int(p.0)))),
            (map, Datum::from_pairs(a.iter().map(|p| (int(p.0), int(p.1)))), Datum::from_pairs(b.iter().map(|p| (int(p.0), int(p.1))))),
        ] {
            let diff = Datum::from_json(ty, &x.diff(&y, ty).to_json(ty), None).unwrap();
            prop_assert_eq!(&x.apply_diff(&diff, ty), &y);
            prop_assert_eq!(&Datum::from_json(ty, &y.to_json(ty), None).unwrap(), &y);
            prop_assert!(x.is_subset_of(&x.union(&y)));
            prop_assert!(x.subtract(&y).is_disjoint_from(&y));
            prop_assert_eq!(x.is_subset_of(&y), x.subtract(&y).is_empty());
        }
    }

    /// Whatever JSON a client sends, it gets an answer.
    #[test]
    fn hostile_operations_never_panic(ops in proptest::collection::vec(hostile(), 1..4)) {
        let schema = Arc::new(Schema::parse(include_str!("zoo.ovsschema")).unwrap());
        let mut db = Database::new(schema);
        let mut fresh = Uuid::new_v4;
        for op in &ops {
            let ctx = Context { elapsed_ms: 0, read_only: false, owns_lock: &|_| false };
            if let Outcome::Done { commit: Some(c), .. } = transact(&db, std::slice::from_ref(op), &ctx, &mut fresh) {
                db.apply(&c);
            }
            let _ = Schema::from_json(op);
            let _ = fv_ovsdb::Message::from_json(op.clone());
            let _ = logrec::replay(&mut db, op, &mut fresh);
            let version = fv_ovsdb::monitor::Version::V2;
            if let Ok(m) = fv_ovsdb::monitor::Monitor::from_json(db.schema(), version, op) {
                let _ = m.initial(&db);
            }
        }
    }
}

fn pairs() -> impl Strategy<Value = Vec<(i64, i64)>> {
    proptest::collection::vec((0..8i64, 0..3i64), 0..8)
}

/// JSON that is often nearly right.
fn hostile() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z]{0,3}".prop_map(Value::from),
        proptest::sample::select(vec![
            "set",
            "map",
            "uuid",
            "named-uuid",
            "==",
            "!=",
            "<",
            "includes",
            "excludes",
            "+=",
            "%=",
            "/=",
            "insert",
            "delete",
            "select",
            "update",
            "mutate",
            "wait",
            "Root",
            "Kid",
            "W1",
            "name",
            "kids",
            "m",
            "ints",
            "r",
            "num",
            "_uuid",
            "unlimited",
            "integer",
            "00000000-0000-0000-0000-000000000001",
        ])
        .prop_map(Value::from),
    ];
    let member = proptest::sample::select(vec![
        "op",
        "table",
        "where",
        "row",
        "rows",
        "columns",
        "mutations",
        "until",
        "timeout",
        "uuid-name",
        "uuid",
        "name",
        "kids",
        "m",
        "ints",
        "Root",
        "Kid",
        "tables",
        "version",
        "type",
        "key",
        "value",
        "min",
        "max",
        "enum",
        "_date",
        "_is_diff",
        "method",
        "params",
        "id",
        "select",
        "00000000-0000-0000-0000-000000000001",
    ]);
    leaf.prop_recursive(6, 48, 6, move |inner| {
        let operation = (
            proptest::sample::select(vec!["insert", "select", "update", "mutate", "delete", "wait"]),
            proptest::sample::select(vec!["Root", "Kid", "W1"]),
            proptest::collection::hash_map(member.clone(), inner.clone(), 0..5),
        )
            .prop_map(|(op, table, rest)| {
                let mut o = json!({"where": [], "row": {}, "rows": [], "until": "==", "mutations": [], "timeout": 0});
                let keep = |k: &str| match op {
                    "insert" => k == "row",
                    "select" | "delete" => k == "where",
                    "update" => k == "where" || k == "row",
                    "mutate" => k == "where" || k == "mutations",
                    _ => k != "row" && k != "mutations",
                };
                o.as_object_mut().unwrap().retain(|k, _| keep(k));
                for (k, v) in rest.into_iter().filter(|(k, _)| keep(k) || *k == "columns") {
                    o[k] = v;
                }
                o["op"] = op.into();
                o["table"] = table.into();
                o
            });
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            (proptest::sample::select(vec!["set", "map", "uuid"]), inner.clone()).prop_map(|(c, v)| json!([c, v])),
            (
                proptest::sample::select(vec!["name", "ints", "r", "m", "num"]),
                proptest::sample::select(vec!["==", "+=", "*=", "insert", "<"]),
                inner.clone()
            )
                .prop_map(|(c, f, v)| json!([[c, f, v]])),
            proptest::collection::hash_map(member.clone(), inner, 0..5).prop_map(|m| m
                .into_iter()
                .map(|(k, v)| (k.to_owned(), v))
                .collect::<serde_json::Map<_, _>>()
                .into()),
            operation,
        ]
    })
}
