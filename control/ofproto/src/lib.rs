//! The switch model of one bridge and its OpenFlow side, without I/O.
//!
//! [`Tables`] hold the rules; [`View`] is what translation reads: plain data, rebuilt by the one
//! writer and swapped as a whole.

mod bridge;
mod bundle;
mod commit;
pub mod conn;
mod dp_hash;
pub mod dump;

mod dp_features;
mod features;
mod flow_mod;
pub mod group;
mod handle;
pub mod host;
pub mod learn;
pub mod meter;
mod monitor;
pub mod packet_in;
mod port;
pub mod rule;
pub mod snapshot;
pub mod tables;
#[cfg(test)]
mod tests;
mod tlv;
mod turn;
mod users;
pub mod view;

pub use bridge::{Ofproto, Settings};
pub use conn::{Closed, ConnId, Connection, ControllerSpec, Kind};
pub use dp_features::DpFeatures;
pub use dp_hash::{DpHash, DpHashAlg};
pub use dump::flow_stats;
pub use group::{Group, GroupBucket, Groups};
pub use host::Host;
pub use meter::{Meter, Meters};
pub use packet_in::{PacketInJob, PacketInQueue};
pub use port::PortSpec;
pub use rule::{Rule, RuleRef, RuleStats};
pub use snapshot::Snapshot;
pub use tables::{N_TABLES, N_VISIBLE_TABLES, TABLE_INTERNAL, Table, TableSpec, Tables};
pub use turn::Turn;
pub use view::{BridgeId, BridgeView, BundleView, PortView, PriorityTags, SharedView, View, VlanMode};
