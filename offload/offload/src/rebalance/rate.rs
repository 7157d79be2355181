//! A flow's rate, and how far it may be from the truth.
//!
//! The estimate is a count over a window. As long as samples agree with it the window grows, up to
//! [`WINDOW_MAX_S`], and the estimate becomes certain; a sample that cannot be chance starts a new
//! window. So a steady flow is known exactly and a changed one is known at once. Flows that change all the
//! time are found out by their scatter; they are judged by a long average as well, whichever is worse for
//! a move.

use fv_core::Nanos;

/// Longest memory.
const WINDOW_MAX_S: f32 = 8.0;
/// Time over which the long average forgets.
const AVERAGE_S: f32 = 10.0;
/// Samples closer together are put off: they say nothing.
const SAMPLE_MIN_S: f32 = 0.05;
/// Deviations beyond this many standard deviations are a change, not chance.
const CHANGE: f32 = 5.0;
/// Standard deviations between the estimate and its bounds.
const BOUNDS: f32 = 3.0;
/// Most that the scatter of a restless flow can come to.
const SCATTER_MAX: f32 = 64.0;
/// A flow with this much changes several times in the time that it takes to get over one change.
const RESTLESS: f32 = 10.0;
/// What a change does to the scatter, and how much of it a sample takes back: changes up to four seconds
/// apart, two samples a second, add up; those ten seconds apart are followed each time.
const CHANGED: f32 = 3.0;
const CALM: f32 = 0.07;
/// How far the long average of a restless flow may be off.
const AVERAGE_DOUBT: f32 = 0.3;

/// A rate in packets a second.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    per_s: f32,
    window_s: f32,
    /// Variance of the counts over that of a Poisson process: 1 for traffic without memory.
    scatter: f32,
    /// Over the last ten seconds or so.
    average: f32,
    /// Counter and time of the last sample; 0 is none.
    count: u64,
    at: Nanos,
}

impl Default for Rate {
    fn default() -> Rate {
        Rate { per_s: 0.0, window_s: 0.0, scatter: 1.0, average: 0.0, count: 0, at: Nanos::ZERO }
    }
}

impl Rate {
    /// The next sample is where counting starts: the counter is another one from now on.
    pub fn rebase(&mut self) {
        self.at = Nanos::ZERO;
    }

    /// The counter was `count` at `at`. Says whether the estimate moved.
    pub fn sample(&mut self, at: Nanos, count: u64) -> bool {
        if self.at == Nanos::ZERO || at < self.at || count < self.count {
            (self.at, self.count) = (at, count);
            return false;
        }
        let dt = (at.0 - self.at.0) as f32 * 1e-9;
        if dt < SAMPLE_MIN_S {
            return false;
        }
        let n = (count - self.count) as f32;
        (self.at, self.count) = (at, count);
        let expected = self.per_s * dt;
        let chance = if self.window_s == 0.0 { 1.0 } else { expected * (1.0 + dt / self.window_s) + 1.0 };
        let off = (n - expected) * (n - expected) / chance;
        self.average += (n / dt - self.average) * dt / (dt + AVERAGE_S);
        if self.window_s == 0.0 {
            (self.per_s, self.window_s, self.average) = (n / dt, dt, n / dt);
        } else if off > CHANGE * CHANGE * self.scatter {
            self.scatter = (self.scatter * CHANGED).min(SCATTER_MAX);
            (self.per_s, self.window_s) = (n / dt, dt);
        } else {
            self.scatter = (self.scatter + CALM * (off - self.scatter)).max(1.0);
            let kept = self.window_s.min((WINDOW_MAX_S - dt).max(0.0));
            self.per_s = (self.per_s * kept + n) / (kept + dt);
            self.window_s = kept + dt;
        }
        true
    }

    /// Packets a second.
    pub fn estimate(&self) -> f32 {
        if self.is_restless() { self.average } else { self.per_s }
    }

    pub fn is_known(&self) -> bool {
        self.window_s > 0.0
    }

    /// Changes all the time.
    pub fn is_restless(&self) -> bool {
        self.scatter >= RESTLESS
    }

    /// The rate is not lower than this, but for bad luck.
    pub fn at_least(&self) -> f32 {
        let least = (self.per_s - self.doubt()).max(0.0);
        if self.is_restless() { least.min(self.average * (1.0 - AVERAGE_DOUBT)) } else { least }
    }

    /// The rate is not higher than this, but for bad luck.
    pub fn at_most(&self) -> f32 {
        let most = self.per_s + self.doubt();
        if self.is_restless() { most.max(self.average * (1.0 + AVERAGE_DOUBT)) } else { most }
    }

    fn doubt(&self) -> f32 {
        if !self.is_known() {
            return self.per_s;
        }
        BOUNDS * (self.scatter * (self.per_s + 1.0 / self.window_s) / self.window_s).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(rate: &mut Rate, from_ms: u64, count: &mut u64, per_step: &[u64]) {
        for (i, n) in per_step.iter().enumerate() {
            *count += n;
            rate.sample(Nanos::from_ms(from_ms + 500 * i as u64), *count);
        }
    }

    #[test]
    fn certainty_grows_while_nothing_changes() {
        let (mut rate, mut count) = (Rate::default(), 0);
        run(&mut rate, 1000, &mut count, &[0, 500]);
        let early = rate.at_most() - rate.at_least();
        run(&mut rate, 2000, &mut count, &[510, 490, 505, 495, 500, 500, 500, 500, 500, 500]);
        assert!((rate.estimate() - 1000.0).abs() < 10.0, "{rate:?}");
        assert!(rate.at_most() - rate.at_least() < early / 2.0);
    }

    #[test]
    fn a_change_is_known_after_one_sample() {
        let (mut rate, mut count) = (Rate::default(), 0);
        run(&mut rate, 1000, &mut count, &[0, 50, 50, 50, 50, 50, 50, 50, 50]);
        run(&mut rate, 5500, &mut count, &[5000]);
        assert_eq!(rate.estimate(), 10_000.0);
        assert!(rate.at_least() > 8_000.0, "{rate:?}");
        run(&mut rate, 6000, &mut count, &[0]);
        assert_eq!(rate.estimate(), 0.0);
        assert!(rate.at_most() < 50.0, "{rate:?}");
    }

    #[test]
    fn restless_flows_are_believed_less() {
        let (mut rate, mut count) = (Rate::default(), 0);
        let bursts: Vec<u64> = (0..40).map(|i| if i / 4 % 2 == 0 { 1000 } else { 0 }).collect();
        run(&mut rate, 1000, &mut count, &bursts);
        for i in 0..40 {
            run(&mut rate, 21_000 + 500 * i, &mut count, &[bursts[i as usize]]);
            assert!(rate.is_restless() && (700.0..1300.0).contains(&rate.estimate()), "{i} {rate:?}");
            assert!(rate.at_least() < 900.0 && rate.at_most() > 1000.0, "{i} {rate:?}");
        }
        run(&mut rate, 41_000, &mut count, &[500; 60]);
        assert!(!rate.is_restless(), "calmed down: {rate:?}");
    }

    #[test]
    fn counters_that_start_again_are_no_traffic() {
        let (mut rate, mut count) = (Rate::default(), 0);
        run(&mut rate, 1000, &mut count, &[0, 500, 500]);
        rate.rebase();
        rate.sample(Nanos::from_ms(4000), 1_000_000);
        assert_eq!(rate.estimate(), 1000.0);
        rate.sample(Nanos::from_ms(4500), 3);
        assert_eq!(rate.estimate(), 1000.0, "went back");
        rate.sample(Nanos::from_ms(5000), 503);
        assert_eq!(rate.estimate(), 1000.0);
    }
}
