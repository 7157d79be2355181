//! A ring in its seat, with the memory that it reads, and the queues that workers hold.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fv_netdev::{DeviceError, RxQueue, Sent, TxQueue};
use fv_packet::{Batch, Compose};
use parking_lot::Mutex;

use crate::mapping;
use crate::memory::GuestMemory;
use crate::port::Port;
use crate::ring::Counts;
use crate::seat::Seat;

/// Looks at a ring that another worker is in before packets for it are given up: some bursts' time.
const LOOKS: u32 = 20_000;
/// EtherType and operation of a reverse ARP request, which guests that migrate send (RFC 903).
const RARP: u16 = 0x8035;
const RARP_REQUEST: u16 = 3;

/// A ring that runs.
pub struct Live<R> {
    pub ring: R,
    pub packed: bool,
    memory: Arc<GuestMemory>,
    /// [`mapping::repairs`] at the last look.
    repairs: u64,
    /// It is not to be run any more.
    over: bool,
}

// SAFETY: a ring's pointers go to guest memory, which `memory` keeps mapped whichever thread has the ring, and which
// nobody has references to.
unsafe impl<R> Send for Live<R> {}

impl<R> Live<R> {
    pub fn new(ring: R, memory: Arc<GuestMemory>, packed: bool) -> Box<Live<R>> {
        Box::new(Live { ring, packed, memory, repairs: mapping::repairs(), over: false })
    }

    /// Looks whether the memory is still there, if any was lost anywhere. Cost: one load and a comparison.
    #[inline]
    fn is_sound(&mut self) -> bool {
        let repairs = mapping::repairs();
        if repairs != self.repairs {
            self.repairs = repairs;
            self.over |= self.memory.is_dead();
        }
        !self.over
    }
}

/// Where one ring of a port sits, and what it and its predecessors counted.
pub struct Slot<R> {
    pub seat: Seat<Box<Live<R>>>,
    counts: Mutex<SlotCounts>,
}

#[derive(Default)]
struct SlotCounts {
    past: Totals,
    now: Option<Arc<Counts>>,
    told: bool,
}

/// What rings have counted.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Totals {
    pub packets: u64,
    pub bytes: u64,
    pub short: u64,
    pub bad_header: u64,
    pub ring_full: u64,
    pub too_long: u64,
    pub bad_offload: u64,
    pub stopped: u64,
    pub calls: u64,
}

impl Totals {
    fn plus_counts(self, c: &Counts) -> Totals {
        let v = |x: &AtomicU64| x.load(Relaxed);
        self.plus(Totals {
            packets: v(&c.packets),
            bytes: v(&c.bytes),
            short: v(&c.short),
            bad_header: v(&c.bad_header),
            ring_full: v(&c.ring_full),
            too_long: v(&c.too_long),
            bad_offload: v(&c.bad_offload),
            stopped: v(&c.stopped),
            calls: v(&c.calls),
        })
    }

    pub fn plus(self, o: Totals) -> Totals {
        Totals {
            packets: self.packets + o.packets,
            bytes: self.bytes + o.bytes,
            short: self.short + o.short,
            bad_header: self.bad_header + o.bad_header,
            ring_full: self.ring_full + o.ring_full,
            too_long: self.too_long + o.too_long,
            bad_offload: self.bad_offload + o.bad_offload,
            stopped: self.stopped + o.stopped,
            calls: self.calls + o.calls,
        }
    }
}

impl<R> Default for Slot<R> {
    fn default() -> Slot<R> {
        Slot { seat: Seat::default(), counts: Mutex::default() }
    }
}

impl<R> Slot<R> {
    /// Counters for the ring that comes next.
    pub fn fresh_counts(&self) -> Arc<Counts> {
        let mut counts = self.counts.lock();
        if let Some(old) = counts.now.take() {
            counts.past = counts.past.plus_counts(&old);
        }
        let fresh = Arc::<Counts>::default();
        counts.now = Some(fresh.clone());
        counts.told = false;
        fresh
    }

    pub fn totals(&self) -> Totals {
        let counts = self.counts.lock();
        counts.now.as_ref().map_or(counts.past, |now| counts.past.plus_counts(now))
    }

    /// Why the ring has failed; once.
    pub fn fault(&self) -> Option<String> {
        let mut counts = self.counts.lock();
        let fault = counts.now.as_ref()?.fault()?;
        (!std::mem::replace(&mut counts.told, true)).then(|| fault.text().into())
    }
}

/// Receive queue `q`: what the guest sends on it.
pub struct Rx {
    pub port: Arc<Port>,
    pub q: usize,
}

impl RxQueue for Rx {
    fn recv(&mut self, out: &mut Batch) -> Result<usize, DeviceError> {
        let before = out.len();
        if let Some(mac) = self.port.take_announcement() {
            let rarp = Compose::arp(RARP_REQUEST, mac, 0, mac, 0).ethertype(RARP).eth([0xff; 6], mac);
            let _ = out.push(rarp);
        }
        let sound = self.port.rx[self.q].seat.run(|live| {
            if live.over {
                return true;
            }
            live.ring.recv(out);
            live.is_sound() && live.ring.fault().is_none()
        });
        if sound == Some(false) {
            self.port.call_attention();
        }
        Ok(out.len() - before)
    }
}

/// Transmit queue `q`, wherever it goes just now.
pub struct Tx {
    pub port: Arc<Port>,
    pub q: usize,
}

impl Tx {
    fn drop_all(batch: &mut Batch, counter: &AtomicU64) -> Sent {
        let dropped = batch.len() as u32;
        batch.clear();
        counter.fetch_add(dropped.into(), Relaxed);
        Sent { dropped, ..Sent::default() }
    }

    #[cold]
    fn drop_long(&self, batch: &mut Batch, max: u32) -> u32 {
        let mut all = batch.take();
        let before = all.len();
        for p in all.drain().filter(|p| p.len() <= max as usize || p.meta().gso.is_some()) {
            // It came out of a batch as large.
            let _ = batch.push(p);
        }
        let dropped = before - batch.len();
        self.port.too_long.fetch_add(dropped as u64, Relaxed);
        dropped as u32
    }
}

impl TxQueue for Tx {
    fn send(&mut self, batch: &mut Batch) -> Sent {
        let max = self.port.max_frame();
        let mut too_long = 0;
        if batch.iter().any(|p| p.len() > max as usize && !p.meta().gso.is_some()) {
            too_long = self.drop_long(batch, max);
        }
        let mut looks = 0;
        let mut sent = loop {
            let Some(slot) = self.port.tx_ring(self.q) else { break Tx::drop_all(batch, &self.port.no_ring) };
            let done = slot.seat.run(|live| {
                if live.over {
                    return (Tx::drop_all(batch, &self.port.no_ring), true);
                }
                let sent = live.ring.send(batch);
                (sent, live.is_sound() && live.ring.fault().is_none())
            });
            match done {
                Some((sent, sound)) => {
                    if !sound {
                        self.port.call_attention();
                    }
                    break sent;
                }
                None if !slot.seat.is_running() => break Tx::drop_all(batch, &self.port.no_ring),
                // Another worker's queue goes to the same ring.
                None if looks == LOOKS => break Tx::drop_all(batch, &self.port.contended),
                None => looks += 1,
            }
            std::hint::spin_loop();
        };
        sent.dropped += too_long;
        sent
    }
}
