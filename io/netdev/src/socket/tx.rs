//! Sending to a packet socket.
//!
//! Cost a burst: one sendmmsg; a packet: the vnet header.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fv_packet::Batch;

use super::sys::{Refused, TxRing};
use super::{Shared, vnet};
use crate::device::{Sent, TxQueue};

/// How often a burst is offered again while the device's queue is full. A retry only gives another
/// CPU the time to drain it; then the rest is dropped, as a full queue does.
const MAX_RETRIES: u32 = 8;

pub(super) struct SocketTx {
    shared: Arc<Shared>,
    ring: TxRing,
}

impl SocketTx {
    pub fn new(shared: Arc<Shared>) -> SocketTx {
        SocketTx { shared, ring: TxRing::new() }
    }
}

impl TxQueue for SocketTx {
    fn send(&mut self, batch: &mut Batch) -> Sent {
        let mut sent = Sent::default();
        if !self.shared.attached.load(Relaxed) {
            sent.dropped = batch.len() as u32;
            self.shared.counts.tx_dropped.fetch_add(sent.dropped.into(), Relaxed);
            batch.clear();
            return sent;
        }
        let mut retries = 0;
        let refusals = self.ring.send(self.shared.socket.as_fd(), batch, vnet::encode, |e| verdict(&e, &mut retries));
        for (i, p) in batch.drain().enumerate() {
            if !refusals.has(i) {
                sent.packets += 1;
                sent.bytes += p.len() as u64;
            }
        }
        sent.dropped = refusals.count();
        if sent.dropped > 0 {
            self.shared.counts.tx_dropped.fetch_add(sent.dropped.into(), Relaxed);
        }
        sent
    }
}

fn verdict(e: &io::Error, retries: &mut u32) -> Refused {
    match e.raw_os_error() {
        Some(libc::EINTR) => Refused::Again,
        Some(libc::EAGAIN) if *retries < MAX_RETRIES => {
            *retries += 1;
            std::thread::yield_now();
            Refused::Again
        }
        // Down or gone: nothing that follows will fare better. EAGAIN: the queue stays full.
        Some(libc::EAGAIN | libc::ENETDOWN | libc::ENXIO | libc::ENODEV | libc::EBADFD) => Refused::Rest,
        // ENOBUFS (the queue dropped it), EMSGSIZE, EINVAL: this packet's own trouble.
        _ => Refused::This,
    }
}
