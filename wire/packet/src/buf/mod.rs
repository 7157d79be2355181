//! Owned packet buffers, the pool that recycles them, and batches of them.

mod batch;
mod packet;
pub mod pool;

pub use batch::{BATCH_MAX, Batch, Drain};
pub use packet::{HEADROOM, Packet};
