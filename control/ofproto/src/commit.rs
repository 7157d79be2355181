//! Large bundles of flow-mods: they take effect at once, but are prepared in portions, so that other
//! connections hear from the switch meanwhile. Until the last portion nothing else changes the tables:
//! messages wait, except echo requests, and what does not come from messages has the rest done first.

use fv_core::Nanos;
use fv_openflow::msg::bundle::BundleControl;
use fv_openflow::msg::{Body, Message};
use fv_openflow::{OfError, Version};

use crate::bridge::Ofproto;
use crate::bundle::Commit;
use crate::conn::{ConnId, Connection, xid_of};
use crate::flow_mod::{ChangeRef, Step};
use crate::handle::prepared;

/// Bundles of no more messages are carried out in one go.
const SMALL: usize = 2048;
/// Flow-mods prepared in one turn: some milliseconds.
pub(crate) const PORTION: usize = 512;

/// A bundle that is being prepared.
pub(crate) struct Committing {
    conn: ConnId,
    version: Option<Version>,
    xid: u32,
    /// The message that asks for it.
    frame: Vec<u8>,
    commit: Commit,
    next: usize,
    steps: Vec<Step>,
    now: Nanos,
    reply: BundleControl,
}

impl Ofproto {
    /// Whether `commit` is to be carried out by [`Ofproto::begin_commit`]: it is large, and all of it
    /// are flow-mods.
    pub(crate) fn is_large(commit: &Commit) -> bool {
        commit.mods.len() > SMALL && (0..commit.mods.len()).all(|i| crate::handle::is_flow_mod(commit.mods.bytes_of(i)))
    }

    /// The changes before it are committed.
    pub(crate) fn begin_commit(
        &mut self,
        c: &Connection,
        xid: u32,
        frame: &[u8],
        commit: Commit,
        reply: BundleControl,
        now: Nanos,
    ) {
        let (conn, version, frame) = (c.id, c.version(), frame.to_vec());
        self.committing =
            Some(Box::new(Committing { conn, version, xid, frame, commit, next: 0, steps: Vec::new(), now, reply }));
    }

    /// Prepares so many flow-mods more. True if there are others left.
    pub(crate) fn continue_commit(&mut self, portion: usize) -> bool {
        let Some(mut w) = self.committing.take() else { return false };
        let tables = self.tables.clone();
        let changing = tables.changing();
        self.source = Some((w.conn, w.xid));
        let end = w.next.saturating_add(portion).min(w.commit.mods.len());
        let mut failed = None;
        while w.next < end && failed.is_none() {
            failed = self.prepare_next(&mut w).err();
            w.next += usize::from(failed.is_none());
        }
        let steps = std::mem::take(&mut w.steps);
        match failed {
            Some(_) => self.revert(steps),
            None if w.next == w.commit.mods.len() => self.finish(w.now, steps),
            None => w.steps = steps,
        }
        self.source = None;
        drop(changing);
        if failed.is_none() && w.next < w.commit.mods.len() {
            self.committing = Some(w);
            return true;
        }
        let Some(c) = self.conns.get_mut(w.conn) else { return false };
        match failed {
            None => c.reply(w.xid, Body::BundleControl(w.reply)),
            // First what was wrong, in the name of the message that was, then that all failed.
            Some(e) => {
                let bytes = w.commit.mods.bytes_of(w.next);
                c.error(xid_of(bytes), e, bytes);
                c.error(w.xid, OfError::BfcMsgFailed, &w.frame);
            }
        }
        false
    }

    fn prepare_next(&mut self, w: &mut Committing) -> Result<(), OfError> {
        match w.commit.mods.get(w.next).transpose()? {
            Some(Message { body: Body::FlowMod(fm) | Body::NxFlowMod(fm), .. }) => {
                let fm = prepared(*fm, w.version)?;
                self.change_start(w.now, ChangeRef::Flow(&fm), &mut w.steps)
            }
            _ => Ok(()),
        }
    }

    /// All the rest at once: something else is about to change the tables.
    pub(crate) fn complete_commit(&mut self) {
        while self.continue_commit(usize::MAX) {}
    }
}
