//! Who polls: the host's cores, the workers that settings ask for, and the settings' way to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fv_config::{IfaceSpec, PmdSpec, RxqAssign};
use fv_core::{DpPort, Nanos};
use fv_datapath::{Deal, Dp, Limits, LogRules, Policy, Rules, WorkerKind};
use fv_dpif::{Datapath, WorkerId};
use fv_netdev::Polling;

use crate::datapaths::{Datapaths, DpInst};

/// Worker numbers of event workers start here and go down; poll workers have their core's number.
const FIRST_EVENT_WORKER: i32 = -2;
/// Event workers are few: each wakes for every kernel device it has.
const MAX_EVENT_WORKERS: usize = 4;
/// How long a change waits for queues to reach their new workers.
const MOVE_PATIENCE: Duration = Duration::from_millis(500);

/// Cores and the NUMA node of each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Topology {
    cores: BTreeMap<i32, i32>,
}

impl Topology {
    /// The host's, or the one of `--dummy-numa`: the nodes of cores 0, 1, ...
    pub fn of(dummy: Option<&str>) -> Topology {
        let made_up = dummy.and_then(Topology::dummy);
        let host = || Topology::host("/sys/devices/system");
        made_up.or_else(host).unwrap_or_else(|| {
            let n = std::thread::available_parallelism().map_or(1, usize::from) as i32;
            Topology { cores: (0..n).map(|c| (c, 0)).collect() }
        })
    }

    fn dummy(text: &str) -> Option<Topology> {
        let nodes = text.split([',', ' ']).filter(|w| !w.is_empty()).map(|w| w.parse::<i32>().ok().filter(|n| *n >= 0));
        let nodes: Vec<i32> = nodes.collect::<Option<_>>()?;
        (!nodes.is_empty()).then(|| Topology { cores: (0..).zip(nodes).collect() })
    }

    fn host(sys: &str) -> Option<Topology> {
        let mut cores = BTreeMap::new();
        let online = std::fs::read_to_string(format!("{sys}/cpu/online")).ok();
        let online: Option<BTreeSet<i32>> = online.map(|t| ranges(&t).collect());
        for entry in std::fs::read_dir(format!("{sys}/node")).ok()?.flatten() {
            let name = entry.file_name();
            let Some(node) = name.to_str().and_then(|n| n.strip_prefix("node")?.parse::<i32>().ok()) else { continue };
            let list = std::fs::read_to_string(entry.path().join("cpulist")).ok()?;
            let there = |c: &i32| online.as_ref().is_none_or(|o| o.contains(c));
            cores.extend(ranges(&list).filter(there).map(|core| (core, node)));
        }
        (!cores.is_empty()).then_some(Topology { cores })
    }

    fn node(&self, core: i32) -> Option<i32> {
        self.cores.get(&core).copied()
    }

    fn first_core(&self, node: i32) -> Option<i32> {
        self.cores.iter().find(|(_, n)| **n == node).map(|(c, _)| *c)
    }
}

/// The numbers of `0-3,8`.
fn ranges(text: &str) -> impl Iterator<Item = i32> + '_ {
    text.trim().split(',').flat_map(|part| {
        let (a, b) = part.split_once('-').unwrap_or((part, part));
        match (a.trim().parse::<i32>(), b.trim().parse::<i32>()) {
            (Ok(a), Ok(b)) => a..b + 1,
            _ => 0..0,
        }
    })
}

/// Cores of a hexadecimal mask.
fn cores_of(mask: &str) -> Vec<i32> {
    let mut cores: Vec<i32> = Vec::new();
    for (i, c) in mask.chars().rev().enumerate() {
        let Some(nibble) = c.to_digit(16) else { continue };
        cores.extend((0..4).filter(|b| nibble >> b & 1 != 0).map(|b| (i * 4) as i32 + b));
    }
    cores
}

/// What is wanted of poll workers.
#[derive(Default)]
pub struct Staffing {
    pub spec: PmdSpec,
    pub topology: Topology,
    /// What workers that start are told to log.
    pub perf_log: Option<LogRules>,
    /// Settings have been told to the log.
    told: bool,
}

impl Staffing {
    /// Tells a datapath the settings that it keeps itself.
    pub fn configure(&self, dp: &Dp, now: Nanos) {
        let s = &self.spec;
        let policy = match s.assign {
            RxqAssign::Cycles => Policy::Cycles,
            RxqAssign::RoundRobin => Policy::RoundRobin,
            RxqAssign::Group => Policy::Group,
        };
        dp.set_rules(Rules { policy, isolate: s.isolate });
        let limits = Limits {
            load_pct: s.lb_load_pct,
            improvement_pct: s.lb_improvement_pct,
            interval: Nanos::from_secs(60 * u64::from(s.lb_interval_min)),
        };
        dp.set_balancing(s.auto_lb.then_some(limits), now);
    }

    /// Cores of poll workers for a datapath whose poll-mode ports are on `nodes`.
    fn cores(&self, nodes: &BTreeSet<i32>) -> Vec<i32> {
        if nodes.is_empty() {
            return Vec::new();
        }
        if let Some(mask) = &self.spec.cpu_mask {
            return cores_of(mask).into_iter().filter(|c| self.topology.node(*c).is_some()).collect();
        }
        let near: Vec<i32> = nodes.iter().filter_map(|n| self.topology.first_core(*n)).collect();
        let any = self.topology.cores.keys().next().copied();
        if near.is_empty() { any.into_iter().collect() } else { near }
    }

    pub fn max_sleep_us(&self, core: i32) -> u32 {
        let own = u32::try_from(core).ok().and_then(|c| self.spec.core_max_sleep_us.get(&c));
        own.copied().unwrap_or(self.spec.max_sleep_us)
    }
}

impl Datapaths {
    /// `other_config`'s settings of poll workers. They take effect with `staff`.
    pub fn configure_pmd(&mut self, spec: &PmdSpec, topology: Topology, now: Nanos) {
        let old = std::mem::replace(&mut self.pmd.spec, spec.clone());
        self.pmd.topology = topology;
        let first = !std::mem::replace(&mut self.pmd.told, true);
        tell(first.then_some(()).map_or(Some(&old), |()| None), spec);
        for (_, i) in self.iter() {
            self.pmd.configure(&i.dp, now);
        }
    }

    /// Starts and stops workers so that each kind of device has who polls it, and deals out the queues
    /// that must move.
    pub fn staff(&mut self) {
        let Datapaths { pmd, insts, .. } = self;
        for i in insts.values_mut() {
            staff(pmd, i);
        }
    }

    /// Measures loads and balances, when it is time.
    pub fn measure(&self, now: Nanos) {
        self.iter().for_each(|(_, i)| i.dp.measure(now));
    }
}

fn staff(pmd: &Staffing, i: &mut DpInst) {
    let devices = || i.dp.ports().into_iter().filter_map(|p| i.dp.device(p.port));
    let n_event = devices().filter(|d| d.polling() == Polling::Event).count();
    let event: Vec<i32> = (0..n_event.min(event_workers())).map(|n| FIRST_EVENT_WORKER - n as i32).collect();
    let poll_mode = devices().filter(|d| d.polling() == Polling::Poll);
    let poll = pmd.cores(&poll_mode.map(|d| d.numa_id().unwrap_or(0)).collect());
    let (added, gone) = change(i, WorkerKind::Event, &event, |_| None);
    let (poll_added, poll_gone) = change(i, WorkerKind::Poll, &poll, |core| pmd.topology.node(core));
    if poll_added > 0 || !poll_gone.is_empty() {
        let mut nodes: BTreeMap<i32, usize> = BTreeMap::new();
        poll.iter().filter_map(|c| pmd.topology.node(*c)).for_each(|n| *nodes.entry(n).or_default() += 1);
        for (node, n) in nodes {
            log::info!(target: "dpif_netdev", "There are {n} pmd threads on numa node {node}");
        }
    }
    let mut acks = Vec::new();
    if added > 0 || !gone.is_empty() {
        acks.push(i.dp.deal(&Deal::Fresh(WorkerKind::Event)));
    }
    acks.extend(i.dp.deal_if_due(poll_added > 0));
    if !poll_gone.is_empty() && acks.is_empty() {
        acks.push(i.dp.deal(&Deal::Keep));
    }
    acks.iter().for_each(|ack| {
        ack.wait(MOVE_PATIENCE);
    });
    for id in gone.into_iter().chain(poll_gone) {
        i.threads.drop_worker(id);
    }
    for w in i.dp.workers().iter().filter(|w| w.kind == WorkerKind::Poll) {
        w.limits.max_sleep_us.store(pmd.max_sleep_us(w.id.0), Ordering::Relaxed);
        if poll_added > 0 && pmd.perf_log.is_some() {
            let rules = pmd.perf_log;
            i.dp.ask(w.id, move |w| w.set_perf_log(rules));
        }
        w.limits.sampled.store(pmd.spec.perf_metrics, Ordering::Relaxed);
        w.limits.flush_interval_us.store(pmd.spec.tx_flush_interval_us, Ordering::Relaxed);
    }
}

/// Starts the workers that are missing and retires those that are too many: how many are new, and which
/// are to end once their queues are elsewhere.
fn change(
    i: &mut DpInst,
    kind: WorkerKind,
    wanted: &[i32],
    numa: impl Fn(i32) -> Option<i32>,
) -> (usize, Vec<WorkerId>) {
    let now = i.threads.workers(kind);
    let thread = |id: i32| format!("PMD thread on numa_id: {}, core id: {id:2}", numa(id).unwrap_or(0));
    let gone: Vec<WorkerId> = now.iter().copied().filter(|id| !wanted.contains(&id.0)).collect();
    for id in &gone {
        i.dp.retire_worker(*id);
        if kind == WorkerKind::Poll {
            log::info!(target: "dpif_netdev", "{} destroyed.", thread(id.0));
        }
    }
    let mut added = 0;
    for core in wanted.iter().filter(|c| !now.contains(&WorkerId(**c))) {
        match i.threads.add_worker(kind, WorkerId(*core), numa(*core)) {
            Ok(()) => added += 1,
            Err(e) => {
                log::error!(target: "dpif_netdev", "cannot start a worker: {e}");
                continue;
            }
        }
        if kind == WorkerKind::Poll {
            log::info!(target: "dpif_netdev", "{} created.", thread(*core));
        }
    }
    (added, gone)
}

fn event_workers() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get() / 2).clamp(1, MAX_EVENT_WORKERS)
}

/// An interface's `pmd-rxq-affinity` and `tx-steering`.
pub fn configure_port(dp: &Arc<Dp>, port: Option<DpPort>, i: &IfaceSpec) {
    let text = i.other_config.get("pmd-rxq-affinity").map_or("", String::as_str);
    // A text that cannot be read was reported, and pins nothing.
    let pairs = fv_config::pmd::affinity(text).unwrap_or_default();
    let cores: Vec<(usize, WorkerId)> = pairs.iter().map(|(q, core)| (*q, WorkerId(*core as i32))).collect();
    let Some(port) = port else { return };
    if let Err(e) = dp.pin_queues(port, &cores) {
        log::debug!(target: "dpif_netdev", "{}: {e}", i.name);
    }
    let enabled = i.other_config.get("emc-enable").is_none_or(|s| s != "false");
    if dp.enable_cache(port, enabled).is_ok_and(|was| was != enabled) {
        log::info!(target: "dpif_netdev", "{}: EMC has been {}.", i.name, if enabled { "enabled" } else { "disabled" });
    }
    let by_hash = i.other_config.get("tx-steering").is_some_and(|s| s == "hash");
    if dp.steer_by_hash(port, by_hash).is_ok_and(|was| was != by_hash) {
        let mode = if by_hash { "hash" } else { "thread" };
        log::info!(target: "dpif_netdev", "{}: Tx packet steering mode has been set to '{mode}'.", i.name);
    }
}

/// Says what changed, in words that operators' scripts know; at first, what is.
fn tell(old: Option<&PmdSpec>, new: &PmdSpec) {
    let differs = |f: &dyn Fn(&PmdSpec) -> u64| old.is_none_or(|o| f(o) != f(new));
    macro_rules! say {
        ($($arg:tt)*) => { log::info!(target: "dpif_netdev", $($arg)*) };
    }
    if old.map_or(RxqAssign::Cycles, |o| o.assign) != new.assign {
        let name = match new.assign {
            RxqAssign::Cycles => "cycles",
            RxqAssign::RoundRobin => "roundrobin",
            RxqAssign::Group => "group",
        };
        say!("Rxq to PMD assignment mode changed to: '{name}'.");
    }
    if differs(&|p| p.isolate.into()) {
        say!("pmd-rxq-affinity {} PMD core", if new.isolate { "isolates" } else { "does not isolate" });
    }
    let interval = differs(&|p| p.lb_interval_min.into());
    if interval {
        say!("PMD auto load balance interval set to {} mins", new.lb_interval_min);
    }
    let improvement = differs(&|p| p.lb_improvement_pct.into());
    if improvement {
        say!("PMD auto load balance improvement threshold set to {}%", new.lb_improvement_pct);
    }
    let load = differs(&|p| p.lb_load_pct.into());
    if load {
        say!("PMD auto load balance load threshold set to {}%", new.lb_load_pct);
    }
    let changed = differs(&|p| p.auto_lb.into());
    if new.auto_lb && (changed || interval || improvement || load) {
        say!(
            "PMD auto load balance is enabled, interval {} mins, pmd load threshold {}%, improvement threshold {}%.",
            new.lb_interval_min,
            new.lb_load_pct,
            new.lb_improvement_pct
        );
    } else if changed {
        say!("PMD auto load balance is disabled.");
    }
    if differs(&|p| p.max_sleep_us.into()) {
        say!("Default PMD thread max sleep: {:4} us.", new.max_sleep_us);
    }
    if old.map_or(0, |o| o.tx_flush_interval_us) != new.tx_flush_interval_us {
        say!("Flushing interval for tx queues set to {} us", new.tx_flush_interval_us);
    }
    if old.is_some_and(|o| o.perf_metrics) != new.perf_metrics {
        let word = if new.perf_metrics { "enabled" } else { "disabled" };
        say!("PMD performance metrics collection {word}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_name_cores() {
        for (mask, want) in
            [("1", vec![0]), ("6", vec![1, 2]), ("a0", vec![5, 7]), ("0", vec![]), ("100000000", vec![32])]
        {
            assert_eq!(cores_of(mask), want, "{mask}");
        }
    }

    fn staffing(dummy: &str, mask: Option<&str>) -> Staffing {
        let spec = PmdSpec { cpu_mask: mask.map(Into::into), ..PmdSpec::default() };
        Staffing { spec, topology: Topology::of(Some(dummy)), ..Staffing::default() }
    }

    #[test]
    fn one_worker_for_each_node_with_ports() {
        let s = staffing("0,0,1,1,2", None);
        assert_eq!(s.cores(&BTreeSet::new()), [0; 0]);
        assert_eq!(s.cores(&BTreeSet::from([0])), [0]);
        assert_eq!(s.cores(&BTreeSet::from([1, 2])), [2, 4]);
        assert_eq!(s.cores(&BTreeSet::from([9])), [0], "a node that does not exist");
        let s = staffing("0,0,1,1", Some("ff"));
        assert_eq!(s.cores(&BTreeSet::from([1])), [0, 1, 2, 3], "cores that do not exist are no workers");
        assert_eq!(s.cores(&BTreeSet::new()), [0; 0]);
    }

    #[test]
    fn topologies() {
        assert_eq!(ranges("0-2,5,7-8\n").collect::<Vec<_>>(), [0, 1, 2, 5, 7, 8]);
        assert_eq!(ranges("\n").count(), 0);
        assert!(Topology::of(None).node(0).is_some());
        assert_eq!(Topology::dummy("0,x"), None);
        assert_eq!(Topology::dummy("0 0,1").unwrap().node(2), Some(1));
    }

    #[test]
    fn cores_may_sleep_longer_than_others() {
        let mut s = staffing("0,0", None);
        s.spec.max_sleep_us = 50;
        s.spec.core_max_sleep_us.insert(1, 0);
        assert_eq!([s.max_sleep_us(0), s.max_sleep_us(1)], [50, 0]);
    }
}
