//! TCP, UDP, SCTP, ICMP, ICMPv6 and neighbour discovery.
//!
//! A transport header that is not there, as in a later fragment or a packet cut short, is left
//! alone, as in the reference.

use fv_dpif::action::Masked;
use fv_packet::csum::crc32c;
use fv_packet::hdr::{Layout, icmpv6, ipproto, sctp as sctp_hdr};
use fv_packet::{Csum, Packet};

use super::patch::{Covered, layout, patch};
use super::{be16, be32, blend};

pub const TCP: u8 = ipproto::TCP;
pub const UDP: u8 = ipproto::UDP;
pub const ICMP: u8 = ipproto::ICMP;
pub const ICMPV6: u8 = ipproto::ICMPV6;

/// The packet's layout, if it has `len` bytes of a `proto` header.
fn header(packet: &Packet, proto: u8, len: usize) -> Option<Layout> {
    layout(packet).filter(|l| l.proto == proto && !l.later_fragment && l.l4_ofs + len <= l.end)
}

pub fn ports(packet: &mut Packet, proto: u8, src: &Masked<u16>, dst: &Masked<u16>) -> bool {
    let len = if proto == TCP { 20 } else { 8 };
    if let Some(l) = header(packet, proto, len) {
        patch(packet, &l, l.l4_ofs, &be16(src), Covered::L4);
        patch(packet, &l, l.l4_ofs + 2, &be16(dst), Covered::L4);
    }
    true
}

/// The checksum is a CRC: made anew over the whole packet, and as wrong as it was before.
pub fn sctp(packet: &mut Packet, src: &Masked<u16>, dst: &Masked<u16>) -> bool {
    let Some(l) = header(packet, ipproto::SCTP, sctp_hdr::LEN) else { return true };
    let partial = packet.meta().csum == Csum::Partial;
    let Some(body) = packet.data_mut().get_mut(l.l4_ofs..l.end) else { return true };
    let field = sctp_hdr::CSUM..sctp_hdr::CSUM + 4;
    let mut was = [0; 4];
    was.copy_from_slice(&body[field.clone()]);
    let crc = |body: &mut [u8]| {
        body[field.clone()].fill(0);
        if partial { 0 } else { crc32c(body) }
    };
    let error = u32::from_le_bytes(was) ^ crc(body);
    blend(&mut body[sctp_hdr::SRC..], &be16(src));
    blend(&mut body[sctp_hdr::DST..], &be16(dst));
    let new = (crc(body) ^ error).to_le_bytes();
    body[field].copy_from_slice(&new);
    true
}

pub fn icmp(packet: &mut Packet, proto: u8, ty: &Masked<u8>, code: &Masked<u8>) -> bool {
    if let Some(l) = header(packet, proto, 4) {
        let word = Masked { value: [ty.value, code.value], mask: [ty.mask, code.mask] };
        patch(packet, &l, l.l4_ofs, &word, Covered::L4);
    }
    true
}

pub fn nd(packet: &mut Packet, target: &Masked<[u8; 16]>, sll: &Masked<[u8; 6]>, tll: &Masked<[u8; 6]>) -> bool {
    let Some(l) = header(packet, ICMPV6, icmpv6::ND_LEN) else { return true };
    patch(packet, &l, l.l4_ofs + icmpv6::ND_TARGET, target, Covered::L4);
    for (kind, mac) in [(icmpv6::OPT_SLL, sll), (icmpv6::OPT_TLL, tll)] {
        let body = packet.data().get(l.l4_ofs..l.end).unwrap_or_default();
        let place = icmpv6::nd_options(body).find(|o| o.kind == kind && o.len == 8).map(|o| o.at);
        if let Some(at) = place {
            patch(packet, &l, l.l4_ofs + at + 2, mac, Covered::L4);
        }
    }
    true
}

/// The reserved word, which holds an advertisement's flags, and the first option's type.
pub fn nd_ext(packet: &mut Packet, reserved: &Masked<u32>, options_type: &Masked<u8>) -> bool {
    let Some(l) = header(packet, ICMPV6, icmpv6::ND_LEN) else { return true };
    patch(packet, &l, l.l4_ofs + icmpv6::ND_FLAGS, &be32(reserved), Covered::L4);
    if l.l4_ofs + icmpv6::ND_LEN + 2 <= l.end {
        let word = Masked { value: [options_type.value, 0], mask: [options_type.mask, 0] };
        patch(packet, &l, l.l4_ofs + icmpv6::ND_LEN, &word, Covered::L4);
    }
    true
}
