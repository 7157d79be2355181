//! Text of OpenFlow matches and flows: `tcp,in_port=1,nw_dst=10.0.0.0/8,tp_dst=80`.

mod format;
mod parse;
#[cfg(test)]
mod tests;
mod value;

pub use format::{Style, format_flow, format_flow_in, format_match};
pub use parse::{
    KEYWORDS, Keyword, keyword, parse_exact_flow, parse_exact_flow_in, parse_field, parse_match, parse_match_in, usable,
};
pub use value::{format_field, parse_field_value};

use fv_core::ids::OfPort;

/// Names of OpenFlow ports, to print.
pub type PortNames<'a> = &'a dyn Fn(OfPort) -> Option<String>;
/// Ports by name, to parse.
pub type PortLookup<'a> = &'a dyn Fn(&str) -> Option<OfPort>;

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TextError {
    #[error("unknown keyword {0}")]
    UnknownKeyword(String),
    #[error("unknown field {0}")]
    UnknownField(String),
    #[error("field {0} missing value")]
    MissingValue(String),
    #[error("{0}: invalid IP address")]
    Ip(String),
    #[error("{text}: IPv{version} network prefix bits not between 0 and {max}, inclusive")]
    Prefix { text: String, version: u8, max: u32 },
    #[error("{0}: invalid IPv6 address")]
    Ipv6(String),
    #[error("{0}: invalid Ethernet address")]
    Mac(String),
    #[error("{0}: invalid or unknown port for {1}")]
    Port(String, &'static str),
    #[error("{text}: value too large for {n_bytes}-byte field {field}")]
    TooLarge { text: String, n_bytes: usize, field: &'static str },
    #[error("{0}: invalid mask for field {1}")]
    Mask(String, &'static str),
    #[error("{0}: bad syntax for {1} value")]
    Syntax(String, &'static str),
    #[error("{0}: unknown {1} flag(s)")]
    Flags(String, &'static str),
    #[error("{0}: Each {1} flag can be specified only once")]
    FlagTwice(String, &'static str),
    #[error("{0}: unknown fragment type (valid types are \"no\", \"yes\", \"first\", \"later\", \"not_later\"")]
    Frag(String),
    #[error("{0}: bad syntax for packet type missing '{1}'")]
    PacketType(String, char),
    #[error("bad value for {0} ({1})")]
    BadValue(&'static str, String),
    #[error("{0} is not mapped to an option")]
    NotMapped(&'static str),
    #[error("field {0} set multiple times")]
    Twice(&'static str),
    #[error("Ethernet type set multiple times")]
    TypeTwice,
    #[error("network protocol set multiple times")]
    ProtoTwice,
    #[error("prerequisites not met for setting {0}")]
    Prerequisites(String),
}

const PORTS: [(&str, OfPort); 9] = [
    ("IN_PORT", OfPort::IN_PORT),
    ("TABLE", OfPort::TABLE),
    ("NORMAL", OfPort::NORMAL),
    ("FLOOD", OfPort::FLOOD),
    ("ALL", OfPort::ALL),
    ("CONTROLLER", OfPort::CONTROLLER),
    ("LOCAL", OfPort::LOCAL),
    ("ANY", OfPort::NONE),
    ("UNSET", OfPort::UNSET),
];

/// A port's number, the name of a reserved one, or the name that `names` knows (quoted if it could
/// be taken for something else).
pub fn port_text(port: OfPort, names: Option<PortNames>) -> String {
    if let Some((n, _)) = PORTS.iter().find(|(_, p)| *p == port) {
        return (*n).to_owned();
    }
    match names.and_then(|f| f(port)) {
        Some(n)
            if n.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && n.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
                && !PORTS.iter().any(|(r, _)| r.eq_ignore_ascii_case(&n)) =>
        {
            n
        }
        Some(n) => format!("\"{n}\""),
        None => port.to_u16().map_or(port.0, u32::from).to_string(),
    }
}

/// A decimal number in the 16-bit or the 32-bit form, a reserved name in any case, or a name that
/// `lookup` knows.
pub fn parse_port(s: &str, lookup: Option<PortLookup>) -> Option<OfPort> {
    if !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit()) {
        let n: u32 = s.parse().ok()?;
        return match u16::try_from(n) {
            Ok(n) => Some(OfPort::from_u16(n)),
            Err(_) if n >= OfPort::MAX.0 => Some(OfPort(n)),
            Err(_) => None,
        };
    }
    let bare = s.strip_prefix('"').and_then(|s| s.strip_suffix('"')).unwrap_or(s);
    if let Some(p) = lookup.and_then(|f| f(bare)) {
        return Some(p);
    }
    if s.eq_ignore_ascii_case("none") {
        return Some(OfPort::NONE);
    }
    PORTS.iter().find(|(n, _)| n.eq_ignore_ascii_case(s)).map(|(_, p)| *p)
}
