//! Flow-mods, removals and flow statistics, from and to bytes.

use super::codec::DecodeCx;
use super::flow::*;
use super::oxs::{self, Stats};
use super::port::pull_port;
use crate::action::{Actions, decode_actions, decode_instructions, encode_actions, encode_instructions};
use crate::error::OfError;
use crate::matching::{self, nxm, ofp10};
use crate::version::Version;
use crate::wire::{Put, Reader};
use fv_core::OfPort;
use fv_flow::Match;

impl FlowModCommand {
    pub(crate) fn from_wire(c: u16) -> Result<FlowModCommand, OfError> {
        Ok(match c {
            0 => FlowModCommand::Add,
            1 => FlowModCommand::Modify,
            2 => FlowModCommand::ModifyStrict,
            3 => FlowModCommand::Delete,
            4 => FlowModCommand::DeleteStrict,
            _ => return Err(OfError::FmfcBadCommand),
        })
    }
}

impl PacketInFormat {
    pub(crate) fn from_wire(f: u32) -> Option<PacketInFormat> {
        match f {
            0 => Some(PacketInFormat::Standard),
            1 => Some(PacketInFormat::Nxt),
            2 => Some(PacketInFormat::Nxt2),
            _ => None,
        }
    }
}

impl FlowRemovedReason {
    pub(crate) fn from_wire(r: u8) -> Result<FlowRemovedReason, OfError> {
        Ok(match r {
            0 => FlowRemovedReason::IdleTimeout,
            1 => FlowRemovedReason::HardTimeout,
            2 => FlowRemovedReason::Delete,
            3 => FlowRemovedReason::GroupDelete,
            4 => FlowRemovedReason::MeterDelete,
            5 => FlowRemovedReason::Eviction,
            _ => return Err(OfError::NxBrcBadReason),
        })
    }

    /// Reasons that a version lacks become "delete".
    fn wire(self, v: Version) -> u8 {
        let since = match self {
            FlowRemovedReason::GroupDelete => Version::V11,
            FlowRemovedReason::MeterDelete | FlowRemovedReason::Eviction => Version::V14,
            _ => Version::V10,
        };
        if v >= since { self as u8 } else { FlowRemovedReason::Delete as u8 }
    }
}

/// 1.0's bit 2 is "emergency".
const EMERG_V10: u16 = 1 << 2;

fn flags_in(v: Version, f: u16) -> Result<FlowModFlags, OfError> {
    let known = match v {
        Version::V10 => 7,
        Version::V11 => 3,
        Version::V12 => 7,
        _ => 0x1f,
    };
    if f & !known != 0 {
        return Err(OfError::FmfcBadFlags);
    }
    if v == Version::V10 && f & EMERG_V10 != 0 {
        return Ok(FlowModFlags(u32::from(f & 3)).with(FlowModFlags::EMERG));
    }
    Ok(FlowModFlags(f.into()))
}

fn flags_out(v: Version, f: FlowModFlags) -> u16 {
    let emerg = if f.has(FlowModFlags::EMERG) { EMERG_V10 } else { 0 };
    match v {
        Version::V10 => f.0 as u16 & 3 | emerg,
        Version::V11 => f.0 as u16 & 3,
        Version::V12 => f.0 as u16 & 7,
        _ => f.0 as u16 & 0x1f,
    }
}

fn pull_match10(r: &mut Reader<'_>) -> Result<Match, OfError> {
    Ok(ofp10::decode(&r.array()?))
}

/// Takes an NXM match of `len` bytes and its padding.
fn pull_nxm(r: &mut Reader<'_>, len: u16, loose: bool) -> Result<nxm::Decoded, OfError> {
    let len = usize::from(len);
    let body = r.bytes(len).map_err(|_| OfError::BmcBadLen)?;
    r.skip(len.next_multiple_of(8) - len).map_err(|_| OfError::BmcBadLen)?;
    nxm::decode(body, if loose { nxm::Mode::Loose } else { nxm::Mode::Strict }, false)
}

/// Appends an NXM match and its padding; the length goes to the two bytes at `len_at`.
fn put_nxm(out: &mut Vec<u8>, m: &Match, cookie: Option<(u64, u64)>, len_at: usize) {
    let start = out.len();
    nxm::encode(out, m, None, cookie);
    let len = out.len() - start;
    out.set_u16(len_at, len as u16);
    out.pad8(start);
}

/// A flow-mod is a multiple of 8 bytes long.
fn whole_words(r: &Reader<'_>) -> Result<(), OfError> {
    if r.len().is_multiple_of(8) { Ok(()) } else { Err(OfError::BrcBadLen) }
}

impl FlowMod {
    pub(crate) fn decode(v: Version, r: &mut Reader<'_>, cx: &DecodeCx) -> Result<FlowMod, OfError> {
        whole_words(r)?;
        let mut f = FlowMod::default();
        if v == Version::V10 {
            let wild_all = 0x3f_ffff;
            let exact = r.rest().first_chunk().is_some_and(|w| u32::from_be_bytes(*w) & wild_all == 0);
            f.match_ = ofp10::normalize(&pull_match10(r)?);
            f.new_cookie = r.u64()?;
            f.modify_cookie = f.new_cookie != u64::MAX;
            f.pull_v10_tail(r, cx)?;
            // A match without wildcards beats all others.
            if exact {
                f.priority = u16::MAX;
            }
            f.flags = flags_in(v, r.u16()?)?;
            f.actions = decode_actions(r.take_rest(), v)?;
            return Ok(f);
        }
        let (cookie, cookie_mask) = (r.u64()?, r.u64()?);
        f.table = r.u8()?;
        let command = r.u8()?;
        (f.idle_timeout_s, f.hard_timeout_s, f.priority, f.buffer_id) = (r.u16()?, r.u16()?, r.u16()?, r.u32()?);
        let (port, group) = (r.u32()?, r.u32()?);
        let (flags, importance) = (r.u16()?, r.u16()?);
        // Errors have an order: the match's come first.
        f.match_ = matching::pull(r, false)?.match_;
        let deletes = command == FlowModCommand::Delete as u8 || command == FlowModCommand::DeleteStrict as u8;
        if f.table == TABLE_ALL && !deletes {
            return Err(OfError::FmfcBadTableId);
        }
        let port = crate::matching::ofp11::port(port)?;
        f.command = FlowModCommand::from_wire(command.into())?;
        if deletes {
            (f.out_port, f.out_group) = (port, group);
        }
        f.flags = flags_in(v, flags)?;
        f.importance = if v >= Version::V14 { importance } else { 0 };
        // 1.1's modify without a cookie to match may add.
        let may_add = v == Version::V11
            && cookie_mask == 0
            && matches!(f.command, FlowModCommand::Modify | FlowModCommand::ModifyStrict);
        if f.command == FlowModCommand::Add || may_add {
            f.new_cookie = cookie;
        } else {
            (f.cookie, f.cookie_mask, f.new_cookie) = (cookie & cookie_mask, cookie_mask, u64::MAX);
        }
        f.actions = decode_instructions(r.take_rest(), v)?;
        Ok(f)
    }

    /// Command to `out_port` of 1.0's form and of Nicira's.
    fn pull_v10_tail(&mut self, r: &mut Reader<'_>, cx: &DecodeCx) -> Result<(), OfError> {
        let mut command = r.u16()?;
        if cx.flow_mod_table_id {
            self.table = (command >> 8) as u8;
            command &= 0xff;
        }
        self.command = FlowModCommand::from_wire(command)?;
        (self.idle_timeout_s, self.hard_timeout_s, self.priority, self.buffer_id) =
            (r.u16()?, r.u16()?, r.u16()?, r.u32()?);
        let port = OfPort::from_u16(r.u16()?);
        if self.command.is_delete() {
            self.out_port = port;
        }
        Ok(())
    }

    pub(crate) fn decode_nx(v: Version, r: &mut Reader<'_>, cx: &DecodeCx) -> Result<FlowMod, OfError> {
        whole_words(r)?;
        let mut f = FlowMod { new_cookie: r.u64()?, ..FlowMod::default() };
        let mut tail = r.sub(14)?;
        let (flags, match_len) = (r.u16()?, r.u16()?);
        r.skip(6)?;
        // Errors have an order: the match's come first.
        let d = pull_nxm(r, match_len, false)?;
        f.pull_v10_tail(&mut tail, cx)?;
        f.flags = flags_in(Version::V10, flags)?;
        f.match_ = d.match_;
        (f.cookie, f.cookie_mask) = d.cookie.unwrap_or_default();
        // A new flow has no cookie to match.
        if f.command == FlowModCommand::Add && f.cookie_mask != 0 {
            return Err(OfError::NxBrcNxmInvalid);
        }
        f.modify_cookie = f.new_cookie != u64::MAX;
        f.actions = decode_actions(r.take_rest(), v)?;
        Ok(f)
    }

    /// 1.0's command; a table number goes to its high byte, which the peer must have agreed to.
    fn command10(&self) -> u16 {
        let table = if self.table == TABLE_ALL { 0 } else { u16::from(self.table) << 8 };
        table | self.command as u16
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>, v: Version) {
        if v == Version::V10 {
            out.put(&ofp10::encode(&self.match_)).u64(self.new_cookie);
            self.put_v10_tail(out);
            encode_actions(out, &self.actions, v);
            return;
        }
        let matches_cookie = self.command != FlowModCommand::Add && self.new_cookie == u64::MAX;
        let (cookie, mask) = if matches_cookie { (self.cookie, self.cookie_mask) } else { (self.new_cookie, 0) };
        out.u64(cookie).u64(mask).u8(self.table).u8(self.command as u8);
        out.u16(self.idle_timeout_s).u16(self.hard_timeout_s).u16(self.priority).u32(self.buffer_id);
        out.u32(self.out_port.0).u32(self.out_group).u16(flags_out(v, self.flags));
        out.u16(if v >= Version::V14 { self.importance } else { 0 });
        matching::put(out, &self.match_, v);
        encode_instructions(out, &self.actions, v);
    }

    fn put_v10_tail(&self, out: &mut Vec<u8>) {
        out.u16(self.command10()).u16(self.idle_timeout_s).u16(self.hard_timeout_s).u16(self.priority);
        out.u32(self.buffer_id).u16(self.out_port.to_u16().unwrap_or(0xffff));
        out.u16(flags_out(Version::V10, self.flags));
    }

    pub(crate) fn encode_nx(&self, out: &mut Vec<u8>, v: Version) {
        out.u64(self.new_cookie);
        self.put_v10_tail(out);
        let len_at = out.len();
        out.u16(0).zero(6);
        put_nxm(out, &self.match_, Some((self.cookie, self.cookie_mask)), len_at);
        encode_actions(out, &self.actions, v);
    }
}

impl FlowRemoved {
    fn decode_v15(r: &mut Reader<'_>) -> Result<FlowRemoved, OfError> {
        let (table, reason, priority) = (r.u8()?, r.u8()?, r.u16()?);
        let (idle_timeout_s, hard_timeout_s, cookie) = (r.u16()?, r.u16()?, r.u64()?);
        let match_ = matching::pull(r, false)?.match_;
        let s = Stats::pull(r)?;
        let (duration_s, duration_ns) = s.duration.unwrap_or_default();
        Ok(FlowRemoved {
            match_,
            cookie,
            priority,
            reason: FlowRemovedReason::from_wire(reason)?,
            table,
            duration_s,
            duration_ns,
            idle_timeout_s,
            hard_timeout_s,
            packets: s.packets.unwrap_or(u64::MAX),
            bytes: s.bytes.unwrap_or(u64::MAX),
        })
    }

    fn encode_v15(&self, out: &mut Vec<u8>) {
        out.u8(self.table).u8(self.reason.wire(Version::V15)).u16(self.priority);
        out.u16(self.idle_timeout_s).u16(self.hard_timeout_s).u64(self.cookie);
        matching::put(out, &self.match_, Version::V15);
        let stats = Stats {
            duration: Some((self.duration_s, self.duration_ns)),
            packets: oxs::known(self.packets),
            bytes: oxs::known(self.bytes),
            ..Default::default()
        };
        stats.put(out);
    }

    pub(crate) fn decode(v: Version, r: &mut Reader<'_>) -> Result<FlowRemoved, OfError> {
        if v >= Version::V15 {
            return Self::decode_v15(r);
        }
        let v10 = v == Version::V10;
        let match10 = if v10 { Some(pull_match10(r)?) } else { None };
        let (cookie, priority, reason, table) = (r.u64()?, r.u16()?, r.u8()?, r.u8()?);
        let (duration_s, duration_ns, idle_timeout_s, hard) = (r.u32()?, r.u32()?, r.u16()?, r.u16()?);
        let (packets, bytes) = (r.u64()?, r.u64()?);
        let match_ = match match10 {
            Some(m) => m,
            None => matching::pull(r, false)?.match_,
        };
        Ok(FlowRemoved {
            match_,
            cookie,
            priority,
            reason: FlowRemovedReason::from_wire(reason)?,
            table: if v10 { TABLE_ALL } else { table },
            duration_s,
            duration_ns,
            idle_timeout_s,
            hard_timeout_s: if v >= Version::V11 { hard } else { 0 },
            packets,
            bytes,
        })
    }

    pub(crate) fn decode_nx(r: &mut Reader<'_>) -> Result<FlowRemoved, OfError> {
        let (cookie, priority, reason, table) = (r.u64()?, r.u16()?, r.u8()?, r.u8()?);
        let (duration_s, duration_ns, idle_timeout_s, len) = (r.u32()?, r.u32()?, r.u16()?, r.u16()?);
        let (packets, bytes) = (r.u64()?, r.u64()?);
        Ok(FlowRemoved {
            match_: pull_nxm(r, len, false)?.match_,
            cookie,
            priority,
            reason: FlowRemovedReason::from_wire(reason)?,
            // The number plus one; zero is unknown.
            table: table.wrapping_sub(1),
            duration_s,
            duration_ns,
            idle_timeout_s,
            hard_timeout_s: 0,
            packets,
            bytes,
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>, v: Version) {
        if v >= Version::V15 {
            return self.encode_v15(out);
        }
        let v10 = v == Version::V10;
        if v10 {
            out.put(&ofp10::encode(&self.match_));
        }
        out.u64(self.cookie).u16(self.priority).u8(self.reason.wire(v)).u8(if v10 { 0 } else { self.table });
        out.u32(self.duration_s).u32(self.duration_ns).u16(self.idle_timeout_s);
        out.u16(if v >= Version::V11 { self.hard_timeout_s } else { 0 });
        out.u64(self.packets).u64(self.bytes);
        if !v10 {
            matching::put(out, &self.match_, v);
        }
    }

    pub(crate) fn encode_nx(&self, out: &mut Vec<u8>) {
        out.u64(self.cookie).u16(self.priority).u8(self.reason.wire(Version::V10)).u8(self.table.wrapping_add(1));
        out.u32(self.duration_s).u32(self.duration_ns).u16(self.idle_timeout_s);
        let len_at = out.len();
        out.u16(0).u64(self.packets).u64(self.bytes);
        put_nxm(out, &self.match_, None, len_at);
    }
}

impl FlowStatsRequest {
    pub(crate) fn decode(v: Version, r: &mut Reader<'_>) -> Result<FlowStatsRequest, OfError> {
        let mut q = FlowStatsRequest::default();
        if v == Version::V10 {
            q.match_ = ofp10::normalize(&pull_match10(r)?);
            q.table = r.u8()?;
            r.skip(1)?;
            q.out_port = OfPort::from_u16(r.u16()?);
            return Ok(q);
        }
        q.table = r.u8()?;
        r.skip(3)?;
        q.out_port = pull_port(v, r)?;
        q.out_group = r.u32()?;
        r.skip(4)?;
        (q.cookie, q.cookie_mask) = (r.u64()?, r.u64()?);
        q.cookie &= q.cookie_mask;
        q.match_ = matching::pull(r, false)?.match_;
        Ok(q)
    }

    pub(crate) fn decode_nx(r: &mut Reader<'_>) -> Result<FlowStatsRequest, OfError> {
        let (out_port, len, table) = (OfPort::from_u16(r.u16()?), r.u16()?, r.u8()?);
        r.skip(3)?;
        let d = pull_nxm(r, len, false)?;
        let (cookie, cookie_mask) = d.cookie.unwrap_or_default();
        Ok(FlowStatsRequest { table, out_port, out_group: GROUP_ANY, cookie, cookie_mask, match_: d.match_ })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>, v: Version) {
        if v == Version::V10 {
            out.put(&ofp10::encode(&self.match_)).u8(self.table).zero(1);
            out.u16(self.out_port.to_u16().unwrap_or(0xffff));
            return;
        }
        out.u8(self.table).zero(3).u32(self.out_port.0).u32(self.out_group).zero(4);
        out.u64(self.cookie).u64(self.cookie_mask);
        matching::put(out, &self.match_, v);
    }

    pub(crate) fn encode_nx(&self, out: &mut Vec<u8>) {
        out.u16(self.out_port.to_u16().unwrap_or(0xffff));
        let len_at = out.len();
        out.u16(0).u8(self.table).zero(3);
        put_nxm(out, &self.match_, Some((self.cookie, self.cookie_mask)), len_at);
    }
}

/// Nicira's ages are one more than the seconds; zero is unknown.
fn age_in(a: u16) -> Option<u16> {
    a.checked_sub(1)
}
fn age_out(a: Option<u16>) -> u16 {
    a.map_or(0, |a| a.saturating_add(1))
}

impl FlowStats {
    /// Takes one entry; `nx` is Nicira's form.
    pub(crate) fn decode(v: Version, r: &mut Reader<'_>, nx: bool) -> Result<FlowStats, OfError> {
        let len = usize::from(r.u16()?);
        let mut b = r.sub(len.checked_sub(2).ok_or(OfError::BrcBadLen)?)?;
        let b = &mut b;
        if v >= Version::V15 && !nx {
            return Self::decode_v15(b);
        }
        let table = b.u8()?;
        b.skip(1)?;
        let v10 = v == Version::V10 && !nx;
        let mut match_ = if v10 { pull_match10(b)? } else { Match::default() };
        let (duration_s, duration_ns) = (b.u32()?, b.u32()?);
        let (priority, idle_timeout_s, hard_timeout_s) = (b.u16()?, b.u16()?, b.u16()?);
        // Flags and importance of later versions, or the match's length and the ages of Nicira's.
        let (x, y, z) = (b.u16()?, b.u16()?, b.u16()?);
        let (cookie, packets, bytes) = (b.u64()?, b.u64()?, b.u64()?);
        if nx {
            match_ = pull_nxm(b, x, true)?.match_;
        } else if !v10 {
            match_ = matching::pull(b, true)?.match_;
        }
        let rest = b.take_rest();
        let actions = if v10 || nx { decode_actions(rest, v)? } else { decode_instructions(rest, v)? };
        Ok(FlowStats {
            match_,
            cookie,
            table,
            priority,
            duration_s,
            duration_ns,
            idle_timeout_s,
            hard_timeout_s,
            idle_age_s: if nx { age_in(y) } else { None },
            hard_age_s: if nx { age_in(z) } else { None },
            importance: if v >= Version::V14 && !nx { y } else { 0 },
            flags: FlowModFlags(if v >= Version::V13 && !nx { x.into() } else { 0 }),
            packets,
            bytes,
            actions,
        })
    }

    fn decode_v15(b: &mut Reader<'_>) -> Result<FlowStats, OfError> {
        let v = Version::V15;
        b.skip(2)?;
        let table = b.u8()?;
        b.skip(1)?;
        let (priority, idle_timeout_s, hard_timeout_s) = (b.u16()?, b.u16()?, b.u16()?);
        let (flags, importance, cookie) = (b.u16()?, b.u16()?, b.u64()?);
        let match_ = matching::pull(b, true)?.match_;
        let s = Stats::pull(b)?;
        let (duration_s, duration_ns) = s.duration.unwrap_or_default();
        Ok(FlowStats {
            match_,
            cookie,
            table,
            priority,
            duration_s,
            duration_ns,
            idle_timeout_s,
            hard_timeout_s,
            idle_age_s: s.idle_s.map(|i| i.min(u16::MAX.into()) as u16),
            hard_age_s: None,
            importance,
            flags: FlowModFlags(flags.into()),
            packets: s.packets.unwrap_or(u64::MAX),
            bytes: s.bytes.unwrap_or(u64::MAX),
            actions: decode_instructions(b.take_rest(), v)?,
        })
    }

    fn encode_v15(&self, out: &mut Vec<u8>) {
        let (v, start) = (Version::V15, out.len());
        out.u16(0).zero(2).u8(self.table).zero(1).u16(self.priority).u16(self.idle_timeout_s).u16(self.hard_timeout_s);
        out.u16(flags_out(v, self.flags)).u16(self.importance).u64(self.cookie);
        matching::put(out, &self.match_, v);
        let stats = Stats {
            duration: Some((self.duration_s, self.duration_ns)),
            idle_s: self.idle_age_s.map(u32::from),
            packets: oxs::known(self.packets),
            bytes: oxs::known(self.bytes),
            flows: None,
        };
        stats.put(out);
        encode_instructions(out, &self.actions, v);
        let len = out.len() - start;
        out.set_u16(start, len as u16);
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>, v: Version, nx: bool) {
        if v >= Version::V15 && !nx {
            return self.encode_v15(out);
        }
        let start = out.len();
        out.u16(0).u8(self.table).zero(1);
        let v10 = v == Version::V10 && !nx;
        if v10 {
            out.put(&ofp10::encode(&self.match_));
        }
        out.u32(self.duration_s).u32(self.duration_ns);
        out.u16(self.priority).u16(self.idle_timeout_s).u16(self.hard_timeout_s);
        let len_at = out.len();
        if nx {
            out.u16(0).u16(age_out(self.idle_age_s)).u16(age_out(self.hard_age_s));
        } else {
            out.u16(if v >= Version::V13 { flags_out(v, self.flags) } else { 0 });
            out.u16(if v >= Version::V14 { self.importance } else { 0 }).zero(2);
        }
        out.u64(self.cookie).u64(self.packets).u64(self.bytes);
        if nx {
            put_nxm(out, &self.match_, None, len_at);
        } else if !v10 {
            matching::put_entries(out, &self.match_, v);
        }
        put_list(out, &self.actions, v, v10 || nx);
        let len = out.len() - start;
        out.set_u16(start, len as u16);
    }
}

fn put_list(out: &mut Vec<u8>, actions: &Actions, v: Version, plain: bool) {
    if plain {
        encode_actions(out, actions, v);
    } else {
        encode_instructions(out, actions, v);
    }
}

impl AggregateStats {
    pub(crate) fn decode(r: &mut Reader<'_>, v: Version) -> Result<AggregateStats, OfError> {
        if v >= Version::V15 {
            let s = Stats::pull(r)?;
            let (packets, bytes) = (s.packets.unwrap_or(u64::MAX), s.bytes.unwrap_or(u64::MAX));
            return Ok(AggregateStats { packets, bytes, flows: s.flows.unwrap_or(0) });
        }
        let (packets, bytes, flows) = (r.u64()?, r.u64()?, r.u32()?);
        r.skip(4)?;
        Ok(AggregateStats { packets, bytes, flows })
    }
    pub(crate) fn encode(&self, out: &mut Vec<u8>, v: Version) {
        if v >= Version::V15 {
            let (packets, bytes) = (oxs::known(self.packets), oxs::known(self.bytes));
            return Stats { packets, bytes, flows: Some(self.flows), ..Default::default() }.put(out);
        }
        out.u64(self.packets).u64(self.bytes).u32(self.flows).zero(4);
    }
}
