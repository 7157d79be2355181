//! What a connection is about: hello, errors, features, configuration, roles, asynchronous messages.

use super::port::Port;
use crate::error::OfError;
use crate::version::VersionSet;

/// `versions` is what the sender speaks: from the bitmap, else all up to the header's version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    pub versions: VersionSet,
}

/// An error and the start of the message that caused it, or a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ErrorMsg {
    pub error: ErrorKind,
    /// The offending message's first bytes (at least 64 if it has them).
    pub data: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    Known(OfError),
    /// Numbers that the table lacks, as they came.
    Unknown(crate::error::ErrorCode),
}

/// Features reply.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Features {
    pub datapath_id: u64,
    pub n_buffers: u32,
    pub n_tables: u8,
    /// OpenFlow 1.3+; 0 is the main connection.
    pub auxiliary_id: u8,
    pub capabilities: Capabilities,
    /// OpenFlow 1.0: which actions exist, as bits.
    pub actions: u32,
    /// OpenFlow 1.0 to 1.2: the ports; later versions ask for them.
    pub ports: Vec<Port>,
}

/// Capability bits as OpenFlow 1.3 numbers them; the bits that older versions name differently have
/// their own constants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Capabilities(pub u32);

impl Capabilities {
    pub const FLOW_STATS: u32 = 1 << 0;
    pub const TABLE_STATS: u32 = 1 << 1;
    pub const PORT_STATS: u32 = 1 << 2;
    /// OpenFlow 1.1+.
    pub const GROUP_STATS: u32 = 1 << 3;
    pub const IP_REASM: u32 = 1 << 5;
    pub const QUEUE_STATS: u32 = 1 << 6;
    /// OpenFlow 1.0 and 1.1.
    pub const ARP_MATCH_IP: u32 = 1 << 7;
    /// OpenFlow 1.2+.
    pub const PORT_BLOCKED: u32 = 1 << 8;
    /// OpenFlow 1.4+.
    pub const BUNDLES: u32 = 1 << 9;
    pub const FLOW_MONITORING: u32 = 1 << 10;
    /// OpenFlow 1.0's bit 3, kept apart from GROUP_STATS.
    pub const STP: u32 = 1 << 31;
}

/// Switch configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    pub frags: FragHandling,
    /// OpenFlow 1.1 and 1.2: packets with an invalid TTL go to the controller. None: the version lacks the bit.
    pub invalid_ttl_to_controller: Option<bool>,
    pub miss_send_len: u16,
}

impl Default for Config {
    fn default() -> Self {
        Config { frags: FragHandling::Normal, invalid_ttl_to_controller: None, miss_send_len: 128 }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum FragHandling {
    #[default]
    Normal = 0,
    Drop = 1,
    Reassemble = 2,
    /// Nicira: match on `ip_frag` and on the first fragment's ports.
    NxMatch = 3,
}

/// A controller's role, in OpenFlow 1.2+ numbers (Nicira's are one less).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum Role {
    NoChange = 0,
    #[default]
    Equal = 1,
    Primary = 2,
    Secondary = 3,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoleMsg {
    pub role: Role,
    pub generation_id: Option<u64>,
}

/// OpenFlow 1.4+ (and its extension in 1.3): the role was changed by another's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoleStatus {
    pub role: Role,
    /// 0: another asked for primary; 1: configuration; 2: experimenter.
    pub reason: u8,
    pub generation_id: Option<u64>,
}

/// Which reasons of each kind of message a controller wants: `[0]` as primary or equal, `[1]` as
/// secondary; bit N is reason N.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AsyncConfig {
    pub packet_in: [u32; 2],
    pub flow_removed: [u32; 2],
    pub port_status: [u32; 2],
    pub role_status: [u32; 2],
    pub table_status: [u32; 2],
    pub requestforward: [u32; 2],
    /// Bit N: kind N above is given (a 1.4+ message may give only some); all for other forms.
    pub given: u8,
}
