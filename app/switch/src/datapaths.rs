//! Datapaths by type: each has its slow path, its published view and its threads.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use fv_core::{Clock, Nanos};
use fv_datapath::{CacheUse, Dp};
use fv_dpif::Datapath;
use fv_offload::Overlay;
use fv_ofproto::DpFeatures;
use fv_ofproto::meter::Meters;
use fv_ofproto::packet_in::PacketInQueue;
use fv_ofproto::view::{BridgeId, BridgeView, SharedView, View};
use fv_rpc::Waker;
use fv_slowpath::{Config, Slowpath};
use fv_tunnel::Tunnels;

use crate::latency::{LatencyHold, Mode};
use crate::offload::{Driver, Offload};
use crate::pmd::Staffing;
use crate::threads::Threads;

pub struct DpInst {
    /// Drives `overlay`, once flows are offloaded.
    pub(crate) driver: Option<Driver>,
    pub dp: Arc<Dp>,
    /// The datapath with what hardware does of it: flows and their statistics are asked of it.
    pub overlay: Arc<Overlay>,
    pub slowpath: Arc<Slowpath>,
    pub view: SharedView,
    pub threads: Threads,
    views: BTreeMap<BridgeId, Arc<BridgeView>>,
    /// What translation may use.
    pub features: DpFeatures,
    pub tunnels: Tunnels,
    /// What the datapath has been given.
    meters: Vec<Arc<Meters>>,
    seq: u64,
}

impl DpInst {
    /// Replaces or adds a bridge's view; visible with `publish`.
    pub fn set_view(&mut self, v: Arc<BridgeView>) {
        self.views.insert(v.id, v);
    }

    pub fn remove_view(&mut self, id: BridgeId) {
        self.views.remove(&id);
    }

    pub fn publish(&mut self) {
        self.seq += 1;
        self.set_meters();
        let view = View {
            features: self.features,
            tunnels: self.tunnels.clone(),
            ..View::of(self.views.values().cloned(), self.seq)
        };
        let guarded = view.bridges.values().any(|b| b.ports.values().any(|p| p.monitor.is_some()));
        self.view.store(Arc::new(view));
        self.slowpath.model_changed();
        if guarded {
            self.threads.need_timers();
        }
    }

    /// Gives the datapath the meters of all bridges, before programs come that name them.
    fn set_meters(&mut self) {
        let now: Vec<Arc<Meters>> = self.views.values().map(|v| v.meters.clone()).collect();
        let same = now.len() == self.meters.len() && now.iter().zip(&self.meters).all(|(a, b)| Arc::ptr_eq(a, b));
        if !same {
            self.dp.set_meters(now.iter().flat_map(|m| m.values()).map(|m| m.running.clone()));
            self.meters = now;
        }
    }

    pub fn bridge_count(&self) -> usize {
        self.views.len()
    }
}

/// All datapaths.
pub struct Datapaths {
    clock: Clock,
    waker: Waker,
    packet_ins: Arc<PacketInQueue>,
    config: Config,
    latency: Arc<LatencyHold>,
    /// Tags that are parsed of a packet.
    pub(crate) vlan_limit: u8,
    restore_wait: bool,
    cache_use: CacheUse,
    pub(crate) pmd: Staffing,
    pub(crate) offload: Offload,
    pub(crate) insts: BTreeMap<String, DpInst>,
}

impl Datapaths {
    pub fn new(clock: Clock, waker: Waker, packet_ins: Arc<PacketInQueue>) -> Datapaths {
        Datapaths {
            clock,
            waker,
            packet_ins,
            config: Config::default(),
            latency: Arc::new(LatencyHold::new()),
            vlan_limit: 1,
            restore_wait: false,
            cache_use: CacheUse::default(),
            pmd: Staffing::default(),
            offload: Offload::default(),
            insts: BTreeMap::new(),
        }
    }

    /// The datapath of a type, made at first use.
    pub fn open(&mut self, kind: &str) -> std::io::Result<&mut DpInst> {
        if !self.insts.contains_key(kind) {
            let inst = self.make(kind)?;
            self.insts.insert(kind.to_string(), inst);
        }
        self.insts.get_mut(kind).ok_or_else(|| std::io::Error::other("datapath vanished"))
    }

    fn make(&self, kind: &str) -> std::io::Result<DpInst> {
        let dp = Dp::new(&format!("ovs-{kind}"), kind, self.clock.clone(), ticks);
        let overlay = Overlay::new(dp.clone(), self.clock.clone());
        overlay.add_provider(Box::new(fv_nic_sim::SimProvider::new(self.offload.cards())));
        let view: SharedView = Arc::new(ArcSwap::default());
        let waker = self.waker.clone();
        let wake = Box::new(move || waker.wake());
        let slowpath = Arc::new(Slowpath::new(overlay.clone(), view.clone(), self.packet_ins.clone(), wake));
        slowpath.configure(self.config);
        slowpath.set_restore_wait(self.restore_wait);
        overlay.set_upcall_handler(Some(slowpath.clone()));
        dp.set_vlan_limit(self.vlan_limit);
        dp.set_cache_use(self.cache_use);
        self.pmd.configure(&dp, self.clock.now());
        if let Some(main) = dp.workers().into_iter().next() {
            let waker = self.waker.clone();
            main.mailbox.set_waker(Box::new(move || waker.wake()));
        }
        let threads = Threads::start(self.clock.clone(), dp.clone(), slowpath.clone(), self.latency.clone())?;
        let mut inst = DpInst {
            driver: None,
            dp,
            overlay,
            slowpath,
            view,
            threads,
            views: BTreeMap::new(),
            features: DpFeatures::default(),
            tunnels: Tunnels::default(),
            meters: Vec::new(),
            seq: 0,
        };
        self.offload.apply(&mut inst, &self.clock);
        Ok(inst)
    }

    pub fn find(&self, kind: &str) -> Option<&DpInst> {
        self.insts.get(kind)
    }

    pub fn find_mut(&mut self, kind: &str) -> Option<&mut DpInst> {
        self.insts.get_mut(kind)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&String, &DpInst)> {
        self.insts.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&String, &mut DpInst)> {
        self.insts.iter_mut()
    }

    /// Closes datapaths that no bridge uses.
    pub fn close_unused(&mut self) {
        self.insts.retain(|_, i| i.bridge_count() > 0 || !i.dp.ports().is_empty());
    }

    pub fn close_all(&mut self) {
        self.insts.clear();
    }

    pub fn configure(&mut self, config: Config, vlan_limit: u8, restore_wait: bool) {
        // Zero VLANs to look at means as many as a key holds.
        self.vlan_limit = if vlan_limit == 0 { 2 } else { vlan_limit };
        self.config = config;
        self.restore_wait = restore_wait;
        for i in self.insts.values() {
            i.slowpath.configure(config);
            i.slowpath.set_restore_wait(restore_wait);
            i.dp.set_vlan_limit(self.vlan_limit);
        }
        self.staff();
    }

    /// `emc-insert-inv-prob` and `smc-enable`, where they are set.
    pub fn configure_cache(&mut self, other_config: &BTreeMap<String, String>) {
        let inverse = other_config.get("emc-insert-inv-prob").and_then(|n| n.parse::<u32>().ok());
        let always = other_config.get("smc-enable").is_some_and(|s| s == "true");
        let wanted = match inverse {
            _ if always => CacheUse::Always,
            Some(n) => CacheUse::Inverse(n),
            None => CacheUse::Adaptive,
        };
        if wanted == self.cache_use {
            return;
        }
        match wanted {
            CacheUse::Inverse(0) => log::info!(target: "dpif_netdev", "EMC insertion probability changed to zero"),
            CacheUse::Inverse(n) => {
                let percent = 100.0 / f64::from(n);
                log::info!(target: "dpif_netdev", "EMC insertion probability changed to 1/{n} (~{percent:.2}%)");
            }
            CacheUse::Always => log::info!(target: "dpif_netdev", "SMC cache is enabled"),
            CacheUse::Adaptive => log::info!(target: "dpif_netdev", "caches are used where they pay"),
        }
        self.cache_use = wanted;
        for i in self.insts.values() {
            i.dp.set_cache_use(wanted);
        }
    }

    /// `hw-offload` and what belongs to it.
    pub fn configure_offload(&mut self, other_config: &BTreeMap<String, String>) {
        if self.offload.configure(other_config) {
            self.insts.values_mut().for_each(|i| self.offload.apply(i, &self.clock));
        }
    }

    pub fn set_latency_hold(&self, mode: Mode) {
        self.latency.set_mode(mode);
    }

    /// One turn of each datapath's control-thread worker. True if anything happened.
    pub fn turn_main(&self, now: Nanos) -> bool {
        self.insts.values().fold(false, |busy, i| i.dp.turn_main(now, 1024).busy() | busy)
    }

    /// Waits until every thread is at rest at `now`.
    pub fn settle(&self, now: Nanos) {
        self.offload.settle(now);
        for i in self.insts.values() {
            i.threads.settle(now);
            i.driver.iter().for_each(|d| d.settle(now));
        }
    }
}

/// How many of `ticks` a second has.
pub const TICKS_PER_SECOND: u64 = 1_000_000_000;

/// A cheap clock for cycle accounting.
fn ticks() -> u64 {
    // Nanoseconds: the unit does not matter, differences are compared with one another.
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unused_datapath_is_freed() {
        let poller = fv_rpc::Poller::new().unwrap();
        let mut d = Datapaths::new(Clock::new(), poller.waker(), Arc::default());
        let inst = d.open("dummy").unwrap();
        inst.dp.turn_main(Nanos::ZERO, 1);
        let (dp, slowpath) = (Arc::downgrade(&inst.dp), Arc::downgrade(&inst.slowpath));
        d.close_unused();
        assert!(d.find("dummy").is_none());
        assert_eq!((dp.strong_count(), slowpath.strong_count()), (0, 0));
    }
}
