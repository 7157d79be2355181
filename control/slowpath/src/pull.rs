//! Crediting packets: rules, tables, ports and MAC entries count what flows have forwarded.

use fv_core::Nanos;
use fv_core::OfPort;
use fv_dpif::FlowStats;
use fv_ofproto::BridgeId;
use fv_ofproto::learn::Learned;
use fv_xlate::{Credit, Effect};
use hashbrown::HashMap;
use parking_lot::Mutex;

/// TCP flags that end a connection.
const FIN: u16 = 1;
const RST: u16 = 4;

/// What has gone through one patch port. No device counts it: its flows do.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PatchStats {
    pub rx_packets: u64,
    pub rx_bytes: u64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
}

/// All patch ports' counters.
#[derive(Default)]
pub struct PatchCounters(Mutex<HashMap<(BridgeId, OfPort), PatchStats>>);

impl PatchCounters {
    fn credit(&self, port: (BridgeId, OfPort), f: impl FnOnce(&mut PatchStats)) {
        f(self.0.lock().entry(port).or_default());
    }
    pub fn of(&self, bridge: BridgeId, port: OfPort) -> PatchStats {
        self.0.lock().get(&(bridge, port)).copied().unwrap_or_default()
    }
    /// The port is gone; a later one of the number starts at zero.
    pub fn forget(&self, bridge: BridgeId, port: OfPort) {
        self.0.lock().remove(&(bridge, port));
    }
}

/// What an effect changed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Applied {
    /// Other translations may differ now.
    pub forwarding: bool,
    /// Control has something to do.
    pub for_control: bool,
    /// A protocol has something to send.
    pub for_timers: bool,
}

impl std::ops::BitOrAssign for Applied {
    fn bitor_assign(&mut self, o: Applied) {
        self.forwarding |= o.forwarding;
        self.for_control |= o.for_control;
        self.for_timers |= o.for_timers;
    }
}

/// Applies a once-only effect.
#[must_use]
pub fn apply(e: &Effect, now: Nanos) -> Applied {
    match e {
        Effect::Learn { tables, job } => {
            let done = tables.learn(job, now);
            if done == Learned::Dropped {
                crate::LEARN_OVERFLOW.inc();
            }
            let added = done == Learned::Added;
            Applied { forwarding: added, for_control: added || done == Learned::Waiting, for_timers: false }
        }
        Effect::MacLearn { table, vlan, mac, bundle, how, .. } => {
            let forwarding = table.learn(now, *vlan, *mac, *bundle, *how).changes_forwarding();
            Applied { forwarding, ..Applied::default() }
        }
        Effect::Bfd { monitor, frame } => {
            let o = monitor.receive_bfd(frame, now);
            Applied { forwarding: o.forwarding, for_control: o.forwarding, for_timers: o.hurry }
        }
        // Packets follow from these, which the slow path sends itself.
        Effect::AskNeighbour(_) | Effect::NeighbourLearn { .. } => Applied::default(),
    }
}

/// Whether the address was seen on another port later than `at`.
fn seen_elsewhere_since(e: &Effect, at: Nanos) -> bool {
    let Effect::MacLearn { table, vlan, mac, bundle, .. } = e else { return false };
    table.lookup(*vlan, *mac).is_some_and(|m| m.port != *bundle && m.used > at)
}

/// Credits `delta` (packets, bytes and flags since the last time; `used` the time of the last).
/// What that changed in the model.
#[must_use]
pub fn credit(patch: &PatchCounters, credits: &[Credit], delta: &FlowStats, now: Nanos) -> Applied {
    let mut done = Applied::default();
    let used = delta.used.unwrap_or(now);
    for c in credits {
        match c {
            Credit::Rule(r) => r.credit(delta.packets, delta.bytes, used, delta.tcp_flags),
            Credit::Table { tables, table, hit } => {
                if let Some(t) = tables.table(*table) {
                    let (matched, missed) = if *hit { (delta.packets, 0) } else { (0, delta.packets) };
                    t.credit(matched, missed);
                }
            }
            Credit::PatchTx(b, p) => patch.credit((*b, *p), |s| {
                s.tx_packets += delta.packets;
                s.tx_bytes += delta.bytes;
            }),
            Credit::PatchRx(b, p) => patch.credit((*b, *p), |s| {
                s.rx_packets += delta.packets;
                s.rx_bytes += delta.bytes;
            }),
            Credit::LearnRefresh(e) => {
                if delta.packets > 0 {
                    done |= apply(e, now);
                }
            }
            Credit::FinTimeout { tables, rule, idle_s, hard_s } => {
                if delta.tcp_flags & (FIN | RST) != 0 {
                    tables.reduce_timeouts(rule, *idle_s, *hard_s);
                    done.for_control = true;
                }
            }
            Credit::NeighbourUse { net, bridge, ip } => {
                // Gone is gone: what notices it asks again.
                net.neighbours.used(bridge, *ip, now);
            }
            Credit::NeighbourAgain(_) => {}
            Credit::Group(g, bucket) => g.credit(*bucket, delta.packets, delta.bytes),
            Credit::MacRefresh(e) => {
                // Pulled late, these packets may be older than a move: they must not take it back.
                if delta.packets > 0 && !seen_elsewhere_since(e, used) {
                    // A move is noticed when the flows of the packets that moved are made.
                    let _ = apply(e, used);
                }
            }
        }
    }
    done
}

/// What the datapath has counted since `seen`. Counters that went back start anew.
pub fn delta(now: &FlowStats, seen: &FlowStats) -> FlowStats {
    let since = |a: u64, b: u64| if a >= b { a - b } else { a };
    FlowStats {
        packets: since(now.packets, seen.packets),
        bytes: since(now.bytes, seen.bytes),
        used: now.used,
        tcp_flags: now.tcp_flags,
    }
}
