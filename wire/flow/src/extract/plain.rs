//! The common cases in one straight run: Ethernet with at most one tag, IPv4 without options or
//! IPv6 without extension headers, not a fragment, TCP or UDP.
//!
//! The second half of block 0 is laid out as such frames are, so that it is four loads of eight
//! bytes, shifted where something is left out, and four stores. Words are little-endian numbers
//! here: their first byte is the lowest.
//! *cost* against the general walk: about an eighth.

use super::{be16, blocks, part};
use crate::key::{DpKey, IPV6_LABEL_MASK, V6, VLAN_CFI, eth, ipproto};

/// Words of a block 0 that come out of the frame: tags, addresses and type, and what follows.
const TAGS: usize = 3;
const ADDRESSES: usize = 4;
const NETWORK: usize = 6;

/// EtherTypes as the first two bytes of a little-endian number.
const IP: u32 = eth::IP.swap_bytes() as u32;
const IPV6: u32 = eth::IPV6.swap_bytes() as u32;

/// What such a frame comes to, besides the key.
pub(super) struct Plain {
    /// Blocks of the key that were written.
    pub used: u16,
    pub l3: u16,
    pub l4: u16,
    pub l2_pad: u16,
}

/// Fills what a frame of that kind says of a key, if it is sound; else None, with nothing written.
/// What comes before word `TAGS` is left as it is, and of block 1, the addresses of neighbour
/// discovery.
#[inline(always)]
pub(super) fn frame(frame: &[u8], vlan_limit: u8, key: &mut DpKey) -> Option<Plain> {
    let h = frame.first_chunk::<18>()?;
    let (outer, inner) = (le32(h, 12), le32(h, 14) >> 16);
    match outer & 0xffff {
        IP => return ipv4::<14>(frame, 0, key),
        IPV6 => return ipv6::<14>(frame, 0, key),
        _ if vlan_limit == 0 => return None,
        _ => {}
    }
    if !matches!((outer as u16).swap_bytes(), eth::VLAN_8021Q | eth::VLAN_8021AD) {
        return None;
    }
    let tag = outer | u32::from(VLAN_CFI.swap_bytes()) << 16;
    match inner {
        IP => ipv4::<18>(frame, tag, key),
        IPV6 => ipv6::<18>(frame, tag, key),
        _ => None,
    }
}

/// [`frame`] for the most frequent kind only.
#[inline(always)]
pub(super) fn untagged_ipv4(frame: &[u8], key: &mut DpKey) -> Option<Plain> {
    let h = frame.first_chunk::<42>()?;
    if le32(h, 12) & 0xffff != IP {
        return None;
    }
    ipv4::<14>(frame, 0, key)
}

/// An IPv4 packet behind `L3` bytes.
#[inline(always)]
fn ipv4<const L3: usize>(frame: &[u8], tag: u32, key: &mut DpKey) -> Option<Plain> {
    let p = frame.get(L3..)?;
    let h = p.first_chunk::<28>()?;
    let first = le32(h, 0);
    let total = usize::from(be16(&part(h, 2)));
    // Neither more fragments nor an offset.
    let whole = le32(h, 4) & u32::from(0x3fff_u16.swap_bytes()) << 16 == 0;
    // What header and ports leave of the packet, and of the frame: one comparison for both ends.
    let (left, room) = (total.wrapping_sub(28), p.len() - 28);
    if first & 0xff != 0x45 || !whole || left > room || room > usize::from(u16::MAX) {
        return None;
    }
    let (source, ports) = (le64(h, 8), le64(h, 16));
    let flags = match (source >> 8) as u8 {
        ipproto::UDP => 0,
        ipproto::TCP => tcp_flags(p.get(20..total)?)?,
        _ => return None,
    };
    let words = key.words_mut();
    words[TAGS] = u64::from(tag).to_le();
    addresses(frame, IP, flags, words)?;
    // TOS, TTL, protocol, and the source's address.
    words[NETWORK] = (u64::from(first >> 8 & 0xff) | (source & 0xffff) << 8 | (source >> 32 << 32)).to_le();
    words[NETWORK + 1] = ports.to_le();
    Some(Plain { used: blocks::BASE, l3: L3 as u16, l4: L3 as u16 + 20, l2_pad: (room - left) as u16 })
}

/// An IPv6 packet behind `L3` bytes.
#[inline(always)]
fn ipv6<const L3: usize>(frame: &[u8], tag: u32, key: &mut DpKey) -> Option<Plain> {
    let p = frame.get(L3..)?;
    let h = p.first_chunk::<48>()?;
    let end = usize::from(be16(&part(h, 4))) + 40;
    let pad = u16::try_from(p.len().checked_sub(end)?).ok().filter(|_| end >= 48)?;
    let flags = match h[6] {
        ipproto::UDP => 0,
        ipproto::TCP => tcp_flags(p.get(40..end)?)?,
        _ => return None,
    };
    let first = u32::from_be_bytes(part(h, 0));
    let words = key.words_mut();
    words[TAGS] = u64::from(tag).to_le();
    addresses(frame, IPV6, flags, words)?;
    words[NETWORK] = (u64::from(first >> 20 & 0xff) | u64::from(h[7]) << 8 | u64::from(h[6]) << 16).to_le();
    words[NETWORK + 1] = (u64::from(le32(h, 40)) << 32).to_le();
    let V6 { ipv6_src, ipv6_dst, ipv6_label, .. } = &mut key.v6;
    *ipv6_label = (first & IPV6_LABEL_MASK).into();
    *ipv6_src = part(h, 8);
    *ipv6_dst = part(h, 24);
    Some(Plain { used: blocks::BASE | blocks::V6, l3: L3 as u16, l4: L3 as u16 + 40, l2_pad: pad })
}

/// Both addresses, the EtherType and the TCP flags, which are in network order.
#[inline(always)]
fn addresses(frame: &[u8], ty: u32, flags: u16, words: &mut [u64]) -> Option<()> {
    let h = frame.first_chunk::<18>()?;
    words[ADDRESSES] = le64(h, 0).to_le();
    let rest = u64::from(le32(h, 8));
    words[ADDRESSES + 1] = (rest | u64::from(ty) << 32 | u64::from(flags) << 48).to_le();
    Some(())
}

/// The flags of a sound TCP header, in network order.
#[inline(always)]
fn tcp_flags(p: &[u8]) -> Option<u16> {
    let h = p.first_chunk::<20>()?;
    let header = usize::from(h[12] >> 4) * 4;
    (header >= 20 && header <= p.len()).then(|| u16::from_le_bytes(part(h, 12)) & 0x0fff_u16.swap_bytes())
}

#[inline(always)]
fn le32(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(part(b, at))
}

#[inline(always)]
fn le64(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(part(b, at))
}
