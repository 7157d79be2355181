//! Flow monitors: who watches which flows, and what happened to them. Nicira's form up to OpenFlow
//! 1.2, the Open Networking Foundation's for 1.3, the standard's from 1.4 on.

use super::flow::{FlowRemovedReason, GROUP_ANY, TABLE_ALL};
use super::port::{bits, pull_port};
use crate::action::{Actions, decode_actions, decode_instructions, encode_actions, encode_instructions};
use crate::error::OfError;
use crate::matching::{self, nxm};
use crate::version::Version;
use crate::wire::{Put, Reader};
use fv_core::OfPort;
use fv_flow::Match;

bits! {
    /// What a monitor wants to hear. The numbers are Nicira's.
    MonitorFlags {
        INITIAL = 1 << 0,
        ADD = 1 << 1,
        DELETE = 1 << 2,
        MODIFY = 1 << 3,
        ACTIONS = 1 << 4,
        /// Its own changes in full too.
        OWN = 1 << 5,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum MonitorCommand {
    Add = 0,
    Modify = 1,
    Delete = 2,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MonitorRequest {
    pub id: u32,
    pub flags: MonitorFlags,
    /// Only flows that output there; `OfPort::NONE` and `GROUP_ANY` for any.
    pub out_port: OfPort,
    pub out_group: u32,
    /// [`TABLE_ALL`] is any.
    pub table: u8,
    /// Always `Add` before OpenFlow 1.4.
    pub command: MonitorCommand,
    pub match_: Match,
}

impl Default for MonitorRequest {
    fn default() -> Self {
        MonitorRequest {
            id: 0,
            flags: MonitorFlags::default(),
            out_port: OfPort::NONE,
            out_group: GROUP_ANY,
            table: TABLE_ALL,
            command: MonitorCommand::Add,
            match_: Match::default(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MonitorEvent {
    /// The flow was there when the monitor was made. Before OpenFlow 1.4 it is said to be added.
    Initial,
    Added,
    Deleted(FlowRemovedReason),
    Modified,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FlowUpdate {
    Full(Box<FlowUpdateFull>),
    /// What the message with this number, from the monitor's own connection, asked for was done.
    Abbrev(u32),
    /// No more updates but of deletions until `Resumed` (from OpenFlow 1.4 on; before it is a message).
    Paused,
    /// All that changed meanwhile was told just before.
    Resumed,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowUpdateFull {
    pub event: MonitorEvent,
    pub priority: u16,
    pub idle_timeout_s: u16,
    pub hard_timeout_s: u16,
    pub table: u8,
    pub cookie: u64,
    pub match_: Match,
    /// None: the monitor does not want them.
    pub actions: Option<Actions>,
}

/// OpenFlow 1.4's bit for own changes.
const OWN14: u16 = 1 << 6;
const ABBREV: u16 = 3;
const ABBREV14: u16 = 4;
/// From OpenFlow 1.4 on.
const PAUSED: u16 = 5;
const RESUMED: u16 = 6;
/// Bytes of an update that is abbreviated, and of a full one before its match.
const ABBREV_LEN: usize = 8;

/// Whether a version's messages are Nicira's.
pub(crate) fn is_nicira(v: Version) -> bool {
    v < Version::V13
}

fn flags_in(v: Version, f: u16) -> Result<MonitorFlags, OfError> {
    let known = if v >= Version::V14 { 0x1f | OWN14 } else { 0x3f };
    let changes = MonitorFlags::ADD.0 | MonitorFlags::DELETE.0 | MonitorFlags::MODIFY.0;
    if f & !known != 0 || u32::from(f) & changes == 0 {
        return Err(OfError::MofcBadFlags);
    }
    let own = v >= Version::V14 && f & OWN14 != 0;
    Ok(MonitorFlags(u32::from(f & !OWN14)).set(MonitorFlags::OWN, own || v < Version::V14 && f & 1 << 5 != 0))
}

impl MonitorRequest {
    pub(crate) fn decode(v: Version, r: &mut Reader<'_>) -> Result<MonitorRequest, OfError> {
        let mut m = MonitorRequest { id: r.u32()?, ..MonitorRequest::default() };
        if v >= Version::V14 {
            m.out_port = pull_port(v, r)?;
            m.out_group = r.u32()?;
            let flags = r.u16()?;
            m.table = r.u8()?;
            m.command = match r.u8()? {
                0 => MonitorCommand::Add,
                1 => MonitorCommand::Modify,
                2 => MonitorCommand::Delete,
                _ => return Err(OfError::MofcBadCommand),
            };
            if m.command != MonitorCommand::Delete {
                m.flags = flags_in(v, flags)?;
            }
            m.match_ = matching::pull(r, false)?.match_;
            return Ok(m);
        }
        m.flags = flags_in(v, r.u16()?)?;
        if is_nicira(v) {
            m.out_port = OfPort::from_u16(r.u16()?);
            let len = usize::from(r.u16()?);
            m.table = r.u8()?;
            r.zeros(5, OfError::NxBrcMustBeZero)?;
            m.match_ = nxm::decode(r.bytes(len)?, nxm::Mode::Strict, false)?.match_;
            r.skip(len.next_multiple_of(8) - len)?;
        } else {
            r.skip(2)?;
            m.out_port = pull_port(v, r)?;
            m.table = r.u8()?;
            r.zeros(3, OfError::NxBrcMustBeZero)?;
            m.match_ = matching::pull(r, false)?.match_;
        }
        Ok(m)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>, v: Version) {
        out.u32(self.id);
        if v >= Version::V14 {
            let own = if self.flags.has(MonitorFlags::OWN) { OWN14 } else { 0 };
            let flags = self.flags.without(MonitorFlags::OWN).0 as u16 | own;
            out.u32(self.out_port.0).u32(self.out_group).u16(flags).u8(self.table).u8(self.command as u8);
            matching::put(out, &self.match_, v);
            return;
        }
        out.u16(self.flags.0 as u16);
        if is_nicira(v) {
            out.u16(self.out_port.to_u16().unwrap_or(0xffff));
            let len_at = out.len();
            out.u16(0).u8(self.table).zero(5);
            put_nxm(out, &self.match_, len_at);
        } else {
            let len_at = out.len();
            out.u16(0).u32(self.out_port.0).u8(self.table).zero(3);
            put_oxm(out, &self.match_, v, len_at);
        }
    }
}

fn put_nxm(out: &mut Vec<u8>, m: &Match, len_at: usize) {
    let start = out.len();
    nxm::encode(out, m, None, None);
    let len = out.len() - start;
    out.set_u16(len_at, len as u16);
    out.pad8(start);
}

/// The length that is noted does not count the padding.
fn put_oxm(out: &mut Vec<u8>, m: &Match, v: Version, len_at: usize) {
    let start = out.len();
    matching::put(out, m, v);
    let len = [out[start + 2], out[start + 3]];
    out[len_at..len_at + 2].copy_from_slice(&len);
}

impl MonitorEvent {
    fn from_wire(v: Version, event: u16, reason: u16) -> Option<MonitorEvent> {
        let deleted = || FlowRemovedReason::from_wire(reason as u8).ok().map(MonitorEvent::Deleted);
        match (v >= Version::V14, event) {
            (true, 0) => Some(MonitorEvent::Initial),
            (true, 1) | (false, 0) => Some(MonitorEvent::Added),
            (true, 2) | (false, 1) => deleted(),
            (true, 3) | (false, 2) => Some(MonitorEvent::Modified),
            _ => None,
        }
    }

    /// Event and reason.
    fn wire(self, v: Version) -> (u16, u16) {
        let event = match self {
            MonitorEvent::Initial => 0,
            MonitorEvent::Added => 1,
            MonitorEvent::Deleted(_) => 2,
            MonitorEvent::Modified => 3,
        };
        let reason = if let MonitorEvent::Deleted(r) = self { r as u16 } else { 0 };
        (if v >= Version::V14 { event } else { event.max(1) - 1 }, reason)
    }
}

impl FlowUpdate {
    pub(crate) fn decode(v: Version, r: &mut Reader<'_>) -> Result<FlowUpdate, OfError> {
        let len = usize::from(r.u16()?);
        let mut b = r.sub(len.checked_sub(2).ok_or(OfError::BrcBadLen)?)?;
        let event = b.u16()?;
        if event == if v >= Version::V14 { ABBREV14 } else { ABBREV } {
            return Ok(FlowUpdate::Abbrev(b.u32()?));
        }
        if v >= Version::V14 && matches!(event, PAUSED | RESUMED) {
            b.skip(4)?;
            return Ok(if event == PAUSED { FlowUpdate::Paused } else { FlowUpdate::Resumed });
        }
        let (reason, table, priority, idle_timeout_s, hard_timeout_s, cookie);
        let mut match_len = 0;
        if v >= Version::V14 {
            (table, reason) = (b.u8()?, b.u8()?.into());
            (idle_timeout_s, hard_timeout_s, priority) = (b.u16()?, b.u16()?, b.u16()?);
            b.skip(4)?;
        } else {
            (reason, priority, idle_timeout_s, hard_timeout_s) = (b.u16()?, b.u16()?, b.u16()?, b.u16()?);
            (match_len, table) = (usize::from(b.u16()?), b.u8()?);
            b.skip(1)?;
        }
        cookie = b.u64()?;
        let event = MonitorEvent::from_wire(v, event, reason).ok_or(OfError::NxBrcFmBadEvent)?;
        let (match_, list);
        if is_nicira(v) {
            match_ = nxm::decode(b.bytes(match_len)?, nxm::Mode::Strict, false)?.match_;
            b.skip(match_len.next_multiple_of(8) - match_len)?;
            list = decode_actions(b.take_rest(), v)?;
        } else {
            match_ = matching::pull(&mut b, false)?.match_;
            list = decode_instructions(b.take_rest(), v)?;
        }
        let actions = (!list.is_empty()).then_some(list);
        let full = FlowUpdateFull { event, priority, idle_timeout_s, hard_timeout_s, table, cookie, match_, actions };
        Ok(FlowUpdate::Full(Box::new(full)))
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>, v: Version) {
        let start = out.len();
        let f = match self {
            FlowUpdate::Abbrev(xid) => {
                out.u16(ABBREV_LEN as u16).u16(if v >= Version::V14 { ABBREV14 } else { ABBREV }).u32(*xid);
                return;
            }
            FlowUpdate::Paused | FlowUpdate::Resumed => {
                let event = if *self == FlowUpdate::Paused { PAUSED } else { RESUMED };
                out.u16(ABBREV_LEN as u16).u16(event).zero(4);
                return;
            }
            FlowUpdate::Full(f) => f,
        };
        let (event, reason) = f.event.wire(v);
        out.u16(0).u16(event);
        let mut match_len_at = 0;
        if v >= Version::V14 {
            out.u8(f.table).u8(reason as u8).u16(f.idle_timeout_s).u16(f.hard_timeout_s).u16(f.priority).zero(4);
        } else {
            out.u16(reason).u16(f.priority).u16(f.idle_timeout_s).u16(f.hard_timeout_s);
            match_len_at = out.len();
            out.u16(0).u8(f.table).zero(1);
        }
        out.u64(f.cookie);
        let actions = f.actions.iter().flat_map(|a| &a.0).cloned().collect::<Vec<_>>();
        if is_nicira(v) {
            put_nxm(out, &f.match_, match_len_at);
            encode_actions(out, &actions, v);
        } else {
            if v >= Version::V14 {
                matching::put(out, &f.match_, v);
            } else {
                put_oxm(out, &f.match_, v, match_len_at);
            }
            encode_instructions(out, &actions, v);
        }
        let len = out.len() - start;
        out.set_u16(start, len as u16);
    }
}
