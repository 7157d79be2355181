//! Monitors of connections, and the updates that commits cause.

use super::methods::Answer;
use super::{ConnId, MAX_PER_CONNECTION, Server, Subscription, UPDATES_QUEUED};
use fv_ovsdb::atom::parse_uuid;
use fv_ovsdb::monitor::{Monitor, Version, net_change};
use fv_ovsdb::{Commit, Error, Message, Tag, Uuid};
use serde_json::{Value, json};

impl Server {
    pub(super) fn monitor(
        &mut self,
        conn: ConnId,
        version: Version,
        method: &str,
        params: &Value,
    ) -> Result<Value, Error> {
        let db = self.database_of(method, params)?;
        let (id, requests, since) = match (version, params.as_array().map(Vec::as_slice)) {
            (Version::V1 | Version::V2, Some([_, id, requests])) => (id, requests, None),
            (Version::V3, Some([_, id, requests, since])) => (id, requests, Some(since)),
            _ => return Err(Error::syntax(params, "invalid parameters")),
        };
        let since = match since {
            None => Uuid::nil(),
            Some(Value::String(s)) => {
                parse_uuid(s).ok_or_else(|| Error::syntax(&params[3], "last-txn-id must be UUID format."))?
            }
            Some(other) => return Err(Error::syntax(other, "last-txn-id must be string")),
        };
        let c = self.conns.get_mut(&conn).ok_or_else(|| Error::new(Tag::Ovsdb, "no such connection"))?;
        if c.monitors.iter().any(|m| m.id == *id) {
            return Err(Error::syntax(id, "duplicate monitor ID"));
        }
        if c.monitors.len() >= MAX_PER_CONNECTION {
            return Err(Error::new(Tag::ResourcesExhausted, "too many monitors"));
        }
        let served = &self.dbs[db];
        let monitor = Monitor::from_json(served.db.schema(), version, requests)?;
        let reply = match version {
            Version::V1 | Version::V2 => monitor.initial(&served.db),
            Version::V3 => {
                let last = served.last_txn_id().to_string();
                match self.commits_since(db, since) {
                    Some(commits) => {
                        let updates = monitor.update(&commits).unwrap_or_else(|| json!({}));
                        json!([true, last, updates])
                    }
                    None => json!([false, last, monitor.initial(&served.db)]),
                }
            }
        };
        if let Some(c) = self.conns.get_mut(&conn) {
            c.monitors.push(Subscription::new(id.clone(), db, monitor));
        }
        Ok(reply)
    }

    /// The net change since the state `since`, if that is remembered.
    fn commits_since(&self, db: usize, since: Uuid) -> Option<Commit> {
        let served = &self.dbs[db];
        let skip = if since == served.base { 0 } else { served.history.iter().position(|c| c.txn_id == since)? + 1 };
        Some(net_change(served.history.iter().skip(skip)))
    }

    pub(super) fn monitor_cond_change(&mut self, conn: ConnId, params: &Value) -> Result<Value, Error> {
        let Some([old_id, new_id, requests]) = params.as_array().map(Vec::as_slice) else {
            return Err(Error::syntax(params, "invalid parameters"));
        };
        // Held changes are seen through the conditions of their time.
        self.release_held(conn);
        let unknown = || Error::syntax(old_id, "unknown monitor session");
        let c = self.conns.get_mut(&conn).ok_or_else(unknown)?;
        let i = c.monitors.iter().position(|m| m.id == *old_id).ok_or_else(unknown)?;
        if old_id != new_id && c.monitors.iter().any(|m| m.id == *new_id) {
            return Err(Error::syntax(new_id, "duplicate monitor ID"));
        }
        let m = &mut c.monitors[i];
        let served = &self.dbs[m.db];
        // Plain monitors have no conditions; they can only be renamed.
        let updates = match m.monitor.version() {
            Version::V1 => None,
            _ => m.monitor.change_conditions(&served.db, requests)?,
        };
        m.id = new_id.clone();
        if let Some(updates) = updates {
            let (method, params) = update_message(m, served.last_txn_id(), updates);
            self.notify(conn, method, params);
        }
        Ok(json!({}))
    }

    pub(super) fn monitor_cancel(&mut self, conn: ConnId, params: &Value) -> Answer {
        let Some([id]) = params.as_array().map(Vec::as_slice) else {
            return Answer::Error("invalid parameters".into());
        };
        let Some(c) = self.conns.get_mut(&conn) else { return Answer::None };
        match c.monitors.iter().position(|m| m.id == *id) {
            Some(i) => {
                c.monitors.remove(i);
                Answer::Result(json!({}))
            }
            None => Answer::Error("unknown monitor".into()),
        }
    }

    /// Queues what is held for a connection.
    pub(super) fn release_held(&mut self, conn: ConnId) {
        let Some(c) = self.conns.get_mut(&conn) else { return };
        for m in &mut c.monitors {
            let Some(commit) = m.take_held() else { continue };
            if let Some(updates) = m.monitor.update(&commit) {
                let (method, params) = update_message(m, commit.txn_id, updates);
                c.outgoing.push_back(Message::notification(method, params).into_json());
            }
        }
    }

    /// Tells everybody who watches.
    pub(super) fn broadcast(&mut self, db: usize, commit: &Commit) {
        let mut messages = Vec::new();
        for (conn, c) in &mut self.conns {
            let slow = c.outgoing.len() >= UPDATES_QUEUED;
            for m in c.monitors.iter_mut().filter(|m| m.db == db) {
                if slow || !m.held.is_empty() {
                    m.hold(commit);
                } else if let Some(updates) = m.monitor.update(commit) {
                    messages.push((*conn, update_message(m, commit.txn_id, updates)));
                }
            }
        }
        for (conn, (method, params)) in messages {
            self.notify(conn, method, params);
        }
    }
}

fn update_message(m: &Subscription, txn: Uuid, updates: Value) -> (&'static str, Vec<Value>) {
    let id = m.id.clone();
    match m.monitor.version() {
        Version::V1 => ("update", vec![id, updates]),
        Version::V2 => ("update2", vec![id, updates]),
        Version::V3 => ("update3", vec![id, txn.to_string().into(), updates]),
    }
}
