//! Ethernet II (IEEE 802.3).

use crate::bytes::{array, be16, set16};

pub const DST: usize = 0;
pub const SRC: usize = 6;
pub const TYPE: usize = 12;
pub const LEN: usize = 14;
/// A frame without its checksum is at least this long on a wire.
pub const MIN_FRAME: usize = 60;
/// Values below are an 802.3 length, not a type.
pub const TYPE_MIN: u16 = 0x600;

pub mod ethertype {
    pub const IPV4: u16 = 0x0800;
    pub const ARP: u16 = 0x0806;
    pub const TEB: u16 = 0x6558;
    pub const VLAN: u16 = 0x8100;
    pub const QINQ: u16 = 0x88a8;
    pub const RARP: u16 = 0x8035;
    pub const IPV6: u16 = 0x86dd;
    pub const SLOW: u16 = 0x8809;
    pub const MPLS: u16 = 0x8847;
    pub const MPLS_MCAST: u16 = 0x8848;
    pub const NSH: u16 = 0x894f;
    pub const CFM: u16 = 0x8902;
    pub const LLDP: u16 = 0x88cc;

    pub fn is_vlan(t: u16) -> bool {
        t == VLAN || t == QINQ
    }

    pub fn is_mpls(t: u16) -> bool {
        t == MPLS || t == MPLS_MCAST
    }
}

pub type Mac = [u8; 6];

pub const BROADCAST: Mac = [0xff; 6];

/// The first 14 bytes of a frame.
#[derive(Clone, Copy)]
pub struct Eth<'a>(&'a [u8; LEN]);

impl<'a> Eth<'a> {
    pub fn parse(frame: &'a [u8]) -> Option<Eth<'a>> {
        frame.first_chunk().map(Eth)
    }

    pub fn dst(self) -> Mac {
        array(self.0, DST)
    }

    pub fn src(self) -> Mac {
        array(self.0, SRC)
    }

    /// The type, or a length below [`TYPE_MIN`].
    pub fn ethertype(self) -> u16 {
        be16(self.0, TYPE)
    }
}

pub fn is_multicast(mac: Mac) -> bool {
    mac[0] & 1 != 0
}

/// Writes a header to the first 14 bytes of `out`.
pub fn write(out: &mut [u8], dst: Mac, src: Mac, ethertype: u16) {
    out[DST..DST + 6].copy_from_slice(&dst);
    out[SRC..SRC + 6].copy_from_slice(&src);
    set16(out, TYPE, ethertype);
}
