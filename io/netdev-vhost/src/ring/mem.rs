//! A guest's memory as a ring's thread sees it: translation with a cache of the region that was hit last, and
//! reads and writes that assume nothing about what the guest does meanwhile.
#![allow(unsafe_code)]

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::counts::Fault;
use super::log::DirtyLog;
use crate::memory::GuestMemory;

/// A region of guest-physical memory and where it is mapped.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub gpa: u64,
    pub len: u64,
    pub host: NonNull<u8>,
}

impl Span {
    /// Hit by no address.
    const NONE: Span = Span { gpa: 0, len: 0, host: NonNull::dangling() };

    /// Bytes from `gpa` to the end of the span, 0 if it is not inside.
    #[inline(always)]
    fn left(&self, gpa: u64) -> u64 {
        self.len.saturating_sub(gpa.wrapping_sub(self.gpa))
    }

    /// `gpa` is inside or at the end.
    #[inline(always)]
    fn at(&self, gpa: u64) -> *mut u8 {
        self.host.as_ptr().wrapping_add(gpa.wrapping_sub(self.gpa) as usize)
    }
}

/// A piece of a buffer that is contiguous in our address space.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seg {
    pub at: *mut u8,
    pub len: usize,
    pub gpa: u64,
}

/// A guest's memory, with the state of one ring's translations.
pub struct GuestMap {
    last: Span,
    /// Sorted by address, not overlapping.
    spans: Box<[Span]>,
    pub(super) log: Option<DirtyLog>,
    /// What keeps the memory mapped.
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the memory is only touched through raw pointers and atomics, and `_keep` keeps it mapped, whichever
// thread has it.
unsafe impl Send for GuestMap {}

impl GuestMap {
    /// Spans that overlap are cut to what no earlier one has.
    ///
    /// # Safety
    /// Each span can be read and written for as long as `keep` lives; this process has no references to it.
    pub unsafe fn new(
        spans: impl IntoIterator<Item = Span>,
        log: Option<DirtyLog>,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> GuestMap {
        let mut spans: Vec<Span> =
            spans.into_iter().filter(|s| s.len > 0 && s.gpa.checked_add(s.len).is_some()).collect();
        spans.sort_by_key(|s| s.gpa);
        let mut end = 0;
        spans.retain(|s| {
            let apart = s.gpa >= end;
            if apart {
                end = s.gpa + s.len;
            }
            apart
        });
        GuestMap { last: spans.first().copied().unwrap_or(Span::NONE), spans: spans.into(), log, _keep: keep }
    }

    /// The memory that a front end has handed over.
    pub fn of(memory: &Arc<GuestMemory>, log: Option<DirtyLog>) -> GuestMap {
        let spans = memory.regions().iter().map(|r| Span { gpa: r.spec.gpa, len: r.spec.len, host: r.host() });
        // SAFETY: regions stay mapped while their table lives, and nobody makes references to them.
        unsafe { GuestMap::new(spans, log, memory.clone()) }
    }

    /// Where the `len` bytes at `gpa` are, if one region has them all. `len` is not 0.
    /// Cost where the last region has them: two comparisons.
    #[inline(always)]
    pub(super) fn contiguous(&mut self, gpa: u64, len: u32) -> Option<*mut u8> {
        if self.last.left(gpa) < u64::from(len) {
            self.find(gpa)?;
            if self.last.left(gpa) < u64::from(len) {
                return None;
            }
        }
        Some(self.last.at(gpa))
    }

    /// Bytes that the last region has behind `gpa`.
    #[inline(always)]
    pub(super) fn left(&self, gpa: u64) -> u64 {
        self.last.left(gpa)
    }

    /// Makes the region with `gpa` the last one.
    #[cold]
    fn find(&mut self, gpa: u64) -> Option<()> {
        let i = self.spans.partition_point(|s| s.gpa <= gpa).checked_sub(1)?;
        if self.spans[i].left(gpa) == 0 {
            return None;
        }
        self.last = self.spans[i];
        Some(())
    }

    /// Passes the pieces of the `len` bytes at `gpa` to `out`: one a region that they are in.
    #[inline]
    pub(super) fn pieces(&mut self, gpa: u64, len: u32, mut out: impl FnMut(Seg)) -> Result<(), Fault> {
        if len == 0 {
            return Err(Fault::NoBytes);
        }
        let (mut gpa, mut left) = (gpa, u64::from(len));
        while left > 0 {
            if self.last.left(gpa) == 0 {
                self.find(gpa).ok_or(Fault::BadAddress)?;
            }
            let here = self.last.left(gpa).min(left);
            out(Seg { at: self.last.at(gpa), len: here as usize, gpa });
            gpa = gpa.checked_add(here).ok_or(Fault::BadAddress)?;
            left -= here;
        }
        Ok(())
    }

    /// A copy of 16 bytes, a descriptor's, wherever they are.
    #[inline]
    pub(super) fn read16(&mut self, gpa: u64) -> Result<[u8; 16], Fault> {
        let mut bytes = [0; 16];
        if let Some(at) = self.contiguous(gpa, 16) {
            // SAFETY: the region has 16 bytes there.
            bytes = unsafe { at.cast::<[u8; 16]>().read_unaligned() };
            return Ok(bytes);
        }
        let mut filled = 0;
        self.pieces(gpa, 16, |seg| {
            // SAFETY: the piece is guest memory that is mapped, and the pieces together are 16 bytes.
            unsafe { std::ptr::copy_nonoverlapping(seg.at, bytes.as_mut_ptr().add(filled), seg.len) };
            filled += seg.len;
        })?;
        Ok(bytes)
    }

    /// Notes a write in the dirty log, if one is kept.
    #[inline(always)]
    pub(super) fn wrote(&self, gpa: u64, len: usize) {
        if let Some(log) = &self.log {
            log.mark(gpa, len as u64);
        }
    }
}

/// A place in a ring: aligned, mapped while the ring's map lives. Everything is little-endian.
///
/// # Safety
/// Of all of these: `at` is aligned and inside the ring's parts.
#[inline(always)]
pub(super) unsafe fn load16(at: *mut u8, order: Ordering) -> u16 {
    // SAFETY: as the caller promises; others access it at the same time, which atomics allow.
    u16::from_le(unsafe { AtomicU16::from_ptr(at.cast()) }.load(order))
}

/// # Safety
/// As for [`load16`].
#[inline(always)]
pub(super) unsafe fn store16(at: *mut u8, v: u16, order: Ordering) {
    // SAFETY: as the caller promises.
    unsafe { AtomicU16::from_ptr(at.cast()) }.store(v.to_le(), order);
}

/// # Safety
/// As for [`load16`].
#[inline(always)]
pub(super) unsafe fn store32(at: *mut u8, v: u32, order: Ordering) {
    // SAFETY: as the caller promises.
    unsafe { AtomicU32::from_ptr(at.cast()) }.store(v.to_le(), order);
}

/// # Safety
/// As for [`load16`].
#[inline(always)]
pub(super) unsafe fn load32(at: *mut u8, order: Ordering) -> u32 {
    // SAFETY: as the caller promises.
    u32::from_le(unsafe { AtomicU32::from_ptr(at.cast()) }.load(order))
}

/// # Safety
/// As for [`load16`].
#[inline(always)]
pub(super) unsafe fn load64(at: *mut u8, order: Ordering) -> u64 {
    // SAFETY: as the caller promises.
    u64::from_le(unsafe { AtomicU64::from_ptr(at.cast()) }.load(order))
}

/// # Safety
/// As for [`load16`].
#[inline(always)]
pub(super) unsafe fn store64(at: *mut u8, v: u64, order: Ordering) {
    // SAFETY: as the caller promises.
    unsafe { AtomicU64::from_ptr(at.cast()) }.store(v.to_le(), order);
}

/// Asks for the line at `at`, to be read soon.
#[inline(always)]
pub(super) fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program sees, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(spans: &[(u64, u64)]) -> GuestMap {
        let memory = Arc::new(vec![0u64; 4096]);
        let host = NonNull::new(memory.as_ptr().cast_mut().cast::<u8>()).unwrap();
        let spans: Vec<Span> = spans.iter().map(|(gpa, len)| Span { gpa: *gpa, len: *len, host }).collect();
        // SAFETY: nothing in these tests touches the memory.
        unsafe { GuestMap::new(spans, None, memory) }
    }

    fn lens(m: &mut GuestMap, gpa: u64, len: u32) -> Result<Vec<usize>, Fault> {
        let mut lens = Vec::new();
        m.pieces(gpa, len, |s| lens.push(s.len)).map(|()| lens)
    }

    #[test]
    fn ends_of_regions() {
        let mut m = map(&[(0x1000, 0x1000), (0x2000, 0x800), (0x4000, 0x1000)]);
        let whole = |m: &mut GuestMap, gpa, len| m.contiguous(gpa, len).is_some();
        assert!(whole(&mut m, 0x1000, 0x1000) && whole(&mut m, 0x1fff, 1) && whole(&mut m, 0x4000, 1));
        assert!(!whole(&mut m, 0xfff, 1) && !whole(&mut m, 0x1fff, 2) && !whole(&mut m, 0x2800, 1));
        assert!(!whole(&mut m, 0, 1) && !whole(&mut m, u64::MAX, 1) && !whole(&mut m, 0x5000, 1));
        assert!(!whole(&mut m, 0x4000, u32::MAX));
        assert_eq!(lens(&mut m, 0x1ffe, 4), Ok(vec![2, 2]));
        assert_eq!(lens(&mut m, 0x27ff, 1), Ok(vec![1]));
        assert_eq!(lens(&mut m, 0x27ff, 2), Err(Fault::BadAddress));
        assert_eq!(lens(&mut m, 0x1000, 0), Err(Fault::NoBytes));
        assert_eq!(lens(&mut m, u64::MAX, 2), Err(Fault::BadAddress));
        assert_eq!(lens(&mut m, 0x1000, u32::MAX), Err(Fault::BadAddress));
    }

    #[test]
    fn overlapping_and_endless_spans() {
        let mut m = map(&[(0x1000, 0x1000), (0x1800, 0x1000), (u64::MAX, 2), (9, 0)]);
        assert!(m.contiguous(0x1fff, 1).is_some() && m.contiguous(0x2000, 1).is_none());
        assert!(m.contiguous(u64::MAX, 1).is_none() && m.contiguous(9, 1).is_none());
        assert!(map(&[]).contiguous(0, 1).is_none());
    }
}
