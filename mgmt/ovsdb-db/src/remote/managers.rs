//! Remotes that the database itself asks for (`manager_options`), TLS files (`ssl`), and the status
//! that goes back into their rows.

use super::peers::{Options, Remote};
use crate::server::Server;
use fv_core::Nanos;
use fv_ovsdb::exec::where_uuid;
use fv_ovsdb::{Database, Datum, Row, TableSchema, Uuid};
use fv_rpc::Tls;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const DATABASE: &str = "Open_vSwitch";
/// Time between two looks at the state of connections.
const STATUS_PERIOD: Nanos = Nanos::from_ms(2500);

#[derive(Default)]
pub(super) struct Managers {
    /// Commits of the database that were looked at.
    seen: Option<u64>,
    rows: Vec<(Uuid, String)>,
    tls: Option<[String; 3]>,
    status_at: Nanos,
}

/// A table's row by column names.
struct View<'a>(&'a TableSchema, &'a Row);

impl View<'_> {
    fn datum(&self, column: &str) -> &Datum {
        static EMPTY: Datum = Datum::empty();
        self.0.column(column).map_or(&EMPTY, |c| &self.1[c])
    }
    fn str(&self, column: &str) -> &str {
        self.datum(column).as_str().unwrap_or("")
    }
    fn ms(&self, column: &str) -> Option<Nanos> {
        let ms = self.datum(column).as_i64()?;
        Some(u64::try_from(ms).map_or(Nanos::ZERO, |ms| Nanos(ms.saturating_mul(1_000_000))))
    }
}

fn row<'a>(db: &'a Database, ts: &'a TableSchema, uuid: Uuid) -> Option<View<'a>> {
    let t = db.schema().table(&ts.name)?;
    db.row(t, uuid).map(|r: &Arc<Row>| View(ts, r))
}

impl Managers {
    /// Makes the remotes what the database says, if it has changed.
    pub fn reconfigure(&mut self, server: &Server, tls: &Tls, remotes: &mut BTreeMap<String, Remote>, now: Nanos) {
        let commits = server.commits(DATABASE);
        if commits.is_none() || commits == self.seen {
            return;
        }
        self.seen = commits;
        let Some(db) = server.database(DATABASE) else { return };
        let schema = db.schema();
        let table = |n: &str| schema.table(n).map(|t| &schema.tables[t]);
        let (Some(root), Some(manager), Some(ssl)) = (table(DATABASE), table("Manager"), table("SSL")) else { return };
        let root_row = schema.table(DATABASE).and_then(|t| db.rows(t).next());
        let refs = |column| {
            root_row.iter().flat_map(move |(_, r)| View(root, r).datum(column).clone().uuid_keys().collect::<Vec<_>>())
        };

        self.configure_tls(refs("ssl").next().and_then(|u| row(db, ssl, u)), tls);
        let mut wanted: BTreeMap<String, Options> = BTreeMap::new();
        self.rows.clear();
        for (uuid, r) in refs("manager_options").filter_map(|u| Some((u, row(db, manager, u)?))) {
            let target = r.str("target").to_owned();
            let mut o = Options::for_target(&target);
            o.probe = r.ms("inactivity_probe").unwrap_or(o.probe);
            o.max_backoff = r.ms("max_backoff").unwrap_or(o.max_backoff);
            o.dscp = r.datum("other_config").lookup("dscp").and_then(|d| d.parse().ok()).filter(|d| *d < 64);
            self.rows.push((uuid, target.clone()));
            wanted.insert(target, o);
        }
        for (target, r) in remotes.iter_mut().filter(|(_, r)| !r.options().fixed) {
            match wanted.remove(target) {
                None => r.set_unwanted(),
                Some(o) if o != r.options() => r.set_options(o),
                Some(_) => {}
            }
        }
        for (target, o) in wanted {
            remotes.entry(target.clone()).or_insert_with(|| Remote::open(&target, o, tls, now));
        }
    }

    fn configure_tls(&mut self, ssl: Option<View<'_>>, tls: &Tls) {
        let Some(ssl) = ssl else { return };
        let text = |c: &str| ssl.str(c).to_owned();
        let bootstrap = ssl.datum("bootstrap_ca_cert").as_bool() == Some(true);
        let new =
            [text("private_key"), text("certificate"), text("ca_cert") + if bootstrap { "\0bootstrap" } else { "" }];
        if self.tls.as_ref() == Some(&new) {
            return;
        }
        let some = |c: &'static str| Some(ssl.str(c)).filter(|s| !s.is_empty());
        tls.set_key_and_cert(some("private_key").map(Path::new), some("certificate").map(Path::new));
        tls.set_ca(some("ca_cert").map(Path::new), bootstrap);
        self.tls = Some(new);
    }

    /// A transaction that brings the status columns up to date; None if it is not time or they are.
    pub fn status(&mut self, server: &Server, remotes: &BTreeMap<String, Remote>, now: Nanos) -> Option<Vec<Value>> {
        if self.rows.is_empty() || now < self.status_at {
            return None;
        }
        self.status_at = now.saturating_add(STATUS_PERIOD);
        let db = server.database(DATABASE)?;
        let ts = &db.schema().tables[db.schema().table("Manager")?];
        let mut params = vec![Value::from(DATABASE)];
        for (uuid, target) in &self.rows {
            let (Some(old), Some(remote)) = (row(db, ts, *uuid), remotes.get(target)) else { continue };
            let (connected, status) = remote.status(server, now);
            let status = Datum::string_map(status);
            if old.datum("is_connected").as_bool() == Some(connected) && *old.datum("status") == status {
                continue;
            }
            let ty = &ts.columns[ts.column("status")?].ty;
            params.push(json!({"op": "update", "table": "Manager", "where": where_uuid(*uuid),
                "row": {"is_connected": connected, "status": status.to_json(ty)}}));
        }
        (params.len() > 1).then_some(params)
    }

    pub fn next_deadline(&self) -> Option<Nanos> {
        (!self.rows.is_empty()).then_some(self.status_at)
    }
}
