//! The whole switch as a library: built from a clock, options and streams.

pub mod options;
mod run;

pub use options::{DummyMode, SslOptions, SwitchOptions};
pub use run::{Error, run};
