//! The fields of `set(...)`.

use std::net::{Ipv4Addr, Ipv6Addr};

use fv_flow::odp::{TUN_FLAGS, flags_text, format_mac, hex, parse_flags};

use super::format::lse_parts;
use super::item::{Fields, Item};
use super::{TextError, syntax};
use crate::action::{Masked, SetField, TunnelKey};

/// Tunnel flag: the id counts.
const TUN_KEY: u16 = 8;

/// Fields of one header: those that are written, with their mask unless that is whole.
struct Out(Vec<String>);

impl Out {
    fn put<T: PartialEq + Copy>(&mut self, name: &str, m: &Masked<T>, none: T, all: T, value: fn(T) -> String) {
        self.put_as(name, m, none, all, value, value);
    }

    fn put_as<T: PartialEq + Copy>(
        &mut self,
        name: &str,
        m: &Masked<T>,
        none: T,
        all: T,
        value: fn(T) -> String,
        mask: fn(T) -> String,
    ) {
        if m.mask == all {
            self.0.push(format!("{name}={}", value(m.value)));
        } else if m.mask != none {
            self.0.push(format!("{name}={}/{}", value(m.value), mask(m.mask)));
        }
    }

    fn mac(&mut self, name: &str, m: &Masked<[u8; 6]>) -> &mut Out {
        self.put(name, m, [0; 6], [255; 6], |v| format_mac(&v));
        self
    }

    fn ip4(&mut self, name: &str, m: &Masked<u32>) -> &mut Out {
        self.put(name, m, 0, u32::MAX, |v| Ipv4Addr::from(v).to_string());
        self
    }

    fn ip6(&mut self, name: &str, m: &Masked<[u8; 16]>) -> &mut Out {
        self.put(name, m, [0; 16], [255; 16], |v| Ipv6Addr::from(v).to_string());
        self
    }

    fn dec8(&mut self, name: &str, m: &Masked<u8>) -> &mut Out {
        self.put_as(name, m, 0, u8::MAX, |v| v.to_string(), |m| hex(m.into()));
        self
    }

    fn hex8(&mut self, name: &str, m: &Masked<u8>) -> &mut Out {
        self.put(name, m, 0, u8::MAX, |v| hex(v.into()));
        self
    }

    fn dec16(&mut self, name: &str, m: &Masked<u16>) -> &mut Out {
        self.put_as(name, m, 0, u16::MAX, |v| v.to_string(), |m| hex(m.into()));
        self
    }

    fn hex32(&mut self, name: &str, m: &Masked<u32>, all: u32) -> &mut Out {
        self.put(name, &Masked { value: m.value, mask: m.mask & all }, 0, all, |v| hex(v.into()));
        self
    }
}

pub fn format(field: &SetField) -> String {
    let mut o = Out(Vec::new());
    let name = match field {
        SetField::SkbPriority(v) => return format!("skb_priority({})", hex((*v).into())),
        SetField::SkbMark(m) if m.mask == u32::MAX => return format!("skb_mark({})", hex(m.value.into())),
        SetField::SkbMark(m) => return format!("skb_mark({}/{})", hex(m.value.into()), hex(m.mask.into())),
        SetField::Mpls { lse } => return mpls(lse),
        SetField::Tunnel(key) => return tunnel(key),
        SetField::Eth { src, dst } => {
            o.mac("src", src).mac("dst", dst);
            "eth"
        }
        SetField::Ipv4 { src, dst, tos, ttl } => {
            o.ip4("src", src).ip4("dst", dst).hex8("tos", tos).dec8("ttl", ttl);
            "ipv4"
        }
        SetField::Ipv6 { src, dst, label, tclass, hlimit } => {
            o.ip6("src", src).ip6("dst", dst).hex32("label", label, 0xf_ffff).hex8("tclass", tclass);
            o.dec8("hlimit", hlimit);
            "ipv6"
        }
        SetField::Tcp { src, dst } | SetField::Udp { src, dst } | SetField::Sctp { src, dst } => {
            o.dec16("src", src).dec16("dst", dst);
            match field {
                SetField::Tcp { .. } => "tcp",
                SetField::Udp { .. } => "udp",
                _ => "sctp",
            }
        }
        SetField::Icmp { ty, code } | SetField::Icmpv6 { ty, code } => {
            o.dec8("type", ty).dec8("code", code);
            if matches!(field, SetField::Icmp { .. }) { "icmp" } else { "icmpv6" }
        }
        SetField::Arp { sip, tip, op, sha, tha } => {
            o.ip4("sip", sip).ip4("tip", tip).dec16("op", op).mac("sha", sha).mac("tha", tha);
            "arp"
        }
        SetField::Nd { target, sll, tll } => {
            o.ip6("target", target).mac("sll", sll).mac("tll", tll);
            "nd"
        }
        SetField::NdExt { reserved, options_type } => {
            o.hex32("nd_reserved", reserved, u32::MAX).dec8("nd_options_type", options_type);
            "nd_ext"
        }
    };
    format!("{name}({})", o.0.join(","))
}

fn mpls(lse: &Masked<u32>) -> String {
    let (label, tc, ttl, bos) = lse_parts(lse.value);
    if lse.mask == u32::MAX {
        return format!("mpls(label={label},tc={tc},ttl={ttl},bos={bos})");
    }
    let (lm, tm, hm, bm) = lse_parts(lse.mask);
    format!("mpls(label={label}/0x{lm:x},tc={tc}/{tm:x},ttl={ttl}/0x{hm:x},bos={bos}/{bm:x})")
}

fn tunnel(k: &TunnelKey) -> String {
    let mut o = Vec::new();
    if k.flags & TUN_KEY != 0 || k.id != 0 {
        o.push(format!("tun_id={:#x}", k.id));
    }
    for (name, ip) in [("src", k.src), ("dst", k.dst)] {
        if ip != 0 {
            o.push(format!("{name}={}", Ipv4Addr::from(ip)));
        }
    }
    for (name, ip) in [("ipv6_src", k.ipv6_src), ("ipv6_dst", k.ipv6_dst)] {
        if ip != [0; 16] {
            o.push(format!("{name}={}", Ipv6Addr::from(ip)));
        }
    }
    if k.tos != 0 {
        o.push(format!("tos={:#x}", k.tos));
    }
    if k.ttl != 0 {
        o.push(format!("ttl={}", k.ttl));
    }
    for (name, port) in [("tp_src", k.tp_src), ("tp_dst", k.tp_dst)] {
        if port != 0 {
            o.push(format!("{name}={port}"));
        }
    }
    if k.gbp_id != 0 || k.gbp_flags != 0 {
        o.push(format!("vxlan(gbp(id={},flags={:#x}))", k.gbp_id, k.gbp_flags));
    }
    match k.erspan_ver {
        0 => {}
        1 => o.push(format!("erspan(ver=1,idx={:#x})", k.erspan_idx)),
        v => o.push(format!("erspan(ver={v},dir={},hwid={:#x})", k.erspan_dir, k.erspan_hwid)),
    }
    if k.flags != 0 {
        o.push(format!("flags({})", flags_text(&TUN_FLAGS, k.flags.into())));
    }
    format!("tunnel({})", o.join(","))
}

/// `set(name(fields))`.
pub fn parse(whole: &Item) -> Result<SetField, TextError> {
    let inner = whole.inner()?;
    let [i] = inner.as_slice() else { return Err(whole.bad()) };
    match i.name {
        "skb_priority" => return i.u32().map(SetField::SkbPriority),
        "skb_mark" => return i.masked_u32().map(SetField::SkbMark),
        _ => {}
    }
    let mut f = Fields::new(i.inner()?);
    let field = header(i, &mut f)?;
    f.end()?;
    Ok(field)
}

fn header(i: &Item, f: &mut Fields) -> Result<SetField, TextError> {
    Ok(match i.name {
        "eth" => SetField::Eth { src: f.get("src", Item::masked_mac)?, dst: f.get("dst", Item::masked_mac)? },
        "ipv4" => {
            // Part of the attribute, but never written.
            let _ = (f.take("proto"), f.take("frag"));
            SetField::Ipv4 {
                src: f.get("src", Item::masked_ip4)?,
                dst: f.get("dst", Item::masked_ip4)?,
                tos: f.get("tos", Item::masked_u8)?,
                ttl: f.get("ttl", Item::masked_u8)?,
            }
        }
        "ipv6" => {
            let _ = (f.take("proto"), f.take("frag"));
            SetField::Ipv6 {
                src: f.get("src", Item::masked_ip6)?,
                dst: f.get("dst", Item::masked_ip6)?,
                label: f.get("label", label)?,
                tclass: f.get("tclass", Item::masked_u8)?,
                hlimit: f.get("hlimit", Item::masked_u8)?,
            }
        }
        "tcp" | "udp" | "sctp" => {
            let (src, dst) = (f.get("src", Item::masked_u16)?, f.get("dst", Item::masked_u16)?);
            match i.name {
                "tcp" => SetField::Tcp { src, dst },
                "udp" => SetField::Udp { src, dst },
                _ => SetField::Sctp { src, dst },
            }
        }
        "icmp" | "icmpv6" => {
            let (ty, code) = (f.get("type", Item::masked_u8)?, f.get("code", Item::masked_u8)?);
            if i.name == "icmp" { SetField::Icmp { ty, code } } else { SetField::Icmpv6 { ty, code } }
        }
        "arp" => SetField::Arp {
            sip: f.get("sip", Item::masked_ip4)?,
            tip: f.get("tip", Item::masked_ip4)?,
            op: f.get("op", Item::masked_u16)?,
            sha: f.get("sha", Item::masked_mac)?,
            tha: f.get("tha", Item::masked_mac)?,
        },
        "nd" => SetField::Nd {
            target: f.get("target", Item::masked_ip6)?,
            sll: f.get("sll", Item::masked_mac)?,
            tll: f.get("tll", Item::masked_mac)?,
        },
        "nd_ext" => SetField::NdExt {
            reserved: f.get("nd_reserved", Item::masked_u32)?,
            options_type: f.get("nd_options_type", Item::masked_u8)?,
        },
        "mpls" => SetField::Mpls { lse: masked_lse(f)? },
        "tunnel" => SetField::Tunnel(Box::new(tunnel_key(f)?)),
        "vlan" | "in_port" | "eth_type" | "nsh" => return Err(TextError::Unsupported(i.text.into())),
        _ => return Err(i.bad()),
    })
}

fn label(i: &Item) -> Result<Masked<u32>, TextError> {
    let m = i.masked_u32()?;
    if m.value > 0xf_ffff {
        return Err(i.bad());
    }
    Ok(Masked { value: m.value, mask: m.mask & 0xf_ffff })
}

fn masked_lse(f: &mut Fields) -> Result<Masked<u32>, TextError> {
    let mut out = Masked::default();
    for (name, shift, max) in [("label", 12, 0xf_ffff), ("tc", 9, 7), ("ttl", 0, 255), ("bos", 8, 1)] {
        let Some(i) = f.take(name) else { continue };
        let m = i.masked_u32()?;
        if m.value > max {
            return Err(i.bad());
        }
        out.value |= m.value << shift;
        out.mask |= (m.mask & max) << shift;
    }
    Ok(out)
}

fn tunnel_key(f: &mut Fields) -> Result<TunnelKey, TextError> {
    let mut k = TunnelKey {
        id: f.get("tun_id", Item::u64)?,
        src: f.get("src", Item::ip4)?,
        dst: f.get("dst", Item::ip4)?,
        ipv6_src: f.get("ipv6_src", Item::ip6)?,
        ipv6_dst: f.get("ipv6_dst", Item::ip6)?,
        tos: f.get("tos", Item::u8)?,
        ttl: f.get("ttl", Item::u8)?,
        tp_src: f.get("tp_src", Item::u16)?,
        tp_dst: f.get("tp_dst", Item::u16)?,
        ..TunnelKey::default()
    };
    if let Some(i) = f.take("flags") {
        let text = i.body.ok_or_else(|| i.bad())?;
        let flags = if text.is_empty() { Some((0, 0)) } else { parse_flags(&TUN_FLAGS, text, u16::MAX.into()) };
        k.flags = flags.and_then(|(v, _)| u16::try_from(v).ok()).ok_or_else(|| syntax(i.text))?;
    }
    if let Some(vxlan) = f.take("vxlan") {
        let mut gbp = Fields::new(Fields::new(vxlan.inner()?).need("gbp", vxlan.text)?.inner()?);
        k.gbp_id = gbp.get("id", Item::u16)?;
        k.gbp_flags = gbp.get("flags", Item::u8)?;
        gbp.end()?;
    }
    if let Some(i) = f.take("erspan") {
        let mut e = Fields::new(i.inner()?);
        k.erspan_ver = e.get("ver", Item::u8)?;
        k.erspan_idx = e.get("idx", Item::u32)?;
        k.erspan_dir = e.get("dir", Item::u8)?;
        k.erspan_hwid = e.get("hwid", Item::u8)?;
        e.end()?;
    }
    for other in ["geneve", "gtpu"] {
        if let Some(i) = f.take(other) {
            return Err(TextError::Unsupported(i.text.into()));
        }
    }
    Ok(k)
}
