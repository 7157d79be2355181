//! Crediting packets: rules, tables, ports and MAC entries count what flows have forwarded.

use fv_core::Nanos;
use fv_core::OfPort;
use fv_dpif::FlowStats;
use fv_ofproto::BridgeId;
use fv_xlate::{Credit, Effect};
use hashbrown::HashMap;
use parking_lot::Mutex;

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

/// Applies a once-only effect.
pub fn apply(e: &Effect, now: Nanos) -> bool {
    match e {
        Effect::MacLearn { table, vlan, mac, bundle, how, .. } => {
            table.learn(now, *vlan, *mac, *bundle, *how).changes_forwarding()
        }
    }
}

/// Whether the address was seen on another port later than `at`.
fn seen_elsewhere_since(e: &Effect, at: Nanos) -> bool {
    let Effect::MacLearn { table, vlan, mac, bundle, .. } = e;
    table.lookup(*vlan, *mac).is_some_and(|m| m.port != *bundle && m.used > at)
}

/// Credits `delta` (packets, bytes and flags since the last time; `used` the time of the last).
pub fn credit(patch: &PatchCounters, credits: &[Credit], delta: &FlowStats, now: Nanos) {
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
            Credit::MacRefresh(e) => {
                // Pulled late, these packets may be older than a move: they must not take it back.
                if delta.packets > 0 && !seen_elsewhere_since(e, used) {
                    apply(e, used);
                }
            }
        }
    }
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
