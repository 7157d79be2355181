use fv_core::DpPort;
use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits { load_pct: 95, improvement_pct: 25, interval: Nanos::from_secs(60) };

/// (numa, cycles, worker) of queues; (id, numa) of workers.
fn world(queues: &[(i32, u64, i32)], workers: &[(i32, i32)]) -> (Vec<QueueDemand>, Vec<WorkerSlot>) {
    let queue = |(i, &(numa, cycles, at)): (usize, &(i32, u64, i32))| QueueDemand {
        port: DpPort(1),
        queue: i,
        polling: Polling::Poll,
        numa: Some(numa),
        cycles,
        enabled_pct: 100,
        pinned: None,
        keep: Some(WorkerId(at)),
    };
    let worker = |&(id, numa): &(i32, i32)| WorkerSlot { id: WorkerId(id), kind: WorkerKind::Poll, numa: Some(numa) };
    (queues.iter().enumerate().map(queue).collect(), workers.iter().map(worker).collect())
}

fn overloaded(ids: &[i32]) -> Balancer {
    let mut b = Balancer::default();
    b.configure(Some(LIMITS), Nanos::ZERO);
    for _ in 0..OVERLOADED_FOR {
        b.measured(&ids.iter().map(|id| (WorkerId(*id), 95)).collect::<Vec<_>>());
    }
    b
}

fn decide(b: &mut Balancer, minute: u64, w: &(Vec<QueueDemand>, Vec<WorkerSlot>), policy: Policy) -> Verdict {
    b.decide(Nanos::from_secs(60 * minute), &w.0, &w.1, Rules { policy, isolate: true })
}

#[test]
fn moves_when_a_worker_is_overloaded_for_long_and_it_pays() {
    let w = world(&[(0, 500, 0), (0, 400, 0), (0, 10, 1)], &[(0, 0), (1, 0)]);
    let mut b = overloaded(&[0]);
    assert_eq!(decide(&mut b, 0, &w, Policy::Cycles), Verdict::Quiet, "not yet the time");
    let Verdict::Move(runs) = decide(&mut b, 1, &w, Policy::Group) else { panic!("moves") };
    assert_eq!((runs[0].current, runs[0].estimated), (890 * 890, 90 * 90));
    assert_eq!(runs[0].improvement_pct(), 98);
    assert_eq!(decide(&mut b, 2, &w, Policy::Group), Verdict::Quiet, "overload is counted anew");
    // Eleven intervals are not enough, nor are twelve with a pause.
    let mut b = Balancer::default();
    b.configure(Some(LIMITS), Nanos::ZERO);
    for n in 0..2 * OVERLOADED_FOR - 1 {
        b.measured(&[(WorkerId(0), if n == OVERLOADED_FOR - 1 { 94 } else { 100 })]);
    }
    assert_eq!(decide(&mut b, 1, &w, Policy::Group), Verdict::Quiet);
}

#[test]
fn says_why_it_does_not_move() {
    let even = world(&[(0, 500, 0), (0, 450, 1), (0, 50, 0)], &[(0, 0), (1, 0)]);
    let one = world(&[(0, 500, 0), (0, 450, 0)], &[(0, 0), (1, 1)]);
    let single = world(&[(0, 500, 0), (0, 450, 1)], &[(0, 0), (1, 0)]);
    for (w, policy, want) in [
        (&even, Policy::RoundRobin, "roundrobin assignment ignores load"),
        (&one, Policy::Cycles, "no numa node has two"),
        (&single, Policy::Cycles, "no numa node has two"),
    ] {
        let text = decide(&mut overloaded(&[0]), 1, w, policy).to_string();
        assert!(text.contains(want), "{text}");
    }
    let even = world(&[(0, 500, 0), (0, 450, 1), (0, 20, 1)], &[(0, 0), (1, 0)]);
    let text = decide(&mut overloaded(&[0]), 1, &even, Policy::Group).to_string();
    assert!(text.contains("threshold is not met. Numa node 0: variance improvement 0%."), "{text}");
}

// UP-41: an unbalanced node is not hidden by idle ones.
#[test]
fn each_node_counts_for_itself() {
    let mut queues = vec![(1, 750, 4), (1, 750, 4), (1, 1000, 5), (1, 1000, 6), (1, 250, 7), (1, 250, 7)];
    queues.extend((0..4).map(|n| (0, 0, n)));
    let w = world(&queues, &[(0, 0), (1, 0), (2, 0), (3, 0), (4, 1), (5, 1), (6, 1), (7, 1)]);
    let Verdict::Move(runs) = decide(&mut overloaded(&[4]), 1, &w, Policy::Group) else { panic!("moves") };
    let node = runs.iter().find(|r| r.numa == 1).unwrap();
    assert_eq!((node.current, node.estimated, node.improvement_pct()), (2_000_000, 0, 100));
}

// UP-42: pinned queues on shared workers, and queues polled from another node, do not stop balancing.
#[test]
fn balances_what_can_be_balanced() {
    let mut w = world(&[(0, 500, 0), (0, 400, 0), (0, 300, 0), (1, 10, 1)], &[(0, 0), (1, 0)]);
    w.0[0].pinned = Some(WorkerId(0));
    let mut b = overloaded(&[0]);
    let v = b.decide(Nanos::from_secs(60), &w.0, &w.1, Rules { policy: Policy::Group, isolate: false });
    assert!(matches!(v, Verdict::Move(_)), "{v}");
}

#[test]
fn a_move_that_does_not_help_is_not_repeated_soon() {
    // Whatever is moved, the load follows: the loads are as bad after each move.
    let w = world(&[(0, 500, 0), (0, 400, 0), (0, 10, 1)], &[(0, 0), (1, 0)]);
    let mut b = overloaded(&[0]);
    let mut moves = Vec::new();
    for minute in 1..=500 {
        for _ in 0..OVERLOADED_FOR {
            b.measured(&[(WorkerId(0), 100)]);
        }
        if let Verdict::Move(_) = decide(&mut b, minute, &w, Policy::Group) {
            moves.push(minute);
        }
    }
    assert!(moves.len() < 25, "{moves:?}");
    assert!(moves.windows(2).skip(4).all(|m| m[1] - m[0] >= 16), "{moves:?}");
}

#[test]
fn a_change_of_settings_starts_anew() {
    let w = world(&[(0, 500, 0), (0, 400, 0), (0, 10, 1)], &[(0, 0), (1, 0)]);
    let mut b = overloaded(&[0]);
    b.configure(Some(LIMITS), Nanos::from_secs(9));
    assert!(matches!(decide(&mut b, 1, &w, Policy::Group), Verdict::Move(_)), "the same settings are no change");
    let mut b = overloaded(&[0]);
    b.configure(Some(Limits { load_pct: 90, ..LIMITS }), Nanos::ZERO);
    assert_eq!(decide(&mut b, 1, &w, Policy::Group), Verdict::Quiet);
    b.configure(None, Nanos::ZERO);
    assert!(!b.is_on());
}

proptest! {
    /// With steady loads balancing comes to rest: after a move the same loads give no second one.
    #[test]
    fn comes_to_rest(
        queues in prop::collection::vec((0..2i32, 0..100_000u64, 0..6i32), 1..20),
        group in any::<bool>(),
    ) {
        let policy = if group { Policy::Group } else { Policy::Cycles };
        let mut w = world(&queues, &[(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 1)]);
        let mut b = overloaded(&[0, 1, 2, 3, 4, 5]);
        let mut moves = 0;
        for minute in 1..20 {
            (0..OVERLOADED_FOR).for_each(|_| b.measured(&[(WorkerId(0), 100)]));
            if let Verdict::Move(runs) = decide(&mut b, minute, &w, policy) {
                moves += 1;
                let moves = |q: &QueueDemand| {
                    let at = w.1.iter().find(|s| Some(s.id) == q.keep).and_then(|s| s.numa);
                    runs.iter().any(|r| r.moves && Some(r.numa) == at)
                };
                let anew: Vec<_> =
                    w.0.iter().map(|q| QueueDemand { keep: q.keep.filter(|_| !moves(q)), ..q.clone() }).collect();
                let plan = assign(&anew, &w.1, Rules { policy, isolate: true });
                w.0.iter_mut().zip(plan.workers).for_each(|(q, at)| q.keep = at);
            }
        }
        prop_assert!(moves <= 2, "one for each node");
    }

    /// A move never makes the node that it is for worse.
    #[test]
    fn only_for_the_better(
        queues in prop::collection::vec((0..2i32, 0..100_000u64, 0..6i32), 1..20),
    ) {
        let w = world(&queues, &[(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 1)]);
        if let Verdict::Move(runs) = decide(&mut overloaded(&[0]), 1, &w, Policy::Group) {
            prop_assert!(runs.iter().any(|r| r.estimated < r.current && r.improvement_pct() >= 25));
        }
    }
}
