//! Actions and instructions to bytes. What a version has no action for goes out in the nearest form:
//! set-field, Nicira's extension, or (for `goto_table` in OpenFlow 1.0) a resubmit.

use super::encode_nicira as nx;
use super::*;
use crate::matching::nxm;
use crate::version::Version;
use crate::wire::Put;

/// A list of actions without instructions: packet-out, buckets, OpenFlow 1.0. Instructions in it are
/// written where Nicira's extension can say them, else left out.
pub fn encode_actions(out: &mut Vec<u8>, actions: &[Action], version: Version) {
    for a in actions {
        action(out, a, version);
    }
}

/// What follows a 1.1+ flow's match; for 1.0 the plain list.
pub fn encode_instructions(out: &mut Vec<u8>, actions: &[Action], version: Version) {
    if version == Version::V10 {
        return encode_actions(out, actions, version);
    }
    let meter_instruction = version < Version::V15;
    let is_inst = |a: &Action| a.is_instruction() && (meter_instruction || !matches!(a, Action::Meter(_)));
    if meter_instruction && version >= Version::V13 {
        for m in actions.iter().filter_map(|a| if let Action::Meter(m) = a { Some(*m) } else { None }) {
            out.u16(6).u16(8).u32(m);
        }
    }
    if actions.iter().any(|a| !is_inst(a)) {
        block(out, 4, actions.iter().filter(|a| !is_inst(a)), version);
    }
    for a in actions {
        match a {
            Action::ClearActions => {
                out.u16(5).u16(8).zero(4);
            }
            Action::WriteActions(list) => block(out, 3, list.iter(), version),
            Action::WriteMetadata { metadata, mask } => {
                out.u16(2).u16(24).zero(4).u64(*metadata).u64(*mask);
            }
            Action::GotoTable(t) => {
                out.u16(1).u16(8).u8(*t).zero(3);
            }
            _ => {}
        }
    }
}

fn block<'a>(out: &mut Vec<u8>, kind: u16, actions: impl Iterator<Item = &'a Action>, version: Version) {
    let start = out.len();
    out.u16(kind).u16(0).zero(4);
    for a in actions {
        action(out, a, version);
    }
    set_len(out, start);
}

/// Writes the length of what began at `start`, if it fits: a list that does not is cut by the
/// message's own check.
pub(super) fn set_len(out: &mut Vec<u8>, start: usize) {
    let len = out.len() - start;
    out.set_u16(start + 2, u16::try_from(len).unwrap_or(u16::MAX));
}

/// One of the 8-byte actions with a 32-bit body.
fn small(out: &mut Vec<u8>, kind: u16, body: u32) {
    out.u16(kind).u16(8).u32(body);
}

/// `v` in the first byte, or the first two, of a 32-bit body.
fn b8(v: u8) -> u32 {
    u32::from(v) << 24
}
fn b16(v: u16) -> u32 {
    u32::from(v) << 16
}

pub(super) fn action(out: &mut Vec<u8>, a: &Action, v: Version) {
    let v10 = v == Version::V10;
    match a {
        Action::Output { port, max_len } if v10 => {
            out.u16(0).u16(8).u16(port10(*port)).u16(*max_len);
        }
        Action::Output { port, max_len } => {
            out.u16(0).u16(16).u32(port.0).u16(*max_len).zero(6);
        }
        Action::Enqueue { port, queue } if v10 => {
            out.u16(11).u16(16).u16(port10(*port)).zero(6).u32(*queue);
        }
        Action::Enqueue { port, queue } => {
            action(out, &Action::SetQueue(*queue), v);
            action(out, &Action::Output { port: *port, max_len: 0 }, v);
            action(out, &Action::PopQueue, v);
        }
        Action::Group(g) if !v10 => small(out, 22, *g),
        Action::SetQueue(q) if !v10 => small(out, 21, *q),
        Action::DecTtl(d) if !v10 && d.controllers.is_empty() => small(out, 24, 0),
        Action::SetMplsTtl(t) if !v10 => small(out, 15, b8(*t)),
        Action::DecMplsTtl if !v10 => small(out, 16, 0),
        Action::PushMpls(t) if !v10 => small(out, 19, b16(*t)),
        Action::PopMpls(t) if !v10 => small(out, 20, b16(*t)),
        Action::PushVlan(t) if !v10 => small(out, 17, b16(*t)),
        // 1.0 tags a packet when it sets the VID; pushing alone cannot be said.
        Action::PushVlan(_) => {}
        Action::StripVlan { .. } => small(out, if v10 { 3 } else { 18 }, 0),
        Action::SetVlanVid { vid, push_vlan_if_needed, flow_has_vlan } => {
            let push = *push_vlan_if_needed && !flow_has_vlan;
            set_vlan(out, v, push, 1, b16(*vid), Field::VlanVid, u128::from(*vid | 0x1000));
        }
        Action::SetVlanPcp { pcp, push_vlan_if_needed, flow_has_vlan } => {
            let push = *push_vlan_if_needed && !flow_has_vlan;
            set_vlan(out, v, push, 2, b8(*pcp), Field::VlanPcp, u128::from(*pcp));
        }
        Action::Meter(m) if v >= Version::V15 => small(out, 29, *m),
        Action::RegMove { src, dst } if v >= Version::V15 => {
            let start = out.len();
            out.u16(28).u16(0).u16(src.n_bits as u16).u16(src.ofs as u16).u16(dst.ofs as u16).zero(2);
            nxm::put_header(out, src.field, v);
            nxm::put_header(out, dst.field, v);
            out.pad8(start);
            set_len(out, start);
        }
        Action::SetField(s) => set_field(out, s, v),
        Action::SetTunnel { id, .. } if v >= Version::V12 => whole_field(out, Field::TunId, u128::from(*id), v),
        // 1.0 has no instruction for it; going on in the table is what is left.
        Action::GotoTable(t) if v10 => {
            let r = Resubmit { in_port: OfPort::IN_PORT, table: *t, with_ct_orig: false };
            nx::action(out, &Action::Resubmit(r), v);
        }
        _ => {
            if !header_change(out, a, v) {
                nx::action(out, a, v);
            }
        }
    }
}

pub(super) fn port10(p: OfPort) -> u16 {
    p.to_u16().unwrap_or(0xffff)
}

fn set_vlan(out: &mut Vec<u8>, v: Version, push: bool, kind: u16, body: u32, field: Field, value: u128) {
    if v > Version::V10 && push {
        small(out, 17, b16(0x8100));
    }
    if v >= Version::V12 {
        whole_field(out, field, value, v);
    } else {
        small(out, kind, body);
    }
}

/// The fixed actions of 1.0 and 1.1 that 1.2+ says with set-field. False: not one of them.
fn header_change(out: &mut Vec<u8>, a: &Action, v: Version) -> bool {
    // (type in 1.0, type in 1.1, 32-bit body, the field of 1.2+ and its value)
    let (k10, k11, body, field, value) = match a {
        Action::SetEthSrc(m) | Action::SetEthDst(m) => {
            let src = matches!(a, Action::SetEthSrc(_));
            if v >= Version::V12 {
                let field = if src { Field::EthSrc } else { Field::EthDst };
                whole_field(out, field, FieldValue::from_be_bytes(m).0, v);
            } else {
                let kind = u16::from(v == Version::V10) + if src { 3 } else { 4 };
                out.u16(kind).u16(16).put(m).zero(6);
            }
            return true;
        }
        Action::SetIpv4Src(x) => (Some(6), 5, *x, Field::Ipv4Src, u128::from(*x)),
        Action::SetIpv4Dst(x) => (Some(7), 6, *x, Field::Ipv4Dst, u128::from(*x)),
        Action::SetIpDscp(t) => (Some(8), 7, b8(*t), Field::IpDscpShifted, u128::from(*t >> 2)),
        Action::SetIpEcn(e) => (None, 8, b8(*e), Field::IpEcn, u128::from(*e)),
        Action::SetIpTtl(t) => {
            if v == Version::V10 {
                nx::reg_load(out, &Subfield::whole(Field::IpTtl), u64::from(*t));
            } else {
                small(out, 23, b8(*t));
            }
            return true;
        }
        Action::SetL4SrcPort(p) => (Some(9), 9, b16(p.port), l4_field(p, true), u128::from(p.port)),
        Action::SetL4DstPort(p) => (Some(10), 10, b16(p.port), l4_field(p, false), u128::from(p.port)),
        Action::SetMplsLabel(l) => (None, 13, *l, Field::MplsLabel, u128::from(*l)),
        Action::SetMplsTc(t) => (None, 14, b8(*t), Field::MplsTc, u128::from(*t)),
        _ => return false,
    };
    match (v, k10) {
        (Version::V10, Some(k)) => small(out, k, body),
        (Version::V10, None) if field == Field::IpEcn => {
            nx::reg_load(out, &Subfield::whole(field), value as u64);
        }
        (Version::V10, None) => return false,
        (Version::V11, _) => small(out, k11, body),
        _ => whole_field(out, field, value, v),
    }
    true
}

fn l4_field(p: &L4Port, src: bool) -> Field {
    match (p.ip_proto, src) {
        (17, true) => Field::UdpSrc,
        (17, false) => Field::UdpDst,
        (132, true) => Field::SctpSrc,
        (132, false) => Field::SctpDst,
        (_, true) => Field::TcpSrc,
        (_, false) => Field::TcpDst,
    }
}

/// Set-field of a whole field (1.2+).
fn whole_field(out: &mut Vec<u8>, field: Field, value: u128, v: Version) {
    oxm_set_field(out, field, FieldValue::new(value), field.mask_bits(), v);
}

fn oxm_set_field(out: &mut Vec<u8>, field: Field, value: FieldValue, mask: FieldValue, v: Version) {
    let start = out.len();
    out.u16(25).u16(0);
    nxm::put_entry(out, field, value, mask, Some(v));
    out.pad8(start);
    set_len(out, start);
}

fn set_field(out: &mut Vec<u8>, s: &SetField, v: Version) {
    let (value, mask) = (s.value.get(), s.mask.get());
    let exact = mask == s.field.mask_bits();
    if v >= Version::V15 || v >= Version::V12 && exact && s.form == SetForm::SetField {
        return oxm_set_field(out, s.field, value, mask, v);
    }
    if v < Version::V12 && exact && s.form == SetForm::SetField && legacy(out, s, v) {
        return;
    }
    nx::set_field(out, s);
}

/// Whole fields for which 1.0 and 1.1 have an action of their own. False: there is none.
fn legacy(out: &mut Vec<u8>, s: &SetField, v: Version) -> bool {
    let x = s.value.get().0;
    let mac = || {
        let mut m = [0; 6];
        m.copy_from_slice(&s.value.get().to_be_bytes(6));
        m
    };
    let l4 = L4Port { port: x as u16, ip_proto: 0 };
    let a = match s.field {
        Field::VlanTci | Field::VlanVid | Field::DlVlan if v == Version::V10 && s.field != Field::VlanTci => {
            Action::SetVlanVid { vid: x as u16 & 0xfff, push_vlan_if_needed: true, flow_has_vlan: s.flow_has_vlan }
        }
        Field::VlanVid => Action::SetVlanVid { vid: x as u16 & 0xfff, push_vlan_if_needed: false, flow_has_vlan: true },
        Field::VlanPcp | Field::DlVlanPcp => Action::SetVlanPcp {
            pcp: x as u8 & 7,
            push_vlan_if_needed: v == Version::V10,
            flow_has_vlan: s.flow_has_vlan,
        },
        Field::EthSrc => Action::SetEthSrc(mac()),
        Field::EthDst => Action::SetEthDst(mac()),
        Field::Ipv4Src => Action::SetIpv4Src(x as u32),
        Field::Ipv4Dst => Action::SetIpv4Dst(x as u32),
        Field::IpDscp => Action::SetIpDscp(x as u8 & 0xfc),
        Field::IpDscpShifted => Action::SetIpDscp((x as u8) << 2),
        Field::IpEcn if v == Version::V11 => Action::SetIpEcn(x as u8),
        Field::TcpSrc | Field::UdpSrc | Field::SctpSrc => Action::SetL4SrcPort(l4),
        Field::TcpDst | Field::UdpDst | Field::SctpDst => Action::SetL4DstPort(l4),
        _ => return false,
    };
    action(out, &a, v);
    true
}
