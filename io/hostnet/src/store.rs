//! A keyed table with a change sequence and a bounded record of what changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;

/// More changed keys than this are not listed one by one.
const MAX_DELTA: usize = 1024;

/// What changed since the reader last took it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Delta<K: Ord> {
    /// These keys, possibly none: each was added, changed or removed; look it up to see which.
    Keys(BTreeSet<K>),
    /// Too many to list: read the whole table.
    All,
}

impl<K: Ord> Default for Delta<K> {
    fn default() -> Self {
        Delta::Keys(BTreeSet::new())
    }
}

impl<K: Ord> Delta<K> {
    pub fn is_empty(&self) -> bool {
        matches!(self, Delta::Keys(k) if k.is_empty())
    }

    fn note(&mut self, k: K) {
        if let Delta::Keys(keys) = self {
            keys.insert(k);
            if keys.len() > MAX_DELTA {
                *self = Delta::All;
            }
        }
    }
}

#[derive(Clone, Debug)]
pub struct Store<K: Ord, V> {
    map: BTreeMap<K, V>,
    delta: Delta<K>,
    seq: u64,
    limit: usize,
    refused: u64,
}

impl<K: Ord + Clone, V: PartialEq> Store<K, V> {
    pub fn new(limit: usize) -> Store<K, V> {
        Store { map: BTreeMap::new(), delta: Delta::default(), seq: 1, limit, refused: 0 }
    }

    /// Returns whether anything changed.
    pub fn put(&mut self, k: K, v: V) -> bool {
        let full = self.map.len() >= self.limit;
        match self.map.get_mut(&k) {
            Some(old) if *old == v => return false,
            Some(old) => *old = v,
            None if full => {
                self.refused += 1;
                return false;
            }
            None => {
                self.map.insert(k.clone(), v);
            }
        }
        self.changed(k);
        true
    }

    pub fn remove(&mut self, k: &K) -> Option<V> {
        let old = self.map.remove(k)?;
        self.changed(k.clone());
        Some(old)
    }

    /// Makes everything within `range` equal to `fresh`; only true differences count as changes.
    pub fn replace(&mut self, range: impl RangeBounds<K>, mut fresh: BTreeMap<K, V>) {
        let mut gone = Vec::new();
        for (k, old) in self.map.range_mut(range) {
            match fresh.remove(k) {
                None => gone.push(k.clone()),
                Some(v) if v == *old => {}
                Some(v) => {
                    *old = v;
                    self.seq += 1;
                    self.delta.note(k.clone());
                }
            }
        }
        for k in gone {
            self.remove(&k);
        }
        for (k, v) in fresh {
            self.put(k, v);
        }
    }

    pub fn take_delta(&mut self) -> Delta<K> {
        std::mem::take(&mut self.delta)
    }

    pub(crate) fn into_map(self) -> BTreeMap<K, V> {
        self.map
    }

    fn changed(&mut self, k: K) {
        self.seq += 1;
        self.delta.note(k);
    }

    pub fn get(&self, k: &K) -> Option<&V> {
        self.map.get(k)
    }
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.map.iter()
    }
    pub fn range(&self, r: impl RangeBounds<K>) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.map.range(r)
    }
    pub fn len(&self) -> usize {
        self.map.len()
    }
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
    /// Grows with every change.
    pub fn seq(&self) -> u64 {
        self.seq
    }
    /// How many entries were not taken because the table was full.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(n: u32) -> Store<u32, u32> {
        let mut s = Store::new(10_000);
        (0..n).for_each(|i| assert!(s.put(i, i)));
        s.take_delta();
        s
    }

    #[test]
    fn only_differences_are_changes() {
        let mut s = filled(10);
        let seq = s.seq();
        s.replace(.., (0..10).map(|i| (i, i)).collect());
        assert!(!s.put(3, 3));
        assert_eq!((s.seq(), s.take_delta().is_empty()), (seq, true));
        // 2 changes, 7..10 go, 20 comes; 0 and 1 are outside the range and stay.
        s.replace(2.., [(2, 9), (3, 3), (4, 4), (5, 5), (6, 6), (20, 20)].into());
        assert_eq!(s.take_delta(), Delta::Keys([2, 7, 8, 9, 20].into()));
        assert_eq!((s.len(), s.get(&0), s.get(&2)), (8, Some(&0), Some(&9)));
    }

    #[test]
    fn delta_and_table_are_bounded() {
        let mut s = Store::new(2000);
        (0..3000u32).for_each(|i| {
            s.put(i, i);
        });
        assert_eq!((s.len(), s.refused(), s.take_delta()), (2000, 1000, Delta::All));
        assert!(s.take_delta().is_empty());
    }
}
