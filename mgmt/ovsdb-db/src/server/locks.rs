//! Locks: named, advisory, each with a queue (RFC 7047 section 4.1.8).

use super::{ConnId, MAX_PER_CONNECTION, Server};
use fv_ovsdb::{Error, Tag, is_id};
use hashbrown::HashMap;
use serde_json::{Value, json};

#[derive(Default)]
pub(super) struct Locks {
    /// The first in the queue is the owner. Queues are never empty.
    queues: HashMap<String, Vec<ConnId>>,
}

impl Locks {
    pub fn owner(&self, name: &str) -> Option<ConnId> {
        self.queues.get(name).and_then(|q| q.first().copied())
    }

    fn is_queued(&self, name: &str, conn: ConnId) -> bool {
        self.queues.get(name).is_some_and(|q| q.contains(&conn))
    }

    fn count(&self, conn: ConnId) -> usize {
        self.queues.values().filter(|q| q.contains(&conn)).count()
    }

    /// Names that the connection holds and waits for, sorted.
    pub fn of(&self, conn: ConnId) -> (Vec<String>, Vec<String>) {
        let mine = self.queues.iter().filter(|(_, q)| q.contains(&conn));
        let (mut held, mut waiting): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        for (name, q) in mine {
            if q.first() == Some(&conn) { held.push(name.clone()) } else { waiting.push(name.clone()) }
        }
        held.sort();
        waiting.sort();
        (held, waiting)
    }

    /// Leaves a queue; gives the new owner if that changed who owns the lock.
    fn leave(&mut self, name: &str, conn: ConnId) -> Option<ConnId> {
        let q = self.queues.get_mut(name)?;
        let i = q.iter().position(|c| *c == conn)?;
        q.remove(i);
        let next = (i == 0).then(|| q.first().copied()).flatten();
        if q.is_empty() {
            self.queues.remove(name);
        }
        next
    }

    /// Leaves all queues; the new owners with their locks.
    pub fn forget(&mut self, conn: ConnId) -> Vec<(ConnId, String)> {
        let mine: Vec<String> = self.queues.iter().filter(|(_, q)| q.contains(&conn)).map(|(n, _)| n.clone()).collect();
        mine.into_iter().filter_map(|n| self.leave(&n, conn).map(|c| (c, n))).collect()
    }
}

impl Server {
    pub(super) fn lock(&mut self, conn: ConnId, method: &str, params: &Value) -> Result<Value, Error> {
        let name = lock_name(method, params)?;
        if self.locks.is_queued(name, conn) {
            return Err(Error::syntax(params, format!("must issue \"unlock\" before new \"{method}\"")));
        }
        if self.locks.count(conn) >= MAX_PER_CONNECTION {
            return Err(Error::new(Tag::ResourcesExhausted, "too many locks"));
        }
        let queue = self.locks.queues.entry(name.to_owned()).or_default();
        let victim = queue.first().copied();
        if method == "steal" {
            queue.insert(0, conn);
        } else {
            queue.push(conn);
        }
        let locked = queue.first() == Some(&conn);
        if let (true, Some(victim)) = (locked, victim) {
            self.notify(victim, "stolen", vec![name.into()]);
        }
        Ok(json!({"locked": locked}))
    }

    pub(super) fn unlock(&mut self, conn: ConnId, params: &Value) -> Result<Value, Error> {
        let name = lock_name("unlock", params)?;
        if !self.locks.is_queued(name, conn) {
            return Err(Error::syntax(params, "unlock: \"unlock\" without \"lock\" or \"steal\""));
        }
        if let Some(next) = self.locks.leave(name, conn) {
            self.notify(next, "locked", vec![name.into()]);
        }
        Ok(json!({}))
    }
}

fn lock_name<'a>(method: &str, params: &'a Value) -> Result<&'a str, Error> {
    match params.as_array().map(Vec::as_slice) {
        Some([Value::String(name)]) if is_id(name) => Ok(name),
        _ => Err(Error::syntax(params, format!("{method} request params must be <id>"))),
    }
}
