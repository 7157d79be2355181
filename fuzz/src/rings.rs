//! Virtqueues with the guest's memory under the fuzzer's control.

use std::sync::Arc;

use fv_netdev::{TxOffloads, egress_fixup};
use fv_netdev_vhost::ring::{Counts, Features, feature};
use fv_packet::{Batch, Packet};

use crate::guest::memory::BASE;
use crate::guest::{Driver, Memory};

/// Regions of the guest's memory, and their length.
const REGIONS: usize = 2;
const REGION: usize = 0x4000;
const ROUNDS: usize = 4;
const BITS: [u64; 8] = [
    feature::RING_PACKED | feature::VERSION_1,
    feature::MRG_RXBUF,
    feature::INDIRECT_DESC,
    feature::EVENT_IDX,
    feature::VERSION_1,
    feature::IN_ORDER,
    feature::LOG_ALL,
    feature::CSUM | feature::HOST_TSO4 | feature::HOST_TSO6 | feature::HOST_UFO | feature::HOST_USO | feature::HOST_ECN,
];

/// Features, size, start, then what is in memory; later rounds write it elsewhere.
fn guest(b: &[u8]) -> Option<(Driver, &[u8])> {
    let ([bits, size, start], image) = b.split_first_chunk::<3>()?;
    let bits = BITS.iter().enumerate().filter(|(i, _)| bits & 1 << i != 0).fold(0, |all, (_, b)| all | b);
    let size = u16::from(*size).clamp(1, 64);
    let size = if bits & feature::RING_PACKED != 0 { size } else { size.next_power_of_two() };
    let memory = Arc::new(Memory::new(REGIONS, REGION));
    Some((Driver::new(memory, Features(bits), size, (*start).into()), image))
}

/// Puts the image into memory, `round` bytes further than the time before.
fn scribble(driver: &Driver, image: &[u8], round: usize) {
    let room = REGIONS * REGION - round;
    driver.memory.write(BASE + round as u64, &image[..image.len().min(room)]);
}

pub fn receive(b: &[u8]) {
    let Some((driver, image)) = guest(b) else { return };
    let counts = Arc::new(Counts::default());
    let mut ring = driver.rx(&counts);
    for round in 0..ROUNDS {
        scribble(&driver, image, round);
        let mut batch = Batch::new();
        let n = ring.recv(&mut batch);
        assert_eq!(n, batch.len());
        for p in batch.drain() {
            assert!((14..=65_792).contains(&p.len()));
            // What the header promised is there: it can be cut and summed, or is refused.
            let _ = egress_fixup(p, &TxOffloads::default(), &mut |s: Packet| assert!(!s.is_empty()));
        }
    }
    check(&driver, ring.base().used, ring.base().avail);
}

pub fn send(b: &[u8]) {
    let Some((driver, image)) = guest(b) else { return };
    let counts = Arc::new(Counts::default());
    let mut ring = driver.tx(&counts);
    for round in 0..ROUNDS {
        scribble(&driver, image, round);
        let mut batch = Batch::new();
        for len in [14, 60, 61, 200, 1500, 3000, 9000] {
            let _ = batch.push(Packet::from_slice(&vec![round as u8; len]));
        }
        let sent = ring.send(&mut batch);
        assert_eq!((sent.packets + sent.dropped, batch.len()), (7, 0));
    }
    check(&driver, ring.base().used, ring.base().avail);
}

/// Every buffer that was taken was returned, and nothing outside of the guest's memory was written.
fn check(driver: &Driver, used: u16, avail: u16) {
    assert_eq!(used, avail);
    assert!(driver.memory.fences_stand());
}

/// Rings as a driver makes them, with buffers of several kinds.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for bits in [0u8, 1, 2, 4, 5, 6, 7, 0x44, 0x87, 0x86, 0x8e, 0x8f, 0xff, 0xfe] {
        for writable in [false, true] {
            let mut seed = vec![bits, 16, 250];
            let Some((mut driver, _)) = guest(&seed) else { continue };
            let at = driver.free_from;
            driver.offer(&[(at, 200)], writable, false);
            driver.offer(&[(at + 200, 12), (at + 212, 100)], writable, false);
            driver.offer(&[(at + 400, 5), (at + 405, 100), (at + 600, 1500)], writable, true);
            driver.offer(&[(BASE + REGION as u64 - 40, 90)], writable, true);
            // A header that asks for a checksum, and one for segmentation.
            driver.memory.write(at, &[1, 0, 0, 0, 0, 0, 34, 0, 16, 0]);
            driver.memory.write(at + 400, &[1, 1, 54, 0, 200, 0, 34, 0, 16, 0]);
            driver.publish();
            seed.extend(driver.memory.read(BASE, (at - BASE) as usize + 2400));
            out.push(seed);
        }
    }
    out
}
