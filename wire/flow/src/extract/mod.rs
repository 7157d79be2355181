//! Packet bytes -> [`DpKey`] and header offsets.
//!
//! *reads* the headers, at most [`MAX_PARSE`] bytes of them / *writes* a key, the offsets in the
//! packet's metadata / *next* lookup / *cost* one pass, no allocation, no bytes beyond the packet.
//!
//! A header that is cut short or contradicts itself ends the walk: what precedes it is in the key,
//! it and what follows are not. Lengths in IP headers decide where the packet ends; anything behind
//! is padding, however long.

mod icmpv6;
mod l2;
mod l3;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod twin;

use crate::key::{Ct, DpKey, Tun, eth};
use fv_packet::{NO_OFS, Packet};

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
    pub erspan_dir: u8,
    pub erspan_hwid: u8,
    pub gtpu_flags: u8,
    pub gtpu_msgtype: u8,
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

/// The key of `packet`, with the offsets written to its metadata.
pub fn extract(packet: &mut Packet, extra: &Extra) -> DpKey {
    let mut key = DpKey::default();
    let mut ofs = Offsets::default();
    let (data, meta) = packet.parts_mut();
    metadata(&mut key, meta, extra);
    parse(data, extra.vlan_limit, &mut key, &mut ofs);
    (meta.l2_5_ofs, meta.l3_ofs, meta.l4_ofs, meta.l2_pad) = (ofs.l2_5, ofs.l3, ofs.l4, ofs.l2_pad);
    key
}

fn metadata(key: &mut DpKey, m: &fv_packet::Meta, extra: &Extra) {
    let b = &mut key.base;
    (b.in_port, b.recirc_id, b.dp_hash, b.pkt_mark) = (m.in_port, m.recirc_id, m.dp_hash, m.pkt_mark);
    (key.misc.skb_priority, key.misc.packet_type) = (m.skb_priority, m.packet_type);
    if m.ct_state != 0 {
        (b.ct_state, b.ct_zone, b.ct_mark) = (m.ct_state as u16, m.ct_zone, m.ct_mark);
        key.ct = extra.ct.copied().unwrap_or_default();
        key.ct.label = m.ct_label.to_be_bytes();
    }
    if let Some(t) = extra.tunnel {
        key.tun = t.tun;
        (key.misc.erspan_dir, key.misc.erspan_hwid) = (t.erspan_dir, t.erspan_hwid);
        (key.misc.gtpu_flags, key.misc.gtpu_msgtype) = (t.gtpu_flags, t.gtpu_msgtype);
    }
}

/// Parses `frame` into a key whose packet type says whether it begins with an Ethernet header, and
/// whose header fields are zero.
pub fn parse(frame: &[u8], vlan_limit: u8, key: &mut DpKey, ofs: &mut Offsets) {
    let mut c = Cursor { all: frame, rest: frame };
    let ethertype = match key.misc.packet_type {
        0 => match l2::ethernet(&mut c, vlan_limit, key, ofs) {
            Some(t) => t,
            None => return,
        },
        t if t >> 16 == 1 => t as u16,
        _ => return,
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
