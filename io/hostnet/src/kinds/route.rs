//! Routes (`RTM_*ROUTE`, struct rtmsg).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use smallvec::SmallVec;

use super::addr::{family, max_prefix};
use crate::wire::{Attrs, Message, u16_at, u32_at};

pub const RTM_NEWROUTE: u16 = 24;
pub const RTM_DELROUTE: u16 = 25;
pub const RTM_GETROUTE: u16 = 26;

pub const RTMSG_LEN: usize = 12;
/// Offset of the 8-bit table in `rtmsg`; tables above 255 show [`RT_TABLE_COMPAT`] there.
pub const RTMSG_TABLE_AT: usize = 4;
pub const RT_TABLE_COMPAT: u8 = 252;
pub const RT_TABLE_DEFAULT: u32 = 253;
pub const RT_TABLE_MAIN: u32 = 254;
pub const RT_TABLE_LOCAL: u32 = 255;

pub const RTN_UNICAST: u8 = 1;
pub const RTN_LOCAL: u8 = 2;

const RTM_F_CLONED: u32 = 0x200;
/// The next hop cannot be used: its device is down.
pub const RTNH_F_DEAD: u8 = 1;
pub const RTNH_F_LINKDOWN: u8 = 16;

const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_MULTIPATH: u16 = 9;
pub(crate) const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTNEXTHOP_LEN: usize = 8;
/// More next hops than this in one route are not kept.
const MAX_NEXT_HOPS: usize = 256;

/// What several routes of the kernel may share: it tells them apart by their next hops.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RouteKey {
    pub table: u32,
    /// The prefix; host bits are zero. Its family is the route's.
    pub dst: IpAddr,
    pub prefix_len: u8,
    pub tos: u8,
    /// The metric: lower wins.
    pub priority: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    pub key: RouteKey,
    /// `RTN_*`: 1 unicast, 2 local, 3 broadcast, 6 blackhole, 7 unreachable, ...
    pub kind: u8,
    /// `RT_SCOPE_*`.
    pub scope: u8,
    /// `RTPROT_*`: who installed it.
    pub protocol: u8,
    pub prefer_src: Option<IpAddr>,
    pub next_hops: SmallVec<[NextHop; 1]>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NextHop {
    pub link: u32,
    /// None: the destination is on the link. May be of the other family (RFC 5549).
    pub gateway: Option<IpAddr>,
    /// 1 and up.
    pub weight: u16,
    /// `RTNH_F_*`.
    pub flags: u8,
}

impl NextHop {
    /// Dead and link-down marks come and go; they do not make it another next hop.
    pub fn same_way(&self, o: &NextHop) -> bool {
        self.link == o.link && self.gateway == o.gateway
    }
}

pub(crate) fn rtmsg(family: u8, table: u32) -> [u8; RTMSG_LEN] {
    let mut b = [0; RTMSG_LEN];
    b[0] = family;
    b[RTMSG_TABLE_AT] = u8::try_from(table).unwrap_or(RT_TABLE_COMPAT);
    b
}

/// The table of a route message without looking at more than needed: what is not asked for must cost
/// next to nothing.
pub fn table_of(m: &Message<'_>) -> Option<u32> {
    let (h, mut attrs) = m.split::<RTMSG_LEN>()?;
    Some(match h[RTMSG_TABLE_AT] {
        RT_TABLE_COMPAT => attrs.find(|a| a.kind == RTA_TABLE)?.u32()?,
        t => u32::from(t),
    })
}

pub fn parse(m: &Message<'_>) -> Option<Route> {
    let (h, attrs) = m.split::<RTMSG_LEN>()?;
    let any: IpAddr = match i32::from(h[0]) {
        libc::AF_INET => Ipv4Addr::UNSPECIFIED.into(),
        libc::AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let rtm_flags = u32_at(h, 8);
    if rtm_flags & RTM_F_CLONED != 0 {
        return None;
    }
    let mut r = Route {
        key: RouteKey { table: h[RTMSG_TABLE_AT].into(), dst: any, prefix_len: h[1], tos: h[3], priority: 0 },
        protocol: h[5],
        scope: h[6],
        kind: h[7],
        prefer_src: None,
        next_hops: SmallVec::new(),
    };
    let mut one = NextHop { link: 0, gateway: None, weight: 1, flags: rtm_flags as u8 };
    for a in attrs {
        match a.kind {
            RTA_DST => r.key.dst = a.ip()?,
            RTA_OIF => one.link = a.u32()?,
            RTA_GATEWAY => one.gateway = a.ip(),
            RTA_VIA => one.gateway = via(a.data),
            RTA_PRIORITY => r.key.priority = a.u32()?,
            RTA_PREFSRC => r.prefer_src = a.ip(),
            RTA_TABLE => r.key.table = a.u32()?,
            RTA_MULTIPATH => r.next_hops = multipath(a.data),
            _ => {}
        }
    }
    if r.key.prefix_len > max_prefix(any) || family(r.key.dst) != h[0] {
        return None;
    }
    if r.next_hops.is_empty() && one.link != 0 {
        r.next_hops.push(one);
    }
    Some(r)
}

/// `struct rtvia`: a family, then the address.
fn via(b: &[u8]) -> Option<IpAddr> {
    crate::wire::ip(b.get(2..)?)
}

/// A list of `struct rtnexthop`, each with attributes of its own.
fn multipath(mut b: &[u8]) -> SmallVec<[NextHop; 1]> {
    let mut hops = SmallVec::new();
    while let Some(h) = b.first_chunk::<RTNEXTHOP_LEN>() {
        let len = usize::from(u16_at(h, 0));
        if len < RTNEXTHOP_LEN || len > b.len() || hops.len() == MAX_NEXT_HOPS {
            break;
        }
        let mut hop = NextHop { link: u32_at(h, 4), gateway: None, weight: u16::from(h[3]) + 1, flags: h[2] };
        for a in Attrs(&b[RTNEXTHOP_LEN..len]) {
            match a.kind {
                RTA_GATEWAY => hop.gateway = a.ip(),
                RTA_VIA => hop.gateway = via(a.data),
                _ => {}
            }
        }
        hops.push(hop);
        b = b.get((len + 3) & !3..).unwrap_or_default();
    }
    hops
}
