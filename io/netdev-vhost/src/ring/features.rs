//! The negotiated features as the rings use them.

use fv_netdev::TxOffloads;
use fv_packet::vnet;

/// Bits of the feature word (virtio 1.2, sections 5.1.3 and 6).
pub mod feature {
    pub const CSUM: u64 = 1 << 0;
    pub const GUEST_CSUM: u64 = 1 << 1;
    pub const GUEST_TSO4: u64 = 1 << 7;
    pub const GUEST_TSO6: u64 = 1 << 8;
    pub const GUEST_ECN: u64 = 1 << 9;
    pub const GUEST_UFO: u64 = 1 << 10;
    pub const HOST_TSO4: u64 = 1 << 11;
    pub const HOST_TSO6: u64 = 1 << 12;
    pub const HOST_ECN: u64 = 1 << 13;
    pub const HOST_UFO: u64 = 1 << 14;
    pub const MRG_RXBUF: u64 = 1 << 15;
    /// Of the transport: writes to guest memory are to be logged.
    pub const LOG_ALL: u64 = 1 << 26;
    pub const INDIRECT_DESC: u64 = 1 << 28;
    pub const EVENT_IDX: u64 = 1 << 29;
    pub const VERSION_1: u64 = 1 << 32;
    pub const RING_PACKED: u64 = 1 << 34;
    pub const IN_ORDER: u64 = 1 << 35;
    pub const GUEST_USO4: u64 = 1 << 54;
    pub const GUEST_USO6: u64 = 1 << 55;
    pub const HOST_USO: u64 = 1 << 56;
}

/// The feature bits that both sides agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features(pub u64);

impl Features {
    /// What the rings can do, and offer.
    pub const RINGS: Features = Features(
        feature::CSUM
            | feature::GUEST_CSUM
            | feature::GUEST_TSO4
            | feature::GUEST_TSO6
            | feature::GUEST_ECN
            | feature::GUEST_UFO
            | feature::HOST_TSO4
            | feature::HOST_TSO6
            | feature::HOST_ECN
            | feature::HOST_UFO
            | feature::MRG_RXBUF
            | feature::LOG_ALL
            | feature::INDIRECT_DESC
            | feature::EVENT_IDX
            | feature::VERSION_1
            | feature::RING_PACKED
            | feature::IN_ORDER
            | feature::GUEST_USO4
            | feature::GUEST_USO6
            | feature::HOST_USO,
    );

    #[inline]
    pub fn has(self, bits: u64) -> bool {
        self.0 & bits == bits
    }

    /// Length of the header before each frame: legacy drivers without mergeable buffers leave the buffer
    /// count out (5.1.6.1).
    #[inline]
    pub fn header_len(self) -> usize {
        if self.0 & (feature::VERSION_1 | feature::MRG_RXBUF) != 0 { vnet::LEN_MERGED } else { vnet::LEN }
    }

    /// What may be left undone on packets to this guest. Partial SCTP checksums are CRC32c, which guests take
    /// for internet checksums when they forward.
    pub fn tx_offloads(self) -> TxOffloads {
        let csum = self.has(feature::GUEST_CSUM);
        let with_csum = |bits: u64| csum && self.has(bits);
        TxOffloads {
            ip_csum: false,
            l4_csum: csum,
            sctp_csum: false,
            tso4: with_csum(feature::GUEST_TSO4),
            tso6: with_csum(feature::GUEST_TSO6),
            tso_ecn: with_csum(feature::GUEST_ECN),
            ufo: with_csum(feature::GUEST_UFO),
            uso: with_csum(feature::GUEST_USO4 | feature::GUEST_USO6),
        }
    }

    /// Whether a guest with these features may ask for this (5.1.6.2.1).
    pub(super) fn may_ask(self, flags: u8, gso_type: u8) -> bool {
        use vnet::gso_type as t;
        if flags & vnet::NEEDS_CSUM != 0 && !self.has(feature::CSUM) {
            return false;
        }
        let bit = match gso_type & !t::ECN {
            t::NONE => return true,
            t::TCPV4 => feature::HOST_TSO4,
            t::TCPV6 => feature::HOST_TSO6,
            t::UDP => feature::HOST_UFO,
            t::UDP_L4 => feature::HOST_USO,
            _ => return false,
        };
        let ecn = gso_type & t::ECN == 0 || self.has(feature::HOST_ECN);
        self.has(bit) && ecn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let len = |bits| Features(bits).header_len();
        assert_eq!(len(0), 10);
        assert_eq!(len(feature::MRG_RXBUF), 12);
        assert_eq!(len(feature::VERSION_1), 12);
    }

    #[test]
    fn offloads_need_checksums() {
        assert_eq!(Features(feature::GUEST_TSO4).tx_offloads(), TxOffloads::default());
        let o = Features(feature::GUEST_CSUM | feature::GUEST_TSO4 | feature::GUEST_USO4).tx_offloads();
        assert_eq!(o, TxOffloads { l4_csum: true, tso4: true, ..Default::default() });
        let o = Features::RINGS.tx_offloads();
        assert!(o.tso4 && o.tso6 && o.tso_ecn && o.ufo && o.uso && !o.sctp_csum && !o.ip_csum);
    }

    #[test]
    fn asks() {
        use vnet::{NEEDS_CSUM, gso_type as t};
        let check = |bits, flags, gso, ok| assert_eq!(Features(bits).may_ask(flags, gso), ok, "{bits:x} {flags} {gso}");
        check(0, 0, t::NONE, true);
        check(0, NEEDS_CSUM, t::NONE, false);
        check(feature::CSUM, NEEDS_CSUM, t::NONE, true);
        check(feature::CSUM | feature::HOST_TSO4, NEEDS_CSUM, t::TCPV4, true);
        check(feature::CSUM | feature::HOST_TSO4, NEEDS_CSUM, t::TCPV4 | t::ECN, false);
        check(feature::CSUM | feature::HOST_TSO4 | feature::HOST_ECN, NEEDS_CSUM, t::TCPV4 | t::ECN, true);
        check(feature::CSUM | feature::HOST_TSO4, NEEDS_CSUM, t::TCPV6, false);
        check(!0, NEEDS_CSUM, 7, false);
    }
}
