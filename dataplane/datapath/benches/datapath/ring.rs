//! A source and a sink in memory that pass packets in a circle, so that next to nothing but the
//! datapath costs: no copies, no allocation, the headers rewritten in place.

use std::collections::VecDeque;
use std::sync::Arc;

use fv_netdev::{
    Changed, Device, DeviceError, DeviceStatus, Options, Polling, PortStats, RxQueue, Sent, TxOffloads, TxQueue,
};
use fv_packet::{Batch, Meta, Packet};
use parking_lot::Mutex;

use crate::common::udp;

/// Which flow comes next.
pub type Pattern = Box<dyn FnMut() -> u32 + Send>;

/// Writes the number of a flow into a packet's headers.
pub type Stamp = fn(&mut [u8], u32);

/// To the address 10.x.y.z.
pub fn to_flow(frame: &mut [u8], flow: u32) {
    frame[30..34].copy_from_slice(&(0x0a00_0000 | flow).to_be_bytes());
}

/// Packets on their way round. What the sink gets, the source sends again.
pub struct Ring {
    pub name: String,
    stamp: Stamp,
    pub polling: Polling,
    free: Arc<Mutex<VecDeque<Packet>>>,
    pattern: Arc<Mutex<Pattern>>,
    /// What a NIC that knows the flows would report with their packets, by flow.
    pub marks: Arc<Mutex<Vec<u32>>>,
}

impl Ring {
    /// `packets` in all, of flows as `pattern` says.
    pub fn new(name: &str, packets: usize, pattern: Pattern) -> Arc<Ring> {
        Ring::of(name, packets, pattern, to_flow, Polling::Main)
    }

    pub fn of(name: &str, packets: usize, pattern: Pattern, stamp: Stamp, polling: Polling) -> Arc<Ring> {
        let free = (0..packets).map(|_| Packet::from_slice(&udp(0, 0))).collect();
        let (free, pattern) = (Arc::new(Mutex::new(free)), Arc::new(Mutex::new(pattern)));
        Arc::new(Ring { name: name.into(), stamp, polling, free, pattern, marks: Arc::default() })
    }

    /// Another port of the same ring: sends into it, delivers nothing.
    pub fn sink(self: &Arc<Ring>, name: &str) -> Arc<Ring> {
        let pattern: Arc<Mutex<Pattern>> = Arc::new(Mutex::new(Box::new(|| u32::MAX)));
        Arc::new(Ring {
            name: name.into(),
            stamp: self.stamp,
            polling: self.polling,
            free: self.free.clone(),
            pattern,
            marks: Arc::default(),
        })
    }
}

/// Packets on their way round at most.
const KEPT_MAX: usize = 4096;

struct Rx(Arc<Mutex<VecDeque<Packet>>>, Arc<Mutex<Pattern>>, Stamp, Vec<u8>, Arc<Mutex<Vec<u32>>>);
struct Tx(Arc<Mutex<VecDeque<Packet>>>);

/// A number that is no flow's: the source has nothing.
pub const NOTHING: u32 = u32::MAX;

impl RxQueue for Rx {
    fn recv(&mut self, out: &mut Batch) -> Result<usize, DeviceError> {
        let (mut free, mut pattern) = (self.0.lock(), self.1.lock());
        let marks = self.4.lock();
        let mut n = 0;
        while out.room() > 0 {
            let flow = pattern();
            if flow == NOTHING {
                break;
            }
            // What was dropped, or waits for a verdict, is replaced.
            let mut packet = free.pop_front().unwrap_or_else(|| Packet::from_slice(&self.3));
            let (data, meta) = packet.parts_mut();
            *meta = Meta::NEW;
            meta.flow_mark = marks.get(flow as usize).copied().unwrap_or(0);
            (self.2)(data, flow);
            let _ = out.push(packet);
            n += 1;
        }
        Ok(n)
    }
}

impl TxQueue for Tx {
    fn send(&mut self, batch: &mut Batch) -> Sent {
        let mut sent = Sent::default();
        let mut free = self.0.lock();
        for packet in batch.drain() {
            sent.packets += 1;
            sent.bytes += packet.len() as u64;
            // Copies do not stay.
            if free.len() < KEPT_MAX {
                free.push_back(packet);
            }
        }
        sent
    }
}

impl Device for Ring {
    fn name(&self) -> &str {
        &self.name
    }
    fn kind(&self) -> &'static str {
        "ring"
    }
    fn polling(&self) -> Polling {
        self.polling
    }
    fn n_rxq(&self) -> usize {
        1
    }
    fn n_txq(&self) -> usize {
        1
    }
    fn numa_id(&self) -> Option<i32> {
        None
    }
    fn open_rxq(&self, _: usize) -> Result<Box<dyn RxQueue>, DeviceError> {
        Ok(Box::new(Rx(self.free.clone(), self.pattern.clone(), self.stamp, udp(0, 0), self.marks.clone())))
    }
    fn open_txq(&self, _: usize) -> Result<Box<dyn TxQueue>, DeviceError> {
        Ok(Box::new(Tx(self.free.clone())))
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

/// All flows below `n` again and again, in an order without neighbours.
pub fn shuffled(n: u32) -> Pattern {
    let mut at = 0u64;
    Box::new(move || {
        at = if at + 1 >= u64::from(n) { 0 } else { at + 1 };
        (at * 7_919 % u64::from(n)) as u32
    })
}
