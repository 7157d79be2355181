//! Text of programs and flows: `push_vlan(vid=5,pcp=0),2`, `recirc_id(0),in_port(1),..., actions:2`.
//!
//! Printing is what the reference prints; parsing takes what it prints and what it takes.

mod flow;
mod format;
mod item;
mod parse;
mod set;
mod tunnel;
mod userspace;

pub use flow::{FlowText, format_flow, parse_flow};
pub use format::format_actions;
pub use parse::parse_actions;

pub use fv_flow::odp::Names;

/// Numbers of datapath ports by name.
pub type Ports<'a> = &'a dyn Fn(&str) -> Option<u32>;

/// Why text is no program or no flow.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TextError {
    /// The part that cannot be understood.
    #[error("syntax error at {0}")]
    Syntax(String),
    /// Fine in the reference, but nothing this datapath does.
    #[error("{0}: action not supported")]
    Unsupported(String),
    #[error("{0}: actions nested too deep")]
    TooDeep(String),
    #[error("in_port is not an exact match")]
    InPort,
    #[error(transparent)]
    Key(#[from] fv_flow::odp::OdpError),
}

pub(crate) fn syntax(text: &str) -> TextError {
    TextError::Syntax(text.into())
}

#[cfg(test)]
mod tests;
