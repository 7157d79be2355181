//! Layer 2 state machines: what a switch learns and the protocols that guard it. Time is passed in.

pub mod bfd;
pub mod mac;
mod monitor;

pub use mac::{Learn, Learned, MacEntry, MacStats, MacTable, VlanSet};
pub use monitor::{BfdMatch, MonitorRef, Outcome, PortMonitor};

fv_core::counters! {
    pub(crate) BFD_BAD = "bfd_bad_packets",
}
