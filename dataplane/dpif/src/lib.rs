//! The contract between control plane and datapath: programs, flows, misses, statistics, drops.
//!
//! Control compiles OpenFlow to a [`Program`] and a mask; the datapath replays programs and asks an
//! [`UpcallHandler`] about packets that no flow covers. Neither side knows the other's insides.

pub mod action;
pub mod drop;
pub mod flow;
pub mod mark;
pub mod meter;
pub mod text;
pub mod tunnel;
pub mod upcall;

pub use action::{DpAction, Program, Userspace};
pub use drop::DropReason;
pub use flow::{Datapath, DpError, DpPortInfo, DpStats, FlowDump, FlowHandle, FlowPut, FlowStats, Retired, WorkerId};
pub use mark::{Marks, QueueProgress};
pub use meter::{Meter, MeterBand, MeterId, MeterUnit};
pub use tunnel::{TunnelKind, Vport};
pub use upcall::{UpcallHandler, Verdict};
