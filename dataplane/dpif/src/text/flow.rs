//! A flow on one line, as dumps print it and as `add-flow` takes it.

use std::sync::Arc;

use fv_core::Nanos;
use fv_flow::odp;

use super::{Names, Ports, TextError, format_actions, parse_actions};
use crate::action::Program;
use crate::flow::{FlowDump, FlowPut, FlowStats};

/// How much of a flow is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowText {
    /// `-m`: ufid, fields that are not matched, where the flow is.
    pub more: bool,
}

/// `key, packets:N, bytes:N, used:1.234s, flags:S., actions:...`.
pub fn format_flow(flow: &FlowDump, now: Nanos, how: FlowText, names: Option<Names>) -> String {
    let mut out = String::new();
    if how.more {
        out.push_str(&format!("ufid:{}, ", flow.ufid));
    }
    out.push_str(&odp::format(&flow.key, Some(&flow.mask), how.more, names));
    out.push_str(&stats_text(&flow.stats, now));
    if how.more {
        if flow.offloaded {
            out.push_str(if flow.layer == "ovs" { ", offloaded:partial" } else { ", offloaded:yes" });
        }
        out.push_str(&format!(", dp:{}", flow.layer));
    }
    out.push_str(", actions:");
    out.push_str(&format_actions(&flow.program.actions, names));
    out
}

fn stats_text(stats: &FlowStats, now: Nanos) -> String {
    let used = match stats.used {
        Some(used) => {
            let ms = now.ms().saturating_sub(used.ms());
            format!("{}.{:03}s", ms / 1000, ms % 1000)
        }
        None => "never".into(),
    };
    let flags = match stats.tcp_flags {
        0 => String::new(),
        flags => format!(", flags:{}", tcp_flags(flags)),
    };
    format!(", packets:{}, bytes:{}, used:{used}{flags}", stats.packets, stats.bytes)
}

/// A letter a flag, and a dot for ACK.
fn tcp_flags(flags: u16) -> String {
    const LETTERS: [(u16, &str); 12] = [
        (0x002, "S"),
        (0x001, "F"),
        (0x008, "P"),
        (0x004, "R"),
        (0x020, "U"),
        (0x010, "."),
        (0x040, "E"),
        (0x080, "C"),
        (0x100, "N"),
        (0x200, "[200]"),
        (0x400, "[400]"),
        (0x800, "[800]"),
    ];
    LETTERS.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, c)| *c).collect()
}

/// A flow to create, from the two arguments of `add-flow`.
pub fn parse_flow(key: &str, actions: &str, ports: Ports) -> Result<FlowPut, TextError> {
    let mut parsed = odp::parse(key, ports)?;
    // Always matched, mentioned or not.
    parsed.mask.0.base.recirc_id = u32::MAX;
    if parsed.mask.0.base.in_port != u32::MAX {
        return Err(TextError::InPort);
    }
    let program = Arc::new(Program::new(parse_actions(actions, ports)?));
    Ok(FlowPut {
        key: parsed.key,
        mask: parsed.mask,
        program,
        ufid: parsed.ufid,
        create: true,
        modify: false,
        worker: None,
    })
}
