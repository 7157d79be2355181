//! What a packet costs on a ring, each way, beyond taking its buffer from the pool and giving it back.
//!
//! The guest's part is made as cheap as can be: the buffers are always the same ones, and are offered again by a
//! store a burst (split) or a store a buffer (packed, taken off).

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Release};

use fv_netdev_vhost::ring::{Counts, Features, feature};
use fv_packet::{BATCH_MAX, Batch, Packet};

use crate::guest::{Driver, Memory};
use crate::measure::{Case, Run, result};

const BURSTS: usize = 64;
/// A buffer in guest memory; not a power of two, so that they do not all share a few places in the caches.
const STRIDE: u64 = 2112;
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

pub fn run(run: &Run) {
    let mut cases = Vec::new();
    for len in [60, 1500] {
        cases.push(Case::new(format!("buffers {len}"), None, move || {
            for _ in 0..BURSTS {
                drop(std::hint::black_box(packets(len)));
            }
            BURSTS * BATCH_MAX
        }));
    }
    // Rings whose buffers are in the second level cache, and ones whose are not.
    for size in [128, 1024] {
        for packed in [false, true] {
            for (i, len) in [60, 1500].into_iter().enumerate() {
                let kind = if packed { "packed" } else { "split" };
                let base = if packed { cases.len() } else { i };
                if packed {
                    let mut g = Guest::new(packed, size, len, false);
                    cases.push(Case::new(format!("offer packed {size} {len}"), None, move || {
                        for _ in 0..BURSTS {
                            drop(std::hint::black_box(packets(len)));
                            g.offer();
                        }
                        BURSTS * BATCH_MAX
                    }));
                }
                cases.push(receive(format!("rx {kind} {size} {len}"), base, packed, size, len));
                cases.push(send(format!("tx {kind} {size} {len}"), base, packed, size, len));
            }
        }
    }
    let rows = run.measure(cases);
    result(&rows, &[]);
}

fn packets(len: usize) -> Batch {
    let mut batch = Batch::new();
    for _ in 0..BATCH_MAX {
        let mut p = Packet::with_capacity(2048);
        p.set_len(len);
        let _ = batch.push(p);
    }
    batch
}

struct Guest {
    driver: Driver,
    size: u16,
    next: u16,
    wrap: bool,
    flags: u16,
    len: u32,
    /// The available index, or the packed ring.
    at: *mut u8,
}

impl Guest {
    fn new(packed: bool, size: u16, len: usize, writable: bool) -> Guest {
        let bits = feature::VERSION_1 | feature::MRG_RXBUF | if packed { feature::RING_PACKED } else { 0 };
        let features = Features(bits);
        let memory = Arc::new(Memory::new(1, (usize::from(size) * (STRIDE as usize + 300)).next_multiple_of(4096)));
        let driver = Driver::new(memory.clone(), features, size, 0);
        let len = if writable { 2048 } else { len as u32 + 12 };
        let [desc, avail, _] = driver.places();
        let at = memory.host(if packed { desc } else { avail + 2 });
        let flags = if writable { 2 } else { 0 };
        Guest { driver, size, next: 0, wrap: true, flags, len, at }
    }

    /// Writes the descriptors of all buffers; the device is there already.
    fn fill(&mut self) {
        for i in 0..u64::from(self.size) {
            let at = self.driver.free_from.next_multiple_of(64) + i * STRIDE;
            self.driver.offer(&[(at, self.len)], self.flags != 0, false);
        }
    }

    /// Makes a burst available, all of whose buffers were used before.
    #[inline(always)]
    fn offer(&mut self) {
        if !self.driver.packed() {
            self.next = self.next.wrapping_add(BATCH_MAX as u16);
            // SAFETY: the place is in the guest's ring, aligned to 2, and only accessed atomically.
            unsafe { AtomicU16::from_ptr(self.at.cast()) }.store(self.next, Release);
            return;
        }
        let flags = u64::from(self.flags | if self.wrap { AVAIL } else { USED }) << 48;
        for i in self.next..self.next + BATCH_MAX as u16 {
            let word = u64::from(self.len) | u64::from(i) << 32 | flags;
            // SAFETY: as above, aligned to 8.
            unsafe { AtomicU64::from_ptr(self.at.add(usize::from(i) * 16 + 8).cast()) }.store(word, Release);
        }
        self.next += BATCH_MAX as u16;
        if self.next == self.size {
            (self.next, self.wrap) = (0, !self.wrap);
        }
    }
}

fn receive(name: String, base: usize, packed: bool, size: u16, len: usize) -> Case {
    let mut g = Guest::new(packed, size, len, false);
    let mut ring = g.driver.rx(&Arc::new(Counts::default()));
    g.fill();
    Case::new(name, Some(base), move || {
        for _ in 0..BURSTS {
            g.offer();
            let mut batch = Batch::new();
            assert_eq!(ring.recv(&mut batch), BATCH_MAX, "{:?}", ring.fault());
            drop(std::hint::black_box(batch));
        }
        BURSTS * BATCH_MAX
    })
}

fn send(name: String, base: usize, packed: bool, size: u16, len: usize) -> Case {
    let mut g = Guest::new(packed, size, len, true);
    let mut ring = g.driver.tx(&Arc::new(Counts::default()));
    g.fill();
    Case::new(name, Some(base), move || {
        for _ in 0..BURSTS {
            g.offer();
            let mut batch = std::hint::black_box(packets(len));
            assert_eq!(ring.send(&mut batch).packets as usize, BATCH_MAX);
        }
        BURSTS * BATCH_MAX
    })
}
