//! The asking side, for the operator's tool and tests. It blocks.

use std::path::Path;

use fv_core::{Clock, Nanos, Reply};
use serde_json::Value;

use crate::jsonrpc::{Closed, Connection, Limits, Message};
use crate::poll::{Interest, Poller};
use crate::stream::{Error, Stream, Tls};

/// Longest reply that is taken.
const LIMITS: Limits = Limits { message_bytes: 1 << 30, backlog_bytes: 64 << 20 };

#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("cannot connect: {0}")]
    Connect(#[from] Error),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("connection closed: {0}")]
    Closed(String),
    #[error("no answer in time")]
    Timeout,
    #[error("unexpected answer")]
    Unexpected,
}

/// Runs `command` in the process that listens at `path`. The inner result is the command's.
pub fn call(path: &Path, command: &str, args: &[&str], timeout: Nanos) -> Result<Reply, CallError> {
    let clock = Clock::new();
    let deadline = clock.now().saturating_add(timeout);
    let mut poller = Poller::new()?;
    let name = format!("unix:{}", path.display());
    let mut stream = Stream::open(&name, &Tls::default(), None, 0)?;
    while !stream.connect()? {
        stream.want(&mut poller, Interest::WRITE);
        poller.wait(Some(deadline), &clock)?;
        if clock.now() >= deadline {
            return Err(CallError::Timeout);
        }
    }
    let mut rpc = Connection::new(stream, LIMITS);
    let params = args.iter().map(|a| Value::from(*a)).collect();
    rpc.send(&Message::Request { method: command.into(), params, id: Value::from(0) });
    loop {
        rpc.turn();
        match rpc.recv() {
            Some(Message::Reply { result: Value::String(s), .. }) => return Ok(Ok(s)),
            Some(Message::Error { error: Value::String(s), .. }) => return Ok(Err(s)),
            Some(_) => return Err(CallError::Unexpected),
            None => {}
        }
        match rpc.closed() {
            Some(Closed::Eof) => return Err(CallError::Closed("end of file".into())),
            Some(Closed::Io(e) | Closed::Protocol(e)) => return Err(CallError::Closed(e.clone())),
            None => {}
        }
        if clock.now() >= deadline {
            return Err(CallError::Timeout);
        }
        rpc.want(&mut poller);
        poller.wait(Some(deadline), &clock)?;
    }
}
