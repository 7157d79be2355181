//! Tables from and to bytes.

use super::table::*;
use crate::error::OfError;
use crate::matching::nxm;
use crate::version::Version;
use crate::wire::{Prop, Put, Reader, put_prop, text};
use fv_core::TableId;
use fv_flow::Field;

const CONFIG_EVICTION: u32 = 1 << 2;
const CONFIG_VACANCY: u32 = 1 << 3;
const PROP_EVICTION: u16 = 2;
const PROP_VACANCY: u16 = 3;

impl TableMiss {
    /// 1.1's and 1.2's bits. None: an illegal pair.
    fn from_config(c: u32) -> Option<TableMiss> {
        match c & 3 {
            0 => Some(TableMiss::Controller),
            1 => Some(TableMiss::Continue),
            2 => Some(TableMiss::Drop),
            _ => None,
        }
    }
    fn config(self) -> u32 {
        match self {
            TableMiss::Default | TableMiss::Controller => 0,
            TableMiss::Continue => 1,
            TableMiss::Drop => 2,
        }
    }
}

impl TableMod {
    pub(crate) fn decode(v: Version, r: &mut Reader<'_>) -> Result<TableMod, OfError> {
        let table = TableId(r.u8()?);
        r.skip(3)?;
        let config = r.u32()?;
        let mut m = TableMod { table, miss: TableMiss::Default, eviction: None, eviction_flags: 0, vacancy: None };
        if v <= Version::V12 {
            m.miss = TableMiss::from_config(config).ok_or(OfError::TmfcBadConfig)?;
        }
        // Bits that mean nothing are ignored; in 1.3 none does.
        if v < Version::V14 {
            return Ok(m);
        }
        m.eviction = Some(config & CONFIG_EVICTION != 0);
        m.vacancy = Some(Vacancy::default());
        while !r.is_empty() {
            let mut p = Prop::pull(r)?;
            match p.kind {
                PROP_EVICTION => m.eviction_flags = p.body.u32()?,
                PROP_VACANCY => {
                    let v = Vacancy::decode(&mut p.body)?;
                    if v.up < v.down {
                        return Err(OfError::BpcBadValue);
                    }
                    p.end()?;
                    m.vacancy = Some(v);
                }
                _ => return Err(OfError::BrcBadType),
            }
        }
        if config & CONFIG_VACANCY == 0 {
            m.vacancy = Some(Vacancy::default());
        }
        Ok(m)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>, v: Version) {
        out.u8(self.table.0).zero(3);
        if v < Version::V14 {
            out.u32(if v <= Version::V12 { self.miss.config() } else { 0 });
            return;
        }
        put_config(out, self.eviction == Some(true), self.eviction_flags, self.vacancy);
    }
}

impl Vacancy {
    fn is_on(&self) -> bool {
        self.up != 0
    }
    fn decode(r: &mut Reader<'_>) -> Result<Vacancy, OfError> {
        let v = Vacancy { down: r.u8()?, up: r.u8()?, current: r.u8()? };
        r.skip(1)?;
        Ok(v)
    }
}

/// 1.4's configuration word and its properties.
fn put_config(out: &mut Vec<u8>, eviction: bool, eviction_flags: u32, vacancy: Option<Vacancy>) {
    let vacancy = vacancy.filter(Vacancy::is_on);
    out.u32(if eviction { CONFIG_EVICTION } else { 0 } | if vacancy.is_some() { CONFIG_VACANCY } else { 0 });
    if eviction_flags != 0 {
        put_prop(out, PROP_EVICTION, |o| o.u32(eviction_flags).done());
    }
    if let Some(v) = vacancy {
        put_prop(out, PROP_VACANCY, |o| o.u8(v.down).u8(v.up).u8(v.current).zero(1).done());
    }
}

impl TableDesc {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<TableDesc, OfError> {
        let len = usize::from(r.u16()?);
        let mut b = r.sub(len.checked_sub(2).ok_or(OfError::BrcBadLen)?)?;
        let table = TableId(b.u8()?);
        b.skip(1)?;
        let config = b.u32()?;
        let mut d = TableDesc { table, eviction: config & CONFIG_EVICTION != 0, eviction_flags: 0, vacancy: None };
        while !b.is_empty() {
            let mut p = Prop::pull(&mut b)?;
            match p.kind {
                PROP_EVICTION => d.eviction_flags = p.body.u32()?,
                PROP_VACANCY => d.vacancy = Some(Vacancy::decode(&mut p.body)?),
                _ => return Err(p.unknown()),
            }
        }
        Ok(d)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u16(0).u8(self.table.0).zero(1);
        put_config(out, self.eviction, self.eviction_flags, self.vacancy);
        let len = out.len() - start;
        out.set_u16(start, len as u16);
    }
}

impl TableStatus {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<TableStatus, OfError> {
        let reason = match r.u8()? {
            3 => TableReason::VacancyDown,
            4 => TableReason::VacancyUp,
            _ => return Err(OfError::BpcBadValue),
        };
        r.skip(7)?;
        Ok(TableStatus { reason, desc: TableDesc::decode(r)? })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u8(self.reason as u8).zero(7);
        self.desc.encode(out);
    }
}

/// Table statistics of 1.0 to 1.2 also say what the table can do.
impl TableStats {
    pub(crate) fn decode(v: Version, r: &mut Reader<'_>) -> Result<(TableStats, TableFeatures), OfError> {
        let table = TableId(r.u8()?);
        let mut s = TableStats { table, ..Default::default() };
        let mut f = TableFeatures { table, ..Default::default() };
        r.skip(if matches!(v, Version::V11 | Version::V12) { 7 } else { 3 })?;
        if v >= Version::V13 {
            (s.active, s.lookups, s.matched) = (r.u32()?, r.u64()?, r.u64()?);
            return Ok((s, f));
        }
        f.name = text(r.bytes(32)?);
        match v {
            Version::V10 => r.skip(4)?,
            Version::V11 => r.skip(20)?,
            _ => {
                r.skip(40)?;
                (f.metadata_match, f.metadata_write) = (r.u64()?, r.u64()?);
                r.skip(4)?;
            }
        }
        if v > Version::V10 {
            f.miss = TableMiss::from_config(r.u32()?).unwrap_or_default();
        }
        f.max_entries = r.u32()?;
        (s.active, s.lookups, s.matched) = (r.u32()?, r.u64()?, r.u64()?);
        Ok((s, f))
    }

    pub(crate) fn encode(&self, f: &TableFeatures, out: &mut Vec<u8>, v: Version) {
        let (match_, write, apply) = (oxm_bits(&f.matches), &f.nonmiss.write, &f.nonmiss.apply);
        out.u8(self.table.0);
        match v {
            // Every field of 1.0's match may be wild.
            Version::V10 => out.zero(3).text(&f.name, 32).u32(0x3f_ffff),
            Version::V11 => out
                .zero(7)
                .text(&f.name, 32)
                .u32(0xfbff)
                .u32(0xfbff)
                .u32(f.nonmiss.instructions & 0x3e)
                .u32(actions11(write.actions))
                .u32(actions11(apply.actions))
                .u32(f.miss.config()),
            Version::V12 => out
                .zero(7)
                .text(&f.name, 32)
                .u64(match_ | LATER_BITS)
                .u64(oxm_bits(&f.wildcard) | LATER_BITS)
                .u32(write.actions & 0x03ff_9801)
                .u32(apply.actions & 0x03ff_9801)
                .u64(oxm_bits(&write.set_fields))
                .u64(oxm_bits(&apply.set_fields))
                .u64(f.metadata_match)
                .u64(f.metadata_write)
                .u32(f.nonmiss.instructions & 0x3e)
                .u32(f.miss.config()),
            _ => {
                out.zero(3).u32(self.active).u64(self.lookups).u64(self.matched);
                return;
            }
        };
        out.u32(f.max_entries).u32(self.active).u64(self.lookups).u64(self.matched);
    }
}

/// 1.1 has actions of their own (1 to 10, 13, 14) for what later versions do with set-field (25).
fn actions11(a: u32) -> u32 {
    a & 0x01ff_9801 | if a & 1 << 25 != 0 { 0x67fe } else { 0 }
}

/// `mpls_bos` and `packet_type`, which 1.2 peers are told of though they came later.
const LATER_BITS: u64 = 1 << 36 | 1 << 44;

/// Fields as bits of their numbers in the basic OXM class.
fn oxm_bits(fields: &[Field]) -> u64 {
    fields
        .iter()
        .flat_map(|f| f.info().headers)
        .filter(|h| h.class == 0x8000 && h.min_version <= Version::V12.wire())
        .fold(0, |b, h| b | 1 << h.field)
}

/// OpenFlow 1.5 made the meter instruction an action.
fn instructions(all: u32, v: Version) -> u32 {
    if v >= Version::V15 { all & !(1 << 6) } else { all }
}

/// Property numbers of table features; each has a twin one higher for table-miss flows.
mod prop {
    pub const INSTRUCTIONS: u16 = 0;
    pub const NEXT_TABLES: u16 = 2;
    pub const WRITE_ACTIONS: u16 = 4;
    pub const APPLY_ACTIONS: u16 = 6;
    pub const MATCH: u16 = 8;
    pub const WILDCARDS: u16 = 10;
    pub const WRITE_SETFIELD: u16 = 12;
    pub const APPLY_SETFIELD: u16 = 14;
}

/// An entry without properties.
const FEATURES_LEN: usize = 64;

impl TableFeatures {
    /// Takes one entry (1.3+).
    pub(crate) fn decode(v: Version, r: &mut Reader<'_>) -> Result<TableFeatures, OfError> {
        let whole = r.len();
        let len = usize::from(r.u16()?);
        if len < FEATURES_LEN || len > whole {
            return Err(OfError::BpcBadLen);
        }
        let mut b = r.sub(len - 2)?;
        let mut f = TableFeatures { table: TableId(b.u8()?), ..Default::default() };
        b.skip(5)?;
        f.name = text(b.bytes(32)?);
        (f.metadata_match, f.metadata_write) = (b.u64()?, b.u64()?);
        let caps = b.u32()?;
        if v >= Version::V14 {
            f.supports_eviction = caps & CONFIG_EVICTION != 0;
            f.supports_vacancy = caps & CONFIG_VACANCY != 0;
        }
        f.max_entries = b.u32()?;
        while !b.is_empty() {
            let p = Prop::pull(&mut b)?;
            f.pull_prop(p)?;
        }
        Ok(f)
    }

    fn pull_prop(&mut self, p: Prop<'_>) -> Result<(), OfError> {
        let mut b = p.body;
        let miss = p.kind % 2 == 1 && p.kind < 16;
        let t = if miss { &mut self.table_miss } else { &mut self.nonmiss };
        match p.kind & !1 {
            prop::INSTRUCTIONS => t.instructions = ids(&mut b)?,
            prop::NEXT_TABLES => t.next = b.take_rest().to_vec(),
            prop::WRITE_ACTIONS => t.write.actions = ids(&mut b)?,
            prop::APPLY_ACTIONS => t.apply.actions = ids(&mut b)?,
            prop::WRITE_SETFIELD => t.write.set_fields = fields(&mut b)?.into_iter().map(|f| f.0).collect(),
            prop::APPLY_SETFIELD => t.apply.set_fields = fields(&mut b)?.into_iter().map(|f| f.0).collect(),
            prop::MATCH => {
                for (f, masked) in fields(&mut b)? {
                    self.matches.push(f);
                    if masked {
                        self.mask.push(f);
                    }
                }
            }
            prop::WILDCARDS => self.wildcard = fields(&mut b)?.into_iter().map(|f| f.0).collect(),
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>, v: Version) {
        let start = out.len();
        let bit = |on: bool, b: u32| if on && v >= Version::V14 { b } else { 0 };
        let caps = bit(self.supports_eviction, CONFIG_EVICTION) | bit(self.supports_vacancy, CONFIG_VACANCY);
        out.u16(0).u8(self.table.0).zero(5).text(&self.name, 32);
        out.u64(self.metadata_match).u64(self.metadata_write).u32(caps).u32(self.max_entries);
        // The twin for table-misses is left out when it says the same.
        let twin = self.table_miss != self.nonmiss;
        for (miss, t) in [(0, &self.nonmiss), (1, &self.table_miss)].into_iter().take(1 + usize::from(twin)) {
            put_prop(out, prop::INSTRUCTIONS + miss, |o| put_ids(o, instructions(t.instructions, v)));
            put_prop(out, prop::NEXT_TABLES + miss, |o| o.put(&t.next).done());
            put_prop(out, prop::WRITE_ACTIONS + miss, |o| put_ids(o, t.write.actions));
            put_prop(out, prop::APPLY_ACTIONS + miss, |o| put_ids(o, t.apply.actions));
            put_prop(out, prop::WRITE_SETFIELD + miss, |o| put_fields(o, &t.write.set_fields, &[], v));
            put_prop(out, prop::APPLY_SETFIELD + miss, |o| put_fields(o, &t.apply.set_fields, &[], v));
        }
        put_prop(out, prop::MATCH, |o| put_fields(o, &self.matches, &self.mask, v));
        put_prop(out, prop::WILDCARDS, |o| put_fields(o, &self.wildcard, &[], v));
        let len = out.len() - start;
        out.set_u16(start, len as u16);
    }
}

/// Types with their 4-byte headers, as bits; experimenters' are skipped.
fn ids(b: &mut Reader<'_>) -> Result<u32, OfError> {
    let mut bits = 0;
    while !b.is_empty() {
        let (kind, len) = (b.u16()?, usize::from(b.u16()?));
        b.skip(len.checked_sub(4).ok_or(OfError::TffcBadFeatures)?)?;
        bits |= 1u32.checked_shl(kind.into()).unwrap_or(0);
    }
    Ok(bits)
}

fn put_ids(out: &mut Vec<u8>, bits: u32) {
    for kind in (0..32).filter(|k| bits & 1 << k != 0) {
        out.u16(kind).u16(4);
    }
}

/// Field headers, and whether each has its mask bit; fields that are not known are skipped.
fn fields(b: &mut Reader<'_>) -> Result<Vec<(Field, bool)>, OfError> {
    let mut out = Vec::new();
    while !b.is_empty() {
        if let Some(f) = nxm::pull_feature(b)? {
            out.push(f);
        }
    }
    Ok(out)
}

fn put_fields(out: &mut Vec<u8>, fields: &[Field], masked: &[Field], v: Version) {
    for f in fields {
        nxm::put_feature(out, *f, masked.contains(f), v);
    }
}
