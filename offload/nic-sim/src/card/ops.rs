//! Operations on the table, one after the other, each with its latency; and counters, told late.

use std::collections::VecDeque;

use fv_core::Nanos;
use fv_offload::{Count, Op, OpKind, Outcome, PoolId, Report, RuleId, WhyNot};

use super::State;
use crate::config::CardConfig;

/// Counters are read this often, and twice in their delay where that is longer.
const STATS_MIN: Nanos = Nanos::from_ms(100);

pub struct Ops {
    queue: VecDeque<(Nanos, Op)>,
    /// When the next operation can begin.
    free_at: Nanos,
    /// Counters on their way: when they were read.
    counts: VecDeque<(Nanos, Vec<(RuleId, Count)>)>,
    read_at: Nanos,
    random: u64,
}

impl Ops {
    pub fn new(seed: u64) -> Ops {
        Ops {
            queue: VecDeque::new(),
            free_at: Nanos::ZERO,
            counts: VecDeque::new(),
            read_at: Nanos::ZERO,
            random: seed,
        }
    }

    pub fn submit(&mut self, config: &CardConfig, now: Nanos, op: Op) -> Result<(), Op> {
        if self.queue.len() >= config.op_depth {
            return Err(op);
        }
        let begin = now.max(self.free_at);
        self.free_at = begin + Nanos(1_000_000_000u64.checked_div(config.op_rate).unwrap_or(0));
        self.queue.push_back((begin + config.op_latency, op));
        Ok(())
    }

    pub fn knows(&self, rule: RuleId) -> bool {
        self.queue.iter().any(|(_, op)| op.rule() == rule)
    }

    pub fn due(&self) -> Nanos {
        self.queue.front().map_or(Nanos::MAX, |(at, _)| *at)
    }

    /// None of what is under way happens.
    pub fn lose_all(&mut self, reports: &mut Vec<Report>) {
        for (_, op) in self.queue.drain(..) {
            let last = Count::default();
            reports.push(Report::Finished { rule: op.rule(), kind: op.kind(), outcome: Outcome::Lost, last });
        }
    }

    fn dice(&mut self, percent: u8) -> bool {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.random >> 33) % 100 < u64::from(percent)
    }
}

impl State {
    /// Does what operations are due, and tells what counters are.
    pub fn operate(&mut self, config: &CardConfig, pool: PoolId, now: Nanos) {
        while let Some((_, op)) = self.ops.queue.pop_front_if(|(at, _)| *at <= now) {
            let (rule, kind) = (op.rule(), op.kind());
            let (outcome, last) = self.perform(config, op);
            self.reports.push(Report::Finished { rule, kind, outcome, last });
        }
        let every = STATS_MIN.max(Nanos(config.stats_delay.0 / 2));
        if now >= self.ops.read_at + every {
            self.ops.read_at = now;
            let counts = self.table.take_counts();
            self.ops.counts.push_back((now, counts));
        }
        while let Some((as_of, counts)) = self.ops.counts.pop_front_if(|(at, _)| *at + config.stats_delay <= now) {
            // Those of rules that have left meanwhile were told with their end.
            let here = counts.into_iter().filter(|(rule, _)| self.table.find(*rule).is_some());
            let told: Vec<_> = here.map(|(rule, count)| Report::Counted { rule, count, as_of }).collect();
            self.reports.extend(told);
            // Nobody may be listening.
            match self.reports.last_mut() {
                Some(Report::Read { as_of: last, .. }) => *last = as_of,
                _ => self.reports.push(Report::Read { pool, as_of }),
            }
        }
    }

    fn perform(&mut self, config: &CardConfig, op: Op) -> (Outcome, Count) {
        if self.ops.dice(config.busy_percent) {
            return (Outcome::Busy, Count::default());
        }
        let fails = self.ops.dice(config.fail_percent);
        match op {
            Op::Insert(_) if fails => (Outcome::Lost, Count::default()),
            Op::Insert(_) if self.table.len() >= config.table_size => (Outcome::OutOfRoom, Count::default()),
            Op::Insert(rule) => match self.table.insert(*rule) {
                true => (Outcome::Done, Count::default()),
                // The same match is there: it may go away.
                false => (Outcome::Busy, Count::default()),
            },
            Op::Modify(id, treatment) => match self.table.find(id) {
                Some(entry) => {
                    entry.treatment = treatment;
                    (Outcome::Done, entry.count)
                }
                None => (Outcome::Lost, Count::default()),
            },
            Op::Remove(id) => match self.table.remove(id) {
                Some(count) if fails => (Outcome::Lost, count),
                Some(count) => (Outcome::Done, count),
                None => (Outcome::Cannot(WhyNot::Refused), Count::default()),
            },
        }
    }
}

/// How operations are named in tests' messages.
impl std::fmt::Debug for Ops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kinds: Vec<(OpKind, RuleId)> = self.queue.iter().map(|(_, op)| (op.kind(), op.rule())).collect();
        write!(f, "{kinds:?}")
    }
}
