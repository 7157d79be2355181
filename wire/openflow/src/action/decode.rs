//! Actions and instructions from bytes: the standard ones. Nicira's are in `nicira`.

use super::nicira;
use super::{Action, Actions, L4Port, MAX_NESTING, SetField, SetForm};
use crate::error::OfError;
use crate::matching::{nxm, ofp11};
use crate::vendor;
use crate::version::Version;
use crate::wire::Reader;
use fv_core::OfPort;
use fv_flow::Subfield;

/// What decoding of a nested list depends on.
#[derive(Clone, Copy)]
pub(super) struct Cx {
    pub version: Version,
    depth: u8,
}

impl Cx {
    /// One level down.
    pub fn nested(self) -> Result<Cx, OfError> {
        if self.depth >= MAX_NESTING {
            return Err(OfError::BacTooMany);
        }
        Ok(Cx { depth: self.depth + 1, ..self })
    }
}

/// A list of actions, without instructions: packet-out, buckets, OpenFlow 1.0.
pub fn decode_actions(bytes: &[u8], version: Version) -> Result<Actions, OfError> {
    list(bytes, Cx { version, depth: 0 })
}

pub(super) fn list(bytes: &[u8], cx: Cx) -> Result<Actions, OfError> {
    if !bytes.len().is_multiple_of(8) {
        return Err(OfError::BrcBadLen);
    }
    let mut r = Reader::new(bytes, OfError::BacBadLen);
    let mut out = Actions::new();
    while !r.is_empty() {
        out.push(pull(&mut r, cx)?);
    }
    Ok(out)
}

/// Type, body after the 4-byte header. Bodies keep their padding.
fn pull_tlv<'a>(r: &mut Reader<'a>, bad: OfError) -> Result<(u16, Reader<'a>), OfError> {
    let whole = r.rest();
    let mut head = Reader::new(whole, bad);
    let (kind, len) = (head.u16()?, usize::from(head.u16()?));
    if len < 8 || len % 8 != 0 || len > whole.len() {
        return Err(bad);
    }
    r.skip(len)?;
    Ok((kind, Reader::new(&whole[4..len], bad)))
}

/// The type's error comes before that of its length.
fn check_known(head: &[u8], version: Version) -> Result<(), OfError> {
    let mut r = Reader::new(head, OfError::BacBadLen);
    let kind = r.u16()?;
    if kind == 0xffff {
        r.skip(2)?;
        return match (r.u32()?, r.u16()?) {
            (vendor::NX, s) if nicira::is_known(s, version) => Ok(()),
            (vendor::ONF, 3200) => Ok(()),
            (vendor::NX | vendor::ONF, _) => Err(OfError::BacBadVendorType),
            _ => Err(OfError::BacBadVendor),
        };
    }
    let known = match version {
        Version::V10 => kind <= 11,
        Version::V11 => matches!(kind, 0..=10 | 13..=24),
        Version::V15 => matches!(kind, 0..=10 | 13..=25 | 28 | 29),
        _ => matches!(kind, 0..=10 | 13..=25),
    };
    if known { Ok(()) } else { Err(OfError::BacBadType) }
}

fn pull(r: &mut Reader<'_>, cx: Cx) -> Result<Action, OfError> {
    check_known(r.rest(), cx.version)?;
    let (kind, mut b) = pull_tlv(r, OfError::BacBadLen)?;
    if kind == 0xffff {
        return experimenter(b, cx);
    }
    let size = fixed_len(cx.version, kind);
    if let Some(n) = size
        && b.len() != n - 4
    {
        return Err(OfError::BacBadLen);
    }
    match cx.version {
        Version::V10 => v10(kind, &mut b),
        Version::V11 => v11(kind, &mut b),
        _ => v12(kind, &mut b, cx),
    }
}

/// Length of the whole action where it is fixed.
fn fixed_len(version: Version, kind: u16) -> Option<usize> {
    Some(match (version, kind) {
        (Version::V10, 0) => 8,
        (Version::V10, 4 | 5 | 11) => 16,
        (Version::V10, _) => 8,
        (_, 3 | 4) => 16,
        (_, 0) => 16,
        (Version::V12 | Version::V13 | Version::V14 | Version::V15, 25 | 28) => return None,
        _ => 8,
    })
}

fn v10(kind: u16, b: &mut Reader<'_>) -> Result<Action, OfError> {
    Ok(match kind {
        0 => output(OfPort::from_u16(b.u16()?), b.u16()?)?,
        1 => vlan_vid(b.u16()?, true)?,
        2 => vlan_pcp(b.u8()?, true)?,
        3 => Action::StripVlan { pop_vlan: false },
        4 => Action::SetEthSrc(b.array()?),
        5 => Action::SetEthDst(b.array()?),
        6 => Action::SetIpv4Src(b.u32()?),
        7 => Action::SetIpv4Dst(b.u32()?),
        8 => dscp(b.u8()?)?,
        9 => Action::SetL4SrcPort(L4Port { port: b.u16()?, ip_proto: 0 }),
        10 => Action::SetL4DstPort(L4Port { port: b.u16()?, ip_proto: 0 }),
        11 => {
            let port = OfPort::from_u16(b.u16()?);
            b.skip(6)?;
            if port.0 >= OfPort::MAX.0 && port != OfPort::IN_PORT && port != OfPort::LOCAL {
                return Err(OfError::BacBadOutPort);
            }
            Action::Enqueue { port, queue: b.u32()? }
        }
        _ => return Err(OfError::BacBadType),
    })
}

fn v11(kind: u16, b: &mut Reader<'_>) -> Result<Action, OfError> {
    Ok(match kind {
        1 => vlan_vid(b.u16()?, false)?,
        2 => vlan_pcp(b.u8()?, false)?,
        3 => Action::SetEthSrc(b.array()?),
        4 => Action::SetEthDst(b.array()?),
        5 => Action::SetIpv4Src(b.u32()?),
        6 => Action::SetIpv4Dst(b.u32()?),
        7 => dscp(b.u8()?)?,
        8 => {
            let ecn = b.u8()?;
            if ecn & !3 != 0 {
                return Err(OfError::BacBadArgument);
            }
            Action::SetIpEcn(ecn)
        }
        9 => Action::SetL4SrcPort(L4Port { port: b.u16()?, ip_proto: 0 }),
        10 => Action::SetL4DstPort(L4Port { port: b.u16()?, ip_proto: 0 }),
        13 => {
            let label = b.u32()?;
            if label & !0xf_ffff != 0 {
                return Err(OfError::BacBadArgument);
            }
            Action::SetMplsLabel(label)
        }
        14 => mpls_tc(b.u8()?)?,
        _ => return common(kind, b),
    })
}

/// What 1.1 to 1.5 share.
fn common(kind: u16, b: &mut Reader<'_>) -> Result<Action, OfError> {
    Ok(match kind {
        0 => output(ofp11::port(b.u32()?)?, b.u16()?)?,
        15 => Action::SetMplsTtl(b.u8()?),
        16 => Action::DecMplsTtl,
        17 => push_vlan(b.u16()?)?,
        18 => Action::StripVlan { pop_vlan: true },
        19 => push_mpls(b.u16()?)?,
        20 => Action::PopMpls(b.u16()?),
        21 => Action::SetQueue(b.u32()?),
        22 => Action::Group(b.u32()?),
        23 => Action::SetIpTtl(b.u8()?),
        24 => Action::DecTtl(Default::default()),
        _ => return Err(OfError::BacBadType),
    })
}

fn v12(kind: u16, b: &mut Reader<'_>, cx: Cx) -> Result<Action, OfError> {
    match kind {
        25 => set_field(b, cx.version >= Version::V15),
        28 if cx.version >= Version::V15 => {
            let (n_bits, src_ofs, dst_ofs) = (b.u16()?, b.u16()?, b.u16()?);
            b.zeros(2, OfError::BacBadArgument)?;
            reg_move(b, n_bits, src_ofs, dst_ofs)
        }
        29 if cx.version >= Version::V15 => Ok(Action::Meter(b.u32()?)),
        // What 1.1 did with actions of their own still works.
        _ => v11(kind, b),
    }
}

fn experimenter(mut b: Reader<'_>, cx: Cx) -> Result<Action, OfError> {
    let vendor = b.u32()?;
    match vendor {
        vendor::NX => {
            let subtype = b.u16()?;
            nicira::pull(subtype, b, cx)
        }
        vendor::ONF => match b.u16()? {
            // Copy-field of the extension for OpenFlow 1.3.
            3200 => {
                b.zeros(2, OfError::BacBadArgument)?;
                let (n_bits, src_ofs, dst_ofs) = (b.u16()?, b.u16()?, b.u16()?);
                b.zeros(2, OfError::BacBadArgument)?;
                reg_move(&mut b, n_bits, src_ofs, dst_ofs)
            }
            _ => Err(OfError::BacBadVendorType),
        },
        _ => Err(OfError::BacBadVendor),
    }
}

/// Reserved numbers that mean nothing as a destination are refused.
fn output(port: OfPort, max_len: u16) -> Result<Action, OfError> {
    if port == OfPort::NONE || port.is_reserved() && port < OfPort::IN_PORT {
        return Err(OfError::BacBadOutPort);
    }
    Ok(Action::Output { port, max_len })
}

fn vlan_vid(vid: u16, push_vlan_if_needed: bool) -> Result<Action, OfError> {
    if vid & !0xfff != 0 {
        return Err(OfError::BacBadArgument);
    }
    Ok(Action::SetVlanVid { vid, push_vlan_if_needed, flow_has_vlan: false })
}

fn vlan_pcp(pcp: u8, push_vlan_if_needed: bool) -> Result<Action, OfError> {
    if pcp & !7 != 0 {
        return Err(OfError::BacBadArgument);
    }
    Ok(Action::SetVlanPcp { pcp, push_vlan_if_needed, flow_has_vlan: false })
}

fn dscp(tos: u8) -> Result<Action, OfError> {
    if tos & 3 != 0 { Err(OfError::BacBadArgument) } else { Ok(Action::SetIpDscp(tos)) }
}

pub(super) fn mpls_tc(tc: u8) -> Result<Action, OfError> {
    if tc & !7 != 0 { Err(OfError::BacBadArgument) } else { Ok(Action::SetMplsTc(tc)) }
}

fn push_vlan(tpid: u16) -> Result<Action, OfError> {
    if matches!(tpid, 0x8100 | 0x88a8) { Ok(Action::PushVlan(tpid)) } else { Err(OfError::BacBadArgument) }
}

pub(super) fn push_mpls(tpid: u16) -> Result<Action, OfError> {
    if matches!(tpid, 0x8847 | 0x8848) { Ok(Action::PushMpls(tpid)) } else { Err(OfError::BacBadArgument) }
}

/// The body of set-field: one entry, zeros behind it.
pub(super) fn set_field(b: &mut Reader<'_>, may_mask: bool) -> Result<Action, OfError> {
    let e = nxm::pull_entry(b, true).map_err(|e| match e {
        OfError::BmcBadMask => OfError::BacBadSetMask,
        e => e,
    })?;
    let padding = b.len();
    b.zeros(padding, OfError::BacBadSetArgument)?;
    if padding >= 8 {
        return Err(OfError::BacBadLen);
    }
    if e.has_mask && !may_mask {
        return Err(OfError::BacBadSetMask);
    }
    if !e.field.is_writable() {
        return Err(OfError::BacBadSetArgument);
    }
    // A new VID must say that there is a tag.
    let says_tag = (e.value & e.mask).0 & 0x1000 != 0;
    if !e.field.is_value_valid(e.value) || e.field == fv_flow::Field::VlanVid && !says_tag {
        return Err(OfError::BacBadSetArgument);
    }
    Ok(Action::SetField(Box::new(SetField {
        field: e.field,
        value: e.value.into(),
        mask: e.mask.into(),
        flow_has_vlan: false,
        form: SetForm::SetField,
    })))
}

/// The operands of copy-field and reg-move.
pub(super) fn reg_move(b: &mut Reader<'_>, n_bits: u16, src_ofs: u16, dst_ofs: u16) -> Result<Action, OfError> {
    let src = Subfield::new(nxm::pull_header(b)?, src_ofs.into(), n_bits.into());
    let dst = Subfield::new(nxm::pull_header(b)?, dst_ofs.into(), n_bits.into());
    if b.len() >= 8 {
        return Err(OfError::BacBadLen);
    }
    b.zeros(b.len(), OfError::NxBrcMustBeZero)?;
    check_src(&src)?;
    check_dst(&dst)?;
    Ok(Action::RegMove { src, dst })
}

pub(super) fn check_src(s: &Subfield) -> Result<(), OfError> {
    s.check().map_err(|_| OfError::BacBadSetLen)
}

pub(super) fn check_dst(s: &Subfield) -> Result<(), OfError> {
    check_src(s)?;
    if s.field.is_writable() { Ok(()) } else { Err(OfError::BacBadSetArgument) }
}

/// The slots of the instructions in the order of execution.
#[derive(Default)]
struct Slots<'a> {
    meter: Option<u32>,
    apply: Option<&'a [u8]>,
    clear: bool,
    write: Option<&'a [u8]>,
    metadata: Option<(u64, u64)>,
    goto: Option<u8>,
}

/// The instructions of a 1.1+ flow.
pub fn decode_instructions(bytes: &[u8], version: Version) -> Result<Actions, OfError> {
    let mut r = Reader::new(bytes, OfError::BicBadLen);
    let mut s = Slots::default();
    while !r.is_empty() {
        instruction(&mut r, version, &mut s)?;
    }
    let cx = Cx { version, depth: 0 };
    let mut out = Actions::new();
    out.0.extend(s.meter.map(Action::Meter));
    if let Some(b) = s.apply {
        out.0.append(&mut list(b, cx)?.0);
    }
    if s.clear {
        out.push(Action::ClearActions);
    }
    if let Some(b) = s.write {
        out.push(Action::WriteActions(list(b, cx.nested()?)?));
    }
    out.0.extend(s.metadata.map(|(metadata, mask)| Action::WriteMetadata { metadata, mask }));
    out.0.extend(s.goto.map(Action::GotoTable));
    Ok(out)
}

fn instruction<'a>(r: &mut Reader<'a>, version: Version, s: &mut Slots<'a>) -> Result<(), OfError> {
    let (kind, mut b) = pull_tlv(r, OfError::BicBadLen)?;
    let fixed = match kind {
        1 | 5 | 6 => Some(4),
        2 => Some(20),
        _ => None,
    };
    if fixed.is_some_and(|n| n != b.len()) {
        return Err(OfError::BicBadLen);
    }
    let dup = match kind {
        1 => s.goto.replace(b.u8()?).is_some(),
        2 => {
            b.skip(4)?;
            s.metadata.replace((b.u64()?, b.u64()?)).is_some()
        }
        3 | 4 => {
            b.skip(4)?;
            let slot = if kind == 3 { &mut s.write } else { &mut s.apply };
            slot.replace(b.take_rest()).is_some()
        }
        5 => std::mem::replace(&mut s.clear, true),
        6 if matches!(version, Version::V13 | Version::V14) => s.meter.replace(b.u32()?).is_some(),
        0xffff => return Err(OfError::BicBadExperimenter),
        _ => return Err(OfError::BicUnknownInst),
    };
    if dup { Err(OfError::BicDupInst) } else { Ok(()) }
}
