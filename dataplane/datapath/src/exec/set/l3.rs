//! IPv4, IPv6 and ARP.

use fv_dpif::action::Masked;
use fv_packet::hdr::{arp as arp_hdr, ipv4, ipv6};
use fv_packet::{NO_OFS, Packet};

use super::patch::{Covered, layout, patch};
use super::{be16, be32, blend};

pub fn ipv4(packet: &mut Packet, src: &Masked<u32>, dst: &Masked<u32>, tos: &Masked<u8>, ttl: &Masked<u8>) -> bool {
    let Some(l) = layout(packet).filter(|l| !l.is_v6) else { return false };
    let at = |ofs| l.l3_ofs + ofs;
    patch(packet, &l, at(ipv4::SRC), &be32(src), Covered::IpAndPseudo);
    patch(packet, &l, at(ipv4::DST), &be32(dst), Covered::IpAndPseudo);
    // Single bytes go with their neighbour in the checksum's word.
    patch(packet, &l, at(0), &Masked { value: [0, tos.value], mask: [0, tos.mask] }, Covered::Ip);
    patch(packet, &l, at(ipv4::TTL), &Masked { value: [ttl.value, 0], mask: [ttl.mask, 0] }, Covered::Ip);
    true
}

pub fn ipv6(
    packet: &mut Packet,
    src: &Masked<[u8; 16]>,
    dst: &Masked<[u8; 16]>,
    label: &Masked<u32>,
    tclass: &Masked<u8>,
    hlimit: &Masked<u8>,
) -> bool {
    let Some(l) = layout(packet).filter(|l| l.is_v6) else { return false };
    let at = |ofs| l.l3_ofs + ofs;
    patch(packet, &l, at(ipv6::SRC), src, Covered::Pseudo);
    // With a routing header the checksum is over the final destination, which is elsewhere.
    let covered = if l.routing { Covered::Nothing } else { Covered::Pseudo };
    patch(packet, &l, at(ipv6::DST), dst, covered);
    let first = Masked {
        value: u32::from(tclass.value) << 20 | label.value & 0xf_ffff,
        mask: u32::from(tclass.mask) << 20 | label.mask & 0xf_ffff,
    };
    patch(packet, &l, at(0), &be32(&first), Covered::Nothing);
    patch(packet, &l, at(ipv6::HLIM), &Masked { value: [hlimit.value], mask: [hlimit.mask] }, Covered::Nothing);
    true
}

pub fn arp(
    packet: &mut Packet,
    sip: &Masked<u32>,
    tip: &Masked<u32>,
    op: &Masked<u16>,
    sha: &Masked<[u8; 6]>,
    tha: &Masked<[u8; 6]>,
) -> bool {
    let ofs = packet.meta().l3_ofs;
    if ofs == NO_OFS {
        return false;
    }
    let start = usize::from(ofs);
    let Some(header) = packet.data_mut().get_mut(start..start + arp_hdr::LEN) else { return false };
    blend(&mut header[arp_hdr::OP..], &be16(op));
    blend(&mut header[arp_hdr::SHA..], sha);
    blend(&mut header[arp_hdr::SPA..], &be32(sip));
    blend(&mut header[arp_hdr::THA..], tha);
    blend(&mut header[arp_hdr::TPA..], &be32(tip));
    true
}

/// One less; false, with the packet unchanged, if it must not go on. What is not IP has no TTL.
pub fn decrement_ttl(packet: &mut Packet) -> bool {
    let Some(l) = layout(packet) else { return true };
    let at = l.l3_ofs + if l.is_v6 { ipv6::HLIM } else { ipv4::TTL };
    let Some(ttl) = packet.data().get(at).copied() else { return true };
    if ttl <= 1 {
        return false;
    }
    let covered = if l.is_v6 { Covered::Nothing } else { Covered::Ip };
    patch(packet, &l, at, &Masked { value: [ttl - 1, 0], mask: [255, 0] }, covered);
    true
}
