//! Packet bytes -> [`DpKey`] and header offsets.
//!
//! *reads* the headers, at most `MAX_PARSE` bytes of them / *writes* a key, the offsets in the
//! packet's metadata / *next* lookup / *cost* one pass, no allocation, no bytes beyond the packet.
//!
//! A header that is cut short or contradicts itself ends the walk: what precedes it is in the key,
//! it and what follows are not. Lengths in IP headers decide where the packet ends; anything behind
//! is padding, however long.

mod icmpv6;
mod l2;
mod l3;
mod plain;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod twin;

use crate::key::{Base, Ct, DpKey, Opts, Tun, eth, ipproto};
use fv_packet::{Meta, NO_OFS, Packet};
use zerocopy::{FromBytes, IntoBytes};

/// Extension headers of IPv6 that are walked; a longer chain is a malformed packet.
pub const MAX_EXT_HEADERS: usize = 64;
/// MPLS labels that are walked to find the bottom of the stack; a longer stack has no layer 3.
pub const MAX_LABELS_WALKED: usize = 64;
/// Options of one neighbour discovery message that are looked at.
pub const MAX_ND_OPTIONS: usize = 64;

/// The tunnel that a packet came through.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TunnelKey {
    pub tun: Tun,
    /// The header's options as they came, and how many bytes of them.
    pub opts: Opts,
    pub opts_len: u8,
    pub erspan_dir: u8,
    pub erspan_hwid: u8,
    pub gtpu_flags: u8,
    pub gtpu_msgtype: u8,
}

/// Bytes of a [`TunnelKey`] as a packet's side note.
pub const NOTE_LEN: usize = size_of::<Tun>() + 4;

impl TunnelKey {
    /// What travels with a packet that came through the tunnel, see [`Packet::set_side`].
    pub fn note(&self) -> [u8; NOTE_LEN] {
        let mut n = [0; NOTE_LEN];
        let (tun, rest) = n.split_at_mut(size_of::<Tun>());
        tun.copy_from_slice(self.tun.as_bytes());
        rest.copy_from_slice(&[self.erspan_dir, self.erspan_hwid, self.gtpu_flags, self.gtpu_msgtype]);
        n
    }

    /// None if it is no such note.
    pub fn of_note(note: &[u8]) -> Option<TunnelKey> {
        let (tun, rest) = note.split_at_checked(size_of::<Tun>())?;
        let [erspan_dir, erspan_hwid, gtpu_flags, gtpu_msgtype] = *rest.first_chunk()?;
        let tun = Tun::read_from_bytes(tun).ok()?;
        Some(TunnelKey { tun, erspan_dir, erspan_hwid, gtpu_flags, gtpu_msgtype, ..TunnelKey::default() })
    }

    /// What a key holds of a tunnel.
    pub fn of_key(k: &DpKey) -> TunnelKey {
        let m = &k.misc;
        TunnelKey {
            tun: k.tun,
            opts: k.opts,
            opts_len: m.opts_len,
            erspan_dir: m.erspan_dir,
            erspan_hwid: m.erspan_hwid,
            gtpu_flags: m.gtpu_flags,
            gtpu_msgtype: m.gtpu_msgtype,
        }
    }
}

/// What a key holds besides the packet's bytes and [`fv_packet::Meta`].
#[derive(Clone, Copy, Debug)]
pub struct Extra<'a> {
    pub tunnel: Option<&'a TunnelKey>,
    /// The original direction's tuple; its label is ignored (the packet's metadata has it).
    pub ct: Option<&'a Ct>,
    /// Tags that are parsed, at most 2; the rest is payload.
    pub vlan_limit: u8,
}

impl Default for Extra<'_> {
    fn default() -> Self {
        Extra { tunnel: None, ct: None, vlan_limit: 1 }
    }
}

/// Where the headers are, from the first byte; [`NO_OFS`] when absent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offsets {
    pub l2_5: u16,
    pub l3: u16,
    pub l4: u16,
    /// Bytes behind the end of the network-layer packet.
    pub l2_pad: u16,
    /// The transport header was complete: its fields are in the key.
    pub l4_valid: bool,
}

impl Default for Offsets {
    fn default() -> Self {
        Offsets { l2_5: NO_OFS, l3: NO_OFS, l4: NO_OFS, l2_pad: 0, l4_valid: false }
    }
}

/// Blocks of a [`DpKey`], as bits: which of them may hold something.
pub mod blocks {
    pub const BASE: u16 = 1 << 0;
    pub const V6: u16 = 1 << 1;
    pub const TUN: u16 = 1 << 2;
    pub const CT: u16 = 1 << 3;
    pub const MISC: u16 = 1 << 4;
    /// The first of four.
    pub const OPTS: u16 = 1 << 5;
    pub const OPTS_ALL: u16 = 0xf << 5;
    pub const ALL: u16 = 0x1ff;
}

/// The key of `packet`, with the offsets written to its metadata.
pub fn extract(packet: &mut Packet, extra: &Extra) -> DpKey {
    let mut key = DpKey::default();
    extract_into(packet, extra, &mut key, 0);
    key
}

/// As [`extract`], into a key that is used again: `dirty` are the blocks that may hold something
/// from before ([`blocks::ALL`] if unknown). Returns those that may now.
///
/// *cost*: plain IPv4 touches one line of the key, plain IPv6 two. Only what is most frequent is in
/// line.
#[inline(always)]
pub fn extract_into(packet: &mut Packet, extra: &Extra, key: &mut DpKey, dirty: u16) -> u16 {
    let (data, meta) = packet.parts_mut();
    if dirty == blocks::BASE
        && meta.is_fresh()
        && extra.tunnel.is_none()
        && let Some(plain) = plain::untagged_ipv4(data, key)
    {
        return plain_metadata(key, meta, plain);
    }
    if packet.has_side() {
        return extract_noted(packet, extra, key, dirty);
    }
    let (data, meta) = packet.parts_mut();
    extract_other(data, meta, extra, key, dirty)
}

/// A packet that came through a tunnel.
#[inline(never)]
fn extract_noted(packet: &mut Packet, extra: &Extra, key: &mut DpKey, dirty: u16) -> u16 {
    let note = TunnelKey::of_note(packet.side());
    let (data, meta) = packet.parts_mut();
    extract_other(data, meta, &Extra { tunnel: extra.tunnel.or(note.as_ref()), ..*extra }, key, dirty)
}

#[inline(never)]
fn extract_other(data: &[u8], meta: &mut Meta, extra: &Extra, key: &mut DpKey, dirty: u16) -> u16 {
    if dirty & !blocks::BASE != 0 {
        clear(key, dirty);
    }
    if meta.is_fresh()
        && extra.tunnel.is_none()
        && let Some(plain) = plain::frame(data, extra.vlan_limit, key)
    {
        return plain_metadata(key, meta, plain);
    }
    extract_any(data, meta, extra, key)
}

#[inline(never)]
fn extract_any(data: &[u8], meta: &mut Meta, extra: &Extra, key: &mut DpKey) -> u16 {
    let mut ofs = Offsets::default();
    let used = metadata(key, meta, extra);
    // What is fresh has been found not to be plain.
    let parse = if meta.is_fresh() && extra.tunnel.is_none() { parse_any } else { parse };
    let used = used | parse(data, extra.vlan_limit, key, &mut ofs);
    (meta.l2_pad, meta.l2_5_ofs, meta.l3_ofs, meta.l4_ofs) = (ofs.l2_pad, ofs.l2_5, ofs.l3, ofs.l4);
    used
}

/// What a fresh packet's metadata says, into the words that its bytes have left free.
#[inline(always)]
fn plain_metadata(key: &mut DpKey, meta: &mut Meta, plain: plain::Plain) -> u16 {
    let b = &mut key.base;
    (b.in_port, b.recirc_id, b.dp_hash, b.pkt_mark) = (meta.in_port, meta.recirc_id, meta.dp_hash, meta.pkt_mark);
    (b.ct_mark, b.ct_state, b.ct_zone) = (0, 0, 0);
    (meta.l2_pad, meta.l2_5_ofs, meta.l3_ofs, meta.l4_ofs) = (plain.l2_pad, NO_OFS, plain.l3, plain.l4);
    plain.used
}

#[inline(never)]
fn clear(key: &mut DpKey, dirty: u16) {
    if dirty & blocks::V6 != 0 {
        key.v6 = Default::default();
    }
    if dirty & blocks::TUN != 0 {
        key.tun = Default::default();
    }
    if dirty & blocks::CT != 0 {
        key.ct = Default::default();
    }
    if dirty & blocks::MISC != 0 {
        key.misc = Default::default();
    }
    if dirty & blocks::OPTS_ALL != 0 {
        key.opts = Default::default();
    }
}

/// Writes all of block 0, and of the others what is not zero.
#[inline]
fn metadata(key: &mut DpKey, m: &Meta, extra: &Extra) -> u16 {
    key.base = Base {
        in_port: m.in_port,
        recirc_id: m.recirc_id,
        dp_hash: m.dp_hash,
        pkt_mark: m.pkt_mark,
        ..Base::default()
    };
    let mut used = blocks::BASE;
    if m.skb_priority | m.packet_type != 0 {
        (key.misc.skb_priority, key.misc.packet_type) = (m.skb_priority, m.packet_type);
        used |= blocks::MISC;
    }
    if m.ct_state != 0 {
        let b = &mut key.base;
        (b.ct_state, b.ct_zone, b.ct_mark) = (m.ct_state as u16, m.ct_zone, m.ct_mark);
        key.ct = extra.ct.copied().unwrap_or_default();
        key.ct.label = m.ct_label.to_be_bytes();
        used |= blocks::CT;
    }
    if let Some(t) = extra.tunnel {
        key.tun = t.tun;
        (key.misc.erspan_dir, key.misc.erspan_hwid) = (t.erspan_dir, t.erspan_hwid);
        (key.misc.gtpu_flags, key.misc.gtpu_msgtype) = (t.gtpu_flags, t.gtpu_msgtype);
        used |= blocks::TUN | blocks::MISC;
        let n = usize::from(t.opts_len);
        if n != 0 {
            key.misc.opts_len = t.opts_len;
            key.opts.0[..n].copy_from_slice(&t.opts.0[..n]);
            used |= (blocks::OPTS * ((1 << n.div_ceil(64)) - 1)) & blocks::OPTS_ALL;
        }
    }
    used
}

/// Parses `frame` into a key whose packet type says whether it begins with an Ethernet header, and
/// whose header fields are zero. Returns the blocks that may have been written.
pub fn parse(frame: &[u8], vlan_limit: u8, key: &mut DpKey, ofs: &mut Offsets) -> u16 {
    if key.misc.packet_type == 0
        && let Some(plain) = plain::frame(frame, vlan_limit, key)
    {
        let plain::Plain { used, l3, l4, l2_pad } = plain;
        *ofs = Offsets { l2_5: ofs.l2_5, l3, l4, l2_pad, l4_valid: true };
        return used;
    }
    parse_any(frame, vlan_limit, key, ofs)
}

fn parse_any(frame: &[u8], vlan_limit: u8, key: &mut DpKey, ofs: &mut Offsets) -> u16 {
    let mut c = Cursor { all: frame, rest: frame };
    let ethertype = match key.misc.packet_type {
        0 => match l2::ethernet(&mut c, vlan_limit, key, ofs) {
            Some(t) => t,
            None => return blocks::BASE,
        },
        t if t >> 16 == 1 => t as u16,
        _ => return blocks::BASE,
    };
    key.base.dl_type = ethertype.into();
    if matches!(ethertype, eth::MPLS | eth::MPLS_MCAST) {
        ofs.l2_5 = c.pos();
        l2::mpls(&mut c, key);
    }
    ofs.l3 = c.pos();
    match ethertype {
        eth::IP => l3::ipv4(&mut c, key, ofs),
        eth::IPV6 => l3::ipv6(&mut c, key, ofs),
        eth::ARP | eth::RARP => l3::arp(&mut c, key),
        eth::NSH => l3::nsh(&mut c, key),
        _ => {}
    }
    match ethertype {
        eth::IP if key.base.nw_proto == ipproto::IGMP => blocks::BASE | blocks::MISC,
        eth::IPV6 if key.base.nw_proto == ipproto::ICMPV6 => blocks::BASE | blocks::V6 | blocks::MISC,
        eth::IPV6 | eth::ARP | eth::RARP => blocks::BASE | blocks::V6,
        eth::MPLS | eth::MPLS_MCAST | eth::NSH => blocks::BASE | blocks::MISC,
        _ => blocks::BASE,
    }
}

/// What is left of the frame. Nothing outside can be read through it.
struct Cursor<'a> {
    all: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Bytes consumed; [`NO_OFS`] beyond what an offset can say.
    fn pos(&self) -> u16 {
        u16::try_from(self.all.len() - self.rest.len()).unwrap_or(NO_OFS)
    }

    fn len(&self) -> usize {
        self.rest.len()
    }

    /// The next `N` bytes, or None and nothing consumed.
    fn take<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(head)
    }

    fn peek<const N: usize>(&self) -> Option<&'a [u8; N]> {
        self.rest.first_chunk::<N>()
    }

    /// Skips `n` bytes; false and nothing skipped if there are fewer.
    fn skip(&mut self, n: usize) -> bool {
        match self.rest.get(n..) {
            Some(r) => {
                self.rest = r;
                true
            }
            None => false,
        }
    }

    /// Cuts off everything behind the next `n` bytes.
    fn limit(&mut self, n: usize) {
        let n = n.min(self.rest.len());
        let end = self.all.len() - self.rest.len() + n;
        self.all = &self.all[..end];
        self.rest = &self.rest[..n];
    }
}

fn be16(b: &[u8; 2]) -> u16 {
    u16::from_be_bytes(*b)
}

/// Bytes `at..at + N` of a longer array.
fn part<const N: usize>(b: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&b[at..at + N]);
    out
}
