//! A server of databases, without I/O: connections are numbers, messages are JSON values.
//!
//! For each connection its owner calls `connection_opened`, `handle` for each message,
//! `take_outgoing` to send, `connection_closed`; and `turn` when `next_deadline` has come. A commit
//! is journalled before anybody is told of it.

mod about;
mod locks;
mod methods;
mod monitors;
mod transactions;

use crate::server::locks::Locks;
use crate::server::transactions::Parked;
use fv_core::{Clock, Nanos};
use fv_ovsdb::monitor::{Monitor, net_change};
use fv_ovsdb::{Commit, Database, Message, Schema, Uuid};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Monitors, parked transactions, locks that one connection may have.
pub const MAX_PER_CONNECTION: usize = 1000;
/// Messages that may wait for a connection that does not read. Beyond it is closed.
pub const MAX_BACKLOG: usize = 4096;
/// With more messages than this waiting for a connection, changes that it watches are merged instead
/// of queued: what a peer that does not read costs is bounded by the size of the database.
const UPDATES_QUEUED: usize = 16;
/// Held commits that are merged into one at a time, so that merging costs little for each.
const HELD_MAX: usize = 128;
/// Commits kept for clients that come back (`monitor_cond_since`).
pub const MAX_HISTORY: usize = 100;

/// The two times that a call happens at.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// For timeouts.
    pub mono: Nanos,
    /// For the dates in the journal, since the epoch.
    pub wall: Nanos,
}

impl Now {
    pub fn of(clock: &Clock) -> Now {
        Now { mono: clock.now(), wall: clock.wall() }
    }
}

/// Where commits are made durable before they take effect.
pub trait Journal: Send {
    /// Writes the commit; with `commit.durable` it is on the disk when this returns. After an error
    /// nothing of it may remain. `db` is the state before it.
    fn append(&mut self, db: &Database, commit: &Commit, wall_ms: u64) -> Result<(), String>;

    /// Called after the commit has been applied: time to compact.
    fn applied(&mut self, _db: &Database, _wall_ms: u64) {}

    /// Compacts on demand.
    fn compact(&mut self, _db: &Database, _wall_ms: u64) -> Result<(), String> {
        Ok(())
    }
}

/// A connection of the server, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

struct Served {
    db: Database,
    journal: Option<Box<dyn Journal>>,
    /// Clients may not write to it.
    read_only: bool,
    /// Commits since the start.
    commits: u64,
    /// Oldest first; the state before the first has id `base`.
    history: VecDeque<Commit>,
    base: Uuid,
}

impl Served {
    fn new(db: Database, journal: Option<Box<dyn Journal>>, read_only: bool) -> Served {
        Served { db, journal, read_only, commits: 0, history: VecDeque::new(), base: Uuid::new_v4() }
    }

    fn last_txn_id(&self) -> Uuid {
        self.history.back().map_or(self.base, |c| c.txn_id)
    }

    fn name(&self) -> &str {
        &self.db.schema().name
    }
}

struct Subscription {
    id: Value,
    db: usize,
    monitor: Monitor,
    /// Commits that the peer is still to be told of, oldest first.
    held: Vec<Commit>,
}

impl Subscription {
    fn new(id: Value, db: usize, monitor: Monitor) -> Subscription {
        Subscription { id, db, monitor, held: Vec::new() }
    }

    fn hold(&mut self, commit: &Commit) {
        self.held.push(commit.clone());
        if self.held.len() >= HELD_MAX {
            self.held = self.take_held().into_iter().collect();
        }
    }

    /// All that is held, as one change.
    fn take_held(&mut self) -> Option<Commit> {
        let held = std::mem::take(&mut self.held);
        let txn_id = held.last()?.txn_id;
        Some(Commit { txn_id, ..net_change(&held) })
    }
}

#[derive(Default)]
struct Conn {
    outgoing: VecDeque<Value>,
    monitors: Vec<Subscription>,
    parked: Vec<Parked>,
    closing: Option<&'static str>,
    read_only: bool,
}

/// The server. See the module's description.
pub struct Server {
    id: Uuid,
    dbs: Vec<Served>,
    conns: BTreeMap<ConnId, Conn>,
    next_conn: u64,
    locks: Locks,
}

impl Server {
    /// Serves these databases and `_Server`, which describes them.
    pub fn new(databases: Vec<(Database, Option<Box<dyn Journal>>)>) -> Server {
        let mut dbs: Vec<Served> = databases.into_iter().map(|(d, j)| Served::new(d, j, false)).collect();
        let schemas: Vec<&Schema> = dbs.iter().map(|d| &**d.db.schema()).collect();
        let about = about::server_database(&schemas);
        dbs.push(Served::new(about, None, true));
        Server { id: Uuid::new_v4(), dbs, conns: BTreeMap::new(), next_conn: 0, locks: Locks::default() }
    }

    pub fn connection_opened(&mut self) -> ConnId {
        self.next_conn += 1;
        let id = ConnId(self.next_conn);
        self.conns.insert(id, Conn::default());
        id
    }

    /// As `connection_opened`, for a peer that may only read.
    pub fn read_only_connection_opened(&mut self) -> ConnId {
        let id = self.connection_opened();
        if let Some(c) = self.conns.get_mut(&id) {
            c.read_only = true;
        }
        id
    }

    /// Forgets a connection: its locks go to whoever waits, its parked transactions are dropped.
    pub fn connection_closed(&mut self, conn: ConnId) {
        self.conns.remove(&conn);
        for (next, name) in self.locks.forget(conn) {
            self.notify(next, "locked", vec![name.into()]);
        }
    }

    /// Takes in one message of a connection.
    pub fn handle(&mut self, conn: ConnId, json: Value, now: Now) {
        match Message::from_json(json) {
            Ok(m) => self.handle_message(conn, m, now),
            Err(why) => self.close(conn, why),
        }
    }

    /// As `handle`, for a message that has been read already.
    pub fn handle_message(&mut self, conn: ConnId, message: Message, now: Now) {
        if self.conns.get(&conn).is_none_or(|c| c.closing.is_some()) {
            return;
        }
        // Commits are computed aside and then applied, so a panic leaves the state as it was: it
        // costs the peer that caused it its connection.
        let handled = catch_unwind(AssertUnwindSafe(|| self.dispatch(conn, message, now)));
        if handled.is_err() {
            self.close(conn, "internal error");
        }
    }

    fn dispatch(&mut self, conn: ConnId, message: Message, now: Now) {
        match message {
            Message::Request { id, method, params } => self.request(conn, id, &method, params, now),
            Message::Notification { method, params } if method == "cancel" => self.cancel(conn, &params),
            Message::Notification { .. } => {}
            Message::Reply { id, .. } | Message::Error { id, .. } if id == "echo" => {}
            _ => self.close(conn, "unexpected reply"),
        }
    }

    /// Ends waits whose time is over.
    pub fn turn(&mut self, now: Now) {
        if self.next_deadline().is_some_and(|t| t <= now.mono) {
            self.retry_parked(None, now);
        }
    }

    /// When `turn` has something to do; None: only after a message.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.conns.values().flat_map(|c| &c.parked).filter_map(|p| p.deadline).min()
    }

    /// Messages to send, in order.
    pub fn take_outgoing(&mut self, conn: ConnId) -> Vec<Value> {
        self.release_held(conn);
        self.conns.get_mut(&conn).map(|c| c.outgoing.drain(..).collect()).unwrap_or_default()
    }

    /// The next message to send, for a peer that may not take them all.
    pub fn next_outgoing(&mut self, conn: ConnId) -> Option<Value> {
        if self.conns.get(&conn)?.outgoing.is_empty() {
            self.release_held(conn);
        }
        self.conns.get_mut(&conn)?.outgoing.pop_front()
    }

    pub fn has_outgoing(&self, conn: ConnId) -> bool {
        self.conns.get(&conn).is_some_and(|c| !c.outgoing.is_empty() || c.monitors.iter().any(|m| !m.held.is_empty()))
    }

    /// Why the connection is to be closed after what is outgoing has been sent, if it is.
    pub fn close_reason(&self, conn: ConnId) -> Option<&'static str> {
        self.conns.get(&conn).and_then(|c| c.closing)
    }

    pub fn database_names(&self) -> impl Iterator<Item = &str> {
        self.dbs.iter().map(Served::name)
    }

    /// The current state of a database.
    pub fn database(&self, name: &str) -> Option<&Database> {
        self.dbs.iter().find(|d| d.name() == name).map(|d| &d.db)
    }

    /// Number of commits of a database since the start: tells whether it has changed.
    pub fn commits(&self, name: &str) -> Option<u64> {
        self.dbs.iter().find(|d| d.name() == name).map(|d| d.commits)
    }

    /// Locks that a connection holds, and those that it waits for.
    pub fn locks_of(&self, conn: ConnId) -> (Vec<String>, Vec<String>) {
        self.locks.of(conn)
    }

    /// Compacts the files of all databases, or of one.
    pub fn compact(&mut self, name: Option<&str>, now: Now) -> Result<(), String> {
        let mut found = name.is_none();
        for d in self.dbs.iter_mut().filter(|d| name.is_none_or(|n| n == d.name())) {
            found = true;
            if let Some(j) = &mut d.journal {
                j.compact(&d.db, now.wall.ms())?;
            }
        }
        if found { Ok(()) } else { Err("no database by that name".into()) }
    }

    pub fn connections(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.conns.keys().copied()
    }

    /// Lines of `memory/show`.
    pub fn memory(&self) -> Vec<(&'static str, usize)> {
        let cells = |d: &Served| {
            let tables = d.db.schema().tables.iter().enumerate();
            tables.map(|(t, ts)| d.db.row_count(t) * ts.columns.len()).sum::<usize>()
        };
        vec![
            ("cells", self.dbs.iter().map(cells).sum()),
            ("monitors", self.conns.values().map(|c| c.monitors.len()).sum()),
            ("sessions", self.conns.len()),
            ("triggers", self.conns.values().map(|c| c.parked.len()).sum()),
            ("txn-history", self.dbs.iter().map(|d| d.history.len()).sum()),
        ]
    }

    /// Queues a message, after the changes that came before it.
    fn send(&mut self, conn: ConnId, message: Message) {
        self.release_held(conn);
        let Some(c) = self.conns.get_mut(&conn) else { return };
        if c.outgoing.len() >= MAX_BACKLOG {
            c.closing.get_or_insert("peer does not read");
            c.outgoing.clear();
        }
        if c.closing.is_none() {
            c.outgoing.push_back(message.into_json());
        }
    }

    fn notify(&mut self, conn: ConnId, method: &str, params: Vec<Value>) {
        self.send(conn, Message::notification(method, params));
    }

    fn close(&mut self, conn: ConnId, why: &'static str) {
        if let Some(c) = self.conns.get_mut(&conn) {
            c.closing.get_or_insert(why);
        }
    }
}
