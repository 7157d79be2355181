//! The megaflow classifier of one ingress port: a hash table ("subtable") per distinct mask, the
//! most used first.
//!
//! Subtables hold indices alone; the flow's masked key, in the slab, is compared. Cost: a hash and
//! a line per subtable tried, and the flow's line for the one that matches.

use std::sync::Arc;

use fv_flow::DpMask;
use fv_flow::key::DP_WORDS;

use super::line::{Line, NONE, WAYS, tag_of};
use crate::hash::{BlockHash, block, blocks_of, each_block};

/// Lines of a growing table that move to the bigger one at each insertion.
const MIGRATE_LINES: usize = 8;

/// A mask with the blocks that it looks at.
#[derive(Debug)]
pub struct Mask {
    pub mask: DpMask,
    pub blocks: u8,
}

impl Mask {
    pub fn new(mask: &DpMask) -> Mask {
        Mask { mask: *mask, blocks: blocks_of(mask.0.words()) }
    }

    /// Hash of the key's masked bits.
    #[inline]
    pub fn hash(&self, key: &[u64; DP_WORDS]) -> u64 {
        let secrets = BlockHash::process();
        let mut h = 0;
        each_block(self.blocks, |i| h = secrets.add(h, i, block(key, i), block(self.mask.0.words(), i)));
        h
    }

    /// Whether `key` agrees with `masked` wherever the mask looks.
    #[inline]
    pub fn matches(&self, key: &[u64; DP_WORDS], masked: &[u64; DP_WORDS]) -> bool {
        let mut differ = 0;
        each_block(self.blocks, |i| {
            let (k, v, m) = (block(key, i), block(masked, i), block(self.mask.0.words(), i));
            for j in 0..8 {
                differ |= (k[j] ^ v[j]) & m[j];
            }
        });
        differ == 0
    }
}

/// A table of lines, open at line granularity: what finds its home line full goes to the next one,
/// and each line that was passed counts it in `extra`, so that a search knows when to stop.
struct Lines {
    lines: Box<[Line]>,
    len: usize,
}

impl Lines {
    fn new(lines: usize) -> Lines {
        Lines { lines: vec![Line::EMPTY; lines].into(), len: 0 }
    }

    fn cap(&self) -> usize {
        self.lines.len() * WAYS
    }

    /// Where the flow is that `check` accepts: (line, way, index).
    #[inline]
    fn find(&self, hash: u64, mut check: impl FnMut(u32) -> bool) -> Option<(usize, usize, u32)> {
        let mut at = hash as usize & (self.lines.len() - 1);
        for _ in 0..self.lines.len() {
            let line = &self.lines[at];
            let mut ways = line.candidates(tag_of(hash));
            while ways != 0 {
                let way = ways.trailing_zeros() as usize;
                let index = line.index[way];
                if index != NONE && check(index) {
                    return Some((at, way, index));
                }
                ways &= ways - 1;
            }
            if line.extra == 0 {
                return None;
            }
            at = (at + 1) & (self.lines.len() - 1);
        }
        None
    }

    /// The caller keeps the table from being full.
    fn insert(&mut self, hash: u64, index: u32) {
        let mask = self.lines.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let line = &mut self.lines[at];
            if let Some(way) = line.free_way() {
                line.set(way, tag_of(hash), index);
                self.len += 1;
                return;
            }
            line.extra += 1;
            at = (at + 1) & mask;
        }
    }

    fn remove(&mut self, hash: u64, index: u32) -> bool {
        let Some((to, way, _)) = self.find(hash, |i| i == index) else { return false };
        let mask = self.lines.len() - 1;
        let mut at = hash as usize & mask;
        while at != to {
            self.lines[at].extra -= 1;
            at = (at + 1) & mask;
        }
        self.lines[to].set(way, 0, NONE);
        self.len -= 1;
        true
    }
}

/// All flows of one mask. Growing never stops the worker: the old table stays searchable and moves
/// over a few lines at a time.
pub struct Subtable {
    pub mask: Arc<Mask>,
    table: Lines,
    /// The table before the growth and its next line to move.
    old: Option<(Lines, usize)>,
    /// Packets that matched here lately; halved at each ranking.
    hits: u64,
}

impl Subtable {
    fn new(mask: &DpMask) -> Subtable {
        Subtable { mask: Arc::new(Mask::new(mask)), table: Lines::new(1), old: None, hits: 0 }
    }

    /// Calls `check` with each flow whose tag fits until it says yes.
    #[inline]
    fn find(&self, hash: u64, mut check: impl FnMut(u32) -> bool) -> Option<u32> {
        if let Some((_, _, index)) = self.table.find(hash, &mut check) {
            return Some(index);
        }
        let (old, _) = self.old.as_ref()?;
        old.find(hash, check).map(|(_, _, index)| index)
    }

    /// `hash_of` gives a stored flow's hash under this mask.
    fn insert(&mut self, hash: u64, index: u32, hash_of: impl Fn(u32) -> u64) {
        self.migrate(MIGRATE_LINES, &hash_of);
        if (self.table.len + 1) * 10 > self.table.cap() * 7 {
            self.migrate(usize::MAX, &hash_of);
            let bigger = Lines::new(self.table.lines.len() * 2);
            self.old = Some((std::mem::replace(&mut self.table, bigger), 0));
        }
        self.table.insert(hash, index);
    }

    fn migrate(&mut self, lines: usize, hash_of: impl Fn(u32) -> u64) {
        let Some((old, next)) = &mut self.old else { return };
        let end = next.saturating_add(lines).min(old.lines.len());
        for line in &mut old.lines[*next..end] {
            for index in &mut line.index {
                if *index != NONE {
                    self.table.insert(hash_of(*index), *index);
                    old.len -= 1;
                    *index = NONE;
                }
            }
        }
        *next = end;
        if end == old.lines.len() {
            self.old = None;
        }
    }

    fn remove(&mut self, hash: u64, index: u32) -> bool {
        self.table.remove(hash, index) || self.old.as_mut().is_some_and(|(old, _)| old.remove(hash, index))
    }

    pub fn len(&self) -> usize {
        self.table.len + self.old.as_ref().map_or(0, |(old, _)| old.len)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One ingress port's subtables.
#[derive(Default)]
pub struct Classifier {
    subtables: Vec<Subtable>,
}

impl Classifier {
    /// The flow that `check` accepts, and how many subtables were searched.
    #[inline]
    pub fn find(&mut self, key: &[u64; DP_WORDS], mut check: impl FnMut(u32, &Mask) -> bool) -> (Option<u32>, u32) {
        let mut tried = 0;
        for subtable in &mut self.subtables {
            tried += 1;
            let hash = subtable.mask.hash(key);
            let found = subtable.find(hash, |index| check(index, &subtable.mask));
            if found.is_some() {
                subtable.hits += 1;
                return (found, tried);
            }
        }
        (None, tried)
    }

    /// The first flow of the first subtable that the key's hash suggests; counts as a hit there.
    #[inline]
    pub fn guess(&mut self, key: &[u64; DP_WORDS]) -> Option<u32> {
        let subtable = self.subtables.first_mut()?;
        let found = subtable.find(subtable.mask.hash(key), |_| true);
        subtable.hits += u64::from(found.is_some());
        found
    }

    /// The subtable of a mask, made if need be.
    fn subtable(&mut self, mask: &DpMask) -> &mut Subtable {
        let at = self.subtables.iter().position(|s| s.mask.mask == *mask);
        let at = at.unwrap_or_else(|| {
            self.subtables.push(Subtable::new(mask));
            self.subtables.len() - 1
        });
        &mut self.subtables[at]
    }

    pub fn insert<'a>(
        &mut self,
        mask: &DpMask,
        masked: &[u64; DP_WORDS],
        index: u32,
        key_of: impl Fn(u32) -> &'a [u64; DP_WORDS],
    ) -> Arc<Mask> {
        let subtable = self.subtable(mask);
        let mask = subtable.mask.clone();
        subtable.insert(mask.hash(masked), index, |i| mask.hash(key_of(i)));
        mask
    }

    /// The flow with exactly this mask and masked key.
    pub fn exact(&self, mask: &DpMask, masked: &[u64; DP_WORDS], check: impl FnMut(u32) -> bool) -> Option<u32> {
        let subtable = self.subtables.iter().find(|s| s.mask.mask == *mask)?;
        subtable.find(subtable.mask.hash(masked), check)
    }

    pub fn remove(&mut self, mask: &DpMask, masked: &[u64; DP_WORDS], index: u32) -> bool {
        let Some(at) = self.subtables.iter().position(|s| s.mask.mask == *mask) else { return false };
        let subtable = &mut self.subtables[at];
        let removed = subtable.remove(subtable.mask.hash(masked), index);
        if subtable.is_empty() {
            self.subtables.remove(at);
        }
        removed
    }

    /// Puts the subtables that match most first.
    pub fn rank(&mut self) {
        // Stable: equals keep their order. Insertion sort in place, as it is nearly sorted.
        for i in 1..self.subtables.len() {
            let mut j = i;
            while j > 0 && self.subtables[j - 1].hits < self.subtables[j].hits {
                self.subtables.swap(j - 1, j);
                j -= 1;
            }
        }
        for subtable in &mut self.subtables {
            subtable.hits /= 2;
        }
    }

    pub fn subtables(&self) -> impl ExactSizeIterator<Item = &Subtable> {
        self.subtables.iter()
    }
}
