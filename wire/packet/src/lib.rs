//! Packets as bytes: buffers, batches, headers, checksums, segmentation, rewriting.
//!
//! Knows no time, threads, sockets or flows. `unsafe` lives in the buffer module alone.

mod buf;
pub mod bytes;
pub mod compose;
pub mod csum;
mod csum_pseudo;
pub mod hdr;
mod meta;
pub mod mpls;
pub mod segment;
pub mod set;
pub mod vlan;
pub mod vnet;

pub use buf::pool;
pub use buf::{BATCH_MAX, Batch, Drain, HEADROOM, Packet};
pub use compose::Compose;
pub use csum::{finish_checksum, validate};
pub use meta::{Csum, Gso, GsoKind, Meta, NO_OFS};
pub use segment::{BadGso, L4Csum, segment};
pub use vnet::{BadOffload, VnetHdr, from_vnet_hdr, to_vnet_hdr};
