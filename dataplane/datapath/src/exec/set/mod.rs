//! Rewriting header fields and metadata.
//!
//! Checksums follow by what changed, so that a packet that came in wrong goes out wrong. Reads: the
//! header's place from the metadata that extraction left. Cost: per field a few loads and one fold.

mod l3;
mod l4;
mod patch;

use fv_dpif::DropReason;
use fv_dpif::action::{Masked, SetField};
use fv_packet::hdr::Lse;
use fv_packet::{Packet, mpls};

pub use l3::decrement_ttl;

pub fn set(packet: &mut Packet, field: &SetField) -> Result<(), DropReason> {
    let done = match field {
        SetField::SkbPriority(priority) => {
            packet.meta_mut().skb_priority = *priority;
            true
        }
        SetField::SkbMark(mark) => {
            let meta = packet.meta_mut();
            meta.pkt_mark = meta.pkt_mark & !mark.mask | mark.value & mark.mask;
            true
        }
        SetField::Eth { src, dst } => eth(packet, src, dst),
        SetField::Mpls { lse } => mpls::set_lse(packet, Lse(lse.value), lse.mask),
        SetField::Ipv4 { src, dst, tos, ttl } => l3::ipv4(packet, src, dst, tos, ttl),
        SetField::Ipv6 { src, dst, label, tclass, hlimit } => l3::ipv6(packet, src, dst, label, tclass, hlimit),
        SetField::Arp { sip, tip, op, sha, tha } => l3::arp(packet, sip, tip, op, sha, tha),
        SetField::Tcp { src, dst } => l4::ports(packet, l4::TCP, src, dst),
        SetField::Udp { src, dst } => l4::ports(packet, l4::UDP, src, dst),
        SetField::Sctp { src, dst } => l4::sctp(packet, src, dst),
        SetField::Icmp { ty, code } => l4::icmp(packet, l4::ICMP, ty, code),
        SetField::Icmpv6 { ty, code } => l4::icmp(packet, l4::ICMPV6, ty, code),
        SetField::Nd { target, sll, tll } => l4::nd(packet, target, sll, tll),
        SetField::NdExt { reserved, options_type } => l4::nd_ext(packet, reserved, options_type),
        SetField::Tunnel(_) => return Err(DropReason::ActionUnsupported),
    };
    if done { Ok(()) } else { Err(DropReason::ActionNoHeader) }
}

fn eth(packet: &mut Packet, src: &Masked<[u8; 6]>, dst: &Masked<[u8; 6]>) -> bool {
    if packet.meta().packet_type != 0 {
        return false;
    }
    let Some(header) = packet.data_mut().get_mut(..12) else { return false };
    let (to, from) = header.split_at_mut(6);
    blend(to, dst);
    blend(from, src);
    true
}

/// Writes the masked bits of `new` over `old`.
fn blend<const N: usize>(old: &mut [u8], new: &Masked<[u8; N]>) {
    for (o, (v, m)) in old.iter_mut().zip(new.value.iter().zip(new.mask)) {
        *o = *o & !m | v & m;
    }
}

/// The same mask and value as bytes of the wire.
fn be16(m: &Masked<u16>) -> Masked<[u8; 2]> {
    Masked { value: m.value.to_be_bytes(), mask: m.mask.to_be_bytes() }
}

fn be32(m: &Masked<u32>) -> Masked<[u8; 4]> {
    Masked { value: m.value.to_be_bytes(), mask: m.mask.to_be_bytes() }
}
