//! Interface type `system`: a kernel device through a packet socket.
//!
//! Frames are exchanged with their offload state (vnet header), so that checksums and segmentation
//! that the sender left undone travel to the receiver undone: the kernel finishes them in software
//! where the device below cannot, whatever `ethtool` says of its features.
//!
//! Bursts by recvmmsg and sendmmsg. The receive side has the frame in a packet buffer after one copy
//! and the send side has it in the kernel after another, as with packet rings, which would hold
//! frames in memory of their own from which they had to be copied again. `examples/forward.rs`
//! measures the path.
//!
//! The device is found by name. [`Device::change_seq`] and [`Device::status`] notice that it is gone,
//! or that another one took its name, and bind the same socket anew: queues and what waits on their
//! descriptors go on.

pub(crate) mod rx;
pub(crate) mod sys;
mod tx;
pub(crate) mod vnet;
pub(crate) mod watch;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::device::{Changed, Device, DeviceError, DeviceStatus, Polling, PortStats, RxQueue, TxOffloads, TxQueue};
use crate::registry::{Env, Options};
use sys::PacketSocket;
use watch::Watch;

/// Bytes of frames, with the kernel's overhead, that wait for the switch.
const RECEIVE_BUFFER: i32 = 8 << 20;
/// Bytes of frames that wait in the device's queue.
const SEND_BUFFER: i32 = 8 << 20;
/// Transmit queues differ in their vectors only: one socket serves all of them, so workers need not
/// take turns.
const TX_QUEUES: usize = 16;

/// Frames thrown away when a port's device becomes another one: more than wait at any time.
const MAX_DISCARD: usize = 65_536;

/// What the kernel finishes for packet sockets and taps. It computes neither IPv4 header checksums
/// nor, for devices that cannot, SCTP's.
pub(crate) fn kernel_offloads() -> TxOffloads {
    TxOffloads {
        ip_csum: false,
        l4_csum: true,
        sctp_csum: false,
        tso4: true,
        tso6: true,
        tso_ecn: true,
        ufo: true,
        uso: kernel_at_least(6, 2),
    }
}

/// `VIRTIO_NET_HDR_GSO_UDP_L4` came with Linux 6.2.
fn kernel_at_least(major: u32, minor: u32) -> bool {
    let uname = rustix::system::uname();
    let text = uname.release().to_string_lossy();
    let mut parts = text.split(['.', '-']).map(|p| p.parse::<u32>().unwrap_or(0));
    let have = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    have >= (major, minor)
}

/// Counters of a port that the kernel does not keep.
#[derive(Default)]
pub(crate) struct Counts {
    /// Frames that the kernel refused to take.
    pub tx_dropped: AtomicU64,
    /// Frames received that could not be used.
    pub rx_errors: AtomicU64,
    /// Frames lost because the switch did not read them in time.
    pub rx_missed: AtomicU64,
}

/// What the device and its queues share.
struct Shared {
    name: String,
    socket: PacketSocket,
    /// The socket is bound to the device of this name. Not so while the device is gone, and then the
    /// socket may still be bound to it under another name: nothing passes.
    attached: AtomicBool,
    counts: Counts,
}

/// A kernel device as a port.
pub struct SystemDevice {
    shared: Arc<Shared>,
    state: Mutex<State>,
}

struct State {
    watch: Watch,
    /// The interface index that the socket is bound to.
    bound: Option<u32>,
}

impl SystemDevice {
    /// Opens the device `name` of the calling thread's namespace.
    pub fn open(name: &str) -> Result<SystemDevice, DeviceError> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['/', '\0']) {
            return Err(DeviceError::NoSuchDevice);
        }
        let host = watch::here().map_err(|e| DeviceError::io("netlink", e))?;
        let socket = PacketSocket::new(RECEIVE_BUFFER, SEND_BUFFER).map_err(|e| DeviceError::io("packet socket", e))?;
        let shared =
            Arc::new(Shared { name: name.into(), socket, attached: AtomicBool::new(false), counts: Counts::default() });
        let dev = SystemDevice { shared, state: Mutex::new(State { watch: Watch::new(host), bound: None }) };
        dev.state.lock().follow(&dev.shared)?.ok_or(DeviceError::NoSuchDevice)?;
        dev.state.lock().watch.forget_resets();
        Ok(dev)
    }

    /// For the registry.
    pub fn factory(name: &str, _: &Options, _: &Env) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(Arc::new(SystemDevice::open(name)?))
    }

    fn index(&self) -> Result<u32, DeviceError> {
        self.state.lock().follow(&self.shared)?.ok_or(DeviceError::NoSuchDevice)
    }
}

impl State {
    /// Looks the device up and binds the socket to it when it is another one than before: it was
    /// removed and made again. Returns its index.
    fn follow(&mut self, shared: &Shared) -> Result<Option<u32>, DeviceError> {
        let index = self.watch.look(&shared.name).map(|l| l.index);
        if index != self.bound {
            if let Some(i) = index {
                shared.socket.bind(i).map_err(|e| match e.raw_os_error() {
                    Some(libc::ENODEV | libc::ENXIO) => DeviceError::NoSuchDevice,
                    _ => DeviceError::io("bind", e),
                })?;
            }
            if index.is_some() {
                // What the old device, under whatever name, received is not this port's.
                shared.socket.discard(MAX_DISCARD);
            }
            self.bound = index;
            shared.attached.store(index.is_some(), Relaxed);
        }
        Ok(index)
    }
}

impl Device for SystemDevice {
    fn name(&self) -> &str {
        &self.shared.name
    }
    fn kind(&self) -> &'static str {
        "system"
    }
    fn polling(&self) -> Polling {
        Polling::Event
    }
    fn n_rxq(&self) -> usize {
        1
    }
    fn n_txq(&self) -> usize {
        TX_QUEUES
    }
    fn numa_id(&self) -> Option<i32> {
        None
    }

    fn open_rxq(&self, q: usize) -> Result<Box<dyn RxQueue>, DeviceError> {
        if q >= self.n_rxq() {
            return Err(DeviceError::NoQueue(q));
        }
        Ok(Box::new(rx::SocketRx::new(self.shared.clone())))
    }

    fn open_txq(&self, q: usize) -> Result<Box<dyn TxQueue>, DeviceError> {
        if q >= self.n_txq() {
            return Err(DeviceError::NoQueue(q));
        }
        Ok(Box::new(tx::SocketTx::new(self.shared.clone())))
    }

    fn status(&self) -> DeviceStatus {
        let mut state = self.state.lock();
        if let Err(e) = state.follow(&self.shared) {
            log::warn!("{}: {e}", self.shared.name);
        }
        state.watch.status()
    }

    fn stats(&self) -> PortStats {
        let Ok(index) = self.index() else { return PortStats::default() };
        if let Ok((_, dropped)) = self.shared.socket.take_statistics() {
            self.shared.counts.rx_missed.fetch_add(dropped.into(), Relaxed);
        }
        let link = self.state.lock().watch.host().lock().rtnl.link_by_index(index);
        let mut s = link.map(|l| watch::port_stats(&l, false)).unwrap_or_default();
        self.shared.counts.add_to(&mut s);
        s
    }

    fn change_seq(&self) -> u64 {
        let mut state = self.state.lock();
        // An error here (the device vanished in between) shows in the status.
        let _ = state.follow(&self.shared);
        state.watch.seq()
    }

    fn offloads(&self) -> TxOffloads {
        kernel_offloads()
    }

    fn set_mac(&self, mac: [u8; 6]) -> Result<(), DeviceError> {
        let index = self.index()?;
        self.state.lock().watch.host().lock().rtnl.set_mac(index, mac).map_err(watch::refused("set mac"))
    }

    fn set_mtu(&self, mtu: u32) -> Result<(), DeviceError> {
        let index = self.index()?;
        self.state.lock().watch.host().lock().rtnl.set_mtu(index, mtu).map_err(watch::refused("set mtu"))
    }

    fn set_admin_up(&self, up: bool) -> Result<(), DeviceError> {
        let index = self.index()?;
        self.state.lock().watch.host().lock().rtnl.set_up(index, up).map_err(watch::refused("set flags"))
    }

    fn set_options(&self, _: &Options) -> Result<Changed, DeviceError> {
        Ok(Changed::Nothing)
    }

    /// The device is the host's own: it stays.
    fn remove(&self) {}
}

impl Counts {
    pub fn add_to(&self, s: &mut PortStats) {
        let add = |n: &mut Option<u64>, c: &AtomicU64| {
            let c = c.load(Relaxed);
            if c > 0 || n.is_some() {
                *n = Some(n.unwrap_or(0) + c);
            }
        };
        add(&mut s.tx_dropped, &self.tx_dropped);
        add(&mut s.rx_errors, &self.rx_errors);
        add(&mut s.rx_dropped, &self.rx_missed);
    }
}

/// Errors that say "not now": nothing to read, or a device that is down or gone. The kernel reports
/// the latter once on the socket and is then silent, so they are no reason to poll again.
pub(crate) fn is_quiet(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN | libc::ENODEV | libc::ENXIO | libc::EIO | libc::EBADFD)
    )
}
