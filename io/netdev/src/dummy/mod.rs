//! Devices that exist in memory alone: tests inject packets, and read captures of what was sent.
//!
//! What a [`World`] makes it also finds again by name, for commands. Three types: `dummy` and
//! `dummy-internal`, which the control thread polls, and `dummy-pmd`, which poll workers do.

mod config;
mod device;
mod emulate;
mod queue;
mod stream;
mod world;

pub use device::{Dummy, InjectError};
pub use stream::ConnState;
pub use world::World;
