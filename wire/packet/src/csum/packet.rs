//! Checksums of whole packets: finishing those that are still due, verifying those nobody looked at.

use super::crc32c::crc32c_add;
use super::{add, finish, finish_udp, pseudo_v4, pseudo_v6};
use crate::bytes::{array, be16, set16};
use crate::hdr::{Ipv4, Layout, icmp, icmpv6, ipproto, ipv4, ipv6, sctp, tcp, udp};
use crate::{Csum, NO_OFS, Packet};

/// Why a checksum that is due cannot be computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CsumError {
    /// The place of the checksum is beyond the packet.
    Beyond,
    /// No whole IPv4 header where one should be.
    NoHeader,
}

/// Where the checksum is in a header of `proto`.
pub fn l4_csum_offset(proto: u8) -> Option<usize> {
    match proto {
        ipproto::TCP => Some(tcp::CSUM),
        ipproto::UDP => Some(udp::CSUM),
        ipproto::SCTP => Some(sctp::CSUM),
        ipproto::ICMPV6 => Some(icmpv6::CSUM),
        ipproto::ICMP => Some(icmp::CSUM),
        _ => None,
    }
}

/// Computes the checksums of a packet that are still due, L4 and IPv4; the packet is then complete. Must
/// not be called on a packet that is still to be segmented. Costs a pass over the payload.
pub fn finish_checksum(packet: &mut Packet) -> Result<(), CsumError> {
    if packet.meta().ip_csum == Csum::Partial {
        finish_ip_checksum(packet)?;
    }
    if packet.meta().csum != Csum::Partial {
        return Ok(());
    }
    let (data, meta) = packet.parts_mut();
    let start = usize::from(meta.csum_start);
    let end = data.len().saturating_sub(meta.l2_pad.into());
    let covered = data.get_mut(start..end).ok_or(CsumError::Beyond)?;
    let at = usize::from(meta.csum_offset);
    if at == sctp::CSUM {
        if covered.len() < sctp::LEN {
            return Err(CsumError::Beyond);
        }
        sctp::write_csum(covered);
    } else {
        if covered.len() < at + 2 {
            return Err(CsumError::Beyond);
        }
        // The field holds the pseudo header's sum, so it is summed with the rest.
        let sum = add(0, covered);
        let csum = if at == udp::CSUM { finish_udp(sum) } else { finish(sum) };
        set16(covered, at, csum);
    }
    meta.csum = Csum::Good;
    Ok(())
}

/// Computes the IPv4 header's checksum.
pub fn finish_ip_checksum(packet: &mut Packet) -> Result<(), CsumError> {
    let at = match packet.meta().l3_ofs {
        NO_OFS => crate::hdr::layout::l3(packet.data()).ok_or(CsumError::NoHeader)?.0,
        ofs => ofs.into(),
    };
    let l3 = packet.data_mut().get_mut(at..).ok_or(CsumError::NoHeader)?;
    let len = Ipv4::parse(l3).ok_or(CsumError::NoHeader)?.header_len();
    ipv4::write_csum(&mut l3[..len]);
    packet.meta_mut().ip_csum = Csum::Good;
    Ok(())
}

/// Whether the IPv4 header's checksum is right or due; remembers what it found. True for IPv6.
pub fn validate_ip(packet: &mut Packet) -> bool {
    match packet.meta().ip_csum {
        Csum::Good | Csum::Partial => return true,
        Csum::Bad => return false,
        Csum::Unknown => {}
    }
    let ofs = usize::from(packet.meta().l3_ofs);
    let Some(l3) = packet.data().get(ofs..) else { return false };
    let good = match l3.first().map(|b| b >> 4) {
        Some(4) => Ipv4::parse(l3).is_some_and(|ip| super::of(ip.bytes()) == 0),
        other => return other == Some(6),
    };
    packet.meta_mut().ip_csum = if good { Csum::Good } else { Csum::Bad };
    good
}

/// Whether the L4 checksum is right, due, or absent; remembers what it found. Needs the L3 offset
/// in the metadata. Fragments, protocols without a checksum and IPv6 packets on a source route are true.
pub fn validate(packet: &mut Packet) -> bool {
    match packet.meta().csum {
        Csum::Good | Csum::Partial => return true,
        Csum::Bad => return false,
        Csum::Unknown => {}
    }
    let good = l4_is_good(packet.data(), packet.meta().l3_ofs.into());
    packet.meta_mut().csum = if good { Csum::Good } else { Csum::Bad };
    good
}

fn l4_is_good(data: &[u8], l3_ofs: usize) -> bool {
    use crate::hdr::eth::ethertype;
    let ethertype = match data.get(l3_ofs).map(|b| b >> 4) {
        Some(4) => ethertype::IPV4,
        Some(6) => ethertype::IPV6,
        _ => return false,
    };
    let Some(l) = Layout::of_ip(data, l3_ofs, ethertype) else { return false };
    // Behind a routing header the checksum is over a destination that is not looked up here.
    if l.fragment || l.routing {
        return true;
    }
    let Some(at) = l4_csum_offset(l.proto) else { return true };
    let l4 = &data[l.l4_ofs..l.end];
    let field = if l.proto == ipproto::SCTP { 4 } else { 2 };
    if l4.len() < at + field {
        return false;
    }
    match l.proto {
        ipproto::SCTP => {
            let (before, field) = l4.split_at(sctp::CSUM);
            let crc = [before, &[0; 4], &field[4..]].into_iter().fold(!0, crc32c_add);
            (!crc).to_le_bytes() == field[..4]
        }
        ipproto::ICMP => super::of(l4) == 0,
        ipproto::UDP if be16(l4, udp::CSUM) == 0 => !l.is_v6,
        _ => finish(add(pseudo(data, &l), l4)) == 0,
    }
}

/// Sum of the pseudo header of the IP packet that `l` describes.
pub(crate) fn pseudo(data: &[u8], l: &Layout) -> u32 {
    let l3 = &data[l.l3_ofs..];
    let len = l.end - l.l4_ofs;
    if l.is_v6 {
        pseudo_v6(&array(l3, ipv6::SRC), &array(l3, ipv6::DST), l.proto, len as u32)
    } else {
        let word = |at| crate::bytes::be32(l3, at);
        pseudo_v4(word(ipv4::SRC), word(ipv4::DST), l.proto, len as u16)
    }
}
