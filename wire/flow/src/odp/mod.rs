//! Text of datapath flows: `recirc_id(0),in_port(1),eth_type(0x0800),ipv4(frag=no)`.

mod format;
pub mod geneve;
mod parse;
mod parse_attr;
#[cfg(test)]
mod tests;

pub use format::{Names, format, format_mac};
pub use parse::{Fit, OdpError, Parsed, parse};
pub(crate) use parse_attr::one_mac;

/// Bit names of `tcp_flags`, the least significant first.
pub const TCP_FLAGS: [&str; 12] =
    ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]"];
/// Bit names of `ct_state`.
pub const CT_STATES: [&str; 8] = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];
/// Bit names of the tunnel's flags.
pub const TUN_FLAGS: [&str; 4] = ["oam", "df", "csum", "key"];

/// `syn|ack`; `0` for none.
pub fn flags_text(names: &[&str], flags: u32) -> String {
    let mut out: Vec<String> =
        names.iter().enumerate().filter(|(n, _)| flags >> n & 1 != 0).map(|(_, s)| s.to_string()).collect();
    let unknown = u64::from(flags) >> names.len() << names.len();
    if unknown != 0 {
        out.push(format!("{unknown:#x}"));
    }
    if out.is_empty() { "0".into() } else { out.join("|") }
}

/// `+syn-ack` for the bits of `mask`; as [`flags_text`] if `mask` is `all`; `0/0` if it is empty.
pub fn masked_flags_text(names: &[&str], flags: u32, mask: u32, all: u32) -> String {
    if mask == all {
        return flags_text(names, flags);
    }
    if mask == 0 {
        return "0/0".into();
    }
    let mut out = String::new();
    for n in (0..32).filter(|n| mask >> n & 1 != 0) {
        out.push(if flags >> n & 1 != 0 { '+' } else { '-' });
        match names.get(n) {
            Some(s) => out.push_str(s),
            None => out.push_str(&format!("[{:x}]", 1u64 << n)),
        }
    }
    out
}

/// The inverse of [`flags_text`] and [`masked_flags_text`], and numbers with an optional mask.
/// None if it is neither.
pub fn parse_flags(names: &[&str], s: &str, all: u32) -> Option<(u32, u32)> {
    let bit = |name: &str| names.iter().position(|n| *n == name).map(|n| 1u32 << n);
    if s.starts_with(['+', '-']) {
        let (mut flags, mut mask) = (0, 0);
        let mut rest = s;
        while let Some(sign) = rest.chars().next() {
            let body = rest.strip_prefix(['+', '-'])?;
            let end = body.find(['+', '-']).unwrap_or(body.len());
            let b = bit(&body[..end])?;
            if mask & b != 0 {
                return None;
            }
            mask |= b;
            flags |= if sign == '+' { b } else { 0 };
            rest = &body[end..];
        }
        return Some((flags, mask));
    }
    if s.starts_with(|c: char| c.is_ascii_digit()) {
        let (v, m) = match s.split_once('/') {
            Some((v, m)) => (number(v)?, number(m)?),
            None => (number(s)?, all.into()),
        };
        return Some((u32::try_from(v).ok()?, u32::try_from(m).ok()?));
    }
    if s.is_empty() {
        return Some((0, all));
    }
    s.split('|').try_fold(0, |v, name| Some(v | bit(name)?)).map(|v| (v, all))
}

/// Decimal, or hexadecimal behind `0x`.
pub fn number(s: &str) -> Option<u128> {
    match s.strip_prefix("0x").or_else(|| s.strip_prefix("0X")) {
        Some(h) if !h.is_empty() && h.bytes().all(|b| b.is_ascii_hexdigit()) => u128::from_str_radix(h, 16).ok(),
        Some(_) => None,
        None if !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit()) => s.parse().ok(),
        None => None,
    }
}

/// An IPv6 address as inet_ntop(3) writes it: IPv4-compatible ones end in dotted quads.
pub fn format_ip6(v: u128) -> String {
    if v >> 32 == 0 && v >> 16 != 0 {
        return format!("::{}", std::net::Ipv4Addr::from(v as u32));
    }
    std::net::Ipv6Addr::from(v).to_string()
}

/// `0x1f`, but `0` for zero.
pub fn hex(v: u128) -> String {
    if v == 0 { "0".into() } else { format!("{v:#x}") }
}
