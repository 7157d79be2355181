//! MAC tables.

use fv_config::desired::parse_mac;
use fv_core::{Command, OfPort};

use super::Ctx;
use crate::engine::Bridge;
use crate::report::mac_text;

pub const COMMANDS: &[Command<Ctx>] = &[
    Command { name: "fdb/show", usage: Some("bridge"), min: 1, max: 1, run: show },
    Command { name: "fdb/add", usage: Some("bridge port vlan mac"), min: 4, max: 4, run: add },
    Command { name: "fdb/del", usage: Some("bridge vlan mac"), min: 3, max: 3, run: del },
    Command { name: "fdb/flush", usage: Some("[bridge]"), min: 0, max: 1, run: flush },
    Command { name: "fdb/stats-show", usage: Some("bridge"), min: 1, max: 1, run: stats_show },
    Command { name: "fdb/stats-clear", usage: Some("[bridge]"), min: 0, max: 1, run: stats_clear },
];

/// The port of a bundle, as tables show it.
fn port_text(b: &Bridge, bundle: u64) -> String {
    match b.of.bundles().get(bundle as usize).and_then(|x| x.members.first()) {
        Some(p) => fv_flow::text::port_text(*p, None),
        None => "?".into(),
    }
}

fn show(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let now = c.engine.clock.now();
    let b = c.bridge(args[0])?;
    let mut out = " port  VLAN  MAC                Age\n".to_string();
    for e in b.of.mac_table().entries() {
        let age = if e.is_static { "static".to_string() } else { format!("{:3}", e.age_s(now)) };
        out.push_str(&format!("{:>5}  {:4}  {}  {age}\n", port_text(b, e.port), e.vlan, mac_text(e.mac)));
    }
    Ok(out)
}

fn parse_vlan_mac(vlan: &str, mac: &str) -> Result<(u16, [u8; 6]), String> {
    let vlan = vlan.parse::<u16>().ok().filter(|v| *v < 4096).ok_or("Failed to parse VLAN ID")?;
    Ok((vlan, parse_mac(mac).ok_or("Failed to parse MAC address")?))
}

fn add(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let now = c.engine.clock.now();
    let (vlan, mac) = parse_vlan_mac(args[2], args[3])?;
    let b = c.bridge(args[0])?;
    let port = match args[1].parse::<u32>() {
        Ok(n) => b.of.port(OfPort(n)).map(|p| p.ofp),
        Err(_) => b.of.port_by_name(args[1]).map(|p| p.ofp),
    };
    let port = port.ok_or("no such port")?;
    let bundle = b.of.bundles().iter().position(|x| x.members.contains(&port)).ok_or("no such port")?;
    if !b.of.mac_table().add_static(now, vlan, mac, bundle as u64) {
        return Err("MAC table is full".into());
    }
    let id = b.of.id();
    c.engine.model_changed(id);
    Ok(String::new())
}

fn del(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let (vlan, mac) = parse_vlan_mac(args[1], args[2])?;
    let b = c.bridge(args[0])?;
    if !b.of.mac_table().remove(vlan, mac) {
        return Err(format!("entry {} vlan {vlan} not found", args[2]));
    }
    let id = b.of.id();
    c.engine.model_changed(id);
    Ok(String::new())
}

fn flush(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let ids: Vec<_> = match args.first() {
        Some(name) => vec![c.bridge(name)?.of.id()],
        None => c.engine.bridges.values().map(|b| b.of.id()).collect(),
    };
    for b in c.engine.bridges.values().filter(|b| ids.contains(&b.of.id())) {
        b.of.mac_table().flush();
    }
    ids.into_iter().for_each(|id| c.engine.model_changed(id));
    Ok("table successfully flushed".into())
}

fn stats_show(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let s = c.bridge(args[0])?.of.mac_table().stats();
    Ok(format!(
        "Statistics for bridge \"{}\":\n  \
         Current/maximum MAC entries in the table: {}/{}\n  \
         Current static MAC entries in the table : {}\n  \
         Total number of learned MAC entries     : {}\n  \
         Total number of expired MAC entries     : {}\n  \
         Total number of evicted MAC entries     : {}\n  \
         Total number of port moved MAC entries  : {}\n",
        args[0], s.entries, s.max_entries, s.static_entries, s.learned, s.expired, s.evicted, s.moved
    ))
}

fn stats_clear(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    match args.first() {
        Some(name) => c.bridge(name)?.of.mac_table().clear_stats(),
        None => c.engine.bridges.values().for_each(|b| b.of.mac_table().clear_stats()),
    }
    Ok("statistics successfully cleared".into())
}
