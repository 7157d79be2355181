//! A wire of limited speed with a queue in front.

use std::collections::VecDeque;

use fv_core::{Clock, Nanos};
use fv_packet::Packet;

use crate::wrap::Stage;

/// Passes `bytes_per_s`, one packet after the other; more than `queue_max` waiting packets are dropped.
pub struct Rate {
    clock: Clock,
    ns_per_byte: f64,
    queue_max: usize,
    queue: VecDeque<Packet>,
    /// When the wire is free again.
    free_at: Nanos,
}

impl Rate {
    pub fn new(clock: Clock, bytes_per_s: u64, queue_max: usize) -> Rate {
        let ns_per_byte = 1e9 / bytes_per_s.max(1) as f64;
        Rate { clock, ns_per_byte, queue_max, queue: VecDeque::new(), free_at: Nanos::ZERO }
    }
}

impl Stage for Rate {
    fn put(&mut self, packet: Packet) {
        if self.queue.len() < self.queue_max {
            self.queue.push_back(packet);
        }
    }

    /// The first packet, when all before it have left the wire.
    fn take(&mut self) -> Option<Packet> {
        let now = self.clock.now();
        if now < self.free_at {
            return None;
        }
        let packet = self.queue.pop_front()?;
        let busy = Nanos((packet.len() as f64 * self.ns_per_byte) as u64);
        self.free_at = self.free_at.max(now).saturating_add(busy);
        Some(packet)
    }
}
