//! Flow monitors as text.

use super::Names;
use super::format::{format_actions, hex};
use crate::msg::flow::{FlowRemovedReason, GROUP_ANY, TABLE_ALL};
use crate::msg::monitor::*;
use fv_core::OfPort;
use fv_flow::Match;
use fv_flow::text::{Style, format_match};
use std::fmt::Write;

/// `id=0 flags=initial,add`, and what narrows the flows.
pub(super) fn requests(all: &[MonitorRequest]) -> String {
    all.iter().map(request).collect()
}

fn request(m: &MonitorRequest) -> String {
    let names = [
        (MonitorFlags::INITIAL, "initial"),
        (MonitorFlags::ADD, "add"),
        (MonitorFlags::DELETE, "delete"),
        (MonitorFlags::MODIFY, "modify"),
        (MonitorFlags::ACTIONS, "actions"),
        (MonitorFlags::OWN, "own"),
    ];
    if m.command == MonitorCommand::Delete {
        return format!("\n id={} command=delete", m.id);
    }
    let flags: Vec<&str> = names.iter().filter(|(b, _)| m.flags.has(*b)).map(|(_, n)| *n).collect();
    let mut s = format!("\n id={} flags={}", m.id, flags.join(","));
    if m.out_port != OfPort::NONE {
        let _ = write!(s, " out_port={}", Names::default().port(m.out_port));
    }
    if m.out_group != GROUP_ANY {
        let _ = write!(s, " out_group={}", m.out_group);
    }
    if m.table != TABLE_ALL {
        let _ = write!(s, " table={}", m.table);
    }
    with_match(s, &m.match_)
}

fn with_match(mut s: String, m: &Match) -> String {
    let text = format_match(m, None, Style::Rule);
    if !text.is_empty() {
        s.push(' ');
        s += &text;
    }
    s
}

pub(super) fn updates(all: &[FlowUpdate]) -> String {
    all.iter().map(update).collect()
}

fn update(u: &FlowUpdate) -> String {
    let f = match u {
        FlowUpdate::Paused => return "\n event=PAUSED".into(),
        FlowUpdate::Resumed => return "\n event=RESUMED".into(),
        FlowUpdate::Abbrev(xid) => return format!("\n event=ABBREV xid={}", hex(*xid)),
        FlowUpdate::Full(f) => f,
    };
    let mut s = String::from("\n event=");
    s += &match f.event {
        MonitorEvent::Initial => "INITIAL".to_owned(),
        MonitorEvent::Added => "ADDED".to_owned(),
        MonitorEvent::Modified => "MODIFIED".to_owned(),
        MonitorEvent::Deleted(r) => format!("DELETED reason={}", reason(r)),
    };
    let _ = write!(s, " table={}", f.table);
    for (name, v) in [("idle_timeout", f.idle_timeout_s), ("hard_timeout", f.hard_timeout_s)] {
        if v != 0 {
            let _ = write!(s, " {name}={v}");
        }
    }
    let _ = match f.cookie {
        0 => write!(s, " cookie=0"),
        c => write!(s, " cookie={c:#x}"),
    };
    s = with_match(s, &f.match_);
    if let Some(a) = f.actions.as_ref().filter(|a| !a.is_empty()) {
        let _ = write!(s, " actions={}", format_actions(a, Names::default()));
    }
    s
}

fn reason(r: FlowRemovedReason) -> &'static str {
    match r {
        FlowRemovedReason::IdleTimeout => "idle",
        FlowRemovedReason::HardTimeout => "hard",
        FlowRemovedReason::Delete => "delete",
        FlowRemovedReason::GroupDelete => "group_delete",
        FlowRemovedReason::MeterDelete => "meter_delete",
        FlowRemovedReason::Eviction => "eviction",
    }
}
