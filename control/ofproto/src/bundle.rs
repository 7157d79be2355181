//! OpenFlow bundles: changes and packets that are collected and take effect together.

use std::collections::HashMap;

use fv_core::Nanos;
use fv_openflow::OfError;
use fv_openflow::msg::bundle::inner_message;
use fv_openflow::msg::bundle::{BUNDLE_ATOMIC, BundleAdd, BundleControl, BundleControlKind as Kind};
use fv_openflow::msg::{Body, Message};

use crate::conn::wire;

/// Bundles of one connection, and messages in all of them.
const MAX_BUNDLES: usize = 64;
const MAX_MESSAGES: usize = 1 << 20;
/// Bytes of these.
const MAX_BYTES: usize = 256 << 20;
/// An open bundle that nothing is added to is dropped after this.
pub(crate) const IDLE: Nanos = Nanos::from_secs(10);

/// How much of the message that opened it is kept: an error about it carries so much.
const OPENED_LEN: usize = 64;

struct Bundle {
    flags: u16,
    closed: bool,
    mods: Mods,
    used: Nanos,
    /// Start of the message that opened it.
    opened: Vec<u8>,
}

#[derive(Default)]
pub(crate) struct Bundles {
    open: HashMap<u32, Bundle>,
    n_messages: usize,
    n_bytes: usize,
}

/// What a control message leads to.
pub(crate) enum Outcome {
    Reply(BundleControl),
    Commit(Commit, BundleControl),
}

/// Carry these out together, then reply.
pub(crate) struct Commit {
    pub mods: Mods,
    pub atomic: bool,
}

/// Messages as they came: as values they would take ten times as much.
#[derive(Default)]
pub(crate) struct Mods {
    messages: Vec<Box<[u8]>>,
    bytes: usize,
}

impl Mods {
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// The `i`th one, which was decoded before.
    pub(crate) fn get(&self, i: usize) -> Option<Result<Message, OfError>> {
        self.messages.get(i).map(|m| wire::decode(m, false))
    }

    pub(crate) fn bytes_of(&self, i: usize) -> &[u8] {
        self.messages.get(i).map_or(&[], |m| m)
    }

    fn push(&mut self, message: &[u8]) {
        self.bytes += message.len();
        self.messages.push(message.into());
    }
}

impl Bundles {
    pub(crate) fn control(&mut self, m: &BundleControl, frame: &[u8], now: Nanos) -> Result<Outcome, OfError> {
        let reply = |kind| BundleControl { bundle_id: m.bundle_id, kind, flags: 0 };
        match m.kind {
            Kind::OpenRequest => {
                if self.open.contains_key(&m.bundle_id) {
                    self.forget(m.bundle_id);
                    return Err(OfError::BfcBadId);
                }
                self.create(m.bundle_id, m.flags, frame, now)?;
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
                let commit = Commit { mods: b.mods, atomic: b.flags & BUNDLE_ATOMIC != 0 };
                Ok(Outcome::Commit(commit, reply(Kind::CommitReply)))
            }
            Kind::DiscardRequest => {
                self.forget(m.bundle_id).ok_or(OfError::BfcBadId)?;
                Ok(Outcome::Reply(reply(Kind::DiscardReply)))
            }
            Kind::OpenReply | Kind::CloseReply | Kind::CommitReply | Kind::DiscardReply => Err(OfError::BfcBadType),
        }
    }

    /// `frame` is the whole message.
    pub(crate) fn add(&mut self, m: &BundleAdd, frame: &[u8], now: Nanos) -> Result<(), OfError> {
        let can = matches!(
            m.msg.body,
            Body::FlowMod(_) | Body::NxFlowMod(_) | Body::GroupMod(_) | Body::PortMod(_) | Body::PacketOut(_)
        );
        let Some(message) = inner_message(frame).filter(|_| can) else {
            self.forget(m.bundle_id);
            return Err(OfError::BfcMsgUnsup);
        };
        if self.n_messages >= MAX_MESSAGES || self.n_bytes + message.len() > MAX_BYTES {
            self.forget(m.bundle_id);
            return Err(OfError::BfcMsgTooMany);
        }
        if !self.open.contains_key(&m.bundle_id) {
            self.create(m.bundle_id, m.flags, frame, now)?;
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
        b.mods.push(message);
        b.used = now;
        self.n_messages += 1;
        self.n_bytes += message.len();
        Ok(())
    }

    fn create(&mut self, id: u32, flags: u16, frame: &[u8], now: Nanos) -> Result<(), OfError> {
        if self.open.len() >= MAX_BUNDLES {
            return Err(OfError::BfcOutOfBundles);
        }
        let opened = frame[..frame.len().min(OPENED_LEN)].to_vec();
        self.open.insert(id, Bundle { flags, closed: false, mods: Mods::default(), used: now, opened });
        Ok(())
    }

    fn forget(&mut self, id: u32) -> Option<Bundle> {
        let b = self.open.remove(&id)?;
        self.n_messages -= b.mods.len();
        self.n_bytes -= b.mods.bytes;
        Some(b)
    }

    /// Drops bundles that were left lying: what each was opened with, for the error that tells.
    pub(crate) fn expire(&mut self, now: Nanos) -> Vec<Vec<u8>> {
        let idle = |b: &Bundle| b.used.saturating_add(IDLE) < now;
        let old: Vec<u32> = self.open.iter().filter(|(_, b)| idle(b)).map(|(id, _)| *id).collect();
        old.into_iter().filter_map(|id| self.forget(id)).map(|b| b.opened).collect()
    }

    /// When the first of them will have been left lying too long.
    pub(crate) fn next_expiry(&self) -> Option<Nanos> {
        self.open.values().map(|b| b.used.saturating_add(IDLE).saturating_add(Nanos(1))).min()
    }
}
