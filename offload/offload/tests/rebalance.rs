//! The rebalancer against the best choice, and against the reference's algorithm, in one simulation.

mod sim;

use sim::ours::Ours;
use sim::reference::Reference;
use sim::{Policy, Second, World, zipf};

fn moves(run: &[Second]) -> u64 {
    run.iter().map(|s| s.moves).sum()
}

fn worst(run: &[Second]) -> f64 {
    run.iter().map(Second::share_of_best).fold(f64::INFINITY, f64::min)
}

fn zipf_run(capacity: usize, seed: u64, policy: &mut dyn Policy) -> (Vec<Second>, Vec<Second>) {
    let mut world = World::new(&zipf(10_000, 1.1, 1e6), capacity, seed);
    world.shuffle();
    let before = world.run(policy, 30);
    world.shuffle();
    (before, world.run(policy, 30))
}

#[test]
fn zipf_on_a_hundred_and_a_thousand_entries() {
    for (capacity, seed) in [(100, 1), (100, 2), (1000, 3), (1000, 4)] {
        let mut ours = Ours::default();
        let (before, after) = zipf_run(capacity, seed, &mut ours);
        for run in [&before, &after] {
            println!(
                "{capacity} {seed}: worst {:.4}, moves {:?}",
                worst(&run[5..]),
                run.iter().map(|s| s.moves).collect::<Vec<_>>()
            );
        }
        for run in [before, after] {
            assert!(worst(&run[5..]) >= 0.95, "{capacity}: {run:?}");
            assert_eq!(moves(&run[10..]), 0, "{capacity}: {run:?}");
        }
    }
}

#[test]
fn a_capacity_that_is_not_known_is_found() {
    let mut ours = Ours::default();
    ours.knows_capacity = false;
    let (_, after) = zipf_run(300, 7, &mut ours);
    assert!(worst(&after[5..]) >= 0.95, "{after:?}");
}

#[test]
fn flows_of_nearly_the_same_rate_stay_where_they_are() {
    let run = |policy: &mut dyn Policy| World::new(&[100.0; 400], 100, 5).run(policy, 60);
    assert_eq!(moves(&run(&mut Ours::default())[2..]), 0);
    // One sample, no margin, no minimum stay: near-equal flows trade places each time.
    let theirs = moves(&run(&mut Reference::default())[2..]);
    assert!(theirs > 1000, "{theirs}");
}

/// A table full of slow flows, and a fast one that appears: seconds until it is in.
fn waits(policy: &mut dyn Policy) -> f64 {
    let mut rates = vec![50.0; 200];
    rates.push(0.0);
    let mut world = World::new(&rates, 100, 6);
    world.run(policy, 10);
    world.flows[200].rate = 20_000.0;
    let start = world.now;
    while !world.flows[200].in_hardware {
        world.second(policy);
        assert!(world.now.saturating_sub(start).secs() < 30);
    }
    world.now.saturating_sub(start).ms() as f64 / 1000.0
}

#[test]
fn a_new_heavy_flow_is_in_within_a_second() {
    assert!(waits(&mut Ours::default()) <= 1.0);
    assert!(waits(&mut Reference::default()) >= 3.0);
}

#[test]
fn a_flow_that_cannot_be_inserted_costs_one_attempt() {
    let run = |policy: &mut dyn Policy| {
        let mut world = World::new(&zipf(400, 1.1, 1e5), 100, 8);
        world.flows[0].failing = true;
        world.shuffle();
        let run = world.run(policy, 30);
        (worst(&run[5..]), moves(&run[10..]))
    };
    let (share, late) = run(&mut Ours::default());
    assert!(share >= 0.95 && late == 0, "{share} {late}");
    // It skips as many as were inserted from the front, where the one that fails is: each pass takes
    // one that is in the table for one that waits.
    let (_, late) = run(&mut Reference::default());
    assert!(late > 0);
}

#[test]
fn a_device_with_nothing_in_hardware_does_not_stop_the_next() {
    let share = |policy: &mut dyn Policy| {
        // The first device's table takes nothing at all.
        let mut world = World::new(&zipf(800, 1.1, 1e5), 0, 9).split(400, 50);
        world.flows.iter_mut().skip(400).for_each(|f| f.rate = 10.0);
        world.run(policy, 5);
        for f in &mut world.flows[750..] {
            f.rate = 1000.0;
        }
        world.run(policy, 20)[19].share_of_best()
    };
    let (ours, theirs) = (share(&mut Ours::default()), share(&mut Reference::default()));
    assert!(ours >= 0.95 && theirs < 0.5, "{ours} {theirs}");
}

#[test]
fn restless_flows_do_not_make_the_table_restless() {
    // All have the same average; each sends for a second or two and is silent for as long.
    let run = |policy: &mut dyn Policy| {
        let mut world = World::new(&[0.0; 200], 50, 10);
        let mut moved = 0;
        for second in 0..80 {
            for (i, f) in world.flows.iter_mut().enumerate() {
                let period = 2 + i as u64 % 3;
                f.rate = if ((second + i as u64) / period).is_multiple_of(2) { 2000.0 } else { 0.0 };
            }
            let moves = world.second(policy).moves;
            moved += if second >= 40 { moves } else { 0 };
        }
        moved
    };
    let (ours, theirs) = (run(&mut Ours::default()), run(&mut Reference::default()));
    assert!(ours * 10 < theirs, "{ours} {theirs}");
}

#[test]
fn switched_off_it_fills_and_swaps_nothing() {
    let mut ours = Ours::default();
    ours.rebalancer.set_enabled(false);
    let mut world = World::new(&zipf(1000, 1.1, 1e5), 100, 11);
    world.shuffle();
    let run = world.run(&mut ours, 10);
    assert_eq!(moves(&run), 100);
    world.shuffle();
    assert_eq!(moves(&world.run(&mut ours, 10)), 0);
    ours.rebalancer.set_enabled(true);
    assert!(worst(&world.run(&mut ours, 10)[5..]) >= 0.95);
}
