//! Hash tables with one writer whose readers never wait: open addressing in arrays of atomics. A
//! larger array is filled aside and published whole; readers of the old one miss only what was
//! inserted since, which no version that they may look at sees.
//!
//! Positions come from the tag alone, so that arrays can be filled anew without the hashes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

use arc_swap::{ArcSwap, ArcSwapOption};

use crate::rule::ClsRule;

/// Slots of the smallest array, a power of two.
const SMALLEST: usize = 8;
/// No slot was ever used here: a search ends.
const EMPTY: u32 = 0;

/// Slots for `live` entries: at most half of them in use.
fn capacity(live: usize) -> usize {
    (live * 2).next_power_of_two().max(SMALLEST)
}

/// An array with `used` slots that do not end a search has no room for another.
fn is_full(used: usize, capacity: usize) -> bool {
    (used + 1) * 4 > capacity * 3
}

/// Few entries in a large array.
fn is_sparse(live: usize, capacity: usize) -> bool {
    capacity > SMALLEST && live * 8 < capacity
}

struct Slots<R> {
    tags: Box<[AtomicU32]>,
    /// Rules of equal match: by descending priority, and then the one inserted last first.
    heads: Box<[ArcSwapOption<ClsRule<R>>]>,
}

impl<R> Slots<R> {
    fn new(capacity: usize) -> Slots<R> {
        Slots {
            tags: (0..capacity).map(|_| AtomicU32::new(EMPTY)).collect(),
            heads: (0..capacity).map(|_| ArcSwapOption::empty()).collect(),
        }
    }

    /// Indices to look at, in order.
    fn probe(&self, tag: u32) -> impl Iterator<Item = usize> {
        let mask = self.tags.len() - 1;
        (0..self.tags.len()).map(move |i| (tag as usize + i) & mask)
    }

    /// The slot whose head `eq` accepts.
    fn find(&self, tag: u32, mut eq: impl FnMut(&ClsRule<R>) -> bool) -> Option<usize> {
        for i in self.probe(tag) {
            match self.tags[i].load(Acquire) {
                EMPTY => return None,
                t if t == tag && self.heads[i].load().as_ref().is_some_and(|r| eq(r)) => return Some(i),
                _ => {}
            }
        }
        None
    }

    /// Puts a chain in a free slot; true if that had never been used.
    fn put(&self, tag: u32, head: Arc<ClsRule<R>>) -> bool {
        for i in self.probe(tag) {
            let old = self.tags[i].load(Relaxed);
            if old == EMPTY || self.heads[i].load().is_none() {
                self.heads[i].store(Some(head));
                self.tags[i].store(tag, Release);
                return old == EMPTY;
            }
        }
        unreachable!("a table is never full")
    }
}

/// The rules of one subtable by the hash of their match.
pub(crate) struct RuleTable<R> {
    slots: ArcSwap<Slots<R>>,
    /// Distinct matches, and slots that no longer are `EMPTY`.
    live: AtomicUsize,
    used: AtomicUsize,
}

impl<R> Default for RuleTable<R> {
    fn default() -> Self {
        RuleTable {
            slots: ArcSwap::from_pointee(Slots::new(SMALLEST)),
            live: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
        }
    }
}

/// A rule and those after it.
fn chain<R>(first: Option<Arc<ClsRule<R>>>) -> impl Iterator<Item = Arc<ClsRule<R>>> {
    std::iter::successors(first, |r| r.next.load_full())
}

fn tag_of(hash: u64) -> u32 {
    ((hash >> 32) as u32).max(1)
}

impl<R> RuleTable<R> {
    /// Of the rules whose match `eq` accepts, the first that `wanted` accepts.
    pub(crate) fn find(
        &self,
        hash: u64,
        mut eq: impl FnMut(&ClsRule<R>) -> bool,
        wanted: impl Fn(&ClsRule<R>) -> bool,
    ) -> Option<Arc<ClsRule<R>>> {
        let slots = self.slots.load();
        let tag = tag_of(hash);
        for i in slots.probe(tag) {
            match slots.tags[i].load(Acquire) {
                EMPTY => return None,
                t if t == tag => {
                    // The slot is read once: later it may be another match's.
                    let head = slots.heads[i].load();
                    let Some(r) = head.as_ref().filter(|r| eq(r)) else { continue };
                    if wanted(r) {
                        return Some(r.clone());
                    }
                    return chain(r.next.load_full()).find(|r| wanted(r));
                }
                _ => {}
            }
        }
        None
    }

    // The writer's part: one thread at a time.

    pub(crate) fn insert(&self, hash: u64, rule: Arc<ClsRule<R>>, eq: impl FnMut(&ClsRule<R>) -> bool) {
        let tag = tag_of(hash);
        let slots = self.slots.load_full();
        if let Some(i) = slots.find(tag, eq) {
            let first = slots.heads[i].load_full();
            let before = chain(first.clone()).take_while(|r| r.priority() > rule.priority()).last();
            rule.next.store(before.as_ref().map_or(first, |b| b.next.load_full()));
            match before {
                Some(b) => b.next.store(Some(rule)),
                None => slots.heads[i].store(Some(rule)),
            }
            return;
        }
        let live = self.live.load(Relaxed);
        let slots = match is_full(self.used.load(Relaxed), slots.tags.len()) {
            true => self.refill(&slots, live + 1),
            false => slots,
        };
        self.live.store(live + 1, Relaxed);
        if slots.put(tag, rule) {
            self.used.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn remove(&self, hash: u64, rule: &Arc<ClsRule<R>>, eq: impl FnMut(&ClsRule<R>) -> bool) {
        let slots = self.slots.load_full();
        let Some(i) = slots.find(tag_of(hash), eq) else { return };
        let rest = rule.next.load_full();
        let first = slots.heads[i].load_full();
        if first.as_ref().is_some_and(|r| Arc::ptr_eq(r, rule)) {
            let gone = rest.is_none();
            slots.heads[i].store(rest);
            if gone {
                let live = self.live.load(Relaxed).saturating_sub(1);
                self.live.store(live, Relaxed);
                if is_sparse(live, slots.tags.len()) {
                    self.refill(&slots, live);
                }
            }
            return;
        }
        let before = |r: &Arc<ClsRule<R>>| r.next.load().as_ref().is_some_and(|n| Arc::ptr_eq(n, rule));
        if let Some(r) = chain(first).find(before) {
            r.next.store(rest);
        }
    }

    /// Publishes an array with room for `live` entries.
    fn refill(&self, old: &Slots<R>, live: usize) -> Arc<Slots<R>> {
        let new = Arc::new(Slots::new(capacity(live)));
        let mut used = 0;
        for (tag, head) in old.tags.iter().zip(&old.heads) {
            if let Some(head) = head.load_full() {
                used += usize::from(new.put(tag.load(Relaxed), head));
            }
        }
        self.used.store(used, Relaxed);
        self.slots.store(new.clone());
        new
    }

    pub(crate) fn for_each(&self, mut f: impl FnMut(&Arc<ClsRule<R>>)) {
        self.slots.load().heads.iter().for_each(|h| chain(h.load_full()).for_each(|r| f(&r)));
    }
}

impl<R> Drop for RuleTable<R> {
    /// Link by link: a chain may be longer than a stack is deep.
    fn drop(&mut self) {
        for head in &self.slots.load().heads {
            let mut at = head.swap(None);
            while let Some(r) = at {
                at = r.next.swap(None);
            }
        }
    }
}

const COUNT_BITS: u32 = 28;

/// How many rules have a hash: a tag above, the count below; zero where nothing ever was.
pub(crate) struct HashCounts {
    slots: ArcSwap<Box<[AtomicU64]>>,
    live: AtomicUsize,
    used: AtomicUsize,
}

impl Default for HashCounts {
    fn default() -> Self {
        HashCounts {
            slots: ArcSwap::from_pointee(counts(SMALLEST)),
            live: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
        }
    }
}

fn counts(capacity: usize) -> Box<[AtomicU64]> {
    (0..capacity).map(|_| AtomicU64::new(0)).collect()
}

/// Never zero, in place.
fn count_tag(hash: u64) -> u64 {
    (hash >> COUNT_BITS).max(1) << COUNT_BITS
}

/// The slot of the tag, or the one that ends the search.
fn slot_of(slots: &[AtomicU64], tag: u64) -> Option<(usize, u64)> {
    let mask = slots.len() - 1;
    let start = (tag >> COUNT_BITS) as usize;
    let at = (0..slots.len()).map(|i| (start + i) & mask);
    at.map(|i| (i, slots[i].load(Relaxed))).find(|(_, s)| *s == 0 || s >> COUNT_BITS == tag >> COUNT_BITS)
}

fn count(slot: u64) -> u64 {
    slot & ((1 << COUNT_BITS) - 1)
}

impl HashCounts {
    pub(crate) fn contains(&self, hash: u64) -> bool {
        slot_of(&self.slots.load(), count_tag(hash)).is_some_and(|(_, s)| count(s) > 0)
    }

    // The writer's part: one thread at a time.

    pub(crate) fn insert(&self, hash: u64) {
        let tag = count_tag(hash);
        let mut slots = self.slots.load_full();
        let mut at = slot_of(&slots, tag);
        let live = self.live.load(Relaxed);
        if at.is_none_or(|(_, s)| s == 0) {
            if is_full(self.used.load(Relaxed), slots.len()) {
                slots = self.refill(&slots, live + 1);
                at = slot_of(&slots, tag);
            }
            self.used.fetch_add(1, Relaxed);
        }
        let Some((i, old)) = at else { return };
        if count(old) == 0 {
            self.live.store(live + 1, Relaxed);
        }
        slots[i].store(tag | (count(old) + 1), Relaxed);
    }

    pub(crate) fn remove(&self, hash: u64) {
        let tag = count_tag(hash);
        let slots = self.slots.load_full();
        let Some((i, old)) = slot_of(&slots, tag).filter(|(_, s)| count(*s) > 0) else { return };
        slots[i].store(old - 1, Relaxed);
        if count(old) == 1 {
            let live = self.live.load(Relaxed).saturating_sub(1);
            self.live.store(live, Relaxed);
            if is_sparse(live, slots.len()) {
                self.refill(&slots, live);
            }
        }
    }

    fn refill(&self, old: &[AtomicU64], live: usize) -> Arc<Box<[AtomicU64]>> {
        let new = Arc::new(counts(capacity(live)));
        let mut used = 0;
        for s in old.iter().map(|s| s.load(Relaxed)).filter(|s| count(*s) > 0) {
            if let Some((i, _)) = slot_of(&new, s) {
                new[i].store(s, Relaxed);
                used += 1;
            }
        }
        self.used.store(used, Relaxed);
        self.slots.store(new.clone());
        new
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::mini::MiniMatch;
    use crate::rule::Version;

    fn rule(id: u64, priority: i32) -> Arc<ClsRule<u64>> {
        let r = ClsRule::new(MiniMatch::new(&fv_flow::Match::default()), priority, id);
        r.set_added(Version::MIN);
        Arc::new(r)
    }

    proptest! {
        /// Against a map: whatever comes and goes, with tags that collide.
        #[test]
        fn counts_equal_a_map(ops in prop::collection::vec((any::<bool>(), 0u64..40), 0..400)) {
            let (t, mut twin) = (HashCounts::default(), HashMap::<u64, u32>::new());
            let spread = |x: u64| (x % 7) << 61 | (x % 3) << 40 | (x << 30);
            for (add, x) in ops {
                let n = twin.entry(x).or_default();
                if add {
                    t.insert(spread(x));
                    *n += 1;
                } else if *n > 0 {
                    t.remove(spread(x));
                    *n -= 1;
                }
                for x in 0..40 {
                    let want = (0..40).any(|y| spread(y) >> 28 == spread(x) >> 28 && twin.get(&y).is_some_and(|n| *n > 0));
                    prop_assert_eq!(t.contains(spread(x)), want, "{}", x);
                }
            }
        }

        /// Matches are told apart by identity, although all tags are one of three.
        #[test]
        fn rules_equal_a_list(ops in prop::collection::vec((any::<bool>(), 0u64..30, 0i32..4), 0..300)) {
            let t = RuleTable::default();
            let mut twin: Vec<Arc<ClsRule<u64>>> = Vec::new();
            let hash = |m: u64| (m % 3) << 32;
            for (add, m, priority) in ops {
                if add {
                    let r = rule(m, priority);
                    t.insert(hash(m), r.clone(), |x| x.value == m);
                    let at = twin.iter().position(|x| x.priority() <= priority).unwrap_or(twin.len());
                    twin.insert(at, r);
                } else if let Some(i) = twin.iter().position(|x| x.value == m) {
                    let r = twin.remove(i);
                    t.remove(hash(m), &r, |x| x.value == m);
                }
                for m in 0..30 {
                    let want = twin.iter().find(|x| x.value == m);
                    let got = t.find(hash(m), |x| x.value == m, |x| x.is_visible(Version::MIN));
                    prop_assert_eq!(got.as_ref().map(Arc::as_ptr), want.map(Arc::as_ptr));
                    let below = t.find(hash(m), |x| x.value == m, |x| x.priority() < 2);
                    let want = twin.iter().find(|x| x.value == m && x.priority() < 2);
                    prop_assert_eq!(below.as_ref().map(Arc::as_ptr), want.map(Arc::as_ptr));
                }
                let mut n = 0;
                t.for_each(|_| n += 1);
                prop_assert_eq!(n, twin.len());
            }
        }
    }

    #[test]
    fn long_chains_are_dropped() {
        let t = RuleTable::default();
        for _ in 0..200_000 {
            t.insert(1 << 40, rule(0, 0), |_| true);
        }
        drop(t);
    }
}
