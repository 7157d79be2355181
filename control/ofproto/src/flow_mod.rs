//! Flow-mods: changes to the tables that become visible together or not at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use fv_classifier::{ClsRule, Conjunction, MiniMatch, Version};
use fv_core::{Nanos, OfPort};
use fv_flow::Match;
use fv_openflow::action::Action;
use fv_openflow::msg::flow::{FlowMod, FlowModCommand, FlowModFlags, FlowRemovedReason, GROUP_ANY, TABLE_ALL};
use fv_openflow::msg::group::GroupMod;
use fv_openflow::{Actions, OfError};

use crate::bridge::Ofproto;
use crate::group::Group;
use crate::rule::{MAX_OPENFLOW_PRIORITY, Rule, RuleRef};
use crate::tables::{N_TABLES, N_VISIBLE_TABLES, TABLE_INTERNAL};

/// Ports that can be named in actions end here.
pub(crate) const MAX_PORTS: u32 = 0xff00;

/// Which flows a request is about.
pub(crate) struct Criteria<'a> {
    pub table: u8,
    pub match_: &'a Match,
    pub cookie: u64,
    pub cookie_mask: u64,
    pub out_port: OfPort,
    pub out_group: u32,
    /// Only this very match and priority.
    pub strict: Option<u16>,
}

impl Criteria<'_> {
    fn admits(&self, r: &ClsRule<Rule>) -> bool {
        r.priority() <= MAX_OPENFLOW_PRIORITY
            && (r.cookie ^ self.cookie) & self.cookie_mask == 0
            && (self.out_port == OfPort::NONE || r.actions.outputs_to_port(self.out_port))
            && (self.out_group == GROUP_ANY || r.actions.outputs_to_group(self.out_group))
    }
}

/// One of several changes that take effect together.
#[derive(Clone, Copy)]
pub(crate) enum ChangeRef<'a> {
    Flow(&'a FlowMod),
    Group(&'a GroupMod),
}

/// One change, as it was made.
pub(crate) enum Step {
    Added(RuleRef),
    /// Put in the place of what was removed before it.
    Modified(RuleRef),
    /// Without reason: replaced by what was added next.
    Removed(RuleRef, Option<FlowRemovedReason>),
    /// A group as it was before.
    Group(u32, Option<Arc<Group>>),
}

impl Ofproto {
    /// Flows of `c` as `version` sees them.
    pub(crate) fn select(&self, c: &Criteria<'_>, version: Version) -> Result<Vec<RuleRef>, OfError> {
        let mut found = Vec::new();
        for id in table_range(c.table)? {
            let Some(t) = self.tables.table(id) else { continue };
            match c.strict {
                Some(p) => found.extend(t.cls.find_exactly(c.match_, i32::from(p), version).filter(|r| c.admits(r))),
                None => {
                    self.looked_at.set(self.looked_at.get().saturating_add(t.cls.len()));
                    let rules = t.cls.rules_within(c.match_, version);
                    found.extend(rules.into_iter().filter(|r| c.admits(r)));
                }
            }
        }
        Ok(found)
    }

    /// Carries out a flow-mod. It is visible to lookups after the next [`Ofproto::commit`].
    pub fn flow_mod(&mut self, now: Nanos, fm: &FlowMod) -> Result<(), OfError> {
        self.complete_commit();
        let tables = self.tables.clone();
        let _changing = tables.changing();
        let mut steps = Vec::new();
        let r = self.flow_mod_start(now, fm, &mut steps);
        match r {
            Ok(()) => self.finish(now, steps),
            Err(_) => self.revert(steps),
        }
        r
    }

    /// Several that take effect together: on an error, its index, and nothing has changed.
    pub fn flow_mods(&mut self, now: Nanos, mods: &[FlowMod]) -> Result<(), (usize, OfError)> {
        self.changes(now, mods.iter().map(ChangeRef::Flow))
    }

    /// As [`Ofproto::flow_mods`], with groups.
    pub(crate) fn changes<'a>(
        &mut self,
        now: Nanos,
        changes: impl Iterator<Item = ChangeRef<'a>>,
    ) -> Result<(), (usize, OfError)> {
        self.complete_commit();
        let tables = self.tables.clone();
        let _changing = tables.changing();
        let mut steps = Vec::new();
        for (i, c) in changes.enumerate() {
            if let Err(e) = self.change_start(now, c, &mut steps) {
                self.revert(steps);
                return Err((i, e));
            }
        }
        self.finish(now, steps);
        Ok(())
    }

    pub(crate) fn change_start(&mut self, now: Nanos, c: ChangeRef<'_>, steps: &mut Vec<Step>) -> Result<(), OfError> {
        match c {
            ChangeRef::Flow(fm) => self.flow_mod_start(now, fm, steps),
            ChangeRef::Group(gm) => self.group_mod_start(now, gm, steps),
        }
    }

    fn flow_mod_start(&mut self, now: Nanos, fm: &FlowMod, steps: &mut Vec<Step>) -> Result<(), OfError> {
        if fm.flags.has(FlowModFlags::EMERG) {
            // The emergency flow cache does not exist, which comes closest to its being full.
            return Err(OfError::FmfcTableFull);
        }
        if !fm.command.is_delete() {
            self.check_actions(&fm.actions, fm.table)?;
        }
        match fm.command {
            FlowModCommand::Add => self.add_start(now, fm, steps),
            FlowModCommand::Modify | FlowModCommand::ModifyStrict => self.modify_start(now, fm, steps),
            FlowModCommand::Delete | FlowModCommand::DeleteStrict => self.delete_start(fm, steps),
        }
    }

    /// What can be said of a flow-mod before its turn in a bundle has come.
    pub(crate) fn check_flow_mod(&self, fm: &FlowMod) -> Result<(), OfError> {
        let internal = fm.command == FlowModCommand::Add && fm.table == TABLE_INTERNAL;
        if internal && !fm.flags.has(FlowModFlags::NO_READONLY) { Err(OfError::BrcEperm) } else { Ok(()) }
    }

    fn add_start(&mut self, now: Nanos, fm: &FlowMod, steps: &mut Vec<Step>) -> Result<(), OfError> {
        let v = self.pending_version();
        let id = if fm.table == TABLE_ALL { 0 } else { fm.table };
        let table = self.tables.table(id).ok_or(OfError::BrcBadTableId)?;
        self.check_flow_mod(fm)?;
        let priority = i32::from(fm.priority);
        let old = table.cls.find_exactly(&fm.match_, priority, v);
        let mut evicted = None;
        if old.is_none() {
            if fm.flags.has(FlowModFlags::CHECK_OVERLAP) && table.cls.overlaps(&fm.match_, priority, v) {
                return Err(OfError::FmfcOverlap);
            }
            if table.cls.len() >= table.max_flows() {
                evicted = Some(self.choose_eviction(id, v).ok_or(OfError::FmfcTableFull)?);
            }
        }
        let mut rule = rule_of(fm, id, now);
        if let Some(old) = &old
            && !fm.flags.has(FlowModFlags::RESET_COUNTS)
        {
            rule.stats = old.stats.clone();
        }
        let parts = conjunctions(&fm.actions)?;
        let rule = Arc::new(ClsRule::new(MiniMatch::new(&fm.match_), priority, rule).with_conjunctions(parts));
        if let Some(old) = old {
            self.remove_step(old, None, steps);
        }
        if let Some(e) = evicted {
            self.remove_step(e, Some(FlowRemovedReason::Eviction), steps);
        }
        self.add_step(rule, steps);
        Ok(())
    }

    fn modify_start(&mut self, now: Nanos, fm: &FlowMod, steps: &mut Vec<Step>) -> Result<(), OfError> {
        let v = self.pending_version();
        let rules = self.select(
            &Criteria {
                table: fm.table,
                match_: &fm.match_,
                cookie: fm.cookie,
                cookie_mask: fm.cookie_mask,
                out_port: OfPort::NONE,
                out_group: GROUP_ANY,
                strict: fm.command.is_strict().then_some(fm.priority),
            },
            v,
        )?;
        if rules.is_empty() {
            // OpenFlow 1.0 and 1.1: what is not there is added. Newer versions say so by a cookie of all ones.
            let adds = fm.cookie_mask == 0 && fm.new_cookie != u64::MAX;
            return if adds { self.add_start(now, fm, steps) } else { Ok(()) };
        }
        check_writable(&rules, fm.flags)?;
        let parts = conjunctions(&fm.actions)?;
        let actions = Arc::new(fm.actions.clone());
        let reset = fm.flags.has(FlowModFlags::RESET_COUNTS);
        for old in rules {
            let new_cookie = fm.modify_cookie && fm.new_cookie != u64::MAX;
            let cookie = if new_cookie { fm.new_cookie } else { old.cookie };
            let rule = old.modified_by(actions.clone(), cookie, reset, now);
            let rule = ClsRule::new(old.matches().clone(), old.priority(), rule).with_conjunctions(parts.clone());
            let rule = Arc::new(rule);
            self.remove_step(old, None, steps);
            self.put_step(rule, Step::Modified, steps);
        }
        Ok(())
    }

    fn delete_start(&mut self, fm: &FlowMod, steps: &mut Vec<Step>) -> Result<(), OfError> {
        let rules = self.select(
            &Criteria {
                table: fm.table,
                match_: &fm.match_,
                cookie: fm.cookie,
                cookie_mask: fm.cookie_mask,
                out_port: fm.out_port,
                out_group: fm.out_group,
                strict: fm.command.is_strict().then_some(fm.priority),
            },
            self.pending_version(),
        )?;
        check_writable(&rules, fm.flags)?;
        for r in rules {
            self.remove_step(r, Some(FlowRemovedReason::Delete), steps);
        }
        Ok(())
    }

    /// The flow that a full table loses: of those with a timeout that are in the largest group, the
    /// least important, and of these the one that goes soonest.
    fn choose_eviction(&self, table: u8, v: Version) -> Option<RuleRef> {
        let t = self.tables.table(table).filter(|t| t.evicts())?;
        let rules = t.cls.rules(v).into_iter().filter(|r| r.priority() <= MAX_OPENFLOW_PRIORITY);
        let can_go = rules.filter_map(|r| Some(((r.importance, r.expires()?), r)));
        let first =
            |all: &mut dyn Iterator<Item = ((u16, Nanos), RuleRef)>| all.min_by_key(|(k, _)| *k).map(|(_, r)| r);
        let fields = t.eviction_groups();
        if fields.is_empty() {
            return first(&mut { can_go });
        }
        let mut groups: BTreeMap<Vec<u128>, Vec<((u16, Nanos), RuleRef)>> = BTreeMap::new();
        for (k, r) in can_go {
            let key = r.matches().expand().key;
            groups.entry(fields.iter().map(|f| f.read(&key)).collect()).or_default().push((k, r));
        }
        let largest = groups.into_values().max_by_key(Vec::len)?;
        first(&mut largest.into_iter())
    }

    pub(crate) fn add_step(&mut self, rule: RuleRef, steps: &mut Vec<Step>) {
        self.put_step(rule, Step::Added, steps);
    }

    fn put_step(&mut self, rule: RuleRef, step: fn(RuleRef) -> Step, steps: &mut Vec<Step>) {
        if let Some(t) = self.tables.table(rule.table) {
            if self.touched.insert(rule.table) {
                t.cls.defer();
            }
            t.cls.insert(rule.clone(), self.pending_version());
            self.note_changed(&rule);
            steps.push(step(rule));
        }
    }

    pub(crate) fn remove_step(&mut self, rule: RuleRef, why: Option<FlowRemovedReason>, steps: &mut Vec<Step>) {
        if let Some(t) = self.tables.table(rule.table) {
            if self.touched.insert(rule.table) {
                t.cls.defer();
            }
            t.cls.remove(&rule, self.pending_version());
            self.note_changed(&rule);
            steps.push(Step::Removed(rule, why));
        }
    }

    pub(crate) fn revert(&mut self, steps: Vec<Step>) {
        let v = self.pending_version();
        for s in steps.into_iter().rev() {
            match s {
                // Removed at the version at which it was added, it was never there.
                Step::Added(r) | Step::Modified(r) => {
                    if let Some(t) = self.tables.table(r.table) {
                        t.cls.remove(&r, v);
                    }
                }
                Step::Removed(r, _) => {
                    if let Some(t) = self.tables.table(r.table) {
                        t.cls.restore(&r);
                    }
                }
                Step::Group(id, old) => {
                    self.put_group(id, old);
                }
            }
        }
    }

    pub(crate) fn finish(&mut self, now: Nanos, steps: Vec<Step>) {
        self.settle_rules(&steps, now);
        let mut more = self.follow_learners(&steps);
        let mut all = steps;
        // What goes with the rules that taught it may itself have taught.
        while !more.is_empty() {
            self.settle_rules(&more, now);
            let next = self.follow_learners(&more);
            all.extend(std::mem::replace(&mut more, next));
        }
        self.note_events(&all);
    }

    pub(crate) fn settle_rules(&mut self, steps: &[Step], now: Nanos) {
        for s in steps {
            match s {
                Step::Added(r) | Step::Modified(r) if r.removed_at().is_none() => {
                    self.users.add(r);
                    self.arm(r);
                }
                Step::Group(..) => {}
                Step::Added(_) | Step::Modified(_) => {}
                Step::Removed(r, why) => {
                    self.disarm(r);
                    self.users.remove(r);
                    if let Some(why) = *why
                        && r.flags.has(FlowModFlags::SEND_FLOW_REM)
                        && r.priority() <= MAX_OPENFLOW_PRIORITY
                    {
                        self.removed.push((r.clone(), why, now));
                    }
                }
            }
        }
    }

    /// Whether this bridge can carry out the actions, in whatever table.
    pub fn may_do(&self, actions: &Actions) -> Result<(), OfError> {
        self.check_actions(actions, TABLE_ALL)
    }

    /// Whether this bridge can carry out the actions.
    pub(crate) fn check_actions(&self, actions: &Actions, table: u8) -> Result<(), OfError> {
        for a in actions {
            match a {
                Action::Output { port, .. } | Action::OutputTrunc { port, .. } => check_output(*port)?,
                Action::Enqueue { port, .. } => {
                    let named = matches!(*port, OfPort::IN_PORT | OfPort::LOCAL);
                    if port.0 >= MAX_PORTS && !named {
                        return Err(OfError::BacBadOutPort);
                    }
                }
                Action::Group(id) if !self.groups.contains_key(id) => {
                    return Err(OfError::BacBadOutGroup);
                }
                Action::Meter(id) if !self.meters.contains_key(id) => {
                    return Err(OfError::MmfcInvalidMeter);
                }
                Action::GotoTable(t) => {
                    let from = usize::from(table);
                    if (from < N_TABLES && usize::from(*t) <= from) || usize::from(*t) >= N_TABLES {
                        return Err(OfError::BicBadTableId);
                    }
                }
                // Translation does not carry these out yet: refused, since a rule that silently does
                // less than it says is worse than none.
                Action::Ct(_) | Action::Nat(_) | Action::Encap(_) | Action::Decap(_) | Action::DecNshTtl => {
                    return Err(OfError::BacBadType);
                }
                _ => {}
            }
            if let Some(n) = a.nested() {
                self.check_actions(n, table)?;
            }
        }
        Ok(())
    }
}

/// The rule that adding the flow makes.
pub(crate) fn rule_of(fm: &FlowMod, table: u8, now: Nanos) -> Rule {
    let mut rule = Rule::new(table, fm.new_cookie, Arc::new(fm.actions.clone()), now)
        .with_timeouts(fm.idle_timeout_s, fm.hard_timeout_s)
        .with_match(&fm.match_);
    rule.flags = FlowModFlags(fm.flags.0 & STORED_FLAGS);
    rule.importance = fm.importance;
    rule
}

const STORED_FLAGS: u32 = FlowModFlags::SEND_FLOW_REM.0
    | FlowModFlags::CHECK_OVERLAP.0
    | FlowModFlags::RESET_COUNTS.0
    | FlowModFlags::NO_PKT_COUNTS.0
    | FlowModFlags::NO_BYT_COUNTS.0;

fn table_range(table: u8) -> Result<std::ops::Range<u8>, OfError> {
    match table {
        TABLE_ALL => Ok(0..N_VISIBLE_TABLES as u8),
        t if usize::from(t) < N_TABLES => Ok(t..t + 1),
        _ => Err(OfError::BrcBadTableId),
    }
}

fn check_writable(rules: &[RuleRef], flags: FlowModFlags) -> Result<(), OfError> {
    let internal = rules.iter().any(|r| r.table == TABLE_INTERNAL);
    if internal && !flags.has(FlowModFlags::NO_READONLY) { Err(OfError::BrcEperm) } else { Ok(()) }
}

/// What the actions make the flow a part of. Besides `conjunction` they may hold only notes.
fn conjunctions(actions: &Actions) -> Result<Vec<Conjunction>, OfError> {
    let mut parts = Vec::new();
    let mut others = false;
    for a in actions {
        match *a {
            Action::Conjunction { id, clause, n_clauses } => {
                if !(2..=64).contains(&n_clauses) || clause >= n_clauses {
                    return Err(OfError::NxBacBadConjunction);
                }
                parts.push(Conjunction { id, clause, n_clauses });
            }
            Action::Note(_) => {}
            _ => others = true,
        }
    }
    if others && !parts.is_empty() { Err(OfError::NxBacBadConjunction) } else { Ok(parts) }
}

fn check_output(port: OfPort) -> Result<(), OfError> {
    match port {
        OfPort::IN_PORT
        | OfPort::TABLE
        | OfPort::NORMAL
        | OfPort::FLOOD
        | OfPort::ALL
        | OfPort::CONTROLLER
        | OfPort::LOCAL => Ok(()),
        p if p.0 < MAX_PORTS => Ok(()),
        _ => Err(OfError::BacBadOutPort),
    }
}
