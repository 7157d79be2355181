//! Packets as bytes: buffers, batches, headers, checksums, segmentation, rewriting.
//!
//! Knows no time, threads, sockets or flows. `unsafe` lives in [`buf`] alone.

mod buf;
mod meta;

pub use buf::pool;
pub use buf::{BATCH_MAX, Batch, Drain, HEADROOM, Packet};
pub use meta::{Csum, Gso, GsoKind, Meta, NO_OFS};
