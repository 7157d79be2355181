//! One worker's view of the flows: a slab of entries, found through the tag cache or the
//! classifier of the packet's ingress port.
//!
//! Whatever path finds an entry, the entry's own masked key decides whether it matches, and the
//! flow's state word whether it still exists.

mod cache;
pub mod dpcls;
mod line;

use std::sync::Arc;

use fv_core::Nanos;
use fv_dpif::WorkerId;
use fv_flow::DpKey;
use fv_flow::key::DP_WORDS;
use hashbrown::HashMap;

use self::cache::Cache;
use self::dpcls::{Classifier, Mask};
pub use self::line::NONE;
use crate::exec::{Code, Shape};
use crate::flow::{Flow, SlotRef};
use crate::hash::{Block, BlockHash, block, blocks_of, each_block};

/// Subtables are put in the order of their use this often.
const RANK_INTERVAL: Nanos = Nanos::from_secs(1);

/// A packet's key with what lookups need beside it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Probe {
    pub key: DpKey,
    /// Blocks that may hold something; the others are zero.
    pub blocks: u8,
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

    /// Hash of the key without the fields that change from packet to packet of a connection.
    #[inline]
    pub fn hash(&self) -> u64 {
        let words = self.key.words();
        let secrets = BlockHash::process();
        let mut h = secrets.add(0, 0, block(words, 0), &STEADY);
        each_block(self.blocks & !1, |i| h = secrets.add(h, i, block(words, i), &EVERY));
        h
    }
}

/// What a worker keeps of a flow: one line to compare most keys with, one with the rest.
#[repr(C, align(64))]
pub struct Entry {
    /// Block 0 of the masked key.
    base: Block,
    pub flow: Arc<Flow>,
    mask: Arc<Mask>,
    /// The flow's program as of `version`.
    pub code: Arc<Code>,
    pub slot: SlotRef,
    /// Scratch of the batch that is being grouped: its number, and the group in it.
    pub batch: u64,
    version: u32,
    /// What the program comes down to, so that simple ones cost no access more.
    pub shape: Shape,
    pub group: u8,
}

const _: () = assert!(size_of::<Option<Entry>>() == 128);

impl Entry {
    fn new(flow: &Arc<Flow>, mask: Arc<Mask>, worker: WorkerId) -> Entry {
        let code = flow.code();
        Entry {
            base: *block(flow.masked.words(), 0),
            flow: flow.clone(),
            mask,
            shape: code.shape,
            code,
            slot: flow.slot_of(worker),
            batch: 0,
            version: flow.version().unwrap_or(u32::MAX),
            group: 0,
        }
    }

    /// Alive and matching by `mask`, which is the flow's own.
    #[inline]
    fn matches(&self, key: &[u64; DP_WORDS], mask: &Mask) -> bool {
        let (k, m) = (block(key, 0), block(mask.mask.0.words(), 0));
        let mut differ = 0;
        for j in 0..8 {
            differ |= (k[j] ^ self.base[j]) & m[j];
        }
        differ == 0 && (mask.blocks == 1 || mask.matches(key, self.flow.masked.words())) && !self.flow.is_dead()
    }

    /// Takes over a changed program.
    #[inline]
    pub fn refresh(&mut self) {
        if let Some(version) = self.flow.version()
            && version != self.version
        {
            self.code = self.flow.code();
            self.shape = self.code.shape;
            self.version = version;
        }
    }
}

/// Entries in chunks, which never move.
#[derive(Default)]
struct Slab {
    chunks: Vec<Box<[Option<Entry>; CHUNK]>>,
    free: Vec<u32>,
}

/// Entries of a chunk.
const CHUNK: usize = 64;

impl Slab {
    #[inline]
    fn find(&self, index: u32) -> Option<&Entry> {
        self.chunks.get(index as usize / CHUNK)?[index as usize % CHUNK].as_ref()
    }

    #[inline]
    fn find_mut(&mut self, index: u32) -> Option<&mut Entry> {
        self.chunks.get_mut(index as usize / CHUNK)?[index as usize % CHUNK].as_mut()
    }

    /// A free place.
    fn place(&mut self) -> u32 {
        if self.free.is_empty() {
            let first = self.len();
            self.chunks.push(Box::new([const { None }; CHUNK]));
            self.free.extend((first..first + CHUNK).rev().map(|i| i as u32));
        }
        self.free.pop().unwrap_or(NONE)
    }

    fn put(&mut self, index: u32, entry: Entry) {
        if let Some(chunk) = self.chunks.get_mut(index as usize / CHUNK) {
            chunk[index as usize % CHUNK] = Some(entry);
        }
    }

    fn take(&mut self, index: u32) -> Option<Entry> {
        let entry = self.chunks.get_mut(index as usize / CHUNK)?[index as usize % CHUNK].take()?;
        self.free.push(index);
        Some(entry)
    }

    /// Places, free ones included.
    fn len(&self) -> usize {
        self.chunks.len() * CHUNK
    }
}

/// How a lookup ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// By the tag cache.
    Cache(u32),
    /// By the classifier, after so many subtables.
    Subtable(u32, u32),
    Miss(u32),
}

impl Found {
    pub fn index(self) -> Option<u32> {
        match self {
            Found::Cache(i) | Found::Subtable(i, _) => Some(i),
            Found::Miss(_) => None,
        }
    }
}

/// Lookups by what answered them; misses are not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    pub cache: u64,
    pub subtable: u64,
    /// Subtables searched for the latter.
    pub tried: u64,
}

impl Tally {
    fn add(&mut self, found: Found) {
        match found {
            Found::Cache(_) => self.cache += 1,
            Found::Subtable(_, tried) => {
                (self.subtable, self.tried) = (self.subtable + 1, self.tried + u64::from(tried))
            }
            Found::Miss(_) => {}
        }
    }
}

/// When the tag cache is asked and filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CacheUse {
    /// Where it pays: a port with more than one subtable.
    #[default]
    Adaptive,
    /// One in so many lookups that failed in it is remembered; 0 switches it off.
    Inverse(u32),
}

/// One worker's flows.
#[derive(Default)]
pub struct Table {
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
}

impl Table {
    pub fn set_cache_use(&mut self, cache_use: CacheUse) {
        self.cache_use = cache_use;
        self.cache.clear();
    }

    #[inline]
    pub fn entry(&self, index: u32) -> Option<&Entry> {
        self.slab.find(index)
    }

    #[inline]
    pub fn entry_mut(&mut self, index: u32) -> Option<&mut Entry> {
        self.slab.find_mut(index)
    }

    pub fn len(&self) -> usize {
        self.slab.len() - self.slab.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
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

    /// Reads: probe. Writes: the cache, hit counts. Next: grouping.
    #[inline]
    pub fn lookup(&mut self, probe: &Probe) -> Found {
        let words = probe.key.words();
        let Some(c) = self.classifier_of(probe.key.base.in_port) else { return Found::Miss(0) };
        let classifier = &mut self.classifiers[c];
        let slab = &self.slab;
        let ask = match self.cache_use {
            CacheUse::Adaptive => classifier.subtables().len() > 1,
            CacheUse::Inverse(n) => n != 0,
        };
        let cached = |i: u32| slab.find(i).is_some_and(|e| e.matches(words, &e.mask));
        let hash = if ask { probe.hash() } else { 0 };
        if ask && let Some(index) = self.cache.find(hash, cached) {
            return Found::Cache(index);
        }
        let check = |i: u32, mask: &Mask| slab.find(i).is_some_and(|e| e.matches(words, mask));
        let (found, tried) = classifier.find(words, check);
        let Some(index) = found else { return Found::Miss(tried) };
        if ask && self.dice() {
            let slab = &self.slab;
            self.cache.insert(hash, index, |i| slab.find(i).is_some_and(|e| !e.flow.is_dead()));
        }
        Found::Subtable(index, tried)
    }

    /// Looks up a burst in two passes, so that the memory accesses of different packets overlap:
    /// first what each packet's hash suggests, then whether that is right. What is not is searched
    /// for in full. `found` gets indices of entries, [`NONE`] for a miss.
    pub fn lookup_burst(&mut self, probes: &[Probe], found: &mut [u32]) -> Tally {
        let mut by_cache = 0u32;
        for (i, (probe, guess)) in probes.iter().zip(found.iter_mut()).enumerate() {
            let (index, cached) = self.guess(probe);
            *guess = index;
            by_cache |= u32::from(cached) << i;
        }
        let mut tally = Tally::default();
        for (i, (probe, found)) in probes.iter().zip(found).enumerate() {
            let right = self.slab.find(*found).is_some_and(|e| e.matches(probe.key.words(), &e.mask));
            let how = match right {
                true if by_cache >> i & 1 != 0 => Found::Cache(*found),
                true => Found::Subtable(*found, 1),
                false => self.lookup(probe),
            };
            *found = how.index().unwrap_or(NONE);
            tally.add(how);
        }
        tally
    }

    /// The first flow that the packet's hash suggests, and whether the cache did.
    #[inline]
    fn guess(&mut self, probe: &Probe) -> (u32, bool) {
        let Some(c) = self.classifier_of(probe.key.base.in_port) else { return (NONE, false) };
        let classifier = &mut self.classifiers[c];
        let ask = match self.cache_use {
            CacheUse::Adaptive => classifier.subtables().len() > 1,
            CacheUse::Inverse(n) => n != 0,
        };
        let guess = match ask {
            true => self.cache.find(probe.hash(), |_| true),
            false => classifier.guess(probe.key.words()),
        };
        (guess.unwrap_or(NONE), ask)
    }

    fn dice(&mut self) -> bool {
        let CacheUse::Inverse(n) = self.cache_use else { return true };
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        n <= 1 || ((self.random >> 33) as u32).is_multiple_of(n)
    }

    /// Makes a flow findable, in place of a dead one with the same mask and masked key.
    pub fn insert(&mut self, flow: &Arc<Flow>, worker: WorkerId) -> u32 {
        let (masked, mask) = (flow.masked.words(), &flow.mask);
        let port = flow.key.base.in_port;
        let c = self.classifier_of(port).unwrap_or_else(|| {
            self.classifiers.push(Classifier::default());
            self.ports.insert(port, (self.classifiers.len() - 1) as u32);
            self.classifiers.len() - 1
        });
        let slab = &self.slab;
        let same = |i: u32| slab.find(i).is_some_and(|e| e.flow.masked == flow.masked);
        if let Some(index) = self.classifiers[c].exact(mask, masked, same) {
            match self.entry(index) {
                Some(e) if Arc::ptr_eq(&e.flow, flow) => return index,
                _ => self.take_out(index),
            };
        }
        let index = self.slab.place();
        let slab = &self.slab;
        let key_of = |i: u32| slab.find(i).map_or(masked, |e| e.flow.masked.words());
        let mask = self.classifiers[c].insert(mask, masked, index, key_of);
        self.slab.put(index, Entry::new(flow, mask, worker));
        index
    }

    /// Forgets a flow, if it is here.
    pub fn remove(&mut self, flow: &Arc<Flow>) {
        let Some(c) = self.classifier_of(flow.key.base.in_port) else { return };
        let slab = &self.slab;
        let same = |i: u32| slab.find(i).is_some_and(|e| Arc::ptr_eq(&e.flow, flow));
        if let Some(index) = self.classifiers[c].exact(&flow.mask, flow.masked.words(), same) {
            self.take_out(index);
        }
    }

    fn take_out(&mut self, index: u32) {
        let Some(entry) = self.slab.take(index) else { return };
        let flow = &entry.flow;
        if let Some(c) = self.classifier_of(flow.key.base.in_port) {
            self.classifiers[c].remove(&flow.mask, flow.masked.words(), index);
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
        self.cache.maybe_grow(self.len());
        let Some(from) = self.sweep else { return false };
        let to = (from + budget).min(self.slab.len());
        for index in from..to {
            if self.entry(index as u32).is_some_and(|e| e.flow.is_dead()) {
                self.take_out(index as u32);
            }
        }
        self.sweep = (to < self.slab.len()).then_some(to);
        self.sweep.is_some()
    }

    /// Subtables, over all ports.
    pub fn subtables(&self) -> usize {
        self.classifiers.iter().map(|c| c.subtables().len()).sum()
    }
}

#[cfg(test)]
mod tests;
