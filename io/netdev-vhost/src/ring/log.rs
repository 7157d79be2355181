//! The dirty log of a live migration: a bitmap of guest pages that were written (vhost-user, `SET_LOG_BASE`).
#![allow(unsafe_code)]

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Release};

const PAGE_SHIFT: u32 = 12;

/// The bitmap, one bit a 4 KiB page of guest-physical memory. Pages past its end are not logged.
#[derive(Clone)]
pub struct DirtyLog {
    base: NonNull<u8>,
    len: usize,
    /// What keeps the bitmap mapped.
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the bitmap is only touched through atomics, and `_keep` keeps it mapped.
unsafe impl Send for DirtyLog {}
// SAFETY: as above.
unsafe impl Sync for DirtyLog {}

impl DirtyLog {
    /// # Safety
    /// The `len` bytes at `base` can be read and written for as long as `keep` lives, and are only accessed
    /// atomically by this process.
    pub unsafe fn new(base: NonNull<u8>, len: usize, keep: Arc<dyn Any + Send + Sync>) -> DirtyLog {
        DirtyLog { base, len, _keep: keep }
    }

    /// Notes that `len` bytes at `gpa` were written. To be called behind the writes.
    pub fn mark(&self, gpa: u64, len: u64) {
        let Some(last) = len.checked_sub(1).map(|n| gpa.saturating_add(n)) else { return };
        let mut page = gpa >> PAGE_SHIFT;
        while page <= last >> PAGE_SHIFT {
            let Some(at) = usize::try_from(page / 8).ok().filter(|at| *at < self.len) else { return };
            // SAFETY: `at` is inside the bitmap, which is mapped and only accessed atomically.
            let byte = unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(at)) };
            let bit = 1 << (page % 8);
            // Release: who takes the bit away and copies the page copies what was written before. A bit that is
            // set already is set again, since it may be taken away before the write is seen.
            byte.fetch_or(bit, Release);
            page += 1;
        }
    }
}
