//! How long the body of each request may be: what is checked before anything else of it.

use super::codec::{nxt, onft, t};
use super::stats::mp;
use crate::error::OfError;
use crate::vendor;
use crate::version::Version;

/// A fixed part, and the unit of what may follow it; 0: nothing may follow.
#[derive(Clone, Copy)]
struct Size {
    fixed: usize,
    unit: usize,
}

const fn exact(fixed: usize) -> Option<Size> {
    Some(Size { fixed, unit: 0 })
}
const fn bytes(fixed: usize) -> Option<Size> {
    Some(Size { fixed, unit: 1 })
}
/// Properties, actions, entries: all of whole 8-byte words.
const fn words(fixed: usize) -> Option<Size> {
    Some(Size { fixed, unit: 8 })
}

/// Checks a request by its type number of OpenFlow 1.1 and its body. What is not in the tables, which
/// includes all that only switches send, is left to its decoder. True if its tail is the decoder's.
pub(super) fn check(kind: u8, v: Version, body: &[u8]) -> Result<bool, OfError> {
    let (size, body) = match kind {
        t::EXPERIMENTER => experimenter(v, body)?,
        t::MULTIPART_REQUEST => multipart(v, body)?,
        _ => (standard(kind, v), body),
    };
    let Some(s) = size else { return Ok(false) };
    let extra = body.len().checked_sub(s.fixed).ok_or(OfError::BrcBadLen)?;
    match s.unit {
        0 if extra != 0 => Err(OfError::BrcBadLen),
        0 => Ok(false),
        unit if extra % unit != 0 => Err(OfError::BrcBadLen),
        _ => Ok(true),
    }
}

fn standard(kind: u8, v: Version) -> Option<Size> {
    let v10 = v == Version::V10;
    match kind {
        t::ECHO_REQUEST | t::ECHO_REPLY => bytes(0),
        t::FEATURES_REQUEST | t::GET_CONFIG_REQUEST | t::BARRIER_REQUEST => exact(0),
        t::SET_CONFIG => exact(4),
        t::PACKET_OUT => bytes(if v10 || v >= Version::V15 { 8 } else { 16 }),
        t::FLOW_MOD => words(if v10 { 64 } else { 40 }),
        t::PORT_MOD if v10 => exact(24),
        t::PORT_MOD if v < Version::V14 => exact(32),
        t::PORT_MOD => words(24),
        t::GROUP_MOD if v >= Version::V15 => words(16),
        t::GROUP_MOD if !v10 => words(8),
        t::TABLE_MOD if v >= Version::V14 => words(8),
        t::TABLE_MOD if !v10 => exact(8),
        t::QUEUE_GET_CONFIG_REQUEST if v10 => exact(4),
        t::QUEUE_GET_CONFIG_REQUEST if v < Version::V14 => exact(8),
        t::ROLE_REQUEST if v >= Version::V12 => exact(16),
        t::GET_ASYNC_REQUEST if v >= Version::V13 => exact(0),
        t::SET_ASYNC if v >= Version::V14 => words(0),
        t::SET_ASYNC if v == Version::V13 => exact(24),
        t::METER_MOD if v >= Version::V13 => words(8),
        t::BUNDLE_CONTROL if v >= Version::V14 => words(8),
        t::BUNDLE_ADD if v >= Version::V14 => bytes(8),
        _ => None,
    }
}

fn word(b: &[u8], at: usize) -> Option<u32> {
    b.get(at..at + 4)?.first_chunk().map(|x| u32::from_be_bytes(*x))
}

/// (size, body) behind vendor and subtype.
fn experimenter(v: Version, body: &[u8]) -> Result<(Option<Size>, &[u8]), OfError> {
    let (Some(who), Some(subtype), Some(rest)) = (word(body, 0), word(body, 4), body.get(8..)) else {
        return Err(OfError::BrcBadLen);
    };
    let size = match (who, subtype) {
        (vendor::NX, nxt::ROLE_REQUEST | nxt::SET_FLOW_FORMAT | nxt::SET_PACKET_IN_FORMAT) => exact(4),
        (vendor::NX, nxt::FLOW_MONITOR_CANCEL) if v < Version::V13 => exact(4),
        (vendor::NX, nxt::FLOW_MOD) => words(32),
        (vendor::NX, nxt::FLOW_MOD_TABLE_ID | nxt::SET_CONTROLLER_ID | nxt::CT_FLUSH_ZONE) => exact(8),
        (vendor::NX, nxt::FLOW_AGE) => exact(0),
        (vendor::NX, nxt::SET_ASYNC_CONFIG) => exact(24),
        (vendor::NX, nxt::SET_ASYNC_CONFIG2 | nxt::RESUME) => words(0),
        (vendor::NX, nxt::GROUP_MOD) if v == Version::V10 => words(16),
        (vendor::ONF, onft::BUNDLE_CONTROL) if v == Version::V13 => words(8),
        (vendor::ONF, onft::BUNDLE_ADD) if v == Version::V13 => bytes(8),
        (vendor::ONF, onft::FLOW_MONITOR_CANCEL) if v == Version::V13 => exact(4),
        _ => None,
    };
    Ok((size, rest))
}

/// (size, body) behind the multipart header, and behind vendor and subtype if there are such.
fn multipart(v: Version, body: &[u8]) -> Result<(Option<Size>, &[u8]), OfError> {
    let v10 = v == Version::V10;
    let head = if v10 { 4 } else { 8 };
    let (Some(first), Some(rest)) = (word(body, 0), body.get(head..)) else { return Err(OfError::BrcBadLen) };
    let kind = (first >> 16) as u16;
    if kind != mp::EXPERIMENTER {
        return Ok((standard_multipart(kind, v), rest));
    }
    // 1.0 pads its header.
    let (Some(who), Some(subtype)) = (word(rest, 0), word(rest, 4)) else { return Err(OfError::BrcBadLen) };
    if who != vendor::NX && (who != vendor::ONF || v != Version::V13) {
        return Err(OfError::BrcBadVendor);
    }
    let rest = rest.get(if v10 { 12 } else { 8 }..).ok_or(OfError::BrcBadLen)?;
    let size = match (who, subtype) {
        (vendor::NX, mp::NXST_FLOW | mp::NXST_AGGREGATE) if (rest.len().saturating_sub(8)).is_multiple_of(8) => None,
        (vendor::NX, mp::NXST_FLOW | mp::NXST_AGGREGATE) => return Err(OfError::BrcBadLen),
        (vendor::NX, mp::NXST_FLOW_MONITOR) if v < Version::V13 => words(16),
        (vendor::ONF, mp::ONFST_FLOW_MONITOR) if v == Version::V13 => words(16),
        (vendor::NX, mp::NXST_GROUP | mp::NXST_GROUP_DESC) if v10 => exact(8),
        (vendor::NX, mp::NXST_GROUP_FEATURES) if v <= Version::V11 => exact(0),
        (vendor::NX, mp::NXST_IPFIX_BRIDGE | mp::NXST_IPFIX_FLOW) => exact(0),
        _ => None,
    };
    Ok((size, rest))
}

/// Where the body of a multipart request's part begins, counted from the multipart header, and
/// whether the bodies of several parts may follow one another.
pub(super) fn part(v: Version, body: &[u8]) -> Result<(usize, bool), OfError> {
    let (size, rest) = multipart(v, body)?;
    // What a list of entries is made of has no fixed part, but monitors have: each is an entry.
    let monitors = rest.len() < body.len() && size.is_some_and(|s| s.fixed == 16 && s.unit != 0);
    Ok((body.len() - rest.len(), monitors || size.is_some_and(|s| s.fixed == 0 && s.unit != 0)))
}

fn standard_multipart(kind: u16, v: Version) -> Option<Size> {
    let v10 = v == Version::V10;
    match kind {
        mp::DESC | mp::TABLE => exact(0),
        mp::FLOW | mp::AGGREGATE if v10 => exact(44),
        mp::FLOW | mp::AGGREGATE => words(32),
        mp::PORT | mp::QUEUE => exact(8),
        mp::PORT_DESC if v >= Version::V15 => exact(8),
        mp::PORT_DESC => exact(0),
        mp::GROUP if !v10 => exact(8),
        mp::GROUP_DESC if v >= Version::V15 => exact(8),
        mp::GROUP_DESC if !v10 => exact(0),
        mp::GROUP_FEATURES if v >= Version::V12 => exact(0),
        mp::METER | mp::METER_CONFIG if v >= Version::V13 => exact(8),
        mp::METER_FEATURES if v >= Version::V13 => exact(0),
        mp::TABLE_FEATURES if v >= Version::V13 => words(0),
        mp::TABLE_DESC if v >= Version::V14 => exact(0),
        mp::QUEUE_DESC if v >= Version::V14 => exact(8),
        mp::FLOW_MONITOR if v >= Version::V14 => words(16),
        _ => None,
    }
}
