mod conn;
mod flows;
mod groups;
mod learn;
mod monitors;
mod twin;

use std::sync::Arc;

use fv_core::{Nanos, OfPort};
use fv_flow::Match;
use fv_openflow::action::Action;
use fv_openflow::msg::packet::{PacketOut, Resume};
use fv_openflow::msg::port::{PortStats, QueueStats};
use fv_openflow::{Actions, OfError};

use crate::*;

/// A host that remembers what it was asked.
#[derive(Default)]
pub(crate) struct FakeHost {
    pub pulls: usize,
    pub views: Vec<Arc<BridgeView>>,
    pub packets: Vec<PacketOut>,
    pub held: Vec<(PacketOut, Arc<BridgeView>)>,
    pub admin: Vec<(OfPort, bool)>,
}

impl Host for FakeHost {
    fn pull_stats(&mut self, _: BridgeId) {
        self.pulls += 1;
    }
    fn port_stats(&mut self, _: BridgeId, port: OfPort) -> Option<PortStats> {
        Some(PortStats { rx_packets: 1, tx_packets: 2, ..PortStats::unknown(port) })
    }
    fn queue_stats(&mut self, _: BridgeId, _: OfPort) -> Vec<QueueStats> {
        Vec::new()
    }
    fn publish(&mut self, view: Arc<BridgeView>) {
        self.views.push(view);
    }
    fn hold_packet_out(&mut self, _: BridgeId, packet: &PacketOut, view: Arc<BridgeView>) -> Result<(), OfError> {
        self.held.push((packet.clone(), view));
        Ok(())
    }
    fn end_packet_outs(&mut self, run: bool) {
        let held = std::mem::take(&mut self.held);
        if run {
            self.packets.extend(held.into_iter().map(|h| h.0));
        }
    }
    fn packet_out(&mut self, _: BridgeId, packet: &PacketOut) -> Result<(), OfError> {
        self.packets.push(packet.clone());
        Ok(())
    }
    fn resume(&mut self, _: BridgeId, _: &Resume) -> Result<(), OfError> {
        Ok(())
    }
    fn set_admin_state(&mut self, _: BridgeId, port: OfPort, up: bool) -> Option<bool> {
        self.admin.push((port, up));
        None
    }
}

pub(crate) fn at(s: u64) -> Nanos {
    Nanos::from_secs(1000 + s)
}

pub(crate) fn bridge(secure: bool) -> Ofproto {
    let settings = Settings { dpid: 0xfedc_ba98_7654_3210, fail_secure: secure, ..Settings::default() };
    let mut o = Ofproto::new(BridgeId(1), "br0", settings, at(0));
    for (n, name) in [(0xffff_fffe, "br0"), (1, "p1"), (2, "p2")] {
        let spec = PortSpec {
            ofp: OfPort(n),
            name: name.into(),
            hw_addr: [0xaa, 0x55, 0, 0, 0, n as u8],
            ..PortSpec::default()
        };
        o.set_port(spec, at(0));
    }
    o
}

pub(crate) fn on_port(p: u32) -> Match {
    let mut m = Match::default();
    (m.key.dp.base.in_port, m.mask.0.dp.base.in_port) = (p, u32::MAX);
    m
}

pub(crate) fn output(p: u32) -> Actions {
    Actions(vec![Action::output(OfPort(p))])
}
