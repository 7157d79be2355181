//! Which flows use which groups and meters.

use std::collections::BTreeMap;
use std::sync::Arc;

use fv_openflow::Actions;
use fv_openflow::action::Action;
use hashbrown::HashMap;

use crate::rule::RuleRef;

/// What a flow may depend on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Target {
    Group(u32),
    Meter(u32),
}

/// What a list of actions names, at any depth.
pub(crate) fn uses(actions: &Actions) -> Vec<Target> {
    let mut out = Vec::new();
    collect(actions, &mut out);
    out
}

fn collect(actions: &Actions, out: &mut Vec<Target>) {
    for a in actions {
        match a {
            Action::Group(id) => out.push(Target::Group(*id)),
            Action::Meter(id) => out.push(Target::Meter(*id)),
            _ => {}
        }
        if let Some(nested) = a.nested() {
            collect(nested, out);
        }
    }
}

/// The flows of a bridge that use something, by what they use.
#[derive(Default)]
pub(crate) struct Users {
    flows: HashMap<Target, BTreeMap<usize, RuleRef>>,
}

impl Users {
    fn key(r: &RuleRef) -> usize {
        Arc::as_ptr(r) as usize
    }

    pub(crate) fn add(&mut self, r: &RuleRef) {
        for t in uses(&r.actions) {
            self.flows.entry(t).or_default().insert(Self::key(r), r.clone());
        }
    }

    pub(crate) fn remove(&mut self, r: &RuleRef) {
        for t in uses(&r.actions) {
            if let Some(users) = self.flows.get_mut(&t) {
                users.remove(&Self::key(r));
                if users.is_empty() {
                    self.flows.remove(&t);
                }
            }
        }
    }

    pub(crate) fn of(&self, t: Target) -> Vec<RuleRef> {
        self.flows.get(&t).into_iter().flat_map(|u| u.values().cloned()).collect()
    }

    pub(crate) fn count(&self, t: Target) -> u32 {
        self.flows.get(&t).map_or(0, |u| u.len().min(u32::MAX as usize) as u32)
    }
}
