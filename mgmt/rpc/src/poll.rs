//! The event loop of a thread: epoll, level-triggered, plus a waker for other threads.
//!
//! Each turn every object states what it waits for (`want`, and `wake_at` for time), then the
//! thread waits once. What is not wanted again is forgotten, so nobody unregisters anything. A
//! want that did not change since the last turn costs one hash lookup and no system call.
//! Descriptors that stay for good can be registered once instead (`register`).

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fv_core::{Clock, Nanos};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;

/// Events taken from the kernel in one wait; more are delivered by the next one.
const EVENTS_MAX: usize = 256;
/// Kernel data of the waker.
const WAKER_DATA: u64 = u64::MAX;

/// What a descriptor is waited for. Neither still reports hang-ups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Interest {
    pub read: bool,
    pub write: bool,
}

impl Interest {
    pub const NONE: Interest = Interest { read: false, write: false };
    pub const READ: Interest = Interest { read: true, write: false };
    pub const WRITE: Interest = Interest { read: false, write: true };
    pub const BOTH: Interest = Interest { read: true, write: true };

    pub const fn or(self, o: Interest) -> Interest {
        Interest { read: self.read || o.read, write: self.write || o.write }
    }
    pub const fn is_none(self) -> bool {
        !self.read && !self.write
    }
    fn flags(self) -> epoll::EventFlags {
        let mut f = epoll::EventFlags::empty();
        f.set(epoll::EventFlags::IN, self.read);
        f.set(epoll::EventFlags::OUT, self.write);
        f
    }
}

/// Identity of an open descriptor. Kernel numbers are used again after a close; these never.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SourceId(u64);

impl SourceId {
    pub fn fresh() -> SourceId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        SourceId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// One descriptor that is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready {
    pub source: SourceId,
    pub readable: bool,
    pub writable: bool,
    pub hangup: bool,
}

/// Ends the wait of a poller, now or next time. Any thread, any number of times.
#[derive(Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    pub fn wake(&self) {
        // A full counter means that a wake-up is pending already.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

struct Entry {
    source: SourceId,
    interest: Interest,
    /// Turn in which it was last wanted; `u64::MAX` for registered ones.
    turn: u64,
}

pub struct Poller {
    epoll: OwnedFd,
    wakeup: Arc<OwnedFd>,
    entries: HashMap<RawFd, Entry>,
    turn: u64,
    wake_at: Nanos,
    ready: Vec<Ready>,
}

impl Poller {
    pub fn new() -> io::Result<Poller> {
        let ep = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let ev = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&ep, &ev, epoll::EventData::new_u64(WAKER_DATA), epoll::EventFlags::IN)?;
        Ok(Poller {
            epoll: ep,
            wakeup: Arc::new(ev),
            entries: HashMap::new(),
            turn: 1,
            wake_at: Nanos::MAX,
            ready: Vec::new(),
        })
    }

    pub fn waker(&self) -> Waker {
        Waker(self.wakeup.clone())
    }

    /// Waits for `fd` in the coming wait only. Wants for one source add up. The source must
    /// name this opening of the descriptor.
    pub fn want(&mut self, source: SourceId, fd: BorrowedFd<'_>, interest: Interest) {
        let turn = self.turn;
        self.set(source, fd, interest, turn);
    }

    /// Waits for `fd` in every wait until `forget`, or until it is closed.
    pub fn register(&mut self, source: SourceId, fd: BorrowedFd<'_>, interest: Interest) {
        self.set(source, fd, interest, u64::MAX);
    }

    /// Takes `fd` out. Unknown ones are no error.
    pub fn forget(&mut self, fd: BorrowedFd<'_>) {
        if self.entries.remove(&fd.as_raw_fd()).is_some() {
            let _ = epoll::delete(&self.epoll, fd);
        }
    }

    /// The coming wait ends at `at` at the latest.
    pub fn wake_at(&mut self, at: Nanos) {
        self.wake_at = self.wake_at.min(at);
    }

    /// The coming wait does not sleep.
    pub fn wake_now(&mut self) {
        self.wake_at = Nanos::ZERO;
    }

    /// Sleeps until a wanted descriptor is ready, a wake-up, or the earliest of `deadline` and
    /// the `wake_at`s. Under a stopped clock a deadline in the future never comes by itself:
    /// who moves the clock wakes the pollers.
    pub fn wait(&mut self, deadline: Option<Nanos>, clock: &Clock) -> io::Result<&[Ready]> {
        self.drop_unwanted();
        let deadline = deadline.unwrap_or(Nanos::MAX).min(self.wake_at);
        self.wake_at = Nanos::MAX;
        self.turn += 1;
        self.ready.clear();

        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; EVENTS_MAX];
        let timeout = timeout(deadline, clock);
        let n = match epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()) {
            Ok(n) => n,
            Err(Errno::INTR) => 0,
            Err(e) => return Err(e.into()),
        };
        for ev in &events[..n] {
            let (flags, data) = (ev.flags, ev.data.u64());
            if data == WAKER_DATA {
                let mut b = [0; 8];
                let _ = rustix::io::read(&*self.wakeup, &mut b);
                continue;
            }
            let gone = epoll::EventFlags::HUP | epoll::EventFlags::ERR;
            let hangup = flags.intersects(gone);
            self.ready.push(Ready {
                source: SourceId(data),
                readable: hangup || flags.contains(epoll::EventFlags::IN),
                writable: hangup || flags.contains(epoll::EventFlags::OUT),
                hangup,
            });
        }
        Ok(&self.ready)
    }

    fn set(&mut self, source: SourceId, fd: BorrowedFd<'_>, interest: Interest, turn: u64) {
        let raw = fd.as_raw_fd();
        let data = epoll::EventData::new_u64(source.0);
        let known = self.entries.get(&raw).filter(|e| e.source == source);
        let interest = match known {
            Some(e) if e.turn == turn && turn != u64::MAX => e.interest.or(interest),
            _ => interest,
        };
        let done = match known {
            Some(e) if e.interest == interest => Ok(()),
            Some(_) => match epoll::modify(&self.epoll, fd, data, interest.flags()) {
                Err(Errno::NOENT) => epoll::add(&self.epoll, fd, data, interest.flags()),
                r => r,
            },
            None => match epoll::add(&self.epoll, fd, data, interest.flags()) {
                Err(Errno::EXIST) => epoll::modify(&self.epoll, fd, data, interest.flags()),
                r => r,
            },
        };
        match done {
            Ok(()) => {
                self.entries.insert(raw, Entry { source, interest, turn });
            }
            // Regular files and the like are always ready.
            Err(Errno::PERM) => self.wake_now(),
            Err(e) => {
                log::warn!(target: "poll_loop", "cannot wait for descriptor {raw}: {e}");
                self.entries.remove(&raw);
            }
        }
    }

    /// Takes out what was not wanted this turn. A closed descriptor has left epoll by itself,
    /// and its number may belong to a source that is wanted: that one replaced the entry.
    fn drop_unwanted(&mut self) {
        let (turn, ep) = (self.turn, &self.epoll);
        self.entries.retain(|&raw, e| {
            let keep = e.turn >= turn;
            if !keep {
                crate::sys::epoll_delete(ep, raw);
            }
            keep
        });
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn timeout(deadline: Nanos, clock: &Clock) -> Option<Timespec> {
    if deadline == Nanos::MAX {
        return None;
    }
    let left = deadline.saturating_sub(clock.now());
    if clock.is_stopped() && left != Nanos::ZERO {
        return None;
    }
    Some(Timespec { tv_sec: left.secs() as i64, tv_nsec: (left.0 % 1_000_000_000) as i64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn ready(p: &mut Poller, clock: &Clock) -> Vec<(SourceId, bool, bool)> {
        let now = clock.now();
        p.wait(Some(now), clock).unwrap().iter().map(|r| (r.source, r.readable, r.writable)).collect()
    }

    #[test]
    fn wants_last_one_turn_and_registrations_stay() {
        let (a, mut b) = UnixStream::pair().unwrap();
        let clock = Clock::new();
        let mut p = Poller::new().unwrap();
        let id = SourceId::fresh();
        b.write_all(b"x").unwrap();
        p.want(id, a.as_fd(), Interest::READ);
        assert_eq!(ready(&mut p, &clock), [(id, true, false)]);
        assert_eq!(ready(&mut p, &clock), []);
        p.want(id, a.as_fd(), Interest::READ);
        p.want(id, a.as_fd(), Interest::WRITE);
        assert_eq!(ready(&mut p, &clock), [(id, true, true)]);
        p.register(id, a.as_fd(), Interest::WRITE);
        assert_eq!(ready(&mut p, &clock), [(id, false, true)]);
        assert_eq!(ready(&mut p, &clock), [(id, false, true)]);
        p.forget(a.as_fd());
        assert_eq!(ready(&mut p, &clock), []);
    }

    #[test]
    fn a_reused_number_is_a_new_source() {
        let clock = Clock::new();
        let mut p = Poller::new().unwrap();
        let mut raw = None;
        for _ in 0..4 {
            let (a, mut b) = UnixStream::pair().unwrap();
            b.write_all(b"x").unwrap();
            let id = SourceId::fresh();
            p.want(id, a.as_fd(), Interest::READ);
            assert_eq!(ready(&mut p, &clock), [(id, true, false)]);
            p.want(id, a.as_fd(), Interest::READ);
            raw = raw.or(Some(a.as_raw_fd()));
        }
        assert!(raw.is_some());
    }

    #[test]
    fn a_waker_ends_the_wait_once() {
        let clock = Clock::new();
        let mut p = Poller::new().unwrap();
        let w = p.waker();
        w.wake();
        w.wake();
        assert!(p.wait(None, &clock).unwrap().is_empty());
        let t = std::thread::spawn(move || w.wake());
        assert!(p.wait(None, &clock).unwrap().is_empty());
        t.join().unwrap();
    }

    #[test]
    fn deadlines_end_the_wait() {
        let clock = Clock::new();
        let mut p = Poller::new().unwrap();
        let t = clock.now().saturating_add(Nanos::from_ms(10));
        p.wake_at(t);
        p.wait(None, &clock).unwrap();
        assert!(clock.now() >= t);
        p.wake_now();
        p.wait(None, &clock).unwrap();
    }
}
