//! A transaction in progress: an overlay of changed rows over a database that it does not touch.

use crate::atom::Atom;
use crate::datum::Datum;
use crate::db::{Commit, Database, RowChange, index_key, reference_deltas};
use crate::error::{Error, Result, Tag};
use crate::schema::{COL_VERSION, Row, TableSchema};
use crate::symbols::UuidSource;
use crate::types::{RefType, UNLIMITED};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use uuid::Uuid;

/// A row as the transaction has it; both None: inserted and deleted again.
#[derive(Clone)]
struct Entry {
    old: Option<Arc<Row>>,
    new: Option<Row>,
}

/// The overlay. Dropping it aborts.
pub struct Txn<'a> {
    db: &'a Database,
    changes: Vec<BTreeMap<Uuid, Entry>>,
}

impl<'a> Txn<'a> {
    pub fn new(db: &'a Database) -> Txn<'a> {
        Txn { db, changes: vec![BTreeMap::new(); db.schema().tables.len()] }
    }

    pub fn db(&self) -> &'a Database {
        self.db
    }

    pub fn row(&self, t: usize, uuid: Uuid) -> Option<&Row> {
        match self.changes.get(t)?.get(&uuid) {
            Some(e) => e.new.as_ref(),
            None => self.db.row(t, uuid).map(|r| &**r),
        }
    }

    /// True if the uuid is, or was in this transaction, a row of the table.
    pub fn is_known(&self, t: usize, uuid: Uuid) -> bool {
        self.changes[t].contains_key(&uuid) || self.db.row(t, uuid).is_some()
    }

    /// Rows of table `t` as the transaction sees them, in order of uuid per origin.
    pub fn rows(&self, t: usize) -> impl Iterator<Item = (Uuid, &Row)> {
        let changes = &self.changes[t];
        let base = self.db.rows(t).filter(|(u, _)| !changes.contains_key(u)).map(|(u, r)| (u, &**r));
        base.chain(changes.iter().filter_map(|(u, e)| e.new.as_ref().map(|r| (*u, r))))
    }

    /// Puts a row in place; None deletes it.
    pub fn set(&mut self, t: usize, uuid: Uuid, new: Option<Row>) {
        let db = self.db;
        let e = self.changes[t].entry(uuid).or_insert_with(|| Entry { old: db.row(t, uuid).cloned(), new: None });
        e.new = new;
    }

    /// Checks everything that holds for the database as a whole and completes the transaction:
    /// collects garbage, drops weak references to rows that are gone, gives versions.
    /// An empty commit means that nothing changed.
    pub fn commit(mut self, fresh: UuidSource) -> Result<Commit> {
        self.drop_unchanged();
        if self.changes.iter().all(BTreeMap::is_empty) {
            return Ok(Commit::default());
        }
        let mut strong = self.count_references()?;
        self.check_deleted(&strong)?;
        self.collect_garbage(&mut strong);
        self.check_max_rows()?;
        self.drop_weak_references()?;
        self.check_indexes()?;
        Ok(self.finish(fresh))
    }

    /// Completes without checks: for commits that a log vouches for.
    pub fn commit_replayed(mut self, fresh: UuidSource) -> Commit {
        self.drop_unchanged();
        self.finish(fresh)
    }

    fn drop_unchanged(&mut self) {
        for (ts, changes) in self.db.schema().tables.iter().zip(&mut self.changes) {
            changes.retain(|_, e| match (&e.old, &e.new) {
                (None, None) => false,
                (Some(old), Some(new)) => (0..ts.columns.len()).any(|c| c != COL_VERSION && old[c] != new[c]),
                _ => true,
            });
        }
    }

    /// Net change in the number of strong references to each row.
    fn count_references(&self) -> Result<HashMap<(usize, Uuid), i64>> {
        let mut strong: HashMap<(usize, Uuid), i64> = HashMap::new();
        for (t, changes) in self.changes.iter().enumerate() {
            let ts = &self.db.schema().tables[t];
            for (uuid, e) in changes {
                let mut missing = None;
                reference_deltas(ts, e.old.as_deref(), e.new.as_ref(), &mut |kind, table, dst, by| {
                    if kind == RefType::Weak || (table, dst) == (t, *uuid) {
                        return;
                    }
                    if by > 0 && !self.is_known(table, dst) {
                        missing.get_or_insert((table, dst));
                    }
                    *strong.entry((table, dst)).or_default() += by;
                });
                if let Some((table, dst)) = missing {
                    return Err(self.dangling(ts, *uuid, e, table, dst));
                }
            }
        }
        Ok(strong)
    }

    fn dangling(&self, ts: &TableSchema, uuid: Uuid, e: &Entry, table: usize, dst: Uuid) -> Error {
        let atom = Atom::Uuid(dst);
        let holds = |c: &&usize| {
            e.new.as_ref().is_some_and(|r| {
                let (k, v) = ts.columns[**c].ty.references();
                (k.is_some_and(|k| k.table == table) && r[**c].keys().contains(&atom))
                    || (v.is_some_and(|v| v.table == table) && r[**c].values().contains(&atom))
            })
        };
        let column = ts.references.iter().find(holds).map_or("", |c| ts.columns[*c].name.as_str());
        let target = &self.db.schema().tables[table].name;
        let what =
            format!("Table {} column {column} row {uuid} references nonexistent row {dst} in table {target}.", ts.name);
        Error::new(Tag::ReferentialIntegrity, what)
    }

    fn references_to(&self, strong: &HashMap<(usize, Uuid), i64>, t: usize, uuid: Uuid) -> i64 {
        let base = i64::try_from(self.db.strong_count(t, uuid)).unwrap_or(i64::MAX);
        base.saturating_add(strong.get(&(t, uuid)).copied().unwrap_or(0))
    }

    fn check_deleted(&self, strong: &HashMap<(usize, Uuid), i64>) -> Result<()> {
        for (t, changes) in self.changes.iter().enumerate() {
            for uuid in changes.iter().filter(|(_, e)| e.new.is_none()).map(|(u, _)| *u) {
                let n = self.references_to(strong, t, uuid);
                if n > 0 {
                    let name = &self.db.schema().tables[t].name;
                    let what = format!("cannot delete {name} row {uuid} because of {n} remaining reference(s)");
                    return Err(Error::new(Tag::ReferentialIntegrity, what));
                }
            }
        }
        Ok(())
    }

    /// Deletes rows of non-root tables that nothing refers to, and what only they referred to.
    /// Cycles stay, as in the reference.
    fn collect_garbage(&mut self, strong: &mut HashMap<(usize, Uuid), i64>) {
        let schema = self.db.schema().clone();
        let mut work: Vec<(usize, Uuid)> = Vec::new();
        for (t, changes) in self.changes.iter().enumerate().filter(|(t, _)| !schema.tables[*t].is_root) {
            work.extend(changes.keys().map(|u| (t, *u)));
        }
        work.extend(strong.iter().filter(|(k, by)| **by < 0 && !schema.tables[k.0].is_root).map(|(k, _)| *k));
        while let Some((t, uuid)) = work.pop() {
            if self.references_to(strong, t, uuid) > 0 {
                continue;
            }
            let Some(row) = self.row(t, uuid).cloned() else { continue };
            self.set(t, uuid, None);
            reference_deltas(&schema.tables[t], Some(&row), None, &mut |kind, table, dst, by| {
                if kind == RefType::Strong && (table, dst) != (t, uuid) {
                    *strong.entry((table, dst)).or_default() += by;
                    if !schema.tables[table].is_root {
                        work.push((table, dst));
                    }
                }
            });
        }
        self.changes.iter_mut().for_each(|c| c.retain(|_, e| e.old.is_some() || e.new.is_some()));
    }

    fn check_max_rows(&self) -> Result<()> {
        for (t, changes) in self.changes.iter().enumerate() {
            let ts = &self.db.schema().tables[t];
            if ts.max_rows == UNLIMITED {
                continue;
            }
            let inserted = changes.values().filter(|e| e.old.is_none()).count();
            let deleted = changes.values().filter(|e| e.new.is_none()).count();
            let n = (self.db.row_count(t) + inserted).saturating_sub(deleted);
            if n > ts.max_rows as usize && inserted > deleted {
                return Err(Error::constraint(format!(
                    "transaction causes \"{}\" table to contain {n} rows, greater than the schema-defined limit of {} row(s)",
                    ts.name, ts.max_rows
                )));
            }
        }
        Ok(())
    }

    fn drop_weak_references(&mut self) -> Result<()> {
        let schema = self.db.schema().clone();
        let mut work: Vec<(usize, Uuid)> = Vec::new();
        let mut affected: Vec<(usize, Uuid)> = Vec::new();
        for (t, changes) in self.changes.iter().enumerate() {
            for (uuid, e) in changes {
                match &e.new {
                    Some(_) => work.push((t, *uuid)),
                    None => affected.extend(self.db.weak_sources(t, *uuid)),
                }
            }
        }
        work.append(&mut affected);
        for (t, uuid) in work {
            let ts = &schema.tables[t];
            let Some(row) = self.row(t, uuid) else { continue };
            let mut cleaned: Vec<(usize, Datum)> = Vec::new();
            for &c in &ts.references {
                if let Some(d) = self.without_dead(t, c, uuid, row)? {
                    cleaned.push((c, d));
                }
            }
            if !cleaned.is_empty() {
                let mut row = row.clone();
                cleaned.into_iter().for_each(|(c, d)| row[c] = d);
                self.set(t, uuid, Some(row));
            }
        }
        Ok(())
    }

    /// Column `c` without its weak references to rows that do not exist; None if it has none.
    fn without_dead(&self, t: usize, c: usize, uuid: Uuid, row: &Row) -> Result<Option<Datum>> {
        let ts = &self.db.schema().tables[t];
        let ty = &ts.columns[c].ty;
        let (key, value) = ty.references();
        let alive = |r: Option<&crate::types::Reference>, a: Option<&Atom>| match (r, a) {
            (Some(r), Some(Atom::Uuid(u))) if r.kind == RefType::Weak => self.row(r.table, *u).is_some(),
            _ => true,
        };
        let old = &row[c];
        let new = old.retain(|k, v| alive(key, Some(k)) && alive(value, v));
        let n = old.len() - new.len();
        if n == 0 {
            return Ok(None);
        }
        if new.len() >= ty.min as usize {
            return Ok(Some(new));
        }
        let name = &ts.columns[c].name;
        let inserted = self.db.row(t, uuid).is_none();
        let nil = old.keys().iter().chain(old.values()).any(|a| *a == Atom::Uuid(Uuid::nil()));
        Err(Error::constraint(if nil {
            format!(
                "Weak reference column \"{name}\" in \"{}\" row {uuid}{} contained all-zeros UUID (probably as the default value for this column) but deleting this value caused a constraint volation because this column is not allowed to be empty.",
                ts.name,
                if inserted { " (inserted within this transaction)" } else { "" }
            )
        } else {
            format!(
                "Deletion of {n} weak reference(s) to deleted (or never-existing) rows from column \"{name}\" in \"{}\" row {uuid} {}caused this column to become empty, but constraints on this column disallow an empty column.",
                ts.name,
                if inserted { "(inserted within this transaction) " } else { "" }
            )
        }))
    }

    fn check_indexes(&self) -> Result<()> {
        for (t, changes) in self.changes.iter().enumerate() {
            let ts = &self.db.schema().tables[t];
            for (i, columns) in ts.indexes.iter().enumerate() {
                let mut seen: HashMap<Vec<Datum>, Uuid> = HashMap::new();
                for (uuid, new) in changes.iter().filter_map(|(u, e)| e.new.as_ref().map(|n| (*u, n))) {
                    let key = index_key(columns, new);
                    let base = self.db.row_by_index(t, i, &key).filter(|o| !changes.contains_key(o));
                    if let Some(other) = base.or_else(|| seen.get(&key).copied()) {
                        return Err(self.duplicate(t, columns, &key, uuid, other));
                    }
                    seen.insert(key, uuid);
                }
            }
        }
        Ok(())
    }

    fn duplicate(&self, t: usize, columns: &[usize], key: &[Datum], first: Uuid, second: Uuid) -> Error {
        let ts = &self.db.schema().tables[t];
        let list = |d: &[Datum]| d.iter().map(|d| d.to_string()).collect::<Vec<_>>().join(", ");
        let names: Vec<String> = columns.iter().map(|c| format!("\"{}\"", ts.columns[*c].name)).collect();
        let names = match names.as_slice() {
            [one] => format!("column {one}"),
            [a, b] => format!("columns {a} and {b}"),
            [init @ .., last] => format!("columns {}, and {last}", init.join(", ")),
            [] => String::new(),
        };
        let origin = |u: Uuid| match self.changes[t].get(&u) {
            None => "existed in the database before this transaction and was not modified by the transaction".into(),
            Some(Entry { old: None, .. }) => "was inserted by this transaction".into(),
            Some(Entry { old: Some(old), .. }) => {
                let before = index_key(columns, old);
                if before == key {
                    "existed in the database before this transaction, which modified some of the row's columns but not any columns in this index".into()
                } else {
                    format!("had the following index values before the transaction: {}", list(&before))
                }
            }
        };
        Error::constraint(format!(
            "Transaction causes multiple rows in \"{}\" table to have identical values ({}) for index on {names}.  First row, with UUID {first}, {}.  Second row, with UUID {second}, {}.",
            ts.name,
            list(key),
            origin(first),
            origin(second)
        ))
    }

    fn finish(mut self, fresh: UuidSource) -> Commit {
        self.drop_unchanged();
        let mut tables = Vec::new();
        for (t, changes) in std::mem::take(&mut self.changes).into_iter().enumerate() {
            if changes.is_empty() {
                continue;
            }
            let nil = Datum::uuid(Uuid::nil());
            let change = |(uuid, e): (Uuid, Entry)| {
                let new = e.new.map(|mut row| {
                    // Operations give versions; rows changed by the checks have none of their own yet.
                    let version = e.old.as_ref().map(|o| &o[COL_VERSION]);
                    if *version.unwrap_or(&nil) == row[COL_VERSION] {
                        row[COL_VERSION] = Datum::uuid(fresh());
                    }
                    Arc::new(row)
                });
                RowChange { uuid, old: e.old, new }
            };
            tables.push((t, changes.into_iter().map(change).collect()));
        }
        let txn_id = if tables.is_empty() { Uuid::nil() } else { fresh() };
        Commit { txn_id, tables, comment: None, durable: false }
    }
}
