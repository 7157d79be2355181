//! The threads beside control: event workers, poll workers, revalidators. Each states when it was
//! last idle, so that virtual time can wait for all of them.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fv_core::{Clock, Nanos};
use fv_datapath::{Dp, Worker, WorkerKind};
use fv_dpif::{Datapath, WorkerId};
use fv_rpc::Poller;
use fv_slowpath::Slowpath;

use crate::latency::LatencyHold;
use crate::poll_worker::poll_loop;

/// Packets of one turn of a worker.
pub(crate) const BUDGET: usize = 256;
/// Longest that an event worker looks for more packets before it sleeps: about what a wake-up costs.
/// It gives the processor away between looks, so that on a busy host it is in nobody's way.
const SPIN_MAX: Duration = Duration::from_micros(50);
/// Least, if at all.
const SPIN_MIN: Duration = Duration::from_micros(3);
/// Least real time between the starts of two revalidation rounds.
const ROUND_GAP: Duration = Duration::from_millis(5);
/// Longest that virtual time waits for one thread.
const SETTLE_LIMIT: Duration = Duration::from_secs(2);

/// What other threads know of one thread.
pub struct Pulse {
    name: String,
    /// Time of the last turn that found nothing to do.
    idle_at: AtomicU64,
    stop: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Pulse {
    fn new(name: String, wake: Box<dyn Fn() + Send + Sync>) -> Arc<Pulse> {
        Arc::new(Pulse { name, idle_at: AtomicU64::new(0), stop: AtomicBool::new(false), wake })
    }

    pub(crate) fn idle(&self, now: Nanos) {
        self.idle_at.store(now.0, Ordering::Release);
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

struct Running<T> {
    pulse: Arc<Pulse>,
    handle: JoinHandle<T>,
}

/// All threads of one datapath.
pub struct Threads {
    clock: Clock,
    dp: Arc<Dp>,
    slowpath: Arc<Slowpath>,
    latency: Arc<LatencyHold>,
    workers: Vec<(WorkerKind, WorkerId, Running<Worker>)>,
    revalidator: Option<Running<()>>,
    /// Protocol timers, once a port has some.
    timers: Option<Running<()>>,
}

impl Threads {
    /// Starts the revalidator; workers come with `set_workers`.
    pub fn start(
        clock: Clock,
        dp: Arc<Dp>,
        slowpath: Arc<Slowpath>,
        latency: Arc<LatencyHold>,
    ) -> std::io::Result<Threads> {
        let mut t = Threads { clock, dp, slowpath, latency, workers: Vec::new(), revalidator: None, timers: None };
        t.revalidator = Some(t.start_revalidator()?);
        Ok(t)
    }

    fn start_revalidator(&self) -> std::io::Result<Running<()>> {
        let (clock, slowpath) = (self.clock.clone(), self.slowpath.clone());
        let poke = slowpath.clone();
        let pulse = Pulse::new("revalidator".into(), Box::new(move || poke.kick()));
        let p = pulse.clone();
        let handle = std::thread::Builder::new().name("revalidator".into()).spawn(move || {
            let _guard = AbortOnPanic;
            loop {
                let started = Instant::now();
                let now = clock.now();
                slowpath.round(now, &thread_cpu_time);
                p.idle(now);
                if let Some(rest) = ROUND_GAP.checked_sub(started.elapsed())
                    && !clock.is_stopped()
                {
                    std::thread::sleep(rest);
                }
                if slowpath.wait_for_work(slowpath.round_period().into()).is_none() {
                    return;
                }
            }
        })?;
        Ok(Running { pulse, handle })
    }

    /// Makes sure that protocol timers run and know of the ports as they are.
    pub fn need_timers(&mut self) {
        if self.timers.is_none() {
            match self.start_timers() {
                Ok(t) => {
                    log::info!(target: "ofproto_dpif_monitor", "monitor thread created");
                    self.timers = Some(t);
                }
                Err(e) => log::error!(target: "ofproto_dpif_monitor", "cannot create monitor thread: {e}"),
            }
        }
        self.slowpath.kick_timers();
    }

    fn start_timers(&self) -> std::io::Result<Running<()>> {
        let (clock, slowpath, dp) = (self.clock.clone(), self.slowpath.clone(), self.dp.clone());
        let poke = slowpath.clone();
        let pulse = Pulse::new("monitor".into(), Box::new(move || poke.kick_timers()));
        let p = pulse.clone();
        let handle = std::thread::Builder::new().name("monitor".into()).spawn(move || {
            let _guard = AbortOnPanic;
            loop {
                let now = clock.now();
                let next = slowpath.turn_timers(now, &|port| dp.port_stats(port)?.rx_packets);
                p.idle(now);
                // Stopped time passes by kicks alone.
                let rest = (next != Nanos::MAX && !clock.is_stopped()).then(|| next.saturating_sub(clock.now()).into());
                if slowpath.wait_for_timers(rest).is_none() {
                    return;
                }
            }
        })?;
        Ok(Running { pulse, handle })
    }

    /// The workers of a kind.
    pub fn workers(&self, kind: WorkerKind) -> Vec<WorkerId> {
        self.workers.iter().filter(|(k, _, _)| *k == kind).map(|(_, id, _)| *id).collect()
    }

    /// Starts a worker, which has nothing to poll until queues are dealt out.
    pub fn add_worker(&mut self, kind: WorkerKind, id: WorkerId, numa: Option<i32>) -> std::io::Result<()> {
        let r = self.start_worker(kind, id, numa)?;
        self.workers.push((kind, id, r));
        Ok(())
    }

    /// Ends a worker. Its queues have been dealt to others, or are then.
    pub fn drop_worker(&mut self, id: WorkerId) {
        if let Some(at) = self.workers.iter().position(|(_, w, _)| *w == id) {
            let (_, id, r) = self.workers.remove(at);
            self.stop_worker(id, r);
        }
    }

    fn start_worker(&self, kind: WorkerKind, id: WorkerId, numa: Option<i32>) -> std::io::Result<Running<Worker>> {
        let worker = self.dp.new_worker(id, kind, numa).map_err(std::io::Error::other)?;
        let poller = Poller::new()?;
        let (waker, clock) = (poller.waker(), self.clock.clone());
        let w = waker.clone();
        worker.handle().mailbox.set_waker(Box::new(move || w.wake()));
        let name = match kind {
            WorkerKind::Poll => format!("pmd-c{:02}/id:{}", id.0, id.0),
            _ => format!("event-{}", -2 - id.0),
        };
        let pulse = Pulse::new(name.clone(), Box::new(move || waker.wake()));
        let (p, latency) = (pulse.clone(), self.latency.clone());
        let handle = std::thread::Builder::new().name(name).spawn(move || {
            let _guard = AbortOnPanic;
            if kind == WorkerKind::Poll {
                poll_loop(worker, &clock, &p, poller)
            } else {
                event_loop(worker, &clock, &p, poller, &latency)
            }
        })?;
        Ok(Running { pulse, handle })
    }

    fn stop_worker(&self, id: WorkerId, r: Running<Worker>) {
        r.pulse.stop.store(true, Ordering::Release);
        (r.pulse.wake)();
        match r.handle.join() {
            Ok(w) => self.dp.remove_worker(w),
            Err(_) => {
                // A worker's state after a panic cannot be trusted.
                log::error!(target: "dpif_netdev", "worker {} panicked", id.0);
                std::process::abort();
            }
        }
    }

    /// Waits until each thread has had an idle turn at `now` or later.
    pub fn settle(&self, now: Nanos) {
        let pulses = self
            .workers
            .iter()
            .map(|(_, _, r)| &r.pulse)
            .chain(self.timers.iter().chain(&self.revalidator).map(|r| &r.pulse));
        for p in pulses {
            let started = Instant::now();
            (p.wake)();
            while p.idle_at.load(Ordering::Acquire) < now.0 {
                if started.elapsed() > SETTLE_LIMIT {
                    log::warn!(target: "timeval", "thread {} does not come to rest", p.name);
                    break;
                }
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        for (_, id, r) in std::mem::take(&mut self.workers) {
            self.stop_worker(id, r);
        }
        self.slowpath.stop();
        self.slowpath.stop_timers();
        if let Some(t) = self.timers.take() {
            let _ = t.handle.join();
        }
        if let Some(r) = self.revalidator.take() {
            let _ = r.handle.join();
        }
        // Datapath and slow path hold each other, the datapath's own worker included: without
        // this neither would ever be freed.
        self.dp.set_upcall_handler(None);
        self.dp.turn_main(self.clock.now(), 0);
    }
}

/// How long to look for more packets before a sleep: as long as that has paid lately, not at all
/// where packets come at greater distances. A sleep costs the worker a wake-up and the sender the
/// waking; looking costs processor time that others may need.
#[derive(Default)]
struct Spin {
    window: Duration,
}

impl Spin {
    /// Packets came after `quiet` without any, spinning or asleep.
    fn note(&mut self, quiet: Duration) {
        self.window = match self.window {
            _ if quiet <= SPIN_MAX => SPIN_MAX,
            w if w > SPIN_MIN => w / 2,
            _ => Duration::ZERO,
        };
    }
}

/// Sleeps while nothing comes; spins before where that pays. A burst that comes alone costs the wait,
/// a receive and a send.
fn event_loop(mut worker: Worker, clock: &Clock, pulse: &Pulse, mut poller: Poller, latency: &LatencyHold) -> Worker {
    let mut spin = Spin::default();
    let mut quiet_since: Option<Instant> = None;
    // Someone may wait for an idle turn.
    let mut woken = true;
    let mut slept = false;
    while !pulse.stopping() {
        let now = clock.now();
        let r = worker.turn(now, BUDGET);
        if r.busy() {
            if let Some(since) = quiet_since.take()
                && r.packets > 0
            {
                spin.note(since.elapsed());
                if std::mem::take(&mut slept) {
                    latency.note(now);
                }
            }
            if r.more || r.messages > 0 || woken {
                continue;
            }
        } else {
            pulse.idle(now);
            woken = false;
        }
        let since = *quiet_since.get_or_insert_with(Instant::now);
        if !spin.window.is_zero() && since.elapsed() < spin.window {
            if !r.busy() {
                std::thread::yield_now();
            }
            continue;
        }
        slept = true;
        if worker.sleep(poller.as_fd()) {
            woken = true;
            // Quiets the alarm.
            let _ = poller.wait(Some(Nanos::ZERO), clock);
        }
    }
    worker
}

/// A thread that panics takes the process with it: what it shared cannot be trusted, and a switch that
/// no longer polls its ports must be restarted, not kept.
pub(crate) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// Processor time that this thread has used.
fn thread_cpu_time() -> Nanos {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spins_only_where_packets_follow_each_other() {
        let after = |quiets_us: &[u64]| {
            let mut spin = Spin::default();
            quiets_us.iter().for_each(|q| spin.note(Duration::from_micros(*q)));
            spin.window
        };
        assert_eq!(after(&[]), Duration::ZERO);
        assert_eq!(after(&[5000, 5000]), Duration::ZERO);
        assert_eq!(after(&[10]), SPIN_MAX);
        assert_eq!(after(&[10, 5000, 10]), SPIN_MAX, "a reply that follows each request");
        assert!(after(&[10, 10, 10, 5000]) < after(&[10, 10, 10]));
        let mut quiets = [10; 20];
        quiets[10..].fill(5000);
        assert_eq!(after(&quiets), Duration::ZERO, "forgets within a few packets");
    }
}
