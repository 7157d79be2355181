//! A worker: receive queues, its view of the flows, transmit buffers, and the turn that moves
//! packets between them. The same for poll workers, event workers and the control thread.

pub mod adapt;
mod budget;
pub mod mailbox;
mod marked;
mod miss;
pub mod perf;
mod process;
mod ready;
mod resting;
pub mod rxq;
pub mod stats;
pub mod tx;
pub mod work;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use fv_core::{DpPort, Nanos};
use fv_dpif::{DropReason, Marks, Program, WorkerId};
use fv_flow::DpKey;
use fv_packet::{BATCH_MAX, Packet};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};

use self::budget::Pace;
use self::mailbox::{Mail, Mailbox, Msg};
use self::perf::{LogRules, Perf, Sample};
use self::process::Scratch;
use self::ready::ReadySet;
use self::resting::Resting;
use self::rxq::Rxq;
use self::stats::{Snapshot, Stat, WorkerStats};
use self::tx::TxPorts;
use self::work::WorkList;
use crate::assign::WorkerKind;
use crate::exec::Env;
use crate::flow::Flow;
use crate::lookup::{Probe, Table};
use crate::parse;
use crate::shared::Shared;

/// Shorter frames are dropped on receipt: they have no Ethernet header.
const FRAME_MIN: usize = 14;
/// Entries of the flow table that one turn looks at while it searches for dead flows.
const SWEEP_PER_TURN: usize = 256;

/// What control knows of a worker. Cloning shares it.
#[derive(Clone)]
pub struct WorkerHandle {
    pub id: WorkerId,
    pub kind: WorkerKind,
    pub numa: Option<i32>,
    pub mailbox: Arc<Mailbox>,
    pub stats: Arc<WorkerStats>,
    pub limits: Arc<WorkerLimits>,
    /// Chooses its transmit queue of each port.
    pub(crate) index: usize,
    /// Its thread is about to end: nothing is dealt to it.
    pub(crate) retiring: bool,
    /// Counters when they were last cleared.
    pub(crate) cleared: Arc<Mutex<Snapshot>>,
}

impl WorkerHandle {
    pub(crate) fn new(id: WorkerId, kind: WorkerKind, numa: Option<i32>, index: usize) -> WorkerHandle {
        WorkerHandle {
            id,
            kind,
            numa,
            mailbox: Arc::default(),
            stats: Arc::default(),
            limits: Arc::default(),
            index,
            retiring: false,
            cleared: Arc::default(),
        }
    }

    /// What was counted since [`WorkerHandle::clear_stats`].
    pub fn since_cleared(&self) -> Snapshot {
        self.stats.snapshot().since(&self.cleared.lock())
    }

    /// Commands count from here; the counters themselves go on.
    pub fn clear_stats(&self) {
        *self.cleared.lock() = self.stats.snapshot();
    }
}

/// What control sets and a worker's thread reads between turns.
#[derive(Default, Debug)]
pub struct WorkerLimits {
    /// Longest sleep between two looks, in microseconds; 0 for none.
    pub max_sleep_us: AtomicU32,
    /// How long packets may wait for others that go the same way.
    pub flush_interval_us: AtomicU32,
    /// `pmd-perf-metrics`: turns are sampled.
    pub sampled: AtomicBool,
}

/// What a turn did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TurnResult {
    /// Packets received.
    pub packets: usize,
    /// Packets of the largest burst.
    pub most: usize,
    pub bursts: usize,
    /// Messages taken.
    pub messages: usize,
    /// There is more to do without any new packet: do not sleep.
    pub more: bool,
}

impl TurnResult {
    /// Anything happened, or more would.
    pub fn busy(&self) -> bool {
        self.packets > 0 || self.messages > 0 || self.more
    }
}

/// Owned by one thread, which calls [`Worker::turn`].
pub struct Worker {
    handle: WorkerHandle,
    shared: Arc<Shared>,
    handler_seq: Option<u32>,
    /// Reused for each exchange with the mailbox.
    mail: Mail,
    table: Table,
    /// Those that turns go through.
    queues: Vec<Rxq>,
    resting: Resting,
    /// Moves whenever the set of queues changes.
    queues_seq: u64,
    /// For event workers: which queues have something, as of `ready_seq`.
    ready: Option<ReadySet>,
    ready_seq: u64,
    /// Queues to look into; reused.
    turn_queues: Vec<usize>,
    /// `turn_queues` holds what the last sleep found.
    found: bool,
    env: Env,
    scratch: Box<Scratch>,
    /// Flows are offloaded: what the marks in packets mean.
    marks: Option<Arc<Marks>>,
    /// Always there, except while it is run.
    run: Option<Box<marked::Run>>,
    /// The next turn looks into every queue.
    look: bool,
    /// How fast ticks go, those at the beginning of the last turn, and whether packets with flows piled up
    /// since.
    pace: Pace,
    last_turn: u64,
    pressed: bool,
    /// The last turn had packets.
    was_busy: bool,
    /// Reads a cheap clock for cycle accounting; any unit.
    ticks: fn() -> u64,
    /// When the last turn ended, in ticks.
    turn_end: Option<u64>,
    perf: Option<Box<Perf>>,
    perf_log: Option<LogRules>,
}

impl Worker {
    /// `ticks` may always return 0.
    pub(crate) fn new(handle: WorkerHandle, shared: Arc<Shared>, ticks: fn() -> u64) -> Worker {
        let index = handle.index;
        let env = Env {
            shared: shared.clone(),
            worker: handle.id,
            now: Nanos::ZERO,
            handler: None,
            tx: TxPorts::new(index),
            work: WorkList::default(),
            stats: handle.stats.clone(),
            vlan_limit: 1,
            random: 0x9e37_79b9 ^ index as u64,
        };
        Worker {
            handle,
            shared,
            handler_seq: None,
            mail: Mail::default(),
            table: Table::default(),
            queues: Vec::new(),
            resting: Resting::default(),
            queues_seq: 0,
            ready: None,
            ready_seq: 0,
            turn_queues: Vec::new(),
            found: false,
            env,
            scratch: Box::default(),
            marks: None,
            run: Some(Box::default()),
            look: false,
            pace: Pace::default(),
            last_turn: 0,
            pressed: false,
            was_busy: false,
            ticks,
            turn_end: None,
            perf: None,
            perf_log: None,
        }
    }

    /// Reads: messages, receive queues. Writes: all of the worker's, devices.
    /// Goes round the queues, a burst of each, until all are empty or `budget` packets have come,
    /// then sends what is buffered.
    pub fn turn(&mut self, now: Nanos, budget: usize) -> TurnResult {
        let start = (self.ticks)();
        self.idle_until(start);
        let mut result = self.begin(now);
        self.follow_enabled(self.was_busy);
        self.fill_buckets(now, start);
        let before_turn = self.sampling();
        let mut queues = self.queues_to_poll();
        let asked = self.ready.is_some();
        let mut before = 0;
        while !queues.is_empty() && result.packets < budget.max(1) {
            queues.retain(|q| {
                let got = self.poll(*q);
                result.packets += got;
                result.most = result.most.max(got);
                result.bursts += usize::from(got > 0);
                // Whether a short burst was the last one, the next turn's look tells for less.
                !asked || got == BATCH_MAX
            });
            let got = result.packets - before;
            before = result.packets;
            if got == 0 {
                break;
            }
        }
        queues.clear();
        self.turn_queues = queues;
        result.more |= self.env.tx.flush(now, self.hold(), &self.env.stats);
        result.more |= self.queues.iter().any(|q| !q.waiting.is_empty());
        let idle = result.packets == 0;
        self.was_busy = !idle;
        self.env.stats.add(if idle { Stat::IdleTurns } else { Stat::BusyTurns }, 1);
        let end = (self.ticks)();
        self.turn_end = Some(end);
        self.env.stats.add(if idle { Stat::IdleTicks } else { Stat::BusyTicks }, end.wrapping_sub(start));
        if let Some(before) = before_turn {
            self.sample(now, &result, end.wrapping_sub(start), before);
        }
        result
    }

    /// Upcalls and their ticks so far, if turns are sampled.
    fn sampling(&mut self) -> Option<(u64, u64)> {
        if !self.handle.limits.sampled.load(Ordering::Relaxed) {
            self.perf = None;
            return None;
        }
        let rules = self.perf_log;
        self.perf.get_or_insert_with(|| {
            let mut perf = Box::<Perf>::default();
            perf.set_log(rules);
            perf
        });
        Some((self.env.stats.value(Stat::Missed), self.env.stats.value(Stat::UpcallTicks)))
    }

    fn sample(&mut self, now: Nanos, turn: &TurnResult, ticks: u64, before: (u64, u64)) {
        let Some(perf) = &mut self.perf else { return };
        let (upcalls, upcall_ticks) = before;
        let queued = self.queues.iter().filter_map(|q| q.rx.len_hint()).max().unwrap_or(0);
        let sample = Sample {
            ticks,
            packets: turn.packets as u64,
            bursts: turn.bursts as u64,
            upcalls: self.env.stats.value(Stat::Missed).wrapping_sub(upcalls),
            upcall_ticks: self.env.stats.value(Stat::UpcallTicks).wrapping_sub(upcall_ticks),
            queued: queued.into(),
            ..Sample::default()
        };
        perf.turn(now, sample);
    }

    /// Which sampled turns are told to the log, now and whenever turns are sampled.
    pub fn set_perf_log(&mut self, rules: Option<LogRules>) {
        self.perf_log = rules;
        self.perf.iter_mut().for_each(|p| p.set_log(rules));
    }

    /// What was sampled, while turns are.
    pub fn perf(&mut self) -> Option<&mut Perf> {
        self.perf.as_deref_mut()
    }

    /// Only one that never sleeps comes back in time to send what it holds.
    fn hold(&self) -> Nanos {
        let limits = &self.handle.limits;
        match self.handle.kind {
            WorkerKind::Poll if limits.max_sleep_us.load(Ordering::Relaxed) == 0 => {
                Nanos(u64::from(limits.flush_interval_us.load(Ordering::Relaxed)) * 1000)
            }
            _ => Nanos::ZERO,
        }
    }

    /// A poll worker's time is its own: what passes between turns, it was idle.
    fn idle_until(&mut self, start: u64) {
        if let (WorkerKind::Poll, Some(end)) = (self.handle.kind, self.turn_end) {
            self.env.stats.add(Stat::IdleTicks, start.wrapping_sub(end));
        }
    }

    /// The thread slept between two turns.
    pub fn count_sleep(&self, slept: Duration) {
        self.env.stats.add(Stat::SleepTurns, 1);
        self.env.stats.add(Stat::SleepNanos, slept.as_nanos() as u64);
    }

    /// Lets the queues' upcall budgets grow by the time since the last turn.
    fn fill_buckets(&mut self, now: Nanos, ticks: u64) {
        self.pace.observe(now, ticks);
        let elapsed = ticks.wrapping_sub(self.last_turn);
        self.last_turn = ticks;
        let pressed = std::mem::take(&mut self.pressed);
        let waiting = self.queues.iter().filter(|q| !q.waiting.is_empty()).count();
        for queue in &mut self.queues {
            queue.budget.fill(&self.pace, elapsed, pressed, waiting);
        }
    }

    /// Messages and housekeeping: what precedes packets.
    fn begin(&mut self, now: Nanos) -> TurnResult {
        self.env.now = now;
        let mut result = TurnResult::default();
        if self.handle.mailbox.pending() {
            result.messages = self.take_mail();
            // A sender held the mailbox.
            result.more = self.handle.mailbox.pending();
        }
        let seq = self.shared.handler_seq();
        if self.handler_seq != Some(seq) {
            self.handler_seq = Some(seq);
            self.env.handler = self.shared.handler();
            self.marks = self.shared.marks();
        }
        result.more |= self.table.tick(now, SWEEP_PER_TURN);
        result
    }

    /// Those that may have packets or have misses that wait, where that is cheap to know; else all.
    fn queues_to_poll(&mut self) -> Vec<usize> {
        let mut found = std::mem::take(&mut self.found);
        if self.ready_seq != self.queues_seq {
            found = false;
            self.follow_queues();
        }
        let mut queues = std::mem::take(&mut self.turn_queues);
        let look = std::mem::take(&mut self.look);
        match self.ready.as_ref().filter(|_| !look) {
            None => {
                queues.clear();
                queues.extend(0..self.queues.len());
            }
            Some(ready) => {
                if !found {
                    ready.collect(&mut queues);
                }
                let waiting = (0..self.queues.len()).filter(|q| !self.queues[*q].waiting.is_empty());
                for q in waiting {
                    if !queues.contains(&q) {
                        queues.push(q);
                    }
                }
            }
        }
        queues
    }

    fn follow_queues(&mut self) {
        self.ready_seq = self.queues_seq;
        self.ready = ReadySet::new(self.queues.iter().map(|q| q.rx.fd().filter(|_| !q.broken)));
        self.turn_queues.clear();
    }

    /// Sleeps until a queue has something, which the next turn takes without asking again, or `alarm`
    /// can be read; says whether the latter. For event workers whose last turn left nothing to do.
    pub fn sleep(&mut self, alarm: BorrowedFd<'_>) -> bool {
        if self.ready_seq != self.queues_seq {
            self.follow_queues();
        }
        self.turn_queues.clear();
        if let Some(ready) = &mut self.ready
            && let Ok(rang) = ready.sleep(alarm, &mut self.turn_queues)
        {
            self.found = true;
            return rang;
        }
        let mut fds: Vec<_> = self.fds().chain([alarm]).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let _ = poll(&mut fds, None);
        fds.last().is_some_and(|alarm| !alarm.revents().is_empty())
    }

    /// One burst of one queue.
    fn poll(&mut self, q: usize) -> usize {
        if !self.queues[q].waiting.is_empty() {
            self.serve_waiting(q);
        }
        let queue = &mut self.queues[q];
        if queue.broken {
            return 0;
        }
        let batch = &mut self.scratch.batch;
        if let Err(error) = queue.rx.recv(batch) {
            log::warn!(target: "dpif_netdev", "port {} queue {}: {error}", queue.port, queue.queue);
            queue.broken = true;
            self.queues_seq += 1;
        }
        let got = batch.len();
        if got == 0 {
            queue.stats.emptied_once();
            return 0;
        }
        let start = (self.ticks)();
        let port = queue.port;
        self.env.stats.add(Stat::Received, got as u64);
        if self.has_marks() {
            self.process_by_marks(q, port);
        } else {
            if self.scratch.parse(self.env.vlan_limit, Some(port)) < FRAME_MIN {
                self.drop_short();
                self.scratch.parse(self.env.vlan_limit, None);
            }
            self.process(0, Some(q));
            self.finish_work(Some(q));
        }
        if let Some(queue) = self.queues.get(q) {
            queue.stats.add(got as u64, (self.ticks)().wrapping_sub(start));
            if got < BATCH_MAX {
                queue.stats.emptied_once();
            }
        }
        got
    }

    /// Has the next turn look into queues that seem to have nothing, too.
    pub(crate) fn look_everywhere(&mut self) {
        self.look = true;
    }

    /// Drops what has no Ethernet header.
    #[cold]
    fn drop_short(&mut self) {
        let mut all = self.scratch.batch.take();
        for packet in all.drain() {
            if packet.len() < FRAME_MIN {
                self.env.drop(packet, DropReason::RxInvalidPacket);
            } else {
                // It came out of a batch as large.
                let _ = self.scratch.batch.push(packet);
            }
        }
    }

    /// Runs `program` on a packet that the control plane made or kept; its metadata comes from `key`.
    pub fn execute(&mut self, now: Nanos, mut packet: Packet, key: &DpKey, program: &Program) {
        self.begin(now);
        set_metadata(&mut packet, key);
        parse::extract(&mut packet, self.env.vlan_limit);
        self.env.stats.add(Stat::Executed, 1);
        self.env.run_program(packet, program, 0);
        self.finish_work(None);
        self.env.tx.flush(now, Nanos::ZERO, &self.env.stats);
    }

    /// Takes messages without receiving packets.
    pub fn take_messages(&mut self, now: Nanos) {
        self.begin(now);
    }

    fn take_mail(&mut self) -> usize {
        let mut mail = std::mem::take(&mut self.mail);
        if !self.handle.mailbox.take(&mut mail) {
            self.mail = mail;
            return 0;
        }
        let n = mail.len();
        for flow in mail.removed.drain(..) {
            self.table.remove(&flow);
        }
        for flow in mail.added.drain(..) {
            self.learn(&flow);
        }
        for msg in mail.messages.drain(..) {
            self.message(msg);
        }
        if std::mem::take(&mut mail.sweep) {
            self.table.start_sweep();
        }
        if std::mem::take(&mut mail.resync) {
            let shared = self.shared.clone();
            shared.registry.each(|flow| {
                if flow.everywhere || flow.worker == self.handle.id {
                    self.learn(flow);
                }
                true
            });
        }
        self.mail = mail;
        n
    }

    fn message(&mut self, msg: Msg) {
        match msg {
            Msg::AddQueue(queue) => {
                if queue.is_closed() {
                    self.close_queue(*queue);
                } else {
                    self.add_queue(*queue);
                }
            }
            Msg::AddTx(tx) => self.env.tx.add(tx),
            Msg::DropPort(port, _token) => {
                self.env.tx.remove(port, &self.env.stats);
                while let Some(queue) = self.take_queue(|q| q.port == port) {
                    self.close_queue(queue);
                }
            }
            Msg::DropQueues(port, _token) => {
                while let Some(queue) = self.take_queue(|q| q.port == port && q.is_closed()) {
                    self.close_queue(queue);
                }
            }
            Msg::MoveQueue { port, queue, to, token: _token } => {
                if let Some(queue) = self.take_queue(|q| q.port == port && q.queue == queue) {
                    to.send(Msg::AddQueue(Box::new(queue)));
                }
            }
            Msg::CacheUse(cache_use) => self.table.set_cache_use(cache_use),
            Msg::VlanLimit(limit) => self.env.vlan_limit = limit,
            Msg::Barrier(_token) => {}
            Msg::Ask(question) => question(self),
        }
    }

    fn close_queue(&mut self, mut queue: Rxq) {
        for waiting in queue.waiting.drain(..) {
            self.env.drop(waiting.packet, DropReason::UpcallQueueFull);
        }
    }

    /// Takes all queues out, when the worker's thread is over.
    pub(crate) fn into_queues(mut self) -> Vec<Rxq> {
        self.take_messages(self.env.now);
        self.env.tx.close(&self.env.stats);
        let mut all = std::mem::take(&mut self.queues);
        all.append(&mut self.resting.queues);
        all
    }

    pub fn handle(&self) -> &WorkerHandle {
        &self.handle
    }

    pub fn id(&self) -> WorkerId {
        self.handle.id
    }

    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.iter().filter(|q| !q.broken).filter_map(|q| q.rx.fd())
    }

    /// Port and number of each queue that is polled here just now.
    pub fn queues(&self) -> impl Iterator<Item = (DpPort, usize)> + '_ {
        self.queues.iter().map(|q| (q.port, q.queue))
    }

    /// The flow that packets of this key hit here.
    pub(crate) fn covering(&mut self, key: &DpKey) -> Option<Arc<Flow>> {
        let probe = Probe::new(key);
        let index = self.table.lookup(&probe).index()?;
        self.table.entry(index).map(|e| e.flow.clone())
    }

    /// Flows and subtables in the worker's structures.
    pub fn table_size(&self) -> (usize, usize) {
        (self.table.len(), self.table.subtables())
    }
}

/// What a key knows of a packet beyond its bytes.
fn set_metadata(packet: &mut Packet, key: &DpKey) {
    let meta = packet.meta_mut();
    meta.in_port = key.base.in_port;
    meta.recirc_id = key.base.recirc_id;
    meta.dp_hash = key.base.dp_hash;
    meta.pkt_mark = key.base.pkt_mark;
    meta.skb_priority = key.misc.skb_priority;
    meta.packet_type = key.misc.packet_type;
    meta.ct_state = key.base.ct_state.into();
    meta.ct_zone = key.base.ct_zone;
    meta.ct_mark = key.base.ct_mark;
    meta.ct_label = u128::from_be_bytes(key.ct.label);
}
