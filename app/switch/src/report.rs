//! Status for the database: what the rows of the switch, its bridges, ports and interfaces show.

use std::collections::BTreeMap;

use fv_config::Applied;
use fv_config::report::Report;
use fv_core::Nanos;
use fv_netdev::{DeviceStatus, Duplex, PortStats};
use fv_ofproto::conn::Kind;
use fv_openflow::msg::Role;
use fv_ovsdb::{Atom, Datum, Uuid};
use fv_ovsdb_db::client::{Client, TxnBuilder};

use crate::engine::Engine;

/// What changes with configuration: written as soon as it is applied. `cur_cfg` is the last word: it
/// says that everything up to it is in effect and in this transaction.
pub fn configuration(e: &Engine, applied: &Applied, db: &Client, cur_cfg: i64, now: Nanos) -> Option<TxnBuilder> {
    let mut r = Report::new(db);
    root(e, db, &mut r);
    for (name, b) in &e.bridges {
        let row = b.spec.uuid;
        r.set("Bridge", row, "datapath_id", Datum::string(format!("{:016x}", b.dpid)));
        r.set("Bridge", row, "datapath_version", Datum::string(VERSION));
        controllers(e, name, db, &mut r, now);
    }
    for b in applied.bridges.values() {
        for i in b.ifaces.values() {
            let row = i.spec.uuid;
            match &i.failed {
                Some(f) => {
                    r.set("Interface", row, "error", Datum::string(f.error.clone()));
                    r.set("Interface", row, "ofport", Datum::integer(-1));
                    for c in ["mac_in_use", "mtu", "admin_state", "link_state", "ifindex", "link_speed", "duplex"] {
                        r.set_opt("Interface", row, c, None);
                    }
                }
                None => {
                    if let Some(p) = i.ofport {
                        r.set("Interface", row, "ofport", Datum::integer(i64::from(p.to_u16().unwrap_or(0))));
                    }
                }
            }
        }
    }
    for f in applied.failed_bridges.values() {
        let own = db.rows("Interface").find(|i| i.str("name") == f.spec.name);
        if let Some(i) = own {
            r.set("Interface", i.uuid(), "error", Datum::string(f.error.clone()));
            r.set("Interface", i.uuid(), "ofport", Datum::integer(-1));
        }
    }
    status(e, applied, &mut r);
    if let Some(o) = db.first("Open_vSwitch") {
        r.set("Open_vSwitch", o.uuid(), "cur_cfg", Datum::integer(cur_cfg));
    }
    r.finish()
}

/// What devices say of themselves if `devices`, which asks the kernel about each, and controllers' connections.
pub fn current(e: &Engine, applied: &Applied, db: &Client, now: Nanos, devices: bool) -> Option<TxnBuilder> {
    let mut r = Report::new(db);
    if devices {
        status(e, applied, &mut r);
    }
    e.bridges.keys().for_each(|b| controllers(e, b, db, &mut r, now));
    r.finish()
}

/// Counters, written every `stats-update-interval`.
pub fn statistics(e: &Engine, applied: &Applied, db: &Client) -> Option<TxnBuilder> {
    let mut r = Report::new(db);
    if let Some(o) = db.first("Open_vSwitch") {
        let on = o.lookup("other_config", "enable-statistics") == Some("true");
        let s = if on { crate::hoststats::collect("ovs-vswitchd") } else { Default::default() };
        r.set("Open_vSwitch", o.uuid(), "statistics", Datum::string_map(s));
    }
    for b in applied.bridges.values() {
        for (name, i) in &b.ifaces {
            if i.failed.is_some() {
                continue;
            }
            let stats = match e.world.find_iface(name) {
                Some((_, x)) if x.device.is_some() => x.device.as_ref().map(|d| d.stats()).unwrap_or_default(),
                Some((id, x)) => {
                    let s =
                        e.world.kind_of(id).and_then(|k| e.world.dps.find(k)).map(|d| d.slowpath.patch.of(id, x.ofp));
                    let s = s.unwrap_or_default();
                    PortStats {
                        rx_packets: Some(s.rx_packets),
                        rx_bytes: Some(s.rx_bytes),
                        tx_packets: Some(s.tx_packets),
                        tx_bytes: Some(s.tx_bytes),
                        ..PortStats::default()
                    }
                }
                None => continue,
            };
            r.set("Interface", i.spec.uuid, "statistics", counters(&stats));
        }
    }
    r.finish()
}

/// How old the seconds since a connection's last change may be in the database.
const STATUS_SECONDS: u64 = 5;

/// The version whose behaviour this switch has.
pub const VERSION: &str = "3.7.1";

fn root(e: &Engine, db: &Client, r: &mut Report<'_>) {
    let Some(o) = db.first("Open_vSwitch") else { return };
    r.set("Open_vSwitch", o.uuid(), "datapath_types", Datum::strings(e.datapath_types()));
    r.set("Open_vSwitch", o.uuid(), "iface_types", Datum::strings(e.iface_types()));
    r.set("Open_vSwitch", o.uuid(), "dpdk_initialized", Datum::boolean(false));
    r.set("Open_vSwitch", o.uuid(), "dpdk_version", Datum::string("none"));
}

fn controllers(e: &Engine, bridge: &str, db: &Client, r: &mut Report<'_>, now: Nanos) {
    let Some(b) = e.bridges.get(bridge) else { return };
    let info = b.of.conns().info();
    for c in &b.spec.controllers {
        let conns = info.iter().filter(|i| i.name == c.target);
        let role = conns.clone().find(|i| i.kind == Kind::Primary).map(|i| i.role);
        match b.io.status(&c.target, now) {
            Some((up, mut m)) => {
                if conns.clone().any(|i| i.is_idle) {
                    m.insert("state".into(), "IDLE".into());
                }
                seldom(db, c.uuid, &mut m);
                r.set("Controller", c.uuid, "is_connected", Datum::boolean(up));
                r.set("Controller", c.uuid, "status", Datum::string_map(m));
                let role = role.filter(|_| up).map(|x| Datum::string(role_name(x)));
                r.set_opt("Controller", c.uuid, "role", role);
            }
            None => r.set("Controller", c.uuid, "is_connected", Datum::boolean(conns.count() > 0)),
        }
    }
}

/// The schema's word for it.
fn role_name(r: Role) -> &'static str {
    match r {
        Role::Primary => "master",
        Role::Secondary => "slave",
        Role::Equal | Role::NoChange => "other",
    }
}

/// Seconds that pass are no news: they stay as they are in the row until they are some more.
fn seldom(db: &Client, row: Uuid, m: &mut BTreeMap<String, String>) {
    let Some(row) = db.row("Controller", row) else { return };
    for name in ["sec_since_connect", "sec_since_disconnect"] {
        let Some(value) = m.get_mut(name) else { continue };
        let Some(old) = row.lookup("status", name) else { continue };
        let passed = value.parse::<u64>().ok().zip(old.parse().ok()).and_then(|(new, old)| new.checked_sub(old));
        if passed.is_some_and(|s| s < STATUS_SECONDS) {
            *value = old.to_owned();
        }
    }
}

fn status(e: &Engine, applied: &Applied, r: &mut Report<'_>) {
    for b in applied.bridges.values() {
        for (name, i) in &b.ifaces {
            if i.failed.is_some() {
                continue;
            }
            let row = i.spec.uuid;
            let monitor = e.world.find_iface(name).and_then(|(_, x)| x.monitor.as_ref());
            let bfd = monitor.and_then(|m| m.with_bfd(|s| s.status()));
            let bfd = bfd.into_iter().flatten().map(|(k, v)| (k.to_string(), v));
            r.set("Interface", row, "bfd_status", Datum::string_map(bfd));
            match e.world.device(name) {
                Some(d) => {
                    let s = d.status();
                    // The port stays and goes on by itself when a device of this name comes back.
                    let gone = d.kind() == "system" && s.ifindex.is_none();
                    let error = gone.then(|| format!("could not open network device {name} (No such device)"));
                    r.set_opt("Interface", row, "error", error.or(i.warning.clone()).map(Datum::string));
                    device(row, &s, r);
                }
                None => {
                    r.set_opt("Interface", row, "error", i.warning.clone().map(Datum::string));
                    if let Some((_, x)) = e.world.find_iface(name) {
                        if x.tunnel.is_some() {
                            tunnel(e, row, x, r);
                        }
                        r.set("Interface", row, "admin_state", Datum::string("up"));
                        r.set("Interface", row, "link_state", Datum::string("up"));
                    }
                }
            }
        }
    }
}

/// A tunnel's address is one of its own; its status tells where packets leave.
fn tunnel(e: &Engine, row: Uuid, i: &crate::world::Iface, r: &mut Report<'_>) {
    r.set_opt("Interface", row, "mac_in_use", Some(Datum::string(mac_text(crate::engine::patch_mac(&i.name)))));
    let remote = i.tunnel.as_ref().and_then(|t| t.remote.fixed());
    let mark = i.tunnel.as_ref().and_then(|t| t.egress_pkt_mark).unwrap_or(0);
    let route = remote.and_then(|a| e.tunnels.net.routes.read().lookup(mark, a));
    let status = route.map(|f| {
        let up = e.world.device(&f.device).is_none_or(|d| d.status().link_up);
        let carrier = if up { "up" } else { "down" };
        [("tunnel_egress_iface".to_string(), f.device), ("tunnel_egress_iface_carrier".into(), carrier.into())]
    });
    r.set("Interface", row, "status", Datum::string_map(status.into_iter().flatten()));
}

fn device(row: Uuid, s: &DeviceStatus, r: &mut Report<'_>) {
    let up = |b: bool| Datum::string(if b { "up" } else { "down" });
    r.set("Interface", row, "admin_state", up(s.admin_up));
    r.set("Interface", row, "link_state", up(s.link_up));
    r.set("Interface", row, "link_resets", Datum::integer(s.link_resets as i64));
    r.set_opt("Interface", row, "mac_in_use", s.mac.map(|m| Datum::string(mac_text(m))));
    r.set_opt("Interface", row, "mtu", s.mtu.map(|m| Datum::integer(m.into())));
    r.set_opt("Interface", row, "ifindex", s.ifindex.map(|m| Datum::integer(m.into())));
    r.set_opt("Interface", row, "link_speed", s.speed_bps.map(|b| Datum::integer(b as i64)));
    let duplex = s.duplex.map(|d| Datum::string(if d == Duplex::Full { "full" } else { "half" }));
    r.set_opt("Interface", row, "duplex", duplex);
    r.set("Interface", row, "status", Datum::string_map(s.driver.clone()));
}

pub fn mac_text(m: [u8; 6]) -> String {
    m.map(|b| format!("{b:02x}")).join(":")
}

/// Counters by the names of the `statistics` column; unknown ones are left out.
pub fn counters(s: &PortStats) -> Datum {
    let named = [
        ("rx_packets", s.rx_packets),
        ("tx_packets", s.tx_packets),
        ("rx_bytes", s.rx_bytes),
        ("tx_bytes", s.tx_bytes),
        ("rx_dropped", s.rx_dropped),
        ("tx_dropped", s.tx_dropped),
        ("rx_errors", s.rx_errors),
        ("tx_errors", s.tx_errors),
        ("rx_frame_err", s.rx_frame_errors),
        ("rx_over_err", s.rx_over_errors),
        ("rx_crc_err", s.rx_crc_errors),
        ("rx_missed_errors", s.rx_missed_errors),
        ("collisions", s.collisions),
        ("rx_multicast_packets", s.multicast),
    ];
    let mut all: BTreeMap<String, u64> = named.into_iter().filter_map(|(k, v)| Some((k.to_string(), v?))).collect();
    all.extend(s.custom.iter().cloned());
    Datum::from_pairs(
        all.into_iter().map(|(k, v)| (Atom::String(k), Atom::Integer(i64::try_from(v).unwrap_or(i64::MAX)))),
    )
}
