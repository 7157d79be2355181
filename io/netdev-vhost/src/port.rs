//! What the threads of one port share: the seats of its rings, which of them are worth polling, where each
//! transmit queue goes, and what is told of it all.
//!
//! Three threads meet here: workers run rings, the connection's thread puts them in and takes them out, control
//! configures and reads. Only the latter two use the lock.
#![allow(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use fv_netdev::EnabledQueues;
use parking_lot::Mutex;

use crate::live::{Live, Slot};
use crate::ring::{Base, DirtyLog, Features, Parts, RxRing, Setup, TxRing, feature};
use crate::session::{PAIRS_MAX, Refused, RingPlan, Rings};

/// Longest that a burst may hold a ring that is to be taken out.
const PATIENCE: Duration = Duration::from_secs(1);
/// In the map of transmit queues: packets have nowhere to go.
const NOWHERE: u16 = u16::MAX;
/// Bytes of a frame beyond its MTU: Ethernet header and one VLAN tag.
const FRAME_EXTRA: u32 = 18;

pub struct Port {
    pub name: String,
    /// Rings by queue: those whose guest sends, and those whose guest receives.
    pub(crate) rx: Box<[Slot<RxRing>]>,
    pub(crate) tx: Box<[Slot<TxRing>]>,
    pub(crate) enabled: Arc<EnabledQueues>,
    /// The ring that each transmit queue sends to.
    tx_map: Box<[AtomicU16]>,
    /// Queue pairs that there are: as many as the guest has set up.
    pairs: AtomicUsize,
    change_seq: AtomicU64,
    /// Longer frames are not sent, unless they are to be segmented.
    max_frame: AtomicU32,
    /// Address of a guest that has just arrived, with bit 48 set; 0 if there is none to announce.
    announcement: AtomicU64,
    /// A ring has failed, or memory has gone: the connection's thread is to look.
    attention: AtomicBool,
    alarm: Arc<OwnedFd>,
    /// Frames longer than the MTU, and those for which no ring was running.
    pub(crate) too_long: AtomicU64,
    pub(crate) no_ring: AtomicU64,
    pub(crate) contended: AtomicU64,
    /// Messages that were refused, since the port exists.
    pub(crate) bad_messages: AtomicU64,
    /// Changes of rings' states since somebody last told about them.
    pub(crate) flips: AtomicU64,
    pub(crate) control: Mutex<Control>,
}

/// What the connection's thread and control know.
pub(crate) struct Control {
    pub mac: [u8; 6],
    pub mtu: u32,
    pub admin_up: bool,
    pub retries_max: u32,
    /// Rings that are there and enabled, as the front end has it.
    rx_ready: Vec<bool>,
    tx_ready: Vec<bool>,
    pub link_up: bool,
    pub link_resets: u64,
    pub connection: Connection,
}

/// What the database is told of the connection.
#[derive(Clone, Default)]
pub(crate) struct Connection {
    pub connected: bool,
    pub features: u64,
    pub ring_sizes: Vec<u32>,
    pub guest_mtu: u16,
    pub numa: Option<i32>,
    /// Why the last one ended, or what is wrong with this one.
    pub error: Option<String>,
    /// Where the socket is.
    pub socket: String,
}

impl Port {
    pub fn new(name: &str, alarm: Arc<OwnedFd>, mac: [u8; 6]) -> Port {
        Port {
            name: name.into(),
            rx: (0..PAIRS_MAX).map(|_| Slot::default()).collect(),
            tx: (0..PAIRS_MAX).map(|_| Slot::default()).collect(),
            enabled: Arc::new(EnabledQueues::new(PAIRS_MAX)),
            tx_map: (0..PAIRS_MAX).map(|_| AtomicU16::new(NOWHERE)).collect(),
            pairs: AtomicUsize::new(1),
            change_seq: AtomicU64::new(1),
            max_frame: AtomicU32::new(1500 + FRAME_EXTRA),
            announcement: AtomicU64::new(0),
            attention: AtomicBool::new(false),
            alarm,
            too_long: AtomicU64::new(0),
            no_ring: AtomicU64::new(0),
            contended: AtomicU64::new(0),
            bad_messages: AtomicU64::new(0),
            flips: AtomicU64::new(0),
            control: Mutex::new(Control {
                mac,
                mtu: 1500,
                admin_up: true,
                retries_max: 8,
                rx_ready: vec![false; PAIRS_MAX],
                tx_ready: vec![false; PAIRS_MAX],
                link_up: false,
                link_resets: 0,
                connection: Connection::default(),
            }),
        }
    }

    // For workers.

    /// The ring that transmit queue `q` sends to just now.
    #[inline]
    pub(crate) fn tx_ring(&self, q: usize) -> Option<&Slot<TxRing>> {
        let ring = self.tx_map.get(q)?.load(Relaxed);
        self.tx.get(usize::from(ring))
    }

    #[inline]
    pub(crate) fn max_frame(&self) -> u32 {
        self.max_frame.load(Relaxed)
    }

    /// The address of a guest that has arrived, once.
    #[inline]
    pub(crate) fn take_announcement(&self) -> Option<[u8; 6]> {
        if self.announcement.load(Relaxed) == 0 {
            return None;
        }
        let word = self.announcement.swap(0, Relaxed);
        let b = word.to_be_bytes();
        (word != 0).then_some([b[2], b[3], b[4], b[5], b[6], b[7]])
    }

    /// Calls the connection's thread, once until it has looked.
    #[cold]
    pub(crate) fn call_attention(&self) {
        if !self.attention.swap(true, Relaxed) {
            let _ = rustix::io::write(&*self.alarm, &1u64.to_ne_bytes());
        }
    }

    // For the connection's thread and control.

    pub(crate) fn needs_attention(&self) -> bool {
        self.attention.load(Relaxed) && self.attention.swap(false, Relaxed)
    }

    pub fn pairs(&self) -> usize {
        self.pairs.load(Relaxed)
    }

    /// Forgets queues beyond the first: the guest is gone.
    pub(crate) fn shrink(&self) {
        if self.pairs.swap(1, Relaxed) != 1 {
            self.changed();
        }
    }

    pub fn change_seq(&self) -> u64 {
        self.change_seq.load(Relaxed)
    }

    pub(crate) fn changed(&self) {
        self.change_seq.fetch_add(1, Relaxed);
    }

    pub(crate) fn set_mtu(&self, mtu: u32) {
        self.control.lock().mtu = mtu;
        self.max_frame.store(mtu.saturating_add(FRAME_EXTRA), Relaxed);
        self.changed();
    }

    pub(crate) fn set_admin_up(&self, up: bool) {
        let mut control = self.control.lock();
        if std::mem::replace(&mut control.admin_up, up) != up {
            for q in 0..PAIRS_MAX {
                self.enabled.set(q, up && control.rx_ready[q]);
            }
            self.map_tx(&control);
            self.changed();
        }
    }

    pub(crate) fn set_retries_max(&self, n: u32) {
        self.control.lock().retries_max = n;
        for slot in &self.tx {
            // A ring that is busy for so long gets the number when it is put in the next time.
            let _ = slot.seat.adjust(PATIENCE, |live| live.ring.set_retries_max(n));
        }
    }

    /// What the database is told changes.
    pub(crate) fn report(&self, f: impl FnOnce(&mut Connection)) {
        f(&mut self.control.lock().connection);
        self.changed();
    }

    /// What the front end has negotiated and set up, if that is news.
    pub(crate) fn negotiated(&self, features: u64, sizes: impl Iterator<Item = u32> + Clone) {
        let mut control = self.control.lock();
        let c = &mut control.connection;
        if c.features != features || !sizes.clone().eq(c.ring_sizes.iter().copied()) {
            c.features = features;
            c.ring_sizes.clear();
            c.ring_sizes.extend(sizes);
            self.changed();
        }
    }

    /// A request was answered with an error.
    pub(crate) fn refused(&self, name: &str, error: &Refused) {
        self.count_bad_message();
        self.report(|c| c.error = Some(format!("{name}: {error}")));
    }

    pub(crate) fn count_bad_message(&self) {
        self.bad_messages.fetch_add(1, Relaxed);
    }

    fn set_ready(&self, ring: usize, ready: bool) {
        let (q, mut control) = (ring / 2, self.control.lock());
        let which = if ring.is_multiple_of(2) { &mut control.tx_ready } else { &mut control.rx_ready };
        let Some(was) = which.get_mut(q) else { return };
        if std::mem::replace(was, ready) == ready {
            return;
        }
        self.flips.fetch_add(1, Relaxed);
        if ring.is_multiple_of(2) {
            self.map_tx(&control);
        } else {
            self.enabled.set(q, ready && control.admin_up);
        }
        let link_up = control.rx_ready.contains(&true) || control.tx_ready.contains(&true);
        if std::mem::replace(&mut control.link_up, link_up) != link_up {
            control.link_resets += 1;
            self.changed();
        }
    }

    /// Queues whose ring runs send there; the others take turns among those.
    fn map_tx(&self, control: &Control) {
        let running = || (0..PAIRS_MAX).filter(|q| control.admin_up && control.tx_ready[*q]);
        let mut others = running().cycle();
        for (q, to) in self.tx_map.iter().enumerate() {
            let own = control.admin_up && control.tx_ready[q];
            let ring = if own { Some(q) } else { others.next() };
            to.store(ring.map_or(NOWHERE, |r| r as u16), Relaxed);
        }
    }

    /// Rings that may run: of the guest's sending side, and of its receiving side.
    pub(crate) fn ready(&self) -> (Vec<usize>, Vec<usize>) {
        let control = self.control.lock();
        let which = |v: &[bool]| v.iter().enumerate().filter(|(_, r)| **r).map(|(q, _)| q).collect();
        (which(&control.rx_ready), which(&control.tx_ready))
    }

    /// Rings that have failed, each once: it rests from now on. Numbers are the front end's.
    pub(crate) fn failed_rings(&self) -> Vec<(usize, String)> {
        let mut failed = Vec::new();
        for q in 0..PAIRS_MAX {
            if let Some(f) = self.rx[q].fault() {
                failed.push((2 * q + 1, f));
            }
            if let Some(f) = self.tx[q].fault() {
                failed.push((2 * q, f));
            }
        }
        for (ring, _) in &failed {
            self.set_ready(*ring, false);
        }
        failed
    }
}

/// The rings of a port, to its connection.
pub(crate) struct PortRings<'a>(pub &'a Port);

impl Rings for PortRings<'_> {
    fn start(&mut self, ring: usize, plan: RingPlan) -> Result<(), Refused> {
        let (port, q, enabled) = (self.0, ring / 2, plan.enabled);
        let features = Features(plan.features);
        let packed = features.has(feature::RING_PACKED);
        let memory = plan.memory;
        let log = plan.log.map(|l| {
            // SAFETY: the mapping has these bytes and is kept; only the log touches it, with atomics.
            unsafe { DirtyLog::new(l.base(), l.len(), l) }
        });
        let map = crate::ring::GuestMap::of(&memory, log);
        let counts = if ring.is_multiple_of(2) { port.tx[q].fresh_counts() } else { port.rx[q].fresh_counts() };
        let parts = Parts {
            desc: plan.desc.as_ptr(),
            avail: plan.avail.as_ptr(),
            used: plan.used.as_ptr(),
            used_log: plan.used_log,
        };
        let base = Base::from_message(packed, plan.base);
        let setup = Setup { size: plan.size, parts, base, features, call: plan.call, counts };
        let shape = |fault: crate::ring::Fault| Refused::Ring(ring, fault.text().into());
        let stuck = |_| Refused::Stuck(ring);
        if ring.is_multiple_of(2) {
            // SAFETY: the session has found the parts in this memory, at their full lengths.
            let mut made = unsafe { TxRing::new(setup, map) }.map_err(shape)?;
            made.set_retries_max(port.control.lock().retries_max);
            port.tx[q].seat.put(Live::new(made, memory, packed), PATIENCE).map_err(stuck)?;
        } else {
            // SAFETY: as above.
            let made = unsafe { RxRing::new(setup, map) }.map_err(shape)?;
            port.rx[q].seat.put(Live::new(made, memory, packed), PATIENCE).map_err(stuck)?;
        }
        if port.pairs.fetch_max(q + 1, Relaxed) < q + 1 {
            port.changed();
        }
        self.enable(ring, enabled)
    }

    fn stop(&mut self, ring: usize) -> Result<Option<u32>, Refused> {
        let (port, q) = (self.0, ring / 2);
        port.set_ready(ring, false);
        let stuck = |_| Refused::Stuck(ring);
        let position = if ring.is_multiple_of(2) {
            port.tx[q].seat.stop(PATIENCE).map_err(stuck)?.map(|l| (l.ring.base(), l.packed))
        } else {
            port.rx[q].seat.stop(PATIENCE).map_err(stuck)?.map(|l| (l.ring.base(), l.packed))
        };
        Ok(position.map(|(base, packed)| base.to_message(packed)))
    }

    fn enable(&mut self, ring: usize, enabled: bool) -> Result<(), Refused> {
        let (port, q) = (self.0, ring / 2);
        let stuck = |_| Refused::Stuck(ring);
        if enabled {
            match ring.is_multiple_of(2) {
                true => port.tx[q].seat.resume(),
                false => port.rx[q].seat.resume(),
            }
            port.set_ready(ring, true);
            return Ok(());
        }
        port.set_ready(ring, false);
        match ring.is_multiple_of(2) {
            true => port.tx[q].seat.pause(PATIENCE),
            false => port.rx[q].seat.pause(PATIENCE),
        }
        .map_err(stuck)
    }

    fn announce(&mut self, mac: [u8; 6]) {
        let word = mac.iter().fold(1u64, |w, b| w << 8 | u64::from(*b));
        self.0.announcement.store(word, Relaxed);
    }

    fn set_guest_mtu(&mut self, mtu: u16) {
        self.0.report(|c| c.guest_mtu = mtu);
    }

    fn identity(&self) -> ([u8; 6], u16) {
        (self.0.control.lock().mac, PAIRS_MAX as u16)
    }
}
