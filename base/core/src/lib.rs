//! Vocabulary that every plane shares: time, identifiers, counters, command tables.
//!
//! Nothing here knows packets, sockets or threads' owners.

pub mod command;
pub mod counter;
pub mod ids;
pub mod time;

pub use command::{Command, Registry, Reply};
pub use counter::Counter;
pub use ids::{Cookie, DpPort, OfPort, RecircId, TableId, Ufid};
pub use time::{Clock, Nanos};
