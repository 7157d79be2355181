//! The serving side: hands out one request per connection at a time; its reply may come later.

use std::collections::BTreeMap;
use std::path::Path;

use fv_core::{Nanos, Reply};
use serde_json::{Value, json};

use crate::jsonrpc::{Closed, Connection, Limits, Message};
use crate::poll::Poller;
use crate::stream::{Error, Listener, Tls};

/// Connections at a time. With more, the oldest that has asked for nothing gives way, so that
/// peers who leave theirs open do not lock everybody out.
const CONNECTIONS_MAX: usize = 512;
/// Connections accepted in one turn.
const ACCEPTS_PER_TURN: usize = 16;
/// Longest request. Replies are as long as they are: one at a time, to a local peer.
const LIMITS: Limits = Limits { message_bytes: 8 << 20, backlog_bytes: usize::MAX };

/// Where the reply to a request goes. If that connection is gone, the reply is dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnToken(u64);

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    pub token: ConnToken,
    pub command: String,
    pub args: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    Text,
    Json,
}

struct Conn {
    rpc: Connection,
    format: Format,
    /// Id of the request that has no reply yet.
    pending: Option<Value>,
}

pub struct Server {
    /// None once it is closed for new connections.
    listener: Option<Listener>,
    conns: BTreeMap<ConnToken, Conn>,
    next: u64,
}

impl Server {
    /// Listens at `path`.
    pub fn open(path: &Path) -> Result<Server, Error> {
        let name = format!("punix:{}", path.display());
        let listener = Listener::open(&name, &Tls::default(), None).inspect_err(|e| {
            log::warn!(target: "unixctl", "could not initialize control socket {}: {e}", path.display());
        })?;
        Ok(Server { listener: Some(listener), conns: BTreeMap::new(), next: 0 })
    }

    /// The requests that have come. Each is to be answered with `reply`, sooner or later: a
    /// connection waits for its reply before its next request is looked at.
    #[must_use = "a request that is lost leaves its peer waiting for ever"]
    pub fn turn(&mut self, now: Nanos) -> Vec<Request> {
        self.accept(now);
        let mut requests = Vec::new();
        for (&token, conn) in &mut self.conns {
            if conn.pending.is_some() {
                conn.rpc.turn_output();
                continue;
            }
            conn.rpc.turn();
            while conn.pending.is_none() {
                match conn.rpc.recv() {
                    None => break,
                    Some(Message::Request { method, params, id }) => {
                        conn.pending = Some(id);
                        requests.extend(conn.request(token, method, params));
                    }
                    Some(_) => {
                        log::warn!(target: "unixctl", "{}: received unexpected message", conn.rpc.name());
                        conn.rpc.close(Closed::Protocol("unexpected message".into()));
                    }
                }
            }
        }
        self.conns.retain(|_, c| c.rpc.closed().is_none() || c.rpc.pending() > 0);
        requests
    }

    /// Answers the request of `token`. `Err` is the protocol's error.
    pub fn reply(&mut self, token: ConnToken, reply: Reply) {
        if let Some(c) = self.conns.get_mut(&token) {
            c.reply(reply);
        }
    }

    /// Sends what goes now of replies already given; takes no requests.
    pub fn flush(&mut self) {
        self.conns.values_mut().for_each(|c| c.rpc.turn_output());
    }

    pub fn want(&self, poller: &mut Poller, now: Nanos) {
        let room = self.conns.len() < CONNECTIONS_MAX || self.conns.values().any(Conn::is_idle);
        if let Some(l) = self.listener.as_ref().filter(|_| room) {
            l.want(poller, now);
        }
        for c in self.conns.values() {
            match c.pending {
                Some(_) => c.rpc.want_output(poller),
                None => c.rpc.want(poller),
            }
        }
    }

    /// Takes no more connections and removes the socket; open ones go on, so that the reply to
    /// `exit` still leaves.
    pub fn close_listener(&mut self) {
        self.listener = None;
    }

    /// True while replies are on their way out.
    pub fn has_output(&self) -> bool {
        self.conns.values().any(|c| c.rpc.backlog() > 0)
    }

    fn accept(&mut self, now: Nanos) {
        let Some(l) = &mut self.listener else { return };
        for _ in 0..ACCEPTS_PER_TURN {
            let full = self.conns.len() >= CONNECTIONS_MAX;
            let idle = self.conns.iter().find(|(_, c)| c.is_idle()).map(|(t, _)| *t);
            if full && idle.is_none() {
                return;
            }
            match l.accept(now) {
                Ok(None) => return,
                Ok(Some(stream)) => {
                    if let Some(t) = idle.filter(|_| full) {
                        self.conns.remove(&t);
                    }
                    self.next += 1;
                    let rpc = Connection::new(stream, LIMITS);
                    self.conns.insert(ConnToken(self.next), Conn { rpc, format: Format::Text, pending: None });
                }
                Err(e) => {
                    log::warn!(target: "unixctl", "accept failed: {}", crate::stream::errno_text(&e));
                    return;
                }
            }
        }
    }
}

impl Conn {
    /// Nobody here waits for anything of ours.
    fn is_idle(&self) -> bool {
        self.pending.is_none() && self.rpc.pending() == 0 && self.rpc.backlog() == 0
    }

    /// The request for the application, unless it is answered here.
    fn request(&mut self, token: ConnToken, command: String, params: Vec<Value>) -> Option<Request> {
        let args: Option<Vec<String>> = params
            .into_iter()
            .map(|p| match p {
                Value::String(s) => Some(s),
                _ => None,
            })
            .collect();
        let Some(args) = args else {
            self.reply(Err(format!("\"{command}\" command has non-string argument")));
            return None;
        };
        let id = self.pending.clone().unwrap_or_default();
        log::debug!(target: "unixctl", "received request {command}{args:?}, id={id}");
        if command == "set-options" {
            let reply = self.set_options(&args);
            self.reply(reply);
            return None;
        }
        Some(Request { token, command, args })
    }

    fn set_options(&mut self, args: &[String]) -> Reply {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let value = match args[..] {
            [] => return Err("\"set-options\" command requires at least 1 arguments".into()),
            ["--format", v] => v,
            ["--format"] => return Err("option requires an argument -- --format".into()),
            [o] if o.starts_with("--format=") => &o["--format=".len()..],
            [_, _, _, ..] => return Err("\"set-options\" command takes at most 2 arguments".into()),
            [o, ..] => return Err(format!("unrecognized option '{o}'")),
        };
        self.format = match value {
            "text" => Format::Text,
            "json" => Format::Json,
            v => return Err(format!("option format has invalid value {v}")),
        };
        Ok(String::new())
    }

    fn reply(&mut self, reply: Reply) {
        let Some(id) = self.pending.take() else { return };
        // Commands write whole lines; peers print what they get.
        let whole = |mut s: String| {
            if !s.is_empty() && !s.ends_with('\n') {
                s.push('\n');
            }
            s
        };
        let m = match (reply, self.format) {
            (Ok(s), Format::Text) => Message::Reply { result: Value::from(whole(s)), id },
            (Ok(s), Format::Json) => Message::Reply { result: json!({"reply": whole(s), "reply-format": "plain"}), id },
            (Err(s), _) => Message::Error { error: Value::from(whole(s)), id },
        };
        self.rpc.send(&m);
    }
}
