//! Neighbours (`RTM_*NEIGH`, struct ndmsg).

use std::net::IpAddr;

use super::addr::family;
use crate::wire::{Message, u16_at, u32_at};

pub const RTM_NEWNEIGH: u16 = 28;
pub const RTM_DELNEIGH: u16 = 29;
pub const RTM_GETNEIGH: u16 = 30;

pub const NDMSG_LEN: usize = 12;
/// Offset of the interface index in `ndmsg`.
pub const NDMSG_LINK_AT: usize = 4;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;

/// `NUD_*` states in which the address is known.
const NUD_VALID: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NeighKey {
    pub link: u32,
    pub ip: IpAddr,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neigh {
    pub key: NeighKey,
    pub mac: Option<[u8; 6]>,
    /// `NUD_*`.
    pub state: u16,
    /// `NTF_*`.
    pub flags: u8,
}

impl Neigh {
    /// The MAC address may be used.
    pub fn is_valid(&self) -> bool {
        self.mac.is_some() && self.state & NUD_VALID != 0
    }
}

pub(crate) fn ndmsg() -> [u8; NDMSG_LEN] {
    [0; NDMSG_LEN]
}

pub fn parse(m: &Message<'_>) -> Option<Neigh> {
    let (h, attrs) = m.split::<NDMSG_LEN>()?;
    let (mut ip, mut mac) = (None, None);
    for a in attrs {
        match a.kind {
            NDA_DST => ip = a.ip(),
            NDA_LLADDR => mac = a.mac(),
            _ => {}
        }
    }
    let ip = ip?;
    // The bridge family's entries are MAC table rows, not neighbours.
    if family(ip) != h[0] {
        return None;
    }
    Some(Neigh { key: NeighKey { link: u32_at(h, NDMSG_LINK_AT), ip }, mac, state: u16_at(h, 8), flags: h[10] })
}
