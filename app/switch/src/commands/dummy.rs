//! Dummy devices: packets in, state, addresses.

use fv_core::Command;
use fv_packet::Packet;

use super::{Ctx, port_lookup};

pub const COMMANDS: &[Command<Ctx>] = &[
    Command {
        name: "netdev-dummy/receive",
        usage: Some("name [--qid queue_id] packet|flow [--len packet_len]"),
        min: 2,
        max: usize::MAX,
        run: receive,
    },
    Command {
        name: "netdev-dummy/set-admin-state",
        usage: Some("[netdev] up|down"),
        min: 1,
        max: 2,
        run: set_admin_state,
    },
    Command { name: "netdev-dummy/conn-state", usage: Some("[netdev]"), min: 0, max: 1, run: conn_state },
    Command {
        name: "netdev-dummy/ip4addr",
        usage: Some("[netdev] ipaddr/mask-prefix-len"),
        min: 2,
        max: 2,
        run: ip4addr,
    },
    Command { name: "netdev-dummy/ip6addr", usage: Some("[netdev] ip6addr"), min: 2, max: 2, run: ip6addr },
];

/// Bytes of hexadecimal text; None if it is not that.
pub fn from_hex(s: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = s.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    if digits.is_empty() || !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    digits.chunks(2).map(|p| u8::from_str_radix(std::str::from_utf8(p).ok()?, 16).ok()).collect()
}

fn receive(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let device = c.engine.dummies.device(args[0]).ok_or("no such dummy netdev")?;
    let mut rest = &args[1..];
    let mut qid = 0;
    if let ["--qid", q, more @ ..] = rest {
        qid = q.parse::<usize>().map_err(|_| "bad rx queue id.".to_string())?;
        rest = more;
    }
    let mut packets = Vec::new();
    while let Some((text, more)) = rest.split_first() {
        rest = more;
        if let Some(bytes) = from_hex(text) {
            packets.push(Packet::from_slice(&bytes));
            continue;
        }
        let mut len = None;
        if let ["--len", n, more @ ..] = rest {
            len = Some(n.parse::<usize>().ok().filter(|n| *n >= 60).ok_or("too small packet len")?);
            rest = more;
        }
        packets.push(compose(c, text, len)?);
    }
    for p in packets {
        device.receive(qid, p).map_err(|e| e.to_string())?;
        // What one packet teaches the next one meets.
        c.engine.drain_packets();
        c.engine.make_learned();
    }
    Ok(String::new())
}

/// A packet of a datapath flow's text.
fn compose(c: &Ctx, text: &str, len: Option<usize>) -> Result<Packet, String> {
    let dp = c.engine.world.dps.iter().next().map(|(_, i)| i);
    let lookup = |s: &str| dp.and_then(|i| port_lookup(i, s));
    let p = fv_flow::odp::parse(text, &lookup).map_err(|e| e.to_string())?;
    let bytes = match len {
        None => fv_flow::compose::compose(&p.key, fv_flow::compose::DEFAULT_PAYLOAD),
        Some(n) => fv_flow::compose::compose_len(&p.key, n).ok_or("too small packet len")?,
    };
    Ok(Packet::from_slice(&bytes))
}

fn set_admin_state(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let up = match args[args.len() - 1] {
        s if s.eq_ignore_ascii_case("up") => true,
        s if s.eq_ignore_ascii_case("down") => false,
        _ => return Err("Invalid Admin State".into()),
    };
    let devices = match args {
        [name, _] => vec![c.engine.dummies.device(name).ok_or("Unknown Dummy Interface")?],
        _ => c.engine.dummies.devices(),
    };
    for d in devices {
        let _ = fv_netdev::Device::set_admin_up(&*d, up);
    }
    // The next packet meets ports as they are now.
    if c.engine.refresh_changed_ports() {
        c.engine.commit_all();
    }
    Ok("OK".into())
}

fn conn_state(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let devices = match args.first() {
        Some(name) => vec![c.engine.dummies.device(name).ok_or("Unknown Dummy Interface")?],
        None => c.engine.dummies.devices(),
    };
    Ok(devices.iter().map(|d| format!("{}: {}\n", fv_netdev::Device::name(&**d), d.conn_state())).collect())
}

fn ip4addr(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let d = c.engine.dummies.device(args[0]).ok_or("Unknown Dummy Interface")?;
    let (a, len) = args[1].split_once('/').ok_or("Invalid parameters")?;
    let a = a.parse().map_err(|_| "Invalid parameters".to_string())?;
    let len = len.parse::<u8>().ok().filter(|n| *n <= 32).ok_or("Invalid parameters")?;
    d.add_ip4(a, len);
    let now = c.engine.clock.now();
    c.engine.refresh_tunnels(now);
    Ok("OK".into())
}

fn ip6addr(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let d = c.engine.dummies.device(args[0]).ok_or("Unknown Dummy Interface")?;
    let (a, len) = args[1].split_once('/').ok_or("Invalid parameters")?;
    let a = a.parse().map_err(|_| "Invalid parameters".to_string())?;
    let len = len.parse::<u8>().ok().filter(|n| *n <= 128).ok_or("Invalid parameters")?;
    d.add_ip6(a, len);
    let now = c.engine.clock.now();
    c.engine.refresh_tunnels(now);
    Ok("OK".into())
}
