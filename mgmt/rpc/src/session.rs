//! A JSON-RPC connection that is kept up: stream, reconnect machine and framing in one.
//!
//! Echo requests are answered and echo replies swallowed here, so that the owner sees only its
//! own messages. `seqno` changes with each connection: a new number means that everything the
//! peer knew of us is gone.

use fv_core::Nanos;
use serde_json::Value;

use crate::jsonrpc::{Closed, Connection, Limits, Message};
use crate::poll::Poller;
use crate::reconnect::{Action, Cause, Reconnect};
use crate::stream::{DEFAULT_DSCP, DEFAULT_PORT, Listener, Stream, Tls, is_passive};

/// Id of our inactivity probes.
const ECHO_ID: &str = "echo";

pub struct Session {
    remotes: Vec<String>,
    next_remote: usize,
    tls: Tls,
    limits: Limits,
    dscp: u8,
    fsm: Reconnect,
    io: Wire,
    /// With the remote that asked for it.
    listener: Option<(String, Listener)>,
    seqno: u64,
}

enum Wire {
    None,
    Opening(Stream),
    Up(Box<Connection>),
}

impl Session {
    /// Keeps a connection to one of `remotes` (tried in turn), e.g. `tcp:127.0.0.1:6640`, or
    /// takes one connection at a time if a remote is passive.
    pub fn open(remotes: &[&str], tls: &Tls, limits: Limits, now: Nanos) -> Session {
        let name = remotes.first().copied().unwrap_or("void");
        let mut s = Session::new(name, tls, limits, now);
        s.remotes = remotes.iter().map(|r| r.to_string()).collect();
        s.fsm.set_backoff_free_tries(remotes.len() as u32);
        if !remotes.is_empty() {
            s.fsm.enable(now);
        }
        s
    }

    /// Takes over a connection that was accepted; when it ends, the session is dead.
    pub fn accepted(connection: Connection, now: Nanos) -> Session {
        let mut s = Session::new(connection.name(), &Tls::default(), Limits::default(), now);
        s.fsm.set_quiet(true);
        s.fsm.set_max_tries(Some(0));
        s.fsm.connected(now);
        s.io = Wire::Up(Box::new(connection));
        s.seqno = 1;
        s
    }

    fn new(name: &str, tls: &Tls, limits: Limits, now: Nanos) -> Session {
        Session {
            remotes: Vec::new(),
            next_remote: 0,
            tls: tls.clone(),
            limits,
            dscp: DEFAULT_DSCP,
            fsm: Reconnect::new(name, now),
            io: Wire::None,
            listener: None,
            seqno: 0,
        }
    }

    /// Everything that can be done now. Input is read before the time is judged, so that a
    /// thread that was late does not blame the peer.
    pub fn turn(&mut self, now: Nanos) {
        self.turn_listener(now);
        self.turn_io(now);
        match self.fsm.run(now) {
            Some(Action::Connect) => self.connect(now),
            Some(Action::Disconnect) => {
                self.io = Wire::None;
                self.fsm.disconnected(now, Cause::Ours);
            }
            Some(Action::Probe) => {
                let id = Value::from(ECHO_ID);
                self.send(&Message::Request { method: "echo".into(), params: vec![], id });
            }
            None => {}
        }
    }

    /// The next message that is not ours to handle.
    pub fn recv(&mut self) -> Option<Message> {
        loop {
            let Wire::Up(c) = &mut self.io else { return None };
            match c.recv()? {
                Message::Request { method, params, id } if method == "echo" => {
                    c.send(&Message::echo_reply(params, id));
                }
                Message::Reply { id, .. } | Message::Error { id, .. } if id == ECHO_ID => {}
                m => return Some(m),
            }
        }
    }

    /// False, and the message is lost, if there is no connection now.
    pub fn send(&mut self, m: &Message) -> bool {
        self.send_text(&m.to_text())
    }

    /// Like `send`, for text that is one message already.
    pub fn send_text(&mut self, text: &str) -> bool {
        match &mut self.io {
            Wire::Up(c) if c.closed().is_none() => {
                c.send_text(text);
                true
            }
            _ => false,
        }
    }

    pub fn want(&self, poller: &mut Poller, now: Nanos) {
        match &self.io {
            Wire::None => {}
            Wire::Opening(s) => s.want(poller, crate::Interest::NONE),
            Wire::Up(c) => c.want(poller),
        }
        if let Some((_, l)) = &self.listener {
            l.want(poller, now);
        }
        poller.wake_at(self.fsm.wake_at());
    }

    /// In place of `turn`, for an owner that takes no messages until output has moved.
    pub fn turn_output(&mut self, now: Nanos) {
        match &mut self.io {
            Wire::Up(c) if c.closed().is_none() => {
                c.turn_output();
                // A peer that reads slowly is not a silent one: its limit is the backlog.
                self.fsm.activity(now);
            }
            _ => self.turn(now),
        }
    }

    /// In place of `want`, with `turn_output`.
    pub fn want_output(&self, poller: &mut Poller, now: Nanos) {
        match &self.io {
            Wire::Up(c) if c.closed().is_none() => {
                c.want_output(poller);
                poller.wake_at(self.fsm.wake_at());
            }
            _ => self.want(poller, now),
        }
    }

    /// Drops the connection and makes a new one.
    pub fn force_reconnect(&mut self, now: Nanos) {
        self.fsm.force_reconnect(now);
    }

    /// Zero switches probing off.
    pub fn set_probe_interval(&mut self, interval: Nanos) {
        self.fsm.set_probe_interval(interval);
    }

    pub fn set_max_backoff(&mut self, max: Nanos) {
        self.fsm.set_backoff(Nanos::ZERO, max);
    }

    /// Holds for the next connection.
    pub fn set_dscp(&mut self, dscp: u8) {
        self.dscp = dscp;
    }

    pub fn fsm(&self) -> &Reconnect {
        &self.fsm
    }

    pub fn fsm_mut(&mut self) -> &mut Reconnect {
        &mut self.fsm
    }

    pub fn name(&self) -> &str {
        self.fsm.name()
    }

    /// Changes when a connection comes up and when it goes down.
    pub fn seqno(&self) -> u64 {
        self.seqno
    }

    pub fn is_connected(&self) -> bool {
        matches!(self.io, Wire::Up(_))
    }

    /// False if there will never be a connection again.
    pub fn is_alive(&self) -> bool {
        self.is_connected() || self.fsm.is_alive()
    }

    pub fn connection(&self) -> Option<&Connection> {
        match &self.io {
            Wire::Up(c) => Some(c),
            _ => None,
        }
    }

    /// Bytes that wait to be sent.
    pub fn backlog(&self) -> usize {
        self.connection().map_or(0, Connection::backlog)
    }

    fn turn_io(&mut self, now: Nanos) {
        match &mut self.io {
            Wire::None => {}
            Wire::Opening(s) => match s.connect() {
                Ok(false) => {}
                Ok(true) => {
                    let Wire::Opening(s) = std::mem::replace(&mut self.io, Wire::None) else { return };
                    self.up(s, now);
                    self.turn_io(now);
                }
                Err(e) => {
                    self.io = Wire::None;
                    self.fsm.connect_failed(now, Cause::Error(&crate::stream::errno_text(&e)));
                }
            },
            Wire::Up(c) => {
                let before = c.received_bytes();
                c.turn();
                if c.received_bytes() != before || c.pending() > 0 {
                    self.fsm.activity(now);
                }
                if c.pending() == 0
                    && let Some(why) = c.closed()
                {
                    let cause = match why {
                        Closed::Eof => Cause::Eof,
                        Closed::Io(e) => Cause::Error(e),
                        Closed::Protocol(_) => Cause::Error("Protocol error"),
                    };
                    self.fsm.disconnected(now, cause);
                    self.io = Wire::None;
                    self.seqno += 1;
                }
            }
        }
    }

    fn turn_listener(&mut self, now: Nanos) {
        let Some((_, l)) = &mut self.listener else { return };
        match l.accept(now) {
            Ok(None) => {}
            Ok(Some(s)) if matches!(self.io, Wire::None) => self.io = Wire::Opening(s),
            // The newest peer wins: an old connection may be one whose end nobody told us.
            Ok(Some(s)) => {
                self.fsm.disconnected(now, Cause::Ours);
                self.seqno += 1;
                self.io = Wire::Opening(s);
            }
            Err(e) => {
                self.listener = None;
                self.fsm.listen_error(now, &crate::stream::errno_text(&e));
            }
        }
    }

    fn up(&mut self, stream: Stream, now: Nanos) {
        self.fsm.connected(now);
        self.seqno += 1;
        self.io = Wire::Up(Box::new(Connection::new(stream, self.limits)));
    }

    fn connect(&mut self, now: Nanos) {
        self.io = Wire::None;
        let Some(remote) = self.remotes.get(self.next_remote).cloned() else { return };
        self.next_remote = (self.next_remote + 1) % self.remotes.len();
        self.fsm.set_name(&remote);
        let passive = is_passive(&remote);
        self.fsm.set_passive(passive, now);
        let failed = if passive {
            self.listen(&remote, now)
        } else {
            self.fsm.connecting(now);
            Stream::open(&remote, &self.tls, Some(DEFAULT_PORT), self.dscp).map(|s| self.io = Wire::Opening(s))
        };
        match failed {
            Ok(()) => self.turn_io(now),
            Err(e) => self.fsm.connect_failed(now, Cause::Error(&e.reason())),
        }
    }

    fn listen(&mut self, remote: &str, now: Nanos) -> Result<(), crate::stream::Error> {
        if self.listener.as_ref().is_none_or(|(r, _)| r != remote) {
            self.listener = None;
            let l = Listener::open(remote, &self.tls, Some(DEFAULT_PORT))?;
            self.listener = Some((remote.to_string(), l));
        }
        self.fsm.listening(now);
        Ok(())
    }
}
