//! Translation: (model version, packet's key) -> program + mask + effects. A value comes back; no
//! datapath, device, socket or lock that could be waited on for long is held.
//!
//! One file per action family. [`translate`] is the entry.

mod actions;
mod check_pkt_len;
mod choose;
pub mod commit;
mod controller;
mod ctx;
mod fields;
mod finish;
mod learn;
mod normal;
mod order;
mod output;
mod table;
pub mod text;
pub mod trace;
mod vlan;

pub use ctx::{Credit, Effect, Frozen, Input, Output, Start, XlateError, translate};
pub use learn::flow_of as learned_flow;

fv_core::counters! {
    pub(crate) DROP_BRIDGE_NOT_FOUND = "drop_action_bridge_not_found",
    pub(crate) DROP_RECURSION = "drop_action_recursion_too_deep",
    pub(crate) DROP_RESUBMITS = "drop_action_too_many_resubmit",
    pub(crate) DROP_STACK = "drop_action_stack_too_deep",
    pub(crate) DROP_NO_RECIRC_CONTEXT = "drop_action_no_recirculation_context",
    pub(crate) DROP_RECIRC_CONFLICT = "drop_action_recirculation_conflict",
    pub(crate) DROP_MPLS_LABELS = "drop_action_too_many_mpls_labels",
    pub(crate) DROP_TUNNEL_METADATA = "drop_action_invalid_tunnel_metadata",
    pub(crate) DROP_PACKET_TYPE = "drop_action_unsupported_packet_type",
    pub(crate) DROP_CONGESTION = "drop_action_congestion",
    pub(crate) DROP_FORWARDING_DISABLED = "drop_action_forwarding_disabled",
    pub(crate) XLATE_ACTIONS = "xlate_actions",
}
