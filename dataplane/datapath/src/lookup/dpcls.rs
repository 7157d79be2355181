//! The megaflow classifier of one ingress port: a hash table ("subtable") per distinct mask, the
//! most used first.
//!
//! Subtables hold indices alone; the flow's masked key, in the slab, is compared. A subtable of one
//! rule has it at hand and needs no hash.

use std::sync::Arc;

use fv_flow::key::DP_WORDS;
use fv_flow::{DpKey, DpMask};

use super::line::{Lines, NONE, WAYS, tag_of};
use crate::hash::{BLOCKS, Block, block, blocks_of};
use crate::simd::{Level, Portable, Simd};

/// Lines of a growing table that move to the bigger one at each insertion.
const MIGRATE_LINES: usize = 8;
/// A table of at most so many lines is searched for its last rule when only one is left.
const FEW_LINES: usize = 8;

/// Masks that one ingress port may have before new flows have to use those there are. Rules that look
/// at single bits of three fields make thousands of masks out of random packets.
pub const MASKS_MAX: usize = 100;
/// Flows of a port with so many masks: a new flow then serves one connection only.
pub const CROWDED_FLOWS_MAX: usize = 10_000;

/// A mask with the blocks that it looks at.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Mask {
    pub mask: DpMask,
    pub blocks: u16,
    /// It looks at nothing that the first headers do not tell: see [`is_simple`].
    simple: bool,
}

impl Mask {
    pub fn new(mask: &DpMask) -> Mask {
        Mask { mask: *mask, blocks: blocks_of(mask.0.words()), simple: is_simple(mask) }
    }

    #[inline(always)]
    pub fn first(&self) -> &Block {
        block(self.mask.0.words(), 0)
    }

    /// Hash of the key's masked bits.
    #[inline(always)]
    pub fn hash<S: Simd>(&self, key: &[u64; DP_WORDS]) -> u64 {
        let words = self.mask.0.words();
        let mut h = S::hash(0, 0, block(key, 0), block(words, 0));
        let mut rest = self.blocks & !1;
        while rest != 0 {
            let i = rest.trailing_zeros() as usize;
            h = S::hash(h, i, block(key, i), block(words, i));
            rest &= rest - 1;
        }
        h
    }

    /// As `hash`, outside of compiled stages.
    pub fn hash_at(&self, level: Level, key: &[u64; DP_WORDS]) -> u64 {
        let words = self.mask.0.words();
        (0..BLOCKS)
            .filter(|i| self.blocks >> i & 1 != 0)
            .fold(0, |h, i| level.hash(h, i, block(key, i), block(words, i)))
    }

    /// Whether the two keys agree wherever the mask looks.
    pub fn matches(&self, key: &[u64; DP_WORDS], value: &[u64; DP_WORDS]) -> bool {
        let mut rest = self.blocks;
        while rest != 0 {
            let i = rest.trailing_zeros() as usize;
            if Portable::differ(block(key, i), block(value, i), block(self.mask.0.words(), i)) {
                return false;
            }
            rest &= rest - 1;
        }
        true
    }

    /// Whether `key` agrees with a value wherever the mask looks beyond the first block. `values` are
    /// the value's blocks that the mask looks at.
    #[inline(always)]
    pub fn rest_matches(&self, key: &[u64; DP_WORDS], values: &[Block]) -> bool {
        let mut rest = self.blocks & !1;
        for value in values {
            let i = rest.trailing_zeros() as usize % BLOCKS;
            if Portable::differ(block(key, i), value, block(self.mask.0.words(), i)) {
                return false;
            }
            rest &= rest.wrapping_sub(1);
        }
        true
    }
}

/// The kind of mask that the reference calls simple: it looks at no more than ingress port,
/// recirculation, packet type, EtherType, the outer VLAN tag and fragment bits.
fn is_simple(mask: &DpMask) -> bool {
    let mut rest = *mask;
    let b = &mut rest.0.base;
    (b.in_port, b.recirc_id, b.nw_frag) = (0, 0, 0);
    b.dl_type = Default::default();
    b.vlans[0] = Default::default();
    rest.0.misc.packet_type = 0;
    rest == DpMask::default()
}

/// Whether `narrow` looks at every bit that `mask` looks at.
fn looks_at_all(narrow: &DpMask, mask: &DpMask) -> bool {
    narrow.0.words().iter().zip(mask.0.words()).all(|(n, m)| m & !n == 0)
}

/// Looks at every bit.
fn exact_mask() -> DpMask {
    let mut mask = DpMask::default();
    mask.0.words_mut().fill(u64::MAX);
    mask
}

/// Looks at all that stays the same in a connection.
fn connection_mask() -> DpMask {
    let mut mask = exact_mask();
    let b = &mut mask.0.base;
    (b.dp_hash, b.nw_tos, b.nw_ttl) = (0, 0, 0);
    b.tcp_flags = Default::default();
    mask
}

/// A table of lines, open at line granularity: what finds its home line full goes to the next one,
/// and each line that was passed counts it in `extra`, so that a search knows when to stop.
pub struct Store {
    pub lines: Lines,
    len: usize,
}

impl Store {
    fn new(lines: usize) -> Store {
        Store { lines: Lines::new(lines), len: 0 }
    }

    fn cap(&self) -> usize {
        self.lines.count() * WAYS
    }

    /// Where the flow is that `check` accepts: (line, way, index).
    fn find(&self, hash: u64, mut check: impl FnMut(u32) -> bool) -> Option<(usize, usize, u32)> {
        let mut at = self.lines.home(hash);
        for _ in 0..self.lines.count() {
            let line = self.lines.line(at);
            let mut ways = Portable::candidates(line, tag_of(hash));
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
            at = self.lines.after(at);
        }
        None
    }

    /// The caller keeps the table from being full.
    fn insert(&mut self, hash: u64, index: u32) {
        let mut at = self.lines.home(hash);
        loop {
            let line = self.lines.line_mut(at);
            if let Some(way) = line.free_way() {
                line.set(way, tag_of(hash), index);
                self.len += 1;
                return;
            }
            line.extra += 1;
            at = self.lines.after(at);
        }
    }

    fn remove(&mut self, hash: u64, index: u32) -> bool {
        let Some((to, way, _)) = self.find(hash, |i| i == index) else { return false };
        let mut at = self.lines.home(hash);
        while at != to {
            self.lines.line_mut(at).extra -= 1;
            at = self.lines.after(at);
        }
        self.lines.line_mut(to).set(way, 0, NONE);
        self.len -= 1;
        true
    }
}

/// A subtable's only rule: the first block of its masked key, and its flow.
pub struct Single {
    pub value: Block,
    pub index: u32,
}

/// All flows of one mask. Growing never stops the worker: the old table stays searchable and moves
/// over a few lines at a time.
pub struct Subtable {
    pub mask: Arc<Mask>,
    pub single: Option<Single>,
    pub table: Store,
    /// The table before the growth and its next line to move.
    old: Option<(Store, usize)>,
    /// Packets that matched here lately; halved at each ranking.
    pub hits: u64,
}

impl Subtable {
    fn new(mask: &DpMask) -> Subtable {
        Subtable { mask: Arc::new(Mask::new(mask)), single: None, table: Store::new(1), old: None, hits: 0 }
    }

    /// Calls `check` with each flow whose tag fits until it says yes.
    pub fn find(&self, hash: u64, mut check: impl FnMut(u32) -> bool) -> Option<u32> {
        if let Some((_, _, index)) = self.table.find(hash, &mut check) {
            return Some(index);
        }
        let (old, _) = self.old.as_ref()?;
        old.find(hash, check).map(|(_, _, index)| index)
    }

    /// Whether all flows are in `table`.
    #[inline(always)]
    pub fn is_settled(&self) -> bool {
        self.old.is_none()
    }

    /// `hash_of` gives a stored flow's hash under this mask.
    fn insert(&mut self, hash: u64, index: u32, hash_of: impl Fn(u32) -> u64) {
        self.migrate(MIGRATE_LINES, &hash_of);
        if (self.table.len + 1) * 10 > self.table.cap() * 7 {
            self.migrate(usize::MAX, &hash_of);
            let bigger = Store::new(self.table.lines.count() * 2);
            self.old = Some((std::mem::replace(&mut self.table, bigger), 0));
        }
        self.table.insert(hash, index);
    }

    fn migrate(&mut self, lines: usize, hash_of: impl Fn(u32) -> u64) {
        let Some((old, next)) = &mut self.old else { return };
        let end = next.saturating_add(lines).min(old.lines.count());
        for at in *next..end {
            for index in &mut old.lines.line_mut(at).index {
                if *index != NONE {
                    self.table.insert(hash_of(*index), *index);
                    old.len -= 1;
                    *index = NONE;
                }
            }
        }
        *next = end;
        if end == old.lines.count() {
            self.old = None;
        }
    }

    fn remove(&mut self, hash: u64, index: u32) -> bool {
        self.table.remove(hash, index) || self.old.as_mut().is_some_and(|(old, _)| old.remove(hash, index))
    }

    /// Finds out whether there is one rule only.
    fn note_single(&mut self, key_of: impl Fn(u32) -> Option<DpKey>) {
        self.single = None;
        if self.len() == 1 && self.is_settled() && self.table.lines.count() <= FEW_LINES {
            let indices = (0..self.table.lines.count()).flat_map(|at| self.table.lines.line(at).index);
            let mut indices = indices.filter(|i| *i != NONE);
            if let Some(index) = indices.next()
                && let Some(key) = key_of(index)
            {
                self.single = Some(Single { value: *block(key.words(), 0), index });
            }
        }
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
    pub subtables: Vec<Subtable>,
    /// There are flows, and all masks are simple.
    pub simple: bool,
    /// What each lookup costs is so little that no cache could pay.
    pub cheap: bool,
}

/// Subtables of one rule each that are searched faster than a cache.
const CHEAP_SINGLES: usize = 4;

impl Classifier {
    /// The flow that `check` accepts, and how many subtables were searched.
    pub fn find(
        &mut self,
        level: Level,
        key: &[u64; DP_WORDS],
        mut check: impl FnMut(u32, &Mask) -> bool,
    ) -> (Option<u32>, u32) {
        let mut tried = 0;
        for subtable in &mut self.subtables {
            tried += 1;
            let hash = subtable.mask.hash_at(level, key);
            let found = subtable.find(hash, |index| check(index, &subtable.mask));
            if found.is_some() {
                subtable.hits += 1;
                return (found, tried);
            }
        }
        (None, tried)
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

    /// `key_of` gives stored flows' keys; of a flow just to be inserted, it may not know.
    pub fn insert(
        &mut self,
        level: Level,
        mask: &DpMask,
        key: &DpKey,
        index: u32,
        key_of: impl Fn(u32) -> Option<DpKey>,
    ) -> Arc<Mask> {
        let subtable = self.subtable(mask);
        let mask = subtable.mask.clone();
        let key_of = |i: u32| if i == index { Some(*key) } else { key_of(i) };
        let hash_of = |i: u32| mask.hash_at(level, key_of(i).unwrap_or(*key).words());
        subtable.insert(mask.hash_at(level, key.words()), index, hash_of);
        subtable.note_single(key_of);
        self.changed();
        mask
    }

    /// The flow with exactly this mask, and this key under it.
    pub fn exact(
        &self,
        level: Level,
        mask: &DpMask,
        key: &[u64; DP_WORDS],
        check: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        let subtable = self.subtables.iter().find(|s| s.mask.mask == *mask)?;
        subtable.find(subtable.mask.hash_at(level, key), check)
    }

    pub fn remove(
        &mut self,
        level: Level,
        mask: &DpMask,
        key: &[u64; DP_WORDS],
        index: u32,
        key_of: impl Fn(u32) -> Option<DpKey>,
    ) -> bool {
        let Some(at) = self.subtables.iter().position(|s| s.mask.mask == *mask) else { return false };
        let subtable = &mut self.subtables[at];
        let removed = subtable.remove(subtable.mask.hash_at(level, key), index);
        if subtable.is_empty() {
            self.subtables.remove(at);
        } else {
            subtable.note_single(key_of);
        }
        self.changed();
        removed
    }

    fn changed(&mut self) {
        self.simple = !self.subtables.is_empty() && self.subtables.iter().all(|s| s.mask.simple);
        self.cheap = self.subtables.len() <= 1
            || self.subtables.len() <= CHEAP_SINGLES && self.subtables.iter().all(|s| s.single.is_some());
    }

    /// Flows in all.
    pub fn len(&self) -> usize {
        self.subtables.iter().map(Subtable::len).sum()
    }

    /// The mask under which a flow of that mask is to be put: its own, as long as the port may have
    /// another or has it already, else one that looks at more. Narrower flows are always right. None if
    /// there are too many such flows.
    pub fn admit(&self, mask: &DpMask) -> Option<DpMask> {
        if self.subtables.len() < MASKS_MAX || self.subtables.iter().any(|s| s.mask.mask == *mask) {
            return Some(*mask);
        }
        if self.len() >= CROWDED_FLOWS_MAX {
            return None;
        }
        // One that is there, the one with the fewest bits, so that the flow covers most.
        let there = self.subtables.iter().map(|s| &s.mask.mask).filter(|m| looks_at_all(m, mask));
        if let Some(there) = there.min_by_key(|m| m.0.words().iter().map(|w| w.count_ones()).sum::<u32>()) {
            return Some(*there);
        }
        let connection = connection_mask();
        Some(if looks_at_all(&connection, mask) { connection } else { exact_mask() })
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
}

#[cfg(test)]
mod tests {
    use super::*;

    // UP-10.
    #[test]
    fn past_the_budget_masks_only_narrow() {
        let mut c = Classifier::default();
        let mask = |bits: u32| {
            let mut m = DpMask::default();
            m.0.base.in_port = u32::MAX;
            m.0.base.recirc_id = u32::MAX;
            m.0.base.nw_src = bits.into();
            m
        };
        let key = DpKey::default();
        let put = |c: &mut Classifier, m: &DpMask, n: u32| {
            c.insert(Level::Portable, m, &key, n + 1, |_| Some(key));
        };
        for n in 0..MASKS_MAX as u32 {
            let m = mask(n << 8);
            assert_eq!(c.admit(&m), Some(m));
            put(&mut c, &m, n);
        }
        assert_eq!(c.admit(&mask(3 << 8)), Some(mask(3 << 8)), "it is there");
        assert_eq!(c.admit(&mask(0x4000)), Some(mask(0x4000)));
        assert_eq!(c.admit(&mask(0x80)), Some(connection_mask()));
        let mut flags = mask(0x80);
        flags.0.base.tcp_flags = 1.into();
        assert_eq!(c.admit(&flags), Some(exact_mask()));
        // With these two it takes no more masks than that.
        put(&mut c, &connection_mask(), 5000);
        put(&mut c, &exact_mask(), 5001);
        for n in 0..CROWDED_FLOWS_MAX as u32 {
            let Some(m) = c.admit(&mask(n + 1)) else { break };
            put(&mut c, &m, 6000 + n);
        }
        assert_eq!(c.subtables.len(), MASKS_MAX + 2);
        assert_eq!(c.len(), CROWDED_FLOWS_MAX);
        assert_eq!(c.admit(&mask(1)), None);
    }

    #[test]
    fn simple_masks() {
        let mut m = DpMask::default();
        m.0.base.in_port = u32::MAX;
        m.0.base.dl_type = u16::MAX.into();
        m.0.base.vlans[0].tci = 0x1fff.into();
        m.0.base.nw_frag = 3;
        assert!(is_simple(&m));
        m.0.base.dl_dst[0] = 1;
        assert!(!is_simple(&m));
    }
}
