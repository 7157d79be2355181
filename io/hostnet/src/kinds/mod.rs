//! The kernel's objects as plain values, one file per kind: constants, value, parser.

pub mod addr;
pub mod link;
pub mod neigh;
pub mod route;
pub mod rule;
