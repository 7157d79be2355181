//! The records of a standalone database file: transactions as JSON.

use crate::atom::parse_uuid;
use crate::datum::Datum;
use crate::db::{Commit, Database};
use crate::error::{Error, Result, Tag};
use crate::exec::row_to_json;
use crate::schema::{Row, Schema, TableSchema};
use crate::symbols::UuidSource;
use crate::txn::Txn;
use crate::types::{BaseType, ColumnType, UNLIMITED};
use serde_json::{Map, Value};
use std::sync::Arc;

/// The record of a commit; None if it changed nothing that is kept (ephemeral columns only).
/// Changes are written as differences, marked by `_is_diff`.
pub fn to_record(schema: &Schema, commit: &Commit, date_ms: u64) -> Option<Value> {
    let mut record = Map::new();
    for (t, changes) in &commit.tables {
        let ts = &schema.tables[*t];
        let mut rows = Map::new();
        for c in changes {
            let row = match (&c.old, &c.new) {
                (_, None) => Some(Value::Null),
                (None, Some(new)) => {
                    let keep = |i: &usize| !ts.columns[*i].ephemeral && !new[*i].is_default(&ts.columns[*i].ty);
                    Some(row_to_json(ts, new, &persistent(ts).filter(keep).collect::<Vec<_>>()))
                }
                (Some(old), Some(new)) => diff_to_json(ts, old, new),
            };
            if let Some(row) = row {
                rows.insert(c.uuid.to_string(), row);
            }
        }
        if !rows.is_empty() {
            record.insert(ts.name.clone(), rows.into());
        }
    }
    if record.is_empty() {
        return None;
    }
    if let Some(c) = &commit.comment {
        record.insert("_comment".into(), c.as_str().into());
    }
    record.insert("_date".into(), date_ms.into());
    record.insert("_is_diff".into(), true.into());
    Some(record.into())
}

fn persistent(ts: &TableSchema) -> impl Iterator<Item = usize> + '_ {
    (2..ts.columns.len()).filter(|i| !ts.columns[*i].ephemeral)
}

fn diff_to_json(ts: &TableSchema, old: &Row, new: &Row) -> Option<Value> {
    let member = |i: usize| {
        let c = &ts.columns[i];
        (c.name.clone(), old[i].diff(&new[i], &c.ty).to_json(&c.ty))
    };
    let o: Map<String, Value> = persistent(ts).filter(|i| old[*i] != new[*i]).map(member).collect();
    (!o.is_empty()).then(|| o.into())
}

/// Applies a record to `db`. The record's own rules were checked when it was written; here only
/// types are.
pub fn replay(db: &mut Database, record: &Value, fresh: UuidSource) -> Result<()> {
    let schema = db.schema().clone();
    let record = record.as_object().ok_or_else(|| Error::syntax(record, "database log entry must be a JSON object"))?;
    let is_diff = record.get("_is_diff") == Some(&Value::Bool(true));
    let mut txn = Txn::new(db);
    for (name, rows) in record.iter().filter(|(n, _)| !n.starts_with('_')) {
        let t = schema.table(name).ok_or_else(|| {
            Error::new(Tag::Ovsdb, format!("log entry for table {name}, which the schema does not have"))
        })?;
        let ts = &schema.tables[t];
        for (uuid, row) in rows.as_object().ok_or_else(|| Error::syntax(rows, "object expected"))? {
            let uuid = parse_uuid(uuid).ok_or_else(|| Error::new(Tag::Ovsdb, format!("bad row UUID {uuid}")))?;
            let new = match row {
                Value::Null => None,
                Value::Object(columns) => {
                    let old = txn.row(t, uuid).cloned();
                    let exists = old.is_some();
                    let mut new = old.unwrap_or_else(|| ts.default_row(uuid));
                    for (name, v) in columns {
                        let c = ts.column_for(name, row)?;
                        let ty = &ts.columns[c].ty;
                        let d = Datum::from_json(&relaxed(ty), v, None)?;
                        new[c] = if exists && is_diff { new[c].apply_diff(&d, ty) } else { d };
                    }
                    Some(new)
                }
                other => return Err(Error::syntax(other, "object or null expected")),
            };
            txn.set(t, uuid, new);
        }
    }
    let commit = txn.commit_replayed(fresh);
    db.apply(&commit);
    Ok(())
}

/// Differences may have fewer or more elements than the column.
fn relaxed(ty: &ColumnType) -> ColumnType {
    ColumnType {
        key: BaseType::plain(ty.key.ty),
        value: ty.value.as_ref().map(|v| BaseType::plain(v.ty)),
        min: 0,
        max: UNLIMITED,
    }
}

/// The rows of `db` under another schema: columns that both have are kept where their values are
/// legal in `schema`, the others get defaults. The second value lists what was lost.
pub fn convert(db: &Database, schema: Arc<Schema>, fresh: UuidSource) -> Result<(Database, Vec<String>)> {
    let mut lost = Vec::new();
    let empty = Database::new(schema.clone());
    let mut txn = Txn::new(&empty);
    for (t, old_ts) in db.schema().tables.iter().enumerate() {
        let Some(new_t) = schema.table(&old_ts.name) else {
            if db.row_count(t) > 0 {
                lost.push(format!("table {}", old_ts.name));
            }
            continue;
        };
        let ts = &schema.tables[new_t];
        for (uuid, row) in db.rows(t) {
            let mut new = ts.default_row(uuid);
            for (c, old) in old_ts.columns.iter().zip(row.iter()).skip(2) {
                let Some(i) = ts.column(&c.name) else {
                    if !old.is_default(&c.ty) {
                        lost.push(format!("{} row {uuid} column {}", ts.name, c.name));
                    }
                    continue;
                };
                match Datum::from_json(&ts.columns[i].ty, &old.to_json(&c.ty), None) {
                    Ok(d) => new[i] = d,
                    Err(e) => lost.push(format!("{} row {uuid} column {}: {e}", ts.name, c.name)),
                }
            }
            txn.set(new_t, uuid, Some(new));
        }
    }
    let commit = txn.commit(fresh)?;
    let mut new = Database::new(schema);
    new.apply(&commit);
    lost.dedup();
    Ok((new, lost))
}

/// The whole database as the one transaction of a compacted file.
pub fn snapshot_record(db: &Database, date_ms: u64, comment: &str) -> Option<Value> {
    let mut commit = db.snapshot();
    commit.comment = Some(comment.to_owned());
    let mut r = to_record(db.schema(), &commit, date_ms)?;
    if let Some(o) = r.as_object_mut() {
        o.remove("_is_diff");
    }
    Some(r)
}
