//! One write into a header, with the checksums that cover it.

use fv_dpif::action::Masked;
use fv_packet::csum::{delta, fold, update};
use fv_packet::hdr::eth::ethertype;
use fv_packet::hdr::{Layout, icmp, icmpv6, ipproto, ipv4, tcp, udp};
use fv_packet::{Csum, NO_OFS, Packet};

use super::blend;

/// Which checksums a field is in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Covered {
    Nothing,
    /// The IPv4 header's.
    Ip,
    /// The IPv4 header's, and by the pseudo header L4's.
    IpAndPseudo,
    /// By the pseudo header L4's.
    Pseudo,
    /// L4's.
    L4,
}

/// The IP packet's layout, found from the L3 offset that extraction left.
pub fn layout(packet: &Packet) -> Option<Layout> {
    let ofs = packet.meta().l3_ofs;
    if ofs == NO_OFS {
        return None;
    }
    let ethertype = match packet.data().get(usize::from(ofs))? >> 4 {
        4 => ethertype::IPV4,
        6 => ethertype::IPV6,
        _ => return None,
    };
    Layout::of_ip(packet.data(), ofs.into(), ethertype)
}

/// Writes masked bytes at `at`, which is even counted from its header's start, as is their number.
/// The caller has checked that they are inside the packet.
pub fn patch<const N: usize>(packet: &mut Packet, l: &Layout, at: usize, new: &Masked<[u8; N]>, covered: Covered) {
    if new.mask == [0; N] {
        return;
    }
    let (data, meta) = packet.parts_mut();
    let Some(field) = data.get_mut(at..at + N) else { return };
    let mut old = [0; N];
    old.copy_from_slice(field);
    blend(field, new);
    let mut now = [0; N];
    now.copy_from_slice(field);
    if old == now {
        return;
    }
    if matches!(covered, Covered::Ip | Covered::IpAndPseudo) {
        rewrite(data, l.l3_ofs + ipv4::CSUM, |csum| update(csum, &old, &now));
    }
    let pseudo = matches!(covered, Covered::Pseudo | Covered::IpAndPseudo);
    if !(pseudo || covered == Covered::L4) || l.later_fragment {
        return;
    }
    let Some(at) = l4_csum(l, pseudo) else { return };
    if at + 2 > l.end {
        return;
    }
    if meta.csum == Csum::Partial {
        // The field holds the pseudo header's sum; the rest is summed when the checksum is made.
        if pseudo {
            rewrite(data, at, |sum| fold(u32::from(sum) + delta(&old, &now)));
        }
        return;
    }
    let is_udp = l.proto == ipproto::UDP;
    rewrite(data, at, |csum| match update(csum, &old, &now) {
        // A UDP packet without checksum stays without, and none becomes so.
        _ if is_udp && csum == 0 => 0,
        0 if is_udp => 0xffff,
        new => new,
    });
}

/// Where the L4 checksum is that covers L4's bytes, or the pseudo header.
fn l4_csum(l: &Layout, pseudo: bool) -> Option<usize> {
    let ofs = match l.proto {
        ipproto::TCP => tcp::CSUM,
        ipproto::UDP => udp::CSUM,
        ipproto::ICMPV6 if l.is_v6 => icmpv6::CSUM,
        ipproto::ICMP if !l.is_v6 && !pseudo => icmp::CSUM,
        _ => return None,
    };
    Some(l.l4_ofs + ofs)
}

fn rewrite(data: &mut [u8], at: usize, f: impl FnOnce(u16) -> u16) {
    if let Some(field) = data.get_mut(at..at + 2) {
        let old = u16::from_be_bytes([field[0], field[1]]);
        field.copy_from_slice(&f(old).to_be_bytes());
    }
}
