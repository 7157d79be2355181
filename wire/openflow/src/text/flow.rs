//! Flows as text: `table=0, priority=10,tcp actions=output:1`.

use super::format::{format_actions, hex};
use super::parse::{Error, parse_actions};
use super::{Lookups, Names, scan};
use crate::msg::flow::{DEFAULT_PRIORITY, FlowMod, FlowModFlags, FlowStats, TABLE_ALL};
use fv_core::OfPort;
use fv_flow::Match;
use fv_flow::field::Protocols;
use fv_flow::text::{Style, format_match, parse_match};

/// `priority=10,tcp,tp_dst=80`; the default priority goes without saying, one that is not is
/// followed by a comma even before an empty match.
pub fn format_match_flow(m: &Match, priority: u16, names: Names) -> String {
    let text = format_match(m, names.ports, Style::Rule);
    match priority {
        DEFAULT_PRIORITY => text,
        p if text.is_empty() => format!("priority={p}"),
        p => format!("priority={p},{text}"),
    }
}

/// Whole seconds without decimals, milliseconds if they are exact: `5s`, `5.250s`.
pub(super) fn duration(s: u32, ns: u32) -> String {
    match ns {
        0 => format!("{s}s"),
        _ if ns.is_multiple_of(1_000_000) => format!("{s}.{:03}s", ns / 1_000_000),
        _ => format!("{s}.{ns:09}s"),
    }
}

/// One line of `ovs-ofctl dump-flows`, without its leading space.
pub fn format_flow_stats(f: &FlowStats, names: Names, show_age: bool) -> String {
    let mut t = format!(
        "cookie={:#x}, duration={}, table={}, ",
        f.cookie,
        duration(f.duration_s, f.duration_ns),
        names.table(f.table)
    );
    for (name, v) in [("n_packets", f.packets), ("n_bytes", f.bytes)] {
        if v != u64::MAX {
            t += &format!("{name}={v}, ");
        }
    }
    for (name, v) in
        [("idle_timeout", f.idle_timeout_s), ("hard_timeout", f.hard_timeout_s), ("importance", f.importance)]
    {
        if v != 0 {
            t += &format!("{name}={v}, ");
        }
    }
    t += &flags(f.flags);
    if show_age {
        if let Some(a) = f.idle_age_s {
            t += &format!("idle_age={a}, ");
        }
        if let Some(a) = f.hard_age_s.filter(|a| u32::from(*a) != f.duration_s) {
            t += &format!("hard_age={a}, ");
        }
    }
    let m = format_match_flow(&f.match_, f.priority, names);
    t += &m;
    if !m.is_empty() {
        t.push(' ');
    }
    t + "actions=" + &format_actions(&f.actions, names)
}

pub(super) fn flags(f: FlowModFlags) -> String {
    let words = [
        (FlowModFlags::SEND_FLOW_REM, "send_flow_rem "),
        (FlowModFlags::CHECK_OVERLAP, "check_overlap "),
        (FlowModFlags::RESET_COUNTS, "reset_counts "),
        (FlowModFlags::NO_PKT_COUNTS, "no_packet_counts "),
        (FlowModFlags::NO_BYT_COUNTS, "no_byte_counts "),
    ];
    words.iter().filter(|(b, _)| f.has(*b)).map(|(_, w)| *w).collect()
}

/// A flow from text, and which protocols can carry its match.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParsedFlow {
    pub flow: FlowMod,
    pub usable: Protocols,
}

/// `table=1,priority=10,tcp,tp_dst=80,actions=output:2`. Without `actions=` there are none.
pub fn parse_flow(s: &str, names: Lookups) -> Result<ParsedFlow, Error> {
    let (head, actions) = match s.find("action") {
        // `action=` and `actions=` both; a space or a comma may stand before.
        Some(i) => match s[i..].split_once('=') {
            Some(("action" | "actions", a)) => (&s[..i], Some(a)),
            _ => (s, None),
        },
        None => (s, None),
    };
    let mut f = FlowMod { table: TABLE_ALL, ..FlowMod::default() };
    let mut rest = Vec::new();
    for i in scan::items(head)? {
        let v = i.value;
        match i.key {
            "table" => f.table = names.table(v).ok_or_else(|| Error::text(format!("unknown table \"{v}\"")))?,
            "priority" => f.priority = scan::u16(v, "priority")?,
            "idle_timeout" => f.idle_timeout_s = scan::u16(v, "idle_timeout")?,
            "hard_timeout" => f.hard_timeout_s = scan::u16(v, "hard_timeout")?,
            "importance" => f.importance = scan::u16(v, "importance")?,
            "cookie" => match v.split_once('/') {
                Some((c, m)) => {
                    f.cookie_mask = if m == "-1" { u64::MAX } else { scan::u64(m, "cookie mask")? };
                    f.cookie = scan::u64(c, "cookie")? & f.cookie_mask;
                }
                None => f.new_cookie = scan::u64(v, "cookie")?,
            },
            "out_port" => f.out_port = port(v, names)?,
            "out_group" => f.out_group = scan::u32(v, "out_group")?,
            "send_flow_rem" => f.flags = f.flags.with(FlowModFlags::SEND_FLOW_REM),
            "check_overlap" => f.flags = f.flags.with(FlowModFlags::CHECK_OVERLAP),
            "reset_counts" => f.flags = f.flags.with(FlowModFlags::RESET_COUNTS),
            "no_packet_counts" => f.flags = f.flags.with(FlowModFlags::NO_PKT_COUNTS),
            "no_byte_counts" => f.flags = f.flags.with(FlowModFlags::NO_BYT_COUNTS),
            // What a dump says of a flow's past.
            "duration" | "n_packets" | "n_bytes" | "idle_age" | "hard_age" => {}
            k if v.is_empty() => rest.push(k.to_owned()),
            k => rest.push(format!("{k}={v}")),
        }
    }
    let (match_, usable) = parse_match(&rest.join(","), names.ports).map_err(|e| Error::text(e.to_string()))?;
    f.match_ = match_;
    f.actions = actions.map(|a| parse_actions(a, names)).transpose()?.unwrap_or_default();
    Ok(ParsedFlow { flow: f, usable })
}

fn port(s: &str, names: Lookups) -> Result<OfPort, Error> {
    names.port(s).ok_or_else(|| Error::text(format!("{s} is not a valid OpenFlow port")))
}

/// A flow-mod as logs show it.
pub(super) fn format_flow_mod(f: &FlowMod, names: Names) -> String {
    use crate::msg::FlowModCommand::*;
    let mut t = match f.command {
        Add => "ADD",
        Modify => "MOD",
        ModifyStrict => "MOD_STRICT",
        Delete => "DEL",
        DeleteStrict => "DEL_STRICT",
    }
    .to_owned();
    if f.table != TABLE_ALL && f.table != 0 {
        t += &format!(" table:{}", f.table);
    }
    let m = format_match_flow(&f.match_, f.priority, names);
    if !m.is_empty() {
        t += &format!(" {m}");
    }
    if f.new_cookie != 0 && f.new_cookie != u64::MAX {
        t += &format!(" cookie:{}", hex(f.new_cookie));
    }
    if f.cookie_mask != 0 {
        t += &format!(" cookie:{}/{}", hex(f.cookie), hex(f.cookie_mask));
    }
    if f.idle_timeout_s != 0 {
        t += &format!(" idle:{}", f.idle_timeout_s);
    }
    if f.hard_timeout_s != 0 {
        t += &format!(" hard:{}", f.hard_timeout_s);
    }
    if f.importance != 0 {
        t += &format!(" importance:{}", f.importance);
    }
    if f.buffer_id != crate::msg::flow::NO_BUFFER {
        t += &format!(" buf:{:#x}", f.buffer_id);
    }
    if f.out_port != OfPort::NONE {
        t += &format!(" out_port:{}", names.port(f.out_port));
    }
    let flags = flags(f.flags);
    if !flags.is_empty() {
        t += &format!(" {}", flags.trim_end());
    }
    format!("{t} actions={}", format_actions(&f.actions, names))
}

/// One line of `bridge/dump-flows`. Table 0 goes without saying.
pub fn format_bridge_flow(f: &FlowStats, names: Names) -> String {
    let table = if f.table == 0 { String::new() } else { format!("table_id={}, ", f.table) };
    format!(
        "{table}duration={}s, n_packets={}, n_bytes={}, {},actions={}",
        f.duration_s,
        f.packets,
        f.bytes,
        format_match_flow(&f.match_, f.priority, names),
        format_actions(&f.actions, names)
    )
}
