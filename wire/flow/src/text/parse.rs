//! Lists of `key=value` as matches and as exact flows.

use super::{PortLookup, TextError, parse_field_value};
use crate::field::{Field, FieldValue, Prereq, Protocols, TunLayout};
use crate::key::{FlowKey, Match, eth, ipproto};

/// A protocol's abbreviation: EtherType and IP protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keyword {
    pub name: &'static str,
    pub dl_type: u16,
    pub nw_proto: Option<u8>,
}

const fn word(name: &'static str, dl_type: u16, nw_proto: Option<u8>) -> Keyword {
    Keyword { name, dl_type, nw_proto }
}

pub const KEYWORDS: [Keyword; 14] = [
    word("ip", eth::IP, None),
    word("ipv4", eth::IP, None),
    word("ip4", eth::IP, None),
    word("arp", eth::ARP, None),
    word("icmp", eth::IP, Some(ipproto::ICMP)),
    word("tcp", eth::IP, Some(ipproto::TCP)),
    word("udp", eth::IP, Some(ipproto::UDP)),
    word("sctp", eth::IP, Some(ipproto::SCTP)),
    word("ipv6", eth::IPV6, None),
    word("tcp6", eth::IPV6, Some(ipproto::TCP)),
    word("udp6", eth::IPV6, Some(ipproto::UDP)),
    word("sctp6", eth::IPV6, Some(ipproto::SCTP)),
    word("icmp6", eth::IPV6, Some(ipproto::ICMPV6)),
    word("rarp", eth::RARP, None),
];
const MORE: [Keyword; 3] =
    [word("ip6", eth::IPV6, None), word("mpls", eth::MPLS, None), word("mplsm", eth::MPLS_MCAST, None)];

/// The protocol that `name` abbreviates.
pub fn keyword(name: &str) -> Option<Keyword> {
    KEYWORDS.iter().chain(&MORE).find(|k| k.name == name).copied()
}

/// Protocols that can carry the field under this mask.
pub fn usable(f: Field, mask: &FieldValue) -> Protocols {
    let u = f.info().usable;
    let bits = f.n_bits();
    if f.tun_option().is_some() {
        return u.exact;
    }
    if mask.0 == 0 {
        return Protocols::ANY;
    }
    if mask.0 & f.mask_bits().0 == f.mask_bits().0 {
        return u.exact;
    }
    let shifted = mask.0 << (128 - bits);
    if shifted.leading_ones() + shifted.trailing_zeros() >= 128 { u.cidr } else { u.bitwise }
}

/// `key[=value]` pairs separated by commas or white space; a value may be in parentheses.
fn pairs(s: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let mut rest = s;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches([',', ' ', '\t', '\r', '\n']);
        if rest.is_empty() {
            return None;
        }
        let mut level = 0i32;
        let end = rest
            .char_indices()
            .find(|(_, c)| {
                level += match c {
                    '(' => 1,
                    ')' => -1,
                    _ => 0,
                };
                level <= 0 && matches!(c, ',' | ' ' | '\t' | '\r' | '\n')
            })
            .map_or(rest.len(), |(at, _)| at);
        let (one, after) = rest.split_at(end);
        rest = after;
        Some(match one.split_once('=') {
            Some((k, v)) => (k, Some(v)),
            None => (one, None),
        })
    })
}

/// Adds one field to a match. Returns which protocols can carry it.
pub fn parse_field(m: &mut Match, f: Field, value: &str, ports: Option<PortLookup>) -> Result<Protocols, TextError> {
    let (v, mask) = parse_field_value(f, value, ports)?;
    m.set_field_masked(f, &v, &mask);
    Ok(usable(f, &mask))
}

/// A match, and the protocols that can carry it. Keywords that belong to flows rather than matches
/// (`priority`, `actions`) are the caller's to take out first.
///
/// Options of tunnels get places that only this match knows.
pub fn parse_match(s: &str, ports: Option<PortLookup>) -> Result<(Match, Protocols), TextError> {
    parse_match_in(s, ports, None)
}

/// As [`parse_match`] with a bridge's table of tunnel options.
pub fn parse_match_in(
    s: &str,
    ports: Option<PortLookup>,
    layout: Option<&TunLayout>,
) -> Result<(Match, Protocols), TextError> {
    let mut m = Match { layout: layout.copied().unwrap_or_default(), ..Match::default() };
    let mut protocols = Protocols::ANY;
    // A field that lives in Ethernet frames says that the packet is one.
    let mut in_frame = false;
    for (name, value) in pairs(s) {
        if name == "eth" && value.is_none() {
            m.set(Field::PacketType, 0);
        } else if let Some(k) = keyword(name) {
            in_frame = true;
            m.set_dl_type(k.dl_type);
            if let Some(p) = k.nw_proto {
                m.set_nw_proto(p);
            }
        } else if let Some(f) = Field::by_name(name) {
            in_frame |= !matches!(f.info().prereq, Prereq::None | Prereq::Ct);
            let f = place(&mut m, f, value.unwrap_or(""), layout.is_none())?;
            protocols &= parse_field(&mut m, f, value.unwrap_or(""), ports)?;
        } else {
            return Err(match value {
                Some(_) => TextError::UnknownKeyword(name.into()),
                None => TextError::MissingValue(name.into()),
            });
        }
    }
    let b = &m.mask.0.base;
    if m.key.base.dl_type == eth::IPV6 && (b.nw_proto, b.nw_tos, b.nw_ttl) != (0, 0, 0) {
        // The fixed matches of OpenFlow 1.0 and 1.1 know these of IPv4 alone.
        protocols &= Protocols::NXM_OXM;
    }
    if in_frame {
        m.set_default_packet_type();
    }
    Ok((m, protocols))
}

/// The field with its place, if it is an option of a tunnel's header; a new place if it `may` have one.
fn place(m: &mut Match, f: Field, value: &str, may: bool) -> Result<Field, TextError> {
    let Some(o) = f.tun_option() else { return Ok(f) };
    if may && m.layout.option(o.index()).is_none() {
        let (v, mask) = parse_field_value(f, value, None)?;
        let used = if mask == f.mask_bits() { v } else { v | mask };
        m.layout.add(o.index(), used.n_bits().div_ceil(32).max(1) as u8 * 4);
    }
    m.layout.bind(f).ok_or(TextError::NotMapped(f.name()))
}

/// The field that an alias means in a flow of this protocol (`tp_dst` of UDP, `icmp_type` of ICMPv6).
fn in_protocol(f: Field, key: &FlowKey) -> Field {
    use Field::*;
    let same = match f {
        TcpSrc | UdpSrc | SctpSrc => [TcpSrc, UdpSrc, SctpSrc],
        TcpDst | UdpDst | SctpDst => [TcpDst, UdpDst, SctpDst],
        Icmpv4Type => [Icmpv4Type, Icmpv6Type, Icmpv4Type],
        Icmpv4Code => [Icmpv4Code, Icmpv6Code, Icmpv4Code],
        f => [f; 3],
    };
    same.into_iter().find(|f| f.prerequisites_met(key)).unwrap_or(f)
}

/// The flow of one packet: no masks, each field once, prerequisites before what needs them.
pub fn parse_exact_flow(s: &str, ports: Option<PortLookup>) -> Result<FlowKey, TextError> {
    parse_exact_flow_in(s, ports, &TunLayout::default())
}

/// The same with a bridge's table of tunnel options.
pub fn parse_exact_flow_in(s: &str, ports: Option<PortLookup>, layout: &TunLayout) -> Result<FlowKey, TextError> {
    let mut key = FlowKey::default();
    let mut seen = Match::default();
    key.base.in_port = 0;
    for (name, value) in pairs(s) {
        if name == "eth" && value.is_none() {
            continue;
        }
        if let Some(k) = keyword(name) {
            if seen.mask.0.base.dl_type != 0 {
                return Err(TextError::TypeTwice);
            }
            key.base.dl_type = k.dl_type.into();
            seen.set_dl_type(k.dl_type);
            if let Some(p) = k.nw_proto {
                if seen.mask.0.base.nw_proto != 0 {
                    return Err(TextError::ProtoTwice);
                }
                key.base.nw_proto = p;
                seen.set_nw_proto(p);
            }
            continue;
        }
        let f = Field::by_name(name).ok_or_else(|| TextError::UnknownField(name.into()))?;
        let f = layout.bind(f).ok_or(TextError::NotMapped(f.name()))?;
        if !in_protocol(f, &key).prerequisites_met(&key) {
            return Err(TextError::Prerequisites(name.into()));
        }
        if !f.is_all_wild(&seen.mask) && !matches!(f, Field::VlanPcp | Field::DlVlanPcp | Field::DlVlan) {
            return Err(TextError::Twice(f.name()));
        }
        let text = value.unwrap_or("");
        let (v, mask) = parse_field_value(f, text, ports).map_err(|e| TextError::BadValue(f.name(), e.to_string()))?;
        let exact = mask & f.mask_bits() == f.mask_bits();
        if !exact && f != Field::IpFrag {
            return Err(TextError::BadValue(f.name(), format!("{text}: wildcards not allowed here")));
        }
        f.set(&mut key, &v);
        seen.set_field(f, &v);
    }
    if key.base.in_port == 0 {
        key.base.in_port = fv_core::ids::OfPort::NONE.0;
    }
    if key.misc.packet_type != 0 {
        // As extraction does with a packet that has no Ethernet header.
        key.base.dl_type = key.l3_type().into();
    }
    Ok(key)
}
