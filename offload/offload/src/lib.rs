//! Hardware offload: what a NIC can do, which flows belong in its table, and the book of what is where.
//!
//! Nothing here knows a NIC or the datapath: [`Provider`] is what a NIC's driver implements, and the
//! datapath is met in `fv-dpif`. All of it is sans-IO: time comes in, moves and reports come out.

mod book;
pub mod caps;
pub mod order;
mod overlay;
pub mod provider;
pub mod rebalance;

pub use book::{PoolReport, WhySoft};
pub use caps::{ActionSet, Caps, FieldSet, Level, WhyNot};
pub use order::ProviderOrder;
pub use overlay::Overlay;
pub use provider::{Count, Op, OpKind, Outcome, Pool, PoolId, Provider, Report, Rule, RuleId, Treatment};
pub use rebalance::{FlowId, Move, Place, Rebalancer, Settings};
