//! Share of the packets in hardware over time, and what the rebalancer itself costs.

use std::time::Instant;

use fv_core::Nanos;
use fv_offload::{Move, Place, PoolId, Rebalancer, Settings};

use crate::plot::{self, Line};
use crate::sim::ours::Ours;
use crate::sim::random::Random;
use crate::sim::reference::Reference;
use crate::sim::{Policy, Second, World, zipf};

/// Seconds between two shuffles of the ranking.
const SECONDS: usize = 30;
/// Seconds until the table has to be full of the right flows.
const GRACE: usize = 5;
const POOL: PoolId = PoolId(0);

pub fn run() {
    let (mut worst, mut steady, mut reference_steady) = (f64::INFINITY, 0, 0);
    for capacity in [100, 1000] {
        let (ours, theirs) = (zipf_run(capacity, &mut Ours::default()), zipf_run(capacity, &mut Reference::default()));
        let (share, moves) = judge(&ours);
        let (their_share, their_moves) = judge(&theirs);
        println!(
            "zipf 1.1, 10000 flows, {capacity:4} entries: worst second at {:.1} % of the best choice, {moves} moves while \
             steady; reference {:.1} %, {their_moves}",
            share * 100.0,
            their_share * 100.0
        );
        worst = worst.min(share);
        steady += moves;
        reference_steady += their_moves;
        draw(capacity, &ours, &theirs);
    }
    let equal = |policy: &mut dyn Policy| {
        let run = World::new(&[100.0; 400], 100, 5).run(policy, 60);
        run[GRACE..].iter().map(|s| s.moves).sum::<u64>()
    };
    let (equal_ours, equal_theirs) = (equal(&mut Ours::default()), equal(&mut Reference::default()));
    println!("400 flows of one rate, 100 entries, 55 s: {equal_ours} moves; reference {equal_theirs}");
    let (pass_ms, plan_ms) = pass();
    println!("200000 flows: samples and plan of a pass {pass_ms:.1} ms, of which the plan {plan_ms:.2} ms");
    let swap_us = swaps();
    println!("256 swaps: {swap_us:.0} us to choose and to book");
    println!(
        "RESULT hw_share_of_best_pct={:.2} steady_moves={steady} reference_steady_moves={reference_steady} \
         equal_moves={equal_ours} reference_equal_moves={equal_theirs} pass_200k_ms={pass_ms:.2} swap_256_us={swap_us:.0}",
        worst * 100.0
    );
}

/// Three rankings, one after the other.
fn zipf_run(capacity: usize, policy: &mut dyn Policy) -> Vec<Second> {
    let mut world = World::new(&zipf(10_000, 1.1, 1e6), capacity, 1);
    let mut all = Vec::new();
    for _ in 0..3 {
        world.shuffle();
        all.extend(world.run(policy, SECONDS));
    }
    all
}

/// The worst second, and the moves, of those that are `GRACE` (twice that, for moves) after a shuffle.
fn judge(run: &[Second]) -> (f64, u64) {
    let (mut worst, mut moves) = (f64::INFINITY, 0);
    for one in run.chunks(SECONDS) {
        worst = one[GRACE..].iter().map(Second::share_of_best).fold(worst, f64::min);
        moves += one[2 * GRACE..].iter().map(|s| s.moves).sum::<u64>();
    }
    (worst, moves)
}

fn draw(capacity: usize, ours: &[Second], theirs: &[Second]) {
    let share = |run: &[Second]| run.iter().map(|s| s.in_hardware as f64 / s.packets as f64).collect();
    let lines = [
        Line { name: "best choice", colour: "#888", values: ours.iter().map(|s| s.best / s.packets as f64).collect() },
        Line { name: "ours", colour: "#06c", values: share(ours) },
        Line { name: "reference", colour: "#c30", values: share(theirs) },
    ];
    let title =
        format!("Packets in hardware: 10,000 flows, Zipf 1.1, {capacity} entries; ranking shuffled every {SECONDS} s");
    match plot::write(&format!("rebalance-{capacity}.svg"), &title, &lines) {
        Ok(path) => println!("plot: {}", path.display()),
        Err(error) => println!("no plot: {error}"),
    }
}

/// Milliseconds of a pass over 200,000 flows that all have traffic, and of its plan: median of 21.
fn pass() -> (f64, f64) {
    const FLOWS: usize = 200_000;
    let rates = zipf(FLOWS, 1.1, 2e7);
    let mut r = Rebalancer::new(Settings::default());
    r.set_pool(POOL, Some(10_000));
    let mut now = Nanos::from_secs(1000);
    let ids: Vec<_> = (0..FLOWS).map(|_| r.add(now, POOL, 1.0)).collect();
    let (mut counts, mut random) = (vec![0; FLOWS], Random(1));
    let (mut passes, mut plans) = (Vec::new(), Vec::new());
    for _ in 0..41 {
        now += Nanos::from_ms(500);
        for (count, rate) in counts.iter_mut().zip(&rates) {
            *count += random.poisson(rate / 2.0);
        }
        let start = Instant::now();
        for (id, count) in ids.iter().zip(&counts) {
            r.sample(*id, now, *count);
        }
        let planning = Instant::now();
        let mut moves = Vec::new();
        r.plan(now, POOL, &mut moves);
        passes.push(start.elapsed().as_secs_f64() * 1e3);
        plans.push(planning.elapsed().as_secs_f64() * 1e3);
        book(&mut r, now, &moves);
    }
    let median = |mut of: Vec<f64>| {
        of.drain(..20);
        of.sort_by(f64::total_cmp);
        of[of.len() / 2]
    };
    (median(passes), median(plans))
}

fn book(r: &mut Rebalancer, now: Nanos, moves: &[Move]) {
    for m in moves {
        match *m {
            Move::Insert(id) => r.entered(id, now),
            Move::Swap { out, into } => {
                r.left(out, now);
                r.entered(into, now);
            }
        }
    }
}

/// Microseconds to choose 256 swaps among 10,000 flows and to book their ends.
fn swaps() -> f64 {
    let mut r = Rebalancer::new(Settings::default());
    r.set_pool(POOL, Some(256));
    let mut now = Nanos::from_secs(1000);
    let ids: Vec<_> = (0..10_000).map(|_| r.add(now, POOL, 1.0)).collect();
    let mut counts = vec![0u64; ids.len()];
    let mut lowest = f64::INFINITY;
    for round in 0..20 {
        let hot = |i: usize| i / 256 == round % 2;
        for _ in 0..20 {
            now += Nanos::from_ms(500);
            for (i, count) in counts.iter_mut().enumerate() {
                *count += if hot(i) { 10_000 } else { 1 };
                if r.place(ids[i]) != Place::Barred {
                    r.sample(ids[i], now, *count);
                }
            }
            let (start, mut moves) = (Instant::now(), Vec::new());
            r.plan(now, POOL, &mut moves);
            book(&mut r, now, &moves);
            if moves.len() == 256 && matches!(moves[0], Move::Swap { .. }) {
                lowest = lowest.min(start.elapsed().as_secs_f64() * 1e6);
            }
        }
    }
    lowest
}
