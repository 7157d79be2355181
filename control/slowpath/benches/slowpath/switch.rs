//! A bridge with rules of a shape, and the slow path over a datapath with one port in and one out.

use std::sync::Arc;

use arc_swap::ArcSwap;
use fv_core::{Clock, DpPort, Nanos, OfPort};
use fv_datapath::Dp;
use fv_dpif::{Datapath, UpcallHandler};
use fv_flow::DpKey;
use fv_netdev::Polling;
use fv_ofproto::view::{BridgeId, BridgeView, BundleView, SharedView, View};
use fv_ofproto::{Host, Ofproto, PortSpec, Settings};
use fv_openflow::OfError;
use fv_openflow::msg::packet::{PacketOut, Resume};
use fv_openflow::msg::port::{PortStats, QueueStats};
use fv_openflow::text::{Lookups, parse_flow};
use fv_packet::Packet;
use fv_slowpath::{Config, Slowpath};

use crate::common::Mem;

pub const NOW: Nanos = Nanos::from_secs(1000);

/// Rule sets; a packet of `key(i)` hits rule `i`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Both addresses, protocol, both ports: one subtable.
    Exact,
    /// Eight combinations of fields, many priorities.
    Masks,
    /// A routing table: destination prefixes of four lengths, which are the priorities.
    Prefixes,
}

impl Shape {
    pub const ALL: [Shape; 3] = [Shape::Exact, Shape::Masks, Shape::Prefixes];

    pub fn name(self) -> &'static str {
        match self {
            Shape::Exact => "exact",
            Shape::Masks => "masks",
            Shape::Prefixes => "prefixes",
        }
    }

    fn matches(self, i: u32) -> String {
        let [_, b, c, d] = i.to_be_bytes();
        let (n, p) = (1 + i % 0xfff0, 1 + i % 1000);
        match self {
            Shape::Exact => {
                format!("priority=100,tcp,nw_src=10.{b}.{c}.{d},nw_dst=198.18.{c}.{d},tp_src={n},tp_dst=80")
            }
            Shape::Masks => {
                let fields = match i % 8 {
                    0 => format!("in_port=1,dl_src=02:00:00:{b:02x}:{c:02x}:{d:02x}"),
                    1 => format!("dl_dst=02:00:00:{b:02x}:{c:02x}:{d:02x}"),
                    2 => format!("ip,nw_src=10.{b}.{c}.{d}"),
                    3 => format!("ip,nw_src=10.{b}.{c}.{d},nw_dst=198.18.0.0/16"),
                    4 => format!("udp,nw_dst=10.{b}.{c}.{d},tp_dst={n}"),
                    5 => format!("tcp,nw_dst=10.{b}.{c}.{d},tp_dst={n}"),
                    6 => format!("tcp,nw_src=10.{b}.{c}.{d},tp_src={n}"),
                    _ => format!("tcp,nw_src=10.{b}.{c}.{d},nw_dst=198.18.{c}.{d},tp_dst={n}"),
                };
                format!("priority={p},{fields}")
            }
            Shape::Prefixes => {
                let (a, len) = prefix(i);
                let [a, b, c, d] = a.to_be_bytes();
                format!("priority={len},ip,nw_dst={a}.{b}.{c}.{d}/{len}")
            }
        }
    }

    pub fn frame(self, i: u32) -> Vec<u8> {
        let n = (1 + i % 0xfff0) as u16;
        let (mut src, mut dst) = (0xac10_0001u32, 0xac10_0002u32);
        let (mut proto, mut sport, mut dport) = (6u8, 7u16, 9u16);
        let (mut dl_dst, mut dl_src) = ([2, 1, 0, 0, 0, 2], [2, 1, 0, 0, 0, 1]);
        let ten = 0x0a00_0000 | i;
        let mac = [2, 0, 0, (i >> 16) as u8, (i >> 8) as u8, i as u8];
        match self {
            Shape::Exact => (src, dst, sport, dport) = (ten, 0xc612_0000 | i & 0xffff, n, 80),
            Shape::Prefixes => dst = prefix(i).0,
            Shape::Masks => match i % 8 {
                0 => dl_src = mac,
                1 => dl_dst = mac,
                2 => src = ten,
                3 => (src, dst) = (ten, 0xc612_0000 | i & 0xffff),
                4 => (proto, dst, dport) = (17, ten, n),
                5 => (dst, dport) = (ten, n),
                6 => (src, sport) = (ten, n),
                _ => (src, dst, dport) = (ten, 0xc612_0000 | i & 0xffff, n),
            },
        }
        let mut f = Vec::with_capacity(60);
        f.extend(dl_dst);
        f.extend(dl_src);
        f.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, proto, 0, 0]);
        f.extend(src.to_be_bytes());
        f.extend(dst.to_be_bytes());
        f.extend(sport.to_be_bytes());
        f.extend(dport.to_be_bytes());
        f.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10]);
        if proto == 17 {
            f[38..40].copy_from_slice(&26u16.to_be_bytes());
        }
        f.resize(60, 0);
        f
    }

    pub fn key(self, i: u32) -> (Packet, DpKey) {
        let mut packet = Packet::from_slice(&self.frame(i));
        packet.meta_mut().in_port = 1;
        let key = fv_flow::extract::extract(&mut packet, &Default::default());
        (packet, key)
    }
}

/// The `i`-th destination prefix. The lengths do not overlap.
fn prefix(i: u32) -> (u32, u32) {
    let k = i / 4;
    match i % 4 {
        0 => (0x0a00_0000 + k, 32),
        1 => (0x2000_0000 + (k << 8), 24),
        2 => (0x4000_0000 + (k << 4), 28),
        _ => (0x8000_0000 + (k << 12), 20),
    }
}

/// Nothing outside of the bridge.
struct Nobody;

impl Host for Nobody {
    fn pull_stats(&mut self, _: BridgeId) {}
    fn port_stats(&mut self, _: BridgeId, _: OfPort) -> Option<PortStats> {
        None
    }
    fn queue_stats(&mut self, _: BridgeId, _: OfPort) -> Vec<QueueStats> {
        Vec::new()
    }
    fn publish(&mut self, _: Arc<BridgeView>) {}
    fn packet_out(&mut self, _: BridgeId, _: &PacketOut) -> Result<(), OfError> {
        Ok(())
    }
    fn hold_packet_out(&mut self, _: BridgeId, _: &PacketOut, _: Arc<BridgeView>) -> Result<(), OfError> {
        Ok(())
    }
    fn end_packet_outs(&mut self, _: bool) {}
    fn resume(&mut self, _: BridgeId, _: &Resume) -> Result<(), OfError> {
        Ok(())
    }
    fn set_admin_state(&mut self, _: BridgeId, _: OfPort, _: bool) -> Option<bool> {
        None
    }
}

pub struct Bench {
    pub of: Ofproto,
    pub dp: Arc<Dp>,
    pub slowpath: Arc<Slowpath>,
    /// Port 1 is where packets come in.
    pub devices: Vec<Arc<Mem>>,
}

impl Bench {
    /// Ports 1 to 3, no rules.
    pub fn new() -> Bench {
        let settings = Settings { fail_secure: true, ..Settings::default() };
        let mut of = Ofproto::new(BridgeId(1), "br0", settings, NOW);
        for n in 1..=3 {
            let dp_port = Some(DpPort(n));
            of.set_port(PortSpec { ofp: OfPort(n), dp_port, name: format!("p{n}"), ..PortSpec::default() }, NOW);
        }
        let bundle = |n: u32| BundleView { name: format!("p{n}"), members: vec![OfPort(n)], ..BundleView::default() };
        of.set_bundles((1..=3).map(bundle).collect());
        of.commit(&mut Nobody);
        let view: SharedView = Arc::new(ArcSwap::from_pointee(View::of([of.view()], 1)));
        let dp = Dp::new("ovs-dummy", "dummy", Clock::stopped(), || 0);
        let slowpath = Arc::new(Slowpath::new(dp.clone(), view, Arc::default(), Box::new(|| ())));
        slowpath.configure(Config { flow_limit: 1 << 30, ..Config::default() });
        slowpath.set_flow_limit(1 << 30);
        dp.set_upcall_handler(Some(slowpath.clone() as Arc<dyn UpcallHandler>));
        let devices: Vec<_> = (1..=3).map(|n| Mem::new(&format!("p{n}"), Polling::Main, 1)).collect();
        for (device, n) in devices.iter().zip(1..) {
            dp.add_port(device.clone(), Some(DpPort(n))).expect("port");
        }
        Bench { of, dp, slowpath, devices }
    }

    /// Adds or changes one rule, not yet visible.
    pub fn rule(&mut self, text: &str) {
        let flow = parse_flow(text, Lookups::default()).unwrap_or_else(|e| panic!("{text}: {e}")).flow;
        self.of.flow_mod(NOW, &flow).unwrap_or_else(|e| panic!("{text}: {e:?}"));
    }

    pub fn rules(&mut self, shape: Shape, n: u32, actions: &str) {
        for i in 0..n {
            self.rule(&format!("{},actions={actions}", shape.matches(i)));
            if i % 1024 == 0 {
                self.of.commit(&mut Nobody);
            }
        }
        self.commit();
    }

    pub fn rule_of(&mut self, shape: Shape, i: u32, actions: &str) {
        self.rule(&format!("{},actions={actions}", shape.matches(i)));
        self.commit();
    }

    /// As control's turn ends.
    pub fn commit(&mut self) {
        self.of.commit(&mut Nobody);
        let _ = self.of.turn(NOW, 0, &mut Nobody);
        match self.of.take_changed() {
            Some(rules) => self.slowpath.rules_changed(self.of.id(), &rules),
            None => self.slowpath.model_changed(),
        }
    }

    /// Sends a packet for each rule in turn through the datapath.
    pub fn flows(&self, shape: Shape, n: u32) {
        for i in 0..n {
            self.devices[0].inject(&shape.frame(i));
            if i % 64 == 63 || i == n - 1 {
                while self.dp.turn_main(NOW, 1024).busy() {}
            }
        }
    }
}
