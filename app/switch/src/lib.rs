//! The whole switch as a library: built from a clock, options and streams.

pub mod options;

pub use options::{DummyMode, SslOptions, SwitchOptions};
