//! Flows that come, change and go.

use fv_core::{Nanos, Ufid};
use fv_dpif::{Datapath, FlowDump, FlowStats, Program, Retired};

use super::{Book, Death, Entry, State};
use crate::caps::{Level, WhyNot};
use crate::provider::{Count, Op, Treatment};
use crate::rebalance::Place;

/// What marking spares of a packet's cost in software, roughly.
const MARK_SHARE: f32 = 0.4;

/// What a packet of the flow costs in software as far as hardware can spare it, one that is only sent being 1.
fn weight(level: Level, program: &Program) -> f32 {
    let actions = program.actions.len().clamp(1, 20) as f32;
    match level {
        Level::Mark => MARK_SHARE,
        Level::Full => 0.8 + 0.2 * actions,
    }
}

impl Book {
    /// A flow was put, changed or deleted, or may have been.
    pub fn look_at(&mut self, dp: &dyn Datapath, ufid: Ufid, now: Nanos) {
        let there = self.by_ufid.get(&ufid).copied();
        match (there, dp.flow_get(ufid)) {
            (None, None) => {}
            (None, Some(flow)) => self.adopt(dp, flow, now),
            (Some(i), Some(flow)) => self.change(i, &flow, now),
            // Somebody deleted it behind our back: what software had counted nobody knows.
            (Some(_), None) => {
                self.bury(ufid, FlowStats::default(), None);
            }
        }
    }

    pub fn look_at_all(&mut self, dp: &dyn Datapath, now: Nanos) {
        let mut all = Vec::new();
        dp.flow_dump(&mut |flow| {
            all.push(flow.ufid);
            true
        });
        let here: hashbrown::HashSet<Ufid> = all.iter().copied().collect();
        all.extend(self.by_ufid.keys().filter(|u| !here.contains(*u)));
        all.into_iter().for_each(|ufid| self.look_at(dp, ufid, now));
    }

    fn level_of(&self, flow: &FlowDump, pool: usize) -> Result<(Level, Option<WhyNot>), WhyNot> {
        let pool = &self.pools[pool];
        pool.caps.level(&flow.key, &flow.mask, &flow.program, &|port| pool.ports.contains(&port))
    }

    fn adopt(&mut self, dp: &dyn Datapath, flow: FlowDump, now: Nanos) {
        let Some(pool) = self.by_port.get(&fv_core::DpPort(flow.key.base.in_port)).copied() else { return };
        let i = self.add_entry(Entry {
            ufid: flow.ufid,
            key: flow.key,
            mask: flow.mask,
            program: flow.program.clone(),
            handle: dp.flow_handle(flow.ufid),
            pool,
            level: Level::Mark,
            why: None,
            id: None,
            state: State::Soft,
            rule: None,
            mark: None,
            modifying: false,
            old_mark: None,
            stale: false,
            base: Count::default(),
            current: Count::default(),
            inserted: Nanos::ZERO,
            into: None,
            holds_place: false,
            death: None,
        });
        self.by_ufid.insert(flow.ufid, i);
        self.assess(i, &flow, now);
    }

    /// Finds out what the NIC can do for a flow that is in software, and enters it for that.
    fn assess(&mut self, i: usize, flow: &FlowDump, now: Nanos) {
        let id = self.entry(i).id;
        let pool = self.by_port.get(&fv_core::DpPort(flow.key.base.in_port)).copied();
        if let Some(pool) = pool {
            self.entry_mut(i).pool = pool;
        }
        match pool.ok_or(WhyNot::NotAble).and_then(|pool| self.level_of(flow, pool)) {
            Ok((level, why)) => {
                let weight = weight(level, &flow.program);
                let entry = self.entry_mut(i);
                (entry.level, entry.why) = (level, why);
                match id {
                    Some(id) => self.rebalancer.changed(id, weight),
                    None => self.enter(i, weight, now),
                }
            }
            Err(why) => {
                self.take_name(i);
                self.entry_mut(i).why = Some(why);
            }
        }
    }

    fn enter(&mut self, i: usize, weight: f32, now: Nanos) {
        let name = self.name_of(self.entry(i).pool);
        let id = self.rebalancer.add(now, name, weight);
        let packets = self.entry(i).handle.as_ref().map_or(0, |h| h.stats().packets);
        self.rebalancer.sample(id, now, packets);
        self.entry_mut(i).id = Some(id);
        let at = id.0 as usize;
        if self.by_id.len() <= at {
            self.by_id.resize(at + 1, usize::MAX);
        }
        self.by_id[at] = i;
    }

    fn change(&mut self, i: usize, flow: &FlowDump, now: Nanos) {
        let entry = self.entry_mut(i);
        let same = entry.program == flow.program && !entry.stale;
        entry.program = flow.program.clone();
        match entry.state {
            State::Soft if same && entry.id.is_some() => {}
            State::Soft => {
                entry.stale = false;
                self.assess(i, flow, now);
            }
            _ if same => {}
            State::Hard if !entry.modifying => {
                entry.stale = false;
                self.modify(i, flow);
            }
            // The latest state counts, when what is under way is over.
            _ => entry.stale = true,
        }
    }

    /// Changes a rule in place.
    fn modify(&mut self, i: usize, flow: &FlowDump) {
        let entry = self.entry(i);
        let (was, pool, bits) = (entry.level, entry.pool, self.pools[entry.pool].caps.mark_bits);
        let level = match self.level_of(flow, pool) {
            Ok((level, why)) => {
                self.entry_mut(i).why = why;
                level
            }
            Err(why) => {
                self.withdraw(i);
                self.entry_mut(i).why = Some(why);
                return;
            }
        };
        let treatment = match (was, level) {
            // The mark names the flow, whatever it does.
            (Level::Mark, Level::Mark) => return,
            (_, Level::Full) => Treatment::Full(flow.program.clone()),
            (Level::Full, Level::Mark) => match self.marks.take(bits, flow.ufid) {
                Some(mark) => {
                    self.entry_mut(i).mark = Some(mark);
                    Treatment::Mark(mark)
                }
                None => {
                    self.withdraw(i);
                    return;
                }
            },
        };
        let weight = weight(level, &flow.program);
        let entry = self.entry_mut(i);
        if level == Level::Full {
            entry.old_mark = entry.mark.take();
        }
        entry.level = level;
        entry.modifying = true;
        let (id, rule) = (entry.id, entry.rule);
        if let Some(id) = id {
            self.rebalancer.changed(id, weight);
        }
        if let Some(rule) = rule {
            self.queue(pool, Op::Modify(rule, treatment));
        }
    }

    /// Takes a flow that lives out of hardware, and out of the choice, until it is looked at again.
    pub(super) fn withdraw(&mut self, i: usize) {
        if self.take_name(i) && self.entry(i).state == State::Hard {
            self.start_removal(i);
        }
    }

    /// The rebalancer forgets a flow; says whether it knew it.
    fn take_name(&mut self, i: usize) -> bool {
        let Some(id) = self.entry_mut(i).id.take() else { return false };
        self.by_id[id.0 as usize] = usize::MAX;
        // The place of one that leaves is promised to its newcomer.
        let holds = matches!(self.rebalancer.remove(id), Place::Entering | Place::Hardware);
        self.entry_mut(i).holds_place |= holds;
        true
    }

    /// A flow is deleted; `done` gets its final statistics. False if it was not known.
    pub fn bury(&mut self, ufid: Ufid, software: FlowStats, done: Option<Retired>) -> bool {
        let Some(i) = self.by_ufid.remove(&ufid) else { return false };
        self.take_name(i);
        let entry = self.entry_mut(i);
        entry.death = Some(Death { software, done });
        entry.handle = None;
        let (state, mark) = (entry.state, entry.mark);
        mark.into_iter().for_each(|m| self.marks.disown(m));
        match state {
            State::Soft => self.drop_entry(i),
            State::Hard => self.start_removal(i),
            // Whoever leaves for it drops it, or the end of what is under way.
            State::Waiting | State::Inserting | State::Removing => {}
        }
        true
    }

    pub fn bury_all(&mut self) {
        let all: Vec<Ufid> = self.by_ufid.keys().copied().collect();
        for ufid in all {
            self.bury(ufid, FlowStats::default(), None);
        }
    }
}
