//! Packets between the wires, the table and the switch's queues.
//!
//! Reads: the wires, the table, what the switch sends. Writes: counters, the receive queues, the wires.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fv_core::{DpPort, Nanos};
use fv_flow::DpKey;
use fv_flow::extract::{Extra, extract};
use fv_netdev::{Device, DeviceError, RxQueue, TxOffloads, TxQueue, egress_fixup};
use fv_offload::Treatment;
use fv_packet::{Batch, Packet};

use super::{PortCount, State};
use crate::config::CardConfig;
use crate::forward::forward;
use crate::port::{Counts, SimPort, add};
use crate::ring::Ring;

/// Packets in the pipeline at most; more are dropped as if a queue were full.
const PIPELINE_MAX: usize = 65_536;

/// A port's wire and queues.
pub struct Wire {
    pub name: String,
    /// The datapath's number, once the provider has been told.
    pub dp_port: Option<DpPort>,
    lower_rx: Vec<Box<dyn RxQueue>>,
    lower_tx: Box<dyn TxQueue>,
    offloads: TxOffloads,
    rx: Vec<Arc<Ring>>,
    tx: Arc<Ring>,
    counts: Arc<Counts>,
    out: Batch,
}

impl Wire {
    pub fn open(port: &SimPort) -> Result<Wire, DeviceError> {
        let lower = &port.lower;
        Ok(Wire {
            name: port.name().into(),
            dp_port: None,
            lower_rx: (0..lower.n_rxq()).map(|q| lower.open_rxq(q)).collect::<Result<_, _>>()?,
            lower_tx: lower.open_txq(0)?,
            offloads: lower.offloads(),
            rx: port.rx.clone(),
            tx: port.tx.clone(),
            counts: port.counts.clone(),
            out: Batch::new(),
        })
    }

    /// Whether these are its queues.
    pub fn is(&self, tx: &Arc<Ring>) -> bool {
        Arc::ptr_eq(&self.tx, tx)
    }

    pub fn counts(&self) -> PortCount {
        let of = |c: &std::sync::atomic::AtomicU64| c.load(Ordering::Relaxed);
        let c = &self.counts;
        PortCount {
            received: of(&c.rx_packets),
            forwarded: of(&c.forwarded),
            marked: of(&c.marked),
            missed: of(&c.rx_missed),
            sent: of(&c.tx_packets),
        }
    }

    fn send(&mut self, packet: Packet) {
        if self.out.is_full() {
            self.flush();
        }
        let (packets, bytes) = (1, packet.len() as u64);
        add(&self.counts.tx_packets, packets);
        add(&self.counts.tx_bytes, bytes);
        // There is room.
        let _ = self.out.push(packet);
    }

    fn flush(&mut self) {
        if !self.out.is_empty() {
            let sent = self.lower_tx.send(&mut self.out);
            add(&self.counts.tx_dropped, sent.dropped.into());
        }
        self.lower_tx.flush();
    }
}

/// Packets that are matched and not yet in a receive queue.
#[derive(Default)]
pub struct Pipeline(VecDeque<(Nanos, Arc<Ring>, Arc<Counts>, Packet)>);

impl Pipeline {
    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn due(&self) -> Nanos {
        self.0.front().map_or(Nanos::MAX, |p| p.0)
    }

    fn deliver(&mut self, now: Nanos) {
        while let Some((_, ring, counts, packet)) = self.0.pop_front_if(|p| p.0 <= now) {
            if !ring.push(packet) {
                add(&counts.rx_missed, 1);
            }
        }
    }
}

impl State {
    pub fn move_packets(&mut self, config: &CardConfig, now: Nanos, budget: usize) -> usize {
        let mut moved = 0;
        for port in 0..self.ports.len() {
            for q in 0..self.ports[port].lower_rx.len() {
                while moved < budget {
                    let got = self.receive(config, now, port, q);
                    moved += got;
                    if got == 0 {
                        break;
                    }
                }
            }
            moved += self.transmit(port);
        }
        self.pipeline.deliver(now);
        self.ports.iter_mut().for_each(Wire::flush);
        moved
    }

    /// A burst off the wire.
    fn receive(&mut self, config: &CardConfig, now: Nanos, port: usize, q: usize) -> usize {
        let mut batch = Batch::new();
        let wire = &mut self.ports[port];
        // A wire that is broken is silent.
        if wire.lower_rx[q].recv(&mut batch).is_err() {
            return 0;
        }
        let got = batch.len();
        for packet in batch.drain() {
            self.packet(config, now, port, packet);
        }
        got
    }

    fn packet(&mut self, config: &CardConfig, now: Nanos, port: usize, mut packet: Packet) {
        let counts = self.ports[port].counts.clone();
        let bytes = packet.len();
        add(&counts.rx_packets, 1);
        add(&counts.rx_bytes, bytes as u64);
        packet.meta_mut().flow_mark = 0;
        let mut key = DpKey::default();
        if let Some(number) = self.ports[port].dp_port {
            packet.meta_mut().in_port = number.0;
            key = extract(&mut packet, &Extra::default());
            match self.table.hit(&key, bytes, now) {
                Some(Treatment::Full(program)) => {
                    let program = program.clone();
                    add(&counts.forwarded, 1);
                    return forward(packet, &program, &mut |to, packet| self.output(to, packet));
                }
                Some(Treatment::Mark(mark)) => {
                    packet.meta_mut().flow_mark = *mark;
                    add(&counts.marked, 1);
                }
                None => {}
            }
        }
        let rings = &self.ports[port].rx;
        let ring = rings[spread(&key) as usize % rings.len()].clone();
        if config.pipeline_delay != Nanos::ZERO && self.pipeline.0.len() < PIPELINE_MAX {
            self.pipeline.0.push_back((now + config.pipeline_delay, ring, counts, packet));
        } else if config.pipeline_delay != Nanos::ZERO || !ring.push(packet) {
            add(&counts.rx_missed, 1);
        }
    }

    /// Out of another port, without the switch.
    fn output(&mut self, to: DpPort, packet: Packet) {
        let Some(wire) = self.ports.iter_mut().find(|w| w.dp_port == Some(to)) else { return };
        let offloads = wire.offloads;
        if egress_fixup(packet, &offloads, &mut |p| wire.send(p)).is_err() {
            add(&wire.counts.tx_dropped, 1);
        }
    }

    /// What the switch sends.
    fn transmit(&mut self, port: usize) -> usize {
        let mut moved = 0;
        loop {
            let mut batch = Batch::new();
            let n = self.ports[port].tx.take(&mut batch);
            if n == 0 {
                return moved;
            }
            moved += n;
            batch.drain().for_each(|packet| self.ports[port].send(packet));
        }
    }
}

/// Packets of a flow go to one queue.
fn spread(key: &DpKey) -> u64 {
    let b = &key.base;
    let addresses = u64::from(b.nw_src.get()) << 32 | u64::from(b.nw_dst.get());
    let six = key.words()[8..12].iter().fold(0, |h: u64, w| h.rotate_left(13) ^ w);
    let ports = u64::from(b.tp_src.get()) << 16 | u64::from(b.tp_dst.get());
    ((addresses ^ six ^ ports.rotate_left(24)).wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 40
}
