//! Connections to controllers and tools: bytes in, bytes out.
//!
//! A connection negotiates, cuts the stream into messages, answers what concerns only itself, and
//! keeps what it has asked for (role, asynchronous messages, packet-in format). Requests about the
//! bridge are carried out by `handle`.

mod async_msg;
mod packet_ins;
mod parts;
mod role;
mod set;
pub(crate) mod wire;

use fv_core::Nanos;
use fv_openflow::framing::Negotiator;
use fv_openflow::msg::packet::PacketIn;
use fv_openflow::msg::session::{ErrorKind, ErrorMsg};
use fv_openflow::msg::{Body, Message, PacketInFormat, Role};
use fv_openflow::{OfError, Version, VersionSet};

use crate::bundle::Bundles;
use crate::dump::Dump;
use crate::monitor::Monitors;
pub(crate) use async_msg::Async;
use packet_ins::PacketIns;
use parts::{Joined, Parts};
pub use set::{ConnInfo, Conns, ControllerSpec};

/// Bytes that may wait to be parsed: one message of the largest size and a read more.
pub const MAX_RX: usize = 128 << 10;
/// With more bytes than this unread by the peer, its requests wait.
pub const TX_HIGH: usize = 1 << 20;
/// With more bytes than this unread by the peer, it is disconnected.
pub const TX_MAX: usize = 16 << 20;
const HEADER_LEN: usize = 8;
/// Message types.
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;
/// How long an unconfirmed controller must stay connected to count as accepting this switch.
const ADMISSION: Nanos = Nanos::from_secs(30);

/// How long a connection that is to be closed waits for its peer to read why.
const LINGER: Nanos = Nanos::from_secs(5);
/// How long a peer may take to say hello.
const GREETING: Nanos = Nanos::from_secs(15);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A configured controller: gets asynchronous messages.
    Primary,
    /// Someone who connected to us: gets asynchronous messages when asked for by `miss_send_len`.
    Service,
    /// Gets copies of what primary connections say and hear.
    Snoop,
}

/// Why a connection must be closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Closed {
    #[error("version negotiation failed")]
    Version,
    #[error("Protocol error")]
    Protocol,
    #[error("no response to inactivity probe")]
    Inactive,
    #[error("peer does not read")]
    Backlog,
    #[error("controller removed")]
    Removed,
}

pub struct Connection {
    pub(crate) id: ConnId,
    kind: Kind,
    /// The target that it belongs to, e.g. `tcp:127.0.0.1:6653`, or a name for a passive one.
    name: String,
    allowed: VersionSet,
    version: Option<Version>,
    rx: Vec<u8>,
    /// Parsed already.
    rx_at: usize,
    tx: Vec<u8>,
    closed: Option<Closed>,
    /// The stream is gone: what had come is still carried out, nothing is sent.
    gone: bool,
    /// When a closed connection stops waiting for its peer to read why.
    linger: Option<Nanos>,
    pub(crate) role: Role,
    /// None: the defaults of version and kind.
    pub(crate) async_cfg: Option<async_msg::Masks>,
    hears_unasked: bool,
    pub(crate) packet_in_format: PacketInFormat,
    pub(crate) controller_id: u16,
    pub(crate) miss_send_len: u16,
    pub(crate) invalid_ttl: bool,
    pub(crate) table_id_in_command: bool,
    /// OpenFlow 1.0 with Nicira's form of matches.
    pub(crate) nxm: bool,
    pub(crate) dump: Option<Dump>,
    pub(crate) bundles: Bundles,
    pub(crate) monitors: Monitors,
    packet_ins: PacketIns,
    parts: Parts,
    /// Zero: no probes.
    probe_interval: Nanos,
    last_heard: Nanos,
    probed: Option<Nanos>,
    connected: Nanos,
    admitted: bool,
    /// Copies for snoops since they were last taken.
    copies: Option<Vec<u8>>,
}

/// One message of the stream, as bytes and as what it says.
pub(crate) struct Received {
    pub frame: Vec<u8>,
    pub message: Result<Message, OfError>,
}

impl Connection {
    pub(crate) fn new(id: ConnId, kind: Kind, name: &str, allowed: VersionSet, now: Nanos) -> Connection {
        let mut c = Connection {
            id,
            kind,
            name: name.to_owned(),
            allowed,
            version: None,
            rx: Vec::new(),
            rx_at: 0,
            tx: Vec::new(),
            closed: None,
            gone: false,
            linger: None,
            role: Role::Equal,
            async_cfg: None,
            hears_unasked: true,
            packet_in_format: PacketInFormat::Standard,
            controller_id: 0,
            miss_send_len: if kind == Kind::Primary { 128 } else { 0 },
            invalid_ttl: false,
            table_id_in_command: false,
            nxm: false,
            dump: None,
            bundles: Bundles::default(),
            monitors: Monitors::default(),
            packet_ins: PacketIns::default(),
            parts: Parts::default(),
            probe_interval: Nanos::ZERO,
            last_heard: now,
            probed: None,
            connected: now,
            admitted: false,
            copies: None,
        };
        c.tx = Negotiator::new(allowed).hello(1);
        c
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it has made flow monitors.
    pub fn watches_flows(&self) -> bool {
        !self.monitors.is_empty()
    }

    /// None until negotiated.
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    pub fn role(&self) -> Role {
        self.role
    }

    pub fn closed(&self) -> Option<Closed> {
        self.closed
    }

    pub(crate) fn close(&mut self, why: Closed) {
        self.closed.get_or_insert(why);
    }

    /// Negotiated and not to be closed.
    pub(crate) fn is_up(&self) -> bool {
        self.version.is_some() && self.closed.is_none() && !self.gone
    }

    /// The stream is gone.
    pub(crate) fn hang_up(&mut self) {
        self.gone = true;
        self.dump = None;
        self.tx = Vec::new();
    }

    /// Gone, and all that had come is done.
    pub(crate) fn is_over(&self) -> bool {
        self.gone && !self.has_input()
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Whether more bytes may be handed in: a peer that does not read its answers waits.
    pub fn wants_read(&self) -> bool {
        self.closed.is_none() && !self.gone && self.rx.len() - self.rx_at < MAX_RX && self.tx.len() < TX_HIGH
    }

    pub(crate) fn receive(&mut self, bytes: &[u8], now: Nanos) {
        if self.closed.is_some() || self.kind == Kind::Snoop && self.version.is_some() {
            return;
        }
        self.last_heard = now;
        self.probed = None;
        if self.rx_at > 0 {
            self.rx.drain(..self.rx_at);
            self.rx_at = 0;
        }
        self.rx.extend_from_slice(bytes);
    }

    /// What is to be sent.
    pub fn output(&self) -> &[u8] {
        &self.tx
    }

    /// The first `n` bytes of `output` are on their way.
    pub(crate) fn sent(&mut self, n: usize) {
        self.tx.drain(..n.min(self.tx.len()));
        self.resume_monitors();
        self.refill_packet_ins();
    }

    /// The next whole message, if there is one. Hello and echo are dealt with here.
    pub(crate) fn next_message(&mut self, now: Nanos) -> Option<Received> {
        while self.closed.is_none() && self.dump.is_none() && self.tx.len() < TX_HIGH {
            let frame = self.next_frame()?;
            let version = frame[0];
            let Some(mine) = self.version else {
                self.negotiate(&frame);
                continue;
            };
            self.copy(&frame);
            if version != mine.wire() {
                let xid = xid_of(&frame);
                self.error(xid, OfError::BrcBadVersion, &frame);
                self.close(Closed::Protocol);
                return None;
            }
            let (frame, message) = match self.parts.take(&frame, now) {
                Joined::Whole => {
                    let message = wire::decode(&frame, self.table_id_in_command);
                    (frame, message)
                }
                Joined::Waits => continue,
                Joined::Request(first, message) => (first, message),
                Joined::Error(e) => (frame, Err(e)),
            };
            match message {
                Ok(Message { xid, body: Body::EchoRequest(data), .. }) => self.reply(xid, Body::EchoReply(data)),
                Ok(Message { body: Body::EchoReply(_) | Body::Hello(_), .. }) => {}
                message => {
                    self.note_admission(&message, now);
                    return Some(Received { frame, message });
                }
            }
        }
        None
    }

    /// Answers echo requests, as far as nothing else is before them.
    pub(crate) fn answer_echoes(&mut self, now: Nanos) {
        while let Some(v) = self.version
            && self.is_up()
            && self.tx.len() < TX_HIGH
            && matches!(self.rx[self.rx_at..], [version, ECHO_REQUEST | ECHO_REPLY, ..] if version == v.wire())
        {
            let Some(frame) = self.next_frame() else { break };
            self.copy(&frame);
            if let Ok(Message { xid, body: Body::EchoRequest(data), .. }) = wire::decode(&frame, false) {
                self.reply(xid, Body::EchoReply(data));
            }
            self.last_heard = now;
        }
    }

    /// Whether `next_message` could have something now.
    pub(crate) fn has_input(&self) -> bool {
        let b = &self.rx[self.rx_at..];
        let whole = b.len() >= HEADER_LEN && b.len() >= usize::from(u16::from_be_bytes([b[2], b[3]]));
        self.closed.is_none() && self.tx.len() < TX_HIGH && (self.dump.is_some() || whole)
    }

    fn next_frame(&mut self) -> Option<Vec<u8>> {
        let b = &self.rx[self.rx_at..];
        if b.len() < HEADER_LEN {
            return None;
        }
        let len = usize::from(u16::from_be_bytes([b[2], b[3]]));
        if len < HEADER_LEN {
            self.close(Closed::Protocol);
            return None;
        }
        if b.len() < len {
            return None;
        }
        let frame = b[..len].to_vec();
        self.rx_at += len;
        Some(frame)
    }

    /// The first message must be a hello; the highest common version is spoken from then on.
    fn negotiate(&mut self, frame: &[u8]) {
        match Negotiator::new(self.allowed).peer(frame) {
            Ok(v) => self.version = Some(v),
            Err(failed) => {
                log::debug!("{}: {}", self.name, failed.reason);
                self.tx.extend(failed.reply);
                self.close(Closed::Version);
            }
        }
    }

    pub(crate) fn reply(&mut self, xid: u32, body: Body) {
        let Some(v) = self.version else { return };
        let bytes = wire::encode(&Message::new(v, xid, body));
        self.push(&bytes);
    }

    /// An error reply with the message that caused it.
    pub(crate) fn error(&mut self, xid: u32, error: OfError, frame: &[u8]) {
        let data = frame[..frame.len().min(wire::MAX_ERROR_DATA)].to_vec();
        let msg = ErrorMsg { error: ErrorKind::Known(error), data };
        self.reply(xid, Body::Error(msg));
    }

    /// Appends to what is to be sent; a peer that has let too much pile up is given up.
    fn push(&mut self, bytes: &[u8]) {
        if self.closed.is_some() || self.gone {
            return;
        }
        if self.tx.len() + bytes.len() > TX_MAX {
            self.tx.clear();
            self.close(Closed::Backlog);
            return;
        }
        self.copy(bytes);
        self.tx.extend_from_slice(bytes);
    }

    fn copy(&mut self, bytes: &[u8]) {
        if let Some(c) = &mut self.copies
            && c.len() + bytes.len() <= TX_HIGH
        {
            c.extend_from_slice(bytes);
        }
    }

    /// Copies of a primary connection's traffic, for a snoop; dropped when it does not keep up.
    pub(crate) fn push_copy(&mut self, bytes: &[u8]) {
        if self.version.is_some() && self.tx.len() + bytes.len() <= TX_HIGH {
            self.tx.extend_from_slice(bytes);
        }
    }

    /// Sends asynchronous message `body`, if the connection is up.
    pub(crate) fn send_async(&mut self, body: Body) {
        self.reply(0, body);
    }

    /// Queues a packet-in that this connection wants, as `format`ted for it.
    pub(crate) fn send_packet_in(&mut self, p: PacketIn, now: Nanos) {
        let Some(v) = self.version else { return };
        let port = p.metadata.key.base.in_port;
        let bytes = wire::encode_packet_in(v, self.packet_in_format, p);
        self.packet_ins.push(bytes, port, now);
        self.refill_packet_ins();
    }

    /// Moves packet-ins to the output as far as the peer reads them.
    fn refill_packet_ins(&mut self) {
        while self.tx.len() < packet_ins::TX_LOW {
            let Some(bytes) = self.packet_ins.pop() else { break };
            self.push(&bytes);
        }
    }

    /// Takes over what configuration says of its target.
    fn configure(&mut self, s: &ControllerSpec) {
        self.probe_interval = s.probe_interval;
        self.hears_unasked = s.enable_async;
        self.set_rate_limit(s.rate_limit);
    }

    pub(crate) fn set_rate_limit(&mut self, limit: Option<(u32, u32)>) {
        self.packet_ins.set_rate_limit(limit);
    }

    pub(crate) fn set_queue_size(&mut self, n: usize) {
        self.packet_ins.set_queue_size(n);
    }

    /// Probes an idle peer, gives up a silent one, releases rate-limited packet-ins. The time of its
    /// next doing.
    pub(crate) fn tick(&mut self, now: Nanos) -> Option<Nanos> {
        for first in self.parts.expire(now) {
            self.error(xid_of(&first), OfError::BrcMultipartRequestTimeout, &first);
        }
        let next = [self.packet_ins.release(now), self.parts.next_expiry()].into_iter().flatten().min();
        self.refill_packet_ins();
        if self.closed.is_some() {
            let until = *self.linger.get_or_insert(now.saturating_add(LINGER));
            if until <= now {
                self.tx = Vec::new();
            }
            return Some(until).filter(|u| *u > now);
        }
        if self.version.is_none() {
            let limit = self.connected.saturating_add(GREETING);
            if limit <= now {
                self.close(Closed::Version);
                return next;
            }
            return Some(next.map_or(limit, |n| n.min(limit)));
        }
        self.admitted |= self.connected.saturating_add(ADMISSION) <= now;
        if self.probe_interval == Nanos::ZERO {
            return next;
        }
        let at = match self.probed {
            Some(t) if now >= t.saturating_add(self.probe_interval) => {
                self.close(Closed::Inactive);
                return next;
            }
            Some(t) => t.saturating_add(self.probe_interval),
            None if now >= self.last_heard.saturating_add(self.probe_interval) => {
                self.probed = Some(now);
                self.reply(0, Body::EchoRequest(Vec::new()));
                now.saturating_add(self.probe_interval)
            }
            None => self.last_heard.saturating_add(self.probe_interval),
        };
        Some(next.map_or(at, |n| n.min(at)))
    }

    /// A controller that programs the switch has accepted it.
    fn note_admission(&mut self, m: &Result<Message, OfError>, _now: Nanos) {
        if let Ok(m) = m {
            self.admitted |=
                !matches!(m.body, Body::Error(_) | Body::FeaturesRequest | Body::GetConfigRequest | Body::SetConfig(_));
        }
    }

    pub(crate) fn is_admitted(&self) -> bool {
        self.admitted && self.is_up()
    }
}

pub(crate) fn xid_of(frame: &[u8]) -> u32 {
    match frame {
        [_, _, _, _, a, b, c, d, ..] => u32::from_be_bytes([*a, *b, *c, *d]),
        _ => 0,
    }
}
