//! Rows of the replica: typed reading, and the updates that change them.

use fv_ovsdb::atom::parse_uuid;
use fv_ovsdb::types::UNLIMITED;
use fv_ovsdb::{BaseType, ColumnType, Datum, Row, Schema, TableSchema, Uuid};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

static EMPTY: Datum = Datum::empty();

/// One row. Columns that the server does not have, or that hold nothing, read as absent, zero,
/// false, empty.
#[derive(Clone, Copy)]
pub struct RowRef<'a> {
    ts: &'a TableSchema,
    uuid: Uuid,
    row: &'a Row,
}

impl<'a> RowRef<'a> {
    pub(super) fn new(ts: &'a TableSchema, uuid: Uuid, row: &'a Row) -> RowRef<'a> {
        RowRef { ts, uuid, row }
    }

    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    pub fn table(&self) -> &'a str {
        &self.ts.name
    }

    pub fn has_column(&self, column: &str) -> bool {
        self.ts.column(column).is_some()
    }

    pub fn datum(&self, column: &str) -> &'a Datum {
        self.ts.column(column).map_or(&EMPTY, |c| &self.row[c])
    }

    /// A string, "" if absent.
    pub fn str(&self, column: &str) -> &'a str {
        self.str_opt(column).unwrap_or("")
    }
    pub fn str_opt(&self, column: &str) -> Option<&'a str> {
        self.datum(column).as_str()
    }
    /// An integer, 0 if absent.
    pub fn i64(&self, column: &str) -> i64 {
        self.i64_opt(column).unwrap_or(0)
    }
    pub fn i64_opt(&self, column: &str) -> Option<i64> {
        self.datum(column).as_i64()
    }
    pub fn f64_opt(&self, column: &str) -> Option<f64> {
        self.datum(column).as_f64()
    }
    /// A boolean, false if absent.
    pub fn bool(&self, column: &str) -> bool {
        self.bool_opt(column).unwrap_or(false)
    }
    pub fn bool_opt(&self, column: &str) -> Option<bool> {
        self.datum(column).as_bool()
    }
    pub fn uuid_opt(&self, column: &str) -> Option<Uuid> {
        self.datum(column).as_uuid()
    }
    /// The set of references in a column.
    pub fn uuids(&self, column: &str) -> impl Iterator<Item = Uuid> + use<'a> {
        self.datum(column).uuid_keys()
    }
    pub fn strs(&self, column: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        self.datum(column).str_keys()
    }
    pub fn ints(&self, column: &str) -> impl Iterator<Item = i64> + use<'a> {
        self.datum(column).i64_keys()
    }
    /// (key, value) of a map of strings.
    pub fn map(&self, column: &str) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.datum(column).str_pairs()
    }
    /// Value of a map of strings, e.g. of `other_config`.
    pub fn lookup(&self, column: &str, key: &str) -> Option<&'a str> {
        self.datum(column).lookup(key)
    }
}

impl std::fmt::Debug for RowRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut s = f.debug_struct(&self.ts.name);
        s.field("_uuid", &self.uuid);
        for (c, d) in self.ts.columns.iter().zip(self.row).skip(2) {
            s.field(&c.name, &format_args!("{d}"));
        }
        s.finish()
    }
}

/// Applies table updates; returns how many rows changed in more than quiet columns. Stops at the
/// first update that is wrong.
pub(super) fn apply_updates(
    schema: &Schema,
    quiet: &[(&str, &[&str])],
    tables: &mut [BTreeMap<Uuid, Arc<Row>>],
    updates: &Value,
    plain: bool,
) -> Result<usize, String> {
    let mut n = 0;
    for (name, rows) in updates.as_object().ok_or("table-updates is not an object")? {
        let t = schema.table(name).ok_or_else(|| format!("update of unknown table {name}"))?;
        let quiet = quiet.iter().find(|q| q.0 == name).map_or(&[][..], |q| q.1);
        for (uuid, update) in rows.as_object().ok_or("table-update is not an object")? {
            let uuid = parse_uuid(uuid).ok_or_else(|| format!("bad row UUID {uuid}"))?;
            let update = update.as_object().ok_or("row-update is not an object")?;
            let ts = &schema.tables[t];
            let rows = &mut tables[t];
            let old = rows.get(&uuid).cloned();
            let new = if plain { plain_row(ts, &old, uuid, update)? } else { row2(ts, &old, uuid, update)? };
            n += usize::from(is_loud(ts, quiet, old.as_deref(), new.as_ref()));
            match new {
                None => rows.remove(&uuid),
                Some(row) => rows.insert(uuid, Arc::new(row)),
            };
        }
    }
    Ok(n)
}

/// Rows that come or go are always news.
fn is_loud(ts: &TableSchema, quiet: &[&str], old: Option<&Row>, new: Option<&Row>) -> bool {
    match (old, new) {
        (None, None) => false,
        (Some(old), Some(new)) => {
            let differs =
                |(c, (a, b)): (usize, (&Datum, &Datum))| a != b && !quiet.contains(&ts.columns[c].name.as_str());
            old.iter().zip(new).enumerate().any(differs)
        }
        _ => true,
    }
}

/// The row after an update of format 1.
fn plain_row(
    ts: &TableSchema,
    old: &Option<Arc<Row>>,
    uuid: Uuid,
    update: &Map<String, Value>,
) -> Result<Option<Row>, String> {
    let Some(new) = update.get("new").filter(|v| !v.is_null()) else { return Ok(None) };
    let mut row = old.as_ref().map_or_else(|| ts.default_row(uuid), |r| (**r).clone());
    for (c, d) in columns(ts, new)? {
        row[c] = d;
    }
    Ok(Some(row))
}

/// The row after an update of formats 2 and 3.
fn row2(
    ts: &TableSchema,
    old: &Option<Arc<Row>>,
    uuid: Uuid,
    update: &Map<String, Value>,
) -> Result<Option<Row>, String> {
    if update.contains_key("delete") {
        return Ok(None);
    }
    if let Some(new) = update.get("initial").or_else(|| update.get("insert")) {
        let mut row = ts.default_row(uuid);
        for (c, d) in columns(ts, new)? {
            row[c] = d;
        }
        return Ok(Some(row));
    }
    let Some(diff) = update.get("modify") else { return Err("row-update2 of unknown kind".into()) };
    let mut row = old.as_ref().map(|r| (**r).clone()).ok_or("modification of a row that is not there")?;
    for (c, d) in columns(ts, diff)? {
        row[c] = row[c].apply_diff(&d, &ts.columns[c].ty);
    }
    Ok(Some(row))
}

/// Values in an update. The server vouches for constraints; differences may break them.
fn columns(ts: &TableSchema, json: &Value) -> Result<Vec<(usize, Datum)>, String> {
    let o = json.as_object().ok_or("row is not an object")?;
    let mut out = Vec::with_capacity(o.len());
    for (name, v) in o {
        let Some(c) = ts.column(name) else { return Err(format!("unknown column {name} in table {}", ts.name)) };
        let ty = &ts.columns[c].ty;
        let relaxed = ColumnType {
            key: BaseType::plain(ty.key.ty),
            value: ty.value.as_ref().map(|v| BaseType::plain(v.ty)),
            min: 0,
            max: UNLIMITED,
        };
        out.push((c, Datum::from_json(&relaxed, v, None).map_err(|e| e.to_string())?));
    }
    Ok(out)
}
