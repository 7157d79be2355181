//! Packet headers as flows: keys, masks, the one table of match fields, extraction, text.

pub mod compose;
pub mod extract;
pub mod field;
pub mod hash;
pub mod key;
pub mod matching;
pub mod odp;
pub mod packed;
pub mod text;
pub mod tun_table;

pub use compose::{compose, compose_len};
pub use extract::{Extra, Offsets, TunnelKey, extract};
pub use field::{Field, FieldInfo, FieldValue, Subfield, TunLayout, TunOption};
pub use key::{DpKey, DpMask, FlowKey, FlowMask, Match, Vlan};
pub use packed::Packed;
pub use tun_table::TunTable;
