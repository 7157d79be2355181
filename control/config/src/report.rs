//! Status back into the database: only what differs is written, and only from here.

use std::collections::BTreeMap;

use fv_ovsdb::{Datum, Uuid};
use fv_ovsdb_db::client::{Client, TxnBuilder};

/// Collects the columns that differ from the replica and turns them into one transaction.
pub struct Report<'a> {
    db: &'a Client,
    changes: BTreeMap<(&'static str, Uuid), BTreeMap<&'static str, Datum>>,
}

impl<'a> Report<'a> {
    pub fn new(db: &'a Client) -> Report<'a> {
        Report { db, changes: BTreeMap::new() }
    }

    /// Writes `value` unless the row has it already or is gone.
    pub fn set(&mut self, table: &'static str, row: Uuid, column: &'static str, value: Datum) {
        let Some(r) = self.db.row(table, row) else { return };
        if r.has_column(column) && *r.datum(column) != value {
            self.changes.entry((table, row)).or_default().insert(column, value);
        }
    }

    /// An optional column: None empties it.
    pub fn set_opt(&mut self, table: &'static str, row: Uuid, column: &'static str, value: Option<Datum>) {
        self.set(table, row, column, value.unwrap_or_else(Datum::empty));
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The transaction; None if nothing differs.
    pub fn finish(self) -> Option<TxnBuilder> {
        if self.changes.is_empty() {
            return None;
        }
        let mut t = self.db.txn();
        for ((table, row), columns) in self.changes {
            t.update(table, row, columns.into_iter().map(|(c, d)| (c, d.into())).collect());
        }
        Some(t)
    }
}
