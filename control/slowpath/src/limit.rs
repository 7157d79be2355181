//! How many flows the datapath may hold, and when an idle one goes.
//!
//! The limit follows how long a round takes, as the reference's does, but a round that was slow only
//! because the thread did not get the processor does not count, and no round ever deletes the flows
//! that carry the traffic: over the limit, idle flows go sooner and new ones are not installed.

use fv_core::Nanos;

/// Settings of `Open_vSwitch:other_config`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    pub flow_limit: u64,
    pub max_idle_ms: u64,
    pub max_revalidator_ms: u64,
    pub min_revalidate_pps: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config { flow_limit: 200_000, max_idle_ms: 10_000, max_revalidator_ms: 500, min_revalidate_pps: 5 }
    }
}

const FLOOR: u64 = 1000;
const START: u64 = 10_000;
const STEP: u64 = 1000;
/// Over the limit, a flow idle for this long goes.
const PRESSED_IDLE_MS: u64 = 100;

/// The dynamic limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    pub now: u64,
}

impl Limit {
    pub fn new(c: &Config) -> Limit {
        Limit { now: c.flow_limit.min(START) }
    }

    /// After a round over `flows` flows that took `busy` of the thread's own processor time.
    pub fn after_round(&mut self, c: &Config, flows: u64, busy: Nanos) {
        let ms = busy.ms().max(1);
        if ms > 2000 {
            self.now /= ms / 1000;
            crate::LIMIT_REDUCED.inc();
        } else if ms > 1300 {
            self.now = self.now * 3 / 4;
            crate::LIMIT_SCALED.inc();
        } else if ms < 1000 && self.now < flows.saturating_mul(1000) / ms {
            self.now += STEP;
            crate::LIMIT_GROWN.inc();
        }
        self.now = self.now.clamp(FLOOR.min(c.flow_limit), c.flow_limit.max(1));
    }

    /// How long a flow may be idle when there are `flows` of them.
    pub fn max_idle(&self, c: &Config, flows: u64) -> Nanos {
        Nanos::from_ms(if flows > self.now { PRESSED_IDLE_MS.min(c.max_idle_ms) } else { c.max_idle_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // UP-23.
    #[test]
    fn falls_with_slow_rounds_and_comes_back() {
        let c = Config::default();
        let mut l = Limit::new(&c);
        assert_eq!(l.now, 10_000);
        l.after_round(&c, 10_000, Nanos::from_ms(4000));
        assert_eq!(l.now, 2500);
        l.after_round(&c, 10_000, Nanos::from_ms(1500));
        assert_eq!(l.now, 1875);
        for _ in 0..20 {
            l.after_round(&c, 10_000, Nanos::from_ms(30));
        }
        assert_eq!(l.now, 21_875);
        for _ in 0..10 {
            l.after_round(&c, 10, Nanos::from_ms(1_999_000));
        }
        assert_eq!(l.now, FLOOR);
        assert_eq!(l.max_idle(&c, 2000), Nanos::from_ms(100));
        assert_eq!(l.max_idle(&c, 10), Nanos::from_ms(10_000));
    }
}
