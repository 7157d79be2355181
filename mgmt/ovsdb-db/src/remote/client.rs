//! A replica with its connection.

use super::LIMITS;
use super::peers::{Options, from_rpc};
use crate::client::Client;
use fv_core::Nanos;
use fv_rpc::{Poller, Session, Stream, Tls};

/// Keeps a `Client` connected to the first of its remotes that answers.
pub struct ClientDriver {
    pub client: Client,
    session: Session,
    seqno: u64,
    /// Closed because of what the peer said; the next connection may be better.
    complained: Option<String>,
}

impl ClientDriver {
    /// `remotes` such as `unix:/run/db.sock`, separated by commas.
    pub fn open(client: Client, remotes: &str, tls: &Tls, now: Nanos) -> ClientDriver {
        let list: Vec<&str> = remotes.split(',').filter(|r| !r.is_empty()).collect();
        let mut session = Session::open(&list, tls, LIMITS, now);
        let probe = list.first().map_or(Nanos::ZERO, |r| Options::for_target(r).probe);
        session.set_probe_interval(probe);
        ClientDriver { client, session, seqno: 0, complained: None }
    }

    /// Over a stream that is connected already, e.g. one half of a socket pair.
    pub fn attached(client: Client, stream: Stream, now: Nanos) -> ClientDriver {
        let mut session = Session::accepted(fv_rpc::Connection::new(stream, LIMITS), now);
        session.set_probe_interval(Nanos::ZERO);
        ClientDriver { client, session, seqno: 0, complained: None }
    }

    /// Everything that can be done now. Afterwards look at `client.changed()`, and call `turn`
    /// or `flush` again after writing transactions.
    pub fn turn(&mut self, now: Nanos) {
        self.session.turn(now);
        if self.session.seqno() != self.seqno {
            self.seqno = self.session.seqno();
            if self.session.is_connected() {
                self.client.connected();
            } else {
                self.client.disconnected();
            }
        }
        while let Some(m) = self.session.recv() {
            if let Err(e) = self.client.handle_message(from_rpc(m)) {
                let e = e.to_string();
                if self.complained.as_ref() != Some(&e) {
                    log::warn!(target: "ovsdb_cs", "{}: {e}", self.session.name());
                }
                self.complained = Some(e);
                self.client.disconnected();
                self.session.force_reconnect(now);
                return;
            }
        }
        if self.client.is_synced() {
            self.complained = None;
        }
        self.flush();
    }

    /// Sends what the client has to say.
    pub fn flush(&mut self) {
        for m in self.client.take_outgoing() {
            self.session.send_text(&m.to_string());
        }
    }

    pub fn want(&self, poller: &mut Poller, now: Nanos) {
        self.session.want(poller, now);
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    pub fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }
}
