//! The slow twin: a list.

use std::sync::Arc;

use fv_flow::FlowKey;

use crate::rule::{ClsRule, Version};

pub(crate) struct Linear<R>(pub(crate) Vec<Arc<ClsRule<R>>>);

impl<R> Linear<R> {
    /// The priority of the rule that decides about the key. Conjunctions have one id a priority.
    pub(crate) fn lookup(&self, v: Version, key: &FlowKey) -> Option<i32> {
        let visible = || self.0.iter().filter(|r| r.is_visible(v));
        let mut matching: Vec<_> = visible().filter(|r| r.matches().covers(key)).collect();
        matching.sort_by_key(|r| std::cmp::Reverse(r.priority()));
        for level in matching.chunk_by(|a, b| a.priority() == b.priority()) {
            if level.iter().any(|r| r.conjunctions().is_empty()) {
                return Some(level[0].priority());
            }
            let parts: Vec<_> = level.iter().flat_map(|r| r.conjunctions()).collect();
            if (0..parts[0].n_clauses).all(|c| parts.iter().any(|p| p.clause == c)) {
                let mut k = *key;
                k.pipe.conj_id = parts[0].id;
                let alone = visible().filter(|r| r.conjunctions().is_empty() && r.matches().covers(&k));
                if let Some(p) = alone.map(|r| r.priority()).max() {
                    return Some(p);
                }
            }
        }
        None
    }
}
