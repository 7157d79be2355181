//! The rules: one hash table for each mask. Rules do not overlap, as flows do not, so any that matches is
//! the one.

use std::collections::HashMap;

use fv_core::{DpPort, Nanos};
use fv_dpif::DpAction;
use fv_flow::key::DP_WORDS;
use fv_flow::{DpKey, DpMask};
use fv_offload::{Count, Rule, RuleId, Treatment};

type Words = [u64; DP_WORDS];

pub struct Entry {
    pub id: RuleId,
    pub treatment: Treatment,
    pub count: Count,
    /// The count has changed since it was last told.
    untold: bool,
}

struct Tuple {
    mask: DpMask,
    rules: HashMap<Words, Entry>,
}

#[derive(Default)]
pub struct Table {
    tuples: Vec<Tuple>,
    /// Where each rule is: its mask, and its masked key.
    places: HashMap<RuleId, (DpMask, Words)>,
}

impl Table {
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// False if the very same match is there.
    pub fn insert(&mut self, rule: Rule) -> bool {
        let key = *rule.mask.apply(&rule.key).words();
        let at = self.tuples.iter().position(|t| t.mask == rule.mask).unwrap_or_else(|| {
            self.tuples.push(Tuple { mask: rule.mask, rules: HashMap::new() });
            self.tuples.len() - 1
        });
        let rules = &mut self.tuples[at].rules;
        if rules.contains_key(&key) || self.places.contains_key(&rule.id) {
            return false;
        }
        let entry = Entry { id: rule.id, treatment: rule.treatment, count: Count::default(), untold: false };
        rules.insert(key, entry);
        self.places.insert(rule.id, (rule.mask, key));
        true
    }

    pub fn find(&mut self, id: RuleId) -> Option<&mut Entry> {
        let (mask, key) = self.places.get(&id)?;
        self.tuples.iter_mut().find(|t| t.mask == *mask)?.rules.get_mut(key)
    }

    pub fn remove(&mut self, id: RuleId) -> Option<Count> {
        let (mask, key) = self.places.remove(&id)?;
        let at = self.tuples.iter().position(|t| t.mask == mask)?;
        let entry = self.tuples[at].rules.remove(&key)?;
        if self.tuples[at].rules.is_empty() {
            self.tuples.swap_remove(at);
        }
        Some(entry.count)
    }

    /// The rule that a packet meets; it is counted.
    pub fn hit(&mut self, key: &DpKey, bytes: usize, now: Nanos) -> Option<&Treatment> {
        let entry = self.tuples.iter_mut().find_map(|t| t.rules.get_mut(t.mask.apply(key).words()))?;
        if let Treatment::Full(_) = entry.treatment {
            entry.count.packets += 1;
            entry.count.bytes += bytes as u64;
            entry.count.used = Some(now);
            entry.untold = true;
        }
        Some(&entry.treatment)
    }

    /// Counts that have changed since they were last taken.
    pub fn take_counts(&mut self) -> Vec<(RuleId, Count)> {
        let entries = self.tuples.iter_mut().flat_map(|t| t.rules.values_mut()).filter(|e| e.untold);
        let tell = |e: &mut Entry| {
            e.untold = false;
            (e.id, e.count)
        };
        entries.map(tell).collect()
    }

    pub fn ids(&self) -> Vec<RuleId> {
        self.places.keys().copied().collect()
    }

    /// Rules of packets that come from or go to a port.
    pub fn of_port(&self, port: DpPort) -> Vec<RuleId> {
        let goes = |t: &Treatment| match t {
            Treatment::Full(program) => program.actions.contains(&DpAction::Output(port)),
            Treatment::Mark(_) => false,
        };
        let comes = |key: &Words| {
            let mut k = DpKey::default();
            *k.words_mut() = *key;
            k.base.in_port == port.0
        };
        let all = self.tuples.iter().flat_map(|t| &t.rules);
        all.filter(|(key, e)| comes(key) || goes(&e.treatment)).map(|(_, e)| e.id).collect()
    }
}
