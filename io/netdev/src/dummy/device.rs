//! One dummy device.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use fv_core::{Clock, Nanos};
use fv_packet::hdr::{arp, eth};
use fv_packet::{Compose, Packet};
use parking_lot::Mutex;

use crate::device::{Changed, Device, DeviceError, DeviceStatus, Polling, PortStats, RxQueue, TxOffloads, TxQueue};
use crate::dummy::config::Config;
use crate::dummy::emulate::{self, Emulation};
use crate::dummy::queue::{Rx, RxShared, Traffic, Tx};
use crate::dummy::stream::{Conn, ConnState};
use crate::egress::egress_fixup;
use crate::pcap;
use crate::registry::{Env, Options};

/// Why a packet was not injected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InjectError {
    #[error("bad rx queue id.")]
    NoQueue,
}

/// A device in memory. See [`crate::dummy::World`] for making and finding one.
pub struct Dummy {
    name: String,
    kind: &'static str,
    pmd: bool,
    env: Env,
    shared: Arc<Shared>,
}

/// What the device and its queues share.
pub struct Shared {
    clock: Clock,
    state: Mutex<State>,
    /// Read for every burst, written by configuration.
    emulation: ArcSwap<Emulation>,
    queues: ArcSwap<Queues>,
    change_seq: AtomicU64,
    tx_dropped: AtomicU64,
}

#[derive(Default)]
struct Queues {
    rx: Vec<Arc<RxShared>>,
    tx: Vec<Arc<Traffic>>,
}

struct State {
    mac: [u8; 6],
    mtu: u32,
    admin_up: bool,
    link_resets: u64,
    config: Config,
    rxq_pcap: Option<Arc<Mutex<pcap::Writer>>>,
    tx_pcap: Option<Arc<Mutex<pcap::Writer>>>,
    conn: Conn,
    ip4: Vec<(Ipv4Addr, u8)>,
    ip6: Vec<(Ipv6Addr, u8)>,
}

impl Dummy {
    pub(super) fn new(
        name: &str,
        kind: &'static str,
        pmd: bool,
        mac: [u8; 6],
        clock: Clock,
        env: Env,
    ) -> Result<Dummy, DeviceError> {
        let shared = Shared {
            clock,
            state: Mutex::new(State {
                mac,
                mtu: 1500,
                admin_up: true,
                link_resets: 0,
                config: Config { n_rxq: 1, n_txq: 1, ..Config::default() },
                rxq_pcap: None,
                tx_pcap: None,
                conn: Conn::None,
                ip4: Vec::new(),
                ip6: Vec::new(),
            }),
            emulation: ArcSwap::default(),
            queues: ArcSwap::default(),
            change_seq: AtomicU64::new(1),
            tx_dropped: AtomicU64::new(0),
        };
        shared.resize(1, 1);
        Ok(Dummy { name: name.into(), kind, pmd, env, shared: Arc::new(shared) })
    }

    /// Queues `packet` as if queue `qid` had received it (a device that is not for poll workers has queue 0
    /// alone). Without an open receive queue, or with too many packets waiting, it is dropped silently.
    pub fn receive(&self, qid: usize, packet: Packet) -> Result<(), InjectError> {
        self.shared.inject(qid, packet)
    }

    pub fn n_waiting(&self) -> usize {
        self.shared.queues.load().rx.iter().map(|q| q.len() as usize).sum()
    }

    /// State of the `stream` connection; unknown without one.
    pub fn conn_state(&self) -> ConnState {
        self.shared.state.lock().conn.state()
    }

    /// Adds an own address with its prefix length: ARP for it is answered.
    pub fn add_ip4(&self, address: Ipv4Addr, prefix: u8) {
        let mut state = self.shared.state.lock();
        if !state.ip4.iter().any(|(a, _)| *a == address) {
            state.ip4.push((address, prefix));
        }
        drop(state);
        self.shared.changed();
    }

    pub fn add_ip6(&self, address: Ipv6Addr, prefix: u8) {
        let mut state = self.shared.state.lock();
        if !state.ip6.iter().any(|(a, _)| *a == address) {
            state.ip6.push((address, prefix));
        }
        drop(state);
        self.shared.changed();
    }

    pub fn ip4(&self) -> Vec<(Ipv4Addr, u8)> {
        self.shared.state.lock().ip4.clone()
    }

    pub fn ip6(&self) -> Vec<(Ipv6Addr, u8)> {
        self.shared.state.lock().ip6.clone()
    }

    /// Runs the device's sockets, without waiting; says whether anything happened.
    pub fn turn(&self, now: Nanos) -> bool {
        let mut received = Vec::new();
        let active = self.shared.state.lock().conn.turn(now, &mut received);
        for packet in received {
            let _ = self.shared.inject(0, packet);
        }
        active
    }

    /// Has sockets that [`Dummy::turn`] must run.
    pub fn has_stream(&self) -> bool {
        !matches!(self.shared.state.lock().conn, Conn::None)
    }
}

impl Shared {
    pub fn emulation(&self) -> Emulation {
        **self.emulation.load()
    }

    fn changed(&self) {
        self.change_seq.fetch_add(1, Relaxed);
    }

    fn inject(&self, qid: usize, packet: Packet) -> Result<(), InjectError> {
        let queue = self.queues.load().rx.get(qid).cloned().ok_or(InjectError::NoQueue)?;
        let pcap = self.state.lock().rxq_pcap.clone();
        if let Some(pcap) = pcap {
            self.capture(&pcap, &packet);
        }
        queue.inject(packet);
        Ok(())
    }

    fn capture(&self, pcap: &Mutex<pcap::Writer>, packet: &Packet) {
        if let Err(e) = pcap.lock().write(self.clock.wall(), packet.data()) {
            log::warn!("pcap: write failed: {e}");
        }
    }

    /// Makes the queues this many; those that stay keep packets and counters.
    fn resize(&self, n_rxq: usize, n_txq: usize) {
        let old = self.queues.load();
        let mut new = Queues { rx: old.rx.clone(), tx: old.tx.clone() };
        new.rx.resize_with(n_rxq, Arc::default);
        new.tx.resize_with(n_txq, Arc::default);
        self.queues.store(Arc::new(new));
    }

    /// Sends one packet, which may become several; says whether it went out.
    pub fn transmit(&self, packet: Packet, traffic: &Traffic) -> bool {
        let emulation = self.emulation();
        let mut all = true;
        let fixed = egress_fixup(packet, &emulation.offloads(), &mut |mut p| {
            let fits = self.fits(&p);
            all &= fits;
            if fits {
                emulation.transmitted(&mut p);
                traffic.count(p.len());
                self.deliver(&p);
            }
        });
        let sent = fixed.is_ok() && all;
        if !sent {
            self.tx_dropped.fetch_add(1, Relaxed);
        }
        sent
    }

    fn fits(&self, packet: &Packet) -> bool {
        let mtu = self.state.lock().mtu as usize;
        let tag = if emulate::is_tagged(packet.data()) { 4 } else { 0 };
        (eth::LEN..=eth::LEN + tag + mtu).contains(&packet.len())
    }

    fn deliver(&self, packet: &Packet) {
        let (pcap, reply) = {
            let mut state = self.state.lock();
            state.conn.send(packet.data());
            (state.tx_pcap.clone(), state.arp_reply(packet.data()))
        };
        if let Some(reply) = reply {
            let _ = self.inject(0, reply);
        }
        if let Some(pcap) = pcap {
            self.capture(&pcap, packet);
        }
    }
}

impl State {
    /// The answer if `frame` asks for one of the own addresses.
    fn arp_reply(&self, frame: &[u8]) -> Option<Packet> {
        if self.ip4.is_empty() {
            return None;
        }
        let request = emulate::arp_request(frame)?;
        self.ip4.iter().find(|(a, _)| a.to_bits() == request.tpa())?;
        let to = eth::Eth::parse(frame)?.src();
        Some(Compose::arp(arp::OP_REPLY, self.mac, request.tpa(), to, request.spa()).eth(to, self.mac))
    }
}

impl Device for Dummy {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &'static str {
        self.kind
    }

    fn polling(&self) -> Polling {
        if self.pmd { Polling::Poll } else { Polling::Main }
    }

    fn n_rxq(&self) -> usize {
        self.shared.queues.load().rx.len()
    }

    fn n_txq(&self) -> usize {
        self.shared.queues.load().tx.len()
    }

    fn numa_id(&self) -> Option<i32> {
        self.pmd.then(|| self.shared.state.lock().config.numa_id)
    }

    fn open_rxq(&self, q: usize) -> Result<Box<dyn RxQueue>, DeviceError> {
        let queue = self.shared.queues.load().rx.get(q).cloned().ok_or(DeviceError::NoQueue(q))?;
        Ok(Box::new(Rx::open(self.shared.clone(), queue)))
    }

    fn open_txq(&self, q: usize) -> Result<Box<dyn TxQueue>, DeviceError> {
        let traffic = self.shared.queues.load().tx.get(q).cloned().ok_or(DeviceError::NoQueue(q))?;
        Ok(Box::new(Tx { device: self.shared.clone(), traffic }))
    }

    fn status(&self) -> DeviceStatus {
        let state = self.shared.state.lock();
        DeviceStatus {
            mac: Some(state.mac),
            mtu: Some(state.mtu),
            admin_up: state.admin_up,
            link_up: state.admin_up,
            ifindex: state.config.ifindex,
            link_resets: state.link_resets,
            config: state.config.report(self.pmd),
            ..DeviceStatus::default()
        }
    }

    fn stats(&self) -> PortStats {
        let queues = self.shared.queues.load();
        let rx: Vec<_> = queues.rx.iter().map(|q| q.traffic.read()).collect();
        let tx: Vec<_> = queues.tx.iter().map(|q| q.read()).collect();
        let sum = |all: &[(u64, u64)]| all.iter().fold((0, 0), |s, q| (s.0 + q.0, s.1 + q.1));
        let (rx_packets, rx_bytes) = sum(&rx);
        let (tx_packets, tx_bytes) = sum(&tx);
        let mut custom: Vec<(String, u64)> = (1..=2).map(|i| (format!("rx_custom_packets_{i}"), rx_packets)).collect();
        for (way, queues) in [("rx", &rx), ("tx", &tx)] {
            for (i, (packets, bytes)) in queues.iter().enumerate() {
                custom.push((format!("{way}_q{i}_packets"), *packets));
                custom.push((format!("{way}_q{i}_bytes"), *bytes));
            }
        }
        PortStats {
            rx_packets: Some(rx_packets),
            rx_bytes: Some(rx_bytes),
            tx_packets: Some(tx_packets),
            tx_bytes: Some(tx_bytes),
            custom,
            ..PortStats::default()
        }
    }

    fn change_seq(&self) -> u64 {
        self.shared.change_seq.load(Relaxed)
    }

    fn offloads(&self) -> TxOffloads {
        self.shared.emulation().offloads()
    }

    fn set_mac(&self, mac: [u8; 6]) -> Result<(), DeviceError> {
        let old = std::mem::replace(&mut self.shared.state.lock().mac, mac);
        if old != mac {
            self.shared.changed();
        }
        Ok(())
    }

    fn set_mtu(&self, mtu: u32) -> Result<(), DeviceError> {
        if !(68..=65535).contains(&mtu) {
            return Err(DeviceError::bad_option("mtu", &mtu.to_string(), "not in 68..65535"));
        }
        let old = std::mem::replace(&mut self.shared.state.lock().mtu, mtu);
        if old != mtu {
            self.shared.changed();
        }
        Ok(())
    }

    fn set_admin_up(&self, up: bool) -> Result<(), DeviceError> {
        let old = std::mem::replace(&mut self.shared.state.lock().admin_up, up);
        if old != up {
            self.shared.changed();
        }
        Ok(())
    }

    fn set_options(&self, options: &Options) -> Result<Changed, DeviceError> {
        let new = Config::parse(options, self.pmd, &self.env)?;
        let mut state = self.shared.state.lock();
        if new == state.config {
            return Ok(Changed::Nothing);
        }
        let captures = if new.same_capture(&state.config) { None } else { Some(open_captures(&new)?) };
        if (&new.stream, &new.pstream) != (&state.config.stream, &state.config.pstream) {
            // A listener on the same path must be gone before the next one binds.
            state.conn = Conn::None;
            state.conn =
                Conn::open(new.stream.as_ref(), new.pstream.as_ref()).map_err(|e| DeviceError::io("pstream", e))?;
        }
        if let Some((rx, tx)) = captures {
            (state.rxq_pcap, state.tx_pcap) = (rx, tx);
        }
        self.shared.emulation.store(Arc::new(new.emulation));
        let queues = (new.n_rxq, new.n_txq, new.numa_id);
        let resized = queues != (state.config.n_rxq, state.config.n_txq, state.config.numa_id);
        state.config = new;
        if resized {
            self.shared.resize(queues.0, queues.1);
        }
        drop(state);
        self.shared.changed();
        Ok(if resized { Changed::Queues } else { Changed::Status })
    }

    fn remove(&self) {
        let mut state = self.shared.state.lock();
        state.conn = Conn::None;
        (state.rxq_pcap, state.tx_pcap) = (None, None);
    }
}

type Capture = Option<Arc<Mutex<pcap::Writer>>>;

/// Opens the captures; one file for both ways is opened once.
fn open_captures(config: &Config) -> Result<(Capture, Capture), DeviceError> {
    let open = |path: &std::path::PathBuf| {
        pcap::Writer::append(path)
            .map(|w| Arc::new(Mutex::new(w)))
            .map_err(|e| DeviceError::io(format!("{}: failed to open pcap file", path.display()), e))
    };
    let rx = config.rxq_pcap.as_ref().map(open).transpose()?;
    let tx = match &config.tx_pcap {
        same if *same == config.rxq_pcap => rx.clone(),
        other => other.as_ref().map(open).transpose()?,
    };
    Ok((rx, tx))
}

#[cfg(test)]
mod tests;
