//! ARP and RARP for IPv4 over Ethernet (RFC 826).

use super::eth::{Mac, ethertype};
use crate::bytes::{array, be16, be32, set16, set32};

pub const HTYPE: usize = 0;
pub const PTYPE: usize = 2;
pub const HLEN: usize = 4;
pub const PLEN: usize = 5;
pub const OP: usize = 6;
pub const SHA: usize = 8;
pub const SPA: usize = 14;
pub const THA: usize = 18;
pub const TPA: usize = 24;
pub const LEN: usize = 28;

pub const OP_REQUEST: u16 = 1;
pub const OP_REPLY: u16 = 2;

/// An ARP packet of Ethernet and IPv4.
#[derive(Clone, Copy)]
pub struct Arp<'a>(&'a [u8; LEN]);

impl<'a> Arp<'a> {
    pub fn parse(l3: &'a [u8]) -> Option<Arp<'a>> {
        let b: &[u8; LEN] = l3.first_chunk()?;
        let ours = be16(b, HTYPE) == 1 && be16(b, PTYPE) == ethertype::IPV4 && b[HLEN] == 6 && b[PLEN] == 4;
        ours.then_some(Arp(b))
    }

    pub fn op(self) -> u16 {
        be16(self.0, OP)
    }

    pub fn sha(self) -> Mac {
        array(self.0, SHA)
    }

    pub fn spa(self) -> u32 {
        be32(self.0, SPA)
    }

    pub fn tha(self) -> Mac {
        array(self.0, THA)
    }

    pub fn tpa(self) -> u32 {
        be32(self.0, TPA)
    }
}

/// Writes a whole ARP packet to the first 28 bytes of `out`.
pub fn write(out: &mut [u8], op: u16, sha: Mac, spa: u32, tha: Mac, tpa: u32) {
    set16(out, HTYPE, 1);
    set16(out, PTYPE, ethertype::IPV4);
    out[HLEN] = 6;
    out[PLEN] = 4;
    set16(out, OP, op);
    out[SHA..SHA + 6].copy_from_slice(&sha);
    set32(out, SPA, spa);
    out[THA..THA + 6].copy_from_slice(&tha);
    set32(out, TPA, tpa);
}
