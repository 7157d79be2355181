//! Receiving from a packet socket.
//!
//! Cost a burst: one recvmmsg; a packet: a pool pop, two metadata fields.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fv_packet::Batch;

use super::sys::{Frame, RxRing};
use super::{Shared, is_quiet, vnet};
use crate::device::{DeviceError, RxQueue};

pub(super) struct SocketRx {
    shared: Arc<Shared>,
    ring: RxRing,
}

impl SocketRx {
    pub fn new(shared: Arc<Shared>) -> SocketRx {
        SocketRx { shared, ring: RxRing::new() }
    }
}

impl RxQueue for SocketRx {
    fn recv(&mut self, out: &mut Batch) -> Result<usize, DeviceError> {
        let before = out.len();
        let attached = self.shared.attached.load(Relaxed);
        let mut bad = 0;
        let r = self.ring.recv(self.shared.socket.as_fd(), out.room(), |f| match accept(f).filter(|_| attached) {
            Some(p) => {
                // Never full: no more frames were asked for than there is room.
                let _ = out.push(p);
            }
            None => bad += 1,
        });
        if bad > 0 {
            self.shared.counts.rx_errors.fetch_add(bad, Relaxed);
        }
        match r {
            Ok(_) => Ok(out.len() - before),
            Err(e) if is_quiet(&e) => Ok(0),
            Err(e) => {
                // Short of memory, say. An error would end the queue; the next call may fare better.
                log::debug!("{}: recvmmsg: {e}", self.shared.name);
                self.shared.counts.rx_errors.fetch_add(1, Relaxed);
                Ok(0)
            }
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.socket.as_fd())
    }
}

/// A frame with its metadata, unless it cannot be used.
pub(crate) fn accept(f: Frame) -> Option<fv_packet::Packet> {
    let mut p = f.packet;
    let (data, meta) = p.parts_mut();
    if f.cut || vnet::decode(&f.vnet, data, meta).is_err() {
        return None;
    }
    if let Some((tpid, tci)) = f.vlan {
        vnet::put_vlan_back(&mut p, tpid, tci);
    }
    Some(p)
}
