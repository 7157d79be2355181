//! `ofp_match` of OpenFlow 1.1: 88 bytes. Set mask bits are wildcards.

use crate::error::OfError;
use crate::wire::{Put, Reader};
use fv_core::OfPort;
use fv_flow::key::{VLAN_CFI, VLAN_PCP_MASK, VLAN_PCP_SHIFT, VLAN_VID_MASK, eth, ipproto};
use fv_flow::{Field, FieldValue, Match};

pub const LEN: usize = 88;

const IN_PORT: u32 = 1 << 0;
const DL_VLAN: u32 = 1 << 1;
const DL_VLAN_PCP: u32 = 1 << 2;
const DL_TYPE: u32 = 1 << 3;
const NW_TOS: u32 = 1 << 4;
const NW_PROTO: u32 = 1 << 5;
const TP_SRC: u32 = 1 << 6;
const TP_DST: u32 = 1 << 7;
const MPLS_LABEL: u32 = 1 << 8;
const MPLS_TC: u32 = 1 << 9;

/// `dl_vlan`: any tag, no tag.
const VID_ANY: u16 = 0xfffe;
const VID_NONE: u16 = 0xffff;

/// A port number of OpenFlow 1.1+: 0xff00 to 0xfffffeff do not exist.
pub fn port(p: u32) -> Result<OfPort, OfError> {
    if (0xff00..0xffff_ff00).contains(&p) { Err(OfError::BacBadOutPort) } else { Ok(OfPort(p)) }
}

fn invert(a: [u8; 6]) -> [u8; 6] {
    a.map(|b| !b)
}

/// The set bits of a six-byte mask applied.
fn and(a: [u8; 6], m: [u8; 6]) -> [u8; 6] {
    std::array::from_fn(|i| a[i] & m[i])
}

pub fn decode(bytes: &[u8; LEN]) -> Result<Match, OfError> {
    let mut r = Reader::body(bytes);
    let mut m = Match::default();
    let (k, wc) = (&mut m.key.dp.base, &mut m.mask.0.dp.base);
    r.skip(4)?;
    let in_port = r.u32()?;
    let w = r.u32()?;
    let exact = |bit: u32| w & bit == 0;
    if exact(IN_PORT) {
        k.in_port = port(in_port).map_err(|_| OfError::BmcBadValue)?.0;
        wc.in_port = u32::MAX;
    }
    let (src, src_wild, dst, dst_wild) = (r.array()?, r.array()?, r.array()?, r.array()?);
    (wc.dl_src, wc.dl_dst) = (invert(src_wild), invert(dst_wild));
    (k.dl_src, k.dl_dst) = (and(src, wc.dl_src), and(dst, wc.dl_dst));
    let (vid, pcp) = (r.u16()?, r.u8()?);
    r.skip(1)?;
    if exact(DL_VLAN) {
        let pcp = exact(DL_VLAN_PCP).then_some(pcp);
        let (tci, mask) = vlan(vid, pcp)?;
        (k.vlans[0].tci, wc.vlans[0].tci) = (tci.into(), mask.into());
    }
    if exact(DL_TYPE) {
        (k.dl_type, wc.dl_type) = (r.u16()?.into(), u16::MAX.into());
    } else {
        r.skip(2)?;
    }
    network(&mut r, w, &mut m)?;
    Ok(m)
}

/// Value and mask of the TCI.
fn vlan(vid: u16, pcp: Option<u8>) -> Result<(u16, u16), OfError> {
    let (tci, mask) = match vid {
        VID_NONE => return Ok((0, u16::MAX)),
        VID_ANY => (VLAN_CFI, VLAN_CFI),
        v if v <= VLAN_VID_MASK => (VLAN_CFI | v, VLAN_CFI | VLAN_VID_MASK),
        _ => return Err(OfError::BmcBadValue),
    };
    match pcp {
        None => Ok((tci, mask)),
        Some(p @ 0..=7) => Ok((tci | u16::from(p) << VLAN_PCP_SHIFT, mask | VLAN_PCP_MASK)),
        Some(_) => Err(OfError::BmcBadValue),
    }
}

/// From `nw_tos` on.
fn network(r: &mut Reader<'_>, w: u32, m: &mut Match) -> Result<(), OfError> {
    let exact = |bit: u32| w & bit == 0;
    let (k, wc) = (&mut m.key.dp.base, &mut m.mask.0.dp.base);
    let (tos, proto) = (r.u8()?, r.u8()?);
    let (src, src_wild, dst, dst_wild) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
    let (tp_src, tp_dst) = (r.u16()?, r.u16()?);
    let ipv4 = k.dl_type == eth::IP;
    if ipv4 && exact(NW_TOS) {
        if tos & 3 != 0 {
            return Err(OfError::BmcBadValue);
        }
        (k.nw_tos, wc.nw_tos) = (tos, 0xfc);
    }
    if ipv4 || [eth::ARP, eth::RARP].contains(&k.dl_type.get()) {
        if exact(NW_PROTO) {
            (k.nw_proto, wc.nw_proto) = (proto, 0xff);
        }
        (k.nw_src, wc.nw_src) = ((src & !src_wild).into(), (!src_wild).into());
        (k.nw_dst, wc.nw_dst) = ((dst & !dst_wild).into(), (!dst_wild).into());
    }
    if ipv4 && (exact(TP_SRC) || exact(TP_DST)) {
        let widest = match k.nw_proto {
            ipproto::ICMP => 0xff,
            ipproto::TCP | ipproto::UDP | ipproto::SCTP => 0xffff,
            _ => return Err(OfError::BmcBadField),
        };
        for (bit, v, key, mask) in
            [(TP_SRC, tp_src, &mut k.tp_src, &mut wc.tp_src), (TP_DST, tp_dst, &mut k.tp_dst, &mut wc.tp_dst)]
        {
            if exact(bit) {
                if v > widest {
                    return Err(OfError::BmcBadField);
                }
                (*key, *mask) = (v.into(), u16::MAX.into());
            }
        }
    }
    let (label, tc) = (r.u32()?, r.u8()?);
    r.skip(3)?;
    if [eth::MPLS, eth::MPLS_MCAST].contains(&m.key.dp.base.dl_type.get()) {
        if exact(MPLS_LABEL) {
            m.set_field(Field::MplsLabel, &FieldValue::new(label.into()));
        }
        if exact(MPLS_TC) {
            m.set_field(Field::MplsTc, &FieldValue::new(tc.into()));
        }
    }
    let (metadata, wild) = (r.u64()?, r.u64()?);
    m.mask.0.pipe.metadata = (!wild).into();
    m.key.pipe.metadata = (metadata & !wild).into();
    Ok(())
}

/// What the form cannot say is left out.
pub fn encode(m: &Match) -> [u8; LEN] {
    let (k, wc) = (&m.key.dp.base, &m.mask.0.dp.base);
    let mut w = 0;
    // A value, or zero and its wildcard bit.
    let mut val = |bit: u32, wild: bool, v: u32| {
        w |= if wild { bit } else { 0 };
        if wild { 0 } else { v }
    };
    let in_port = val(IN_PORT, wc.in_port == 0, k.in_port);
    let (tci, mask) = (k.vlans[0].tci.get(), wc.vlans[0].tci.get());
    let vid = match () {
        _ if mask & VLAN_CFI == 0 => val(DL_VLAN, true, 0),
        _ if tci & VLAN_CFI == 0 => VID_NONE.into(),
        _ if mask & VLAN_VID_MASK == 0 => VID_ANY.into(),
        _ => u32::from(tci & VLAN_VID_MASK),
    };
    let no_pcp = mask & VLAN_CFI == 0 || tci & VLAN_CFI == 0 || mask & VLAN_PCP_MASK == 0;
    let pcp = val(DL_VLAN_PCP, no_pcp, u32::from(tci >> VLAN_PCP_SHIFT));
    let dl_type = val(DL_TYPE, wc.dl_type == 0, k.dl_type.get().into());
    let tos = val(NW_TOS, wc.nw_tos & 0xfc == 0, (k.nw_tos & 0xfc).into());
    let proto = val(NW_PROTO, wc.nw_proto == 0, k.nw_proto.into());
    let tp_src = val(TP_SRC, wc.tp_src == 0, k.tp_src.get().into());
    let tp_dst = val(TP_DST, wc.tp_dst == 0, k.tp_dst.get().into());
    let (label, label_mask) = Field::MplsLabel.of_match(m);
    let (tc, tc_mask) = Field::MplsTc.of_match(m);
    let label = val(MPLS_LABEL, label_mask.0 == 0, label.0 as u32);
    let tc = val(MPLS_TC, tc_mask.0 == 0, tc.0 as u32);

    let mut out = Vec::with_capacity(LEN);
    out.u16(0).u16(LEN as u16).u32(in_port).u32(w);
    out.put(&k.dl_src).put(&invert(wc.dl_src)).put(&k.dl_dst).put(&invert(wc.dl_dst));
    out.u16(vid as u16).u8(pcp as u8).zero(1).u16(dl_type as u16).u8(tos as u8).u8(proto as u8);
    out.u32(k.nw_src.get()).u32(!wc.nw_src.get()).u32(k.nw_dst.get()).u32(!wc.nw_dst.get());
    out.u16(tp_src as u16).u16(tp_dst as u16).u32(label).u8(tc as u8).zero(3);
    out.u64(m.key.pipe.metadata.get()).u64(!m.mask.0.pipe.metadata.get());
    let mut a = [0; LEN];
    a.copy_from_slice(&out);
    a
}
