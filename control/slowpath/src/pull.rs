//! Crediting packets: rules, tables, ports and MAC entries count what flows have forwarded.

use fv_core::Nanos;
use fv_dpif::FlowStats;
use fv_xlate::{Credit, Effect};

/// Applies a once-only effect.
pub fn apply(e: &Effect, now: Nanos) -> bool {
    match e {
        Effect::MacLearn { table, vlan, mac, bundle, gratuitous_arp, .. } => {
            table.learn(now, *vlan, *mac, *bundle, *gratuitous_arp).changes_forwarding()
        }
    }
}

/// Credits `delta` (packets, bytes and flags since the last time; `used` the time of the last).
pub fn credit(credits: &[Credit], delta: &FlowStats, now: Nanos) {
    let used = delta.used.unwrap_or(now);
    for c in credits {
        match c {
            Credit::Rule(r) => r.credit(delta.packets, delta.bytes, used, delta.tcp_flags),
            Credit::Table { tables, table, hit } => tables.credit(*table, *hit, delta.packets),
            Credit::PatchTx(p) => p.credit_tx(delta.packets, delta.bytes),
            Credit::PatchRx(p) => p.credit_rx(delta.packets, delta.bytes),
            Credit::MacRefresh(e) => {
                if delta.packets > 0 {
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
