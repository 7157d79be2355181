//! The header, and which body belongs to which type number.

use super::*;
use crate::error::OfError;
use crate::vendor;
use crate::version::Version;
use crate::wire::{Put, Reader};

/// Bytes of a message's header.
pub const HEADER_LEN: usize = 8;

/// What decoding depends on besides the bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct DecodeCx {
    /// OpenFlow 1.0: the high byte of a flow-mod's command is a table number (NXT_FLOW_MOD_TABLE_ID).
    pub flow_mod_table_id: bool,
}

/// What is to be known of a part of a multipart request to put it together with others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestPart {
    /// Another part follows.
    pub more: bool,
    /// Where its body begins in the message.
    pub body_at: usize,
    /// The request is a list, of which each part may hold some.
    pub list: bool,
}

/// Why a value cannot become bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EncodeError {
    #[error("message of {0} bytes is longer than OpenFlow allows")]
    TooLong(usize),
    #[error("message does not exist in {}", .0.short())]
    Version(Version),
}

/// The fixed start of every message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawHeader {
    pub version: u8,
    pub kind: u8,
    pub len: u16,
    pub xid: u32,
}

impl RawHeader {
    /// None if there are fewer than 8 bytes.
    pub fn peek(bytes: &[u8]) -> Option<RawHeader> {
        let mut r = Reader::body(bytes);
        Some(RawHeader { version: r.u8().ok()?, kind: r.u8().ok()?, len: r.u16().ok()?, xid: r.u32().ok()? })
    }
}

/// Standard type numbers; those from `GROUP_MOD` on are of OpenFlow 1.1+.
pub(crate) mod t {
    pub const HELLO: u8 = 0;
    pub const ERROR: u8 = 1;
    pub const ECHO_REQUEST: u8 = 2;
    pub const ECHO_REPLY: u8 = 3;
    pub const EXPERIMENTER: u8 = 4;
    pub const FEATURES_REQUEST: u8 = 5;
    pub const FEATURES_REPLY: u8 = 6;
    pub const GET_CONFIG_REQUEST: u8 = 7;
    pub const GET_CONFIG_REPLY: u8 = 8;
    pub const SET_CONFIG: u8 = 9;
    pub const PACKET_IN: u8 = 10;
    pub const FLOW_REMOVED: u8 = 11;
    pub const PORT_STATUS: u8 = 12;
    pub const PACKET_OUT: u8 = 13;
    pub const FLOW_MOD: u8 = 14;
    pub const GROUP_MOD: u8 = 15;
    pub const PORT_MOD: u8 = 16;
    pub const TABLE_MOD: u8 = 17;
    pub const MULTIPART_REQUEST: u8 = 18;
    pub const MULTIPART_REPLY: u8 = 19;
    pub const BARRIER_REQUEST: u8 = 20;
    pub const BARRIER_REPLY: u8 = 21;
    pub const QUEUE_GET_CONFIG_REQUEST: u8 = 22;
    pub const QUEUE_GET_CONFIG_REPLY: u8 = 23;
    pub const ROLE_REQUEST: u8 = 24;
    pub const ROLE_REPLY: u8 = 25;
    pub const GET_ASYNC_REQUEST: u8 = 26;
    pub const GET_ASYNC_REPLY: u8 = 27;
    pub const SET_ASYNC: u8 = 28;
    pub const METER_MOD: u8 = 29;
    pub const ROLE_STATUS: u8 = 30;
    pub const TABLE_STATUS: u8 = 31;
    pub const REQUESTFORWARD: u8 = 32;
    pub const BUNDLE_CONTROL: u8 = 33;
    pub const BUNDLE_ADD: u8 = 34;
}

/// Nicira's subtypes.
pub(crate) mod nxt {
    pub const ROLE_REQUEST: u32 = 10;
    pub const ROLE_REPLY: u32 = 11;
    pub const SET_FLOW_FORMAT: u32 = 12;
    pub const FLOW_MOD: u32 = 13;
    pub const FLOW_REMOVED: u32 = 14;
    pub const FLOW_MOD_TABLE_ID: u32 = 15;
    pub const SET_PACKET_IN_FORMAT: u32 = 16;
    pub const PACKET_IN: u32 = 17;
    pub const FLOW_AGE: u32 = 18;
    pub const FLOW_MONITOR_CANCEL: u32 = 21;
    pub const FLOW_MONITOR_PAUSED: u32 = 22;
    pub const FLOW_MONITOR_RESUMED: u32 = 23;
    pub const SET_ASYNC_CONFIG: u32 = 19;
    pub const SET_CONTROLLER_ID: u32 = 20;
    pub const TLV_TABLE_MOD: u32 = 24;
    pub const TLV_TABLE_REQUEST: u32 = 25;
    pub const TLV_TABLE_REPLY: u32 = 26;
    pub const SET_ASYNC_CONFIG2: u32 = 27;
    pub const RESUME: u32 = 28;
    pub const CT_FLUSH_ZONE: u32 = 29;
    pub const PACKET_IN2: u32 = 30;
    pub const GROUP_MOD: u32 = 31;
}

/// Subtypes of the Open Networking Foundation's extensions for 1.3.
pub(crate) mod onft {
    pub const FLOW_MONITOR_CANCEL: u32 = 1870;
    pub const FLOW_MONITOR_PAUSED: u32 = 1871;
    pub const FLOW_MONITOR_RESUMED: u32 = 1872;
    pub const ROLE_STATUS: u32 = 1911;
    pub const REQUESTFORWARD: u32 = 2350;
    pub const BUNDLE_CONTROL: u32 = 2300;
    pub const BUNDLE_ADD: u32 = 2301;
}

/// OpenFlow 1.0's number of a type that 1.1 moved, and back.
fn to_v11(version: Version, kind: u8) -> Option<u8> {
    Some(match (version, kind) {
        (Version::V10, 0..=14) => kind,
        (Version::V10, 15) => t::PORT_MOD,
        (Version::V10, 16..=21) => kind + 2,
        (Version::V10, _) => return None,
        _ => kind,
    })
}

fn from_v11(version: Version, kind: u8) -> u8 {
    match (version, kind) {
        (Version::V10, t::PORT_MOD) => 15,
        (Version::V10, 18..=23) => kind - 2,
        _ => kind,
    }
}

impl Message {
    /// Decodes one whole message: `bytes` is exactly what its header's length says.
    pub fn decode(bytes: &[u8], cx: &DecodeCx) -> Result<Message, OfError> {
        let h = RawHeader::peek(bytes).ok_or(OfError::BrcBadLen)?;
        if usize::from(h.len) != bytes.len() {
            return Err(OfError::BrcBadLen);
        }
        let mut r = Reader::body(&bytes[HEADER_LEN..]);
        // A hello is read whatever version its sender prefers.
        if h.kind == t::HELLO {
            let version = Version::from_wire(h.version).unwrap_or(Version::V15);
            return Ok(Message::new(version, h.xid, Body::Hello(session::Hello::decode(h.version, r)?)));
        }
        let version = Version::from_wire(h.version).ok_or(OfError::BrcBadVersion)?;
        let kind = to_v11(version, h.kind).ok_or(OfError::BrcBadType)?;
        let tail_is_free = lengths::check(kind, version, r.rest())?;
        let body = match kind {
            t::EXPERIMENTER => experimenter(version, h.xid, &mut r, cx)?,
            _ => standard(kind, version, h.xid, &mut r, cx)?,
        };
        if !r.is_empty() && !tail_is_free {
            return Err(OfError::BrcBadLen);
        }
        Ok(Message { version, xid: h.xid, body })
    }

    /// A part of a multipart request: None for what is none, in OpenFlow 1.0, which has no parts, and
    /// for the extensions' requests, each of which is whole.
    /// Its length is checked; a part may be empty whatever it asks for.
    pub fn request_part(bytes: &[u8]) -> Result<Option<RequestPart>, OfError> {
        let Some(h) = RawHeader::peek(bytes) else { return Ok(None) };
        let version = match Version::from_wire(h.version) {
            Some(v) if v > Version::V10 && to_v11(v, h.kind) == Some(t::MULTIPART_REQUEST) => v,
            _ => return Ok(None),
        };
        let body = &bytes[HEADER_LEN..];
        if stats::is_experimenter(body) {
            return Ok(None);
        }
        let (at, list) = lengths::part(version, body)?;
        if body.len() > at {
            lengths::check(t::MULTIPART_REQUEST, version, body)?;
        }
        Ok(Some(RequestPart { more: stats::has_more(body), body_at: HEADER_LEN + at, list }))
    }

    /// A multipart request whose parts were put together: the first one, with the bodies of the
    /// others behind it. Its length field is not looked at.
    pub fn decode_joined(bytes: &[u8]) -> Result<Message, OfError> {
        let h = RawHeader::peek(bytes).ok_or(OfError::BrcBadLen)?;
        let version = Version::from_wire(h.version).ok_or(OfError::BrcBadVersion)?;
        let mut r = Reader::body(&bytes[HEADER_LEN..]);
        lengths::check(t::MULTIPART_REQUEST, version, r.rest())?;
        let m = Multipart::<Request>::decode(version, &mut r)?;
        Ok(Message::new(version, h.xid, Body::MultipartRequest(m)))
    }

    /// One message. A multipart reply that may need several goes through
    /// [`Reply::encode_parts`] instead.
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::with_capacity(64);
        out.u8(self.version.wire()).u8(0).u16(0).u32(self.xid);
        let kind = encode_body(&mut out, &self.body, self.version)?;
        out[1] = from_v11(self.version, kind);
        let len = u16::try_from(out.len()).map_err(|_| EncodeError::TooLong(out.len()))?;
        out.set_u16(2, len);
        Ok(out)
    }
}

fn standard(kind: u8, v: Version, xid: u32, r: &mut Reader<'_>, cx: &DecodeCx) -> Result<Body, OfError> {
    Ok(match kind {
        t::ERROR => Body::Error(ErrorMsg::decode(v, r)?),
        t::ECHO_REQUEST => Body::EchoRequest(r.take_rest().to_vec()),
        t::ECHO_REPLY => Body::EchoReply(r.take_rest().to_vec()),
        t::FEATURES_REQUEST => Body::FeaturesRequest,
        t::FEATURES_REPLY => Body::FeaturesReply(Box::new(Features::decode(v, r)?)),
        t::GET_CONFIG_REQUEST => Body::GetConfigRequest,
        t::GET_CONFIG_REPLY => Body::GetConfigReply(Config::decode(v, r)?),
        t::SET_CONFIG => Body::SetConfig(Config::decode(v, r)?),
        t::PACKET_IN => Body::PacketIn(Box::new(PacketIn::decode(v, r)?)),
        t::FLOW_REMOVED => Body::FlowRemoved(Box::new(FlowRemoved::decode(v, r)?)),
        t::PORT_STATUS => Body::PortStatus(Box::new(PortStatus::decode(v, r)?)),
        t::PACKET_OUT => Body::PacketOut(Box::new(PacketOut::decode(v, r)?)),
        t::FLOW_MOD => Body::FlowMod(Box::new(FlowMod::decode(v, r, cx)?)),
        t::PORT_MOD => Body::PortMod(PortMod::decode(v, r)?),
        t::TABLE_MOD if v >= Version::V11 => Body::TableMod(TableMod::decode(v, r)?),
        t::GROUP_MOD if v >= Version::V15 => Body::GroupMod(Box::new(GroupMod::decode15(v, r)?)),
        t::GROUP_MOD if v >= Version::V11 => Body::GroupMod(Box::new(GroupMod::decode11(v, r)?)),
        t::METER_MOD if v >= Version::V13 => Body::MeterMod(MeterMod::decode(r)?),
        t::QUEUE_GET_CONFIG_REQUEST if v < Version::V14 => Body::QueueConfigRequest(queue::decode_request(v, r)?),
        t::QUEUE_GET_CONFIG_REPLY if v < Version::V14 => {
            let (port, queues) = queue::decode_reply(v, r)?;
            Body::QueueConfigReply(port, queues)
        }
        t::MULTIPART_REQUEST => Body::MultipartRequest(Multipart::<Request>::decode(v, r)?),
        t::MULTIPART_REPLY => Body::MultipartReply(Multipart::<Reply>::decode(v, r)?),
        t::BARRIER_REQUEST => Body::BarrierRequest,
        t::BARRIER_REPLY => Body::BarrierReply,
        t::ROLE_REQUEST if v >= Version::V12 => Body::RoleRequest(RoleMsg::decode(r, true)?),
        t::ROLE_REPLY if v >= Version::V12 => Body::RoleReply(RoleMsg::decode(r, false)?),
        t::GET_ASYNC_REQUEST if v >= Version::V13 => Body::GetAsyncRequest,
        t::GET_ASYNC_REPLY if v >= Version::V13 => Body::GetAsyncReply(AsyncConfig::decode(v, r)?),
        t::SET_ASYNC if v >= Version::V13 => Body::SetAsync(AsyncConfig::decode(v, r)?),
        t::ROLE_STATUS if v >= Version::V14 => Body::RoleStatus(RoleStatus::decode(r)?),
        t::TABLE_STATUS if v >= Version::V14 => Body::TableStatus(TableStatus::decode(r)?),
        t::REQUESTFORWARD if v >= Version::V14 => Body::RequestForward(Box::new(forwarded(v, r, cx)?)),
        t::BUNDLE_CONTROL if v >= Version::V14 => Body::BundleControl(BundleControl::decode(r)?),
        t::BUNDLE_ADD if v >= Version::V14 => Body::BundleAdd(Box::new(BundleAdd::decode(v, xid, r, cx)?)),
        _ => return Err(OfError::BrcBadType),
    })
}

/// The message within a request-forward. Only groups' and meters' changes may be there, which bounds
/// the recursion.
fn forwarded(v: Version, r: &mut Reader<'_>, cx: &DecodeCx) -> Result<Message, OfError> {
    let inner = r.take_rest();
    let h = RawHeader::peek(inner).ok_or(OfError::BfcMsgBadLen)?;
    let len = usize::from(h.len);
    if len < HEADER_LEN || len > inner.len() {
        return Err(OfError::BfcMsgBadLen);
    }
    if h.version != v.wire() {
        return Err(OfError::BrcBadVersion);
    }
    if !matches!(h.kind, t::GROUP_MOD | t::METER_MOD) {
        return Err(OfError::BfcMsgUnsup);
    }
    Message::decode(&inner[..len], cx)
}

fn experimenter(v: Version, xid: u32, r: &mut Reader<'_>, cx: &DecodeCx) -> Result<Body, OfError> {
    let (who, subtype) = (r.u32()?, r.u32()?);
    match who {
        vendor::NX => nicira(subtype, v, r, cx),
        vendor::ONF => match subtype {
            onft::BUNDLE_CONTROL if v == Version::V13 => Ok(Body::BundleControl(BundleControl::decode(r)?)),
            onft::BUNDLE_ADD if v == Version::V13 => Ok(Body::BundleAdd(Box::new(BundleAdd::decode(v, xid, r, cx)?))),
            onft::REQUESTFORWARD if v == Version::V13 => Ok(Body::RequestForward(Box::new(forwarded(v, r, cx)?))),
            onft::FLOW_MONITOR_CANCEL if v == Version::V13 => Ok(Body::MonitorCancel(r.u32()?)),
            onft::FLOW_MONITOR_PAUSED if v == Version::V13 => Ok(Body::MonitorPaused),
            onft::FLOW_MONITOR_RESUMED if v == Version::V13 => Ok(Body::MonitorResumed),
            onft::ROLE_STATUS if v == Version::V13 => Ok(Body::RoleStatus(RoleStatus::decode(r)?)),
            _ => Err(OfError::BrcBadSubtype),
        },
        _ => Err(OfError::BrcBadVendor),
    }
}

fn nicira(subtype: u32, v: Version, r: &mut Reader<'_>, cx: &DecodeCx) -> Result<Body, OfError> {
    Ok(match subtype {
        nxt::ROLE_REQUEST => Body::RoleRequest(RoleMsg::decode_nx(r)?),
        nxt::ROLE_REPLY => Body::RoleReply(RoleMsg::decode_nx(r)?),
        nxt::SET_FLOW_FORMAT => Body::SetFlowFormat(r.u32()?),
        nxt::FLOW_MOD => Body::NxFlowMod(Box::new(FlowMod::decode_nx(v, r, cx)?)),
        nxt::FLOW_REMOVED => Body::NxFlowRemoved(Box::new(FlowRemoved::decode_nx(r)?)),
        nxt::FLOW_MOD_TABLE_ID => {
            let set = r.u8()? != 0;
            r.skip(7)?;
            Body::FlowModTableId(set)
        }
        nxt::SET_PACKET_IN_FORMAT => {
            Body::SetPacketInFormat(PacketInFormat::from_wire(r.u32()?).ok_or(OfError::BrcEperm)?)
        }
        nxt::PACKET_IN => Body::NxPacketIn(PacketInFormat::Nxt, Box::new(PacketIn::decode_nxt(r)?)),
        nxt::PACKET_IN2 => Body::NxPacketIn(PacketInFormat::Nxt2, Box::new(PacketIn::decode_nxt2(v, r)?)),
        nxt::TLV_TABLE_MOD => Body::TlvTableMod(TlvTableMod::decode(r)?),
        nxt::TLV_TABLE_REQUEST => Body::TlvTableRequest,
        nxt::TLV_TABLE_REPLY => Body::TlvTableReply(TlvTableReply::decode(r)?),
        // At least one property.
        nxt::RESUME if r.is_empty() => return Err(OfError::BrcBadLen),
        nxt::RESUME => Body::Resume(Box::new(Resume { packet_in: PacketIn::decode_nxt2(v, r)? })),
        nxt::GROUP_MOD if v == Version::V10 => Body::GroupMod(Box::new(GroupMod::decode15(v, r)?)),
        nxt::FLOW_MONITOR_CANCEL if v < Version::V13 => Body::MonitorCancel(r.u32()?),
        nxt::FLOW_MONITOR_PAUSED if v < Version::V13 => Body::MonitorPaused,
        nxt::FLOW_MONITOR_RESUMED if v < Version::V13 => Body::MonitorResumed,
        nxt::FLOW_AGE => Body::FlowAge,
        nxt::SET_ASYNC_CONFIG => Body::SetAsync(AsyncConfig::decode_fixed(r)?),
        nxt::SET_ASYNC_CONFIG2 => Body::SetAsync(AsyncConfig::decode_props(r)?),
        nxt::SET_CONTROLLER_ID => {
            r.zeros(6, OfError::NxBrcMustBeZero)?;
            Body::SetControllerId(r.u16()?)
        }
        nxt::CT_FLUSH_ZONE => {
            r.zeros(6, OfError::NxBrcMustBeZero)?;
            Body::CtFlushZone(r.u16()?)
        }
        _ => return Err(OfError::BrcBadSubtype),
    })
}

/// Writes the body; the answer is the type in 1.1's numbers.
fn encode_body(out: &mut Vec<u8>, body: &Body, v: Version) -> Result<u8, EncodeError> {
    let since = |min: Version| if v >= min { Ok(()) } else { Err(EncodeError::Version(v)) };
    Ok(match body {
        Body::Hello(h) => {
            h.encode(out);
            t::HELLO
        }
        Body::Error(e) => {
            e.encode(out, v);
            t::ERROR
        }
        Body::EchoRequest(d) => {
            out.put(d);
            t::ECHO_REQUEST
        }
        Body::EchoReply(d) => {
            out.put(d);
            t::ECHO_REPLY
        }
        Body::FeaturesRequest => t::FEATURES_REQUEST,
        Body::FeaturesReply(f) => {
            f.encode(out, v);
            t::FEATURES_REPLY
        }
        Body::GetConfigRequest => t::GET_CONFIG_REQUEST,
        Body::GetConfigReply(c) => {
            c.encode(out);
            t::GET_CONFIG_REPLY
        }
        Body::SetConfig(c) => {
            c.encode(out);
            t::SET_CONFIG
        }
        Body::BarrierRequest => t::BARRIER_REQUEST,
        Body::BarrierReply => t::BARRIER_REPLY,
        Body::PacketIn(p) => {
            p.encode(out, v);
            t::PACKET_IN
        }
        Body::PacketOut(p) => {
            p.encode(out, v);
            t::PACKET_OUT
        }
        Body::TlvTableMod(m) => {
            vendor_header(out, vendor::NX, nxt::TLV_TABLE_MOD);
            m.encode(out);
            t::EXPERIMENTER
        }
        Body::TlvTableRequest => {
            vendor_header(out, vendor::NX, nxt::TLV_TABLE_REQUEST);
            t::EXPERIMENTER
        }
        Body::TlvTableReply(m) => {
            vendor_header(out, vendor::NX, nxt::TLV_TABLE_REPLY);
            m.encode(out);
            t::EXPERIMENTER
        }
        Body::Resume(p) => {
            vendor_header(out, vendor::NX, nxt::RESUME);
            p.packet_in.encode_nxt2(out, v);
            t::EXPERIMENTER
        }
        Body::FlowMod(f) => {
            f.encode(out, v);
            t::FLOW_MOD
        }
        Body::NxFlowMod(f) => {
            vendor_header(out, vendor::NX, nxt::FLOW_MOD);
            f.encode_nx(out, v);
            t::EXPERIMENTER
        }
        Body::NxFlowRemoved(f) => {
            vendor_header(out, vendor::NX, nxt::FLOW_REMOVED);
            f.encode_nx(out);
            t::EXPERIMENTER
        }
        Body::NxPacketIn(PacketInFormat::Nxt2, p) => {
            vendor_header(out, vendor::NX, nxt::PACKET_IN2);
            p.encode_nxt2(out, v);
            t::EXPERIMENTER
        }
        Body::NxPacketIn(_, p) => {
            vendor_header(out, vendor::NX, nxt::PACKET_IN);
            p.encode_nxt(out, v);
            t::EXPERIMENTER
        }
        Body::FlowRemoved(f) => {
            f.encode(out, v);
            t::FLOW_REMOVED
        }
        Body::PortStatus(p) => {
            p.encode(out, v);
            t::PORT_STATUS
        }
        Body::PortMod(p) => {
            p.encode(out, v);
            t::PORT_MOD
        }
        Body::TableMod(m) => {
            since(Version::V11)?;
            m.encode(out, v);
            t::TABLE_MOD
        }
        Body::RequestForward(m) => {
            since(Version::V13)?;
            if v == Version::V13 {
                vendor_header(out, vendor::ONF, onft::REQUESTFORWARD);
            }
            out.put(&m.encode()?);
            if v == Version::V13 { t::EXPERIMENTER } else { t::REQUESTFORWARD }
        }
        Body::TableStatus(s) => {
            since(Version::V14)?;
            s.encode(out);
            t::TABLE_STATUS
        }
        Body::GroupMod(m) if v == Version::V10 => {
            vendor_header(out, vendor::NX, nxt::GROUP_MOD);
            m.encode15(out, v);
            t::EXPERIMENTER
        }
        Body::GroupMod(m) => {
            if v >= Version::V15 {
                m.encode15(out, v)
            } else {
                m.encode11(out, v)
            }
            t::GROUP_MOD
        }
        Body::MeterMod(m) => {
            since(Version::V13)?;
            m.encode(out);
            t::METER_MOD
        }
        Body::QueueConfigRequest(port) if v < Version::V14 => {
            queue::encode_request(*port, out, v);
            t::QUEUE_GET_CONFIG_REQUEST
        }
        Body::QueueConfigReply(port, queues) if v < Version::V14 => {
            queue::encode_reply(*port, queues, out, v);
            t::QUEUE_GET_CONFIG_REPLY
        }
        Body::QueueConfigRequest(_) | Body::QueueConfigReply(..) => return Err(EncodeError::Version(v)),
        Body::MultipartRequest(m) => {
            m.encode(out, v)?;
            t::MULTIPART_REQUEST
        }
        Body::MultipartReply(m) => {
            m.encode(out, v)?;
            t::MULTIPART_REPLY
        }
        _ => return encode_session(out, body, v),
    })
}

/// Roles, asynchronous messages, bundles, Nicira's settings.
fn encode_session(out: &mut Vec<u8>, body: &Body, v: Version) -> Result<u8, EncodeError> {
    let since = |min: Version| if v >= min { Ok(()) } else { Err(EncodeError::Version(v)) };
    let mut nx = |subtype| {
        vendor_header(out, vendor::NX, subtype);
        t::EXPERIMENTER
    };
    Ok(match body {
        Body::RoleRequest(m) | Body::RoleReply(m) => {
            let request = matches!(body, Body::RoleRequest(_));
            if v < Version::V12 {
                let k = nx(if request { nxt::ROLE_REQUEST } else { nxt::ROLE_REPLY });
                m.encode_nx(out);
                return Ok(k);
            }
            m.encode(out);
            if request { t::ROLE_REQUEST } else { t::ROLE_REPLY }
        }
        Body::RoleStatus(s) => {
            since(Version::V13)?;
            if v == Version::V13 {
                vendor_header(out, vendor::ONF, onft::ROLE_STATUS);
            }
            s.encode(out);
            if v == Version::V13 { t::EXPERIMENTER } else { t::ROLE_STATUS }
        }
        Body::GetAsyncRequest => {
            since(Version::V13)?;
            t::GET_ASYNC_REQUEST
        }
        Body::GetAsyncReply(a) => {
            since(Version::V13)?;
            a.encode(out, v);
            t::GET_ASYNC_REPLY
        }
        Body::SetAsync(a) if v < Version::V13 => {
            let k = nx(nxt::SET_ASYNC_CONFIG);
            a.encode(out, v);
            k
        }
        Body::SetAsync(a) => {
            a.encode(out, v);
            t::SET_ASYNC
        }
        Body::BundleControl(c) => {
            since(Version::V13)?;
            if v == Version::V13 {
                vendor_header(out, vendor::ONF, onft::BUNDLE_CONTROL);
            }
            c.encode(out);
            if v == Version::V13 { t::EXPERIMENTER } else { t::BUNDLE_CONTROL }
        }
        Body::BundleAdd(a) => {
            since(Version::V13)?;
            if v == Version::V13 {
                vendor_header(out, vendor::ONF, onft::BUNDLE_ADD);
            }
            a.encode(out)?;
            if v == Version::V13 { t::EXPERIMENTER } else { t::BUNDLE_ADD }
        }
        Body::MonitorCancel(_) if v > Version::V13 => return Err(EncodeError::Version(v)),
        Body::MonitorCancel(id) => {
            match v {
                Version::V13 => vendor_header(out, vendor::ONF, onft::FLOW_MONITOR_CANCEL),
                _ => vendor_header(out, vendor::NX, nxt::FLOW_MONITOR_CANCEL),
            }
            out.u32(*id);
            t::EXPERIMENTER
        }
        Body::MonitorPaused | Body::MonitorResumed if v > Version::V13 => return Err(EncodeError::Version(v)),
        Body::MonitorPaused | Body::MonitorResumed => {
            let paused = matches!(body, Body::MonitorPaused);
            let (who, subtype) = match (v, paused) {
                (Version::V13, true) => (vendor::ONF, onft::FLOW_MONITOR_PAUSED),
                (Version::V13, false) => (vendor::ONF, onft::FLOW_MONITOR_RESUMED),
                (_, true) => (vendor::NX, nxt::FLOW_MONITOR_PAUSED),
                (_, false) => (vendor::NX, nxt::FLOW_MONITOR_RESUMED),
            };
            vendor_header(out, who, subtype);
            t::EXPERIMENTER
        }
        Body::SetFlowFormat(f) => {
            let k = nx(nxt::SET_FLOW_FORMAT);
            out.u32(*f);
            k
        }
        Body::FlowModTableId(on) => {
            let k = nx(nxt::FLOW_MOD_TABLE_ID);
            out.u8((*on).into()).zero(7);
            k
        }
        Body::SetPacketInFormat(f) => {
            let k = nx(nxt::SET_PACKET_IN_FORMAT);
            out.u32(*f as u32);
            k
        }
        Body::SetControllerId(id) => {
            let k = nx(nxt::SET_CONTROLLER_ID);
            out.zero(6).u16(*id);
            k
        }
        Body::FlowAge => nx(nxt::FLOW_AGE),
        Body::CtFlushZone(zone) => {
            let k = nx(nxt::CT_FLUSH_ZONE);
            out.zero(6).u16(*zone);
            k
        }
        _ => unreachable!("encode_body has the others"),
    })
}

pub(super) fn vendor_header(out: &mut Vec<u8>, vendor: u32, subtype: u32) {
    out.u32(vendor).u32(subtype);
}
