//! Running programs on packets: one file per family of actions.
//!
//! Reads: program, packet. Writes: packet, transmit buffers, the work list of recirculations.
//! Next: flush, and the turn's next pass over the work list. Every path ends in exactly one of: a
//! transmit buffer, the work list, the handler, [`Env::drop`] or [`Env::end`].

mod eth;
mod hash;
mod mpls;
mod output;
mod set;
mod userspace;
mod vlan;

mod ct;
mod meter;
mod tunnel;

use std::sync::Arc;

use fv_core::{DpPort, Nanos, RecircId};
use fv_dpif::{DpAction, DropReason, Program, UpcallHandler, WorkerId};
use fv_packet::Packet;

use crate::shared::Shared;
use crate::worker::stats::{Stat, WorkerStats};
use crate::worker::tx::TxPorts;
use crate::worker::work::{Job, WorkList};

/// Actions nested in actions at most; deeper programs drop their packets. Translation goes through 64 tables,
/// each of which may take copies aside.
pub const NESTING_MAX: usize = 160;
/// Passes of one packet through the datapath at most, the first not counted.
pub const RECIRC_DEPTH_MAX: u8 = 8;

/// A program as workers run it.
#[derive(Debug)]
pub struct Code {
    pub source: Arc<Program>,
    pub shape: Shape,
    /// Packets may come round again.
    pub again: bool,
    /// It needs to know where a packet's headers are, or its key; else the bytes are enough.
    pub needs_headers: bool,
}

/// What a program comes down to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    Drop(DropReason),
    /// One output and nothing else.
    Output(DpPort),
    Actions,
}

impl Code {
    pub fn compile(source: Arc<Program>) -> Arc<Code> {
        let shape = Shape::of(&source.actions);
        let again = shape == Shape::Actions && comes_round(&source.actions);
        let plain = |a: &DpAction| {
            use DpAction::*;
            matches!(a, Output(_) | PushVlan { .. } | PopVlan | Drop(_) | Trunc(_))
        };
        let needs_headers = !source.actions.iter().all(plain);
        Arc::new(Code { source, shape, again, needs_headers })
    }
}

impl Shape {
    fn of(actions: &[DpAction]) -> Shape {
        match actions {
            [] => Shape::Drop(DropReason::ActionOfPipeline),
            [DpAction::Output(port)] => Shape::Output(*port),
            actions if nesting(actions) > NESTING_MAX => Shape::Drop(DropReason::ActionUnsupported),
            _ => Shape::Actions,
        }
    }
}

/// Whether any of the actions, which are not nested too deep, recirculates.
fn comes_round(actions: &[DpAction]) -> bool {
    actions.iter().any(|a| match a {
        DpAction::Recirc(_) | DpAction::TunnelPop(_) | DpAction::TunnelPush(_) => true,
        DpAction::Sample { actions, .. } | DpAction::Clone(actions) => comes_round(actions),
        DpAction::DecTtl { exception } => comes_round(exception),
        DpAction::CheckPktLen { greater, less_equal, .. } => comes_round(greater) || comes_round(less_equal),
        _ => false,
    })
}

/// Levels of actions, not looking further than one past the maximum.
fn nesting(actions: &[DpAction]) -> usize {
    fn deepest(actions: &[DpAction], level: usize) -> usize {
        if level > NESTING_MAX {
            return level;
        }
        let inner = |a: &DpAction| match a {
            DpAction::Sample { actions, .. } | DpAction::Clone(actions) => deepest(actions, level + 1),
            DpAction::DecTtl { exception } => deepest(exception, level + 1),
            DpAction::CheckPktLen { greater, less_equal, .. } => {
                deepest(greater, level + 1).max(deepest(less_equal, level + 1))
            }
            _ => level,
        };
        actions.iter().map(inner).max().unwrap_or(level)
    }
    deepest(actions, 1)
}

/// What running programs needs of its worker.
pub struct Env {
    pub shared: Arc<Shared>,
    pub worker: WorkerId,
    pub now: Nanos,
    pub handler: Option<Arc<dyn UpcallHandler>>,
    pub tx: TxPorts,
    pub work: WorkList,
    pub stats: Arc<WorkerStats>,
    /// Tags that keys look at.
    pub vlan_limit: u8,
    /// State of the generator behind `sample`.
    pub random: u64,
}

impl Env {
    /// Runs a program of that shape; `depth` is how often the packet was recirculated.
    #[inline]
    pub fn run(&mut self, packet: Packet, shape: Shape, code: &Code, depth: u8) {
        match shape {
            Shape::Output(port) => self.output(packet, port),
            Shape::Drop(reason) => self.drop(packet, reason),
            Shape::Actions => self.actions(packet, &code.source.actions, depth),
        }
    }

    /// Runs a program that no flow keeps.
    pub fn run_program(&mut self, packet: Packet, program: &Program, depth: u8) {
        match Shape::of(&program.actions) {
            Shape::Drop(reason) => self.drop(packet, reason),
            _ => self.actions(packet, &program.actions, depth),
        }
    }

    /// The one way in which a packet is thrown away.
    #[cold]
    pub fn drop(&mut self, packet: Packet, reason: DropReason) {
        reason.count(1);
        self.stats.add(Stat::Dropped, 1);
        drop(packet);
    }

    /// The packet's program is over and its last action did not consume it.
    fn end(&mut self, packet: Packet) {
        self.stats.add(Stat::Ended, 1);
        drop(packet);
    }

    /// A copy for an action that is not the last.
    fn copy(&mut self, packet: &Packet) -> Packet {
        self.stats.add(Stat::Copied, 1);
        packet.duplicate()
    }

    fn actions(&mut self, mut packet: Packet, actions: &[DpAction], depth: u8) {
        let Some((last, others)) = actions.split_last() else { return self.end(packet) };
        for (i, action) in actions.iter().enumerate().take(others.len() + 1) {
            if let DpAction::TunnelPush(push) = action
                && crate::tunnel::push::too_long(&packet, push)
            {
                return self.in_pieces(packet, &actions[i..], depth);
            }
            if i == others.len() {
                break;
            }
            match self.action(packet, action, depth, false) {
                Some(same) => packet = same,
                None => return,
            }
        }
        if let Some(packet) = self.action(packet, last, depth, true) {
            self.end(packet);
        }
    }

    /// Gives the packet back unless the action consumed it, as the `last` of a program may.
    fn action(&mut self, mut packet: Packet, action: &DpAction, depth: u8, last: bool) -> Option<Packet> {
        let done = match action {
            DpAction::Output(port) => return self.consume_cut(packet, last, |env, p| env.output(p, *port)),
            DpAction::Userspace { what, .. } => {
                return self.consume_cut(packet, last, |env, p| env.userspace(p, what));
            }
            DpAction::Recirc(id) => return self.consume(packet, last, |env, p| env.recirc(p, *id, depth)),
            DpAction::Clone(inner) => return self.consume(packet, last, |env, p| env.actions(p, inner, depth)),
            DpAction::Sample { probability, actions } => {
                if !self.chance(*probability) {
                    return Some(packet);
                }
                return self.consume(packet, last, |env, p| env.actions(p, actions, depth));
            }
            DpAction::CheckPktLen { size, greater, less_equal } => {
                let branch = if output::wire_len(&packet) > usize::from(*size) { greater } else { less_equal };
                return self.consume(packet, last, |env, p| env.actions(p, branch, depth));
            }
            DpAction::DecTtl { exception } => {
                if set::decrement_ttl(&mut packet) {
                    return Some(packet);
                }
                self.actions(packet, exception, depth);
                return None;
            }
            DpAction::Drop(code) => {
                self.drop(packet, DropReason::of_action(*code));
                return None;
            }
            DpAction::TunnelPush(push) => self.tunnel_push(&mut packet, push),
            DpAction::TunnelPop(port) => return self.consume(packet, last, |env, p| env.tunnel_pop(p, *port, depth)),
            DpAction::LbOutput(_) => Err(DropReason::InvalidBond),
            DpAction::PushVlan { tpid, tci } => vlan::push(&mut packet, *tpid, *tci),
            DpAction::PopVlan => vlan::pop(&mut packet),
            DpAction::PushMpls { lse, eth_type } => mpls::push(&mut packet, *lse, *eth_type),
            DpAction::PopMpls { eth_type } => mpls::pop(&mut packet, *eth_type),
            DpAction::PushEth { src, dst } => eth::push(&mut packet, src, dst),
            DpAction::PopEth => eth::pop(&mut packet),
            DpAction::Set(field) => set::set(&mut packet, field),
            DpAction::Hash(algorithm) => hash::hash(&mut packet, *algorithm, self.vlan_limit),
            DpAction::Ct(ct) => ct::ct(&mut packet, ct),
            DpAction::CtClear => ct::clear(&mut packet),
            DpAction::Meter(meter) => meter::meter(&mut packet, *meter, &self.shared, self.now),
            DpAction::Trunc(max_len) => {
                packet.meta_mut().trunc_len = *max_len;
                Ok(())
            }
        };
        match done {
            Ok(()) => Some(packet),
            Err(reason) => {
                self.drop(packet, reason);
                None
            }
        }
    }

    /// Hands the packet itself to the last action, a copy to any other.
    #[inline]
    fn consume(&mut self, packet: Packet, last: bool, f: impl FnOnce(&mut Env, Packet)) -> Option<Packet> {
        if last {
            f(self, packet);
            return None;
        }
        let copy = self.copy(&packet);
        f(self, copy);
        Some(packet)
    }

    /// As `consume`, for an action that a `trunc` before it cuts: that is used up then.
    #[inline]
    fn consume_cut(&mut self, packet: Packet, last: bool, f: impl FnOnce(&mut Env, Packet)) -> Option<Packet> {
        let mut rest = self.consume(packet, last, f)?;
        rest.meta_mut().trunc_len = 0;
        Some(rest)
    }

    fn recirc(&mut self, mut packet: Packet, id: RecircId, depth: u8) {
        if depth >= RECIRC_DEPTH_MAX {
            return self.drop(packet, DropReason::RecircError);
        }
        packet.meta_mut().recirc_id = id.0;
        self.again(packet, depth);
    }

    /// Sends a packet through the datapath once more.
    fn again(&mut self, packet: Packet, depth: u8) {
        match self.work.push(Job { packet, depth: depth + 1 }) {
            Ok(()) => self.stats.add(Stat::Recirculated, 1),
            Err(job) => self.drop(job.packet, DropReason::RecircError),
        }
    }

    /// True with `probability` in 2^32 - 1.
    fn chance(&mut self, probability: u32) -> bool {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.random >> 32) as u32 <= probability && probability != 0
    }
}

#[cfg(test)]
mod tests;
