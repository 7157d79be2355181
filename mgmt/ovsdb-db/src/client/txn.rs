//! Write transactions of a client.

use fv_ovsdb::exec::where_uuid;
use fv_ovsdb::mutation::Mutator;
use fv_ovsdb::{Datum, Schema, Uuid};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Names a transaction that was committed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TxnId(pub u64);

/// How a transaction ended.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// Done; the uuids of its inserts, in order.
    Success { inserted: Vec<Uuid> },
    /// There was nothing to do.
    Unchanged,
    /// The database was not reachable, went away, or had changed: build it anew from the replica.
    TryAgain,
    /// We do not hold the lock.
    NotLocked,
    /// The server refused it: the error object as text.
    Error(String),
}

impl Outcome {
    pub fn is_success(&self) -> bool {
        matches!(self, Outcome::Success { .. } | Outcome::Unchanged)
    }
}

/// A column's new value: a datum, or JSON where a row of this transaction is named.
#[derive(Clone, Debug)]
pub enum ColumnValue {
    Datum(Datum),
    Json(Value),
}

impl From<Datum> for ColumnValue {
    fn from(d: Datum) -> Self {
        ColumnValue::Datum(d)
    }
}
impl From<Value> for ColumnValue {
    fn from(v: Value) -> Self {
        ColumnValue::Json(v)
    }
}

/// Collects operations. Columns and tables that the server does not have are left out, so that one
/// program can write to databases of several versions.
pub struct TxnBuilder {
    schema: Arc<Schema>,
    ops: Vec<Value>,
    comments: Vec<String>,
    names: usize,
}

impl TxnBuilder {
    pub(super) fn new(schema: Arc<Schema>) -> TxnBuilder {
        TxnBuilder { schema, ops: Vec::new(), comments: Vec::new(), names: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    fn row(&self, table: &str, columns: Vec<(&str, ColumnValue)>) -> Option<Value> {
        let ts = &self.schema.tables[self.schema.table(table)?];
        let mut row = Map::new();
        for (name, v) in columns {
            let Some(c) = ts.column(name) else { continue };
            let v = match v {
                ColumnValue::Datum(d) => d.to_json(&ts.columns[c].ty),
                ColumnValue::Json(v) => v,
            };
            row.insert(name.to_owned(), v);
        }
        Some(row.into())
    }

    /// Inserts a row; the result refers to it within this transaction (`["named-uuid", ...]`).
    pub fn insert(&mut self, table: &str, columns: Vec<(&str, ColumnValue)>) -> Value {
        self.names += 1;
        let name = format!("row{}", self.names);
        if let Some(row) = self.row(table, columns) {
            self.ops.push(json!({"op": "insert", "table": table, "uuid-name": name, "row": row}));
        }
        json!(["named-uuid", name])
    }

    pub fn update(&mut self, table: &str, uuid: Uuid, columns: Vec<(&str, ColumnValue)>) {
        match self.row(table, columns) {
            Some(row) if row.as_object().is_some_and(|o| !o.is_empty()) => {
                self.ops.push(json!({"op": "update", "table": table, "where": where_uuid(uuid), "row": row}));
            }
            _ => {}
        }
    }

    pub fn mutate(&mut self, table: &str, uuid: Uuid, column: &str, mutator: Mutator, arg: impl Into<ColumnValue>) {
        let Some(ts) = self.schema.table(table).map(|t| &self.schema.tables[t]) else { return };
        let Some(c) = ts.column(column) else { return };
        let arg = match arg.into() {
            // Deleting from a map by keys alone takes a set.
            ColumnValue::Datum(d) if mutator == Mutator::Delete && d.values().is_empty() => d.to_json_as_set(),
            ColumnValue::Datum(d) => d.to_json(&ts.columns[c].ty),
            ColumnValue::Json(v) => v,
        };
        let mutations = json!([[column, mutator.as_str(), arg]]);
        self.ops.push(json!({"op": "mutate", "table": table, "where": where_uuid(uuid), "mutations": mutations}));
    }

    pub fn delete(&mut self, table: &str, uuid: Uuid) {
        if self.schema.table(table).is_some() {
            self.ops.push(json!({"op": "delete", "table": table, "where": where_uuid(uuid)}));
        }
    }

    /// Makes the transaction fail with `TryAgain` unless the column still has this value.
    pub fn verify(&mut self, table: &str, uuid: Uuid, column: &str, value: &Datum) {
        if let Some(row) = self.row(table, vec![(column, value.clone().into())]).filter(|r| r.get(column).is_some()) {
            self.ops.push(json!({
                "op": "wait", "table": table, "where": where_uuid(uuid), "columns": [column],
                "until": "==", "rows": [row], "timeout": 0
            }));
        }
    }

    pub fn comment(&mut self, text: &str) {
        self.comments.push(text.to_owned());
    }

    /// Any operation, as JSON.
    pub fn op(&mut self, op: Value) {
        self.ops.push(op);
    }

    pub(super) fn into_params(self, database: &str, lock: Option<&str>) -> Vec<Value> {
        let mut params = vec![Value::from(database)];
        params.extend(lock.map(|l| json!({"op": "assert", "lock": l})));
        params.extend(self.ops);
        if !self.comments.is_empty() {
            params.push(json!({"op": "comment", "comment": self.comments.join("\n")}));
        }
        params
    }
}

pub(super) fn outcome_of(reply: Result<Value, Value>) -> Outcome {
    let results = match reply {
        Ok(Value::Array(r)) => r,
        Ok(other) => return Outcome::Error(format!("unexpected transaction result {other}")),
        Err(e) => return Outcome::Error(e.to_string()),
    };
    let mut inserted = Vec::new();
    for r in &results {
        match r.get("error").and_then(Value::as_str) {
            Some("timed out") => return Outcome::TryAgain,
            Some("not owner") => return Outcome::NotLocked,
            Some(_) => return Outcome::Error(r.to_string()),
            None => {}
        }
        if let Some(u) = r.get("uuid").and_then(|u| u.get(1)).and_then(Value::as_str) {
            inserted.extend(fv_ovsdb::atom::parse_uuid(u));
        }
    }
    Outcome::Success { inserted }
}
