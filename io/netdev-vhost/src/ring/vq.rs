//! What both ring layouts have in common.
#![allow(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{FileType, OFlags};

use super::counts::{Counts, Fault};
use super::desc::{Head, Taken};
use super::features::{Features, feature};
use super::packed::Packed;
use super::split::Split;

/// Places in a ring at most (2.7, 2.8).
pub const MAX_SIZE: u32 = 32768;

/// The bits of a file's mode that are its type.
const TYPE_BITS: u32 = 0o170_000;

/// Where the parts of a ring are in our address space.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// Descriptor area: the table, or the packed ring.
    pub desc: *mut u8,
    /// Driver area: available ring, or driver event suppression.
    pub avail: *mut u8,
    /// Device area: used ring, or device event suppression.
    pub used: *mut u8,
    /// Guest-physical address of the device area (of the descriptor area in packed rings) for the dirty log, if
    /// writes to it are to be logged.
    pub used_log: Option<u64>,
}

/// Where a ring goes on: what the front end sets and gets as the base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Base {
    /// Split: index of the next available entry; packed: the place of the next available descriptor, bit 15
    /// its wrap counter.
    pub avail: u16,
    /// The same of the next used one. Both are equal while no buffers are taken, and so whenever a ring of ours
    /// is stopped.
    pub used: u16,
}

impl Base {
    /// From the front end's `SET_VRING_BASE`. Some only give the available place. Where both are given, what is
    /// between them was taken by a device that is gone: it is taken again.
    pub fn from_message(packed: bool, n: u32) -> Base {
        let used = if packed && n >> 16 != 0 { (n >> 16) as u16 } else { n as u16 };
        Base { avail: used, used }
    }

    /// For the reply to `GET_VRING_BASE`.
    pub fn to_message(self, packed: bool) -> u32 {
        if packed { u32::from(self.avail) | u32::from(self.used) << 16 } else { self.avail.into() }
    }
}

/// All that a ring object is made of.
pub struct Setup {
    pub size: u32,
    pub parts: Parts,
    pub base: Base,
    pub features: Features,
    /// Written to interrupt the guest.
    pub call: Option<Arc<OwnedFd>>,
    pub counts: Arc<Counts>,
}

/// A ring of either layout.
pub(super) enum Vq {
    Split(Split),
    Packed(Packed),
}

impl Vq {
    /// # Safety
    /// The ring's parts can be read and written while the ring lives: `size` descriptors, and what belongs to
    /// them (2.7.1, 2.8.1).
    pub unsafe fn new(setup: &Setup) -> Result<Vq, Fault> {
        let p = &setup.parts;
        let packed = setup.features.has(feature::RING_PACKED);
        let (avail_align, used_align) = if packed { (4, 4) } else { (2, 4) };
        let aligned = |at: *mut u8, n: usize| !at.is_null() && at.addr().is_multiple_of(n);
        let placed = aligned(p.desc, 16) && aligned(p.avail, avail_align) && aligned(p.used, used_align);
        let sized = (1..=MAX_SIZE).contains(&setup.size) && (packed || setup.size.is_power_of_two());
        if !placed || !sized {
            return Err(Fault::Shape);
        }
        if let Some(call) = &setup.call {
            never_blocks(call)?;
        }
        if packed {
            let place = |base: u16| u32::from(base & 0x7fff) < setup.size;
            if !place(setup.base.avail) || !place(setup.base.used) {
                return Err(Fault::Shape);
            }
            // SAFETY: as the caller promises.
            Ok(Vq::Packed(unsafe { Packed::new(setup) }))
        } else {
            // SAFETY: as the caller promises.
            Ok(Vq::Split(unsafe { Split::new(setup) }))
        }
    }
}

/// Makes sure that a worker that interrupts the guest is not held: an event whose count is full would, and so would
/// a file that the front end serves itself.
fn never_blocks(call: &OwnedFd) -> Result<(), Fault> {
    let stat = rustix::fs::fstat(call).map_err(|_| Fault::CallFile)?;
    // Events are files of no type.
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo | FileType::Socket => {}
        _ if stat.st_mode & TYPE_BITS == 0 => {}
        _ => return Err(Fault::CallFile),
    }
    let flags = rustix::fs::fcntl_getfl(call).map_err(|_| Fault::CallFile)?;
    rustix::fs::fcntl_setfl(call, flags | OFlags::NONBLOCK).map_err(|_| Fault::CallFile)
}

/// What differs between the layouts. A ring's user takes buffers, fills or empties them, returns all of them in
/// the order in which it took them (or gives the last ones back untouched), and then tells the guest.
pub(super) trait Layout {
    /// Appends up to `want` available buffers. Those before a fault are good.
    fn take(&mut self, want: usize, taken: &mut Taken) -> Result<(), Fault>;
    /// Makes buffers available again that were taken last.
    fn untake(&mut self, heads: &[Head]);
    /// Returns buffers with the bytes that were written into each; the guest sees them all at once.
    fn give(&mut self, heads: &[Head], lens: &[u32]);
    /// Whether the guest is to be interrupted for what was returned since the last question.
    fn wants_call(&mut self) -> bool;
    /// Asks the guest to kick when it makes something available, or not to.
    fn ask_kicks(&mut self, wanted: bool);
    /// Whether something is available, as far as one look tells.
    fn has_some(&self) -> bool;
    fn base(&self) -> Base;
}
