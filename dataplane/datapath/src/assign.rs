//! Which worker polls which receive queue: a pure function of queues and workers.

use std::collections::BTreeMap;

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

/// A queue that wants a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueDemand {
    pub port: DpPort,
    pub queue: usize,
    pub polling: Polling,
    pub numa: Option<i32>,
    /// Measured cost; 0 if unknown.
    pub cycles: u64,
    /// Core of `pmd-rxq-affinity`.
    pub pinned: Option<WorkerId>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerSlot {
    pub id: WorkerId,
    pub kind: WorkerKind,
    pub numa: Option<i32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Assignment {
    pub port: DpPort,
    pub queue: usize,
    pub worker: WorkerId,
    /// The worker is on another NUMA node than the device.
    pub cross_numa: bool,
    pub pinned: bool,
}

/// A worker for every queue, in the order of `queues`. With `isolate`, workers that have a pinned
/// queue get no others, unless there are only such.
pub fn assign(queues: &[QueueDemand], workers: &[WorkerSlot], policy: Policy, isolate: bool) -> Vec<Assignment> {
    let mut plan = vec![None; queues.len()];
    let mut load: BTreeMap<WorkerId, (u64, usize)> = BTreeMap::new();
    for (q, demand) in queues.iter().enumerate() {
        let pin = demand.pinned.filter(|_| demand.polling == Polling::Poll);
        if let Some(worker) = workers.iter().find(|w| Some(w.id) == pin && w.kind == WorkerKind::Poll) {
            plan[q] = Some((worker, true));
            let load = load.entry(worker.id).or_default();
            *load = (load.0 + demand.cycles, load.1 + 1);
        }
    }
    let pinned: Vec<WorkerId> = load.keys().copied().collect();
    let free = |kind: WorkerKind| -> Vec<&WorkerSlot> {
        let of_kind: Vec<_> = workers.iter().filter(|w| w.kind == kind).collect();
        let open: Vec<_> = of_kind.iter().copied().filter(|w| !isolate || !pinned.contains(&w.id)).collect();
        if open.is_empty() { of_kind } else { open }
    };

    let mut order: Vec<usize> = (0..queues.len()).filter(|q| plan[*q].is_none()).collect();
    order.sort_by_key(|q| (queues[*q].port, queues[*q].queue));
    if policy != Policy::RoundRobin {
        order.sort_by_key(|q| std::cmp::Reverse(queues[*q].cycles));
    }
    let mut dealers: BTreeMap<(u8, Option<i32>), Dealer> = BTreeMap::new();
    for q in order {
        let demand = &queues[q];
        let kind = match demand.polling {
            Polling::Poll => WorkerKind::Poll,
            Polling::Event => WorkerKind::Event,
            Polling::Main => WorkerKind::Main,
        };
        let mut able = free(kind);
        if able.is_empty() {
            able = free(WorkerKind::Main);
        }
        let near: Vec<_> = able.iter().copied().filter(|w| demand.numa.is_none() || w.numa == demand.numa).collect();
        let candidates = if near.is_empty() { able } else { near };
        if candidates.is_empty() {
            continue;
        }
        let dealer = dealers.entry((demand.polling as u8, demand.numa)).or_default();
        let choice = match policy {
            Policy::RoundRobin => dealer.round(candidates.len()),
            Policy::Cycles => dealer.up_down(candidates.len()),
            Policy::Group => {
                let weight = |w: &WorkerSlot| load.get(&w.id).copied().unwrap_or_default();
                (0..candidates.len()).min_by_key(|c| weight(candidates[*c])).unwrap_or(0)
            }
        };
        let worker = candidates[choice];
        let load = load.entry(worker.id).or_default();
        *load = (load.0 + demand.cycles, load.1 + 1);
        plan[q] = Some((worker, false));
    }
    let assignment = |(demand, choice): (&QueueDemand, Option<(&WorkerSlot, bool)>)| {
        choice.map(|(worker, pinned)| Assignment {
            port: demand.port,
            queue: demand.queue,
            worker: worker.id,
            cross_numa: worker.kind == WorkerKind::Poll && demand.numa.is_some() && worker.numa != demand.numa,
            pinned,
        })
    };
    queues.iter().zip(plan).filter_map(assignment).collect()
}

/// Deals 1, 2, 3, 1, 2, 3 or 1, 2, 3, 3, 2, 1.
#[derive(Default)]
struct Dealer {
    dealt: usize,
}

impl Dealer {
    fn round(&mut self, n: usize) -> usize {
        self.dealt += 1;
        (self.dealt - 1) % n
    }

    fn up_down(&mut self, n: usize) -> usize {
        let at = self.round(2 * n);
        if at < n { at } else { 2 * n - 1 - at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(spec: &[(u32, usize, u64)]) -> Vec<QueueDemand> {
        let queue = |&(port, queue, cycles): &(u32, usize, u64)| QueueDemand {
            port: DpPort(port),
            queue,
            polling: Polling::Poll,
            numa: Some(0),
            cycles,
            pinned: None,
        };
        spec.iter().map(queue).collect()
    }

    fn workers(spec: &[(i32, WorkerKind, i32)]) -> Vec<WorkerSlot> {
        let worker =
            |&(id, kind, numa): &(i32, WorkerKind, i32)| WorkerSlot { id: WorkerId(id), kind, numa: Some(numa) };
        spec.iter().map(worker).collect()
    }

    fn check(queues: &[QueueDemand], workers: &[WorkerSlot], policy: Policy, isolate: bool, expected: &[i32]) {
        let got: Vec<i32> = assign(queues, workers, policy, isolate).iter().map(|a| a.worker.0).collect();
        assert_eq!(got, expected);
    }

    const POLL: WorkerKind = WorkerKind::Poll;

    #[test]
    fn policies() {
        let w = workers(&[(3, POLL, 0), (4, POLL, 0), (-1, WorkerKind::Main, 0)]);
        let q = queues(&[(1, 0, 10), (1, 1, 40), (2, 0, 30), (2, 1, 20)]);
        check(&q, &w, Policy::RoundRobin, true, &[3, 4, 3, 4]);
        check(&q, &w, Policy::Cycles, true, &[3, 3, 4, 4]);
        let q = queues(&[(1, 0, 100), (1, 1, 40), (2, 0, 30), (2, 1, 20)]);
        check(&q, &w, Policy::Group, true, &[3, 4, 4, 4]);
        check(&queues(&[(1, 0, 0), (1, 1, 0), (2, 0, 0)]), &w, Policy::Group, true, &[3, 4, 3]);
    }

    #[test]
    fn pinned_queues_isolate_their_worker() {
        let w = workers(&[(3, POLL, 0), (4, POLL, 0)]);
        let mut q = queues(&[(1, 0, 0), (1, 1, 0), (2, 0, 0)]);
        q[0].pinned = Some(WorkerId(3));
        check(&q, &w, Policy::Cycles, true, &[3, 4, 4]);
        check(&q, &w, Policy::RoundRobin, false, &[3, 3, 4]);
        q[0].pinned = Some(WorkerId(9));
        check(&q, &w, Policy::RoundRobin, true, &[3, 4, 3]);
    }

    #[test]
    fn kinds_and_nodes() {
        let w = workers(&[(-1, WorkerKind::Main, 0), (0, WorkerKind::Event, 0), (1, POLL, 1)]);
        let mut q = queues(&[(1, 0, 0), (2, 0, 0), (3, 0, 0)]);
        q[0].polling = Polling::Main;
        q[1].polling = Polling::Event;
        check(&q, &w, Policy::Cycles, true, &[-1, 0, 1]);
        assert!(assign(&q, &w, Policy::Cycles, true)[2].cross_numa);
        check(&q, &w[..1], Policy::Cycles, true, &[-1, -1, -1]);
        check(&q, &[], Policy::Cycles, true, &[]);
    }
}
