//! What travels with a packet besides its bytes.

/// A header offset that is absent.
pub const NO_OFS: u16 = 0xffff;

/// What is known about a checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Csum {
    /// Nobody looked: the bytes are taken as they are.
    #[default]
    Unknown,
    /// Verified by who delivered the packet.
    Good,
    /// Still to be computed. For L4: the field holds the folded pseudo-header sum, and the
    /// checksum covers everything from `csum_start` on.
    Partial,
    /// Verified and found wrong.
    Bad,
}

/// How an oversized packet is to be cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Meta {
    pub in_port: u32,
    pub recirc_id: u32,
    pub dp_hash: u32,
    /// Mark that the NIC reported, 0 if none.
    pub flow_mark: u32,
    pub rss_hash: u32,
    /// Bytes behind the end of the network-layer packet.
    pub l2_pad: u16,
    /// First MPLS label stack entry.
    pub l2_5_ofs: u16,
    pub l3_ofs: u16,
    pub l4_ofs: u16,
    pub inner_l3_ofs: u16,
    pub inner_l4_ofs: u16,
    /// Where a partial L4 checksum begins to be summed.
    pub csum_start: u16,
    /// Where the checksum field is, from `csum_start`.
    pub csum_offset: u16,
    /// L4 checksum.
    pub csum: Csum,
    /// IPv4 header checksum.
    pub ip_csum: Csum,
    pub rss_valid: bool,
    pub gso: Gso,
    pub pkt_mark: u32,
    pub skb_priority: u32,
    /// Namespace << 16 | type; 0 is Ethernet.
    pub packet_type: u32,
    /// Bytes that an output may send at most, 0 for all.
    pub trunc_len: u32,
    pub ct_state: u32,
    pub ct_mark: u32,
    pub ct_zone: u16,
    pub ct_label: u128,
}

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
        gso: Gso::NONE,
        pkt_mark: 0,
        skb_priority: 0,
        packet_type: 0,
        trunc_len: 0,
        ct_state: 0,
        ct_mark: 0,
        ct_zone: 0,
        ct_label: 0,
    };

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
