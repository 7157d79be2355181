//! One worker's view of the flows: a slab of entries, found through the tag cache or the
//! classifier of the packet's ingress port.
//!
//! Whatever path finds an entry, the entry's own masked key decides whether it matches, and the
//! flow's state word whether it still exists.

mod burst;
mod cache;
pub mod dpcls;
mod entry;
pub mod line;
mod mark;

use std::sync::Arc;

use fv_core::Nanos;
use fv_dpif::WorkerId;
use fv_flow::{DpKey, DpMask};
use hashbrown::HashMap;

pub use self::burst::{BURST, Burst};
use self::cache::Cache;
use self::dpcls::{Classifier, Mask};
use self::entry::Slab;
pub use self::entry::{Entry, State};
pub use self::line::NONE;
use crate::flow::Flow;
use crate::hash::{BLOCKS, Block, BlockHash, block, blocks_of, fold};
use crate::simd::{Level, Portable, Simd};

/// Subtables are put in the order of their use this often.
const RANK_INTERVAL: Nanos = Nanos::from_secs(1);

/// A packet's key with what lookups need beside it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Probe {
    pub key: DpKey,
    /// Blocks that may hold something; the others are zero.
    pub blocks: u16,
}

impl Default for Probe {
    fn default() -> Probe {
        Probe { key: DpKey::default(), blocks: 1 }
    }
}

/// Leaves dp_hash, TCP flags, TOS and TTL out of the cache's hash.
const STEADY: Block = {
    use fv_flow::key::Base;
    use std::mem::offset_of;
    let volatile = [
        (offset_of!(Base, dp_hash), 4),
        (offset_of!(Base, tcp_flags), 2),
        (offset_of!(Base, nw_tos), 1),
        (offset_of!(Base, nw_ttl), 1),
    ];
    let mut bytes = [[255u8; 8]; 8];
    let mut i = 0;
    while i < volatile.len() {
        let mut j = 0;
        while j < volatile[i].1 {
            let at = volatile[i].0 + j;
            bytes[at / 8][at % 8] = 0;
            j += 1;
        }
        i += 1;
    }
    let mut words = [0; 8];
    let mut i = 0;
    while i < 8 {
        words[i] = u64::from_ne_bytes(bytes[i]);
        i += 1;
    }
    words
};
const EVERY: Block = [u64::MAX; 8];

impl Probe {
    pub fn new(key: &DpKey) -> Probe {
        Probe { key: *key, blocks: blocks_of(key.words()) }
    }

    #[inline(always)]
    pub fn first(&self) -> &Block {
        block(self.key.words(), 0)
    }

    /// Hash of the key without the fields that change from packet to packet of a connection.
    #[inline(always)]
    pub fn hash<S: Simd>(&self) -> u64 {
        let words = self.key.words();
        let mut h = S::hash(0, 0, block(words, 0), &STEADY);
        let mut rest = self.blocks & !1;
        while rest != 0 {
            let i = rest.trailing_zeros() as usize;
            h = S::hash(h, i, block(words, i), &EVERY);
            rest &= rest - 1;
        }
        h
    }
}

impl Probe {
    /// The hash of a packet that was looked up before, and then given that hash: with what else the
    /// key knows of it now. Equal for packets that came the same way, as those of a connection do.
    #[inline]
    pub fn hash_again(&self, before: u64) -> u64 {
        let words = self.key.words();
        // Port and recirculation; connection tracking.
        fold(before ^ words[0], words[2] ^ BlockHash::process().secret[0][2])
    }

    /// As `hash`, outside of compiled stages.
    pub fn hash_now(&self, level: Level) -> u64 {
        let words = self.key.words();
        let mask = |i| if i == 0 { &STEADY } else { &EVERY };
        let blocks = (0..BLOCKS).filter(|i| self.blocks >> i & 1 != 0);
        blocks.fold(0, |h, i| level.hash(h, i, block(words, i), mask(i)))
    }
}

/// How a lookup ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// By the classifier, after so many subtables.
    Subtable(u32, u32),
    Miss(u32),
}

impl Found {
    pub fn index(self) -> Option<u32> {
        match self {
            Found::Subtable(i, _) => Some(i),
            Found::Miss(_) => None,
        }
    }
}

/// Lookups by what answered them; misses are not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// By a classifier whose masks are all simple.
    pub simple: u64,
    pub cache: u64,
    pub subtable: u64,
    /// Subtables searched for the latter.
    pub tried: u64,
}

impl Tally {
    /// Takes back one hit.
    fn uncount(&mut self) {
        for n in [&mut self.cache, &mut self.simple, &mut self.subtable] {
            if *n > 0 {
                *n -= 1;
                return;
            }
        }
    }

    fn add(&mut self, other: Tally) {
        self.simple += other.simple;
        self.cache += other.cache;
        self.subtable += other.subtable;
        self.tried += other.tried;
    }
}

/// What a lookup has to do with the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    Nothing,
    /// Ask it, remember what it did not know.
    Remember,
    /// Ask it, remember some of what it did not know.
    Sometimes,
}

/// How `other_config` wants the tag cache to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CacheUse {
    /// Nothing is set: where and as big as it pays, by measurement.
    #[default]
    Adaptive,
    /// `emc-insert-inv-prob`: one in so many lookups that failed in it is remembered, in as many
    /// entries as the reference's EMC has; 0 switches it off.
    Inverse(u32),
    /// `smc-enable`: always asked and filled, as big as pays.
    Always,
}

/// One worker's flows.
pub struct Table {
    level: Level,
    slab: Slab,
    cache: Cache,
    cache_use: CacheUse,
    classifiers: Vec<Classifier>,
    /// Which classifier is an ingress port's. Ports that had flows keep theirs.
    ports: HashMap<u32, u32, foldhash::fast::RandomState>,
    /// The port that was looked up last, and its classifier.
    last: Option<(u32, u32)>,
    ranked: Nanos,
    /// State of the generator that thins out insertions.
    random: u64,
    /// Where the search for dead flows goes on; None: no search under way.
    sweep: Option<usize>,
    /// Where marks lead.
    marked: mark::Remembered,
    /// Flows put so far.
    changes: u64,
    /// The flow of all packets of the last burst, if they had one in common.
    hot: u32,
}

impl Default for Table {
    fn default() -> Table {
        Table::at(Level::best())
    }
}

impl Table {
    /// With the stages of a level that the processor has.
    pub fn at(level: Level) -> Table {
        Table {
            level,
            slab: Slab::default(),
            cache: Cache::default(),
            cache_use: CacheUse::default(),
            classifiers: Vec::new(),
            ports: HashMap::default(),
            last: None,
            ranked: Nanos::ZERO,
            random: 0,
            sweep: None,
            marked: mark::Remembered::default(),
            changes: 0,
            hot: NONE,
        }
    }

    pub fn set_cache_use(&mut self, cache_use: CacheUse) {
        self.cache_use = cache_use;
        self.cache.set_may_grow(!matches!(cache_use, CacheUse::Inverse(_)));
        self.cache.clear();
    }

    pub fn cache_use(&self) -> CacheUse {
        self.cache_use
    }

    /// Whether the cache is as small as it gets, and whether it has found its size.
    pub fn cache_size(&self) -> (bool, bool) {
        (self.cache.is_small(), self.cache.is_settled())
    }

    #[inline(always)]
    pub fn entry(&self, index: u32) -> Option<&Entry> {
        self.slab.find(index)
    }

    #[inline]
    pub fn entry_mut(&mut self, index: u32) -> Option<&mut Entry> {
        self.slab.find_mut(index)
    }

    pub fn len(&self) -> usize {
        self.slab.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Moves whenever a flow is put.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    #[inline]
    fn classifier_of(&mut self, port: u32) -> Option<usize> {
        match self.last {
            Some((last, classifier)) if last == port => Some(classifier as usize),
            _ => {
                let classifier = *self.ports.get(&port)?;
                self.last = Some((port, classifier));
                Some(classifier as usize)
            }
        }
    }

    /// What a port's lookups cost without a cache, in a word: see [`Terrain`].
    #[inline]
    pub fn terrain(&mut self, port: u32) -> Terrain {
        let Some(c) = self.classifier_of(port) else { return Terrain { subtables: 0, cheap: true } };
        let c = &self.classifiers[c];
        Terrain { subtables: c.subtables.len() as u32, cheap: c.cheap }
    }

    /// One lookup, without the cache, one step after another.
    pub fn lookup(&mut self, probe: &Probe) -> Found {
        let words = probe.key.words();
        let Some(c) = self.classifier_of(probe.key.base.in_port) else { return Found::Miss(0) };
        let slab = &self.slab;
        let check = |i: u32, mask: &Mask| {
            slab.find(i).is_some_and(|e| e.matches_by::<Portable>(probe, mask) && e.state() != State::Dead)
        };
        match self.classifiers[c].find(self.level, words, check) {
            (Some(index), tried) => Found::Subtable(index, tried),
            (None, tried) => Found::Miss(tried),
        }
    }

    /// Looks up a burst as the settings say, an adaptive cache where subtables are many. For those who
    /// do not measure.
    pub fn lookup_burst(&mut self, probes: &[Probe], found: &mut [u32]) -> Tally {
        let port = probes.first().map_or(0, |p| p.key.base.in_port);
        let cheap = self.terrain(port).cheap;
        let ask = match self.cache_use {
            CacheUse::Adaptive if cheap => Ask::Nothing,
            CacheUse::Adaptive | CacheUse::Always | CacheUse::Inverse(1) => Ask::Remember,
            CacheUse::Inverse(0) => Ask::Nothing,
            CacheUse::Inverse(_) => Ask::Sometimes,
        };
        self.lookup_all(Burst { probes, hashes: &mut [0; BURST], hashed: &mut 0, found }, ask)
    }

    /// Looks up a burst, at most [`BURST`] packets. Mixed ingress ports are looked up in runs of one.
    #[inline]
    pub fn lookup_all(&mut self, burst: Burst<'_>, ask: Ask) -> Tally {
        let Burst { probes, hashes, hashed, found } = burst;
        let port = |p: &Probe| p.key.base.in_port;
        let Some(first) = probes.first().map(port) else { return Tally::default() };
        if probes.iter().all(|p| port(p) == first) {
            return self.lookup_run(first, &mut Burst { probes, hashes, hashed, found }, ask);
        }
        let (mut tally, mut from) = (Tally::default(), 0);
        while from < probes.len() {
            let first = port(&probes[from]);
            let n = probes[from..].iter().take_while(|p| port(p) == first).count();
            let (mut some, mut there) = ([0; BURST], *hashed >> from);
            some[..n].copy_from_slice(&hashes[from..from + n]);
            let run = &mut Burst {
                probes: &probes[from..from + n],
                hashes: &mut some,
                hashed: &mut there,
                found: &mut found[from..from + n],
            };
            tally.add(self.lookup_run(first, run, ask));
            hashes[from..from + n].copy_from_slice(&some[..n]);
            *hashed |= there << from;
            from += n;
        }
        tally
    }

    #[inline]
    fn lookup_run(&mut self, port: u32, burst: &mut Burst<'_>, ask: Ask) -> Tally {
        match self.classifier_of(port) {
            Some(c) => burst::lookup(self, c, burst, ask),
            None => {
                burst.found.fill(NONE);
                Tally::default()
            }
        }
    }

    /// Another flow for a packet whose flow is dead.
    #[cold]
    fn replace_dead(&mut self, probe: &Probe, tally: &mut Tally) -> u32 {
        let found = self.lookup(probe);
        let index = found.index().unwrap_or(NONE);
        match self.slab.find_mut(index) {
            Some(e) if e.state() == State::Changed => e.refresh(),
            Some(_) => {}
            // It was counted as a hit of whatever found the dead one.
            None => tally.uncount(),
        }
        index
    }

    fn dice(&mut self) -> bool {
        let CacheUse::Inverse(n) = self.cache_use else { return true };
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        n <= 1 || ((self.random >> 33) as u32).is_multiple_of(n)
    }

    /// The mask under which a flow for `key` is to be put: see [`Classifier::admit`].
    pub fn admit(&mut self, key: &DpKey, mask: &DpMask) -> Option<DpMask> {
        // As flows are made: these two are always matched.
        let mut mask = *mask;
        (mask.0.base.in_port, mask.0.base.recirc_id) = (u32::MAX, u32::MAX);
        match self.classifier_of(key.base.in_port) {
            Some(c) => self.classifiers[c].admit(&mask),
            None => Some(mask),
        }
    }

    /// Makes a flow findable, in place of a dead one with the same mask and masked key.
    pub fn insert(&mut self, flow: &Arc<Flow>, worker: WorkerId) -> u32 {
        let (key, mask) = (flow.key(), flow.mask());
        let port = flow.in_port;
        let c = self.classifier_of(port).unwrap_or_else(|| {
            self.classifiers.push(Classifier::default());
            self.ports.insert(port, (self.classifiers.len() - 1) as u32);
            self.classifiers.len() - 1
        });
        let slab = &self.slab;
        let same = |i: u32| slab.find(i).is_some_and(|e| mask.equal(&e.flow.key(), &key));
        if let Some(index) = self.classifiers[c].exact(self.level, &mask, key.words(), same) {
            match self.entry(index) {
                Some(e) if Arc::ptr_eq(&e.flow, flow) => return index,
                _ => self.take_out(index),
            };
        }
        self.changes += 1;
        let index = self.slab.place();
        let slab = &self.slab;
        let key_of = |i: u32| slab.find(i).map(|e| e.flow.key());
        let mask = self.classifiers[c].insert(self.level, &mask, &key, index, key_of);
        self.slab.put(index, Entry::new(flow, mask, worker));
        index
    }

    /// Forgets a flow, if it is here.
    pub fn remove(&mut self, flow: &Arc<Flow>) {
        let Some(c) = self.classifier_of(flow.in_port) else { return };
        let slab = &self.slab;
        let same = |i: u32| slab.find(i).is_some_and(|e| Arc::ptr_eq(&e.flow, flow));
        if let Some(index) = self.classifiers[c].exact(self.level, &flow.mask(), flow.key().words(), same) {
            self.take_out(index);
        }
    }

    fn take_out(&mut self, index: u32) {
        let Some(entry) = self.slab.take(index) else { return };
        let flow = &entry.flow;
        if let Some(c) = self.classifier_of(flow.in_port) {
            let slab = &self.slab;
            let key_of = |i: u32| slab.find(i).map(|e| e.flow.key());
            self.classifiers[c].remove(self.level, &flow.mask(), flow.key().words(), index, key_of);
        }
    }

    /// Starts a search for dead flows through the whole table.
    pub fn start_sweep(&mut self) {
        self.sweep = Some(0);
    }

    /// Housekeeping between batches: ranking, and at most `budget` entries of a sweep. Says whether
    /// a sweep has entries left.
    pub fn tick(&mut self, now: Nanos, budget: usize) -> bool {
        if now.saturating_sub(self.ranked) >= RANK_INTERVAL {
            self.ranked = now;
            self.classifiers.iter_mut().for_each(Classifier::rank);
        }
        self.cache.fit();
        let Some(from) = self.sweep else { return false };
        let to = (from + budget).min(self.slab.places());
        for index in from..to {
            if self.entry(index as u32).is_some_and(|e| e.flow.is_dead()) {
                self.take_out(index as u32);
            }
        }
        self.sweep = (to < self.slab.places()).then_some(to);
        self.sweep.is_some()
    }

    /// Subtables, over all ports.
    pub fn subtables(&self) -> usize {
        self.classifiers.iter().map(|c| c.subtables.len()).sum()
    }
}

/// What a port's classifier looks like from afar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terrain {
    pub subtables: u32,
    /// No cache can be faster.
    pub cheap: bool,
}

#[cfg(test)]
mod tests;
