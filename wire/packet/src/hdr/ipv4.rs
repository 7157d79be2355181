//! IPv4 (RFC 791).

use crate::bytes::{be16, be32, set16, set32};

pub const VER_IHL: usize = 0;
pub const TOS: usize = 1;
pub const TOTAL_LEN: usize = 2;
pub const ID: usize = 4;
pub const FRAG: usize = 6;
pub const TTL: usize = 8;
pub const PROTO: usize = 9;
pub const CSUM: usize = 10;
pub const SRC: usize = 12;
pub const DST: usize = 16;
pub const MIN_LEN: usize = 20;

pub const DF: u16 = 0x4000;
pub const MF: u16 = 0x2000;
pub const FRAG_OFS_MASK: u16 = 0x1fff;

/// A header with its options.
#[derive(Clone, Copy)]
pub struct Ipv4<'a>(&'a [u8]);

impl<'a> Ipv4<'a> {
    /// Version 4, the header whole, and a total length that covers at least the header.
    pub fn parse(l3: &'a [u8]) -> Option<Ipv4<'a>> {
        let fixed: &[u8; MIN_LEN] = l3.first_chunk()?;
        let len = usize::from(fixed[VER_IHL] & 0xf) * 4;
        if fixed[VER_IHL] >> 4 != 4 || len < MIN_LEN || usize::from(be16(fixed, TOTAL_LEN)) < len {
            return None;
        }
        l3.get(..len).map(Ipv4)
    }

    /// Header and options.
    pub fn header_len(self) -> usize {
        self.0.len()
    }

    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    pub fn tos(self) -> u8 {
        self.0[TOS]
    }

    pub fn total_len(self) -> usize {
        be16(self.0, TOTAL_LEN).into()
    }

    pub fn id(self) -> u16 {
        be16(self.0, ID)
    }

    /// Flags and fragment offset as they are.
    pub fn frag(self) -> u16 {
        be16(self.0, FRAG)
    }

    pub fn is_fragment(self) -> bool {
        self.frag() & (MF | FRAG_OFS_MASK) != 0
    }

    /// A fragment that does not begin with the L4 header.
    pub fn is_later_fragment(self) -> bool {
        self.frag() & FRAG_OFS_MASK != 0
    }

    pub fn ttl(self) -> u8 {
        self.0[TTL]
    }

    pub fn proto(self) -> u8 {
        self.0[PROTO]
    }

    pub fn csum(self) -> u16 {
        be16(self.0, CSUM)
    }

    pub fn src(self) -> u32 {
        be32(self.0, SRC)
    }

    pub fn dst(self) -> u32 {
        be32(self.0, DST)
    }
}

/// What [`write()`] puts into a header without options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fields {
    pub tos: u8,
    pub id: u16,
    pub frag: u16,
    pub ttl: u8,
    pub proto: u8,
    pub src: u32,
    pub dst: u32,
}

impl Default for Fields {
    fn default() -> Fields {
        Fields { tos: 0, id: 0, frag: 0, ttl: 64, proto: 0, src: 0, dst: 0 }
    }
}

/// Writes a 20-byte header with its checksum to the start of `out`.
pub fn write(out: &mut [u8], f: &Fields, total_len: u16) {
    out[VER_IHL] = 0x45;
    out[TOS] = f.tos;
    set16(out, TOTAL_LEN, total_len);
    set16(out, ID, f.id);
    set16(out, FRAG, f.frag);
    out[TTL] = f.ttl;
    out[PROTO] = f.proto;
    set32(out, SRC, f.src);
    set32(out, DST, f.dst);
    write_csum(&mut out[..MIN_LEN]);
}

/// Computes the checksum of `header`, which is exactly one IPv4 header.
pub fn write_csum(header: &mut [u8]) {
    set16(header, CSUM, 0);
    let csum = crate::csum::of(header);
    set16(header, CSUM, csum);
}
