//! IPv4 and IPv6 headers.

use super::{L4, l3_ofs, replace};
use crate::csum::{delta, fold, update};
use crate::hdr::{Ipv4, Ipv6, ipv4, ipv6};
use crate::{Csum, Packet, bytes};

pub fn ipv4_src(packet: &mut Packet, address: u32, mask: u32) -> bool {
    ipv4_address(packet, ipv4::SRC, address, mask)
}

pub fn ipv4_dst(packet: &mut Packet, address: u32, mask: u32) -> bool {
    ipv4_address(packet, ipv4::DST, address, mask)
}

fn ipv4_address(packet: &mut Packet, at: usize, address: u32, mask: u32) -> bool {
    let l4 = L4::of(packet);
    let Some(change) = ipv4_word(packet, at, &address.to_be_bytes(), &mask.to_be_bytes()) else { return false };
    if let Some(l4) = l4.filter(|_| change != 0) {
        l4.pseudo_changed(packet, change);
    }
    true
}

pub fn ipv4_tos(packet: &mut Packet, tos: u8, mask: u8) -> bool {
    ipv4_word(packet, ipv4::VER_IHL, &[0, tos], &[0, mask]).is_some()
}

pub fn ipv4_ttl(packet: &mut Packet, ttl: u8, mask: u8) -> bool {
    ipv4_word(packet, ipv4::TTL, &[ttl, 0], &[mask, 0]).is_some()
}

/// Rewrites whole words of an IPv4 header with its checksum, and answers the change of the sum.
fn ipv4_word<const N: usize>(packet: &mut Packet, at: usize, value: &[u8; N], mask: &[u8; N]) -> Option<u32> {
    let l3 = l3_ofs(packet)?;
    Ipv4::parse(packet.data().get(l3..)?)?;
    let (old, new) = replace(packet, l3 + at, value, mask)?;
    if old == new {
        return Some(0);
    }
    if packet.meta().ip_csum != Csum::Partial {
        let field = &mut packet.data_mut()[l3 + ipv4::CSUM..][..2];
        let csum = update(bytes::be16(field, 0), &old, &new);
        bytes::set16(field, 0, csum);
    }
    Some(delta(&old, &new))
}

pub fn ipv6_src(packet: &mut Packet, address: &[u8; 16], mask: &[u8; 16]) -> bool {
    ipv6_address(packet, ipv6::SRC, address, mask)
}

/// On a source route the checksum does not cover this destination, and stays.
pub fn ipv6_dst(packet: &mut Packet, address: &[u8; 16], mask: &[u8; 16]) -> bool {
    ipv6_address(packet, ipv6::DST, address, mask)
}

fn ipv6_address(packet: &mut Packet, at: usize, address: &[u8; 16], mask: &[u8; 16]) -> bool {
    let Some(l3) = ipv6_at(packet) else { return false };
    let l4 = L4::of(packet);
    let Some((old, new)) = replace(packet, l3 + at, address, mask) else { return false };
    if let Some(l4) = l4.filter(|l4| old != new && !(l4.source_routed && at == ipv6::DST)) {
        l4.pseudo_changed(packet, u32::from(fold(delta(&old, &new))));
    }
    true
}

pub fn ipv6_tclass(packet: &mut Packet, tclass: u8, mask: u8) -> bool {
    ipv6_first_word(packet, u32::from(tclass) << 20, u32::from(mask) << 20)
}

pub fn ipv6_label(packet: &mut Packet, label: u32, mask: u32) -> bool {
    ipv6_first_word(packet, label & 0xf_ffff, mask & 0xf_ffff)
}

fn ipv6_first_word(packet: &mut Packet, value: u32, mask: u32) -> bool {
    let Some(l3) = ipv6_at(packet) else { return false };
    replace(packet, l3, &value.to_be_bytes(), &mask.to_be_bytes()).is_some()
}

pub fn ipv6_hlimit(packet: &mut Packet, hlimit: u8, mask: u8) -> bool {
    let Some(l3) = ipv6_at(packet) else { return false };
    replace(packet, l3 + ipv6::HLIM, &[hlimit], &[mask]).is_some()
}

fn ipv6_at(packet: &Packet) -> Option<usize> {
    let l3 = l3_ofs(packet)?;
    Ipv6::parse(packet.data().get(l3..)?)?;
    Some(l3)
}
