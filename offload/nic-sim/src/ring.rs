//! A bounded queue of packets between the card and the switch, which says by a file descriptor that it is
//! not empty.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fv_packet::{Batch, Packet};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

pub struct Ring {
    packets: Mutex<VecDeque<Packet>>,
    size: usize,
    open: AtomicBool,
    /// Readable while there are packets. None: nobody waits for them.
    alarm: Option<OwnedFd>,
}

impl Ring {
    pub fn new(size: usize, alarm: bool) -> std::io::Result<Arc<Ring>> {
        let alarm = if alarm { Some(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?) } else { None };
        Ok(Arc::new(Ring { packets: Mutex::default(), size, open: AtomicBool::new(false), alarm }))
    }

    /// Whether somebody takes packets out. What is left when it closes is dropped.
    pub fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::Release);
        self.packets.lock().clear();
    }

    /// Says whether the packet fitted.
    pub fn push(&self, packet: Packet) -> bool {
        let mut packets = self.packets.lock();
        if packets.len() >= self.size || !self.open.load(Ordering::Acquire) {
            return false;
        }
        packets.push_back(packet);
        if packets.len() == 1
            && let Some(alarm) = &self.alarm
        {
            let _ = rustix::io::write(alarm, &1u64.to_ne_bytes());
        }
        true
    }

    pub fn take(&self, out: &mut Batch) -> usize {
        let mut packets = self.packets.lock();
        let n = packets.len().min(out.room());
        for packet in packets.drain(..n) {
            // As many as there is room for.
            let _ = out.push(packet);
        }
        if n > 0
            && packets.is_empty()
            && let Some(alarm) = &self.alarm
        {
            let _ = rustix::io::read(alarm, &mut [0; 8]);
        }
        n
    }

    pub fn len(&self) -> usize {
        self.packets.lock().len()
    }

    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.alarm.as_ref().map(AsFd::as_fd)
    }
}
