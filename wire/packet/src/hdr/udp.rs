//! UDP (RFC 768).

use crate::bytes::{be16, set16};

pub const SRC: usize = 0;
pub const DST: usize = 2;
pub const LENGTH: usize = 4;
pub const CSUM: usize = 6;
pub const LEN: usize = 8;

#[derive(Clone, Copy)]
pub struct Udp<'a>(&'a [u8; LEN]);

impl<'a> Udp<'a> {
    pub fn parse(l4: &'a [u8]) -> Option<Udp<'a>> {
        l4.first_chunk().map(Udp)
    }

    pub fn src(self) -> u16 {
        be16(self.0, SRC)
    }

    pub fn dst(self) -> u16 {
        be16(self.0, DST)
    }

    /// Header and payload as the header says; not checked.
    pub fn length(self) -> usize {
        be16(self.0, LENGTH).into()
    }

    /// 0: there is none.
    pub fn csum(self) -> u16 {
        be16(self.0, CSUM)
    }
}

/// Writes a header without checksum to the start of `out`.
pub fn write(out: &mut [u8], src: u16, dst: u16, length: u16) {
    set16(out, SRC, src);
    set16(out, DST, dst);
    set16(out, LENGTH, length);
    set16(out, CSUM, 0);
}
