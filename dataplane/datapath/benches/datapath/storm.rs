//! A port on which every packet misses, on the worker of a port with established flows: does that
//! one lose anything?
//!
//! Packets arrive as time passes; what a receive ring of 1024 cannot hold is lost. Time stands still
//! while something else has the processor (`steps`), which is reported. Calm and storm take turns, and
//! what the worker can do is measured before each pair.

use std::sync::Arc;

use fv_core::{Clock, DpPort, Nanos};
use fv_datapath::{Dp, Stat, Worker, WorkerKind};
use fv_dpif::{Datapath, WorkerId};
use fv_flow::DpMask;
use fv_netdev::Polling;
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

use crate::common::*;
use crate::measure::{Row, Run, quantile, result, ticks};
use crate::ring::{NOTHING, Ring};
use crate::steps;

/// Descriptors of a receive ring.
const RING: u64 = 1024;
/// Packets a second on the attacking port.
const STORM: u64 = 1_000_000;
/// What a miss costs the control plane, as with a thousand rules.
const UPCALL: Nanos = Nanos(5_000);
/// Rounds of calm and storm, and how long each lasts.
const ROUNDS: u64 = 8;
const PLAY: Nanos = Nanos::from_ms(500);
/// How long the worker's capacity is measured before each.
const MEASURE: Nanos = Nanos::from_ms(100);

fn wall_time() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Arrivals at a rate into a ring.
#[derive(Default)]
struct Arrivals {
    per_second: u64,
    arrived: u64,
    taken: u64,
    lost: u64,
}

impl Arrivals {
    /// To `now` nanoseconds since the beginning.
    fn advance(&mut self, now: u64) {
        let all = now.saturating_mul(self.per_second) / 1_000_000_000;
        self.arrived = all;
        let waiting = all - self.taken - self.lost;
        self.lost += waiting.saturating_sub(RING);
    }

    fn take(&mut self) -> bool {
        let some = self.arrived - self.taken - self.lost > 0;
        self.taken += u64::from(some);
        some
    }
}

struct Setting {
    dp: Arc<Dp>,
    worker: Worker,
    victim: Arc<Mutex<Arrivals>>,
    attacker: Arc<Mutex<Arrivals>>,
}

fn setting() -> Setting {
    let dp = Dp::new("ovs-netdev", "netdev", Clock::stopped(), ticks);
    let (victim, attacker) = (Arc::<Mutex<Arrivals>>::default(), Arc::<Mutex<Arrivals>>::default());
    let (v, a) = (victim.clone(), attacker.clone());
    let (mut n, mut m) = (0u32, 0u32);
    let established = Box::new(move || {
        n = (n + 1) % 1000;
        look_now_and_then(n);
        if v.lock().take() { n } else { NOTHING }
    });
    let storm = Box::new(move || {
        m = (m + 1) & 0x3f_ffff;
        look_now_and_then(m);
        if a.lock().take() { 0x40_0000 | m } else { NOTHING }
    });
    let p1 = Ring::of("p1", 4096, established, crate::ring::to_flow, Polling::Poll);
    let p3 = Ring::of("p3", 4096, storm, crate::ring::to_flow, Polling::Poll);
    dp.add_port(p1.clone(), Some(DpPort(1))).unwrap();
    dp.add_port(p1.sink("p2"), Some(DpPort(2))).unwrap();
    dp.add_port(p3.clone(), Some(DpPort(3))).unwrap();
    dp.add_port(p3.sink("p4"), Some(DpPort(4))).unwrap();
    let per_tick = ticks_per_us();
    dp.set_upcall_handler(Some(Control::new(move |key| {
        let until = ticks() + UPCALL.0 * per_tick / 1000;
        while ticks() < until {
            steps::look();
        }
        let storm = key.base.in_port == 3;
        let mut mask = dst_mask();
        if !storm {
            mask.0.base.nw_dst = 0xf.into();
        }
        // Flows of the storm are not kept: each packet asks, for as long as it lasts.
        let verdict = forward(vec![output(if storm { 4 } else { 2 })], mask);
        match verdict {
            fv_dpif::Verdict::Forward { program, mask, .. } => {
                fv_dpif::Verdict::Forward { program, mask: DpMask(mask.0), install: !storm }
            }
            other => other,
        }
    })));
    let worker = dp.new_worker(WorkerId(0), WorkerKind::Poll, None).unwrap();
    let mut s = Setting { dp, worker, victim, attacker };
    let ack = s.dp.deal_all();
    while !ack.is_done() {
        s.worker.turn(Nanos(wall_time()), 1);
    }
    s
}

/// Once in a burst or two.
fn look_now_and_then(n: u32) {
    if n.is_multiple_of(16) {
        steps::look();
    }
}

fn ticks_per_us() -> u64 {
    let (t, c) = (wall_time(), ticks());
    while wall_time() - t < 20_000_000 {
        std::hint::spin_loop();
    }
    (ticks() - c) * 1000 / (wall_time() - t)
}

/// What came of a while.
#[derive(Default)]
struct Played {
    offered: u64,
    taken: u64,
    lost: u64,
    gaps: u64,
    away_us: u64,
    turns_us: Vec<f64>,
}

impl Played {
    fn add(&mut self, other: Played) {
        self.offered += other.offered;
        self.taken += other.taken;
        self.lost += other.lost;
        self.gaps += other.gaps;
        self.away_us += other.away_us;
        self.turns_us.extend(other.turns_us);
    }
}

/// Runs for a time at these rates.
fn play(s: &mut Setting, per_us: u64, victim: u64, storm: u64, time: Nanos) -> Played {
    steps::start(per_us);
    let start = steps::look();
    let ns = |ticks: u64| ticks * 1000 / per_us;
    *s.victim.lock() = Arrivals { per_second: victim, ..Arrivals::default() };
    *s.attacker.lock() = Arrivals { per_second: storm, ..Arrivals::default() };
    let (mut now, mut turns_us) = (0, Vec::new());
    while now < time.0 {
        s.worker.turn(Nanos(wall_time()), 256);
        let then = std::mem::replace(&mut now, ns(steps::look() - start));
        s.victim.lock().advance(now);
        s.attacker.lock().advance(now);
        turns_us.push((now - then) as f64 / 1000.0);
    }
    let v = s.victim.lock();
    let (gaps, away) = steps::gaps();
    Played { offered: v.arrived, taken: v.taken, lost: v.lost, gaps, away_us: away / per_us, turns_us }
}

/// How often the processor goes away from a loop that does nothing.
fn idle_gaps(per_us: u64, time: Nanos) -> u64 {
    steps::start(per_us);
    let start = steps::look();
    while (steps::look() - start) * 1000 / per_us < time.0 {}
    steps::gaps().0
}

fn switches() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("nonvoluntary_ctxt_switches:"));
    line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

pub fn run(_: &Run) {
    let per_us = ticks_per_us();
    let mut s = setting();
    play(&mut s, per_us, 1_000_000, 0, Nanos::from_secs(1));
    let (mut calm, mut storm, mut idle, mut half) = (Played::default(), Played::default(), 0, 0);
    let asked = |s: &Setting| s.dp.workers().iter().map(|w| w.stats.value(Stat::UpcallTicks)).sum::<u64>();
    let (switched, asked_before) = (switches(), asked(&s));
    for _ in 0..ROUNDS {
        // What the worker can do: offered more than that.
        let capacity = play(&mut s, per_us, 200_000_000, 0, MEASURE).taken * 1_000_000_000 / MEASURE.0;
        half = capacity / 2;
        idle += idle_gaps(per_us, PLAY);
        calm.add(play(&mut s, per_us, half, 0, PLAY));
        storm.add(play(&mut s, per_us, half, STORM, PLAY));
    }
    let asked = asked(&s) - asked_before;
    let share = asked * 100 / (per_us * ROUNDS * PLAY.0 / 1000).max(1);
    let dropped: u64 = s.dp.queues().iter().map(|q| q.stats.overflow()).sum();
    let p99 = |p: &Played| quantile(&p.turns_us, 99);
    println!("the victim is offered half of what the worker can do, in the end {half} a second");
    for (name, p) in [("calm", &calm), ("storm", &storm)] {
        let longest = p.turns_us.iter().copied().fold(0.0, f64::max);
        println!(
            "{name:5}: {} of {} lost; turns of {:.0} us (99 %) up to {longest:.0} us; the processor was away {} times, {} us",
            p.lost,
            p.offered,
            p99(p),
            p.gaps,
            p.away_us
        );
    }
    println!("the processor was away {idle} times from a loop that does nothing, for as long");
    println!("{share} % of the storm's time went to upcalls; its own queue dropped {dropped}");
    let figures = [
        ("victim_lost", storm.lost.to_string()),
        ("calm_lost", calm.lost.to_string()),
        ("victim_offered", storm.offered.to_string()),
        ("upcall_share_pct", share.to_string()),
        ("turn_p99_us", format!("{:.0}", p99(&storm))),
        ("switches", (switches() - switched).to_string()),
        ("gaps_storm", storm.gaps.to_string()),
        ("gaps_calm", calm.gaps.to_string()),
        ("gaps_idle", idle.to_string()),
        ("away_us", storm.away_us.to_string()),
    ];
    result(&[] as &[Row], &figures);
}
