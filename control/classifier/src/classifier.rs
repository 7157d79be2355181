//! The classifier: subtables by priority, one writer, many readers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arc_swap::ArcSwap;
use fv_flow::{FlowKey, FlowMask, Match};
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::conjunction::{Soft, Softs, resolve};
use crate::mini::{MaskOf, MiniMask, MiniMatch};
use crate::prefix::{Asked, DEFAULT_PREFIXES, MAX_PREFIXES, PrefixField, Tries};
use crate::rule::{ClsRule, Version};
use crate::subtable::Subtable;

/// A subtable where lookups find it.
struct Ranked<R> {
    max_priority: i32,
    subtable: Arc<Subtable<R>>,
}

impl<R> Clone for Ranked<R> {
    fn clone(&self) -> Self {
        Ranked { max_priority: self.max_priority, subtable: self.subtable.clone() }
    }
}

/// What only the writer knows of a subtable.
struct Known<R> {
    subtable: Arc<Subtable<R>>,
    /// Rules by priority.
    priorities: BTreeMap<i32, u32>,
}

struct Writer<R> {
    by_mask: HashMap<MiniMask, Known<R>, foldhash::fast::FixedState>,
    /// The subtables in the order that is published next. Among equal priorities the one that is
    /// met first wins, so the order among these is part of the behaviour: the reference's, who
    /// appends new subtables, fills the hole of a removed one with the last, and sorts stably.
    order: Vec<Ranked<R>>,
    /// Removed rules that lookups at older versions may still want.
    removed: VecDeque<Arc<ClsRule<R>>>,
    n_rules: usize,
    /// The published order is behind.
    dirty: bool,
    deferred: bool,
}

impl<R> Writer<R> {
    /// The highest priority of a subtable is another now; None if it has no rules left.
    fn rank(&mut self, subtable: &Arc<Subtable<R>>, max: Option<i32>) {
        let at = self.order.iter().position(|r| Arc::ptr_eq(&r.subtable, subtable));
        match (at, max) {
            (Some(i), Some(p)) => self.order[i].max_priority = p,
            (Some(i), None) => drop(self.order.swap_remove(i)),
            (None, Some(p)) => self.order.push(Ranked { max_priority: p, subtable: subtable.clone() }),
            (None, None) => {}
        }
    }
}

/// See the crate's description. Any method may be called from any thread; those that change
/// something take turns.
pub struct Classifier<R> {
    /// By descending priority.
    subtables: ArcSwap<Vec<Ranked<R>>>,
    tries: ArcSwap<Tries>,
    writer: Mutex<Writer<R>>,
}

impl<R> Default for Classifier<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R> Classifier<R> {
    pub fn new() -> Classifier<R> {
        Classifier {
            subtables: ArcSwap::from_pointee(Vec::new()),
            tries: ArcSwap::from_pointee(Tries::new(&DEFAULT_PREFIXES)),
            writer: Mutex::new(Writer {
                by_mask: HashMap::default(),
                order: Vec::new(),
                removed: VecDeque::new(),
                n_rules: 0,
                dirty: false,
                deferred: false,
            }),
        }
    }

    /// Makes `rule` visible from `version` on. There may be another rule of the same match and
    /// priority if no version sees both.
    pub fn insert(&self, rule: Arc<ClsRule<R>>, version: Version) {
        rule.set_added(version);
        self.put(&mut self.writer.lock(), rule);
    }

    /// As [`Self::insert`], unless `version` or the one after it sees a rule of the same match and
    /// priority.
    pub fn insert_new(&self, rule: Arc<ClsRule<R>>, version: Version) -> bool {
        rule.set_added(version);
        let mut w = self.writer.lock();
        let is_there = w.by_mask.get(&MaskOf(rule.matches())).is_some_and(|k| {
            let there = |v| k.subtable.find_exactly(rule.matches(), rule.priority(), v).is_some();
            there(version) || there(version.next())
        });
        if !is_there {
            self.put(&mut w, rule);
        }
        !is_there
    }

    fn put(&self, w: &mut Writer<R>, rule: Arc<ClsRule<R>>) {
        if !w.by_mask.contains_key(&MaskOf(rule.matches())) {
            let mask = MiniMask::of(rule.matches());
            let subtable = Arc::new(Subtable::new(mask.clone()));
            w.by_mask.insert(mask, Known { subtable, priorities: BTreeMap::new() });
        }
        let Some(known) = w.by_mask.get_mut(&MaskOf(rule.matches())) else { return };
        let old_max = known.priorities.last_key_value().map(|(p, _)| *p);
        *known.priorities.entry(rule.priority()).or_default() += 1;
        let rank_changed = old_max.is_none_or(|m| m < rule.priority());
        let subtable = known.subtable.clone();
        if rank_changed {
            w.rank(&subtable, Some(rule.priority()));
        }
        self.tries.load().insert(rule.matches(), &subtable.lengths);
        subtable.insert(rule);
        w.n_rules += 1;
        w.dirty |= rank_changed;
        self.publish_order(w);
    }

    /// Makes `rule` invisible from `version` on. Its memory is kept until [`Self::purge`].
    pub fn remove(&self, rule: &Arc<ClsRule<R>>, version: Version) {
        let mut w = self.writer.lock();
        rule.set_removed(version);
        w.removed.push_back(rule.clone());
        w.n_rules = w.n_rules.saturating_sub(1);
    }

    /// Takes back a `remove` that was not purged, or makes an inserted rule go for good: what a
    /// transaction that fails does.
    pub fn restore(&self, rule: &Arc<ClsRule<R>>) {
        let mut w = self.writer.lock();
        if let Some(i) = w.removed.iter().rposition(|r| Arc::ptr_eq(r, rule)) {
            w.removed.remove(i);
            rule.set_removed(Version::NEVER);
            w.n_rules += 1;
        }
    }

    /// Drops at most `limit` of the rules that are invisible from `oldest` on, which no lookup at an
    /// earlier version may want any more. True if there are more.
    pub fn purge(&self, oldest: Version, limit: usize) -> bool {
        let mut w = self.writer.lock();
        let is_gone = |r: &Arc<ClsRule<R>>| r.removed_at().is_some_and(|v| v <= oldest);
        // In the order of removal, so of version.
        let n = w.removed.iter().take(limit).take_while(|r| is_gone(r)).count();
        let gone: Vec<_> = w.removed.drain(..n).collect();
        for r in &gone {
            self.purge_one(&mut w, r);
        }
        self.publish_order(&mut w);
        let more = w.removed.front().is_some_and(is_gone);
        drop(w);
        more
    }

    fn purge_one(&self, w: &mut Writer<R>, rule: &Arc<ClsRule<R>>) {
        let Some(known) = w.by_mask.get_mut(&MaskOf(rule.matches())) else { return };
        let old_max = known.priorities.last_key_value().map(|(p, _)| *p);
        if let Some(n) = known.priorities.get_mut(&rule.priority()) {
            *n -= 1;
            if *n == 0 {
                known.priorities.remove(&rule.priority());
            }
        }
        let new_max = known.priorities.last_key_value().map(|(p, _)| *p);
        let subtable = known.subtable.clone();
        if new_max.is_none() {
            w.by_mask.remove(&MaskOf(rule.matches()));
        }
        subtable.remove(rule);
        self.tries.load().remove(rule.matches(), &subtable.lengths);
        if new_max != old_max {
            w.rank(&subtable, new_max);
            w.dirty = true;
        }
    }

    /// Puts off the cost of a new or re-ranked subtable until [`Self::publish`]: until then rules
    /// inserted may not be found.
    pub fn defer(&self) {
        self.writer.lock().deferred = true;
    }

    pub fn publish(&self) {
        let mut w = self.writer.lock();
        w.deferred = false;
        self.publish_order(&mut w);
    }

    fn publish_order(&self, w: &mut Writer<R>) {
        if w.deferred || !w.dirty {
            return;
        }
        w.dirty = false;
        w.order.sort_by_key(|r| std::cmp::Reverse(r.max_priority));
        self.subtables.store(Arc::new(w.order.clone()));
    }

    /// The fields that have tries, at most [`MAX_PREFIXES`]. Lookups go on meanwhile with the old ones.
    pub fn set_prefixes(&self, fields: &[PrefixField]) {
        let w = self.writer.lock();
        let fields = &fields[..fields.len().min(MAX_PREFIXES)];
        if self.tries.load().fields().eq(fields.iter().copied()) {
            return;
        }
        let tries = Tries::new(fields);
        for k in w.by_mask.values() {
            k.subtable.for_each(|r| tries.insert(r.matches(), &k.subtable.lengths));
        }
        self.tries.store(Arc::new(tries));
    }

    /// Runs `f` while the writer holds all that it ever locks.
    #[cfg(test)]
    pub(crate) fn while_writing(&self, f: impl FnOnce()) {
        let _writer = self.writer.lock();
        let tries = self.tries.load();
        let _tries = tries.lock_all();
        f();
    }

    /// Rules that the newest version sees.
    pub fn len(&self) -> usize {
        self.writer.lock().n_rules
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The visible rule of highest priority that covers `key`. Adds to `wc` the bits of the key that
    /// decided it: any key that agrees in them gets the same rule at this version.
    pub fn lookup(&self, version: Version, key: &FlowKey, wc: Option<&mut FlowMask>) -> Option<Arc<ClsRule<R>>> {
        self.lookup_kind(version, key, wc, true)
    }

    /// With `parts`, rules that are parts of conjunctive matches count; else they are passed over.
    fn lookup_kind(
        &self,
        version: Version,
        key: &FlowKey,
        mut wc: Option<&mut FlowMask>,
        parts: bool,
    ) -> Option<Arc<ClsRule<R>>> {
        let subtables = self.subtables.load();
        let words = key.words();
        let tries = self.tries.load();
        let mut asked = Asked::new(&tries, key);
        let mut hard: Option<Arc<ClsRule<R>>> = None;
        let mut softs = Softs::new();
        for s in subtables.iter() {
            let best = hard.as_ref().map_or(i32::MIN, |h| h.priority());
            if hard.is_some() && best >= s.max_priority {
                break;
            }
            let found = match &mut wc {
                Some(wc) => s.subtable.find_wc(version, words, &mut asked, wc),
                None => s.subtable.find(version, words),
            };
            let Some(mut f) = found else { continue };
            if !parts && !f.conjunctions().is_empty() {
                let mut next = Some(f);
                while let Some(r) = next.take_if(|r| !r.conjunctions().is_empty()) {
                    next = s.subtable.next_below(&r, version);
                }
                let Some(r) = next else { continue };
                f = r;
            }
            if hard.is_some() && f.priority() <= best {
                continue;
            }
            match f.conjunctions().is_empty() {
                true => hard = Some(f),
                false => softs.push(Soft { subtable: &s.subtable, rule: f }),
            }
        }
        if softs.is_empty() {
            return hard;
        }
        resolve(version, hard, softs, |id| {
            let mut key = *key;
            key.pipe.conj_id = id;
            self.lookup_kind(version, &key, wc.as_deref_mut(), false)
        })
    }

    /// The visible rule of exactly this match and priority.
    pub fn find_exactly(&self, m: &Match, priority: i32, version: Version) -> Option<Arc<ClsRule<R>>> {
        self.find_exactly_mini(&MiniMatch::new(m), priority, version)
    }

    pub fn find_exactly_mini(&self, m: &MiniMatch, priority: i32, version: Version) -> Option<Arc<ClsRule<R>>> {
        let subtable = self.writer.lock().by_mask.get(&MaskOf(m))?.subtable.clone();
        subtable.find_exactly(m, priority, version)
    }

    /// All visible rules.
    pub fn rules(&self, version: Version) -> Vec<Arc<ClsRule<R>>> {
        self.collect(version, |_| true, |_| true)
    }

    /// The visible rules that are at least as specific as `criterion` and agree with it.
    pub fn rules_within(&self, criterion: &Match, version: Version) -> Vec<Arc<ClsRule<R>>> {
        let c = MiniMatch::new(criterion);
        let mask = MiniMask::of(&c);
        self.collect(version, |s| s.contains(&mask), |r| r.matches().is_within(&c))
    }

    /// Whether a visible rule of the same priority shares a packet with `m`.
    pub fn overlaps(&self, m: &Match, priority: i32, version: Version) -> bool {
        let m = MiniMatch::new(m);
        let w = self.writer.lock();
        w.by_mask.values().filter(|k| k.priorities.contains_key(&priority)).any(|k| {
            let mut any = false;
            k.subtable.for_each(|r| {
                any |= r.priority() == priority && r.is_visible(version) && r.matches().overlaps(&m);
            });
            any
        })
    }

    fn collect(
        &self,
        version: Version,
        subtable: impl Fn(&MiniMask) -> bool,
        rule: impl Fn(&ClsRule<R>) -> bool,
    ) -> Vec<Arc<ClsRule<R>>> {
        let mut v = Vec::new();
        // The writer's list: complete even while publication is deferred. Its order is a promise to
        // those who list rules: by the highest priority, and the older subtable first.
        let mut subtables = self.writer.lock().order.clone();
        subtables.sort_by_key(|s| std::cmp::Reverse(s.max_priority));
        for s in subtables.iter().map(|s| &s.subtable).filter(|s| subtable(&s.mask)) {
            s.for_each(|r| {
                if r.is_visible(version) && rule(r) {
                    v.push(r.clone());
                }
            });
        }
        v
    }
}
