//! What providers tell.

use fv_core::Nanos;

use super::{Book, State};
use crate::caps::WhyNot;
use crate::provider::{Count, Op, OpKind, Outcome, PoolId, Report, RuleId};
use crate::rebalance::Refusal;

impl Book {
    pub fn take_reports(&mut self, now: Nanos) {
        let mut reports = std::mem::take(&mut self.reports);
        for provider in 0..self.providers.len() {
            self.providers[provider].turn(now, &mut reports);
            for report in reports.drain(..) {
                self.take_in(provider, report, now);
            }
        }
        self.reports = reports;
    }

    fn take_in(&mut self, provider: usize, report: Report, now: Nanos) {
        match report {
            Report::Counted { rule, count, .. } => {
                if let Some(i) = self.by_rule.get(&rule) {
                    let i = *i;
                    self.entry_mut(i).current = count;
                }
            }
            Report::Read { pool, as_of } => {
                if let Some(p) = self.pools.iter_mut().find(|p| p.provider == provider && p.id == pool) {
                    p.read = p.read.max(as_of);
                }
            }
            Report::Evicted { rule, last } => self.evicted(rule, last, now),
            Report::Reset(pool) => self.reset(provider, pool, now),
            Report::Finished { rule, kind, outcome, last } => {
                let Some(i) = self.by_rule.get(&rule).copied() else { return };
                match kind {
                    OpKind::Insert => self.inserted(i, outcome, now),
                    OpKind::Modify => self.modified(i, outcome, now),
                    OpKind::Remove => self.removed(i, rule, outcome, last, now),
                }
            }
        }
    }

    fn inserted(&mut self, i: usize, outcome: Outcome, now: Nanos) {
        let entry = self.entry_mut(i);
        if outcome == Outcome::Done {
            entry.state = State::Hard;
            entry.current = Count::default();
            entry.inserted = now;
            if let Some(id) = entry.id {
                self.rebalancer.entered(id, now);
            }
            self.count_move(i, now);
            let entry = self.entry(i);
            if entry.death.is_some() || entry.id.is_none() {
                self.start_removal(i);
            } else if entry.stale {
                let ufid = self.entry(i).ufid;
                self.again.push(ufid);
            }
            return;
        }
        let why = match outcome {
            Outcome::Cannot(why) => {
                entry.why = Some(why);
                Refusal::Cannot
            }
            Outcome::OutOfRoom => Refusal::OutOfRoom,
            _ => Refusal::Busy,
        };
        if let Some(id) = entry.id {
            // Before `is_out`, which would take it for one that was in.
            self.rebalancer.refused(id, now, why);
        }
        self.is_out(i, now);
        self.look_again_if_stale(i);
    }

    fn modified(&mut self, i: usize, outcome: Outcome, now: Nanos) {
        let delay = self.pools[self.entry(i).pool].caps.pipeline_delay;
        let entry = self.entry_mut(i);
        entry.modifying = false;
        let old = entry.old_mark.take();
        if outcome != Outcome::Done {
            // What the rule does now is not certain, or not what the flow does: out with it.
            entry.old_mark = old;
            if entry.state == State::Hard {
                match outcome {
                    Outcome::Cannot(why) => entry.why = Some(why),
                    _ => entry.stale = true,
                }
                self.withdraw(i);
            }
            return;
        }
        old.into_iter().for_each(|m| self.marks.release(m, now, delay));
        if self.entry(i).stale {
            let ufid = self.entry(i).ufid;
            self.again.push(ufid);
        }
    }

    fn removed(&mut self, i: usize, rule: RuleId, outcome: Outcome, last: Count, now: Nanos) {
        if outcome == Outcome::Busy {
            let pool = self.entry(i).pool;
            return self.queue(pool, Op::Remove(rule));
        }
        self.close_count(i, last);
        self.count_move(i, now);
        self.is_out(i, now);
        self.look_again_if_stale(i);
    }

    fn evicted(&mut self, rule: RuleId, last: Count, now: Nanos) {
        let Some(i) = self.by_rule.get(&rule).copied() else { return };
        self.close_count(i, last);
        match self.entry(i).state {
            // What is under way ends by itself; there is nothing more to count.
            State::Removing => {}
            _ => {
                self.is_out(i, now);
                self.look_again_if_stale(i);
            }
        }
    }

    fn reset(&mut self, provider: usize, pool: PoolId, now: Nanos) {
        let Some(pool) = self.pools.iter().position(|p| p.provider == provider && p.id == pool) else { return };
        let of_pool = |e: &super::Entry| e.pool == pool && e.state == State::Hard;
        let all: Vec<usize> =
            (0..self.entries.len()).filter(|i| self.entries[*i].as_ref().is_some_and(of_pool)).collect();
        for i in all {
            // Nobody will ever know more.
            let last = self.entry(i).current;
            self.close_count(i, last);
            self.is_out(i, now);
            self.look_again_if_stale(i);
        }
    }

    pub(super) fn look_again_if_stale(&mut self, i: usize) {
        if let Some(entry) = self.entries[i].as_ref().filter(|e| e.death.is_none())
            && (entry.stale
                || entry.id.is_none() && !matches!(entry.why, Some(WhyNot::Field(_) | WhyNot::Recirculated)))
        {
            self.again.push(entry.ufid);
        }
    }

    /// The rule counts no more: `last` is all that it counted.
    fn close_count(&mut self, i: usize, last: Count) {
        let entry = self.entry_mut(i);
        // An end that says less than was told before has lost its count on the way.
        let last = if last.packets >= entry.current.packets { last } else { entry.current };
        entry.base.packets = entry.base.packets.wrapping_add(last.packets);
        entry.base.bytes = entry.base.bytes.wrapping_add(last.bytes);
        entry.base.used = entry.base.used.max(last.used);
        entry.current = Count::default();
    }
}
