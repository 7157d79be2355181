//! The tag cache: from the hash of a packet's whole key to the index of a flow.
//!
//! It holds no keys. An index that it gives is only a guess, which the table checks with the flow's
//! own key and mask: deleting or replacing flows never touches the cache.
//! Reads: one line. Writes: on insertion, one line. Cost: about 10 cycles a hit while flows fit.

use super::line::{Line, NONE, WAYS, tag_of};

/// Lines at first and at most: 256 KiB for 40 k flows, 8 MiB for 1.3 M.
const LINES_MIN: usize = 1 << 12;
const LINES_MAX: usize = 1 << 17;

pub struct Cache {
    lines: Box<[Line]>,
    /// Entries that were overwritten since the last growth.
    evictions: usize,
}

impl Default for Cache {
    fn default() -> Cache {
        Cache { lines: vec![Line::EMPTY; LINES_MIN].into(), evictions: 0 }
    }
}

impl Cache {
    #[inline]
    fn line(&self, hash: u64) -> usize {
        hash as usize & (self.lines.len() - 1)
    }

    /// Calls `check` with each flow that the tag suggests until it says yes.
    #[inline]
    pub fn find(&self, hash: u64, mut check: impl FnMut(u32) -> bool) -> Option<u32> {
        let line = &self.lines[self.line(hash)];
        let mut ways = line.candidates(tag_of(hash));
        while ways != 0 {
            let index = line.index[ways.trailing_zeros() as usize];
            if index != NONE && check(index) {
                return Some(index);
            }
            ways &= ways - 1;
        }
        None
    }

    /// Remembers `index`, in a free way or in place of the oldest. `live` says whether a flow that
    /// is in the way still exists.
    pub fn insert(&mut self, hash: u64, index: u32, live: impl Fn(u32) -> bool) {
        let at = self.line(hash);
        let line = &mut self.lines[at];
        let tag = tag_of(hash);
        if (0..WAYS).any(|w| line.tags[w] == tag && line.index[w] == index) {
            return;
        }
        let stale = |w: &usize| line.index[*w] == NONE || !live(line.index[*w]);
        let way = match (0..WAYS).find(stale) {
            Some(way) => way,
            None => {
                let way = line.extra as usize % WAYS;
                line.extra = (way as u32 + 1) % WAYS as u32;
                self.evictions += 1;
                way
            }
        };
        line.set(way, tag, index);
    }

    /// Doubles the cache when many entries have been pushed out and there are about as many flows as
    /// it can hold. Contents are lost; they come back with the packets.
    pub fn maybe_grow(&mut self, flows: usize) {
        let capacity = self.lines.len() * WAYS;
        if self.evictions > capacity / 4 && flows * 4 > capacity * 3 && self.lines.len() < LINES_MAX {
            self.lines = vec![Line::EMPTY; self.lines.len() * 2].into();
            self.evictions = 0;
        }
    }

    pub fn clear(&mut self) {
        self.lines.fill(Line::EMPTY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_flows_of_one_hash_live_side_by_side() {
        let mut c = Cache::default();
        c.insert(77, 1, |_| true);
        c.insert(77, 2, |_| true);
        assert_eq!(c.find(77, |i| i == 1), Some(1));
        assert_eq!(c.find(77, |i| i == 2), Some(2));
        assert_eq!(c.find(77, |_| false), None);
    }

    #[test]
    fn dead_entries_go_first_then_the_oldest() {
        let mut c = Cache::default();
        for i in 0..10u32 {
            c.insert(u64::from(i) << 48, i, |_| true);
        }
        c.insert(100 << 48, 100, |i| i != 7);
        assert_eq!(c.find(7 << 48, |_| true), None);
        assert_eq!(c.find(0, |_| true), Some(0));
        c.insert(101 << 48, 101, |_| true);
        assert_eq!(c.find(0, |_| true), None);
        assert_eq!(c.find(101 << 48, |_| true), Some(101));
    }
}
