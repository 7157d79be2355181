//! Misses and actions that leave the datapath.

use std::sync::Arc;

use fv_core::Nanos;
use fv_flow::{DpKey, DpMask};
use fv_packet::Packet;

use crate::action::{Program, Userspace};
use crate::drop::DropReason;
use crate::flow::WorkerId;

/// What to do with a packet that no flow covers. Passed by value once a miss; boxing it would cost an allocation.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug)]
pub enum Verdict {
    /// Run `program` on it; with `install`, also put a flow of that mask.
    Forward {
        program: Arc<Program>,
        mask: DpMask,
        install: bool,
    },
    Drop(DropReason),
}

/// The control plane's side of the datapath. Called inline by workers: it must not block and holds
/// no lock that a slow thread may hold for long.
pub trait UpcallHandler: Send + Sync {
    /// Translates. Effects that happen once (learning, packet-in) are done before it returns.
    fn miss(&self, worker: WorkerId, now: Nanos, packet: &Packet, key: &DpKey) -> Verdict;

    /// A flow was put for a verdict (`installed`), or the put lost a race or was refused.
    fn installed(&self, worker: WorkerId, ufid: fv_core::Ufid, key: &DpKey, ok: bool);

    /// A `userspace` action. `packet` is the packet as it is at that action, `key` its key there.
    fn action(&self, worker: WorkerId, now: Nanos, packet: Packet, key: &DpKey, what: &Userspace);
}
