//! Every packet is shown to an observer.

use std::collections::VecDeque;

use fv_packet::Packet;

use crate::wrap::Stage;

/// Calls an observer for each packet that passes, and changes nothing.
pub struct Trace<F> {
    observer: F,
    queue: VecDeque<Packet>,
}

impl<F: FnMut(&Packet) + Send> Trace<F> {
    pub fn new(observer: F) -> Trace<F> {
        Trace { observer, queue: VecDeque::new() }
    }
}

impl<F: FnMut(&Packet) + Send> Stage for Trace<F> {
    fn put(&mut self, packet: Packet) {
        (self.observer)(&packet);
        self.queue.push_back(packet);
    }

    fn take(&mut self) -> Option<Packet> {
        self.queue.pop_front()
    }
}
