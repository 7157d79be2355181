//! One cache line of ten (tag, index) pairs: the bucket of both the tag cache and the subtables.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Pairs in a line.
pub const WAYS: usize = 10;
/// An index that names no flow. Zero, so that fresh memory is an empty table.
pub const NONE: u32 = 0;

/// `extra` counts, in a subtable, flows that hash here but are stored further on; in the cache it
/// is the way to be replaced next.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Line {
    pub tags: [u16; WAYS],
    pub index: [u32; WAYS],
    pub extra: u32,
}

const WORDS: usize = 8;
const _: () = assert!(size_of::<Line>() == WORDS * 8);

impl Line {
    pub fn free_way(&self) -> Option<usize> {
        self.index.iter().position(|i| *i == NONE)
    }

    pub fn set(&mut self, way: usize, tag: u16, index: u32) {
        self.tags[way] = tag;
        self.index[way] = index;
    }
}

/// The tag of a hash: bits that do not choose the line.
#[inline(always)]
pub fn tag_of(hash: u64) -> u16 {
    (hash >> 48) as u16
}

/// A power of two of lines, empty at first. The memory is zero pages until it is written, so that a
/// big array costs nothing when it is made.
pub struct Lines {
    words: Vec<u64>,
    /// Where the first line begins, so that each is one of the processor's.
    first: usize,
    mask: usize,
}

impl Lines {
    /// `count` is a power of two.
    pub fn new(count: usize) -> Lines {
        let words = vec![0u64; (count + 1) * WORDS];
        let first = words.as_ptr().align_offset(64).min(WORDS);
        Lines { words, first, mask: count - 1 }
    }

    pub fn count(&self) -> usize {
        self.mask + 1
    }

    /// The number of the line that a hash falls into.
    #[inline(always)]
    pub fn home(&self, hash: u64) -> usize {
        hash as usize & self.mask
    }

    /// The one behind line `at`.
    #[inline(always)]
    pub fn after(&self, at: usize) -> usize {
        (at + 1) & self.mask
    }

    #[inline(always)]
    pub fn line(&self, at: usize) -> &Line {
        let from = self.first + (at & self.mask) * WORDS;
        zerocopy::transmute_ref!(self.words[from..from + WORDS].first_chunk::<WORDS>().unwrap_or(&[0; WORDS]))
    }

    #[inline(always)]
    pub fn line_mut(&mut self, at: usize) -> &mut Line {
        let from = self.first + (at & self.mask) * WORDS;
        let words: &mut [u64; WORDS] = (&mut self.words[from..from + WORDS]).try_into().expect("eight words");
        zerocopy::transmute_mut!(words)
    }

    pub fn clear(&mut self) {
        self.words.fill(0);
    }
}
