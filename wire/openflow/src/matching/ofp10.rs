//! `ofp_match` of OpenFlow 1.0: 40 bytes.

use crate::wire::{Put, Reader};
use fv_core::OfPort;
use fv_flow::key::{VLAN_CFI, VLAN_PCP_MASK, VLAN_PCP_SHIFT, VLAN_VID_MASK};
use fv_flow::{Field, Match};

pub const LEN: usize = 40;

const IN_PORT: u32 = 1 << 0;
const DL_VLAN: u32 = 1 << 1;
const DL_SRC: u32 = 1 << 2;
const DL_DST: u32 = 1 << 3;
const DL_TYPE: u32 = 1 << 4;
const NW_PROTO: u32 = 1 << 5;
const TP_SRC: u32 = 1 << 6;
const TP_DST: u32 = 1 << 7;
const NW_SRC_SHIFT: u32 = 8;
const NW_DST_SHIFT: u32 = 14;
const NW_BITS: u32 = 0x3f;
const DL_VLAN_PCP: u32 = 1 << 20;
const NW_TOS: u32 = 1 << 21;

/// `dl_vlan` of a packet without tag.
const VLAN_NONE: u16 = 0xffff;
const IP_DSCP_MASK: u8 = 0xfc;

/// Prefix mask of a wildcard count: 32 and more match nothing.
fn prefix(wild_bits: u32) -> u32 {
    u32::MAX.checked_shl(wild_bits & NW_BITS).unwrap_or(0)
}

/// Wildcarded bits of a prefix mask. A mask that is no prefix loses its lower bits.
fn wild_bits(mask: u32) -> u32 {
    32 - mask.leading_ones()
}

/// Unused and wildcarded values are ignored: every pattern of bytes means something.
pub fn decode(bytes: &[u8; LEN]) -> Match {
    let mut m = Match::default();
    // The length is right, so no read falls short.
    let _ = read(&mut Reader::body(bytes), &mut m);
    m
}

fn read(r: &mut Reader<'_>, m: &mut Match) -> Result<(), crate::OfError> {
    let w = r.u32()?;
    let exact = |bit: u32| w & bit == 0;
    let (k, wc) = (&mut m.key.dp.base, &mut m.mask.0.dp.base);
    let in_port = r.u16()?;
    if exact(IN_PORT) {
        k.in_port = OfPort::from_u16(in_port).0;
        wc.in_port = u32::MAX;
    }
    let (src, dst) = (r.array()?, r.array()?);
    if exact(DL_SRC) {
        (k.dl_src, wc.dl_src) = (src, [0xff; 6]);
    }
    if exact(DL_DST) {
        (k.dl_dst, wc.dl_dst) = (dst, [0xff; 6]);
    }
    let (vlan, pcp) = (r.u16()?, r.u8()?);
    r.skip(1)?;
    if exact(DL_VLAN) && vlan == VLAN_NONE {
        wc.vlans[0].tci = u16::MAX.into();
    } else {
        let vid = if exact(DL_VLAN) { VLAN_VID_MASK | VLAN_CFI } else { 0 };
        let pcp_mask = if exact(DL_VLAN_PCP) { VLAN_PCP_MASK | VLAN_CFI } else { 0 };
        let mask = vid | pcp_mask;
        let tci = vlan & VLAN_VID_MASK | u16::from(pcp & 7) << VLAN_PCP_SHIFT | VLAN_CFI;
        wc.vlans[0].tci = mask.into();
        k.vlans[0].tci = (tci & mask).into();
    }
    let dl_type = r.u16()?;
    if exact(DL_TYPE) {
        (k.dl_type, wc.dl_type) = (dl_type.into(), u16::MAX.into());
    }
    let (tos, proto) = (r.u8()?, r.u8()?);
    r.skip(2)?;
    if exact(NW_TOS) {
        (k.nw_tos, wc.nw_tos) = (tos & IP_DSCP_MASK, IP_DSCP_MASK);
    }
    if exact(NW_PROTO) {
        (k.nw_proto, wc.nw_proto) = (proto, 0xff);
    }
    let (s, d) = (prefix(w >> NW_SRC_SHIFT), prefix(w >> NW_DST_SHIFT));
    (k.nw_src, wc.nw_src) = ((r.u32()? & s).into(), s.into());
    (k.nw_dst, wc.nw_dst) = ((r.u32()? & d).into(), d.into());
    let (ts, td) = (r.u16()?, r.u16()?);
    if exact(TP_SRC) {
        (k.tp_src, wc.tp_src) = (ts.into(), u16::MAX.into());
    }
    if exact(TP_DST) {
        (k.tp_dst, wc.tp_dst) = (td.into(), u16::MAX.into());
    }
    Ok(())
}

/// What the form cannot say (masked addresses, other fields) is left out.
pub fn encode(m: &Match) -> [u8; LEN] {
    let (k, wc) = (&m.key.dp.base, &m.mask.0.dp.base);
    let mut w = 0;
    let mut wild = |bit: u32, wild: bool| {
        w |= if wild { bit } else { 0 };
        !wild
    };
    let in_port = if wild(IN_PORT, wc.in_port == 0) { OfPort(k.in_port).to_u16().unwrap_or(0xffff) } else { 0 };
    let src = if wild(DL_SRC, wc.dl_src == [0; 6]) { k.dl_src } else { [0; 6] };
    let dst = if wild(DL_DST, wc.dl_dst == [0; 6]) { k.dl_dst } else { [0; 6] };
    let (tci, mask) = (k.vlans[0].tci.get(), wc.vlans[0].tci.get());
    let (vlan, pcp) = if mask & VLAN_CFI != 0 && tci & VLAN_CFI == 0 {
        (VLAN_NONE, 0)
    } else {
        let vid = if wild(DL_VLAN, mask & VLAN_VID_MASK == 0) { tci & VLAN_VID_MASK } else { 0 };
        let pcp = if wild(DL_VLAN_PCP, mask & VLAN_PCP_MASK == 0) { tci >> VLAN_PCP_SHIFT } else { 0 };
        (vid, pcp as u8)
    };
    let dl_type = if wild(DL_TYPE, wc.dl_type == 0) { k.dl_type.get() } else { 0 };
    let tos = if wild(NW_TOS, wc.nw_tos & IP_DSCP_MASK == 0) { k.nw_tos & IP_DSCP_MASK } else { 0 };
    let proto = if wild(NW_PROTO, wc.nw_proto == 0) { k.nw_proto } else { 0 };
    let tp_src = if wild(TP_SRC, wc.tp_src == 0) { k.tp_src.get() } else { 0 };
    let tp_dst = if wild(TP_DST, wc.tp_dst == 0) { k.tp_dst.get() } else { 0 };
    w |= wild_bits(wc.nw_src.get()) << NW_SRC_SHIFT | wild_bits(wc.nw_dst.get()) << NW_DST_SHIFT;

    let mut out = Vec::with_capacity(LEN);
    out.u32(w).u16(in_port).put(&src).put(&dst).u16(vlan).u8(pcp).zero(1).u16(dl_type).u8(tos).u8(proto).zero(2);
    out.u32(k.nw_src.get()).u32(k.nw_dst.get()).u16(tp_src).u16(tp_dst);
    let mut a = [0; LEN];
    a.copy_from_slice(&out);
    a
}

/// Drops what cannot matter because the fields before it exclude it, as OpenFlow 1.0 asks for: a
/// match that says `tp_dst` without a protocol that has ports does not match on it.
pub fn normalize(m: &Match) -> Match {
    let mut n = *m;
    for f in super::nxm::matched_fields(&m.mask) {
        if !f.is_all_wild(&n.mask) && !f.are_prereqs_ok(&n) && !shares_place(f, &n) {
            n.clear_field(f);
        }
    }
    n
}

/// Whether another field in the same place of the key has its prerequisites met.
fn shares_place(f: Field, m: &Match) -> bool {
    let p = f.info().place;
    Field::all().any(|o| o != f && o.info().place.ofs == p.ofs && o.are_prereqs_ok(m))
}
