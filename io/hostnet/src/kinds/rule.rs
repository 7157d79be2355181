//! Policy rules (`RTM_*RULE`, struct fib_rule_hdr).

use std::net::IpAddr;

use super::addr::{family, max_prefix};
use crate::wire::{Message, u32_at};

pub const RTM_NEWRULE: u16 = 32;
pub const RTM_DELRULE: u16 = 33;
pub const RTM_GETRULE: u16 = 34;

const RULE_LEN: usize = 12;
const FIB_RULE_INVERT: u32 = 2;
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FRA_OIFNAME: u16 = 17;
const FRA_L3MDEV: u16 = 19;

/// A rule, ordered as it is applied: by family, then priority.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rule {
    pub v6: bool,
    pub priority: u32,
    /// `FR_ACT_*`: 1 looks the table up, others reject or jump.
    pub action: u8,
    pub table: u32,
    /// The rule holds where its conditions do not.
    pub invert: bool,
    pub src: Option<(IpAddr, u8)>,
    pub dst: Option<(IpAddr, u8)>,
    pub tos: u8,
    /// (mark, mask)
    pub fwmark: Option<(u32, u32)>,
    pub in_link: Option<String>,
    pub out_link: Option<String>,
    /// The table is the one of the packet's VRF.
    pub l3mdev: bool,
}

pub fn parse(m: &Message<'_>) -> Option<Rule> {
    let (h, attrs) = m.split::<RULE_LEN>()?;
    let v6 = match i32::from(h[0]) {
        libc::AF_INET => false,
        libc::AF_INET6 => true,
        _ => return None,
    };
    let mut r = Rule {
        v6,
        priority: 0,
        action: h[7],
        table: h[4].into(),
        invert: u32_at(h, 8) & FIB_RULE_INVERT != 0,
        src: None,
        dst: None,
        tos: h[3],
        fwmark: None,
        in_link: None,
        out_link: None,
        l3mdev: false,
    };
    let (mut mark, mut mask) = (None, None);
    for a in attrs {
        match a.kind {
            FRA_SRC => r.src = Some(prefix(a.ip()?, h[2], h[0])?),
            FRA_DST => r.dst = Some(prefix(a.ip()?, h[1], h[0])?),
            FRA_IIFNAME => r.in_link = Some(a.text()),
            FRA_OIFNAME => r.out_link = Some(a.text()),
            FRA_PRIORITY => r.priority = a.u32()?,
            FRA_FWMARK => mark = a.u32(),
            FRA_FWMASK => mask = a.u32(),
            FRA_TABLE => r.table = a.u32()?,
            FRA_L3MDEV => r.l3mdev = a.u8() == Some(1),
            _ => {}
        }
    }
    if mark.is_some() || mask.is_some_and(|m| m != 0) {
        r.fwmark = Some((mark.unwrap_or(0), mask.unwrap_or(u32::MAX)));
    }
    Some(r)
}

fn prefix(ip: IpAddr, len: u8, fam: u8) -> Option<(IpAddr, u8)> {
    (family(ip) == fam && len <= max_prefix(ip)).then_some((ip, len))
}
