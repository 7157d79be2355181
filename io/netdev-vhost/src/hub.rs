//! All connections of a process, driven by one thread that the application owns: it calls [`Hub::turn`] when
//! [`Hub`]'s descriptor is readable, or the time has come that the last turn named. Nothing here waits for control
//! or for workers beyond one burst.

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fv_core::Nanos;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, connect, socket_with};

use crate::conn::{Conn, End};
use crate::link::Link;
use crate::port::{Connection, Port, PortRings};

/// Events of one turn; the others come in the next.
const EVENTS: usize = 64;
/// Event data of the alarm. Ports' are their number, doubled, plus 1 for the listening socket.
const ALARM: u64 = u64::MAX;
/// How long after its end a connection's queues are kept: a guest that comes back soon finds them, and one that
/// comes and goes all the time has them dealt out seldom. They rest, so that they cost nothing.
const KEEP_QUEUES: Nanos = Nanos::from_secs(5);
/// How often one port writes to the log about the same kind of thing.
const LOG_EVERY: Nanos = Nanos::from_secs(5);

/// Gives ports to the thread.
#[derive(Clone)]
pub struct Hubs {
    shared: Arc<Shared>,
}

struct Shared {
    orders: Mutex<Vec<Order>>,
    alarm: Arc<OwnedFd>,
}

enum Order {
    Add(u64, Arc<Port>, Target),
    Aim(u64, Option<PathBuf>),
    Remove(u64),
}

/// Where a port's front end is.
pub(crate) enum Target {
    /// It listens there; None while nobody has said where.
    Connect(Option<PathBuf>),
    /// It comes here.
    Listen(Arc<OwnedFd>),
}

impl Hubs {
    pub(crate) fn alarm(&self) -> Arc<OwnedFd> {
        self.shared.alarm.clone()
    }

    pub(crate) fn add(&self, id: u64, port: Arc<Port>, target: Target) {
        self.order(Order::Add(id, port, target));
    }

    pub(crate) fn aim(&self, id: u64, path: Option<PathBuf>) {
        self.order(Order::Aim(id, path));
    }

    pub(crate) fn remove(&self, id: u64) {
        self.order(Order::Remove(id));
    }

    fn order(&self, order: Order) {
        self.shared.orders.lock().push(order);
        let _ = rustix::io::write(&*self.shared.alarm, &1u64.to_ne_bytes());
    }
}

/// The thread's side.
pub struct Hub {
    shared: Arc<Shared>,
    epoll: OwnedFd,
    lines: BTreeMap<u64, Line>,
}

/// One port's way to its front end.
struct Line {
    port: Arc<Port>,
    target: Target,
    link: Link,
    conn: Option<Conn>,
    /// When the queues of the last connection are forgotten.
    forget_at: Option<Nanos>,
    flips: Quiet,
    faults: Quiet,
    ends: Quiet,
}

/// Lets one line through now and then.
#[derive(Default)]
struct Quiet {
    next: Nanos,
    kept_back: u64,
}

impl Quiet {
    /// Some: the line may go out, with how many like it did not.
    fn pass(&mut self, now: Nanos) -> Option<u64> {
        if now < self.next {
            self.kept_back += 1;
            return None;
        }
        self.next = now + LOG_EVERY;
        Some(std::mem::take(&mut self.kept_back))
    }
}

/// A hub and the way to it.
pub fn hub() -> io::Result<(Hub, Hubs)> {
    let alarm = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let ep = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&ep, &alarm, epoll::EventData::new_u64(ALARM), epoll::EventFlags::IN)?;
    let shared = Arc::new(Shared { orders: Mutex::default(), alarm });
    Ok((Hub { shared: shared.clone(), epoll: ep, lines: BTreeMap::new() }, Hubs { shared }))
}

impl AsFd for Hub {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Hub {
    /// Does what is due, and says when something is at the latest.
    pub fn turn(&mut self, now: Nanos) -> Option<Nanos> {
        let mut room = [MaybeUninit::<epoll::Event>::uninit(); EVENTS];
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready: Vec<u64> = match epoll::wait(&self.epoll, &mut room, Some(&zero)) {
            Ok((events, _)) => events.iter().map(|e| e.data.u64()).collect(),
            Err(_) => Vec::new(),
        };
        if ready.contains(&ALARM) {
            let _ = rustix::io::read(&*self.shared.alarm, &mut [0u8; 8]);
        }
        self.take_orders(now);
        for data in ready {
            if let Some(line) = self.lines.get_mut(&(data / 2)) {
                // An event of a connection that ended meanwhile finds another one, or nothing to read.
                if data % 2 == 1 {
                    line.accept(&self.epoll, data / 2, now)
                } else {
                    line.serve(&self.epoll, data / 2, now)
                }
            }
        }
        let mut next = None::<Nanos>;
        for (id, line) in &mut self.lines {
            line.tick(&self.epoll, *id, now);
            next = [next, line.next()].into_iter().flatten().min();
        }
        next
    }

    fn take_orders(&mut self, now: Nanos) {
        let orders = std::mem::take(&mut *self.shared.orders.lock());
        for order in orders {
            match order {
                Order::Add(id, port, target) => {
                    if let Target::Listen(socket) = &target {
                        let data = epoll::EventData::new_u64(2 * id + 1);
                        if let Err(e) = epoll::add(&self.epoll, socket, data, epoll::EventFlags::IN) {
                            log::error!(target: "vhost", "{}: cannot wait for connections: {e}", port.name);
                        }
                    }
                    let line = Line {
                        port,
                        target,
                        link: Link::new(now),
                        conn: None,
                        forget_at: None,
                        flips: Quiet::default(),
                        faults: Quiet::default(),
                        ends: Quiet::default(),
                    };
                    self.lines.insert(id, line);
                }
                Order::Aim(id, path) => {
                    if let Some(line) = self.lines.get_mut(&id) {
                        line.end(None, now);
                        line.target = Target::Connect(path);
                        line.link = Link::new(now);
                    }
                }
                Order::Remove(id) => {
                    if let Some(mut line) = self.lines.remove(&id) {
                        line.end(None, now);
                    }
                }
            }
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.take_orders(Nanos::ZERO);
        self.lines.values_mut().for_each(|l| l.end(None, Nanos::ZERO));
    }
}

impl Line {
    fn next(&self) -> Option<Nanos> {
        let connect = self.link.next().filter(|_| matches!(self.target, Target::Connect(Some(_))));
        let flips = self.conn.is_some().then_some(self.flips.next).filter(|_| self.port.flips.load(Relaxed) > 0);
        [connect, self.forget_at, flips].into_iter().flatten().min()
    }

    fn tick(&mut self, ep: &OwnedFd, id: u64, now: Nanos) {
        if self.conn.is_none() && self.link.is_due(now) {
            self.connect(ep, id, now);
        }
        if self.port.needs_attention() {
            self.look(now);
        }
        if self.forget_at.is_some_and(|at| at <= now) {
            self.forget_at = None;
            self.port.shrink();
        }
        self.tell_flips(now);
    }

    fn connect(&mut self, ep: &OwnedFd, id: u64, now: Nanos) {
        let Target::Connect(Some(path)) = &self.target else { return };
        let connected = dial(path).and_then(|socket| {
            epoll::add(ep, &socket, epoll::EventData::new_u64(2 * id), epoll::EventFlags::IN)?;
            Ok(socket)
        });
        match connected {
            Ok(socket) => self.begin(socket),
            Err(_) => self.link.failed(now),
        }
    }

    /// One front end at a time: others are turned away.
    fn accept(&mut self, ep: &OwnedFd, id: u64, now: Nanos) {
        let Target::Listen(listener) = &self.target else { return };
        let Ok(socket) = accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) else { return };
        if self.conn.is_some() {
            // Perhaps the old one is gone and that is only not known yet.
            self.serve(ep, id, now);
        }
        if self.conn.is_some() {
            if let Some(n) = self.ends.pass(now) {
                log::warn!(target: "vhost", "{}: a second connection was turned away{}", self.port.name, more(n));
            }
            return;
        }
        match epoll::add(ep, &socket, epoll::EventData::new_u64(2 * id), epoll::EventFlags::IN) {
            Ok(()) => self.begin(socket),
            Err(e) => log::error!(target: "vhost", "{}: {e}", self.port.name),
        }
    }

    fn begin(&mut self, socket: OwnedFd) {
        self.link.connected();
        self.forget_at = None;
        self.conn = Some(Conn::new(socket));
        let path = match &self.target {
            Target::Connect(Some(path)) => Some(path.display().to_string()),
            _ => None,
        };
        self.port.report(|c| {
            *c = Connection {
                connected: true,
                socket: path.unwrap_or_else(|| std::mem::take(&mut c.socket)),
                error: c.error.take(),
                ..Connection::default()
            };
        });
    }

    fn serve(&mut self, ep: &OwnedFd, id: u64, now: Nanos) {
        let Some(conn) = &mut self.conn else { return };
        let (messages, stuffed) = (conn.messages, conn.is_stuffed());
        if let Err(end) = conn.turn(&self.port) {
            return self.end(Some(end), now);
        }
        if conn.is_stuffed() != stuffed {
            // Not read from while it does not read.
            let flags = if stuffed { epoll::EventFlags::IN } else { epoll::EventFlags::OUT };
            let _ = epoll::modify(ep, &*conn, epoll::EventData::new_u64(2 * id), flags);
        }
        if conn.messages != messages {
            let (features, sizes) = (conn.session.features(), conn.session.ring_sizes());
            self.port.negotiated(features, sizes);
        }
    }

    /// Takes the rings out and closes. Without a reason it is our side that wants it.
    fn end(&mut self, why: Option<End>, now: Nanos) {
        let Some(mut conn) = self.conn.take() else { return };
        conn.session.close(&mut PortRings(&self.port));
        let spoke = conn.messages > 0;
        drop(conn);
        self.link.ended(now, spoke);
        self.forget_at = Some(now + KEEP_QUEUES);
        let misbehaved = matches!(why, Some(End::Message { .. } | End::Refused { .. } | End::Memory));
        if misbehaved {
            self.port.count_bad_message();
        }
        let text = why.map(|w| w.to_string());
        let error = text.clone().filter(|_| misbehaved);
        self.port.report(|c| *c = Connection { error, socket: std::mem::take(&mut c.socket), ..Connection::default() });
        if let Some(text) = text
            && let Some(n) = self.ends.pass(now)
        {
            let level = if misbehaved { log::Level::Warn } else { log::Level::Info };
            log::log!(target: "vhost", level, "{}: {text}{}", self.port.name, more(n));
        }
    }

    /// A ring has failed, or memory is gone.
    fn look(&mut self, now: Nanos) {
        for (ring, why) in self.port.failed_rings() {
            if let Some(conn) = &self.conn {
                conn.session.signal_error(ring);
            }
            if let Some(n) = self.faults.pass(now) {
                log::warn!(target: "vhost", "{}: ring {ring} has stopped: {why}{}", self.port.name, more(n));
            }
            self.port.report(|c| c.error = Some(format!("ring {ring}: {why}")));
        }
        if self.conn.as_ref().is_some_and(|c| c.session.is_dead()) {
            self.end(Some(End::Memory), now);
        }
    }

    /// One line for any number of changes.
    fn tell_flips(&mut self, now: Nanos) {
        if self.port.flips.load(Relaxed) == 0 || now < self.flips.next {
            return;
        }
        self.flips.next = now + LOG_EVERY;
        let flips = self.port.flips.swap(0, Relaxed);
        let (rx, tx) = self.port.ready();
        let (rx, tx) = (ranges(&rx), ranges(&tx));
        let changes = if flips == 1 { "1 change".into() } else { format!("{flips} changes") };
        log::info!(target: "vhost", "{}: {changes} of queue states; enabled now: rx {rx}, tx {tx}", self.port.name);
    }
}

fn dial(path: &PathBuf) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) => Ok(socket),
        Err(Errno::INTR) => Err(Errno::AGAIN),
        Err(e) => Err(e),
    }
}

fn more(n: u64) -> String {
    if n == 0 { String::new() } else { format!(" (and {n} more like this)") }
}

/// `0-3,7`, or `none`.
fn ranges(numbers: &[usize]) -> String {
    let mut out = String::new();
    let mut i = 0;
    while i < numbers.len() {
        let mut j = i;
        while j + 1 < numbers.len() && numbers[j + 1] == numbers[j] + 1 {
            j += 1;
        }
        let comma = if out.is_empty() { "" } else { "," };
        out += &match i == j {
            true => format!("{comma}{}", numbers[i]),
            false => format!("{comma}{}-{}", numbers[i], numbers[j]),
        };
        i = j + 1;
    }
    if out.is_empty() { "none".into() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_ranges() {
        for (numbers, text) in [(&[][..], "none"), (&[3], "3"), (&[0, 1, 2, 7, 9, 10], "0-2,7,9-10")] {
            assert_eq!(ranges(numbers), text);
        }
    }
}
