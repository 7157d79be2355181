//! `pmd-auto-lb`: when poll workers' queues are to be dealt out anew. Decides, and says why; does
//! nothing itself and knows no clock but what it is told.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use fv_core::Nanos;
use fv_dpif::WorkerId;
use fv_netdev::Polling;

use crate::assign::{Policy, QueueDemand, Rules, WorkerKind, WorkerSlot, assign};

/// Measuring intervals in a row that a worker must be overloaded: a minute of five seconds each.
pub const OVERLOADED_FOR: u32 = 12;
/// Longest wait after moves that did not help, in intervals between rebalancings.
const PATIENCE_MAX: u32 = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Busy per cent from which a worker counts as overloaded.
    pub load_pct: u8,
    /// Per cent by which the variance of a node's loads must fall.
    pub improvement_pct: u8,
    /// Between two rebalancings.
    pub interval: Nanos,
}

/// One node, as it is and as it would be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeRun {
    pub numa: i32,
    /// Variance of its workers' cycles, times the square of their number.
    pub current: u128,
    pub estimated: u128,
    /// Its queues are to be dealt out anew.
    pub moves: bool,
}

impl NodeRun {
    pub fn improvement_pct(&self) -> u8 {
        let gain = self.current.saturating_sub(self.estimated);
        match self.current {
            0 => 0,
            // Both halves keep their leading digits; the product cannot overflow.
            c if c > u128::MAX / 100 => ((gain / (c / 100)).min(100)) as u8,
            c => (gain * 100 / c) as u8,
        }
    }
}

/// Why nothing moves, or that something does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Not the time, or no worker has been overloaded for long enough: not worth a line.
    Quiet,
    /// Queues are dealt without regard to load.
    RoundRobin,
    /// No node has two free workers of which one has two queues.
    NothingToChoose,
    TooLittleToGain(Vec<NodeRun>),
    /// The last moves did not help; looks again later.
    LastDidNotHelp,
    Move(Vec<NodeRun>),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = |f: &mut fmt::Formatter<'_>, runs: &[NodeRun]| {
            runs.iter()
                .try_for_each(|r| write!(f, " Numa node {}: variance improvement {}%.", r.numa, r.improvement_pct()))
        };
        match self {
            Verdict::Quiet => write!(f, "PMD auto load balance has nothing to do."),
            Verdict::RoundRobin => {
                write!(f, "PMD auto load balance does not move: roundrobin assignment ignores load.")
            }
            Verdict::NothingToChoose => write!(
                f,
                "PMD auto load balance does not move: no numa node has two non-isolated pmds of which one has two rx queues."
            ),
            Verdict::TooLittleToGain(runs) => {
                write!(f, "PMD auto load balance does not move: improvement threshold is not met.")?;
                nodes(f, runs)
            }
            Verdict::LastDidNotHelp => {
                write!(f, "PMD auto load balance does not move: the last time did not help, waiting longer.")
            }
            Verdict::Move(runs) => {
                write!(f, "PMD auto load balance moves rx queues: improvement threshold is met.")?;
                nodes(f, runs)
            }
        }
    }
}

#[derive(Default)]
pub struct Balancer {
    limits: Option<Limits>,
    /// Intervals in a row that each worker was overloaded.
    overloaded: BTreeMap<WorkerId, u32>,
    next: Nanos,
    /// What the last moves were to bring down, by node.
    moved: BTreeMap<i32, u128>,
    /// Intervals to wait, more with each move that did not help.
    patience: u32,
}

impl Balancer {
    /// None turns it off; what it knew is forgotten when anything changes.
    pub fn configure(&mut self, limits: Option<Limits>, now: Nanos) {
        if self.limits != limits {
            let next = limits.map_or(Nanos::ZERO, |l| now + l.interval);
            *self = Balancer { limits, next, patience: 1, ..Balancer::default() };
        }
    }

    pub fn is_on(&self) -> bool {
        self.limits.is_some()
    }

    /// How busy each poll worker was in the last measuring interval.
    pub fn measured(&mut self, busy_pct: &[(WorkerId, u8)]) {
        let Some(limits) = self.limits else { return };
        self.overloaded = busy_pct
            .iter()
            .filter(|(_, pct)| *pct >= limits.load_pct)
            .map(|(id, _)| (*id, self.overloaded.get(id).map_or(1, |n| n + 1)))
            .collect();
    }

    /// `queues` with the workers that have them in `keep`. After `Move`, deal those of the nodes that
    /// move without it.
    pub fn decide(&mut self, now: Nanos, queues: &[QueueDemand], workers: &[WorkerSlot], rules: Rules) -> Verdict {
        let Some(limits) = self.limits else { return Verdict::Quiet };
        if now < self.next {
            return Verdict::Quiet;
        }
        self.next = now + limits.interval;
        if !self.overloaded.values().any(|n| *n >= OVERLOADED_FOR) {
            return Verdict::Quiet;
        }
        if rules.policy == Policy::RoundRobin {
            return Verdict::RoundRobin;
        }
        let (mut runs, choice) = dry_run(queues, workers, rules);
        if !choice {
            return Verdict::NothingToChoose;
        }
        runs.iter_mut()
            .for_each(|r| r.moves = r.improvement_pct() >= limits.improvement_pct && r.current > r.estimated);
        if !runs.iter().any(|r| r.moves) {
            return Verdict::TooLittleToGain(runs);
        }
        // What the last moves promised must have come about, at least by half, or moving is no help.
        let half = u128::from(limits.improvement_pct) / 2;
        let no_better = |r: &NodeRun, was: u128| r.current >= was - was / 100 * half;
        let failed = runs.iter().any(|r| r.moves && self.moved.get(&r.numa).is_some_and(|was| no_better(r, *was)));
        let had_moved = !std::mem::take(&mut self.moved).is_empty();
        if failed {
            self.patience = (self.patience * 2).min(PATIENCE_MAX);
            self.next = now + Nanos(limits.interval.0.saturating_mul(self.patience.into()));
            return Verdict::LastDidNotHelp;
        }
        if had_moved {
            self.patience = 1;
        }
        self.moved = runs.iter().filter(|r| r.moves).map(|r| (r.numa, r.current)).collect();
        self.overloaded.clear();
        Verdict::Move(runs)
    }
}

/// The variance of each node's loads now and after a new deal, and whether there is anything to deal.
fn dry_run(queues: &[QueueDemand], workers: &[WorkerSlot], rules: Rules) -> (Vec<NodeRun>, bool) {
    let anew: Vec<QueueDemand> = queues.iter().map(|q| QueueDemand { keep: None, ..q.clone() }).collect();
    let plan = assign(&anew, workers, rules);
    let free = |w: &&WorkerSlot| w.kind == WorkerKind::Poll && !plan.isolated.contains(&w.id);
    let nodes: BTreeSet<i32> = workers.iter().filter(free).filter_map(|w| w.numa).collect();
    let mut choice = false;
    let runs = nodes.into_iter().map(|numa| {
        let ids: Vec<WorkerId> = workers.iter().filter(free).filter(|w| w.numa == Some(numa)).map(|w| w.id).collect();
        let mine = |at: &dyn Fn(usize) -> Option<WorkerId>, id: WorkerId| -> (u64, usize) {
            let polled = queues.iter().enumerate().filter(|(_, q)| q.polling == Polling::Poll);
            let of = polled.filter(|(n, _)| at(*n) == Some(id));
            of.fold((0, 0), |(c, n), (_, q)| (q.cycles.saturating_add(c), n + 1))
        };
        let now = |n: usize| queues[n].keep;
        choice |= ids.len() > 1 && ids.iter().any(|id| mine(&now, *id).1 > 1);
        NodeRun {
            numa,
            current: spread(ids.iter().map(|id| mine(&now, *id).0)),
            estimated: spread(ids.iter().map(|id| mine(&|n| plan.workers[n], *id).0)),
            moves: false,
        }
    });
    let runs: Vec<NodeRun> = runs.collect();
    (runs, choice)
}

/// Variance times the number squared: n * sum of squares - square of the sum, never negative.
fn spread(loads: impl Iterator<Item = u64> + Clone) -> u128 {
    let n = loads.clone().count() as u128;
    // A minute of cycles of some thousand workers stays far below the range.
    let squares = loads.clone().fold(0u128, |s, x| s.saturating_add(u128::from(x) * u128::from(x)));
    let sum = loads.fold(0u128, |s, x| s + u128::from(x));
    n.saturating_mul(squares).saturating_sub(sum.saturating_mul(sum))
}

#[cfg(test)]
mod tests;
