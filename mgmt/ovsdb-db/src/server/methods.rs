//! Requests by method name.

use super::{ConnId, Now, Server};
use fv_ovsdb::monitor::Version;
use fv_ovsdb::{Error, Message, Tag};
use serde_json::{Value, json};

/// How a request is answered.
pub(super) enum Answer {
    Result(Value),
    Error(Value),
    /// Later, or it has been sent.
    None,
}

impl From<Result<Value, Error>> for Answer {
    fn from(r: Result<Value, Error>) -> Answer {
        match r {
            Ok(v) => Answer::Result(v),
            Err(e) => Answer::Error(e.to_json()),
        }
    }
}

impl Server {
    pub(super) fn request(&mut self, conn: ConnId, id: Value, method: &str, params: Vec<Value>, now: Now) {
        let params = Value::from(params);
        let answer: Answer = match method {
            "transact" => self.transact(conn, &id, params, now),
            "monitor" => self.monitor(conn, Version::V1, method, &params).into(),
            "monitor_cond" => self.monitor(conn, Version::V2, method, &params).into(),
            "monitor_cond_since" => self.monitor(conn, Version::V3, method, &params).into(),
            "monitor_cond_change" => self.monitor_cond_change(conn, &params).into(),
            "monitor_cancel" => self.monitor_cancel(conn, &params),
            "get_schema" => self.database_of(method, &params).map(|d| self.dbs[d].db.schema().to_json()).into(),
            "list_dbs" => {
                let mut names: Vec<&str> = self.dbs.iter().map(|d| d.name()).collect();
                names.sort_unstable();
                Answer::Result(names.into())
            }
            "lock" | "steal" => self.lock(conn, method, &params).into(),
            "unlock" => self.unlock(conn, &params).into(),
            "echo" => Answer::Result(params),
            "get_server_id" => Answer::Result(self.id.to_string().into()),
            // No database here ever changes its schema while it is served, so knowing is enough.
            "set_db_change_aware" => match params.as_array().map(Vec::as_slice) {
                Some([Value::Bool(_)]) => Answer::Result(json!({})),
                _ => Err(Error::syntax(&params, "set_db_change_aware: true or false parameter expected")).into(),
            },
            "convert" => self
                .database_of(method, &params)
                .and_then(|_| Err(Error::new(Tag::NotAllowed, "the schema of this database is built into its server")))
                .into(),
            _ => Answer::Error("unknown method".into()),
        };
        match answer {
            Answer::Result(result) => self.send(conn, Message::Reply { id, result }),
            Answer::Error(error) => self.send(conn, Message::Error { id, error }),
            Answer::None => {}
        }
    }

    /// The database that the first parameter names.
    pub(super) fn database_of(&self, method: &str, params: &Value) -> Result<usize, Error> {
        let Some(name) = params.get(0).and_then(Value::as_str) else {
            let what = format!("{method} request params must begin with <db-name>");
            return Err(Error::syntax(params, what));
        };
        self.dbs.iter().position(|d| d.name() == name).ok_or_else(|| {
            let what = format!("{method} request specifies unknown database {name}");
            Error::new(Tag::UnknownDatabase, what).about(params)
        })
    }
}
