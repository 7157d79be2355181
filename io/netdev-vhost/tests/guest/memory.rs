//! Guest memory: regions that are adjacent for the guest but not in our address space.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use fv_netdev_vhost::ring::{DirtyLog, GuestMap, Span};

/// Where the first region begins.
pub const BASE: u64 = 0x10_0000;

pub struct Memory {
    words: Arc<Vec<AtomicU64>>,
    /// Guest-physical address, length, offset in `words` in bytes.
    regions: Vec<(u64, u64, usize)>,
    pub log: Arc<Vec<AtomicU64>>,
}

impl Memory {
    /// `count` regions of `len` bytes each (a multiple of 4096), one behind the other for the guest, the other
    /// way round in memory.
    pub fn new(count: usize, len: usize) -> Memory {
        let regions = (0..count).map(|i| (BASE + (i * len) as u64, len as u64, (count - 1 - i) * len + 64)).collect();
        let words = (0..(count * len + 128) / 8).map(|_| AtomicU64::new(0)).collect();
        let pages = (BASE as usize + count * len) / 4096;
        let log = Arc::new((0..pages / 64 + 1).map(|_| AtomicU64::new(0)).collect());
        Memory { words: Arc::new(words), regions, log }
    }

    pub fn end(&self) -> u64 {
        self.regions.last().map_or(0, |r| r.0 + r.1)
    }

    pub fn host(&self, gpa: u64) -> *mut u8 {
        let r = self.regions.iter().find(|r| gpa >= r.0 && gpa - r.0 < r.1).expect("an address of the guest");
        self.words.as_ptr().cast::<u8>().cast_mut().wrapping_add(r.2 + (gpa - r.0) as usize)
    }

    pub fn map(&self, logged: bool) -> GuestMap {
        let spans = self.regions.iter().map(|r| Span {
            gpa: r.0,
            len: r.1,
            host: NonNull::new(self.host(r.0)).expect("memory is not at 0"),
        });
        let log = logged.then(|| {
            let base = NonNull::new(self.log.as_ptr().cast_mut().cast::<u8>()).expect("memory is not at 0");
            // SAFETY: the words are kept alive, and only accessed atomically.
            unsafe { DirtyLog::new(base, self.log.len() * 8, self.log.clone()) }
        });
        // SAFETY: the spans are inside the words, which are kept alive and only accessed through atomics.
        unsafe { GuestMap::new(spans, log, self.words.clone()) }
    }

    /// Whether the bytes around the guest's memory are what they were.
    pub fn fences_stand(&self) -> bool {
        let n = self.words.len();
        self.words[..8].iter().chain(&self.words[n - 8..]).all(|w| w.load(Relaxed) == 0)
    }

    /// Whether the page of this address is marked in the log.
    pub fn logged(&self, gpa: u64) -> bool {
        let page = gpa / 4096;
        let at = self.log.as_ptr().cast::<AtomicU8>().wrapping_add(page as usize / 8);
        // SAFETY: the log has a bit for every page of the guest.
        unsafe { &*at }.load(Relaxed) & 1 << (page % 8) != 0
    }

    pub fn read(&self, gpa: u64, len: usize) -> Vec<u8> {
        // SAFETY: `host` is memory of the guest, of atomics; one byte each.
        (0..len as u64).map(|i| unsafe { AtomicU8::from_ptr(self.host(gpa + i)) }.load(Relaxed)).collect()
    }

    pub fn write(&self, gpa: u64, bytes: &[u8]) {
        for (i, b) in bytes.iter().enumerate() {
            // SAFETY: as in `read`.
            unsafe { AtomicU8::from_ptr(self.host(gpa + i as u64)) }.store(*b, Relaxed);
        }
    }

    pub fn word<const N: usize>(&self, gpa: u64) -> [u8; N] {
        self.read(gpa, N).try_into().expect("as many as were asked for")
    }

    pub fn u16(&self, gpa: u64) -> u16 {
        u16::from_le_bytes(self.word(gpa))
    }

    pub fn set16(&self, gpa: u64, v: u16) {
        self.write(gpa, &v.to_le_bytes());
    }
}
