//! Packets on their way to controllers, from any worker to control.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use fv_openflow::msg::packet::PacketIn;
use parking_lot::Mutex;

use crate::view::BridgeId;

/// What translation decided to send.
#[derive(Clone, Debug)]
pub struct PacketInJob {
    pub bridge: BridgeId,
    /// Packet, reason, metadata.
    pub packet_in: PacketIn,
    /// Only for connections with this id; 0 is the default.
    pub controller_id: u16,
    /// What the action says; nothing is cut by it, as there are no buffers that hold the rest.
    pub max_len: u16,
}

/// Packets and bytes that may wait for control.
pub const MAX_QUEUED: usize = 4096;
pub const MAX_QUEUED_BYTES: usize = 16 << 20;

/// A bounded queue with many writers; a push that finds it full drops and counts.
#[derive(Default)]
pub struct PacketInQueue {
    inner: Mutex<Inner>,
    drops: AtomicU64,
}

#[derive(Default)]
struct Inner {
    jobs: VecDeque<PacketInJob>,
    bytes: usize,
}

impl PacketInQueue {
    /// False if it was dropped.
    pub fn push(&self, job: PacketInJob) -> bool {
        let len = job.packet_in.packet.len();
        let mut q = self.inner.lock();
        if q.jobs.len() >= MAX_QUEUED || q.bytes + len > MAX_QUEUED_BYTES {
            drop(q);
            self.drops.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        q.bytes += len;
        q.jobs.push_back(job);
        true
    }

    /// Everything that waits.
    pub fn drain(&self) -> VecDeque<PacketInJob> {
        let mut q = self.inner.lock();
        q.bytes = 0;
        std::mem::take(&mut q.jobs)
    }

    pub fn is_empty(&self) -> bool {
        self.inner.lock().jobs.is_empty()
    }

    /// Packets dropped because the queue was full.
    pub fn drops(&self) -> u64 {
        self.drops.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(len: usize) -> PacketInJob {
        PacketInJob {
            bridge: BridgeId(0),
            packet_in: PacketIn { packet: vec![0; len], ..PacketIn::default() },
            controller_id: 0,
            max_len: u16::MAX,
        }
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let q = PacketInQueue::default();
        for _ in 0..MAX_QUEUED {
            assert!(q.push(job(1)));
        }
        assert!(!q.push(job(1)));
        assert_eq!((q.drops(), q.drain().len(), q.is_empty()), (1, MAX_QUEUED, true));
        assert!(!q.push(job(MAX_QUEUED_BYTES + 1)));
        assert!(q.push(job(MAX_QUEUED_BYTES)));
    }
}
