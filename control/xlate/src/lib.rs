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
mod group;
mod learn;
mod normal;
mod order;
mod output;
mod special;
mod table;
pub mod text;
pub mod trace;
mod tunnel;
mod vlan;

pub use ctx::{
    AskNeighbour, Credit, Effect, Frozen, Input, Looked, Output, Pushed, Start, XlateError, failed, translate,
};
pub use learn::flow_of as learned_flow;

fv_core::counters! {
    pub(crate) XLATE_ACTIONS = "xlate_actions",
}
