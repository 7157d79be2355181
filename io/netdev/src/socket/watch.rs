//! What a port's device looks like to the host, and when that changed.
//!
//! All ports of one network namespace share one replica of the kernel's link table; asking it for
//! news costs one system call that finds nothing.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use fv_core::Nanos;
use fv_hostnet::ethtool::Driver;
use fv_hostnet::{Error, HostNet, Interest, Link, Rtnl, netns};
use parking_lot::Mutex;

use crate::device::{DeviceError, DeviceStatus, Duplex, PortStats};

/// Notifications read in one go; the rest waits for the next question.
const BUDGET: usize = 4096;

/// One namespace's links.
pub struct Host {
    net: HostNet,
    pub rtnl: Rtnl,
}

/// A namespace's identity: its inode.
pub type NsId = u64;

pub fn ns_id(ns: BorrowedFd<'_>) -> io::Result<NsId> {
    Ok(rustix::fs::fstat(ns)?.st_ino)
}

/// The host's view from the calling thread's namespace.
pub fn here() -> io::Result<Arc<Mutex<Host>>> {
    of(netns::current()?.as_fd())
}

/// The host's view from namespace `ns`; made once per namespace, gone with its last user.
pub fn of(ns: BorrowedFd<'_>) -> io::Result<Arc<Mutex<Host>>> {
    static HOSTS: OnceLock<Mutex<HashMap<NsId, Weak<Mutex<Host>>>>> = OnceLock::new();
    let id = ns_id(ns)?;
    let mut hosts = HOSTS.get_or_init(Mutex::default).lock();
    if let Some(h) = hosts.get(&id).and_then(Weak::upgrade) {
        return Ok(h);
    }
    let h = Host { net: HostNet::open_in(ns, Interest::default())?, rtnl: Rtnl::open_in(ns)? };
    let h = Arc::new(Mutex::new(h));
    hosts.retain(|_, w| w.strong_count() > 0);
    hosts.insert(id, Arc::downgrade(&h));
    Ok(h)
}

/// Real time: it only spaces the dumps of the kernel's tables, which know nothing of a stopped clock.
fn now() -> Nanos {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().into()
}

impl Host {
    /// Takes in what happened since the last call and says how far the link table is.
    pub fn refresh(&mut self) -> u64 {
        let r = if self.net.is_synced() { self.net.turn(now(), BUDGET).map(drop) } else { self.net.sync(now()) };
        if let Err(e) = r {
            log::warn!("following the host's links: {e}");
        }
        self.net.tables().links.seq()
    }

    pub fn link(&self, name: &str) -> Option<&Link> {
        self.net.tables().link_by_name(name)
    }
}

/// Follows one device by name.
pub struct Watch {
    host: Arc<Mutex<Host>>,
    /// How far the host's link table was, and the name looked for, when `link` was found.
    host_seq: u64,
    name: String,
    link: Option<Link>,
    seq: u64,
    link_resets: u64,
    /// As of a sequence.
    details: Option<(u64, Details)>,
}

impl Watch {
    pub fn new(host: Arc<Mutex<Host>>) -> Watch {
        Watch { host, host_seq: 0, name: String::new(), link: None, seq: 1, link_resets: 0, details: None }
    }

    pub fn host(&self) -> &Arc<Mutex<Host>> {
        &self.host
    }

    /// The device has gone to another namespace, or come back.
    pub fn moved(&mut self) {
        self.host_seq = 0;
        self.seq += 1;
    }

    /// The device of this name as it is now; none while there is none. Counts differences to what
    /// the last call found.
    pub fn look(&mut self, name: &str) -> Option<&Link> {
        let mut host = self.host.lock();
        let seq = host.refresh();
        if seq != self.host_seq || self.name != name {
            self.host_seq = seq;
            if self.name != name {
                self.name = name.into();
            }
            let now = host.link(name).cloned();
            drop(host);
            self.see(now);
        }
        self.link.as_ref()
    }

    /// As `look`, in a namespace that nothing of ours is to stay in: one question each time.
    pub fn look_abroad(&mut self, rtnl: &mut Rtnl, name: &str) -> Option<&Link> {
        self.see(rtnl.link_by_name(name).ok());
        if let Some(l) = &self.link
            && self.details.as_ref().is_none_or(|(seq, _)| *seq != self.seq)
        {
            self.details = Some((self.seq, Details::ask(rtnl, &l.name)));
        }
        self.link.as_ref()
    }

    /// What the last look found.
    pub fn last(&self) -> Option<&Link> {
        self.link.as_ref()
    }

    /// Takes over what somebody else found.
    pub fn see(&mut self, now: Option<Link>) {
        let state = |l: &Option<Link>| l.as_ref().map(|l| Link { stats: None, ..l.clone() });
        if state(&now) == state(&self.link) {
            return;
        }
        let running = |l: &Option<Link>| l.as_ref().is_some_and(Link::is_running);
        if running(&now) != running(&self.link) {
            self.link_resets += 1;
        }
        self.link = now;
        self.seq += 1;
    }

    /// Moves with every difference that `look` found.
    pub fn seq(&self) -> u64 {
        self.seq
    }
    /// Finding the link at first is no reset.
    pub fn forget_resets(&mut self) {
        self.link_resets = 0;
    }
}

/// A kernel refusal as a device error.
pub fn refused(what: &str) -> impl Fn(Error) -> DeviceError {
    move |e| match e.errno() {
        Some(libc::ENODEV | libc::ENXIO) => DeviceError::NoSuchDevice,
        Some(errno) => DeviceError::io(what, io::Error::from_raw_os_error(errno)),
        None => DeviceError::io(what, io::Error::other(e.to_string())),
    }
}

/// The kernel's counters in the switch's terms. `swapped` for a device whose other end the switch is.
pub fn port_stats(link: &Link, swapped: bool) -> PortStats {
    let Some(s) = link.stats else { return PortStats::default() };
    let common = PortStats { multicast: Some(s.multicast), collisions: Some(s.collisions), ..PortStats::default() };
    let s = if swapped { s.swapped() } else { s };
    let totals = PortStats {
        rx_packets: Some(s.rx_packets),
        tx_packets: Some(s.tx_packets),
        rx_bytes: Some(s.rx_bytes),
        tx_bytes: Some(s.tx_bytes),
        rx_errors: Some(s.rx_errors),
        tx_errors: Some(s.tx_errors),
        rx_dropped: Some(s.rx_dropped),
        tx_dropped: Some(s.tx_dropped),
        ..common
    };
    if swapped {
        // The detailed errors are of the other direction and of a wire that does not exist.
        return totals;
    }
    PortStats {
        rx_length_errors: Some(s.rx_length_errors),
        rx_over_errors: Some(s.rx_over_errors),
        rx_crc_errors: Some(s.rx_crc_errors),
        rx_frame_errors: Some(s.rx_frame_errors),
        rx_fifo_errors: Some(s.rx_fifo_errors),
        rx_missed_errors: Some(s.rx_missed_errors),
        tx_aborted_errors: Some(s.tx_aborted_errors),
        tx_carrier_errors: Some(s.tx_carrier_errors),
        tx_fifo_errors: Some(s.tx_fifo_errors),
        tx_heartbeat_errors: Some(s.tx_heartbeat_errors),
        tx_window_errors: Some(s.tx_window_errors),
        ..totals
    }
}

/// What ethtool says of a device: five requests, so it is asked again only when the link changed.
#[derive(Clone, Default)]
struct Details {
    speed_bps: Option<u64>,
    duplex: Option<Duplex>,
    /// The row's `status` column: the driver's own words.
    driver: BTreeMap<String, String>,
}

impl Details {
    fn ask(rtnl: &Rtnl, name: &str) -> Details {
        let s = rtnl.speed(name).unwrap_or_default();
        let words = |d: Driver| {
            [("driver_name", d.name), ("driver_version", d.version), ("firmware_version", d.firmware)]
                .map(|(k, v)| (k.to_string(), v))
        };
        Details {
            speed_bps: s.mbps.map(|m| u64::from(m) * 1_000_000),
            duplex: s.full_duplex.map(|full| if full { Duplex::Full } else { Duplex::Half }),
            driver: rtnl.driver(name).map(words).into_iter().flatten().collect(),
        }
    }
}

impl Watch {
    /// The status of the device that `look` found last.
    pub fn status(&mut self) -> DeviceStatus {
        let Some(l) = &self.link else {
            return DeviceStatus { link_resets: self.link_resets, ..DeviceStatus::default() };
        };
        if self.details.as_ref().is_none_or(|(seq, _)| *seq != self.seq) {
            let details = Details::ask(&self.host.lock().rtnl, &l.name);
            self.details = Some((self.seq, details));
        }
        let d = self.details.as_ref().map(|(_, d)| d.clone()).unwrap_or_default();
        DeviceStatus {
            mac: l.mac,
            mtu: Some(l.mtu),
            admin_up: l.is_up(),
            link_up: l.is_running(),
            ifindex: Some(l.index),
            speed_bps: d.speed_bps,
            duplex: d.duplex,
            link_resets: self.link_resets,
            config: Vec::new(),
            driver: d.driver,
        }
    }
}
