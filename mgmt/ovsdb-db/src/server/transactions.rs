//! Transactions: run, journal, apply, tell; or park until a `wait` may succeed.

use super::methods::Answer;
use super::{ConnId, MAX_HISTORY, MAX_PER_CONNECTION, Now, Server};
use fv_core::Nanos;
use fv_ovsdb::{Context, Error, Message, Outcome, Tag, Uuid};
use serde_json::Value;

/// A transaction whose `wait` is not satisfied yet.
pub(super) struct Parked {
    pub id: Value,
    db: usize,
    operations: Vec<Value>,
    started: Nanos,
    /// When the `wait` that it hangs on gives up.
    pub deadline: Option<Nanos>,
}

/// What one attempt came to.
enum Attempt {
    Done(Vec<Value>),
    /// Done, and the database has changed.
    Committed(Vec<Value>),
    Wait(Option<Nanos>),
}

impl Server {
    pub(super) fn transact(&mut self, conn: ConnId, id: &Value, params: Value, now: Now) -> Answer {
        let db = match self.database_of("transact", &params) {
            Ok(db) => db,
            Err(e) => return Answer::Error(e.to_json()),
        };
        let Some(c) = self.conns.get(&conn) else { return Answer::None };
        if c.parked.iter().any(|p| p.id == *id) {
            return Answer::Error(Error::syntax(&params, "transact: duplicate request ID").to_json());
        }
        if c.parked.len() >= MAX_PER_CONNECTION {
            return Answer::Error(Error::new(Tag::ResourcesExhausted, "too many waiting transactions").to_json());
        }
        let mut operations = match params {
            Value::Array(a) => a,
            _ => Vec::new(),
        };
        operations.drain(..1);
        match self.attempt(conn, db, &operations, now.mono, now) {
            Attempt::Done(results) => Answer::Result(results.into()),
            Attempt::Committed(results) => {
                self.send(conn, Message::Reply { id: id.clone(), result: results.into() });
                self.retry_parked(Some(db), now);
                Answer::None
            }
            Attempt::Wait(deadline) => {
                if let Some(c) = self.conns.get_mut(&conn) {
                    c.parked.push(Parked { id: id.clone(), db, operations, started: now.mono, deadline });
                }
                Answer::None
            }
        }
    }

    fn attempt(&mut self, conn: ConnId, db: usize, operations: &[Value], started: Nanos, now: Now) -> Attempt {
        let served = &mut self.dbs[db];
        let locks = &self.locks;
        let ctx = Context {
            elapsed_ms: now.mono.saturating_sub(started).ms(),
            read_only: served.read_only || self.conns.get(&conn).is_some_and(|c| c.read_only),
            owns_lock: &|name| locks.owner(name) == Some(conn),
        };
        let (mut results, commit) = match fv_ovsdb::transact(&served.db, operations, &ctx, &mut Uuid::new_v4) {
            Outcome::Wait { timeout_ms } => {
                let deadline = timeout_ms.map(|ms| Nanos(ms.saturating_mul(1_000_000)));
                return Attempt::Wait(deadline.map(|d| started.saturating_add(d)));
            }
            Outcome::Done { results, commit } => (results, commit),
        };
        let Some(commit) = commit.filter(|c| !c.is_empty()) else { return Attempt::Done(results) };
        if let Some(journal) = &mut served.journal
            && let Err(e) = journal.append(&served.db, &commit, now.wall.ms())
        {
            ::log::warn!(target: "ovsdb_jsonrpc_server", "transaction on {} failed: {e}", served.db.schema().name);
            results.push(Error::new(Tag::Io, e).to_json());
            return Attempt::Done(results);
        }
        served.db.apply(&commit);
        served.commits += 1;
        if let Some(journal) = &mut served.journal {
            journal.applied(&served.db, now.wall.ms());
        }
        self.broadcast(db, &commit);
        let served = &mut self.dbs[db];
        served.history.push_back(commit);
        if served.history.len() > MAX_HISTORY
            && let Some(oldest) = served.history.pop_front()
        {
            served.base = oldest.txn_id;
        }
        Attempt::Committed(results)
    }

    /// Tries parked transactions again: those of `changed`, or those whose time is over. A success
    /// may let others succeed, so it goes on until nothing moves; each ends at most once.
    pub(super) fn retry_parked(&mut self, changed: Option<usize>, now: Now) {
        let mut changed: Vec<usize> = changed.into_iter().collect();
        loop {
            let due: Vec<(ConnId, Value)> = self
                .conns
                .iter()
                .flat_map(|(conn, c)| c.parked.iter().map(move |p| (*conn, p)))
                .filter(|(_, p)| changed.contains(&p.db) || p.deadline.is_some_and(|d| d <= now.mono))
                .map(|(conn, p)| (conn, p.id.clone()))
                .collect();
            changed.clear();
            let mut ended = 0;
            for (conn, id) in due {
                let Some(parked) = self.unpark(conn, &id) else { continue };
                match self.attempt(conn, parked.db, &parked.operations, parked.started, now) {
                    Attempt::Wait(deadline) => {
                        if let Some(c) = self.conns.get_mut(&conn) {
                            c.parked.push(Parked { deadline, ..parked });
                        }
                    }
                    Attempt::Done(results) => {
                        ended += 1;
                        self.send(conn, Message::Reply { id, result: results.into() });
                    }
                    Attempt::Committed(results) => {
                        ended += 1;
                        changed.push(parked.db);
                        self.send(conn, Message::Reply { id, result: results.into() });
                    }
                }
            }
            if ended == 0 || changed.is_empty() {
                return;
            }
        }
    }

    fn unpark(&mut self, conn: ConnId, id: &Value) -> Option<Parked> {
        let c = self.conns.get_mut(&conn)?;
        let i = c.parked.iter().position(|p| p.id == *id)?;
        Some(c.parked.remove(i))
    }

    /// The `cancel` notification: the transaction's request gets an error.
    pub(super) fn cancel(&mut self, conn: ConnId, params: &[Value]) {
        if let [id] = params
            && let Some(p) = self.unpark(conn, id)
        {
            self.send(conn, Message::Error { id: p.id, error: "canceled".into() });
        }
    }
}
