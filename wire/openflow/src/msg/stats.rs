//! Multipart messages ("statistics" up to OpenFlow 1.2).

use super::codec::EncodeError;
use super::flow::{AggregateStats, FlowStats, FlowStatsRequest};
use super::group::{GROUP_ALL, GroupDesc, GroupFeatures, GroupStats};
use super::meter::{MeterConfig, MeterFeatures, MeterStats};
use super::monitor::{self, FlowUpdate, MonitorRequest};
use super::port::{Port, PortStats, QueueStats, pull_port};
use super::queue::QueueDesc;
use super::table::{TableDesc, TableFeatures, TableStats};
use crate::error::OfError;
use crate::vendor;
use crate::version::Version;
use crate::wire::{Put, Reader, text};
use fv_core::OfPort;

/// One part of a request or reply; `more` says that another follows.
#[derive(Clone, PartialEq, Debug)]
pub struct Multipart<T> {
    pub more: bool,
    pub body: T,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Request {
    Desc,
    Flow(Box<FlowStatsRequest>),
    Aggregate(Box<FlowStatsRequest>),
    Table,
    /// `OfPort::NONE` is all.
    Port(OfPort),
    Queue {
        port: OfPort,
        queue: u32,
    },
    /// OpenFlow 1.5 may ask for one port; `OfPort::NONE` is all.
    PortDesc(OfPort),
    /// An empty list asks; a list with entries wants to set.
    TableFeatures(Vec<TableFeatures>),
    TableDesc,
    /// A group or [`GROUP_ALL`].
    Group(u32),
    /// Which group can be said in OpenFlow 1.5 and Nicira's form alone.
    GroupDesc(u32),
    GroupFeatures,
    /// A meter or [`super::meter::METER_ALL`].
    Meter(u32),
    MeterConfig(u32),
    MeterFeatures,
    /// OpenFlow 1.4+.
    QueueDesc {
        port: OfPort,
        queue: u32,
    },
    /// At least one.
    FlowMonitor(Vec<MonitorRequest>),
    /// Nicira's forms of Flow and Aggregate (OpenFlow 1.0).
    NxFlow(Box<FlowStatsRequest>),
    NxAggregate(Box<FlowStatsRequest>),
    /// Nicira's: what exporters of flows have counted.
    Ipfix,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    Desc(Desc),
    Flow(Vec<FlowStats>),
    Aggregate(AggregateStats),
    /// With what each table's features say of names and limits (OpenFlow 1.0 to 1.2 report them here).
    Table(Vec<(TableStats, TableFeatures)>),
    Port(Vec<PortStats>),
    Queue(Vec<QueueStats>),
    PortDesc(Vec<Port>),
    TableFeatures(Vec<TableFeatures>),
    TableDesc(Vec<TableDesc>),
    Group(Vec<GroupStats>),
    GroupDesc(Vec<GroupDesc>),
    GroupFeatures(GroupFeatures),
    Meter(Vec<MeterStats>),
    MeterConfig(Vec<MeterConfig>),
    MeterFeatures(MeterFeatures),
    QueueDesc(Vec<QueueDesc>),
    FlowMonitor(Vec<FlowUpdate>),
    NxFlow(Vec<FlowStats>),
    NxAggregate(AggregateStats),
}

/// Description of the switch; texts are cut to the protocol's sizes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Desc {
    pub manufacturer: String,
    pub hardware: String,
    pub software: String,
    pub serial: String,
    pub datapath: String,
}

/// Nothing selects a queue: all of them.
pub const QUEUE_ALL: u32 = 0xffff_ffff;

/// Multipart types.
pub(super) mod mp {
    pub const DESC: u16 = 0;
    pub const FLOW: u16 = 1;
    pub const AGGREGATE: u16 = 2;
    pub const TABLE: u16 = 3;
    pub const PORT: u16 = 4;
    pub const QUEUE: u16 = 5;
    pub const GROUP: u16 = 6;
    pub const GROUP_DESC: u16 = 7;
    pub const GROUP_FEATURES: u16 = 8;
    pub const METER: u16 = 9;
    pub const METER_CONFIG: u16 = 10;
    pub const METER_FEATURES: u16 = 11;
    pub const TABLE_FEATURES: u16 = 12;
    pub const PORT_DESC: u16 = 13;
    pub const TABLE_DESC: u16 = 14;
    pub const QUEUE_DESC: u16 = 15;
    pub const FLOW_MONITOR: u16 = 16;
    pub const EXPERIMENTER: u16 = 0xffff;
    /// Nicira's statistics; those of groups are OpenFlow 1.0's.
    pub const NXST_FLOW: u32 = 0;
    pub const NXST_AGGREGATE: u32 = 1;
    pub const NXST_FLOW_MONITOR: u32 = 2;
    pub const NXST_IPFIX_BRIDGE: u32 = 3;
    pub const NXST_IPFIX_FLOW: u32 = 4;
    pub const NXST_GROUP: u32 = 7;
    pub const NXST_GROUP_DESC: u32 = 8;
    pub const NXST_GROUP_FEATURES: u32 = 9;
    /// The Open Networking Foundation's flow monitors for OpenFlow 1.3.
    pub const ONFST_FLOW_MONITOR: u32 = 1870;
}
use mp::*;

/// The MORE flag.
const MORE: u16 = 1;
/// Largest body of one part.
const MAX_PART: usize = u16::MAX as usize - 64;

/// The standard's type, or Nicira's or the Open Networking Foundation's subtype.
enum Kind {
    Std(u16),
    Nx(u32),
    Onf(u32),
}

/// Whether the multipart header that `body` begins with announces another part.
pub(super) fn has_more(body: &[u8]) -> bool {
    body.get(2..4).is_some_and(|f| u16::from_be_bytes([f[0], f[1]]) & MORE != 0)
}

/// Whether it begins with the multipart header of an extension.
pub(super) fn is_experimenter(body: &[u8]) -> bool {
    body.get(..2) == Some(&mp::EXPERIMENTER.to_be_bytes()[..])
}

fn pull_header(v: Version, r: &mut Reader<'_>) -> Result<(Kind, bool), OfError> {
    let (kind, flags) = (r.u16()?, r.u16()?);
    if v > Version::V10 {
        r.skip(4)?;
    }
    let more = flags & MORE != 0;
    if kind != mp::EXPERIMENTER {
        return Ok((Kind::Std(kind), more));
    }
    let who = r.u32()?;
    let onf = who == vendor::ONF && v == Version::V13;
    if who != vendor::NX && !onf {
        return Err(OfError::BrcBadVendor);
    }
    let subtype = r.u32()?;
    if onf {
        return Ok((Kind::Onf(subtype), more));
    }
    if v == Version::V10 {
        r.skip(4)?;
    }
    Ok((Kind::Nx(subtype), more))
}

fn put_header(out: &mut Vec<u8>, v: Version, kind: Kind, more: bool) {
    let flags = if more { MORE } else { 0 };
    let pad = if v > Version::V10 { 4 } else { 0 };
    match kind {
        Kind::Std(k) => out.u16(k).u16(flags).zero(pad),
        Kind::Onf(s) => out.u16(mp::EXPERIMENTER).u16(flags).zero(pad).u32(vendor::ONF).u32(s),
        Kind::Nx(s) => out.u16(mp::EXPERIMENTER).u16(flags).zero(pad).u32(vendor::NX).u32(s).zero(4 - pad),
    };
}

impl Multipart<Request> {
    pub(crate) fn decode(v: Version, r: &mut Reader<'_>) -> Result<Self, OfError> {
        let (kind, more) = pull_header(v, r)?;
        let body = match kind {
            Kind::Std(mp::DESC) => Request::Desc,
            Kind::Std(mp::FLOW) => Request::Flow(Box::new(FlowStatsRequest::decode(v, r)?)),
            Kind::Std(mp::AGGREGATE) => Request::Aggregate(Box::new(FlowStatsRequest::decode(v, r)?)),
            Kind::Std(mp::TABLE) => Request::Table,
            Kind::Std(mp::PORT) => {
                let p = pull_port(v, r)?;
                r.skip(if v == Version::V10 { 6 } else { 4 })?;
                Request::Port(p)
            }
            Kind::Std(mp::QUEUE) => {
                let port = pull_port(v, r)?;
                r.skip(if v == Version::V10 { 2 } else { 0 })?;
                // 1.0 says ALL where later versions say ANY.
                let port = if v == Version::V10 && port == OfPort::ALL { OfPort::NONE } else { port };
                Request::Queue { port, queue: r.u32()? }
            }
            Kind::Std(mp::PORT_DESC) if v >= Version::V15 => {
                let p = pull_port(v, r)?;
                r.skip(4)?;
                Request::PortDesc(p)
            }
            Kind::Std(mp::PORT_DESC) => Request::PortDesc(OfPort::NONE),
            Kind::Std(mp::TABLE_FEATURES) if v >= Version::V13 => Request::TableFeatures(table_features(v, r)?),
            Kind::Std(mp::TABLE_DESC) if v >= Version::V14 => Request::TableDesc,
            Kind::Std(mp::GROUP) if v >= Version::V11 => Request::Group(id(r)?),
            Kind::Std(mp::GROUP_DESC) if v >= Version::V15 => Request::GroupDesc(id(r)?),
            Kind::Std(mp::GROUP_DESC) if v >= Version::V11 => Request::GroupDesc(GROUP_ALL),
            Kind::Std(mp::GROUP_FEATURES) if v >= Version::V12 => Request::GroupFeatures,
            Kind::Std(mp::METER) if v >= Version::V13 => Request::Meter(id(r)?),
            Kind::Std(mp::METER_CONFIG) if v >= Version::V13 => Request::MeterConfig(id(r)?),
            Kind::Std(mp::METER_FEATURES) if v >= Version::V13 => Request::MeterFeatures,
            Kind::Std(mp::QUEUE_DESC) if v >= Version::V14 => {
                Request::QueueDesc { port: pull_port(v, r)?, queue: r.u32()? }
            }
            Kind::Std(mp::FLOW_MONITOR) if v >= Version::V14 => Request::FlowMonitor(monitors(v, r)?),
            Kind::Onf(ONFST_FLOW_MONITOR) => Request::FlowMonitor(monitors(v, r)?),
            Kind::Nx(NXST_FLOW_MONITOR) if monitor::is_nicira(v) => Request::FlowMonitor(monitors(v, r)?),
            Kind::Nx(NXST_GROUP) if v == Version::V10 => Request::Group(id(r)?),
            Kind::Nx(NXST_GROUP_DESC) if v == Version::V10 => Request::GroupDesc(id(r)?),
            Kind::Nx(NXST_GROUP_FEATURES) if v <= Version::V11 => Request::GroupFeatures,
            Kind::Nx(NXST_FLOW) => Request::NxFlow(Box::new(FlowStatsRequest::decode_nx(r)?)),
            Kind::Nx(NXST_AGGREGATE) => Request::NxAggregate(Box::new(FlowStatsRequest::decode_nx(r)?)),
            Kind::Nx(NXST_IPFIX_BRIDGE | NXST_IPFIX_FLOW) => Request::Ipfix,
            Kind::Std(_) => return Err(OfError::BrcBadStat),
            Kind::Nx(_) | Kind::Onf(_) => return Err(OfError::BrcBadSubtype),
        };
        Ok(Multipart { more, body })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>, v: Version) -> Result<(), EncodeError> {
        let put = |out: &mut Vec<u8>, k| put_header(out, v, Kind::Std(k), self.more);
        let port = |out: &mut Vec<u8>, p: OfPort| match v {
            Version::V10 => out.u16(p.to_u16().unwrap_or(0xffff)).done(),
            _ => out.u32(p.0).done(),
        };
        let since = |min: Version| if v >= min { Ok(()) } else { Err(EncodeError::Version(v)) };
        match &self.body {
            Request::Desc => put(out, mp::DESC),
            Request::Flow(q) => {
                put(out, mp::FLOW);
                q.encode(out, v);
            }
            Request::Aggregate(q) => {
                put(out, mp::AGGREGATE);
                q.encode(out, v);
            }
            Request::Table => put(out, mp::TABLE),
            Request::Port(p) => {
                put(out, mp::PORT);
                port(out, *p);
                out.zero(if v == Version::V10 { 6 } else { 4 });
            }
            Request::Queue { port: p, queue } => {
                put(out, mp::QUEUE);
                port(out, if v == Version::V10 && *p == OfPort::NONE { OfPort::ALL } else { *p });
                out.zero(if v == Version::V10 { 2 } else { 0 }).u32(*queue);
            }
            Request::PortDesc(p) => {
                put(out, mp::PORT_DESC);
                if v >= Version::V15 {
                    out.u32(p.0).zero(4);
                }
            }
            Request::TableFeatures(list) => {
                since(Version::V13)?;
                put(out, mp::TABLE_FEATURES);
                list.iter().for_each(|t| t.encode(out, v));
            }
            Request::TableDesc => {
                since(Version::V14)?;
                put(out, mp::TABLE_DESC);
            }
            Request::Group(id) => {
                put_kind(out, v, mp::GROUP, NXST_GROUP, self.more);
                out.u32(*id).zero(4);
            }
            Request::GroupDesc(id) => {
                put_kind(out, v, mp::GROUP_DESC, NXST_GROUP_DESC, self.more);
                if matches!(v, Version::V10 | Version::V15) {
                    out.u32(*id).zero(4);
                }
            }
            Request::GroupFeatures => put_kind(out, v, mp::GROUP_FEATURES, NXST_GROUP_FEATURES, self.more),
            Request::Meter(id) | Request::MeterConfig(id) => {
                since(Version::V13)?;
                let config = matches!(self.body, Request::MeterConfig(_));
                put(out, if config { mp::METER_CONFIG } else { mp::METER });
                out.u32(*id).zero(4);
            }
            Request::MeterFeatures => {
                since(Version::V13)?;
                put(out, mp::METER_FEATURES);
            }
            Request::QueueDesc { port, queue } => {
                since(Version::V14)?;
                put(out, mp::QUEUE_DESC);
                out.u32(port.0).u32(*queue);
            }
            Request::FlowMonitor(l) => {
                put_header(out, v, monitor_kind(v), self.more);
                l.iter().for_each(|m| m.encode(out, v));
            }
            Request::NxFlow(q) => {
                put_header(out, v, Kind::Nx(NXST_FLOW), self.more);
                q.encode_nx(out);
            }
            Request::Ipfix => put_header(out, v, Kind::Nx(NXST_IPFIX_BRIDGE), self.more),
            Request::NxAggregate(q) => {
                put_header(out, v, Kind::Nx(NXST_AGGREGATE), self.more);
                q.encode_nx(out);
            }
        }
        Ok(())
    }
}

/// A number and four bytes of padding.
fn id(r: &mut Reader<'_>) -> Result<u32, OfError> {
    let id = r.u32()?;
    r.skip(4)?;
    Ok(id)
}

/// What the versions without a standard type use Nicira's for.
fn group_kind(v: Version, std: u16, nx: u32) -> Kind {
    let since = if std == mp::GROUP_FEATURES { Version::V12 } else { Version::V11 };
    if v >= since { Kind::Std(std) } else { Kind::Nx(nx) }
}

/// What a version's flow monitors are.
fn monitor_kind(v: Version) -> Kind {
    match v {
        _ if monitor::is_nicira(v) => Kind::Nx(NXST_FLOW_MONITOR),
        Version::V13 => Kind::Onf(ONFST_FLOW_MONITOR),
        _ => Kind::Std(mp::FLOW_MONITOR),
    }
}

fn monitors(v: Version, r: &mut Reader<'_>) -> Result<Vec<MonitorRequest>, OfError> {
    let all = many(r, |r| MonitorRequest::decode(v, r))?;
    if all.is_empty() { Err(OfError::BrcBadLen) } else { Ok(all) }
}

fn updates(v: Version, r: &mut Reader<'_>) -> Result<Vec<FlowUpdate>, OfError> {
    many(r, |r| FlowUpdate::decode(v, r))
}

fn put_kind(out: &mut Vec<u8>, v: Version, std: u16, nx: u32, more: bool) {
    put_header(out, v, group_kind(v, std, nx), more);
}

fn table_features(v: Version, r: &mut Reader<'_>) -> Result<Vec<TableFeatures>, OfError> {
    many(r, |r| TableFeatures::decode(v, r))
}

fn group_stats(v: Version, r: &mut Reader<'_>) -> Result<GroupStats, OfError> {
    GroupStats::decode(GroupStats::timed(v), r)
}

/// Entries to the end of the message.
fn many<'a, T>(
    r: &mut Reader<'a>,
    mut one: impl FnMut(&mut Reader<'a>) -> Result<T, OfError>,
) -> Result<Vec<T>, OfError> {
    let mut out = Vec::new();
    while !r.is_empty() {
        out.push(one(r)?);
    }
    Ok(out)
}

impl Multipart<Reply> {
    pub(crate) fn decode(v: Version, r: &mut Reader<'_>) -> Result<Self, OfError> {
        let (kind, more) = pull_header(v, r)?;
        let body = match kind {
            Kind::Std(mp::DESC) => Reply::Desc(Desc::decode(r)?),
            Kind::Std(mp::FLOW) => Reply::Flow(many(r, |r| FlowStats::decode(v, r, false))?),
            Kind::Std(mp::AGGREGATE) => Reply::Aggregate(AggregateStats::decode(r, v)?),
            Kind::Std(mp::TABLE) => Reply::Table(many(r, |r| TableStats::decode(v, r))?),
            Kind::Std(mp::PORT) => Reply::Port(many(r, |r| PortStats::decode(v, r))?),
            Kind::Std(mp::QUEUE) => Reply::Queue(many(r, |r| QueueStats::decode(v, r))?),
            Kind::Std(mp::PORT_DESC) => Reply::PortDesc(many(r, |r| Port::decode(v, r))?),
            Kind::Std(mp::TABLE_FEATURES) if v >= Version::V13 => Reply::TableFeatures(table_features(v, r)?),
            Kind::Std(mp::TABLE_DESC) if v >= Version::V14 => Reply::TableDesc(many(r, TableDesc::decode)?),
            Kind::Std(mp::GROUP) if v >= Version::V11 => Reply::Group(many(r, |r| group_stats(v, r))?),
            Kind::Std(mp::GROUP_DESC) if v >= Version::V15 => Reply::GroupDesc(many(r, |r| GroupDesc::decode15(v, r))?),
            Kind::Std(mp::GROUP_DESC) if v >= Version::V11 => Reply::GroupDesc(many(r, |r| GroupDesc::decode11(v, r))?),
            Kind::Std(mp::GROUP_FEATURES) if v >= Version::V12 => Reply::GroupFeatures(GroupFeatures::decode(v, r)?),
            Kind::Std(mp::METER) if v >= Version::V13 => Reply::Meter(many(r, MeterStats::decode)?),
            Kind::Std(mp::METER_CONFIG) if v >= Version::V13 => Reply::MeterConfig(many(r, MeterConfig::decode)?),
            Kind::Std(mp::METER_FEATURES) if v >= Version::V13 => Reply::MeterFeatures(MeterFeatures::decode(r)?),
            Kind::Std(mp::QUEUE_DESC) if v >= Version::V14 => {
                Reply::QueueDesc(many(r, |r| QueueDesc::decode(v, OfPort::NONE, r))?)
            }
            Kind::Std(mp::FLOW_MONITOR) if v >= Version::V14 => Reply::FlowMonitor(updates(v, r)?),
            Kind::Onf(ONFST_FLOW_MONITOR) => Reply::FlowMonitor(updates(v, r)?),
            Kind::Nx(NXST_FLOW_MONITOR) if monitor::is_nicira(v) => Reply::FlowMonitor(updates(v, r)?),
            Kind::Nx(NXST_GROUP) if v == Version::V10 => Reply::Group(many(r, |r| group_stats(v, r))?),
            Kind::Nx(NXST_GROUP_DESC) if v == Version::V10 => Reply::GroupDesc(many(r, |r| GroupDesc::decode15(v, r))?),
            Kind::Nx(NXST_GROUP_FEATURES) if v <= Version::V11 => Reply::GroupFeatures(GroupFeatures::decode(v, r)?),
            Kind::Nx(NXST_FLOW) => Reply::NxFlow(many(r, |r| FlowStats::decode(v, r, true))?),
            Kind::Nx(NXST_AGGREGATE) => Reply::NxAggregate(AggregateStats::decode(r, Version::V10)?),
            Kind::Std(_) => return Err(OfError::BrcBadStat),
            Kind::Nx(_) | Kind::Onf(_) => return Err(OfError::BrcBadSubtype),
        };
        Ok(Multipart { more, body })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>, v: Version) -> Result<(), EncodeError> {
        put_header(out, v, self.body.kind(v)?, self.more);
        self.body.entries(v, &mut |e| out.put(e).done());
        Ok(())
    }
}

impl Reply {
    fn kind(&self, v: Version) -> Result<Kind, EncodeError> {
        let (kind, since) = match self {
            Reply::Desc(_) => (Kind::Std(mp::DESC), Version::V10),
            Reply::Flow(_) => (Kind::Std(mp::FLOW), Version::V10),
            Reply::Aggregate(_) => (Kind::Std(mp::AGGREGATE), Version::V10),
            Reply::Table(_) => (Kind::Std(mp::TABLE), Version::V10),
            Reply::Port(_) => (Kind::Std(mp::PORT), Version::V10),
            Reply::Queue(_) => (Kind::Std(mp::QUEUE), Version::V10),
            Reply::PortDesc(_) => (Kind::Std(mp::PORT_DESC), Version::V10),
            Reply::TableFeatures(_) => (Kind::Std(mp::TABLE_FEATURES), Version::V13),
            Reply::TableDesc(_) => (Kind::Std(mp::TABLE_DESC), Version::V14),
            Reply::Group(_) => (group_kind(v, mp::GROUP, NXST_GROUP), Version::V10),
            Reply::GroupDesc(_) => (group_kind(v, mp::GROUP_DESC, NXST_GROUP_DESC), Version::V10),
            Reply::GroupFeatures(_) => (group_kind(v, mp::GROUP_FEATURES, NXST_GROUP_FEATURES), Version::V10),
            Reply::Meter(_) => (Kind::Std(mp::METER), Version::V13),
            Reply::MeterConfig(_) => (Kind::Std(mp::METER_CONFIG), Version::V13),
            Reply::MeterFeatures(_) => (Kind::Std(mp::METER_FEATURES), Version::V13),
            Reply::QueueDesc(_) => (Kind::Std(mp::QUEUE_DESC), Version::V14),
            Reply::FlowMonitor(_) => (monitor_kind(v), Version::V10),
            Reply::NxFlow(_) => (Kind::Nx(NXST_FLOW), Version::V10),
            Reply::NxAggregate(_) => (Kind::Nx(NXST_AGGREGATE), Version::V10),
        };
        if v < since { Err(EncodeError::Version(v)) } else { Ok(kind) }
    }

    /// Calls `put` with the bytes of each entry in turn.
    fn entries(&self, v: Version, put: &mut dyn FnMut(&[u8])) {
        let mut buf = Vec::new();
        let mut each = |f: &mut dyn FnMut(&mut Vec<u8>)| {
            buf.clear();
            f(&mut buf);
            put(&buf);
        };
        match self {
            Reply::Desc(d) => each(&mut |o| d.encode(o)),
            Reply::Flow(l) => l.iter().for_each(|s| each(&mut |o| s.encode(o, v, false))),
            Reply::NxFlow(l) => l.iter().for_each(|s| each(&mut |o| s.encode(o, v, true))),
            Reply::Aggregate(a) => each(&mut |o| a.encode(o, v)),
            Reply::NxAggregate(a) => each(&mut |o| a.encode(o, Version::V10)),
            Reply::Table(l) => l.iter().for_each(|(s, f)| each(&mut |o| s.encode(f, o, v))),
            Reply::Port(l) => l.iter().for_each(|s| each(&mut |o| s.encode(o, v))),
            Reply::Queue(l) => l.iter().for_each(|s| each(&mut |o| s.encode(o, v))),
            Reply::PortDesc(l) => l.iter().for_each(|s| each(&mut |o| s.encode(o, v))),
            Reply::TableFeatures(l) => l.iter().for_each(|s| each(&mut |o| s.encode(o, v))),
            Reply::TableDesc(l) => l.iter().for_each(|s| each(&mut |o| s.encode(o))),
            Reply::Group(l) => l.iter().for_each(|s| each(&mut |o| s.encode(GroupStats::timed(v), o))),
            Reply::GroupDesc(l) if matches!(v, Version::V10 | Version::V15) => {
                l.iter().for_each(|s| each(&mut |o| s.encode15(o, v)));
            }
            Reply::GroupDesc(l) => l.iter().for_each(|s| each(&mut |o| s.encode11(o, v))),
            Reply::GroupFeatures(f) => each(&mut |o| f.encode(o, v)),
            Reply::Meter(l) => l.iter().for_each(|s| each(&mut |o| s.encode(o))),
            Reply::MeterConfig(l) => l.iter().for_each(|s| each(&mut |o| s.encode(o))),
            Reply::MeterFeatures(f) => each(&mut |o| f.encode(o)),
            Reply::FlowMonitor(l) => l.iter().for_each(|s| each(&mut |o| s.encode(o, v))),
            Reply::QueueDesc(l) => l.iter().for_each(|s| each(&mut |o| s.encode(o, v))),
        }
    }

    /// The reply as as many messages as it takes, all but the last with the MORE flag. An entry that
    /// is longer than a message is left out.
    pub fn encode_parts(&self, version: Version, xid: u32) -> Result<Vec<Vec<u8>>, EncodeError> {
        self.kind(version)?;
        let start = |more: bool| {
            let mut out = Vec::with_capacity(256);
            let kind = if version == Version::V10 { 17 } else { 19 };
            out.u8(version.wire()).u8(kind).u16(0).u32(xid);
            // The kind was checked above.
            if let Ok(k) = self.kind(version) {
                put_header(&mut out, version, k, more);
            }
            out
        };
        let mut parts = vec![start(false)];
        self.entries(version, &mut |e| {
            if e.len() > MAX_PART {
                return;
            }
            if parts.last().is_some_and(|p| p.len() + e.len() > MAX_PART) {
                parts.push(start(false));
            }
            if let Some(p) = parts.last_mut() {
                p.put(e);
            }
        });
        let last = parts.len() - 1;
        for (i, p) in parts.iter_mut().enumerate() {
            let len = p.len() as u16;
            p.set_u16(2, len);
            if i < last {
                p.set_u16(10, MORE);
            }
        }
        Ok(parts)
    }
}

/// Field sizes of a description.
const DESC_LEN: usize = 256;
const SERIAL_LEN: usize = 32;

impl Desc {
    fn decode(r: &mut Reader<'_>) -> Result<Desc, OfError> {
        let mut t = |n| r.bytes(n).map(text);
        Ok(Desc {
            manufacturer: t(DESC_LEN)?,
            hardware: t(DESC_LEN)?,
            software: t(DESC_LEN)?,
            serial: t(SERIAL_LEN)?,
            datapath: t(DESC_LEN)?,
        })
    }
    fn encode(&self, out: &mut Vec<u8>) {
        out.text(&self.manufacturer, DESC_LEN).text(&self.hardware, DESC_LEN).text(&self.software, DESC_LEN);
        out.text(&self.serial, SERIAL_LEN).text(&self.datapath, DESC_LEN);
    }
}
