//! How long a worker may be in upcalls: a bucket of clock ticks for each receive queue, so that a storm
//! of misses on one costs the others no packets.
//!
//! Reads: the worker's clock. Writes: buckets. A bucket holds a few upcalls' time. It fills as time
//! passes: wholly while the worker keeps up, to a share while packets that have flows pile up.

use fv_core::Nanos;

/// Misses that are served at once in a turn, per queue, whatever they cost; all there is where no
/// clock runs.
const MISSES_PER_TURN: u32 = 64;
/// What a full bucket is worth. A receive ring must hold what comes in that time.
const DEPTH: Nanos = Nanos(25_000);
/// While packets pile up, upcalls get one part in so many of the time.
const SHARE: u64 = 16;
/// The clock's pace is taken over at least this long.
const CALIBRATE: Nanos = Nanos::from_ms(5);

/// How fast the worker's ticks go.
#[derive(Default)]
pub struct Pace {
    since: Option<(Nanos, u64)>,
    per_ms: u64,
}

impl Pace {
    /// Once a turn.
    #[inline]
    pub fn observe(&mut self, now: Nanos, ticks: u64) {
        match self.since {
            Some((then, before)) if now.saturating_sub(then) >= CALIBRATE => {
                let ms = (now.saturating_sub(then).0 / 1_000_000).max(1);
                self.per_ms = ticks.wrapping_sub(before) / ms;
                self.since = Some((now, ticks));
            }
            None => self.since = Some((now, ticks)),
            Some(_) => {}
        }
    }

    /// 0 if it is not known, or the clock stands still.
    fn ticks_in(&self, time: Nanos) -> u64 {
        self.per_ms.saturating_mul(time.0 / 1000) / 1000
    }
}

/// One receive queue's bucket.
pub struct Bucket {
    left: i64,
    misses: u32,
    timed: bool,
}

impl Default for Bucket {
    fn default() -> Bucket {
        Bucket { left: 1, misses: MISSES_PER_TURN, timed: false }
    }
}

impl Bucket {
    /// At the beginning of a turn, `elapsed` ticks after the last. `pressed`: packets with flows
    /// pile up. `others`: queues that share what there is.
    pub fn fill(&mut self, pace: &Pace, elapsed: u64, pressed: bool, others: usize) {
        let parts = others.max(1) as u64;
        let depth = pace.ticks_in(DEPTH) / parts;
        self.misses = MISSES_PER_TURN;
        self.timed = depth != 0;
        let share = if pressed { elapsed / SHARE } else { elapsed } / parts;
        let most = i64::try_from(depth).unwrap_or(i64::MAX);
        self.left = self.left.saturating_add_unsigned(share).min(most.max(1));
    }

    pub fn has_some(&self) -> bool {
        self.misses != 0 && (!self.timed || self.left > 0)
    }

    /// An upcall took `ticks`. What is spent beyond what was there is owed.
    pub fn spend(&mut self, ticks: u64) {
        self.misses = self.misses.saturating_sub(1);
        self.left = self.left.saturating_sub_unsigned(ticks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ticks in upcalls of a second of turns with a tick a nanosecond and upcalls of 5 us whenever
    /// the bucket allows, on top of `work` ticks a turn.
    fn second(work: u64, pressed: bool, others: usize) -> (u64, u64) {
        let (mut pace, mut bucket) = (Pace::default(), Bucket::default());
        let (mut now, mut last, mut upcalls, mut longest) = (0u64, 0u64, 0u64, 0u64);
        while now < 1_000_000_000 {
            pace.observe(Nanos(now), now);
            bucket.fill(&pace, now - last, pressed, others);
            last = now;
            let mut here = 0;
            while bucket.has_some() {
                bucket.spend(5_000);
                here += 5_000;
            }
            upcalls += here;
            // Before the pace is known, only the number of misses bounds a turn.
            longest = longest.max(if now > 20_000_000 { here } else { 0 });
            now += here + work;
        }
        (upcalls / 10_000_000, longest)
    }

    // UP-25, UP-27: misses get a bounded share of the time, by queue.
    #[test]
    fn a_storm_gets_a_share_while_packets_pile_up() {
        let (percent, longest) = second(10_000, true, 1);
        assert!((4..9).contains(&percent), "{percent}");
        assert!(longest <= 30_000, "{longest}");
        let (percent, _) = second(10_000, true, 4);
        assert!((1..4).contains(&percent), "{percent}");
    }

    #[test]
    fn a_storm_gets_what_nobody_else_wants() {
        let (percent, longest) = second(5_000, false, 1);
        assert!(percent >= 60, "{percent}");
        assert!(longest <= 30_000, "{longest}");
    }

    #[test]
    fn without_a_clock_misses_are_counted() {
        let (pace, mut bucket) = (Pace::default(), Bucket::default());
        bucket.fill(&pace, 0, false, 1);
        for _ in 0..MISSES_PER_TURN {
            assert!(bucket.has_some());
            bucket.spend(0);
        }
        assert!(!bucket.has_some());
    }
}
