//! Packet headers as flows: keys, masks, the one table of match fields, extraction, text.

pub mod key;

pub use key::{DpKey, DpMask, FlowKey, FlowMask, Match, Vlan};
