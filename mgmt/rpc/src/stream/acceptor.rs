//! A listener together with the connections whose handshake is under way.

use fv_core::Nanos;

use super::{Error, Listener, Stream, Tls, errno_text};
use crate::poll::{Interest, Poller};

/// Handshakes at a time; more wait in the kernel's backlog.
const HANDSHAKES_MAX: usize = 32;
/// A peer that takes longer is dropped: it would keep a place for nothing.
const HANDSHAKE_TIMEOUT: Nanos = Nanos::from_secs(10);
/// Connections accepted in one turn.
const ACCEPTS_PER_TURN: usize = 16;

pub struct Acceptor {
    listener: Listener,
    handshakes: Vec<(Stream, Nanos)>,
}

impl Acceptor {
    pub fn open(name: &str, tls: &Tls, default_port: Option<u16>) -> Result<Acceptor, Error> {
        Ok(Acceptor { listener: Listener::open(name, tls, default_port)?, handshakes: Vec::new() })
    }

    /// The connections that are ready for data.
    pub fn turn(&mut self, now: Nanos) -> Vec<Stream> {
        for _ in 0..ACCEPTS_PER_TURN {
            if self.handshakes.len() >= HANDSHAKES_MAX {
                break;
            }
            match self.listener.accept(now) {
                Ok(None) => break,
                Ok(Some(s)) => self.handshakes.push((s, now.saturating_add(HANDSHAKE_TIMEOUT))),
                Err(e) => {
                    log::warn!(target: "stream", "{}: accept: {}", self.listener.name(), errno_text(&e));
                    break;
                }
            }
        }
        let mut ready = Vec::new();
        let mut waiting = Vec::new();
        for (mut s, deadline) in self.handshakes.drain(..) {
            match s.connect() {
                Ok(true) => ready.push(s),
                Ok(false) if now < deadline => waiting.push((s, deadline)),
                Ok(false) => log::warn!(target: "stream", "{}: handshake takes too long", s.name()),
                // The stream has logged why.
                Err(_) => {}
            }
        }
        self.handshakes = waiting;
        ready
    }

    pub fn want(&self, poller: &mut Poller, now: Nanos) {
        if self.handshakes.len() < HANDSHAKES_MAX {
            self.listener.want(poller, now);
        }
        for (s, deadline) in &self.handshakes {
            s.want(poller, Interest::NONE);
            poller.wake_at(*deadline);
        }
    }

    pub fn listener(&self) -> &Listener {
        &self.listener
    }
}
