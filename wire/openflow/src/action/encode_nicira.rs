//! Nicira's actions to bytes.

use super::encode::{action as any_action, encode_actions, port10, set_len};
use super::nicira::{DECAP_NEXT_PROTO, LEARN_BITS, LEARN_DST_LOAD, LEARN_DST_OUTPUT, LEARN_SRC_IMM, sub};
use super::*;
use crate::matching::nxm;
use crate::vendor;
use crate::version::Version;
use crate::wire::{Put, put_prop, put_prop_u8, put_prop_u16};

/// Writes one action: header, what `body` writes, padding.
fn put(out: &mut Vec<u8>, subtype: u16, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.u16(0xffff).u16(0).u32(vendor::NX).u16(subtype);
    body(out);
    out.pad8(start);
    set_len(out, start);
}

/// `ofs << 6 | (n_bits - 1)`.
fn ofs_nbits(s: &Subfield) -> u16 {
    (s.ofs << 6 | s.n_bits.wrapping_sub(1) & 0x3f) as u16
}

/// The action in Nicira's form; what no version's bytes can say writes nothing.
pub(super) fn action(out: &mut Vec<u8>, a: &Action, v: Version) {
    match a {
        Action::Resubmit(r) => resubmit(out, r),
        Action::SetTunnel { id, wide } => match u32::try_from(*id) {
            Ok(id) if !wide => put(out, sub::SET_TUNNEL, |o| o.zero(2).u32(id).done()),
            _ => put(out, sub::SET_TUNNEL64, |o| o.zero(6).u64(*id).done()),
        },
        Action::SetQueue(q) => put(out, sub::SET_QUEUE, |o| o.zero(2).u32(*q).done()),
        Action::PopQueue => put(out, sub::POP_QUEUE, |o| o.zero(6).done()),
        Action::RegMove { src, dst } => put(out, sub::REG_MOVE, |o| {
            o.u16(src.n_bits as u16).u16(src.ofs as u16).u16(dst.ofs as u16);
            nxm::put_header(o, src.field, Version::V10);
            nxm::put_header(o, dst.field, Version::V10);
        }),
        Action::Note(data) => put(out, sub::NOTE, |o| o.put(data).done()),
        Action::Exit => put(out, sub::EXIT, |o| o.zero(6).done()),
        Action::DecTtl(d) if d.controllers.is_empty() => {
            put(out, sub::DEC_TTL, |o| o.zero(6).done());
        }
        Action::DecTtl(d) => put(out, sub::DEC_TTL_CNT_IDS, |o| {
            o.u16(d.controllers.len() as u16).zero(4);
            for c in &d.controllers {
                o.u16(*c);
            }
        }),
        Action::FinTimeout { idle_s, hard_s } => {
            put(out, sub::FIN_TIMEOUT, |o| o.u16(*idle_s).u16(*hard_s).zero(2).done())
        }
        Action::WriteMetadata { metadata, mask } => {
            put(out, sub::WRITE_METADATA, |o| o.zero(6).u64(*metadata).u64(*mask).done());
        }
        Action::PushMpls(t) => put(out, sub::PUSH_MPLS, |o| o.u16(*t).zero(4).done()),
        Action::PopMpls(t) => put(out, sub::POP_MPLS, |o| o.u16(*t).zero(4).done()),
        Action::SetMplsTtl(t) => put(out, sub::SET_MPLS_TTL, |o| o.u8(*t).zero(5).done()),
        Action::DecMplsTtl => put(out, sub::DEC_MPLS_TTL, |o| o.zero(6).done()),
        Action::SetMplsTc(t) => put(out, sub::SET_MPLS_TC, |o| o.u8(*t).zero(5).done()),
        Action::SetMplsLabel(l) => put(out, sub::SET_MPLS_LABEL, |o| o.zero(2).u32(*l).done()),
        Action::StackPush(s) => stack(out, sub::STACK_PUSH, s),
        Action::StackPop(s) => stack(out, sub::STACK_POP, s),
        Action::Group(g) => put(out, sub::GROUP, |o| o.zero(2).u32(*g).done()),
        Action::CtClear => put(out, sub::CT_CLEAR, |o| o.zero(6).done()),
        Action::Clone(list) => put(out, sub::CLONE, |o| {
            o.zero(6);
            encode_actions(o, list, v);
        }),
        Action::Conjunction { id, clause, n_clauses } => {
            put(out, sub::CONJUNCTION, |o| o.u8(*clause).u8(*n_clauses).u32(*id).done());
        }
        Action::DecNshTtl => put(out, sub::DEC_NSH_TTL, |o| o.zero(6).done()),
        Action::DebugSlow => put(out, sub::DEBUG_SLOW, |o| o.zero(6).done()),
        Action::DebugRecirc => put(out, sub::DEBUG_RECIRC, |o| o.zero(6).done()),
        Action::OutputTrunc { port, max_len } => {
            put(out, sub::OUTPUT_TRUNC, |o| o.u16(port10(*port)).u32(*max_len).done());
        }
        Action::Decap(t) => put(out, sub::DECAP, |o| o.zero(2).u32(t.unwrap_or(DECAP_NEXT_PROTO)).done()),
        _ => larger(out, a, v),
    }
}

fn larger(out: &mut Vec<u8>, a: &Action, v: Version) {
    match a {
        Action::OutputReg { src, max_len } => output_reg(out, src, *max_len),
        Action::Multipath(m) => put(out, sub::MULTIPATH, |o| {
            o.u16(m.fields as u16).u16(m.basis).zero(2).u16(m.algorithm as u16).u16(m.max_link).u32(m.arg).zero(2);
            o.u16(ofs_nbits(&m.dst));
            nxm::put_header(o, m.dst.field, Version::V10);
        }),
        Action::Bundle(b) => bundle(out, b),
        Action::Learn(l) => learn(out, l),
        Action::Sample(s) => sample(out, s),
        Action::Controller(c) => controller(out, c),
        Action::Ct(c) => put(out, sub::CT, |o| {
            o.u16(u16::from(c.commit) | u16::from(c.force) << 1);
            match c.zone {
                CtZone::Imm(z) => o.u32(0).u16(z),
                CtZone::Field(s) => {
                    nxm::put_header(o, s.field, Version::V10);
                    o.u16(ofs_nbits(&s))
                }
            };
            o.u8(c.recirc_table.unwrap_or(TABLE_CURRENT)).zero(3).u16(c.alg);
            for a in &c.exec {
                any_action(o, a, v);
            }
        }),
        Action::Nat(n) => nat(out, n),
        Action::Encap(e) => put(out, sub::ENCAP, |o| {
            o.u16(e.header_len).u32(e.packet_type);
            e.props.iter().for_each(|p| encap_prop(o, p));
        }),
        Action::CheckPktLarger { dst, pkt_len } => {
            let start = out.len();
            put(out, sub::CHECK_PKT_LARGER, |o| {
                o.u16(*pkt_len).u16(dst.ofs as u16);
                nxm::put_header(o, dst.field, Version::V10);
                fill(o, start, 24);
            });
        }
        Action::DeleteField(f) => {
            let start = out.len();
            put(out, sub::DELETE_FIELD, |o| {
                nxm::put_header(o, *f, Version::V10);
                fill(o, start, 24);
            });
        }
        // The rest are instructions and what only lives inside the switch.
        _ => {}
    }
}

/// Zeros until the action has `len` bytes.
fn fill(out: &mut Vec<u8>, start: usize, len: usize) {
    let n = (start + len).saturating_sub(out.len());
    out.zero(n);
}

fn resubmit(out: &mut Vec<u8>, r: &Resubmit) {
    let subtype = if r.with_ct_orig { sub::RESUBMIT_TABLE_CT } else { sub::RESUBMIT_TABLE };
    put(out, subtype, |o| o.u16(port10(r.in_port)).u8(r.table).zero(3).done());
}

fn stack(out: &mut Vec<u8>, subtype: u16, s: &Subfield) {
    let start = out.len();
    put(out, subtype, |o| {
        o.u16(s.ofs as u16);
        nxm::put_header(o, s.field, Version::V10);
        o.u16(s.n_bits as u16);
        fill(o, start, 24);
    });
}

pub(super) fn reg_load(out: &mut Vec<u8>, dst: &Subfield, value: u64) {
    if nxm::is_experimenter(dst.field, Version::V10) {
        // The short form's 32-bit operand cannot name it.
        return put(out, sub::REG_LOAD2, |o| {
            let bits = FieldValue::new(u128::from(value) << dst.ofs);
            nxm::put_entry(o, dst.field, bits, dst.mask(), None);
        });
    }
    put(out, sub::REG_LOAD, |o| {
        o.u16(ofs_nbits(dst));
        nxm::put_header(o, dst.field, Version::V10);
        o.u64(value);
    });
}

/// One reg-load for each run of mask bits, of at most 64 bits each.
pub(super) fn set_field(out: &mut Vec<u8>, s: &SetField) {
    let (all, to) = (s.value.get(), s.mask.get());
    if s.field.tun_option().is_some() {
        // Its offsets may be more than a reg-load can say.
        return put(out, sub::REG_LOAD2, |o| nxm::put_entry(o, s.field, all, to, None));
    }
    let mut ofs = 0;
    let n = s.field.n_bits();
    // All bits that can be set stand for the whole field, also where it is wider on the wire.
    let mask = if to == s.field.mask_bits() { FieldValue::ones(n).0 } else { to.0 & FieldValue::ones(n).0 };
    while ofs < n {
        let rest = mask >> ofs;
        if rest & 1 == 0 {
            ofs += rest.trailing_zeros().min(n - ofs);
            continue;
        }
        let run = rest.trailing_ones().min(n - ofs).min(64);
        let value = (all.0 >> ofs & FieldValue::ones(run).0) as u64;
        reg_load(out, &Subfield::new(s.field, ofs, run), value);
        ofs += run;
    }
}

fn output_reg(out: &mut Vec<u8>, src: &Subfield, max_len: u16) {
    let wide = nxm::is_experimenter(src.field, Version::V10);
    let start = out.len();
    put(out, if wide { sub::OUTPUT_REG2 } else { sub::OUTPUT_REG }, |o| {
        o.u16(ofs_nbits(src));
        if wide {
            o.u16(max_len);
        }
        nxm::put_header(o, src.field, Version::V10);
        if !wide {
            o.u16(max_len);
        }
        fill(o, start, 24);
    });
}

fn bundle(out: &mut Vec<u8>, b: &Bundle) {
    put(out, if b.dst.is_some() { sub::BUNDLE_LOAD } else { sub::BUNDLE }, |o| {
        o.u16(b.algorithm as u16).u16(b.fields as u16).u16(b.basis);
        nxm::put_header(o, Field::InPort, Version::V10);
        o.u16(b.members.len() as u16);
        match &b.dst {
            Some(d) => {
                o.u16(ofs_nbits(d));
                nxm::put_header(o, d.field, Version::V10);
            }
            None => o.zero(6).done(),
        }
        o.zero(4);
        for m in &b.members {
            o.u16(port10(*m));
        }
    });
}

fn learn(out: &mut Vec<u8>, l: &Learn) {
    let extended = l.limit != 0 || l.result_dst.is_some();
    put(out, if extended { sub::LEARN2 } else { sub::LEARN }, |o| {
        o.u16(l.idle_timeout_s).u16(l.hard_timeout_s).u16(l.priority).u64(l.cookie);
        let result = u16::from(l.result_dst.is_some()) << 2;
        o.u16(u16::from(l.flags.send_flow_rem) | u16::from(l.flags.delete_learned) << 1 | result);
        o.u8(l.table).zero(1).u16(l.fin_idle_timeout_s).u16(l.fin_hard_timeout_s);
        if extended {
            o.u32(l.limit).u16(l.result_dst.map_or(0, |d| d.ofs as u16)).zero(2);
            if let Some(d) = &l.result_dst {
                nxm::put_header(o, d.field, Version::V10);
            }
        }
        for s in &l.specs {
            learn_spec(o, s);
        }
    });
}

fn learn_spec(o: &mut Vec<u8>, s: &LearnSpec) {
    let src = if matches!(s.src, LearnSrc::Value(_)) { LEARN_SRC_IMM } else { 0 };
    let dst = match s.dst {
        LearnDst::Match(_) => 0,
        LearnDst::Load(_) => LEARN_DST_LOAD,
        LearnDst::Output => LEARN_DST_OUTPUT,
    };
    o.u16(s.n_bits & LEARN_BITS | src | dst);
    let subfield = |o: &mut Vec<u8>, s: &Subfield| {
        nxm::put_header(o, s.field, Version::V10);
        o.u16(s.ofs as u16);
    };
    match &s.src {
        LearnSrc::Field(f) => subfield(o, f),
        LearnSrc::Value(v) => {
            let n = 2 * usize::from(s.n_bits).div_ceil(16);
            let skip = v.len().saturating_sub(n);
            o.zero(n.saturating_sub(v.len())).put(&v[skip..]);
        }
    }
    match &s.dst {
        LearnDst::Match(d) | LearnDst::Load(d) => subfield(o, d),
        LearnDst::Output => {}
    }
}

fn sample(out: &mut Vec<u8>, s: &Sample) {
    let ids = [s.obs_domain_id, s.obs_point_id];
    let by_field = ids.iter().any(|i| matches!(i, SampleId::Field(_)));
    let subtype = match () {
        _ if by_field => sub::SAMPLE4,
        _ if s.direction != SampleDirection::Default => sub::SAMPLE3,
        _ if s.sampling_port != OfPort::NONE => sub::SAMPLE2,
        _ => sub::SAMPLE,
    };
    let start = out.len();
    put(out, subtype, |o| {
        o.u16(s.probability).u32(s.collector_set_id);
        for id in ids {
            match id {
                SampleId::Imm(n) if by_field => o.u32(0).u32(n).done(),
                SampleId::Imm(n) => o.u32(n).done(),
                SampleId::Field(f) => {
                    nxm::put_header(o, f.field, Version::V10);
                    o.u16(ofs_nbits(&f)).zero(2);
                }
            }
        }
        if subtype != sub::SAMPLE {
            o.u16(port10(s.sampling_port)).u8(if subtype == sub::SAMPLE2 { 0 } else { s.direction as u8 });
            fill(o, start, if by_field { 40 } else { 32 });
        }
    });
}

fn controller(out: &mut Vec<u8>, c: &Controller) {
    let extended = c.extended || !c.userdata.is_empty() || c.pause || c.meter_id != 0;
    if !extended {
        return put(out, sub::CONTROLLER, |o| {
            o.u16(c.max_len).u16(c.controller_id).u8(c.reason as u8).zero(1);
        });
    }
    put(out, sub::CONTROLLER2, |o| {
        o.zero(6);
        if c.max_len != u16::MAX {
            put_prop_u16(o, 0, c.max_len);
        }
        if c.controller_id != 0 {
            put_prop_u16(o, 1, c.controller_id);
        }
        if c.reason != PacketInReason::Action {
            put_prop_u8(o, 2, c.reason as u8);
        }
        if !c.userdata.is_empty() {
            put_prop(o, 3, |o| o.put(&c.userdata).done());
        }
        if c.pause {
            put_prop(o, 4, |_| ());
        }
        if c.meter_id != 0 {
            put_prop(o, 5, |o| o.u32(c.meter_id).done());
        }
    });
}

fn nat(out: &mut Vec<u8>, n: &Nat) {
    let kind = match n.kind {
        None => 0,
        Some(NatKind::Src) => 1,
        Some(NatKind::Dst) => 2,
    };
    let bit = |b: bool, s: u32| u16::from(b) << s;
    put(out, sub::NAT, |o| {
        o.zero(2).u16(kind | bit(n.persistent, 2) | bit(n.hash, 3) | bit(n.random, 4));
        let range = match n.range {
            NatRange::None => 0,
            NatRange::V4(_, 0) => 1,
            NatRange::V4(..) => 3,
            NatRange::V6(_, max) if max == [0; 16] => 4,
            NatRange::V6(..) => 12,
        };
        let ports = match n.ports {
            None => 0,
            Some((a, b)) if a == b => 16,
            Some(_) => 48,
        };
        o.u16(range | ports);
        match n.range {
            NatRange::None => {}
            NatRange::V4(a, 0) => o.u32(a).done(),
            NatRange::V4(a, b) => o.u32(a).u32(b).done(),
            NatRange::V6(a, b) => {
                o.put(&a);
                if range == 12 {
                    o.put(&b);
                }
            }
        }
        match n.ports {
            None => {}
            Some((a, b)) if a == b => o.u16(a).done(),
            Some((a, b)) => o.u16(a).u16(b).done(),
        }
    });
}

fn encap_prop(o: &mut Vec<u8>, p: &EncapProp) {
    let start = o.len();
    match p {
        EncapProp::NshMdType(t) => o.u16(4).u8(1).u8(5).u8(*t).done(),
        EncapProp::NshTlv { class, kind, data } => {
            // The length counts the padding.
            let len = (8 + data.len()).next_multiple_of(8);
            o.u16(4).u8(2).u8(len as u8).u16(*class).u8(*kind).u8(data.len() as u8).put(data);
        }
    }
    o.pad8(start);
}
