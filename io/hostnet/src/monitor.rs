//! A replica of the kernel's tables that follows its notifications.
//!
//! Two sockets: one hears notifications (through the [filter](crate::filter)), one reads dumps, so
//! that a flood of notifications cannot lose a dump's lines. A table is dumped at the start and when
//! notifications were lost; what is notified meanwhile is applied again behind the dump. Dumps of one
//! table are spaced by a multiple of what the last one took, so that resynchronising costs at most a
//! few percent of a core whatever happens.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use fv_core::Nanos;

use crate::error::Error;
use crate::filter;
use crate::kinds::link::Link;
use crate::kinds::{addr, link, neigh, route, rule};
use crate::netns;
use crate::pieces::{Piece, class, fill, pieces};
use crate::routes::Fit;
use crate::socket::{RECV_LEN, Received, Socket};
use crate::sys;
use crate::tables::{Interest, Kind, Neighbours, Tables};
use crate::wire::{Builder, HEADER_LEN, Message, Messages, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP};

const GROUP_LINK: i32 = 1;
const GROUP_NEIGH: i32 = 3;
const GROUPS_ADDR: [i32; 2] = [5, 9];
const GROUPS_ROUTE: [i32; 2] = [7, 11];
const GROUPS_RULE: [i32; 2] = [8, 19];

/// Room for some ten thousand notifications.
const EVENT_BUFFER: usize = 4 << 20;
/// Notifications kept for applying again behind a running dump; more make the dump repeat.
const MAX_REPLAY: usize = 1 << 20;
/// A dump that changes keep interrupting is taken as it is after this many tries (notifications
/// follow anyhow) and repeated once the pace allows.
const MAX_DUMP_TRIES: u32 = 3;
const MIN_DUMP_PAUSE: Nanos = Nanos::from_ms(100);
const MAX_DUMP_PAUSE: Nanos = Nanos::from_secs(10);
/// A pause is this many times the duration of the dump before it: 5 % of a core.
const PAUSE_FACTOR: u64 = 20;

#[derive(Clone, Copy, Default)]
struct Pace {
    wanted: bool,
    not_before: Nanos,
}

struct Dump {
    piece: Piece,
    seq: u32,
    tries: u32,
    torn: bool,
    started: Nanos,
    fresh: Tables,
}

/// What a turn did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Turn {
    /// Messages read.
    pub work: usize,
    /// Work is left: come again without waiting.
    pub more: bool,
    /// Nothing waits, but a dump is due then.
    pub wake_at: Option<Nanos>,
}

/// Events that an operator may want to see.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    pub notifications: u64,
    /// Passed the kernel's filter, but were of no interest.
    pub ignored: u64,
    pub malformed: u64,
    /// Overflows of the notification queue.
    pub lost: u64,
    pub dumps: u64,
    /// Dumps that a change tore.
    pub torn: u64,
}

/// Follows one network namespace. `turn` whenever one of `fds` is readable or `wake_at` is reached.
pub struct HostNet {
    interest: Interest,
    events: Socket,
    dumps: Socket,
    tables: Tables,
    pieces: BTreeMap<Piece, Pace>,
    dump: Option<Dump>,
    replay: Vec<u8>,
    /// Notifications were lost. The kernel queues none, and reports no further loss, until the queue
    /// has been read empty: only then is a dump worth anything.
    overrun: bool,
    buf: Box<[u8]>,
    stats: Stats,
}

impl HostNet {
    /// In the calling thread's namespace. Subscribes; the tables fill during the first turns.
    pub fn open(interest: Interest) -> io::Result<HostNet> {
        let mut h = HostNet {
            events: Socket::open()?,
            dumps: Socket::open()?,
            tables: Tables::default(),
            pieces: pieces(&interest)
                .into_iter()
                .map(|p| (p, Pace { wanted: true, not_before: Nanos::ZERO }))
                .collect(),
            interest,
            dump: None,
            replay: Vec::new(),
            overrun: false,
            buf: vec![0; RECV_LEN].into(),
            stats: Stats::default(),
        };
        h.subscribe()?;
        Ok(h)
    }

    /// In another namespace, given by an fd of it.
    pub fn open_in(ns: BorrowedFd<'_>, interest: Interest) -> io::Result<HostNet> {
        netns::inside(ns, || HostNet::open(interest))?
    }

    fn subscribe(&mut self) -> io::Result<()> {
        let i = &self.interest;
        self.events.receive_buffer(EVENT_BUFFER);
        let links = match &i.neighbours {
            Neighbours::All => None,
            Neighbours::On(l) => Some(&l[..]),
            Neighbours::None => Some(&[][..]),
        };
        // Without the program everything works, only at more cost.
        if let Some(p) = filter::program(&filter::Wanted { tables: &i.route_tables, neighbour_links: links })
            && let Err(e) = sys::attach_filter(self.events.as_fd(), &p)
        {
            log::debug!("no filter on route notifications: {e}");
        }
        let mut groups = vec![GROUP_LINK];
        let mut add = |on: bool, g: &[i32]| groups.extend(g.iter().filter(|_| on));
        add(i.addrs, &GROUPS_ADDR);
        // Address removals take IPv4 routes with them without a notification of their own.
        add(!i.addrs && !i.route_tables.is_empty(), &GROUPS_ADDR);
        add(!i.route_tables.is_empty(), &GROUPS_ROUTE);
        add(i.rules, &GROUPS_RULE);
        add(i.neighbours != Neighbours::None, &[GROUP_NEIGH]);
        groups.into_iter().try_for_each(|g| self.events.join(g))
    }

    /// What to wait on for reading.
    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.events.as_fd(), self.dumps.as_fd()]
    }

    pub fn tables(&self) -> &Tables {
        &self.tables
    }
    /// For taking change lists.
    pub fn tables_mut(&mut self) -> &mut Tables {
        &mut self.tables
    }
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The tables are complete: no dump is running or due.
    pub fn is_synced(&self) -> bool {
        !self.overrun && self.dump.is_none() && self.pieces.values().all(|p| !p.wanted)
    }

    /// Turns until the tables are complete. Blocks for as long as the dumps take.
    pub fn sync(&mut self, mut now: Nanos) -> Result<(), Error> {
        while !self.is_synced() {
            let t = self.turn(now, usize::MAX)?;
            if t.work == 0 {
                now = now.saturating_add(t.wake_at.map_or(MIN_DUMP_PAUSE, |w| w.saturating_sub(now)));
            }
        }
        Ok(())
    }

    /// Reads at most about `budget` messages (a datagram is never split: up to some hundred more).
    pub fn turn(&mut self, now: Nanos, budget: usize) -> Result<Turn, Error> {
        let mut work = 0;
        let mut idle = false;
        while work < budget && !idle {
            let e = self.turn_events(now)?;
            let d = self.turn_dump(now)?;
            idle = e == 0 && d == 0;
            work += e + d;
        }
        let due = self.pieces.values().filter(|p| p.wanted).map(|p| p.not_before).min();
        Ok(Turn { work, more: !idle, wake_at: due.filter(|_| self.dump.is_none()) })
    }

    fn turn_events(&mut self, now: Nanos) -> Result<usize, Error> {
        match self.events.recv(&mut self.buf).map_err(Error::io("notifications"))? {
            Received::Empty if self.overrun => {
                self.overrun = false;
                self.pieces.values_mut().for_each(|p| p.wanted = true);
                Ok(1)
            }
            Received::Empty => Ok(0),
            Received::Foreign => Ok(1),
            Received::Lost => {
                self.stats.lost += 1;
                self.overrun = true;
                Ok(1)
            }
            Received::Datagram(n) => {
                let buf = std::mem::take(&mut self.buf);
                let mut work = 0;
                for m in Messages(&buf[..n]) {
                    work += 1;
                    self.stats.notifications += 1;
                    self.event(&m, now);
                }
                self.buf = buf;
                Ok(work.max(1))
            }
        }
    }

    fn event(&mut self, m: &Message<'_>, _now: Nanos) {
        let Some(class) = class(m.kind) else { return };
        if !self.wants(class, m) {
            self.stats.ignored += 1;
            return;
        }
        if let Some(d) = &self.dump
            && class == d.piece.kind()
        {
            self.record(m);
        }
        self.apply_event(m, true);
    }

    /// Cheap: looks at fixed fields only, except for tables above 255.
    fn wants(&self, class: Kind, m: &Message<'_>) -> bool {
        match class {
            Kind::Links | Kind::Addrs => true,
            Kind::Rules => self.interest.rules,
            Kind::Routes => route::table_of(m).is_some_and(|t| self.interest.route_tables.contains(&t)),
            Kind::Neighbours => match &self.interest.neighbours {
                Neighbours::None => false,
                Neighbours::All => true,
                Neighbours::On(l) => l.contains(&crate::wire::u32_at(m.body, neigh::NDMSG_LINK_AT)),
            },
        }
    }

    fn record(&mut self, m: &Message<'_>) {
        let len = HEADER_LEN + m.body.len();
        if self.replay.len() + len > MAX_REPLAY {
            // Lost for the dump: it will be repeated.
            if let Some(d) = &mut self.dump {
                d.torn = true;
            }
            return;
        }
        let mut b = Builder::new(m.kind, m.flags, m.seq, m.body);
        self.replay.extend_from_slice(b.finish());
    }

    /// `live`: not a repetition, so what does not fit means that something was missed.
    fn apply_event(&mut self, m: &Message<'_>, live: bool) {
        let done = match class(m.kind) {
            Some(Kind::Links) => self.link_event(m),
            Some(Kind::Addrs) => self.addr_event(m),
            Some(Kind::Routes) => self.route_event(m, live),
            Some(Kind::Rules) => rule::parse(m).map(|r| {
                if m.kind == rule::RTM_NEWRULE {
                    self.tables.rules.put(r, ());
                } else {
                    self.tables.rules.remove(&r);
                }
            }),
            Some(Kind::Neighbours) => neigh::parse(m).map(|n| {
                if m.kind == neigh::RTM_NEWNEIGH {
                    self.tables.neighs.put(n.key, n);
                } else {
                    self.tables.neighs.remove(&n.key);
                }
            }),
            None => None,
        };
        if done.is_none() {
            self.stats.malformed += 1;
        }
    }

    fn link_event(&mut self, m: &Message<'_>) -> Option<()> {
        // The bridge module tells about its ports in link messages of another family.
        if m.body.first().is_some_and(|&f| f != libc::AF_UNSPEC as u8) {
            return Some(());
        }
        let mut l = link::parse(m)?;
        l.stats = None;
        let was_up = self.tables.links.get(&l.index).is_some_and(Link::is_up);
        let now_up = m.kind == link::RTM_NEWLINK && l.is_up();
        if m.kind == link::RTM_NEWLINK {
            self.tables.links.put(l.index, l);
        } else {
            self.tables.links.remove(&l.index);
        }
        // IPv4 routes over a device that goes down vanish without a notification.
        if was_up && !now_up {
            self.want_routes();
        }
        Some(())
    }

    fn addr_event(&mut self, m: &Message<'_>) -> Option<()> {
        let a = addr::parse(m)?;
        if m.kind == addr::RTM_DELADDR && a.key.ip.is_ipv4() {
            self.want_routes();
        }
        if !self.interest.addrs {
            return Some(());
        }
        if m.kind == addr::RTM_NEWADDR {
            self.tables.addrs.put(a.key, a);
        } else {
            self.tables.addrs.remove(&a.key);
        }
        Some(())
    }

    fn route_event(&mut self, m: &Message<'_>, live: bool) -> Option<()> {
        let Some(r) = route::parse(m) else {
            // Cached clones and other families are well-formed, but no routes.
            return Some(());
        };
        let piece = Piece::Routes { table: r.key.table, v6: r.key.dst.is_ipv6() };
        let fit = if m.kind == route::RTM_NEWROUTE {
            self.tables.routes.add(r, m.flags)
        } else {
            self.tables.routes.remove(&r)
        };
        if fit == Fit::Unknown && live {
            self.want(piece);
        }
        Some(())
    }

    fn want_routes(&mut self) {
        for (p, pace) in &mut self.pieces {
            if matches!(p, Piece::Routes { .. }) {
                pace.wanted = true;
            }
        }
    }

    fn want(&mut self, piece: Piece) {
        if let Some(p) = self.pieces.get_mut(&piece) {
            p.wanted = true;
        }
    }

    fn turn_dump(&mut self, now: Nanos) -> Result<usize, Error> {
        let op = "dump";
        if self.overrun || (self.dump.is_none() && !self.start_due_dump(now)?) {
            return Ok(0);
        }
        match self.dumps.recv(&mut self.buf).map_err(Error::io(op))? {
            // The kernel prepares the next part when the one before is read: never empty for long.
            Received::Empty => Ok(0),
            Received::Foreign => Ok(1),
            Received::Lost => {
                self.finish_dump(now, true)?;
                Ok(1)
            }
            Received::Datagram(n) => {
                let buf = std::mem::take(&mut self.buf);
                let r = self.dumped(&buf[..n], now);
                self.buf = buf;
                r
            }
        }
    }

    fn dumped(&mut self, datagram: &[u8], now: Nanos) -> Result<usize, Error> {
        let mut work = 1;
        for m in Messages(datagram) {
            let Some(d) = &mut self.dump else { break };
            if m.seq != d.seq {
                continue;
            }
            work += 1;
            d.torn |= m.flags & NLM_F_DUMP_INTR != 0;
            match m.kind {
                NLMSG_DONE => self.finish_dump(now, false)?,
                // A table that does not exist is empty.
                NLMSG_ERROR if m.errno().is_some_and(|e| [libc::ENOENT, libc::EOPNOTSUPP].contains(&e)) => {
                    self.finish_dump(now, false)?;
                }
                NLMSG_ERROR if m.errno() == Some(libc::EBUSY) => self.finish_dump(now, true)?,
                NLMSG_ERROR => {
                    self.dump = None;
                    return Err(Error::os("dump", m.errno().unwrap_or(libc::EPROTO)));
                }
                NLMSG_NOOP => {}
                _ => fill(&mut d.fresh, d.piece, &m, &self.interest),
            }
        }
        Ok(work)
    }

    fn start_due_dump(&mut self, now: Nanos) -> Result<bool, Error> {
        let Some((&piece, pace)) = self.pieces.iter_mut().find(|(_, p)| p.wanted && p.not_before <= now) else {
            return Ok(false);
        };
        pace.wanted = false;
        self.start_dump(piece, 1, now)?;
        Ok(true)
    }

    fn start_dump(&mut self, piece: Piece, tries: u32, now: Nanos) -> Result<(), Error> {
        let seq = self.dumps.next_seq();
        self.replay.clear();
        self.stats.dumps += 1;
        self.dumps.send(piece.request(seq).finish()).map_err(Error::io("dump"))?;
        self.dump = Some(Dump { piece, seq, tries, torn: false, started: now, fresh: Tables::default() });
        Ok(())
    }

    /// Takes a finished dump over, or starts it again if it is known to be inconsistent.
    fn finish_dump(&mut self, now: Nanos, failed: bool) -> Result<(), Error> {
        let Some(d) = self.dump.take() else { return Ok(()) };
        let took = now.saturating_sub(d.started);
        let pause = Nanos(took.0.saturating_mul(PAUSE_FACTOR).clamp(MIN_DUMP_PAUSE.0, MAX_DUMP_PAUSE.0));
        if d.torn || failed {
            self.stats.torn += 1;
            if d.tries < MAX_DUMP_TRIES {
                return self.start_dump(d.piece, d.tries + 1, now);
            }
            self.want(d.piece);
        }
        if let Some(p) = self.pieces.get_mut(&d.piece) {
            p.not_before = now.saturating_add(pause);
        }
        if failed {
            return Ok(());
        }
        self.install(d);
        let replay = std::mem::take(&mut self.replay);
        for m in Messages(&replay) {
            self.apply_event(&m, false);
        }
        Ok(())
    }

    fn install(&mut self, d: Dump) {
        let t = &mut self.tables;
        match d.piece {
            Piece::Links => t.links.replace(.., d.fresh.links.into_map()),
            Piece::Addrs => t.addrs.replace(.., d.fresh.addrs.into_map()),
            Piece::Neighs => t.neighs.replace(.., d.fresh.neighs.into_map()),
            Piece::Routes { table, v6 } => t.routes.install(table, v6, d.fresh.routes),
            Piece::Rules { v6 } => {
                // The other family's rules are not in this dump: they stay.
                let mut fresh = d.fresh.rules.into_map();
                fresh.extend(t.rules.iter().filter(|(r, ())| r.v6 != v6).map(|(r, ())| (r.clone(), ())));
                t.rules.replace(.., fresh);
            }
        }
    }
}
