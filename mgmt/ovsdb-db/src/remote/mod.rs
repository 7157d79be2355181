//! Databases on sockets: the server with its listeners and connections, and a client with its
//! connection. The owner's thread calls `turn`, then `want`, then waits.

mod client;
mod commands;
mod managers;
mod peers;

pub use client::ClientDriver;
pub use commands::COMMANDS;

use crate::server::{ConnId, Now, Server};
use fv_core::Nanos;
use fv_ovsdb::Message;
use fv_rpc::jsonrpc::Limits;
use fv_rpc::{Poller, Stream, Tls};
use managers::Managers;
use peers::{Options, Remote};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Connections that are served at once; more are closed as they come.
pub const MAX_CONNECTIONS: usize = 1000;
/// Bounds of one connection.
pub const LIMITS: Limits = Limits { message_bytes: 32 << 20, backlog_bytes: 256 << 20 };

/// The name that attached streams are kept under: no target has it.
const ATTACHED: &str = "attached";

/// A server, its fixed remotes, and those that the `Manager` table asks for.
pub struct ServerDriver {
    server: Server,
    tls: Tls,
    remotes: BTreeMap<String, Remote>,
    managers: Managers,
    /// Our own connection, for status.
    own: ConnId,
    /// Of the last turn: commands come between turns.
    now: Now,
}

impl ServerDriver {
    pub fn new(mut server: Server, tls: Tls) -> ServerDriver {
        let own = server.connection_opened();
        let mut remotes = BTreeMap::new();
        remotes.insert(ATTACHED.to_owned(), Remote::attached());
        ServerDriver {
            server,
            tls,
            remotes,
            managers: Managers::default(),
            own,
            now: Now { mono: Nanos::ZERO, wall: Nanos::ZERO },
        }
    }

    /// Adds a remote that stays: `punix:`, `ptcp:`, `pssl:`, `unix:`, `tcp:` or `ssl:`. A listener
    /// that cannot be opened is an error here.
    pub fn add_remote(&mut self, target: &str, now: Nanos) -> Result<(), String> {
        if target == "db:Open_vSwitch,Open_vSwitch,manager_options" {
            // What the database asks for is served anyway.
            return Ok(());
        }
        let options = Options { fixed: true, ..Options::for_target(target) };
        let mut remote = Remote::open(target, options, &self.tls, now);
        match remote.take_error() {
            Some(e) => Err(format!("{target}: {e}")),
            None => {
                if let Some(mut old) = self.remotes.insert(target.to_owned(), remote) {
                    old.close(&mut self.server);
                }
                Ok(())
            }
        }
    }

    /// Closes a remote and its connections; false if there is none of that name.
    pub fn remove_remote(&mut self, target: &str) -> bool {
        if target == ATTACHED {
            return false;
        }
        match self.remotes.remove(target) {
            Some(mut r) => {
                r.close(&mut self.server);
                true
            }
            None => false,
        }
    }

    /// Drops all connections; those that we keep up come back.
    pub fn reconnect(&mut self) {
        let now = self.now.mono;
        for (_, r) in self.remotes.iter_mut().filter(|(t, _)| *t != ATTACHED) {
            r.reconnect(&mut self.server, now);
        }
    }

    /// Serves a stream that is connected already, e.g. one half of a socket pair.
    pub fn attach(&mut self, stream: Stream, now: Nanos) {
        if let Some(r) = self.remotes.get_mut(ATTACHED) {
            r.accept(stream, now);
        }
    }

    /// Everything that can be done now.
    pub fn turn(&mut self, now: Now) {
        self.now = now;
        self.managers.reconfigure(&self.server, &self.tls, &mut self.remotes, now.mono);
        for (_, gone) in self.remotes.extract_if(.., |_, r| r.is_unwanted()) {
            let mut gone = gone;
            gone.close(&mut self.server);
        }
        let mut room = MAX_CONNECTIONS.saturating_sub(self.connection_count());
        for r in self.remotes.values_mut() {
            r.receive(&mut self.server, &self.tls, &mut room, now);
        }
        self.server.turn(now);
        if let Some(status) = self.managers.status(&self.server, &self.remotes, now.mono) {
            self.server.handle_message(self.own, Message::request("status", "transact", status), now);
            for reply in self.server.take_outgoing(self.own) {
                log::debug!(target: "ovsdb_jsonrpc_server", "status of managers: {reply}");
            }
        }
        for r in self.remotes.values_mut() {
            r.send(&mut self.server, now.mono);
        }
    }

    /// Registers what `turn` has to be called for.
    pub fn want(&self, poller: &mut Poller, now: Nanos) {
        for r in self.remotes.values() {
            r.want(poller, now);
        }
        if let Some(t) = self.server.next_deadline() {
            poller.wake_at(t);
        }
        if let Some(t) = self.managers.next_deadline() {
            poller.wake_at(t);
        }
    }

    /// The times of the last turn.
    pub fn last_now(&self) -> Now {
        self.now
    }

    pub fn last_turn(&self) -> Nanos {
        self.now.mono
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    pub fn server_mut(&mut self) -> &mut Server {
        &mut self.server
    }

    /// Targets of all remotes.
    pub fn remotes(&self) -> impl Iterator<Item = &str> {
        self.remotes.keys().map(String::as_str).filter(|t| *t != ATTACHED)
    }

    /// Where a listener of TCP or TLS is bound.
    pub fn bound(&self, target: &str) -> Option<SocketAddr> {
        self.remotes.get(target)?.bound()
    }

    pub fn connection_count(&self) -> usize {
        self.remotes.values().map(Remote::connection_count).sum()
    }
}
