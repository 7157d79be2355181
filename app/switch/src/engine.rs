//! The engines under configuration: bridges, their interfaces and datapaths.

use std::collections::BTreeMap;
use std::path::{Component, Path};
use std::sync::Arc;

use fv_classifier::PrefixField;
use fv_config::{BridgeSpec, ControllerSpec, FailMode, Globals, IfaceSpec, PortSpec, Targets};
use fv_core::{Clock, Nanos, OfPort};
use fv_dpif::TunnelKind;
use fv_l2::MonitorRef;
use fv_netdev::{Device, DeviceError, Env, Registry};
use fv_ofproto::packet_in::PacketInQueue;
use fv_ofproto::tables::TableSpec;
use fv_ofproto::view::{BridgeId, BundleView, PriorityTags, VlanMode};
use fv_ofproto::{Ofproto, PortSpec as OfPortSpec, Settings};
use fv_openflow::VersionSet;

use crate::datapaths::Datapaths;
use crate::latency::Mode;
use crate::openflow::BridgeIo;
use crate::options::{DummyMode, SwitchOptions};
use crate::pmd::{Topology, configure_port};
use crate::vhost::Vhost;
use crate::world::{BridgePorts, Iface, World, features};

/// One bridge: its model, and the sockets of its OpenFlow side.
pub struct Bridge {
    pub of: Ofproto,
    pub io: BridgeIo,
    pub spec: BridgeSpec,
    pub ports: Vec<PortSpec>,
    /// Tables whose configuration is not the default.
    tables: BTreeMap<u8, TableSpec>,
    /// The bridge's own Ethernet address.
    pub mac: [u8; 6],
    pub dpid: u64,
}

pub struct Engine {
    pub clock: Clock,
    pub opts: SwitchOptions,
    pub registry: Registry,
    pub dummies: fv_netdev::dummy::World,
    /// None where its thread could not be started.
    _vhost: Option<Vhost>,
    pub env: Env,
    pub world: World,
    pub bridges: BTreeMap<String, Bridge>,
    pub packet_ins: Arc<PacketInQueue>,
    pub tls: fv_rpc::Tls,
    next_id: u32,
    globals: Globals,
    pub tunnels: crate::tunnels::TunnelState,
    /// `system` was said to be served by the userspace datapath.
    told_system: bool,
    /// Removed bridges' ids whose views must go.
    port_numbers: BTreeMap<(String, String), OfPort>,
}

impl Engine {
    pub fn new(
        clock: Clock,
        opts: SwitchOptions,
        dps: Datapaths,
        packet_ins: Arc<PacketInQueue>,
        tls: fv_rpc::Tls,
    ) -> Engine {
        let dummies = fv_netdev::dummy::World::new(clock.clone());
        let mut registry = device_classes(&opts, &dummies);
        dps.offload.register(&mut registry, &clock);
        let vhost = Vhost::start(clock.clone());
        match &vhost {
            Ok(v) => v.register(&mut registry),
            Err(e) => log::error!(target: "vhost", "there are no vhost-user ports: {e}"),
        }
        Engine {
            env: Env { rundir: opts.rundir.clone() },
            world: World::new(clock.clone(), dps),
            clock,
            opts,
            registry,
            dummies,
            _vhost: vhost.ok(),
            bridges: BTreeMap::new(),
            packet_ins,
            tls,
            next_id: 0,
            globals: Globals::default(),
            tunnels: Default::default(),
            told_system: false,
            port_numbers: BTreeMap::new(),
        }
    }

    pub fn bridge_by_id(&self, id: BridgeId) -> Option<&Bridge> {
        self.bridges.values().find(|b| b.of.id() == id)
    }

    /// The datapath that serves a `datapath_type`; an error if there is none.
    fn dp_kind(&mut self, wanted: &str) -> Result<String, String> {
        let wanted = if wanted.is_empty() { "system" } else { wanted };
        match (wanted, self.opts.dummy) {
            ("dummy", Some(_)) | ("netdev", _) => Ok(wanted.into()),
            ("system", Some(DummyMode::System | DummyMode::Override)) => Ok(wanted.into()),
            ("system", _) => {
                if !self.told_system {
                    self.told_system = true;
                    log::info!(target: "bridge", "datapath type \"system\" is served by the userspace datapath (netdev)");
                }
                Ok("netdev".into())
            }
            _ => Err(format!("unknown datapath type {wanted} (Address family not supported by protocol)")),
        }
    }

    /// Datapath types, as `Open_vSwitch:datapath_types` lists them.
    pub fn datapath_types(&self) -> Vec<&'static str> {
        let mut v = vec!["netdev", "system"];
        if self.opts.dummy.is_some() {
            v.push("dummy");
        }
        v
    }

    /// Interface types, as `Open_vSwitch:iface_types` lists them.
    pub fn iface_types(&self) -> Vec<String> {
        let mut v: Vec<String> = self.registry.kinds().map(str::to_string).collect();
        v.push("patch".into());
        v.extend(TunnelKind::ALL.iter().map(|k| k.name().to_string()));
        v.sort();
        v.dedup();
        v
    }

    /// Class name under which an interface type is opened on a datapath: on dummy datapaths, an
    /// internal interface is a dummy too.
    fn class_of(&self, dp_kind: &str, kind: &str) -> String {
        let dummy_dp = dp_kind == "dummy" || self.opts.dummy == Some(DummyMode::Override);
        match kind {
            "internal" if dummy_dp => "dummy-internal".into(),
            k => k.into(),
        }
    }

    /// Sockets that front ends connect to are in `vhost-sock-dir`, if that is a directory inside of the run directory.
    fn env_of(&self, class: &str) -> Env {
        let mut env = self.env.clone();
        if class == "dpdkvhostuser"
            && let Some(dir) = self.globals.other_config.get("vhost-sock-dir")
        {
            let inside = Path::new(dir).components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
            let path = env.rundir.join(dir);
            if inside && path.is_dir() {
                env.rundir = path;
            } else {
                log::warn!(target: "vhost", "vhost-sock-dir \"{dir}\" is no directory inside of {}", env.rundir.display());
            }
        }
        env
    }

    fn open_device(&self, dp_kind: &str, i: &IfaceSpec) -> Result<Arc<dyn Device>, String> {
        let class = self.class_of(dp_kind, &i.kind);
        self.registry.open(&class, &i.name, &i.options, &self.env_of(&class)).map_err(|e| match e {
            DeviceError::UnknownKind(_) if class == "system" => {
                format!("could not open network device {} (No such device)", i.name)
            }
            DeviceError::UnknownKind(_) => {
                format!("could not open network device {} (Address family not supported by protocol)", i.name)
            }
            e => format!("could not open network device {} ({})", i.name, reason(&e)),
        })
    }

    /// Takes over what a device says of itself, and tells controllers.
    pub fn refresh_port(&mut self, bridge: &str, iface: &str) {
        let now = self.clock.now();
        let Some(b) = self.bridges.get_mut(bridge) else { return };
        let id = b.of.id();
        let peer = self.world.peer_of(id, iface);
        let Some(p) = self.world.bridges.get_mut(&id) else { return };
        let dp_kind = p.dp_kind.clone();
        let Some(i) = p.ifaces.get_mut(iface) else { return };
        let mut spec = OfPortSpec {
            ofp: i.ofp,
            dp_port: i.dp_port,
            name: i.name.clone(),
            peer,
            is_internal: i.kind == "internal",
            tunnel: i.tunnel.clone(),
            ..OfPortSpec::default()
        };
        match &i.device {
            Some(d) => {
                i.seen_seq = d.change_seq();
                if let (Some(port), Some(inst)) = (i.dp_port, self.world.dps.insts.get(&dp_kind))
                    && let Err(e) = inst.dp.resize_port(port)
                {
                    log::warn!(target: "bridge", "{iface}: {e}");
                }
                let s = d.status();
                spec.hw_addr = s.mac.unwrap_or_default();
                spec.mtu = s.mtu.unwrap_or(1500);
                (spec.admin_up, spec.link_up) = (s.admin_up, s.link_up);
                spec.curr = features(s.speed_bps, s.duplex);
                spec.curr_speed_kbps = s.speed_bps.map_or(0, |b| u32::try_from(b / 1000).unwrap_or(u32::MAX));
            }
            None => spec.hw_addr = patch_mac(&i.name),
        }
        if let Some(m) = &i.monitor {
            i.seen_changes = m.changes();
            spec.forwarding = m.forwarding();
            (spec.monitor, spec.bfd) = (Some(MonitorRef(m.clone())), i.bfd);
        }
        b.of.set_port(spec, now);
    }

    /// Ports whose device has changed since it was last looked at.
    pub fn refresh_changed_ports(&mut self) -> bool {
        let mut changed = Vec::new();
        for p in self.world.bridges.values() {
            for i in p.ifaces.values() {
                if i.has_changed() {
                    changed.push((p.name.clone(), i.name.clone()));
                }
            }
        }
        for (b, i) in &changed {
            self.refresh_port(b, i);
        }
        !changed.is_empty()
    }

    /// Lets what devices and protocols have changed take effect now.
    pub fn take_over_changes(&mut self) {
        if self.refresh_changed_ports() {
            self.commit_all();
        }
    }

    /// Interfaces whose device is ours to make and was removed by somebody else: nothing brings it
    /// back but making it anew. With their bridges.
    pub fn lost_interfaces(&self) -> Vec<(String, String)> {
        let ours = |d: &dyn Device| matches!(d.kind(), "tap" | "internal") && d.status().ifindex.is_none();
        let of_bridge = |p: &BridgePorts| {
            let lost = p.ifaces.values().filter(|i| i.device.as_ref().is_some_and(|d| ours(&**d)));
            lost.map(|i| (p.name.clone(), i.name.clone())).collect::<Vec<_>>()
        };
        self.world.bridges.values().flat_map(of_bridge).collect()
    }

    fn settings(&self, b: &BridgeSpec, dpid: u64) -> Settings {
        let mut s = Settings {
            dpid,
            fail_secure: b.fail_mode == FailMode::Secure,
            forward_bpdu: b.forward_bpdu,
            flood_vlans: b.flood_vlans.iter().copied().collect(),
            versions: if b.protocols.is_empty() { VersionSet::ALL } else { versions(&b.protocols) },
            controller_queue_size: b.controller_queue_size as usize,
            mac_aging_s: u64::from(b.mac_aging_s),
            mac_table_size: b.mac_table_size as usize,
            flow_restore_wait: self.globals.flow_restore_wait,
            ..Settings::default()
        };
        if let Some(d) = &b.dp_desc {
            s.desc.datapath = d.clone();
        }
        if let Some(sn) = &b.dp_sn {
            s.desc.serial = sn.clone();
        }
        s
    }

    fn apply_settings(&mut self, name: &str) {
        let now = self.clock.now();
        let Some(b) = self.bridges.get(name) else { return };
        let dpid = b.spec.datapath_id.unwrap_or_else(|| dpid_of(b.mac));
        let s = self.settings(&b.spec, dpid);
        let Some(b) = self.bridges.get_mut(name) else { return };
        b.dpid = dpid;
        b.of.set_settings(s, now);
        configure_tables(b);
    }

    /// The bridge's address: configured, else the lowest of its ports', else one of its own; its
    /// internal interface gets it.
    fn choose_mac(&mut self, name: &str) {
        let Some(b) = self.bridges.get_mut(name) else { return };
        let Some(ports) = self.world.bridges.get(&b.of.id()) else { return };
        let own = ports.ifaces.get(name).and_then(|i| i.device.clone());
        let mut lowest: Option<[u8; 6]> = None;
        for i in ports.ifaces.values().filter(|i| i.name != name && i.kind != "internal") {
            let mac = i.device.as_ref().and_then(|d| d.status().mac).filter(|m| m[0] & 1 == 0 && *m != [0; 6]);
            lowest = [lowest, mac].into_iter().flatten().min();
        }
        let current = own.as_ref().and_then(|d| d.status().mac);
        let mac = b.spec.hwaddr.or(lowest).or(current).unwrap_or(b.mac);
        if b.mac != mac {
            b.mac = mac;
        }
        if let Some(d) = own
            && d.status().mac != Some(mac)
            && let Err(e) = d.set_mac(mac)
        {
            log::warn!(target: "bridge", "{name}: failed to set Ethernet address: {}", reason(&e));
        }
    }

    fn remove_iface(&mut self, id: BridgeId, name: &str) {
        let Some(p) = self.world.bridges.get_mut(&id) else { return };
        let Some(i) = p.ifaces.remove(name) else { return };
        let kind = p.dp_kind.clone();
        if let (Some(_), Some(port)) = (&i.tunnel, i.dp_port) {
            if let Some(inst) = self.world.dps.find(&kind) {
                inst.slowpath.patch.forget(id, i.ofp);
            }
            return self.release_vport(&kind, port);
        }
        if let Some(inst) = self.world.dps.find(&kind) {
            i.dp_port.into_iter().for_each(|port| inst.overlay.detach(port));
            match i.dp_port.map(|port| inst.dp.del_port(port)) {
                Some(Ok(ack)) => {
                    ack.wait(std::time::Duration::from_millis(500));
                }
                Some(Err(e)) => log::warn!(target: "bridge", "{name}: {e}"),
                None => {}
            }
            inst.slowpath.patch.forget(id, i.ofp);
        }
        if let Some(d) = i.device.filter(|_| matches!(i.kind.as_str(), "internal" | "tap" | "simnic")) {
            d.remove();
        }
    }

    /// Removes everything: `cleanup` also removes kernel devices that are ours.
    pub fn shut_down(&mut self, cleanup: bool) {
        let ours: Vec<Arc<dyn Device>> = self
            .world
            .bridges
            .values()
            .flat_map(|p| p.ifaces.values())
            .filter_map(|i| i.device.clone())
            .filter(|d| matches!(d.kind(), "internal" | "tap"))
            .collect();
        self.bridges.clear();
        self.world.dps.close_all();
        if cleanup {
            ours.iter().for_each(|d| d.remove());
        }
    }

    /// Receives what waits on devices that control itself polls, until nothing is left: misses and
    /// their effects are done when it returns.
    pub fn drain_packets(&mut self) {
        let now = self.clock.now();
        for _ in 0..10_000 {
            if !self.world.dps.turn_main(now) {
                break;
            }
        }
    }

    /// Makes the flows that packets have taught, so that the next packet meets them.
    pub fn make_learned(&mut self) {
        let mut changed = Vec::new();
        for b in self.bridges.values_mut() {
            let version = b.of.tables().version();
            b.of.make_learned(&mut self.world);
            if b.of.tables().version() != version {
                changed.push(b.of.id());
            }
        }
        changed.into_iter().for_each(|id| self.model_changed(id));
    }

    /// After a step of virtual time: control does what is due, every thread comes to rest.
    pub fn settle(&mut self, now: Nanos) {
        self.dummies.turn(now);
        self.drain_packets();
        self.make_learned();
        self.expire(now);
        self.commit_all();
        self.world.dps.measure(now);
        self.world.dps.settle(now);
    }

    /// Adds a device to a datapath without any bridge.
    pub fn dp_add_if(&mut self, kind: &str, arg: &str) -> Result<(), String> {
        let mut parts = arg.split(',');
        let name = parts.next().unwrap_or_default().to_string();
        let mut i = IfaceSpec { name: name.clone(), kind: "system".into(), ..IfaceSpec::default() };
        for p in parts {
            match p.split_once('=') {
                Some(("type", t)) => i.kind = t.into(),
                Some((k, v)) => {
                    i.options.insert(k.into(), v.into());
                }
                None => return Err(format!("{name}: bad option \"{p}\"")),
            }
        }
        let d = self.open_device(kind, &i)?;
        let inst = self.world.dps.find(kind).ok_or("no such datapath")?;
        let port = inst.dp.add_port(d, None).map_err(|e| format!("adding {name} to {kind} failed ({e})"))?;
        inst.attach(port, &i);
        self.world.dps.staff();
        Ok(())
    }

    /// Rows of rules expire, MAC entries age.
    pub fn expire(&mut self, now: Nanos) -> Option<Nanos> {
        let mut next: Option<Nanos> = None;
        let mut macs_changed = Vec::new();
        for b in self.bridges.values_mut() {
            next = [next, b.of.expire(now, &mut self.world)].into_iter().flatten().min();
            let before = b.of.mac_table().generation();
            next = [next, b.of.mac_table().expire(now)].into_iter().flatten().min();
            if b.of.mac_table().generation() != before {
                macs_changed.push(b.of.id());
            }
        }
        for id in macs_changed {
            self.model_changed(id);
        }
        next
    }

    pub fn model_changed(&self, id: BridgeId) {
        if let Some(i) = self.world.kind_of(id).and_then(|k| self.world.dps.find(k)) {
            i.slowpath.model_changed();
        }
    }

    /// Makes all changes visible to packets.
    pub fn commit_all(&mut self) {
        for b in self.bridges.values_mut() {
            b.of.commit(&mut self.world);
            b.of.publish_view(&mut self.world);
        }
        self.world.publish_all();
    }
}

impl Targets for Engine {
    fn set_globals(&mut self, g: &Globals) {
        let config = fv_slowpath::Config {
            flow_limit: g.flow_limit,
            max_idle_ms: g.max_idle_ms,
            max_revalidator_ms: g.max_revalidator_ms,
            min_revalidate_pps: g.min_revalidate_pps,
        };
        let topology = Topology::of(self.opts.dummy_numa.as_deref());
        self.world.dps.configure_pmd(&g.pmd, topology, self.clock.now());
        self.world.dps.configure(config, g.vlan_limit, g.flow_restore_wait);
        self.world.dps.configure_cache(&g.other_config);
        self.world.dps.configure_offload(&g.other_config);
        self.world.dps.set_latency_hold(match g.cpu_latency_qos {
            None => Mode::Auto,
            Some(true) => Mode::On,
            Some(false) => Mode::Off,
        });
        self.globals = g.clone();
        let names: Vec<String> = self.bridges.keys().cloned().collect();
        names.iter().for_each(|n| self.apply_settings(n));
    }

    fn add_bridge(&mut self, b: &BridgeSpec) -> Result<(), String> {
        let now = self.clock.now();
        let kind = self.dp_kind(&b.datapath_type)?;
        self.world.dps.open(&kind).map_err(|e| e.to_string())?;
        let id = BridgeId(self.next_id);
        self.next_id += 1;
        let mac = b.hwaddr.unwrap_or_else(random_mac);
        let dpid = b.datapath_id.unwrap_or_else(|| dpid_of(mac));
        let mut of = Ofproto::new(id, &b.name, self.settings(b, dpid), now);
        of.set_settings(self.settings(b, dpid), now);
        let ports = BridgePorts { name: b.name.clone(), dp_kind: kind, ifaces: BTreeMap::new() };
        self.world.bridges.insert(id, ports);
        let io = BridgeIo::open(&b.name, &self.opts.rundir);
        log::info!(target: "bridge", "bridge {}: using datapath ID {dpid:016x}", b.name);
        self.bridges.insert(
            b.name.clone(),
            Bridge { of, io, spec: b.clone(), ports: Vec::new(), tables: BTreeMap::new(), mac, dpid },
        );
        Ok(())
    }

    fn update_bridge(&mut self, b: &BridgeSpec) {
        if let Some(x) = self.bridges.get_mut(&b.name) {
            let controllers = std::mem::take(&mut x.spec.controllers);
            x.spec = BridgeSpec { controllers, ..b.clone() };
        }
        self.choose_mac(&b.name);
        self.apply_settings(&b.name);
    }

    fn remove_bridge(&mut self, name: &str) {
        let Some(b) = self.bridges.remove(name) else { return };
        let id = b.of.id();
        let names: Vec<String> =
            self.world.bridges.get(&id).map(|p| p.ifaces.keys().cloned().collect()).unwrap_or_default();
        names.iter().for_each(|n| self.remove_iface(id, n));
        if let Some(p) = self.world.bridges.remove(&id)
            && let Some(i) = self.world.dps.find_mut(&p.dp_kind)
        {
            i.remove_view(id);
            i.publish();
        }
        self.world.dps.close_unused();
    }

    fn add_interface(&mut self, bridge: &str, i: &IfaceSpec) -> Result<OfPort, String> {
        let b = self.bridges.get(bridge).ok_or("no such bridge")?;
        let id = b.of.id();
        let kind = self.world.kind_of(id).ok_or("no such bridge")?.to_string();
        let tunnel = TunnelKind::by_name(&i.kind).map(|k| self.tunnel_config(i, k)).transpose()?;
        let (device, peer) = if tunnel.is_some() {
            (None, None)
        } else if i.kind == "patch" {
            (None, Some(patch_peer(i)?))
        } else {
            (Some(self.open_device(&kind, i)?), None)
        };
        if let Some(d) = &device {
            configure_device(d.as_ref(), i)?;
        }
        let vport = tunnel.as_ref().map(|t| self.acquire_vport(&kind, &i.name, t)).transpose()?;
        let b = self.bridges.get_mut(bridge).ok_or("no such bridge")?;
        let ofp = if i.name == bridge {
            OfPort::LOCAL
        } else {
            let key = (bridge.to_string(), i.name.clone());
            let wanted = i.ofport_request.or(i.last_ofport.0).map(|p| OfPort(p.into()));
            let wanted = wanted.or_else(|| self.port_numbers.get(&key).copied());
            // The model learns of ports when all steps are done; until then their numbers are here.
            let taken = |p: OfPort| self.world.bridges.get(&id).is_some_and(|x| x.by_ofp(p).is_some());
            let wanted = wanted.filter(|p| !taken(*p));
            let mut got = b.of.alloc_port(wanted).ok_or("no free OpenFlow port")?;
            while taken(got) {
                got = b.of.alloc_port(None).ok_or("no free OpenFlow port")?;
            }
            self.port_numbers.insert(key, got);
            got
        };
        let inst = self.world.dps.find(&kind).ok_or("no such datapath")?;
        let dp_port = match &device {
            None => vport,
            Some(d) => Some(
                inst.dp
                    .add_port(d.clone(), None)
                    .map_err(|e| format!("could not add network device {} to ofproto ({e})", i.name))?,
            ),
        };
        if tunnel.is_none() {
            configure_port(&inst.dp, dp_port, i);
            dp_port.into_iter().for_each(|port| inst.attach(port, i));
        }
        let (name, kind) = (i.name.clone(), i.kind.clone());
        let mut iface = Iface { name, kind, ofp, device, dp_port, peer, tunnel, ..Iface::default() };
        crate::protocols::configure(&mut iface, i, self.clock.now());
        if let Some(p) = self.world.bridges.get_mut(&id) {
            p.ifaces.insert(i.name.clone(), iface);
        }
        log::info!(target: "bridge", "bridge {bridge}: added interface {} on port {}", i.name, of_number(ofp));
        Ok(ofp)
    }

    fn update_interface(&mut self, bridge: &str, i: &IfaceSpec) -> Result<(), String> {
        let id = self.bridges.get(bridge).map(|b| b.of.id()).ok_or("no such bridge")?;
        let kind = self.world.kind_of(id).ok_or("no such bridge")?.to_string();
        let now = self.clock.now();
        if let Some(x) = self.world.bridges.get_mut(&id).and_then(|p| p.ifaces.get_mut(&i.name)) {
            crate::protocols::configure(x, i, now);
        }
        if i.kind == "patch" {
            let peer = patch_peer(i)?;
            if let Some(x) = self.world.bridges.get_mut(&id).and_then(|p| p.ifaces.get_mut(&i.name)) {
                x.peer = Some(peer);
            }
            return Ok(());
        }
        if let Some(t) = TunnelKind::by_name(&i.kind) {
            let config = self.tunnel_config(i, t)?;
            return self.update_tunnel(id, &kind, &i.name, config);
        }
        let Some(x) = self.world.bridges.get(&id).and_then(|p| p.ifaces.get(&i.name)) else { return Ok(()) };
        let Some(d) = &x.device else { return Ok(()) };
        let changed = configure_device(d.as_ref(), i)?;
        if changed == fv_netdev::Changed::Queues
            && let (Some(port), Some(inst)) = (x.dp_port, self.world.dps.find(&kind))
        {
            inst.dp.reopen_port(port, std::time::Duration::from_secs(1)).map_err(|e| e.to_string())?;
        }
        if let Some(inst) = self.world.dps.find(&kind) {
            configure_port(&inst.dp, x.dp_port, i);
        }
        Ok(())
    }

    fn remove_interface(&mut self, bridge: &str, name: &str) {
        let Some(b) = self.bridges.get_mut(bridge) else { return };
        let id = b.of.id();
        let ofp = self.world.bridges.get(&id).and_then(|p| p.ifaces.get(name)).map(|i| i.ofp);
        if let Some(ofp) = ofp {
            b.of.remove_port(ofp);
            log::info!(target: "bridge", "bridge {bridge}: deleted interface {name} on port {}", of_number(ofp));
        }
        // Packets must stop using the port before it goes.
        b.of.publish_view(&mut self.world);
        self.world.publish_all();
        self.remove_iface(id, name);
    }

    fn set_ports(&mut self, bridge: &str, ports: &[PortSpec]) {
        if let Some(b) = self.bridges.get_mut(bridge) {
            b.ports = ports.to_vec();
        }
    }

    fn set_controllers(&mut self, bridge: &str, controllers: &[ControllerSpec]) {
        let now = self.clock.now();
        let tls = self.tls.clone();
        if let Some(b) = self.bridges.get_mut(bridge) {
            if controllers.iter().any(|c| c.in_band) && !b.spec.disable_in_band {
                log::info!(target: "bridge", "bridge {bridge}: in-band controllers are reached out-of-band");
            }
            b.spec.controllers = controllers.to_vec();
            b.io.set_controllers(controllers, &tls, &mut b.of, now);
        }
    }

    fn commit(&mut self) {
        self.world.dps.staff();
        let names: Vec<String> = self.bridges.keys().cloned().collect();
        for name in &names {
            self.choose_mac(name);
            self.apply_settings(name);
            let Some(id) = self.bridges.get(name).map(|b| b.of.id()) else { continue };
            let ifaces: Vec<String> =
                self.world.bridges.get(&id).map(|p| p.ifaces.keys().cloned().collect()).unwrap_or_default();
            ifaces.iter().for_each(|i| self.refresh_port(name, i));
            self.set_bundles(name);
        }
        self.set_tunnels();
        self.refresh_tunnels(self.clock.now());
        self.commit_all();
    }
}

impl Engine {
    fn set_bundles(&mut self, name: &str) {
        let Some(b) = self.bridges.get_mut(name) else { return };
        let Some(ports) = self.world.bridges.get(&b.of.id()) else { return };
        let mut specs: Vec<(bool, BundleView)> = b
            .ports
            .iter()
            .map(|p| {
                let members: Vec<OfPort> =
                    p.interfaces.keys().filter_map(|n| ports.ifaces.get(n)).map(|i| i.ofp).collect();
                (p.name != name, bundle(p, members))
            })
            .filter(|(_, v)| !v.members.is_empty())
            .collect();
        // The bridge's own port first, as flooding goes in this order.
        specs.sort_by_key(|(other, v)| (*other, v.members.first().copied()));
        b.of.set_bundles(specs.into_iter().map(|(_, v)| v).collect());
    }
}

fn bundle(p: &PortSpec, members: Vec<OfPort>) -> BundleView {
    BundleView {
        name: p.name.clone(),
        vlan_mode: match p.vlan_mode {
            fv_config::VlanMode::Access => VlanMode::Access,
            fv_config::VlanMode::Trunk => VlanMode::Trunk,
            fv_config::VlanMode::NativeTagged => VlanMode::NativeTagged,
            fv_config::VlanMode::NativeUntagged => VlanMode::NativeUntagged,
            fv_config::VlanMode::Dot1qTunnel => VlanMode::Dot1qTunnel,
        },
        tag: p.tag,
        trunks: p.trunks.as_ref().map(|t| t.iter().copied().collect()),
        cvlans: p.cvlans.as_ref().map(|t| t.iter().copied().collect()),
        qinq_ethtype: p.qinq_ethtype,
        priority_tags: match p.priority_tags {
            fv_config::PriorityTags::Never => PriorityTags::Never,
            fv_config::PriorityTags::IfNonzero => PriorityTags::IfNonzero,
            fv_config::PriorityTags::Always => PriorityTags::Always,
        },
        protected: p.protected,
        members,
        floodable: true,
    }
}

/// A port's number as logs and the database show it.
fn of_number(p: OfPort) -> u16 {
    p.to_u16().unwrap_or(0)
}

/// The peer that a patch port names; it must name one, and not itself.
fn patch_peer(i: &IfaceSpec) -> Result<String, String> {
    match i.options.get("peer") {
        None => Err(format!("{}: patch type requires valid 'peer' argument", i.name)),
        Some(p) if *p == i.name => Err(format!("{}: patch peer must not be self", i.name)),
        Some(p) => Ok(p.clone()),
    }
}

/// Options, address, MTU and state that the row asks for.
fn configure_device(d: &dyn Device, i: &IfaceSpec) -> Result<fv_netdev::Changed, String> {
    let changed =
        d.set_options(&i.options).map_err(|e| format!("{}: could not set configuration ({})", i.name, reason(&e)))?;
    if let Some(mac) = i.mac
        && d.status().mac != Some(mac)
        && let Err(e) = d.set_mac(mac)
    {
        log::warn!(target: "bridge", "interface {}: failed to set Ethernet address: {}", i.name, reason(&e));
    }
    if let Some(mtu) = i.mtu_request
        && d.status().mtu != Some(mtu)
        && let Err(e) = d.set_mtu(mtu)
    {
        log::warn!(target: "bridge", "interface {}: failed to set MTU {mtu}: {}", i.name, reason(&e));
    }
    if i.kind == "tap" {
        let _ = d.set_admin_up(true);
    }
    Ok(changed)
}

/// The cause without what was attempted.
fn reason(e: &DeviceError) -> String {
    match e {
        DeviceError::Io { source, .. } => match source.raw_os_error() {
            Some(code) => std::io::Error::from_raw_os_error(code)
                .to_string()
                .split(" (os error")
                .next()
                .unwrap_or_default()
                .to_string(),
            None => source.to_string(),
        },
        DeviceError::NoSuchDevice => "No such device".into(),
        e => e.to_string(),
    }
}

/// The classes of interfaces that this process offers.
fn device_classes(opts: &SwitchOptions, dummies: &fv_netdev::dummy::World) -> Registry {
    let mut r = Registry::new();
    if !opts.disable_system {
        r.register("system", fv_netdev::SystemDevice::factory);
        r.register("tap", fv_netdev::TapDevice::factory);
        r.register("internal", fv_netdev::TapDevice::internal_factory);
    }
    match opts.dummy {
        None => {}
        Some(mode) => {
            dummies.register(&mut r);
            if mode == DummyMode::System {
                dummies.register_as(&mut r, "system", false);
            }
            if mode == DummyMode::Override {
                dummies.register_as(&mut r, "system", false);
                dummies.register_as(&mut r, "tap", false);
                dummies.register_as(&mut r, "internal", false);
            }
        }
    }
    r
}

/// `Flow_Table` rows: tables without one go back to their defaults.
fn configure_tables(b: &mut Bridge) {
    let tables = b.of.tables().clone();
    for (n, t) in tables.visible() {
        let wanted = match b.spec.tables.get(&n) {
            None => TableSpec::default(),
            Some(row) => TableSpec {
                name: row.name.clone(),
                max_flows: row.flow_limit.map(|n| n as usize),
                evicts: row.evict,
                groups: row.groups.iter().filter_map(|g| eviction_field(g)).collect(),
                prefixes: if row.prefixes.is_empty() {
                    TableSpec::default().prefixes
                } else {
                    row.prefixes.iter().filter_map(|p| prefix_field(p)).collect()
                },
            },
        };
        if b.tables.get(&n).unwrap_or(&TableSpec::default()) != &wanted {
            t.configure(&wanted);
            b.tables.insert(n, wanted);
        }
    }
}

/// A subfield that makes flows a group for eviction; one that cannot be read is logged.
fn eviction_field(text: &str) -> Option<fv_flow::Subfield> {
    let field = fv_openflow::text::parse_subfield(text);
    field.inspect_err(|e| log::warn!(target: "bridge", "flow table groups: {e}")).ok()
}

/// Fields that a table may keep in a prefix trie.
fn prefix_field(name: &str) -> Option<PrefixField> {
    Some(match name {
        "ip_src" | "nw_src" => PrefixField::NwSrc,
        "ip_dst" | "nw_dst" => PrefixField::NwDst,
        "ipv6_src" => PrefixField::Ipv6Src,
        "ipv6_dst" => PrefixField::Ipv6Dst,
        "tun_src" => PrefixField::TunSrc,
        "tun_dst" => PrefixField::TunDst,
        "tun_ipv6_src" => PrefixField::TunIpv6Src,
        "tun_ipv6_dst" => PrefixField::TunIpv6Dst,
        _ => return None,
    })
}

fn versions(wire: &std::collections::BTreeSet<u8>) -> VersionSet {
    wire.iter().filter_map(|v| fv_openflow::Version::from_wire(*v)).collect()
}

/// A locally administered address.
fn random_mac() -> [u8; 6] {
    let u = fv_ovsdb::Uuid::new_v4();
    let b = u.as_bytes();
    [b[0] & 0xfc | 0x02, b[1], b[2], b[3], b[4], b[5]]
}

/// A patch port has no device to ask; its address only has to be stable and local.
pub fn patch_mac(name: &str) -> [u8; 6] {
    let h = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let b = h.to_be_bytes();
    [b[0] & 0xfc | 0x02, b[1], b[2], b[3], b[4], b[5]]
}

fn dpid_of(mac: [u8; 6]) -> u64 {
    mac.iter().fold(0, |v, b| v << 8 | u64::from(*b))
}
