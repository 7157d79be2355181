//! The operations of `transact` (RFC 7047 section 5.2).

use crate::atom::{Atom, parse_uuid};
use crate::condition::Condition;
use crate::datum::Datum;
use crate::db::{Commit, Database};
use crate::error::{Error, Result, Tag};
use crate::mutation::Mutation;
use crate::parser::{Kind, Parser};
use crate::schema::{COL_VERSION, Row, Schema, TableSchema};
use crate::symbols::{Symbols, UuidSource};
use crate::txn::Txn;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use uuid::Uuid;

/// What a transaction may know of its surroundings.
pub struct Context<'a> {
    /// Since the transaction was first tried: `wait` gives up by this.
    pub elapsed_ms: u64,
    /// Refuse everything that would change the database.
    pub read_only: bool,
    /// Whether the client owns a lock.
    pub owns_lock: &'a dyn Fn(&str) -> bool,
}

/// How a transaction ended.
#[derive(Debug)]
pub enum Outcome {
    /// The reply's `result`, and what is to be logged and applied before it is sent; None if an
    /// operation failed. An empty commit changes nothing.
    Done { results: Vec<Value>, commit: Option<Commit> },
    /// A `wait` is not satisfied: try again when the database has changed, or by then.
    Wait { timeout_ms: Option<u64> },
}

/// Runs `operations` against `db`, which is not changed.
pub fn transact(db: &Database, operations: &[Value], ctx: &Context, fresh: UuidSource) -> Outcome {
    let mut exec = Exec {
        txn: Txn::new(db),
        symbols: Symbols::new(fresh),
        ctx,
        durable: false,
        comments: Vec::new(),
        wait_ms: None,
    };
    let mut results = Vec::with_capacity(operations.len() + 1);
    for (i, op) in operations.iter().enumerate() {
        let name = format!("ovsdb operation {} of {}", i + 1, operations.len());
        match exec.operation(op, name) {
            Ok(Some(result)) => results.push(result),
            Ok(None) => return Outcome::Wait { timeout_ms: exec.wait_ms },
            Err(e) => {
                results.push(e.to_json());
                results.resize(operations.len(), Value::Null);
                return Outcome::Done { results, commit: None };
            }
        }
    }
    let Exec { txn, mut symbols, durable, comments, .. } = exec;
    match txn.commit(&mut || symbols.fresh()) {
        Ok(commit) => {
            let comment = (!comments.is_empty()).then(|| comments.join("\n"));
            Outcome::Done { results, commit: Some(Commit { comment, durable, ..commit }) }
        }
        Err(e) => {
            results.push(e.to_json());
            Outcome::Done { results, commit: None }
        }
    }
}

struct Exec<'a, 'c> {
    txn: Txn<'a>,
    symbols: Symbols<'a>,
    ctx: &'c Context<'c>,
    durable: bool,
    comments: Vec<String>,
    wait_ms: Option<u64>,
}

impl Exec<'_, '_> {
    /// The operation's result; None asks to wait.
    fn operation(&mut self, op: &Value, name: String) -> Result<Option<Value>> {
        let mut p = Parser::new(op, name)?;
        let op = p.required("op", Kind::ID)?.as_str().unwrap_or_default();
        if self.ctx.read_only && matches!(op, "insert" | "update" | "mutate" | "delete") {
            let what = format!("{op} operation not allowed when database server is in read only mode");
            return Err(Error::new(Tag::NotAllowed, what));
        }
        let result = match op {
            "insert" => self.insert(p)?,
            "select" => self.select(p)?,
            "update" => self.update(p)?,
            "mutate" => self.mutate(p)?,
            "delete" => self.delete(p)?,
            "wait" => return self.wait(p),
            "commit" => {
                let durable = p.required("durable", Kind::BOOLEAN)? == true;
                p.finish()?;
                self.durable |= durable;
                json!({})
            }
            "abort" => {
                p.finish()?;
                return Err(Error::new(Tag::Aborted, "aborted by request"));
            }
            "comment" => {
                let comment = p.required_str("comment")?;
                p.finish()?;
                self.comments.push(comment.to_owned());
                json!({})
            }
            "assert" => {
                let lock = p.required("lock", Kind::ID)?.as_str().unwrap_or_default();
                p.finish()?;
                if !(self.ctx.owns_lock)(lock) {
                    return Err(Error::new(Tag::NotOwner, format!("Asserted lock {lock} not held.")));
                }
                json!({})
            }
            other => return Err(p.fail(format!("No operation \"{other}\""))),
        };
        Ok(Some(result))
    }

    fn table(&self, p: &mut Parser<'_>) -> Result<usize> {
        let name = p.required("table", Kind::ID)?.as_str().unwrap_or_default();
        self.schema().table(name).ok_or_else(|| p.fail(format!("No table named {name}.")))
    }

    fn schema(&self) -> Arc<Schema> {
        self.txn.db().schema().clone()
    }

    fn matches(&self, t: usize, condition: &Condition) -> Vec<Uuid> {
        if let Some(u) = condition.pinned_uuid() {
            return self.txn.row(t, u).filter(|r| condition.all(r)).map(|_| u).into_iter().collect();
        }
        self.txn.rows(t).filter(|(_, r)| condition.all(r)).map(|(u, _)| u).collect()
    }

    fn put(&mut self, t: usize, uuid: Uuid, mut row: Row) {
        row[COL_VERSION] = Datum::uuid(self.symbols.fresh());
        self.txn.set(t, uuid, Some(row));
    }

    fn insert(&mut self, mut p: Parser<'_>) -> Result<Value> {
        let t = self.table(&mut p)?;
        let name = p.optional("uuid-name", Kind::ID)?;
        let want = p.optional("uuid", Kind::STRING)?;
        let row_json = p.required("row", Kind::OBJECT)?;
        p.finish()?;
        let schema = self.schema();
        let ts = &schema.tables[t];

        let want = match want {
            None => None,
            Some(json) => {
                let u = parse_uuid(json.as_str().unwrap_or_default()).ok_or_else(|| Error::syntax(json, "bad uuid"))?;
                if self.txn.is_known(t, u) {
                    let what = "This UUID would duplicate a UUID already present within the table or deleted within the same transaction.";
                    return Err(Error::new(Tag::DuplicateUuid, what).about(json));
                }
                Some(u)
            }
        };
        let uuid = match name {
            Some(json) => self.symbols.declare(json.as_str().unwrap_or_default(), want).ok_or_else(|| {
                let what = "This \"uuid-name\" appeared on an earlier \"insert\" operation.";
                Error::new(Tag::DuplicateUuidName, what).about(json)
            })?,
            None => want.unwrap_or_else(|| self.symbols.fresh()),
        };
        let mut row = ts.default_row(uuid);
        let given = parse_row(ts, row_json, &mut self.symbols)?;
        for (c, datum) in given.iter().filter(|(c, _)| *c > 1) {
            row[*c] = datum.clone();
        }
        // Defaults must satisfy the constraints too.
        for (c, column) in ts.columns.iter().enumerate().skip(2) {
            if !given.iter().any(|g| g.0 == c) {
                column.ty.check(&row[c])?;
            }
        }
        self.put(t, uuid, row);
        Ok(json!({"uuid": ["uuid", uuid.to_string()]}))
    }

    fn select(&mut self, mut p: Parser<'_>) -> Result<Value> {
        let t = self.table(&mut p)?;
        let condition = p.required("where", Kind::ARRAY)?;
        let columns = p.optional("columns", Kind::ARRAY)?;
        p.finish()?;
        let schema = self.schema();
        let ts = &schema.tables[t];
        let condition = Condition::from_json(ts, condition, Some(&mut self.symbols))?;
        let columns = columns_or_all(ts, columns)?;
        let mut distinct: BTreeSet<Vec<&Datum>> = BTreeSet::new();
        let mut rows = Vec::new();
        for uuid in self.matches(t, &condition) {
            let Some(row) = self.txn.row(t, uuid) else { continue };
            if distinct.insert(columns.iter().map(|c| &row[*c]).collect()) {
                rows.push(row_to_json(ts, row, &columns));
            }
        }
        Ok(json!({"rows": rows}))
    }

    fn update(&mut self, mut p: Parser<'_>) -> Result<Value> {
        let t = self.table(&mut p)?;
        let condition = p.required("where", Kind::ARRAY)?;
        let row_json = p.required("row", Kind::OBJECT)?;
        let json = p.json();
        p.finish()?;
        let schema = self.schema();
        let ts = &schema.tables[t];
        let given = parse_row(ts, row_json, &mut self.symbols)?;
        if let Some(c) = given.iter().map(|(c, _)| &ts.columns[*c]).find(|c| !c.mutable) {
            let what = format!("Cannot update immutable column {} in table {}.", c.name, ts.name);
            return Err(Error::constraint(what).about(json));
        }
        let condition = Condition::from_json(ts, condition, Some(&mut self.symbols))?;
        let uuids = self.matches(t, &condition);
        for uuid in &uuids {
            let Some(mut row) = self.txn.row(t, *uuid).cloned() else { continue };
            for (c, datum) in &given {
                row[*c] = datum.clone();
            }
            self.put(t, *uuid, row);
        }
        Ok(json!({"count": uuids.len()}))
    }

    fn mutate(&mut self, mut p: Parser<'_>) -> Result<Value> {
        let t = self.table(&mut p)?;
        let condition = p.required("where", Kind::ARRAY)?;
        let mutations = p.required("mutations", Kind::ARRAY)?;
        p.finish()?;
        let schema = self.schema();
        let ts = &schema.tables[t];
        let mutations = mutations
            .as_array()
            .into_iter()
            .flatten()
            .map(|m| Mutation::from_json(ts, m, &mut self.symbols))
            .collect::<Result<Vec<_>>>()?;
        let condition = Condition::from_json(ts, condition, Some(&mut self.symbols))?;
        let uuids = self.matches(t, &condition);
        for uuid in &uuids {
            let Some(mut row) = self.txn.row(t, *uuid).cloned() else { continue };
            for m in &mutations {
                row[m.column] = m.apply(&ts.columns[m.column], &row[m.column])?;
            }
            self.put(t, *uuid, row);
        }
        Ok(json!({"count": uuids.len()}))
    }

    fn delete(&mut self, mut p: Parser<'_>) -> Result<Value> {
        let t = self.table(&mut p)?;
        let condition = p.required("where", Kind::ARRAY)?;
        p.finish()?;
        let schema = self.schema();
        let condition = Condition::from_json(&schema.tables[t], condition, Some(&mut self.symbols))?;
        let uuids = self.matches(t, &condition);
        for uuid in &uuids {
            self.txn.set(t, *uuid, None);
        }
        Ok(json!({"count": uuids.len()}))
    }

    fn wait(&mut self, mut p: Parser<'_>) -> Result<Option<Value>> {
        let t = self.table(&mut p)?;
        let timeout = p.optional("timeout", Kind::NUMBER)?;
        let condition = p.required("where", Kind::ARRAY)?;
        let columns = p.optional("columns", Kind::ARRAY)?;
        let until = p.required("until", Kind::STRING)?;
        let rows = p.required("rows", Kind::ARRAY)?;
        p.finish()?;
        let schema = self.schema();
        let ts = &schema.tables[t];
        let timeout_ms = match timeout {
            None => None,
            Some(json) => match json.as_f64() {
                Some(ms) if ms >= 0.0 => Some(ms.min(i64::MAX as f64) as u64),
                _ => return Err(Error::syntax(json, "timeout must be nonnegative")),
            },
        };
        let condition = Condition::from_json(ts, condition, Some(&mut self.symbols))?;
        let columns = columns_or_all(ts, columns)?;
        let want_equal = match until.as_str() {
            Some("==") => true,
            Some("!=") => false,
            _ => return Err(Error::syntax(until, "\"until\" must be \"==\" or \"!=\"")),
        };
        let mut expected: BTreeSet<Vec<Datum>> = BTreeSet::new();
        for r in rows.as_array().into_iter().flatten() {
            let mut row = ts.default_row(Uuid::nil());
            for (c, datum) in parse_row(ts, r, &mut self.symbols)? {
                row[c] = datum;
            }
            expected.insert(columns.iter().map(|c| row[*c].clone()).collect());
        }
        let uuids = self.matches(t, &condition);
        let actual: BTreeSet<Vec<Datum>> = uuids
            .iter()
            .filter_map(|u| self.txn.row(t, *u))
            .map(|r| columns.iter().map(|c| r[*c].clone()).collect())
            .collect();
        if (actual == expected) == want_equal {
            return Ok(Some(json!({})));
        }
        match timeout_ms {
            Some(ms) if self.ctx.elapsed_ms >= ms => Err(Error::new(
                Tag::TimedOut,
                match self.ctx.elapsed_ms {
                    0 => "\"where\" clause test failed".to_owned(),
                    n => format!("\"wait\" timed out after {n} ms"),
                },
            )),
            t => {
                self.wait_ms = t;
                Ok(None)
            }
        }
    }
}

fn columns_or_all(ts: &TableSchema, json: Option<&Value>) -> Result<Vec<usize>> {
    json.map_or_else(|| Ok((0..ts.columns.len()).collect()), |j| ts.column_set(j))
}

/// The columns that a JSON row gives, checked.
pub fn parse_row(ts: &TableSchema, json: &Value, symbols: &mut Symbols) -> Result<Vec<(usize, Datum)>> {
    let o = json.as_object().ok_or_else(|| Error::syntax(json, "row must be JSON object"))?;
    o.iter()
        .map(|(name, v)| {
            let c = ts.column_for(name, json)?;
            Ok((c, Datum::from_json(&ts.columns[c].ty, v, Some(symbols))?))
        })
        .collect()
}

pub fn row_to_json(ts: &TableSchema, row: &Row, columns: &[usize]) -> Value {
    let member = |c: &usize| (ts.columns[*c].name.clone(), row[*c].to_json(&ts.columns[*c].ty));
    Value::Object(columns.iter().map(member).collect::<Map<String, Value>>())
}

/// The uuid of a row as a condition.
pub fn where_uuid(uuid: Uuid) -> Value {
    json!([["_uuid", "==", Atom::Uuid(uuid).to_json()]])
}
