//! The guest's side of a virtqueue, for tests, benches and fuzzing: memory, and a driver that offers buffers in
//! any legal way, or in none.
#![allow(dead_code, unused_imports, unsafe_code)]

pub mod driver;
pub mod memory;

pub use driver::{Buffer, Driver, Used};
pub use memory::Memory;
