//! ICMP, ICMPv6 and neighbour discovery.

use super::{L4, replace};
use crate::Packet;
use crate::csum::delta;
use crate::hdr::{Icmpv6, Mac, icmp, icmpv6, ipproto};

/// The type of ICMP or ICMPv6.
pub fn icmp_type(packet: &mut Packet, value: u8, mask: u8) -> bool {
    icmp_word(packet, &[value, 0], &[mask, 0])
}

/// The code of ICMP or ICMPv6.
pub fn icmp_code(packet: &mut Packet, value: u8, mask: u8) -> bool {
    icmp_word(packet, &[0, value], &[0, mask])
}

fn icmp_word(packet: &mut Packet, value: &[u8; 2], mask: &[u8; 2]) -> bool {
    let Some(l4) = L4::of(packet) else { return false };
    let least = if l4.proto == ipproto::ICMPV6 { icmpv6::LEN } else { icmp::LEN };
    let is_icmp = l4.csum_at() == Some(l4.ofs + icmp::CSUM) && packet.len() >= l4.ofs + least;
    is_icmp && rewrite(packet, l4, l4.ofs, value, mask)
}

pub fn nd_target(packet: &mut Packet, address: &[u8; 16], mask: &[u8; 16]) -> bool {
    let Some(l4) = nd(packet) else { return false };
    rewrite(packet, l4, l4.ofs + icmpv6::ND_TARGET, address, mask)
}

/// The source link-layer address, in the first option that has one.
pub fn nd_sll(packet: &mut Packet, mac: Mac, mask: Mac) -> bool {
    nd_option(packet, icmpv6::OPT_SLL, mac, mask)
}

/// The target link-layer address, in the first option that has one.
pub fn nd_tll(packet: &mut Packet, mac: Mac, mask: Mac) -> bool {
    nd_option(packet, icmpv6::OPT_TLL, mac, mask)
}

/// The flags word of neighbour discovery.
pub fn nd_reserved(packet: &mut Packet, flags: u32, mask: u32) -> bool {
    let Some(l4) = nd(packet) else { return false };
    rewrite(packet, l4, l4.ofs + icmpv6::ND_FLAGS, &flags.to_be_bytes(), &mask.to_be_bytes())
}

/// The type of the first option.
pub fn nd_options_type(packet: &mut Packet, kind: u8, mask: u8) -> bool {
    let Some(l4) = nd(packet) else { return false };
    let Some(first) = icmpv6::nd_options(&packet.data()[l4.ofs..]).next() else { return false };
    rewrite(packet, l4, l4.ofs + first.at, &[kind, 0], &[mask, 0])
}

fn nd_option(packet: &mut Packet, kind: u8, mac: Mac, mask: Mac) -> bool {
    let Some(l4) = nd(packet) else { return false };
    let found = icmpv6::nd_options(&packet.data()[l4.ofs..]).find(|o| o.kind == kind && o.len == 8);
    let Some(option) = found else { return false };
    rewrite(packet, l4, l4.ofs + option.at + 2, &mac, &mask)
}

fn nd(packet: &Packet) -> Option<L4> {
    let l4 = L4::of(packet).filter(|l4| l4.v6 && l4.proto == ipproto::ICMPV6)?;
    Icmpv6::parse(packet.data().get(l4.ofs..)?)?.nd()?;
    Some(l4)
}

/// Rewrites bytes at an even distance from the header's start.
fn rewrite<const N: usize>(packet: &mut Packet, l4: L4, at: usize, value: &[u8; N], mask: &[u8; N]) -> bool {
    let Some((old, new)) = replace(packet, at, value, mask) else { return false };
    if old != new {
        l4.data_changed(packet, delta(&old, &new));
    }
    true
}
