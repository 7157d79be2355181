//! Layer 2 state machines: what a switch learns and the protocols that guard it. Time is passed in.

pub mod bfd;
pub mod mac;

pub use mac::{Learn, Learned, MacEntry, MacStats, MacTable, VlanSet};
