//! TCP (RFC 9293).

use crate::bytes::{be16, be32, set16, set32};

pub const SRC: usize = 0;
pub const DST: usize = 2;
pub const SEQ: usize = 4;
pub const ACK: usize = 8;
/// Data offset and flags.
pub const CTL: usize = 12;
pub const WINDOW: usize = 14;
pub const CSUM: usize = 16;
pub const URGENT: usize = 18;
pub const MIN_LEN: usize = 20;

pub mod flags {
    pub const FIN: u16 = 0x001;
    pub const SYN: u16 = 0x002;
    pub const RST: u16 = 0x004;
    pub const PSH: u16 = 0x008;
    pub const ACK: u16 = 0x010;
    pub const URG: u16 = 0x020;
    pub const ECE: u16 = 0x040;
    pub const CWR: u16 = 0x080;
    pub const NS: u16 = 0x100;
    pub const ALL: u16 = 0xfff;
}

/// A header with its options.
#[derive(Clone, Copy)]
pub struct Tcp<'a>(&'a [u8]);

impl<'a> Tcp<'a> {
    pub fn parse(l4: &'a [u8]) -> Option<Tcp<'a>> {
        let fixed: &[u8; MIN_LEN] = l4.first_chunk()?;
        let len = usize::from(fixed[CTL] >> 4) * 4;
        if len < MIN_LEN {
            return None;
        }
        l4.get(..len).map(Tcp)
    }

    pub fn header_len(self) -> usize {
        self.0.len()
    }

    pub fn options(self) -> &'a [u8] {
        &self.0[MIN_LEN..]
    }

    pub fn src(self) -> u16 {
        be16(self.0, SRC)
    }

    pub fn dst(self) -> u16 {
        be16(self.0, DST)
    }

    pub fn seq(self) -> u32 {
        be32(self.0, SEQ)
    }

    pub fn ack(self) -> u32 {
        be32(self.0, ACK)
    }

    /// Twelve bits: reserved, NS and the eight classic flags.
    pub fn flags(self) -> u16 {
        be16(self.0, CTL) & flags::ALL
    }

    pub fn window(self) -> u16 {
        be16(self.0, WINDOW)
    }

    pub fn csum(self) -> u16 {
        be16(self.0, CSUM)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fields {
    pub src: u16,
    pub dst: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u16,
    pub window: u16,
}

impl Default for Fields {
    fn default() -> Fields {
        Fields { src: 0, dst: 0, seq: 0, ack: 0, flags: flags::ACK, window: 0xffff }
    }
}

/// Writes a header to the start of `out`; `header_len` counts options, which the caller writes.
/// The checksum is 0.
pub fn write(out: &mut [u8], f: &Fields, header_len: usize) {
    set16(out, SRC, f.src);
    set16(out, DST, f.dst);
    set32(out, SEQ, f.seq);
    set32(out, ACK, f.ack);
    set16(out, CTL, ((header_len / 4) as u16) << 12 | (f.flags & flags::ALL));
    set16(out, WINDOW, f.window);
    set32(out, CSUM, 0);
}
