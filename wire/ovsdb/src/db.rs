//! The database's state: tables of rows, unique indexes, and who refers to whom.

use crate::atom::Atom;
use crate::datum::Datum;
use crate::schema::{COL_UUID, Row, Schema, TableSchema};
use crate::types::RefType;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use uuid::Uuid;

/// One committed change of a row: both None never happens.
#[derive(Clone, Debug)]
pub struct RowChange {
    pub uuid: Uuid,
    pub old: Option<Arc<Row>>,
    pub new: Option<Arc<Row>>,
}

/// A transaction that has passed every check, ready to be logged and applied.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// Identifies the state after it, for clients that resume.
    pub txn_id: Uuid,
    /// (table number, its changed rows), in order of tables.
    pub tables: Vec<(usize, Vec<RowChange>)>,
    pub comment: Option<String>,
    /// The client asked for the disk, not just the page cache.
    pub durable: bool,
}

impl Commit {
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }
}

/// One table's rows with what is derived from them.
#[derive(Clone, Default)]
pub struct Table {
    rows: BTreeMap<Uuid, Arc<Row>>,
    /// One per index of the schema: values -> row.
    indexes: Vec<HashMap<Vec<Datum>, Uuid>>,
    /// Strong references to each row, from other rows.
    strong: HashMap<Uuid, u64>,
    /// Rows (table, uuid) with weak references to each row, and how many.
    weak: HashMap<Uuid, BTreeMap<(usize, Uuid), u64>>,
}

/// A database in memory. Changed only by `apply`, so that whoever logs commits sees each.
#[derive(Clone)]
pub struct Database {
    schema: Arc<Schema>,
    tables: Vec<Table>,
}

impl Database {
    pub fn new(schema: Arc<Schema>) -> Database {
        let table = |t: &TableSchema| Table { indexes: vec![HashMap::new(); t.indexes.len()], ..Table::default() };
        let tables = schema.tables.iter().map(table).collect();
        Database { schema, tables }
    }

    /// Makes the commit's changes. Cost is the size of the changed rows.
    pub fn apply(&mut self, commit: &Commit) {
        for (t, changes) in &commit.tables {
            for c in changes {
                self.apply_row(*t, c);
            }
        }
    }

    fn apply_row(&mut self, t: usize, c: &RowChange) {
        let schema = self.schema.clone();
        let ts = &schema.tables[t];
        reference_deltas(ts, c.old.as_deref(), c.new.as_deref(), &mut |kind, table, dst, by| {
            let Some(target) = self.tables.get_mut(table) else { return };
            match kind {
                RefType::Strong if (table, dst) != (t, c.uuid) => bump(&mut target.strong, dst, by),
                RefType::Strong => {}
                RefType::Weak => {
                    let sources = target.weak.entry(dst).or_default();
                    bump_ordered(sources, (t, c.uuid), by);
                    if sources.is_empty() {
                        target.weak.remove(&dst);
                    }
                }
            }
        });
        let table = &mut self.tables[t];
        for (columns, index) in ts.indexes.iter().zip(&mut table.indexes) {
            if let Some(old) = &c.old {
                let key = index_key(columns, old);
                if index.get(&key) == Some(&c.uuid) {
                    index.remove(&key);
                }
            }
        }
        match &c.new {
            None => {
                table.rows.remove(&c.uuid);
            }
            Some(new) => {
                for (columns, index) in ts.indexes.iter().zip(&mut table.indexes) {
                    index.insert(index_key(columns, new), c.uuid);
                }
                table.rows.insert(c.uuid, new.clone());
            }
        }
    }

    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Rows of table number `t`, in order of uuid.
    pub fn rows(&self, t: usize) -> impl Iterator<Item = (Uuid, &Arc<Row>)> {
        self.tables.get(t).into_iter().flat_map(|t| t.rows.iter().map(|(u, r)| (*u, r)))
    }

    pub fn row(&self, t: usize, uuid: Uuid) -> Option<&Arc<Row>> {
        self.tables.get(t)?.rows.get(&uuid)
    }

    pub fn row_count(&self, t: usize) -> usize {
        self.tables.get(t).map_or(0, |t| t.rows.len())
    }

    /// The row with these values in index number `index`.
    pub fn row_by_index(&self, t: usize, index: usize, key: &[Datum]) -> Option<Uuid> {
        self.tables.get(t)?.indexes.get(index)?.get(key).copied()
    }

    pub(crate) fn strong_count(&self, t: usize, uuid: Uuid) -> u64 {
        self.tables.get(t).and_then(|t| t.strong.get(&uuid)).copied().unwrap_or(0)
    }

    pub(crate) fn weak_sources(&self, t: usize, uuid: Uuid) -> impl Iterator<Item = (usize, Uuid)> + '_ {
        self.tables.get(t).and_then(|t| t.weak.get(&uuid)).into_iter().flat_map(|m| m.keys().copied())
    }

    /// Every row as an insertion: what a compacted log holds.
    pub fn snapshot(&self) -> Commit {
        let table = |(t, table): (usize, &Table)| {
            let rows: Vec<RowChange> =
                table.rows.iter().map(|(u, r)| RowChange { uuid: *u, old: None, new: Some(r.clone()) }).collect();
            (!rows.is_empty()).then_some((t, rows))
        };
        Commit { tables: self.tables.iter().enumerate().filter_map(table).collect(), ..Commit::default() }
    }
}

/// The values of a row in an index.
pub fn index_key(columns: &[usize], row: &Row) -> Vec<Datum> {
    columns.iter().map(|c| row[*c].clone()).collect()
}

/// The uuid of a row.
pub fn row_uuid(row: &Row) -> Uuid {
    row.get(COL_UUID).and_then(Datum::as_uuid).unwrap_or_default()
}

fn bump(m: &mut HashMap<Uuid, u64>, k: Uuid, by: i64) {
    let n = m.entry(k).or_default();
    *n = n.saturating_add_signed(by);
    if *n == 0 {
        m.remove(&k);
    }
}

fn bump_ordered(m: &mut BTreeMap<(usize, Uuid), u64>, k: (usize, Uuid), by: i64) {
    let n = m.entry(k).or_default();
    *n = n.saturating_add_signed(by);
    if *n == 0 {
        m.remove(&k);
    }
}

/// Calls `f(kind, table, row, +1 or -1)` for each reference that `new` has and `old` has not, and
/// the other way round. Columns that are equal cost one comparison.
pub(crate) fn reference_deltas(
    ts: &TableSchema,
    old: Option<&Row>,
    new: Option<&Row>,
    f: &mut dyn FnMut(RefType, usize, Uuid, i64),
) {
    let none = Datum::empty();
    for &c in &ts.references {
        let (a, b) = (old.map_or(&none, |r| &r[c]), new.map_or(&none, |r| &r[c]));
        if a == b {
            continue;
        }
        let (key_ref, value_ref) = ts.columns[c].ty.references();
        if let Some(r) = key_ref {
            // Both sorted: skip what is common.
            let (mut x, mut y) = (a.keys().iter().peekable(), b.keys().iter().peekable());
            loop {
                let (atom, by) = match (x.peek(), y.peek()) {
                    (None, None) => break,
                    (Some(p), Some(q)) if p == q => {
                        x.next();
                        y.next();
                        continue;
                    }
                    (Some(p), q) if q.is_none_or(|q| p < q) => (x.next(), -1),
                    _ => (y.next(), 1),
                };
                if let Some(Atom::Uuid(u)) = atom {
                    f(r.kind, r.table, *u, by);
                }
            }
        }
        if let Some(r) = value_ref {
            for (d, by) in [(a, -1), (b, 1)] {
                for v in d.values() {
                    if let Atom::Uuid(u) = v {
                        f(r.kind, r.table, *u, by);
                    }
                }
            }
        }
    }
}
