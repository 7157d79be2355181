//! The traits of a device and its queues, and the values they report.

use std::any::Any;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use fv_packet::Batch;

use crate::enabled::EnabledQueues;
use crate::registry::Options;

/// Who calls [`RxQueue::recv`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Polling {
    /// Poll workers, all the time.
    Poll,
    /// Event workers, when [`RxQueue::fd`] is readable.
    Event,
    /// The control thread, once a turn.
    Main,
}

/// One port's device. Methods may be called from any thread; queues belong to one thread each.
pub trait Device: Any + Send + Sync {
    fn name(&self) -> &str;
    /// The type as the database writes it: "system", "tap", "internal", "dummy", ...
    fn kind(&self) -> &'static str;
    fn polling(&self) -> Polling;
    fn n_rxq(&self) -> usize;
    fn n_txq(&self) -> usize;
    fn numa_id(&self) -> Option<i32>;

    /// Opens receive queue `q` < [`Device::n_rxq`].
    fn open_rxq(&self, q: usize) -> Result<Box<dyn RxQueue>, DeviceError>;
    /// Opens transmit queue `q` < [`Device::n_txq`].
    fn open_txq(&self, q: usize) -> Result<Box<dyn TxQueue>, DeviceError>;

    /// Which receive queues are worth polling; None where all are, always. The same object at each call. The number
    /// of queues may change by itself too, which [`Device::change_seq`] shows.
    fn enabled_rxqs(&self) -> Option<Arc<EnabledQueues>> {
        None
    }

    fn status(&self) -> DeviceStatus;
    fn stats(&self) -> PortStats;
    /// Moves whenever what [`Device::status`] says may have changed.
    fn change_seq(&self) -> u64;
    /// What a transmit queue takes as it is; the rest is done in software before.
    fn offloads(&self) -> TxOffloads;

    fn set_mac(&self, mac: [u8; 6]) -> Result<(), DeviceError>;
    fn set_mtu(&self, mtu: u32) -> Result<(), DeviceError>;
    fn set_admin_up(&self, up: bool) -> Result<(), DeviceError>;
    /// Takes the whole of the row's options; an error changes nothing.
    fn set_options(&self, options: &Options) -> Result<Changed, DeviceError>;

    /// Gives the device up for good: one that was made for this port is removed from the host.
    fn remove(&self);
}

/// One receive queue.
pub trait RxQueue: Send {
    /// Appends what is there, as far as the batch has room, and says how many packets.
    fn recv(&mut self, out: &mut Batch) -> Result<usize, DeviceError>;

    /// Readable when `recv` has something to deliver; for [`Polling::Event`].
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Packets that wait, where that is cheap to know.
    fn len_hint(&self) -> Option<u32> {
        None
    }
}

/// One transmit queue.
pub trait TxQueue: Send {
    /// Sends the packets and empties the batch; never blocks.
    fn send(&mut self, batch: &mut Batch) -> Sent;

    /// Pushes out what `send` may have kept back.
    fn flush(&mut self) {}
}

/// What became of a batch: every packet counts once, as sent or as dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    pub packets: u32,
    /// Bytes of the packets sent.
    pub bytes: u64,
    pub dropped: u32,
}

/// What new options ask of the one who holds the device's queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changed {
    /// Nothing that anybody needs to act on.
    Nothing,
    /// Queues go on, but [`Device::status`] differs.
    Status,
    /// Queue counts or what is behind the queues differ: close and open them again.
    Queues,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Duplex {
    Half,
    Full,
}

/// What a device says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceStatus {
    pub mac: Option<[u8; 6]>,
    pub mtu: Option<u32>,
    pub admin_up: bool,
    pub link_up: bool,
    pub ifindex: Option<u32>,
    pub speed_bps: Option<u64>,
    pub duplex: Option<Duplex>,
    /// Times that the link went up or down.
    pub link_resets: u64,
    /// What listings print in brackets behind the type: "n_rxq" -> "1".
    pub config: Vec<(String, String)>,
    /// The row's `status` column.
    pub driver: BTreeMap<String, String>,
}

impl DeviceStatus {
    /// The configuration as listings print it: `n_rxq=1, n_txq=1, numa_id=0`.
    pub fn config_text(&self) -> String {
        let words: Vec<String> = self.config.iter().map(|(k, v)| format!("{k}={v}")).collect();
        words.join(", ")
    }
}

/// Counters of a port; `None` where the device does not know.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortStats {
    pub rx_packets: Option<u64>,
    pub tx_packets: Option<u64>,
    pub rx_bytes: Option<u64>,
    pub tx_bytes: Option<u64>,
    pub rx_errors: Option<u64>,
    pub tx_errors: Option<u64>,
    pub rx_dropped: Option<u64>,
    pub tx_dropped: Option<u64>,
    pub multicast: Option<u64>,
    pub collisions: Option<u64>,
    pub rx_length_errors: Option<u64>,
    pub rx_over_errors: Option<u64>,
    pub rx_crc_errors: Option<u64>,
    pub rx_frame_errors: Option<u64>,
    pub rx_fifo_errors: Option<u64>,
    pub rx_missed_errors: Option<u64>,
    pub tx_aborted_errors: Option<u64>,
    pub tx_carrier_errors: Option<u64>,
    pub tx_fifo_errors: Option<u64>,
    pub tx_heartbeat_errors: Option<u64>,
    pub tx_window_errors: Option<u64>,
    /// Counters of this kind of device alone, by name.
    pub custom: Vec<(String, u64)>,
}

/// Work that a device takes over on transmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TxOffloads {
    pub ip_csum: bool,
    /// TCP and UDP checksums.
    pub l4_csum: bool,
    pub sctp_csum: bool,
    pub tso4: bool,
    pub tso6: bool,
    /// TCP segmentation with CWR on the first segment alone.
    pub tso_ecn: bool,
    /// UDP cut into IP fragments.
    pub ufo: bool,
    /// UDP cut into datagrams.
    pub uso: bool,
}

impl TxOffloads {
    /// Takes anything: for devices that hand packets over in memory.
    pub const ALL: TxOffloads = TxOffloads {
        ip_csum: true,
        l4_csum: true,
        sctp_csum: true,
        tso4: true,
        tso6: true,
        tso_ecn: true,
        ufo: true,
        uso: true,
    };
}

#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    #[error("unknown device type \"{0}\"")]
    UnknownKind(String),
    /// The kernel's words, as the port's `error` quotes them.
    #[error("No such device")]
    NoSuchDevice,
    #[error("{0}: bad device name")]
    BadName(String),
    #[error("device {0} already exists")]
    Exists(String),
    /// The option, the value and what is wrong with it.
    #[error("{option}: {reason} (\"{value}\")")]
    BadOption { option: String, value: String, reason: String },
    #[error("no queue {0}")]
    NoQueue(usize),
    #[error("operation not supported")]
    Unsupported,
    #[error("device is gone")]
    Gone,
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
}

impl DeviceError {
    pub fn io(what: impl Into<String>, source: impl Into<std::io::Error>) -> DeviceError {
        DeviceError::Io { what: what.into(), source: source.into() }
    }

    pub fn bad_option(option: &str, value: &str, reason: impl Into<String>) -> DeviceError {
        DeviceError::BadOption { option: option.into(), value: value.into(), reason: reason.into() }
    }
}
