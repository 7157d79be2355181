//! MPLS label stack entries (RFC 3032).

use crate::bytes::be32;

pub const LEN: usize = 4;

/// One label stack entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lse(pub u32);

impl Lse {
    pub fn new(label: u32, tc: u8, bos: bool, ttl: u8) -> Lse {
        Lse((label & 0xf_ffff) << 12 | u32::from(tc & 7) << 9 | u32::from(bos) << 8 | u32::from(ttl))
    }

    pub fn parse(b: &[u8]) -> Option<Lse> {
        (b.len() >= LEN).then(|| Lse(be32(b, 0)))
    }

    pub fn label(self) -> u32 {
        self.0 >> 12
    }

    pub fn tc(self) -> u8 {
        (self.0 >> 9) as u8 & 7
    }

    /// Bottom of stack.
    pub fn bos(self) -> bool {
        self.0 & 0x100 != 0
    }

    pub fn ttl(self) -> u8 {
        self.0 as u8
    }
}
