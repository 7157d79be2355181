//! Nicira's actions from bytes. Bodies start behind vendor and subtype, 10 bytes into the action.

use super::decode::{Cx, check_dst, check_src, list, mpls_tc, push_mpls, reg_move, set_field};
use super::*;
use crate::error::OfError;
use crate::matching::nxm;
use crate::wire::{Prop, Reader};

type Result<T> = std::result::Result<T, OfError>;
const BAD_ARGUMENT: OfError = OfError::BacBadArgument;

/// Subtypes.
#[allow(missing_docs)]
pub(super) mod sub {
    pub const RESUBMIT: u16 = 1;
    pub const SET_TUNNEL: u16 = 2;
    pub const SET_QUEUE: u16 = 4;
    pub const POP_QUEUE: u16 = 5;
    pub const REG_MOVE: u16 = 6;
    pub const REG_LOAD: u16 = 7;
    pub const NOTE: u16 = 8;
    pub const SET_TUNNEL64: u16 = 9;
    pub const MULTIPATH: u16 = 10;
    pub const BUNDLE: u16 = 12;
    pub const BUNDLE_LOAD: u16 = 13;
    pub const RESUBMIT_TABLE: u16 = 14;
    pub const OUTPUT_REG: u16 = 15;
    pub const LEARN: u16 = 16;
    pub const EXIT: u16 = 17;
    pub const DEC_TTL: u16 = 18;
    pub const FIN_TIMEOUT: u16 = 19;
    pub const CONTROLLER: u16 = 20;
    pub const DEC_TTL_CNT_IDS: u16 = 21;
    pub const WRITE_METADATA: u16 = 22;
    pub const PUSH_MPLS: u16 = 23;
    pub const POP_MPLS: u16 = 24;
    pub const SET_MPLS_TTL: u16 = 25;
    pub const DEC_MPLS_TTL: u16 = 26;
    pub const STACK_PUSH: u16 = 27;
    pub const STACK_POP: u16 = 28;
    pub const SAMPLE: u16 = 29;
    pub const SET_MPLS_LABEL: u16 = 30;
    pub const SET_MPLS_TC: u16 = 31;
    pub const OUTPUT_REG2: u16 = 32;
    pub const REG_LOAD2: u16 = 33;
    pub const CONJUNCTION: u16 = 34;
    pub const CT: u16 = 35;
    pub const NAT: u16 = 36;
    pub const CONTROLLER2: u16 = 37;
    pub const SAMPLE2: u16 = 38;
    pub const OUTPUT_TRUNC: u16 = 39;
    pub const GROUP: u16 = 40;
    pub const SAMPLE3: u16 = 41;
    pub const CLONE: u16 = 42;
    pub const CT_CLEAR: u16 = 43;
    pub const RESUBMIT_TABLE_CT: u16 = 44;
    pub const LEARN2: u16 = 45;
    pub const ENCAP: u16 = 46;
    pub const DECAP: u16 = 47;
    pub const DEC_NSH_TTL: u16 = 48;
    pub const CHECK_PKT_LARGER: u16 = 49;
    pub const DELETE_FIELD: u16 = 50;
    pub const SAMPLE4: u16 = 51;
    pub const DEBUG_SLOW: u16 = 254;
    pub const DEBUG_RECIRC: u16 = 255;
}

/// `NX_LEARN_*` of a step's header.
pub(super) const LEARN_BITS: u16 = 0x3ff;
pub(super) const LEARN_SRC_IMM: u16 = 1 << 13;
pub(super) const LEARN_DST_LOAD: u16 = 1 << 11;
pub(super) const LEARN_DST_OUTPUT: u16 = 2 << 11;
pub(super) const LEARN_DST_MASK: u16 = 3 << 11;
/// Most members of a bundle action.
const MAX_BUNDLE_MEMBERS: u16 = 2048;
/// Packet type that `decap` carries when none was given.
pub(super) const DECAP_NEXT_PROTO: u32 = 0xfffe;

/// The whole action's length where it is fixed; `b` is 10 shorter.
fn fixed_len(subtype: u16) -> Option<usize> {
    use sub::*;
    Some(match subtype {
        REG_LOAD | SET_TUNNEL64 | OUTPUT_REG | STACK_PUSH | STACK_POP | SAMPLE | OUTPUT_REG2 | DELETE_FIELD
        | CHECK_PKT_LARGER => 24,
        MULTIPATH | WRITE_METADATA | SAMPLE2 | SAMPLE3 => 32,
        SAMPLE4 => 40,
        REG_MOVE | NOTE | BUNDLE | BUNDLE_LOAD | LEARN | LEARN2 | DEC_TTL_CNT_IDS | REG_LOAD2 | CT | NAT
        | CONTROLLER2 | CLONE | ENCAP => return None,
        _ => 16,
    })
}

/// Whether the subtype is known in `version`.
pub(super) fn is_known(subtype: u16, version: crate::Version) -> bool {
    match subtype {
        sub::ENCAP | sub::DECAP => version >= crate::Version::V13,
        3 | 11 => false,
        sub::RESUBMIT..=sub::SAMPLE4 | sub::DEBUG_SLOW | sub::DEBUG_RECIRC => true,
        _ => false,
    }
}

/// Bits of `ofs << 6 | (n_bits - 1)`.
fn ofs_nbits(field: Field, v: u16) -> Subfield {
    Subfield::new(field, u32::from(v >> 6), u32::from(v & 0x3f) + 1)
}

pub(super) fn pull(subtype: u16, mut b: Reader<'_>, cx: Cx) -> Result<Action> {
    if fixed_len(subtype).is_some_and(|n| n != b.len() + 10) {
        return Err(OfError::BacBadLen);
    }
    let b = &mut b;
    Ok(match subtype {
        sub::RESUBMIT => Action::Resubmit(Resubmit {
            in_port: OfPort::from_u16(b.u16()?),
            table: TABLE_CURRENT,
            with_ct_orig: false,
        }),
        sub::RESUBMIT_TABLE | sub::RESUBMIT_TABLE_CT => {
            let (in_port, table) = (OfPort::from_u16(b.u16()?), b.u8()?);
            b.zeros(3, BAD_ARGUMENT)?;
            Action::Resubmit(Resubmit { in_port, table, with_ct_orig: subtype == sub::RESUBMIT_TABLE_CT })
        }
        sub::SET_TUNNEL => {
            b.skip(2)?;
            Action::SetTunnel { id: b.u32()?.into(), wide: false }
        }
        sub::SET_TUNNEL64 => {
            b.skip(6)?;
            Action::SetTunnel { id: b.u64()?, wide: true }
        }
        sub::SET_QUEUE => {
            b.skip(2)?;
            Action::SetQueue(b.u32()?)
        }
        sub::POP_QUEUE => Action::PopQueue,
        sub::REG_MOVE => {
            let (n, s, d) = (b.u16()?, b.u16()?, b.u16()?);
            reg_move(b, n, s, d)?
        }
        sub::REG_LOAD => reg_load(b)?,
        sub::REG_LOAD2 => set_field(b, true)?,
        sub::NOTE => Action::Note(b.take_rest().to_vec()),
        sub::EXIT => Action::Exit,
        sub::DEC_TTL => Action::DecTtl(DecTtl::default()),
        sub::DEC_TTL_CNT_IDS => dec_ttl(b)?,
        sub::FIN_TIMEOUT => Action::FinTimeout { idle_s: b.u16()?, hard_s: b.u16()? },
        sub::WRITE_METADATA => {
            b.zeros(6, OfError::NxBrcMustBeZero)?;
            Action::WriteMetadata { metadata: b.u64()?, mask: b.u64()? }
        }
        sub::PUSH_MPLS => push_mpls(b.u16()?)?,
        sub::POP_MPLS => Action::PopMpls(b.u16()?),
        sub::SET_MPLS_TTL => Action::SetMplsTtl(b.u8()?),
        sub::DEC_MPLS_TTL => Action::DecMplsTtl,
        sub::SET_MPLS_TC => mpls_tc(b.u8()?)?,
        sub::SET_MPLS_LABEL => {
            b.skip(2)?;
            let label = b.u32()?;
            if label & !0xf_ffff != 0 {
                return Err(BAD_ARGUMENT);
            }
            Action::SetMplsLabel(label)
        }
        sub::STACK_PUSH => {
            let s = stack(b)?;
            check_src(&s)?;
            Action::StackPush(s)
        }
        sub::STACK_POP => {
            let s = stack(b)?;
            check_dst(&s)?;
            Action::StackPop(s)
        }
        sub::GROUP => {
            b.skip(2)?;
            Action::Group(b.u32()?)
        }
        sub::CT_CLEAR => Action::CtClear,
        sub::CLONE => {
            b.zeros(6, OfError::NxBrcMustBeZero)?;
            Action::Clone(list(b.take_rest(), cx.nested()?)?)
        }
        sub::CONJUNCTION => conjunction(b)?,
        sub::DEC_NSH_TTL => Action::DecNshTtl,
        sub::DEBUG_SLOW => Action::DebugSlow,
        sub::DEBUG_RECIRC => Action::DebugRecirc,
        sub::DELETE_FIELD => match nxm::pull_header(b)? {
            f @ Field::TunMetadata(_) => Action::DeleteField(f),
            // Only what may be there or not can be taken away.
            _ => return Err(BAD_ARGUMENT),
        },
        sub::CHECK_PKT_LARGER => {
            let (pkt_len, ofs) = (b.u16()?, b.u16()?);
            let dst = Subfield::new(nxm::pull_header(b)?, ofs.into(), 1);
            check_dst(&dst)?;
            Action::CheckPktLarger { dst, pkt_len }
        }
        _ => return larger(subtype, b, cx),
    })
}

fn larger(subtype: u16, b: &mut Reader<'_>, cx: Cx) -> Result<Action> {
    match subtype {
        sub::MULTIPATH => multipath(b),
        sub::BUNDLE | sub::BUNDLE_LOAD => bundle(b, subtype == sub::BUNDLE_LOAD),
        sub::OUTPUT_REG | sub::OUTPUT_REG2 => output_reg(b, subtype == sub::OUTPUT_REG2),
        sub::OUTPUT_TRUNC => {
            let (port, max_len) = (OfPort::from_u16(b.u16()?), b.u32()?);
            // Shorter than an Ethernet header is nonsense.
            if max_len < 14 {
                return Err(BAD_ARGUMENT);
            }
            Ok(Action::OutputTrunc { port, max_len })
        }
        sub::LEARN | sub::LEARN2 => learn(b, subtype == sub::LEARN2),
        sub::SAMPLE | sub::SAMPLE2 | sub::SAMPLE3 | sub::SAMPLE4 => sample(b, subtype),
        sub::CONTROLLER => {
            let (max_len, controller_id, reason) = (b.u16()?, b.u16()?, b.u8()?);
            b.zeros(1, OfError::NxBrcMustBeZero)?;
            let reason = PacketInReason::from_wire(reason).ok_or(BAD_ARGUMENT)?;
            Ok(Action::Controller(Box::new(Controller { max_len, controller_id, reason, ..Default::default() })))
        }
        sub::CONTROLLER2 => controller2(b),
        sub::CT => ct(b, cx),
        sub::NAT => nat(b),
        sub::ENCAP if cx.version >= crate::Version::V13 => encap(b),
        sub::DECAP if cx.version >= crate::Version::V13 => {
            b.zeros(2, OfError::NxBrcMustBeZero)?;
            let t = b.u32()?;
            Ok(Action::Decap((t != DECAP_NEXT_PROTO).then_some(t)))
        }
        _ => Err(OfError::BacBadVendorType),
    }
}

impl PacketInReason {
    /// From the action's byte, where 1.4's numbers are used.
    pub const fn from_wire(r: u8) -> Option<PacketInReason> {
        Some(match r {
            0 => PacketInReason::NoMatch,
            1 => PacketInReason::Action,
            2 => PacketInReason::InvalidTtl,
            3 => PacketInReason::ActionSet,
            4 => PacketInReason::Group,
            5 => PacketInReason::PacketOut,
            _ => return None,
        })
    }
}

fn reg_load(b: &mut Reader<'_>) -> Result<Action> {
    let bits = b.u16()?;
    let dst = ofs_nbits(nxm::field_of_header(b.u32()?)?, bits);
    let value = u128::from(b.u64()?);
    check_dst(&dst)?;
    if !FieldValue::new(value).lowered(dst.n_bits).is_zero() {
        return Err(BAD_ARGUMENT);
    }
    Ok(load(dst, value))
}

/// `load:value->dst`.
pub fn load(dst: Subfield, value: impl Into<FieldValue>) -> Action {
    let mask = dst.mask();
    Action::SetField(Box::new(SetField {
        field: dst.field,
        value: (value.into().raised(dst.ofs) & mask).into(),
        mask: if dst.n_bits == dst.field.n_bits() { dst.field.mask_bits() } else { mask }.into(),
        flow_has_vlan: false,
        form: SetForm::Load,
    }))
}

fn stack(b: &mut Reader<'_>) -> Result<Subfield> {
    let ofs = b.u16()?;
    let field = nxm::pull_header(b)?;
    let n_bits = b.u16()?;
    b.zeros(b.len(), OfError::NxBrcMustBeZero)?;
    Ok(Subfield::new(field, ofs.into(), n_bits.into()))
}

fn dec_ttl(b: &mut Reader<'_>) -> Result<Action> {
    let n = usize::from(b.u16()?);
    b.zeros(4, OfError::NxBrcMustBeZero)?;
    let mut ids = b.sub(2 * n)?;
    let controllers = (0..n).map(|_| ids.u16()).collect::<Result<Vec<_>>>()?;
    if controllers.is_empty() || b.len() >= 8 {
        return Err(OfError::BacBadLen);
    }
    Ok(Action::DecTtl(DecTtl { controllers }))
}

fn conjunction(b: &mut Reader<'_>) -> Result<Action> {
    let (clause, n_clauses, id) = (b.u8()?, b.u8()?, b.u32()?);
    if !(2..=64).contains(&n_clauses) || clause >= n_clauses {
        return Err(OfError::NxBacBadConjunction);
    }
    Ok(Action::Conjunction { id, clause, n_clauses })
}

impl HashFields {
    pub const ALL: [HashFields; 7] = [
        HashFields::EthSrc,
        HashFields::SymmetricL4,
        HashFields::SymmetricL3L4,
        HashFields::SymmetricL3L4Udp,
        HashFields::NwSrc,
        HashFields::NwDst,
        HashFields::SymmetricL3,
    ];
    fn from_wire(v: u16) -> Result<HashFields> {
        HashFields::ALL.get(usize::from(v)).copied().ok_or(BAD_ARGUMENT)
    }
}

fn multipath(b: &mut Reader<'_>) -> Result<Action> {
    let (fields, basis) = (HashFields::from_wire(b.u16()?)?, b.u16()?);
    b.skip(2)?;
    let algorithm = match b.u16()? {
        0 => MultipathAlgorithm::ModuloN,
        1 => MultipathAlgorithm::HashThreshold,
        2 => MultipathAlgorithm::Hrw,
        3 => MultipathAlgorithm::IterHash,
        _ => return Err(BAD_ARGUMENT),
    };
    let (max_link, arg) = (b.u16()?, b.u32()?);
    b.skip(2)?;
    let bits = b.u16()?;
    let dst = ofs_nbits(nxm::field_of_header(b.u32()?)?, bits);
    check_dst(&dst)?;
    if dst.n_bits < 16 && u32::from(max_link) >= 1 << dst.n_bits {
        return Err(BAD_ARGUMENT);
    }
    Ok(Action::Multipath(Box::new(Multipath { fields, basis, algorithm, max_link, arg, dst })))
}

fn bundle(b: &mut Reader<'_>, load: bool) -> Result<Action> {
    let algorithm = match b.u16()? {
        0 => BundleAlgorithm::ActiveBackup,
        1 => BundleAlgorithm::Hrw,
        _ => return Err(BAD_ARGUMENT),
    };
    let (fields, basis) = (HashFields::from_wire(b.u16()?)?, b.u16()?);
    let member_type = b.u32()?;
    let (n, bits, dst) = (b.u16()?, b.u16()?, b.u32()?);
    b.zeros(4, BAD_ARGUMENT)?;
    // Members are ports: NXM_OF_IN_PORT.
    if n > MAX_BUNDLE_MEMBERS || member_type != 0x0000_0002 || !load && (bits != 0 || dst != 0) {
        return Err(BAD_ARGUMENT);
    }
    let dst = load.then(|| nxm::field_of_header(dst).map(|f| ofs_nbits(f, bits))).transpose()?;
    if let Some(d) = &dst {
        check_dst(d)?;
        if d.n_bits < 16 {
            return Err(BAD_ARGUMENT);
        }
    }
    let n = usize::from(n);
    let mut m = b.sub(2 * n)?;
    let members = (0..n).map(|_| m.u16().map(OfPort::from_u16)).collect::<Result<_>>()?;
    if b.len() >= 8 {
        return Err(OfError::BacBadLen);
    }
    Ok(Action::Bundle(Box::new(Bundle { algorithm, fields, basis, dst, members })))
}

fn output_reg(b: &mut Reader<'_>, wide: bool) -> Result<Action> {
    let bits = b.u16()?;
    let (src, max_len) = if wide {
        let max_len = b.u16()?;
        (nxm::pull_header(b)?, max_len)
    } else {
        (nxm::field_of_header(b.u32()?)?, b.u16()?)
    };
    b.zeros(b.len(), if wide { OfError::NxBrcMustBeZero } else { BAD_ARGUMENT })?;
    let src = ofs_nbits(src, bits);
    check_src(&src)?;
    Ok(Action::OutputReg { src, max_len })
}

fn learn(b: &mut Reader<'_>, extended: bool) -> Result<Action> {
    let (idle_timeout_s, hard_timeout_s, priority, cookie) = (b.u16()?, b.u16()?, b.u16()?, b.u64()?);
    let (flags, table) = (b.u16()?, b.u8()?);
    b.zeros(1, BAD_ARGUMENT)?;
    let (fin_idle_timeout_s, fin_hard_timeout_s) = (b.u16()?, b.u16()?);
    if flags & !if extended { 7 } else { 3 } != 0 || table == 0xff {
        return Err(BAD_ARGUMENT);
    }
    let (mut limit, mut result_dst) = (0, None);
    if extended {
        limit = b.u32()?;
        let ofs = b.u16()?;
        b.zeros(2, OfError::NxBrcMustBeZero)?;
        if flags & 4 != 0 {
            let dst = Subfield::new(nxm::pull_header(b)?, ofs.into(), 1);
            check_dst(&dst)?;
            result_dst = Some(dst);
        } else if ofs != 0 {
            return Err(OfError::NxBrcMustBeZero);
        }
    }
    let mut specs = Vec::new();
    while b.len() >= 2 {
        match learn_spec(b)? {
            Some(s) => specs.push(s),
            None => break,
        }
    }
    b.zeros(b.len(), BAD_ARGUMENT)?;
    Ok(Action::Learn(Box::new(Learn {
        idle_timeout_s,
        hard_timeout_s,
        priority,
        table,
        cookie,
        fin_idle_timeout_s,
        fin_hard_timeout_s,
        flags: LearnFlags { send_flow_rem: flags & 1 != 0, delete_learned: flags & 2 != 0 },
        limit,
        result_dst,
        specs,
    })))
}

/// One step, or None at the end mark.
fn learn_spec(b: &mut Reader<'_>) -> Result<Option<LearnSpec>> {
    let header = b.u16()?;
    if header == 0 {
        return Ok(None);
    }
    let n_bits = header & LEARN_BITS;
    let subfield = |b: &mut Reader<'_>| -> Result<Subfield> {
        let field = nxm::field_of_header(b.u32()?)?;
        Ok(Subfield::new(field, b.u16()?.into(), n_bits.into()))
    };
    let known = LEARN_BITS | LEARN_SRC_IMM | LEARN_DST_MASK;
    if header & !known != 0 || n_bits == 0 {
        return Err(BAD_ARGUMENT);
    }
    let src = if header & LEARN_SRC_IMM != 0 {
        LearnSrc::Value(b.bytes(2 * usize::from(n_bits).div_ceil(16))?.to_vec())
    } else {
        let s = subfield(b)?;
        check_src(&s)?;
        LearnSrc::Field(s)
    };
    let dst = match header & LEARN_DST_MASK {
        0 => {
            let d = subfield(b)?;
            check_src(&d)?;
            LearnDst::Match(d)
        }
        LEARN_DST_LOAD => {
            let d = subfield(b)?;
            check_dst(&d)?;
            LearnDst::Load(d)
        }
        LEARN_DST_OUTPUT if header & LEARN_SRC_IMM == 0 => LearnDst::Output,
        _ => return Err(BAD_ARGUMENT),
    };
    Ok(Some(LearnSpec { n_bits, src, dst }))
}

fn sample(b: &mut Reader<'_>, subtype: u16) -> Result<Action> {
    let (probability, collector_set_id) = (b.u16()?, b.u32()?);
    if probability == 0 {
        return Err(BAD_ARGUMENT);
    }
    let id = |b: &mut Reader<'_>| -> Result<SampleId> {
        if subtype != sub::SAMPLE4 {
            return Ok(SampleId::Imm(b.u32()?));
        }
        let (src, v) = (b.u32()?, b.u32()?);
        if src == 0 {
            return Ok(SampleId::Imm(v));
        }
        let s = ofs_nbits(nxm::field_of_header(src)?, (v >> 16) as u16);
        check_src(&s)?;
        if v as u16 != 0 || s.n_bits > 32 {
            return Err(BAD_ARGUMENT);
        }
        Ok(SampleId::Field(s))
    };
    let (obs_domain_id, obs_point_id) = (id(b)?, id(b)?);
    let mut s = Sample {
        probability,
        collector_set_id,
        obs_domain_id,
        obs_point_id,
        sampling_port: OfPort::NONE,
        direction: SampleDirection::Default,
    };
    if subtype != sub::SAMPLE {
        s.sampling_port = OfPort::from_u16(b.u16()?);
        if subtype != sub::SAMPLE2 {
            s.direction = match b.u8()? {
                0 => SampleDirection::Default,
                1 => SampleDirection::Ingress,
                2 => SampleDirection::Egress,
                _ => return Err(BAD_ARGUMENT),
            };
        }
        b.zeros(b.len(), OfError::NxBrcMustBeZero)?;
    }
    Ok(Action::Sample(Box::new(s)))
}

fn controller2(b: &mut Reader<'_>) -> Result<Action> {
    b.zeros(6, OfError::NxBrcMustBeZero)?;
    let mut c = Controller { max_len: u16::MAX, extended: true, ..Default::default() };
    while !b.is_empty() {
        let mut p = Prop::pull(b)?;
        match p.kind {
            0 => c.max_len = p.body.u16()?,
            1 => c.controller_id = p.body.u16()?,
            2 => c.reason = PacketInReason::from_wire(p.body.u8()?).ok_or(BAD_ARGUMENT)?,
            3 => c.userdata = p.body.take_rest().to_vec(),
            4 => c.pause = true,
            5 => c.meter_id = p.body.u32()?,
            _ => return Err(p.unknown()),
        }
        p.end()?;
    }
    Ok(Action::Controller(Box::new(c)))
}

fn ct(b: &mut Reader<'_>, cx: Cx) -> Result<Action> {
    let (flags, zone_src, zone, recirc_table) = (b.u16()?, b.u32()?, b.u16()?, b.u8()?);
    b.skip(3)?;
    let alg = b.u16()?;
    let (commit, force) = (flags & 1 != 0, flags & 2 != 0);
    if force && !commit {
        return Err(BAD_ARGUMENT);
    }
    let zone = if zone_src == 0 {
        CtZone::Imm(zone)
    } else {
        let s = ofs_nbits(nxm::field_of_header(zone_src)?, zone);
        check_src(&s)?;
        if s.n_bits != 16 {
            return Err(OfError::BacBadSetLen);
        }
        CtZone::Field(s)
    };
    let exec = list(b.take_rest(), cx.nested()?)?;
    let changes = |a: &Action| !matches!(a, Action::Nat(n) if **n == Nat::default());
    if !commit && exec.iter().any(changes) {
        return Err(BAD_ARGUMENT);
    }
    let recirc_table = (recirc_table != TABLE_CURRENT).then_some(recirc_table);
    Ok(Action::Ct(Box::new(Ct { commit, force, zone, recirc_table, alg, exec })))
}

fn nat(b: &mut Reader<'_>) -> Result<Action> {
    b.zeros(2, OfError::NxBrcMustBeZero)?;
    let (flags, present) = (b.u16()?, b.u16()?);
    let kind = match flags & 3 {
        0 => None,
        1 => Some(NatKind::Src),
        2 => Some(NatKind::Dst),
        _ => return Err(BAD_ARGUMENT),
    };
    // Without a direction nothing else may be said; v4 and v6 exclude one another; a maximum needs its minimum.
    let (v4, v6, ports) = (present & 3, present >> 2 & 3, present >> 4 & 3);
    if flags >> 5 != 0
        || present >> 6 != 0
        || kind.is_none() && (flags != 0 || present != 0)
        || v4 != 0 && v6 != 0
        || [v4, v6, ports].contains(&2)
        || ports != 0 && v4 == 0 && v6 == 0
    {
        return Err(BAD_ARGUMENT);
    }
    let range = match (v4, v6) {
        (1, _) => NatRange::V4(b.u32()?, 0),
        (3, _) => NatRange::V4(b.u32()?, b.u32()?),
        (_, 1) => NatRange::V6(b.array()?, [0; 16]),
        (_, 3) => NatRange::V6(b.array()?, b.array()?),
        _ => NatRange::None,
    };
    let ports = match ports {
        1 => {
            let p = b.u16()?;
            Some((p, p))
        }
        3 => Some((b.u16()?, b.u16()?)),
        _ => None,
    };
    if b.len() >= 8 {
        return Err(OfError::BacBadLen);
    }
    b.zeros(b.len(), OfError::NxBrcMustBeZero)?;
    let (persistent, hash, random) = (flags & 4 != 0, flags & 8 != 0, flags & 16 != 0);
    Ok(Action::Nat(Box::new(Nat { kind, persistent, hash, random, range, ports })))
}

fn encap(b: &mut Reader<'_>) -> Result<Action> {
    let (header_len, packet_type) = (b.u16()?, b.u32()?);
    // Ethernet, NSH, MPLS (both types).
    if !matches!(packet_type, 0 | 0x1_894f | 0x1_8847 | 0x1_8848) {
        return Err(OfError::NxBacBadHeaderType);
    }
    let mut props = Vec::new();
    while !b.is_empty() {
        props.push(encap_prop(b)?);
    }
    Ok(Action::Encap(Box::new(Encap { packet_type, header_len, props })))
}

/// Properties of NSH (class 4): metadata type, and TLVs of type 2. A length counts the 4-byte header.
fn encap_prop(b: &mut Reader<'_>) -> Result<EncapProp> {
    let bad = OfError::NxBacBadEdProp;
    let whole = b.rest();
    let mut h = Reader::new(whole, bad);
    let (class, kind, len) = (h.u16()?, h.u8()?, usize::from(h.u8()?));
    if len < 4 {
        return Err(bad);
    }
    let mut body = h.sub(len - 4)?;
    b.skip(len.next_multiple_of(8))?;
    match (class, kind) {
        (4, 1) => Ok(EncapProp::NshMdType(body.u8()?)),
        (4, 2) => {
            let (class, kind, n) = (body.u16()?, body.u8()?, usize::from(body.u8()?));
            Ok(EncapProp::NshTlv { class, kind, data: body.bytes(n)?.to_vec() })
        }
        _ => Err(OfError::NxBacUnknownEdProp),
    }
}
