//! Devices around devices: what passes is looked at, damaged or slowed down on its way.
//!
//! For simulation and tests: a wrapped device that keeps packets back releases them when it is polled
//! or flushed again, so it is for devices that are polled, not waited for.

mod fault;
mod rate;
mod trace;

pub use fault::{Fault, Faults};
pub use rate::Rate;
pub use trace::Trace;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use fv_packet::{Batch, Packet};

use crate::device::{
    Changed, Device, DeviceError, DeviceStatus, Polling, PortStats, RxQueue, Sent, TxOffloads, TxQueue,
};
use crate::enabled::EnabledQueues;
use crate::registry::Options;

/// Which way a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Rx,
    Tx,
}

/// What happens to the packets of one queue: they are put in, and taken out when it is time.
pub trait Stage: Send {
    fn put(&mut self, packet: Packet);
    fn take(&mut self) -> Option<Packet>;
}

type MakeStage = dyn Fn(Way, usize) -> Option<Box<dyn Stage>> + Send + Sync;

/// A device with a [`Stage`] in each of its queues.
pub struct Wrapped {
    inner: Arc<dyn Device>,
    make: Box<MakeStage>,
}

impl Wrapped {
    /// `make` is asked for each queue that is opened; `None` leaves it as it is.
    pub fn new(
        inner: Arc<dyn Device>,
        make: impl Fn(Way, usize) -> Option<Box<dyn Stage>> + Send + Sync + 'static,
    ) -> Arc<Wrapped> {
        Arc::new(Wrapped { inner, make: Box::new(make) })
    }

    pub fn inner(&self) -> &Arc<dyn Device> {
        &self.inner
    }
}

struct Rx {
    inner: Box<dyn RxQueue>,
    stage: Box<dyn Stage>,
}

impl RxQueue for Rx {
    fn recv(&mut self, out: &mut Batch) -> Result<usize, DeviceError> {
        let mut fresh = Batch::new();
        let received = self.inner.recv(&mut fresh);
        fresh.drain().for_each(|p| self.stage.put(p));
        let before = out.len();
        while !out.is_full() {
            let Some(packet) = self.stage.take() else { break };
            let _ = out.push(packet);
        }
        received.map(|_| out.len() - before)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.fd()
    }
}

struct Tx {
    inner: Box<dyn TxQueue>,
    stage: Box<dyn Stage>,
}

impl Tx {
    /// Hands on what is due. What the device then drops was lost on the wire, as far as the sender knows.
    fn pass_on(&mut self) {
        let mut due = Batch::new();
        while let Some(packet) = self.stage.take() {
            let _ = due.push(packet);
            if due.is_full() {
                self.inner.send(&mut due);
            }
        }
        self.inner.send(&mut due);
    }
}

impl TxQueue for Tx {
    fn send(&mut self, batch: &mut Batch) -> Sent {
        let mut sent = Sent::default();
        for packet in batch.drain() {
            sent.packets += 1;
            sent.bytes += packet.len() as u64;
            self.stage.put(packet);
        }
        self.pass_on();
        sent
    }

    fn flush(&mut self) {
        self.pass_on();
        self.inner.flush();
    }
}

impl Device for Wrapped {
    fn enabled_rxqs(&self) -> Option<Arc<EnabledQueues>> {
        self.inner.enabled_rxqs()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn polling(&self) -> Polling {
        self.inner.polling()
    }

    fn n_rxq(&self) -> usize {
        self.inner.n_rxq()
    }

    fn n_txq(&self) -> usize {
        self.inner.n_txq()
    }

    fn numa_id(&self) -> Option<i32> {
        self.inner.numa_id()
    }

    fn open_rxq(&self, q: usize) -> Result<Box<dyn RxQueue>, DeviceError> {
        let inner = self.inner.open_rxq(q)?;
        Ok(match (self.make)(Way::Rx, q) {
            Some(stage) => Box::new(Rx { inner, stage }),
            None => inner,
        })
    }

    fn open_txq(&self, q: usize) -> Result<Box<dyn TxQueue>, DeviceError> {
        let inner = self.inner.open_txq(q)?;
        Ok(match (self.make)(Way::Tx, q) {
            Some(stage) => Box::new(Tx { inner, stage }),
            None => inner,
        })
    }

    fn status(&self) -> DeviceStatus {
        self.inner.status()
    }

    fn stats(&self) -> PortStats {
        self.inner.stats()
    }

    fn change_seq(&self) -> u64 {
        self.inner.change_seq()
    }

    fn offloads(&self) -> TxOffloads {
        self.inner.offloads()
    }

    fn set_mac(&self, mac: [u8; 6]) -> Result<(), DeviceError> {
        self.inner.set_mac(mac)
    }

    fn set_mtu(&self, mtu: u32) -> Result<(), DeviceError> {
        self.inner.set_mtu(mtu)
    }

    fn set_admin_up(&self, up: bool) -> Result<(), DeviceError> {
        self.inner.set_admin_up(up)
    }

    fn set_options(&self, options: &Options) -> Result<Changed, DeviceError> {
        self.inner.set_options(options)
    }

    fn remove(&self) {
        self.inner.remove();
    }
}

#[cfg(test)]
mod tests;
