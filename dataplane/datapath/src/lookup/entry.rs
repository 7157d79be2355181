//! What a worker keeps of its flows: entries of two lines in a slab.

use std::sync::Arc;

use fv_dpif::WorkerId;

use super::dpcls::Mask;
use super::line::NONE;
use crate::exec::{Code, Shape};
use crate::flow::{Flow, SlotRef};
use crate::hash::{BLOCKS, Block, block};
use crate::lookup::Probe;
use crate::simd::Simd;

/// One line to compare most keys with, one with the rest.
#[repr(C, align(64))]
pub struct Entry {
    /// Block 0 of the flow's key.
    pub base: Block,
    pub flow: Arc<Flow>,
    mask: Arc<Mask>,
    /// The key's other blocks that the mask looks at.
    rest: Option<Box<[Block]>>,
    /// The flow's program as of `version`.
    pub code: Arc<Code>,
    pub slot: SlotRef,
    version: u32,
    /// The mark by which it was last remembered, 0 if none.
    pub mark: u32,
    /// What the program comes down to, so that simple ones cost no access more.
    pub shape: Shape,
}

const _: () = assert!(size_of::<Option<Entry>>() == 128);

/// What a flow is found to be when a packet hits it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Current,
    /// Its program has changed.
    Changed,
    Dead,
}

impl Entry {
    pub fn new(flow: &Arc<Flow>, mask: Arc<Mask>, worker: WorkerId) -> Entry {
        let (code, key) = (flow.code(), flow.key());
        let blocks = (1..BLOCKS).filter(|i| mask.blocks >> i & 1 != 0);
        Entry {
            base: *block(key.words(), 0),
            flow: flow.clone(),
            rest: (mask.blocks != 1).then(|| blocks.map(|i| *block(key.words(), i)).collect()),
            mask,
            shape: code.shape,
            code,
            slot: flow.slot_of(worker),
            version: flow.version().unwrap_or(u32::MAX),
            mark: 0,
        }
    }

    /// Whether the key agrees with the flow's wherever its mask looks.
    #[inline(always)]
    pub fn matches<S: Simd>(&self, probe: &Probe) -> bool {
        self.matches_by::<S>(probe, &self.mask)
    }

    /// The same with the mask at hand, which is the flow's own.
    #[inline(always)]
    pub fn matches_by<S: Simd>(&self, probe: &Probe, mask: &Mask) -> bool {
        let words = probe.key.words();
        !S::differ(block(words, 0), &self.base, mask.first()) && (mask.blocks == 1 || self.rest_matches(probe, mask))
    }

    #[inline(always)]
    pub fn rest_matches(&self, probe: &Probe, mask: &Mask) -> bool {
        self.rest.as_ref().is_some_and(|rest| mask.rest_matches(probe.key.words(), rest))
    }

    #[inline(always)]
    pub fn mask(&self) -> &Mask {
        &self.mask
    }

    #[inline(always)]
    pub fn state(&self) -> State {
        match self.flow.version() {
            Some(version) if version == self.version => State::Current,
            Some(_) => State::Changed,
            None => State::Dead,
        }
    }

    /// Takes over a changed program.
    #[cold]
    pub fn refresh(&mut self) {
        if let Some(version) = self.flow.version() {
            self.code = self.flow.code();
            self.shape = self.code.shape;
            self.version = version;
        }
    }
}

/// Entries in chunks, which never move. The first place is never used: it is [`NONE`]'s.
#[derive(Default)]
pub struct Slab {
    chunks: Vec<Box<[Option<Entry>; CHUNK]>>,
    free: Vec<u32>,
}

/// Entries of a chunk.
const CHUNK: usize = 64;

impl Slab {
    #[inline(always)]
    pub fn place_of(&self, index: u32) -> Option<&Option<Entry>> {
        Some(&self.chunks.get(index as usize / CHUNK)?[index as usize % CHUNK])
    }

    #[inline(always)]
    pub fn find(&self, index: u32) -> Option<&Entry> {
        self.place_of(index)?.as_ref()
    }

    #[inline(always)]
    pub fn find_mut(&mut self, index: u32) -> Option<&mut Entry> {
        self.chunks.get_mut(index as usize / CHUNK)?[index as usize % CHUNK].as_mut()
    }

    /// A free place.
    pub fn place(&mut self) -> u32 {
        if self.free.is_empty() {
            let first = self.places().max(1) as u32;
            self.chunks.push(Box::new([const { None }; CHUNK]));
            self.free.extend((first..self.places() as u32).rev());
        }
        self.free.pop().unwrap_or(NONE)
    }

    pub fn put(&mut self, index: u32, entry: Entry) {
        if let Some(chunk) = self.chunks.get_mut(index as usize / CHUNK) {
            chunk[index as usize % CHUNK] = Some(entry);
        }
    }

    pub fn take(&mut self, index: u32) -> Option<Entry> {
        let entry = self.chunks.get_mut(index as usize / CHUNK)?[index as usize % CHUNK].take()?;
        self.free.push(index);
        Some(entry)
    }

    /// Places, free ones included.
    pub fn places(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.places().saturating_sub(1 + self.free.len())
    }
}
