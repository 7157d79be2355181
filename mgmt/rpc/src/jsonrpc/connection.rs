//! One JSON-RPC connection over a stream, with bounds on what waits in either direction.

use std::collections::VecDeque;
use std::io;

use super::{Framer, Message};
use crate::poll::{Interest, Poller};
use crate::stream::{Stream, errno_text};

/// Bytes taken from the socket at once.
const READ_SIZE: usize = 16 * 1024;
/// Reads of one turn: a fast sender does not keep the thread from the others.
const READS_PER_TURN: usize = 16;
/// Messages that wait for `recv`; with more, the socket is left alone.
const MESSAGES_MAX: usize = 64;
/// The same in bytes of text: several long messages do not pile up.
const PENDING_BYTES_MAX: usize = 1 << 20;

/// Bounds of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest message that is taken; a longer one closes the connection.
    pub message_bytes: usize,
    /// Output that may wait for a slow peer; more closes the connection.
    pub backlog_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { message_bytes: 128 << 20, backlog_bytes: 256 << 20 }
    }
}

/// Why a connection ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Closed {
    Eof,
    /// The system's words.
    Io(String),
    /// The peer sent what is no JSON-RPC, or more than a limit; or does not read what we send.
    Protocol(String),
}

pub struct Connection {
    stream: Stream,
    framer: Framer,
    limits: Limits,
    /// With the length of each.
    received: VecDeque<(Message, usize)>,
    pending_bytes: usize,
    out: VecDeque<u8>,
    closed: Option<Closed>,
    received_bytes: u64,
}

impl Connection {
    pub fn new(stream: Stream, limits: Limits) -> Connection {
        Connection {
            stream,
            framer: Framer::new(limits.message_bytes),
            limits,
            received: VecDeque::new(),
            pending_bytes: 0,
            out: VecDeque::new(),
            closed: None,
            received_bytes: 0,
        }
    }

    /// Moves bytes in both directions. Call it each turn, before `recv`.
    pub fn turn(&mut self) {
        if self.closed.is_none() {
            self.flush();
        }
        let mut buf = [0; READ_SIZE];
        for _ in 0..READS_PER_TURN {
            let full = self.received.len() >= MESSAGES_MAX || self.pending_bytes > PENDING_BYTES_MAX;
            if self.closed.is_some() || full {
                return;
            }
            match self.stream.read(&mut buf) {
                Ok(0) => self.end_of_stream(),
                Ok(n) => self.take(&buf[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) => {
                    log::warn!(target: "jsonrpc", "{}: receive error: {}", self.name(), errno_text(&e));
                    self.closed = Some(Closed::Io(errno_text(&e)));
                }
            }
        }
    }

    /// The next message. Those received before the end are still delivered after it.
    pub fn recv(&mut self) -> Option<Message> {
        let (m, bytes) = self.received.pop_front()?;
        self.pending_bytes -= bytes;
        Some(m)
    }

    /// Queues a message and sends what goes now. On a closed connection it is dropped.
    pub fn send(&mut self, m: &Message) {
        self.send_text(&m.to_text());
    }

    /// Like `send`, for text that is one message already.
    pub fn send_text(&mut self, text: &str) {
        if self.closed.is_some() {
            return;
        }
        if self.out.len().saturating_add(text.len()) > self.limits.backlog_bytes {
            log::warn!(
                target: "jsonrpc",
                "{}: {} bytes wait for a peer that does not read, disconnecting",
                self.name(),
                self.out.len()
            );
            self.out.clear();
            self.closed = Some(Closed::Protocol("output backlog is too long".into()));
            return;
        }
        self.out.extend(text.as_bytes());
        self.flush();
    }

    /// Ends the connection from our side, as after a message that makes no sense.
    pub fn close(&mut self, why: Closed) {
        self.closed.get_or_insert(why);
    }

    pub fn want(&self, poller: &mut Poller) {
        if !self.received.is_empty() || self.closed.is_some() {
            poller.wake_now();
            return;
        }
        self.stream.want(poller, Interest { read: true, write: !self.out.is_empty() });
    }

    /// Like `want`, for an owner that does not call `turn` and `recv` before something else has
    /// happened: only output moves.
    pub fn want_output(&self, poller: &mut Poller) {
        if !self.out.is_empty() && self.closed.is_none() {
            self.stream.want(poller, Interest::WRITE);
        }
    }

    /// Sends what goes now, reading nothing.
    pub fn turn_output(&mut self) {
        if self.closed.is_none() {
            self.flush();
        }
    }

    /// Set once, when the connection has ended. Messages may still wait in `recv`.
    pub fn closed(&self) -> Option<&Closed> {
        self.closed.as_ref()
    }

    /// Bytes that wait to be sent.
    pub fn backlog(&self) -> usize {
        self.out.len()
    }

    /// Messages that wait for `recv`.
    pub fn pending(&self) -> usize {
        self.received.len()
    }

    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    pub fn name(&self) -> &str {
        self.stream.name()
    }

    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    fn take(&mut self, mut input: &[u8]) {
        self.received_bytes += input.len() as u64;
        while !input.is_empty() && self.closed.is_none() {
            let message = match self.framer.feed(&mut input) {
                Ok(None) => continue,
                Ok(Some(text)) => Message::from_slice(&text).map(|m| (m, text.len())),
                Err(e) => Err(e.to_string()),
            };
            match message {
                Ok((m, bytes)) => {
                    self.received.push_back((m, bytes));
                    self.pending_bytes += bytes;
                }
                Err(e) => {
                    log::warn!(target: "jsonrpc", "{}: received bad JSON-RPC message: {e}", self.name());
                    self.closed = Some(Closed::Protocol(e));
                }
            }
        }
    }

    fn end_of_stream(&mut self) {
        if self.framer.is_partial() {
            log::warn!(target: "jsonrpc", "{}: connection closed in the middle of a message", self.name());
        }
        self.closed = Some(Closed::Eof);
    }

    fn flush(&mut self) {
        while !self.out.is_empty() {
            match self.stream.write(self.out.as_slices().0) {
                Ok(n) => {
                    self.out.drain(..n);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => {
                    log::warn!(target: "jsonrpc", "{}: send error: {}", self.name(), errno_text(&e));
                    self.out.clear();
                    self.closed = Some(Closed::Io(errno_text(&e)));
                    return;
                }
            }
        }
        self.stream.turn();
    }
}
