//! The switch model of one bridge and its OpenFlow side, without I/O.
//!
//! [`Tables`] hold the rules; [`View`] is what translation reads: plain data, rebuilt by the one
//! writer and swapped as a whole.

pub mod rule;
pub mod tables;
pub mod view;

pub use rule::{Rule, RuleRef, RuleStats};
pub use tables::{N_TABLES, N_VISIBLE_TABLES, TABLE_INTERNAL, Table, Tables};
pub use view::{BridgeId, BridgeView, BundleView, PortView, PriorityTags, SharedView, View, VlanMode};
