//! Ports: their description, status messages, modification, statistics.

use fv_core::OfPort;

/// Description of one port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Port {
    pub port_no: OfPort,
    pub hw_addr: [u8; 6],
    /// At most 15 bytes in OpenFlow, longer ones are cut.
    pub name: String,
    pub config: PortConfig,
    pub state: PortState,
    pub curr: PortFeatures,
    pub advertised: PortFeatures,
    pub supported: PortFeatures,
    pub peer: PortFeatures,
    pub curr_speed_kbps: u32,
    pub max_speed_kbps: u32,
}

macro_rules! bits {
    ($(#[$m:meta])* $name:ident { $($(#[$fm:meta])* $c:ident = $v:expr),* $(,)? }) => {
        $(#[$m])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub struct $name(pub u32);
        impl $name {
            $($(#[$fm])* pub const $c: $name = $name($v);)*
            pub const fn has(self, o: $name) -> bool {
                self.0 & o.0 == o.0
            }
            pub const fn any(self, o: $name) -> bool {
                self.0 & o.0 != 0
            }
            #[must_use]
            pub const fn with(self, o: $name) -> $name {
                $name(self.0 | o.0)
            }
            #[must_use]
            pub const fn without(self, o: $name) -> $name {
                $name(self.0 & !o.0)
            }
            #[must_use]
            pub const fn set(self, o: $name, on: bool) -> $name {
                if on { self.with(o) } else { self.without(o) }
            }
        }
    };
}
pub(crate) use bits;

bits! {
    /// OFPPC_* (the numbers agree in all versions; some versions lack some).
    PortConfig {
        PORT_DOWN = 1 << 0,
        NO_STP = 1 << 1,
        NO_RECV = 1 << 2,
        NO_RECV_STP = 1 << 3,
        NO_FLOOD = 1 << 4,
        NO_FWD = 1 << 5,
        NO_PACKET_IN = 1 << 6,
    }
}

bits! {
    /// OFPPS_* as OpenFlow 1.1 numbers them, and OpenFlow 1.0's STP state in bits 8 and 9.
    PortState {
        LINK_DOWN = 1 << 0,
        BLOCKED = 1 << 1,
        LIVE = 1 << 2,
        STP_LISTEN = 0 << 8,
        STP_LEARN = 1 << 8,
        STP_FORWARD = 2 << 8,
        STP_BLOCK = 3 << 8,
        STP_MASK = 3 << 8,
    }
}

bits! {
    /// Speeds and modes of a link, in the numbers of OpenFlow 1.1+ (1.0 lacks 40 Gbps to OTHER).
    PortFeatures {
        M10_HD = 1 << 0,
        M10_FD = 1 << 1,
        M100_HD = 1 << 2,
        M100_FD = 1 << 3,
        G1_HD = 1 << 4,
        G1_FD = 1 << 5,
        G10_FD = 1 << 6,
        G40_FD = 1 << 7,
        G100_FD = 1 << 8,
        T1_FD = 1 << 9,
        OTHER = 1 << 10,
        COPPER = 1 << 11,
        FIBER = 1 << 12,
        AUTONEG = 1 << 13,
        PAUSE = 1 << 14,
        PAUSE_ASYM = 1 << 15,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PortReason {
    Add = 0,
    Delete = 1,
    Modify = 2,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortStatus {
    pub reason: PortReason,
    pub desc: Port,
}

/// Changes the bits of `mask` in a port's configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortMod {
    pub port_no: OfPort,
    /// Must be the port's address; 1.4+ allow zero for "do not check".
    pub hw_addr: [u8; 6],
    pub config: PortConfig,
    pub mask: PortConfig,
    /// Zero bits leave the advertised features alone.
    pub advertise: PortFeatures,
}

/// Counters of one port; what is not known is `u64::MAX`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortStats {
    pub port_no: OfPort,
    pub rx_packets: u64,
    pub tx_packets: u64,
    pub rx_bytes: u64,
    pub tx_bytes: u64,
    pub rx_dropped: u64,
    pub tx_dropped: u64,
    pub rx_errors: u64,
    pub tx_errors: u64,
    pub rx_frame_err: u64,
    pub rx_over_err: u64,
    pub rx_crc_err: u64,
    pub collisions: u64,
    /// OpenFlow 1.3+.
    pub duration_ns: Option<u64>,
}

/// Counters of one queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueStats {
    pub port_no: OfPort,
    pub queue: u32,
    pub tx_bytes: u64,
    pub tx_packets: u64,
    pub tx_errors: u64,
    pub duration_ns: Option<u64>,
}

impl PortStats {
    /// Nothing is known.
    pub fn unknown(port_no: OfPort) -> PortStats {
        let u = u64::MAX;
        PortStats {
            port_no,
            rx_packets: u,
            tx_packets: u,
            rx_bytes: u,
            tx_bytes: u,
            rx_dropped: u,
            tx_dropped: u,
            rx_errors: u,
            tx_errors: u,
            rx_frame_err: u,
            rx_over_err: u,
            rx_crc_err: u,
            collisions: u,
            duration_ns: None,
        }
    }
}
