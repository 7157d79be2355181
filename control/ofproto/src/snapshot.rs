//! A translation's hold on the tables: one version for all its lookups, and nothing that this
//! version sees is freed meanwhile.
//!
//! Readers count themselves into one of two slots. To free, the writer turns new readers to the
//! other slot and waits, without blocking, until the old one is empty.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use fv_classifier::Version;
use fv_flow::{FlowKey, FlowMask};

use crate::rule::RuleRef;
use crate::tables::Tables;

/// See the module's description. Cheap to take; hold it no longer than a translation.
pub struct Snapshot {
    tables: Arc<Tables>,
    version: Version,
    slot: usize,
}

impl Snapshot {
    pub fn version(&self) -> Version {
        self.version
    }

    /// The same tables as another version sees them: one that is not published yet.
    pub(crate) fn at(self, version: Version) -> Snapshot {
        let mut s = self;
        s.version = version;
        s
    }

    pub fn tables(&self) -> &Arc<Tables> {
        &self.tables
    }

    /// The flow of `table` that decides about `key`; adds the bits that decided to `wc`.
    pub fn lookup(&self, table: u8, key: &FlowKey, wc: Option<&mut FlowMask>) -> Option<RuleRef> {
        self.tables.lookup(table, self.version, key, wc)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.tables.readers.leave(self.slot);
    }
}

impl Tables {
    /// The tables as they are now.
    pub fn snapshot(self: &Arc<Self>) -> Snapshot {
        let slot = self.readers.enter();
        Snapshot { tables: self.clone(), version: self.version(), slot }
    }
}

#[derive(Default)]
pub(crate) struct Readers {
    epoch: AtomicU64,
    slots: [AtomicU64; 2],
}

impl Readers {
    fn enter(&self) -> usize {
        loop {
            let e = self.epoch.load(SeqCst);
            let slot = (e & 1) as usize;
            self.slots[slot].fetch_add(1, SeqCst);
            if self.epoch.load(SeqCst) == e {
                return slot;
            }
            self.slots[slot].fetch_sub(1, SeqCst);
        }
    }

    fn leave(&self, slot: usize) {
        self.slots[slot].fetch_sub(1, SeqCst);
    }

    /// Whoever enters from now on is not waited for. Only when `old_are_gone`.
    pub(crate) fn turn(&self) {
        self.epoch.fetch_add(1, SeqCst);
    }

    /// Whether all who entered before the last `turn` have left.
    pub(crate) fn old_are_gone(&self) -> bool {
        let old = ((self.epoch.load(SeqCst) & 1) ^ 1) as usize;
        self.slots[old].load(SeqCst) == 0
    }
}

#[cfg(test)]
mod tests {
    use fv_core::Nanos;

    use super::*;

    #[test]
    fn a_reader_is_waited_for_and_later_ones_are_not() {
        let t = Arc::new(Tables::new(Nanos::ZERO));
        let first = t.snapshot();
        t.readers.turn();
        let second = t.snapshot();
        assert!(!t.readers.old_are_gone());
        drop(first);
        assert!(t.readers.old_are_gone());
        t.readers.turn();
        assert!(!t.readers.old_are_gone());
        drop(second);
        assert!(t.readers.old_are_gone());
    }
}
