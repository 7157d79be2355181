//! Ports and bundles of a bridge, from plain specifications.

use std::sync::Arc;

use fv_core::{DpPort, Nanos, OfPort};
use fv_l2::{BfdMatch, MonitorRef};
use fv_openflow::OfError;
use fv_openflow::msg::port::{Port as PortDesc, PortConfig, PortFeatures, PortMod, PortReason, PortState, PortStatus};

use crate::bridge::Ofproto;
use crate::host::Host;
use crate::view::{BridgeId, BundleView, PortView};

/// First port number that controllers cannot use.
const MAX_PORT: u32 = 0xff00;
/// Configuration bits that a port-mod may change.
const SETTABLE: PortConfig = PortConfig(
    PortConfig::PORT_DOWN.0
        | PortConfig::NO_STP.0
        | PortConfig::NO_RECV.0
        | PortConfig::NO_RECV_STP.0
        | PortConfig::NO_FLOOD.0
        | PortConfig::NO_FWD.0
        | PortConfig::NO_PACKET_IN.0,
);

/// A port as configuration and the device say it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortSpec {
    pub ofp: OfPort,
    pub dp_port: Option<DpPort>,
    pub name: String,
    pub hw_addr: [u8; 6],
    pub peer: Option<(BridgeId, OfPort)>,
    pub is_internal: bool,
    pub tunnel: Option<Arc<fv_tunnel::Config>>,
    pub mtu: u32,
    pub monitor: Option<MonitorRef>,
    pub bfd: Option<BfdMatch>,
    /// The protocols that guard the port let it be used.
    pub forwarding: bool,
    pub admin_up: bool,
    pub link_up: bool,
    pub curr: PortFeatures,
    pub advertised: PortFeatures,
    pub supported: PortFeatures,
    pub peer_features: PortFeatures,
    pub curr_speed_kbps: u32,
    pub max_speed_kbps: u32,
    /// Initial configuration bits, for those that configuration sets (`NO_FLOOD` ...).
    pub config: PortConfig,
}

impl Default for PortSpec {
    fn default() -> Self {
        PortSpec {
            ofp: OfPort::NONE,
            dp_port: None,
            name: String::new(),
            hw_addr: [0; 6],
            peer: None,
            is_internal: false,
            tunnel: None,
            mtu: 1500,
            monitor: None,
            bfd: None,
            forwarding: true,
            admin_up: true,
            link_up: true,
            curr: PortFeatures::default(),
            advertised: PortFeatures::default(),
            supported: PortFeatures::default(),
            peer_features: PortFeatures::default(),
            curr_speed_kbps: 0,
            max_speed_kbps: 0,
            config: PortConfig::default(),
        }
    }
}

pub(crate) struct Port {
    pub spec: PortSpec,
    pub view: PortView,
    pub created: Nanos,
}

impl Port {
    fn new(spec: PortSpec, now: Nanos) -> Port {
        let mut p = Port {
            view: PortView { config: spec.config, ..PortView::default() },
            spec: PortSpec::default(),
            created: now,
        };
        p.update(spec);
        p
    }

    /// Takes over a specification; what controllers set stays.
    fn update(&mut self, spec: PortSpec) {
        self.view.ofp = spec.ofp;
        self.view.dp_port = spec.dp_port;
        self.view.name.clone_from(&spec.name);
        self.view.hw_addr = spec.hw_addr;
        self.view.peer = spec.peer;
        self.view.is_internal = spec.is_internal;
        self.view.tunnel.clone_from(&spec.tunnel);
        self.view.mtu = spec.mtu;
        self.view.monitor.clone_from(&spec.monitor);
        self.view.bfd = spec.bfd;
        self.view.config = self.view.config.set(PortConfig::PORT_DOWN, !spec.admin_up);
        let down = !spec.link_up || !spec.admin_up;
        self.view.state = self.view.state.set(PortState::LINK_DOWN, down);
        self.view.state = self.view.state.set(PortState::LIVE, !down && spec.forwarding);
        self.spec = spec;
    }

    pub(crate) fn desc(&self) -> PortDesc {
        let s = &self.spec;
        PortDesc {
            port_no: s.ofp,
            hw_addr: s.hw_addr,
            name: s.name.clone(),
            config: self.view.config,
            state: self.view.state,
            curr: s.curr,
            advertised: s.advertised,
            supported: s.supported,
            peer: s.peer_features,
            curr_speed_kbps: s.curr_speed_kbps,
            max_speed_kbps: s.max_speed_kbps,
        }
    }
}

impl Ofproto {
    /// The port number that a new port gets: the one asked for if it is free, else the next free one.
    /// None when all are taken.
    pub fn alloc_port(&mut self, request: Option<OfPort>) -> Option<OfPort> {
        if let Some(r) = request.filter(|r| (1..MAX_PORT).contains(&r.0) && !self.ports.contains_key(r)) {
            return Some(r);
        }
        // Numbers of ports that went away are used again as late as possible.
        for _ in 1..MAX_PORT {
            self.next_port = if self.next_port + 1 >= MAX_PORT { 1 } else { self.next_port + 1 };
            if !self.ports.contains_key(&OfPort(self.next_port)) {
                return Some(OfPort(self.next_port));
            }
        }
        None
    }

    /// Adds a port or takes over what changed; controllers are told.
    pub fn set_port(&mut self, spec: PortSpec, now: Nanos) {
        let ofp = spec.ofp;
        let reason = match self.ports.get_mut(&ofp) {
            Some(p) if p.spec == spec => return,
            Some(p) if p.spec.name == spec.name => {
                let old = p.desc();
                p.update(spec);
                (p.desc() != old).then_some(PortReason::Modify)
            }
            _ => {
                self.remove_port(ofp);
                let mut p = Port::new(spec, now);
                p.view.bundle = self.bundles.iter().position(|b| b.members.contains(&ofp));
                self.ports.insert(ofp, p);
                Some(PortReason::Add)
            }
        };
        self.view_dirty = true;
        if let (Some(reason), Some(p)) = (reason, self.ports.get(&ofp)) {
            let status = PortStatus { reason, desc: p.desc() };
            self.conns.port_status(&status);
        }
    }

    pub fn remove_port(&mut self, ofp: OfPort) {
        if let Some(p) = self.ports.remove(&ofp) {
            self.view_dirty = true;
            let status = PortStatus { reason: PortReason::Delete, desc: p.desc() };
            self.conns.port_status(&status);
        }
    }

    /// As replies list them: LOCAL has the greatest number but comes first.
    pub(crate) fn ports_in_order(&self) -> impl Iterator<Item = &Port> {
        let local = self.ports.get(&OfPort::LOCAL);
        local.into_iter().chain(self.ports.values().filter(|p| p.view.ofp != OfPort::LOCAL))
    }

    /// (number, name) of all ports.
    pub fn ports(&self) -> impl Iterator<Item = &PortView> {
        self.ports.values().map(|p| &p.view)
    }

    pub fn port(&self, ofp: OfPort) -> Option<&PortView> {
        self.ports.get(&ofp).map(|p| &p.view)
    }

    pub fn port_by_name(&self, name: &str) -> Option<&PortView> {
        self.ports().find(|p| p.name == name)
    }

    /// Replaces the bundles. A bundle keeps its id, which is its place in the view's list, for as
    /// long as one of its name exists; what was learnt on one that goes is forgotten.
    pub fn set_bundles(&mut self, specs: Vec<BundleView>) {
        let mut next: Vec<BundleView> = self.bundles.iter().map(|_| BundleView::default()).collect();
        let mut new = Vec::new();
        for s in specs {
            match self.bundles.iter().position(|b| b.name == s.name) {
                Some(i) => next[i] = s,
                None => new.push(s),
            }
        }
        for (i, (old, now)) in self.bundles.iter().zip(&next).enumerate() {
            let vlans = |b: &BundleView| (b.vlan_mode, b.tag, b.trunks.clone());
            if !old.name.is_empty() && (now.name.is_empty() || vlans(old) != vlans(now)) {
                self.mac_table().flush_port(i as u64);
            }
        }
        for s in new {
            match next.iter_mut().find(|b| b.name.is_empty()) {
                Some(hole) => *hole = s,
                None => next.push(s),
            }
        }
        if next == self.bundles {
            return;
        }
        self.bundles = next;
        for p in self.ports.values_mut() {
            p.view.bundle = None;
        }
        for (i, b) in self.bundles.iter().enumerate() {
            for m in &b.members {
                if let Some(p) = self.ports.get_mut(m) {
                    p.view.bundle = Some(i);
                }
            }
        }
        self.view_dirty = true;
    }

    pub fn bundles(&self) -> &[BundleView] {
        &self.bundles
    }

    /// The bundles as translation sees them: one member that is not flooded keeps its bundle from it.
    pub(crate) fn bundle_views(&self) -> Vec<BundleView> {
        let no_flood = |m| self.port(m).is_some_and(|p| p.config.has(PortConfig::NO_FLOOD));
        let floodable = |b: &BundleView| !b.members.iter().copied().any(no_flood);
        self.bundles.iter().map(|b| BundleView { floodable: floodable(b), ..b.clone() }).collect()
    }

    /// Whether [`Ofproto::port_mod`] would do it.
    pub(crate) fn check_port_mod(&self, m: &PortMod, any_addr: bool) -> Result<(), OfError> {
        let p = self.ports.get(&m.port_no).ok_or(OfError::PmfcBadPort)?;
        let any = any_addr && m.hw_addr == [0; 6];
        if m.hw_addr == p.spec.hw_addr || any { Ok(()) } else { Err(OfError::PmfcBadHwAddr) }
    }

    /// A controller changes a port's configuration. `any_addr`: a zero address stands for any, as from
    /// OpenFlow 1.4 on.
    pub(crate) fn port_mod(&mut self, m: &PortMod, any_addr: bool, host: &mut dyn Host) -> Result<(), OfError> {
        self.check_port_mod(m, any_addr)?;
        let id = self.id();
        let p = self.ports.get_mut(&m.port_no).ok_or(OfError::PmfcBadPort)?;
        let mask = PortConfig(m.mask.0 & SETTABLE.0);
        let old = p.desc();
        p.view.config = p.view.config.without(mask).with(PortConfig(m.config.0 & mask.0));
        if mask.has(PortConfig::PORT_DOWN) {
            let up = !m.config.has(PortConfig::PORT_DOWN);
            if up != p.spec.admin_up {
                let link_up = host.set_admin_state(id, m.port_no, up).unwrap_or(p.spec.link_up);
                let spec = PortSpec { admin_up: up, link_up, ..p.spec.clone() };
                p.update(spec);
            }
        }
        let desc = p.desc();
        if desc != old {
            self.view_dirty = true;
            self.conns.port_status(&PortStatus { reason: PortReason::Modify, desc });
        }
        Ok(())
    }
}
