//! The fixed-layout keys: 64-byte blocks, the first of which decides most lookups.
//!
//! [`DpKey`] is what the datapath matches; [`FlowKey`] adds the fields that exist only inside the
//! OpenFlow pipeline (registers, metadata). A field that a packet does not have is zero. Masks have
//! the same layout ([`FlowMask`]): a set bit is a bit that is matched.
//!
//! Values that come off the wire keep network order (`U16`, `U32`, `U64`, byte arrays); values that
//! the switch makes (port numbers, marks, ids) are native.

use crate::field::TunLayout;
use std::ops::{Deref, DerefMut};
use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Set in a VLAN TCI of a key when the tag is present (the CFI bit's place).
pub const VLAN_CFI: u16 = 0x1000;
/// `nw_frag`: the packet is any fragment.
pub const FRAG_ANY: u8 = 1;
/// `nw_frag`: the packet is a fragment with nonzero offset.
pub const FRAG_LATER: u8 = 2;
/// `dl_type` of a frame that carries an 802.3 length instead of a type.
pub const DL_TYPE_NONE: u16 = 0x05ff;
/// Mask of the two bits of `nw_frag`.
pub const FRAG_MASK: u8 = 3;
/// The two halves of `nw_tos`.
pub const IP_DSCP_MASK: u8 = 0xfc;
pub const IP_ECN_MASK: u8 = 0x03;
pub const VLAN_VID_MASK: u16 = 0x0fff;
pub const VLAN_PCP_MASK: u16 = 0xe000;
pub const VLAN_PCP_SHIFT: u32 = 13;
/// The bits of an IPv6 flow label.
pub const IPV6_LABEL_MASK: u32 = 0x000f_ffff;
/// MPLS labels that a key holds.
pub const N_MPLS: usize = 3;

/// EtherTypes.
pub mod eth {
    pub const IP: u16 = 0x0800;
    pub const ARP: u16 = 0x0806;
    pub const RARP: u16 = 0x8035;
    pub const TEB: u16 = 0x6558;
    pub const VLAN_8021Q: u16 = 0x8100;
    pub const VLAN_8021AD: u16 = 0x88a8;
    pub const IPV6: u16 = 0x86dd;
    pub const LACP: u16 = 0x8809;
    pub const MPLS: u16 = 0x8847;
    pub const MPLS_MCAST: u16 = 0x8848;
    pub const CFM: u16 = 0x8902;
    pub const LLDP: u16 = 0x88cc;
    pub const NSH: u16 = 0x894f;
    /// Types below this are 802.3 lengths.
    pub const TYPE_MIN: u16 = 0x600;
}

/// IP protocols.
pub mod ipproto {
    pub const HOPOPTS: u8 = 0;
    pub const ICMP: u8 = 1;
    pub const IGMP: u8 = 2;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const ROUTING: u8 = 43;
    pub const FRAGMENT: u8 = 44;
    pub const GRE: u8 = 47;
    pub const ESP: u8 = 50;
    pub const AH: u8 = 51;
    pub const ICMPV6: u8 = 58;
    pub const NONE: u8 = 59;
    pub const DSTOPTS: u8 = 60;
    pub const SCTP: u8 = 132;
    pub const UDPLITE: u8 = 136;
}

/// Bits of `ct_state`.
pub mod cs {
    pub const NEW: u16 = 0x01;
    pub const EST: u16 = 0x02;
    pub const REL: u16 = 0x04;
    pub const RPL: u16 = 0x08;
    pub const INV: u16 = 0x10;
    pub const TRK: u16 = 0x20;
    pub const SNAT: u16 = 0x40;
    pub const DNAT: u16 = 0x80;
    pub const ALL: u16 = 0xff;
}

/// Bits of `tun.flags`. Only [`tunf::OAM`] is visible to OpenFlow.
pub mod tunf {
    pub const OAM: u16 = 1 << 0;
    pub const DONT_FRAGMENT: u16 = 1 << 1;
    pub const CSUM: u16 = 1 << 2;
    pub const KEY: u16 = 1 << 3;
    pub const PUBLIC: u16 = OAM;
}

/// Registers of the pipeline.
pub const N_REGS: usize = 16;

/// One VLAN tag: both zero when absent, else the TPID and the TCI with [`VLAN_CFI`] set.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Vlan {
    pub tpid: U16,
    pub tci: U16,
}

/// Block 0: every packet has it. The order makes frame bytes 0-13 and 26-37 two contiguous copies.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Base {
    /// A datapath port in a `DpKey`; an OpenFlow port in the pipeline's `FlowKey`.
    pub in_port: u32,
    pub recirc_id: u32,
    pub dp_hash: u32,
    pub pkt_mark: u32,
    pub ct_mark: u32,
    pub ct_state: u16,
    pub ct_zone: u16,
    pub vlans: [Vlan; 2],
    pub dl_dst: [u8; 6],
    pub dl_src: [u8; 6],
    /// The innermost EtherType after VLAN tags; [`DL_TYPE_NONE`] for 802.3 frames without SNAP.
    pub dl_type: U16,
    pub tcp_flags: U16,
    pub nw_tos: u8,
    pub nw_ttl: u8,
    /// IP protocol, or the low byte of the ARP opcode.
    pub nw_proto: u8,
    pub nw_frag: u8,
    /// IPv4 source, or ARP sender address.
    pub nw_src: U32,
    pub nw_dst: U32,
    /// L4 source port, or ICMP type.
    pub tp_src: U16,
    /// L4 destination port, or ICMP code.
    pub tp_dst: U16,
}

/// Block 1: IPv6, neighbour discovery, ARP hardware addresses.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct V6 {
    pub ipv6_src: [u8; 16],
    pub ipv6_dst: [u8; 16],
    pub nd_target: [u8; 16],
    pub ipv6_label: U32,
    /// ARP sender hardware address, or ND source link-layer address.
    pub arp_sha: [u8; 6],
    /// ARP target hardware address, or ND target link-layer address.
    pub arp_tha: [u8; 6],
}

/// Block 2: the tunnel that the packet came through.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Tun {
    pub id: U64,
    pub src: U32,
    pub dst: U32,
    pub ipv6_src: [u8; 16],
    pub ipv6_dst: [u8; 16],
    pub tp_src: U16,
    pub tp_dst: U16,
    pub flags: u16,
    pub tos: u8,
    pub ttl: u8,
    pub gbp_id: U16,
    pub gbp_flags: u8,
    pub erspan_ver: u8,
    pub erspan_idx: U32,
}

/// Block 3: connection tracking beyond state, zone and mark.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Ct {
    /// 128 bits in network order.
    pub label: [u8; 16],
    pub ipv6_src: [u8; 16],
    pub ipv6_dst: [u8; 16],
    pub nw_src: U32,
    pub nw_dst: U32,
    pub tp_src: U16,
    pub tp_dst: U16,
    pub nw_proto: u8,
    pub zero: [u8; 3],
}

/// Block 4: what is rare.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Misc {
    /// Namespace << 16 | type; 0 is Ethernet.
    pub packet_type: u32,
    pub skb_priority: u32,
    pub mpls_lse: [U32; 3],
    pub igmp_group_ip4: U32,
    pub nd_reserved: U32,
    pub nd_options_type: u8,
    pub erspan_dir: u8,
    pub erspan_hwid: u8,
    pub gtpu_flags: u8,
    pub gtpu_msgtype: u8,
    pub nsh_flags: u8,
    pub nsh_ttl: u8,
    pub nsh_mdtype: u8,
    pub nsh_np: u8,
    /// Bytes of [`Opts`] in the form of the wire.
    pub opts_len: u8,
    pub zero: [u8; 2],
    pub nsh_path_hdr: U32,
    pub nsh_context: [U32; 4],
    pub zero2: u32,
}

/// Blocks 5 to 8: options of the tunnel's header. What the datapath matches are the bytes of the
/// wire, as many as [`Misc::opts_len`] says; inside the pipeline, where that is zero, they are
/// ordered by the bridge's table, and [`Pipe::tun_present`] says which there are.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Opts(pub [u8; 256]);

impl Default for Opts {
    fn default() -> Opts {
        Opts([0; 256])
    }
}

/// Fields that exist only inside the OpenFlow pipeline.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Pipe {
    pub metadata: U64,
    pub regs: [u32; N_REGS],
    pub actset_output: u32,
    pub conj_id: u32,
    /// The tunnel's options that there are, a bit each; in a mask, those that must be there.
    pub tun_present: u64,
    pub zero: [u32; 10],
}

/// What the datapath matches: nine blocks.
#[repr(C, align(64))]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct DpKey {
    pub base: Base,
    pub v6: V6,
    pub tun: Tun,
    pub ct: Ct,
    pub misc: Misc,
    pub opts: Opts,
}

/// What OpenFlow matches: the datapath's fields and the pipeline's.
#[repr(C, align(64))]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FlowKey {
    pub dp: DpKey,
    pub pipe: Pipe,
}

/// Which bits of a [`FlowKey`] are matched.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FlowMask(pub FlowKey);

/// Which bits of a [`DpKey`] are matched.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct DpMask(pub DpKey);

pub const DP_WORDS: usize = size_of::<DpKey>() / 8;
pub const FLOW_WORDS: usize = size_of::<FlowKey>() / 8;
const _: () = assert!(size_of::<Base>() == 64 && size_of::<V6>() == 64 && size_of::<Tun>() == 64);
const _: () = assert!(size_of::<Ct>() == 64 && size_of::<Misc>() == 64 && size_of::<Pipe>() == 128);
const _: () = assert!(size_of::<Opts>() == crate::field::TUN_OPTION_SPACE);

impl DpKey {
    /// The key as native 64-bit words, for masking, hashing and comparing.
    pub fn words(&self) -> &[u64; DP_WORDS] {
        zerocopy::transmute_ref!(self)
    }
    pub fn words_mut(&mut self) -> &mut [u64; DP_WORDS] {
        zerocopy::transmute_mut!(self)
    }
}

impl FlowKey {
    pub fn words(&self) -> &[u64; FLOW_WORDS] {
        zerocopy::transmute_ref!(self)
    }
    pub fn words_mut(&mut self) -> &mut [u64; FLOW_WORDS] {
        zerocopy::transmute_mut!(self)
    }
}

impl Deref for FlowKey {
    type Target = DpKey;
    fn deref(&self) -> &DpKey {
        &self.dp
    }
}
impl DerefMut for FlowKey {
    fn deref_mut(&mut self) -> &mut DpKey {
        &mut self.dp
    }
}

impl FlowMask {
    pub const fn key(&self) -> &FlowKey {
        &self.0
    }
    /// The datapath's part.
    pub fn dp(&self) -> DpMask {
        DpMask(self.0.dp)
    }
    /// Adds every bit of `o`.
    pub fn merge(&mut self, o: &FlowMask) {
        for (a, b) in self.0.words_mut().iter_mut().zip(o.0.words()) {
            *a |= b;
        }
    }
    /// `key` with unmatched bits zeroed.
    pub fn apply(&self, key: &FlowKey) -> FlowKey {
        let mut k = *key;
        for (a, m) in k.words_mut().iter_mut().zip(self.0.words()) {
            *a &= m;
        }
        k
    }
    /// Whether the two keys agree on every matched bit.
    pub fn equal(&self, a: &FlowKey, b: &FlowKey) -> bool {
        self.0.words().iter().zip(a.words().iter().zip(b.words())).all(|(m, (a, b))| (a ^ b) & m == 0)
    }
    pub fn is_empty(&self) -> bool {
        self.0.words().iter().all(|w| *w == 0)
    }
}

impl DpMask {
    pub fn apply(&self, key: &DpKey) -> DpKey {
        let mut k = *key;
        for (a, m) in k.words_mut().iter_mut().zip(self.0.words()) {
            *a &= m;
        }
        k
    }
    pub fn equal(&self, a: &DpKey, b: &DpKey) -> bool {
        self.0.words().iter().zip(a.words().iter().zip(b.words())).all(|(m, (a, b))| (a ^ b) & m == 0)
    }
}

/// A match: `key` holds no bit that `mask` does not match.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Match {
    pub key: FlowKey,
    pub mask: FlowMask,
    /// Where the tunnel's options are in both.
    pub layout: TunLayout,
}
