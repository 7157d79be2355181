//! The contract of a provider: a NIC's flow table, programmed asynchronously.
//!
//! The caller names rules; a name is never used twice, so that a late report cannot be taken for
//! another rule's. Operations on one rule are finished in the order in which they were submitted.
//! A rule that is in the table forwards (or marks) until its removal is reported: nothing happens to it
//! in between, except what [`Report::Evicted`] and [`Report::Reset`] say.

use std::sync::Arc;

use fv_core::{DpPort, Nanos};
use fv_dpif::Program;
use fv_flow::{DpKey, DpMask};

use crate::caps::{Caps, WhyNot};

/// Ports that share one flow table: usually those of one card.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PoolId(pub u16);

/// A rule's name, given by the caller, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RuleId(pub u64);

/// A flow table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pool {
    pub id: PoolId,
    /// As operators know the card.
    pub name: String,
    /// Rules that fit; None where only trying tells.
    pub capacity: Option<u32>,
    pub ports: Vec<DpPort>,
}

/// What the NIC does with a packet that a rule matches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Treatment {
    /// Delivers it with this number, which is not 0.
    Mark(u32),
    /// Forwards it by itself, and counts.
    Full(Arc<Program>),
}

/// A rule to put into the table of `pool`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    pub id: RuleId,
    pub pool: PoolId,
    pub key: DpKey,
    pub mask: DpMask,
    pub treatment: Treatment,
}

/// What is asked of a provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    Insert(Box<Rule>),
    /// No packet meets a mixture of the old and the new, nor falls between them; counters go on.
    Modify(RuleId, Treatment),
    Remove(RuleId),
}

impl Op {
    pub fn rule(&self) -> RuleId {
        match self {
            Op::Insert(rule) => rule.id,
            Op::Modify(id, _) | Op::Remove(id) => *id,
        }
    }
    pub fn kind(&self) -> OpKind {
        match self {
            Op::Insert(_) => OpKind::Insert,
            Op::Modify(..) => OpKind::Modify,
            Op::Remove(_) => OpKind::Remove,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpKind {
    Insert,
    Modify,
    Remove,
}

/// How an operation ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done,
    /// This NIC cannot do it, now or later: not worth another try.
    Cannot(WhyNot),
    /// There is no room: something else would have to leave first.
    OutOfRoom,
    /// Not now; the same again later may do. The rule is as it was.
    Busy,
    /// It failed, and what is in the table is the provider's best knowledge: after a failed insertion or a
    /// failed removal, nothing.
    Lost,
}

/// What a rule has forwarded. Rules that only mark count nothing: software does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    pub packets: u64,
    pub bytes: u64,
    /// When the last packet came, as far as the NIC tells; None: none came.
    pub used: Option<Nanos>,
}

/// What a provider tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// The operation is over. `last` is what the rule has counted so far; after a removal, in all.
    Finished { rule: RuleId, kind: OpKind, outcome: Outcome, last: Count },
    /// The counters as they were at `as_of`: later than they are read, never earlier.
    Counted { rule: RuleId, count: Count, as_of: Nanos },
    /// All of the pool's counters were read at `as_of`: those that were not reported since are what they were.
    Read { pool: PoolId, as_of: Nanos },
    /// The NIC threw the rule out. Operations on it that are under way are finished as Lost.
    Evicted { rule: RuleId, last: Count },
    /// The table is empty. Rules whose counters could be read were reported as evicted before.
    Reset(PoolId),
}

/// The driver of one or several NICs' flow tables. Owned by one thread.
pub trait Provider: Send {
    /// E.g. `dpdk`: what `hw-offload-priority` and `dp:` call it.
    fn name(&self) -> &'static str;
    /// Takes a port on, if it is one of its NIC's. None: not ours.
    fn attach(&mut self, port: DpPort, name: &str) -> Option<PoolId>;
    /// The port is going: its rules are evicted.
    fn detach(&mut self, port: DpPort);
    fn pools(&self) -> Vec<Pool>;
    /// Never changes while the pool exists.
    fn caps(&self, pool: PoolId) -> Option<&Caps>;
    /// Starts an operation, which ends with a [`Report::Finished`]. Gives it back if too many are under
    /// way.
    fn submit(&mut self, now: Nanos, op: Op) -> Result<(), Op>;
    /// Goes on with what is under way, and appends what there is to tell. Never blocks.
    fn turn(&mut self, now: Nanos, out: &mut Vec<Report>);
    /// When `turn` has something to do next, if nothing is submitted until then.
    fn due(&self) -> Nanos;
}
