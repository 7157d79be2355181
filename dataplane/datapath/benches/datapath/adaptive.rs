//! Whether the cache's own choice is as good as the best fixed setting: each pattern of traffic with
//! each setting, interleaved; whole turns, source and sink taken off.

use std::sync::Arc;

use fv_core::Nanos;
use fv_datapath::{CacheUse, Dp};

use crate::common::output;
use crate::measure::{Row, Run, quantile, result, ticks};
use crate::ring::{Pattern, Ring};
use crate::turn::{IN_FLIGHT, LATER, Rules, io, switch};

/// Packets of a timing, and before the first one.
const PACKETS: usize = 32 << 10;
const WARM: usize = 2 << 20;
/// The chosen setting must have been found by then; what changes seldom takes longest.
const WARM_ADAPTIVE: usize = 12 << 20;
/// Packets until a changing working set changes.
const CHANGE: u64 = 400_000;
/// Masks, of a rule each.
const MASKS: u32 = 16;

/// The reference's insertion probabilities that are compared; 0 is no cache. The first is measured
/// twice, which says how far two measurements of one thing are apart.
const FIXED: [u32; 4] = [1, 20, 100, 0];

struct Random(u64);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (((self.0 >> 32) * u64::from(n)) >> 32) as u32
    }
}

fn pattern(name: &str, n: u32) -> Pattern {
    let mut random = Random(0x1234_5678_9abc_def1);
    match name {
        "uniform" => Box::new(move || random.below(n)),
        "zipf" => {
            // Inverse of the continuous distribution with density 1/x.
            let sample = |u: u32| f64::from(n).powf(f64::from(u) / f64::from(1u32 << 24)) as u32 - 1;
            let samples: Vec<u32> = (0..1 << 17).map(|_| sample(random.below(1 << 24))).collect();
            let mut at = 0;
            Box::new(move || {
                at = (at + 1) % samples.len();
                samples[at]
            })
        }
        "short" => {
            let mut active: Vec<(u32, u32)> = (0..n).map(|flow| (flow, 5 + random.below(46))).collect();
            let mut next = n;
            Box::new(move || {
                let slot = &mut active[random.below(n) as usize];
                if slot.1 == 0 {
                    next = (next + 1) & 0xff_ffff;
                    *slot = (next, 5 + random.below(46));
                }
                slot.1 -= 1;
                slot.0
            })
        }
        _ => {
            let mut sent = 0u64;
            Box::new(move || {
                sent += 1;
                ((sent / CHANGE * u64::from(n) + u64::from(random.below(n))) & 0xff_ffff) as u32
            })
        }
    }
}

struct Variant {
    dp: Arc<Dp>,
    now: u64,
    rounds: Vec<f64>,
}

impl Variant {
    fn new(name: &str, flows: u32, cache: CacheUse) -> Variant {
        let ring = Ring::new("p1", IN_FLIGHT, pattern(name, flows));
        let dp = switch(&ring, Rules::Single(MASKS), vec![output(2)], cache, 1000);
        Variant { dp, now: LATER.0, rounds: Vec::new() }
    }

    fn run(&mut self, packets: usize) -> usize {
        let mut got = 0;
        while got < packets {
            self.now += 1000;
            got += self.dp.turn_main(Nanos(self.now), 32).packets;
        }
        got
    }

    fn time(&mut self) {
        let start = ticks();
        let got = self.run(PACKETS);
        self.rounds.push((ticks() - start) as f64 / got as f64);
    }
}

/// Net cycles a packet of each fixed setting, of the first one again, and of the adaptive one.
fn cell(name: &str, flows: u32, rounds: usize) -> (Vec<f64>, String) {
    let uses = FIXED.iter().chain([&FIXED[0]]).map(|n| CacheUse::Inverse(*n)).chain([CacheUse::Adaptive]);
    let mut variants: Vec<Variant> = uses.map(|cache| Variant::new(name, flows, cache)).collect();
    let last = variants.len() - 1;
    for (i, v) in variants.iter_mut().enumerate() {
        v.run(if i == last { WARM_ADAPTIVE } else { WARM });
    }
    let mut io = io(String::new(), pattern(name, flows));
    let mut base = Vec::new();
    for _ in 0..rounds {
        let start = ticks();
        let got: usize = (0..PACKETS / 3200).map(|_| (io.run)()).sum();
        base.push((ticks() - start) as f64 / got as f64);
        variants.iter_mut().for_each(Variant::time);
    }
    let net = variants.iter().map(|v| (quantile(&v.rounds, 10) - quantile(&base, 10)).max(1.0)).collect();
    let choice = variants[last].dp.queues().first().map_or(String::new(), |q| {
        let (c, (with, without)) = (&q.stats.cache, q.stats.cache.costs());
        let way = if c.on() { "with" } else { "without" };
        format!("{way}, {:?}, trials {}: {with:.0} against {without:.0}", c.why(), c.trials())
    });
    (net, choice)
}

pub fn run(run: &Run) {
    let (mut gaps, mut noise, mut logs) = (Vec::new(), Vec::new(), [0.0; FIXED.len()]);
    println!("cycles a packet with insertion 1/1, 1/20, 1/100, without a cache, 1/1 again, adaptive; gap to the best");
    for name in ["uniform", "zipf", "short", "changing"] {
        for flows in [1u32, 128, 1_000, 8_000, 10_000, 100_000, 1_000_000] {
            let title = format!("{name} {flows}");
            if run.only.as_ref().is_some_and(|o| !title.starts_with(o)) {
                continue;
            }
            let (c, choice) = cell(name, flows, run.rounds.min(25));
            let adaptive = c[FIXED.len() + 1];
            // The better of two runs of one thing would be luck: the first counts.
            let best = c[..FIXED.len()].iter().copied().fold(f64::MAX, f64::min);
            gaps.push((adaptive / best - 1.0) * 100.0);
            noise.push((c[FIXED.len()] / c[0] - 1.0).abs() * 100.0);
            for (log, fixed) in logs.iter_mut().zip(&c) {
                *log += (fixed / adaptive).ln();
            }
            let all: Vec<String> = c.iter().map(|v| format!("{v:7.1}")).collect();
            println!("{title:20} {} {:7.1} %  {choice}", all.join(" "), gaps[gaps.len() - 1]);
        }
    }
    let cells = gaps.len().max(1) as f64;
    let mut more: Vec<(&str, String)> = vec![
        ("worst_gap_pct", format!("{:.1}", quantile(&gaps, 99))),
        ("median_gap_pct", format!("{:.1}", quantile(&gaps, 50))),
        ("noise_pct", format!("{:.1}", quantile(&noise, 99))),
        ("median_noise_pct", format!("{:.1}", quantile(&noise, 50))),
    ];
    for (key, log) in ["fixed_1", "fixed_20", "fixed_100", "fixed_0"].into_iter().zip(logs) {
        more.push((key, format!("{:.3}", (log / cells).exp())));
    }
    result(&[] as &[Row], &more);
}
