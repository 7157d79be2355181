//! Receive queues that their devices say are not worth polling: they are in no list that a turn goes through.
//!
//! Between two turns the worker looks whether any device has changed its mind: one load a port that can. A queue
//! then goes from one list to the other, which allocates nothing and asks nobody.

use std::sync::Arc;

use fv_core::DpPort;
use fv_netdev::EnabledQueues;

use super::Worker;
use super::rxq::Rxq;

/// Turns with packets between two looks at a port that keeps changing, so that a guest that does nothing else
/// costs its worker little.
const BUSY_TURNS: u32 = 16;

/// The queues that rest, and the ports whose queues may.
#[derive(Default)]
pub(super) struct Resting {
    pub queues: Vec<Rxq>,
    watched: Vec<Watched>,
    /// Turns with packets since the last look that found something.
    busy_turns: u32,
    /// Something is to be looked at again, whether it changes or not.
    again: bool,
}

struct Watched {
    port: DpPort,
    enabled: Arc<EnabledQueues>,
    seq: u64,
}

impl Resting {
    fn watch(&mut self, queue: &Rxq) {
        let Some(enabled) = &queue.enabled else { return };
        if !self.watched.iter().any(|w| w.port == queue.port) {
            self.watched.push(Watched { port: queue.port, enabled: enabled.clone(), seq: enabled.seq() });
        }
        self.again = true;
    }

    /// Whether some queue may be in the wrong list. Cost: a load a port.
    #[inline]
    fn is_due(&mut self, was_busy: bool) -> bool {
        self.busy_turns = self.busy_turns.saturating_add(u32::from(was_busy));
        let mut due = self.again;
        for w in &self.watched {
            due |= w.enabled.seq() != w.seq;
        }
        due && (!was_busy || self.busy_turns >= BUSY_TURNS)
    }
}

impl Worker {
    /// Takes a queue in, into the list where it belongs.
    pub(super) fn add_queue(&mut self, queue: Rxq) {
        self.resting.watch(&queue);
        // So that moving between the lists never allocates.
        let all = self.queues.len() + self.resting.queues.len() + 1;
        self.queues.reserve(all - self.queues.len());
        self.resting.queues.reserve(all - self.resting.queues.len());
        self.turn_queues.reserve(all);
        if queue.is_worth_polling() {
            self.queues.push(queue);
            self.queues_seq += 1;
        } else {
            self.resting.queues.push(queue);
        }
    }

    /// Takes a queue out that `matches`, wherever it is.
    pub(super) fn take_queue(&mut self, matches: impl Fn(&Rxq) -> bool) -> Option<Rxq> {
        let queue = if let Some(at) = self.queues.iter().position(&matches) {
            self.queues_seq += 1;
            self.queues.remove(at)
        } else {
            let at = self.resting.queues.iter().position(&matches)?;
            self.resting.queues.remove(at)
        };
        let port = queue.port;
        if !self.queues.iter().chain(&self.resting.queues).any(|q| q.port == port) {
            self.resting.watched.retain(|w| w.port != port);
        }
        Some(queue)
    }

    /// Follows what devices say about their queues. `was_busy`: the last turn had packets.
    #[inline]
    pub(super) fn follow_enabled(&mut self, was_busy: bool) {
        if self.resting.is_due(was_busy) {
            self.sort_queues();
        }
    }

    #[cold]
    fn sort_queues(&mut self) {
        self.resting.busy_turns = 0;
        self.resting.again = false;
        for w in &mut self.resting.watched {
            w.seq = w.enabled.seq();
        }
        let mut moved = false;
        for at in (0..self.queues.len()).rev() {
            let queue = &self.queues[at];
            if queue.is_worth_polling() {
                continue;
            }
            if !queue.waiting.is_empty() {
                // Its misses are served first.
                self.resting.again = true;
                continue;
            }
            moved |= queue.rx.fd().is_some();
            let queue = self.queues.swap_remove(at);
            self.resting.queues.push(queue);
        }
        for at in (0..self.resting.queues.len()).rev() {
            if self.resting.queues[at].is_worth_polling() {
                let queue = self.resting.queues.swap_remove(at);
                moved |= queue.rx.fd().is_some();
                self.queues.push(queue);
            }
        }
        // Those without a descriptor are not in the set that tells which are readable, unless there is one.
        if moved || self.ready.is_some() {
            self.queues_seq += 1;
        }
    }
}
