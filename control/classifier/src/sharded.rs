//! A hash table that grows without long pauses for its readers.

use std::sync::OnceLock;

use hashbrown::HashTable;
use parking_lot::RwLock;

/// Entries in the first shard before the others are made.
const SMALL: usize = 512;
/// Growing one of this many shards is what a reader waits for at most: about a millisecond at a
/// million entries.
const N_SHARDS: usize = 32;

type Shard<T> = RwLock<HashTable<(u64, T)>>;

/// Entries by hash; equality is the caller's. Small tables cost 56 bytes; a large one puts what
/// comes later into shards, and what came first stays where it is.
pub(crate) struct Sharded<T> {
    small: Shard<T>,
    large: OnceLock<Box<[Shard<T>; N_SHARDS]>>,
}

impl<T> Default for Sharded<T> {
    fn default() -> Self {
        Sharded { small: RwLock::new(HashTable::new()), large: OnceLock::new() }
    }
}

fn shard_of(hash: u64) -> usize {
    (hash >> 48) as usize % N_SHARDS
}

impl<T> Sharded<T> {
    /// `f` of the entry that `eq` accepts.
    pub(crate) fn find<U>(&self, hash: u64, mut eq: impl FnMut(&T) -> bool, f: impl FnOnce(&T) -> U) -> Option<U> {
        let mut probe = |e: &(u64, T)| e.0 == hash && eq(&e.1);
        let g = self.small.read();
        if let Some(e) = g.find(hash, &mut probe) {
            return Some(f(&e.1));
        }
        drop(g);
        let g = self.large.get()?[shard_of(hash)].read();
        g.find(hash, probe).map(|e| f(&e.1))
    }

    /// `change` on the entry that `eq` accepts, which is dropped if it returns false; without such an
    /// entry `new` is inserted. Callers do this from one thread at a time.
    pub(crate) fn upsert(
        &self,
        hash: u64,
        mut eq: impl FnMut(&T) -> bool,
        change: impl FnOnce(&mut T) -> bool,
        new: impl FnOnce() -> Option<T>,
    ) {
        let mut probe = |e: &(u64, T)| e.0 == hash && eq(&e.1);
        let large = self.large.get();
        for shard in std::iter::once(&self.small).chain(large.map(|l| &l[shard_of(hash)])) {
            let mut g = shard.write();
            if let Ok(mut o) = g.find_entry(hash, &mut probe) {
                if !change(&mut o.get_mut().1) {
                    o.remove();
                }
                return;
            }
        }
        let Some(new) = new() else { return };
        let full = large.is_some() || self.small.read().len() >= SMALL;
        let shard = match full {
            true => &self.large.get_or_init(|| Box::new(std::array::from_fn(|_| Shard::default())))[shard_of(hash)],
            false => &self.small,
        };
        shard.write().insert_unique(hash, (hash, new), |e| e.0);
    }

    /// Calls `f` on every entry, one shard locked at a time.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&T)) {
        for shard in std::iter::once(&self.small).chain(self.large.get().into_iter().flat_map(|l| l.iter())) {
            for e in shard.read().iter() {
                f(&e.1);
            }
        }
    }
}
