//! Interface addresses (`RTM_*ADDR`, struct ifaddrmsg).

use std::net::IpAddr;

use crate::wire::{Message, u32_at};

pub const RTM_NEWADDR: u16 = 20;
pub const RTM_DELADDR: u16 = 21;
pub const RTM_GETADDR: u16 = 22;

const IFADDR_LEN: usize = 8;
pub(crate) const IFA_ADDRESS: u16 = 1;
pub(crate) const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;

/// What the kernel identifies an address by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AddrKey {
    pub link: u32,
    pub ip: IpAddr,
    pub prefix_len: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addr {
    pub key: AddrKey,
    /// The other end on a point-to-point link, else the address itself.
    pub peer: IpAddr,
    /// `RT_SCOPE_*`: 0 universe, 253 link, 254 host.
    pub scope: u8,
    /// `IFA_F_*`.
    pub flags: u32,
}

pub(crate) fn ifaddr(ip: IpAddr, prefix_len: u8, link: u32) -> [u8; IFADDR_LEN] {
    let mut b = [0; IFADDR_LEN];
    b[0] = family(ip);
    b[1] = prefix_len;
    b[4..8].copy_from_slice(&link.to_ne_bytes());
    b
}

pub(crate) fn family(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

/// The bytes of an address as attributes carry it.
pub(crate) fn ip_bytes(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

pub fn parse(m: &Message<'_>) -> Option<Addr> {
    let (h, attrs) = m.split::<IFADDR_LEN>()?;
    let (mut local, mut address, mut flags) = (None, None, u32::from(h[2]));
    for a in attrs {
        match a.kind {
            IFA_LOCAL => local = a.ip(),
            IFA_ADDRESS => address = a.ip(),
            IFA_FLAGS => flags = a.u32()?,
            _ => {}
        }
    }
    // IPv6 gives IFA_LOCAL only with a peer.
    let ip = local.or(address)?;
    if family(ip) != h[0] || h[1] > max_prefix(ip) {
        return None;
    }
    Some(Addr {
        key: AddrKey { link: u32_at(h, 4), ip, prefix_len: h[1] },
        peer: address.unwrap_or(ip),
        scope: h[3],
        flags,
    })
}

pub(crate) fn max_prefix(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}
