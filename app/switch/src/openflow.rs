//! The sockets of a bridge's OpenFlow side: `<bridge>.mgmt`, `<bridge>.snoop`, and its controllers.

use std::collections::BTreeMap;
use std::path::Path;

use fv_config::ControllerSpec;
use fv_core::Nanos;
use fv_ofproto::Ofproto;
use fv_ofproto::conn::{Closed, ConnId, ControllerSpec as OfController, Kind};
use fv_rpc::poll::SourceId;
use fv_rpc::reconnect::{Action, Cause, Reconnect};
use fv_rpc::stream::{errno_text, is_passive};
use fv_rpc::{Interest, Listener, Poller, Stream, Tls};

/// Port of `tcp:` and `ssl:` targets that name none.
const OPENFLOW_PORT: u16 = 6653;
/// The shortest time after which a silent controller is probed.
const MIN_PROBE_S: u64 = 5;
/// Bytes read from one connection in one turn.
const READ_PER_TURN: usize = 64 << 10;
/// Accepted connections of one bridge; more wait in the kernel's backlog.
const MAX_ACCEPTED: usize = 256;

struct Accepted {
    stream: Stream,
    /// None while a TLS handshake is going on.
    conn: Option<ConnId>,
    kind: Kind,
    name: String,
}

struct Active {
    fsm: Reconnect,
    stream: Option<Stream>,
    conn: Option<ConnId>,
    target: String,
    kind: Kind,
    last_error: Option<String>,
}

/// What a listener's connections are.
struct Listening {
    listener: Listener,
    kind: Kind,
    name: String,
}

pub struct BridgeIo {
    listeners: Vec<Listening>,
    accepted: Vec<Accepted>,
    active: BTreeMap<String, Active>,
    /// Targets that could not be listened on, and when to try again.
    failed: BTreeMap<String, Nanos>,
    specs: Vec<ControllerSpec>,
    tls: Tls,
}

impl BridgeIo {
    /// Opens the management and snoop sockets; one that cannot be opened is logged.
    pub fn open(bridge: &str, rundir: &Path) -> BridgeIo {
        let tls = Tls::default();
        let mut listeners = Vec::new();
        for (suffix, kind) in [("mgmt", Kind::Service), ("snoop", Kind::Snoop)] {
            let name = format!("punix:{}/{bridge}.{suffix}", rundir.display());
            match Listener::open(&name, &tls, None) {
                Ok(listener) => listeners.push(Listening { listener, kind, name }),
                Err(e) => log::error!(target: "connmgr", "failed to listen on {name}: {e}"),
            }
        }
        BridgeIo {
            listeners,
            accepted: Vec::new(),
            active: BTreeMap::new(),
            failed: BTreeMap::new(),
            specs: Vec::new(),
            tls,
        }
    }

    /// Takes over the configured targets: listens on passive ones, keeps active ones connected.
    pub fn set_controllers(&mut self, specs: &[ControllerSpec], tls: &Tls, of: &mut Ofproto, now: Nanos) {
        self.tls = tls.clone();
        self.specs = specs.to_vec();
        let (passive, active): (Vec<_>, Vec<_>) = specs.iter().partition(|s| is_passive(&s.target));
        self.listeners.retain(|l| {
            l.name.starts_with("punix:") && (l.name.ends_with(".mgmt") || l.name.ends_with(".snoop"))
                || passive.iter().any(|s| s.target == l.name)
        });
        self.failed.clear();
        self.listen(now);
        of.set_controllers(specs.iter().map(controller).collect(), now);
        let gone: Vec<String> =
            self.active.keys().filter(|t| !active.iter().any(|s| s.target == **t)).cloned().collect();
        for t in gone {
            if let Some(id) = self.active.remove(&t).and_then(|a| a.conn) {
                of.disconnect(id);
            }
        }
        for s in active {
            let a = self.active.entry(s.target.clone()).or_insert_with(|| {
                let mut fsm = Reconnect::new(&s.target, now);
                fsm.set_probe_interval(Nanos::ZERO);
                fsm.enable(now);
                let kind = if s.service { Kind::Service } else { Kind::Primary };
                Active { fsm, stream: None, conn: None, target: s.target.clone(), kind, last_error: None }
            });
            a.fsm.set_backoff(Nanos::from_secs(1), Nanos::from_ms(u64::from(s.max_backoff_ms)));
        }
    }

    fn listen(&mut self, now: Nanos) {
        for s in self.specs.iter().filter(|s| is_passive(&s.target)) {
            let open = self.listeners.iter().any(|l| l.name == s.target);
            if open || self.failed.get(&s.target).is_some_and(|at| *at > now) {
                continue;
            }
            match Listener::open(&s.target, &self.tls, Some(OPENFLOW_PORT)) {
                Ok(listener) => {
                    self.failed.remove(&s.target);
                    self.listeners.push(Listening { listener, kind: Kind::Service, name: s.target.clone() });
                }
                Err(e) => {
                    if self.failed.insert(s.target.clone(), now + Nanos::from_secs(8)).is_none() {
                        log::error!(target: "connmgr", "failed to listen on {}: {e}", s.target);
                    }
                }
            }
        }
    }

    /// Moves bytes both ways. `of.turn` comes afterwards.
    pub fn turn(&mut self, of: &mut Ofproto, ready: &[SourceId], now: Nanos) {
        self.listen(now);
        self.accept(ready, now);
        self.turn_accepted(of, now);
        for a in self.active.values_mut() {
            a.turn(of, &self.tls, now);
        }
    }

    /// Only where somebody waits: an `accept` in vain is a system call for every message of everybody.
    fn accept(&mut self, ready: &[SourceId], now: Nanos) {
        let mut n = self.accepted.len();
        for l in self.listeners.iter_mut().filter(|l| ready.contains(&l.listener.source())) {
            while n < MAX_ACCEPTED {
                match l.listener.accept(now) {
                    Ok(Some(stream)) => {
                        n += 1;
                        self.accepted.push(Accepted { stream, conn: None, kind: l.kind, name: l.name.clone() });
                    }
                    Ok(None) => break,
                    Err(e) => {
                        log::warn!(target: "connmgr", "{}: accept failed: {}", l.name, errno_text(&e));
                        break;
                    }
                }
            }
        }
    }

    fn turn_accepted(&mut self, of: &mut Ofproto, now: Nanos) {
        self.accepted.retain_mut(|a| {
            if a.conn.is_none() {
                match a.stream.connect() {
                    Ok(true) => a.conn = Some(of.connect(a.kind, &a.name, now)),
                    Ok(false) => return true,
                    Err(e) => {
                        log::warn!(target: "connmgr", "{}: {}", a.stream.name(), errno_text(&e));
                        return false;
                    }
                }
            }
            let Some(id) = a.conn else { return false };
            match pump(&mut a.stream, of, id, now) {
                Ok(()) => true,
                Err(_) => {
                    of.disconnect(id);
                    false
                }
            }
        });
    }

    /// Sends what `of.turn` produced, without reading.
    pub fn flush(&mut self, of: &mut Ofproto) {
        let all = self
            .accepted
            .iter_mut()
            .filter_map(|a| a.conn.map(|id| (&mut a.stream, id)))
            .chain(self.active.values_mut().filter_map(|a| Some((a.stream.as_mut()?, a.conn?))));
        for (stream, id) in all {
            let _ = send(stream, of, id);
        }
    }

    pub fn want(&self, of: &Ofproto, poller: &mut Poller, now: Nanos) {
        for l in &self.listeners {
            if self.accepted.len() < MAX_ACCEPTED {
                l.listener.want(poller, now);
            }
        }
        for a in &self.accepted {
            a.stream.want(poller, interest(of, a.conn));
        }
        for a in self.active.values() {
            if let Some(s) = &a.stream {
                s.want(poller, interest(of, a.conn));
            }
            poller.wake_at(a.fsm.wake_at());
        }
        if let Some(at) = self.failed.values().min() {
            poller.wake_at(*at);
        }
    }

    /// (connected, state, seconds since the last change, last error) of an active target.
    pub fn status(&self, target: &str, now: Nanos) -> Option<(bool, BTreeMap<String, String>)> {
        let a = self.active.get(target)?;
        let s = a.fsm.stats(now);
        let mut m = BTreeMap::new();
        m.insert("state".into(), a.fsm.state().to_string());
        if let Some(t) = s.last_connected {
            m.insert("sec_since_connect".into(), now.saturating_sub(t).secs().to_string());
        }
        if let Some(t) = s.last_disconnected {
            m.insert("sec_since_disconnect".into(), now.saturating_sub(t).secs().to_string());
        }
        m.extend(a.last_error.as_ref().map(|e| ("last_error".into(), e.clone())));
        Some((a.fsm.is_connected(), m))
    }

    pub fn reconnect(&mut self, now: Nanos) {
        self.active.values_mut().for_each(|a| a.fsm.force_reconnect(now));
    }
}

fn controller(s: &ControllerSpec) -> OfController {
    // Whole seconds, and not less than five; what is less than one switches probes off.
    let probe_s = match u64::from(s.inactivity_probe_ms / 1000) {
        0 => 0,
        s => s.max(MIN_PROBE_S),
    };
    OfController {
        target: s.target.clone(),
        passive: is_passive(&s.target),
        enable_async: s.enable_async,
        probe_interval: Nanos::from_secs(probe_s),
        rate_limit: s.rate_limit.map(|r| (r, s.burst_limit.unwrap_or(0))),
    }
}

fn interest(of: &Ofproto, conn: Option<ConnId>) -> Interest {
    match conn.and_then(|id| of.connection(id)) {
        None => Interest::READ,
        Some(c) => match (c.wants_read(), !c.output().is_empty()) {
            (true, true) => Interest::BOTH,
            (true, false) => Interest::READ,
            (false, true) => Interest::WRITE,
            (false, false) => Interest::NONE,
        },
    }
}

/// Why a stream ended.
enum End {
    Eof,
    Error(String),
    Closed(Closed),
}

fn pump(stream: &mut Stream, of: &mut Ofproto, id: ConnId, now: Nanos) -> Result<(), End> {
    stream.turn();
    let mut buf = [0; 16 << 10];
    let mut total = 0;
    while total < READ_PER_TURN && of.connection(id).is_some_and(|c| c.wants_read()) {
        match stream.read(&mut buf) {
            Ok(0) => return Err(End::Eof),
            Ok(n) => {
                of.receive(id, &buf[..n], now);
                total += n;
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => break,
            Err(e) => return Err(End::Error(errno_text(&e))),
        }
    }
    send(stream, of, id)?;
    match of.closed(id) {
        // What explains the closing must still leave.
        Some(why) if of.connection(id).is_none_or(|c| c.output().is_empty()) || why == Closed::Backlog => {
            Err(End::Closed(why))
        }
        _ => Ok(()),
    }
}

fn send(stream: &mut Stream, of: &mut Ofproto, id: ConnId) -> Result<(), End> {
    while let Some(c) = of.connection(id) {
        if c.output().is_empty() {
            break;
        }
        match stream.write(c.output()) {
            Ok(0) => break,
            Ok(n) => of.sent(id, n),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => break,
            Err(e) => return Err(End::Error(errno_text(&e))),
        }
    }
    Ok(())
}

impl Active {
    fn turn(&mut self, of: &mut Ofproto, tls: &Tls, now: Nanos) {
        self.turn_stream(of, now);
        match self.fsm.run(now) {
            Some(Action::Connect) => {
                self.fsm.connecting(now);
                match Stream::open(&self.target, tls, Some(OPENFLOW_PORT), fv_rpc::stream::DEFAULT_DSCP) {
                    Ok(s) => {
                        self.stream = Some(s);
                        self.turn_stream(of, now);
                    }
                    Err(e) => self.failed(now, &e.reason()),
                }
            }
            Some(Action::Disconnect) => {
                self.drop_stream(of);
                self.fsm.disconnected(now, Cause::Ours);
            }
            Some(Action::Probe) | None => {}
        }
    }

    fn failed(&mut self, now: Nanos, error: &str) {
        self.last_error = Some(error.to_owned());
        self.fsm.connect_failed(now, Cause::Error(error));
    }

    fn drop_stream(&mut self, of: &mut Ofproto) {
        self.stream = None;
        if let Some(id) = self.conn.take() {
            of.disconnect(id);
        }
    }

    fn turn_stream(&mut self, of: &mut Ofproto, now: Nanos) {
        let Some(s) = &mut self.stream else { return };
        let id = match self.conn {
            Some(id) => id,
            None => match s.connect() {
                Ok(true) => {
                    self.fsm.connected(now);
                    let id = of.connect(self.kind, &self.target, now);
                    self.conn = Some(id);
                    id
                }
                Ok(false) => return,
                Err(e) => {
                    self.stream = None;
                    self.failed(now, &errno_text(&e));
                    return;
                }
            },
        };
        if let Err(end) = pump(s, of, id, now) {
            self.drop_stream(of);
            let text;
            let (cause, error) = match &end {
                End::Eof => (Cause::Eof, "End of file"),
                End::Error(e) => (Cause::Error(e), e.as_str()),
                End::Closed(c) => {
                    text = c.to_string();
                    (Cause::Error(&text), if *c == Closed::Inactive { "Connection timed out" } else { text.as_str() })
                }
            };
            self.last_error = Some(error.to_owned());
            self.fsm.disconnected(now, cause);
        }
    }
}
