//! Tunnels of the switch: ports of datapaths that tunnel ports share, addresses and routes of bridges.

use std::collections::BTreeMap;
use std::sync::Arc;

use fv_config::IfaceSpec;
use fv_core::{DpPort, Nanos, OfPort};
use fv_dpif::{TunnelKind, Vport};
use fv_tunnel::{Config, Endpoints, Listeners, Local, Net, Prefix, Route, Tunnels};

use crate::datapaths::DpInst;
use crate::engine::Engine;
use crate::hostroutes::HostRoutes;
use crate::vport::VportDevice;

/// What the switch keeps of tunnels beside the ports themselves.
#[derive(Default)]
pub struct TunnelState {
    pub net: Arc<Net>,
    /// The kernel's, followed once there is a tunnel.
    host: Option<HostRoutes>,
    host_failed: bool,
    /// What was published last.
    locals: Vec<Local>,
    dummy_routes: BTreeMap<Prefix, Route>,
    pub egress_ports: Option<(u16, u16)>,
    /// When the last look for neighbours whose time is over was.
    neighbours_seen: Nanos,
}

impl Engine {
    /// A tunnel's options; what is odd about them is logged.
    pub fn tunnel_config(&self, i: &IfaceSpec, kind: TunnelKind) -> Result<Arc<Config>, String> {
        let (config, notes) = fv_tunnel::parse(&i.name, kind, &i.options).inspect_err(|e| {
            e.lines().for_each(|l| log::warn!(target: "netdev_vport", "{l}"));
        })?;
        notes.iter().for_each(|n| log::warn!(target: "netdev_vport", "{n}"));
        Ok(Arc::new(config))
    }

    /// The datapath's port for the tunnel, made at first use. Refuses a tunnel that nobody could tell from another.
    pub fn acquire_vport(&mut self, dp_kind: &str, name: &str, c: &Config) -> Result<DpPort, String> {
        let exists = |what: &str| format!("could not add network device {name} to ofproto ({what})");
        let inst = self.world.dps.find(dp_kind).ok_or("no such datapath")?;
        let port = match inst.dp.port_by_name(&c.vport.name()) {
            Some(port) => {
                let (mut endpoints, _) = self.endpoints(dp_kind, Some(name));
                if let Err((bridge, ofp)) = endpoints.add(port.0, c, (u32::MAX, OfPort::NONE)) {
                    let id = fv_ofproto::view::BridgeId(bridge);
                    let there = self.world.bridges.get(&id).and_then(|b| b.by_ofp(ofp)).map(|i| i.name.as_str());
                    log::warn!(
                        target: "tunnel",
                        "{name}: attempting to add tunnel port with same config as port '{}' {}",
                        there.unwrap_or_default(),
                        c.describe(port.0)
                    );
                    return Err(exists("File exists"));
                }
                port
            }
            None => inst.dp.add_port(Arc::new(VportDevice::new(c.vport)), None).map_err(|e| exists(&e.to_string()))?,
        };
        Ok(port)
    }

    /// A tunnel port gets other options.
    pub fn update_tunnel(
        &mut self,
        bridge: fv_ofproto::view::BridgeId,
        dp_kind: &str,
        name: &str,
        config: Arc<Config>,
    ) -> Result<(), String> {
        let iface = |e: &mut Engine| -> Option<(Option<Arc<Config>>, Option<DpPort>)> {
            let i = e.world.bridges.get(&bridge)?.ifaces.get(name)?;
            Some((i.tunnel.clone(), i.dp_port))
        };
        let Some((old, old_port)) = iface(self) else { return Ok(()) };
        if old.as_ref() == Some(&config) {
            return Ok(());
        }
        let port = self.acquire_vport(dp_kind, name, &config)?;
        if let Some(i) = self.world.bridges.get_mut(&bridge).and_then(|b| b.ifaces.get_mut(name)) {
            (i.tunnel, i.dp_port) = (Some(config), Some(port));
        }
        if let Some(p) = old_port.filter(|p| *p != port) {
            self.release_vport(dp_kind, p);
        }
        Ok(())
    }

    /// Takes the datapath's port away unless another tunnel uses it.
    pub fn release_vport(&mut self, dp_kind: &str, port: DpPort) {
        let used = self
            .world
            .bridges
            .values()
            .filter(|b| b.dp_kind == dp_kind)
            .flat_map(|b| b.ifaces.values())
            .any(|i| i.tunnel.is_some() && i.dp_port == Some(port));
        if let Some(inst) = self.world.dps.find(dp_kind).filter(|_| !used)
            && let Ok(ack) = inst.dp.del_port(port)
        {
            ack.wait(std::time::Duration::from_millis(500));
        }
    }

    /// Tunnel ports of a datapath but `without`, and the datapath's ports that they share.
    fn endpoints(&self, dp_kind: &str, without: Option<&str>) -> (Endpoints, BTreeMap<DpPort, (Vport, usize)>) {
        let mut endpoints = Endpoints::default();
        let mut vports: BTreeMap<DpPort, (Vport, usize)> = BTreeMap::new();
        for (id, b) in self.world.bridges.iter().filter(|(_, b)| b.dp_kind == dp_kind) {
            for i in b.ifaces.values().filter(|i| without != Some(i.name.as_str())) {
                let (Some(c), Some(port)) = (&i.tunnel, i.dp_port) else { continue };
                let _ = endpoints.add(port.0, c, (id.0, i.ofp));
                let (v, n) = vports.entry(port).or_insert((c.vport, 0));
                // An extension that one of the ports understands is understood.
                (v.gbp, v.gpe) = (v.gbp | c.vport.gbp, v.gpe | c.vport.gpe);
                *n += 1;
            }
        }
        (endpoints, vports)
    }

    /// Makes the datapaths' view of tunnels follow the configuration; visible with the next publication.
    pub fn set_tunnels(&mut self) {
        let kinds: Vec<String> = self.world.dps.iter().map(|(k, _)| k.clone()).collect();
        let any = self.any_tunnel();
        let locals = if any { self.local_addresses() } else { Vec::new() };
        for kind in kinds {
            let (endpoints, vports) = self.endpoints(&kind, None);
            let of_dp =
                |l: &&Local| self.world.bridges.values().any(|b| b.dp_kind == kind && b.ifaces.contains_key(&l.device));
            let own: Vec<Local> = locals.iter().filter(of_dp).cloned().collect();
            let list: Vec<_> = vports.iter().map(|(p, (v, n))| (*v, *p, *n)).collect();
            let tunnels = Tunnels {
                endpoints: Arc::new(endpoints),
                listeners: Arc::new(Listeners::new(list, own)),
                net: self.tunnels.net.clone(),
            };
            let range = self.tunnels.egress_ports;
            if let Some(inst) = self.world.dps.find_mut(&kind) {
                inst.dp.set_tunnels(vports.iter().map(|(p, (v, _))| (*p, *v)));
                if let Some((min, max)) = range {
                    inst.dp.set_tunnel_ports(min, max);
                }
                inst.tunnels = tunnels;
                inst.publish();
            }
        }
        self.tunnels.locals = locals;
    }

    fn any_tunnel(&self) -> bool {
        self.world.bridges.values().flat_map(|b| b.ifaces.values()).any(|i| i.tunnel.is_some())
    }

    /// Addresses of internal interfaces.
    fn local_addresses(&self) -> Vec<Local> {
        let mut out = Vec::new();
        for b in self.world.bridges.values() {
            for i in b.ifaces.values().filter(|i| i.kind == "internal") {
                let Some(d) = &i.device else { continue };
                let Some(mac) = d.status().mac else { continue };
                let mut add = |address| out.push(Local { device: i.name.clone(), mac, address });
                if let Some(d) = self.dummies.device(&i.name) {
                    d.ip4().into_iter().for_each(|(a, _)| add(a.into()));
                    d.ip6().into_iter().for_each(|(a, _)| add(a.into()));
                } else if let (Some(h), Some(link)) = (&self.tunnels.host, d.status().ifindex) {
                    h.addresses(link).into_iter().for_each(add);
                }
            }
        }
        out.sort();
        out
    }

    /// Routes that follow from addresses of dummies.
    fn dummy_routes(&self) -> BTreeMap<Prefix, Route> {
        let mut out = BTreeMap::new();
        for d in self.dummies.devices() {
            let name = fv_netdev::Device::name(&*d).to_owned();
            let v4 = d.ip4().into_iter().map(|(a, n)| (std::net::IpAddr::from(a), n, 32));
            let v6 = d.ip6().into_iter().map(|(a, n)| (std::net::IpAddr::from(a), n, 128));
            for (a, len, whole) in v4.chain(v6) {
                let route = |local| Route { device: name.clone(), gateway: None, source: Some(a), local, metric: 0 };
                if let Some(p) = Prefix::new(a, len) {
                    out.entry(p).or_insert_with(|| route(false));
                }
                if let Some(p) = Prefix::new(a, whole) {
                    out.insert(p, route(true));
                }
            }
        }
        out
    }

    /// Follows addresses and routes of the host and of dummies. True if flows may have to change.
    pub fn refresh_tunnels(&mut self, now: Nanos) -> bool {
        let mut changed = self.tunnels.net.neighbours.expire(now);
        self.tunnels.neighbours_seen = now;
        let dummies = self.dummy_routes();
        if dummies != self.tunnels.dummy_routes {
            let mut routes = self.tunnels.net.routes.write();
            for p in self.tunnels.dummy_routes.keys().filter(|p| !dummies.contains_key(p)) {
                routes.set_host(*p, None);
            }
            dummies.iter().for_each(|(p, r)| routes.set_host(*p, Some(r.clone())));
            drop(routes);
            self.tunnels.dummy_routes = dummies;
            changed = true;
        }
        if !self.any_tunnel() {
            return changed;
        }
        self.open_host();
        if let Some(h) = &mut self.tunnels.host {
            changed |= h.turn(now, &self.tunnels.net);
        }
        if self.local_addresses() != self.tunnels.locals {
            self.set_tunnels();
            changed = true;
        }
        if changed {
            self.world.dps.iter().for_each(|(_, i)| i.slowpath.model_changed());
        }
        changed
    }

    fn open_host(&mut self) {
        let t = &mut self.tunnels;
        if t.host.is_some() || t.host_failed || self.opts.disable_system {
            return;
        }
        match HostRoutes::open(!self.opts.disable_system_route) {
            Ok(h) => t.host = Some(h),
            Err(e) => {
                t.host_failed = true;
                log::warn!(target: "ovs_router", "following the host's routes: {e}");
            }
        }
    }

    /// A neighbour was set by hand.
    pub fn neighbour_changed(&self, bridge: &str, ip: std::net::IpAddr, now: Nanos) {
        self.world.dps.iter().for_each(|(_, i): (_, &DpInst)| i.slowpath.neighbour_changed(bridge, ip, now));
    }

    /// An address of a device for packets to `to`: of a network that has it, else any.
    pub fn source_for(&self, device: &str, to: std::net::IpAddr) -> Option<std::net::IpAddr> {
        use std::net::IpAddr;
        let nets: Vec<(IpAddr, u8)> = match self.dummies.device(device) {
            Some(d) if to.is_ipv4() => d.ip4().into_iter().map(|(a, n)| (a.into(), n)).collect(),
            Some(d) => d.ip6().into_iter().map(|(a, n)| (a.into(), n)).collect(),
            None => self.tunnels.host.as_ref()?.networks(device),
        };
        let mut same = nets.into_iter().filter(|(a, _)| a.is_ipv4() == to.is_ipv4());
        let mut first = None;
        same.find(|(a, n)| {
            first = first.or(Some(*a));
            Prefix::new(*a, *n) == Prefix::new(to, *n)
        })
        .map(|(a, _)| a)
        .or(first)
    }
}
