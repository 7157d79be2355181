//! Messages as values, and their way from and to bytes.
//!
//! A value says the same in every version; what a version cannot say is left out or is an error when
//! it is encoded. Multipart requests and replies are values too: [`Request`] and [`Reply`].

pub mod bundle;
pub mod flow;
pub mod packet;
pub mod port;
pub mod session;
pub mod stats;
pub mod table;

pub use bundle::{BundleAdd, BundleControl, BundleControlKind};
pub use flow::{FlowMod, FlowModCommand, FlowModFlags, FlowRemoved, FlowRemovedReason, PacketInFormat};
pub use packet::{PacketIn, PacketOut, Resume};
pub use port::{Port, PortMod, PortReason, PortStatus};
pub use session::{
    AsyncConfig, Capabilities, Config, ErrorMsg, Features, FragHandling, Hello, Role, RoleMsg, RoleStatus,
};
pub use stats::{Multipart, Reply, Request};
pub use table::{TableDesc, TableFeatures, TableMod};

use crate::version::Version;

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
    PacketOut(Box<PacketOut>),
    /// A continuation comes back.
    Resume(Box<Resume>),
    FlowMod(Box<FlowMod>),
    FlowRemoved(Box<FlowRemoved>),
    PortStatus(Box<PortStatus>),
    PortMod(PortMod),
    TableMod(TableMod),

    /// One part of a request; see [`Multipart::more`].
    MultipartRequest(Multipart<Request>),
    MultipartReply(Multipart<Reply>),

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
}

impl Message {
    pub fn new(version: Version, xid: u32, body: Body) -> Message {
        Message { version, xid, body }
    }
}
