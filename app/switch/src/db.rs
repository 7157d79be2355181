//! The database as the switch sees it: a replica kept up over a session, and the host's lock.

use fv_core::Nanos;
use fv_ovsdb_db::client::{Client, Config, Outcome, TxnBuilder, TxnId};
use fv_ovsdb_db::remote::ClientDriver;
use fv_rpc::{Poller, Tls};

/// Only the holder of this lock configures the host.
const LOCK: &str = "ovs_vswitchd";

pub struct DbLink {
    driver: ClientDriver,
    told_locked: bool,
}

impl DbLink {
    pub fn open(remote: &str, tls: &Tls, now: Nanos) -> DbLink {
        let mut client = Client::new(Config::vswitch());
        client.set_lock(Some(LOCK));
        DbLink { driver: ClientDriver::open(client, remote, tls, now), told_locked: false }
    }

    pub fn client(&self) -> &Client {
        &self.driver.client
    }

    /// Everything that can be done now. True if the replica or the lock changed.
    pub fn turn(&mut self, now: Nanos) -> bool {
        self.driver.turn(now);
        let contended = self.client().is_lock_contended();
        if contended && !self.told_locked {
            log::error!(
                target: "bridge",
                "another ovs-vswitchd process is running, disabling this process (pid {}) until it goes away",
                std::process::id()
            );
        }
        self.told_locked = contended;
        self.driver.client.changed()
    }

    /// Sends a transaction at once.
    pub fn commit(&mut self, t: TxnBuilder, now: Nanos) -> TxnId {
        let id = self.driver.client.commit(t);
        self.driver.turn(now);
        id
    }

    pub fn outcome(&mut self, id: TxnId) -> Option<Outcome> {
        self.driver.client.outcome(id)
    }

    /// We may configure: the replica is whole and the lock is ours.
    pub fn is_ours(&self) -> bool {
        self.client().is_synced() && self.client().has_lock()
    }

    pub fn want(&self, poller: &mut Poller, now: Nanos) {
        self.driver.want(poller, now);
    }
}
