//! ICMP (RFC 792).

use crate::bytes::be16;

pub const TYPE: usize = 0;
pub const CODE: usize = 1;
pub const CSUM: usize = 2;
/// Identifier of an echo.
pub const ID: usize = 4;
pub const SEQ: usize = 6;
pub const LEN: usize = 8;

pub const ECHO_REPLY: u8 = 0;
pub const DST_UNREACH: u8 = 3;
pub const REDIRECT: u8 = 5;
pub const ECHO_REQUEST: u8 = 8;
pub const TIME_EXCEEDED: u8 = 11;
pub const PARAM_PROB: u8 = 12;

#[derive(Clone, Copy)]
pub struct Icmp<'a>(&'a [u8; LEN]);

impl<'a> Icmp<'a> {
    pub fn parse(l4: &'a [u8]) -> Option<Icmp<'a>> {
        l4.first_chunk().map(Icmp)
    }

    pub fn icmp_type(self) -> u8 {
        self.0[TYPE]
    }

    pub fn code(self) -> u8 {
        self.0[CODE]
    }

    pub fn csum(self) -> u16 {
        be16(self.0, CSUM)
    }

    pub fn id(self) -> u16 {
        be16(self.0, ID)
    }

    pub fn seq(self) -> u16 {
        be16(self.0, SEQ)
    }
}

/// Writes the 8 bytes without checksum.
pub fn write(out: &mut [u8], icmp_type: u8, code: u8, id: u16, seq: u16) {
    out[TYPE] = icmp_type;
    out[CODE] = code;
    crate::bytes::set16(out, CSUM, 0);
    crate::bytes::set16(out, ID, id);
    crate::bytes::set16(out, SEQ, seq);
}
