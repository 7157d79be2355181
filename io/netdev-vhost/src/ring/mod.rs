//! Virtqueues (virtio 1.2, sections 2.7 and 2.8) from the device's side, for network devices.
//!
//! A ring object belongs to one thread and knows no sockets or workers: it turns what a guest offers into
//! packets ([`RxRing`]) and packets into what the guest asked for ([`TxRing`]). The guest owns the memory and
//! may write anything at any time, so each descriptor, index and header is read once into a local copy, checked,
//! and only the copy is used; guest memory is touched through raw pointers and atomics alone, never through
//! references to bytes. What no driver may do is a [`Fault`]: the ring delivers what came before, returns the
//! buffers that it had taken, and stops for good.
//!
//! Bursts go in stages, each of which asks for the memory that the next one needs: indices, descriptors, payload.
//! The indices that the guest sees move once a burst, with release ordering.

mod copy;
mod counts;
mod desc;
mod features;
mod log;
mod mem;
mod packed;
mod rx;
mod split;
mod tx;
mod vq;

pub use counts::{Counts, Fault};
pub use features::{Features, feature};
pub use log::DirtyLog;
pub use mem::{GuestMap, Span};
pub use rx::RxRing;
pub use tx::TxRing;
pub use vq::{Base, Parts, Setup};
