//! IPv6 and its extension headers (RFC 8200).

use super::ipproto;
use crate::bytes::{array, be16, be32, set16, set32};

/// Version, traffic class and flow label.
pub const VTF: usize = 0;
pub const PAYLOAD_LEN: usize = 4;
pub const NEXT: usize = 6;
pub const HLIM: usize = 7;
pub const SRC: usize = 8;
pub const DST: usize = 24;
pub const LEN: usize = 40;

pub const FRAG_LEN: usize = 8;
/// More fragments, in the offset field of a fragment header.
pub const FRAG_MORE: u16 = 1;
pub const FRAG_OFS_MASK: u16 = 0xfff8;

/// Extension headers that [`Chain::walk`] follows at most.
pub const MAX_EXTENSIONS: usize = 32;

/// The fixed header.
#[derive(Clone, Copy)]
pub struct Ipv6<'a>(&'a [u8; LEN]);

impl<'a> Ipv6<'a> {
    pub fn parse(l3: &'a [u8]) -> Option<Ipv6<'a>> {
        let b: &[u8; LEN] = l3.first_chunk()?;
        (b[0] >> 4 == 6).then_some(Ipv6(b))
    }

    pub fn tclass(self) -> u8 {
        (be16(self.0, 0) >> 4) as u8
    }

    pub fn label(self) -> u32 {
        be32(self.0, VTF) & 0xf_ffff
    }

    /// Bytes behind the fixed header.
    pub fn payload_len(self) -> usize {
        be16(self.0, PAYLOAD_LEN).into()
    }

    pub fn next(self) -> u8 {
        self.0[NEXT]
    }

    pub fn hlim(self) -> u8 {
        self.0[HLIM]
    }

    pub fn src(self) -> [u8; 16] {
        array(self.0, SRC)
    }

    pub fn dst(self) -> [u8; 16] {
        array(self.0, DST)
    }
}

/// A fragment header met on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frag {
    /// Where the fragment header is, from the IPv6 header.
    pub at: usize,
    /// Offset in bytes.
    pub offset: u16,
    pub more: bool,
    pub id: u32,
}

/// Where the extension headers lead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chain {
    /// The last header's protocol.
    pub proto: u8,
    /// Where it begins, from the IPv6 header. In a later fragment: where the fragment's data begins.
    pub l4_ofs: usize,
    pub frag: Option<Frag>,
    /// A routing header with segments left: the destination in the checksum is another than the header's.
    pub routing: bool,
    /// Where the number of the last header stands.
    pub proto_at: usize,
}

impl Chain {
    /// Follows the chain through `l3`, which begins with the IPv6 header. `None` when an extension header
    /// is cut off or there are more than [`MAX_EXTENSIONS`]. Stops at a later fragment.
    pub fn walk(l3: &[u8]) -> Option<Chain> {
        let mut proto = Ipv6::parse(l3)?.next();
        let mut at = LEN;
        let mut proto_at = NEXT;
        let mut frag = None;
        let mut routing = false;
        for _ in 0..=MAX_EXTENSIONS {
            let len = match proto {
                ipproto::HOPOPTS | ipproto::ROUTING | ipproto::DSTOPTS => {
                    routing |= proto == ipproto::ROUTING && *l3.get(at + 3)? != 0;
                    usize::from(*l3.get(at + 1)?) * 8 + 8
                }
                ipproto::AH => usize::from(*l3.get(at + 1)?) * 4 + 8,
                ipproto::FRAGMENT => {
                    let h: &[u8; FRAG_LEN] = l3.get(at..)?.first_chunk()?;
                    let field = be16(h, 2);
                    frag =
                        Some(Frag { at, offset: field & FRAG_OFS_MASK, more: field & FRAG_MORE != 0, id: be32(h, 4) });
                    FRAG_LEN
                }
                _ => return Some(Chain { proto, l4_ofs: at, frag, routing, proto_at }),
            };
            proto = *l3.get(at)?;
            proto_at = at;
            at += len;
            if at > l3.len() {
                return None;
            }
            if frag.is_some_and(|f| f.offset != 0) {
                return Some(Chain { proto, l4_ofs: at, frag, routing, proto_at });
            }
        }
        None
    }

    pub fn is_later_fragment(&self) -> bool {
        self.frag.is_some_and(|f| f.offset != 0)
    }

    /// A fragment of a larger packet, not a whole one with an idle fragment header.
    pub fn is_fragment(&self) -> bool {
        self.frag.is_some_and(|f| f.offset != 0 || f.more)
    }
}

/// What [`write()`] puts into a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fields {
    pub tclass: u8,
    pub label: u32,
    pub next: u8,
    pub hlim: u8,
    pub src: [u8; 16],
    pub dst: [u8; 16],
}

impl Default for Fields {
    fn default() -> Fields {
        Fields { tclass: 0, label: 0, next: ipproto::NO_NEXT, hlim: 64, src: [0; 16], dst: [0; 16] }
    }
}

/// Writes a 40-byte header to the start of `out`.
pub fn write(out: &mut [u8], f: &Fields, payload_len: u16) {
    set32(out, VTF, 6 << 28 | u32::from(f.tclass) << 20 | (f.label & 0xf_ffff));
    set16(out, PAYLOAD_LEN, payload_len);
    out[NEXT] = f.next;
    out[HLIM] = f.hlim;
    out[SRC..SRC + 16].copy_from_slice(&f.src);
    out[DST..DST + 16].copy_from_slice(&f.dst);
}
