//! One cache line of ten (tag, index) pairs: the bucket of both the tag cache and the subtables.

/// Pairs in a line.
pub const WAYS: usize = 10;
/// An index that names no flow.
pub const NONE: u32 = u32::MAX;

/// `extra` counts, in a subtable, flows that hash here but are stored further on; in the cache it
/// is the way to be replaced next.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Line {
    pub tags: [u16; WAYS],
    pub index: [u32; WAYS],
    pub extra: u32,
}

const _: () = assert!(size_of::<Line>() == 64);

impl Line {
    pub const EMPTY: Line = Line { tags: [0; WAYS], index: [NONE; WAYS], extra: 0 };

    /// Bitmap of the ways that hold `tag`; empty ways may be among them.
    #[inline]
    pub fn candidates(&self, tag: u16) -> u16 {
        let mut map = 0;
        for (way, t) in self.tags.iter().enumerate() {
            map |= u16::from(*t == tag) << way;
        }
        map
    }

    pub fn free_way(&self) -> Option<usize> {
        self.index.iter().position(|i| *i == NONE)
    }

    pub fn set(&mut self, way: usize, tag: u16, index: u32) {
        self.tags[way] = tag;
        self.index[way] = index;
    }
}

/// The tag of a hash: bits that do not choose the line.
#[inline]
pub fn tag_of(hash: u64) -> u16 {
    (hash >> 48) as u16
}
