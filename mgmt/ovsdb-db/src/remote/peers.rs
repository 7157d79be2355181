//! One remote of a server: a listener with what it accepted, or a connection that is kept up.

use super::LIMITS;
use crate::server::{ConnId, Now, Server};
use fv_core::Nanos;
use fv_ovsdb::Message;
use fv_rpc::reconnect::State;
use fv_rpc::stream::{DEFAULT_PORT, errno_text, is_passive};
use fv_rpc::{Connection, Interest, Listener, Poller, Session, Stream, Tls};

/// A handshake (TLS) that takes longer is given up.
const HANDSHAKE_MAX: Nanos = Nanos::from_secs(10);
/// A listener that could not be opened is tried again after this.
const LISTEN_RETRY: Nanos = Nanos::from_secs(1);
/// With more bytes than this unsent, messages wait in the server, which counts them.
const BACKLOG_HIGH: usize = 4 << 20;
/// Requests of one peer in a turn: a busy one does not keep the others waiting.
const REQUESTS_PER_TURN: usize = 4;

/// What the `Manager` table, or a command line, says of a remote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Options {
    /// Zero: no probes.
    pub probe: Nanos,
    pub max_backoff: Nanos,
    pub dscp: Option<u8>,
    /// Not from the database, and not to be removed because of it.
    pub fixed: bool,
}

impl Options {
    /// Peers on the same machine are not probed.
    pub fn for_target(target: &str) -> Options {
        let local = target.starts_with("unix:") || target.starts_with("punix:");
        let probe = if local { Nanos::ZERO } else { Nanos::from_secs(5) };
        Options { probe, max_backoff: Nanos::ZERO, dscp: None, fixed: false }
    }
}

struct Peer {
    session: Session,
    seqno: u64,
    conn: Option<ConnId>,
    /// It does not read what it has asked for: no more requests are taken from it.
    stalled: bool,
}

pub(super) struct Remote {
    target: String,
    options: Options,
    listener: Option<Listener>,
    /// The last failure to listen, and when to try again.
    error: Option<String>,
    retry_at: Nanos,
    handshakes: Vec<(Stream, Nanos)>,
    peers: Vec<Peer>,
    unwanted: bool,
}

impl Remote {
    fn new(target: &str, options: Options) -> Remote {
        Remote {
            target: target.to_owned(),
            options,
            listener: None,
            error: None,
            retry_at: Nanos::MAX,
            handshakes: Vec::new(),
            peers: Vec::new(),
            unwanted: false,
        }
    }

    /// The home of streams that were attached.
    pub fn attached() -> Remote {
        Remote::new("", Options { fixed: true, ..Options::for_target("unix:") })
    }

    pub fn open(target: &str, options: Options, tls: &Tls, now: Nanos) -> Remote {
        let mut r = Remote::new(target, options);
        if is_passive(target) {
            r.listen(tls, now);
        } else {
            let session = Session::open(&[target], tls, LIMITS, now);
            r.peers.push(Peer { session, seqno: 0, conn: None, stalled: false });
            r.set_options(options);
        }
        r
    }

    fn listen(&mut self, tls: &Tls, now: Nanos) {
        match Listener::open(&self.target, tls, Some(DEFAULT_PORT)) {
            Ok(l) => {
                self.listener = Some(l);
                self.error = None;
                self.retry_at = Nanos::MAX;
            }
            Err(e) => {
                let e = e.to_string();
                if self.error.as_ref() != Some(&e) {
                    log::error!(target: "ovsdb_jsonrpc_server", "{}: listen failed: {e}", self.target);
                }
                self.error = Some(e);
                self.retry_at = now.saturating_add(LISTEN_RETRY);
            }
        }
    }

    pub fn take_error(&mut self) -> Option<String> {
        self.error.take()
    }

    pub fn set_options(&mut self, options: Options) {
        self.options = options;
        for p in &mut self.peers {
            configure(&mut p.session, &options);
        }
    }

    pub fn options(&self) -> Options {
        self.options
    }

    pub fn set_unwanted(&mut self) {
        self.unwanted = true;
    }

    pub fn is_unwanted(&self) -> bool {
        self.unwanted
    }

    pub fn bound(&self) -> Option<std::net::SocketAddr> {
        self.listener.as_ref().and_then(Listener::local)
    }

    pub fn connection_count(&self) -> usize {
        self.handshakes.len() + self.peers.iter().filter(|p| p.session.is_connected()).count()
    }

    pub fn close(&mut self, server: &mut Server) {
        for p in self.peers.drain(..) {
            if let Some(c) = p.conn {
                server.connection_closed(c);
            }
        }
    }

    pub fn reconnect(&mut self, server: &mut Server, now: Nanos) {
        if is_passive(&self.target) {
            self.close(server);
        } else {
            self.peers.iter_mut().for_each(|p| p.session.force_reconnect(now));
        }
    }

    /// Takes over a stream.
    pub fn accept(&mut self, stream: Stream, now: Nanos) {
        let mut session = Session::accepted(Connection::new(stream, LIMITS), now);
        configure(&mut session, &self.options);
        self.peers.push(Peer { session, seqno: 0, conn: None, stalled: false });
    }

    /// New connections and their messages.
    pub fn receive(&mut self, server: &mut Server, tls: &Tls, room: &mut usize, now: Now) {
        if now.mono >= self.retry_at {
            self.listen(tls, now.mono);
        }
        self.accept_all(room, now.mono);
        self.shake_hands(now.mono);
        let is_active = self.listener.is_none() && !is_passive(&self.target) && !self.target.is_empty();
        self.peers.retain_mut(|p| {
            p.receive(server, now);
            let keep = is_active || p.session.is_alive();
            if let (false, Some(c)) = (keep, p.conn) {
                server.connection_closed(c);
            }
            keep
        });
    }

    fn accept_all(&mut self, room: &mut usize, now: Nanos) {
        let Some(listener) = &mut self.listener else { return };
        loop {
            match listener.accept(now) {
                Ok(None) => return,
                Ok(Some(stream)) if *room == 0 => {
                    log::warn!(target: "ovsdb_jsonrpc_server", "{}: too many connections, closing a new one", stream.name());
                }
                Ok(Some(stream)) => {
                    *room -= 1;
                    self.handshakes.push((stream, now.saturating_add(HANDSHAKE_MAX)));
                }
                Err(e) => {
                    log::warn!(target: "ovsdb_jsonrpc_server", "{}: accept failed: {}", self.target, errno_text(&e));
                    return;
                }
            }
        }
    }

    fn shake_hands(&mut self, now: Nanos) {
        for (mut stream, until) in std::mem::take(&mut self.handshakes) {
            match stream.connect() {
                Ok(true) => self.accept(stream, now),
                Ok(false) if now < until => self.handshakes.push((stream, until)),
                Ok(false) => log::warn!(target: "ovsdb_jsonrpc_server", "{}: handshake takes too long", stream.name()),
                Err(e) => {
                    log::warn!(target: "ovsdb_jsonrpc_server", "{}: handshake failed: {}", stream.name(), errno_text(&e))
                }
            }
        }
    }

    /// What the server has for the peers.
    pub fn send(&mut self, server: &mut Server, now: Nanos) {
        let is_active = !is_passive(&self.target) && !self.target.is_empty();
        self.peers.retain_mut(|p| {
            let Some(conn) = p.conn else { return true };
            while p.session.backlog() <= BACKLOG_HIGH
                && let Some(m) = server.next_outgoing(conn)
            {
                p.session.send_text(&m.to_string());
            }
            p.stalled = server.has_outgoing(conn);
            let Some(why) = server.close_reason(conn) else { return true };
            log::warn!(target: "ovsdb_jsonrpc_server", "{}: connection dropped ({why})", p.session.name());
            server.connection_closed(conn);
            p.conn = None;
            p.stalled = false;
            p.session.force_reconnect(now);
            is_active
        });
    }

    pub fn want(&self, poller: &mut Poller, now: Nanos) {
        if let Some(l) = &self.listener {
            l.want(poller, now);
        }
        if self.retry_at != Nanos::MAX {
            poller.wake_at(self.retry_at);
        }
        for (s, until) in &self.handshakes {
            s.want(poller, Interest::NONE);
            poller.wake_at(*until);
        }
        for p in &self.peers {
            if p.stalled {
                p.session.want_output(poller, now);
            } else {
                p.session.want(poller, now);
            }
        }
    }

    /// `is_connected` and `status` of the row in the `Manager` table.
    pub fn status(&self, server: &Server, now: Nanos) -> (bool, Vec<(String, String)>) {
        let mut status = Vec::new();
        let mut put = |k: &str, v: String| status.push((k.to_owned(), v));
        let connected = self.peers.iter().filter(|p| p.session.is_connected()).count();
        if let Some(p) = self.peers.first() {
            let fsm = p.session.fsm();
            if fsm.state() != State::Listening {
                put("state", fsm.state().to_string());
            }
            let stats = fsm.stats(now);
            let since = |t: Nanos| now.saturating_sub(t).secs().to_string();
            if let Some(t) = stats.last_connected {
                put("sec_since_connect", since(t));
            }
            if let Some(t) = stats.last_disconnected {
                put("sec_since_disconnect", since(t));
            }
            if let Some(conn) = p.conn {
                let (held, waiting) = server.locks_of(conn);
                for (k, names) in [("locks_held", held), ("locks_waiting", waiting)] {
                    if !names.is_empty() {
                        put(k, names.join(" "));
                    }
                }
            }
        }
        if connected > 1 {
            put("n_connections", connected.to_string());
        }
        if let Some(a) = self.bound() {
            put("bound_port", a.port().to_string());
        }
        if let Some(e) = &self.error {
            put("last_error", e.clone());
        }
        (connected > 0, status)
    }
}

impl Peer {
    fn receive(&mut self, server: &mut Server, now: Now) {
        if self.stalled {
            self.session.turn_output(now.mono);
        } else {
            self.session.turn(now.mono);
        }
        if self.session.seqno() != self.seqno {
            self.seqno = self.session.seqno();
            self.stalled = false;
            if let Some(old) = self.conn.take() {
                server.connection_closed(old);
            }
            if self.session.is_connected() {
                self.conn = Some(server.connection_opened());
            }
        }
        for _ in 0..REQUESTS_PER_TURN {
            let Some(conn) = self.conn.filter(|_| !self.stalled) else { return };
            let Some(m) = self.session.recv() else { return };
            server.handle_message(conn, from_rpc(m), now);
        }
    }
}

pub(super) fn from_rpc(m: fv_rpc::Message) -> Message {
    match m {
        fv_rpc::Message::Request { method, params, id } => Message::Request { id, method, params },
        fv_rpc::Message::Notify { method, params } => Message::Notification { method, params },
        fv_rpc::Message::Reply { result, id } => Message::Reply { id, result },
        fv_rpc::Message::Error { error, id } => Message::Error { id, error },
    }
}

fn configure(session: &mut Session, o: &Options) {
    session.set_probe_interval(o.probe);
    if o.max_backoff != Nanos::ZERO {
        session.set_max_backoff(o.max_backoff);
    }
    if let Some(d) = o.dscp {
        session.set_dscp(d);
    }
}
