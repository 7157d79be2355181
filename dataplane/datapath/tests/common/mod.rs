//! Devices in memory and a control plane of closures.
#![allow(dead_code)]

pub mod source;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fv_core::{Clock, DpPort, Nanos, Ufid};
use fv_datapath::{Dp, Stat};
use fv_dpif::{Datapath, DpAction, Program, UpcallHandler, Userspace, Verdict, WorkerId};
use fv_flow::{DpKey, DpMask};
use fv_netdev::{
    Changed, Device, DeviceError, DeviceStatus, Options, Polling, PortStats, RxQueue, Sent, TxOffloads, TxQueue,
};
use fv_packet::{Batch, Packet};
use parking_lot::Mutex;

#[derive(Default)]
pub struct Wire {
    pub rx: Mutex<VecDeque<Packet>>,
    pub tx: Mutex<Vec<Packet>>,
    pub sent: AtomicU64,
    /// Packets that a burst may take at most; the rest is dropped by the device.
    pub room: AtomicU64,
}

/// A device whose wire the test holds.
pub struct Mem {
    pub name: String,
    pub polling: Polling,
    pub wires: Vec<Arc<Wire>>,
    pub offloads: TxOffloads,
}

impl Mem {
    pub fn new(name: &str, polling: Polling, queues: usize) -> Arc<Mem> {
        let wire = || Arc::new(Wire { room: AtomicU64::new(u64::MAX), ..Wire::default() });
        let wires = (0..queues).map(|_| wire()).collect();
        Arc::new(Mem { name: name.into(), polling, wires, offloads: TxOffloads::default() })
    }

    pub fn inject(&self, frame: &[u8]) {
        self.wires[0].rx.lock().push_back(Packet::from_slice(frame));
    }

    /// Takes what was sent.
    pub fn sent(&self) -> Vec<Vec<u8>> {
        self.wires.iter().flat_map(|w| w.tx.lock().drain(..).map(|p| p.data().to_vec()).collect::<Vec<_>>()).collect()
    }
}

struct MemRx(Arc<Wire>);
struct MemTx(Arc<Wire>);

impl RxQueue for MemRx {
    fn recv(&mut self, out: &mut Batch) -> Result<usize, DeviceError> {
        let mut rx = self.0.rx.lock();
        let n = out.room().min(rx.len());
        for packet in rx.drain(..n) {
            out.push(packet).unwrap();
        }
        Ok(n)
    }
}

impl TxQueue for MemTx {
    fn send(&mut self, batch: &mut Batch) -> Sent {
        let room = self.0.room.load(Ordering::Relaxed);
        let mut sent = Sent::default();
        let mut tx = self.0.tx.lock();
        for packet in batch.drain() {
            if u64::from(sent.packets) < room {
                sent.packets += 1;
                sent.bytes += packet.len() as u64;
                tx.push(packet);
            } else {
                sent.dropped += 1;
            }
        }
        self.0.sent.fetch_add(sent.packets.into(), Ordering::Relaxed);
        sent
    }
}

impl Device for Mem {
    fn name(&self) -> &str {
        &self.name
    }
    fn kind(&self) -> &'static str {
        "mem"
    }
    fn polling(&self) -> Polling {
        self.polling
    }
    fn n_rxq(&self) -> usize {
        self.wires.len()
    }
    fn n_txq(&self) -> usize {
        self.wires.len()
    }
    fn numa_id(&self) -> Option<i32> {
        Some(0)
    }
    fn open_rxq(&self, q: usize) -> Result<Box<dyn RxQueue>, DeviceError> {
        Ok(Box::new(MemRx(self.wires[q].clone())))
    }
    fn open_txq(&self, q: usize) -> Result<Box<dyn TxQueue>, DeviceError> {
        Ok(Box::new(MemTx(self.wires[q].clone())))
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
        self.offloads
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

pub type OnMiss = Box<dyn Fn(&DpKey) -> Verdict + Send + Sync>;

/// Answers misses with a closure and remembers what it was told.
pub struct Control {
    pub on_miss: OnMiss,
    pub misses: AtomicU64,
    pub installed: Mutex<Vec<(Ufid, bool)>>,
    pub actions: Mutex<Vec<(Vec<u8>, DpKey, Userspace)>>,
}

impl Control {
    pub fn new(on_miss: impl Fn(&DpKey) -> Verdict + Send + Sync + 'static) -> Arc<Control> {
        Arc::new(Control {
            on_miss: Box::new(on_miss),
            misses: AtomicU64::new(0),
            installed: Mutex::default(),
            actions: Mutex::default(),
        })
    }

    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }
}

impl UpcallHandler for Control {
    fn miss(&self, _: WorkerId, _: Nanos, _: &Packet, key: &DpKey) -> Verdict {
        self.misses.fetch_add(1, Ordering::Relaxed);
        (self.on_miss)(key)
    }
    fn installed(&self, _: WorkerId, ufid: Ufid, _: &DpKey, ok: bool) {
        self.installed.lock().push((ufid, ok));
    }
    fn action(&self, _: WorkerId, _: Nanos, packet: Packet, key: &DpKey, what: &Userspace) {
        self.actions.lock().push((packet.data().to_vec(), *key, what.clone()));
    }
}

pub fn program(actions: Vec<DpAction>) -> Arc<Program> {
    Arc::new(Program::new(actions))
}

pub fn output(port: u32) -> DpAction {
    DpAction::Output(DpPort(port))
}

pub fn forward(actions: Vec<DpAction>, mask: DpMask) -> Verdict {
    Verdict::Forward { program: program(actions), mask, install: true }
}

/// Matches ingress port, recirculation id and the IPv4 destination.
pub fn dst_mask() -> DpMask {
    let mut mask = DpMask::default();
    mask.0.base.dl_type = 0xffff.into();
    mask.0.base.nw_dst = u32::MAX.into();
    mask
}

/// A UDP frame of 60 bytes to 10.0.x.y with a payload that starts with `tag`.
pub fn udp(dst: u32, tag: u32) -> Vec<u8> {
    let mut f = Vec::with_capacity(60);
    f.extend([0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1, 8, 0]);
    f.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1]);
    f.extend((0x0a00_0000 | dst).to_be_bytes());
    let sum: u32 = f[14..34].chunks(2).map(|c| u32::from(c[0]) << 8 | u32::from(c[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    f[24..26].copy_from_slice(&sum.to_be_bytes());
    f.extend([0x10, 0, 0x20, 0, 0, 26, 0, 0]);
    f.extend(tag.to_be_bytes());
    f.resize(60, 0);
    f
}

pub fn tag_of(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[42..46].try_into().unwrap())
}

/// A datapath of kind "dummy" with devices p1, p2, ... on the control thread.
pub fn switch(ports: usize) -> (Arc<Dp>, Vec<Arc<Mem>>) {
    let dp = Dp::new("ovs-dummy", "dummy", Clock::stopped(), || 0);
    let devices: Vec<_> = (1..=ports).map(|n| Mem::new(&format!("p{n}"), Polling::Main, 1)).collect();
    for (n, device) in devices.iter().enumerate() {
        assert_eq!(dp.add_port(device.clone(), None), Ok(DpPort(n as u32 + 1)));
    }
    (dp, devices)
}

pub fn turn(dp: &Dp) {
    while dp.turn_main(Nanos::from_secs(1000), 1000).busy() {}
}

/// Sum of a counter over all workers.
pub fn total(dp: &Dp, stat: Stat) -> u64 {
    dp.workers().iter().map(|w| w.stats.value(stat)).sum()
}

/// Every packet that came in or was made is accounted for exactly once.
pub fn check_conserved(dp: &Dp) {
    let t = |stat| total(dp, stat);
    let came = t(Stat::Received) + t(Stat::Executed) + t(Stat::Copied);
    let went = t(Stat::Sent) + t(Stat::Dropped) + t(Stat::Punted) + t(Stat::Ended);
    assert_eq!(came, went, "received, executed and copied against sent, dropped, punted and ended");
    let lookups = Stat::HITS.iter().map(|hit| t(*hit)).sum::<u64>() + t(Stat::Missed);
    let short = dp_short(dp);
    assert_eq!(t(Stat::Received) - short + t(Stat::Recirculated), lookups);
    let stats = dp.stats();
    assert_eq!(stats.hit + stats.missed, lookups);
}

/// Frames too short for a lookup, which these tests do not send unless they say so.
fn dp_short(_: &Dp) -> u64 {
    0
}
