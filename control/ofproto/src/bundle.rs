//! OpenFlow bundles: flow-mods and group-mods that are collected and take effect together.

use std::collections::HashMap;

use fv_core::Nanos;
use fv_openflow::OfError;
use fv_openflow::msg::bundle::{BundleAdd, BundleControl, BundleControlKind as Kind};
use fv_openflow::msg::{Body, FlowMod, GroupMod};

use crate::flow_mod::ChangeRef;

/// Bundles of one connection, and messages in all of them.
const MAX_BUNDLES: usize = 64;
const MAX_MESSAGES: usize = 1 << 18;
/// An open bundle that nothing is added to is dropped after this.
pub(crate) const IDLE: Nanos = Nanos::from_secs(10);

struct Bundle {
    flags: u16,
    closed: bool,
    mods: Vec<(u32, Change)>,
    used: Nanos,
}

#[derive(Default)]
pub(crate) struct Bundles {
    open: HashMap<u32, Bundle>,
    n_messages: usize,
}

/// What a control message leads to.
pub(crate) enum Outcome {
    Reply(BundleControl),
    /// Carry these out together, then reply; (xid, change) each.
    Commit(Vec<(u32, Change)>, BundleControl),
}

pub(crate) enum Change {
    Flow(Box<FlowMod>),
    Group(Box<GroupMod>),
}

impl Change {
    pub(crate) fn by_ref(&self) -> ChangeRef<'_> {
        match self {
            Change::Flow(f) => ChangeRef::Flow(f),
            Change::Group(g) => ChangeRef::Group(g),
        }
    }
}

impl Bundles {
    pub(crate) fn control(&mut self, m: &BundleControl, now: Nanos) -> Result<Outcome, OfError> {
        let reply = |kind| BundleControl { bundle_id: m.bundle_id, kind, flags: m.flags };
        match m.kind {
            Kind::OpenRequest => {
                if self.open.contains_key(&m.bundle_id) {
                    self.forget(m.bundle_id);
                    return Err(OfError::BfcBadId);
                }
                self.create(m.bundle_id, m.flags, now)?;
                Ok(Outcome::Reply(reply(Kind::OpenReply)))
            }
            Kind::CloseRequest => {
                let b = self.open.get_mut(&m.bundle_id).ok_or(OfError::BfcBadId)?;
                if b.closed {
                    self.forget(m.bundle_id);
                    return Err(OfError::BfcBundleClosed);
                }
                if b.flags != m.flags {
                    self.forget(m.bundle_id);
                    return Err(OfError::BfcBadFlags);
                }
                b.closed = true;
                b.used = now;
                Ok(Outcome::Reply(reply(Kind::CloseReply)))
            }
            Kind::CommitRequest => {
                let b = self.forget(m.bundle_id).ok_or(OfError::BfcBadId)?;
                if b.flags != m.flags {
                    return Err(OfError::BfcBadFlags);
                }
                Ok(Outcome::Commit(b.mods, reply(Kind::CommitReply)))
            }
            Kind::DiscardRequest => {
                self.forget(m.bundle_id).ok_or(OfError::BfcBadId)?;
                Ok(Outcome::Reply(reply(Kind::DiscardReply)))
            }
            Kind::OpenReply | Kind::CloseReply | Kind::CommitReply | Kind::DiscardReply => Err(OfError::BfcBadType),
        }
    }

    pub(crate) fn add(&mut self, m: BundleAdd, now: Nanos) -> Result<(), OfError> {
        let change = match m.msg.body {
            Body::FlowMod(fm) | Body::NxFlowMod(fm) => Change::Flow(fm),
            Body::GroupMod(gm) => Change::Group(gm),
            _ => {
                self.forget(m.bundle_id);
                return Err(OfError::BfcMsgUnsup);
            }
        };
        if self.n_messages >= MAX_MESSAGES {
            self.forget(m.bundle_id);
            return Err(OfError::BfcMsgTooMany);
        }
        if !self.open.contains_key(&m.bundle_id) {
            self.create(m.bundle_id, m.flags, now)?;
        }
        let b = self.open.get_mut(&m.bundle_id).ok_or(OfError::BfcBadId)?;
        let bad = if b.closed {
            Some(OfError::BfcBundleClosed)
        } else if b.flags != m.flags {
            Some(OfError::BfcBadFlags)
        } else {
            None
        };
        if let Some(e) = bad {
            self.forget(m.bundle_id);
            return Err(e);
        }
        b.mods.push((m.msg.xid, change));
        b.used = now;
        self.n_messages += 1;
        Ok(())
    }

    fn create(&mut self, id: u32, flags: u16, now: Nanos) -> Result<(), OfError> {
        if self.open.len() >= MAX_BUNDLES {
            return Err(OfError::BfcOutOfBundles);
        }
        self.open.insert(id, Bundle { flags, closed: false, mods: Vec::new(), used: now });
        Ok(())
    }

    fn forget(&mut self, id: u32) -> Option<Bundle> {
        let b = self.open.remove(&id)?;
        self.n_messages -= b.mods.len();
        Some(b)
    }

    /// Drops bundles that were left lying.
    pub(crate) fn expire(&mut self, now: Nanos) {
        let old: Vec<u32> =
            self.open.iter().filter(|(_, b)| b.used.saturating_add(IDLE) < now).map(|(id, _)| *id).collect();
        old.into_iter().for_each(|id| {
            self.forget(id);
        });
    }
}
