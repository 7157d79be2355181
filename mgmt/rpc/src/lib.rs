//! How the switch talks to its managers: event loop, byte streams, TLS, reconnecting, JSON-RPC and
//! the control socket, logging, and what makes a process a daemon.
//!
//! No async runtime: a thread that does I/O owns a [`poll::Poller`]; every object here is
//! non-blocking, says what it waits for, and is driven by `turn`.

pub mod daemon;
pub mod jsonrpc;
pub mod poll;
pub mod reconnect;
pub mod session;
pub mod stream;
mod sys;
pub mod unixctl;
pub mod vlog;

pub use jsonrpc::{Connection, Message};
pub use poll::{Interest, Poller, Waker};
pub use reconnect::Reconnect;
pub use session::Session;
pub use stream::{Acceptor, Listener, Stream, Tls};
