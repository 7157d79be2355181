//! Packets to and from controllers.

pub use super::continuation::Continuation;
use super::flow::NO_BUFFER;
use crate::action::Actions;
pub use crate::action::PacketInReason;
use fv_core::OfPort;
use fv_flow::Match;

/// A packet for the controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacketIn {
    /// The packet's bytes, maybe only the first ones.
    pub packet: Vec<u8>,
    /// The whole packet's length.
    pub total_len: u32,
    pub buffer_id: u32,
    pub reason: PacketInReason,
    pub table: u8,
    /// `u64::MAX` is unknown.
    pub cookie: u64,
    /// Metadata: in_port, registers, tunnel ...
    pub metadata: Match,
    pub userdata: Vec<u8>,
    /// NXT_PACKET_IN2: what [`Resume`] goes on with.
    pub continuation: Option<Box<Continuation>>,
}

impl Default for PacketIn {
    fn default() -> Self {
        PacketIn {
            packet: Vec::new(),
            total_len: 0,
            buffer_id: NO_BUFFER,
            reason: PacketInReason::NoMatch,
            table: 0,
            cookie: u64::MAX,
            metadata: Match::default(),
            userdata: Vec::new(),
            continuation: None,
        }
    }
}

/// A packet that the controller sends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacketOut {
    pub packet: Vec<u8>,
    pub buffer_id: u32,
    /// In-port and, from OpenFlow 1.5 on, other metadata.
    pub metadata: Match,
    pub actions: Actions,
}

impl PacketOut {
    pub fn in_port(&self) -> OfPort {
        OfPort(self.metadata.key.base.in_port)
    }
}

/// A paused packet goes on: what came in the packet-in comes back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resume {
    pub packet_in: PacketIn,
}
