//! Links (`RTM_*LINK`, struct ifinfomsg).

use crate::wire::{Attr, Message, u32_at};

pub const RTM_NEWLINK: u16 = 16;
pub const RTM_DELLINK: u16 = 17;
pub const RTM_GETLINK: u16 = 18;
pub const RTM_SETLINK: u16 = 19;

pub(crate) const IFINFO_LEN: usize = 16;

pub(crate) const IFLA_ADDRESS: u16 = 1;
pub(crate) const IFLA_IFNAME: u16 = 3;
pub(crate) const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_OPERSTATE: u16 = 16;
pub(crate) const IFLA_LINKINFO: u16 = 18;
pub(crate) const IFLA_NET_NS_FD: u16 = 28;
const IFLA_STATS64: u16 = 23;
pub(crate) const IFLA_EXT_MASK: u16 = 29;
const IFLA_CARRIER: u16 = 33;
const IFLA_CARRIER_CHANGES: u16 = 35;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_NEW_NETNSID: u16 = 45;
const IFLA_NEW_IFINDEX: u16 = 49;
const IFLA_MIN_MTU: u16 = 50;
const IFLA_MAX_MTU: u16 = 51;
const IFLA_PERM_ADDRESS: u16 = 54;
pub(crate) const IFLA_INFO_KIND: u16 = 1;
pub(crate) const IFLA_INFO_DATA: u16 = 2;
/// `IFLA_EXT_MASK`: leave statistics out (they are most of the message).
pub(crate) const RTEXT_FILTER_SKIP_STATS: u32 = 8;

/// A network device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// `ARPHRD_*`; 1 is Ethernet.
    pub hw_type: u16,
    /// `IFF_*`.
    pub flags: u32,
    pub mtu: u32,
    /// Limits of the MTU where the driver tells (0 = not told).
    pub min_mtu: u32,
    pub max_mtu: u32,
    pub mac: Option<[u8; 6]>,
    pub permanent_mac: Option<[u8; 6]>,
    pub oper_state: OperState,
    pub carrier: bool,
    /// How often the carrier changed since the device exists.
    pub carrier_changes: u32,
    /// The bridge, bond or such that holds it.
    pub master: Option<u32>,
    /// The device below, or a veth's other end.
    pub lower: Option<u32>,
    /// The namespace id of `lower` when it is not here.
    pub lower_nsid: Option<i32>,
    /// "veth", "tun", "vlan", ...; none for hardware.
    pub kind: Option<String>,
    /// Only when asked for: dumps of the monitor leave it out.
    pub stats: Option<LinkStats>,
    /// Set on the removal that a move to another namespace causes: (namespace id, index there).
    pub moved_to: Option<(i32, u32)>,
}

impl Link {
    pub fn is_up(&self) -> bool {
        self.flags & libc::IFF_UP as u32 != 0
    }

    /// The reference's `link_state`: the device can carry packets.
    pub fn is_running(&self) -> bool {
        self.flags & libc::IFF_RUNNING as u32 != 0
    }
}

/// RFC 2863 operational state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OperState {
    #[default]
    Unknown,
    NotPresent,
    Down,
    LowerLayerDown,
    Testing,
    Dormant,
    Up,
}

impl OperState {
    fn from_wire(v: u8) -> OperState {
        use OperState::*;
        match v {
            1 => NotPresent,
            2 => Down,
            3 => LowerLayerDown,
            4 => Testing,
            5 => Dormant,
            6 => Up,
            _ => Unknown,
        }
    }

    /// As `ip link` prints it.
    pub fn text(self) -> &'static str {
        use OperState::*;
        match self {
            Unknown => "UNKNOWN",
            NotPresent => "NOTPRESENT",
            Down => "DOWN",
            LowerLayerDown => "LOWERLAYERDOWN",
            Testing => "TESTING",
            Dormant => "DORMANT",
            Up => "UP",
        }
    }
}

/// `rtnl_link_stats64`, the kernel's viewpoint (rx = what the device received).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkStats {
    pub rx_packets: u64,
    pub tx_packets: u64,
    pub rx_bytes: u64,
    pub tx_bytes: u64,
    pub rx_errors: u64,
    pub tx_errors: u64,
    pub rx_dropped: u64,
    pub tx_dropped: u64,
    pub multicast: u64,
    pub collisions: u64,
    pub rx_length_errors: u64,
    pub rx_over_errors: u64,
    pub rx_crc_errors: u64,
    pub rx_frame_errors: u64,
    pub rx_fifo_errors: u64,
    pub rx_missed_errors: u64,
    pub tx_aborted_errors: u64,
    pub tx_carrier_errors: u64,
    pub tx_fifo_errors: u64,
    pub tx_heartbeat_errors: u64,
    pub tx_window_errors: u64,
}

impl LinkStats {
    fn parse(b: &[u8]) -> LinkStats {
        let mut words = b.chunks_exact(8).map(|c| u64::from_ne_bytes(c.try_into().unwrap_or_default()));
        let mut n = || words.next().unwrap_or(0);
        // Field order of struct rtnl_link_stats64; later kernels only append.
        LinkStats {
            rx_packets: n(),
            tx_packets: n(),
            rx_bytes: n(),
            tx_bytes: n(),
            rx_errors: n(),
            tx_errors: n(),
            rx_dropped: n(),
            tx_dropped: n(),
            multicast: n(),
            collisions: n(),
            rx_length_errors: n(),
            rx_over_errors: n(),
            rx_crc_errors: n(),
            rx_frame_errors: n(),
            rx_fifo_errors: n(),
            rx_missed_errors: n(),
            tx_aborted_errors: n(),
            tx_carrier_errors: n(),
            tx_fifo_errors: n(),
            tx_heartbeat_errors: n(),
            tx_window_errors: n(),
        }
    }

    /// The same counters seen from the other end of the wire, as a tap's user sees them.
    pub fn swapped(self) -> LinkStats {
        LinkStats {
            rx_packets: self.tx_packets,
            tx_packets: self.rx_packets,
            rx_bytes: self.tx_bytes,
            tx_bytes: self.rx_bytes,
            rx_errors: self.tx_errors,
            tx_errors: self.rx_errors,
            rx_dropped: self.tx_dropped,
            tx_dropped: self.rx_dropped,
            ..self
        }
    }
}

/// The fixed part of a request about link `index`.
pub(crate) fn ifinfo(index: u32, flags: u32, change: u32) -> [u8; IFINFO_LEN] {
    let mut b = [0; IFINFO_LEN];
    b[4..8].copy_from_slice(&index.to_ne_bytes());
    b[8..12].copy_from_slice(&flags.to_ne_bytes());
    b[12..16].copy_from_slice(&change.to_ne_bytes());
    b
}

/// Reads `RTM_NEWLINK` and `RTM_DELLINK`. Messages of the bridge family tell about ports, not links.
pub fn parse(m: &Message<'_>) -> Option<Link> {
    let (h, attrs) = m.split::<IFINFO_LEN>()?;
    if h[0] != libc::AF_UNSPEC as u8 {
        return None;
    }
    let mut l =
        Link { hw_type: u16::from_ne_bytes([h[2], h[3]]), index: u32_at(h, 4), flags: u32_at(h, 8), ..Link::default() };
    let mut moved = (None, None);
    for a in attrs {
        match a.kind {
            IFLA_ADDRESS => l.mac = a.mac(),
            IFLA_PERM_ADDRESS => l.permanent_mac = a.mac(),
            IFLA_IFNAME => l.name = a.text(),
            IFLA_MTU => l.mtu = a.u32()?,
            IFLA_MIN_MTU => l.min_mtu = a.u32()?,
            IFLA_MAX_MTU => l.max_mtu = a.u32()?,
            IFLA_LINK => l.lower = a.u32(),
            IFLA_LINK_NETNSID => l.lower_nsid = a.i32(),
            IFLA_MASTER => l.master = a.u32(),
            IFLA_OPERSTATE => l.oper_state = OperState::from_wire(a.u8()?),
            IFLA_CARRIER => l.carrier = a.u8()? != 0,
            IFLA_CARRIER_CHANGES => l.carrier_changes = a.u32()?,
            IFLA_LINKINFO => l.kind = link_kind(&a),
            IFLA_STATS64 => l.stats = Some(LinkStats::parse(a.data)),
            IFLA_NEW_NETNSID => moved.0 = a.i32(),
            IFLA_NEW_IFINDEX => moved.1 = a.u32(),
            _ => {}
        }
    }
    l.moved_to = moved.0.zip(moved.1);
    (l.index != 0 && !l.name.is_empty()).then_some(l)
}

fn link_kind(info: &Attr<'_>) -> Option<String> {
    info.nested().find(|a| a.kind == IFLA_INFO_KIND).map(|a| a.text())
}
