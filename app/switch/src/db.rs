//! The database as the switch sees it: a replica kept up over a session.

use fv_core::Nanos;
use fv_ovsdb_db::client::{Client, Config, Outcome, TxnBuilder, TxnId};
use fv_rpc::jsonrpc::Limits;
use fv_rpc::{Message, Poller, Session, Tls};

/// Only the holder of this lock configures the host.
const LOCK: &str = "ovs_vswitchd";

pub struct DbLink {
    pub client: Client,
    session: Session,
    seqno: u64,
    told_locked: bool,
}

impl DbLink {
    pub fn open(remote: &str, tls: &Tls, now: Nanos) -> DbLink {
        let remotes: Vec<&str> = remote.split(',').filter(|r| !r.is_empty()).collect();
        let mut client = Client::new(Config::vswitch());
        client.set_lock(Some(LOCK));
        DbLink { client, session: Session::open(&remotes, tls, Limits::default(), now), seqno: 0, told_locked: false }
    }

    /// Everything that can be done now. True if the replica or the lock changed.
    pub fn turn(&mut self, now: Nanos) -> bool {
        self.session.turn(now);
        self.follow_connection();
        while let Some(m) = self.session.recv() {
            if let Err(e) = self.client.handle(m.to_value()) {
                log::warn!(target: "ovsdb_cs", "{}: {e}", self.session.name());
                self.session.force_reconnect(now);
                break;
            }
        }
        self.follow_connection();
        self.flush(now);
        if self.client.is_lock_contended() != self.told_locked {
            self.told_locked = self.client.is_lock_contended();
            if self.told_locked {
                log::error!(
                    target: "bridge",
                    "another ovs-vswitchd process is running, disabling this process (pid {}) until it goes away",
                    std::process::id()
                );
            }
        }
        self.client.changed()
    }

    fn follow_connection(&mut self) {
        if self.session.seqno() != self.seqno || self.session.is_connected() != self.client.is_connected() {
            self.seqno = self.session.seqno();
            if self.client.is_connected() {
                self.client.disconnected();
            }
            if self.session.is_connected() {
                self.client.connected();
            }
        }
    }

    fn flush(&mut self, now: Nanos) {
        for v in self.client.take_outgoing() {
            match Message::from_value(v) {
                Ok(m) => {
                    self.session.send(&m);
                }
                Err(e) => log::error!(target: "ovsdb_cs", "cannot send: {e}"),
            }
        }
        self.session.turn(now);
    }

    /// Sends a transaction at once.
    pub fn commit(&mut self, t: TxnBuilder, now: Nanos) -> TxnId {
        let id = self.client.commit(t);
        self.flush(now);
        id
    }

    pub fn outcome(&mut self, id: TxnId) -> Option<Outcome> {
        self.client.outcome(id)
    }

    /// We may configure: the replica is whole and the lock is ours.
    pub fn is_ours(&self) -> bool {
        self.client.is_synced() && self.client.has_lock()
    }

    pub fn want(&self, poller: &mut Poller, now: Nanos) {
        self.session.want(poller, now);
    }
}
