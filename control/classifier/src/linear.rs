//! The slow twin: a list.

use std::sync::Arc;

use fv_flow::FlowKey;

use crate::rule::{ClsRule, Version};

pub(crate) struct Linear<R>(pub(crate) Vec<Arc<ClsRule<R>>>);

impl<R> Linear<R> {
    /// The highest priority of a visible rule that covers the key.
    pub(crate) fn lookup(&self, v: Version, key: &FlowKey) -> Option<i32> {
        self.0.iter().filter(|r| r.is_visible(v) && r.matches().covers(key)).map(|r| r.priority()).max()
    }
}
