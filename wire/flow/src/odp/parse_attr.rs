//! One attribute of a datapath flow's text.

use super::parse::{Parsed, Seen};
use super::{CT_STATES, TCP_FLAGS, TUN_FLAGS, number, parse_flags};
use crate::key::{FRAG_ANY, FRAG_LATER, N_MPLS, VLAN_CFI, VLAN_VID_MASK, tunf};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Attributes that may be given.
const NAMES: [&str; 31] = [
    "recirc_id",
    "dp_hash",
    "skb_priority",
    "tunnel",
    "in_port",
    "skb_mark",
    "ct_state",
    "ct_zone",
    "ct_mark",
    "ct_label",
    "ct_tuple4",
    "ct_tuple6",
    "packet_type",
    "eth",
    "eth_type",
    "vlan",
    "ipv4",
    "ipv6",
    "arp",
    "mpls",
    "nsh",
    "tcp",
    "tcp_flags",
    "udp",
    "sctp",
    "icmp",
    "icmpv6",
    "nd",
    "nd_ext",
    "geneve",
    "encap",
];

/// `k=v` fields separated by commas, parentheses and braces balanced.
fn fields(body: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = body;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches([',', ' ']);
        if rest.is_empty() {
            return None;
        }
        let mut level = 0i32;
        let end = rest
            .char_indices()
            .find(|(_, c)| {
                level += match c {
                    '(' | '{' => 1,
                    ')' | '}' => -1,
                    _ => 0,
                };
                *c == ',' && level == 0
            })
            .map_or(rest.len(), |(at, _)| at);
        let (one, after) = rest.split_at(end);
        rest = after;
        Some(match (one.find('='), one.find('(')) {
            (Some(eq), paren) if paren.is_none_or(|p| eq < p) => (&one[..eq], &one[eq + 1..]),
            (_, Some(p)) if one.ends_with(')') => (&one[..p], &one[p + 1..one.len() - 1]),
            _ => (one, ""),
        })
    })
}

/// A number of at most `bits` bits and its mask.
fn int(s: &str, bits: u32) -> Option<(u128, u128)> {
    let all = crate::field::FieldValue::ones(bits).0;
    let (v, m) = match s.split_once('/') {
        Some((v, m)) => (number(v)?, number(m)?),
        None => (number(s)?, all),
    };
    (v <= all && m <= all).then_some((v, m))
}

macro_rules! ints {
    ($($f:ident $t:ty),+) => {$(
        fn $f(s: &str) -> Option<($t, $t)> {
            let (v, m) = int(s, <$t>::BITS)?;
            Some((v as $t, m as $t))
        }
    )+};
}
ints!(u8s u8, u16s u16, u32s u32);

fn ip4(s: &str) -> Option<(u32, u32)> {
    let one = |s: &str| s.parse::<Ipv4Addr>().ok().map(u32::from);
    match s.split_once('/') {
        Some((v, m)) => Some((one(v)?, one(m)?)),
        None => Some((one(s)?, u32::MAX)),
    }
}

fn ip6(s: &str) -> Option<([u8; 16], [u8; 16])> {
    let one = |s: &str| s.parse::<Ipv6Addr>().ok().map(u128::from);
    let (v, m) = match s.split_once('/') {
        Some((v, m)) => (one(v)?, one(m)?),
        None => (one(s)?, u128::MAX),
    };
    Some((v.to_be_bytes(), m.to_be_bytes()))
}

/// `aa:bb:cc:dd:ee:ff`.
pub(crate) fn one_mac(s: &str) -> Option<[u8; 6]> {
    let mut out = [0; 6];
    let mut parts = s.split(':');
    for b in &mut out {
        let p = parts.next().filter(|p| (1..=2).contains(&p.len()))?;
        *b = u8::from_str_radix(p, 16).ok()?;
    }
    parts.next().is_none().then_some(out)
}

fn mac(s: &str) -> Option<([u8; 6], [u8; 6])> {
    let (v, m) = match s.split_once('/') {
        Some((v, m)) => (one_mac(v)?, one_mac(m)?),
        None => (one_mac(s)?, [0xff; 6]),
    };
    Some((v, m))
}

fn frag(s: &str) -> Option<(u8, u8)> {
    let v = match s {
        "no" => 0,
        "first" => FRAG_ANY,
        "later" => FRAG_ANY | FRAG_LATER,
        _ => return None,
    };
    Some((v, FRAG_ANY | FRAG_LATER))
}

/// `(slot of key, slot of mask) = (value, mask)`, into whatever integer type the slots have.
macro_rules! put {
    ($p:ident . $($f:ident).+ = $v:expr) => {{
        let (v, m) = $v?;
        $p.key.$($f).+ = v.into();
        $p.mask.0.$($f).+ = m.into();
    }};
}

pub(super) fn attribute(
    name: &str,
    body: &str,
    port: &dyn Fn(&str) -> Option<u32>,
    p: &mut Parsed,
    seen: &mut Seen,
) -> Option<()> {
    let name = NAMES.iter().find(|n| **n == name)?;
    match *name {
        "recirc_id" => put!(p.base.recirc_id = exact(body)),
        "dp_hash" => put!(p.base.dp_hash = u32s(body)),
        "skb_priority" => put!(p.misc.skb_priority = u32s(body)),
        "skb_mark" => put!(p.base.pkt_mark = u32s(body)),
        "ct_zone" => put!(p.base.ct_zone = u16s(body)),
        "ct_mark" => put!(p.base.ct_mark = u32s(body)),
        "ct_label" => {
            let (v, m) = int(body, 128)?;
            (p.key.ct.label, p.mask.0.ct.label) = (v.to_be_bytes(), m.to_be_bytes());
        }
        "ct_state" => {
            let (v, m) = parse_flags(&CT_STATES, body, 0xff)?;
            put!(p.base.ct_state = Some(((v & m) as u16, m as u16)));
        }
        "in_port" => put!(p.base.in_port = in_port(body, port)),
        "tunnel" => tunnel(body, p)?,
        "ct_tuple4" | "ct_tuple6" => ct_tuple(body, p)?,
        "packet_type" => packet_type(body, p)?,
        "eth_type" => seen.types.push(u16s(body)?),
        "vlan" => vlan(body, p, seen)?,
        "eth" => {
            for (k, v) in fields(body) {
                match k {
                    "src" => put!(p.base.dl_src = mac(v)),
                    "dst" => put!(p.base.dl_dst = mac(v)),
                    _ => return None,
                }
            }
        }
        "mpls" => mpls(body, p)?,
        "nsh" => nsh(body, p)?,
        "ipv4" | "ipv6" | "arp" => layer3(name, body, p)?,
        _ => layer4(name, body, p)?,
    }
    seen.names.push(name);
    Some(())
}

fn exact(s: &str) -> Option<(u32, u32)> {
    u32s(s).filter(|(_, m)| *m == u32::MAX && !s.contains('/'))
}

fn in_port(s: &str, port: &dyn Fn(&str) -> Option<u32>) -> Option<(u32, u32)> {
    if s.starts_with(|c: char| c.is_ascii_digit()) && u32s(s).is_some() {
        return u32s(s);
    }
    Some((port(s)?, u32::MAX))
}

fn packet_type(body: &str, p: &mut Parsed) -> Option<()> {
    let (mut v, mut m) = (0, 0);
    for (k, s) in fields(body) {
        let (shift, (a, b)) = match k {
            "ns" => (16, u16s(s)?),
            "id" => (0, u16s(s)?),
            _ => return None,
        };
        v |= u32::from(a) << shift;
        m |= u32::from(b) << shift;
    }
    put!(p.misc.packet_type = Some((v, m)));
    Some(())
}

fn vlan(body: &str, p: &mut Parsed, seen: &mut Seen) -> Option<()> {
    let (mut tci, mut mask) = (VLAN_CFI, VLAN_CFI);
    for (k, s) in fields(body) {
        match (k, int(s, 12)?) {
            ("vid", (v, m)) => {
                tci |= v as u16 & VLAN_VID_MASK;
                mask |= m as u16 & VLAN_VID_MASK;
            }
            ("pcp", (v, m)) if v <= 7 => {
                tci |= (v as u16) << 13;
                mask |= (m as u16 & 7) << 13;
            }
            ("cfi", (v, _)) if v <= 1 => tci = tci & !VLAN_CFI | (v as u16) << 12,
            _ => return None,
        }
    }
    let n = seen.tags;
    p.key.base.vlans.get_mut(n)?.tci = tci.into();
    p.mask.0.base.vlans[n].tci = mask.into();
    seen.tags += 1;
    Some(())
}

fn ct_tuple(body: &str, p: &mut Parsed) -> Option<()> {
    for (k, v) in fields(body) {
        match k {
            "src" if v.contains(':') => put!(p.ct.ipv6_src = ip6(v)),
            "dst" if v.contains(':') => put!(p.ct.ipv6_dst = ip6(v)),
            "src" => put!(p.ct.nw_src = ip4(v)),
            "dst" => put!(p.ct.nw_dst = ip4(v)),
            "proto" => put!(p.ct.nw_proto = u8s(v)),
            "tp_src" | "src_port" => put!(p.ct.tp_src = u16s(v)),
            "tp_dst" | "dst_port" => put!(p.ct.tp_dst = u16s(v)),
            _ => return None,
        }
    }
    Some(())
}

fn tunnel(body: &str, p: &mut Parsed) -> Option<()> {
    for (k, v) in fields(body) {
        match k {
            "tun_id" => {
                let (v, m) = int(v, 64)?;
                put!(p.tun.id = Some((v as u64, m as u64)));
                p.key.tun.flags |= tunf::KEY;
                p.mask.0.tun.flags |= tunf::KEY;
            }
            "src" => put!(p.tun.src = ip4(v)),
            "dst" => put!(p.tun.dst = ip4(v)),
            "ipv6_src" => put!(p.tun.ipv6_src = ip6(v)),
            "ipv6_dst" => put!(p.tun.ipv6_dst = ip6(v)),
            "tos" => put!(p.tun.tos = u8s(v)),
            "ttl" => put!(p.tun.ttl = u8s(v)),
            "tp_src" => put!(p.tun.tp_src = u16s(v)),
            "tp_dst" => put!(p.tun.tp_dst = u16s(v)),
            "flags" => {
                let all = tunf::OAM | tunf::DONT_FRAGMENT | tunf::CSUM | tunf::KEY;
                let (v, m) = parse_flags(&TUN_FLAGS, v, all.into())?;
                p.key.tun.flags |= (v & m) as u16;
                p.mask.0.tun.flags |= m as u16;
            }
            "vxlan" => gbp(v, p)?,
            "erspan" => erspan(v, p)?,
            "geneve" => super::geneve::parse(v, &mut p.key, &mut p.mask.0)?,
            "gtpu" => {
                for (k, v) in fields(v) {
                    match k {
                        "flags" => put!(p.misc.gtpu_flags = u8s(v)),
                        "msgtype" => put!(p.misc.gtpu_msgtype = u8s(v)),
                        _ => return None,
                    }
                }
            }
            _ => return None,
        }
    }
    Some(())
}

fn gbp(body: &str, p: &mut Parsed) -> Option<()> {
    let (name, inner) = fields(body).next()?;
    if name != "gbp" {
        return None;
    }
    for (k, v) in fields(inner) {
        match k {
            "id" => put!(p.tun.gbp_id = u16s(v)),
            "flags" => put!(p.tun.gbp_flags = u8s(v)),
            _ => return None,
        }
    }
    Some(())
}

fn erspan(body: &str, p: &mut Parsed) -> Option<()> {
    for (k, v) in fields(body) {
        match k {
            "ver" => put!(p.tun.erspan_ver = u8s(v)),
            "idx" => put!(p.tun.erspan_idx = u32s(v)),
            "dir" => put!(p.misc.erspan_dir = u8s(v)),
            "hwid" => put!(p.misc.erspan_hwid = u8s(v)),
            _ => return None,
        }
    }
    Some(())
}

fn mpls(body: &str, p: &mut Parsed) -> Option<()> {
    let mut n = 0;
    let mut first = true;
    for (k, s) in fields(body) {
        if k == "label" && !first {
            n += 1;
        }
        first = false;
        if n >= N_MPLS {
            return None;
        }
        let (shift, bits) = match k {
            "label" => (12, 20),
            "tc" => (9, 3),
            "ttl" => (0, 8),
            "bos" => (8, 1),
            _ => return None,
        };
        let (v, m) = int(s, bits)?;
        let (key, mask) = (&mut p.key.misc.mpls_lse[n], &mut p.mask.0.misc.mpls_lse[n]);
        *key = (key.get() | (v as u32) << shift).into();
        *mask = (mask.get() | (m as u32) << shift).into();
    }
    Some(())
}

fn nsh(body: &str, p: &mut Parsed) -> Option<()> {
    for (k, s) in fields(body) {
        match k {
            "flags" => put!(p.misc.nsh_flags = u8s(s)),
            "ttl" => put!(p.misc.nsh_ttl = u8s(s)),
            "mdtype" => put!(p.misc.nsh_mdtype = u8s(s)),
            "np" => put!(p.misc.nsh_np = u8s(s)),
            "spi" | "si" => {
                let (shift, bits) = if k == "spi" { (8, 24) } else { (0, 8) };
                let (v, m) = int(s, bits)?;
                let (key, mask) = (&mut p.key.misc.nsh_path_hdr, &mut p.mask.0.misc.nsh_path_hdr);
                *key = (key.get() | (v as u32) << shift).into();
                *mask = (mask.get() | (m as u32) << shift).into();
            }
            "c1" | "c2" | "c3" | "c4" => {
                let n = usize::from(k.as_bytes()[1] - b'1');
                let (v, m) = u32s(s)?;
                p.key.misc.nsh_context[n] = v.into();
                p.mask.0.misc.nsh_context[n] = m.into();
            }
            _ => return None,
        }
    }
    Some(())
}

fn layer3(name: &str, body: &str, p: &mut Parsed) -> Option<()> {
    for (k, v) in fields(body) {
        match (name, k) {
            ("ipv4", "src") | ("arp", "sip") => put!(p.base.nw_src = ip4(v)),
            ("ipv4", "dst") | ("arp", "tip") => put!(p.base.nw_dst = ip4(v)),
            ("ipv6", "src") => put!(p.v6.ipv6_src = ip6(v)),
            ("ipv6", "dst") => put!(p.v6.ipv6_dst = ip6(v)),
            ("ipv6", "label") => {
                let (v, m) = int(v, 20)?;
                put!(p.v6.ipv6_label = Some((v as u32, m as u32)));
            }
            ("ipv4" | "ipv6", "proto") => put!(p.base.nw_proto = u8s(v)),
            ("ipv4", "tos") | ("ipv6", "tclass") => put!(p.base.nw_tos = u8s(v)),
            ("ipv4", "ttl") | ("ipv6", "hlimit") => put!(p.base.nw_ttl = u8s(v)),
            ("ipv4" | "ipv6", "frag") => put!(p.base.nw_frag = frag(v)),
            ("arp", "op") => {
                let (v, m) = u16s(v)?;
                put!(p.base.nw_proto = Some((u8::try_from(v).ok()?, m as u8)));
            }
            ("arp", "sha") => put!(p.v6.arp_sha = mac(v)),
            ("arp", "tha") => put!(p.v6.arp_tha = mac(v)),
            _ => return None,
        }
    }
    Some(())
}

fn layer4(name: &str, body: &str, p: &mut Parsed) -> Option<()> {
    if name == "tcp_flags" {
        let (v, m) = parse_flags(&TCP_FLAGS, body, 0xfff)?;
        put!(p.base.tcp_flags = Some(((v & m) as u16, m as u16)));
        return Some(());
    }
    // An 8-bit value in the place of a port: an exact one decides all of the place.
    let narrow = |s: &str| u8s(s).map(|(v, m)| (u16::from(v), if m == 0xff { 0xffff } else { u16::from(m) }));
    for (k, v) in fields(body) {
        match (name, k) {
            ("tcp" | "udp" | "sctp", "src") => put!(p.base.tp_src = u16s(v)),
            ("tcp" | "udp" | "sctp", "dst") => put!(p.base.tp_dst = u16s(v)),
            ("icmp" | "icmpv6", "type") => put!(p.base.tp_src = narrow(v)),
            ("icmp" | "icmpv6", "code") => put!(p.base.tp_dst = narrow(v)),
            ("nd", "target") => put!(p.v6.nd_target = ip6(v)),
            ("nd", "sll") => put!(p.v6.arp_sha = mac(v)),
            ("nd", "tll") => put!(p.v6.arp_tha = mac(v)),
            ("nd_ext", "nd_reserved") => put!(p.misc.nd_reserved = u32s(v)),
            ("nd_ext", "nd_options_type") => put!(p.misc.nd_options_type = u8s(v)),
            _ => return None,
        }
    }
    Some(())
}
