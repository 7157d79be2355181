//! Between the slow path and the datapath: what the one installs is queued for hardware, and what the other
//! has counted is merged with what hardware has.
//!
//! Workers only append to a list here. Everything else is done by whoever calls [`Overlay::turn`], or by control
//! and revalidators, for whom a flow's statistics are those of both places. The software flow is always there:
//! a flow that leaves the NIC goes on without anybody doing anything.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use fv_core::{Clock, DpPort, Nanos, Ufid};
use fv_dpif::{
    Datapath, DpError, DpPortInfo, DpStats, FlowDump, FlowHandle, FlowPut, FlowStats, Marks, Program, QueueProgress,
    Retired, UpcallHandler, Userspace, Verdict, WorkerId,
};
use fv_flow::DpKey;
use fv_packet::Packet;
use parking_lot::Mutex;

use crate::book::{Book, PoolReport, WhySoft};
use crate::order::ProviderOrder;
use crate::provider::Provider;

/// Changed flows that may wait to be looked at; past that all flows are.
const CHANGED_MAX: usize = 1 << 16;

/// Flows that have changed since the book was last brought up to date.
#[derive(Default)]
struct Changed {
    /// `hw-offload`; while off, nothing is appended.
    enabled: AtomicBool,
    flows: Mutex<Vec<Ufid>>,
    all: AtomicBool,
    pending: AtomicBool,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Changed {
    fn push(&self, ufid: Ufid) {
        if !self.enabled.load(Ordering::Acquire) {
            return;
        }
        {
            let mut flows = self.flows.lock();
            if flows.len() < CHANGED_MAX {
                flows.push(ufid);
            } else {
                self.all.store(true, Ordering::Release);
            }
        }
        self.ring();
    }

    fn all(&self) {
        self.all.store(true, Ordering::Release);
        self.ring();
    }

    fn ring(&self) {
        if !self.pending.swap(true, Ordering::AcqRel)
            && let Some(wake) = self.wake.get()
        {
            wake();
        }
    }
}

pub struct Overlay {
    dp: Arc<dyn Datapath>,
    clock: Clock,
    changed: Arc<Changed>,
    /// Was on at some time: flows may have counts of hardware.
    ever: AtomicBool,
    book: Mutex<Book>,
}

/// The slow path as workers see it.
struct Tap {
    changed: Arc<Changed>,
    inner: Arc<dyn UpcallHandler>,
}

impl Overlay {
    /// Nothing is offloaded until [`Overlay::set_enabled`].
    pub fn new(dp: Arc<dyn Datapath>, clock: Clock) -> Arc<Overlay> {
        let marks = Marks::new();
        dp.set_marks(marks.clone());
        let book = Mutex::new(Book::new(marks));
        Arc::new(Overlay { dp, clock, ever: AtomicBool::new(false), changed: Arc::default(), book })
    }

    /// Called, once, with what wakes the thread that calls `turn`.
    pub fn set_waker(&self, wake: Box<dyn Fn() + Send + Sync>) {
        // The first one stays.
        let _ = self.changed.wake.set(wake);
    }

    pub fn add_provider(&self, provider: Box<dyn Provider>) {
        self.book.lock().add_provider(provider);
    }

    /// `hw-offload`.
    pub fn set_enabled(&self, on: bool) {
        if self.changed.enabled.swap(on, Ordering::AcqRel) == on {
            return;
        }
        self.ever.fetch_or(on, Ordering::AcqRel);
        self.book.lock().set_enabled(on);
        self.changed.all();
    }

    pub fn is_enabled(&self) -> bool {
        self.changed.enabled.load(Ordering::Acquire)
    }

    /// `offload-rebalance`.
    pub fn set_rebalance(&self, on: bool) {
        self.book.lock().set_rebalance(on);
    }

    /// `hw-offload-priority` of the whole switch; ports keep the provider that they have.
    pub fn set_order(&self, order: ProviderOrder) {
        self.book.lock().set_order(order);
    }

    /// A port that may be on a NIC. `own` is its own `hw-offload-priority`. Says which provider has it.
    pub fn attach(&self, port: DpPort, name: &str, own: Option<&ProviderOrder>) -> Option<&'static str> {
        let provider = self.book.lock().attach(port, name, own);
        if provider.is_some() {
            // Its flows may be there already.
            self.changed.all();
        }
        provider
    }

    pub fn detach(&self, port: DpPort) {
        let done = {
            let mut book = self.book.lock();
            book.detach(port, self.clock.now());
            book.take_retired()
        };
        run_all(done);
    }

    /// Brings the book up to date, goes on with what is under way, and moves flows. Says when it has something to
    /// do again, unless it is woken before.
    pub fn turn(&self, now: Nanos) -> Nanos {
        self.changed.pending.store(false, Ordering::Release);
        let flows = std::mem::take(&mut *self.changed.flows.lock());
        let all = self.changed.all.swap(false, Ordering::AcqRel);
        let (due, done) = {
            let mut book = self.book.lock();
            if self.is_enabled() {
                if all {
                    book.look_at_all(&*self.dp, now);
                }
                for ufid in flows {
                    book.look_at(&*self.dp, ufid, now);
                }
            }
            let due = book.turn(&*self.dp, now);
            (due, book.take_retired())
        };
        run_all(done);
        if self.changed.pending.load(Ordering::Acquire) { now } else { due }
    }

    /// Flows in hardware.
    pub fn n_offloaded(&self) -> usize {
        self.book.lock().n_offloaded()
    }

    /// What operators want to know of each table.
    pub fn pools(&self) -> Vec<PoolReport> {
        self.book.lock().reports(self.clock.now())
    }

    /// Which provider has which ports.
    pub fn ports_of(&self, provider: &str) -> Vec<DpPort> {
        self.book.lock().ports_of(provider)
    }

    pub fn providers(&self) -> Vec<&'static str> {
        self.book.lock().provider_names()
    }

    /// Why a flow is not, or not wholly, in hardware. None: it is, wholly.
    pub fn why(&self, ufid: Ufid) -> Option<WhySoft> {
        if !self.is_enabled() {
            return Some(WhySoft::Disabled);
        }
        let Some(flow) = self.dp.flow_get(ufid) else { return Some(WhySoft::NoFlow) };
        self.book.lock().why(&flow, self.clock.now())
    }

    /// Takes in what providers have to tell, before statistics are asked for.
    fn refresh(&self) {
        if self.ever.load(Ordering::Acquire) {
            let done = {
                let mut book = self.book.lock();
                book.take_reports(self.clock.now());
                book.take_retired()
            };
            run_all(done);
        }
    }

    fn merge(&self, flow: &mut FlowDump) {
        if self.ever.load(Ordering::Acquire) {
            self.book.lock().merge(flow, self.clock.now());
        }
    }
}

/// Outside of all locks: who gets final statistics may call back.
fn run_all(done: Vec<(Retired, FlowStats)>) {
    done.into_iter().for_each(|(f, stats)| f(stats));
}

impl UpcallHandler for Tap {
    fn miss(&self, worker: WorkerId, now: Nanos, packet: &Packet, key: &DpKey) -> Verdict {
        self.inner.miss(worker, now, packet, key)
    }

    fn installed(&self, worker: WorkerId, ufid: Ufid, key: &DpKey, ok: bool) {
        self.inner.installed(worker, ufid, key, ok);
        if ok {
            self.changed.push(ufid);
        }
    }

    fn action(&self, worker: WorkerId, now: Nanos, packet: Packet, key: &DpKey, what: &Userspace) {
        self.inner.action(worker, now, packet, key, what);
    }
}

impl Datapath for Overlay {
    fn name(&self) -> &str {
        self.dp.name()
    }
    fn kind(&self) -> &str {
        self.dp.kind()
    }

    fn set_upcall_handler(&self, handler: Option<Arc<dyn UpcallHandler>>) {
        let tap = |inner| Arc::new(Tap { changed: self.changed.clone(), inner }) as Arc<dyn UpcallHandler>;
        self.dp.set_upcall_handler(handler.map(tap));
    }

    fn ports(&self) -> Vec<DpPortInfo> {
        self.dp.ports()
    }

    fn flow_put(&self, put: FlowPut) -> Result<Option<FlowStats>, DpError> {
        let ufid = put.ufid;
        let before = self.dp.flow_put(put)?;
        match ufid {
            Some(ufid) => self.changed.push(ufid),
            None => self.changed.all(),
        }
        let now = self.clock.now();
        Ok(match ufid {
            Some(ufid) => before.map(|stats| self.book.lock().total(ufid, stats, now)),
            None => before,
        })
    }

    fn flow_del(&self, ufid: Ufid) -> Result<FlowStats, DpError> {
        let stats = self.dp.flow_del(ufid)?;
        let mut book = self.book.lock();
        let total = book.total(ufid, stats, self.clock.now());
        if book.bury(ufid, stats, None) {
            // Another of that name may have come in between.
            self.changed.push(ufid);
        }
        Ok(total)
    }

    fn flow_retire(&self, ufid: Ufid, done: Retired) -> Result<(), DpError> {
        let stats = self.dp.flow_del(ufid)?;
        let ready = {
            let mut book = self.book.lock();
            if !book.knows(ufid) {
                drop(book);
                done(stats);
                return Ok(());
            }
            book.bury(ufid, stats, Some(done));
            book.take_retired()
        };
        self.changed.push(ufid);
        run_all(ready);
        Ok(())
    }

    fn flow_get(&self, ufid: Ufid) -> Option<FlowDump> {
        self.refresh();
        let mut flow = self.dp.flow_get(ufid)?;
        self.merge(&mut flow);
        Some(flow)
    }

    fn flow_handle(&self, ufid: Ufid) -> Option<Arc<dyn FlowHandle>> {
        self.dp.flow_handle(ufid)
    }

    fn flow_dump(&self, f: &mut dyn FnMut(FlowDump) -> bool) {
        self.refresh();
        self.dp.flow_dump(&mut |mut flow| {
            self.merge(&mut flow);
            f(flow)
        });
    }

    fn flow_stats(&self, f: &mut dyn FnMut(Ufid, &FlowStats) -> bool) {
        if !self.ever.load(Ordering::Acquire) {
            return self.dp.flow_stats(f);
        }
        self.refresh();
        let now = self.clock.now();
        self.dp.flow_stats(&mut |ufid, stats| {
            let total = self.book.lock().total(ufid, *stats, now);
            f(ufid, &total)
        });
    }

    fn flow_flush(&self) {
        self.dp.flow_flush();
        let done = {
            let mut book = self.book.lock();
            book.bury_all();
            book.take_retired()
        };
        run_all(done);
        self.changed.all();
    }

    fn flow_count(&self) -> usize {
        self.dp.flow_count()
    }

    fn execute(&self, packet: Packet, key: &DpKey, program: &Program) {
        self.dp.execute(packet, key, program);
    }

    fn stats(&self) -> DpStats {
        self.dp.stats()
    }

    fn set_marks(&self, marks: Arc<Marks>) {
        self.dp.set_marks(marks);
    }

    fn rx_progress(&self) -> Vec<QueueProgress> {
        self.dp.rx_progress()
    }

    fn look_into_queues(&self) {
        self.dp.look_into_queues();
    }
}
