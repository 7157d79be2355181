//! The whole switch as a library: built from a clock, options and streams.

mod commands;
mod datapaths;
mod db;
mod embedded;
mod engine;
mod hostroutes;
mod hoststats;
mod latency;
mod offload;
mod openflow;
pub mod options;
mod pmd;
mod poll_worker;
mod protocols;
mod report;
mod run;
mod threads;
mod tunnels;
mod vhost;
mod vport;
mod world;

pub use options::{DummyMode, SslOptions, SwitchOptions};
pub use run::{Error, Switch, run};
pub use vhost::repair_fault;
