//! Guests that send.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fv_netdev_vhost::ring::{Counts, Features, RxRing, feature};
use fv_packet::{Batch, Packet};
use proptest::prelude::*;

use crate::guest::memory::BASE;
use crate::guest::{Driver, Memory};

/// Features that change how buffers are offered and returned.
pub fn features() -> impl Strategy<Value = Features> {
    const BITS: [u64; 7] = [
        feature::MRG_RXBUF,
        feature::INDIRECT_DESC,
        feature::EVENT_IDX,
        feature::VERSION_1,
        feature::RING_PACKED,
        feature::IN_ORDER,
        feature::LOG_ALL,
    ];
    prop::collection::vec(any::<bool>(), BITS.len()).prop_map(|on| {
        let bits = BITS.iter().zip(on).filter(|b| b.1).fold(0, |all, b| all | b.0);
        // Packed rings came with version 1.
        Features(if bits & feature::RING_PACKED != 0 { bits | feature::VERSION_1 } else { bits })
    })
}

/// Legal sizes: powers of two where the ring is not packed.
pub fn size(features: Features, n: u16) -> u16 {
    if features.has(feature::RING_PACKED) { n.max(1) } else { n.next_power_of_two() }
}

pub fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + seed * 7 + i / 256) as u8).collect()
}

/// Cuts a buffer at these places (in 1/256).
pub fn pieces(at: u64, len: usize, cuts: &[u8]) -> Vec<(u64, u32)> {
    let mut ends: Vec<usize> = cuts.iter().map(|c| len * usize::from(*c) / 256).chain([len]).collect();
    ends.sort_unstable();
    let mut from = 0;
    let mut out = Vec::new();
    for end in ends {
        if end > from {
            out.push((at + from as u64, (end - from) as u32));
            from = end;
        }
    }
    out
}

#[derive(Clone, Debug)]
struct Frame {
    len: usize,
    cuts: Vec<u8>,
    indirect: bool,
    gap: u64,
}

fn frame() -> impl Strategy<Value = Frame> {
    let len = prop_oneof![6 => 14usize..200, 2 => 200usize..2100, 1 => 2000usize..=65_792];
    (len, prop::collection::vec(any::<u8>(), 0..5), any::<bool>(), 0u64..70)
        .prop_map(|(len, cuts, indirect, gap)| Frame { len, cuts, indirect, gap })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Whatever a driver sends arrives, byte for byte and in order, and each buffer comes back once.
    #[test]
    fn packets_arrive(
        features in features(), n in 1u16..300, start in any::<u16>(),
        frames in prop::collection::vec(frame(), 1..60), bursts in prop::collection::vec(1usize..40, 8),
    ) {
        let memory = Arc::new(Memory::new(3, 0x6_0000));
        let mut driver = Driver::new(memory.clone(), features, size(features, n), start);
        let counts = Arc::new(Counts::default());
        let mut ring = driver.rx(&counts);
        let mut expected = Vec::new();
        let mut arrived = Vec::new();
        let mut place = driver.free_from;
        let (mut offered, mut back) = (Vec::new(), Vec::new());
        for (i, f) in frames.iter().enumerate() {
            let whole: Vec<u8> = vec![0; features.header_len()].into_iter().chain(bytes(f.len, i)).collect();
            place += f.gap;
            if place + whole.len() as u64 > memory.end() {
                receive(&mut ring, &mut driver, &mut arrived, &mut back);
                place = driver.free_from;
            }
            memory.write(place, &whole);
            let list = pieces(place, whole.len(), &f.cuts);
            let mut token = driver.offer(&list, false, f.indirect);
            if token.is_none() {
                receive(&mut ring, &mut driver, &mut arrived, &mut back);
                token = driver.offer(&list, false, f.indirect);
            }
            // A ring may be shorter than the chain.
            let Some(token) = token else { continue };
            offered.push(token);
            expected.push(whole[features.header_len()..].to_vec());
            place += whole.len() as u64;
            if i % bursts[i % bursts.len()] == 0 {
                receive(&mut ring, &mut driver, &mut arrived, &mut back);
            }
        }
        receive(&mut ring, &mut driver, &mut arrived, &mut back);
        prop_assert_eq!(ring.fault(), None);
        prop_assert_eq!(&arrived, &expected);
        prop_assert_eq!(&back, &offered);
        prop_assert_eq!(driver.outstanding(), 0);
        prop_assert_eq!(counts.packets.load(Relaxed), expected.len() as u64);
        prop_assert_eq!(counts.bytes.load(Relaxed), expected.iter().map(|f| f.len() as u64).sum::<u64>());
        let base = ring.base();
        prop_assert_eq!(base.avail, base.used);
        // A ring that is made anew goes on where this one stopped.
        driver.base = base;
        let again = driver.rx(&counts);
        prop_assert_eq!(again.base(), base);
        prop_assert!(!again.has_some());
    }
}

fn receive(ring: &mut RxRing, driver: &mut Driver, arrived: &mut Vec<Vec<u8>>, back: &mut Vec<usize>) {
    driver.publish();
    let mut batch = Batch::new();
    while driver.outstanding() > 0 && ring.fault().is_none() {
        ring.recv(&mut batch);
        arrived.extend(batch.drain().map(|p: Packet| p.data().to_vec()));
        let used = driver.reap();
        assert!(used.iter().all(|u| u.len == 0), "{used:?}");
        assert!(!used.is_empty(), "the ring makes progress: {:?}", ring.fault());
        back.extend(used.iter().map(|u| u.token));
    }
}

#[test]
fn frames_too_short_are_counted_and_return() {
    for packed in [0, feature::RING_PACKED | feature::VERSION_1] {
        let features = Features(packed);
        let memory = Arc::new(Memory::new(1, 0x4000));
        let mut driver = Driver::new(memory, features, 16, 0);
        let counts = Arc::new(Counts::default());
        let mut ring = driver.rx(&counts);
        let header = features.header_len() as u32;
        for len in [1, header, header + 13, header + 14] {
            driver.offer(&[(BASE + 0x2000, len)], false, false).unwrap();
        }
        driver.publish();
        let mut batch = Batch::new();
        assert_eq!(ring.recv(&mut batch), 1);
        assert_eq!(batch[0].len(), 14);
        assert_eq!((counts.short.load(Relaxed), driver.reap().len()), (3, 4));
    }
}
