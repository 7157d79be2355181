//! SCTP's common header (RFC 9260). Its checksum is a CRC32c, least significant byte first.

use crate::bytes::{array, be16, be32, set16, set32};

pub const SRC: usize = 0;
pub const DST: usize = 2;
pub const VTAG: usize = 4;
pub const CSUM: usize = 8;
pub const LEN: usize = 12;

#[derive(Clone, Copy)]
pub struct Sctp<'a>(&'a [u8; LEN]);

impl<'a> Sctp<'a> {
    pub fn parse(l4: &'a [u8]) -> Option<Sctp<'a>> {
        l4.first_chunk().map(Sctp)
    }

    pub fn src(self) -> u16 {
        be16(self.0, SRC)
    }

    pub fn dst(self) -> u16 {
        be16(self.0, DST)
    }

    pub fn vtag(self) -> u32 {
        be32(self.0, VTAG)
    }

    pub fn csum(self) -> u32 {
        u32::from_le_bytes(array(self.0, CSUM))
    }
}

/// Writes a header without checksum to the start of `out`.
pub fn write(out: &mut [u8], src: u16, dst: u16, vtag: u32) {
    set16(out, SRC, src);
    set16(out, DST, dst);
    set32(out, VTAG, vtag);
    set32(out, CSUM, 0);
}

/// Computes the checksum of `packet`, which is the common header and all chunks.
pub fn write_csum(packet: &mut [u8]) {
    set32(packet, CSUM, 0);
    let crc = crate::csum::crc32c(packet);
    packet[CSUM..CSUM + 4].copy_from_slice(&crc.to_le_bytes());
}
