//! Queues: what ports have (statistics are in [`super::port`]).

use super::port::pull_port;
use crate::error::OfError;
use crate::version::Version;
use crate::wire::{Put, Reader};
use fv_core::OfPort;

/// One queue's rates, in tenths of a percent of the port's; None is not said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueDesc {
    pub port_no: OfPort,
    pub queue: u32,
    pub min_rate: Option<u16>,
    pub max_rate: Option<u16>,
}

const MIN_RATE: u16 = 1;
const MAX_RATE: u16 = 2;
const PROP_LEN: u16 = 16;
const PROP14_LEN: u16 = 8;

impl QueueDesc {
    /// `port`: whose queues the message is about, where entries do not say.
    pub(crate) fn decode(v: Version, port: OfPort, r: &mut Reader<'_>) -> Result<QueueDesc, OfError> {
        let mut q = QueueDesc { port_no: port, ..QueueDesc::default() };
        let start = r.len();
        if v >= Version::V14 {
            q.port_no = pull_port(v, r)?;
            q.queue = r.u32()?;
        } else {
            q.queue = r.u32()?;
            if v >= Version::V12 {
                q.port_no = pull_port(v, r)?;
            }
        }
        let len = usize::from(r.u16()?);
        r.skip(if v >= Version::V12 { 6 } else { 2 })?;
        let mut b = r.sub(len.checked_sub(start - r.len()).ok_or(OfError::BrcBadLen)?)?;
        while !b.is_empty() {
            let (kind, len) = (b.u16()?, usize::from(b.u16()?));
            let mut p = b.sub(len.checked_sub(4).ok_or(OfError::BrcBadLen)?)?;
            if v < Version::V14 {
                p.skip(4)?;
            }
            match kind {
                MIN_RATE => q.min_rate = Some(p.u16()?),
                MAX_RATE => q.max_rate = Some(p.u16()?),
                _ => {}
            }
        }
        Ok(q)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>, v: Version) {
        let start = out.len();
        if v >= Version::V14 {
            out.u32(self.port_no.0).u32(self.queue);
        } else {
            out.u32(self.queue);
            if v >= Version::V12 {
                out.u32(self.port_no.0);
            }
        }
        let len_at = out.len();
        out.u16(0).zero(if v >= Version::V12 { 6 } else { 2 });
        for (kind, rate) in [(MIN_RATE, self.min_rate), (MAX_RATE, self.max_rate)] {
            match rate {
                Some(r) if v >= Version::V14 => out.u16(kind).u16(PROP14_LEN).u16(r).zero(2).done(),
                Some(r) => out.u16(kind).u16(PROP_LEN).zero(4).u16(r).zero(6).done(),
                None => {}
            }
        }
        let len = out.len() - start;
        out.set_u16(len_at, len as u16);
    }
}

/// What ports' queues are asked about before OpenFlow 1.4; `OfPort::NONE` is any port.
pub(crate) fn decode_request(v: Version, r: &mut Reader<'_>) -> Result<OfPort, OfError> {
    let p = pull_port(v, r)?;
    r.skip(if v == Version::V10 { 2 } else { 4 })?;
    Ok(p)
}

pub(crate) fn encode_request(port: OfPort, out: &mut Vec<u8>, v: Version) {
    match v {
        Version::V10 => out.u16(port.to_u16().unwrap_or(0xffff)).zero(2),
        _ => out.u32(port.0).zero(4),
    };
}

pub(crate) fn decode_reply(v: Version, r: &mut Reader<'_>) -> Result<(OfPort, Vec<QueueDesc>), OfError> {
    let port = pull_port(v, r)?;
    r.skip(if v == Version::V10 { 6 } else { 4 })?;
    let mut all = Vec::new();
    while !r.is_empty() {
        all.push(QueueDesc::decode(v, port, r)?);
    }
    Ok((port, all))
}

pub(crate) fn encode_reply(port: OfPort, queues: &[QueueDesc], out: &mut Vec<u8>, v: Version) {
    match v {
        Version::V10 => out.u16(port.to_u16().unwrap_or(0xffff)).zero(6),
        _ => out.u32(port.0).zero(4),
    };
    queues.iter().for_each(|q| q.encode(out, v));
}
