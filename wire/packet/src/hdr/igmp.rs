//! IGMP (RFC 3376).

use crate::bytes::{be16, be32};

pub const TYPE: usize = 0;
pub const CODE: usize = 1;
pub const CSUM: usize = 2;
pub const GROUP: usize = 4;
pub const LEN: usize = 8;

pub const QUERY: u8 = 0x11;
pub const V1_REPORT: u8 = 0x12;
pub const V2_REPORT: u8 = 0x16;
pub const LEAVE: u8 = 0x17;
pub const V3_REPORT: u8 = 0x22;

#[derive(Clone, Copy)]
pub struct Igmp<'a>(&'a [u8; LEN]);

impl<'a> Igmp<'a> {
    pub fn parse(l4: &'a [u8]) -> Option<Igmp<'a>> {
        l4.first_chunk().map(Igmp)
    }

    pub fn igmp_type(self) -> u8 {
        self.0[TYPE]
    }

    pub fn code(self) -> u8 {
        self.0[CODE]
    }

    pub fn csum(self) -> u16 {
        be16(self.0, CSUM)
    }

    pub fn group(self) -> u32 {
        be32(self.0, GROUP)
    }
}
