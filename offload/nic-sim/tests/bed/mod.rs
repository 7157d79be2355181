//! A datapath, the overlay and a card with two ports whose wires the test holds, all on one thread.
#![allow(dead_code)]

use std::collections::HashMap;
use std::sync::Arc;

use fv_core::{Clock, DpPort, Nanos, Ufid};
use fv_datapath::{Dp, Stat};
use fv_dpif::action::{Masked, SetField};
use fv_dpif::{Datapath, DpAction, FlowPut, FlowStats, Program, UpcallHandler, Userspace, Verdict, WorkerId};
use fv_flow::{DpKey, DpMask};
use fv_netdev::Options;
use fv_netdev::pair::{PairConfig, PairEnd, pair};
use fv_nic_sim::{Card, Cards, SimProvider};
use fv_offload::Overlay;
use fv_packet::Packet;
use parking_lot::Mutex;

/// What flow `n` does; changed by the test.
#[derive(Default)]
pub struct Control {
    versions: Mutex<HashMap<u16, u8>>,
    pub ufids: Mutex<HashMap<u16, Ufid>>,
    /// Instead of rewriting and sending to port 2.
    pub actions: Mutex<Option<Vec<DpAction>>>,
}

pub struct Bed {
    pub clock: Clock,
    pub dp: Arc<Dp>,
    pub overlay: Arc<Overlay>,
    pub cards: Arc<Cards>,
    pub far: Vec<Arc<PairEnd>>,
    pub control: Arc<Control>,
    /// Packets sent, by flow.
    pub sent: HashMap<u16, u64>,
    pub received: u64,
    /// Packets that some other flow has forwarded.
    pub misdirected: u64,
}

/// A UDP frame of flow `n`.
pub fn frame(n: u16) -> Vec<u8> {
    let mut f = Vec::with_capacity(60);
    f.extend([0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1, 8, 0]);
    f.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0x66, 0xbc, 10, 0, 0, 1, 10, 0, 0, 2]);
    f.extend(n.to_be_bytes());
    f.extend([0x20, 0, 0, 26, 0, 0]);
    f.resize(60, 0);
    f
}

impl Control {
    /// Writes the flow's number into the destination address.
    pub fn program(&self, n: u16) -> Arc<Program> {
        if let Some(actions) = &*self.actions.lock() {
            return Arc::new(Program::new(actions.clone()));
        }
        let version = self.versions.lock().get(&n).copied().unwrap_or(0);
        let [a, b] = n.to_be_bytes();
        let dst = Masked { value: [2, 0, 0, version, a, b], mask: [0xff; 6] };
        let set = DpAction::Set(SetField::Eth { src: Masked::default(), dst });
        Arc::new(Program::new(vec![set, DpAction::Output(DpPort(2))]))
    }

    pub fn change(&self, n: u16) {
        let mut versions = self.versions.lock();
        let v = versions.entry(n).or_default();
        *v = v.wrapping_add(1);
    }
}

pub fn mask() -> DpMask {
    let mut mask = DpMask::default();
    mask.0.base.dl_type = u16::MAX.into();
    mask.0.base.nw_proto = 0xff;
    mask.0.base.tp_src = u16::MAX.into();
    mask
}

impl UpcallHandler for Control {
    fn miss(&self, _: WorkerId, _: Nanos, _: &Packet, key: &DpKey) -> Verdict {
        Verdict::Forward { program: self.program(key.base.tp_src.get()), mask: mask(), install: true }
    }
    fn installed(&self, _: WorkerId, ufid: Ufid, key: &DpKey, ok: bool) {
        if ok {
            self.ufids.lock().insert(key.base.tp_src.get(), ufid);
        }
    }
    fn action(&self, _: WorkerId, _: Nanos, _: Packet, _: &DpKey, _: &Userspace) {}
}

impl Bed {
    /// `options` of the card.
    pub fn new(options: &str) -> Bed {
        let clock = Clock::stopped();
        let dp = Dp::new("ovs-netdev", "netdev", clock.clone(), || 0);
        let overlay = Overlay::new(dp.clone(), clock.clone());
        let cards = Cards::new();
        overlay.add_provider(Box::new(SimProvider::new(cards.clone())));
        let control = Arc::new(Control::default());
        overlay.set_upcall_handler(Some(control.clone()));
        let mut far = Vec::new();
        for n in 1..=2 {
            let (near, end) = pair(&format!("near{n}"), &format!("far{n}"), PairConfig::default());
            let mut o: Options = options
                .split_whitespace()
                .filter_map(|w| w.split_once('='))
                .map(|(k, v)| (k.into(), v.into()))
                .collect();
            o.insert("card".into(), "c0".into());
            let port = cards.plug(&format!("p{n}"), &o, near).unwrap();
            let number = dp.add_port(port, Some(DpPort(n))).unwrap();
            assert_eq!(overlay.attach(number, &format!("p{n}"), None), Some("simnic"));
            far.push(end);
        }
        overlay.set_enabled(true);
        Bed { clock, dp, overlay, cards, far, control, sent: HashMap::new(), received: 0, misdirected: 0 }
    }

    pub fn card(&self) -> Arc<Card> {
        self.cards.find("c0").unwrap()
    }

    pub fn send(&mut self, n: u16, packets: u64) {
        for _ in 0..packets {
            assert!(self.far[0].send(0, Packet::from_slice(&frame(n))));
        }
        *self.sent.entry(n).or_default() += packets;
    }

    /// One turn of everything, after some time.
    pub fn step(&mut self, us: u64) {
        self.clock.advance(Nanos(us * 1000));
        let now = self.clock.now();
        self.cards.turn(now, 10_000);
        while self.dp.turn_main(now, 1000).busy() {}
        self.overlay.turn(now);
        self.cards.turn(now, 10_000);
        while let Some(packet) = self.far[1].recv(0) {
            self.received += 1;
            let d = packet.data();
            self.misdirected += u64::from(d[4..6] != d[34..36]);
        }
    }

    /// Time passes, a tenth of a millisecond at a time.
    pub fn wait_ms(&mut self, ms: u64) {
        (0..ms * 10).for_each(|_| self.step(100));
    }

    pub fn ufid(&self, n: u16) -> Option<Ufid> {
        self.control.ufids.lock().get(&n).copied()
    }

    pub fn stats(&self, n: u16) -> FlowStats {
        self.overlay.flow_get(self.ufid(n).unwrap()).unwrap().stats
    }

    /// How a flow is shown: offloaded, and by whom.
    pub fn shown(&self, n: u16) -> (bool, &'static str) {
        let f = self.overlay.flow_get(self.ufid(n).unwrap()).unwrap();
        (f.offloaded, f.layer)
    }

    /// As the slow path does after a rule has changed.
    pub fn modify(&self, n: u16) -> bool {
        let Some(flow) = self.ufid(n).and_then(|u| self.overlay.flow_get(u)) else { return false };
        self.control.change(n);
        let put = FlowPut {
            key: flow.key,
            mask: flow.mask,
            program: self.control.program(n),
            ufid: Some(flow.ufid),
            create: false,
            modify: true,
            worker: None,
        };
        self.overlay.flow_put(put).is_ok()
    }

    pub fn stat(&self, stat: Stat) -> u64 {
        self.dp.workers().iter().map(|w| w.stats.value(stat)).sum()
    }
}
