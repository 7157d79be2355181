//! CPU latency QoS: keeps idle processors from halting while packets come one by one.
//!
//! A packet that comes alone wakes its worker, and what the worker sends wakes the receiver. In a guest
//! each of these wake-ups ends a halt, which costs an exit to the hypervisor: more than everything that
//! the switch does with the packet. While `/dev/cpu_dma_latency` holds a zero (Linux, PM QoS), idle
//! processors poll instead. The kernel drops the request when the file is closed, however the process ends.
//!
//! The price is processor time of the machine below, so it is asked for only where it pays: packets
//! come alone and steadily, and the machine is a small guest; `other_config:cpu-latency-qos` overrides
//! the latter.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use fv_core::Nanos;

/// Lone packets within `WINDOW` that ask for the hold: a hundred a second.
const ENOUGH: u64 = 10;
const WINDOW: Nanos = Nanos(100_000_000);
/// The hold ends after this long without a lone packet.
const LINGER: Duration = Duration::from_millis(20);
/// More processors than this are not kept from halting for the sake of some packets.
const SMALL_GUEST_CPUS: usize = 4;
const FILE: &str = "/dev/cpu_dma_latency";
/// The kernel's value for no request, in microseconds.
const NO_REQUEST: i32 = 2_000_000_000;

/// What `other_config:cpu-latency-qos` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// On in small guests.
    Auto,
    On,
    Off,
}

/// When lone packets are frequent enough.
#[derive(Default)]
struct Rate {
    since: AtomicU64,
    count: AtomicU64,
}

impl Rate {
    /// Counts a lone packet; true at `ENOUGH` of them in one window. Racing callers may miscount by one.
    fn note(&self, now: Nanos) -> bool {
        let since = self.since.load(Ordering::Relaxed);
        if now.0.saturating_sub(since) > WINDOW.0 {
            self.since.store(now.0, Ordering::Relaxed);
            self.count.store(1, Ordering::Relaxed);
            return false;
        }
        self.count.fetch_add(1, Ordering::Relaxed) + 1 >= ENOUGH
    }
}

struct Shared {
    enabled: AtomicBool,
    rate: Rate,
    /// Lone packets ever.
    lone: AtomicU64,
    held: AtomicBool,
    /// Hold wanted, stop wanted.
    asked: Mutex<(bool, bool)>,
    cond: Condvar,
}

/// Shared by all event workers of the process.
pub struct LatencyHold {
    shared: Arc<Shared>,
    keeper: Option<JoinHandle<()>>,
}

impl LatencyHold {
    /// Opens the kernel's file while the process may; without it, and where idle processors do not
    /// halt, the hold does nothing.
    pub fn new() -> LatencyHold {
        LatencyHold::with(OpenOptions::new().write(true).open(FILE).ok())
    }

    fn with(file: Option<File>) -> LatencyHold {
        let shared = Arc::new(Shared {
            enabled: AtomicBool::new(false),
            rate: Rate::default(),
            lone: AtomicU64::new(0),
            held: AtomicBool::new(false),
            asked: Mutex::new((false, false)),
            cond: Condvar::new(),
        });
        let keeper = file.and_then(|f| {
            // Opening alone asks for zero.
            ask(&f, NO_REQUEST);
            let s = shared.clone();
            std::thread::Builder::new().name("latency".into()).spawn(move || keep(&s, &f)).ok()
        });
        LatencyHold { shared, keeper }
    }

    pub fn set_mode(&self, mode: Mode) {
        let on = match mode {
            Mode::On => true,
            Mode::Off => false,
            Mode::Auto => is_small_guest(),
        };
        self.shared.enabled.store(on && self.keeper.is_some(), Ordering::Relaxed);
    }

    /// A worker was woken from its sleep by packets.
    pub fn note(&self, now: Nanos) {
        let s = &self.shared;
        if !s.enabled.load(Ordering::Relaxed) {
            return;
        }
        s.lone.fetch_add(1, Ordering::Relaxed);
        if s.rate.note(now) && !s.held.swap(true, Ordering::Relaxed) {
            s.asked.lock().unwrap_or_else(PoisonError::into_inner).0 = true;
            s.cond.notify_one();
        }
    }
}

impl Drop for LatencyHold {
    fn drop(&mut self) {
        self.shared.asked.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.shared.cond.notify_one();
        if let Some(k) = self.keeper.take() {
            let _ = k.join();
        }
    }
}

/// Holds while asked and until no lone packet has come for `LINGER`.
fn keep(s: &Shared, file: &File) {
    let mut asked = s.asked.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        asked = s.cond.wait_while(asked, |a| !a.0 && !a.1).unwrap_or_else(PoisonError::into_inner);
        if asked.1 {
            return;
        }
        asked.0 = false;
        ask(file, 0);
        loop {
            let before = s.lone.load(Ordering::Relaxed);
            asked = s.cond.wait_timeout_while(asked, LINGER, |a| !a.1).unwrap_or_else(PoisonError::into_inner).0;
            if asked.1 || s.lone.load(Ordering::Relaxed) == before {
                break;
            }
        }
        ask(file, NO_REQUEST);
        s.held.store(false, Ordering::Relaxed);
    }
}

fn ask(mut file: &File, latency_us: i32) {
    // Refused, the processors halt as they would without us.
    let _ = file.write_all(&latency_us.to_ne_bytes());
}

/// Idle processors of this machine halt into a hypervisor, and there are few of them.
fn is_small_guest() -> bool {
    let driver = std::fs::read_to_string("/sys/devices/system/cpu/cpuidle/current_driver").unwrap_or_default();
    driver.trim() == "haltpoll" && std::thread::available_parallelism().is_ok_and(|n| n.get() <= SMALL_GUEST_CPUS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};
    use std::time::Instant;

    #[test]
    fn only_steady_lone_packets_are_enough() {
        let after = |gap_ms: u64, packets: u64| {
            let r = Rate::default();
            (1..=packets).map(|n| r.note(Nanos(1_000_000_000 + n * gap_ms * 1_000_000))).filter(|b| *b).count()
        };
        assert!(after(5, 40) > 0);
        assert_eq!(after(20, 1000), 0, "fifty a second");
        assert_eq!(after(1, 9), 0);
        assert_eq!(after(1, 10), 1);
    }

    /// The values that were written to `file`.
    fn asked(mut file: &File) -> Vec<i32> {
        let mut b = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut b).unwrap();
        b.chunks_exact(4).map(|c| i32::from_ne_bytes(c.try_into().unwrap())).collect()
    }

    #[test]
    fn holds_while_packets_come_and_lets_go() {
        let path = std::env::temp_dir().join(format!("fv-latency-{}", std::process::id()));
        let open = || OpenOptions::new().append(true).create(true).open(&path).unwrap();
        let (h, log) = (LatencyHold::with(Some(open())), File::open(&path).unwrap());
        let until = |want: &[i32]| {
            let t = Instant::now();
            while asked(&log) != want {
                assert!(t.elapsed() < Duration::from_secs(10), "{:?} instead of {want:?}", asked(&log));
                std::thread::yield_now();
            }
        };
        let burst = || (0..ENOUGH).for_each(|n| h.note(Nanos(5_000_000_000 + n)));
        h.set_mode(Mode::Off);
        burst();
        until(&[NO_REQUEST]);
        h.set_mode(Mode::On);
        burst();
        until(&[NO_REQUEST, 0, NO_REQUEST]);
        drop(h);
        assert_eq!(asked(&log).last(), Some(&NO_REQUEST));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn does_nothing_without_the_file() {
        let h = LatencyHold::with(None);
        h.set_mode(Mode::On);
        (0..100).for_each(|n| h.note(Nanos(n)));
        assert!(!h.shared.held.load(Ordering::Relaxed));
    }
}
