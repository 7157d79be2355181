//! What translation reads of all bridges of a datapath: plain data, replaced as a whole.

use std::sync::Arc;

use arc_swap::ArcSwap;
use fv_classifier::Version;
use fv_core::{DpPort, OfPort};
use fv_flow::{DpKey, TunTable};
use fv_l2::{BfdMatch, MacTable, MonitorRef, VlanSet};
use fv_openflow::msg::FragHandling;
use fv_openflow::msg::port::{PortConfig, PortState};
use hashbrown::HashMap;

use crate::dp_features::DpFeatures;
use crate::group::Groups;
use crate::meter::Meters;
use crate::snapshot::Snapshot;
use crate::tables::Tables;

/// A bridge, for as long as the process runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct BridgeId(pub u32);

/// Where the current view is published.
pub type SharedView = Arc<ArcSwap<View>>;

/// All bridges of one datapath.
#[derive(Clone, Default)]
pub struct View {
    pub bridges: HashMap<BridgeId, Arc<BridgeView>>,
    /// Who a datapath port belongs to.
    pub by_dp_port: HashMap<DpPort, (BridgeId, OfPort)>,
    /// Grows with each publication.
    pub seq: u64,
    pub features: DpFeatures,
    pub tunnels: fv_tunnel::Tunnels,
}

impl View {
    /// The view of these bridges.
    pub fn of(bridges: impl IntoIterator<Item = Arc<BridgeView>>, seq: u64) -> View {
        let bridges: HashMap<_, _> = bridges.into_iter().map(|b| (b.id, b)).collect();
        let by_dp_port = bridges
            .values()
            .flat_map(|b| b.ports.values().filter_map(|p| Some((p.own_dp_port()?, (b.id, p.ofp)))))
            .collect();
        View { bridges, by_dp_port, seq, features: DpFeatures::default(), tunnels: Default::default() }
    }

    pub fn bridge(&self, id: BridgeId) -> Option<&Arc<BridgeView>> {
        self.bridges.get(&id)
    }

    pub fn bridge_by_name(&self, name: &str) -> Option<&Arc<BridgeView>> {
        self.bridges.values().find(|b| b.name == name)
    }

    /// The bridge and port where a packet with this key enters: a datapath port's, or the tunnel port that its
    /// metadata means.
    pub fn origin(&self, key: &DpKey) -> Option<(BridgeId, OfPort)> {
        let port = DpPort(key.base.in_port);
        let tunnel = || self.tunnels.endpoints.find(key).map(|(b, p)| (BridgeId(b), p));
        self.by_dp_port.get(&port).copied().or_else(tunnel)
    }

    /// The bridge and port that a packet from a datapath port enters.
    pub fn port(&self, p: DpPort) -> Option<(&Arc<BridgeView>, &PortView)> {
        let (b, ofp) = self.by_dp_port.get(&p)?;
        let bridge = self.bridges.get(b)?;
        Some((bridge, bridge.ports.get(ofp)?))
    }
}

/// One bridge.
#[derive(Clone)]
pub struct BridgeView {
    pub id: BridgeId,
    pub name: String,
    pub dpid: u64,
    pub tables: Arc<Tables>,
    /// Tables as of a version that is not published, for a packet in the middle of a bundle.
    pub version: Option<Version>,
    pub ports: HashMap<OfPort, PortView>,
    /// Index is the bundle's id, which is also what `mac_table` stores. A hole is a bundle without members.
    pub bundles: Vec<BundleView>,
    pub mac_table: Arc<MacTable>,
    pub groups: Arc<Groups>,
    pub meters: Arc<Meters>,
    /// Options of tunnels and their fields.
    pub tun_options: Arc<TunTable>,
    /// Forward frames to reserved multicast addresses.
    pub forward_bpdu: bool,
    /// A controller is connected (or fail-mode is secure): NORMAL is not the only forwarder.
    pub has_controller: bool,
    /// Some connected controller of OpenFlow 1.2 or older wants table misses.
    pub wants_miss: bool,
    pub fail_secure: bool,
    pub flood_vlans: VlanSet,
    pub frags: FragHandling,
    /// Some controller wants packets with an invalid TTL.
    pub invalid_ttl_to_controller: bool,
}

impl BridgeView {
    /// The tables that a translation with this view looks into.
    pub fn snapshot(&self) -> Snapshot {
        let s = self.tables.snapshot();
        match self.version {
            Some(v) => s.at(v),
            None => s,
        }
    }

    pub fn port(&self, p: OfPort) -> Option<&PortView> {
        self.ports.get(&p)
    }

    /// The bundle of a port.
    pub fn bundle_of(&self, p: OfPort) -> Option<(usize, &BundleView)> {
        let i = self.ports.get(&p)?.bundle?;
        Some((i, self.bundles.get(i)?))
    }
}

/// One OpenFlow port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortView {
    pub ofp: OfPort,
    /// None for patch ports, and for ports that the datapath does not have.
    pub dp_port: Option<DpPort>,
    pub name: String,
    pub hw_addr: [u8; 6],
    pub config: PortConfig,
    pub state: PortState,
    /// The other end of a patch port.
    pub peer: Option<(BridgeId, OfPort)>,
    /// Index into the bridge's bundles.
    pub bundle: Option<usize>,
    pub is_internal: bool,
    pub mtu: u32,
    /// What guards the port, if anything does.
    pub monitor: Option<MonitorRef>,
    /// With a BFD session: which packets are its.
    pub bfd: Option<BfdMatch>,
    /// What makes it a tunnel port, which shares its datapath port with others.
    pub tunnel: Option<Arc<fv_tunnel::Config>>,
}

impl Default for PortView {
    fn default() -> Self {
        PortView {
            ofp: OfPort::NONE,
            dp_port: None,
            name: String::new(),
            hw_addr: [0; 6],
            config: PortConfig::default(),
            state: PortState::LIVE,
            peer: None,
            bundle: None,
            is_internal: false,
            mtu: 1500,
            monitor: None,
            bfd: None,
            tunnel: None,
        }
    }
}

impl PortView {
    /// Whether what watches the port may use it: as control last said, and as its protocols say this moment.
    pub fn is_live(&self) -> bool {
        self.state.has(PortState::LIVE) && self.monitor.as_ref().is_none_or(|m| m.0.forwarding())
    }

    /// The datapath port, unless tunnel ports share it.
    pub fn own_dp_port(&self) -> Option<DpPort> {
        self.dp_port.filter(|_| self.tunnel.is_none())
    }

    /// Whether the port may be sent to: up by configuration, not told to drop.
    pub fn may_output(&self) -> bool {
        !self.config.any(PortConfig::PORT_DOWN.with(PortConfig::NO_FWD))
    }
}

/// How a port of NORMAL treats VLANs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum VlanMode {
    Access,
    #[default]
    Trunk,
    NativeTagged,
    NativeUntagged,
    Dot1qTunnel,
}

/// Whether packets without VLAN get a priority tag on output.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum PriorityTags {
    #[default]
    Never,
    IfNonzero,
    Always,
}

/// One logical port of NORMAL: an interface, or several that are bonded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BundleView {
    pub name: String,
    pub vlan_mode: VlanMode,
    /// The access, native or tunnel VLAN; 0 in pure trunks.
    pub tag: u16,
    /// None carries every VLAN.
    pub trunks: Option<VlanSet>,
    /// Customer VLANs of a dot1q-tunnel; None is all.
    pub cvlans: Option<VlanSet>,
    /// EtherType of the service tag.
    pub qinq_ethtype: u16,
    pub priority_tags: PriorityTags,
    /// Protected bundles do not forward to one another.
    pub protected: bool,
    pub members: Vec<OfPort>,
    /// Every member takes part in flooding. Set when the view is made.
    pub floodable: bool,
}

impl Default for BundleView {
    fn default() -> Self {
        BundleView {
            name: String::new(),
            vlan_mode: VlanMode::Trunk,
            tag: 0,
            trunks: None,
            cvlans: None,
            qinq_ethtype: 0x88a8,
            priority_tags: PriorityTags::Never,
            protected: false,
            members: Vec::new(),
            floodable: true,
        }
    }
}

impl BundleView {
    pub fn is_bond(&self) -> bool {
        self.members.len() > 1
    }

    fn trunks_vlan(&self, vlan: u16) -> bool {
        self.trunks.as_ref().is_none_or(|t| t.contains(vlan))
    }

    /// Whether packets of `vlan` (0: none) pass this bundle.
    pub fn includes_vlan(&self, vlan: u16) -> bool {
        match self.vlan_mode {
            VlanMode::Access => vlan == self.tag,
            VlanMode::Trunk => self.trunks_vlan(vlan),
            VlanMode::NativeTagged | VlanMode::NativeUntagged => vlan == self.tag || self.trunks_vlan(vlan),
            VlanMode::Dot1qTunnel => vlan == self.tag,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlans_of_a_bundle() {
        let b = |vlan_mode, tag, trunks: Option<&[u16]>| BundleView {
            vlan_mode,
            tag,
            trunks: trunks.map(|t| t.iter().copied().collect()),
            ..BundleView::default()
        };
        for (bundle, vlan, want) in [
            (b(VlanMode::Access, 5, None), 5, true),
            (b(VlanMode::Access, 5, None), 0, false),
            (b(VlanMode::Trunk, 0, None), 77, true),
            (b(VlanMode::Trunk, 0, Some(&[1, 2])), 2, true),
            (b(VlanMode::Trunk, 0, Some(&[1, 2])), 3, false),
            (b(VlanMode::NativeUntagged, 9, Some(&[1])), 9, true),
            (b(VlanMode::NativeTagged, 9, Some(&[1])), 8, false),
            (b(VlanMode::Dot1qTunnel, 100, None), 100, true),
        ] {
            assert_eq!(bundle.includes_vlan(vlan), want, "{bundle:?} {vlan}");
        }
    }
}
