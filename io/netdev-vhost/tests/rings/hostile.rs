//! Guests that do what no driver may: the ring stops with a reason, what came before is delivered and returned,
//! and nothing else happens.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use fv_netdev_vhost::ring::{Counts, Fault, Features, RxRing, Setup, feature};
use fv_packet::{Batch, Packet};

use crate::guest::{Driver, Memory};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const AVAIL: u16 = 1 << 7;

/// A ring of eight with descriptors written as bytes.
struct Raw {
    driver: Driver,
    memory: Arc<Memory>,
    counts: Arc<Counts>,
}

impl Raw {
    fn new(features: u64) -> Raw {
        let memory = Arc::new(Memory::new(2, 0x4000));
        Raw {
            driver: Driver::new(memory.clone(), Features(features), 8, 0),
            memory,
            counts: Arc::new(Counts::default()),
        }
    }

    fn packed(&self) -> bool {
        self.driver.packed()
    }

    /// Where buffers may be.
    fn buffer(&self) -> u64 {
        self.driver.free_from
    }

    /// A descriptor in the ring, or in a table at `table`. `tag` is the next one, or the id.
    fn desc(&self, table: Option<u64>, i: u16, addr: u64, len: u32, flags: u16, tag: u16) {
        let at = table.unwrap_or(self.driver.places()[0]) + u64::from(i) * 16;
        self.memory.write(at, &addr.to_le_bytes());
        self.memory.write(at + 8, &len.to_le_bytes());
        let (a, b) = if self.packed() { (tag, flags | AVAIL) } else { (flags, tag) };
        self.memory.set16(at + 12, a);
        self.memory.set16(at + 14, b);
    }

    /// Makes entries available in a split ring; in a packed one they are already.
    fn avail(&self, entries: &[u16], idx: u16) {
        if !self.packed() {
            let at = self.driver.places()[1];
            for (i, e) in entries.iter().enumerate() {
                self.memory.set16(at + 4 + i as u64 * 2, *e);
            }
            self.memory.set16(at + 2, idx);
        }
    }

    fn receive(&self) -> (RxRing, usize) {
        let mut ring = self.driver.rx(&self.counts);
        let mut batch = Batch::new();
        let n = ring.recv(&mut batch);
        (ring, n)
    }

    /// A good frame, then what was written at descriptor 1: the frame arrives, the ring stops.
    fn stops(&self, why: Fault) {
        self.desc(None, 0, self.buffer(), 100, 0, 0);
        self.avail(&[0, 1], 2);
        let (mut ring, n) = self.receive();
        assert_eq!((n, ring.fault(), self.counts.fault()), (1, Some(why), Some(why)));
        assert_eq!(ring.base().used & 0x7fff, 1, "the good one was returned");
        assert!(!ring.has_some());
        let mut batch = Batch::new();
        assert_eq!(ring.recv(&mut batch), 0, "stopped for good");
        assert!(!why.text().is_empty());
    }

    /// The same for a guest that receives.
    fn stops_sending(&self, why: Fault) {
        self.desc(None, 0, self.buffer(), 200, WRITE, 0);
        self.avail(&[0, 1], 2);
        let mut ring = self.driver.tx(&self.counts);
        let mut batch = Batch::new();
        for _ in 0..3 {
            batch.push(Packet::from_slice(&[7; 60])).unwrap();
        }
        let sent = ring.send(&mut batch);
        assert_eq!((sent.packets, sent.dropped, ring.fault(), self.counts.fault()), (1, 2, Some(why), Some(why)));
        assert_eq!((ring.base().used & 0x7fff, self.counts.stopped.load(Relaxed)), (1, 2));
        batch.push(Packet::from_slice(&[7; 60])).unwrap();
        assert_eq!(ring.send(&mut batch).dropped, 1);
    }
}

const PACKED: u64 = feature::RING_PACKED | feature::VERSION_1;
const KINDS: [u64; 2] = [feature::INDIRECT_DESC, PACKED | feature::INDIRECT_DESC];

fn both(write: impl Fn(&Raw, u16), why: Fault) {
    for kind in KINDS {
        let raw = Raw::new(kind);
        write(&raw, 0);
        raw.stops(why);
        let raw = Raw::new(kind);
        write(&raw, WRITE);
        raw.stops_sending(why);
    }
}

#[test]
fn addresses() {
    let end = Memory::new(2, 0x4000).end();
    for (addr, len) in [(0, 100), (end, 1), (end - 99, 100), (u64::MAX - 49, 100), (end - 50, u32::MAX), (0xf_ffff, 2)]
    {
        both(|r, w| r.desc(None, 1, addr, len, w, 0), Fault::BadAddress);
    }
    // Right at the end is fine, and so is a buffer across regions that are adjacent for the guest.
    for kind in KINDS {
        let raw = Raw::new(kind);
        raw.desc(None, 0, end - 100, 100, 0, 0);
        raw.desc(None, 1, end - 0x4000 - 50, 100, 0, 0);
        raw.avail(&[0, 1], 2);
        let (ring, n) = raw.receive();
        assert_eq!((n, ring.fault()), (2, None));
    }
}

#[test]
fn lengths() {
    both(|r, w| r.desc(None, 1, r.buffer(), 0, w, 0), Fault::NoBytes);
    both(|r, w| r.desc(None, 1, 0, 0, w, 0), Fault::NoBytes);
    let raw = |kind| {
        let raw = Raw::new(kind);
        let at = raw.driver.free_from;
        (raw, at)
    };
    // Chains may add up to more than a frame without any of them being too long.
    for kind in KINDS {
        let (r, at) = raw(kind);
        for i in 1..8 {
            r.desc(None, i, at, 0x3000, if i < 7 { NEXT } else { 0 }, i + 1);
        }
        r.stops(Fault::FrameTooLong);
    }
}

#[test]
fn directions() {
    for kind in KINDS {
        let raw = Raw::new(kind);
        raw.desc(None, 1, raw.buffer(), 100, WRITE, 0);
        raw.stops(Fault::Direction);
        let raw = Raw::new(kind);
        raw.desc(None, 1, raw.buffer(), 100, 0, 0);
        raw.stops_sending(Fault::Direction);
    }
    both(
        |r, w| {
            r.desc(None, 1, r.buffer(), 20, w | NEXT, 2);
            r.desc(None, 2, r.buffer(), 100, w ^ WRITE, 0);
        },
        Fault::Direction,
    );
}

#[test]
fn tables() {
    let table = |r: &Raw| r.memory.end() - 0x1000;
    both(|r, w| r.desc(None, 1, table(r), 17, w | INDIRECT, 0), Fault::TableLength);
    both(|r, w| r.desc(None, 1, table(r), 0, w | INDIRECT, 0), Fault::TableLength);
    both(|r, w| r.desc(None, 1, table(r), 32, w | INDIRECT | NEXT, 2), Fault::NestedTable);
    both(
        |r, w| {
            r.desc(Some(table(r)), 0, table(r), 16, w | INDIRECT, 0);
            r.desc(None, 1, table(r), 16, INDIRECT, 0);
        },
        Fault::NestedTable,
    );
    both(
        |r, w| {
            r.desc(Some(table(r)), 0, r.buffer(), 0, w, 0);
            r.desc(None, 1, table(r), 16, INDIRECT, 0);
        },
        Fault::NoBytes,
    );
    both(
        |r, w| {
            r.desc(Some(r.memory.end() - 16), 0, r.buffer(), 10, w | NEXT, 1);
            r.desc(None, 1, r.memory.end() - 16, 32, INDIRECT, 0);
        },
        Fault::BadAddress,
    );
    both(|r, _| r.desc(None, 1, u64::MAX - 7, 32, INDIRECT, 0), Fault::BadAddress);
    // More than the ring has places for, as a loop in split rings and as it is in packed ones.
    both(
        |r, w| {
            for i in 0..9 {
                r.desc(Some(table(r)), i, r.buffer(), 1, w | NEXT, 0);
            }
            r.desc(None, 1, table(r), 9 * 16, INDIRECT, 0);
        },
        Fault::ChainTooLong,
    );
    for kind in [0, PACKED] {
        let raw = Raw::new(kind);
        raw.desc(None, 1, table(&raw), 16, INDIRECT, 0);
        raw.stops(Fault::NoTables);
    }
    let raw = Raw::new(feature::INDIRECT_DESC);
    raw.desc(Some(table(&raw)), 0, raw.buffer(), 1, NEXT, 2);
    raw.desc(None, 1, table(&raw), 32, INDIRECT, 0);
    raw.stops(Fault::NoDescriptor);
}

#[test]
fn loops() {
    let raw = Raw::new(0);
    raw.desc(None, 1, raw.buffer(), 10, NEXT, 1);
    raw.stops(Fault::ChainTooLong);
    let raw = Raw::new(0);
    raw.desc(None, 1, raw.buffer(), 10, NEXT | WRITE, 1);
    raw.stops_sending(Fault::ChainTooLong);
    let raw = Raw::new(0);
    raw.desc(None, 1, raw.buffer(), 10, NEXT, 8);
    raw.stops(Fault::NoDescriptor);
    // A packed chain that goes round the ring and on.
    let raw = Raw::new(PACKED);
    for i in 1..8 {
        raw.desc(None, i, raw.buffer(), 10, NEXT, 0);
    }
    raw.desc(None, 0, raw.buffer(), 100, NEXT, 0);
    let (ring, n) = raw.receive();
    assert_eq!((n, ring.fault()), (0, Some(Fault::ChainTooLong)));
}

#[test]
fn indices() {
    let raw = Raw::new(0);
    raw.desc(None, 0, raw.buffer(), 100, 0, 0);
    raw.avail(&[0, 8], 2);
    let (ring, n) = raw.receive();
    assert_eq!((n, ring.fault()), (1, Some(Fault::NoDescriptor)));
    for jump in [9, 40_000, u16::MAX] {
        let raw = Raw::new(0);
        raw.avail(&[0], jump);
        let (ring, n) = raw.receive();
        assert_eq!((n, ring.fault()), (0, Some(Fault::IndexJump)));
    }
    // A packed ring whose every place looks available again before anything was returned.
    let raw = Raw::new(PACKED);
    for i in 0..8 {
        raw.desc(None, i, raw.buffer(), 100, if i % 2 == 0 { NEXT } else { 0 }, 0);
    }
    let (ring, n) = raw.receive();
    assert_eq!((n, ring.fault()), (4, None));
}

#[test]
fn shapes() {
    let refused = |features: u64, change: &dyn Fn(&mut Setup)| {
        let raw = Raw::new(features);
        let mut setup = raw.driver.setup(&raw.counts);
        change(&mut setup);
        // SAFETY: the parts are inside of the guest's memory, or refused before they are touched.
        let ring = unsafe { RxRing::new(setup, raw.memory.map(false)) };
        assert!(matches!(ring, Err(Fault::Shape)));
    };
    for size in [0, 3, 65536, 32769, u32::MAX] {
        refused(0, &|s| s.size = size);
    }
    for size in [0, 32769, 65536] {
        refused(PACKED, &|s| s.size = size);
    }
    for features in [0, PACKED] {
        refused(features, &|s| s.parts.desc = s.parts.desc.wrapping_add(8));
        refused(features, &|s| s.parts.avail = s.parts.avail.wrapping_add(1));
        refused(features, &|s| s.parts.used = s.parts.used.wrapping_add(2));
        refused(features, &|s| s.parts.used = std::ptr::null_mut());
    }
    refused(PACKED, &|s| s.base.avail = 8);
    refused(PACKED, &|s| s.base.used = 0x8008);
}

/// A guest whose other processor writes all over the ring while it is read.
#[test]
fn memory_that_changes_meanwhile() {
    for bits in [feature::INDIRECT_DESC | feature::CSUM | feature::HOST_TSO4, KINDS[1] | feature::MRG_RXBUF] {
        let memory = Arc::new(Memory::new(2, 0x4000));
        let mut driver = Driver::new(memory.clone(), Features(bits), 32, 0);
        let stop = Arc::new(AtomicBool::new(false));
        let (m, halt, from, to) = (memory.clone(), stop.clone(), driver.places()[0], driver.free_from + 64);
        let writer = std::thread::spawn(move || {
            let mut x = 0x9e37_79b9_7f4a_7c15u64;
            while !halt.load(Relaxed) {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                let value = if x & 0x300 == 0 { x as u8 } else { x as u8 & 0x87 };
                m.write(from + (x >> 16) % (to - from), &[value]);
            }
        });
        let (mut faults, mut packets) = (0, 0);
        for round in 0..3000 {
            // Descriptors that were good a moment ago.
            driver = Driver::new(memory.clone(), Features(bits), 32, 0);
            let at = driver.free_from;
            for i in 0..16 {
                driver.offer(&[(at + i * 100, 40), (at + 50 + i * 100, 60)], round % 2 == 0, true);
            }
            driver.publish();
            let counts = Arc::new(Counts::default());
            let mut batch = Batch::new();
            let fault = if round % 2 == 0 {
                let mut ring = driver.tx(&counts);
                for len in [60, 60, 1500, 200] {
                    batch.push(Packet::from_slice(&vec![1; len])).unwrap();
                }
                let sent = ring.send(&mut batch);
                assert_eq!(sent.packets + sent.dropped, 4);
                packets += sent.packets;
                ring.fault()
            } else {
                let mut ring = driver.rx(&counts);
                let n = ring.recv(&mut batch);
                assert_eq!(n, batch.len());
                packets += n as u32;
                ring.fault()
            };
            faults += u32::from(fault.is_some());
        }
        stop.store(true, Relaxed);
        writer.join().unwrap();
        assert!(memory.fences_stand());
        assert!(faults > 0 && packets > 0, "{faults} faults, {packets} packets: the writer is too slow or too fast");
    }
}
