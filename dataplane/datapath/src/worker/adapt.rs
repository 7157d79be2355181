//! Whether a receive queue's lookups ask the tag cache: chosen by measurement.
//!
//! A cache that mostly fails costs more than none, and one that mostly succeeds may too, if the
//! subtables are few or the cache is larger than what the processor's holds. So both ways are timed
//! now and then, in short turns, and the faster one is used in between. When the cache is in use
//! everything is remembered: remembering little keeps the cost of failing and spoils recovery.
//!
//! Reads: the worker's clock, hits. Writes: the queue's published choice. Cost: two clock reads a
//! burst during a trial, a counter otherwise.

use super::stats::{CacheChoice, Why};
use crate::lookup::{Ask, CacheUse, Terrain};

/// Bursts between trials: at first, and after many that changed nothing.
const PERIOD: (u64, u64) = (8 << 10, 1 << 20);
/// A trial with its time to warm takes at most this share of the time, one in so many bursts, up to
/// the second: then it is time for another whatever the last one took.
const TRIAL_SHARE: (u64, u64) = (64, 2 << 20);
/// Bursts of a window in which hits are counted while the cache warms.
const WINDOW: u64 = 256;
/// Windows of warming, at most: where the cache looks for its size, and where it has found it.
const WINDOWS: (u64, u64) = (400, 32);
/// Hundredths of hits by which a window must beat the one before to be worth another.
const WARMING: u64 = 2;
/// Bursts of a window in which hits are counted between trials.
const WATCH: u64 = 4096;
/// Hundredths by which hits must differ from those after the last trial to bring on another.
const CHANGED: u64 = 12;
/// Pairs of timings of a trial, at least and at most.
const PAIRS: (usize, usize) = (8, 40);
/// The other way must be so many percent faster to be taken.
const BETTER: u64 = 3;
/// From this ratio on the shorter trial is enough.
const CLEAR: u64 = 160;

/// The state of one receive queue.
pub struct Adapt {
    on: bool,
    phase: Phase,
    period: u64,
    /// Bursts since the last decision began to be prepared.
    spent: u64,
    subtables: u32,
    /// Hundredths of hits in the first window after the last trial.
    usual: Option<u64>,
    /// Hits and packets of the present window.
    hits: u64,
    packets: u64,
    costs: [[u32; PAIRS.1]; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Nothing to choose.
    Rest,
    /// So many bursts until the next trial.
    Steady(u64),
    /// The cache is asked and filled; the window's number, the hundredths of the one before, and the
    /// windows in which the cache was found to have its size.
    Warm { window: u64, last: u64, settled: u64 },
    /// Timing: each step is two bursts of one way, of which the second is timed.
    Trial { step: usize },
}

/// What to do with a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    pub ask: Ask,
    /// Time the lookup.
    pub time: bool,
}

impl Default for Adapt {
    fn default() -> Adapt {
        Adapt {
            on: false,
            phase: Phase::Rest,
            period: PERIOD.0,
            spent: 0,
            subtables: 0,
            usual: None,
            hits: 0,
            packets: 0,
            costs: [[0; PAIRS.1]; 2],
        }
    }
}

impl Adapt {
    /// What the settings or the last trial say.
    #[inline]
    pub fn plan(&mut self, wanted: CacheUse, terrain: Terrain, choice: &CacheChoice) -> Plan {
        let ask = match wanted {
            CacheUse::Always => Ask::Remember,
            _ if choice.forbidden() => Ask::Nothing,
            CacheUse::Inverse(0) => Ask::Nothing,
            CacheUse::Inverse(1) => Ask::Remember,
            CacheUse::Inverse(_) => Ask::Sometimes,
            CacheUse::Adaptive => return self.adaptive(terrain, choice),
        };
        let on = ask != Ask::Nothing;
        if self.phase != Phase::Rest || choice.why() != Why::Set || choice.on() != on {
            self.phase = Phase::Rest;
            choice.set(on, Why::Set);
        }
        Plan { ask, time: false }
    }

    #[inline]
    fn adaptive(&mut self, terrain: Terrain, choice: &CacheChoice) -> Plan {
        if terrain.cheap {
            if self.phase != Phase::Rest || choice.why() != Why::Cheap {
                self.phase = Phase::Rest;
                self.on = false;
                choice.set(false, Why::Cheap);
            }
            return Plan { ask: Ask::Nothing, time: false };
        }
        if self.phase == Phase::Rest || terrain.subtables > 2 * self.subtables || terrain.subtables * 2 < self.subtables
        {
            self.begin(terrain, choice);
        }
        let on = match &mut self.phase {
            Phase::Rest => false,
            Phase::Steady(left) => {
                *left -= 1;
                if *left == 0 {
                    self.prepare();
                }
                self.on
            }
            Phase::Warm { .. } => true,
            Phase::Trial { step } => {
                let time = *step % 2 == 1;
                let on = *step / 2 % 2 == 0;
                return Plan { ask: if on { Ask::Remember } else { Ask::Nothing }, time };
            }
        };
        Plan { ask: if on { Ask::Remember } else { Ask::Nothing }, time: false }
    }

    /// There is something to choose, or the subtables are much more or fewer than before: the cache
    /// is tried at once, and used until it is known better.
    fn begin(&mut self, terrain: Terrain, choice: &CacheChoice) {
        if self.phase == Phase::Rest {
            self.on = true;
            choice.set(true, Why::Untried);
        }
        self.subtables = terrain.subtables;
        self.period = PERIOD.0;
        self.prepare();
    }

    fn prepare(&mut self) {
        self.spent = 0;
        (self.hits, self.packets) = (0, 0);
        self.phase = if self.on && self.period != PERIOD.0 {
            Phase::Trial { step: 0 }
        } else {
            Phase::Warm { window: 0, last: 0, settled: 0 }
        };
    }

    /// After a burst: how long the lookup of a packet took, in sixteenths, where that was timed, and
    /// how many hit the cache. `settled` says that the cache has found its size.
    #[inline]
    pub fn done(&mut self, packets: u64, hits: u64, cost: u32, settled: bool, choice: &CacheChoice) {
        match self.phase {
            Phase::Rest => {}
            Phase::Steady(_) if self.on => {
                self.hits += hits;
                self.packets += packets;
                if self.packets >= WATCH * 32 {
                    self.watched();
                }
            }
            Phase::Steady(_) => {}
            Phase::Warm { .. } => self.warmed(packets, hits, settled),
            Phase::Trial { step } => self.timed(step, cost, choice),
        }
    }

    /// The cache does better or worse than when it was chosen: so might the other way.
    #[cold]
    fn watched(&mut self) {
        let share = self.hits * 100 / self.packets.max(1);
        (self.hits, self.packets) = (0, 0);
        let usual = *self.usual.get_or_insert(share);
        if share.abs_diff(usual) > CHANGED {
            self.period = PERIOD.0 * 2;
            self.prepare();
        }
    }

    #[cold]
    fn warmed(&mut self, packets: u64, hits: u64, has_size: bool) {
        let Phase::Warm { window, last, mut settled } = self.phase else { return };
        self.spent += 1;
        self.hits += hits;
        self.packets += packets;
        if !self.spent.is_multiple_of(WINDOW) {
            return;
        }
        let share = self.hits * 100 / self.packets.max(1);
        (self.hits, self.packets) = (0, 0);
        // Flows that come round in turn hit nothing until the cache has room for all of them.
        settled = if has_size { settled + 1 } else { 0 };
        let warm = share >= 98 || settled > 1 && share < last + WARMING;
        self.phase = if warm || settled >= WINDOWS.1 || window >= WINDOWS.0 {
            Phase::Trial { step: 0 }
        } else {
            Phase::Warm { window: window + 1, last: share, settled }
        };
    }

    #[cold]
    fn timed(&mut self, step: usize, cost: u32, choice: &CacheChoice) {
        self.spent += 1;
        let (way, pair) = (step / 2 % 2, step / 4);
        if step % 2 == 1 {
            self.costs[way][pair] = cost;
        }
        let next = step + 1;
        self.phase = Phase::Trial { step: next };
        let pairs = next / 4;
        if !next.is_multiple_of(4) || pairs < PAIRS.0 {
            return;
        }
        let (with, without) = (middle(&self.costs[0][..pairs]), middle(&self.costs[1][..pairs]));
        let clear = with * 100 > without * CLEAR || without * 100 > with * CLEAR;
        if clear || pairs == PAIRS.1 {
            self.decide(with, without, choice);
        }
    }

    fn decide(&mut self, with: u64, without: u64, choice: &CacheChoice) {
        let was = self.on;
        self.on = if was { without * 100 >= with * (100 - BETTER) } else { with * 100 < without * (100 - BETTER) };
        let known = choice.trials() > 0;
        self.period = if known && was == self.on { (self.period * 2).min(PERIOD.1) } else { PERIOD.0 * 2 };
        self.phase = Phase::Steady(self.period.max((self.spent * TRIAL_SHARE.0).min(TRIAL_SHARE.1)));
        self.usual = None;
        (self.hits, self.packets) = (0, 0);
        choice.set(self.on, Why::Measured);
        choice.tried(with, without);
    }
}

/// The mean without the highest and lowest eighth: interrupts are left out, and bursts that happen to
/// be cheap do not count more than they are.
fn middle(costs: &[u32]) -> u64 {
    let mut sorted = [0; PAIRS.1];
    let sorted = &mut sorted[..costs.len()];
    sorted.copy_from_slice(costs);
    sorted.sort_unstable();
    let eighth = sorted.len() / 8;
    let kept = &sorted[eighth..sorted.len() - eighth];
    kept.iter().map(|c| u64::from(*c)).sum::<u64>() / kept.len().max(1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: Terrain = Terrain { subtables: 16, cheap: false };

    /// Plays bursts of 32 on a machine where a packet's lookup costs that much.
    fn play(a: &mut Adapt, c: &CacheChoice, bursts: u64, with: u32, without: u32) -> u64 {
        let mut asked = 0;
        for _ in 0..bursts {
            let plan = a.plan(CacheUse::Adaptive, MANY, c);
            let on = plan.ask != Ask::Nothing;
            asked += u64::from(on);
            let cost = if on { with } else { without };
            a.done(32, if on { 20 } else { 0 }, if plan.time { cost } else { 0 }, true, c);
        }
        asked * 100 / bursts
    }

    // UP-01, UP-06: a cache that fails is not used, each queue for itself.
    #[test]
    fn the_faster_way_is_used() {
        let (mut a, c) = (Adapt::default(), CacheChoice::default());
        assert!(play(&mut a, &c, 1_000_000, 200, 900) >= 98);
        assert!(c.on() && c.why() == Why::Measured);
        // The traffic has changed: found out within a period.
        play(&mut a, &c, PERIOD.1 + 100_000, 900, 200);
        assert!(!c.on());
        assert!(play(&mut a, &c, 1_000_000, 900, 200) <= 2);
        play(&mut a, &c, PERIOD.1 + 100_000, 200, 900);
        assert!(c.on());
    }

    #[test]
    fn a_cache_that_grows_is_not_judged() {
        let (mut a, c) = (Adapt::default(), CacheChoice::default());
        let mut burst = |settled| {
            let plan = a.plan(CacheUse::Adaptive, MANY, &c);
            a.done(32, 0, if plan.time { 300 } else { 0 }, settled, &c);
            plan.time
        };
        assert!(!(0..WINDOWS.0 * WINDOW).any(|_| burst(false)), "timed before it has its size");
        assert!((0..3 * WINDOW).any(|_| burst(true)));
    }

    #[test]
    fn a_draw_changes_nothing() {
        let (mut a, c) = (Adapt::default(), CacheChoice::default());
        play(&mut a, &c, 100_000, 900, 200);
        assert!(!c.on());
        play(&mut a, &c, 3 * PERIOD.1, 300, 304);
        assert!(!c.on());
    }

    #[test]
    fn a_clock_that_stands_still_leaves_it_on() {
        let (mut a, c) = (Adapt::default(), CacheChoice::default());
        assert!(play(&mut a, &c, 200_000, 0, 0) >= 98);
        assert!(c.on());
    }

    #[test]
    fn settings_and_cheap_lookups_decide_alone() {
        let (mut a, c) = (Adapt::default(), CacheChoice::default());
        let cheap = Terrain { subtables: 1, cheap: true };
        let mut ask = |wanted, terrain| a.plan(wanted, terrain, &c).ask;
        assert_eq!(ask(CacheUse::Adaptive, cheap), Ask::Nothing);
        assert_eq!(c.why(), Why::Cheap);
        assert_eq!(ask(CacheUse::Adaptive, MANY), Ask::Remember);
        assert_eq!(ask(CacheUse::Inverse(0), MANY), Ask::Nothing);
        assert_eq!(c.why(), Why::Set);
        assert_eq!(ask(CacheUse::Inverse(1), cheap), Ask::Remember);
        assert_eq!(ask(CacheUse::Inverse(100), cheap), Ask::Sometimes);
        assert_eq!(ask(CacheUse::Always, cheap), Ask::Remember);
        c.forbid(true);
        assert_eq!(a.plan(CacheUse::Inverse(1), MANY, &c).ask, Ask::Nothing);
        assert_eq!(a.plan(CacheUse::Adaptive, MANY, &c).ask, Ask::Nothing);
    }
}
