//! Interface types `tap` and `internal`: a kernel interface whose wire is this switch.
//!
//! The device lives as long as its descriptor. All I/O goes by the descriptor, so it goes on when the
//! interface is moved to another namespace or renamed; status and changes then happen there.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use fv_hostnet::{Link, Rtnl};
use fv_packet::Batch;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};

use crate::device::{
    Changed, Device, DeviceError, DeviceStatus, Polling, PortStats, RxQueue, Sent, TxOffloads, TxQueue,
};
use crate::registry::{Env, Options};
use crate::socket::sys::{RxRing, TxRing};
use crate::socket::watch::{self, NsId, Watch};
use crate::socket::{Counts, is_quiet, kernel_offloads, rx::accept, vnet};

/// As for packet sockets: queues share the descriptor, one write a packet.
const TX_QUEUES: usize = 16;
/// How often an interface in a foreign namespace is looked at: each time costs a socket there.
const ABROAD_EVERY: Duration = Duration::from_millis(500);

pub struct TapDevice {
    shared: Arc<Shared>,
    kind: &'static str,
    state: Mutex<State>,
}

struct Shared {
    name: String,
    fd: OwnedFd,
    counts: Counts,
}

struct State {
    watch: Watch,
    /// Where the interface was made, and where it is.
    home: NsId,
    ns: NsId,
    /// When it was last asked for outside of `home`.
    asked: Option<Instant>,
    /// The interface's name when it was last looked at.
    last_name: String,
    /// And its index, if it was found.
    last_index: Option<u32>,
}

impl TapDevice {
    /// Makes interface `name` in the calling thread's namespace.
    pub fn open(name: &str, kind: &'static str) -> Result<TapDevice, DeviceError> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['/', '\0', '%']) {
            return Err(DeviceError::BadName(name.into()));
        }
        let ns = fv_hostnet::netns::current().map_err(|e| DeviceError::io("namespace", e))?;
        let ns_id = watch::ns_id(ns.as_fd()).map_err(|e| DeviceError::io("namespace", e))?;
        let host = watch::here().map_err(|e| DeviceError::io("netlink", e))?;
        let foreign = |l: Link| l.kind.as_deref() != Some("tun");
        if host.lock().rtnl.link_by_name(name).is_ok_and(foreign) {
            return Err(DeviceError::Exists(name.into()));
        }
        let fd = sys::create(name).map_err(|e| match e.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST | libc::EINVAL) => DeviceError::Exists(name.into()),
            _ => DeviceError::io("/dev/net/tun", e),
        })?;
        let state = State {
            watch: Watch::new(host),
            home: ns_id,
            ns: ns_id,
            asked: None,
            last_name: name.into(),
            last_index: None,
        };
        let shared = Arc::new(Shared { name: name.into(), fd, counts: Counts::default() });
        let dev = TapDevice { shared, kind, state: Mutex::new(state) };
        let mut state = dev.state.lock();
        dev.look(&mut state)?;
        state.watch.forget_resets();
        drop(state);
        Ok(dev)
    }

    /// For the registry, type `tap`.
    pub fn factory(name: &str, _: &Options, _: &Env) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(Arc::new(TapDevice::open(name, "tap")?))
    }

    /// For the registry, type `internal`.
    pub fn internal_factory(name: &str, _: &Options, _: &Env) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(Arc::new(TapDevice::open(name, "internal")?))
    }

    /// Finds the interface wherever it is now; its name there may be another.
    fn look(&self, state: &mut State) -> Result<Link, DeviceError> {
        let known = match state.ns == state.home {
            // While it is at home, asking for news is one system call.
            true => state.watch.look(&state.last_name),
            false if state.asked.is_some_and(|t| t.elapsed() < ABROAD_EVERY) => state.watch.last(),
            false => None,
        };
        if let Some(l) = known
            && Some(l.index) == state.last_index
        {
            return Ok(l.clone());
        }
        self.find(state).map(|(l, _)| l)
    }

    /// Asks the kernel where the interface is. A socket in a namespace keeps it alive: in a foreign
    /// one, which may be a container's that ends, none stays open.
    fn find(&self, state: &mut State) -> Result<(Link, Rtnl), DeviceError> {
        state.last_index = None;
        let fd = self.shared.fd.as_fd();
        // An error: removed by somebody else.
        state.last_name = sys::current_name(fd).map_err(|_| {
            state.watch.see(None);
            DeviceError::Gone
        })?;
        // Kernels before 5.2 cannot tell the namespace: there the device is looked for at home.
        let there = sys::device_namespace(fd).and_then(|ns| Ok((watch::ns_id(ns.as_fd())?, ns)));
        let id = there.as_ref().map_or(state.home, |(id, _)| *id);
        if id != state.ns {
            state.watch.moved();
            state.ns = id;
        }
        let failed = |e| DeviceError::io("netlink", e);
        let (rtnl, link) = match there {
            Ok((_, ns)) if id != state.home => {
                let mut rtnl = Rtnl::open_in(ns.as_fd()).map_err(failed)?;
                state.asked = Some(Instant::now());
                let link = state.watch.look_abroad(&mut rtnl, &state.last_name).cloned();
                (rtnl, link)
            }
            _ => (Rtnl::open().map_err(failed)?, state.watch.look(&state.last_name).cloned()),
        };
        let link = link.ok_or(DeviceError::Gone)?;
        state.last_index = Some(link.index);
        Ok((link, rtnl))
    }

    fn change<T>(
        &self,
        what: &str,
        f: impl FnOnce(&mut Rtnl, &Link) -> Result<T, fv_hostnet::Error>,
    ) -> Result<T, DeviceError> {
        let mut state = self.state.lock();
        let link = self.look(&mut state)?;
        if state.ns == state.home {
            return f(&mut state.watch.host().lock().rtnl, &link).map_err(watch::refused(what));
        }
        let (link, mut rtnl) = self.find(&mut state)?;
        let done = f(&mut rtnl, &link);
        // What was changed is seen at once.
        state.asked = None;
        done.map_err(watch::refused(what))
    }
}

impl Device for TapDevice {
    fn name(&self) -> &str {
        &self.shared.name
    }
    fn kind(&self) -> &'static str {
        self.kind
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
        Ok(Box::new(TapRx { shared: self.shared.clone(), ring: RxRing::new() }))
    }

    fn open_txq(&self, q: usize) -> Result<Box<dyn TxQueue>, DeviceError> {
        if q >= self.n_txq() {
            return Err(DeviceError::NoQueue(q));
        }
        Ok(Box::new(TapTx { shared: self.shared.clone() }))
    }

    fn status(&self) -> DeviceStatus {
        let mut state = self.state.lock();
        match self.look(&mut state) {
            Ok(_) => state.watch.status(),
            Err(_) => DeviceStatus { link_resets: state.watch.status().link_resets, ..DeviceStatus::default() },
        }
    }

    /// What the kernel sent into the interface is what the switch received from it.
    fn stats(&self) -> PortStats {
        let link = self.change("statistics", |rtnl, l| rtnl.link_by_index(l.index));
        let mut s = link.map(|l| watch::port_stats(&l, true)).unwrap_or_default();
        self.shared.counts.add_to(&mut s);
        s
    }

    fn change_seq(&self) -> u64 {
        let mut state = self.state.lock();
        let _ = self.look(&mut state);
        state.watch.seq()
    }

    fn offloads(&self) -> TxOffloads {
        kernel_offloads()
    }

    fn set_mac(&self, mac: [u8; 6]) -> Result<(), DeviceError> {
        self.change("set mac", |rtnl, l| rtnl.set_mac(l.index, mac))
    }
    fn set_mtu(&self, mtu: u32) -> Result<(), DeviceError> {
        self.change("set mtu", |rtnl, l| rtnl.set_mtu(l.index, mtu))
    }
    fn set_admin_up(&self, up: bool) -> Result<(), DeviceError> {
        self.change("set flags", |rtnl, l| rtnl.set_up(l.index, up))
    }
    fn set_options(&self, _: &Options) -> Result<Changed, DeviceError> {
        Ok(Changed::Nothing)
    }

    /// Removes the interface at once, also while queues still hold its descriptor.
    fn remove(&self) {
        if let Err(e) = self.change("delete link", |rtnl, l| rtnl.delete(l.index)) {
            log::debug!("{}: {e}", self.shared.name);
        }
    }
}

struct TapRx {
    shared: Arc<Shared>,
    ring: RxRing,
}

impl RxQueue for TapRx {
    /// One read a packet: a tap knows no bursts. After [`DeviceError::Gone`] there is nothing more to
    /// wait for: the queue is to be closed.
    fn recv(&mut self, out: &mut Batch) -> Result<usize, DeviceError> {
        let mut n = 0;
        while !out.is_full() {
            match self.ring.read(self.shared.fd.as_fd()) {
                Ok(Some(f)) => match accept(f) {
                    Some(p) => {
                        let _ = out.push(p);
                        n += 1;
                    }
                    None => {
                        self.shared.counts.rx_errors.fetch_add(1, Relaxed);
                    }
                },
                Ok(None) => break,
                // The interface was removed by somebody else.
                Err(e) if e.raw_os_error() == Some(libc::EBADFD) => {
                    sys::silence(self.shared.fd.as_fd());
                    return Err(DeviceError::Gone);
                }
                Err(e) if is_quiet(&e) => break,
                Err(e) => {
                    log::debug!("{}: read: {e}", self.shared.name);
                    self.shared.counts.rx_errors.fetch_add(1, Relaxed);
                    break;
                }
            }
        }
        Ok(n)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.fd.as_fd())
    }
}

struct TapTx {
    shared: Arc<Shared>,
}

impl TxQueue for TapTx {
    fn send(&mut self, batch: &mut Batch) -> Sent {
        let mut sent = Sent::default();
        for p in batch.drain() {
            // An interface that is down refuses with EIO; a full queue cannot happen: the frame is
            // received within the call.
            match TxRing::write(self.shared.fd.as_fd(), &vnet::encode(&p), p.data()) {
                Ok(()) => {
                    sent.packets += 1;
                    sent.bytes += p.len() as u64;
                }
                Err(_) => sent.dropped += 1,
            }
        }
        if sent.dropped > 0 {
            self.shared.counts.tx_dropped.fetch_add(sent.dropped.into(), Relaxed);
        }
        sent
    }
}

/// The tun driver's requests.
mod sys {
    #![allow(unsafe_code)]
    use super::*;
    use crate::socket::sys::ioctl;
    use crate::socket::vnet::VNET_LEN;

    const F_CSUM: libc::c_ulong = 0x01;
    const F_TSO4: libc::c_ulong = 0x02;
    const F_TSO6: libc::c_ulong = 0x04;
    const F_TSO_ECN: libc::c_ulong = 0x08;
    const F_USO: libc::c_ulong = 0x20 | 0x40;

    /// Makes the interface, or takes over one that outlived its maker, with all offloads that the
    /// kernel offers: what the host sends arrives as the host made it.
    pub fn create(name: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
        let mut req = request();
        for (to, from) in req.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        req.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as i16;
        // SAFETY: TUNSETIFF takes a struct ifreq.
        unsafe { ioctl(fd.as_fd(), libc::TUNSETIFF, &mut req)? };
        // SAFETY: TUNSETVNETHDRSZ takes an int.
        unsafe { ioctl(fd.as_fd(), libc::TUNSETVNETHDRSZ, &mut (VNET_LEN as i32))? };
        let basic = F_CSUM | F_TSO4 | F_TSO6 | F_TSO_ECN;
        set_offload(fd.as_fd(), basic | F_USO).or_else(|_| set_offload(fd.as_fd(), basic))?;
        Ok(fd)
    }

    fn set_offload(fd: BorrowedFd<'_>, features: libc::c_ulong) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        // SAFETY: TUNSETOFFLOAD takes its argument by value.
        let r = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, features) };
        if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    pub fn current_name(fd: BorrowedFd<'_>) -> io::Result<String> {
        let mut req = request();
        // SAFETY: TUNGETIFF takes a struct ifreq.
        unsafe { ioctl(fd, libc::TUNGETIFF, &mut req)? };
        let bytes: Vec<u8> = req.ifr_name.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub fn device_namespace(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        // SAFETY: TUNGETDEVNETNS takes no argument and returns a new descriptor.
        unsafe {
            let ns = ioctl(fd, libc::TUNGETDEVNETNS, &mut 0u64)?;
            Ok(OwnedFd::from_raw_fd(ns))
        }
    }

    /// Puts a socket without a peer in the place of a descriptor whose interface is gone. Such a
    /// descriptor is readable for ever, which would keep whoever waits on it awake; the socket never
    /// is, and refuses what is written to it.
    pub fn silence(fd: BorrowedFd<'_>) {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
        use std::os::fd::AsRawFd;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        if let Ok(mute) = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None) {
            // SAFETY: both descriptors are open, and the one that is replaced keeps its number and
            // its owner.
            unsafe { libc::dup3(mute.as_raw_fd(), fd.as_raw_fd(), libc::O_CLOEXEC) };
        }
    }

    fn request() -> libc::ifreq {
        // SAFETY: all-zero bytes are a valid ifreq.
        unsafe { std::mem::zeroed() }
    }
}
