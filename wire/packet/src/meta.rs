//! What travels with a packet besides its bytes.

use std::mem::offset_of;

use zerocopy::{Immutable, IntoBytes};

/// A header offset that is absent.
pub const NO_OFS: u16 = 0xffff;

/// Bytes that can be taken from the front and leave what names the connection: two tags or labels.
const TAG_MAX: usize = 8;

/// What is known about a checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, IntoBytes, Immutable)]
#[repr(u8)]
pub enum Csum {
    /// Nobody looked: the bytes are taken as they are.
    #[default]
    Unknown,
    /// Verified by who delivered the packet.
    Good,
    /// Verified and found wrong.
    Bad,
    /// Still to be computed. For L4: the field holds the folded pseudo-header sum, and the
    /// checksum covers everything from `csum_start` on. A bit of its own, so that several are asked at once.
    Partial = 4,
}

/// How an oversized packet is to be cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, IntoBytes, Immutable)]
#[repr(u8)]
pub enum GsoKind {
    #[default]
    None,
    Tcp4,
    Tcp6,
    /// UDP over IPv4, cut into IP fragments.
    Udp4,
    /// UDP over IPv6, cut into IP fragments.
    Udp6,
    /// UDP over either, cut into datagrams that each have a UDP header.
    UdpL4,
}

/// Segmentation that is still to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub struct Gso {
    pub kind: GsoKind,
    /// The TCP stream uses ECN: CWR belongs on the first segment only.
    pub ecn: bool,
    /// L4 payload bytes in a segment.
    pub size: u16,
}

impl Gso {
    pub const NONE: Gso = Gso { kind: GsoKind::None, ecn: false, size: 0 };

    pub fn is_some(self) -> bool {
        self.kind != GsoKind::None
    }
}

/// Metadata of one packet. All offsets count from the first byte of [`crate::Packet::data`]; moving
/// the front of the packet moves them along.
///
/// The first 48 bytes, which share a cache line with the packet's length, are all that forwarding a
/// plain packet touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub struct Meta {
    pub in_port: u32,
    pub recirc_id: u32,
    pub dp_hash: u32,
    pub pkt_mark: u32,
    /// Bytes behind the end of the network-layer packet.
    pub l2_pad: u16,
    /// First MPLS label stack entry.
    pub l2_5_ofs: u16,
    pub l3_ofs: u16,
    pub l4_ofs: u16,
    pub skb_priority: u32,
    /// Namespace << 16 | type; 0 is Ethernet.
    pub packet_type: u32,
    pub ct_state: u32,
    /// Bytes that an output may send at most, 0 for all.
    pub trunc_len: u32,
    /// L4 checksum.
    pub csum: Csum,
    /// IPv4 header checksum.
    pub ip_csum: Csum,
    pub rss_valid: bool,
    /// Length of the packet's side note in words of four bytes, see [`crate::Packet::side`].
    pub(crate) side: u8,
    pub gso: Gso,
    /// Mark that the NIC reported, 0 if none.
    pub flow_mark: u32,
    pub rss_hash: u32,
    pub inner_l3_ofs: u16,
    pub inner_l4_ofs: u16,
    /// Where a partial L4 checksum begins to be summed.
    pub csum_start: u16,
    /// Where the checksum field is, from `csum_start`.
    pub csum_offset: u16,
    pub ct_mark: u32,
    pub ct_zone: u16,
    pub zero2: [u8; 2],
    /// Hash of the headers that a lookup made, 0 if none: it stands for the connection, so that a packet
    /// that comes round again needs no other.
    pub flow_hash: u64,
    pub ct_label: u128,
}

const _: () = assert!(offset_of!(Meta, flow_mark) == 48);
// What `is_ready` takes for granted.
const _: () = assert!(offset_of!(Meta, ip_csum) == offset_of!(Meta, csum) + 1);
const _: () = assert!(offset_of!(Meta, gso) == offset_of!(Meta, csum) + 4 && offset_of!(Gso, kind) == 0);

impl Meta {
    /// No ports, no marks, no offsets, nothing known.
    pub const NEW: Meta = Meta {
        in_port: 0,
        recirc_id: 0,
        dp_hash: 0,
        flow_mark: 0,
        rss_hash: 0,
        l2_pad: 0,
        l2_5_ofs: NO_OFS,
        l3_ofs: NO_OFS,
        l4_ofs: NO_OFS,
        inner_l3_ofs: NO_OFS,
        inner_l4_ofs: NO_OFS,
        csum_start: 0,
        csum_offset: 0,
        csum: Csum::Unknown,
        ip_csum: Csum::Unknown,
        rss_valid: false,
        side: 0,
        gso: Gso::NONE,
        pkt_mark: 0,
        skb_priority: 0,
        packet_type: 0,
        trunc_len: 0,
        ct_state: 0,
        ct_mark: 0,
        ct_zone: 0,
        zero2: [0; 2],
        flow_hash: 0,
        ct_label: 0,
    };

    /// Nothing is left to be done to the packet before it is sent: no cutting, no checksum, no
    /// segmentation.
    #[inline(always)]
    pub fn is_ready(&self) -> bool {
        const LATE: u64 = u64::from_le_bytes([Csum::Partial as u8, Csum::Partial as u8, 0, 0, 0xff, 0, 0, 0]);
        self.word(offset_of!(Meta, csum)) & LATE | u64::from(self.trunc_len) == 0
    }

    /// It is an Ethernet packet without priority or note that no connection tracker has seen.
    #[inline(always)]
    pub fn is_fresh(&self) -> bool {
        self.skb_priority | self.packet_type | self.ct_state | u32::from(self.side) == 0
    }

    /// Eight bytes at once, as a little-endian number.
    #[inline(always)]
    fn word(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.as_bytes()[at..at + 8]);
        u64::from_le_bytes(bytes)
    }

    /// Moves every offset by the `n` bytes put in front of the packet.
    pub(crate) fn front_grew(&mut self, n: usize) {
        for ofs in self.offsets_mut() {
            if *ofs != NO_OFS {
                *ofs = usize::from(*ofs).saturating_add(n).min(usize::from(NO_OFS)) as u16;
            }
        }
        if self.csum == Csum::Partial {
            match usize::from(self.csum_start).checked_add(n).and_then(|v| u16::try_from(v).ok()) {
                Some(v) => self.csum_start = v,
                None => self.forget_csum(),
            }
        }
    }

    /// Moves every offset by the `n` bytes taken from the front; what pointed into them is gone.
    pub(crate) fn front_shrank(&mut self, n: usize) {
        for ofs in self.offsets_mut() {
            if *ofs != NO_OFS {
                *ofs = usize::from(*ofs).checked_sub(n).map_or(NO_OFS, |v| v as u16);
            }
        }
        // Behind more than a tag, there is another flow.
        if n > TAG_MAX {
            self.flow_hash = 0;
        }
        if self.csum == Csum::Partial {
            match usize::from(self.csum_start).checked_sub(n) {
                Some(v) => self.csum_start = v as u16,
                None => self.forget_csum(),
            }
        }
    }

    fn forget_csum(&mut self) {
        self.csum = Csum::Unknown;
        self.csum_start = 0;
        self.csum_offset = 0;
    }

    fn offsets_mut(&mut self) -> [&mut u16; 5] {
        [&mut self.l2_5_ofs, &mut self.l3_ofs, &mut self.l4_ofs, &mut self.inner_l3_ofs, &mut self.inner_l4_ofs]
    }
}

impl Default for Meta {
    fn default() -> Meta {
        Meta::NEW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_to_be_done_shows() {
        let new = Meta { in_port: 7, l3_ofs: 14, rss_hash: 9, rss_valid: true, ct_label: 5, ..Meta::NEW };
        for csum in [Csum::Unknown, Csum::Good, Csum::Bad, Csum::Partial] {
            assert_eq!(Meta { csum, ..new }.is_ready(), csum != Csum::Partial);
            assert_eq!(Meta { ip_csum: csum, ..new }.is_ready(), csum != Csum::Partial);
        }
        let gso = |kind| Gso { kind, ecn: true, size: 9 };
        assert!(Meta { gso: gso(GsoKind::None), ..new }.is_ready());
        assert!(!Meta { gso: gso(GsoKind::Tcp4), ..new }.is_ready());
        assert!(!Meta { gso: gso(GsoKind::UdpL4), ..new }.is_ready());
        assert!(!Meta { trunc_len: 1 << 31, ..new }.is_ready());
    }

    #[test]
    fn the_hash_goes_with_the_header() {
        let mut meta = Meta { flow_hash: 5, ..Meta::NEW };
        meta.front_grew(50);
        meta.front_shrank(TAG_MAX);
        assert_eq!(meta.flow_hash, 5);
        meta.front_shrank(14);
        assert_eq!(meta.flow_hash, 0);
    }
}
