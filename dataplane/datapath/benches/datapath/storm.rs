//! A port on which every packet misses, on the worker of a port with established flows: does that
//! one lose anything?
//!
//! Time is the thread's processor time, so that what the machine gives to others does not count.
//! Packets arrive as time passes; what a receive ring of 1024 cannot hold is lost.

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

/// Descriptors of a receive ring.
const RING: u64 = 1024;
/// Packets a second on the attacking port.
const STORM: u64 = 1_000_000;
/// What a miss costs the control plane, as with a thousand rules.
const UPCALL: Nanos = Nanos(5_000);
const SECONDS: u64 = 2;
/// Nanoseconds on the wall beyond the thread's own that show that it was preempted.
const PREEMPTED: u64 = 5_000;

fn thread_time() -> u64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn wall_time() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Arrivals at a rate into a ring.
#[derive(Default)]
struct Arrivals {
    per_second: u64,
    since: u64,
    arrived: u64,
    taken: u64,
    lost: u64,
}

impl Arrivals {
    fn advance(&mut self, now: u64) {
        let all = (now - self.since).saturating_mul(self.per_second) / 1_000_000_000;
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
        if v.lock().take() { n } else { NOTHING }
    });
    let storm = Box::new(move || {
        m = (m + 1) & 0x3f_ffff;
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
            std::hint::spin_loop();
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

fn ticks_per_us() -> u64 {
    let (t, c) = (thread_time(), ticks());
    while thread_time() - t < 5_000_000 {
        std::hint::spin_loop();
    }
    (ticks() - c) * 1000 / (thread_time() - t)
}

/// Runs for a time at these rates; returns what the victim was sent and lost, and the longest turns.
fn play(s: &mut Setting, victim: u64, storm: u64, seconds: u64) -> (u64, u64, f64) {
    let start = thread_time();
    *s.victim.lock() = Arrivals { per_second: victim, since: start, ..Arrivals::default() };
    *s.attacker.lock() = Arrivals { per_second: storm, since: start, ..Arrivals::default() };
    let (mut now, mut wall, mut turns) = (start, wall_time(), Vec::new());
    while now - start < seconds * 1_000_000_000 {
        s.worker.turn(Nanos(wall), 256);
        let (then, before) = (std::mem::replace(&mut now, thread_time()), std::mem::replace(&mut wall, wall_time()));
        let away = (wall - before).saturating_sub(now - then);
        for arrivals in [&s.victim, &s.attacker] {
            let mut arrivals = arrivals.lock();
            if away > PREEMPTED {
                // The processor was taken away in between, and what it cost to come back is not ours.
                arrivals.since += now - then;
            }
            arrivals.advance(now);
        }
        if away <= PREEMPTED {
            turns.push((now - then) as f64 / 1000.0);
        }
    }
    let v = s.victim.lock();
    (v.arrived, v.lost, quantile(&turns, 99))
}

pub fn run(_: &Run) {
    let mut s = setting();
    play(&mut s, 1_000_000, 0, 1);
    // What the worker can do: offered more than that.
    play(&mut s, 200_000_000, 0, 1);
    let capacity = s.victim.lock().taken;
    let half = capacity / 2;
    let (_, calm, _) = play(&mut s, half, 0, SECONDS);
    let before = s.dp.workers().iter().map(|w| w.stats.value(Stat::UpcallTicks)).sum::<u64>();
    let (sent, lost, longest) = play(&mut s, half, STORM, SECONDS);
    let asked = s.dp.workers().iter().map(|w| w.stats.value(Stat::UpcallTicks)).sum::<u64>() - before;
    let share = asked * 100 / (ticks_per_us() * SECONDS * 1_000_000).max(1);
    let dropped: u64 = s.dp.queues().iter().map(|q| q.stats.overflow()).sum();
    println!("capacity {capacity} packets a second; victim offered {half} a second");
    println!(
        "calm: {calm} lost; in the storm: {lost} of {sent} lost, turns up to {longest:.0} us, {share} % in upcalls"
    );
    println!("the storm's own queue dropped {dropped}");
    let figures = [
        // What a machine with other work loses without any storm is not the storm's.
        ("victim_lost", lost.saturating_sub(calm).to_string()),
        ("storm_lost", lost.to_string()),
        ("calm_lost", calm.to_string()),
        ("victim_offered_pps", half.to_string()),
        ("upcall_share_pct", share.to_string()),
        ("turn_p99_us", format!("{longest:.0}")),
    ];
    result(&[] as &[Row], &figures);
}
