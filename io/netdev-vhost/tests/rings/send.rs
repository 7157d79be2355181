//! Guests that receive.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fv_netdev_vhost::ring::{Counts, Features, TxRing, feature};
use fv_packet::{Batch, Packet};
use proptest::prelude::*;

use crate::guest::{Buffer, Driver, Memory, Used};
use crate::receive::{bytes, features, pieces, size};

#[derive(Clone, Debug)]
struct Room {
    len: usize,
    cuts: Vec<u8>,
    indirect: bool,
}

fn room() -> impl Strategy<Value = Room> {
    let len = prop_oneof![6 => 60usize..2200, 1 => 1usize..60, 1 => 2000usize..70_000];
    (len, prop::collection::vec(any::<u8>(), 0..4), any::<bool>()).prop_map(|(len, cuts, indirect)| Room {
        len,
        cuts,
        indirect,
    })
}

/// A guest's receive buffers: what is offered is kept by token.
struct Offers {
    driver: Driver,
    list: Vec<Vec<Buffer>>,
    place: u64,
    /// What came back, in order.
    used: Vec<Used>,
    next_room: usize,
}

impl Offers {
    /// Offers as many buffers as there is room for.
    fn fill(&mut self, rooms: &[Room]) {
        loop {
            let r = &rooms[self.next_room % rooms.len()];
            if self.place + r.len as u64 > self.driver.memory.end() {
                if self.driver.outstanding() > 0 {
                    break;
                }
                self.place = self.driver.free_from;
            }
            let mut list = pieces(self.place, r.len, &r.cuts);
            self.next_room += 1;
            if list.len() > usize::from(self.driver.size) {
                list = pieces(self.place, r.len, &[]);
            }
            if self.driver.offer(&list, true, r.indirect).is_none() {
                break;
            }
            // Left as the guest does: every byte that is not the packet's must still be this.
            for (at, len) in &list {
                self.driver.memory.write(*at, &vec![0xa5; *len as usize]);
            }
            self.place += r.len as u64 + 3;
            self.list.push(list);
        }
        self.driver.publish();
    }

    fn content(&self, used: &Used) -> Vec<u8> {
        self.list[used.token].iter().flat_map(|(at, len)| self.driver.memory.read(*at, *len as usize)).collect()
    }

    /// The packets in what came back: header and frame of each.
    fn packets(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let header = self.driver.features.header_len();
        let used = self.driver.reap();
        self.used.extend(&used);
        let mut out = Vec::new();
        let mut used = used.into_iter();
        while let Some(first) = used.next() {
            let mut whole = self.take(&first);
            assert!(whole.len() >= header.min(first.len as usize));
            let mut n = 1;
            // A header may itself be spread over buffers.
            while whole.len() < header || n < buffers(&whole, header) {
                whole.extend(self.take(&used.next().expect("all of a packet's buffers come back at once")));
                n += 1;
            }
            let frame = whole.split_off(header);
            out.push((whole, frame));
        }
        out
    }

    /// What was written into a buffer; nothing else in it may have changed.
    fn take(&self, used: &Used) -> Vec<u8> {
        let mut all = self.content(used);
        assert!(used.len > 0 && used.len as usize <= all.len(), "{used:?} of {}", all.len());
        let rest = all.split_off(used.len as usize);
        assert!(rest.iter().all(|b| *b == 0xa5), "bytes behind the packet were written");
        if self.driver.features.has(feature::LOG_ALL) {
            let mut left = u64::from(used.len);
            for (at, len) in &self.list[used.token] {
                let n = left.min((*len).into());
                assert!((0..n).all(|i| self.driver.memory.logged(at + i)), "each page written is logged");
                left -= n;
            }
        }
        all
    }
}

fn buffers(header: &[u8], len: usize) -> usize {
    if len == 12 { u16::from_le_bytes([header[10], header[11]]).into() } else { 1 }
}

fn send(ring: &mut TxRing, frames: &[Vec<u8>]) -> (u32, u32) {
    let mut batch = Batch::new();
    for f in frames {
        batch.push(Packet::from_slice(f)).unwrap();
    }
    let sent = ring.send(&mut batch);
    assert!(batch.is_empty());
    assert_eq!((sent.packets + sent.dropped) as usize, frames.len(), "each is sent or dropped");
    (sent.packets, sent.dropped)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, ..ProptestConfig::default() })]

    /// Every packet that counts as sent is in the guest's buffers, byte for byte and in order, with right
    /// lengths; nothing else is written; what does not fit is dropped with a reason and costs no buffer.
    #[test]
    fn packets_arrive(
        features in features(), n in 1u16..300, start in any::<u16>(), rooms in prop::collection::vec(room(), 1..20),
        lens in prop::collection::vec(prop_oneof![6 => 14usize..1600, 1 => 2000usize..65_000], 1..80),
        bursts in prop::collection::vec(1usize..=32, 1..9), retries in 0u32..3,
    ) {
        let size = size(features, n);
        let memory = Arc::new(Memory::new(3, 0x8_0000));
        let driver = Driver::new(memory, features, size, start);
        let counts = Arc::new(Counts::default());
        let mut ring = driver.tx(&counts);
        ring.set_retries_max(retries);
        let mut offers =
            Offers { place: driver.free_from, driver, list: Vec::new(), used: Vec::new(), next_room: 0 };
        let frames: Vec<Vec<u8>> = lens.iter().enumerate().map(|(i, len)| bytes(*len, i)).collect();
        let (mut at, mut sent, mut dropped, mut arrived) = (0, 0, 0, Vec::new());
        let mut burst = bursts.iter().cycle();
        while at < frames.len() {
            offers.fill(&rooms);
            let end = frames.len().min(at + burst.next().unwrap());
            let (s, d) = send(&mut ring, &frames[at..end]);
            prop_assert_eq!(ring.fault(), None);
            let new = offers.packets();
            prop_assert_eq!(new.len() as u32, s);
            arrived.extend(new);
            (sent, dropped, at) = (sent + s, dropped + d, end);
        }
        // In order, without what was dropped.
        let mut from = 0;
        for (header, frame) in &arrived {
            let here = frames[from..].iter().position(|f| f == frame);
            prop_assert!(here.is_some(), "a frame that nobody sent, or out of order");
            from += here.unwrap() + 1;
            prop_assert!(header[..10].iter().all(|b| *b == 0));
        }
        let why = [&counts.ring_full, &counts.too_long].map(|c| c.load(Relaxed)).iter().sum::<u64>();
        prop_assert_eq!(why, u64::from(dropped));
        prop_assert_eq!(counts.packets.load(Relaxed), u64::from(sent));
        let tokens: Vec<usize> = offers.used.iter().map(|u| u.token).collect();
        prop_assert_eq!(&tokens, &offers.driver.order[..tokens.len()], "buffers come back in order, none is lost");
        prop_assert_eq!(offers.driver.order.len() - tokens.len(), offers.driver.outstanding());
        prop_assert_eq!(ring.base().avail, ring.base().used);
    }
}

#[test]
fn a_packet_that_fits_nowhere_costs_no_buffer() {
    for bits in [0, feature::RING_PACKED | feature::VERSION_1] {
        let memory = Arc::new(Memory::new(1, 0x10000));
        let mut driver = Driver::new(memory, Features(bits), 8, 0);
        let counts = Arc::new(Counts::default());
        let mut ring = driver.tx(&counts);
        let at = driver.free_from;
        driver.offer(&[(at, 200)], true, false).unwrap();
        driver.publish();
        assert_eq!(send(&mut ring, &[bytes(500, 1), bytes(100, 2), bytes(100, 3)]), (1, 2));
        assert_eq!((counts.too_long.load(Relaxed), counts.ring_full.load(Relaxed)), (1, 1));
        assert_eq!(driver.reap().len(), 1);
    }
}

#[test]
fn a_chain_shorter_than_the_packet_is_followed_by_others_if_mergeable() {
    let memory = Arc::new(Memory::new(1, 0x10000));
    let mut driver = Driver::new(memory.clone(), Features(feature::MRG_RXBUF), 8, 0);
    let counts = Arc::new(Counts::default());
    let mut ring = driver.tx(&counts);
    let at = driver.free_from;
    // The header itself is spread over three buffers.
    for (i, len) in [5, 6, 300, 300].into_iter().enumerate() {
        driver.offer(&[(at + i as u64 * 400, len)], true, false).unwrap();
    }
    driver.publish();
    assert_eq!(send(&mut ring, &[bytes(400, 1)]), (1, 0));
    let used: Vec<u32> = driver.reap().iter().map(|u| u.len).collect();
    assert_eq!(used, [5, 6, 300, 101]);
    let whole: Vec<u8> =
        used.iter().enumerate().flat_map(|(i, n)| memory.read(at + i as u64 * 400, *n as usize)).collect();
    assert_eq!((&whole[..12], &whole[12..]), (&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0][..], &bytes(400, 1)[..]));
}

#[test]
fn pages_that_are_written_are_logged_and_no_others() {
    for bits in [feature::MRG_RXBUF, feature::RING_PACKED | feature::VERSION_1] {
        let memory = Arc::new(Memory::new(2, 0x8000));
        let mut driver = Driver::new(memory.clone(), Features(bits | feature::LOG_ALL), 8, 0);
        let mut ring = driver.tx(&Arc::new(Counts::default()));
        let [desc, _, used] = driver.places();
        // Across two pages, which is also where one region ends and the next begins.
        let end = memory.end() - 0x8000;
        driver.offer(&[(end - 100, 2000)], true, false).unwrap();
        driver.offer(&[(end + 0x3000, 2000)], true, false).unwrap();
        driver.publish();
        assert!(!memory.logged(end - 100) && !memory.logged(end));
        assert_eq!(send(&mut ring, &[bytes(500, 1)]), (1, 0));
        assert!(memory.logged(end - 100) && memory.logged(end), "the payload");
        assert!(memory.logged(if driver.packed() { desc } else { used }), "what was used");
        for clean in [end - 0x2000, end + 0x1000, end + 0x3000] {
            assert!(!memory.logged(clean), "{clean:#x} was not written");
        }
    }
}
