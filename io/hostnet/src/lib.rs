//! What the host's kernel knows about networking: links, addresses, routes, rules, neighbours, and
//! the operations that a switch performs on links. Speaks rtnetlink and ethtool directly.
//!
//! * [`Rtnl`]: requests and answers, in one network namespace (the caller's, or one given by fd).
//! * [`HostNet`]: a replica of the kernel's tables that follows its notifications. Only what is asked
//!   for in an [`Interest`] reaches the process: a filter in the kernel drops the rest, so that a
//!   routing daemon with a full table next door costs nothing.
//! * [`ethtool`]: speed, driver, offload features of a device.
//! * [`netns`]: sockets that belong to another namespace.
//!
//! Kernel answers are treated as hostile input: lengths are checked, nothing panics, every table has
//! a named limit.

mod error;
pub mod ethtool;
mod filter;
pub mod kinds;
mod monitor;
pub mod netns;
mod pieces;
mod routes;
mod rtnl;
mod socket;
mod store;
mod sys;
mod tables;
pub mod wire;

pub use error::Error;
pub use kinds::addr::{Addr, AddrKey};
pub use kinds::link::{Link, LinkStats, OperState};
pub use kinds::neigh::{Neigh, NeighKey};
pub use kinds::route::{NextHop, Route, RouteKey};
pub use kinds::rule::Rule;
pub use monitor::{HostNet, Stats, Turn};
pub use routes::RouteTable;
pub use rtnl::Rtnl;
pub use store::{Delta, Store};
pub use tables::{Interest, Kind, Neighbours, Tables};
