//! `tnl_push(tnl_port(N),header(...),out_port(N))`: a prepared outer header as fields.

use std::net::{Ipv4Addr, Ipv6Addr};

use fv_flow::odp::{format_mac, hex};

use super::format::port_text;
use super::item::{Fields, Item};
use super::parse::port;
use super::{Names, Ports, TextError};
use crate::action::TunnelPush;
use crate::tunnel::TunnelKind;

/// Outer headers at most, as in the reference.
const HEADER_MAX: usize = 512;

pub fn format(push: &TunnelPush, names: Option<Names>) -> String {
    let h = &push.header;
    let header = fields(push.kind, h).unwrap_or_else(|| h.iter().map(|b| format!("{b:02x}")).collect());
    format!(
        "tnl_push(tnl_port({}),header(size={},type={},{header}),out_port({}))",
        port_text(push.tnl_port, names),
        h.len(),
        push.kind,
        port_text(push.out_port, names)
    )
}

fn be16(h: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(h.get(at..at + 2)?.try_into().ok()?))
}

fn be32(h: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(h.get(at..at + 4)?.try_into().ok()?))
}

fn v6(h: &[u8], at: usize) -> Option<Ipv6Addr> {
    Some(Ipv6Addr::from(<[u8; 16]>::try_from(h.get(at..at + 16)?).ok()?))
}

/// The headers as text, or None if they are not whole.
fn fields(kind: u32, h: &[u8]) -> Option<String> {
    let eth_type = be16(h, 12)?;
    let mut out =
        format!("eth(dst={},src={},dl_type=0x{eth_type:04x}),", format_mac(h.get(..6)?), format_mac(h.get(6..12)?));
    let l4 = if eth_type == 0x0800 {
        let (src, dst) = (Ipv4Addr::from(be32(h, 26)?), Ipv4Addr::from(be32(h, 30)?));
        let (tos, ttl, proto, frag) = (h[15], h[22], h[23], be16(h, 20)?);
        out += &format!("ipv4(src={src},dst={dst},proto={proto},tos={},ttl={ttl},frag={frag:#x}),", hex(tos.into()),);
        34
    } else {
        let first = be32(h, 14)?;
        let (src, dst) = (v6(h, 22)?, v6(h, 38)?);
        out += &format!(
            "ipv6(src={src},dst={dst},label={},proto={},tclass=0x{:x},hlimit={}),",
            first & 0xf_ffff,
            h[20],
            first >> 20 & 255,
            h[21]
        );
        54
    };
    let kind = TunnelKind::by_code(kind)?;
    let mut at = l4;
    if kind.is_udp() {
        let (src, dst, csum) = (be16(h, l4)?, be16(h, l4 + 2)?, be16(h, l4 + 6)?);
        out += &format!("udp(src={src},dst={dst},csum=0x{csum:x}),");
        at += 8;
    }
    let t = h.get(at..)?;
    let inside = match kind {
        TunnelKind::Gre | TunnelKind::Ip6Gre => gre(t)?,
        TunnelKind::Erspan | TunnelKind::Ip6Erspan => erspan(t)?,
        TunnelKind::Vxlan => vxlan(t)?,
        TunnelKind::Geneve => geneve(t)?,
        TunnelKind::Gtpu => format!("gtpu(flags={:#x},msgtype={},teid={:#x})", t.first()?, t.get(1)?, be32(t, 4)?),
        TunnelKind::Srv6 => srv6(t)?,
        TunnelKind::Bareudp => String::new(),
    };
    out += &inside;
    Some(out.trim_end_matches(',').to_owned())
}

fn erspan(t: &[u8]) -> Option<String> {
    let h = t.get(8..)?;
    let (ver, sid) = (h.first()? >> 4, be16(h, 2)? & 0x3ff);
    Some(match ver {
        1 => format!("erspan(ver=1,sid={sid:#x},idx={:#x})", be32(h, 4)? & 0xf_ffff),
        2 => {
            let word = be16(h, 10)?;
            format!("erspan(ver=2,sid={sid:#x},dir={},hwid={:#x})", word >> 3 & 1, word >> 4 & 63)
        }
        _ => return None,
    })
}

fn srv6(h: &[u8]) -> Option<String> {
    let n = usize::from(*h.get(4)?) + 1;
    let list: Option<Vec<String>> = (0..n).map(|i| Some(v6(h, 8 + 16 * i)?.to_string())).collect();
    Some(format!("srv6(segments_left={},segs({}))", h[3], list?.join(",")))
}

fn vxlan(h: &[u8]) -> Option<String> {
    Some(format!("vxlan(flags=0x{:x},vni=0x{:x})", be32(h, 0)?, be32(h, 4)? >> 8))
}

fn geneve(h: &[u8]) -> Option<String> {
    let flags = *h.get(1)?;
    let (oam, crit) = (if flags & 0x80 != 0 { "oam," } else { "" }, if flags & 0x40 != 0 { "crit," } else { "" });
    let mut out = format!("geneve({oam}{crit}vni=0x{:x}", be32(h, 4)? >> 8);
    let mut options = h.get(8..8 + usize::from(h[0] & 0x3f) * 4)?;
    if !options.is_empty() {
        out += ",options(";
        while !options.is_empty() {
            let len = usize::from(options.get(3)? & 0x1f) * 4;
            let data = options.get(4..4 + len)?;
            out += &format!("{{class={:#x},type={:#x},len={len}", be16(options, 0)?, options[2]);
            if len > 0 {
                let digits: String = data.iter().map(|b| format!("{b:02x}")).collect();
                let digits = digits.trim_start_matches('0');
                out += &format!(",0x{}", if digits.is_empty() { "0" } else { digits });
            }
            out.push('}');
            options = &options[4 + len..];
        }
        out.push(')');
    }
    out.push(')');
    Some(out)
}

fn gre(h: &[u8]) -> Option<String> {
    let (flags, proto) = (be16(h, 0)?, be16(h, 2)?);
    let mut out = format!("gre((flags=0x{flags:x},proto=0x{proto:x})");
    let mut at = 4;
    for (bit, name) in [(0x8000, "csum"), (0x2000, "key"), (0x1000, "seq")] {
        if flags & bit != 0 {
            out += &match name {
                "csum" => format!(",csum=0x{:x}", be16(h, at)?),
                "key" => format!(",key=0x{:x}", be32(h, at)?),
                _ => format!(",seq=0x{:x}", be32(h, at)?),
            };
            at += 4;
        }
    }
    out.push(')');
    Some(out)
}

pub fn parse(i: &Item, ports: Ports) -> Result<TunnelPush, TextError> {
    let mut f = Fields::new(i.inner()?);
    let port_of = |i: Item| port(i.operand()?, ports).ok_or_else(|| i.bad());
    let tnl_port = port_of(f.need("tnl_port", i.text)?)?;
    let header = f.need("header", i.text)?;
    let out_port = port_of(f.need("out_port", i.text)?)?;
    f.end()?;
    let mut h = Fields::new(header.inner()?);
    let size = h.need("size", header.text)?.number(HEADER_MAX as u128)? as usize;
    let kind = h.need("type", header.text)?.u32()?;
    let bytes = build(kind, size, &mut h, &header)?;
    h.end()?;
    if bytes.len() != size {
        return Err(header.bad());
    }
    Ok(TunnelPush { tnl_port, out_port, kind, header: bytes })
}

fn build(kind: u32, size: usize, h: &mut Fields, whole: &Item) -> Result<Vec<u8>, TextError> {
    let mut out = Vec::with_capacity(size);
    let eth = h.need("eth", whole.text)?;
    let mut f = Fields::new(eth.inner()?);
    out.extend(f.need("dst", eth.text)?.mac()?);
    out.extend(f.need("src", eth.text)?.mac()?);
    out.extend(f.need("dl_type", eth.text)?.u16()?.to_be_bytes());
    f.end()?;
    if let Some(ip) = h.take("ipv4") {
        ipv4(&mut out, &ip)?;
    } else {
        ipv6(&mut out, &h.need("ipv6", whole.text)?)?;
    }
    let kind = TunnelKind::by_code(kind).ok_or_else(|| TextError::Unsupported(whole.text.into()))?;
    if kind.is_udp() {
        let udp = h.need("udp", whole.text)?;
        let mut f = Fields::new(udp.inner()?);
        out.extend(f.need("src", udp.text)?.u16()?.to_be_bytes());
        out.extend(f.need("dst", udp.text)?.u16()?.to_be_bytes());
        out.extend([0, 0]);
        out.extend(f.need("csum", udp.text)?.u16()?.to_be_bytes());
        f.end()?;
    }
    match kind {
        TunnelKind::Vxlan => {
            let i = h.need("vxlan", whole.text)?;
            let mut f = Fields::new(i.inner()?);
            out.extend(f.need("flags", i.text)?.u32()?.to_be_bytes());
            let vni = f.need("vni", i.text)?.number(0xff_ffff)? as u32;
            out.extend((vni << 8).to_be_bytes());
            f.end()?;
        }
        TunnelKind::Geneve => build_geneve(&mut out, &h.need("geneve", whole.text)?)?,
        TunnelKind::Gre | TunnelKind::Ip6Gre => build_gre(&mut out, &h.need("gre", whole.text)?)?,
        TunnelKind::Erspan | TunnelKind::Ip6Erspan => build_erspan(&mut out, &h.need("erspan", whole.text)?)?,
        TunnelKind::Gtpu => {
            let i = h.need("gtpu", whole.text)?;
            let mut f = Fields::new(i.inner()?);
            out.extend([f.need("flags", i.text)?.u8()?, f.need("msgtype", i.text)?.u8()?, 0, 0]);
            out.extend(f.need("teid", i.text)?.u32()?.to_be_bytes());
            f.end()?;
        }
        TunnelKind::Srv6 => build_srv6(&mut out, &h.need("srv6", whole.text)?)?,
        TunnelKind::Bareudp => {}
    }
    Ok(out)
}

fn build_erspan(out: &mut Vec<u8>, i: &Item) -> Result<(), TextError> {
    let mut f = Fields::new(i.inner()?);
    let ver = f.need("ver", i.text)?.number(2)? as u8;
    let sid = f.need("sid", i.text)?.number(0x3ff)? as u16;
    let proto: u16 = if ver == 1 { 0x88be } else { 0x22eb };
    out.extend([0x10, 0]);
    out.extend(proto.to_be_bytes());
    out.extend([0, 0, 0, 0, ver << 4, 0]);
    out.extend(sid.to_be_bytes());
    match ver {
        1 => out.extend((f.need("idx", i.text)?.number(0xf_ffff)? as u32).to_be_bytes()),
        2 => {
            let dir = f.need("dir", i.text)?.number(1)? as u16;
            let hwid = f.need("hwid", i.text)?.number(63)? as u16;
            out.extend([0; 6]);
            out.extend((hwid << 4 | dir << 3 | 3 << 1).to_be_bytes());
        }
        _ => return Err(i.bad()),
    }
    f.end()
}

fn build_srv6(out: &mut Vec<u8>, i: &Item) -> Result<(), TextError> {
    let mut f = Fields::new(i.inner()?);
    let left = f.need("segments_left", i.text)?.u8()?;
    let list = f.need("segs", i.text)?;
    let body = list.body.ok_or_else(|| list.bad())?;
    let segments: Result<Vec<Ipv6Addr>, _> = body.split(',').map(str::parse).collect();
    let segments = segments.map_err(|_| list.bad())?;
    if segments.is_empty() || segments.len() > 16 {
        return Err(list.bad());
    }
    let n = segments.len() as u8;
    // What is inside the text does not tell.
    out.extend([41, 2 * n, 4, left, n - 1, 0, 0, 0]);
    segments.iter().for_each(|s| out.extend(s.octets()));
    f.end()
}

fn ipv4(out: &mut Vec<u8>, i: &Item) -> Result<(), TextError> {
    let mut f = Fields::new(i.inner()?);
    let start = out.len();
    let (src, dst) = (f.need("src", i.text)?.ip4()?, f.need("dst", i.text)?.ip4()?);
    out.extend([0x45, f.need("tos", i.text)?.u8()?, 0, 0, 0, 0]);
    out.extend(f.need("frag", i.text)?.u16()?.to_be_bytes());
    out.extend([f.need("ttl", i.text)?.u8()?, f.need("proto", i.text)?.u8()?, 0, 0]);
    out.extend(src.to_be_bytes());
    out.extend(dst.to_be_bytes());
    let csum = fv_packet::csum::of(&out[start..]);
    out[start + 10..start + 12].copy_from_slice(&csum.to_be_bytes());
    f.end()
}

fn ipv6(out: &mut Vec<u8>, i: &Item) -> Result<(), TextError> {
    let mut f = Fields::new(i.inner()?);
    let (src, dst) = (f.need("src", i.text)?.ip6()?, f.need("dst", i.text)?.ip6()?);
    let label = f.need("label", i.text)?.number(0xf_ffff)? as u32;
    let tclass = u32::from(f.need("tclass", i.text)?.u8()?);
    out.extend((6 << 28 | tclass << 20 | label).to_be_bytes());
    out.extend([0, 0, f.need("proto", i.text)?.u8()?, f.need("hlimit", i.text)?.u8()?]);
    out.extend(src);
    out.extend(dst);
    f.end()
}

fn build_geneve(out: &mut Vec<u8>, i: &Item) -> Result<(), TextError> {
    let mut f = Fields::new(i.inner()?);
    let flags = u8::from(f.flag("oam")?) << 7 | u8::from(f.flag("crit")?) << 6;
    let vni = f.need("vni", i.text)?.number(0xff_ffff)? as u32;
    let mut options = Vec::new();
    if let Some(list) = f.take("options") {
        let body = list.body.ok_or_else(|| list.bad())?;
        for text in body.split_terminator('}') {
            option(&mut options, text.trim_start_matches([',', '{'])).ok_or_else(|| list.bad())?;
        }
    }
    if options.len() > 63 * 4 {
        return Err(i.bad());
    }
    out.extend([(options.len() / 4) as u8, flags, 0x65, 0x58]);
    out.extend((vni << 8).to_be_bytes());
    out.extend(options);
    f.end()
}

/// `class=C,type=T,len=N,0xDATA`.
fn option(out: &mut Vec<u8>, text: &str) -> Option<()> {
    let number = |t: Option<&str>, name: &str| fv_flow::odp::number(t?.strip_prefix(name)?);
    let mut parts = text.split(',');
    let class = u16::try_from(number(parts.next(), "class=")?).ok()?;
    let kind = u8::try_from(number(parts.next(), "type=")?).ok()?;
    let len = number(parts.next(), "len=")? as usize;
    if !len.is_multiple_of(4) || len > 124 {
        return None;
    }
    out.extend(class.to_be_bytes());
    out.extend([kind, (len / 4) as u8]);
    let digits = parts.next().map_or(Some(""), |d| d.strip_prefix("0x"))?;
    if digits.len() > 2 * len || !digits.bytes().all(|b| b.is_ascii_hexdigit()) || parts.next().is_some() {
        return None;
    }
    let padded = format!("{digits:0>width$}", width = 2 * len);
    for at in (0..2 * len).step_by(2) {
        out.push(u8::from_str_radix(&padded[at..at + 2], 16).ok()?);
    }
    Some(())
}

fn build_gre(out: &mut Vec<u8>, i: &Item) -> Result<(), TextError> {
    // The fixed fields are an item without a name: `gre((flags=,proto=),key=)`.
    let mut f = Fields::new(i.inner()?);
    let fixed = f.need("", i.text)?;
    let mut base = Fields::new(fixed.inner()?);
    let flags = base.need("flags", i.text)?.u16()?;
    out.extend(flags.to_be_bytes());
    out.extend(base.need("proto", i.text)?.u16()?.to_be_bytes());
    base.end()?;
    if flags & 0x8000 != 0 {
        out.extend(f.need("csum", i.text)?.u16()?.to_be_bytes());
        out.extend([0, 0]);
    }
    for (bit, name) in [(0x2000, "key"), (0x1000, "seq")] {
        if flags & bit != 0 {
            out.extend(f.need(name, i.text)?.u32()?.to_be_bytes());
        }
    }
    f.end()
}
