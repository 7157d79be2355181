//! The rows. Sources: OpenFlow 1.0-1.5 specifications (OXM), ovs-fields(7) (NXM, names, access).

use super::{Field::*, FieldInfo, Format, Header, Maskable, Place, Prereq, Protocols, Repr, Usable};
use crate::key::FlowKey;
use std::mem::offset_of;

const fn nxm0(field: u8, name: &'static str) -> Header {
    Header { name, class: 0, experimenter: 0, field, min_version: 1 }
}
const fn nx(field: u8, name: &'static str) -> Header {
    Header { name, class: 1, experimenter: 0, field, min_version: 1 }
}
const fn oxm_since(min_version: u8, field: u8, name: &'static str) -> Header {
    Header { name, class: 0x8000, experimenter: 0, field, min_version }
}
const fn oxm(field: u8, name: &'static str) -> Header {
    oxm_since(3, field, name)
}
const fn oxm13(field: u8, name: &'static str) -> Header {
    oxm_since(4, field, name)
}
const fn oxm15(field: u8, name: &'static str) -> Header {
    oxm_since(6, field, name)
}
const fn pkt_reg(field: u8, name: &'static str) -> Header {
    Header { name, class: 0x8001, experimenter: 0, field, min_version: 4 }
}
const fn ericsson(field: u8, name: &'static str) -> Header {
    Header { name, class: 0x1000, experimenter: 0, field, min_version: 1 }
}
const fn experimenter(experimenter: u32, min_version: u8, field: u8, name: &'static str) -> Header {
    Header { name, class: Header::EXPERIMENTER, experimenter, field, min_version }
}
const fn nsh(field: u8, name: &'static str) -> Header {
    experimenter(0x005a_d650, 1, field, name)
}
const fn nxoxm(field: u8, name: &'static str) -> Header {
    experimenter(0x0000_2320, 1, field, name)
}
const fn onf(field: u8, name: &'static str) -> Header {
    experimenter(0x4f4e_4600, 4, field, name)
}

const fn usable(exact: Protocols, cidr: Protocols, bitwise: Protocols) -> Usable {
    Usable { exact, cidr, bitwise }
}
/// No protocol can carry it.
const NEVER: Usable = usable(Protocols::NONE, Protocols::NONE, Protocols::NONE);
/// Only as NXM/OXM.
const NXM: Usable = usable(Protocols::NXM_OXM, Protocols::NXM_OXM, Protocols::NXM_OXM);
/// Also in the fixed match of OpenFlow 1.1, exactly.
const O11: Usable = usable(Protocols::NXM_OXM_OF11, Protocols::NXM_OXM, Protocols::NXM_OXM);
/// Also in the fixed match of OpenFlow 1.1, with any mask.
const O11M: Usable = usable(Protocols::NXM_OXM_OF11, Protocols::NXM_OXM_OF11, Protocols::NXM_OXM_OF11);
/// In every protocol, exactly.
const ALL: Usable = usable(Protocols::ANY, Protocols::NXM_OXM, Protocols::NXM_OXM);
/// In every protocol exactly; with a mask not in OpenFlow 1.0.
const ALLM: Usable = usable(Protocols::ANY, Protocols::NXM_OXM_OF11, Protocols::NXM_OXM_OF11);
/// In every protocol with a prefix; with other masks not in OpenFlow 1.0.
const ALLP: Usable = usable(Protocols::ANY, Protocols::ANY, Protocols::NXM_OXM_OF11);

/// What all options have in common.
pub(super) static TUN_METADATA: FieldInfo = FieldInfo {
    id: DpHash,
    names: &["tun_metadata"],
    n_bytes: super::TUN_OPTION_MAX,
    n_bits: 0,
    valid: 0,
    place: Place { ofs: 0, size: 0, repr: Repr::Be, shift: 0 },
    maskable: Maskable::Full,
    format: Format::Hex,
    prereq: Prereq::None,
    writable: true,
    headers: &[],
    usable: NXM,
};

macro_rules! valid {
    ($bits:literal) => {
        super::FieldValue::ones($bits).0
    };
    ($bits:literal $v:literal) => {
        $v
    };
}

macro_rules! access {
    (rw) => {
        true
    };
    (ro) => {
        false
    };
}

/// `Variant [names] bytes/bits (valid bits) @ place, size, repr >> shift; mask, format, prerequisite, access, usable, [codes]`.
macro_rules! fields {
    ($($id:ident [$($name:literal),+] $bytes:literal / $bits:literal $(($valid:literal))?
       @ $($path:ident).+ $(+ $add:literal)?, $size:literal, $repr:ident >> $shift:literal;
       $mask:ident, $fmt:ident, $pre:ident, $rw:ident, $use:ident, [$($h:expr),*];)+) => {
        /// A match field.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Field {
            $($id,)+
            /// An option of the tunnel's header.
            TunMetadata(super::TunOption),
        }

        pub(super) static TABLE: &[FieldInfo] = &[$(FieldInfo {
            id: $id,
            names: &[$($name),+],
            n_bytes: $bytes,
            n_bits: $bits,
            valid: valid!($bits $($valid)?),
            place: Place {
                ofs: (offset_of!(FlowKey, $($path).+) $(+ $add)?) as u16,
                size: $size,
                repr: Repr::$repr,
                shift: $shift,
            },
            maskable: Maskable::$mask,
            format: Format::$fmt,
            prereq: Prereq::$pre,
            writable: access!($rw),
            headers: &[$($h),*],
            usable: $use,
        }),+];

        /// Rows of the table.
        pub const N_FIELDS: usize = [$($id),+].len();

        impl Field {
            /// The field's row; [`N_FIELDS`] for the options, which have none.
            pub(super) fn row(self) -> usize {
                #[derive(Clone, Copy)]
                enum Row { $($id),+ }
                match self {
                    $(Field::$id => Row::$id as usize,)+
                    Field::TunMetadata(_) => N_FIELDS,
                }
            }
        }
    };
}

fields! {
    DpHash ["dp_hash"] 4/32 @ dp.base.dp_hash, 4, Native >> 0;
        Full, Hex, None, ro, NXM, [nx(35, "NXM_NX_DP_HASH"), experimenter(0x2320, 6, 0, "NXOXM_ET_DP_HASH")];
    RecircId ["recirc_id"] 4/32 @ dp.base.recirc_id, 4, Native >> 0;
        Exact, Hex, None, ro, NXM, [nx(36, "NXM_NX_RECIRC_ID")];
    PacketType ["packet_type"] 4/32 @ dp.misc.packet_type, 4, Native >> 0;
        Exact, PacketType, None, ro, NXM, [oxm15(44, "OXM_OF_PACKET_TYPE")];
    ConjId ["conj_id"] 4/32 @ pipe.conj_id, 4, Native >> 0;
        Exact, Decimal, None, ro, NXM, [nx(37, "NXM_NX_CONJ_ID")];
    TunId ["tun_id", "tunnel_id"] 8/64 @ dp.tun.id, 8, Be >> 0;
        Full, Hex, None, rw, NXM, [nx(16, "NXM_NX_TUN_ID"), oxm13(38, "OXM_OF_TUNNEL_ID")];
    TunSrc ["tun_src"] 4/32 @ dp.tun.src, 4, Be >> 0;
        Full, Ipv4, None, rw, NXM, [nx(31, "NXM_NX_TUN_IPV4_SRC")];
    TunDst ["tun_dst"] 4/32 @ dp.tun.dst, 4, Be >> 0;
        Full, Ipv4, None, rw, NXM, [nx(32, "NXM_NX_TUN_IPV4_DST")];
    TunIpv6Src ["tun_ipv6_src"] 16/128 @ dp.tun.ipv6_src, 16, Be >> 0;
        Full, Ipv6, None, rw, NXM, [nx(109, "NXM_NX_TUN_IPV6_SRC")];
    TunIpv6Dst ["tun_ipv6_dst"] 16/128 @ dp.tun.ipv6_dst, 16, Be >> 0;
        Full, Ipv6, None, rw, NXM, [nx(110, "NXM_NX_TUN_IPV6_DST")];
    TunFlags ["tun_flags"] 2/1 @ dp.tun.flags, 2, Native >> 0;
        Full, TunFlags, None, rw, NXM, [nx(104, "NXM_NX_TUN_FLAGS")];
    TunTtl ["tun_ttl"] 1/8 @ dp.tun.ttl, 1, Native >> 0;
        Exact, Decimal, None, rw, NEVER, [];
    TunTos ["tun_tos"] 1/8 @ dp.tun.tos, 1, Native >> 0;
        Exact, Decimal, None, rw, NEVER, [];
    TunGbpId ["tun_gbp_id"] 2/16 @ dp.tun.gbp_id, 2, Be >> 0;
        Full, Decimal, None, rw, NXM, [nx(38, "NXM_NX_TUN_GBP_ID")];
    TunGbpFlags ["tun_gbp_flags"] 1/8 @ dp.tun.gbp_flags, 1, Native >> 0;
        Full, Hex, None, rw, NXM, [nx(39, "NXM_NX_TUN_GBP_FLAGS")];
    TunErspanIdx ["tun_erspan_idx"] 4/20 @ dp.tun.erspan_idx, 4, Be >> 0;
        Full, Hex, None, rw, NXM, [nxoxm(11, "NXOXM_ET_ERSPAN_IDX")];
    TunErspanVer ["tun_erspan_ver"] 1/4 @ dp.tun.erspan_ver, 1, Native >> 0;
        Full, Decimal, None, rw, NXM, [nxoxm(12, "NXOXM_ET_ERSPAN_VER")];
    TunErspanDir ["tun_erspan_dir"] 1/1 @ dp.misc.erspan_dir, 1, Native >> 0;
        Full, Decimal, None, rw, NXM, [nxoxm(13, "NXOXM_ET_ERSPAN_DIR")];
    TunErspanHwid ["tun_erspan_hwid"] 1/6 @ dp.misc.erspan_hwid, 1, Native >> 0;
        Full, Hex, None, rw, NXM, [nxoxm(14, "NXOXM_ET_ERSPAN_HWID")];
    TunGtpuFlags ["tun_gtpu_flags", "gtpu_flags"] 1/8 @ dp.misc.gtpu_flags, 1, Native >> 0;
        Full, Hex, None, ro, NXM, [nxoxm(15, "NXOXM_ET_GTPU_FLAGS")];
    TunGtpuMsgtype ["tun_gtpu_msgtype", "gtpu_msgtype"] 1/8 @ dp.misc.gtpu_msgtype, 1, Native >> 0;
        Full, Decimal, None, ro, NXM, [nxoxm(16, "NXOXM_ET_GTPU_MSGTYPE")];
    Metadata ["metadata"] 8/64 @ pipe.metadata, 8, Be >> 0;
        Full, Hex, None, rw, O11M, [oxm(2, "OXM_OF_METADATA")];
    InPort ["in_port"] 2/16 @ dp.base.in_port, 4, Native >> 0;
        Exact, OfPort10, None, rw, ALL, [nxm0(0, "NXM_OF_IN_PORT")];
    InPortOxm ["in_port_oxm"] 4/32 @ dp.base.in_port, 4, Native >> 0;
        Exact, OfPort, None, rw, O11, [oxm(0, "OXM_OF_IN_PORT")];
    ActsetOutput ["actset_output"] 4/32 @ pipe.actset_output, 4, Native >> 0;
        Exact, OfPort, None, ro, NXM, [onf(43, "ONFOXM_ET_ACTSET_OUTPUT"), oxm15(43, "OXM_OF_ACTSET_OUTPUT")];
    SkbPriority ["skb_priority"] 4/32 @ dp.misc.skb_priority, 4, Native >> 0;
        Exact, Hex, None, ro, NEVER, [];
    PktMark ["pkt_mark"] 4/32 @ dp.base.pkt_mark, 4, Native >> 0;
        Full, Hex, None, rw, NXM, [nx(33, "NXM_NX_PKT_MARK")];
    CtState ["ct_state"] 4/32 (0xffff) @ dp.base.ct_state, 2, Native >> 0;
        Full, CtState, None, ro, NXM, [nx(105, "NXM_NX_CT_STATE")];
    CtZone ["ct_zone"] 2/16 @ dp.base.ct_zone, 2, Native >> 0;
        Exact, Hex, None, ro, NXM, [nx(106, "NXM_NX_CT_ZONE")];
    CtMark ["ct_mark"] 4/32 @ dp.base.ct_mark, 4, Native >> 0;
        Full, Hex, None, rw, NXM, [nx(107, "NXM_NX_CT_MARK")];
    CtLabel ["ct_label"] 16/128 @ dp.ct.label, 16, Be >> 0;
        Full, Hex, None, rw, NXM, [nx(108, "NXM_NX_CT_LABEL")];
    CtNwProto ["ct_nw_proto"] 1/8 @ dp.ct.nw_proto, 1, Native >> 0;
        Exact, Decimal, Ct, ro, NXM, [nx(119, "NXM_NX_CT_NW_PROTO")];
    CtNwSrc ["ct_nw_src"] 4/32 @ dp.ct.nw_src, 4, Be >> 0;
        Full, Ipv4, Ct, ro, NXM, [nx(120, "NXM_NX_CT_NW_SRC")];
    CtNwDst ["ct_nw_dst"] 4/32 @ dp.ct.nw_dst, 4, Be >> 0;
        Full, Ipv4, Ct, ro, NXM, [nx(121, "NXM_NX_CT_NW_DST")];
    CtIpv6Src ["ct_ipv6_src"] 16/128 @ dp.ct.ipv6_src, 16, Be >> 0;
        Full, Ipv6, Ct, ro, NXM, [nx(122, "NXM_NX_CT_IPV6_SRC")];
    CtIpv6Dst ["ct_ipv6_dst"] 16/128 @ dp.ct.ipv6_dst, 16, Be >> 0;
        Full, Ipv6, Ct, ro, NXM, [nx(123, "NXM_NX_CT_IPV6_DST")];
    CtTpSrc ["ct_tp_src"] 2/16 @ dp.ct.tp_src, 2, Be >> 0;
        Full, Decimal, Ct, ro, NXM, [nx(124, "NXM_NX_CT_TP_SRC")];
    CtTpDst ["ct_tp_dst"] 2/16 @ dp.ct.tp_dst, 2, Be >> 0;
        Full, Decimal, Ct, ro, NXM, [nx(125, "NXM_NX_CT_TP_DST")];
    Reg0 ["reg0"] 4/32 @ pipe.regs + 0, 4, Native >> 0;
        Full, Hex, None, rw, NXM, [nx(0, "NXM_NX_REG0")];
    Reg1 ["reg1"] 4/32 @ pipe.regs + 4, 4, Native >> 0;
        Full, Hex, None, rw, NXM, [nx(1, "NXM_NX_REG1")];
    Reg2 ["reg2"] 4/32 @ pipe.regs + 8, 4, Native >> 0;
        Full, Hex, None, rw, NXM, [nx(2, "NXM_NX_REG2")];
    Reg3 ["reg3"] 4/32 @ pipe.regs + 12, 4, Native >> 0;
        Full, Hex, None, rw, NXM, [nx(3, "NXM_NX_REG3")];
    Reg4 ["reg4"] 4/32 @ pipe.regs + 16, 4, Native >> 0;
        Full, Hex, None, rw, NXM, [nx(4, "NXM_NX_REG4")];
    Reg5 ["reg5"] 4/32 @ pipe.regs + 20, 4, Native >> 0;
        Full, Hex, None, rw, NXM, [nx(5, "NXM_NX_REG5")];
    Reg6 ["reg6"] 4/32 @ pipe.regs + 24, 4, Native >> 0;
        Full, Hex, None, rw, NXM, [nx(6, "NXM_NX_REG6")];
    Reg7 ["reg7"] 4/32 @ pipe.regs + 28, 4, Native >> 0;
        Full, Hex, None, rw, NXM, [nx(7, "NXM_NX_REG7")];
    Reg8 ["reg8"] 4/32 @ pipe.regs + 32, 4, Native >> 0;
        Full, Hex, None, rw, NXM, [nx(8, "NXM_NX_REG8")];
    Reg9 ["reg9"] 4/32 @ pipe.regs + 36, 4, Native >> 0;
        Full, Hex, None, rw, NXM, [nx(9, "NXM_NX_REG9")];
    Reg10 ["reg10"] 4/32 @ pipe.regs + 40, 4, Native >> 0;
        Full, Hex, None, rw, NXM, [nx(10, "NXM_NX_REG10")];
    Reg11 ["reg11"] 4/32 @ pipe.regs + 44, 4, Native >> 0;
        Full, Hex, None, rw, NXM, [nx(11, "NXM_NX_REG11")];
    Reg12 ["reg12"] 4/32 @ pipe.regs + 48, 4, Native >> 0;
        Full, Hex, None, rw, NXM, [nx(12, "NXM_NX_REG12")];
    Reg13 ["reg13"] 4/32 @ pipe.regs + 52, 4, Native >> 0;
        Full, Hex, None, rw, NXM, [nx(13, "NXM_NX_REG13")];
    Reg14 ["reg14"] 4/32 @ pipe.regs + 56, 4, Native >> 0;
        Full, Hex, None, rw, NXM, [nx(14, "NXM_NX_REG14")];
    Reg15 ["reg15"] 4/32 @ pipe.regs + 60, 4, Native >> 0;
        Full, Hex, None, rw, NXM, [nx(15, "NXM_NX_REG15")];
    XReg0 ["xreg0"] 8/64 @ pipe.regs + 0, 8, Regs >> 0;
        Full, Hex, None, rw, NXM, [pkt_reg(0, "OXM_OF_PKT_REG0")];
    XReg1 ["xreg1"] 8/64 @ pipe.regs + 8, 8, Regs >> 0;
        Full, Hex, None, rw, NXM, [pkt_reg(1, "OXM_OF_PKT_REG1")];
    XReg2 ["xreg2"] 8/64 @ pipe.regs + 16, 8, Regs >> 0;
        Full, Hex, None, rw, NXM, [pkt_reg(2, "OXM_OF_PKT_REG2")];
    XReg3 ["xreg3"] 8/64 @ pipe.regs + 24, 8, Regs >> 0;
        Full, Hex, None, rw, NXM, [pkt_reg(3, "OXM_OF_PKT_REG3")];
    XReg4 ["xreg4"] 8/64 @ pipe.regs + 32, 8, Regs >> 0;
        Full, Hex, None, rw, NXM, [pkt_reg(4, "OXM_OF_PKT_REG4")];
    XReg5 ["xreg5"] 8/64 @ pipe.regs + 40, 8, Regs >> 0;
        Full, Hex, None, rw, NXM, [pkt_reg(5, "OXM_OF_PKT_REG5")];
    XReg6 ["xreg6"] 8/64 @ pipe.regs + 48, 8, Regs >> 0;
        Full, Hex, None, rw, NXM, [pkt_reg(6, "OXM_OF_PKT_REG6")];
    XReg7 ["xreg7"] 8/64 @ pipe.regs + 56, 8, Regs >> 0;
        Full, Hex, None, rw, NXM, [pkt_reg(7, "OXM_OF_PKT_REG7")];
    XXReg0 ["xxreg0"] 16/128 @ pipe.regs + 0, 16, Regs >> 0;
        Full, Hex, None, rw, NXM, [nx(111, "NXM_NX_XXREG0")];
    XXReg1 ["xxreg1"] 16/128 @ pipe.regs + 16, 16, Regs >> 0;
        Full, Hex, None, rw, NXM, [nx(112, "NXM_NX_XXREG1")];
    XXReg2 ["xxreg2"] 16/128 @ pipe.regs + 32, 16, Regs >> 0;
        Full, Hex, None, rw, NXM, [nx(113, "NXM_NX_XXREG2")];
    XXReg3 ["xxreg3"] 16/128 @ pipe.regs + 48, 16, Regs >> 0;
        Full, Hex, None, rw, NXM, [nx(114, "NXM_NX_XXREG3")];
    EthSrc ["eth_src", "dl_src"] 6/48 @ dp.base.dl_src, 6, Be >> 0;
        Full, Mac, Ethernet, rw, ALLM, [nxm0(2, "NXM_OF_ETH_SRC"), oxm(4, "OXM_OF_ETH_SRC")];
    EthDst ["eth_dst", "dl_dst"] 6/48 @ dp.base.dl_dst, 6, Be >> 0;
        Full, Mac, Ethernet, rw, ALLM, [nxm0(1, "NXM_OF_ETH_DST"), oxm(3, "OXM_OF_ETH_DST")];
    EthType ["eth_type", "dl_type"] 2/16 @ dp.base.dl_type, 2, Be >> 0;
        Exact, Hex, Ethernet, ro, ALL, [nxm0(3, "NXM_OF_ETH_TYPE"), oxm(5, "OXM_OF_ETH_TYPE")];
    VlanTci ["vlan_tci"] 2/16 @ dp.base.vlans + 2, 2, Be >> 0;
        Full, Hex, Ethernet, rw, ALL, [nxm0(4, "NXM_OF_VLAN_TCI")];
    DlVlan ["dl_vlan"] 2/12 @ dp.base.vlans + 2, 2, Be >> 0;
        Exact, Decimal, Ethernet, rw, ALL, [];
    VlanVid ["vlan_vid"] 2/12 (0x1fff) @ dp.base.vlans + 2, 2, Be >> 0;
        Full, Decimal, Ethernet, rw, ALL, [oxm(6, "OXM_OF_VLAN_VID")];
    DlVlanPcp ["dl_vlan_pcp"] 1/3 @ dp.base.vlans + 2, 2, Be >> 13;
        Exact, Decimal, Ethernet, rw, ALL, [];
    VlanPcp ["vlan_pcp"] 1/3 @ dp.base.vlans + 2, 2, Be >> 13;
        Exact, Decimal, VlanVid, rw, ALL, [oxm(7, "OXM_OF_VLAN_PCP")];
    MplsLabel ["mpls_label"] 4/20 @ dp.misc.mpls_lse, 4, Be >> 12;
        Exact, Decimal, Mpls, rw, O11, [oxm(34, "OXM_OF_MPLS_LABEL")];
    MplsTc ["mpls_tc"] 1/3 @ dp.misc.mpls_lse, 4, Be >> 9;
        Exact, Decimal, Mpls, rw, O11, [oxm(35, "OXM_OF_MPLS_TC")];
    MplsBos ["mpls_bos"] 1/1 @ dp.misc.mpls_lse, 4, Be >> 8;
        Exact, Decimal, Mpls, ro, NXM, [oxm13(36, "OXM_OF_MPLS_BOS")];
    MplsTtl ["mpls_ttl"] 1/8 @ dp.misc.mpls_lse, 4, Be >> 0;
        Exact, Decimal, Mpls, rw, NXM, [nx(30, "NXM_NX_MPLS_TTL")];
    Ipv4Src ["nw_src", "ip_src"] 4/32 @ dp.base.nw_src, 4, Be >> 0;
        Full, Ipv4, Ipv4, rw, ALLP, [nxm0(7, "NXM_OF_IP_SRC"), oxm(11, "OXM_OF_IPV4_SRC")];
    Ipv4Dst ["nw_dst", "ip_dst"] 4/32 @ dp.base.nw_dst, 4, Be >> 0;
        Full, Ipv4, Ipv4, rw, ALLP, [nxm0(8, "NXM_OF_IP_DST"), oxm(12, "OXM_OF_IPV4_DST")];
    Ipv6Src ["ipv6_src"] 16/128 @ dp.v6.ipv6_src, 16, Be >> 0;
        Full, Ipv6, Ipv6, rw, NXM, [nx(19, "NXM_NX_IPV6_SRC"), oxm(26, "OXM_OF_IPV6_SRC")];
    Ipv6Dst ["ipv6_dst"] 16/128 @ dp.v6.ipv6_dst, 16, Be >> 0;
        Full, Ipv6, Ipv6, rw, NXM, [nx(20, "NXM_NX_IPV6_DST"), oxm(27, "OXM_OF_IPV6_DST")];
    Ipv6Label ["ipv6_label"] 4/20 @ dp.v6.ipv6_label, 4, Be >> 0;
        Full, Hex, Ipv6, rw, NXM, [nx(27, "NXM_NX_IPV6_LABEL"), oxm(28, "OXM_OF_IPV6_FLABEL")];
    IpProto ["nw_proto", "ip_proto"] 1/8 @ dp.base.nw_proto, 1, Native >> 0;
        Exact, Decimal, IpAny, ro, ALL, [nxm0(6, "NXM_OF_IP_PROTO"), oxm(10, "OXM_OF_IP_PROTO")];
    IpDscp ["nw_tos"] 1/8 (0xfc) @ dp.base.nw_tos, 1, Native >> 0;
        Exact, Decimal, IpAny, rw, ALL, [nxm0(5, "NXM_OF_IP_TOS")];
    IpDscpShifted ["ip_dscp"] 1/6 @ dp.base.nw_tos, 1, Native >> 2;
        Exact, Decimal, IpAny, rw, ALL, [oxm(8, "OXM_OF_IP_DSCP")];
    IpEcn ["nw_ecn", "ip_ecn"] 1/2 @ dp.base.nw_tos, 1, Native >> 0;
        Exact, Decimal, IpAny, rw, O11, [nx(28, "NXM_NX_IP_ECN"), oxm(9, "OXM_OF_IP_ECN")];
    IpTtl ["nw_ttl"] 1/8 @ dp.base.nw_ttl, 1, Native >> 0;
        Exact, Decimal, IpAny, rw, NXM, [nx(29, "NXM_NX_IP_TTL")];
    IpFrag ["ip_frag", "nw_frag"] 1/2 @ dp.base.nw_frag, 1, Native >> 0;
        Full, Frag, IpAny, ro, NXM, [nx(26, "NXM_NX_IP_FRAG")];
    ArpOp ["arp_op"] 2/16 (0xff) @ dp.base.nw_proto, 1, Native >> 0;
        Exact, Decimal, Arp, rw, ALL, [nxm0(15, "NXM_OF_ARP_OP"), oxm(21, "OXM_OF_ARP_OP")];
    ArpSpa ["arp_spa"] 4/32 @ dp.base.nw_src, 4, Be >> 0;
        Full, Ipv4, Arp, rw, ALLP, [nxm0(16, "NXM_OF_ARP_SPA"), oxm(22, "OXM_OF_ARP_SPA")];
    ArpTpa ["arp_tpa"] 4/32 @ dp.base.nw_dst, 4, Be >> 0;
        Full, Ipv4, Arp, rw, ALLP, [nxm0(17, "NXM_OF_ARP_TPA"), oxm(23, "OXM_OF_ARP_TPA")];
    ArpSha ["arp_sha"] 6/48 @ dp.v6.arp_sha, 6, Be >> 0;
        Full, Mac, Arp, rw, NXM, [nx(17, "NXM_NX_ARP_SHA"), oxm(24, "OXM_OF_ARP_SHA")];
    ArpTha ["arp_tha"] 6/48 @ dp.v6.arp_tha, 6, Be >> 0;
        Full, Mac, Arp, rw, NXM, [nx(18, "NXM_NX_ARP_THA"), oxm(25, "OXM_OF_ARP_THA")];
    TcpSrc ["tcp_src", "tp_src"] 2/16 @ dp.base.tp_src, 2, Be >> 0;
        Full, Decimal, Tcp, rw, ALL, [nxm0(9, "NXM_OF_TCP_SRC"), oxm(13, "OXM_OF_TCP_SRC")];
    TcpDst ["tcp_dst", "tp_dst"] 2/16 @ dp.base.tp_dst, 2, Be >> 0;
        Full, Decimal, Tcp, rw, ALL, [nxm0(10, "NXM_OF_TCP_DST"), oxm(14, "OXM_OF_TCP_DST")];
    TcpFlags ["tcp_flags"] 2/12 @ dp.base.tcp_flags, 2, Be >> 0;
        Full, TcpFlags, Tcp, ro, NXM, [nx(34, "NXM_NX_TCP_FLAGS"), onf(42, "ONFOXM_ET_TCP_FLAGS"), oxm15(42, "OXM_OF_TCP_FLAGS")];
    UdpSrc ["udp_src"] 2/16 @ dp.base.tp_src, 2, Be >> 0;
        Full, Decimal, Udp, rw, ALL, [nxm0(11, "NXM_OF_UDP_SRC"), oxm(15, "OXM_OF_UDP_SRC")];
    UdpDst ["udp_dst"] 2/16 @ dp.base.tp_dst, 2, Be >> 0;
        Full, Decimal, Udp, rw, ALL, [nxm0(12, "NXM_OF_UDP_DST"), oxm(16, "OXM_OF_UDP_DST")];
    SctpSrc ["sctp_src"] 2/16 @ dp.base.tp_src, 2, Be >> 0;
        Full, Decimal, Sctp, rw, O11, [oxm(17, "OXM_OF_SCTP_SRC")];
    SctpDst ["sctp_dst"] 2/16 @ dp.base.tp_dst, 2, Be >> 0;
        Full, Decimal, Sctp, rw, O11, [oxm(18, "OXM_OF_SCTP_DST")];
    Icmpv4Type ["icmp_type"] 1/8 @ dp.base.tp_src, 2, Be >> 0;
        Exact, Decimal, Icmpv4, rw, ALL, [nxm0(13, "NXM_OF_ICMP_TYPE"), oxm(19, "OXM_OF_ICMPV4_TYPE")];
    Icmpv4Code ["icmp_code"] 1/8 @ dp.base.tp_dst, 2, Be >> 0;
        Exact, Decimal, Icmpv4, rw, ALL, [nxm0(14, "NXM_OF_ICMP_CODE"), oxm(20, "OXM_OF_ICMPV4_CODE")];
    Icmpv6Type ["icmpv6_type"] 1/8 @ dp.base.tp_src, 2, Be >> 0;
        Exact, Decimal, Icmpv6, rw, NXM, [nx(21, "NXM_NX_ICMPV6_TYPE"), oxm(29, "OXM_OF_ICMPV6_TYPE")];
    Icmpv6Code ["icmpv6_code"] 1/8 @ dp.base.tp_dst, 2, Be >> 0;
        Exact, Decimal, Icmpv6, rw, NXM, [nx(22, "NXM_NX_ICMPV6_CODE"), oxm(30, "OXM_OF_ICMPV6_CODE")];
    NdTarget ["nd_target"] 16/128 @ dp.v6.nd_target, 16, Be >> 0;
        Full, Ipv6, Nd, rw, NXM, [nx(23, "NXM_NX_ND_TARGET"), oxm(31, "OXM_OF_IPV6_ND_TARGET")];
    NdSll ["nd_sll"] 6/48 @ dp.v6.arp_sha, 6, Be >> 0;
        Full, Mac, NdSolicit, rw, NXM, [nx(24, "NXM_NX_ND_SLL"), oxm(32, "OXM_OF_IPV6_ND_SLL")];
    NdTll ["nd_tll"] 6/48 @ dp.v6.arp_tha, 6, Be >> 0;
        Full, Mac, NdAdvert, rw, NXM, [nx(25, "NXM_NX_ND_TLL"), oxm(33, "OXM_OF_IPV6_ND_TLL")];
    NdReserved ["nd_reserved"] 4/32 @ dp.misc.nd_reserved, 4, Be >> 0;
        Exact, Decimal, Nd, rw, NXM, [ericsson(1, "ERICOXM_OF_ICMPV6_ND_RESERVED")];
    NdOptionsType ["nd_options_type"] 1/8 @ dp.misc.nd_options_type, 1, Native >> 0;
        Exact, Decimal, Nd, rw, NXM, [ericsson(2, "ERICOXM_OF_ICMPV6_ND_OPTIONS_TYPE")];
    NshFlags ["nsh_flags"] 1/8 @ dp.misc.nsh_flags, 1, Be >> 0;
        Full, Decimal, Nsh, rw, NXM, [nsh(1, "NXOXM_NSH_FLAGS")];
    NshTtl ["nsh_ttl"] 1/8 @ dp.misc.nsh_ttl, 1, Be >> 0;
        Exact, Decimal, Nsh, rw, NXM, [nsh(10, "NXOXM_NSH_TTL")];
    NshMdtype ["nsh_mdtype"] 1/8 @ dp.misc.nsh_mdtype, 1, Be >> 0;
        Exact, Decimal, Nsh, ro, NXM, [nsh(2, "NXOXM_NSH_MDTYPE")];
    NshNp ["nsh_np"] 1/8 @ dp.misc.nsh_np, 1, Be >> 0;
        Exact, Decimal, Nsh, ro, NXM, [nsh(3, "NXOXM_NSH_NP")];
    NshSpi ["nsh_spi", "nsp"] 4/24 @ dp.misc.nsh_path_hdr, 4, Be >> 8;
        Exact, Hex, Nsh, rw, NXM, [nsh(4, "NXOXM_NSH_SPI")];
    NshSi ["nsh_si", "nsi"] 1/8 @ dp.misc.nsh_path_hdr, 4, Be >> 0;
        Exact, Decimal, Nsh, rw, NXM, [nsh(5, "NXOXM_NSH_SI")];
    NshC1 ["nsh_c1", "nshc1"] 4/32 @ dp.misc.nsh_context + 0, 4, Be >> 0;
        Full, Hex, Nsh, rw, NXM, [nsh(6, "NXOXM_NSH_C1")];
    NshC2 ["nsh_c2", "nshc2"] 4/32 @ dp.misc.nsh_context + 4, 4, Be >> 0;
        Full, Hex, Nsh, rw, NXM, [nsh(7, "NXOXM_NSH_C2")];
    NshC3 ["nsh_c3", "nshc3"] 4/32 @ dp.misc.nsh_context + 8, 4, Be >> 0;
        Full, Hex, Nsh, rw, NXM, [nsh(8, "NXOXM_NSH_C3")];
    NshC4 ["nsh_c4", "nshc4"] 4/32 @ dp.misc.nsh_context + 12, 4, Be >> 0;
        Full, Hex, Nsh, rw, NXM, [nsh(9, "NXOXM_NSH_C4")];
}
