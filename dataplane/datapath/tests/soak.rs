//! Ports, workers, assignment and rules change at random under traffic: nothing crashes, nothing stalls,
//! and every packet that came in is accounted for. 20 seconds; ten minutes in the long form.
// UP-40, UP-46: there are more workers than transmit queues.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::source::Source;
use common::*;
use fv_core::{Clock, DpPort, Nanos};
use fv_datapath::{CacheUse, Deal, Dp, Limits, Policy, Rules, Stat, Worker, WorkerKind};
use fv_dpif::{Datapath, DropReason, Verdict, WorkerId};
use fv_netdev::Polling;

/// Ports with one source each that are always there, then the sink, then those that come and go.
const STEADY: u32 = 2;
const SINK: u32 = 3;
const MORE: std::ops::Range<u32> = 4..9;
const CORES: i32 = 4;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % u64::from(n)) as u32
    }
}

struct Running {
    id: WorkerId,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Worker>,
}

struct Soak {
    dp: Arc<Dp>,
    clock: Clock,
    random: Random,
    workers: Vec<Running>,
    /// All devices that there ever were, for their counters, and those of ports that are there now.
    devices: Vec<Arc<Source>>,
    open: Vec<u32>,
    /// What misses are answered with.
    mind: Arc<AtomicU32>,
    done: Vec<&'static str>,
}

impl Soak {
    fn new(seed: u64) -> Soak {
        let clock = Clock::new();
        let dp = Dp::new("ovs-netdev", "netdev", clock.clone(), || 0);
        let mind = Arc::<AtomicU32>::default();
        let mut s = Soak {
            dp,
            clock,
            random: Random(seed),
            workers: vec![],
            devices: vec![],
            open: vec![],
            mind,
            done: vec![],
        };
        for port in 1..=STEADY {
            s.add_port(port);
        }
        let sink = Source::new("sink", Polling::Main, Vec::new());
        s.dp.add_port(sink.clone(), Some(DpPort(SINK))).unwrap();
        s.devices.push(sink);
        let mind = s.mind.clone();
        s.dp.set_upcall_handler(Some(Control::new(move |key| {
            let kind = u32::from(key.base.nw_dst) % 8 + mind.load(Ordering::Relaxed);
            match kind % 8 {
                0 => forward(vec![output(SINK), output(1)], dst_mask()),
                1 => forward(vec![output(MORE.start + kind / 8 % 5)], dst_mask()),
                2 => forward(vec![], dst_mask()),
                3 => Verdict::Drop(DropReason::UpcallError),
                4 => Verdict::Forward { program: program(vec![output(SINK)]), mask: dst_mask(), install: false },
                _ => forward(vec![output(SINK)], dst_mask()),
            }
        })));
        s.start_worker(0);
        s
    }

    fn add_port(&mut self, port: u32) {
        let frames = (0..64).map(|n| udp(n * port, n)).collect();
        let device = Source::new(&format!("s{port}"), Polling::Poll, frames);
        self.dp.add_port(device.clone(), Some(DpPort(port))).unwrap();
        self.devices.push(device);
        self.open.push(port);
    }

    fn start_worker(&mut self, core: i32) {
        let id = WorkerId(core);
        if self.workers.iter().any(|w| w.id == id) {
            return;
        }
        let mut worker = self.dp.new_worker(id, WorkerKind::Poll, Some(core % 2)).unwrap();
        let (stop, clock) = (Arc::<AtomicBool>::default(), self.clock.clone());
        let stopping = stop.clone();
        let thread = std::thread::spawn(move || {
            while !stopping.load(Ordering::Relaxed) {
                worker.turn(clock.now(), 128);
                std::thread::yield_now();
            }
            worker
        });
        self.workers.push(Running { id, stop, thread });
    }

    fn stop_worker(&mut self, at: usize, first_away: bool) {
        let w = self.workers.remove(at);
        if first_away {
            self.dp.retire_worker(w.id);
            assert!(self.dp.deal(&Deal::Keep).wait(Duration::from_secs(30)), "queues leave a worker");
        }
        w.stop.store(true, Ordering::Relaxed);
        self.dp.remove_worker(w.thread.join().unwrap());
    }

    fn step(&mut self) {
        let what = self.random.below(14);
        let did = match what {
            0 | 1 => {
                let port = MORE.start + self.random.below(MORE.len() as u32);
                match self.open.iter().position(|p| *p == port) {
                    None => {
                        self.add_port(port);
                        "add port"
                    }
                    Some(at) => {
                        self.open.remove(at);
                        let ack = self.dp.del_port(DpPort(port)).unwrap();
                        assert!(ack.wait(Duration::from_secs(30)), "a port's queues are closed");
                        "delete port"
                    }
                }
            }
            2 => {
                let core = self.random.below(CORES as u32) as i32;
                self.start_worker(core);
                self.dp.deal(&Deal::Fresh(WorkerKind::Poll));
                "start worker"
            }
            3 if self.workers.len() > 1 => {
                let (at, away) = (self.random.below(self.workers.len() as u32), self.random.below(2) == 0);
                self.stop_worker(at as usize, away);
                "stop worker"
            }
            4 => {
                let policy = [Policy::Cycles, Policy::RoundRobin, Policy::Group][self.random.below(3) as usize];
                self.dp.set_rules(Rules { policy, isolate: self.random.below(2) == 0 });
                self.dp.deal_if_due(false);
                "assignment"
            }
            5 => {
                let (port, core) = (1 + self.random.below(STEADY), self.random.below(CORES as u32 + 1) as i32);
                let pins = [(0, WorkerId(core))];
                self.dp.pin_queues(DpPort(port), &pins[..self.random.below(2) as usize]).unwrap();
                self.dp.deal_if_due(false);
                "pins"
            }
            6 | 7 => {
                self.mind.fetch_add(1, Ordering::Relaxed);
                self.dp.flow_flush();
                "rules"
            }
            8 => {
                let mut some = Vec::new();
                self.dp.flow_dump(&mut |f| {
                    some.push(f.ufid);
                    some.len() < 20
                });
                some.iter().for_each(|ufid| {
                    let _ = self.dp.flow_del(*ufid);
                });
                "delete flows"
            }
            9 => {
                let port = 1 + self.random.below(SINK);
                let _ = self.dp.steer_by_hash(DpPort(port), self.random.below(2) == 0);
                "steering"
            }
            10 => {
                for w in self.dp.workers() {
                    w.limits.flush_interval_us.store(self.random.below(2) * 500, Ordering::Relaxed);
                }
                "flush interval"
            }
            11 => {
                self.dp.set_cache_use(CacheUse::Adaptive);
                let on = Limits { load_pct: 0, improvement_pct: 1, interval: Nanos::from_secs(1) };
                self.dp.set_balancing((self.random.below(2) == 0).then_some(on), self.clock.now());
                "balancing"
            }
            _ => {
                self.dp.measure(self.clock.now());
                self.dp.turn_main(self.clock.now(), 100);
                "measure"
            }
        };
        self.done.push(did);
    }

    fn finish(mut self) {
        self.devices.iter().for_each(|d| d.on.store(false, Ordering::Relaxed));
        // Misses that wait are answered before their worker goes.
        let deadline = Instant::now() + Duration::from_secs(30);
        let received = |s: &Soak| s.dp.totals().value(Stat::Received) + s.dp.totals().value(Stat::Missed);
        loop {
            let before = received(&self);
            assert!(self.dp.barrier().wait(Duration::from_secs(30)), "workers answer");
            std::thread::yield_now();
            if received(&self) == before || Instant::now() > deadline {
                break;
            }
        }
        while !self.workers.is_empty() {
            self.stop_worker(0, false);
        }
        while self.dp.turn_main(self.clock.now(), 1000).busy() {}
        for port in std::mem::take(&mut self.open) {
            self.dp.del_port(DpPort(port)).unwrap();
        }
        while self.dp.turn_main(self.clock.now(), 1000).busy() {}
        let t = self.dp.totals();
        let sum = |stats: &[Stat]| stats.iter().map(|s| t.value(*s)).sum::<u64>();
        let delivered: u64 = self.devices.iter().map(|d| d.delivered.load(Ordering::Relaxed)).sum();
        let swallowed: u64 = self.devices.iter().map(|d| d.swallowed.load(Ordering::Relaxed)).sum();
        let tail = &self.done[self.done.len().saturating_sub(20)..];
        assert_eq!(t.value(Stat::Received), delivered, "what devices delivered was received; last: {tail:?}");
        assert_eq!(t.value(Stat::Sent), swallowed, "what was sent reached devices; last: {tail:?}");
        assert_eq!(
            sum(&[Stat::Received, Stat::Executed, Stat::Copied]),
            sum(&[Stat::Sent, Stat::Dropped, Stat::Punted, Stat::Ended]),
            "received = forwarded + dropped; last: {tail:?}"
        );
        let lookups: u64 = Stat::HITS.iter().map(|s| t.value(*s)).sum();
        assert!(lookups > 0 && t.value(Stat::Missed) > 0 && swallowed > 0, "there was traffic");
        println!("{} changes, {delivered} packets in, {swallowed} out", self.done.len());
    }
}

#[test]
fn random_changes_under_traffic_lose_no_count() {
    let seconds = match std::env::var_os("FERROVIA_LONG") {
        Some(_) => 600,
        None => 20,
    };
    let seed = std::env::var("FERROVIA_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed_u64);
    println!("FERROVIA_SEED={seed}");
    let mut soak = Soak::new(seed);
    let (start, mut looked, mut before) = (Instant::now(), Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(seconds) {
        soak.step();
        std::thread::sleep(Duration::from_millis(u64::from(soak.random.below(8))));
        if looked.elapsed() > Duration::from_secs(3) {
            let now = soak.dp.totals().value(Stat::Received);
            assert!(now > before, "traffic stands still: {:?}", soak.done);
            (looked, before) = (Instant::now(), now);
        }
    }
    soak.finish();
}
