//! VLAN tags (IEEE 802.1Q, 802.1ad): type and tag control information in front of the inner type.

use crate::bytes::be16;

pub const LEN: usize = 4;
pub const VID_MASK: u16 = 0x0fff;
pub const PCP_SHIFT: u16 = 13;
/// Drop eligible; in flow keys the same bit means "there is a tag".
pub const CFI: u16 = 0x1000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    pub tpid: u16,
    pub tci: u16,
}

impl Tag {
    /// The tag at the start of `b`, which begins at its type.
    pub fn parse(b: &[u8]) -> Option<Tag> {
        (b.len() >= LEN).then(|| Tag { tpid: be16(b, 0), tci: be16(b, 2) })
    }

    pub fn vid(self) -> u16 {
        self.tci & VID_MASK
    }

    pub fn pcp(self) -> u8 {
        (self.tci >> PCP_SHIFT) as u8
    }
}
