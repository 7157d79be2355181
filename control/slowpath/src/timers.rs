//! Protocol timers: what the sessions of ports send and miss by time, apart from control, so that no
//! long command holds them up.

use std::time::Duration;

use fv_core::{DpPort, Nanos, OfPort};
use fv_flow::FlowKey;
use fv_flow::extract::{Extra, extract};
use fv_ofproto::view::{BridgeId, PortView, View};
use fv_openflow::action::Action;
use fv_packet::Packet;
use fv_xlate::{Input, Start};
use parking_lot::{Condvar, Mutex};

use crate::slowpath::Slowpath;

/// How the timers' thread is woken.
#[derive(Default)]
pub(crate) struct Timers {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    asked: bool,
    stop: bool,
}

impl Timers {
    pub fn kick(&self) {
        self.state.lock().asked = true;
        self.wake.notify_all();
    }
}

impl Slowpath {
    /// Something is due sooner than the last turn said, or ports have changed.
    pub fn kick_timers(&self) {
        self.timers.kick();
    }

    pub fn stop_timers(&self) {
        self.timers.state.lock().stop = true;
        self.timers.wake.notify_all();
    }

    /// Waits for a kick, at most for `timeout`. None when the timers are to stop.
    pub fn wait_for_timers(&self, timeout: Option<Duration>) -> Option<()> {
        let mut s = self.timers.state.lock();
        if !s.asked && !s.stop {
            match timeout {
                Some(t) => drop(self.timers.wake.wait_for(&mut s, t)),
                None => self.timers.wake.wait(&mut s),
            }
        }
        s.asked = false;
        (!s.stop).then_some(())
    }

    /// Does what is due at `now` on all guarded ports, and says when the next thing is. `rx_packets` counts what a
    /// datapath port has received.
    pub fn turn_timers(&self, now: Nanos, rx_packets: &dyn Fn(DpPort) -> Option<u64>) -> Nanos {
        let view = self.view.load_full();
        let mut next = Nanos::MAX;
        let mut changed = false;
        for b in view.bridges.values() {
            for p in b.ports.values() {
                let Some(m) = &p.monitor else { continue };
                let count = || match p.dp_port {
                    Some(port) => rx_packets(port),
                    None => Some(self.patch.of(b.id, p.ofp).rx_packets),
                };
                let (frames, outcome) = m.0.turn(p.hw_addr, count, now);
                changed |= outcome.forwarding;
                frames.iter().for_each(|f| self.send_out(&view, b.id, p, f, now));
                next = next.min(m.0.wake_at());
            }
        }
        if changed {
            self.model_changed();
            (self.wake_control)();
        }
        next
    }

    /// Sends a frame of the switch's own out of a port, as a packet-out would.
    fn send_out(&self, view: &View, bridge: BridgeId, p: &PortView, frame: &[u8], now: Nanos) {
        let mut packet = Packet::from_slice(frame);
        packet.meta_mut().in_port = DpPort::NONE.0;
        let dp_key = extract(&mut packet, &Extra::default());
        let mut key = FlowKey { dp: dp_key, ..FlowKey::default() };
        key.dp.base.in_port = OfPort::NONE.0;
        let actions = [Action::Output { port: p.ofp, max_len: 0 }];
        let freeze = |s| self.frozen.freeze(s);
        let out = fv_xlate::translate(&Input {
            view,
            bridge,
            key,
            packet: Some(&packet),
            start: Start::Actions(&actions),
            freeze: &freeze,
            now,
            trace: false,
            names: false,
        });
        self.account(&out, packet.len(), 0, now);
        if out.error.is_none() {
            self.datapath().execute(packet, &dp_key, &out.program);
        }
        self.release_later(out.frozen);
    }
}
