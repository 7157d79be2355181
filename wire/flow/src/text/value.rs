//! Text of single fields' values and masks.

use super::{PortLookup, PortNames, TextError, parse_port, port_text};
use crate::field::{DL_VLAN_NONE, Field, FieldValue, Format, Maskable};
use crate::key::{FRAG_ANY, FRAG_LATER};
use crate::odp::{CT_STATES, TCP_FLAGS, TUN_FLAGS, format_ip6, format_mac, hex, masked_flags_text, number};
use fv_core::ids::OfPort;
use std::net::{Ipv4Addr, Ipv6Addr};

const FRAGS: [(&str, u8, u8); 5] = [
    ("no", 0, FRAG_ANY | FRAG_LATER),
    ("yes", FRAG_ANY, FRAG_ANY),
    ("first", FRAG_ANY, FRAG_ANY | FRAG_LATER),
    ("later", FRAG_ANY | FRAG_LATER, FRAG_ANY | FRAG_LATER),
    ("not_later", 0, FRAG_LATER),
];

/// The number of leading ones, if `m` is nothing else.
fn prefix_len(m: u128, bits: u32) -> Option<u32> {
    let m = m << (128 - bits);
    (m.leading_ones() + m.trailing_zeros() >= 128).then_some(m.leading_ones())
}

/// `10.0.0.0/8`, `10.0.0.1`, `10.0.0.1/255.0.0.255`.
pub(super) fn ip4(v: u32, m: u32) -> String {
    let a = Ipv4Addr::from(v);
    match prefix_len(m.into(), 32) {
        Some(32) => a.to_string(),
        Some(n) => format!("{a}/{n}"),
        None => format!("{a}/{}", Ipv4Addr::from(m)),
    }
}

pub(super) fn ip6(v: u128, m: u128) -> String {
    let a = format_ip6(v);
    match prefix_len(m, 128) {
        Some(128) => a,
        Some(n) => format!("{a}/{n}"),
        None => format!("{a}/{}", format_ip6(m)),
    }
}

pub(super) fn mac(v: u128, m: u128) -> String {
    let text = |v: u128| format_mac(&v.to_be_bytes()[10..]);
    if m == (1 << 48) - 1 { text(v) } else { format!("{}/{}", text(v), text(m)) }
}

/// The name of a fragment match; None for a value that no name has.
pub(super) fn frag(v: u8, m: u8) -> Option<&'static str> {
    match m & (FRAG_ANY | FRAG_LATER) {
        0 => None,
        // A mask of one bit has two names for its two values.
        FRAG_ANY => Some(if v & FRAG_ANY != 0 { "yes" } else { "no" }),
        FRAG_LATER => Some(if v & FRAG_LATER != 0 { "later" } else { "not_later" }),
        _ => FRAGS.iter().find(|(_, fv, fm)| *fv == v && *fm == 3).map(|(n, ..)| *n).or(Some("<error>")),
    }
}

/// A field's value, with its mask if that is not exact, as in `set_field:VALUE->FIELD`.
pub fn format_field(f: Field, v: &FieldValue, mask: Option<&FieldValue>, names: Option<PortNames>) -> String {
    let exact = f.mask_bits();
    if f.tun_option().is_some() {
        let mask = mask.filter(|m| **m & exact != exact);
        return mask.map_or_else(|| v.hex(), |m| format!("{}/{}", v.hex(), m.hex()));
    }
    let exact = exact.0;
    let m = mask.map_or(exact, |m| m.0 & exact);
    if m == 0 {
        return "ANY".into();
    }
    let plain = |text: String| if m == exact { text } else { format!("{text}/{}", hex(m)) };
    let v = v.0;
    match f.info().format {
        Format::Decimal => plain(v.to_string()),
        Format::Hex => plain(hex(v)),
        Format::Mac => mac(v, m),
        Format::Ipv4 => ip4(v as u32, m as u32),
        Format::Ipv6 => ip6(v, m),
        Format::CtState => masked_flags_text(&CT_STATES, v as u32, m as u32, exact as u32),
        Format::TcpFlags => masked_flags_text(&TCP_FLAGS, v as u32, m as u32, exact as u32),
        Format::TunFlags => masked_flags_text(&TUN_FLAGS, v as u32, m as u32, u32::MAX),
        Format::OfPort10 => port_text(OfPort::from_u16(v as u16), names),
        Format::OfPort => port_text(OfPort(v as u32), names),
        Format::Frag => frag(v as u8, m as u8).unwrap_or("<error>").to_owned(),
        Format::PacketType => plain(format!("({},{})", v >> 16, hex(v & 0xffff))),
    }
}

/// A field's value and mask from text. `*` and the empty text match everything.
pub fn parse_field_value(f: Field, s: &str, lookup: Option<PortLookup>) -> Result<(FieldValue, FieldValue), TextError> {
    let s = s.trim();
    if s.is_empty() || s == "*" {
        return Ok((FieldValue::ZERO, FieldValue::ZERO));
    }
    if f.tun_option().is_some() {
        return option(f, s);
    }
    let exact = f.mask_bits().0;
    let (v, m) = match f.info().format {
        Format::Decimal | Format::Hex => integer(f, s)?,
        Format::Mac => masked(s, (1 << 48) - 1, |s| {
            let m = crate::odp::one_mac(s)?;
            Some(FieldValue::from_be_bytes(&m).0)
        })
        .ok_or_else(|| TextError::Mac(s.into()))?,
        Format::Ipv4 => address(s, 32, 4, &|s| s.parse::<Ipv4Addr>().ok().map(|a| u32::from(a).into()))
            .map_err(|e| e.unwrap_or_else(|| TextError::Ip(s.into())))?,
        Format::Ipv6 => address(s, 128, 6, &|s| s.parse::<Ipv6Addr>().ok().map(u128::from))
            .map_err(|e| e.unwrap_or_else(|| TextError::Ipv6(s.into())))?,
        Format::CtState => flags(s, &CT_STATES, 0xff, exact, "ct_state")?,
        Format::TcpFlags => flags(s, &TCP_FLAGS, 0xfff, exact, "TCP")?,
        Format::TunFlags => flags(s, &TUN_FLAGS[..1], 1, exact, "tunnel")?,
        Format::OfPort10 => {
            let p = parse_port(s, lookup).and_then(OfPort::to_u16);
            (p.ok_or_else(|| TextError::Port(s.into(), f.name()))?.into(), exact)
        }
        Format::OfPort => {
            let p = parse_port(s, lookup).ok_or_else(|| TextError::Port(s.into(), f.name()))?;
            (p.0.into(), exact)
        }
        Format::Frag => {
            let n = FRAGS.iter().find(|(n, ..)| *n == s).ok_or_else(|| TextError::Frag(s.into()))?;
            (n.1.into(), n.2.into())
        }
        Format::PacketType => (packet_type(s)?, exact),
    };
    if m != 0 && m & exact != exact && f.info().maskable == Maskable::Exact {
        return Err(TextError::Mask(s.into(), f.name()));
    }
    if f == Field::DlVlan && v == DL_VLAN_NONE.into() {
        return Ok((FieldValue::new(v), f.mask_bits()));
    }
    Ok((FieldValue::new(v & m), FieldValue::new(m)))
}

/// `value` or `value/mask`, both read by `one`.
fn masked(s: &str, exact: u128, one: impl Fn(&str) -> Option<u128>) -> Option<(u128, u128)> {
    match s.split_once('/') {
        Some((v, m)) => Some((one(v)?, one(m)?)),
        None => Some((one(s)?, exact)),
    }
}

/// The value of a tunnel's option: as wide as the option is.
fn option(f: Field, s: &str) -> Result<(FieldValue, FieldValue), TextError> {
    let one = |t: &str| {
        let v = FieldValue::parse(t.trim()).ok_or_else(|| TextError::Syntax(s.into(), f.name()))?;
        let fits = (v & !f.mask_bits()).is_zero();
        fits.then_some(v).ok_or_else(|| TextError::TooLarge { text: s.into(), n_bytes: f.n_bytes(), field: f.name() })
    };
    match s.split_once('/') {
        Some((v, m)) => {
            let m = one(m)?;
            Ok((one(v)? & m, m))
        }
        None => Ok((one(s)?, f.mask_bits())),
    }
}

fn integer(f: Field, s: &str) -> Result<(u128, u128), TextError> {
    let n_bytes = f.n_bytes();
    let max = FieldValue::ones(8 * n_bytes as u32).0;
    let large = || TextError::TooLarge { text: s.into(), n_bytes, field: f.name() };
    let one = |t: &str| match number(t.trim()) {
        Some(v) if v <= max => Ok(v),
        Some(_) => Err(large()),
        None if t.strip_prefix("0x").unwrap_or(t).bytes().all(|b| b.is_ascii_hexdigit()) && t.len() > 32 => {
            Err(large())
        }
        None => Err(TextError::Syntax(s.into(), f.name())),
    };
    let exact = f.mask_bits().0;
    match s.split_once('/') {
        Some((v, m)) => {
            // A mask of all ones is an exact one, however many of them the field has.
            let m = one(m)?;
            Ok((one(v)?, if m == max { exact } else { m }))
        }
        None => Ok((one(s)?, exact)),
    }
}

/// `a`, `a/len`, `a/mask`. The error is None if the address itself is bad.
fn address(
    s: &str,
    bits: u32,
    version: u8,
    one: &dyn Fn(&str) -> Option<u128>,
) -> Result<(u128, u128), Option<TextError>> {
    let all = FieldValue::ones(bits).0;
    let Some((a, m)) = s.split_once('/') else { return one(s).map(|v| (v, all)).ok_or(None) };
    let v = one(a).ok_or(None)?;
    let m = match m.parse::<u32>() {
        Ok(n) if n <= bits => crate::field::prefix_mask(bits, n).0,
        Ok(_) => return Err(Some(TextError::Prefix { text: s.into(), version, max: bits })),
        Err(_) => one(m).ok_or(None)?,
    };
    Ok((v & m, m))
}

/// `+a-b`, `a|b`, or a number with an optional mask; `known` are the bits that may be asked for.
fn flags(s: &str, names: &[&str], known: u128, exact: u128, kind: &'static str) -> Result<(u128, u128), TextError> {
    if s.starts_with(|c: char| c.is_ascii_digit()) {
        let (v, m) = masked(s, exact, number).ok_or_else(|| TextError::Flags(s.into(), kind))?;
        if v & !known != 0 {
            let text = s.split('/').next().unwrap_or(s);
            return Err(TextError::Flags(text.into(), kind));
        }
        return Ok((v & m, m));
    }
    let bit = |n: &str| {
        names.iter().position(|x| *x == n).map(|b| 1u128 << b).ok_or_else(|| TextError::Flags(n.into(), kind))
    };
    if !s.starts_with(['+', '-']) {
        let v = s.split('|').try_fold(0, |v, n| Ok(v | bit(n)?))?;
        return Ok((v, exact));
    }
    let (mut v, mut m, mut rest) = (0, 0, s);
    while !rest.is_empty() {
        let (sign, body) = rest.split_at(1);
        let end = body.find(['+', '-']).unwrap_or(body.len());
        let b = bit(&body[..end])?;
        if m & b != 0 {
            return Err(TextError::FlagTwice(body[..end].into(), kind));
        }
        m |= b;
        v |= if sign == "+" { b } else { 0 };
        rest = &body[end..];
    }
    Ok((v, m))
}

/// `(ns,type)`.
fn packet_type(s: &str) -> Result<u128, TextError> {
    let inner = s.strip_prefix('(').ok_or_else(|| TextError::PacketType(s.into(), '('))?;
    let (ns, id) = inner.split_once(',').ok_or_else(|| TextError::PacketType(inner.into(), ','))?;
    let id = id.strip_suffix(')').ok_or_else(|| TextError::PacketType(id.into(), ')'))?;
    match (number(ns), number(id)) {
        (Some(n), Some(t)) if n <= 0xffff && t <= 0xffff => Ok(n << 16 | t),
        _ => Err(TextError::Syntax(s.into(), "packet type")),
    }
}
