//! The tag cache: from the hash of a packet's whole key to the index of a flow.
//!
//! It holds no keys. An index that it gives is only a guess, which is checked with the flow's own
//! key and mask: deleting or replacing flows never touches the cache.
//! Reads: one line. Writes: on insertion, one line. Cost: about 10 cycles a hit while flows fit.

use super::line::{Line, Lines, NONE, WAYS, tag_of};

/// Lines at first and at most: 64 KiB for 10 k flows, 8 MiB for 1.3 M.
const LINES_MIN: usize = 1 << 10;
const LINES_MAX: usize = 1 << 17;
/// Percent of lookups that should hit; below, a bigger cache is tried.
const HITS_WANTED: u64 = 95;
/// Points that a bigger cache must gain to stay.
const HITS_GAINED: u64 = 5;
/// Growth by this factor: twice the room for many more flows would show nothing.
const GROWTH: usize = 8;
/// After growth that gained nothing, so many times the lookups that it took pass before the next,
/// doubled each time up to the second.
const HOLD: (u64, u64) = (16, 256);

pub struct Cache {
    lines: Lines,
    /// The current window: lookups, hits, insertions and entries overwritten.
    lookups: u64,
    hits: u64,
    insertions: u64,
    evictions: u64,
    /// Fresh: entries have still to come in before hits say anything.
    filling: bool,
    /// A whole window has passed since, which brought no other size.
    settled: bool,
    /// Share of hits before it began to grow, until that has proved itself.
    before: Option<u64>,
    /// Lookups that growing has taken so far.
    spent: u64,
    /// Lookups to go before growth is tried again, and how many for each that the next failure takes.
    hold: u64,
    next_hold: u64,
    may_grow: bool,
}

impl Default for Cache {
    fn default() -> Cache {
        Cache {
            lines: Lines::new(LINES_MIN),
            lookups: 0,
            hits: 0,
            insertions: 0,
            evictions: 0,
            filling: true,
            settled: false,
            before: None,
            spent: 0,
            hold: 0,
            next_hold: HOLD.0,
            may_grow: true,
        }
    }
}

impl Cache {
    #[inline(always)]
    pub fn line(&self, hash: u64) -> &Line {
        self.lines.line(self.lines.home(hash))
    }

    /// Remembers `index`, in a free way or in place of the oldest.
    pub fn insert(&mut self, hash: u64, index: u32) {
        let at = self.lines.home(hash);
        let line = self.lines.line_mut(at);
        let tag = tag_of(hash);
        if (0..WAYS).any(|w| line.tags[w] == tag && line.index[w] == index) {
            return;
        }
        self.insertions += 1;
        let way = line.free_way().unwrap_or_else(|| {
            let way = line.extra as usize % WAYS;
            line.extra = (way as u32 + 1) % WAYS as u32;
            self.evictions += 1;
            way
        });
        line.set(way, tag, index);
    }

    /// Counts lookups.
    #[inline(always)]
    pub fn looked(&mut self, lookups: u64, hits: u64) {
        self.lookups += lookups;
        self.hits += hits;
    }

    /// Whether it is as small as it gets.
    #[inline(always)]
    pub fn is_small(&self) -> bool {
        self.lines.count() == LINES_MIN
    }

    /// Whether it has filled at its present size, and found that right.
    #[inline(always)]
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    pub fn capacity(&self) -> usize {
        self.lines.count() * WAYS
    }

    /// Fixed at its smallest size, or as big as pays.
    pub fn set_may_grow(&mut self, may: bool) {
        self.may_grow = may;
        if !may && !self.is_small() {
            self.resize(LINES_MIN);
        }
    }

    /// Looks once in a while whether another size would do better: grows while entries push each
    /// other out and too few lookups hit, and goes back if that gained nothing, as with flows too
    /// short-lived for any cache. Contents are lost; they come back with the packets.
    #[inline(always)]
    pub fn fit(&mut self) {
        if self.lookups > 2 * self.capacity() as u64 {
            self.end_window();
        }
    }

    #[cold]
    fn end_window(&mut self) {
        let capacity = self.capacity() as u64;
        let share = self.hits * 100 / self.lookups.max(1);
        let crowded = self.evictions > capacity / 8;
        let full = self.insertions > capacity / 2 || !crowded;
        let (filling, lookups) = (self.filling, self.lookups);
        (self.lookups, self.hits, self.insertions, self.evictions) = (0, 0, 0, 0);
        self.spent += if self.before.is_some() { lookups } else { 0 };
        self.hold = self.hold.saturating_sub(lookups);
        if filling {
            self.filling = !full;
            return;
        }
        self.settled = true;
        let gained = self.before.is_none_or(|before| share >= before + HITS_GAINED);
        if gained {
            self.next_hold = if self.before.take().is_some() { HOLD.0 } else { self.next_hold };
        }
        let wanting = crowded && share < HITS_WANTED && self.may_grow && self.hold == 0;
        match self.lines.count() {
            lines if lines < LINES_MAX && wanting => {
                // A cache that flows go round in hits nothing until all fit: growing goes on without gain.
                self.before = self.before.or(Some(share));
                self.spent = if gained { 0 } else { self.spent };
                self.resize((lines * GROWTH).min(LINES_MAX));
            }
            // The flows are more than any size holds, or gone at once.
            lines if !gained && lines > LINES_MIN => {
                self.resize(LINES_MIN);
                self.before = None;
                self.hold = self.spent * self.next_hold;
                self.next_hold = (self.next_hold * 2).min(HOLD.1);
            }
            _ => {}
        }
    }

    fn resize(&mut self, lines: usize) {
        self.lines = Lines::new(lines);
        self.filling = true;
        self.settled = false;
    }

    pub fn clear(&mut self) {
        self.lines.clear();
        self.filling = true;
        self.settled = false;
    }

    /// Every index that the hash's tag suggests.
    #[cfg(test)]
    fn suggested(&self, hash: u64) -> Vec<u32> {
        let line = self.line(hash);
        (0..WAYS).filter(|w| line.tags[*w] == tag_of(hash) && line.index[*w] != NONE).map(|w| line.index[w]).collect()
    }
}

/// The next way of a candidate bitmap that holds an index, which is taken out of the bitmap; [`NONE`]
/// if none is left.
#[inline(always)]
pub fn next_index(line: &Line, ways: &mut u32) -> u32 {
    while *ways != 0 {
        let way = ways.trailing_zeros() as usize % 16;
        *ways &= *ways - 1;
        let index = line.index.get(way).copied().unwrap_or(NONE);
        if index != NONE {
            return index;
        }
    }
    NONE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_flows_of_one_hash_live_side_by_side() {
        let mut c = Cache::default();
        c.insert(77, 1);
        c.insert(77, 2);
        c.insert(77, 1);
        assert_eq!(c.suggested(77), [1, 2]);
    }

    #[test]
    fn the_oldest_gives_way() {
        let mut c = Cache::default();
        for i in 1..11u32 {
            c.insert(u64::from(i) << 48, i);
        }
        c.insert(100 << 48, 100);
        assert_eq!(c.suggested(1 << 48), []);
        assert_eq!((c.suggested(2 << 48), c.suggested(100 << 48)), (vec![2], vec![100]));
    }

    /// Plays `flows` connections in turn.
    fn play(c: &mut Cache, flows: u64, lookups: u64) -> u64 {
        let mut hits = 0;
        for i in 0..lookups {
            let flow = i * 7919 % flows;
            let hash = flow.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xd6e8_feb8_6659_fd93);
            let hit = c.suggested(hash).contains(&(flow as u32 + 1));
            if !hit {
                c.insert(hash, flow as u32 + 1);
            }
            c.looked(1, hit.into());
            c.fit();
            hits += u64::from(hit);
        }
        hits * 100 / lookups
    }

    #[test]
    fn grows_until_the_flows_fit() {
        let mut c = Cache::default();
        assert!(!c.is_settled());
        play(&mut c, 20_000, 500_000);
        assert!(c.is_settled());
        assert!((20_000..100_000).contains(&c.capacity()), "{}", c.capacity());
        assert!(play(&mut c, 20_000, 100_000) >= 95);
        c.set_may_grow(false);
        play(&mut c, 20_000, 300_000);
        assert!(c.is_small());
    }

    /// Half of all lookups hit, whatever the size, as with flows of two packets.
    #[test]
    fn is_seldom_large_for_flows_that_are_gone_at_once() {
        let mut c = Cache::default();
        let (mut small, mut all) = (0, 0);
        while all < 2_000_000_000 {
            let lookups = 2 * c.capacity() as u64 + 1;
            small += if c.is_small() { lookups } else { 0 };
            all += lookups;
            c.looked(lookups, lookups / 2);
            (c.insertions, c.evictions) = (lookups / 2, lookups / 4);
            c.fit();
        }
        assert!(small * 100 / all >= 90, "{}", small * 100 / all);
    }
}
