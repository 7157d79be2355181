//! `ofproto/trace`: what would happen to a packet, told step by step.

use fv_core::{Command, DpPort, OfPort};
use fv_dpif::text::format_actions;
use fv_flow::text::{Style, format_flow, format_match};
use fv_flow::{FlowKey, Match};
use fv_openflow::action::Action;
use fv_openflow::text::Lookups;
use fv_packet::Packet;
use fv_xlate::{Input, Output, Start};

use super::dummy::from_hex;
use super::{Ctx, of_port_lookup, port_lookup};
use crate::engine::Bridge;

pub const COMMANDS: &[Command<Ctx>] = &[
    Command {
        name: "ofproto/trace",
        usage: Some("{[dp_name] odp_flow | bridge br_flow} [OPTIONS...] [-generate|packet]"),
        min: 1,
        max: usize::MAX,
        run: trace,
    },
    Command {
        name: "ofproto/trace-packet-out",
        usage: Some("[-consistent] {[dp_name] odp_flow | bridge br_flow} [OPTIONS...] [-generate|packet] actions"),
        min: 2,
        max: usize::MAX,
        run: trace_packet_out,
    },
];

/// What is to be traced.
struct Subject {
    bridge: String,
    key: FlowKey,
    packet: Option<Packet>,
    names: bool,
}

fn trace(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let s = subject(c, args)?;
    run(c, s, None)
}

fn trace_packet_out(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let args: Vec<&str> = args.iter().copied().filter(|a| *a != "-consistent").collect();
    let (actions, rest) = args.split_last().ok_or("actions missing")?;
    let s = subject(c, rest)?;
    let b = c.bridge(&s.bridge)?;
    let lookup = |n: &str| of_port_lookup(b, n);
    let names = Lookups { ports: Some(&lookup), ..Lookups::default() };
    let list = fv_openflow::text::parse_actions(actions, names).map_err(|e| e.to_string())?;
    run(c, s, Some(list.0))
}

fn subject(c: &mut Ctx, args: &[&str]) -> Result<Subject, String> {
    let (mut names, mut generate, mut packet) = (false, false, None);
    let mut plain: Vec<&str> = Vec::new();
    let mut it = args.iter().copied();
    while let Some(a) = it.next() {
        match a {
            "--names" => names = true,
            "--no-names" => names = false,
            "-generate" | "--generate" => generate = true,
            "--l7-len" | "--l7" | "--ct-next" => {
                it.next().ok_or_else(|| format!("Missing argument for option {a}"))?;
            }
            s if s.starts_with("--") => return Err(format!("Unsupported option {s}")),
            s => plain.push(s),
        }
    }
    if plain.len() > 1
        && let Some(bytes) = plain.last().and_then(|s| from_hex(s)).filter(|b| b.len() >= 14)
    {
        plain.pop();
        packet = Some(bytes);
    }
    if generate && packet.is_some() {
        return Err("Cannot specify both -generate and a packet.".into());
    }
    let (bridge, mut key) = match &plain[..] {
        [flow] => odp_subject(c, None, flow)?,
        [first, flow] if c.engine.bridges.contains_key(*first) => {
            let b = c.bridge(first)?;
            let lookup = |n: &str| of_port_lookup(b, n);
            let key = fv_flow::text::parse_exact_flow(flow, Some(&lookup))
                .map_err(|e| format!("Bad openflow flow syntax: {flow}: {e}"))?;
            (first.to_string(), key)
        }
        [first, flow] => match c.dp(Some(first)) {
            Ok(_) => odp_subject(c, Some(first), flow)?,
            Err(_) => return Err(format!("{first}: unknown bridge")),
        },
        [] => return Err("flow missing".into()),
        _ => return Err("too many arguments".into()),
    };
    let packet = match packet {
        Some(bytes) => {
            let port = key.base.in_port;
            let mut p = Packet::from_slice(&bytes);
            let extra = fv_flow::extract::Extra { vlan_limit: c.engine.world.dps.vlan_limit, ..Default::default() };
            let dp = fv_flow::extract::extract(&mut p, &extra);
            key.dp = dp;
            key.dp.base.in_port = port;
            Some(p)
        }
        None if generate => {
            let bytes = fv_flow::compose::compose(&key.dp, fv_flow::compose::DEFAULT_PAYLOAD);
            Some(Packet::from_slice(&bytes))
        }
        None => None,
    };
    Ok(Subject { bridge, key, packet, names })
}

/// A datapath flow: its in_port tells the bridge.
fn odp_subject(c: &Ctx, dp: Option<&str>, flow: &str) -> Result<(String, FlowKey), String> {
    if c.engine.bridges.contains_key(flow) {
        return Err(format!("syntax error at {flow} (or the bridge name was omitted)"));
    }
    let i = c.dp(dp)?;
    let lookup = |s: &str| port_lookup(i, s);
    let p = fv_flow::odp::parse(flow, &lookup)
        .map_err(|_| format!("syntax error at {flow} (or the bridge name was omitted)"))?;
    let view = i.view.load();
    let (id, port) = *view.by_dp_port.get(&DpPort(p.key.base.in_port)).ok_or("Invalid datapath flow")?;
    let name = c.engine.bridge_by_id(id).map(|b| b.of.name().to_string()).ok_or("Invalid datapath flow")?;
    let mut key = FlowKey { dp: p.key, ..FlowKey::default() };
    key.dp.base.in_port = port.0;
    Ok((name, key))
}

fn run(c: &mut Ctx, s: Subject, actions: Option<Vec<Action>>) -> fv_core::Reply {
    let now = c.engine.clock.now();
    let b = c.bridge(&s.bridge)?;
    let i = c.dp_of(b)?;
    let (view, slowpath) = (i.view.load_full(), i.slowpath.clone());
    let freeze = |f| slowpath.frozen.freeze(f);
    let start = actions.as_deref().map_or(Start::Tables, Start::Actions);
    let out = fv_xlate::translate(&Input {
        view: &view,
        bridge: b.of.id(),
        key: s.key,
        packet: s.packet.as_ref(),
        start,
        freeze: &freeze,
        now,
        trace: true,
        names: s.names,
    });
    let text = text(b, i, &s, &out);
    if s.packet.is_some() {
        slowpath.effects(&out, now);
    }
    slowpath.release_later(out.frozen);
    Ok(text)
}

fn text(b: &Bridge, i: &crate::datapaths::DpInst, s: &Subject, out: &Output) -> String {
    let of_name = |p: OfPort| b.of.port(p).map(|p| p.name.clone());
    let dp_list = super::port_names(i);
    let dp_name = |p: u32| dp_list.get(&p).cloned();
    let of_names: Option<fv_flow::text::PortNames> = if s.names { Some(&of_name) } else { None };
    let dp_names: Option<fv_dpif::text::Names> = if s.names { Some(&dp_name) } else { None };
    let mut t = format!("Flow: {}\n", format_flow(&s.key, of_names));
    t.push_str(&fv_xlate::trace::format(&out.trace));
    let same = out.flow == s.key;
    let mut last = out.flow;
    last.pipe.actset_output = s.key.pipe.actset_output;
    let last = if same { "unchanged".to_string() } else { format_flow(&last, of_names) };
    t.push_str(&format!("\nFinal flow: {last}\n"));
    let m = Match { key: out.mask.apply(&s.key), mask: out.mask };
    t.push_str(&format!("Megaflow: {}\n", format_match(&m, of_names, Style::Megaflow)));
    t.push_str(&format!("Datapath actions: {}", format_actions(&out.program.actions, dp_names)));
    if let Some(e) = out.error {
        t.push_str(&format!("\nTranslation failed ({e}), packet is dropped."));
    } else if !out.slow.is_empty() {
        t.push_str("\nThis flow is handled by the userspace slow path because it:");
        for (bit, _, why) in fv_dpif::action::SlowReasons::NAMES {
            if out.slow.contains(bit) {
                t.push_str(&format!("\n  - {why}"));
            }
        }
    }
    t
}
