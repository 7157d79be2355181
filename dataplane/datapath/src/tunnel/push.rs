//! Putting outer headers on.
//!
//! *reads* the packet's length, offload state and hash / *writes* the header in front, its lengths, checksums, source
//! port and sequence number / *next* the actions behind / *cost* one copy of the header; the payload is not read,
//! whatever checksums are asked for: an inner one that is due tells the sum of what it covers, and if none is due, the
//! outer one is left due instead.

use fv_core::Nanos;
use fv_dpif::action::TunnelPush;
use fv_dpif::{DropReason, TunnelKind};
use fv_flow::hash::five_tuple;
use fv_packet::bytes::{be16, set16, set32};
use fv_packet::csum::{self, finish_ip_checksum};
use fv_packet::hdr::{eth, ipproto, ipv4, ipv6, udp};
use fv_packet::{Csum, NO_OFS, Packet, finish_checksum};

use super::Tunnel;
use crate::parse;

const GRE_CSUM: u16 = 0x8000;
const GRE_KEY: u16 = 0x2000;
const GRE_SEQ: u16 = 0x1000;
const IP_MAX: usize = 65535;

/// The hash of the packet's flow; kept with it.
pub fn flow_hash(packet: &mut Packet, vlan_limit: u8) -> u32 {
    if packet.meta().rss_valid {
        return packet.meta().rss_hash;
    }
    let key = parse::extract(packet, vlan_limit);
    let hash = five_tuple(&key, 0);
    let meta = packet.meta_mut();
    (meta.rss_hash, meta.rss_valid) = (hash, true);
    hash
}

/// Whether the outer lengths cannot tell how long the packet is.
#[inline]
pub fn too_long(packet: &Packet, push: &TunnelPush) -> bool {
    packet.meta().gso.is_some() && packet.len() + push.header.len() > IP_MAX
}

/// Pushes the header. On an error the packet is as it was, or partly complete: to be dropped.
pub fn push(
    packet: &mut Packet,
    header: &TunnelPush,
    tunnel: &Tunnel,
    source: u16,
    now: Nanos,
) -> Result<(), DropReason> {
    let h = &header.header[..];
    let (v6, l4) = match h.get(12..14).map(|t| be16(t, 0)) {
        Some(eth::ethertype::IPV4) => (false, eth::LEN + ipv4::MIN_LEN),
        Some(eth::ethertype::IPV6) => (true, eth::LEN + ipv6::LEN),
        _ => return Err(DropReason::TunnelPushError),
    };
    if h.len() < l4 || h.len() + packet.len() > IP_MAX {
        return Err(DropReason::TunnelPushError);
    }
    if packet.meta().ip_csum == Csum::Partial && finish_ip_checksum(packet).is_err() {
        return Err(DropReason::BadOffload);
    }
    packet.push_front(h.len()).copy_from_slice(h);
    let kind = tunnel.vport.kind;
    let (data, meta) = packet.parts_mut();
    meta.l2_pad = 0;
    let end = data.len();
    if v6 {
        set16(data, eth::LEN + ipv6::PAYLOAD_LEN, (end - l4) as u16);
    } else {
        set16(data, eth::LEN + ipv4::TOTAL_LEN, (end - eth::LEN) as u16);
        ipv4::write_csum(&mut data[eth::LEN..l4]);
        meta.ip_csum = Csum::Good;
    }
    (meta.l2_5_ofs, meta.l3_ofs, meta.l4_ofs) = (NO_OFS, eth::LEN as u16, l4 as u16);
    (meta.packet_type, meta.flow_hash) = (0, 0);
    match kind {
        k if k.is_udp() => {
            if h.len() < l4 + udp::LEN {
                return Err(DropReason::TunnelPushError);
            }
            set16(data, l4, source);
            set16(data, l4 + udp::LENGTH, (end - l4) as u16);
            if kind == TunnelKind::Gtpu && h.len() >= l4 + udp::LEN + 8 {
                set16(data, l4 + udp::LEN + 2, (end - h.len()) as u16);
            }
        }
        k if k.is_gre() => gre(data, l4, h.len(), tunnel, now)?,
        _ => {}
    }
    packet.set_side(&[]);
    let done = if kind.is_udp() && be16(packet.data(), l4 + udp::CSUM) != 0 {
        udp_csum(packet, l4)
    } else if matches!(kind, TunnelKind::Gre | TunnelKind::Ip6Gre) && be16(packet.data(), l4) & GRE_CSUM != 0 {
        gre_csum(packet, l4)
    } else {
        // An inner checksum that is due stays so: where it is to be written is known. One that was verified was not
        // that of this header.
        Ok(())
    };
    done?;
    let meta = packet.meta_mut();
    if meta.csum != Csum::Partial {
        meta.csum = Csum::Unknown;
    }
    Ok(())
}

/// The fields of GRE and of what is behind it.
fn gre(data: &mut [u8], l4: usize, end: usize, tunnel: &Tunnel, now: Nanos) -> Result<(), DropReason> {
    let flags = data.get(l4..l4 + 2).map(|f| be16(f, 0)).ok_or(DropReason::TunnelPushError)?;
    let mut at = l4 + 4;
    for bit in [GRE_CSUM, GRE_KEY] {
        at += if flags & bit != 0 { 4 } else { 0 };
    }
    if flags & GRE_SEQ != 0 {
        if at + 4 > end {
            return Err(DropReason::TunnelPushError);
        }
        set32(data, at, tunnel.next_sequence());
        at += 4;
    }
    if tunnel.vport.kind.is_erspan() && data.get(at).is_some_and(|b| b >> 4 == 2) && at + 12 <= end {
        // Units of 100 microseconds.
        set32(data, at + 4, (now.0 / 100_000) as u32);
    }
    Ok(())
}

/// Where a due checksum begins, if its place is beyond `l4`.
fn inner_due(packet: &Packet, l4: usize) -> Option<usize> {
    let m = packet.meta();
    (m.csum == Csum::Partial).then_some(usize::from(m.csum_start)).filter(|s| *s > l4)
}

fn udp_csum(packet: &mut Packet, l4: usize) -> Result<(), DropReason> {
    let pseudo = pseudo(packet.data(), l4);
    if packet.meta().gso.is_some() {
        // Each segment gets its own; that there is to be one shows.
        set16(packet.data_mut(), l4 + udp::CSUM, 0xffff);
        return Ok(());
    }
    if let Some(start) = inner_due(packet, l4) {
        set16(packet.data_mut(), l4 + udp::CSUM, 0);
        let sum = with_due(packet, l4, start, pseudo)?;
        set16(packet.data_mut(), l4 + udp::CSUM, csum::finish_udp(sum));
        return Ok(());
    }
    let (data, meta) = packet.parts_mut();
    set16(data, l4 + udp::CSUM, csum::fold(pseudo));
    (meta.csum, meta.csum_start, meta.csum_offset) = (Csum::Partial, l4 as u16, udp::CSUM as u16);
    Ok(())
}

fn gre_csum(packet: &mut Packet, l4: usize) -> Result<(), DropReason> {
    if packet.len() < l4 + 8 {
        return Err(DropReason::TunnelPushError);
    }
    if packet.meta().gso.is_some() {
        return Ok(());
    }
    set32(packet.data_mut(), l4 + 4, 0);
    let sum = match inner_due(packet, l4) {
        Some(start) => with_due(packet, l4, start, 0)?,
        None => csum::add(0, &packet.data()[l4..]),
    };
    set16(packet.data_mut(), l4 + 4, csum::finish(sum));
    Ok(())
}

/// The sum of the packet from `l4` on when the checksum that is due from `start` on is in place: what that covers then
/// sums up to the complement of its pseudo header, which its field holds now. A checksum of another kind is computed
/// at once.
fn with_due(packet: &mut Packet, l4: usize, start: usize, seed: u32) -> Result<u32, DropReason> {
    let at = start + usize::from(packet.meta().csum_offset);
    let even = (start - l4).is_multiple_of(2);
    if usize::from(packet.meta().csum_offset) == fv_packet::hdr::sctp::CSUM || !even {
        finish_checksum(packet).map_err(|_| DropReason::BadOffload)?;
        return Ok(csum::add(seed, &packet.data()[l4..]));
    }
    let field = packet.data().get(at..at + 2).map(|f| be16(f, 0)).ok_or(DropReason::BadOffload)?;
    let padding = usize::from(packet.meta().l2_pad);
    if padding != 0 {
        finish_checksum(packet).map_err(|_| DropReason::BadOffload)?;
        return Ok(csum::add(seed, &packet.data()[l4..]));
    }
    let sum = csum::add(seed, &packet.data()[l4..start]);
    Ok(csum::add(sum, &(!field).to_be_bytes()))
}

/// The pseudo header's sum of the outer datagram.
fn pseudo(data: &[u8], l4: usize) -> u32 {
    let len = (data.len() - l4) as u32;
    if l4 == eth::LEN + ipv4::MIN_LEN {
        let word = |at| fv_packet::bytes::be32(data, eth::LEN + at);
        csum::pseudo_v4(word(ipv4::SRC), word(ipv4::DST), ipproto::UDP, len as u16)
    } else {
        let a = |at: usize| fv_packet::bytes::array(data, eth::LEN + at);
        csum::pseudo_v6(&a(ipv6::SRC), &a(ipv6::DST), ipproto::UDP, len)
    }
}
