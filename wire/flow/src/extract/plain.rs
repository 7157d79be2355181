//! The common case in one straight run: untagged Ethernet, IPv4 without options, not a fragment,
//! TCP or UDP.

use super::{Offsets, be16, part};
use crate::key::{Base, eth, ipproto};

/// Fills block 0 if the frame is of that kind and sound; else false, with nothing written.
#[inline]
pub(super) fn ipv4(frame: &[u8], b: &mut Base, ofs: &mut Offsets) -> bool {
    // Up to the end of a UDP header.
    let Some(h) = frame.first_chunk::<42>() else { return false };
    if h[12..15] != [(eth::IP >> 8) as u8, eth::IP as u8, 0x45] || be16(&part(h, 20)) & 0x3fff != 0 {
        return false;
    }
    let total = usize::from(be16(&part(h, 16)));
    let Some(pad) = (frame.len() - 14).checked_sub(total).and_then(|p| u16::try_from(p).ok()) else { return false };
    match h[23] {
        ipproto::UDP if total >= 28 => {}
        ipproto::TCP if total >= 40 && frame.len() >= 54 => {
            let data_offset = usize::from(frame[46] >> 4) * 4;
            if data_offset < 20 || data_offset + 20 > total {
                return false;
            }
            b.tcp_flags = (be16(&[frame[46], frame[47]]) & 0xfff).into();
        }
        _ => return false,
    }
    b.dl_dst = part(h, 0);
    b.dl_src = part(h, 6);
    b.dl_type = eth::IP.into();
    b.nw_tos = h[15];
    b.nw_ttl = h[22];
    b.nw_proto = h[23];
    b.nw_src = u32::from_be_bytes(part(h, 26)).into();
    b.nw_dst = u32::from_be_bytes(part(h, 30)).into();
    b.tp_src = be16(&part(h, 34)).into();
    b.tp_dst = be16(&part(h, 36)).into();
    *ofs = Offsets { l3: 14, l4: 34, l2_pad: pad, l4_valid: true, ..Offsets::default() };
    true
}
