//! Groups from and to bytes: the form of OpenFlow 1.1 to 1.4, and that of 1.5, which Nicira's
//! extension brings to 1.0.

use super::flow::GROUP_ANY;
use super::group::*;
use crate::action::{decode_actions, encode_actions};
use crate::error::OfError;
use crate::matching::{nxm, ofp11};
use crate::version::Version;
use crate::wire::{Prop, Put, Reader, put_prop, text};
use fv_core::OfPort;
use fv_flow::field::{Field, FieldValue};

/// Netronome's id, and their property: how a select group chooses.
const NTR: u32 = 0x154d;
const NTRT_SELECTION_METHOD: u32 = 1;
const METHOD_LEN: usize = 16;

const PROP_EXPERIMENTER: u16 = 0xffff;
const BUCKET_WEIGHT: u16 = 0;
const BUCKET_WATCH_PORT: u16 = 1;
const BUCKET_WATCH_GROUP: u16 = 2;

/// Fixed part of a bucket before OpenFlow 1.5, and since.
const BUCKET11_LEN: usize = 16;
const BUCKET15_LEN: usize = 8;

impl GroupType {
    fn from_wire(t: u8) -> Option<GroupType> {
        GroupType::ALL.get(usize::from(t)).copied()
    }
}

impl Bucket {
    fn decode11(v: Version, r: &mut Reader<'_>) -> Result<Bucket, OfError> {
        let whole = r.rest();
        let mut b = Reader::new(whole, OfError::GmfcBadBucket);
        let len = usize::from(b.u16()?);
        if len < BUCKET11_LEN || len > whole.len() || !len.is_multiple_of(8) {
            return Err(OfError::GmfcBadBucket);
        }
        let weight = b.u16()?;
        let (watch_port, watch_group) = (b.u32()?, b.u32()?);
        let actions = decode_actions(&whole[BUCKET11_LEN..len], v)?;
        let watch_port = ofp11::port(watch_port).map_err(|_| OfError::GmfcBadWatch)?;
        r.skip(len)?;
        Ok(Bucket { bucket_id: 0, weight, watch_port, watch_group, actions })
    }

    fn encode11(&self, out: &mut Vec<u8>, v: Version) {
        let start = out.len();
        out.u16(0).u16(self.weight).u32(self.watch_port.0).u32(self.watch_group).zero(4);
        encode_actions(out, &self.actions, v);
        let len = out.len() - start;
        out.set_u16(start, len as u16);
    }

    fn decode15(v: Version, kind: GroupType, r: &mut Reader<'_>) -> Result<Bucket, OfError> {
        let whole = r.rest();
        let mut head = Reader::new(whole, OfError::GmfcBadBucket);
        let (len, actions_len) = (usize::from(head.u16()?), usize::from(head.u16()?));
        if len < BUCKET15_LEN || len > whole.len() || !len.is_multiple_of(8) {
            return Err(OfError::GmfcBadBucket);
        }
        if actions_len > len - BUCKET15_LEN {
            return Err(OfError::GmfcBadBucket);
        }
        let mut b = Reader::new(&whole[4..len], OfError::GmfcBadBucket);
        let bucket_id = b.u32()?;
        let mut out = Bucket { bucket_id, ..Bucket::default() };
        out.actions = decode_actions(b.bytes(actions_len)?, v)?;
        let mut weight = None;
        while !b.is_empty() {
            let mut p = Prop::pull(&mut b)?;
            match p.kind {
                BUCKET_WEIGHT => weight = Some(p.body.u16()?),
                BUCKET_WATCH_PORT => {
                    out.watch_port = ofp11::port(p.body.u32()?).map_err(|_| OfError::BacBadOutPort)?;
                }
                BUCKET_WATCH_GROUP => out.watch_group = p.body.u32()?,
                _ => return Err(p.unknown()),
            }
            p.end()?;
        }
        out.weight = weight.unwrap_or(u16::from(kind == GroupType::Select));
        r.skip(len)?;
        Ok(out)
    }

    fn encode15(&self, kind: GroupType, out: &mut Vec<u8>, v: Version) {
        let start = out.len();
        out.u16(0).u16(0).u32(self.bucket_id);
        encode_actions(out, &self.actions, v);
        let actions = out.len() - start - BUCKET15_LEN;
        out.set_u16(start + 2, actions as u16);
        if kind == GroupType::Select || self.weight != 0 {
            out.u16(BUCKET_WEIGHT).u16(8).u16(self.weight).zero(2);
        }
        if self.watch_port != OfPort::NONE {
            put_prop(out, BUCKET_WATCH_PORT, |o| o.u32(self.watch_port.0).done());
        }
        if self.watch_group != GROUP_ANY {
            put_prop(out, BUCKET_WATCH_GROUP, |o| o.u32(self.watch_group).done());
        }
        let len = out.len() - start;
        out.set_u16(start, len as u16);
    }
}

/// Buckets to the end of `r`, numbered in their order.
fn buckets11(v: Version, r: &mut Reader<'_>) -> Result<Vec<Bucket>, OfError> {
    let mut out = Vec::new();
    while !r.is_empty() {
        let mut b = Bucket::decode11(v, r)?;
        b.bucket_id = out.len() as u32;
        out.push(b);
    }
    Ok(out)
}

fn buckets15(v: Version, kind: GroupType, len: u16, r: &mut Reader<'_>) -> Result<Vec<Bucket>, OfError> {
    let mut b = Reader::new(r.bytes(len.into())?, OfError::GmfcBadBucket);
    let mut out = Vec::new();
    while !b.is_empty() {
        out.push(Bucket::decode15(v, kind, &mut b)?);
    }
    Ok(out)
}

fn put_buckets15(buckets: &[Bucket], kind: GroupType, out: &mut Vec<u8>, v: Version, len_at: usize) {
    let start = out.len();
    buckets.iter().for_each(|b| b.encode15(kind, out, v));
    let len = out.len() - start;
    out.set_u16(len_at, len as u16);
}

impl GroupProps {
    /// Properties to the end of `r`, of a group that `kind` and the command let have any.
    fn decode(kind: GroupType, defines: bool, r: &mut Reader<'_>) -> Result<GroupProps, OfError> {
        let mut out = GroupProps::default();
        while !r.is_empty() {
            let mut p = Prop::pull(r)?;
            if p.experimenter != Some((NTR, NTRT_SELECTION_METHOD)) {
                return Err(if p.experimenter.is_some() { OfError::BpcBadExpType } else { p.unknown() });
            }
            if !defines || kind != GroupType::Select {
                return Err(OfError::BpcBadValue);
            }
            out = Self::selection(&mut p.body)?;
        }
        Ok(out)
    }

    fn selection(b: &mut Reader<'_>) -> Result<GroupProps, OfError> {
        b.skip(4)?;
        let raw = b.bytes(METHOD_LEN)?;
        let selection_method = text(raw);
        if raw[METHOD_LEN - 1] != 0 || !["hash", "dp_hash"].contains(&selection_method.as_str()) {
            return Err(OfError::BpcBadValue);
        }
        let selection_param = b.u64()?;
        let fields = pull_fields(b)?;
        if !fields.is_empty() && selection_method != "hash" {
            return Err(OfError::BpcBadValue);
        }
        Ok(GroupProps { selection_method, selection_param, fields })
    }

    fn encode(&self, out: &mut Vec<u8>, v: Version) {
        if self.selection_method.is_empty() {
            return;
        }
        put_prop(out, PROP_EXPERIMENTER, |o| {
            o.u32(NTR).u32(NTRT_SELECTION_METHOD).zero(4);
            o.text(&self.selection_method, METHOD_LEN).u64(self.selection_param);
            for (f, mask) in &self.fields {
                nxm::put_header(o, *f, v);
                o.put(&mask.to_be_bytes(f.n_bytes()));
            }
        });
    }
}

/// Field headers, each with its mask as the value.
fn pull_fields(b: &mut Reader<'_>) -> Result<Vec<(Field, FieldValue)>, OfError> {
    let mut out: Vec<(Field, FieldValue)> = Vec::new();
    while !b.is_empty() {
        let e = nxm::pull_entry(b, false)?;
        if e.has_mask {
            return Err(OfError::BmcBadMask);
        }
        if out.iter().any(|(f, _)| *f == e.field) {
            return Err(OfError::BmcDupField);
        }
        out.push((e.field, e.value));
    }
    out.sort_by_key(|(f, _)| *f);
    Ok(out)
}

impl GroupMod {
    /// The form of OpenFlow 1.1 to 1.4.
    pub(crate) fn decode11(v: Version, r: &mut Reader<'_>) -> Result<GroupMod, OfError> {
        let (command, kind) = (r.u16()?, r.u8()?);
        r.skip(1)?;
        let group_id = r.u32()?;
        let buckets = buckets11(v, r)?;
        let (command, kind) = head(command, kind)?;
        let m = GroupMod { command, kind, group_id, buckets, ..GroupMod::default() };
        m.check()?;
        Ok(m)
    }

    /// The form of OpenFlow 1.5 and of Nicira's extension.
    pub(crate) fn decode15(v: Version, r: &mut Reader<'_>) -> Result<GroupMod, OfError> {
        let (command, kind) = (r.u16()?, r.u8()?);
        r.skip(1)?;
        let group_id = r.u32()?;
        let buckets_len = r.u16()?;
        r.skip(2)?;
        let command_bucket_id = r.u32()?;
        check_command_bucket(command, command_bucket_id)?;
        let (command, kind) = head(command, kind)?;
        let buckets = buckets15(v, kind, buckets_len, r)?;
        let props = GroupProps::decode(kind, command.defines(), r)?;
        let m = GroupMod { command, kind, group_id, command_bucket_id, buckets, props };
        m.check()?;
        Ok(m)
    }

    fn check(&self) -> Result<(), OfError> {
        use GroupCommand as C;
        let n = self.buckets.len();
        match self.command {
            C::Delete if n != 0 => return Err(OfError::GmfcInvalidGroup),
            C::RemoveBucket if n != 0 => return Err(OfError::GmfcBadBucket),
            C::Add | C::Modify | C::AddOrModify if self.kind == GroupType::Indirect && n != 1 => {
                return Err(OfError::GmfcInvalidGroup);
            }
            _ => {}
        }
        let weighted = self.kind == GroupType::Select || self.command == C::InsertBucket;
        self.buckets.iter().try_for_each(|b| check_bucket(self.kind, weighted, b))?;
        let mut ids: Vec<u32> = self.buckets.iter().map(|b| b.bucket_id).collect();
        ids.sort_unstable();
        if ids.windows(2).any(|w| w[0] == w[1]) {
            return Err(OfError::GmfcBucketExists);
        }
        if ids.last().is_some_and(|last| *last > BUCKET_MAX) {
            return Err(OfError::GmfcBadBucket);
        }
        Ok(())
    }

    pub(crate) fn encode11(&self, out: &mut Vec<u8>, v: Version) {
        out.u16(self.command as u16).u8(self.kind as u8).zero(1).u32(self.group_id);
        self.buckets.iter().for_each(|b| b.encode11(out, v));
    }

    pub(crate) fn encode15(&self, out: &mut Vec<u8>, v: Version) {
        out.u16(self.command as u16).u8(self.kind as u8).zero(1).u32(self.group_id);
        let len_at = out.len();
        out.u16(0).zero(2).u32(self.command_bucket_id);
        put_buckets15(&self.buckets, self.kind, out, v, len_at);
        self.props.encode(out, v);
    }
}

/// Which bucket a command is about, if it is about one.
fn check_command_bucket(command: u16, id: u32) -> Result<(), OfError> {
    let named = id <= BUCKET_MAX || matches!(id, BUCKET_FIRST | BUCKET_LAST);
    let ok = match command {
        c if c == GroupCommand::InsertBucket as u16 => named,
        c if c == GroupCommand::RemoveBucket as u16 => named || id == BUCKET_ALL,
        _ => id == BUCKET_ALL,
    };
    if ok { Ok(()) } else { Err(OfError::GmfcBadBucket) }
}

/// The two of a group-mod that are numbers on the wire.
fn head(command: u16, kind: u8) -> Result<(GroupCommand, GroupType), OfError> {
    let kind = GroupType::from_wire(kind).ok_or(OfError::GmfcBadType)?;
    let command = GroupCommand::ALL.into_iter().find(|c| *c as u16 == command);
    Ok((command.ok_or(OfError::GmfcBadCommand)?, kind))
}

/// What a bucket may say under this type, which an insertion need not give.
fn check_bucket(kind: GroupType, weighted: bool, b: &Bucket) -> Result<(), OfError> {
    let watches = b.watch_port != OfPort::NONE || b.watch_group != GROUP_ANY;
    if b.weight != 0 && !weighted {
        return Err(OfError::GmfcInvalidGroup);
    }
    if watches && !kind.watches() {
        return Err(OfError::GmfcWatchUnsupported);
    }
    if !watches && kind == GroupType::FastFailover {
        return Err(OfError::GmfcInvalidGroup);
    }
    Ok(())
}

impl GroupDesc {
    pub(crate) fn decode11(v: Version, r: &mut Reader<'_>) -> Result<GroupDesc, OfError> {
        let len = usize::from(r.u16()?);
        let mut b = r.sub(len.checked_sub(2).ok_or(OfError::BrcBadLen)?)?;
        let kind = GroupType::from_wire(b.u8()?).ok_or(OfError::BrcBadLen)?;
        b.skip(1)?;
        let group_id = b.u32()?;
        Ok(GroupDesc { kind, group_id, buckets: buckets11(v, &mut b)?, props: GroupProps::default() })
    }

    pub(crate) fn decode15(v: Version, r: &mut Reader<'_>) -> Result<GroupDesc, OfError> {
        let len = usize::from(r.u16()?);
        let mut b = r.sub(len.checked_sub(2).ok_or(OfError::BrcBadLen)?)?;
        let kind = GroupType::from_wire(b.u8()?).ok_or(OfError::BrcBadLen)?;
        b.skip(1)?;
        let group_id = b.u32()?;
        let buckets_len = b.u16()?;
        b.skip(6)?;
        let buckets = buckets15(v, kind, buckets_len, &mut b)?;
        Ok(GroupDesc { kind, group_id, buckets, props: GroupProps::decode(kind, true, &mut b)? })
    }

    pub(crate) fn encode11(&self, out: &mut Vec<u8>, v: Version) {
        let start = out.len();
        out.u16(0).u8(self.kind as u8).zero(1).u32(self.group_id);
        self.buckets.iter().for_each(|b| b.encode11(out, v));
        let len = out.len() - start;
        out.set_u16(start, len as u16);
    }

    pub(crate) fn encode15(&self, out: &mut Vec<u8>, v: Version) {
        let start = out.len();
        out.u16(0).u8(self.kind as u8).zero(1).u32(self.group_id).u16(0).zero(6);
        put_buckets15(&self.buckets, self.kind, out, v, start + 8);
        self.props.encode(out, v);
        let len = out.len() - start;
        out.set_u16(start, len as u16);
    }
}

impl GroupStats {
    pub(crate) fn decode(timed: bool, r: &mut Reader<'_>) -> Result<GroupStats, OfError> {
        let len = usize::from(r.u16()?);
        let mut b = r.sub(len.checked_sub(2).ok_or(OfError::BrcBadLen)?)?;
        b.skip(2)?;
        let (group_id, ref_count) = (b.u32()?, b.u32()?);
        b.skip(4)?;
        let (packets, bytes) = (b.u64()?, b.u64()?);
        let duration = if timed { Some((b.u32()?, b.u32()?)) } else { None };
        let mut buckets = Vec::new();
        while !b.is_empty() {
            buckets.push((b.u64()?, b.u64()?));
        }
        Ok(GroupStats { group_id, ref_count, duration, packets, bytes, buckets })
    }

    pub(crate) fn encode(&self, timed: bool, out: &mut Vec<u8>) {
        let start = out.len();
        out.u16(0).zero(2).u32(self.group_id).u32(self.ref_count).zero(4).u64(self.packets).u64(self.bytes);
        if timed {
            let (s, ns) = self.duration.unwrap_or((u32::MAX, u32::MAX));
            out.u32(s).u32(ns);
        }
        self.buckets.iter().for_each(|(p, n)| out.u64(*p).u64(*n).done());
        let len = out.len() - start;
        out.set_u16(start, len as u16);
    }

    /// Whether a version's statistics tell the duration; Nicira's always do.
    pub(crate) fn timed(v: Version) -> bool {
        v == Version::V10 || v >= Version::V13
    }
}

/// Bits of the actions that OpenFlow 1.1 shares with later versions, and of those that later
/// versions do by set-field.
const SHARED11: u32 = 0x01ff_9801;
const SETS11: u32 = 0x67fe;
const SETS10: u32 = 0x07f6;
const OUTPUT: u32 = 1;
const POP_VLAN: u32 = 1 << 18;
const SET_QUEUE: u32 = 1 << 21;
const SET_FIELD: u32 = 1 << 25;

fn actions_in(a: u32, v: Version) -> u32 {
    let bit = |on: u32, b: u32| if a & on != 0 { b } else { 0 };
    match v {
        Version::V10 => a & OUTPUT | bit(SETS10, SET_FIELD) | bit(1 << 3, POP_VLAN) | bit(1 << 11, SET_QUEUE),
        Version::V11 => a & SHARED11 | bit(SETS11, SET_FIELD),
        _ => a,
    }
}

pub(crate) fn actions_out(a: u32, v: Version) -> u32 {
    let bit = |on: u32, b: u32| if a & on != 0 { b } else { 0 };
    match v {
        Version::V10 => a & OUTPUT | bit(SET_FIELD, SETS10) | bit(POP_VLAN, 1 << 3) | bit(SET_QUEUE, 1 << 11),
        Version::V11 => a & SHARED11 | bit(SET_FIELD, SETS11),
        _ => a,
    }
}

impl GroupFeatures {
    pub(crate) fn decode(v: Version, r: &mut Reader<'_>) -> Result<GroupFeatures, OfError> {
        let mut f = GroupFeatures { types: r.u32()?, capabilities: r.u32()?, ..GroupFeatures::default() };
        for n in &mut f.max_groups {
            *n = r.u32()?;
        }
        for a in &mut f.actions {
            *a = actions_in(r.u32()?, v);
        }
        Ok(f)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>, v: Version) {
        out.u32(self.types).u32(self.capabilities);
        self.max_groups.iter().for_each(|n| out.u32(*n).done());
        self.actions.iter().for_each(|a| out.u32(actions_out(*a, v)).done());
    }
}
