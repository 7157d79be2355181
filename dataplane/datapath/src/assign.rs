//! Which worker polls which receive queue: a pure function of queues and workers, and what it says
//! about each decision.

use std::collections::{BTreeMap, BTreeSet};

use fv_core::DpPort;
use fv_dpif::WorkerId;
use fv_netdev::Polling;

/// What a worker may poll.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WorkerKind {
    /// The control thread: dummy ports, and whatever has no worker of its kind.
    Main,
    /// Sleeps until a device is readable.
    Event,
    /// Polls all the time.
    Poll,
}

/// `other_config:pmd-rxq-assign`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// Busiest first, dealt up and down.
    #[default]
    Cycles,
    /// In the order of ports and queues.
    RoundRobin,
    /// Busiest first, each to the worker with the least load.
    Group,
}

impl Policy {
    /// As the database writes it.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Cycles => "cycles",
            Policy::RoundRobin => "roundrobin",
            Policy::Group => "group",
        }
    }
}

/// How queues are dealt out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    pub policy: Policy,
    /// Workers that have a pinned queue get no others.
    pub isolate: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { policy: Policy::default(), isolate: true }
    }
}

/// A queue that wants a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueDemand {
    pub port: DpPort,
    pub queue: usize,
    pub polling: Polling,
    pub numa: Option<i32>,
    /// Measured cost; 0 if unknown.
    pub cycles: u64,
    /// Share of the time in which it is worth polling.
    pub enabled_pct: u8,
    /// Core of `pmd-rxq-affinity`.
    pub pinned: Option<WorkerId>,
    /// The worker that it stays with, if that one may have it.
    pub keep: Option<WorkerId>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerSlot {
    pub id: WorkerId,
    pub kind: WorkerKind,
    pub numa: Option<i32>,
}

/// One decision, in the order in which they are made. Numbers are indices of queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Pinned(usize, WorkerId),
    /// There is no worker on the core that the queue is pinned to.
    CannotPin(usize, WorkerId),
    Kept(usize, WorkerId),
    /// No free worker on the queue's NUMA node; one on the other node gets it.
    CrossNuma(usize, i32, i32),
    /// No free worker anywhere: an isolated one, or the control thread, gets it.
    NoneFree(usize),
    Dealt(usize, WorkerId),
}

/// A worker for every queue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// In the order of the queues; None only if there are no workers at all.
    pub workers: Vec<Option<WorkerId>>,
    pub steps: Vec<Step>,
    /// Workers that only get what is pinned to them.
    pub isolated: BTreeSet<WorkerId>,
}

/// Deals out the queues. Nothing of the result depends on the order of `queues` or `workers`.
pub fn assign(queues: &[QueueDemand], workers: &[WorkerSlot], rules: Rules) -> Plan {
    let mut workers: Vec<&WorkerSlot> = workers.iter().collect();
    workers.sort_by_key(|w| w.id);
    let mut order: Vec<usize> = (0..queues.len()).collect();
    order.sort_by_key(|q| (queues[*q].port, queues[*q].queue));
    let mut deal = Deal {
        queues,
        workers,
        policy: rules.policy,
        plan: Plan { workers: vec![None; queues.len()], ..Plan::default() },
        load: BTreeMap::new(),
        owned: BTreeMap::new(),
        held: BTreeSet::new(),
        dealt: BTreeMap::new(),
        crossed: 0,
    };
    order.retain(|q| !deal.pin(*q));
    if rules.isolate {
        deal.plan.isolated = deal.load.keys().copied().collect();
    }
    order.retain(|q| !deal.keep(*q));
    if rules.policy != Policy::RoundRobin {
        order.sort_by_key(|q| std::cmp::Reverse(queues[*q].cycles));
    }
    // Queues that rest have an owner, for when they do not any more, but are nobody's load.
    order.sort_by_key(|q| queues[*q].enabled_pct == 0);
    for q in order {
        deal.place(q);
    }
    deal.plan
}

struct Deal<'a> {
    queues: &'a [QueueDemand],
    workers: Vec<&'a WorkerSlot>,
    policy: Policy,
    plan: Plan,
    /// Cycles of each worker's queues, and the sum of their shares of time.
    load: BTreeMap<WorkerId, (u64, u64)>,
    /// Queues of each port that each worker has, resting or not.
    owned: BTreeMap<(WorkerId, DpPort), usize>,
    /// Workers that kept something.
    held: BTreeSet<WorkerId>,
    /// Queues dealt so far to each group of workers.
    dealt: BTreeMap<Vec<WorkerId>, usize>,
    /// Queues that went to another NUMA node so far.
    crossed: usize,
}

impl<'a> Deal<'a> {
    fn give(&mut self, q: usize, to: WorkerId, step: Step) {
        let load = self.load.entry(to).or_default();
        *load = (load.0.saturating_add(self.queues[q].cycles), load.1 + u64::from(self.queues[q].enabled_pct));
        *self.owned.entry((to, self.queues[q].port)).or_default() += 1;
        self.plan.workers[q] = Some(to);
        self.plan.steps.push(step);
    }

    fn pin(&mut self, q: usize) -> bool {
        let demand = &self.queues[q];
        let Some(core) = demand.pinned.filter(|_| demand.polling == Polling::Poll) else { return false };
        let found = self.workers.iter().any(|w| w.id == core && w.kind == WorkerKind::Poll);
        if found {
            self.give(q, core, Step::Pinned(q, core));
        } else {
            self.plan.steps.push(Step::CannotPin(q, core));
        }
        found
    }

    fn keep(&mut self, q: usize) -> bool {
        let demand = &self.queues[q];
        let free = self.free(kind_of(demand.polling));
        let near = free.iter().any(|w| near(w, demand.numa));
        let kept = free.iter().find(|w| Some(w.id) == demand.keep && (!near || self::near(w, demand.numa)));
        let Some(id) = kept.map(|w| w.id) else { return false };
        self.held.insert(id);
        self.give(q, id, Step::Kept(q, id));
        true
    }

    /// Workers of a kind that take what is not pinned.
    fn free(&self, kind: WorkerKind) -> Vec<&'a WorkerSlot> {
        self.workers.iter().copied().filter(|w| w.kind == kind && !self.plan.isolated.contains(&w.id)).collect()
    }

    fn place(&mut self, q: usize) {
        let (numa, kind) = (self.queues[q].numa, kind_of(self.queues[q].polling));
        let free = self.free(kind);
        let mut able: Vec<&WorkerSlot> = free.iter().copied().filter(|w| near(w, numa)).collect();
        if able.is_empty() && !free.is_empty() {
            able = self.other_node(q, &free);
        }
        if able.is_empty() {
            if kind == WorkerKind::Poll {
                self.plan.steps.push(Step::NoneFree(q));
            }
            let of_kind = self.workers.iter().copied().filter(|w| w.kind == kind);
            able = of_kind.clone().filter(|w| near(w, numa)).collect();
            if able.is_empty() {
                able = of_kind.collect();
            }
        }
        if able.is_empty() {
            able = self.free(WorkerKind::Main);
        }
        if let Some(to) = self.choose(q, &able) {
            self.give(q, to, Step::Dealt(q, to));
        }
    }

    /// The workers of another node that has some, each such node in turn.
    fn other_node(&mut self, q: usize, free: &[&'a WorkerSlot]) -> Vec<&'a WorkerSlot> {
        let nodes: BTreeSet<i32> = free.iter().filter_map(|w| w.numa).collect();
        let Some(to) = nodes.iter().copied().nth(self.crossed % nodes.len().max(1)) else { return free.to_vec() };
        self.crossed += 1;
        self.plan.steps.push(Step::CrossNuma(q, self.queues[q].numa.unwrap_or(0), to));
        free.iter().copied().filter(|w| w.numa == Some(to)).collect()
    }

    fn choose(&mut self, q: usize, able: &[&WorkerSlot]) -> Option<WorkerId> {
        let ids: Vec<WorkerId> = able.iter().map(|w| w.id).collect();
        let load = |id: &WorkerId| self.load.get(id).copied().unwrap_or_default();
        if self.queues[q].enabled_pct == 0 {
            let owned = |id: &WorkerId| self.owned.get(&(*id, self.queues[q].port)).copied().unwrap_or(0);
            return ids.into_iter().min_by_key(|id| (owned(id), load(id).1));
        }
        // Dealing in turn is even only from an empty start.
        let kept = ids.iter().any(|id| self.held.contains(id));
        let unmeasured = self.queues[q].cycles == 0;
        if self.policy == Policy::Group || kept {
            let by_count = unmeasured || self.policy == Policy::RoundRobin;
            return ids.into_iter().min_by_key(|id| {
                let (cycles, n) = load(id);
                if by_count { (n, cycles) } else { (cycles, n) }
            });
        }
        let n = ids.len();
        let dealt = self.dealt.entry(ids.clone()).or_default();
        let at = *dealt;
        *dealt += 1;
        match (n, self.policy) {
            (0, _) => None,
            // 1, 2, 3, 1, 2, 3 or 1, 2, 3, 3, 2, 1.
            (_, Policy::RoundRobin) => ids.get(at % n).copied(),
            _ => Some(at % (2 * n)).and_then(|at| ids.get(if at < n { at } else { 2 * n - 1 - at }).copied()),
        }
    }
}

fn kind_of(polling: Polling) -> WorkerKind {
    match polling {
        Polling::Poll => WorkerKind::Poll,
        Polling::Event => WorkerKind::Event,
        Polling::Main => WorkerKind::Main,
    }
}

/// Workers that sleep move with their packets: nodes matter to those that poll.
fn near(w: &WorkerSlot, numa: Option<i32>) -> bool {
    w.kind != WorkerKind::Poll || numa.is_none() || w.numa == numa
}

#[cfg(test)]
mod tests;
