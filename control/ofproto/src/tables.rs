//! The flow tables of one bridge, read by translation at a version and written by control alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use fv_classifier::{Classifier, ClsRule, DEFAULT_PREFIXES, MiniMatch, PrefixField, Version};
use fv_core::{Nanos, TableId};
use fv_flow::{FlowKey, FlowMask, Match, Subfield};
use fv_openflow::Actions;
use fv_openflow::action::{Action, Controller, PacketInReason};
use fv_openflow::msg::table::{TableDesc, TableMiss, TableReason, Vacancy};
use parking_lot::Mutex;

use crate::learn::LearnQueue;
use crate::rule::{Rule, RuleRef};
use crate::snapshot::Readers;

/// Tables that controllers can name: 0 to 253.
pub const N_VISIBLE_TABLES: usize = 254;
/// The switch's own table.
pub const TABLE_INTERNAL: u8 = 254;
pub const N_TABLES: usize = 255;

/// One table.
pub struct Table {
    pub cls: Classifier<Rule>,
    miss: AtomicU8,
    lookups: AtomicU64,
    matched: AtomicU64,
    /// Most flows that may be added; `usize::MAX` is no limit.
    max_flows: AtomicUsize,
    /// Who wants a full table to make room by evicting: configuration, controllers.
    eviction: AtomicU8,
    /// Flows that agree in these are a group; the largest group loses a flow.
    eviction_groups: Mutex<Vec<Subfield>>,
    name: Mutex<String>,
    vacancy: Mutex<VacancyWatch>,
}

/// Bits of `Table::eviction`.
const BY_CONFIGURATION: u8 = 1;
const BY_CONTROLLER: u8 = 2;

/// When a table tells that it becomes full, and that there is room again.
#[derive(Clone, Copy, Default)]
struct VacancyWatch {
    /// In percent.
    down: u8,
    up: u8,
    /// What is told next; None is nothing ever.
    next: Option<TableReason>,
}

impl Table {
    fn new() -> Table {
        Table {
            cls: Classifier::new(),
            miss: AtomicU8::new(TableMiss::Default as u8),
            lookups: AtomicU64::new(0),
            matched: AtomicU64::new(0),
            max_flows: AtomicUsize::new(usize::MAX),
            eviction: AtomicU8::new(0),
            eviction_groups: Mutex::default(),
            name: Mutex::default(),
            vacancy: Mutex::default(),
        }
    }

    pub fn miss(&self) -> TableMiss {
        let v = self.miss.load(Ordering::Relaxed);
        [TableMiss::Default, TableMiss::Controller, TableMiss::Continue, TableMiss::Drop]
            .into_iter()
            .find(|m| *m as u8 == v)
            .unwrap_or_default()
    }

    pub fn set_miss(&self, m: TableMiss) {
        self.miss.store(m as u8, Ordering::Relaxed);
    }

    /// Counts packets that were looked up here.
    pub fn credit(&self, matched: u64, missed: u64) {
        self.lookups.fetch_add(matched + missed, Ordering::Relaxed);
        self.matched.fetch_add(matched, Ordering::Relaxed);
    }

    /// (lookups, matched), in packets.
    pub fn counters(&self) -> (u64, u64) {
        (self.lookups.load(Ordering::Relaxed), self.matched.load(Ordering::Relaxed))
    }

    pub fn max_flows(&self) -> usize {
        self.max_flows.load(Ordering::Relaxed)
    }

    pub fn set_max_flows(&self, n: Option<usize>) {
        self.max_flows.store(n.unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    /// Whether a full table makes room by evicting a flow that has a timeout.
    pub fn evicts(&self) -> bool {
        self.eviction.load(Ordering::Relaxed) != 0
    }

    /// As a controller wants it; what configuration wants stays.
    pub fn set_evicts(&self, on: bool) {
        self.set_eviction(BY_CONTROLLER, on);
    }

    fn set_eviction(&self, who: u8, on: bool) {
        let old = self.eviction.load(Ordering::Relaxed);
        self.eviction.store(if on { old | who } else { old & !who }, Ordering::Relaxed);
    }

    /// What makes flows a group for eviction.
    pub(crate) fn eviction_groups(&self) -> Vec<Subfield> {
        self.eviction_groups.lock().clone()
    }

    /// Percent of the flows' limit that are not used.
    fn vacancy(&self) -> u8 {
        let (max, n) = (self.max_flows().min(u32::MAX as usize), self.cls.len());
        (max.saturating_sub(n) as u64 * 100).checked_div(max as u64).unwrap_or(0) as u8
    }

    /// Thresholds of zero switch the events off.
    pub(crate) fn set_vacancy(&self, v: Vacancy) {
        let mut w = self.vacancy.lock();
        let on = v.up != 0;
        let next = if self.vacancy() < v.up { TableReason::VacancyUp } else { TableReason::VacancyDown };
        *w = VacancyWatch { down: v.down, up: v.up, next: on.then(|| w.next.unwrap_or(next)) };
    }

    /// What there is to tell since the last time.
    pub(crate) fn vacancy_event(&self) -> Option<TableReason> {
        let mut w = self.vacancy.lock();
        let (next, vacancy) = (w.next?, self.vacancy());
        let (comes, then) = match next {
            TableReason::VacancyDown => (vacancy < w.down, TableReason::VacancyUp),
            TableReason::VacancyUp => (vacancy > w.up, TableReason::VacancyDown),
        };
        if comes {
            w.next = Some(then);
        }
        comes.then_some(next)
    }

    pub(crate) fn desc(&self, id: u8) -> TableDesc {
        let w = *self.vacancy.lock();
        TableDesc {
            table: TableId(id),
            eviction: self.eviction.load(Ordering::Relaxed) & BY_CONTROLLER != 0,
            // Other, importance, lifetime.
            eviction_flags: 0x7,
            vacancy: w.next.map(|_| Vacancy { down: w.down, up: w.up, current: self.vacancy() }),
        }
    }

    /// Configured name; empty if there is none.
    pub fn name(&self) -> String {
        self.name.lock().clone()
    }

    /// Takes over configuration; flows above a lower limit stay.
    pub fn configure(&self, s: &TableSpec) {
        self.set_name(&s.name);
        self.set_max_flows(s.max_flows);
        self.set_eviction(BY_CONFIGURATION, s.evicts);
        self.eviction_groups.lock().clone_from(&s.groups);
        self.cls.set_prefixes(&s.prefixes);
    }

    pub fn set_name(&self, s: &str) {
        *self.name.lock() = s.to_owned();
    }
}

/// What configuration says of one table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableSpec {
    pub name: String,
    /// None is no limit.
    pub max_flows: Option<usize>,
    /// A full table evicts instead of refusing.
    pub evicts: bool,
    /// See [`Table`]; none: all flows are one group.
    pub groups: Vec<Subfield>,
    /// Fields with prefix tries, at most [`fv_classifier::MAX_PREFIXES`].
    pub prefixes: Vec<PrefixField>,
}

impl Default for TableSpec {
    fn default() -> Self {
        TableSpec {
            name: String::new(),
            max_flows: None,
            evicts: false,
            groups: Vec::new(),
            prefixes: DEFAULT_PREFIXES.to_vec(),
        }
    }
}

/// All tables and their current version. Lookups take the version once a translation.
pub struct Tables {
    tables: Box<[Table]>,
    version: AtomicU64,
    internal: Internal,
    /// Rules whose timeouts were lowered since the timers last looked.
    reduced: Mutex<Vec<RuleRef>>,
    pub(crate) learned: LearnQueue,
    pub(crate) readers: Readers,
}

/// More lowered timeouts than this are not noted one by one; the timers find them when they are due.
const MAX_REDUCED: usize = 65_536;

/// Rules that translation ends at when no flow decides; they are in table 254.
struct Internal {
    miss: RuleRef,
    no_packet_in: RuleRef,
    drop_frags: RuleRef,
}

impl Tables {
    pub fn new(now: Nanos) -> Tables {
        let tables: Box<[Table]> = (0..N_TABLES).map(|_| Table::new()).collect();
        let cls = &tables[usize::from(TABLE_INTERNAL)].cls;
        let add = |m: &Match, priority, actions: Vec<Action>| {
            let rule = Rule::new(TABLE_INTERNAL, 0, Arc::new(Actions(actions)), now);
            let rule = Arc::new(ClsRule::new(MiniMatch::new(m), priority, rule));
            cls.insert(rule.clone(), Version::MIN);
            rule
        };
        let reg0 = |v: u32| {
            let mut m = Match::default();
            (m.key.pipe.regs[0], m.mask.0.pipe.regs[0]) = (v, u32::MAX);
            m
        };
        let controller =
            Controller { max_len: u16::MAX, reason: PacketInReason::ImplicitMiss, ..Controller::default() };
        let internal = Internal {
            miss: add(&reg0(1), 0, vec![Action::Controller(Box::new(controller))]),
            no_packet_in: add(&reg0(2), 0, vec![]),
            drop_frags: add(&reg0(3), 0, vec![]),
        };
        // Recirculated packets whose state is gone end here.
        let mut not_recirculated = Match::default();
        not_recirculated.mask.0.dp.base.recirc_id = u32::MAX;
        add(&not_recirculated, 2, vec![]);
        Tables {
            tables,
            version: AtomicU64::new(Version::MIN.0),
            internal,
            reduced: Mutex::default(),
            learned: LearnQueue::default(),
            readers: Readers::default(),
        }
    }

    /// What lookups should see now. Translations take a [`Tables::snapshot`] instead.
    pub fn version(&self) -> Version {
        Version(self.version.load(Ordering::Acquire))
    }

    /// Makes everything up to `v` visible at once.
    pub fn publish(&self, v: Version) {
        self.version.store(v.0, Ordering::Release);
    }

    /// The table, if there is one of that number.
    pub fn table(&self, id: u8) -> Option<&Table> {
        self.tables.get(usize::from(id))
    }

    /// (number, table) of those that controllers can name.
    pub fn visible(&self) -> impl Iterator<Item = (u8, &Table)> {
        self.tables.iter().take(N_VISIBLE_TABLES).enumerate().map(|(i, t)| (i as u8, t))
    }

    pub fn all(&self) -> impl Iterator<Item = (u8, &Table)> {
        self.tables.iter().enumerate().map(|(i, t)| (i as u8, t))
    }

    /// The flow of `table` that decides about `key`; adds the bits that decided to `wc`. Counters are
    /// the caller's: [`Table::credit`].
    pub fn lookup(&self, table: u8, v: Version, key: &FlowKey, wc: Option<&mut FlowMask>) -> Option<RuleRef> {
        self.table(table)?.cls.lookup(v, key, wc)
    }

    /// Sends to controllers that want misses.
    pub fn miss_rule(&self) -> &RuleRef {
        &self.internal.miss
    }

    /// Drops: a miss that no controller wants.
    pub fn no_packet_in_rule(&self) -> &RuleRef {
        &self.internal.no_packet_in
    }

    /// Drops: a fragment under `frags=drop`.
    pub fn drop_frags_rule(&self) -> &RuleRef {
        &self.internal.drop_frags
    }

    /// Lowers a rule's timeouts to at most these (0 leaves one alone), as `fin_timeout` does. From any
    /// thread.
    pub fn reduce_timeouts(&self, rule: &RuleRef, idle_s: u16, hard_s: u16) {
        rule.reduce_timeouts(idle_s, hard_s);
        let mut r = self.reduced.lock();
        if r.len() < MAX_REDUCED {
            r.push(rule.clone());
        }
    }

    pub(crate) fn take_reduced(&self) -> Vec<RuleRef> {
        std::mem::take(&mut *self.reduced.lock())
    }

    /// Flows that controllers can see.
    pub fn flow_count(&self) -> usize {
        self.visible().map(|(_, t)| t.cls.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_publishes_all_at_once() {
        let t = Tables::new(Nanos::ZERO);
        let v = t.version().next();
        for table in [0u8, 1] {
            let r = Rule::new(table, 7, Arc::default(), Nanos::ZERO);
            t.table(table).unwrap().cls.insert(Arc::new(ClsRule::new(MiniMatch::new(&Match::default()), 1, r)), v);
        }
        let k = FlowKey::default();
        assert!(t.lookup(0, t.version(), &k, None).is_none());
        t.publish(v);
        assert!(t.lookup(0, t.version(), &k, None).is_some() && t.lookup(1, t.version(), &k, None).is_some());
        assert_eq!((t.flow_count(), t.table(TABLE_INTERNAL).unwrap().cls.len()), (2, 4));
        assert!(t.table(255).is_none());
    }
}
