//! Messages as values, and their way from and to bytes.
//!
//! A value says the same in every version; what a version cannot say is left out or is an error when
//! it is encoded. Multipart requests and replies are values too: [`Request`] and [`Reply`].

pub mod bundle;
pub mod codec;
pub mod continuation;
pub mod flow;
mod flow_codec;
pub mod group;
mod group_codec;
mod lengths;
pub mod meter;
pub mod monitor;
mod oxs;
pub mod packet;
mod packet_codec;
pub mod port;
pub mod queue;
pub mod session;
pub mod stats;
pub mod table;
mod table_codec;
pub mod tlv;

pub use bundle::{BundleAdd, BundleControl, BundleControlKind};
pub use codec::{DecodeCx, EncodeError, HEADER_LEN, RawHeader, RequestPart};
pub use flow::{FlowMod, FlowModCommand, FlowModFlags, FlowRemoved, FlowRemovedReason, PacketInFormat};
pub use group::{Bucket, GroupCommand, GroupDesc, GroupFeatures, GroupMod, GroupProps, GroupStats, GroupType};
pub use meter::{Band, BandKind, MeterCommand, MeterConfig, MeterFeatures, MeterFlags, MeterMod, MeterStats};
pub use monitor::{FlowUpdate, FlowUpdateFull, MonitorCommand, MonitorEvent, MonitorFlags, MonitorRequest};
pub use packet::{PacketIn, PacketOut, Resume};
pub use port::{Port, PortMod, PortReason, PortStatus};
pub use queue::QueueDesc;
pub use session::{
    AsyncConfig, Capabilities, Config, ErrorMsg, Features, FragHandling, Hello, Role, RoleMsg, RoleStatus,
};
pub use stats::{Multipart, Reply, Request};
pub use table::{TableDesc, TableFeatures, TableMod, TableReason, TableStatus};
pub use tlv::{TlvTableMod, TlvTableReply};

use crate::version::Version;
use fv_core::OfPort;

/// A whole message.
#[derive(Clone, PartialEq, Debug)]
pub struct Message {
    pub version: Version,
    pub xid: u32,
    pub body: Body,
}

/// What a message says.
#[derive(Clone, PartialEq, Debug)]
pub enum Body {
    Hello(Hello),
    Error(ErrorMsg),
    EchoRequest(Vec<u8>),
    EchoReply(Vec<u8>),
    FeaturesRequest,
    FeaturesReply(Box<Features>),
    GetConfigRequest,
    GetConfigReply(Config),
    SetConfig(Config),
    BarrierRequest,
    BarrierReply,

    PacketIn(Box<PacketIn>),
    /// In one of Nicira's formats.
    NxPacketIn(PacketInFormat, Box<PacketIn>),
    PacketOut(Box<PacketOut>),
    /// A continuation comes back.
    Resume(Box<Resume>),
    FlowMod(Box<FlowMod>),
    /// With an NXM match (OpenFlow 1.0 and its extension).
    NxFlowMod(Box<FlowMod>),
    FlowRemoved(Box<FlowRemoved>),
    NxFlowRemoved(Box<FlowRemoved>),
    PortStatus(Box<PortStatus>),
    PortMod(PortMod),
    TableMod(TableMod),
    /// OpenFlow 1.4+.
    TableStatus(TableStatus),
    /// What another connection changed: a group-mod or meter-mod (OpenFlow 1.3+).
    RequestForward(Box<Message>),
    /// In OpenFlow 1.0, Nicira's form.
    GroupMod(Box<GroupMod>),
    /// OpenFlow 1.3+.
    MeterMod(MeterMod),
    /// Before OpenFlow 1.4; later it is a multipart request.
    QueueConfigRequest(OfPort),
    QueueConfigReply(OfPort, Vec<QueueDesc>),

    /// One part of a request; see [`Multipart::more`].
    MultipartRequest(Multipart<Request>),
    MultipartReply(Multipart<Reply>),
    /// The flow monitor with this number ends (before OpenFlow 1.4).
    MonitorCancel(u32),
    /// See [`FlowUpdate::Paused`] (before OpenFlow 1.4).
    MonitorPaused,
    MonitorResumed,

    RoleRequest(RoleMsg),
    RoleReply(RoleMsg),
    RoleStatus(RoleStatus),
    GetAsyncRequest,
    GetAsyncReply(AsyncConfig),
    SetAsync(AsyncConfig),

    BundleControl(BundleControl),
    BundleAdd(Box<BundleAdd>),

    /// Nicira: 0 is OpenFlow 1.0's match, 2 is NXM.
    SetFlowFormat(u32),
    /// Nicira: the high byte of a flow-mod's command is a table number.
    FlowModTableId(bool),
    SetPacketInFormat(PacketInFormat),
    SetControllerId(u16),
    /// Nicira: flow-mods' idle ages are asked for (a hint that nothing follows from).
    FlowAge,
    /// Nicira: forget the connections of a zone.
    CtFlushZone(u16),
    TlvTableMod(TlvTableMod),
    TlvTableRequest,
    TlvTableReply(TlvTableReply),
}

impl Message {
    pub fn new(version: Version, xid: u32, body: Body) -> Message {
        Message { version, xid, body }
    }
}

impl Body {
    /// The message's name in the protocol, for logs.
    pub const fn name(&self) -> &'static str {
        match self {
            Body::Hello(_) => "OFPT_HELLO",
            Body::Error(_) => "OFPT_ERROR",
            Body::EchoRequest(_) => "OFPT_ECHO_REQUEST",
            Body::EchoReply(_) => "OFPT_ECHO_REPLY",
            Body::FeaturesRequest => "OFPT_FEATURES_REQUEST",
            Body::FeaturesReply(_) => "OFPT_FEATURES_REPLY",
            Body::GetConfigRequest => "OFPT_GET_CONFIG_REQUEST",
            Body::GetConfigReply(_) => "OFPT_GET_CONFIG_REPLY",
            Body::SetConfig(_) => "OFPT_SET_CONFIG",
            Body::BarrierRequest => "OFPT_BARRIER_REQUEST",
            Body::BarrierReply => "OFPT_BARRIER_REPLY",
            Body::PacketIn(_) => "OFPT_PACKET_IN",
            Body::NxPacketIn(PacketInFormat::Nxt2, _) => "NXT_PACKET_IN2",
            Body::NxPacketIn(..) => "NXT_PACKET_IN",
            Body::PacketOut(_) => "OFPT_PACKET_OUT",
            Body::Resume(_) => "NXT_RESUME",
            Body::FlowMod(_) => "OFPT_FLOW_MOD",
            Body::NxFlowMod(_) => "NXT_FLOW_MOD",
            Body::FlowRemoved(_) => "OFPT_FLOW_REMOVED",
            Body::NxFlowRemoved(_) => "NXT_FLOW_REMOVED",
            Body::PortStatus(_) => "OFPT_PORT_STATUS",
            Body::PortMod(_) => "OFPT_PORT_MOD",
            Body::TableMod(_) => "OFPT_TABLE_MOD",
            Body::TableStatus(_) => "OFPT_TABLE_STATUS",
            Body::RequestForward(_) => "OFPT_REQUESTFORWARD",
            Body::GroupMod(_) => "OFPT_GROUP_MOD",
            Body::MeterMod(_) => "OFPT_METER_MOD",
            Body::QueueConfigRequest(_) => "OFPT_QUEUE_GET_CONFIG_REQUEST",
            Body::QueueConfigReply(..) => "OFPT_QUEUE_GET_CONFIG_REPLY",
            Body::MultipartRequest(m) => m.body.name(),
            Body::MultipartReply(m) => m.body.name(),
            Body::MonitorCancel(_) => "NXT_FLOW_MONITOR_CANCEL",
            Body::MonitorPaused => "NXT_FLOW_MONITOR_PAUSED",
            Body::MonitorResumed => "NXT_FLOW_MONITOR_RESUMED",
            Body::RoleRequest(_) => "OFPT_ROLE_REQUEST",
            Body::RoleReply(_) => "OFPT_ROLE_REPLY",
            Body::RoleStatus(_) => "OFPT_ROLE_STATUS",
            Body::GetAsyncRequest => "OFPT_GET_ASYNC_REQUEST",
            Body::GetAsyncReply(_) => "OFPT_GET_ASYNC_REPLY",
            Body::SetAsync(_) => "OFPT_SET_ASYNC",
            Body::BundleControl(_) => "OFPT_BUNDLE_CONTROL",
            Body::BundleAdd(_) => "OFPT_BUNDLE_ADD_MESSAGE",
            Body::SetFlowFormat(_) => "NXT_SET_FLOW_FORMAT",
            Body::FlowModTableId(_) => "NXT_FLOW_MOD_TABLE_ID",
            Body::SetPacketInFormat(_) => "NXT_SET_PACKET_IN_FORMAT",
            Body::SetControllerId(_) => "NXT_SET_CONTROLLER_ID",
            Body::FlowAge => "NXT_FLOW_AGE",
            Body::CtFlushZone(_) => "NXT_CT_FLUSH_ZONE",
            Body::TlvTableMod(_) => "NXT_TLV_TABLE_MOD",
            Body::TlvTableRequest => "NXT_TLV_TABLE_REQUEST",
            Body::TlvTableReply(_) => "NXT_TLV_TABLE_REPLY",
        }
    }
}

impl Request {
    pub const fn name(&self) -> &'static str {
        match self {
            Request::Desc => "OFPST_DESC",
            Request::Flow(_) => "OFPST_FLOW",
            Request::Aggregate(_) => "OFPST_AGGREGATE",
            Request::Table => "OFPST_TABLE",
            Request::Port(_) => "OFPST_PORT",
            Request::Queue { .. } => "OFPST_QUEUE",
            Request::PortDesc(_) => "OFPST_PORT_DESC",
            Request::TableFeatures(_) => "OFPST_TABLE_FEATURES",
            Request::TableDesc => "OFPST_TABLE_DESC",
            Request::Group(_) => "OFPST_GROUP",
            Request::GroupDesc(_) => "OFPST_GROUP_DESC",
            Request::GroupFeatures => "OFPST_GROUP_FEATURES",
            Request::Meter(_) => "OFPST_METER",
            Request::MeterConfig(_) => "OFPST_METER_CONFIG",
            Request::MeterFeatures => "OFPST_METER_FEATURES",
            Request::QueueDesc { .. } => "OFPST_QUEUE_DESC",
            Request::FlowMonitor(_) => "OFPST_FLOW_MONITOR",
            Request::NxFlow(_) => "NXST_FLOW",
            Request::NxAggregate(_) => "NXST_AGGREGATE",
            Request::Ipfix => "NXST_IPFIX",
        }
    }
}

impl Reply {
    pub const fn name(&self) -> &'static str {
        match self {
            Reply::Desc(_) => "OFPST_DESC",
            Reply::Flow(_) => "OFPST_FLOW",
            Reply::Aggregate(_) => "OFPST_AGGREGATE",
            Reply::Table(_) => "OFPST_TABLE",
            Reply::Port(_) => "OFPST_PORT",
            Reply::Queue(_) => "OFPST_QUEUE",
            Reply::PortDesc(_) => "OFPST_PORT_DESC",
            Reply::TableFeatures(_) => "OFPST_TABLE_FEATURES",
            Reply::TableDesc(_) => "OFPST_TABLE_DESC",
            Reply::Group(_) => "OFPST_GROUP",
            Reply::GroupDesc(_) => "OFPST_GROUP_DESC",
            Reply::GroupFeatures(_) => "OFPST_GROUP_FEATURES",
            Reply::Meter(_) => "OFPST_METER",
            Reply::MeterConfig(_) => "OFPST_METER_CONFIG",
            Reply::MeterFeatures(_) => "OFPST_METER_FEATURES",
            Reply::QueueDesc(_) => "OFPST_QUEUE_DESC",
            Reply::FlowMonitor(_) => "OFPST_FLOW_MONITOR",
            Reply::NxFlow(_) => "NXST_FLOW",
            Reply::NxAggregate(_) => "NXST_AGGREGATE",
        }
    }
}
