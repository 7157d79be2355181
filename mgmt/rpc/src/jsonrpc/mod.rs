//! JSON-RPC 1.0 over a byte stream: messages are JSON objects one after the other, with nothing
//! between them.

mod connection;
mod frame;
mod message;

pub use connection::{Closed, Connection, Limits};
pub use frame::{FrameError, Framer, MAX_DEPTH};
pub use message::Message;
