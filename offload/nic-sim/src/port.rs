//! A port of a card as the switch sees it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fv_netdev::{
    Changed, Device, DeviceError, DeviceStatus, Options, Polling, PortStats, RxQueue, Sent, TxOffloads, TxQueue,
};
use fv_packet::Batch;

use crate::card::Card;
use crate::config::CardConfig;
use crate::ring::Ring;

/// Packets that wait to be sent, at most.
const TX_RING: usize = 1024;

pub struct SimPort {
    name: String,
    card: Arc<Card>,
    /// As its options say, which may be less than what the card is.
    config: CardConfig,
    pub(crate) lower: Arc<dyn Device>,
    pub(crate) rx: Vec<Arc<Ring>>,
    pub(crate) tx: Arc<Ring>,
    pub(crate) counts: Arc<Counts>,
}

/// Counters of one port, written by the card and by the switch's threads.
#[derive(Default)]
pub(crate) struct Counts {
    pub rx_packets: AtomicU64,
    pub rx_bytes: AtomicU64,
    pub tx_packets: AtomicU64,
    pub tx_bytes: AtomicU64,
    /// The switch was too slow.
    pub rx_missed: AtomicU64,
    pub tx_dropped: AtomicU64,
    /// Of those received, forwarded by the card, and given to the switch with a mark.
    pub forwarded: AtomicU64,
    pub marked: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl SimPort {
    pub(crate) fn new(
        name: &str,
        card: Arc<Card>,
        config: CardConfig,
        lower: Arc<dyn Device>,
    ) -> Result<Arc<SimPort>, DeviceError> {
        let ring = |size, alarm| Ring::new(size, alarm).map_err(|e| DeviceError::io("eventfd", e));
        let rx = (0..config.n_rxq).map(|_| ring(config.ring_size, true)).collect::<Result<_, _>>()?;
        let tx = ring(TX_RING, false)?;
        Ok(Arc::new(SimPort { name: name.into(), card, config, lower, rx, tx, counts: Arc::default() }))
    }
}

impl Device for SimPort {
    fn name(&self) -> &str {
        &self.name
    }
    fn kind(&self) -> &'static str {
        "simnic"
    }
    fn polling(&self) -> Polling {
        Polling::Event
    }
    fn n_rxq(&self) -> usize {
        self.rx.len()
    }
    fn n_txq(&self) -> usize {
        1
    }
    fn numa_id(&self) -> Option<i32> {
        None
    }

    fn open_rxq(&self, q: usize) -> Result<Box<dyn RxQueue>, DeviceError> {
        let ring = self.rx.get(q).ok_or(DeviceError::NoQueue(q))?;
        ring.set_open(true);
        Ok(Box::new(Rx(ring.clone())))
    }

    fn open_txq(&self, q: usize) -> Result<Box<dyn TxQueue>, DeviceError> {
        if q != 0 {
            return Err(DeviceError::NoQueue(q));
        }
        self.tx.set_open(true);
        Ok(Box::new(Tx { ring: self.tx.clone(), counts: self.counts.clone() }))
    }

    fn status(&self) -> DeviceStatus {
        let mut status = self.lower.status();
        status.ifindex = None;
        status.config = vec![("n_rxq".into(), self.rx.len().to_string()), ("n_txq".into(), "1".into())];
        status.driver = [
            ("driver_name".into(), "simnic".into()),
            ("card".into(), self.card.name().into()),
            ("lower".into(), self.lower.name().into()),
        ]
        .into();
        status
    }

    fn stats(&self) -> PortStats {
        let of = |c: &AtomicU64| Some(c.load(Ordering::Relaxed));
        let c = &self.counts;
        PortStats {
            rx_packets: of(&c.rx_packets),
            rx_bytes: of(&c.rx_bytes),
            tx_packets: of(&c.tx_packets),
            tx_bytes: of(&c.tx_bytes),
            rx_dropped: of(&c.rx_missed),
            rx_missed_errors: of(&c.rx_missed),
            tx_dropped: of(&c.tx_dropped),
            custom: vec![
                ("nic_forwarded_packets".into(), c.forwarded.load(Ordering::Relaxed)),
                ("nic_marked_packets".into(), c.marked.load(Ordering::Relaxed)),
            ],
            ..PortStats::default()
        }
    }

    fn change_seq(&self) -> u64 {
        self.lower.change_seq()
    }
    fn offloads(&self) -> TxOffloads {
        self.lower.offloads()
    }
    fn set_mac(&self, mac: [u8; 6]) -> Result<(), DeviceError> {
        self.lower.set_mac(mac)
    }
    fn set_mtu(&self, mtu: u32) -> Result<(), DeviceError> {
        self.lower.set_mtu(mtu)
    }
    fn set_admin_up(&self, up: bool) -> Result<(), DeviceError> {
        self.lower.set_admin_up(up)
    }

    /// A card is what it is: other options are for another card.
    fn set_options(&self, options: &Options) -> Result<Changed, DeviceError> {
        if CardConfig::from_options(options)? != self.config {
            return Err(DeviceError::bad_option(
                "card",
                self.card.name(),
                "a card cannot be changed while it has ports",
            ));
        }
        Ok(Changed::Nothing)
    }

    fn remove(&self) {
        self.card.unplug(&self.tx);
    }
}

impl Drop for SimPort {
    fn drop(&mut self) {
        self.card.unplug(&self.tx);
    }
}

struct Rx(Arc<Ring>);

impl RxQueue for Rx {
    fn recv(&mut self, out: &mut Batch) -> Result<usize, DeviceError> {
        Ok(self.0.take(out))
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.fd()
    }
    fn len_hint(&self) -> Option<u32> {
        Some(self.0.len() as u32)
    }
}

impl Drop for Rx {
    fn drop(&mut self) {
        self.0.set_open(false);
    }
}

struct Tx {
    ring: Arc<Ring>,
    counts: Arc<Counts>,
}

impl TxQueue for Tx {
    fn send(&mut self, batch: &mut Batch) -> Sent {
        let mut sent = Sent::default();
        for packet in batch.drain() {
            let bytes = packet.len() as u64;
            if self.ring.push(packet) {
                sent.packets += 1;
                sent.bytes += bytes;
            } else {
                sent.dropped += 1;
            }
        }
        add(&self.counts.tx_dropped, sent.dropped.into());
        sent
    }
}
