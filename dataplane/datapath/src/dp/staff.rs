//! Who polls what: workers that come and go, and the receive queues that are dealt out to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fv_core::{DpPort, Nanos};
use fv_dpif::{DpError, WorkerId};
use fv_netdev::Polling;
use parking_lot::Mutex;

use super::Dp;
use crate::assign::{Plan, QueueDemand, Rules, Step, WorkerKind, WorkerSlot, assign};
use crate::balance::{Balancer, Limits, Verdict};
use crate::ports::{Port, PortQueue, PortTable};
use crate::usage::{INTERVALS, Usage};
use crate::worker::mailbox::{Ack, Msg};
use crate::worker::stats::{QueueStats, Snapshot, Stat};
use crate::worker::{Worker, WorkerHandle};

/// How long a worker's end waits for queues that are on their way to it.
const MOVE_PATIENCE: Duration = Duration::from_millis(200);
/// How long a command waits for a worker's answer.
const ASK_PATIENCE: Duration = Duration::from_secs(1);
/// Length of the intervals in which the cost of queues is measured.
const MEASURE_INTERVAL: Nanos = Nanos::from_secs(5);

/// Control's side of the workers.
#[derive(Default)]
pub(super) struct Staff {
    rules: Rules,
    balancer: Balancer,
    next_measure: Nanos,
    workers: BTreeMap<WorkerId, WorkerUsage>,
    /// Pins have changed since the last deal.
    pins_changed: bool,
    rules_changed: bool,
}

/// What a poll worker did lately, in ticks.
#[derive(Clone, Copy, Default)]
pub struct WorkerUsage {
    pub busy: Usage,
    /// Busy or not.
    pub all: Usage,
}

/// Which queues may move.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Deal {
    /// Those that have no place, or not one that they may keep, and those that never had a packet.
    Keep,
    /// All of a kind.
    Fresh(WorkerKind),
    /// All that workers of these NUMA nodes have.
    Nodes(Vec<i32>),
}

/// One queue and its worker, for commands.
#[derive(Clone, Debug)]
pub struct QueueInfo {
    pub port: DpPort,
    pub name: String,
    pub queue: usize,
    pub worker: WorkerId,
    /// It is where `pmd-rxq-affinity` wants it.
    /// It is worth polling, says its device.
    pub enabled: bool,
    pub pinned: bool,
    pub stats: Arc<QueueStats>,
    pub usage: Usage,
}

impl Dp {
    /// A worker for a thread to own. Its receive queues come with [`Dp::deal`].
    pub fn new_worker(&self, id: WorkerId, kind: WorkerKind, numa: Option<i32>) -> Result<Worker, DpError> {
        let ports = self.ports.lock();
        let mut workers = self.workers.lock();
        if workers.iter().any(|w| w.id == id) || kind == WorkerKind::Main {
            return Err(DpError::Exists);
        }
        // The lowest that is free, so that few workers never meet in a transmit queue.
        let index = (0..).find(|i| workers.iter().all(|w| w.index != *i)).unwrap_or(0);
        let handle = WorkerHandle::new(id, kind, numa, index);
        for port in ports.iter() {
            handle.mailbox.send(Msg::AddTx(port.tx.clone()));
        }
        handle.mailbox.send(Msg::CacheUse(*self.cache_use.lock()));
        handle.mailbox.send(Msg::VlanLimit(*self.vlan_limit.lock()));
        handle.mailbox.resync();
        workers.push(handle.clone());
        Ok(Worker::new(handle, self.shared.clone(), self.ticks))
    }

    /// The next deal leaves nothing to this worker, whose thread then may end.
    pub fn retire_worker(&self, id: WorkerId) {
        self.workers.lock().iter_mut().filter(|w| w.id == id).for_each(|w| w.retiring = true);
    }

    /// Takes a worker back whose thread is over; queues that it still has go to others.
    pub fn remove_worker(&self, worker: Worker) {
        let handle = worker.handle().clone();
        self.workers.lock().retain(|w| w.id != handle.id);
        // Queues on their way to it arrive before the others have acknowledged.
        self.barrier().wait(MOVE_PATIENCE);
        let queues = worker.into_queues();
        {
            let mut gone = self.gone.lock();
            *gone = gone.plus(&handle.stats.snapshot());
        }
        self.staff.lock().workers.remove(&handle.id);
        let mut ports = self.ports.lock();
        for queue in ports.iter_mut().flat_map(|p| &mut p.queues).filter(|q| q.worker == handle.id) {
            queue.worker = WorkerId::MAIN;
        }
        let left = !queues.is_empty();
        for queue in queues {
            self.main_mailbox.send(Msg::AddQueue(Box::new(queue)));
        }
        drop(ports);
        if left {
            self.deal(&Deal::Keep);
        } else {
            self.poke_main();
        }
    }

    /// Takes effect with the next deal.
    pub fn set_rules(&self, rules: Rules) {
        let mut staff = self.staff.lock();
        staff.rules_changed |= staff.rules != rules;
        staff.rules = rules;
    }

    pub fn rules(&self) -> Rules {
        self.staff.lock().rules
    }

    /// `pmd-auto-lb`.
    pub fn set_balancing(&self, limits: Option<Limits>, now: Nanos) {
        self.staff.lock().balancer.configure(limits, now);
    }

    /// `pmd-rxq-affinity`: the core for some of a port's queues. Takes effect with the next deal.
    pub fn pin_queues(&self, port: DpPort, cores: &[(usize, WorkerId)]) -> Result<(), DpError> {
        let mut ports = self.ports.lock();
        let port = ports.find_mut(port).ok_or(DpError::NoSuchPort)?;
        let mut changed = false;
        for (q, queue) in port.queues.iter_mut().enumerate() {
            let core = cores.iter().rfind(|(n, _)| *n == q).map(|(_, core)| *core);
            changed |= std::mem::replace(&mut queue.pinned, core) != core;
        }
        drop(ports);
        self.staff.lock().pins_changed |= changed;
        Ok(())
    }

    /// `tx-steering`: whether a packet's hash chooses its transmit queue. Says whether it did before.
    pub fn steer_by_hash(&self, port: DpPort, by_hash: bool) -> Result<bool, DpError> {
        let ports = self.ports.lock();
        let port = ports.find(port).ok_or(DpError::NoSuchPort)?;
        Ok(port.tx.set_by_hash(by_hash))
    }

    /// Deals out what settings made since the last deal want elsewhere; all poll workers' queues if
    /// there are `new_workers` to use.
    pub fn deal_if_due(&self, new_workers: bool) -> Option<Arc<Ack>> {
        let (pins, rules) = {
            let staff = self.staff.lock();
            (staff.pins_changed, staff.rules_changed)
        };
        match (new_workers || rules, pins) {
            (true, _) => Some(self.deal(&Deal::Fresh(WorkerKind::Poll))),
            (false, true) => Some(self.deal(&Deal::Keep)),
            (false, false) => None,
        }
    }

    /// Deals out all receive queues anew; those that stay where they are lose nothing.
    pub fn deal_all(&self) -> Arc<Ack> {
        self.deal(&Deal::Fresh(WorkerKind::Event));
        self.deal(&Deal::Fresh(WorkerKind::Poll))
    }

    /// A new port's queues go to their workers, if there are such; the caller will start some if not.
    pub(super) fn place_new(&self, port: DpPort) {
        let kind = self.ports.lock().find(port).map(|p| kind_of(p.polling()));
        if self.workers.lock().iter().any(|w| Some(w.kind) == kind) {
            self.deal(&Deal::Keep);
        } else {
            self.poke_main();
        }
    }

    /// Deals out receive queues and says in the log what went where. Done when the queues that move
    /// have left their old workers.
    pub fn deal(&self, how: &Deal) -> Arc<Ack> {
        let ack = Ack::new();
        {
            let rules = {
                let mut staff = self.staff.lock();
                staff.pins_changed = false;
                staff.rules_changed &= !matches!(how, Deal::Fresh(WorkerKind::Poll));
                staff.rules
            };
            let mut ports = self.ports.lock();
            let workers = self.workers.lock();
            let slots = slots(&workers);
            let node = |id| slots.iter().find(|w| w.id == id).and_then(|w| w.numa);
            let keep = |port: &Port, q: &PortQueue| match how {
                Deal::Keep => port.polling() != Polling::Poll || q.stats.packets() > 0,
                Deal::Fresh(kind) => kind_of(port.polling()) != *kind,
                Deal::Nodes(nodes) => !node(q.worker).is_some_and(|n| nodes.contains(&n)),
            };
            let queues = demands(&ports, keep);
            let plan = assign(&queues, &slots, rules);
            report(&plan, &queues, &slots, rules, |port| ports.find(port).map_or("", |p| p.device.name()));
            for (q, to) in queues.iter().zip(&plan.workers) {
                let Some(queue) = ports.find_mut(q.port).and_then(|p| p.queues.get_mut(q.queue)) else { continue };
                let find = |id| workers.iter().find(|w| Some(w.id) == id).map(|w| w.mailbox.clone());
                if let (Some(from), Some(to_mailbox), Some(to)) = (find(Some(queue.worker)), find(*to), *to)
                    && queue.worker != to
                {
                    from.send(Msg::MoveQueue { port: q.port, queue: q.queue, to: to_mailbox, token: ack.token() });
                    queue.worker = to;
                }
            }
        }
        self.poke_main();
        ack
    }

    /// Done when every worker has taken the messages sent before, between two batches: packets that
    /// were in hand when this was called are through.
    pub fn barrier(&self) -> Arc<Ack> {
        let ack = Ack::new();
        for worker in self.workers.lock().iter() {
            worker.mailbox.send(Msg::Barrier(ack.token()));
        }
        self.poke_main();
        ack
    }

    /// Workers, the control thread's first.
    pub fn workers(&self) -> Vec<WorkerHandle> {
        self.workers.lock().clone()
    }

    /// Has a worker answer a question between two turns. None if there is no such worker, or it takes
    /// too long.
    pub fn ask<T: Send + 'static>(
        &self,
        id: WorkerId,
        question: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Option<T> {
        let (ack, answer) = (Ack::new(), Arc::new(Mutex::new(None)));
        let (token, slot) = (ack.token(), answer.clone());
        let ask = move |worker: &mut Worker| {
            *slot.lock() = Some(question(worker));
            drop(token);
        };
        self.workers().iter().find(|w| w.id == id)?.mailbox.send(Msg::Ask(Box::new(ask)));
        self.poke_main();
        ack.wait(ASK_PATIENCE);
        answer.lock().take()
    }

    /// Every receive queue with its worker, by port and number.
    pub fn queues(&self) -> Vec<QueueInfo> {
        let ports = self.ports.lock();
        let info = |port: &Port| -> Vec<QueueInfo> {
            let one = |(queue, q): (usize, &PortQueue)| QueueInfo {
                port: port.number,
                name: port.device.name().into(),
                queue,
                worker: q.worker,
                enabled: port.is_enabled(queue),
                pinned: q.pinned == Some(q.worker),
                stats: q.stats.clone(),
                usage: q.usage,
            };
            port.queues.iter().enumerate().map(one).collect()
        };
        ports.iter().flat_map(info).collect()
    }

    /// What a poll worker did lately.
    pub fn worker_usage(&self, id: WorkerId) -> WorkerUsage {
        self.staff.lock().workers.get(&id).copied().unwrap_or_default()
    }

    /// What all workers have counted, those that are gone included.
    pub fn totals(&self) -> Snapshot {
        let workers = self.workers.lock();
        let gone = *self.gone.lock();
        workers.iter().fold(gone, |sum, w| sum.plus(&w.stats.snapshot()))
    }

    /// Measures what queues cost, when it is time, and balances. To be called often.
    pub fn measure(&self, now: Nanos) {
        let workers = self.workers();
        let mut staff = self.staff.lock();
        if now < staff.next_measure {
            return;
        }
        // Missed intervals are not made up for.
        let next = staff.next_measure + MEASURE_INTERVAL;
        staff.next_measure = if next > now { next } else { now + MEASURE_INTERVAL };
        let mut busy = Vec::new();
        for w in workers.iter().filter(|w| w.kind == WorkerKind::Poll) {
            let s = w.stats.snapshot();
            let usage = staff.workers.entry(w.id).or_default();
            usage.busy.sample(s.value(Stat::BusyTicks));
            usage.all.sample(s.value(Stat::BusyTicks).wrapping_add(s.value(Stat::IdleTicks)));
            if let (Some(pct), true) = (percent(usage.busy.sum(1), usage.all.sum(1)), usage.all.known() > 0) {
                busy.push((w.id, pct));
            }
        }
        drop(staff);
        for port in self.ports.lock().iter_mut().filter(|p| p.polling() == Polling::Poll) {
            let enabled = port.device.enabled_rxqs();
            for (n, q) in port.queues.iter_mut().enumerate() {
                q.usage.sample(q.stats.ticks());
                q.enabled.sample(enabled.as_ref().is_none_or(|e| e.is_enabled(n)));
            }
        }
        self.balance(now, &busy);
    }

    fn balance(&self, now: Nanos, busy: &[(WorkerId, u8)]) {
        let verdict = {
            let ports = self.ports.lock();
            let workers = self.workers.lock();
            let mut staff = self.staff.lock();
            if !staff.balancer.is_on() {
                return;
            }
            staff.balancer.measured(busy);
            let rules = staff.rules;
            staff.balancer.decide(now, &demands(&ports, |_, _| true), &slots(&workers), rules)
        };
        if verdict != Verdict::Quiet {
            log::info!(target: "dpif_netdev", "{verdict}");
        }
        if let Verdict::Move(runs) = verdict {
            self.deal(&Deal::Nodes(runs.iter().filter(|r| r.moves).map(|r| r.numa).collect()));
        }
    }
}

/// Rounded; None of nothing.
pub fn percent(part: u64, whole: u64) -> Option<u8> {
    let pct = (u128::from(part) * 100 + u128::from(whole) / 2).checked_div(whole.into())?;
    Some(pct.min(100) as u8)
}

fn kind_of(polling: Polling) -> WorkerKind {
    match polling {
        Polling::Poll => WorkerKind::Poll,
        Polling::Event => WorkerKind::Event,
        Polling::Main => WorkerKind::Main,
    }
}

fn slots(workers: &[WorkerHandle]) -> Vec<WorkerSlot> {
    let staying = workers.iter().filter(|w| !w.retiring);
    staying.map(|w| WorkerSlot { id: w.id, kind: w.kind, numa: w.numa }).collect()
}

fn demands(ports: &PortTable, keep: impl Fn(&Port, &PortQueue) -> bool) -> Vec<QueueDemand> {
    let demand = |port: &Port| -> Vec<QueueDemand> {
        let one = |(queue, q): (usize, &PortQueue)| QueueDemand {
            port: port.number,
            queue,
            polling: port.polling(),
            numa: port.device.numa_id(),
            cycles: q.usage.sum(INTERVALS),
            enabled_pct: q.enabled.percent(port.is_enabled(queue)),
            pinned: q.pinned,
            keep: keep(port, q).then_some(q.worker),
        };
        port.queues.iter().enumerate().map(one).collect()
    };
    ports.iter().flat_map(demand).collect()
}

/// The steps that concern poll workers, in words that operators' scripts know.
fn report<'a>(
    plan: &Plan,
    queues: &[QueueDemand],
    slots: &[WorkerSlot],
    rules: Rules,
    name: impl Fn(DpPort) -> &'a str,
) {
    let mut performing = false;
    let core = |id: WorkerId| {
        let numa = slots.iter().find(|w| w.id == id).and_then(|w| w.numa).unwrap_or(0);
        format!("Core {:2} on numa node {numa}", id.0)
    };
    for step in &plan.steps {
        let (Step::Pinned(q, _)
        | Step::CannotPin(q, _)
        | Step::Kept(q, _)
        | Step::CrossNuma(q, ..)
        | Step::NoneFree(q)
        | Step::Dealt(q, _)) = *step;
        let demand = &queues[q];
        if demand.polling != Polling::Poll {
            continue;
        }
        if !performing && matches!(step, Step::CrossNuma(..) | Step::NoneFree(_) | Step::Dealt(..)) {
            performing = true;
            let name = rules.policy.name();
            log::info!(target: "dpif_netdev", "Performing pmd to rx queue assignment using {name} algorithm.");
        }
        let queue = format!("port '{}' rx queue {}", name(demand.port), demand.queue);
        let cycles = match rules.policy {
            crate::Policy::RoundRobin => String::new(),
            _ => format!(" (measured processing cycles {})", demand.cycles),
        };
        match *step {
            Step::Pinned(_, w) => log::info!(target: "dpif_netdev", "{} is pinned with {queue}{cycles}", core(w)),
            Step::CannotPin(_, w) => log::warn!(
                target: "dpif_netdev",
                "Core {:2} cannot be pinned with {queue}. Use pmd-cpu-mask to enable a pmd on core {}. \
                 An alternative core will be assigned.",
                w.0,
                w.0
            ),
            Step::CrossNuma(_, from, to) => log::info!(
                target: "dpif_netdev",
                "There's no available (non-isolated) pmd thread on numa node {from}. P{} will be assigned to a pmd \
                 on numa node {to}. This may lead to reduced performance.",
                &queue[1..]
            ),
            Step::NoneFree(_) => log::warn!(
                target: "dpif_netdev",
                "No non-isolated pmd on any numa available for {queue}{cycles}. It shares what there is."
            ),
            Step::Dealt(_, w) if w.0 < 0 => {}
            Step::Dealt(_, w) => log::info!(target: "dpif_netdev", "{} assigned {queue}{cycles}.", core(w)),
            Step::Kept(..) => {}
        }
    }
}
