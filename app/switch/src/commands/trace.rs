//! `ofproto/trace`: what would happen to a packet, told step by step.

use fv_core::{Command, OfPort};
use fv_dpif::text::format_actions;
use fv_flow::key::cs;
use fv_flow::text::{Style, format_flow_in, format_match};
use fv_flow::{FlowKey, Match};
use fv_openflow::Version;
use fv_openflow::action::{Action, Bind, CheckCx};
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

/// What stands among the arguments besides the flow.
#[derive(Default)]
struct Options<'a> {
    names: bool,
    generate: bool,
    l7: Option<Vec<u8>>,
    /// Bridge or datapath, flow, packet.
    plain: Vec<&'a str>,
}

/// Most bytes behind generated headers.
const MAX_L7: usize = 64_000;

fn trace(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let s = subject(c, args)?;
    run(c, s, None)
}

fn trace_packet_out(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    let (actions, rest) = args.split_last().ok_or("actions missing")?;
    let consistent = rest.first() == Some(&"-consistent");
    let s = subject(c, if consistent { &rest[1..] } else { rest })?;
    let b = c.bridge(&s.bridge)?;
    let lookup = |n: &str| of_port_lookup(b, n);
    let names = Lookups { ports: Some(&lookup), ..Lookups::default() };
    let mut list = fv_openflow::text::parse_actions(actions, names).map_err(|e| e.to_string())?;
    if let Some(i) = list.iter().find(|a| a.is_instruction()) {
        let text = fv_xlate::text::format_actions(std::slice::from_ref(i));
        let word = text.split([':', '(']).next().unwrap_or_default();
        return Err(format!("{word} instruction not allowed here"));
    }
    let layout = *b.of.view().tun_options.layout();
    let mut all = fv_flow::FlowMask::default();
    all.0.words_mut().fill(u64::MAX);
    let cx = CheckCx {
        match_: &Match { key: s.key, mask: all, layout },
        max_port: OfPort(0xff00),
        table: 0xff,
        n_tables: 0xff,
        // The oldest lets pass what the packet has no headers for.
        version: if consistent { Version::V13 } else { Version::V10 },
    };
    list.bind(&layout)
        .and_then(|()| fv_openflow::action::check(&mut list, &cx))
        .and_then(|()| b.of.may_do(&list))
        .map_err(|e| format!("Bad actions: {e}"))?;
    // As in the reference, without actions it is a received packet.
    run(c, s, (!list.is_empty()).then_some(list.0))
}

fn options<'a>(args: &[&'a str]) -> Result<Options<'a>, String> {
    let mut o = Options::default();
    let mut it = args.iter().copied();
    while let Some(a) = it.next() {
        let mut value = || it.next().ok_or_else(|| format!("Missing argument for option {a}"));
        match a {
            "--names" => o.names = true,
            "--no-names" => o.names = false,
            "-generate" | "--generate" => o.generate = true,
            "--l7" => o.l7 = Some(from_hex(value()?).ok_or("Trailing garbage in packet data")?),
            "--l7-len" => {
                let text = value()?;
                let n = if text.starts_with('-') { usize::MAX } else { text.parse().unwrap_or(0) };
                if n > MAX_L7 {
                    return Err(format!("{text}: too much L7 data"));
                }
                o.l7 = Some((0..n).map(|i| i as u8).collect());
            }
            // Nothing is tracked, so that no connection's state comes back; but it must make sense.
            "--ct-next" => check_ct_state(value()?)?,
            s if s.starts_with('-') && s.len() > 1 => return Err(format!("{s}: unknown option")),
            s => o.plain.push(s),
        }
    }
    Ok(o)
}

/// The states in which a connection can be.
fn check_ct_state(text: &str) -> Result<(), String> {
    let mut state = 0;
    for word in text.split([',', ' ']).filter(|w| !w.is_empty()) {
        let bit = CT_STATES.iter().find(|(_, n)| *n == word);
        state |= bit.ok_or_else(|| format!("{word}: unknown connection tracking state flag"))?.0;
    }
    let has = |bits: u16| state & bits == bits;
    let names: Vec<&str> = CT_STATES.iter().filter(|(b, _)| has(*b)).map(|(_, n)| *n).collect();
    let wrong = [
        (!has(cs::TRK) && state != 0, "If \"trk\" is unset, no other flags are set"),
        (has(cs::INV) && state & !(cs::INV | cs::TRK) != 0, "when \"inv\" is set, only \"trk\" may also be set"),
        (has(cs::NEW | cs::EST), "\"new\" and \"est\" are mutually exclusive"),
        (has(cs::NEW | cs::RPL), "\"new\" and \"rpy\" are mutually exclusive"),
    ];
    let told: Vec<String> = wrong
        .iter()
        .filter(|(is, _)| *is)
        .map(|(_, why)| format!("{}: invalid connection state: {why}", names.join("|")))
        .collect();
    if told.is_empty() { Ok(()) } else { Err(told.join("\n")) }
}

const CT_STATES: [(u16, &str); 8] = [
    (cs::NEW, "new"),
    (cs::EST, "est"),
    (cs::REL, "rel"),
    (cs::RPL, "rpl"),
    (cs::INV, "inv"),
    (cs::TRK, "trk"),
    (cs::SNAT, "snat"),
    (cs::DNAT, "dnat"),
];

fn subject(c: &mut Ctx, args: &[&str]) -> Result<Subject, String> {
    let Options { names, generate, l7, mut plain } = options(args)?;
    let mut packet = None;
    let given = match plain.len() {
        3 => plain.pop(),
        // Without a bridge the packet follows the flow; a bridge's flow is no hexadecimal number.
        2 if from_hex(plain[1]).is_some_and(|b| b.len() >= 14) => plain.pop(),
        _ => None,
    };
    if let Some(text) = given {
        if generate {
            return Err("Syntax error".into());
        }
        let bytes = from_hex(text).ok_or("Trailing garbage in packet data")?;
        if bytes.len() < 14 {
            return Err("Packet data too short for Ethernet".into());
        }
        packet = Some(bytes);
    }
    let (bridge, mut key) = match &plain[..] {
        [flow] => odp_subject(c, None, flow)?,
        [first, flow] if c.engine.bridges.contains_key(*first) => {
            let b = c.bridge(first)?;
            let lookup = |n: &str| of_port_lookup(b, n);
            let view = b.of.view();
            let key = fv_flow::text::parse_exact_flow_in(flow, Some(&lookup), view.tun_options.layout())
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
            let bytes = match l7 {
                Some(data) => fv_flow::compose::compose_data(&key.dp, &data),
                None => fv_flow::compose::compose(&key.dp, fv_flow::compose::DEFAULT_PAYLOAD),
            };
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
    let dp_port = p.key.base.in_port;
    let (mut id, port) = view.origin(&p.key).ok_or_else(|| {
        match p.key.tun.dst != 0 || p.key.tun.ipv6_dst != [0; 16] || port_is_tunnel(i, dp_port) {
            true => "no OpenFlow tunnel port for this packet".to_string(),
            false => format!("no OpenFlow port for datapath port {dp_port}"),
        }
    })?;
    if let recirc @ 1.. = p.key.base.recirc_id {
        // The packet goes on in the bridge that sent it round.
        let state = i.slowpath.frozen.find(fv_core::RecircId(recirc));
        id = state.ok_or_else(|| format!("no recirculation data for recirc_id {recirc:#x}"))?.bridge;
    }
    let name = c.engine.bridge_by_id(id).map(|b| b.of.name().to_string()).ok_or("Invalid datapath flow")?;
    let mut key = FlowKey { dp: p.key, ..FlowKey::default() };
    key.dp.base.in_port = port.0;
    let options = view.bridge(id).map(|b| b.tun_options.clone()).unwrap_or_default();
    options.receive(&mut key).map_err(|_| "Failed to parse Geneve options".to_string())?;
    Ok((name, key))
}

fn port_is_tunnel(i: &crate::datapaths::DpInst, dp_port: u32) -> bool {
    i.tunnels.endpoints.has_dp_port(dp_port)
}

fn run(c: &mut Ctx, s: Subject, actions: Option<Vec<Action>>) -> fv_core::Reply {
    let now = c.engine.clock.now();
    let b = c.bridge(&s.bridge)?;
    let i = c.dp_of(b)?;
    let (view, slowpath) = (i.view.load_full(), i.slowpath.clone());
    let freeze = |f| slowpath.frozen.freeze(f);
    let frozen = slowpath.frozen.find(fv_core::RecircId(s.key.base.recirc_id));
    let start = match (&actions, &frozen) {
        (Some(list), _) => Start::Actions(list),
        (None, Some(state)) => Start::Thaw(state),
        (None, None) if s.key.base.recirc_id != 0 => Start::Lost,
        (None, None) => Start::Tables,
    };
    let out = fv_xlate::translate(&Input {
        view: &view,
        bridge: frozen.as_ref().map_or(b.of.id(), |f| f.bridge),
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
    let view = b.of.view();
    let layout = view.tun_options.layout();
    let mut t = format!("Flow: {}\n", format_flow_in(&s.key, layout, of_names));
    t.push_str(&fv_xlate::trace::format(&out.trace));
    let same = out.flow == s.key;
    let mut last = out.flow;
    last.pipe.actset_output = s.key.pipe.actset_output;
    let last = if same { "unchanged".to_string() } else { format_flow_in(&last, layout, of_names) };
    t.push_str(&format!("\nFinal flow: {last}\n"));
    let m = Match { key: out.mask.apply(&s.key), mask: out.mask, layout: *layout };
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
