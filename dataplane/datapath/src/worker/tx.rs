//! A worker's transmit side: a buffer per port, sent when full and at the end of each turn.
//!
//! Reads: packets. Writes: device queues. Cost: one uncontended lock a burst; a queue that another
//! worker holds is tried again at the next flush, never waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fv_core::{DpPort, Nanos};
use fv_dpif::DropReason;
use fv_flow::hash::dp_hash_l4;
use fv_netdev::{TxOffloads, TxQueue};
use fv_packet::{Batch, Packet};
use parking_lot::Mutex;

use super::stats::{Stat, WorkerStats};
use crate::parse;

/// Tries for a queue that another worker holds before its packets stay for the next flush.
const LOCK_SPINS: usize = 200;

/// A port's transmit queues, shared by all workers: worker number `i` uses queue `i` modulo their
/// number, so that with enough queues nobody ever meets.
pub struct PortTx {
    pub port: DpPort,
    pub offloads: TxOffloads,
    queues: Box<[Mutex<Box<dyn TxQueue>>]>,
    /// `tx-steering`: a packet's hash chooses its queue, not its worker.
    by_hash: AtomicBool,
}

impl PortTx {
    /// `queues` is not empty.
    pub fn new(port: DpPort, offloads: TxOffloads, queues: Vec<Box<dyn TxQueue>>) -> PortTx {
        PortTx { port, offloads, queues: queues.into_iter().map(Mutex::new).collect(), by_hash: AtomicBool::new(false) }
    }

    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    pub fn is_by_hash(&self) -> bool {
        self.by_hash.load(Ordering::Relaxed)
    }

    /// Says what it was before.
    pub fn set_by_hash(&self, by_hash: bool) -> bool {
        self.by_hash.swap(by_hash, Ordering::Relaxed)
    }
}

struct TxPort {
    tx: Arc<PortTx>,
    queue: usize,
    buffer: Batch,
    /// When the buffer is to be sent at the latest; None if nothing has been held back.
    due: Option<Nanos>,
}

impl TxPort {
    /// Sends the buffer; false if the queue is another worker's just now.
    fn send(&mut self, stats: &WorkerStats) -> bool {
        self.due = None;
        let n = self.tx.queues.len();
        if n < 2 || !self.tx.by_hash.load(Ordering::Relaxed) {
            return send(&self.tx, self.queue, &mut self.buffer, stats);
        }
        // A pass for each queue that has packets, which keeps the order of each flow.
        while !self.buffer.is_empty() {
            let (mut these, mut rest, mut queue) = (Batch::new(), Batch::new(), None);
            for mut packet in self.buffer.drain() {
                let q = steer(&mut packet) as usize % n;
                let into = if *queue.get_or_insert(q) == q { &mut these } else { &mut rest };
                let _ = into.push(packet);
            }
            let sent = send(&self.tx, queue.unwrap_or(0), &mut these, stats);
            for packet in these.drain().chain(rest.drain()) {
                let _ = self.buffer.push(packet);
            }
            if !sent {
                return false;
            }
        }
        true
    }
}

/// The device's hash, else one of the flow.
fn steer(packet: &mut Packet) -> u32 {
    let meta = packet.meta();
    if meta.rss_valid {
        return meta.rss_hash;
    }
    let key = parse::extract(packet, 1);
    dp_hash_l4(&key, None, 0)
}

/// Sends a batch to one queue; false, and the batch as it was, if the queue is another worker's just now.
fn send(tx: &PortTx, queue: usize, batch: &mut Batch, stats: &WorkerStats) -> bool {
    let Some(queue) = tx.queues.get(queue) else {
        discard(batch, stats);
        return true;
    };
    let mut tries = LOCK_SPINS;
    let mut guard = loop {
        if let Some(guard) = queue.try_lock() {
            break guard;
        }
        tries -= 1;
        if tries == 0 {
            return false;
        }
        std::hint::spin_loop();
    };
    let sent = guard.send(batch);
    drop(guard);
    stats.add(Stat::Sent, sent.packets.into());
    stats.add(Stat::SentBytes, sent.bytes);
    stats.add(Stat::SendBatches, 1);
    if sent.dropped > 0 {
        DropReason::TxFull.count(sent.dropped.into());
        stats.add(Stat::Dropped, sent.dropped.into());
    }
    true
}

fn discard(buffer: &mut Batch, stats: &WorkerStats) {
    DropReason::TxFull.count(buffer.len() as u64);
    stats.add(Stat::Dropped, buffer.len() as u64);
    buffer.clear();
}

/// The ports that a worker can send to.
pub struct TxPorts {
    /// This worker's number, which chooses its queue of each port.
    index: usize,
    ports: Vec<Option<Box<TxPort>>>,
    /// Ports with packets in their buffer, each once.
    dirty: Vec<u32>,
}

impl TxPorts {
    pub fn new(index: usize) -> TxPorts {
        TxPorts { index, ports: Vec::new(), dirty: Vec::new() }
    }

    /// Port numbers are below 65536: the port table sees to it. A port that is there gets other queues, and keeps
    /// what waits for it.
    pub fn add(&mut self, tx: Arc<PortTx>) {
        let at = tx.port.0 as usize;
        if self.ports.len() <= at {
            self.ports.resize_with(at + 1, || None);
        }
        let queue = self.index % tx.queues.len().max(1);
        match &mut self.ports[at] {
            Some(port) => (port.tx, port.queue) = (tx, queue),
            none => *none = Some(Box::new(TxPort { tx, queue, buffer: Batch::new(), due: None })),
        }
        // A port is in `dirty` once at most, so that pushing never allocates.
        self.dirty.reserve(self.ports.len());
    }

    /// Sends what waits for a port and forgets it.
    pub fn remove(&mut self, port: DpPort, stats: &WorkerStats) {
        let Some(mut gone) = self.ports.get_mut(port.0 as usize).and_then(Option::take) else { return };
        self.dirty.retain(|p| *p != port.0);
        if !gone.buffer.is_empty() && !gone.send(stats) {
            discard(&mut gone.buffer, stats);
        }
    }

    fn port(&mut self, port: DpPort) -> Option<&mut TxPort> {
        self.ports.get_mut(port.0 as usize)?.as_deref_mut()
    }

    pub fn offloads(&mut self, port: DpPort) -> Option<TxOffloads> {
        self.port(port).map(|p| p.tx.offloads)
    }

    /// Buffers a packet, or gives it back if there is no such port.
    #[inline]
    pub fn push(&mut self, port: DpPort, packet: Packet, stats: &WorkerStats) -> Result<(), Packet> {
        let Some(Some(p)) = self.ports.get_mut(port.0 as usize) else { return Err(packet) };
        if p.buffer.is_full() && !p.send(stats) {
            discard(&mut p.buffer, stats);
        }
        if p.buffer.is_empty() && !self.dirty.contains(&port.0) {
            self.dirty.push(port.0);
        }
        // Room was made above.
        p.buffer.push(packet)
    }

    /// Buffers a whole batch and leaves it empty; false if there is no such port.
    #[inline]
    pub fn push_all(&mut self, port: DpPort, batch: &mut Batch, stats: &WorkerStats) -> bool {
        let Some(Some(p)) = self.ports.get_mut(port.0 as usize) else { return false };
        if p.buffer.room() < batch.len() && !p.send(stats) {
            discard(&mut p.buffer, stats);
        }
        if p.buffer.is_empty() {
            std::mem::swap(&mut p.buffer, batch);
            if !self.dirty.contains(&port.0) {
                self.dirty.push(port.0);
            }
            return true;
        }
        for packet in batch.drain() {
            // Room was made above.
            let _ = p.buffer.push(packet);
        }
        true
    }

    /// Sends everything that is held back; the worker ends.
    pub fn close(&mut self, stats: &WorkerStats) {
        for port in self.dirty.drain(..) {
            if let Some(Some(p)) = self.ports.get_mut(port as usize)
                && !p.buffer.is_empty()
                && !p.send(stats)
            {
                discard(&mut p.buffer, stats);
            }
        }
    }

    /// Sends what has waited for `hold`, or all without one; says whether packets stay behind a queue
    /// that was held.
    pub fn flush(&mut self, now: Nanos, hold: Nanos, stats: &WorkerStats) -> bool {
        let ports = &mut self.ports;
        let mut behind = false;
        self.dirty.retain(|port| match ports.get_mut(*port as usize) {
            Some(Some(p)) if p.buffer.is_empty() => false,
            Some(Some(p)) => {
                if hold > Nanos::ZERO && now < *p.due.get_or_insert(now + hold) {
                    return true;
                }
                let sent = p.send(stats);
                behind |= !sent;
                !sent
            }
            _ => false,
        });
        behind
    }
}
