//! Actions, flows and messages as text: what `ovs-ofctl`, `bridge/dump-flows` and the logs show.

mod flow;
mod format;
mod group;
mod learn;
mod message;
mod monitor;
mod parse;
mod parse_ct;
mod scan;

pub use flow::{ParsedFlow, format_bridge_flow, format_flow_stats, format_match_flow, parse_flow};
pub use format::{format_action, format_actions, format_subfield};
pub use group::{format_group_desc, format_meter_config};
pub use message::log_line;
pub use parse::{Error as ActionTextError, parse_actions, parse_subfield};

use fv_flow::text::{PortLookup, PortNames};

/// Names to print instead of numbers.
#[derive(Clone, Copy, Default)]
pub struct Names<'a> {
    pub ports: Option<PortNames<'a>>,
    pub tables: Option<&'a dyn Fn(u8) -> Option<String>>,
}

/// Names to accept where numbers stand.
#[derive(Clone, Copy, Default)]
pub struct Lookups<'a> {
    pub ports: Option<PortLookup<'a>>,
    pub tables: Option<&'a dyn Fn(&str) -> Option<u8>>,
}

impl Names<'_> {
    pub(crate) fn table(&self, t: u8) -> String {
        self.tables.and_then(|f| f(t)).unwrap_or_else(|| t.to_string())
    }
    pub(crate) fn port(&self, p: fv_core::OfPort) -> String {
        fv_flow::text::port_text(p, self.ports)
    }
}

impl Lookups<'_> {
    pub(crate) fn table(&self, s: &str) -> Option<u8> {
        self.tables.and_then(|f| f(s)).or_else(|| scan::number(s).and_then(|n| u8::try_from(n).ok()))
    }
    pub(crate) fn port(&self, s: &str) -> Option<fv_core::OfPort> {
        fv_flow::text::parse_port(s, self.ports)
    }
}
