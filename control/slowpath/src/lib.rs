//! Misses, flow keys and revalidation: what keeps the datapath's flows equal to the model.
//!
//! [`Slowpath`] answers the datapath's upcalls by translation, remembers each installed flow with
//! what its packets count for, and on every round pulls statistics, retranslates flows that the
//! model's changes may concern, and removes idle ones. It starts no thread: `round` is called by one.

mod changes;
mod frozen;
mod held;
mod limit;
mod pull;
pub mod resume;
mod slowpath;
mod timers;
mod ukey;
mod upcall;

pub use frozen::FrozenStates;
pub use limit::{Config, Limit};
pub use pull::{PatchCounters, PatchStats};
pub use slowpath::{FlowLimitInfo, Slowpath};

fv_core::counters! {
    pub(crate) UPCALLS = "upcall_count",
    pub(crate) UNASSOCIATED_PORT = "upcall_unassociated_port",
    pub(crate) LIMIT_HIT = "upcall_flow_limit_hit",
    pub(crate) LIMIT_REDUCED = "upcall_flow_limit_reduced",
    pub(crate) LIMIT_SCALED = "upcall_flow_limit_scaled",
    pub(crate) LIMIT_GROWN = "upcall_flow_limit_grew",
    pub(crate) REVALIDATED = "revalidate_flows",
    pub(crate) DELETED_STALE = "revalidate_deleted_stale",
    pub(crate) MODIFIED = "revalidate_modified",
    pub(crate) EXPIRED = "revalidate_idle_expired",
    pub(crate) MISSING = "revalidate_missing_dp_flow",
    pub(crate) UKEY_REPLACED = "handler_duplicate_upcall",
    pub(crate) LEARN_OVERFLOW = "learn_overflow",
    pub(crate) HELD = "tunnel_packets_held",
    pub(crate) HELD_SENT = "tunnel_packets_held_sent",
    pub(crate) PACKET_IN_OVERFLOW = "packet_in_overflow",
}
