//! Descriptors: copied out of guest memory whole, so that what was checked is what is used.

use super::counts::Fault;
use super::features::{Features, feature};
use super::mem::{GuestMap, Seg};

/// Another descriptor follows.
pub(super) const NEXT: u16 = 1;
/// For us to write.
pub(super) const WRITE: u16 = 2;
/// The buffer is a table of descriptors.
pub(super) const INDIRECT: u16 = 4;

/// Bytes of a descriptor, in both layouts.
pub(super) const LEN: usize = 16;

/// A descriptor of either layout.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Desc {
    pub addr: u64,
    pub len: u32,
    pub flags: u16,
    /// Split: the next one's number; packed: the buffer's id.
    pub tag: u16,
}

impl Desc {
    /// As in a split ring (2.7.5): address, length, flags, next.
    #[inline(always)]
    pub fn split(words: [u64; 2]) -> Desc {
        Desc { addr: words[0], len: words[1] as u32, flags: (words[1] >> 32) as u16, tag: (words[1] >> 48) as u16 }
    }

    /// As in a packed ring (2.8.13): address, length, id, flags.
    #[inline(always)]
    pub fn packed(words: [u64; 2]) -> Desc {
        Desc { addr: words[0], len: words[1] as u32, flags: (words[1] >> 48) as u16, tag: (words[1] >> 32) as u16 }
    }

    fn words(bytes: [u8; LEN]) -> [u64; 2] {
        let word = |at: usize| {
            let mut w = [0; 8];
            w.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(w)
        };
        [word(0), word(8)]
    }
}

/// A buffer that the guest has made available: its first descriptor and where the others are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Head {
    pub desc: Desc,
    /// Split: number of the first descriptor; packed: buffer id.
    pub id: u16,
    /// Places in the ring that it takes.
    pub slots: u16,
    /// The chain's other descriptors, in [`Taken::rest`].
    pub rest: (u32, u32),
}

impl Head {
    /// One descriptor without a table.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        self.desc.flags & (NEXT | INDIRECT) == 0
    }
}

/// Buffers taken from a ring and not returned yet.
pub(super) struct Taken {
    pub heads: Vec<Head>,
    pub rest: Vec<Desc>,
}

impl Taken {
    pub fn with_room(heads: usize) -> Taken {
        Taken { heads: Vec::with_capacity(heads), rest: Vec::with_capacity(2 * REST_ENOUGH) }
    }

    pub fn clear(&mut self) {
        self.heads.clear();
        self.rest.clear();
    }
}

/// Descriptors of chains that are taken in one go at most, so that a guest with chains as long as its ring
/// does not hold its worker for longer than one of them takes.
pub(super) const REST_ENOUGH: usize = 512;

/// What a walk of chains must know of the ring.
#[derive(Clone, Copy)]
pub(super) struct Walk {
    pub packed: bool,
    pub features: Features,
    pub size: u16,
    /// [`WRITE`] where the guest offers buffers to be filled, 0 where it sends.
    pub direction: u16,
}

impl Walk {
    /// The pieces of a buffer, in order.
    pub fn segments(&self, head: &Head, rest: &[Desc], map: &mut GuestMap, segs: &mut Vec<Seg>) -> Result<(), Fault> {
        let rest = rest.get(head.rest.0 as usize..(head.rest.0 + head.rest.1) as usize).unwrap_or(&[]);
        let mut left = usize::from(self.size);
        let last = rest.len();
        for (i, d) in std::iter::once(&head.desc).chain(rest).enumerate() {
            if d.flags & INDIRECT == 0 {
                left = left.checked_sub(1).ok_or(Fault::ChainTooLong)?;
                self.buffer(d, map, segs)?;
                continue;
            }
            if d.flags & NEXT != 0 || i != last {
                return Err(Fault::NestedTable);
            }
            self.table(d, left, map, segs)?;
        }
        Ok(())
    }

    fn buffer(&self, d: &Desc, map: &mut GuestMap, segs: &mut Vec<Seg>) -> Result<(), Fault> {
        if d.flags & WRITE != self.direction {
            return Err(Fault::Direction);
        }
        map.pieces(d.addr, d.len, |s| segs.push(s))
    }

    /// Tables in split rings are linked by number (2.7.5.3), those in packed rings are in order (2.8.7).
    fn table(&self, table: &Desc, mut left: usize, map: &mut GuestMap, segs: &mut Vec<Seg>) -> Result<(), Fault> {
        if !self.features.has(feature::INDIRECT_DESC) {
            return Err(Fault::NoTables);
        }
        let count = table.len / LEN as u32;
        if count == 0 || !table.len.is_multiple_of(LEN as u32) {
            return Err(Fault::TableLength);
        }
        let mut i = 0;
        loop {
            left = left.checked_sub(1).ok_or(Fault::ChainTooLong)?;
            let at = table.addr.checked_add(u64::from(i) * LEN as u64).ok_or(Fault::BadAddress)?;
            let words = Desc::words(map.read16(at)?);
            let d = if self.packed { Desc::packed(words) } else { Desc::split(words) };
            if d.flags & INDIRECT != 0 {
                return Err(Fault::NestedTable);
            }
            self.buffer(&d, map, segs)?;
            if self.packed {
                i += 1;
                if i == count {
                    return Ok(());
                }
            } else {
                if d.flags & NEXT == 0 {
                    return Ok(());
                }
                i = u32::from(d.tag);
                if i >= count {
                    return Err(Fault::NoDescriptor);
                }
            }
        }
    }
}
