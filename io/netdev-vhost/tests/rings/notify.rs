//! Interrupts and kicks: exactly when the specification demands them (virtio 1.2, 2.7.7, 2.7.10, 2.8.10).

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fv_netdev_vhost::ring::{Counts, Fault, Features, RxRing, feature};
use fv_packet::Batch;
use proptest::prelude::*;
use rustix::event::{EventfdFlags, eventfd};

use crate::guest::{Driver, Memory};
use crate::receive::size;

const PACKED: u64 = feature::RING_PACKED | feature::VERSION_1;

struct Guest {
    driver: Driver,
    ring: RxRing,
    call: Arc<OwnedFd>,
    counts: Arc<Counts>,
}

fn guest(features: Features, n: u16, start: u16) -> Guest {
    let driver = Driver::new(Arc::new(Memory::new(1, 0x40000)), features, n, start);
    let counts = Arc::new(Counts::default());
    let call = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
    let mut setup = driver.setup(&counts);
    setup.call = Some(call.clone());
    // SAFETY: the parts are inside of the guest's memory, which the map keeps.
    let ring = unsafe { RxRing::new(setup, driver.memory.map(false)) }.unwrap();
    Guest { driver, ring, call, counts }
}

impl Guest {
    /// Offers chains of these lengths in descriptors, and says how many could be.
    fn offer(&mut self, chains: &[usize]) -> usize {
        let at = self.driver.free_from;
        let piece = |i: usize| (at + i as u64 * 100, 100);
        let offered = chains.iter().take_while(|n| {
            let list: Vec<(u64, u32)> = (0..**n).map(piece).collect();
            self.driver.offer(&list, false, false).is_some()
        });
        let offered = offered.count();
        self.driver.publish();
        offered
    }

    fn called(&self) -> u64 {
        let mut n = [0; 8];
        rustix::io::read(&self.call, &mut n).map_or(0, |_| u64::from_ne_bytes(n))
    }

    fn receive(&mut self) -> usize {
        let mut batch = Batch::new();
        self.ring.recv(&mut batch)
    }
}

fn bits(packed: bool, event_idx: bool) -> Features {
    Features(if packed { PACKED } else { 0 } | if event_idx { feature::EVENT_IDX } else { 0 })
}

#[test]
fn flags() {
    for packed in [false, true] {
        for event_idx in [false, packed] {
            let mut g = guest(bits(packed, event_idx), 8, 0);
            g.driver.want_calls(true);
            g.receive();
            assert_eq!(g.called(), 0, "nothing was used");
            g.offer(&[1, 1]);
            g.receive();
            assert_eq!(g.called(), 1, "one for a burst");
            g.driver.want_calls(false);
            g.offer(&[1, 1]);
            g.receive();
            assert_eq!(g.called(), 0);
            assert_eq!(g.counts.calls.load(Relaxed), 1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// An interrupt comes with the burst that uses the place that the driver asked for, and no other.
    #[test]
    fn events(
        packed in any::<bool>(), n in 2u16..70, start in any::<u16>(),
        rounds in prop::collection::vec((0u16..100, prop::collection::vec(1usize..4, 1..40)), 1..30),
    ) {
        let n = size(bits(packed, true), n);
        let mut g = guest(bits(packed, true), n, start);
        for (ahead, chains) in rounds {
            // Chains count one in split rings, a place a descriptor in packed ones.
            let ahead = ahead % n;
            g.driver.want_call_at(ahead);
            let offered = g.offer(&chains);
            let taken = g.receive();
            prop_assert_eq!(taken, offered.min(32));
            let places: usize = if packed { chains[..taken].iter().sum() } else { taken };
            let due = places > usize::from(ahead);
            prop_assert_eq!(g.called(), u64::from(due), "{} places used, asked for {}", places, ahead);
            while g.receive() > 0 {}
            g.called();
            g.driver.reap();
        }
        prop_assert_eq!(g.ring.fault(), None);
    }
}

#[test]
fn kicks_are_asked_for_only_when_wanted() {
    for packed in [false, true] {
        for event_idx in [false, true] {
            let mut g = guest(bits(packed, event_idx), 8, 3);
            g.offer(&[1]);
            assert!(!g.driver.must_kick(), "a ring that is polled needs none");
            g.receive();
            g.ring.ask_kicks(true);
            assert!(!g.ring.has_some());
            g.offer(&[1]);
            assert!(g.driver.must_kick() && g.ring.has_some(), "{packed} {event_idx}");
            g.ring.ask_kicks(false);
            g.receive();
            g.offer(&[1]);
            assert!(!g.driver.must_kick());
        }
    }
}

/// Front ends that share the event can fill it, or hand over a file of their own that takes no bytes.
#[test]
fn nobody_waits_for_the_guest_to_take_its_interrupts() {
    let mut g = guest(bits(false, false), 8, 0);
    let full = Arc::new(eventfd(0, EventfdFlags::empty()).unwrap());
    rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let mut setup = g.driver.setup(&g.counts);
    setup.call = Some(full);
    // SAFETY: the parts are inside of the guest's memory, which the map keeps.
    g.ring = unsafe { RxRing::new(setup, g.driver.memory.map(false)) }.unwrap();
    g.driver.want_calls(true);
    g.offer(&[1]);
    assert_eq!((g.receive(), g.counts.calls.load(Relaxed)), (1, 1));

    let mut setup = g.driver.setup(&g.counts);
    setup.call = Some(Arc::new(std::fs::File::open("/dev/zero").unwrap().into()));
    // SAFETY: as above.
    let ring = unsafe { RxRing::new(setup, g.driver.memory.map(false)) };
    assert!(matches!(ring, Err(Fault::CallFile)));
}
