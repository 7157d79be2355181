//! Header fields rewritten in place, with the checksums over them kept as right, or as wrong, as they were.
//!
//! Every function takes a value and a mask (bits of the value that count), needs the L3 offset in the metadata
//! where it rewrites beyond Ethernet, and says whether the field was there. An L4 checksum that is due only has
//! the pseudo header's part adjusted; a UDP checksum of 0 stays 0; later fragments have no L4 header.
//!
//! *reads* the headers up to the field; *writes* field and checksums; *cost* a few additions, for SCTP ports a
//! pass over the packet.

mod eth;
mod icmp;
mod ip;
mod l4;

pub use eth::{arp_op, arp_sha, arp_spa, arp_tha, arp_tpa, eth_dst, eth_src};
pub use icmp::{icmp_code, icmp_type, nd_options_type, nd_reserved, nd_sll, nd_target, nd_tll};
pub use ip::{ipv4_dst, ipv4_src, ipv4_tos, ipv4_ttl, ipv6_dst, ipv6_hlimit, ipv6_label, ipv6_src, ipv6_tclass};
pub use l4::{l4_dst, l4_src};

use crate::bytes::{be16, set16};
use crate::csum::{finish, finish_udp, fold};
use crate::hdr::{Chain, Ipv4, ipproto};
use crate::{Csum, NO_OFS, Packet};

/// An L4 header that is there.
#[derive(Clone, Copy)]
struct L4 {
    ofs: usize,
    proto: u8,
    v6: bool,
    /// The destination that the checksum covers is not the header's.
    source_routed: bool,
}

impl L4 {
    /// `None` in later fragments and without a whole L3 header.
    fn of(packet: &Packet) -> Option<L4> {
        let l3_ofs = l3_ofs(packet)?;
        let l3 = packet.data().get(l3_ofs..)?;
        match l3.first()? >> 4 {
            4 => {
                let ip = Ipv4::parse(l3)?;
                (!ip.is_later_fragment()).then(|| L4 {
                    ofs: l3_ofs + ip.header_len(),
                    proto: ip.proto(),
                    v6: false,
                    source_routed: false,
                })
            }
            _ => {
                let chain = Chain::walk(l3)?;
                (!chain.is_later_fragment()).then(|| L4 {
                    ofs: l3_ofs + chain.l4_ofs,
                    proto: chain.proto,
                    v6: true,
                    source_routed: chain.routing,
                })
            }
        }
    }

    /// Where the internet checksum is that covers this header and, maybe, the addresses.
    fn csum_at(self) -> Option<usize> {
        match self.proto {
            ipproto::TCP => Some(self.ofs + 16),
            ipproto::UDP | ipproto::UDPLITE | ipproto::DCCP => Some(self.ofs + 6),
            ipproto::ICMP if !self.v6 => Some(self.ofs + 2),
            ipproto::ICMPV6 if self.v6 => Some(self.ofs + 2),
            _ => None,
        }
    }

    /// The checksum over this header is still to be computed.
    fn is_due(self, packet: &Packet) -> bool {
        packet.meta().csum == Csum::Partial && usize::from(packet.meta().csum_start) == self.ofs
    }

    /// Takes a change of the addresses into the checksum.
    fn pseudo_changed(self, packet: &mut Packet, delta: u32) {
        let Some(at) = self.csum_at() else { return };
        if self.proto == ipproto::ICMP {
            return;
        }
        if !self.is_due(packet) {
            return self.adjust(packet, at, delta);
        }
        if let Some(field) = packet.data_mut().get_mut(at..at + 2) {
            let sum = fold(u32::from(be16(field, 0)) + u32::from(fold(delta)));
            set16(field, 0, sum);
        }
    }

    /// Takes a change of bytes behind the start of this header into the checksum.
    fn data_changed(self, packet: &mut Packet, delta: u32) {
        if let Some(at) = self.csum_at().filter(|_| !self.is_due(packet)) {
            self.adjust(packet, at, delta);
        }
    }

    fn adjust(self, packet: &mut Packet, at: usize, delta: u32) {
        let Some(field) = packet.data_mut().get_mut(at..at + 2) else { return };
        let old = be16(field, 0);
        let udp = self.proto == ipproto::UDP;
        if udp && old == 0 {
            return;
        }
        let sum = u32::from(!old) + u32::from(fold(delta));
        let new = if udp { finish_udp(sum) } else { finish(sum) };
        set16(field, 0, new);
    }
}

fn l3_ofs(packet: &Packet) -> Option<usize> {
    let ofs = packet.meta().l3_ofs;
    (ofs != NO_OFS).then_some(ofs.into())
}

/// Puts `value` under `mask` into the `N` bytes at `at`. Answers the bytes before and after, or `None` when they
/// are not there.
fn replace<const N: usize>(
    packet: &mut Packet,
    at: usize,
    value: &[u8; N],
    mask: &[u8; N],
) -> Option<([u8; N], [u8; N])> {
    let field: &mut [u8; N] = packet.data_mut().get_mut(at..)?.first_chunk_mut()?;
    let old = *field;
    for i in 0..N {
        field[i] = old[i] & !mask[i] | value[i] & mask[i];
    }
    Some((old, *field))
}

#[cfg(test)]
mod tests;
