//! A worker's transmit side: a buffer per port, sent when full and at the end of each turn.
//!
//! Reads: packets. Writes: device queues. Cost: one uncontended lock a burst; a queue that another
//! worker holds is tried again at the next flush, never waited for.

use std::sync::Arc;

use fv_core::DpPort;
use fv_dpif::DropReason;
use fv_netdev::{TxOffloads, TxQueue};
use fv_packet::{Batch, Packet};
use parking_lot::Mutex;

use super::stats::{Stat, WorkerStats};

/// Tries for a queue that another worker holds before its packets stay for the next flush.
const LOCK_SPINS: usize = 200;

/// A port's transmit queues, shared by all workers: worker number `i` uses queue `i` modulo their
/// number, so that with enough queues nobody ever meets.
pub struct PortTx {
    pub port: DpPort,
    pub offloads: TxOffloads,
    queues: Box<[Mutex<Box<dyn TxQueue>>]>,
}

impl PortTx {
    /// `queues` is not empty.
    pub fn new(port: DpPort, offloads: TxOffloads, queues: Vec<Box<dyn TxQueue>>) -> PortTx {
        PortTx { port, offloads, queues: queues.into_iter().map(Mutex::new).collect() }
    }
}

struct TxPort {
    tx: Arc<PortTx>,
    queue: usize,
    buffer: Batch,
}

impl TxPort {
    /// Sends the buffer; false if the queue is another worker's just now.
    fn send(&mut self, stats: &WorkerStats) -> bool {
        let Some(queue) = self.tx.queues.get(self.queue) else {
            discard(&mut self.buffer, stats);
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
        let sent = guard.send(&mut self.buffer);
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

    /// Port numbers are below 65536: the port table sees to it.
    pub fn add(&mut self, tx: Arc<PortTx>) {
        let at = tx.port.0 as usize;
        if self.ports.len() <= at {
            self.ports.resize_with(at + 1, || None);
        }
        let queue = self.index % tx.queues.len().max(1);
        self.ports[at] = Some(Box::new(TxPort { tx, queue, buffer: Batch::new() }));
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

    /// Sends all buffers; says whether packets stay behind a queue that was held.
    pub fn flush(&mut self, stats: &WorkerStats) -> bool {
        let ports = &mut self.ports;
        self.dirty.retain(|port| match ports.get_mut(*port as usize) {
            Some(Some(p)) => !p.buffer.is_empty() && !p.send(stats),
            _ => false,
        });
        !self.dirty.is_empty()
    }
}
