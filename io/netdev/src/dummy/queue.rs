//! Queues of a dummy device.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use fv_packet::{Batch, Packet};
use parking_lot::Mutex;

use crate::device::{DeviceError, RxQueue, Sent, TxQueue};
use crate::dummy::device::Shared;

/// Packets that wait in a receive queue at most.
pub const RXQ_MAX: usize = 100;

/// Packets and bytes of one queue.
#[derive(Default)]
pub struct Traffic {
    pub packets: AtomicU64,
    pub bytes: AtomicU64,
}

impl Traffic {
    pub fn count(&self, bytes: usize) {
        self.packets.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub fn read(&self) -> (u64, u64) {
        (self.packets.load(Relaxed), self.bytes.load(Relaxed))
    }
}

/// A receive queue as injection sees it.
#[derive(Default)]
pub struct RxShared {
    waiting: Mutex<VecDeque<Packet>>,
    /// Length of `waiting`, so that polling an empty queue takes no lock.
    len: AtomicU32,
    open: AtomicBool,
    pub traffic: Traffic,
}

impl RxShared {
    /// Queues a packet unless nobody receives or too many wait; says whether it did.
    pub fn inject(&self, packet: Packet) -> bool {
        let mut waiting = self.waiting.lock();
        if !self.open.load(Relaxed) || waiting.len() >= RXQ_MAX {
            return false;
        }
        waiting.push_back(packet);
        self.len.store(waiting.len() as u32, Relaxed);
        true
    }

    pub fn len(&self) -> u32 {
        self.len.load(Relaxed)
    }
}

pub struct Rx {
    device: Arc<Shared>,
    queue: Arc<RxShared>,
}

impl Rx {
    pub fn open(device: Arc<Shared>, queue: Arc<RxShared>) -> Rx {
        queue.open.store(true, Relaxed);
        Rx { device, queue }
    }
}

impl RxQueue for Rx {
    fn recv(&mut self, out: &mut Batch) -> Result<usize, DeviceError> {
        if self.queue.len() == 0 {
            return Ok(0);
        }
        let emulation = self.device.emulation();
        let mut waiting = self.queue.waiting.lock();
        let n = waiting.len().min(out.room());
        for mut packet in waiting.drain(..n) {
            self.queue.traffic.count(packet.len());
            emulation.received(&mut packet);
            let _ = out.push(packet);
        }
        self.queue.len.store(waiting.len() as u32, Relaxed);
        Ok(n)
    }

    fn len_hint(&self) -> Option<u32> {
        Some(self.queue.len())
    }
}

impl Drop for Rx {
    fn drop(&mut self) {
        let mut waiting = self.queue.waiting.lock();
        self.queue.open.store(false, Relaxed);
        waiting.clear();
        self.queue.len.store(0, Relaxed);
    }
}

pub struct Tx {
    pub device: Arc<Shared>,
    pub traffic: Arc<Traffic>,
}

impl TxQueue for Tx {
    fn send(&mut self, batch: &mut Batch) -> Sent {
        let mut sent = Sent::default();
        for packet in batch.drain() {
            let bytes = packet.len() as u64;
            if self.device.transmit(packet, &self.traffic) {
                sent.packets += 1;
                sent.bytes += bytes;
            } else {
                sent.dropped += 1;
            }
        }
        sent
    }
}
