//! A replica of chosen tables of a remote database, without I/O.
//!
//! The owner of the connection calls `connected`, `handle` for each message, `disconnected`, and
//! sends what `take_outgoing` gives. Rows stay readable while disconnected; after a reconnect the
//! replica becomes that of the server in one step, so that its readers never see a half-loaded one.

mod rows;
mod txn;

pub use rows::RowRef;
pub use txn::{ColumnValue, Outcome, TxnBuilder, TxnId};

use fv_ovsdb::{Message, Row, Schema, Uuid};
use hashbrown::HashMap;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What to replicate.
#[derive(Clone, Debug)]
pub struct Config {
    pub database: String,
    /// Our idea of the schema; the server's own decides what is really there.
    pub schema: Arc<Schema>,
    /// (table, columns); no columns means all. No tables means all tables with all columns.
    pub tables: Vec<(String, Vec<String>)>,
    /// (table, columns) that are only written here: an update of nothing else is no change.
    pub quiet: &'static [(&'static str, &'static [&'static str])],
    /// Lock to ask for after each connect; transactions then assert it.
    pub lock: Option<String>,
}

/// Columns of the switch's database that report and never configure.
pub const VSWITCH_STATUS: &[(&str, &[&str])] = &[
    (
        "Open_vSwitch",
        &["cur_cfg", "datapath_types", "dpdk_initialized", "dpdk_version", "iface_types", "ovs_version", "statistics"],
    ),
    ("Bridge", &["datapath_id", "datapath_version", "rstp_status", "status"]),
    ("Port", &["bond_active_slave", "rstp_statistics", "rstp_status", "statistics", "status"]),
    (
        "Interface",
        &[
            "admin_state",
            "bfd_status",
            "cfm_fault",
            "cfm_fault_status",
            "cfm_flap_count",
            "cfm_health",
            "cfm_remote_mpids",
            "cfm_remote_opstate",
            "duplex",
            "error",
            "ifindex",
            "lacp_current",
            "link_resets",
            "link_speed",
            "link_state",
            "mac_in_use",
            "mtu",
            "ofport",
            "statistics",
            "status",
        ],
    ),
    ("Controller", &["is_connected", "role", "status"]),
    ("Manager", &["is_connected", "status"]),
    ("Mirror", &["statistics"]),
    ("Datapath", &["capabilities", "datapath_version"]),
];

impl Config {
    /// Everything of the switch's database; status columns change silently.
    pub fn vswitch() -> Config {
        let schema = fv_ovsdb::vswitch::vswitch_schema();
        Config { database: schema.name.clone(), schema, tables: Vec::new(), quiet: VSWITCH_STATUS, lock: None }
    }
}

/// Why a connection is of no more use; the owner closes it and reconnects after its back-off.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SessionError {
    #[error("peer sent a bad message: {0}")]
    Message(&'static str),
    #[error("server does not serve the database: {0}")]
    NoDatabase(String),
    #[error("server refuses to be monitored: {0}")]
    NoMonitor(String),
    #[error("bad table update: {0}")]
    Update(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Monitoring {
    CondSince,
    Cond,
    Plain,
}

impl Monitoring {
    fn method(self) -> &'static str {
        match self {
            Monitoring::CondSince => "monitor_cond_since",
            Monitoring::Cond => "monitor_cond",
            Monitoring::Plain => "monitor",
        }
    }

    fn next(self) -> Option<Monitoring> {
        match self {
            Monitoring::CondSince => Some(Monitoring::Cond),
            Monitoring::Cond => Some(Monitoring::Plain),
            Monitoring::Plain => None,
        }
    }
}

/// What a request that we sent is for.
#[derive(Clone, Debug)]
enum Pending {
    Schema,
    Monitor(Monitoring),
    Lock,
    Unlock,
    Txn(TxnId),
}

type Rows = Vec<BTreeMap<Uuid, Arc<Row>>>;

/// The replica. See the module's description.
pub struct Client {
    config: Config,
    /// The server's schema as of the last connect, ours before.
    schema: Arc<Schema>,
    rows: Rows,
    connected: bool,
    synced: bool,
    seqno: u64,
    seen: u64,
    last_txn_id: String,
    monitor_id: Value,
    sessions: u64,
    has_lock: bool,
    lock_contended: bool,
    next_id: u64,
    pending: HashMap<u64, Pending>,
    outgoing: Vec<Value>,
    next_txn: u64,
    outcomes: BTreeMap<TxnId, Outcome>,
}

/// Outcomes that nobody asks for are forgotten, oldest first.
const MAX_OUTCOMES: usize = 1024;
const NO_TXN: &str = "00000000-0000-0000-0000-000000000000";

impl Client {
    pub fn new(config: Config) -> Client {
        let schema = config.schema.clone();
        Client {
            rows: vec![BTreeMap::new(); schema.tables.len()],
            config,
            schema,
            connected: false,
            synced: false,
            seqno: 1,
            seen: 0,
            last_txn_id: NO_TXN.to_owned(),
            monitor_id: Value::Null,
            sessions: 0,
            has_lock: false,
            lock_contended: false,
            next_id: 0,
            pending: HashMap::new(),
            outgoing: Vec::new(),
            next_txn: 0,
            outcomes: BTreeMap::new(),
        }
    }

    /// A new connection is up.
    pub fn connected(&mut self) {
        self.disconnected();
        self.connected = true;
        self.sessions += 1;
        let database = self.config.database.clone();
        self.request("get_schema", vec![database.into()], Pending::Schema);
    }

    /// The connection is gone: transactions in flight may or may not have happened.
    pub fn disconnected(&mut self) {
        self.connected = false;
        self.synced = false;
        self.outgoing.clear();
        if self.has_lock || self.lock_contended {
            self.has_lock = false;
            self.lock_contended = false;
            self.seqno += 1;
        }
        for p in std::mem::take(&mut self.pending).into_values() {
            if let Pending::Txn(id) = p {
                self.ended(id, Outcome::TryAgain);
            }
        }
    }

    /// Takes in one message. After an error the connection must be closed.
    pub fn handle(&mut self, json: Value) -> Result<(), SessionError> {
        self.handle_message(Message::from_json(json).map_err(SessionError::Message)?)
    }

    /// As `handle`, for a message that has been read already.
    pub fn handle_message(&mut self, message: Message) -> Result<(), SessionError> {
        match message {
            Message::Request { id, method, params } => {
                let reply = if method == "echo" {
                    Message::Reply { id, result: params.into() }
                } else {
                    Message::Error { id, error: "unknown method".into() }
                };
                self.outgoing.push(reply.into_json());
                Ok(())
            }
            Message::Notification { method, params } => self.notification(&method, params),
            Message::Reply { id, result } => self.reply(&id, Ok(result)),
            Message::Error { id, error } => self.reply(&id, Err(error)),
        }
    }

    pub fn take_outgoing(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.outgoing)
    }

    /// Asks for a lock, or gives it up. Takes effect at once and after each reconnect.
    pub fn set_lock(&mut self, name: Option<&str>) {
        if self.config.lock.as_deref() == name {
            return;
        }
        let old = std::mem::replace(&mut self.config.lock, name.map(str::to_owned));
        self.has_lock = false;
        self.lock_contended = false;
        self.seqno += 1;
        if self.synced || self.pending.values().any(|p| matches!(p, Pending::Monitor(_))) {
            if let Some(old) = old {
                self.request("unlock", vec![old.into()], Pending::Unlock);
            }
            self.request_lock();
        }
    }

    /// True once after each change of the replica, quiet columns aside, or the lock.
    pub fn changed(&mut self) -> bool {
        std::mem::replace(&mut self.seen, self.seqno) != self.seqno
    }

    /// Grows with each change that `changed` tells.
    pub fn seqno(&self) -> u64 {
        self.seqno
    }

    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// Connected, and the replica is what the server last told.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// The replica has been in step with a server at some time.
    pub fn has_ever_synced(&self) -> bool {
        self.monitor_id != Value::Null
    }

    /// True while the server grants us the lock, and always when no lock is asked for.
    pub fn has_lock(&self) -> bool {
        self.has_lock || self.config.lock.is_none()
    }

    /// True if somebody else holds the lock.
    pub fn is_lock_contended(&self) -> bool {
        self.lock_contended
    }

    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Rows of a table in order of uuid; none if the server does not have the table.
    pub fn rows(&self, table: &str) -> impl Iterator<Item = RowRef<'_>> {
        let t = self.schema.table(table);
        t.into_iter()
            .flat_map(move |t| self.rows[t].iter().map(move |(u, r)| RowRef::new(&self.schema.tables[t], *u, r)))
    }

    pub fn row(&self, table: &str, uuid: Uuid) -> Option<RowRef<'_>> {
        let t = self.schema.table(table)?;
        self.rows[t].get(&uuid).map(|r| RowRef::new(&self.schema.tables[t], uuid, r))
    }

    /// The only or first row of a table, e.g. of `Open_vSwitch`.
    pub fn first(&self, table: &str) -> Option<RowRef<'_>> {
        self.rows(table).next()
    }

    pub fn row_count(&self, table: &str) -> usize {
        self.schema.table(table).map_or(0, |t| self.rows[t].len())
    }

    /// Starts a write transaction.
    pub fn txn(&self) -> TxnBuilder {
        TxnBuilder::new(self.schema.clone())
    }

    /// Sends a transaction. Its outcome comes later, or at once where there is nothing to send.
    pub fn commit(&mut self, txn: TxnBuilder) -> TxnId {
        self.next_txn += 1;
        let id = TxnId(self.next_txn);
        if txn.is_empty() {
            self.ended(id, Outcome::Unchanged);
        } else if !self.synced {
            self.ended(id, Outcome::TryAgain);
        } else if !self.has_lock() {
            self.ended(id, Outcome::NotLocked);
        } else {
            let params = txn.into_params(&self.config.database, self.config.lock.as_deref());
            self.request("transact", params, Pending::Txn(id));
        }
        id
    }

    /// The outcome of a transaction, once.
    pub fn outcome(&mut self, id: TxnId) -> Option<Outcome> {
        self.outcomes.remove(&id)
    }

    /// Transactions that the server has not answered.
    pub fn transactions_in_flight(&self) -> usize {
        self.pending.values().filter(|p| matches!(p, Pending::Txn(_))).count()
    }

    fn ended(&mut self, id: TxnId, outcome: Outcome) {
        self.outcomes.insert(id, outcome);
        if self.outcomes.len() > MAX_OUTCOMES {
            self.outcomes.pop_first();
        }
    }

    fn request(&mut self, method: &str, params: Vec<Value>, purpose: Pending) {
        self.next_id += 1;
        self.pending.insert(self.next_id, purpose);
        self.outgoing.push(Message::request(self.next_id, method, params).into_json());
    }

    fn request_lock(&mut self) {
        if let Some(name) = self.config.lock.clone() {
            self.request("lock", vec![name.into()], Pending::Lock);
        }
    }

    fn reply(&mut self, id: &Value, result: Result<Value, Value>) -> Result<(), SessionError> {
        let Some(purpose) = id.as_u64().and_then(|id| self.pending.remove(&id)) else {
            ::log::debug!(target: "ovsdb_cs", "reply to a request that was not made: {id}");
            return Ok(());
        };
        match (purpose, result) {
            (Pending::Schema, Ok(schema)) => self.schema_arrived(&schema),
            (Pending::Schema, Err(e)) => Err(SessionError::NoDatabase(e.to_string())),
            (Pending::Monitor(how), Ok(result)) => self.monitor_reply(how, result),
            (Pending::Monitor(how), Err(e)) => match (e == "unknown method", how.next()) {
                (true, Some(next)) => {
                    self.request_monitor(next);
                    Ok(())
                }
                _ => Err(SessionError::NoMonitor(e.to_string())),
            },
            (Pending::Lock, Ok(r)) => {
                self.lock_changed(r["locked"] == true);
                Ok(())
            }
            (Pending::Lock, Err(e)) => {
                ::log::warn!(target: "ovsdb_cs", "database refused the lock: {e}");
                self.lock_changed(false);
                Ok(())
            }
            (Pending::Unlock, _) => Ok(()),
            (Pending::Txn(id), result) => {
                self.ended(id, txn::outcome_of(result));
                Ok(())
            }
        }
    }

    fn lock_changed(&mut self, locked: bool) {
        self.has_lock = locked;
        self.lock_contended = !locked;
        self.seqno += 1;
    }

    fn schema_arrived(&mut self, json: &Value) -> Result<(), SessionError> {
        let schema = Schema::from_json(json).map_err(|e| SessionError::NoDatabase(e.to_string()))?;
        if schema != *self.schema {
            // Rows are numbered by the schema: renumber what we keep showing until the reply.
            let schema = Arc::new(schema);
            self.rows = renumber(&self.schema, &self.rows, &schema);
            self.schema = schema;
            self.last_txn_id = NO_TXN.to_owned();
        }
        self.request_lock();
        self.request_monitor(Monitoring::CondSince);
        Ok(())
    }

    fn request_monitor(&mut self, how: Monitoring) {
        let id = json!([self.config.database, self.sessions]);
        let mut params = vec![Value::from(self.config.database.as_str()), id, self.monitor_requests()];
        if how == Monitoring::CondSince {
            params.push(self.last_txn_id.as_str().into());
        }
        self.request(how.method(), params, Pending::Monitor(how));
    }

    /// The tables and columns that we want and the server has.
    fn monitor_requests(&self) -> Value {
        let mut requests = serde_json::Map::new();
        for ts in &self.schema.tables {
            let wanted = self.config.tables.iter().find(|t| t.0 == ts.name);
            if wanted.is_none() && !self.config.tables.is_empty() {
                continue;
            }
            let wanted = wanted.map_or(&[][..], |w| &w.1);
            let columns: Vec<&str> = ts.columns[2..]
                .iter()
                .map(|c| c.name.as_str())
                .filter(|c| wanted.is_empty() || wanted.iter().any(|w| w == c))
                .collect();
            requests.insert(ts.name.clone(), json!([{"columns": columns}]));
        }
        requests.into()
    }

    fn monitor_reply(&mut self, how: Monitoring, result: Value) -> Result<(), SessionError> {
        let bad = || SessionError::Update("unexpected monitor reply".into());
        let (resumed, updates) = if how == Monitoring::CondSince {
            let Value::Array(mut a) = result else { return Err(bad()) };
            let (Some(updates), Some(Value::String(id)), Some(Value::Bool(found)), None) =
                (a.pop(), a.pop(), a.pop(), a.pop())
            else {
                return Err(bad());
            };
            self.remember(&id);
            (found, updates)
        } else {
            self.last_txn_id = NO_TXN.to_owned();
            (false, result)
        };
        if !resumed {
            self.rows = vec![BTreeMap::new(); self.schema.tables.len()];
        }
        self.monitor_id = json!([self.config.database, self.sessions]);
        self.synced = true;
        self.seqno += 1;
        self.apply(&updates, how == Monitoring::Plain)
    }

    fn notification(&mut self, method: &str, params: Vec<Value>) -> Result<(), SessionError> {
        match (method, params.as_slice()) {
            ("update", [id, updates]) if *id == self.monitor_id => self.apply(updates, true),
            ("update2", [id, updates]) if *id == self.monitor_id => self.apply(updates, false),
            ("update3", [id, Value::String(txn), updates]) if *id == self.monitor_id => {
                self.remember(txn);
                self.apply(updates, false)
            }
            ("locked", [name]) if name.as_str() == self.config.lock.as_deref() => {
                self.lock_changed(true);
                Ok(())
            }
            ("stolen", [name]) if name.as_str() == self.config.lock.as_deref() => {
                self.lock_changed(false);
                Ok(())
            }
            _ => {
                ::log::debug!(target: "ovsdb_cs", "ignoring notification {method}");
                Ok(())
            }
        }
    }

    /// Where to go on in the next session. A server that names no UUID is not asked to: it, or another in its place,
    /// would refuse every session that begins so.
    fn remember(&mut self, txn: &str) {
        self.last_txn_id = fv_ovsdb::atom::parse_uuid(txn).map_or(NO_TXN.to_owned(), |_| txn.to_owned());
    }

    fn apply(&mut self, updates: &Value, plain: bool) -> Result<(), SessionError> {
        let schema = self.schema.clone();
        let n = rows::apply_updates(&schema, self.config.quiet, &mut self.rows, updates, plain).map_err(|e| {
            // The replica is in between: the next session must start afresh.
            self.last_txn_id = NO_TXN.to_owned();
            SessionError::Update(e)
        })?;
        if n > 0 {
            self.seqno += 1;
        }
        Ok(())
    }
}

fn renumber(old: &Schema, rows: &Rows, new: &Schema) -> Rows {
    let mut out: Rows = vec![BTreeMap::new(); new.tables.len()];
    for (ts, rows) in old.tables.iter().zip(rows) {
        let Some(t) = new.table(&ts.name) else { continue };
        let nts = &new.tables[t];
        for (uuid, row) in rows {
            let mut r = nts.default_row(*uuid);
            for (c, d) in ts.columns.iter().zip(row.iter()) {
                if let Some(i) = nts.column(&c.name).filter(|i| nts.columns[*i].ty == c.ty) {
                    r[i] = d.clone();
                }
            }
            out[t].insert(*uuid, Arc::new(r));
        }
    }
    out
}
