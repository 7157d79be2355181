//! Flows and the datapath as the control plane sees them.

use std::sync::Arc;

use fv_core::{DpPort, Nanos, Ufid};
use fv_flow::{DpKey, DpMask};
use fv_packet::Packet;

use crate::action::Program;
use crate::mark::{Marks, QueueProgress};
use crate::upcall::UpcallHandler;

/// A worker as commands name it: a core number, or the main thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkerId(pub i32);

impl WorkerId {
    /// The control thread's own worker ("main thread", pmd -1).
    pub const MAIN: WorkerId = WorkerId(-1);
}

/// What a flow has forwarded.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FlowStats {
    pub packets: u64,
    pub bytes: u64,
    /// Time of the last packet; None: never.
    pub used: Option<Nanos>,
    /// OR of the TCP flags seen.
    pub tcp_flags: u16,
}

/// A flow as `flow_dump` and `flow_get` report it.
#[derive(Clone, Debug)]
pub struct FlowDump {
    pub ufid: Ufid,
    pub key: DpKey,
    pub mask: DpMask,
    pub program: Arc<Program>,
    pub stats: FlowStats,
    /// The worker under whose header the flow is shown.
    pub worker: WorkerId,
    pub offloaded: bool,
    /// "ovs", or an offload provider's name.
    pub layer: &'static str,
}

/// A flow to create or to change.
#[derive(Clone, Debug)]
pub struct FlowPut {
    pub key: DpKey,
    pub mask: DpMask,
    pub program: Arc<Program>,
    /// None: derived from key and mask.
    pub ufid: Option<Ufid>,
    pub create: bool,
    pub modify: bool,
    /// None: every worker.
    pub worker: Option<WorkerId>,
}

/// A datapath-wide view of counters.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct DpStats {
    pub hit: u64,
    pub missed: u64,
    pub lost: u64,
    /// Distinct megaflows.
    pub flows: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DpPortInfo {
    pub port: DpPort,
    pub name: String,
    /// Interface type as shown by `dpctl/show`.
    pub kind: String,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DpError {
    #[error("No such file or directory")]
    NotFound,
    #[error("File exists")]
    Exists,
    #[error("Invalid argument")]
    Invalid,
    #[error("No space left on device")]
    NoSpace,
    #[error("No such device")]
    NoSuchPort,
    #[error("{0}")]
    Other(String),
}

/// A flow's counters, at hand for whoever looks at them all the time.
pub trait FlowHandle: Send + Sync {
    fn stats(&self) -> FlowStats;
}

/// Gets a deleted flow's final statistics.
pub type Retired = Box<dyn FnOnce(FlowStats) + Send>;

/// What the slow path and the commands need of a datapath. Callable from any thread; every call is
/// short, except dumps, which hold no lock between items.
pub trait Datapath: Send + Sync {
    /// E.g. `ovs-netdev`.
    fn name(&self) -> &str;
    /// E.g. `netdev`.
    fn kind(&self) -> &str;
    fn set_upcall_handler(&self, h: Option<Arc<dyn UpcallHandler>>);

    /// Ports by number.
    fn ports(&self) -> Vec<DpPortInfo>;

    /// Ok(stats of the flow that was there before, if any).
    fn flow_put(&self, put: FlowPut) -> Result<Option<FlowStats>, DpError>;
    /// Takes effect before it returns; Ok(final statistics).
    fn flow_del(&self, ufid: Ufid) -> Result<FlowStats, DpError>;
    /// As `flow_del`, for flows that hardware forwards too: `done` is called with the final statistics when
    /// these are known, by whatever thread; at once where there is no hardware.
    fn flow_retire(&self, ufid: Ufid, done: Retired) -> Result<(), DpError> {
        self.flow_del(ufid).map(done)
    }
    fn flow_get(&self, ufid: Ufid) -> Option<FlowDump>;
    fn flow_handle(&self, ufid: Ufid) -> Option<Arc<dyn FlowHandle>>;
    /// Calls `f` for each flow until it returns false. Flows added or removed meanwhile may or may not be seen.
    fn flow_dump(&self, f: &mut dyn FnMut(FlowDump) -> bool);
    /// As `flow_dump`, of names and statistics alone.
    fn flow_stats(&self, f: &mut dyn FnMut(Ufid, &FlowStats) -> bool) {
        self.flow_dump(&mut |flow| f(flow.ufid, &flow.stats));
    }
    fn flow_flush(&self);
    fn flow_count(&self) -> usize;

    /// Runs a program on one packet as worker MAIN; `key` must be the packet's own key.
    fn execute(&self, packet: Packet, key: &DpKey, program: &Program);

    fn stats(&self) -> DpStats;

    // What marks need.

    /// Packets with marks are looked up by them, from now on.
    fn set_marks(&self, marks: Arc<Marks>);
    /// How far each receive queue is.
    fn rx_progress(&self) -> Vec<QueueProgress>;
    /// Has every receive queue looked into soon, also those that have nothing.
    fn look_into_queues(&self);
}
