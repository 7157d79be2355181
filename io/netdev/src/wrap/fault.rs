//! Loss, corruption, duplication and delay, decided by a seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fv_core::{Clock, Nanos};
use fv_packet::Packet;

use crate::wrap::Stage;

/// Packets kept back at most; beyond that they pass at once.
const HELD_MAX: usize = 4096;

/// How often what goes wrong, of a million packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    pub lost: u32,
    /// One bit of the packet is flipped.
    pub corrupted: u32,
    pub duplicated: u32,
    /// Packets are late by up to `delay_max`, and overtake each other.
    pub delayed: u32,
    pub delay_max: Nanos,
}

/// A bad wire. Equal seeds and packets give equal faults.
pub struct Fault {
    faults: Faults,
    clock: Clock,
    random: u64,
    /// By the time they are due, then by arrival.
    held: BinaryHeap<Reverse<Held>>,
    arrivals: u64,
}

struct Held {
    due: Nanos,
    arrival: u64,
    packet: Packet,
}

impl PartialEq for Held {
    fn eq(&self, o: &Held) -> bool {
        (self.due, self.arrival) == (o.due, o.arrival)
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, o: &Held) -> Option<std::cmp::Ordering> {
        Some(self.cmp(o))
    }
}

impl Ord for Held {
    fn cmp(&self, o: &Held) -> std::cmp::Ordering {
        (self.due, self.arrival).cmp(&(o.due, o.arrival))
    }
}

impl Fault {
    pub fn new(clock: Clock, seed: u64, faults: Faults) -> Fault {
        Fault { faults, clock, random: seed, held: BinaryHeap::new(), arrivals: 0 }
    }

    /// splitmix64.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn happens(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.next() % 1_000_000 < u64::from(per_million)
    }

    fn hold(&mut self, packet: Packet) {
        let late = self.happens(self.faults.delayed) && self.held.len() < HELD_MAX;
        let delay = if late { self.next() % self.faults.delay_max.0.max(1) } else { 0 };
        self.arrivals += 1;
        let due = self.clock.now().saturating_add(Nanos(delay));
        self.held.push(Reverse(Held { due, arrival: self.arrivals, packet }));
    }
}

impl Stage for Fault {
    fn put(&mut self, mut packet: Packet) {
        if self.happens(self.faults.lost) {
            return;
        }
        if self.happens(self.faults.corrupted) && !packet.is_empty() {
            let bit = self.next() as usize % (packet.len() * 8);
            packet.data_mut()[bit / 8] ^= 1 << (bit % 8);
        }
        if self.happens(self.faults.duplicated) {
            let copy = packet.duplicate();
            self.hold(copy);
        }
        self.hold(packet);
    }

    fn take(&mut self) -> Option<Packet> {
        let due = self.held.peek()?.0.due;
        if due > self.clock.now() {
            return None;
        }
        self.held.pop().map(|h| h.0.packet)
    }
}
