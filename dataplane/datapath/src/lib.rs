//! The userspace datapath: receives packets, finds their flow, runs its program, sends them.
//!
//! A [`Dp`] is one datapath; threads own [`Worker`]s and call [`Worker::turn`]. It knows neither
//! OpenFlow nor any concrete device: devices come as [`fv_netdev::Device`], verdicts from a
//! [`fv_dpif::UpcallHandler`].

pub mod assign;
pub mod balance;
mod dp;
mod exec;
mod flow;
mod hash;
mod lookup;
mod main_worker;
mod parse;
mod ports;
mod registry;
mod shared;
mod simd;
mod trace;
pub mod tunnel;
mod usage;
mod worker;

pub use assign::{Policy, QueueDemand, Rules, WorkerKind, WorkerSlot, assign};
pub use balance::Limits;
pub use dp::{Deal, Dp, QueueInfo};
pub use lookup::CacheUse;
pub use usage::{INTERVALS, Usage};
pub use worker::mailbox::{Ack, Mailbox, Waker};
pub use worker::perf::{LogRules, Perf, Sample};
pub use worker::stats::{CacheChoice, QueueStats, Snapshot, Stat, Why, WorkerStats};
pub use worker::{TurnResult, Worker, WorkerHandle, WorkerLimits};

/// Parts that benches measure one by one. Not for use.
#[doc(hidden)]
pub mod inner {
    pub use crate::flow::Flow;
    pub use crate::lookup::{Ask, Burst, NONE, Probe, Table};
    pub use crate::simd::{Level, Simd};
}
