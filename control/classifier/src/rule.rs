//! What a classifier holds.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwapOption;

use crate::mini::MiniMatch;

/// A state of the tables. Versions grow; a change becomes visible when the caller's current version
/// reaches it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Version(pub u64);

impl Version {
    pub const MIN: Version = Version(0);
    /// "Not removed".
    pub const NEVER: Version = Version(u64::MAX);
    pub fn next(self) -> Version {
        Version(self.0 + 1)
    }
}

/// One membership of a rule in a conjunctive match: a packet matches conjunction `id` if, at one
/// priority, it matches a rule of each of the clauses 0 to `n_clauses - 1`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Conjunction {
    pub id: u32,
    /// From 0.
    pub clause: u8,
    /// 2 to 64.
    pub n_clauses: u8,
}

/// Most rules have none: a word, not two.
type Conjunctions = Option<Box<Vec<Conjunction>>>;

/// A match and its priority, when it is visible, and what it stands for. Dereferences to the latter.
pub struct ClsRule<R> {
    matches: MiniMatch,
    priority: i32,
    /// Written before the rule is reachable.
    added: AtomicU64,
    removed: AtomicU64,
    /// Another rule of the same match.
    pub(crate) next: ArcSwapOption<ClsRule<R>>,
    conjunctions: Conjunctions,
    pub value: R,
}

impl<R> ClsRule<R> {
    /// Not visible at any version until it is inserted.
    pub fn new(matches: MiniMatch, priority: i32, value: R) -> ClsRule<R> {
        ClsRule {
            matches,
            priority,
            added: AtomicU64::new(u64::MAX),
            removed: AtomicU64::new(Version::NEVER.0),
            next: ArcSwapOption::empty(),
            conjunctions: None,
            value,
        }
    }

    /// Makes it a part of conjunctive matches: no packet is decided by it alone.
    #[must_use]
    pub fn with_conjunctions(mut self, c: Vec<Conjunction>) -> ClsRule<R> {
        self.conjunctions = (!c.is_empty()).then(|| Box::new(c));
        self
    }

    /// Empty for a rule that decides by itself.
    pub fn conjunctions(&self) -> &[Conjunction] {
        self.conjunctions.as_deref().map_or(&[], Vec::as_slice)
    }

    pub fn matches(&self) -> &MiniMatch {
        &self.matches
    }

    pub fn priority(&self) -> i32 {
        self.priority
    }

    pub fn is_visible(&self, v: Version) -> bool {
        self.added.load(Relaxed) <= v.0 && v.0 < self.removed.load(Relaxed)
    }

    /// The first version at which it is no longer visible, if it was removed.
    pub fn removed_at(&self) -> Option<Version> {
        let r = Version(self.removed.load(Relaxed));
        (r != Version::NEVER).then_some(r)
    }

    pub(crate) fn set_added(&self, v: Version) {
        self.added.store(v.0, Relaxed);
    }

    pub(crate) fn set_removed(&self, v: Version) {
        self.removed.store(v.0, Relaxed);
    }
}

impl<R> Deref for ClsRule<R> {
    type Target = R;
    fn deref(&self) -> &R {
        &self.value
    }
}

impl<R: fmt::Debug> fmt::Debug for ClsRule<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClsRule")
            .field("priority", &self.priority)
            .field("added", &self.added)
            .field("removed", &self.removed)
            .field("value", &self.value)
            .finish_non_exhaustive()
    }
}
