//! What scenario tests stand on: a private place to run the daemon in, namespaces, bounded waits.
//!
//! Everything made here is gone when its value is dropped, also when the test panics.

mod env;
mod log;
mod net;
mod normal;
mod openflow;
mod proc;
pub mod vhost;
mod wait;
mod words;

pub use env::{Daemon, Env, REFERENCE, built};
pub use log::LogCheck;
pub use net::{Netns, Veth, ip, unique};
pub use normal::{normalise, sorted};
pub use openflow::{Answers, OfConn, hex, message};
pub use proc::{Out, Proc, run, signal};
pub use wait::{Deadline, wait_until, wait_value};
pub use words::words;
