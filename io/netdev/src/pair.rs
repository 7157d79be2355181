//! Two devices in memory that are each other's wire.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fv_packet::{Batch, Packet};
use parking_lot::Mutex;

use crate::device::{
    Changed, Device, DeviceError, DeviceStatus, Polling, PortStats, RxQueue, Sent, TxOffloads, TxQueue,
};
use crate::egress::egress_fixup;
use crate::registry::Options;

/// Packets that wait in one queue at most.
pub const QUEUE_MAX: usize = 1024;

/// How a pair is made.
#[derive(Clone, Copy, Debug)]
pub struct PairConfig {
    pub polling: Polling,
    pub n_queues: usize,
    pub offloads: TxOffloads,
}

impl Default for PairConfig {
    fn default() -> PairConfig {
        PairConfig { polling: Polling::Main, n_queues: 1, offloads: TxOffloads::ALL }
    }
}

/// One end. What is sent on queue `q` is received at queue `q` of the other.
pub struct PairEnd {
    name: String,
    config: PairConfig,
    wire: Arc<Wire>,
    /// Which of the wire's sides this is.
    side: usize,
}

struct Wire {
    sides: [Side; 2],
    change_seq: AtomicU64,
}

struct Side {
    /// What waits to be received here.
    queues: Vec<Mutex<VecDeque<Packet>>>,
    state: Mutex<State>,
    rx: Count,
    tx: Count,
    tx_dropped: AtomicU64,
}

#[derive(Clone, Copy)]
struct State {
    mac: [u8; 6],
    mtu: u32,
    admin_up: bool,
}

#[derive(Default)]
struct Count {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    fn add(&self, packets: u64, bytes: u64) {
        self.packets.fetch_add(packets, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }
}

/// Makes a pair; both ends begin up.
pub fn pair(a: &str, b: &str, config: PairConfig) -> (Arc<PairEnd>, Arc<PairEnd>) {
    let side = |last| Side {
        queues: (0..config.n_queues).map(|_| Mutex::default()).collect(),
        state: Mutex::new(State { mac: [0x02, 0, 0, 0, 0, last], mtu: 1500, admin_up: true }),
        rx: Count::default(),
        tx: Count::default(),
        tx_dropped: AtomicU64::new(0),
    };
    let wire = Arc::new(Wire { sides: [side(1), side(2)], change_seq: AtomicU64::new(1) });
    let end = |name: &str, side| Arc::new(PairEnd { name: name.into(), config, wire: wire.clone(), side });
    (end(a, 0), end(b, 1))
}

impl PairEnd {
    /// Sends one packet from this end, without a queue object; says whether it fitted.
    pub fn send(&self, q: usize, packet: Packet) -> bool {
        let mut sent = Sent::default();
        self.wire.send(self.side, q, &self.config.offloads, packet, &mut sent);
        sent.dropped == 0
    }

    /// Takes one packet that waits at this end.
    pub fn recv(&self, q: usize) -> Option<Packet> {
        let packet = self.wire.sides[self.side].queues.get(q)?.lock().pop_front()?;
        self.wire.sides[self.side].rx.add(1, packet.len() as u64);
        Some(packet)
    }

    fn own(&self) -> &Side {
        &self.wire.sides[self.side]
    }

    fn changed(&self) {
        self.wire.change_seq.fetch_add(1, Relaxed);
    }
}

impl Wire {
    fn send(&self, from: usize, q: usize, offloads: &TxOffloads, packet: Packet, sent: &mut Sent) {
        let bytes = packet.len() as u64;
        let up = self.sides.iter().all(|s| s.state.lock().admin_up);
        let mut queued = up && q < self.sides[1 - from].queues.len();
        if queued {
            let mut waiting = self.sides[1 - from].queues[q].lock();
            let fixed = egress_fixup(packet, offloads, &mut |p| {
                if waiting.len() < QUEUE_MAX {
                    waiting.push_back(p);
                } else {
                    queued = false;
                }
            });
            queued &= fixed.is_ok();
        }
        if queued {
            sent.packets += 1;
            sent.bytes += bytes;
        } else {
            sent.dropped += 1;
        }
        self.sides[from].tx.add(u64::from(queued), if queued { bytes } else { 0 });
        self.sides[from].tx_dropped.fetch_add(u64::from(!queued), Relaxed);
    }
}

struct Rx {
    wire: Arc<Wire>,
    side: usize,
    q: usize,
}

impl RxQueue for Rx {
    fn recv(&mut self, out: &mut Batch) -> Result<usize, DeviceError> {
        let side = &self.wire.sides[self.side];
        let mut waiting = side.queues[self.q].lock();
        let n = waiting.len().min(out.room());
        let mut bytes = 0;
        for packet in waiting.drain(..n) {
            bytes += packet.len() as u64;
            let _ = out.push(packet);
        }
        side.rx.add(n as u64, bytes);
        Ok(n)
    }

    fn len_hint(&self) -> Option<u32> {
        Some(self.wire.sides[self.side].queues[self.q].lock().len() as u32)
    }
}

struct Tx {
    wire: Arc<Wire>,
    side: usize,
    q: usize,
    offloads: TxOffloads,
}

impl TxQueue for Tx {
    fn send(&mut self, batch: &mut Batch) -> Sent {
        let mut sent = Sent::default();
        for packet in batch.drain() {
            self.wire.send(self.side, self.q, &self.offloads, packet, &mut sent);
        }
        sent
    }
}

impl Device for PairEnd {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &'static str {
        "pair"
    }

    fn polling(&self) -> Polling {
        self.config.polling
    }

    fn n_rxq(&self) -> usize {
        self.config.n_queues
    }

    fn n_txq(&self) -> usize {
        self.config.n_queues
    }

    fn numa_id(&self) -> Option<i32> {
        Some(0)
    }

    fn open_rxq(&self, q: usize) -> Result<Box<dyn RxQueue>, DeviceError> {
        if q >= self.config.n_queues {
            return Err(DeviceError::NoQueue(q));
        }
        Ok(Box::new(Rx { wire: self.wire.clone(), side: self.side, q }))
    }

    fn open_txq(&self, q: usize) -> Result<Box<dyn TxQueue>, DeviceError> {
        if q >= self.config.n_queues {
            return Err(DeviceError::NoQueue(q));
        }
        Ok(Box::new(Tx { wire: self.wire.clone(), side: self.side, q, offloads: self.config.offloads }))
    }

    fn status(&self) -> DeviceStatus {
        let state = *self.own().state.lock();
        let peer = *self.wire.sides[1 - self.side].state.lock();
        DeviceStatus {
            mac: Some(state.mac),
            mtu: Some(state.mtu),
            admin_up: state.admin_up,
            link_up: state.admin_up && peer.admin_up,
            ..DeviceStatus::default()
        }
    }

    fn stats(&self) -> PortStats {
        let own = self.own();
        let read = |v: &AtomicU64| Some(v.load(Relaxed));
        PortStats {
            rx_packets: read(&own.rx.packets),
            rx_bytes: read(&own.rx.bytes),
            tx_packets: read(&own.tx.packets),
            tx_bytes: read(&own.tx.bytes),
            tx_dropped: read(&own.tx_dropped),
            ..PortStats::default()
        }
    }

    fn change_seq(&self) -> u64 {
        self.wire.change_seq.load(Relaxed)
    }

    fn offloads(&self) -> TxOffloads {
        self.config.offloads
    }

    fn set_mac(&self, mac: [u8; 6]) -> Result<(), DeviceError> {
        self.own().state.lock().mac = mac;
        self.changed();
        Ok(())
    }

    fn set_mtu(&self, mtu: u32) -> Result<(), DeviceError> {
        self.own().state.lock().mtu = mtu;
        self.changed();
        Ok(())
    }

    fn set_admin_up(&self, up: bool) -> Result<(), DeviceError> {
        self.own().state.lock().admin_up = up;
        self.changed();
        Ok(())
    }

    fn set_options(&self, _options: &Options) -> Result<Changed, DeviceError> {
        Ok(Changed::Nothing)
    }

    fn remove(&self) {
        let _ = self.set_admin_up(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(n: usize) -> Batch {
        let mut b = Batch::new();
        for i in 0..n {
            b.push(Packet::from_slice(&[i as u8; 60])).unwrap();
        }
        b
    }

    #[test]
    fn carries_in_order_and_counts() {
        let (a, b) = pair("a", "b", PairConfig { n_queues: 2, ..Default::default() });
        let mut tx = a.open_txq(1).unwrap();
        let mut rx = b.open_rxq(1).unwrap();
        assert_eq!(tx.send(&mut batch(20)), Sent { packets: 20, bytes: 1200, dropped: 0 });
        assert_eq!(rx.len_hint(), Some(20));
        let mut got = batch(15);
        assert_eq!(rx.recv(&mut got).unwrap(), 17);
        assert_eq!(got[15].data()[0], 0);
        assert_eq!(b.recv(1).map(|p| p.data()[0]), Some(17));
        assert!(b.recv(0).is_none());
        assert_eq!((a.stats().tx_packets, b.stats().rx_bytes), (Some(20), Some(18 * 60)));
        assert!(a.open_rxq(2).is_err());
    }

    #[test]
    fn full_and_down() {
        let (a, b) = pair("a", "b", PairConfig::default());
        let mut tx = b.open_txq(0).unwrap();
        for _ in 0..QUEUE_MAX / 32 {
            assert_eq!(tx.send(&mut batch(32)).dropped, 0);
        }
        assert_eq!(tx.send(&mut batch(3)), Sent { packets: 0, bytes: 0, dropped: 3 });
        let seq = b.change_seq();
        a.remove();
        assert!(b.status().admin_up && !b.status().link_up && b.change_seq() > seq);
        assert!(!a.send(0, Packet::from_slice(&[0; 60])));
    }
}
