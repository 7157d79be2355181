//! The worst misses while control changes a hundred thousand rules: nobody waits for the writer.
//!
//! A miss's time is the thread's processor time: what the machine gives to others does not count, but
//! neither would sleeping for a lock, so that is counted apart, as voluntary switches.

use std::sync::atomic::{AtomicBool, Ordering};

use fv_core::Ufid;
use fv_dpif::{UpcallHandler, WorkerId};
use rustix::time::{ClockId, clock_gettime};

use crate::switch::{Bench, NOW, Shape};

const RULES: u32 = 10_000;
const MODS: u32 = 100_000;
/// Misses in calm.
const CALM: usize = 100_000;

fn thread_ns() -> u64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Times that this thread gave the processor away by itself.
fn sleeps() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

/// Misses until `until` says so: nanoseconds of each, sorted, and sleeps.
fn misses(b: &fv_slowpath::Slowpath, mut until: impl FnMut(usize) -> bool) -> (Vec<u64>, u64) {
    let asked: Vec<_> = (0..RULES).step_by(7).map(|i| Shape::Masks.key(i)).collect();
    let (mut ns, before, mut n) = (Vec::new(), sleeps(), 0);
    while !until(n) {
        let (packet, key) = &asked[n % asked.len()];
        let start = thread_ns();
        std::hint::black_box(b.miss(WorkerId(0), NOW, packet, key));
        b.installed(WorkerId(0), Ufid::default(), key, false);
        ns.push(thread_ns() - start);
        n += 1;
    }
    ns.sort_unstable();
    (ns, sleeps() - before)
}

fn at(ns: &[u64], share: f64) -> f64 {
    ns.get((ns.len() as f64 * share) as usize).or(ns.last()).map_or(f64::NAN, |n| *n as f64 / 1000.0)
}

pub fn run(_: &[String]) {
    let mut b = Bench::new();
    b.rules(Shape::Masks, RULES, "output:2");
    let slowpath = b.slowpath.clone();
    let calm = misses(&slowpath, |n| n == CALM);
    let over = AtomicBool::new(false);
    let busy = std::thread::scope(|s| {
        let reader = s.spawn(|| misses(&slowpath, |_| over.load(Ordering::Relaxed)));
        b.rules(Shape::Masks, MODS, "output:3");
        over.store(true, Ordering::Relaxed);
        reader.join().expect("the reader")
    });
    let mut line = String::from("RESULT");
    for (name, (ns, sleeps)) in [("calm", &calm), ("busy", &busy)] {
        let [mid, p99, p9999, max] = [0.5, 0.99, 0.9999, 1.0].map(|s| at(ns, s));
        println!(
            "{name}: {} misses, us: median {mid:.1}, 99 % {p99:.1}, 99.99 % {p9999:.1}, worst {max:.1}; slept {sleeps} times",
            ns.len()
        );
        line += &format!(
            " {name}_p99_us={p99:.1} {name}_p9999_us={p9999:.1} {name}_worst_us={max:.1} {name}_sleeps={sleeps}"
        );
    }
    println!("{line}");
}
