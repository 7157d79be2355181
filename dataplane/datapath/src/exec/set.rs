//! Rewriting header fields and metadata.
//!
//! Reads: the header's place from the metadata that extraction left. Checksums follow by what
//! changed. A transport header that is not there, as in a later fragment, is left alone, as in the
//! reference; a missing network header is a drop.

use fv_dpif::DropReason;
use fv_dpif::action::{Masked, SetField};
use fv_packet::hdr::{Ipv4, Ipv6, Lse};
use fv_packet::{NO_OFS, Packet, mpls, set as hdr};

pub fn set(packet: &mut Packet, field: &SetField) -> Result<(), DropReason> {
    let there = match field {
        SetField::SkbPriority(priority) => {
            packet.meta_mut().skb_priority = *priority;
            true
        }
        SetField::SkbMark(mark) => {
            let meta = packet.meta_mut();
            meta.pkt_mark = meta.pkt_mark & !mark.mask | mark.value & mark.mask;
            true
        }
        SetField::Eth { src, dst } => {
            let ethernet = packet.meta().packet_type == 0 && packet.len() >= 12;
            ethernet && put(packet, src, hdr::eth_src) && put(packet, dst, hdr::eth_dst)
        }
        SetField::Mpls { lse } => mpls::set_lse(packet, Lse(lse.value), lse.mask),
        SetField::Ipv4 { src, dst, tos, ttl } => {
            put(packet, src, hdr::ipv4_src)
                && put(packet, dst, hdr::ipv4_dst)
                && put(packet, tos, hdr::ipv4_tos)
                && put(packet, ttl, hdr::ipv4_ttl)
        }
        SetField::Ipv6 { src, dst, label, tclass, hlimit } => {
            put_long(packet, src, hdr::ipv6_src)
                && put_long(packet, dst, hdr::ipv6_dst)
                && put(packet, label, hdr::ipv6_label)
                && put(packet, tclass, hdr::ipv6_tclass)
                && put(packet, hlimit, hdr::ipv6_hlimit)
        }
        SetField::Arp { sip, tip, op, sha, tha } => {
            put(packet, sip, hdr::arp_spa)
                && put(packet, tip, hdr::arp_tpa)
                && put(packet, op, hdr::arp_op)
                && put(packet, sha, hdr::arp_sha)
                && put(packet, tha, hdr::arp_tha)
        }
        // Extraction found no transport header that it trusts.
        _ if is_transport(field) && packet.meta().l4_ofs == NO_OFS => true,
        SetField::Tcp { src, dst } | SetField::Udp { src, dst } | SetField::Sctp { src, dst } => {
            let _ = put(packet, src, hdr::l4_src) && put(packet, dst, hdr::l4_dst);
            true
        }
        SetField::Icmp { ty, code } | SetField::Icmpv6 { ty, code } => {
            let _ = put(packet, ty, hdr::icmp_type) && put(packet, code, hdr::icmp_code);
            true
        }
        SetField::Nd { target, sll, tll } => {
            put_long(packet, target, hdr::nd_target);
            put(packet, sll, hdr::nd_sll);
            put(packet, tll, hdr::nd_tll);
            true
        }
        SetField::NdExt { reserved, options_type } => {
            put(packet, reserved, hdr::nd_reserved);
            put(packet, options_type, hdr::nd_options_type);
            true
        }
        SetField::Tunnel(_) => return Err(DropReason::ActionUnsupported),
    };
    if there { Ok(()) } else { Err(DropReason::ActionNoHeader) }
}

fn is_transport(field: &SetField) -> bool {
    use SetField::*;
    matches!(field, Tcp { .. } | Udp { .. } | Sctp { .. } | Icmp { .. } | Icmpv6 { .. } | Nd { .. } | NdExt { .. })
}

/// Writes a field, unless no bit of it is to be written.
fn put<T: Copy + PartialEq + Zero>(p: &mut Packet, m: &Masked<T>, f: fn(&mut Packet, T, T) -> bool) -> bool {
    m.mask == T::ZERO || f(p, m.value, m.mask)
}

fn put_long(p: &mut Packet, m: &Masked<[u8; 16]>, f: fn(&mut Packet, &[u8; 16], &[u8; 16]) -> bool) -> bool {
    m.mask == [0; 16] || f(p, &m.value, &m.mask)
}

trait Zero {
    const ZERO: Self;
}
impl Zero for u8 {
    const ZERO: u8 = 0;
}
impl Zero for u16 {
    const ZERO: u16 = 0;
}
impl Zero for u32 {
    const ZERO: u32 = 0;
}
impl Zero for [u8; 6] {
    const ZERO: [u8; 6] = [0; 6];
}

/// One less; false, with the packet unchanged, if it must not go on. What is not IP has no TTL.
pub fn decrement_ttl(packet: &mut Packet) -> bool {
    let l3 = match packet.meta().l3_ofs {
        NO_OFS => return true,
        ofs => packet.data().get(usize::from(ofs)..).unwrap_or_default(),
    };
    let (ttl, write): (u8, fn(&mut Packet, u8, u8) -> bool) = match l3.first().map(|b| b >> 4) {
        Some(4) => (Ipv4::parse(l3).map_or(255, Ipv4::ttl), hdr::ipv4_ttl),
        Some(6) => (Ipv6::parse(l3).map_or(255, Ipv6::hlim), hdr::ipv6_hlimit),
        _ => return true,
    };
    if ttl <= 1 {
        return false;
    }
    write(packet, ttl - 1, u8::MAX);
    true
}
