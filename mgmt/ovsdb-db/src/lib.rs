//! OVSDB for the switch: a client's replica, a server, and the durable file.
//!
//! `client` and `server` do no I/O; `log` owns a file; `remote` owns sockets. Nothing here starts a
//! thread or reads a clock.

pub mod client;
pub mod log;
pub mod remote;
pub mod server;
