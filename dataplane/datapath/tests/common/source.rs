//! A port that makes its packets from a list of frames, and one that swallows what it gets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fv_netdev::{
    Changed, Device, DeviceError, DeviceStatus, Options, Polling, PortStats, RxQueue, Sent, TxOffloads, TxQueue,
};
use fv_packet::{Batch, Packet};

/// Delivers full bursts of its frames in turn while `on`; swallows what is sent to it.
pub struct Source {
    pub name: String,
    pub polling: Polling,
    pub frames: Arc<Vec<Vec<u8>>>,
    pub on: Arc<AtomicBool>,
    pub swallowed: Arc<AtomicU64>,
    pub delivered: Arc<AtomicU64>,
}

impl Source {
    pub fn new(name: &str, polling: Polling, frames: Vec<Vec<u8>>) -> Arc<Source> {
        Arc::new(Source {
            name: name.into(),
            polling,
            frames: Arc::new(frames),
            on: Arc::new(AtomicBool::new(true)),
            swallowed: Arc::default(),
            delivered: Arc::default(),
        })
    }
}

struct Rx {
    frames: Arc<Vec<Vec<u8>>>,
    on: Arc<AtomicBool>,
    next: usize,
    delivered: Arc<AtomicU64>,
}

impl RxQueue for Rx {
    fn recv(&mut self, out: &mut Batch) -> Result<usize, DeviceError> {
        if !self.on.load(Ordering::Relaxed) || self.frames.is_empty() {
            return Ok(0);
        }
        let n = out.room();
        for _ in 0..n {
            let frame = &self.frames[self.next];
            self.next = if self.next + 1 == self.frames.len() { 0 } else { self.next + 1 };
            let _ = out.push(Packet::from_slice(frame));
        }
        self.delivered.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

struct Tx(Arc<AtomicU64>);

impl TxQueue for Tx {
    fn send(&mut self, batch: &mut Batch) -> Sent {
        let mut sent = Sent::default();
        for packet in batch.drain() {
            sent.packets += 1;
            sent.bytes += packet.len() as u64;
        }
        self.0.fetch_add(sent.packets.into(), Ordering::Relaxed);
        sent
    }
}

impl Device for Source {
    fn name(&self) -> &str {
        &self.name
    }
    fn kind(&self) -> &'static str {
        "source"
    }
    fn polling(&self) -> Polling {
        self.polling
    }
    fn n_rxq(&self) -> usize {
        1
    }
    fn n_txq(&self) -> usize {
        4
    }
    fn numa_id(&self) -> Option<i32> {
        None
    }
    fn open_rxq(&self, _: usize) -> Result<Box<dyn RxQueue>, DeviceError> {
        Ok(Box::new(Rx {
            frames: self.frames.clone(),
            on: self.on.clone(),
            next: 0,
            delivered: self.delivered.clone(),
        }))
    }
    fn open_txq(&self, _: usize) -> Result<Box<dyn TxQueue>, DeviceError> {
        Ok(Box::new(Tx(self.swallowed.clone())))
    }
    fn status(&self) -> DeviceStatus {
        DeviceStatus::default()
    }
    fn stats(&self) -> PortStats {
        PortStats::default()
    }
    fn change_seq(&self) -> u64 {
        0
    }
    fn offloads(&self) -> TxOffloads {
        TxOffloads::ALL
    }
    fn set_mac(&self, _: [u8; 6]) -> Result<(), DeviceError> {
        Ok(())
    }
    fn set_mtu(&self, _: u32) -> Result<(), DeviceError> {
        Ok(())
    }
    fn set_admin_up(&self, _: bool) -> Result<(), DeviceError> {
        Ok(())
    }
    fn set_options(&self, _: &Options) -> Result<Changed, DeviceError> {
        Ok(Changed::Nothing)
    }
    fn remove(&self) {}
}
