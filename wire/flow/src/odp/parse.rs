//! Text -> [`DpKey`] and mask.

use super::parse_attr;
use crate::key::{DpKey, DpMask, eth, ipproto};
use fv_core::ids::Ufid;

/// Attributes of one flow, and nesting, are bounded by this.
const MAX_ENCAP: usize = 2;

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OdpError {
    /// What is left of the text from the attribute that cannot be understood.
    #[error("syntax error at {0}")]
    Syntax(String),
    /// The named attribute cannot stand beside the others.
    #[error("{0} does not fit the rest of the flow")]
    Unexpected(&'static str),
}

/// Whether a flow has the attributes that its own values call for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    Perfect,
    /// The named attribute is missing; what it says is zero and not matched.
    TooLittle(&'static str),
}

/// A parsed flow. What the text gives without a mask is matched exactly, what it does not mention
/// is not matched.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Parsed {
    pub key: DpKey,
    pub mask: DpMask,
    pub ufid: Option<Ufid>,
    pub fit: Fit,
}

/// Which attributes were seen, for the fit.
#[derive(Default)]
pub(super) struct Seen {
    pub names: Vec<&'static str>,
    /// EtherTypes in order: those of tags, then the innermost.
    pub types: Vec<(u16, u16)>,
    pub tags: usize,
}

/// Parses a flow, with port names looked up by `port`.
pub fn parse(text: &str, port: &dyn Fn(&str) -> Option<u32>) -> Result<Parsed, OdpError> {
    let mut p = Parsed { key: DpKey::default(), mask: DpMask::default(), ufid: None, fit: Fit::Perfect };
    let mut seen = Seen::default();
    attributes(text, port, &mut p, &mut seen, 0)?;
    finish(&mut p, &seen)?;
    Ok(p)
}

fn syntax(rest: &str) -> OdpError {
    OdpError::Syntax(rest.to_owned())
}

fn attributes(
    text: &str,
    port: &dyn Fn(&str) -> Option<u32>,
    p: &mut Parsed,
    seen: &mut Seen,
    depth: usize,
) -> Result<(), OdpError> {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([',', ' ', '\t', '\r', '\n']);
        if rest.is_empty() {
            return Ok(());
        }
        if let Some(u) = rest.strip_prefix("ufid:") {
            let end = u.find([',', ' ']).unwrap_or(u.len());
            p.ufid = Some(u[..end].parse().map_err(|()| syntax(rest))?);
            rest = &u[end..];
            continue;
        }
        let (name, body, after) = split_attribute(rest).ok_or_else(|| syntax(rest))?;
        if name == "encap" {
            if depth >= MAX_ENCAP || seen.tags != depth + 1 {
                return Err(syntax(rest));
            }
            attributes(body, port, p, seen, depth + 1)?;
        } else {
            parse_attr::attribute(name, body, port, p, seen).ok_or_else(|| syntax(rest))?;
        }
        rest = after;
    }
}

/// `name(body)` and what follows, the parentheses balanced.
fn split_attribute(s: &str) -> Option<(&str, &str, &str)> {
    let open = s.find('(')?;
    let mut level = 0usize;
    for (at, c) in s[open..].char_indices() {
        match c {
            '(' => level += 1,
            ')' => level -= 1,
            _ => {}
        }
        if level == 0 {
            let close = open + at;
            return Some((&s[..open], &s[open + 1..close], &s[close + 1..]));
        }
    }
    None
}

/// Distributes EtherTypes over tags, decides the packet type, checks which attributes belong.
fn finish(p: &mut Parsed, seen: &Seen) -> Result<(), OdpError> {
    for (n, (t, m)) in seen.types.iter().take(seen.tags).enumerate() {
        p.key.base.vlans[n].tpid = (*t).into();
        p.mask.0.base.vlans[n].tpid = (*m).into();
    }
    if seen.tags > seen.types.len() {
        return Err(OdpError::Unexpected("vlan"));
    }
    // "vlan(vid=0,pcp=0,cfi=0)" is a tag that was cut off: its TPID is the EtherType.
    let mut tags = seen.tags;
    if tags > 0 && p.key.base.vlans[tags - 1].tci == 0 {
        tags -= 1;
        (p.key.base.vlans[tags], p.mask.0.base.vlans[tags].tpid) = Default::default();
    }
    let inner = seen.types.get(tags).copied();
    let (t, m) = inner.unwrap_or((crate::key::DL_TYPE_NONE, 0xffff));
    p.key.base.dl_type = t.into();
    p.mask.0.base.dl_type = m.into();
    let has = |n: &str| seen.names.contains(&n);
    if !(has("eth") || has("packet_type") && p.key.misc.packet_type == 0) {
        if seen.tags > 0 {
            return Err(OdpError::Unexpected("vlan"));
        }
        // Without an Ethernet header it is a packet of the EtherType's namespace.
        if inner.is_some() {
            p.key.misc.packet_type = 1 << 16 | u32::from(t);
        }
    }
    check_layers(p, seen, t)
}

const L3: [&str; 5] = ["ipv4", "ipv6", "arp", "mpls", "nsh"];
const L4: [&str; 5] = ["tcp", "udp", "sctp", "icmp", "icmpv6"];

fn check_layers(p: &mut Parsed, seen: &Seen, dl_type: u16) -> Result<(), OdpError> {
    let b = &p.key.base;
    let l3 = match dl_type {
        eth::IP => "ipv4",
        eth::IPV6 => "ipv6",
        eth::ARP | eth::RARP => "arp",
        eth::MPLS | eth::MPLS_MCAST => "mpls",
        eth::NSH => "nsh",
        _ => "",
    };
    let l4 = match (b.nw_proto, dl_type) {
        (_, t) if t != eth::IP && t != eth::IPV6 => "",
        _ if b.nw_frag & crate::key::FRAG_LATER != 0 => "",
        (ipproto::TCP, _) => "tcp",
        (ipproto::UDP, _) => "udp",
        (ipproto::SCTP, _) => "sctp",
        (ipproto::ICMP, eth::IP) => "icmp",
        (ipproto::ICMPV6, eth::IPV6) => "icmpv6",
        _ => "",
    };
    for name in &seen.names {
        let ok = match *name {
            n if L3.contains(&n) => n == l3,
            n if L4.contains(&n) => n == l4,
            "tcp_flags" => l4 == "tcp",
            "nd" | "nd_ext" => l4 == "icmpv6" && matches!(b.tp_src.get(), 135 | 136) && b.tp_dst == 0,
            _ => true,
        };
        if !ok {
            return Err(OdpError::Unexpected(name));
        }
    }
    for want in [l3, l4] {
        if !want.is_empty() && !seen.names.contains(&want) {
            p.fit = Fit::TooLittle(if want == l3 { l3 } else { l4 });
            break;
        }
    }
    Ok(())
}
