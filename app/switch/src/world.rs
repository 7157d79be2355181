//! Interfaces and datapaths: what bridges ask for and what commands look at.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use fv_core::{Clock, DpPort, OfPort};
use fv_dpif::Datapath;
use fv_flow::{DpKey, FlowKey};
use fv_l2::{BfdMatch, PortMonitor};
use fv_netdev::{Device, Duplex};
use fv_ofproto::host::Host;
use fv_ofproto::view::{BridgeId, BridgeView};
use fv_openflow::OfError;
use fv_openflow::msg::packet::{PacketOut, Resume};
use fv_openflow::msg::port::{PortFeatures, PortStats, QueueStats};
use fv_packet::Packet;
use fv_xlate::{Input, Output, Start};

use crate::datapaths::Datapaths;

/// One interface of a bridge that is open.
#[derive(Default)]
pub struct Iface {
    pub name: String,
    /// Type as the row has it.
    pub kind: String,
    pub ofp: OfPort,
    /// None for patch ports.
    pub device: Option<Arc<dyn Device>>,
    pub dp_port: Option<DpPort>,
    /// Name of the other end of a patch port.
    pub peer: Option<String>,
    /// What makes it a tunnel port; `dp_port` is shared then.
    pub tunnel: Option<Arc<fv_tunnel::Config>>,
    /// The device's sequence number when its status was last taken over.
    pub seen_seq: u64,
    /// What guards the port, once something has.
    pub monitor: Option<Arc<PortMonitor>>,
    /// How its BFD session is told, if it has one.
    pub bfd: Option<BfdMatch>,
    /// The monitor's changes when they were last taken over.
    pub seen_changes: u64,
}

impl Iface {
    /// Something shows that has not been taken over yet.
    pub fn has_changed(&self) -> bool {
        self.device.as_ref().is_some_and(|d| d.change_seq() != self.seen_seq)
            || self.monitor.as_ref().is_some_and(|m| m.changes() != self.seen_changes)
    }
}

/// The interfaces of one bridge, by name.
pub struct BridgePorts {
    pub name: String,
    pub dp_kind: String,
    pub ifaces: BTreeMap<String, Iface>,
}

impl BridgePorts {
    pub fn by_ofp(&self, p: OfPort) -> Option<&Iface> {
        self.ifaces.values().find(|i| i.ofp == p)
    }
}

pub struct World {
    pub clock: Clock,
    pub dps: Datapaths,
    pub bridges: HashMap<BridgeId, BridgePorts>,
    /// Datapaths with views that are not published yet.
    dirty: Vec<String>,
    /// Packets of a bundle that is being carried out.
    held: Vec<Held>,
}

impl World {
    pub fn new(clock: Clock, dps: Datapaths) -> World {
        World { clock, dps, bridges: HashMap::new(), dirty: Vec::new(), held: Vec::new() }
    }

    /// Publishes what `Host::publish` collected.
    pub fn publish_all(&mut self) {
        for kind in std::mem::take(&mut self.dirty) {
            if let Some(i) = self.dps.find_mut(&kind) {
                i.publish();
            }
        }
    }

    pub fn kind_of(&self, bridge: BridgeId) -> Option<&str> {
        self.bridges.get(&bridge).map(|b| b.dp_kind.as_str())
    }

    pub fn find_iface(&self, name: &str) -> Option<(BridgeId, &Iface)> {
        self.bridges.iter().find_map(|(id, b)| b.ifaces.get(name).map(|i| (*id, i)))
    }

    pub fn device(&self, name: &str) -> Option<&Arc<dyn Device>> {
        self.find_iface(name).and_then(|(_, i)| i.device.as_ref())
    }

    /// The other end of patch port `name` of `bridge`, if both ends name each other.
    pub fn peer_of(&self, bridge: BridgeId, name: &str) -> Option<(BridgeId, OfPort)> {
        let kind = self.kind_of(bridge)?;
        let peer = self.bridges.get(&bridge)?.ifaces.get(name)?.peer.as_deref()?;
        self.bridges.iter().filter(|(_, b)| b.dp_kind == kind).find_map(|(id, b)| {
            let other = b.ifaces.get(peer)?;
            (other.peer.as_deref() == Some(name)).then_some((*id, other.ofp))
        })
    }

    /// Translates a packet that control sends, and executes the result before it returns.
    pub fn execute(&mut self, bridge: BridgeId, packet: Packet, key: FlowKey, start: Start<'_>) -> Result<(), String> {
        let held = self.translate(bridge, packet, key, start, None)?;
        self.run(held);
        Ok(())
    }

    /// What a packet that control sends leads to, with `bridge` as `other` shows it.
    fn translate(
        &mut self,
        bridge: BridgeId,
        mut packet: Packet,
        mut key: FlowKey,
        start: Start<'_>,
        other: Option<Arc<BridgeView>>,
    ) -> Result<Held, String> {
        let now = self.clock.now();
        let kind = self.kind_of(bridge).ok_or("no such bridge")?;
        let inst = self.dps.find(kind).ok_or("no such datapath")?;
        let mut view = inst.view.load_full();
        if let Some(b) = other {
            Arc::make_mut(&mut view).bridges.insert(bridge, b);
        }
        let of_port = OfPort(key.base.in_port);
        let dp_port = view.bridges.get(&bridge).and_then(|b| b.ports.get(&of_port)).and_then(|p| p.dp_port);
        let meta = packet.meta_mut();
        meta.in_port = dp_port.unwrap_or(DpPort::NONE).0;
        let tunnel = fv_flow::TunnelKey::of_key(&key.dp);
        if tunnel != fv_flow::TunnelKey::default() {
            packet.set_side(&tunnel.note());
        }
        let mut dp_key = fv_flow::extract::extract(
            &mut packet,
            &fv_flow::extract::Extra { vlan_limit: self.dps.vlan_limit, ..Default::default() },
        );
        let (pipe, tun, mark) = (key.pipe, key.tun, key.base.pkt_mark);
        dp_key.base.pkt_mark = mark;
        key.dp = dp_key;
        key.dp.base.in_port = of_port.0;
        (key.pipe, key.dp.tun) = (pipe, tun);
        let slowpath = inst.slowpath.clone();
        let freeze = |s| slowpath.frozen.freeze(s);
        let input = Input {
            view: &view,
            bridge,
            key,
            packet: Some(&packet),
            start,
            freeze: &freeze,
            now,
            trace: false,
            names: false,
        };
        let out = fv_xlate::translate(&input);
        if let Some(e) = out.error {
            slowpath.release_later(out.frozen);
            return Err(e.to_string());
        }
        Ok(Held { kind: kind.to_owned(), packet, key: dp_key, out })
    }

    /// Executes what a packet leads to, and counts it.
    fn run(&mut self, h: Held) {
        let now = self.clock.now();
        let Some(inst) = self.dps.find(&h.kind) else { return };
        inst.slowpath.account(&h.out, h.packet.len(), h.key.base.tcp_flags.get(), now);
        inst.dp.execute(h.packet, &h.key, &h.out.program);
        inst.slowpath.release_later(h.out.frozen);
    }
}

/// A packet that control sends, and what it leads to.
struct Held {
    /// Of the datapath.
    kind: String,
    packet: Packet,
    key: DpKey,
    out: Output,
}

impl Host for World {
    fn pull_stats(&mut self, bridge: BridgeId) {
        let now = self.clock.now();
        if let Some(i) = self.kind_of(bridge).and_then(|k| self.dps.find(k)) {
            i.slowpath.pull(now);
        }
    }

    fn port_stats(&mut self, bridge: BridgeId, port: OfPort) -> Option<PortStats> {
        let b = self.bridges.get(&bridge)?;
        let i = b.by_ofp(port)?;
        match &i.device {
            Some(d) => Some(of_stats(port, &d.stats())),
            None => {
                let s = self.dps.find(&b.dp_kind)?.slowpath.patch.of(bridge, port);
                let all = fv_netdev::PortStats {
                    rx_packets: Some(s.rx_packets),
                    rx_bytes: Some(s.rx_bytes),
                    tx_packets: Some(s.tx_packets),
                    tx_bytes: Some(s.tx_bytes),
                    ..Default::default()
                };
                Some(of_stats(port, &all))
            }
        }
    }

    fn queue_stats(&mut self, bridge: BridgeId, port: OfPort) -> Vec<QueueStats> {
        let device = self.bridges.get(&bridge).and_then(|b| b.by_ofp(port)).and_then(|i| i.device.as_ref());
        // Dummies have one queue, of which nothing is known; no device has been given others.
        match device {
            Some(d) if d.kind().starts_with("dummy") => {
                let u = u64::MAX;
                vec![QueueStats {
                    port_no: port,
                    queue: 0,
                    tx_bytes: u,
                    tx_packets: u,
                    tx_errors: u,
                    duration_ns: None,
                }]
            }
            _ => Vec::new(),
        }
    }

    fn publish(&mut self, view: Arc<BridgeView>) {
        let Some(kind) = self.bridges.get(&view.id).map(|b| b.dp_kind.clone()) else { return };
        if let Some(i) = self.dps.find_mut(&kind) {
            i.set_view(view);
            if !self.dirty.contains(&kind) {
                self.dirty.push(kind);
            }
        }
    }

    fn packet_out(&mut self, bridge: BridgeId, out: &PacketOut) -> Result<(), OfError> {
        // What the actions see is what was published.
        self.publish_all();
        let packet = Packet::from_slice(&out.packet);
        let key = out.metadata.key;
        // Nothing has happened then, and the code is the reference's.
        self.execute(bridge, packet, key, Start::Actions(&out.actions.0)).map_err(|e| {
            log::debug!(target: "ofproto", "packet-out: {e}");
            OfError::FmfcUnknown
        })
    }

    fn hold_packet_out(&mut self, bridge: BridgeId, out: &PacketOut, view: Arc<BridgeView>) -> Result<(), OfError> {
        self.publish_all();
        let packet = Packet::from_slice(&out.packet);
        let start = Start::Actions(&out.actions.0);
        let held = self.translate(bridge, packet, out.metadata.key, start, Some(view)).map_err(|e| {
            log::debug!(target: "ofproto", "packet-out: {e}");
            OfError::FmfcUnknown
        })?;
        self.held.push(held);
        Ok(())
    }

    fn end_packet_outs(&mut self, run: bool) {
        let held = std::mem::take(&mut self.held);
        if run {
            self.publish_all();
            held.into_iter().for_each(|h| self.run(h));
            return;
        }
        for h in held {
            if let Some(i) = self.dps.find(&h.kind) {
                i.slowpath.release_later(h.out.frozen);
            }
        }
    }

    fn resume(&mut self, bridge: BridgeId, r: &Resume) -> Result<(), OfError> {
        self.publish_all();
        let inst = self.kind_of(bridge).and_then(|k| self.dps.find(k)).ok_or(OfError::NxRStale)?;
        let state = fv_slowpath::resume::resumed(&r.packet_in, &inst.view.load()).ok_or(OfError::NxRStale)?;
        let packet = Packet::from_slice(&r.packet_in.packet);
        if let Err(e) = self.execute(state.bridge, packet, state.key, Start::Thaw(&state)) {
            log::warn!(target: "ofproto", "resume: {e}");
        }
        Ok(())
    }

    fn set_admin_state(&mut self, bridge: BridgeId, port: OfPort, up: bool) -> Option<bool> {
        let device = self.bridges.get(&bridge).and_then(|b| b.by_ofp(port)).and_then(|i| i.device.clone())?;
        if let Err(e) = device.set_admin_up(up) {
            log::warn!(target: "ofproto", "{}: cannot change administrative state: {e}", device.name());
        }
        Some(device.status().link_up)
    }
}

fn of_stats(port_no: OfPort, s: &fv_netdev::PortStats) -> PortStats {
    let v = |x: Option<u64>| x.unwrap_or(u64::MAX);
    PortStats {
        port_no,
        rx_packets: v(s.rx_packets),
        tx_packets: v(s.tx_packets),
        rx_bytes: v(s.rx_bytes),
        tx_bytes: v(s.tx_bytes),
        rx_dropped: v(s.rx_dropped),
        tx_dropped: v(s.tx_dropped),
        rx_errors: v(s.rx_errors),
        tx_errors: v(s.tx_errors),
        rx_frame_err: v(s.rx_frame_errors),
        rx_over_err: v(s.rx_over_errors),
        rx_crc_err: v(s.rx_crc_errors),
        collisions: v(s.collisions),
        duration_ns: None,
        custom: s.custom.clone(),
    }
}

/// Link speed and mode as OpenFlow features; nothing if the device does not know.
pub fn features(speed_bps: Option<u64>, duplex: Option<Duplex>) -> PortFeatures {
    let full = duplex != Some(Duplex::Half);
    match speed_bps.map(|s| s / 1_000_000) {
        Some(10) if full => PortFeatures::M10_FD,
        Some(10) => PortFeatures::M10_HD,
        Some(100) if full => PortFeatures::M100_FD,
        Some(100) => PortFeatures::M100_HD,
        Some(1000) if full => PortFeatures::G1_FD,
        Some(1000) => PortFeatures::G1_HD,
        Some(10_000) => PortFeatures::G10_FD,
        Some(40_000) => PortFeatures::G40_FD,
        Some(100_000) => PortFeatures::G100_FD,
        Some(_) => PortFeatures::OTHER,
        None => PortFeatures::default(),
    }
}
