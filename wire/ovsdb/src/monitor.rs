//! Monitors: what a client wants to see of a database, and the updates that tell it so.
//!
//! Three formats: "table updates" of RFC 7047 (`monitor`), "updates2" with conditions and
//! differences (`monitor_cond`), and the same with a transaction id (`monitor_cond_since`).

use crate::condition::{Clause, Condition};
use crate::db::{Commit, Database, RowChange};
use crate::error::{Error, Result, Tag};
use crate::exec::row_to_json;
use crate::parser::{Kind, Parser};
use crate::schema::{COL_VERSION, Row, Schema, TableSchema};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    V1,
    V2,
    V3,
}

/// Which events report a column.
#[derive(Clone, Copy, Debug)]
struct Select {
    initial: bool,
    insert: bool,
    delete: bool,
    modify: bool,
}

impl Select {
    fn add(&mut self, o: Select) {
        self.initial |= o.initial;
        self.insert |= o.insert;
        self.delete |= o.delete;
        self.modify |= o.modify;
    }

    fn from_json(json: Option<&Value>, table: &str) -> Result<Select> {
        let Some(json) = json else { return Ok(Select { initial: true, insert: true, delete: true, modify: true }) };
        let mut p = Parser::new(json, format!("table {table} select"))?;
        let mut flag = |m| Ok::<bool, Error>(p.optional_bool(m)?.unwrap_or(true));
        let s = Select {
            initial: flag("initial")?,
            insert: flag("insert")?,
            delete: flag("delete")?,
            modify: flag("modify")?,
        };
        p.finish()?;
        Ok(s)
    }
}

#[derive(Clone, Debug)]
struct TableMonitor {
    columns: Vec<(usize, Select)>,
    /// What any of the requests selects: rows are reported by it, even without columns.
    rows: Select,
    condition: Condition,
}

/// A set of tables and columns that a client watches.
#[derive(Clone, Debug)]
pub struct Monitor {
    version: Version,
    schema: Arc<Schema>,
    tables: BTreeMap<usize, TableMonitor>,
}

impl Monitor {
    /// From the `monitor-requests` member of a request.
    pub fn from_json(schema: &Arc<Schema>, version: Version, requests: &Value) -> Result<Monitor> {
        let requests =
            requests.as_object().ok_or_else(|| Error::syntax(requests, "monitor-requests must be object"))?;
        let mut tables = BTreeMap::new();
        for (name, r) in requests {
            let t = schema.table(name).ok_or_else(|| Error::new(Tag::Syntax, format!("no table named {name}")))?;
            tables.insert(t, TableMonitor::from_json(&schema.tables[t], version, r)?);
        }
        Ok(Monitor { version, schema: schema.clone(), tables })
    }

    pub fn version(&self) -> Version {
        self.version
    }

    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The first reply: every row that the client wants to see.
    pub fn initial(&self, db: &Database) -> Value {
        let mut updates = Map::new();
        for (t, m) in &self.tables {
            let columns = m.columns(|s| s.initial);
            if !m.rows.initial {
                continue;
            }
            let ts = &self.schema.tables[*t];
            let mut rows = Map::new();
            for (uuid, row) in db.rows(*t).filter(|(_, r)| m.condition.any(r)) {
                let update = match self.version {
                    Version::V1 => json!({"new": row_to_json(ts, row, &columns)}),
                    _ => json!({"initial": set_columns(ts, row, &columns)}),
                };
                rows.insert(uuid.to_string(), update);
            }
            if !rows.is_empty() {
                updates.insert(ts.name.clone(), rows.into());
            }
        }
        updates.into()
    }

    /// What a commit means for this client; None if nothing.
    pub fn update(&self, commit: &Commit) -> Option<Value> {
        let mut updates = Map::new();
        for (t, changes) in &commit.tables {
            let Some(m) = self.tables.get(t) else { continue };
            let ts = &self.schema.tables[*t];
            let mut rows = Map::new();
            for c in changes {
                if let Some(u) = m.row_update(self.version, ts, c) {
                    rows.insert(c.uuid.to_string(), u);
                }
            }
            if !rows.is_empty() {
                updates.insert(ts.name.clone(), rows.into());
            }
        }
        (!updates.is_empty()).then(|| updates.into())
    }

    /// Changes conditions as a `monitor_cond_change` request says. Returns the rows that come into
    /// view and those that leave it. On an error nothing has changed.
    pub fn change_conditions(&mut self, db: &Database, requests: &Value) -> Result<Option<Value>> {
        let requests = requests
            .as_object()
            .ok_or_else(|| Error::syntax(requests, "monitor-cond-change requests must be object"))?;
        let mut changed = Vec::new();
        for (name, r) in requests {
            let known = self.schema.table(name).filter(|t| self.tables.contains_key(t));
            let t =
                known.ok_or_else(|| Error::new(Tag::Syntax, format!("no table named {name} in monitor session")))?;
            let r = r
                .as_array()
                .ok_or_else(|| Error::new(Tag::Syntax, format!("table {name} no monitor-cond-change JSON array")))?;
            let ts = &self.schema.tables[t];
            let mut condition = Condition::default();
            for r in r {
                let mut p = Parser::new(r, format!("table {name}"))?;
                let clauses = p.optional("where", Kind::ARRAY)?;
                p.finish()?;
                if let Some(clauses) = clauses {
                    condition.clauses.extend(Condition::from_json(ts, clauses, None)?.clauses);
                }
            }
            changed.push((t, condition));
        }
        let mut updates = Map::new();
        for (t, condition) in changed {
            let Some(m) = self.tables.get_mut(&t) else { continue };
            let old = std::mem::replace(&mut m.condition, condition);
            let ts = &self.schema.tables[t];
            let columns = m.columns(|s| s.insert);
            let mut rows = Map::new();
            for (uuid, row) in db.rows(t) {
                let update = match (old.any(row), m.condition.any(row)) {
                    (false, true) => json!({"insert": set_columns(ts, row, &columns)}),
                    (true, false) => json!({"delete": null}),
                    _ => continue,
                };
                rows.insert(uuid.to_string(), update);
            }
            if !rows.is_empty() {
                updates.insert(ts.name.clone(), rows.into());
            }
        }
        Ok((!updates.is_empty()).then(|| updates.into()))
    }
}

impl TableMonitor {
    fn from_json(ts: &TableSchema, version: Version, json: &Value) -> Result<TableMonitor> {
        let nothing = Select { initial: false, insert: false, delete: false, modify: false };
        let mut m = TableMonitor { columns: Vec::new(), rows: nothing, condition: Condition::default() };
        let one = std::slice::from_ref(json);
        let requests = json.as_array().map_or(one, Vec::as_slice);
        let mut all = requests.is_empty();
        for r in requests {
            let mut p = Parser::new(r, format!("table {}", ts.name))?;
            let clauses = if version == Version::V1 { None } else { p.optional("where", Kind::ARRAY)? };
            let columns = p.optional("columns", Kind::ARRAY)?;
            let select = Select::from_json(p.optional("select", Kind::OBJECT)?, &ts.name)?;
            p.finish()?;
            m.rows.add(select);
            m.add_columns(ts, columns, select)?;
            match clauses.map(|c| Condition::from_json(ts, c, None)).transpose()? {
                Some(c) if !c.clauses.is_empty() => m.condition.clauses.extend(c.clauses),
                _ => all = true,
            }
        }
        if all && !m.condition.clauses.is_empty() {
            m.condition.clauses.push(Clause::Always(true));
        }
        Ok(m)
    }

    fn add_columns(&mut self, ts: &TableSchema, columns: Option<&Value>, select: Select) -> Result<()> {
        let Some(json) = columns else {
            let all = (COL_VERSION..ts.columns.len()).filter(|c| self.columns.iter().all(|(o, _)| o != c));
            self.columns.extend(all.map(|c| (c, select)).collect::<Vec<_>>());
            return Ok(());
        };
        for name in json.as_array().into_iter().flatten() {
            let name = name.as_str().ok_or_else(|| Error::syntax(json, "columns must be array of strings"))?;
            let c = ts.column(name).ok_or_else(|| Error::syntax(json, format!("{name} is not a valid column name")))?;
            if self.columns.iter().any(|(o, _)| *o == c) {
                return Err(Error::syntax(json, format!("column {name} mentioned more than once")));
            }
            self.columns.push((c, select));
        }
        Ok(())
    }

    fn columns(&self, wanted: impl Fn(&Select) -> bool) -> Vec<usize> {
        self.columns.iter().filter(|c| wanted(&c.1)).map(|c| c.0).collect()
    }

    fn row_update(&self, version: Version, ts: &TableSchema, c: &RowChange) -> Option<Value> {
        let seen = |r: &Option<Arc<Row>>| r.clone().filter(|r| self.condition.any(r));
        match (seen(&c.old), seen(&c.new)) {
            (None, None) => None,
            (None, Some(new)) => {
                if !self.rows.insert {
                    return None;
                }
                let columns = self.columns(|s| s.insert);
                Some(match version {
                    Version::V1 => json!({"new": row_to_json(ts, &new, &columns)}),
                    _ => json!({"insert": set_columns(ts, &new, &columns)}),
                })
            }
            (Some(old), None) => {
                if !self.rows.delete {
                    return None;
                }
                let columns = self.columns(|s| s.delete);
                Some(match version {
                    Version::V1 => json!({"old": row_to_json(ts, &old, &columns)}),
                    _ => json!({"delete": null}),
                })
            }
            (Some(old), Some(new)) => {
                let columns = self.columns(|s| s.modify);
                let changed: Vec<usize> = columns.iter().copied().filter(|c| old[*c] != new[*c]).collect();
                if changed.is_empty() {
                    return None;
                }
                Some(match version {
                    Version::V1 => {
                        json!({"old": row_to_json(ts, &old, &changed), "new": row_to_json(ts, &new, &columns)})
                    }
                    _ => {
                        let diff = |c: &usize| {
                            let column = &ts.columns[*c];
                            let d = old[*c].diff(&new[*c], &column.ty);
                            (column.name.clone(), d.to_json(&column.ty))
                        };
                        json!({"modify": changed.iter().map(diff).collect::<Map<String, Value>>()})
                    }
                })
            }
        }
    }
}

/// The columns that differ from a new row's.
fn set_columns(ts: &TableSchema, row: &Row, columns: &[usize]) -> Value {
    let set: Vec<usize> = columns.iter().copied().filter(|c| !row[*c].is_default(&ts.columns[*c].ty)).collect();
    row_to_json(ts, row, &set)
}

/// Merges commits, oldest first, into the net change of each row.
pub fn net_change<'a>(commits: impl IntoIterator<Item = &'a Commit>) -> Commit {
    let mut tables: BTreeMap<usize, BTreeMap<crate::Uuid, RowChange>> = BTreeMap::new();
    for commit in commits {
        for (t, changes) in &commit.tables {
            let rows = tables.entry(*t).or_default();
            for c in changes {
                rows.entry(c.uuid).and_modify(|r| r.new = c.new.clone()).or_insert_with(|| c.clone());
            }
        }
    }
    let tables = tables
        .into_iter()
        .map(|(t, rows)| (t, rows.into_values().filter(|c| c.old.is_some() || c.new.is_some()).collect()))
        .collect();
    Commit { tables, ..Commit::default() }
}
