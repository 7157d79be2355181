//! Flows that `learn` actions make: asked for by translations in any thread, made by control.

use std::sync::Arc;

use fv_classifier::{ClsRule, MiniMatch, Version};
use fv_core::Nanos;
use fv_openflow::action::Action;
use fv_openflow::msg::flow::{FlowMod, FlowRemovedReason, GROUP_ANY};
use fv_openflow::{Actions, OfError};
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::bridge::Ofproto;
use crate::flow_mod::{Criteria, Step, rule_of};
use crate::host::Host;
use crate::rule::RuleRef;
use crate::snapshot::Snapshot;
use crate::tables::{N_VISIBLE_TABLES, Table, Tables};

/// Flows that may wait to be made; more are dropped with a counter.
const MAX_WAITING: usize = 65_536;

/// A flow to be learned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LearnJob {
    pub flow: FlowMod,
    /// Most flows of its cookie in its table; 0 is no limit.
    pub limit: u32,
}

/// What became of a packet's wish to learn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Learned {
    /// The very flow is there: its hard timeout starts anew.
    Refreshed,
    /// The next packet meets it.
    Added,
    /// It takes the place of another, or the tables are being changed: control is to make it.
    Waiting,
    /// There are as many as the limit says.
    Refused,
    /// Too many wait already.
    Dropped,
}

/// Flows of a cookie in a table: what limits and `delete_learned` are about.
type Family = (u64, u8);

/// What waits for control, and what translations must know of limits.
#[derive(Default)]
pub(crate) struct LearnQueue {
    waiting: Mutex<Vec<(Arc<LearnJob>, Nanos)>>,
    /// Made, but control does not know of them.
    added: Mutex<Vec<RuleRef>>,
    /// Held by control while it changes the tables.
    changing: Mutex<()>,
    /// Flows there are of the families that some rule limits.
    limited: Mutex<HashMap<Family, Limited>>,
}

#[derive(Default)]
struct Limited {
    /// Rules with a limited `learn` of the family.
    learners: usize,
    /// None until they are counted.
    flows: Option<usize>,
}

impl LearnJob {
    fn family(&self) -> Family {
        (self.flow.new_cookie, self.flow.table)
    }

    /// Whether the rule is what this job would make.
    fn is(&self, r: &RuleRef) -> bool {
        let f = &self.flow;
        r.cookie == f.new_cookie
            && r.flags == f.flags
            && r.idle_timeout_s() == f.idle_timeout_s
            && r.hard_timeout_s() == f.hard_timeout_s
            && *r.actions == f.actions
    }

    fn find(&self, tables: &Tables, version: Version) -> Option<RuleRef> {
        tables.table(self.flow.table)?.cls.find_exactly(&self.flow.match_, self.flow.priority.into(), version)
    }
}

impl Snapshot {
    /// Whether the limit lets the flow be learned, or it already is; an error if its table does not.
    pub fn may_learn(&self, job: &LearnJob) -> Result<bool, OfError> {
        let table = writable(self.tables(), job.flow.table)?;
        let room = table.cls.len() < table.max_flows() || table.evicts();
        let in_limit = job.limit == 0 || self.tables().learned.count(job.family()) < job.limit as usize;
        if room && in_limit || job.find(self.tables(), self.version()).is_some() {
            return Ok(true);
        }
        if room { Ok(false) } else { Err(OfError::FmfcTableFull) }
    }
}

/// The table, if flows may be learned into it.
fn writable(tables: &Tables, id: u8) -> Result<&Table, OfError> {
    match tables.table(id) {
        Some(t) if usize::from(id) < N_VISIBLE_TABLES => Ok(t),
        _ => Err(OfError::BrcEperm),
    }
}

impl LearnQueue {
    fn count(&self, f: Family) -> usize {
        self.limited.lock().get(&f).and_then(|l| l.flows).unwrap_or(0)
    }
}

impl Tables {
    /// A packet taught a flow. From any thread; waits for nobody.
    pub fn learn(self: &Arc<Self>, job: &Arc<LearnJob>, now: Nanos) -> Learned {
        let snapshot = self.snapshot();
        match job.find(self, snapshot.version()) {
            Some(r) if job.is(&r) => {
                r.touch(now);
                return Learned::Refreshed;
            }
            Some(_) => {}
            None => {
                if let Some(done) = self.add_learned(job, now) {
                    return done;
                }
            }
        }
        let mut w = self.learned.waiting.lock();
        if w.len() >= MAX_WAITING {
            return Learned::Dropped;
        }
        // A burst of packets teaches the same many times.
        if w.last().is_none_or(|(last, _)| **last != **job) {
            w.push((job.clone(), now));
        }
        Learned::Waiting
    }

    /// None if it is not this thread that can do it.
    fn add_learned(&self, job: &LearnJob, now: Nanos) -> Option<Learned> {
        let _changing = self.learned.changing.try_lock()?;
        // Not the packet's version: control may have published others since, with this very flow.
        let v = self.version();
        let table = writable(self, job.flow.table).ok().filter(|t| t.cls.len() < t.max_flows())?;
        let mut limited = self.learned.limited.lock();
        let known = limited.get_mut(&job.family()).and_then(|l| l.flows.as_mut());
        if job.limit != 0 && known.as_ref().is_some_and(|n| **n >= job.limit as usize) {
            return Some(Learned::Refused);
        }
        let mut added = self.learned.added.lock();
        if added.len() >= MAX_WAITING {
            return Some(Learned::Dropped);
        }
        let rule = rule_of(&job.flow, job.flow.table, now);
        let rule = Arc::new(ClsRule::new(MiniMatch::new(&job.flow.match_), job.flow.priority.into(), rule));
        if !table.cls.insert_new(rule.clone(), v) {
            return None;
        }
        added.push(rule);
        if let Some(n) = known {
            *n += 1;
        }
        Some(Learned::Added)
    }

    /// While it is held, no other thread adds flows.
    pub(crate) fn changing(&self) -> parking_lot::MutexGuard<'_, ()> {
        self.learned.changing.lock()
    }

    /// Whether control has flows to make.
    pub fn has_learned(&self) -> bool {
        !self.learned.waiting.lock().is_empty() || !self.learned.added.lock().is_empty()
    }
}

/// What the `learn` actions of a list say of families.
fn learns(actions: &Actions, f: &mut impl FnMut(Family, bool, bool)) {
    for a in actions {
        if let Action::Learn(l) = a
            && (l.limit != 0 || l.flags.delete_learned)
        {
            f((l.cookie, l.table), l.limit != 0, l.flags.delete_learned);
        }
        if let Some(nested) = a.nested() {
            learns(nested, f);
        }
    }
}

impl Ofproto {
    /// Makes the flows that packets have taught; they are visible when it returns.
    pub fn make_learned(&mut self, host: &mut dyn Host) {
        if !self.tables.has_learned() || self.committing.is_some() {
            return;
        }
        let added = std::mem::take(&mut *self.tables.learned.added.lock());
        for r in added.into_iter().filter(|r| r.removed_at().is_none()) {
            let step = [Step::Added(r)];
            self.note_events(&step);
            self.settle_rules(&step, Nanos::ZERO);
        }
        let jobs = std::mem::take(&mut *self.tables.learned.waiting.lock());
        for (job, at) in jobs {
            if let Err(e) = self.make(&job, at) {
                log::debug!(target: "ofproto_dpif_xlate", "{}: LEARN action execution failed ({e})", self.name());
            }
        }
        self.commit(host);
    }

    fn make(&mut self, job: &LearnJob, now: Nanos) -> Result<(), OfError> {
        match job.find(&self.tables, self.pending_version()) {
            Some(r) if job.is(&r) => r.touch(now),
            None if job.limit != 0 && self.tables.learned.count(job.family()) >= job.limit as usize => {}
            _ => return self.flow_mod(now, &job.flow),
        }
        Ok(())
    }

    /// Takes notice of flows that came and went: counts of limited families. Flows go with the last of
    /// those that taught them; the steps that took them out.
    pub(crate) fn follow_learners(&mut self, steps: &[Step]) -> Vec<Step> {
        let mut orphans = Vec::new();
        for s in steps {
            match s {
                Step::Added(r) | Step::Modified(r) if r.removed_at().is_none() => self.learner(r, true, &mut orphans),
                Step::Removed(r, _) => self.learner(r, false, &mut orphans),
                _ => {}
            }
        }
        self.count_families();
        orphans.retain(|f| !self.teachers.contains_key(f));
        let mut more = Vec::new();
        for (cookie, table) in orphans {
            let all = Criteria {
                table,
                match_: &fv_flow::Match::default(),
                cookie,
                cookie_mask: u64::MAX,
                out_port: fv_core::OfPort::NONE,
                out_group: GROUP_ANY,
                strict: None,
            };
            for r in self.select(&all, self.pending_version()).unwrap_or_default() {
                self.remove_step(r, Some(FlowRemovedReason::Delete), &mut more);
            }
        }
        more
    }

    fn learner(&mut self, r: &RuleRef, added: bool, orphans: &mut Vec<Family>) {
        {
            let mut limited = self.tables.learned.limited.lock();
            if let Some(n) = limited.get_mut(&(r.cookie, r.table)).and_then(|l| l.flows.as_mut()) {
                *n = if added { *n + 1 } else { n.saturating_sub(1) };
            }
        }
        let mut found = Vec::new();
        learns(&r.actions, &mut |f, limited, deletes| found.push((f, limited, deletes)));
        for (f, limited, deletes) in found {
            if limited {
                self.limited_learner(f, added);
            }
            if deletes {
                let n = self.teachers.entry(f).or_default();
                *n = if added { *n + 1 } else { n.saturating_sub(1) };
                if *n == 0 {
                    self.teachers.remove(&f);
                    orphans.push(f);
                }
            }
        }
    }

    fn limited_learner(&mut self, f: Family, added: bool) {
        let mut limited = self.tables.learned.limited.lock();
        if added {
            limited.entry(f).or_default().learners += 1;
        } else if let Some(l) = limited.get_mut(&f) {
            l.learners = l.learners.saturating_sub(1);
            if l.learners == 0 {
                limited.remove(&f);
            }
        }
    }

    /// Counts the flows of families that were not limited before. They are few, a count costs a walk.
    fn count_families(&mut self) {
        let v = self.pending_version();
        for (f, l) in self.tables.learned.limited.lock().iter_mut().filter(|(_, l)| l.flows.is_none()) {
            let t = self.tables.table(f.1);
            l.flows = Some(t.map_or(0, |t| t.cls.rules(v).iter().filter(|r| r.cookie == f.0).count()));
        }
    }
}
