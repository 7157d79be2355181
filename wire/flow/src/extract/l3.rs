//! IPv4, IPv6, ARP, NSH and the transport headers.

use super::{Cursor, MAX_EXT_HEADERS, Offsets, be16, icmpv6, part};
use crate::key::{DpKey, FRAG_ANY, FRAG_LATER, IPV6_LABEL_MASK, ipproto};

const NSH_MD1_LEN: usize = 24;
const NSH_BASE_LEN: usize = 8;

pub(super) fn ipv4(c: &mut Cursor, key: &mut DpKey, ofs: &mut Offsets) {
    let Some(h) = c.peek::<20>() else { return };
    let header = usize::from(h[0] & 0xf) * 4;
    let total = usize::from(be16(&part(h, 2)));
    if header < 20 || header > total || total > c.len() {
        return;
    }
    let Ok(pad) = u16::try_from(c.len() - total) else { return };
    ofs.l2_pad = pad;
    c.limit(total);
    c.skip(header);

    let b = &mut key.base;
    b.nw_tos = h[1];
    b.nw_ttl = h[8];
    b.nw_proto = h[9];
    b.nw_src = u32::from_be_bytes(part(h, 12)).into();
    b.nw_dst = u32::from_be_bytes(part(h, 16)).into();
    let frag = be16(&part(h, 6));
    if frag & 0x3fff != 0 {
        b.nw_frag = if frag & 0x1fff != 0 { FRAG_ANY | FRAG_LATER } else { FRAG_ANY };
    }
    transport(c, key, ofs, false);
}

pub(super) fn ipv6(c: &mut Cursor, key: &mut DpKey, ofs: &mut Offsets) {
    let Some(h) = c.peek::<40>() else { return };
    let payload = usize::from(be16(&part(h, 4)));
    let Some(pad) = (c.len() - 40).checked_sub(payload) else { return };
    let Ok(pad) = u16::try_from(pad) else { return };
    ofs.l2_pad = pad;
    c.limit(40 + payload);
    c.skip(40);

    key.v6.ipv6_src = part(h, 8);
    key.v6.ipv6_dst = part(h, 24);
    let Some((proto, frag)) = extension_headers(c, h[6]) else { return };
    let first = u32::from_be_bytes(part(h, 0));
    key.v6.ipv6_label = (first & IPV6_LABEL_MASK).into();
    let b = &mut key.base;
    (b.nw_proto, b.nw_frag, b.nw_tos, b.nw_ttl) = (proto, frag, (first >> 20) as u8, h[7]);
    transport(c, key, ofs, true);
}

/// Skips extension headers up to the first that is none, or to a later fragment's payload. The
/// protocol found and the fragment bits; None if the chain is broken.
fn extension_headers(c: &mut Cursor, first: u8) -> Option<(u8, u8)> {
    let mut proto = first;
    let mut frag = 0;
    for _ in 0..MAX_EXT_HEADERS {
        let unit = match proto {
            ipproto::HOPOPTS | ipproto::ROUTING | ipproto::DSTOPTS => 8,
            ipproto::AH => 4,
            ipproto::FRAGMENT => 0,
            _ => return Some((proto, frag)),
        };
        let h = c.peek::<8>()?;
        let len = match unit {
            8 => (usize::from(h[1]) + 1) * 8,
            4 => (usize::from(h[1]) + 2) * 4,
            _ => 8,
        };
        if !c.skip(len) {
            return None;
        }
        if unit == 0 {
            let place = be16(&part(h, 2));
            if place != 0 {
                frag = FRAG_ANY;
                if place & 0xfff8 != 0 {
                    return Some((ipproto::FRAGMENT, FRAG_ANY | FRAG_LATER));
                }
            }
        }
        proto = h[0];
    }
    None
}

pub(super) fn arp(c: &mut Cursor, key: &mut DpKey) {
    let Some(h) = c.take::<28>() else { return };
    if h[..6] != [0, 1, 8, 0, 6, 4] {
        return;
    }
    let op = be16(&part(h, 6));
    if let Ok(op) = u8::try_from(op) {
        key.base.nw_proto = op;
    }
    key.v6.arp_sha = part(h, 8);
    key.base.nw_src = u32::from_be_bytes(part(h, 14)).into();
    key.v6.arp_tha = part(h, 18);
    key.base.nw_dst = u32::from_be_bytes(part(h, 24)).into();
}

pub(super) fn nsh(c: &mut Cursor, key: &mut DpKey) {
    let Some(h) = c.peek::<NSH_BASE_LEN>() else { return };
    let word = be16(&part(h, 0));
    let len = usize::from(word & 0x3f) * 4;
    if word >> 14 != 0 || len > c.len() || len < NSH_BASE_LEN {
        return;
    }
    let m = &mut key.misc;
    match h[2] & 0xf {
        1 if len == NSH_MD1_LEN => {
            let Some(ctx) = c.peek::<NSH_MD1_LEN>() else { return };
            for (n, w) in m.nsh_context.iter_mut().enumerate() {
                *w = u32::from_be_bytes(part(ctx, 8 + 4 * n)).into();
            }
        }
        2 => {}
        _ => return,
    }
    m.nsh_flags = (word >> 12 & 3) as u8;
    m.nsh_ttl = (word >> 6 & 0x3f) as u8;
    m.nsh_mdtype = h[2] & 0xf;
    m.nsh_np = h[3];
    m.nsh_path_hdr = u32::from_be_bytes(part(h, 4)).into();
}

fn transport(c: &mut Cursor, key: &mut DpKey, ofs: &mut Offsets, v6: bool) {
    ofs.l4 = c.pos();
    if key.base.nw_frag & FRAG_LATER != 0 {
        return;
    }
    let b = &mut key.base;
    ofs.l4_valid = match b.nw_proto {
        ipproto::TCP => tcp(c, key),
        ipproto::UDP if c.len() >= 8 => ports(c, key),
        ipproto::SCTP if c.len() >= 12 => ports(c, key),
        ipproto::ICMP if !v6 && c.len() >= 8 => type_code(c, key),
        ipproto::IGMP if !v6 => igmp(c, key),
        ipproto::ICMPV6 if v6 => icmpv6::icmpv6(c, key),
        _ => false,
    };
}

fn tcp(c: &Cursor, key: &mut DpKey) -> bool {
    let Some(h) = c.peek::<20>() else { return false };
    let header = usize::from(h[12] >> 4) * 4;
    if header < 20 || header > c.len() {
        return false;
    }
    key.base.tcp_flags = (be16(&part(h, 12)) & 0xfff).into();
    ports(c, key)
}

fn ports(c: &Cursor, key: &mut DpKey) -> bool {
    let Some(h) = c.peek::<4>() else { return false };
    key.base.tp_src = be16(&part(h, 0)).into();
    key.base.tp_dst = be16(&part(h, 2)).into();
    true
}

/// Type and code, widened to ports.
pub(super) fn type_code(c: &Cursor, key: &mut DpKey) -> bool {
    let Some([t, code]) = c.peek::<2>() else { return false };
    key.base.tp_src = u16::from(*t).into();
    key.base.tp_dst = u16::from(*code).into();
    true
}

fn igmp(c: &Cursor, key: &mut DpKey) -> bool {
    let Some(h) = c.peek::<8>() else { return false };
    key.misc.igmp_group_ip4 = u32::from_be_bytes(part(h, 4)).into();
    type_code(c, key)
}
