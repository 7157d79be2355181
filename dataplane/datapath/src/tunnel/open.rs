//! Taking outer headers off.
//!
//! *reads* the outer headers; the payload only where an outer checksum covers it that nobody has verified / *writes* the
//! packet's front, and what the headers said as its note / *next* the work list / *cost* one pass over the
//! headers, no allocation. Hostile input: every length is checked against what is there.

use fv_dpif::{DropReason, TunnelKind, Vport};
use fv_flow::TunnelKey;
use fv_flow::key::tunf;
use fv_packet::bytes::{be16, be32};
use fv_packet::csum;
use fv_packet::hdr::{Layout, eth, ipproto, ipv4, ipv6, udp};
use fv_packet::{Csum, Packet};

use DropReason::{TunnelChecksum, TunnelFragment, TunnelHeader, TunnelTruncated};

const GRE_CSUM: u16 = 0x8000;
const GRE_KEY: u16 = 0x2000;
const GRE_SEQ: u16 = 0x1000;
const ERSPAN_I: u16 = 0x88be;
const ERSPAN_III: u16 = 0x22eb;
const VXLAN_I: u32 = 0x0800_0000;
const VXLAN_GPE: u32 = 0x0400_0000;
const VXLAN_GBP: u32 = 0x8000_0000;
const GTPU_TPDU: u8 = 255;
/// Extension headers of GTP-U that are walked.
const GTPU_EXTENSIONS: usize = 8;

/// Namespace of packet types that are EtherTypes.
const ETHERTYPE: u32 = 1 << 16;

/// What was inside: where it begins and its packet type.
struct Inside {
    at: usize,
    packet_type: u32,
}

/// Opens a packet whose outer packet is whole and of the vport's kind; on an error it is to be dropped.
pub fn open(packet: &mut Packet, vport: &Vport) -> Result<(), DropReason> {
    let l = Layout::of(packet.data()).ok_or(TunnelTruncated)?;
    if l.fragment {
        return Err(TunnelFragment);
    }
    let mut key = outer(packet, &l, vport.kind)?;
    packet.truncate(l.end);
    let inside = match vport.kind {
        kind if kind.is_udp() => datagram(packet, &l, vport, &mut key)?,
        TunnelKind::Srv6 => srv6(&l)?,
        TunnelKind::Erspan | TunnelKind::Ip6Erspan => erspan(packet, &l, &mut key)?,
        _ => gre(packet, &l, &mut key)?,
    };
    if inside.at > packet.len() || inside.packet_type == 0 && packet.len() - inside.at < eth::LEN {
        return Err(TunnelTruncated);
    }
    packet.pull_front(inside.at);
    packet.set_side(&key.note());
    let m = packet.meta_mut();
    m.packet_type = inside.packet_type;
    m.recirc_id = 0;
    m.l2_pad = 0;
    m.rss_valid = false;
    m.flow_hash = 0;
    // What was known was of the outer packet; a checksum that is due inside is still due.
    m.ip_csum = Csum::Unknown;
    if m.csum != Csum::Partial {
        m.csum = Csum::Unknown;
        m.gso = fv_packet::Gso::NONE;
    }
    (m.ct_state, m.ct_zone, m.ct_mark, m.ct_label) = (0, 0, 0, 0);
    Ok(())
}

/// The outer IP header, checked.
fn outer(packet: &Packet, l: &Layout, kind: TunnelKind) -> Result<TunnelKey, DropReason> {
    let l3 = &packet.data()[l.l3_ofs..];
    let mut key = TunnelKey::default();
    let t = &mut key.tun;
    if l.is_v6 {
        if kind != TunnelKind::Srv6 && l.l4_ofs - l.l3_ofs != ipv6::LEN {
            return Err(TunnelHeader);
        }
        t.ipv6_src = fv_packet::bytes::array(l3, ipv6::SRC);
        t.ipv6_dst = fv_packet::bytes::array(l3, ipv6::DST);
        t.tos = (be16(l3, 0) >> 4) as u8;
        t.ttl = l3[7];
        return Ok(key);
    }
    if l.l4_ofs - l.l3_ofs != ipv4::MIN_LEN {
        return Err(TunnelHeader);
    }
    let known = matches!(packet.meta().ip_csum, Csum::Good | Csum::Partial);
    if !known && csum::of(&l3[..ipv4::MIN_LEN]) != 0 {
        return Err(TunnelChecksum);
    }
    (t.src, t.dst) = (be32(l3, ipv4::SRC).into(), be32(l3, ipv4::DST).into());
    (t.tos, t.ttl) = (l3[1], l3[8]);
    if be16(l3, ipv4::FRAG) & ipv4::DF != 0 {
        t.flags |= tunf::DONT_FRAGMENT;
    }
    Ok(key)
}

/// Whether the outer L4 checksum needs no look: somebody verified it, or it is of a packet that was made on this host,
/// whose own or inner checksum is still due.
fn is_trusted(packet: &Packet) -> bool {
    matches!(packet.meta().csum, Csum::Good | Csum::Partial) || packet.meta().gso.is_some()
}

fn datagram(packet: &mut Packet, l: &Layout, vport: &Vport, key: &mut TunnelKey) -> Result<Inside, DropReason> {
    let d = packet.data();
    let h = d.get(l.l4_ofs..).filter(|h| h.len() >= udp::LEN).ok_or(TunnelTruncated)?;
    if l.proto != ipproto::UDP {
        return Err(TunnelHeader);
    }
    let len = usize::from(be16(h, udp::LENGTH));
    if len < udp::LEN || len > h.len() {
        return Err(TunnelTruncated);
    }
    (key.tun.tp_src, key.tun.tp_dst) = (be16(h, 0).into(), be16(h, 2).into());
    if be16(h, udp::CSUM) != 0 {
        key.tun.flags |= tunf::CSUM;
        if !is_trusted(packet) && !udp_is_good(d, l, &h[..len]) {
            return Err(TunnelChecksum);
        }
    }
    packet.truncate(l.l4_ofs + len);
    let at = l.l4_ofs + udp::LEN;
    let t = &packet.data()[at..];
    let (len, packet_type) = match vport.kind {
        TunnelKind::Vxlan => vxlan(t, vport, key)?,
        TunnelKind::Geneve => geneve(t, key)?,
        TunnelKind::Gtpu => gtpu(t, key)?,
        _ => bare(t, vport)?,
    };
    Ok(Inside { at: at + len, packet_type })
}

fn udp_is_good(data: &[u8], l: &Layout, h: &[u8]) -> bool {
    let l3 = &data[l.l3_ofs..];
    let sum = if l.is_v6 {
        let a = |at| fv_packet::bytes::array(l3, at);
        csum::pseudo_v6(&a(ipv6::SRC), &a(ipv6::DST), ipproto::UDP, h.len() as u32)
    } else {
        csum::pseudo_v4(be32(l3, ipv4::SRC), be32(l3, ipv4::DST), ipproto::UDP, h.len() as u16)
    };
    csum::finish(csum::add(sum, h)) == 0
}

fn vxlan(h: &[u8], vport: &Vport, key: &mut TunnelKey) -> Result<(usize, u32), DropReason> {
    if h.len() < 8 {
        return Err(TunnelTruncated);
    }
    let (flags, vni) = (be32(h, 0), be32(h, 4));
    if flags & VXLAN_I == 0 || vni & 0xff != 0 {
        return Err(TunnelHeader);
    }
    key.tun.id = u64::from(vni >> 8).into();
    key.tun.flags |= tunf::KEY;
    let mut packet_type = 0;
    match flags & !VXLAN_I {
        0 => {}
        f if vport.gpe && f & !(VXLAN_GPE | 0xff) == 0 && f & VXLAN_GPE != 0 => {
            packet_type = match f & 0xff {
                1 => ETHERTYPE | u32::from(eth::ethertype::IPV4),
                2 => ETHERTYPE | u32::from(eth::ethertype::IPV6),
                3 => 0,
                4 => ETHERTYPE | 0x894f,
                _ => return Err(TunnelHeader),
            };
        }
        f if vport.gbp && f & VXLAN_GBP != 0 && f & 0x7bb7_0000 == 0 => {
            key.tun.gbp_id = (f as u16).into();
            key.tun.gbp_flags = (f >> 16) as u8 & 0x48;
        }
        _ => return Err(TunnelHeader),
    }
    Ok((8, packet_type))
}

fn geneve(h: &[u8], key: &mut TunnelKey) -> Result<(usize, u32), DropReason> {
    if h.len() < 8 {
        return Err(TunnelTruncated);
    }
    let options = usize::from(h[0] & 0x3f) * 4;
    if h.len() < 8 + options {
        return Err(TunnelTruncated);
    }
    if h[0] >> 6 != 0 {
        return Err(TunnelHeader);
    }
    if h[1] & 0x80 != 0 {
        key.tun.flags |= tunf::OAM;
    }
    key.tun.id = u64::from(be32(h, 4) >> 8).into();
    key.tun.flags |= tunf::KEY;
    Ok((8 + options, carried(be16(h, 2))?))
}

/// The packet type of what GRE and Geneve say they carry.
fn carried(protocol: u16) -> Result<u32, DropReason> {
    match protocol {
        eth::ethertype::TEB => Ok(0),
        p if p >= 0x600 => Ok(ETHERTYPE | u32::from(p)),
        _ => Err(TunnelHeader),
    }
}

fn gtpu(h: &[u8], key: &mut TunnelKey) -> Result<(usize, u32), DropReason> {
    if h.len() < 8 {
        return Err(TunnelTruncated);
    }
    // Version 1, and no other protocol of the family.
    if h[0] >> 4 != 3 || h[1] != GTPU_TPDU {
        return Err(TunnelHeader);
    }
    if usize::from(be16(h, 2)) > h.len() - 8 {
        return Err(TunnelTruncated);
    }
    (key.gtpu_flags, key.gtpu_msgtype) = (h[0], h[1]);
    key.tun.id = u64::from(be32(h, 4)).into();
    key.tun.flags |= tunf::KEY;
    let mut at = 8;
    if h[0] & 7 != 0 {
        at += 4;
        let mut next = if h[0] & 4 != 0 { *h.get(11).ok_or(TunnelTruncated)? } else { 0 };
        for _ in 0..GTPU_EXTENSIONS {
            if next == 0 {
                break;
            }
            let len = usize::from(*h.get(at).ok_or(TunnelTruncated)?) * 4;
            if len == 0 {
                return Err(TunnelHeader);
            }
            next = *h.get(at + len - 1).ok_or(TunnelTruncated)?;
            at += len;
        }
        if next != 0 {
            return Err(TunnelHeader);
        }
    }
    Ok((at, ip_version(h.get(at..).unwrap_or_default())?))
}

fn bare(h: &[u8], vport: &Vport) -> Result<(usize, u32), DropReason> {
    match vport.payload {
        0 | 0x0800 | 0x86dd => Ok((0, ip_version(h)?)),
        p => Ok((0, ETHERTYPE | u32::from(p))),
    }
}

fn ip_version(h: &[u8]) -> Result<u32, DropReason> {
    match h.first().ok_or(TunnelTruncated)? >> 4 {
        4 => Ok(ETHERTYPE | u32::from(eth::ethertype::IPV4)),
        6 => Ok(ETHERTYPE | u32::from(eth::ethertype::IPV6)),
        _ => Err(TunnelHeader),
    }
}

/// The fixed part of GRE: (length, protocol).
fn gre_header(packet: &Packet, l: &Layout, key: &mut TunnelKey) -> Result<(usize, u16), DropReason> {
    if l.proto != ipproto::GRE {
        return Err(TunnelHeader);
    }
    let h = packet.data().get(l.l4_ofs..).filter(|h| h.len() >= 4).ok_or(TunnelTruncated)?;
    let (flags, protocol) = (be16(h, 0), be16(h, 2));
    if flags & !(GRE_CSUM | GRE_KEY | GRE_SEQ) != 0 {
        return Err(TunnelHeader);
    }
    let optional = [GRE_CSUM, GRE_KEY, GRE_SEQ];
    let len = 4 + 4 * optional.iter().filter(|f| flags & **f != 0).count();
    if h.len() < len {
        return Err(TunnelTruncated);
    }
    let mut at = 4;
    if flags & GRE_CSUM != 0 {
        key.tun.flags |= tunf::CSUM;
        if !is_trusted(packet) && csum::of(h) != 0 {
            return Err(TunnelChecksum);
        }
        at += 4;
    }
    if flags & GRE_KEY != 0 {
        key.tun.flags |= tunf::KEY;
        key.tun.id = u64::from(be32(h, at)).into();
    }
    Ok((len, protocol))
}

fn gre(packet: &Packet, l: &Layout, key: &mut TunnelKey) -> Result<Inside, DropReason> {
    let (len, protocol) = gre_header(packet, l, key)?;
    Ok(Inside { at: l.l4_ofs + len, packet_type: carried(protocol)? })
}

fn erspan(packet: &Packet, l: &Layout, key: &mut TunnelKey) -> Result<Inside, DropReason> {
    let (len, protocol) = gre_header(packet, l, key)?;
    let at = l.l4_ofs + len;
    let h = packet.data().get(at..).filter(|h| h.len() >= 8).ok_or(TunnelTruncated)?;
    let ver = h[0] >> 4;
    key.tun.id = u64::from(be16(h, 2) & 0x3ff).into();
    key.tun.flags |= tunf::KEY;
    key.tun.erspan_ver = ver;
    let len = match (protocol, ver) {
        (ERSPAN_I, 1) => {
            key.tun.erspan_idx = (be32(h, 4) & 0xf_ffff).into();
            8
        }
        (ERSPAN_III, 2) => {
            let h = h.get(..12).ok_or(TunnelTruncated)?;
            let word = be16(h, 10);
            (key.erspan_dir, key.erspan_hwid) = ((word >> 3 & 1) as u8, (word >> 4 & 63) as u8);
            // A platform specific part may follow.
            if word & 1 != 0 { 20 } else { 12 }
        }
        _ => return Err(TunnelHeader),
    };
    Ok(Inside { at: at + len, packet_type: 0 })
}

/// Behind the routing header, which must be at its end.
fn srv6(l: &Layout) -> Result<Inside, DropReason> {
    if l.routing || !l.is_v6 {
        return Err(TunnelHeader);
    }
    let packet_type = match l.proto {
        ipproto::IPIP => ETHERTYPE | u32::from(eth::ethertype::IPV4),
        ipproto::IPV6 => ETHERTYPE | u32::from(eth::ethertype::IPV6),
        _ => return Err(TunnelHeader),
    };
    Ok(Inside { at: l.l4_ofs, packet_type })
}
