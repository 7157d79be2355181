//! A poll worker's thread: turns all the time, with short sleeps in between where that is allowed.

use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Instant;

use fv_core::{Clock, Nanos};
use fv_datapath::{TurnResult, Worker};
use fv_packet::BATCH_MAX;
use fv_rpc::Poller;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::threads::{BUDGET, Pulse};

/// A burst of this many says that a queue fills faster than a sleep should let it.
const BUSY_BURST: usize = BATCH_MAX / 2;

/// Polls until it is told to stop; a turn that finds nothing gives the processor away.
pub(crate) fn poll_loop(mut worker: Worker, clock: &Clock, pulse: &Pulse, mut poller: Poller) -> Worker {
    bind(worker.id().0);
    let mut sleeper = Sleeper::default();
    while !pulse.stopping() {
        let now = clock.now();
        let r = worker.turn(now, BUDGET);
        if !r.busy() {
            pulse.idle(now);
        }
        let max_us = worker.handle().limits.max_sleep_us.load(Ordering::Relaxed);
        let us = sleeper.after(&r, max_us);
        if us > 0 {
            let started = Instant::now();
            if sleep(&poller, us) {
                // Quiets the alarm.
                let _ = poller.wait(Some(Nanos::ZERO), clock);
            }
            worker.count_sleep(started.elapsed());
        } else if !r.busy() {
            std::thread::yield_now();
        }
    }
    worker
}

/// How long to sleep between looks: longer with each that found little, not at all once a queue fills.
#[derive(Default)]
struct Sleeper {
    us: u32,
}

impl Sleeper {
    /// Microseconds to sleep after a turn.
    fn after(&mut self, turn: &TurnResult, max_us: u32) -> u32 {
        if turn.most >= BUSY_BURST {
            self.us = 0;
        }
        self.us = self.us.min(max_us);
        if turn.more || turn.messages > 0 {
            return 0;
        }
        let now = self.us;
        self.us = (self.us + 1).min(max_us);
        now
    }
}

/// Sleeps, or until someone wakes the worker; says whether somebody did.
fn sleep(poller: &Poller, us: u32) -> bool {
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(us) * 1000 };
    let mut fds = [PollFd::from_borrowed_fd(poller.as_fd(), PollFlags::IN)];
    poll(&mut fds, Some(&timeout)).is_ok_and(|n| n > 0)
}

/// Binds the thread to its core, if the host has it, and makes its sleeps as long as they should be: by
/// default the kernel adds up to 50 us, in which a short ring overflows.
fn bind(core: i32) {
    if let Err(e) = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)) {
        log::debug!(target: "dpif_netdev", "timer slack: {e}");
    }
    let mut set = rustix::thread::CpuSet::new();
    let Some(core) = usize::try_from(core).ok().filter(|c| *c < rustix::thread::CpuSet::MAX_CPU) else { return };
    set.set(core);
    if rustix::thread::sched_setaffinity(None, &set).is_err() {
        log::debug!(target: "dpif_netdev", "the host has no core {core} to bind a worker to");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn turn(most: usize) -> TurnResult {
        TurnResult { packets: most, most, ..TurnResult::default() }
    }

    #[test]
    fn sleeps_longer_while_little_comes() {
        let mut s = Sleeper::default();
        let mut after = |most, max| s.after(&turn(most), max);
        assert_eq!([after(0, 3), after(0, 3), after(15, 3), after(0, 3), after(0, 3)], [0, 1, 2, 3, 3]);
        assert_eq!([after(16, 3), after(0, 3)], [0, 1], "half a burst ends it");
        assert_eq!([after(0, 100), after(0, 100), after(0, 2)], [2, 3, 2], "a new limit holds at once");
        assert_eq!([after(0, 0), after(0, 0)], [0, 0]);
    }

    #[test]
    fn does_not_sleep_on_work() {
        let mut s = Sleeper { us: 10 };
        assert_eq!(s.after(&TurnResult { more: true, ..turn(1) }, 100), 0);
        assert_eq!(s.after(&TurnResult { messages: 1, ..turn(0) }, 100), 0);
        assert_eq!(s.after(&turn(0), 100), 10);
    }

    // UP-48: a sleep is not tens of microseconds longer than asked for. What the host's scheduler adds
    // now and then is not ours, so the best of many counts.
    #[test]
    fn short_sleeps_are_short() {
        let poller = Poller::new().unwrap();
        let best = std::thread::spawn(move || {
            bind(-1);
            let one = |_| {
                let t = Instant::now();
                sleep(&poller, 20);
                t.elapsed()
            };
            (0..200).map(one).min().unwrap()
        });
        let best = best.join().unwrap();
        assert!(best >= Duration::from_micros(20) && best < Duration::from_micros(65), "{best:?}");
    }

    #[test]
    fn a_sleep_ends_when_it_is_woken() {
        let poller = Poller::new().unwrap();
        poller.waker().wake();
        assert!(sleep(&poller, 10_000));
    }
}
