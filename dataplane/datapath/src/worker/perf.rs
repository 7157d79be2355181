//! `pmd-perf-metrics`: how a worker's turns are distributed, and the last of them one by one.
//!
//! Owned and written by the worker; control asks for a copy. Cost: seven bins a turn, while it is on.

use std::fmt::Write;

use fv_core::Nanos;

pub const BINS: usize = 32;
/// Turns and milliseconds that are remembered.
pub const HISTORY: usize = 1000;

/// Between two turns that are told to the log.
const LOG_GAP: Nanos = Nanos::from_ms(100);

/// Upper ends of all bins but the last, which has none: even steps, or even factors.
const fn linear(min: u64, max: u64) -> [u64; BINS] {
    let mut walls = [u64::MAX; BINS];
    let mut i = 0;
    while i < BINS - 1 {
        walls[i] = min + i as u64 * (max - min) / (BINS as u64 - 2);
        i += 1;
    }
    walls
}

const TICKS: [u64; BINS] = [
    499,
    716,
    1025,
    1469,
    2104,
    3014,
    4317,
    6183,
    8857,
    12686,
    18171,
    26027,
    37279,
    53395,
    76480,
    109_544,
    156_903,
    224_736,
    321_895,
    461_058,
    660_385,
    945_886,
    1_354_815,
    1_940_535,
    2_779_476,
    3_981_111,
    5_702_243,
    8_167_461,
    11_698_454,
    16_755_981,
    24_000_000,
    u64::MAX,
];
const PACKETS: [u64; BINS] = [
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    11,
    13,
    17,
    22,
    28,
    35,
    45,
    57,
    72,
    92,
    117,
    148,
    188,
    239,
    303,
    385,
    489,
    621,
    788,
    1000,
    u64::MAX,
];
const QUEUED: [u64; BINS] = [
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    11,
    12,
    13,
    16,
    20,
    25,
    31,
    38,
    48,
    59,
    73,
    91,
    113,
    140,
    174,
    216,
    268,
    332,
    412,
    512,
    u64::MAX,
];
const UPCALL_TICKS: [u64; BINS] = [
    999,
    1258,
    1584,
    1995,
    2511,
    3162,
    3981,
    5011,
    6309,
    7943,
    9999,
    12589,
    15848,
    19952,
    25118,
    31622,
    39810,
    50118,
    63095,
    79432,
    99999,
    125_892,
    158_489,
    199_526,
    251_188,
    316_227,
    398_107,
    501_187,
    630_957,
    794_328,
    1_000_000,
    u64::MAX,
];

#[derive(Clone, Debug)]
pub struct Histogram {
    pub walls: [u64; BINS],
    pub bins: [u64; BINS],
}

impl Histogram {
    fn new(walls: [u64; BINS]) -> Histogram {
        Histogram { walls, bins: [0; BINS] }
    }

    fn add(&mut self, value: u64) {
        self.bins[self.walls.partition_point(|w| *w < value).min(BINS - 1)] += 1;
    }
}

/// A turn, or what the turns of a millisecond have together.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sample {
    /// The turn's number, or the millisecond.
    pub at: u64,
    pub turns: u64,
    pub ticks: u64,
    pub packets: u64,
    pub bursts: u64,
    pub upcalls: u64,
    pub upcall_ticks: u64,
    /// Most packets that were waiting in one queue.
    pub queued: u64,
}

impl Sample {
    fn add(&mut self, s: &Sample) {
        self.turns += s.turns;
        self.ticks += s.ticks;
        self.packets += s.packets;
        self.bursts += s.bursts;
        self.upcalls += s.upcalls;
        self.upcall_ticks += s.upcall_ticks;
        self.queued = self.queued.max(s.queued);
    }
}

/// `pmd-perf-log-set`: which turns are told to the log, with how many around them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRules {
    pub before: usize,
    pub after: usize,
    /// Another such turn among those after makes it longer.
    pub extend: bool,
    pub ticks: u64,
    pub queued: u64,
}

#[derive(Clone, Debug)]
pub struct Perf {
    /// In the order in which they are shown: ticks a turn, packets a turn, ticks a packet, packets a
    /// burst, packets waiting, upcalls a turn, ticks an upcall.
    pub histograms: Vec<Histogram>,
    pub total: Sample,
    turns: Box<[Sample]>,
    ms: Box<[Sample]>,
    next_turn: usize,
    next_ms: usize,
    current_ms: Sample,
    log: Option<LogRules>,
    /// Turns until the log is written, and why it will be.
    log_in: Option<(usize, u64, &'static str)>,
    /// Nothing is logged before.
    quiet_until: Nanos,
}

impl Default for Perf {
    fn default() -> Perf {
        let walls = [TICKS, PACKETS, linear(100, 30_000), linear(0, 32), QUEUED, linear(0, 30), UPCALL_TICKS];
        let history = || vec![Sample::default(); HISTORY].into_boxed_slice();
        Perf {
            histograms: walls.into_iter().map(Histogram::new).collect(),
            total: Sample::default(),
            turns: history(),
            ms: history(),
            next_turn: 0,
            next_ms: 0,
            current_ms: Sample::default(),
            log: None,
            log_in: None,
            quiet_until: Nanos::ZERO,
        }
    }
}

impl Perf {
    /// A turn that ended at `now`; the number is given here.
    pub fn turn(&mut self, now: Nanos, mut s: Sample) {
        self.total.add(&Sample { turns: 1, ..s });
        (s.at, s.turns) = (self.total.turns, 1);
        let per = |a: u64, n: u64| a.checked_div(n);
        let values = [
            Some(s.ticks),
            Some(s.packets),
            per(s.ticks, s.packets),
            per(s.packets, s.bursts),
            Some(s.queued),
            Some(s.upcalls),
            per(s.upcall_ticks, s.upcalls),
        ];
        for (h, v) in self.histograms.iter_mut().zip(values) {
            v.into_iter().for_each(|v| h.add(v));
        }
        self.turns[self.next_turn] = s;
        self.next_turn = (self.next_turn + 1) % HISTORY;
        let ms = now.0 / 1_000_000;
        if ms != self.current_ms.at {
            if self.current_ms.turns > 0 {
                self.ms[self.next_ms] = self.current_ms;
                self.next_ms = (self.next_ms + 1) % HISTORY;
            }
            self.current_ms = Sample { at: ms, ..Sample::default() };
        }
        self.current_ms.add(&s);
        self.suspect(now, &s);
    }

    /// The last turns, newest first; those that never were are zero.
    pub fn last_turns(&self, n: usize) -> impl Iterator<Item = &Sample> {
        newest(&self.turns, self.next_turn, n)
    }

    pub fn last_ms(&self, n: usize) -> impl Iterator<Item = &Sample> {
        newest(&self.ms, self.next_ms, n)
    }

    pub fn set_log(&mut self, rules: Option<LogRules>) {
        (self.log, self.log_in) = (rules, None);
    }

    /// Forgets all that was counted.
    pub fn clear(&mut self) {
        *self = Perf { log: self.log, ..Perf::default() };
    }

    fn suspect(&mut self, now: Nanos, s: &Sample) {
        let Some(rules) = self.log else { return };
        let why = match () {
            () if s.ticks > rules.ticks => Some("Excessive total cycles"),
            () if s.queued > rules.queued => Some("Vhost RX queue full"),
            () => None,
        };
        match (&mut self.log_in, why) {
            (None, Some(why)) if now >= self.quiet_until => self.log_in = Some((rules.after, s.at, why)),
            (Some((left, ..)), Some(_)) if rules.extend => *left = rules.after,
            (Some((left, ..)), _) => *left = left.saturating_sub(1),
            (None, _) => {}
        }
        if let Some((0, at, why)) = self.log_in {
            self.log_in = None;
            self.quiet_until = now + LOG_GAP;
            log::warn!(target: "pmd_perf", "Suspicious iteration ({why}): iter={at}\n{}", self.around(at, &rules));
        }
    }

    /// The turns around one, oldest first.
    fn around(&self, at: u64, rules: &LogRules) -> String {
        let mut out = String::new();
        let first = at.saturating_sub(rules.before as u64);
        let mut turns: Vec<&Sample> = self.last_turns(HISTORY).filter(|s| s.at >= first && s.turns > 0).collect();
        turns.reverse();
        for s in turns {
            let _ = writeln!(
                out,
                "iter={} cycles={} packets={} qlen={} upcalls={}",
                s.at, s.ticks, s.packets, s.queued, s.upcalls
            );
        }
        out
    }
}

fn newest(ring: &[Sample], next: usize, n: usize) -> impl Iterator<Item = &Sample> {
    (0..n.min(HISTORY)).map(move |i| &ring[(next + HISTORY - 1 - i) % HISTORY])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(ticks: u64, packets: u64) -> Sample {
        Sample { ticks, packets, bursts: packets.div_ceil(32), ..Sample::default() }
    }

    #[test]
    fn every_turn_is_in_one_bin() {
        let mut p = Perf::default();
        for n in 0..5000u64 {
            p.turn(Nanos(n * 300_000), sample(n * n * 7, n % 40));
        }
        for i in [0, 1, 4, 5] {
            assert_eq!(p.histograms[i].bins.iter().sum::<u64>(), 5000, "histogram {i}");
        }
        assert_eq!(p.histograms[2].bins.iter().sum::<u64>(), 5000 - 125, "turns with packets");
        assert_eq!(p.histograms[1].bins[..3], [125, 125, 125]);
        assert_eq!(p.histograms[6].bins, [0; BINS]);
        let turns: Vec<u64> = p.last_turns(3).map(|s| s.at).collect();
        assert_eq!(turns, [5000, 4999, 4998]);
        let ms: Vec<_> = p.last_ms(2).map(|s| (s.at, s.turns)).collect();
        assert_eq!(ms, [(1498, 3), (1497, 4)]);
        p.clear();
        assert_eq!((p.total, p.last_turns(1).next()), (Sample::default(), Some(&Sample::default())));
    }

    #[test]
    fn walls_rise() {
        for h in Perf::default().histograms {
            assert!(h.walls.windows(2).all(|w| w[0] < w[1]), "{:?}", h.walls);
        }
        assert_eq!(linear(100, 30_000)[..3], [100, 1096, 2093]);
        assert_eq!(linear(0, 32)[14..17], [14, 16, 17]);
    }

    #[test]
    fn a_suspicious_turn_is_logged_with_those_around_it() {
        let mut p = Perf::default();
        let rules = LogRules { before: 2, after: 3, extend: false, ticks: 1000, queued: 10 };
        p.set_log(Some(rules));
        (0..5).for_each(|_| p.turn(Nanos::ZERO, sample(1, 0)));
        p.turn(Nanos::ZERO, sample(2000, 1));
        assert_eq!(p.log_in, Some((3, 6, "Excessive total cycles")));
        (0..3).for_each(|_| p.turn(Nanos::ZERO, sample(1, 0)));
        assert_eq!(p.log_in, None, "written after as many as were asked for");
        let text = p.around(6, &rules);
        let turns: Vec<&str> = text.lines().map(|l| l.split(' ').next().unwrap_or_default()).collect();
        assert_eq!(turns, ["iter=4", "iter=5", "iter=6", "iter=7", "iter=8", "iter=9"]);
    }
}
