//! What guards one port: the sessions of its protocols, shared by workers that hand them packets, the
//! thread of protocol timers, translation and control.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fv_core::Nanos;
use parking_lot::Mutex;

use crate::bfd;

/// A port's protocols. Its lock is held for one packet or one timer.
#[derive(Debug)]
pub struct PortMonitor {
    name: String,
    bfd: Mutex<Option<bfd::Session>>,
    forwarding: AtomicBool,
    /// Moves with whatever status columns show.
    changes: AtomicU64,
}

/// What handing on a packet or the passing of time has done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Outcome {
    /// The port forwards now and did not, or the reverse.
    pub forwarding: bool,
    /// Something is to be sent before the time that [`PortMonitor::wake_at`] last said.
    pub hurry: bool,
}

impl PortMonitor {
    pub fn new(name: &str) -> Arc<PortMonitor> {
        Arc::new(PortMonitor {
            name: name.into(),
            bfd: Mutex::new(None),
            forwarding: AtomicBool::new(true),
            changes: AtomicU64::new(0),
        })
    }

    /// Starts, changes or ends the port's BFD session.
    pub fn set_bfd(&self, config: Option<bfd::Config>, discriminator: impl FnOnce() -> u32, now: Nanos) {
        let mut bfd = self.bfd.lock();
        match (&mut *bfd, config) {
            (Some(s), Some(c)) => s.set_config(c, now),
            (none @ None, Some(c)) => *none = Some(bfd::Session::new(&self.name, c, discriminator(), now)),
            (some, None) => *some = None,
        }
        self.see(bfd.as_ref(), true);
    }

    /// Whether the port's protocols let it be used.
    pub fn forwarding(&self) -> bool {
        self.forwarding.load(Ordering::Acquire)
    }

    /// Moves whenever what status columns show may have changed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// A BFD frame that came in on the port.
    pub fn receive_bfd(&self, frame: &[u8], now: Nanos) -> Outcome {
        let mut bfd = self.bfd.lock();
        let Some(s) = &mut *bfd else { return Outcome::default() };
        let (before, due) = (s.shown(), s.wake_at());
        if let Err(e) = s.receive(frame, now) {
            crate::BFD_BAD.inc();
            log::debug!(target: "bfd", "{}: {e}", self.name);
            return Outcome::default();
        }
        let changed = s.shown() != before;
        let hurry = s.wake_at() < due;
        Outcome { forwarding: self.see(bfd.as_ref(), changed), hurry }
    }

    /// What is due at `now`: frames to send out of the port, whose address is `mac`. `rx_packets` is asked
    /// what the port has received, if that matters.
    pub fn turn(&self, mac: [u8; 6], rx_packets: impl FnOnce() -> Option<u64>, now: Nanos) -> (Vec<Vec<u8>>, Outcome) {
        let mut bfd = self.bfd.lock();
        let Some(s) = &mut *bfd else { return (Vec::new(), Outcome::default()) };
        let before = s.shown();
        let packets = if s.wants_rx_packets() { rx_packets() } else { None };
        s.run(now, packets);
        let frames = s.send(mac, now).into_iter().collect();
        let changed = s.shown() != before;
        (frames, Outcome { forwarding: self.see(bfd.as_ref(), changed), hurry: false })
    }

    /// When to call [`PortMonitor::turn`] again.
    pub fn wake_at(&self) -> Nanos {
        self.bfd.lock().as_ref().map_or(Nanos::MAX, bfd::Session::wake_at)
    }

    /// With the BFD session, if there is one.
    pub fn with_bfd<T>(&self, f: impl FnOnce(&mut bfd::Session) -> T) -> Option<T> {
        let mut bfd = self.bfd.lock();
        let s = bfd.as_mut()?;
        let before = s.shown();
        let result = f(s);
        let changed = s.shown() != before;
        self.see(bfd.as_ref(), changed);
        Some(result)
    }

    /// Takes note of the sessions' state; true if forwarding has changed.
    fn see(&self, bfd: Option<&bfd::Session>, changed: bool) -> bool {
        let is = bfd.is_none_or(bfd::Session::forwarding);
        let was = self.forwarding.swap(is, Ordering::AcqRel);
        if changed || was != is {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
        was != is
    }
}

/// A port's monitor, equal to itself alone.
#[derive(Clone, Debug)]
pub struct MonitorRef(pub Arc<PortMonitor>);

impl PartialEq for MonitorRef {
    fn eq(&self, o: &MonitorRef) -> bool {
        Arc::ptr_eq(&self.0, &o.0)
    }
}

impl Eq for MonitorRef {}

/// Which packets are a BFD session's, beyond UDP and the port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BfdMatch {
    pub dst_mac: Option<[u8; 6]>,
    pub dst_ip: Option<u32>,
    /// Only packets whose tunnel key is zero.
    pub check_tnl_key: bool,
}

impl From<&bfd::Config> for BfdMatch {
    fn from(c: &bfd::Config) -> BfdMatch {
        BfdMatch { dst_mac: c.remote_dst_mac, dst_ip: c.src_ip, check_tnl_key: c.check_tnl_key }
    }
}
