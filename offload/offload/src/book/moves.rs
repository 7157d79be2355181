//! Moves between the two places, and the operations that they are made of.

use fv_core::Nanos;
use fv_dpif::Datapath;

use super::{Book, State};
use crate::caps::Level;
use crate::provider::{Op, PoolId, Rule, RuleId, Treatment};
use crate::rebalance::{Move, Place, Refusal};

/// Time between two looks at all counters.
const SAMPLE_EVERY: Nanos = Nanos::from_ms(500);
/// Time between two looks at receive queues, while marks wait for them.
const LOOK_EVERY: Nanos = Nanos::from_ms(5);
/// Packets that the largest receive queue holds.
const RING_MAX: u64 = 65_536;

impl Book {
    /// Tells the rebalancer what has been counted.
    pub(super) fn sample(&mut self, now: Nanos) {
        if now < self.sampled + SAMPLE_EVERY {
            return;
        }
        self.sampled = now;
        for entry in self.entries.iter().flatten() {
            let Some(id) = entry.id else { continue };
            match (entry.state, entry.level, &entry.handle) {
                (State::Hard, Level::Full, _) => {
                    let read = self.pools[entry.pool].read;
                    if read >= entry.inserted {
                        self.rebalancer.sample(id, read, entry.current.packets);
                    }
                }
                (State::Soft | State::Hard, _, Some(handle)) => {
                    self.rebalancer.sample(id, now, handle.stats().packets);
                }
                _ => {}
            }
        }
    }

    pub(super) fn plan(&mut self, now: Nanos) {
        let mut moves = Vec::new();
        for pool in 0..self.pools.len() {
            self.rebalancer.plan(now, self.name_of(pool), &mut moves);
        }
        for m in moves {
            match m {
                Move::Insert(id) => self.start_insertion(self.by_id[id.0 as usize], now),
                Move::Swap { out, into } => {
                    let (out, into) = (self.by_id[out.0 as usize], self.by_id[into.0 as usize]);
                    self.entry_mut(into).state = State::Waiting;
                    self.entry_mut(out).into = Some(into);
                    self.start_removal(out);
                }
            }
        }
    }

    pub(super) fn start_insertion(&mut self, i: usize, now: Nanos) {
        let entry = self.entry(i);
        let (pool, ufid) = (entry.pool, entry.ufid);
        let treatment = match entry.level {
            Level::Full => Treatment::Full(entry.program.clone()),
            Level::Mark => match self.marks.take(self.pools[pool].caps.mark_bits, ufid) {
                Some(mark) => {
                    self.entry_mut(i).mark = Some(mark);
                    Treatment::Mark(mark)
                }
                // All marks are in use, or not free again yet.
                None => {
                    let entry = self.entry_mut(i);
                    entry.state = State::Soft;
                    if let Some(id) = entry.id {
                        self.rebalancer.refused(id, now, Refusal::NoMark);
                    }
                    return;
                }
            },
        };
        let id = RuleId(self.next_rule);
        self.next_rule += 1;
        self.by_rule.insert(id, i);
        let local = self.pools[pool].id;
        let entry = self.entry_mut(i);
        (entry.state, entry.rule) = (State::Inserting, Some(id));
        let rule = Rule { id, pool: local, key: entry.key, mask: entry.mask, treatment };
        self.queue(pool, Op::Insert(Box::new(rule)));
    }

    pub(super) fn start_removal(&mut self, i: usize) {
        let entry = self.entry_mut(i);
        entry.state = State::Removing;
        let (pool, rule) = (entry.pool, entry.rule);
        if let Some(rule) = rule {
            self.queue(pool, Op::Remove(rule));
        }
    }

    pub(super) fn queue(&mut self, pool: usize, op: Op) {
        let backlog = &mut self.backlogs[self.pools[pool].provider];
        match op {
            Op::Insert(_) => backlog.inserts.push_back(op),
            _ => backlog.first.push_back(op),
        }
    }

    /// Hands providers as much as they take.
    pub(super) fn submit(&mut self, now: Nanos) {
        for (provider, backlog) in self.providers.iter_mut().zip(&mut self.backlogs) {
            while let Some((op, first)) = backlog.next() {
                if let Err(op) = provider.submit(now, op) {
                    let to = if first { &mut backlog.first } else { &mut backlog.inserts };
                    to.push_front(op);
                    break;
                }
            }
        }
    }

    /// A rule is out of the table, and its last count is in `base`.
    pub(super) fn is_out(&mut self, i: usize, now: Nanos) {
        let delay = self.pools[self.entry(i).pool].caps.pipeline_delay;
        let entry = self.entry_mut(i);
        entry.modifying = false;
        if let Some(rule) = entry.rule.take() {
            self.by_rule.remove(&rule);
        }
        let entry = self.entry_mut(i);
        entry.state = State::Soft;
        let marks = [entry.mark.take(), entry.old_mark.take()];
        let (id, into, dead) = (entry.id, entry.into.take(), entry.death.is_some());
        if std::mem::take(&mut entry.holds_place) {
            let name = PoolId(entry.pool as u16);
            self.rebalancer.freed(name);
        }
        marks.into_iter().flatten().for_each(|m| self.marks.release(m, now, delay));
        if let Some(id) = id.filter(|id| matches!(self.rebalancer.place(*id), Place::Hardware | Place::Leaving)) {
            self.rebalancer.left(id, now);
        }
        if let Some(into) = into {
            self.follow(into, now);
        }
        if dead {
            self.drop_entry(i);
        }
    }

    /// The place that a newcomer waited for is free.
    fn follow(&mut self, into: usize, now: Nanos) {
        if self.entry(into).death.is_some() {
            return self.drop_entry(into);
        }
        match self.entry(into).id {
            Some(_) => self.start_insertion(into, now),
            // Withdrawn while it waited.
            None => {
                let entry = self.entry_mut(into);
                entry.state = State::Soft;
                if std::mem::take(&mut entry.holds_place) {
                    let name = PoolId(entry.pool as u16);
                    self.rebalancer.freed(name);
                }
                self.look_again_if_stale(into);
            }
        }
    }

    pub(super) fn count_move(&mut self, i: usize, now: Nanos) {
        let pool = self.entry(i).pool;
        let moves = &mut self.pools[pool].moves;
        moves.push_back(now);
        while moves.pop_front_if(|at| *at + Nanos::from_secs(60) < now).is_some() {}
    }

    /// Gives marks to new owners when no packet with the old meaning can come any more.
    pub(super) fn reuse_marks(&mut self, dp: &dyn Datapath, now: Nanos) {
        if self.marks.waiting(now) && now >= self.looked + LOOK_EVERY {
            self.looked = now;
            self.marks.progress(now, &dp.rx_progress(), RING_MAX);
            dp.look_into_queues();
        }
    }

    pub(super) fn due(&self, now: Nanos) -> Nanos {
        if self.backlogs.iter().any(|b| !b.first.is_empty() || !b.inserts.is_empty()) {
            // Completions make room.
            return now + Nanos::from_ms(1);
        }
        let providers = self.providers.iter().map(|p| p.due()).min().unwrap_or(Nanos::MAX);
        let marks = if self.marks.n_waiting() > 0 { now + LOOK_EVERY } else { Nanos::MAX };
        let samples = if self.enabled && !self.pools.is_empty() { self.sampled + SAMPLE_EVERY } else { Nanos::MAX };
        providers.min(marks).min(samples)
    }
}

impl super::Backlog {
    fn next(&mut self) -> Option<(Op, bool)> {
        match self.first.pop_front() {
            Some(op) => Some((op, true)),
            None => self.inserts.pop_front().map(|op| (op, false)),
        }
    }
}
