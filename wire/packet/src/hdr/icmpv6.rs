//! ICMPv6 (RFC 4443), neighbour discovery (RFC 4861) and multicast listener discovery types.

use super::eth::Mac;
use crate::bytes::{array, be16, be32};

pub const TYPE: usize = 0;
pub const CODE: usize = 1;
pub const CSUM: usize = 2;
pub const LEN: usize = 4;
/// Flags word of neighbour discovery, then the target, then options.
pub const ND_FLAGS: usize = 4;
pub const ND_TARGET: usize = 8;
pub const ND_LEN: usize = 24;

pub const ECHO_REQUEST: u8 = 128;
pub const ECHO_REPLY: u8 = 129;
pub const MLD_QUERY: u8 = 130;
pub const MLD_REPORT: u8 = 131;
pub const MLD_DONE: u8 = 132;
pub const ROUTER_SOLICIT: u8 = 133;
pub const ROUTER_ADVERT: u8 = 134;
pub const NEIGHBOR_SOLICIT: u8 = 135;
pub const NEIGHBOR_ADVERT: u8 = 136;
pub const REDIRECT: u8 = 137;
pub const MLD2_REPORT: u8 = 143;

pub const OPT_SLL: u8 = 1;
pub const OPT_TLL: u8 = 2;
/// Options that [`nd_options`] yields at most.
pub const MAX_OPTIONS: usize = 32;

#[derive(Clone, Copy)]
pub struct Icmpv6<'a>(&'a [u8]);

impl<'a> Icmpv6<'a> {
    /// The message that `l4` holds, to its end.
    pub fn parse(l4: &'a [u8]) -> Option<Icmpv6<'a>> {
        (l4.len() >= LEN).then_some(Icmpv6(l4))
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

    /// The message as a neighbour solicitation or advertisement.
    pub fn nd(self) -> Option<Nd<'a>> {
        let nd = matches!(self.icmp_type(), NEIGHBOR_SOLICIT | NEIGHBOR_ADVERT) && self.code() == 0;
        (nd && self.0.len() >= ND_LEN).then_some(Nd(self.0))
    }
}

/// A neighbour solicitation or advertisement.
#[derive(Clone, Copy)]
pub struct Nd<'a>(&'a [u8]);

impl Nd<'_> {
    pub fn flags(self) -> u32 {
        be32(self.0, ND_FLAGS)
    }

    pub fn target(self) -> [u8; 16] {
        array(self.0, ND_TARGET)
    }

    pub fn sll(self) -> Option<Mac> {
        self.link_layer(OPT_SLL)
    }

    pub fn tll(self) -> Option<Mac> {
        self.link_layer(OPT_TLL)
    }

    fn link_layer(self, kind: u8) -> Option<Mac> {
        nd_options(self.0).find(|o| o.kind == kind && o.len == 8).map(|o| array(self.0, o.at + 2))
    }
}

/// Place of one option in an ICMPv6 message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NdOption {
    pub kind: u8,
    pub at: usize,
    /// Whole length in bytes.
    pub len: usize,
}

/// Options of the neighbour discovery message `l4`, as far as they are well formed.
pub fn nd_options(l4: &[u8]) -> impl Iterator<Item = NdOption> + '_ {
    let mut at = ND_LEN;
    std::iter::from_fn(move || {
        let (kind, units) = (*l4.get(at)?, *l4.get(at + 1)?);
        let len = usize::from(units) * 8;
        if len == 0 || at + len > l4.len() {
            return None;
        }
        let option = NdOption { kind, at, len };
        at += len;
        Some(option)
    })
    .take(MAX_OPTIONS)
}
