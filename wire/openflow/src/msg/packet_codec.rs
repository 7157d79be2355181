//! Packets to and from controllers, from and to bytes.

use super::flow::NO_BUFFER;
use super::packet::*;
use super::port::pull_port;
use crate::action::{Action, decode_actions, encode_actions};
use crate::error::OfError;
use crate::matching::{self, nxm};
use crate::version::Version;
use crate::wire::{Prop, Put, Reader, put_prop};
use fv_core::OfPort;
use fv_flow::{Field, FieldValue, Match};

/// Room that headers and metadata may take; packets are cut to what is left of a message.
const MAX_PACKET: usize = u16::MAX as usize - 1024;

impl PacketInReason {
    /// What an older version calls it.
    fn wire(self, v: Version) -> u8 {
        use PacketInReason::*;
        let r = match self {
            ActionSet | Group | PacketOut if v < Version::V14 => Action,
            ExplicitMiss if v < Version::V13 => Action,
            ExplicitMiss | ImplicitMiss => NoMatch,
            r => r,
        };
        r as u8
    }
}

fn reason(r: u8) -> Result<PacketInReason, OfError> {
    PacketInReason::from_wire(r).ok_or(OfError::NxBrcBadReason)
}

fn set_in_port(m: &mut Match, p: OfPort) {
    m.set_field(Field::InPortOxm, &FieldValue::new(p.0.into()));
}

impl PacketIn {
    fn in_port(&self) -> OfPort {
        OfPort(self.metadata.key.dp.base.in_port)
    }

    /// As much of the packet as a message can carry: a longer one is cut, `total_len` tells.
    fn data(&self) -> &[u8] {
        &self.packet[..self.packet.len().min(MAX_PACKET)]
    }

    fn total_len16(&self) -> u16 {
        u16::try_from(self.total_len).unwrap_or(u16::MAX)
    }

    pub(crate) fn decode(v: Version, r: &mut Reader<'_>) -> Result<PacketIn, OfError> {
        let mut p = PacketIn { buffer_id: r.u32()?, ..PacketIn::default() };
        match v {
            Version::V10 => {
                p.total_len = r.u16()?.into();
                set_in_port(&mut p.metadata, OfPort::from_u16(r.u16()?));
                p.reason = reason(r.u8()?)?;
                r.skip(1)?;
            }
            Version::V11 => {
                set_in_port(&mut p.metadata, pull_port(v, r)?);
                r.skip(4)?;
                p.total_len = r.u16()?.into();
                (p.reason, p.table) = (reason(r.u8()?)?, r.u8()?);
            }
            _ => {
                p.total_len = r.u16()?.into();
                (p.reason, p.table) = (reason(r.u8()?)?, r.u8()?);
                if v >= Version::V13 {
                    p.cookie = r.u64()?;
                }
                p.metadata = matching::pull(r, true)?.match_;
                r.skip(2)?;
            }
        }
        p.packet = r.take_rest().to_vec();
        Ok(p)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>, v: Version) {
        let (len, reason) = (self.total_len16(), self.reason.wire(v));
        out.u32(self.buffer_id);
        match v {
            Version::V10 => out.u16(len).u16(self.in_port().to_u16().unwrap_or(0xffff)).u8(reason).zero(1),
            Version::V11 => {
                let port = self.in_port().0;
                out.u32(port).u32(port).u16(len).u8(reason).u8(self.table)
            }
            _ => {
                out.u16(len).u8(reason).u8(self.table);
                if v >= Version::V13 {
                    out.u64(self.cookie);
                }
                matching::put(out, &self.metadata, v);
                out.zero(2)
            }
        };
        out.put(self.data());
    }

    pub(crate) fn decode_nxt(r: &mut Reader<'_>) -> Result<PacketIn, OfError> {
        let mut p = PacketIn { buffer_id: r.u32()?, total_len: r.u16()?.into(), ..PacketIn::default() };
        (p.reason, p.table, p.cookie) = (reason(r.u8()?)?, r.u8()?, r.u64()?);
        let len = usize::from(r.u16()?);
        r.skip(6)?;
        p.metadata = nxm::decode(r.bytes(len)?, nxm::Mode::Loose, false)?.match_;
        r.skip(len.next_multiple_of(8) - len)?;
        r.skip(2)?;
        p.packet = r.take_rest().to_vec();
        Ok(p)
    }

    pub(crate) fn encode_nxt(&self, out: &mut Vec<u8>, v: Version) {
        out.u32(self.buffer_id).u16(self.total_len16()).u8(self.reason.wire(v)).u8(self.table).u64(self.cookie);
        let len_at = out.len();
        out.u16(0).zero(6);
        let start = out.len();
        nxm::encode(out, &self.metadata, None, None);
        let len = out.len() - start;
        out.set_u16(len_at, len as u16);
        out.pad8(start).zero(2).put(self.data());
    }

    pub(crate) fn decode_nxt2(v: Version, r: &mut Reader<'_>) -> Result<PacketIn, OfError> {
        let mut p = PacketIn { cookie: u64::MAX, ..PacketIn::default() };
        let mut full_len = None;
        while !r.is_empty() {
            let mut prop = Prop::pull(r)?;
            let b = &mut prop.body;
            match prop.kind {
                0 => p.packet = b.take_rest().to_vec(),
                1 => full_len = Some(b.u32()?),
                2 => p.buffer_id = b.u32()?,
                3 => p.table = b.u8()?,
                4 => {
                    b.skip(4)?;
                    p.cookie = b.u64()?;
                }
                5 => p.reason = reason(b.u8()?)?,
                6 => p.metadata = nxm::decode(b.take_rest(), nxm::Mode::Loose, true)?.match_,
                7 => p.userdata = b.take_rest().to_vec(),
                8 => {
                    b.skip(4)?;
                    p.continuation = Some(Box::new(Continuation::decode(b, v)?));
                }
                _ => return Err(prop.unknown()),
            }
            prop.end()?;
        }
        let len = p.packet.len() as u32;
        if full_len.is_some_and(|f| f < len) {
            return Err(OfError::BpcBadValue);
        }
        p.total_len = full_len.unwrap_or(len);
        Ok(p)
    }

    pub(crate) fn encode_nxt2(&self, out: &mut Vec<u8>, v: Version) {
        let mut continuation = Vec::new();
        if let Some(c) = &self.continuation {
            c.encode(&mut continuation, v);
        }
        let room = MAX_PACKET - self.userdata.len().min(MAX_PACKET / 2) - continuation.len().min(MAX_PACKET / 4);
        let data = &self.packet[..self.packet.len().min(room)];
        put_prop(out, 0, |o| o.put(data).done());
        if self.total_len as usize != data.len() {
            put_prop(out, 1, |o| o.u32(self.total_len).done());
        }
        if self.buffer_id != NO_BUFFER {
            put_prop(out, 2, |o| o.u32(self.buffer_id).done());
        }
        put_prop(out, 3, |o| o.u8(self.table).done());
        if self.cookie != u64::MAX {
            put_prop(out, 4, |o| o.zero(4).u64(self.cookie).done());
        }
        put_prop(out, 5, |o| o.u8(self.reason.wire(Version::V14)).done());
        put_prop(out, 6, |o| nxm::encode(o, &self.metadata, Some(v), None));
        if !self.userdata.is_empty() {
            put_prop(out, 7, |o| o.put(&self.userdata).done());
        }
        if self.continuation.is_some() {
            put_prop(out, 8, |o| o.zero(4).put(&continuation).done());
        }
    }
}

impl PacketOut {
    pub(crate) fn decode(v: Version, r: &mut Reader<'_>) -> Result<PacketOut, OfError> {
        let mut metadata = Match::default();
        let buffer_id = r.u32()?;
        let len;
        if v < Version::V15 {
            let port = if v == Version::V10 { OfPort::from_u16(r.u16()?) } else { pull_port(v, r)? };
            set_in_port(&mut metadata, port);
            len = r.u16()?;
            r.skip(if v == Version::V10 { 0 } else { 6 })?;
        } else {
            len = r.u16()?;
            r.skip(2)?;
            metadata = matching::pull(r, false)?.match_;
            if Field::all().any(|f| !f.is_all_wild(&metadata.mask) && !is_pipeline(f)) {
                return Err(OfError::BrcPipelineFieldsOnly);
            }
        }
        let actions = decode_actions(r.bytes(len.into())?, v)?;
        let port = OfPort(metadata.key.dp.base.in_port);
        let ok = [OfPort::LOCAL, OfPort::NONE, OfPort::CONTROLLER];
        if port.is_reserved() && !ok.contains(&port) {
            return Err(OfError::BrcBadPort);
        }
        let packet = if buffer_id == NO_BUFFER { r.take_rest().to_vec() } else { Vec::new() };
        r.take_rest();
        Ok(PacketOut { packet, buffer_id, metadata, actions })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>, v: Version) {
        let port = self.in_port();
        out.u32(self.buffer_id);
        let len_at;
        match v {
            Version::V10 => {
                out.u16(port.to_u16().unwrap_or(0xffff));
                len_at = out.len();
                out.u16(0);
            }
            Version::V15 => {
                len_at = out.len();
                out.u16(0).zero(2);
                matching::put(out, &self.metadata, v);
            }
            _ => {
                out.u32(port.0);
                len_at = out.len();
                out.u16(0).zero(6);
            }
        }
        let start = out.len();
        let plain: Vec<Action> = self.actions.iter().filter(|a| !a.is_instruction()).cloned().collect();
        encode_actions(out, &plain, v);
        let len = out.len() - start;
        out.set_u16(len_at, len as u16);
        if self.buffer_id == NO_BUFFER {
            out.put(&self.packet);
        }
    }
}

/// Fields that describe where a packet comes from rather than the packet.
fn is_pipeline(f: Field) -> bool {
    f < Field::EthSrc
}
