//! What is offered to front ends.

/// Feature bits beside those of the rings (virtio 1.2, 5.1.3; vhost-user, "Feature bits").
pub mod feature {
    pub const MTU: u64 = 1 << 3;
    /// Of legacy drivers: both kinds of segmentation offload.
    pub const GSO: u64 = 1 << 6;
    pub const CTRL_VQ: u64 = 1 << 17;
    pub const CTRL_RX: u64 = 1 << 18;
    pub const GUEST_ANNOUNCE: u64 = 1 << 21;
    pub const MQ: u64 = 1 << 22;
    pub const LOG_ALL: u64 = 1 << 26;
    pub const ANY_LAYOUT: u64 = 1 << 27;
    /// The front end may negotiate protocol features; rings then begin disabled.
    pub const PROTOCOL_FEATURES: u64 = 1 << 30;
    pub const RING_PACKED: u64 = 1 << 34;
}

/// Protocol feature bits.
pub mod protocol {
    pub const MQ: u64 = 1 << 0;
    pub const LOG_SHMFD: u64 = 1 << 1;
    pub const RARP: u64 = 1 << 2;
    pub const REPLY_ACK: u64 = 1 << 3;
    pub const NET_MTU: u64 = 1 << 4;
    pub const BACKEND_REQ: u64 = 1 << 5;
    pub const CONFIG: u64 = 1 << 9;
    pub const INFLIGHT_SHMFD: u64 = 1 << 12;
    pub const RESET_DEVICE: u64 = 1 << 13;
    pub const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
    pub const STATUS: u64 = 1 << 16;
}

pub const FEATURES: u64 = crate::ring::Features::RINGS.0
    | feature::MTU
    | feature::GSO
    | feature::CTRL_VQ
    | feature::CTRL_RX
    | feature::GUEST_ANNOUNCE
    | feature::MQ
    | feature::ANY_LAYOUT
    | feature::PROTOCOL_FEATURES;

pub const PROTOCOL_FEATURES: u64 = protocol::MQ
    | protocol::LOG_SHMFD
    | protocol::RARP
    | protocol::REPLY_ACK
    | protocol::NET_MTU
    | protocol::BACKEND_REQ
    | protocol::CONFIG
    | protocol::INFLIGHT_SHMFD
    | protocol::RESET_DEVICE
    | protocol::CONFIGURE_MEM_SLOTS
    | protocol::STATUS;
