//! The bridge's turn: connections are served in small portions, so that none delays the others.

use fv_core::Nanos;

use crate::bridge::Ofproto;
use crate::commit::PORTION as COMMIT_PORTION;
use crate::conn::{Closed, ConnId, Connection, ControllerSpec, Kind};
use crate::host::Host;
use crate::packet_in::PacketInJob;

/// Messages of one connection before the next one has its turn.
const PORTION: usize = 16;
/// Flows whose looking at costs about as much as a message.
const FLOWS_PER_MESSAGE: usize = 256;
/// What one message of a long reply costs, in ordinary messages.
const PART_COST: usize = 8;

/// What is left to do after a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Turn {
    /// There is work that the budget did not reach.
    pub more: bool,
    /// When time alone will give something to do.
    pub next: Option<Nanos>,
}

impl Ofproto {
    /// Serves about `budget` messages of all connections together, or fewer long ones; expires flows,
    /// and publishes what changed.
    pub fn turn(&mut self, now: Nanos, budget: usize, host: &mut dyn Host) -> Turn {
        if self.continue_commit(COMMIT_PORTION) {
            return self.turn_meanwhile(now);
        }
        self.make_learned(host);
        let mut left = budget;
        let n = self.conns.len();
        let mut at = self.conns.turn.checked_rem(n).unwrap_or(0);
        let mut idle_in_a_row = 0;
        while idle_in_a_row < n && left > 0 && self.committing.is_none() {
            idle_in_a_row += 1;
            if let Some(mut c) = self.conns.take(at) {
                let cost = self.serve(&mut c, PORTION.min(left), now, host);
                if cost > 0 {
                    idle_in_a_row = 0;
                }
                left = left.saturating_sub(cost);
                self.conns.put_back(at, c);
                self.conns.deliver();
            }
            at = (at + 1) % n;
        }
        // Whom the budget did not reach comes first next time.
        self.conns.turn = at;
        if self.committing.is_some() {
            return self.turn_meanwhile(now);
        }
        self.commit(host);
        let next = self.expire(now, host);
        let tick = self.tick(now);
        self.commit(host);
        self.conns.deliver();
        self.publish_view(host);
        self.conns.sweep();
        self.watched &= self.conns.watches();
        // Before it is said that something changed, as far as possible: removed rules still make
        // lookups look at more of a packet. The first step keeps readers off them, the second frees them.
        let garbage = self.collect_garbage() && self.collect_garbage();
        let more = garbage || self.conns.iter().any(Connection::has_input);
        Turn { more, next: [next, tick].into_iter().flatten().min() }
    }

    /// While a bundle is being prepared only echo requests are answered.
    fn turn_meanwhile(&mut self, now: Nanos) -> Turn {
        self.conns.answer_echoes(now);
        Turn { more: true, next: self.conns.tick(now) }
    }

    /// What it cost, in messages.
    fn serve(&mut self, c: &mut Connection, portion: usize, now: Nanos, host: &mut dyn Host) -> usize {
        let mut cost = if c.continue_dump() { PART_COST } else { 0 };
        while cost < portion && self.committing.is_none() {
            let Some(m) = c.next_message(now) else { break };
            self.handle(c, m, now, host);
            cost += 1 + self.looked_at.take() / FLOWS_PER_MESSAGE;
        }
        cost
    }

    fn tick(&mut self, now: Nanos) -> Option<Nanos> {
        let next = self.conns.tick(now);
        let failing = self.conns.failure(now);
        let (on, at) = match failing {
            Some((away, limit)) if !self.settings.fail_secure => {
                (away >= limit, (away < limit).then(|| now.saturating_add(limit - away)))
            }
            _ => (false, None),
        };
        if on && !self.is_fail_open() {
            log::warn!(
                "{}: could not connect to controller for {} seconds, failing open",
                self.name(),
                failing.map_or(0, |f| f.0.secs())
            );
        }
        self.set_fail_open(on, now);
        [next, at].into_iter().flatten().min()
    }

    /// The configured active controllers. Going from none to some or back flushes the flows.
    pub fn set_controllers(&mut self, specs: Vec<ControllerSpec>, now: Nanos) {
        if self.conns.set_controllers(specs, now) {
            self.flush_flows(now);
        }
        self.view_dirty = true;
    }

    /// A stream was opened. `name` is the target of the controller that it belongs to. The hello is in
    /// its output.
    pub fn connect(&mut self, kind: Kind, name: &str, now: Nanos) -> ConnId {
        self.conns.add(kind, name, now)
    }

    /// The stream is gone. What had come through it is still carried out.
    pub fn disconnect(&mut self, id: ConnId) {
        if let Some(c) = self.conns.get_mut(id) {
            c.hang_up();
        }
    }

    /// Bytes came. Hand in no more while [`Connection::wants_read`] is false.
    pub fn receive(&mut self, id: ConnId, bytes: &[u8], now: Nanos) {
        if let Some(c) = self.conns.get_mut(id) {
            c.receive(bytes, now);
        }
    }

    pub fn connection(&self, id: ConnId) -> Option<&Connection> {
        self.conns.get(id).filter(|c| !c.is_gone())
    }

    /// The first `n` bytes of the connection's output were sent.
    pub fn sent(&mut self, id: ConnId, n: usize) {
        if let Some(c) = self.conns.get_mut(id) {
            c.sent(n);
        }
    }

    /// Why the stream is to be closed, once its output was sent as far as possible.
    pub fn closed(&self, id: ConnId) -> Option<Closed> {
        self.conns.get(id).and_then(Connection::closed)
    }

    /// Makes all connections start anew, as `bridge/reconnect` does.
    pub fn reconnect(&mut self) {
        self.conns.close_all(Closed::Removed);
    }

    /// A packet for controllers, from the queue that workers push to.
    pub fn packet_in(&mut self, job: &PacketInJob, now: Nanos) {
        self.conns.packet_in(job, now);
    }
}
