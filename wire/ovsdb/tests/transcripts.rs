//! Transactions and the replies that the reference's server gave to them.

use fv_ovsdb::{Context, Database, Outcome, Schema, Uuid, transact};
use serde_json::Value;
use std::sync::Arc;

/// Random uuids become "U" and rows are sorted: their order is not part of the protocol.
fn normalise(v: &mut Value) {
    match v {
        Value::String(s) => *s = blank_uuids(s),
        Value::Array(a) => a.iter_mut().for_each(normalise),
        Value::Object(o) => {
            o.values_mut().for_each(normalise);
            if let Some(Value::Array(rows)) = o.get_mut("rows") {
                rows.sort_by_key(|r| r.to_string());
            }
            // Which of two rows is called first depends on the order of a hash table.
            if let Some(Value::String(d)) = o.get_mut("details")
                && let Some(i) = d.find("  First row")
            {
                d.truncate(i);
            }
        }
        _ => {}
    }
}

fn blank_uuids(s: &str) -> String {
    let mut out = String::new();
    let mut rest = s;
    while !rest.is_empty() {
        match rest.get(..36).filter(|h| Uuid::try_parse(h).is_ok() && !h.starts_with("00000000-0000")) {
            Some(_) => {
                out.push('U');
                rest = &rest[36..];
            }
            None => {
                let c = rest.chars().next().unwrap_or_default();
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    out
}

#[test]
fn replies_equal_the_references() {
    let schema = Arc::new(Schema::parse(include_str!("zoo.ovsschema")).unwrap());
    let cases: Vec<Value> = serde_json::from_str(include_str!("transact.json")).unwrap();
    let mut db = Database::new(schema.clone());
    let mut n = 0u128;
    let mut fresh = || {
        n += 1;
        Uuid::from_u128(0x1234_5678_0000_4000_8000_0000_0000_0000 + n)
    };
    let mut bad = String::new();
    for case in cases {
        if case == "fresh" {
            db = Database::new(schema.clone());
            continue;
        }
        let ops = case["ops"].as_array().unwrap();
        let mut elapsed_ms = 0;
        let results = loop {
            let ctx = Context { elapsed_ms, read_only: false, owns_lock: &|_| false };
            match transact(&db, ops, &ctx, &mut fresh) {
                Outcome::Done { results, commit } => {
                    if let Some(c) = commit {
                        db.apply(&c);
                    }
                    break results;
                }
                Outcome::Wait { timeout_ms } => elapsed_ms = timeout_ms.expect("a wait for ever in the transcript"),
            }
        };
        let (mut got, mut want) = (Value::from(results), case["result"].clone());
        normalise(&mut got);
        normalise(&mut want);
        if got != want {
            bad += &format!("{}\n  got  {got}\n  want {want}\n", case["ops"]);
        }
    }
    assert!(bad.is_empty(), "\n{bad}");
}
