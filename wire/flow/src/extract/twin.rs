//! The naive extractor: absolute positions, one number at a time, no shared code with the fast one.

use super::Offsets;
use crate::key::DpKey;

/// Big-endian number of (the last 16 of) `n` bytes at `at`, if they lie before `end`.
fn num(f: &[u8], end: usize, at: usize, n: usize) -> Option<u128> {
    if at + n > end || end > f.len() {
        return None;
    }
    let mut v = 0u128;
    for b in &f[at..at + n] {
        v = v << 8 | *b as u128;
    }
    Some(v)
}

fn bytes<const N: usize>(v: u128) -> [u8; N] {
    let mut out = [0; N];
    for (i, b) in out.iter_mut().enumerate() {
        *b = (v >> (8 * (N - 1 - i))) as u8;
    }
    out
}

pub fn parse(f: &[u8], vlan_limit: u8, k: &mut DpKey, o: &mut Offsets) {
    let _ = walk(f, vlan_limit, k, o);
}

fn walk(f: &[u8], vlan_limit: u8, k: &mut DpKey, o: &mut Offsets) -> Option<()> {
    let end = f.len();
    let mut at = 0;
    let ty;
    if k.misc.packet_type == 0 {
        num(f, end, 0, 14)?;
        k.base.dl_dst = bytes(num(f, end, 0, 6)?);
        k.base.dl_src = bytes(num(f, end, 6, 6)?);
        at = 12;
        let mut tags = 0;
        while tags < vlan_limit as usize && tags < 2 {
            let tpid = num(f, end, at, 2)? as u16;
            if (tpid != 0x8100 && tpid != 0x88a8) || num(f, end, at, 6).is_none() {
                break;
            }
            k.base.vlans[tags].tpid.set(tpid);
            k.base.vlans[tags].tci.set(num(f, end, at + 2, 2)? as u16 | 0x1000);
            tags += 1;
            at += 4;
        }
        let t = num(f, end, at, 2)? as u16;
        at += 2;
        ty = if t >= 1536 {
            t
        } else if num(f, end, at, 6) == Some(0xaaaa_0300_0000) && num(f, end, at, 8).is_some() {
            let snap = num(f, end, at + 6, 2)? as u16;
            at += 8;
            if snap >= 1536 { snap } else { 0x5ff }
        } else {
            0x5ff
        };
    } else if k.misc.packet_type >> 16 == 1 {
        ty = k.misc.packet_type as u16;
    } else {
        return None;
    }
    k.base.dl_type.set(ty);
    if ty == 0x8847 || ty == 0x8848 {
        o.l2_5 = at.try_into().unwrap_or(0xffff);
        let mut labels = 0;
        while labels < 64 {
            let Some(lse) = num(f, end, at, 4) else { break };
            if labels < 3 {
                k.misc.mpls_lse[labels].set(lse as u32);
            }
            labels += 1;
            at += 4;
            if lse & 0x100 != 0 {
                break;
            }
        }
    }
    o.l3 = at.try_into().unwrap_or(0xffff);
    match ty {
        0x800 => v4(f, at, k, o),
        0x86dd => v6(f, at, k, o),
        0x806 | 0x8035 => {
            num(f, end, at, 28)?;
            if num(f, end, at, 6)? == 0x0001_0800_0604 {
                let op = num(f, end, at + 6, 2)?;
                k.base.nw_proto = if op < 256 { op as u8 } else { 0 };
                k.v6.arp_sha = bytes(num(f, end, at + 8, 6)?);
                k.base.nw_src.set(num(f, end, at + 14, 4)? as u32);
                k.v6.arp_tha = bytes(num(f, end, at + 18, 6)?);
                k.base.nw_dst.set(num(f, end, at + 24, 4)? as u32);
            }
            Some(())
        }
        0x894f => nsh(f, at, k),
        _ => Some(()),
    }
}

fn nsh(f: &[u8], at: usize, k: &mut DpKey) -> Option<()> {
    let end = f.len();
    let base = num(f, end, at, 8)?;
    let len = (base >> 48 & 0x3f) as usize * 4;
    let md = (base >> 40 & 0xf) as u8;
    num(f, end, at, len)?;
    if base >> 62 != 0 || len < 8 || !(md == 1 && len == 24 || md == 2) {
        return None;
    }
    k.misc.nsh_flags = (base >> 60 & 3) as u8;
    k.misc.nsh_ttl = (base >> 54 & 63) as u8;
    k.misc.nsh_mdtype = md;
    k.misc.nsh_np = (base >> 32 & 0xff) as u8;
    k.misc.nsh_path_hdr.set(base as u32);
    if md == 1 {
        for i in 0..4 {
            k.misc.nsh_context[i].set(num(f, end, at + 8 + i * 4, 4)? as u32);
        }
    }
    Some(())
}

fn v4(f: &[u8], at: usize, k: &mut DpKey, o: &mut Offsets) -> Option<()> {
    num(f, f.len(), at, 20)?;
    let ihl = (num(f, f.len(), at, 1)? as usize % 16) * 4;
    let total = num(f, f.len(), at + 2, 2)? as usize;
    let sane = ihl >= 20 && ihl <= total && at + total <= f.len() && f.len() - at - total <= 65535;
    if !sane {
        return None;
    }
    let end = at + total;
    o.l2_pad = (f.len() - end) as u16;
    k.base.nw_tos = num(f, end, at + 1, 1)? as u8;
    k.base.nw_ttl = num(f, end, at + 8, 1)? as u8;
    k.base.nw_proto = num(f, end, at + 9, 1)? as u8;
    k.base.nw_src.set(num(f, end, at + 12, 4)? as u32);
    k.base.nw_dst.set(num(f, end, at + 16, 4)? as u32);
    let more = num(f, end, at + 6, 2)? & 0x2000 != 0;
    let offset = num(f, end, at + 6, 2)? & 0x1fff;
    k.base.nw_frag = if offset > 0 { 3 } else { more as u8 };
    l4(f, at + ihl, end, 4, k, o)
}

fn v6(f: &[u8], at: usize, k: &mut DpKey, o: &mut Offsets) -> Option<()> {
    num(f, f.len(), at, 40)?;
    let end = at + 40 + num(f, f.len(), at + 4, 2)? as usize;
    if end > f.len() || f.len() - end > 65535 {
        return None;
    }
    o.l2_pad = (f.len() - end) as u16;
    k.v6.ipv6_src = bytes(num(f, end, at + 8, 16)?);
    k.v6.ipv6_dst = bytes(num(f, end, at + 24, 16)?);
    let mut next = num(f, end, at + 6, 1)? as u8;
    let mut pos = at + 40;
    let mut frag = 0;
    let mut headers = 0;
    while [0, 43, 44, 51, 60].contains(&next) && frag != 3 {
        headers += 1;
        if headers > 64 {
            return None;
        }
        num(f, end, pos, 8)?;
        let after = num(f, end, pos, 1)? as u8;
        let n = num(f, end, pos + 1, 1)? as usize;
        let skip = match next {
            44 => 8,
            51 => n * 4 + 8,
            _ => n * 8 + 8,
        };
        num(f, end, pos, 0)?;
        if pos + skip > end {
            return None;
        }
        if next == 44 {
            let w = num(f, end, pos + 2, 2)?;
            if w >= 8 {
                frag = 3;
            } else if w != 0 {
                frag = 1;
            }
            if frag == 3 {
                pos += 8;
                break;
            }
        }
        next = after;
        pos += skip;
    }
    if headers == 64 && [0, 43, 44, 51, 60].contains(&next) && frag != 3 {
        return None;
    }
    let word = num(f, end, at, 4)?;
    k.v6.ipv6_label.set(word as u32 % (1 << 20));
    k.base.nw_tos = (word >> 20) as u8;
    k.base.nw_ttl = num(f, end, at + 7, 1)? as u8;
    k.base.nw_proto = if frag == 3 { 44 } else { next };
    k.base.nw_frag = frag;
    l4(f, pos, end, 6, k, o)
}

fn l4(f: &[u8], at: usize, end: usize, version: u8, k: &mut DpKey, o: &mut Offsets) -> Option<()> {
    o.l4 = at.try_into().unwrap_or(0xffff);
    if k.base.nw_frag >= 2 {
        return None;
    }
    let (need, narrow) = match (k.base.nw_proto, version) {
        (6, _) => (20, false),
        (17, _) => (8, false),
        (132, _) => (12, false),
        (1 | 2, 4) | (58, 6) => (8, true),
        _ => return None,
    };
    num(f, end, at, 0)?;
    if at + need > end {
        return None;
    }
    if k.base.nw_proto == 6 {
        let words = num(f, end, at + 12, 1)? as usize / 16;
        if words < 5 || at + words * 4 > end {
            return None;
        }
        k.base.tcp_flags.set(num(f, end, at + 12, 2)? as u16 & 0xfff);
    }
    o.l4_valid = true;
    if !narrow {
        k.base.tp_src.set(num(f, end, at, 2)? as u16);
        k.base.tp_dst.set(num(f, end, at + 2, 2)? as u16);
        return Some(());
    }
    let (ty, code) = (num(f, end, at, 1)? as u16, num(f, end, at + 1, 1)? as u16);
    k.base.tp_src.set(ty);
    k.base.tp_dst.set(code);
    if k.base.nw_proto == 2 {
        k.misc.igmp_group_ip4.set(num(f, end, at + 4, 4)? as u32);
    }
    if k.base.nw_proto == 58 && code == 0 && (ty == 135 || ty == 136) {
        k.misc.nd_reserved.set(num(f, end, at + 4, 4)? as u32);
        let target = num(f, end, at + 8, 16)?;
        let mut seen = [None, None];
        let mut first = 0;
        let mut pos = at + 24;
        let mut good = true;
        let mut steps = 0;
        while pos + 8 <= end && steps < 64 {
            steps += 1;
            let (kind, len) = (num(f, end, pos, 1)? as usize, num(f, end, pos + 1, 1)? as usize * 8);
            if len == 0 || pos + len > end {
                break;
            }
            if (kind == 1 || kind == 2) && len == 8 {
                if seen[kind - 1].is_some_and(|v| v != 0) {
                    good = false;
                    break;
                }
                seen[kind - 1] = Some(num(f, end, pos + 2, 6)?);
                if first == 0 {
                    first = kind as u8;
                }
            }
            pos += len;
        }
        k.misc.nd_options_type = first;
        if good {
            k.v6.nd_target = bytes(target);
            k.v6.arp_sha = bytes(seen[0].unwrap_or(0));
            k.v6.arp_tha = bytes(seen[1].unwrap_or(0));
        }
    }
    Some(())
}
