//! Tunnels: ports that listen, neighbours, routes.

use std::net::IpAddr;

use fv_core::Command;
use fv_tunnel::{Prefix, Route};

use super::Ctx;

pub const COMMANDS: &[Command<Ctx>] = &[
    Command { name: "tnl/arp/show", usage: Some(""), min: 0, max: 0, run: neigh_show },
    Command { name: "tnl/arp/set", usage: Some("BRIDGE IP MAC"), min: 3, max: 3, run: neigh_set },
    Command { name: "tnl/arp/flush", usage: Some(""), min: 0, max: 0, run: neigh_flush },
    Command { name: "tnl/arp/aging", usage: Some("[SECS]"), min: 0, max: 1, run: neigh_aging },
    Command { name: "tnl/neigh/show", usage: Some(""), min: 0, max: 0, run: neigh_show },
    Command { name: "tnl/neigh/set", usage: Some("BRIDGE IP MAC"), min: 3, max: 3, run: neigh_set },
    Command { name: "tnl/neigh/flush", usage: Some(""), min: 0, max: 0, run: neigh_flush },
    Command { name: "tnl/neigh/aging", usage: Some("[SECS]"), min: 0, max: 1, run: neigh_aging },
    Command { name: "tnl/ports/show", usage: Some("-v"), min: 0, max: 1, run: ports_show },
    Command { name: "tnl/egress_port_range", usage: Some("min max"), min: 0, max: 2, run: egress_port_range },
    Command {
        name: "ovs/route/add",
        usage: Some("ip_addr/prefix_len out_br_name [gw] [pkt_mark=mark] [src=src_ip]"),
        min: 2,
        max: 6,
        run: route_add,
    },
    Command {
        name: "ovs/route/del",
        usage: Some("ip_addr/prefix_len [pkt_mark=mark]"),
        min: 1,
        max: 3,
        run: route_del,
    },
    Command { name: "ovs/route/lookup", usage: Some("ip_addr [pkt_mark=mark]"), min: 1, max: 3, run: route_lookup },
    Command { name: "ovs/route/show", usage: Some(""), min: 0, max: 1, run: route_show },
    Command { name: "ofproto/list-tunnels", usage: None, min: 0, max: 0, run: list_tunnels },
];

fn neigh_show(c: &mut Ctx, _: &[&str]) -> fv_core::Reply {
    let now = c.engine.clock.now();
    let mut out = format!("{:<46}{:<20}{}\n", "IP", "MAC", "Bridge");
    out += &"=".repeat(74);
    out.push('\n');
    for r in c.engine.tunnels.net.neighbours.rows(now) {
        let mac = crate::report::mac_text(r.mac);
        let stale = if r.stale { " STALE" } else { "" };
        out += &format!("{:<46}{mac:<20}{}{stale}\n", r.ip.to_string(), r.bridge);
    }
    Ok(out)
}

fn neigh_set(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let ip: IpAddr = args[1].parse().map_err(|_| "bad IP address".to_string())?;
    let mac = mac(args[2]).ok_or("bad MAC address")?;
    let now = c.engine.clock.now();
    c.engine.tunnels.net.neighbours.learn(args[0], ip, mac, now);
    c.engine.neighbour_changed(args[0], ip, now);
    Ok("OK".into())
}

fn mac(text: &str) -> Option<[u8; 6]> {
    let mut m = [0; 6];
    let mut parts = text.split(':');
    for b in &mut m {
        *b = parts.next().filter(|p| (1..=2).contains(&p.len())).and_then(|p| u8::from_str_radix(p, 16).ok())?;
    }
    parts.next().is_none().then_some(m)
}

fn neigh_flush(c: &mut Ctx, _: &[&str]) -> fv_core::Reply {
    c.engine.tunnels.net.neighbours.flush(None);
    c.engine.world.dps.iter().for_each(|(_, i)| i.slowpath.model_changed());
    Ok("OK".into())
}

fn neigh_aging(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let n = &c.engine.tunnels.net.neighbours;
    let Some(text) = args.first() else { return Ok(n.aging_s().to_string()) };
    let ok = |s: &u32| (1..=fv_tunnel::MAX_AGING_S).contains(s);
    let seconds = text.parse().ok().filter(ok).ok_or("bad aging value")?;
    n.set_aging(seconds);
    Ok("OK".into())
}

fn ports_show(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let verbose = args.first() == Some(&"-v");
    let mut lines: Vec<String> = Vec::new();
    for (_, i) in c.engine.world.dps.iter() {
        lines.extend(i.tunnels.listeners.show(verbose).lines().skip(1).map(str::to_owned));
    }
    lines.insert(0, "Listening ports:".into());
    Ok(lines.join("\n") + "\n")
}

fn egress_port_range(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let range = c.engine.tunnels.egress_ports;
    let (min, max) = range.unwrap_or((fv_datapath::tunnel::SOURCE_MIN, fv_datapath::tunnel::SOURCE_MAX));
    match args {
        [low, high] => {
            let number = |s: &str| s.parse::<u32>().ok().and_then(|n| u16::try_from(n).ok()).filter(|n| *n > 0);
            let (a, b) = (number(low), number(high));
            let (Some(a), Some(b)) = (a, b) else { return Err("Invalid port range".into()) };
            // Either order, as in the reference.
            let range = (a.min(b), a.max(b));
            c.engine.tunnels.egress_ports = Some(range);
            for (_, i) in c.engine.world.dps.iter() {
                i.dp.set_tunnel_ports(range.0, range.1);
            }
            Ok("OK".into())
        }
        _ => Ok(format!("Tunnel UDP source port range: {min}-{max}\n")),
    }
}

/// What stands behind the prefix: `[gw] [pkt_mark=M] [src=A] [table=T]`.
#[derive(Default)]
struct More {
    gateway: Option<IpAddr>,
    mark: u32,
    source: Option<IpAddr>,
}

fn more(args: &[&str]) -> Result<More, String> {
    let bad = || "Invalid parameters".to_string();
    let mut m = More::default();
    for a in args {
        match a.split_once('=') {
            Some(("pkt_mark", n)) => {
                let parsed = n.strip_prefix("0x").map_or(n.parse().ok(), |h| u32::from_str_radix(h, 16).ok());
                m.mark = parsed.ok_or_else(bad)?;
            }
            Some(("src", a)) => m.source = Some(a.parse().map_err(|_| bad())?),
            Some(_) => return Err(bad()),
            None => m.gateway = Some(a.parse().map_err(|_| bad())?),
        }
    }
    Ok(m)
}

fn route_add(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let prefix = Prefix::parse(args[0]).ok_or("Invalid parameters")?;
    let m = more(&args[2..])?;
    let device = args[1].to_string();
    let to = m.gateway.unwrap_or_else(|| prefix.address());
    let source = m.source.or_else(|| c.engine.source_for(&device, to));
    // A route through a device without address would lead nowhere.
    let source = source.ok_or("Error while inserting route.")?;
    let route = Route { device, gateway: m.gateway, source: Some(source), local: false, metric: 0 };
    if !c.engine.tunnels.net.routes.write().add(m.mark, prefix, route) {
        return Err("Error while inserting route.".into());
    }
    changed(c);
    Ok("OK".into())
}

fn changed(c: &Ctx) {
    c.engine.world.dps.iter().for_each(|(_, i)| i.slowpath.model_changed());
}

fn route_del(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let prefix = Prefix::parse(args[0]).ok_or("Invalid parameters")?;
    let m = more(&args[1..])?;
    if !c.engine.tunnels.net.routes.write().del(m.mark, prefix) {
        return Err("Not found".into());
    }
    changed(c);
    Ok("OK".into())
}

fn route_lookup(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let to: IpAddr = args[0].parse().map_err(|_| "Invalid parameters".to_string())?;
    let m = more(&args[1..])?;
    let found = c.engine.tunnels.net.routes.read().lookup(m.mark, to).ok_or("Not found")?;
    let text = |a: Option<IpAddr>| a.map_or_else(|| "::".to_string(), |a| a.to_string());
    Ok(format!("src {}\ngateway {}\ndev {}\n", text(found.source), text(found.gateway), found.device))
}

fn route_show(c: &mut Ctx, _: &[&str]) -> fv_core::Reply {
    Ok(c.engine.tunnels.net.routes.read().show())
}

fn list_tunnels(c: &mut Ctx, _: &[&str]) -> fv_core::Reply {
    let mut lines = Vec::new();
    for b in c.engine.world.bridges.values() {
        for i in b.ifaces.values() {
            if let (Some(t), Some(p)) = (&i.tunnel, i.dp_port) {
                lines.push(format!("port {p}: {} {}\n", i.name, t.describe(p.0)));
            }
        }
    }
    lines.sort();
    Ok(lines.concat())
}
