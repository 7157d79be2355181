//! Flows: modification, removal, their statistics' values.

use super::port::bits;
use crate::action::Actions;
use fv_core::OfPort;
use fv_flow::Match;

/// `OFPTT_ALL`: any table.
pub const TABLE_ALL: u8 = 0xff;
/// Group number that stands for any or none.
pub const GROUP_ANY: u32 = 0xffff_ffff;
/// No buffered packet.
pub const NO_BUFFER: u32 = 0xffff_ffff;
/// OpenFlow's default priority.
pub const DEFAULT_PRIORITY: u16 = 0x8000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FlowModCommand {
    Add = 0,
    Modify = 1,
    ModifyStrict = 2,
    Delete = 3,
    DeleteStrict = 4,
}

impl FlowModCommand {
    pub fn is_delete(self) -> bool {
        matches!(self, FlowModCommand::Delete | FlowModCommand::DeleteStrict)
    }
    pub fn is_strict(self) -> bool {
        matches!(self, FlowModCommand::ModifyStrict | FlowModCommand::DeleteStrict)
    }
}

bits! {
    /// OFPFF_*: the first five as OpenFlow 1.3 numbers them, and OpenFlow 1.0's emergency bit.
    FlowModFlags {
        SEND_FLOW_REM = 1 << 0,
        CHECK_OVERLAP = 1 << 1,
        RESET_COUNTS = 1 << 2,
        NO_PKT_COUNTS = 1 << 3,
        NO_BYT_COUNTS = 1 << 4,
        EMERG = 1 << 8,
        /// Internal: the flow is hidden from statistics with no table given.
        HIDDEN_FIELDS = 1 << 9,
        NO_READONLY = 1 << 10,
    }
}

/// A change of the flow tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowMod {
    pub command: FlowModCommand,
    pub match_: Match,
    pub priority: u16,
    /// A modification or deletion concerns only flows whose cookie agrees on `cookie_mask`.
    pub cookie: u64,
    pub cookie_mask: u64,
    /// What added and modified flows get; `modify_cookie` says whether modified ones do.
    pub new_cookie: u64,
    pub modify_cookie: bool,
    /// [`TABLE_ALL`]: any (deletion), or the switch's choice (OpenFlow 1.0 add).
    pub table: u8,
    pub idle_timeout_s: u16,
    pub hard_timeout_s: u16,
    /// OpenFlow 1.4+: eviction spares greater values.
    pub importance: u16,
    pub buffer_id: u32,
    /// Deletion: only flows that output there; `OfPort::NONE` for any.
    pub out_port: OfPort,
    pub out_group: u32,
    pub flags: FlowModFlags,
    pub actions: Actions,
}

impl Default for FlowMod {
    fn default() -> Self {
        FlowMod {
            command: FlowModCommand::Add,
            match_: Match::default(),
            priority: DEFAULT_PRIORITY,
            cookie: 0,
            cookie_mask: 0,
            new_cookie: 0,
            modify_cookie: false,
            table: TABLE_ALL,
            idle_timeout_s: 0,
            hard_timeout_s: 0,
            importance: 0,
            buffer_id: NO_BUFFER,
            out_port: OfPort::NONE,
            out_group: GROUP_ANY,
            flags: FlowModFlags::default(),
            actions: Actions::default(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FlowRemovedReason {
    IdleTimeout = 0,
    HardTimeout = 1,
    Delete = 2,
    GroupDelete = 3,
    MeterDelete = 4,
    Eviction = 5,
}

/// A flow is gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowRemoved {
    pub match_: Match,
    pub cookie: u64,
    pub priority: u16,
    pub reason: FlowRemovedReason,
    pub table: u8,
    pub duration_s: u32,
    pub duration_ns: u32,
    pub idle_timeout_s: u16,
    pub hard_timeout_s: u16,
    pub packets: u64,
    pub bytes: u64,
}

/// Which message carries packets to this controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[repr(u32)]
pub enum PacketInFormat {
    /// The version's own.
    #[default]
    Standard = 0,
    /// NXT_PACKET_IN.
    Nxt = 1,
    /// NXT_PACKET_IN2: extensible, with continuations.
    Nxt2 = 2,
}

/// Which flows a statistics request is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowStatsRequest {
    pub table: u8,
    pub out_port: OfPort,
    pub out_group: u32,
    pub cookie: u64,
    pub cookie_mask: u64,
    pub match_: Match,
}

impl Default for FlowStatsRequest {
    fn default() -> Self {
        FlowStatsRequest {
            table: TABLE_ALL,
            out_port: OfPort::NONE,
            out_group: GROUP_ANY,
            cookie: 0,
            cookie_mask: 0,
            match_: Match::default(),
        }
    }
}

/// One flow of a statistics reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowStats {
    pub match_: Match,
    pub cookie: u64,
    pub table: u8,
    pub priority: u16,
    pub duration_s: u32,
    pub duration_ns: u32,
    pub idle_timeout_s: u16,
    pub hard_timeout_s: u16,
    /// Seconds since the last packet and since the last modification (Nicira), if known.
    pub idle_age_s: Option<u16>,
    pub hard_age_s: Option<u16>,
    pub importance: u16,
    pub flags: FlowModFlags,
    /// `u64::MAX` is unknown.
    pub packets: u64,
    pub bytes: u64,
    pub actions: Actions,
}

/// The sum over flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AggregateStats {
    pub packets: u64,
    pub bytes: u64,
    pub flows: u32,
}
