//! The outer headers of a tunnel port's packets. Lengths, checksums, the UDP source port and sequence numbers are
//! the packet's own and filled in by who pushes the header.

use std::net::IpAddr;

use fv_dpif::TunnelKind;
use fv_flow::FlowKey;
use fv_flow::key::{eth, ipproto, tunf};

use crate::config::Config;

const GRE_CSUM: u16 = 0x8000;
const GRE_KEY: u16 = 0x2000;
const GRE_SEQ: u16 = 0x1000;
const ERSPAN_I: u16 = 0x88be;
const ERSPAN_III: u16 = 0x22eb;
const VXLAN_I: u32 = 0x0800_0000;
const VXLAN_GPE: u32 = 0x0400_0000;
const VXLAN_GBP: u32 = 0x8000_0000;
const GTPU_FLAGS: u8 = 0x30;
const GTPU_TPDU: u8 = 255;
const ROUTING_SRV6: u8 = 4;

/// The ends of the outer packet's first hop, and of the tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    pub src_mac: [u8; 6],
    pub dst_mac: [u8; 6],
    pub src: IpAddr,
    pub dst: IpAddr,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HeaderError {
    #[error("addresses of two families")]
    Families,
    #[error("a packet type that the tunnel does not carry")]
    PacketType,
    #[error("an unknown version of the header")]
    Version,
}

/// The whole header of a packet with `key`, which [`Config::prepare`] has completed.
pub fn build(c: &Config, key: &FlowKey, path: &Path) -> Result<Vec<u8>, HeaderError> {
    let mut h = Vec::with_capacity(128);
    h.extend(path.dst_mac);
    h.extend(path.src_mac);
    let kind = c.kind();
    let proto = match kind {
        k if k.is_udp() => ipproto::UDP,
        TunnelKind::Srv6 => ipproto::ROUTING,
        _ => ipproto::GRE,
    };
    let v6 = ip(&mut h, key, path, proto, c)?;
    if kind.is_udp() {
        // A checksum that is due shows as ones; IPv6 has no datagrams without.
        let csum = key.tun.flags & tunf::CSUM != 0 || v6 && c.csum != Some(false);
        h.extend([0, 0]);
        h.extend(c.vport.dst_port.to_be_bytes());
        h.extend([0, 0]);
        h.extend(if csum { [0xff, 0xff] } else { [0, 0] });
    }
    match kind {
        TunnelKind::Vxlan => vxlan(&mut h, key, c)?,
        TunnelKind::Geneve => geneve(&mut h, key)?,
        TunnelKind::Gre | TunnelKind::Ip6Gre => gre(&mut h, key, c)?,
        TunnelKind::Erspan | TunnelKind::Ip6Erspan => erspan(&mut h, key)?,
        TunnelKind::Gtpu => gtpu(&mut h, key),
        TunnelKind::Bareudp => {}
        TunnelKind::Srv6 => srv6(&mut h, key, c, path)?,
    }
    Ok(h)
}

/// True for IPv6.
fn ip(h: &mut Vec<u8>, key: &FlowKey, path: &Path, proto: u8, c: &Config) -> Result<bool, HeaderError> {
    let t = &key.tun;
    match (path.src, path.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            h.extend(eth::IP.to_be_bytes());
            let start = h.len();
            h.extend([0x45, t.tos, 0, 0, 0, 0]);
            h.extend(if t.flags & tunf::DONT_FRAGMENT != 0 { [0x40, 0] } else { [0, 0] });
            h.extend([t.ttl, proto, 0, 0]);
            h.extend(src.octets());
            h.extend(dst.octets());
            let csum = fv_packet::csum::of(&h[start..]);
            h[start + 10..start + 12].copy_from_slice(&csum.to_be_bytes());
            Ok(false)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            h.extend(eth::IPV6.to_be_bytes());
            h.extend((6 << 28 | u32::from(t.tos) << 20).to_be_bytes());
            h.extend([0, 0, proto, t.ttl]);
            h.extend(src.octets());
            // With a list of segments the packet goes to the first of them.
            h.extend(c.segments.first().copied().unwrap_or(dst).octets());
            Ok(true)
        }
        _ => Err(HeaderError::Families),
    }
}

/// The EtherType that says what is inside.
fn inner_type(key: &FlowKey) -> Result<u16, HeaderError> {
    match key.misc.packet_type {
        0 => Ok(eth::TEB),
        t if t >> 16 == 1 => Ok(t as u16),
        _ => Err(HeaderError::PacketType),
    }
}

fn vxlan(h: &mut Vec<u8>, key: &FlowKey, c: &Config) -> Result<(), HeaderError> {
    let t = &key.tun;
    let mut flags = VXLAN_I;
    if c.vport.gpe {
        flags |= VXLAN_GPE
            | match inner_type(key)? {
                eth::IP => 1,
                eth::IPV6 => 2,
                eth::TEB => 3,
                eth::NSH => 4,
                _ => return Err(HeaderError::PacketType),
            };
    } else if c.vport.gbp && (t.gbp_id != 0 || t.gbp_flags != 0) {
        flags |= VXLAN_GBP | u32::from(t.gbp_flags) << 16 | u32::from(t.gbp_id.get());
    }
    h.extend(flags.to_be_bytes());
    h.extend(((t.id.get() as u32) << 8).to_be_bytes());
    Ok(())
}

fn geneve(h: &mut Vec<u8>, key: &FlowKey) -> Result<(), HeaderError> {
    let t = &key.tun;
    h.extend([0, if t.flags & tunf::OAM != 0 { 0x80 } else { 0 }]);
    h.extend(inner_type(key)?.to_be_bytes());
    h.extend(((t.id.get() as u32) << 8).to_be_bytes());
    Ok(())
}

fn gre(h: &mut Vec<u8>, key: &FlowKey, c: &Config) -> Result<(), HeaderError> {
    let t = &key.tun;
    let bits = [(GRE_CSUM, t.flags & tunf::CSUM != 0), (GRE_KEY, t.flags & tunf::KEY != 0), (GRE_SEQ, c.seq)];
    let flags = bits.iter().filter(|(_, on)| *on).fold(0, |f, (b, _)| f | b);
    h.extend(flags.to_be_bytes());
    h.extend(inner_type(key)?.to_be_bytes());
    if flags & GRE_CSUM != 0 {
        h.extend([0; 4]);
    }
    if flags & GRE_KEY != 0 {
        h.extend((t.id.get() as u32).to_be_bytes());
    }
    if flags & GRE_SEQ != 0 {
        h.extend([0; 4]);
    }
    Ok(())
}

fn erspan(h: &mut Vec<u8>, key: &FlowKey) -> Result<(), HeaderError> {
    let (t, sid) = (&key.tun, key.tun.id.get() as u16 & 0x3ff);
    let proto = match t.erspan_ver {
        1 => ERSPAN_I,
        2 => ERSPAN_III,
        _ => return Err(HeaderError::Version),
    };
    h.extend(GRE_SEQ.to_be_bytes());
    h.extend(proto.to_be_bytes());
    h.extend([0; 4]);
    h.extend([t.erspan_ver << 4, 0]);
    h.extend(sid.to_be_bytes());
    if t.erspan_ver == 1 {
        h.extend((t.erspan_idx.get() & 0xf_ffff).to_be_bytes());
        return Ok(());
    }
    // The time, whose unit the last word tells, is written with the packet.
    h.extend([0; 4]);
    let m = &key.misc;
    let word = u16::from(m.erspan_hwid & 63) << 4 | u16::from(m.erspan_dir & 1) << 3 | 3 << 1;
    h.extend([0, 0]);
    h.extend(word.to_be_bytes());
    Ok(())
}

fn gtpu(h: &mut Vec<u8>, key: &FlowKey) {
    let m = &key.misc;
    h.push(if m.gtpu_flags != 0 { m.gtpu_flags } else { GTPU_FLAGS });
    h.push(if m.gtpu_msgtype != 0 { m.gtpu_msgtype } else { GTPU_TPDU });
    h.extend([0, 0]);
    h.extend((key.tun.id.get() as u32).to_be_bytes());
}

fn srv6(h: &mut Vec<u8>, key: &FlowKey, c: &Config, path: &Path) -> Result<(), HeaderError> {
    let IpAddr::V6(dst) = path.dst else { return Err(HeaderError::Families) };
    let next = match inner_type(key)? {
        eth::IP => 4,
        eth::IPV6 => 41,
        _ => return Err(HeaderError::PacketType),
    };
    let n = c.segments.len().max(1) as u8;
    h.extend([next, n * 2, ROUTING_SRV6, n - 1, n - 1, 0, 0, 0]);
    if c.segments.is_empty() {
        h.extend(dst.octets());
    }
    // Last segment first.
    c.segments.iter().rev().for_each(|s| h.extend(s.octets()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn text(kind: TunnelKind, o: &[(&str, &str)], v6: bool, change: impl Fn(&mut FlowKey)) -> String {
        let o = o.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let c = parse("t", kind, &o).unwrap().0;
        let mut key = FlowKey::default();
        change(&mut key);
        c.prepare(&mut key, &mut Default::default());
        let (src, dst) = if v6 { ("2001:cafe::88", "2001:cafe::92") } else { ("1.1.2.88", "1.1.2.92") };
        let path = Path { src_mac: [2; 6], dst_mac: [4; 6], src: src.parse().unwrap(), dst: dst.parse().unwrap() };
        let header = build(&c, &key, &path).unwrap();
        let push = fv_dpif::action::TunnelPush { kind: kind.code(), header, ..Default::default() };
        let text = fv_dpif::text::format_actions(&[fv_dpif::DpAction::TunnelPush(Box::new(push))], None);
        text[text.find("header(").unwrap() + 7..].replace("eth(dst=04:04:04:04:04:04,src=02:02:02:02:02:02,", "")
    }

    #[test]
    fn as_the_reference_prints_them() {
        let to = ("remote_ip", "1.1.2.92");
        let v4 = "ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0,ttl=64,frag=0x4000)";
        let gre4 = v4.replace("=17", "=47");
        for (got, want) in [
            (
                text(TunnelKind::Vxlan, &[to, ("key", "123")], false, |_| ()),
                format!("size=50,type=4,dl_type=0x0800),{v4},udp(src=0,dst=4789,csum=0x0),vxlan(flags=0x8000000,vni=0x7b)"),
            ),
            (
                text(TunnelKind::Gre, &[to, ("key", "456")], false, |_| ()),
                format!("size=42,type=3,dl_type=0x0800),{gre4},gre((flags=0x2000,proto=0x6558),key=0x1c8)"),
            ),
            (
                text(TunnelKind::Gre, &[to, ("key", "flow"), ("csum", "true"), ("seq", "true")], false, |k| {
                    k.dp.tun.id = 0x33.into()
                }),
                format!("size=50,type=3,dl_type=0x0800),{gre4},gre((flags=0xb000,proto=0x6558),csum=0x0,key=0x33,seq=0x0)"),
            ),
            (
                text(TunnelKind::Vxlan, &[("remote_ip", "2001:cafe::92"), ("key", "5")], true, |_| ()),
                "size=70,type=4,dl_type=0x86dd),ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=0,proto=17,tclass=0x0,hlimit=64),udp(src=0,dst=4789,csum=0xffff),vxlan(flags=0x8000000,vni=0x5)".into(),
            ),
            (
                text(TunnelKind::Erspan, &[to, ("key", "7"), ("erspan_ver", "1"), ("erspan_idx", "3")], false, |_| ()),
                format!("size=50,type=107,dl_type=0x0800),{gre4},erspan(ver=1,sid=0x7,idx=0x3)"),
            ),
            (
                text(TunnelKind::Gtpu, &[to, ("key", "9")], false, |k| k.dp.misc.packet_type = 0x1_0800),
                format!("size=50,type=110,dl_type=0x0800),{v4},udp(src=0,dst=2152,csum=0x0),gtpu(flags=0x30,msgtype=255,teid=0x9)"),
            ),
        ] {
            assert_eq!(got, format!("{want}),out_port(0))"));
        }
    }
}
