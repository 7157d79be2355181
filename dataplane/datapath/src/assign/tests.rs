use proptest::prelude::*;

use super::*;

fn queues(spec: &[(u32, usize, u64)]) -> Vec<QueueDemand> {
    let queue = |&(port, queue, cycles): &(u32, usize, u64)| QueueDemand {
        port: DpPort(port),
        queue,
        polling: Polling::Poll,
        numa: Some(0),
        cycles,
        enabled_pct: 100,
        pinned: None,
        keep: None,
    };
    spec.iter().map(queue).collect()
}

fn workers(spec: &[(i32, WorkerKind, i32)]) -> Vec<WorkerSlot> {
    let worker = |&(id, kind, numa): &(i32, WorkerKind, i32)| WorkerSlot { id: WorkerId(id), kind, numa: Some(numa) };
    spec.iter().map(worker).collect()
}

#[track_caller]
fn check(queues: &[QueueDemand], workers: &[WorkerSlot], policy: Policy, isolate: bool, expected: &[i32]) -> Plan {
    let plan = assign(queues, workers, Rules { policy, isolate });
    let got: Vec<i32> = plan.workers.iter().map(|w| w.map_or(i32::MIN, |w| w.0)).collect();
    assert_eq!(got, expected);
    plan
}

const POLL: WorkerKind = WorkerKind::Poll;

#[test]
fn policies() {
    let w = workers(&[(4, POLL, 0), (3, POLL, 0), (-1, WorkerKind::Main, 0)]);
    let q = queues(&[(1, 0, 10), (1, 1, 40), (2, 0, 30), (2, 1, 20)]);
    check(&q, &w, Policy::RoundRobin, true, &[3, 4, 3, 4]);
    check(&q, &w, Policy::Cycles, true, &[3, 3, 4, 4]);
    let q = queues(&[(1, 0, 100), (1, 1, 40), (2, 0, 30), (2, 1, 20)]);
    check(&q, &w, Policy::Group, true, &[3, 4, 4, 4]);
    check(&queues(&[(1, 0, 0), (1, 1, 0), (2, 0, 0)]), &w, Policy::Group, true, &[3, 4, 3]);
    let q = queues(&[(1, 0, 0), (1, 1, 0), (1, 2, 0), (1, 3, 0)]);
    check(&q, &w, Policy::Cycles, true, &[3, 4, 4, 3]);
}

// UP-49: a pinned queue may share its worker.
#[test]
fn pinned_queues_isolate_their_worker() {
    let w = workers(&[(3, POLL, 0), (4, POLL, 0)]);
    let mut q = queues(&[(1, 0, 0), (1, 1, 0), (2, 0, 0)]);
    q[0].pinned = Some(WorkerId(3));
    let plan = check(&q, &w, Policy::Cycles, true, &[3, 4, 4]);
    assert_eq!(plan.isolated, BTreeSet::from([WorkerId(3)]));
    check(&q, &w, Policy::RoundRobin, false, &[3, 3, 4]);
    check(&q, &w, Policy::Group, false, &[3, 4, 3]);
}

// UP-44: a queue pinned to a core without a worker, and queues without a free worker, are polled all the same.
#[test]
fn every_queue_is_polled_by_somebody() {
    let w = workers(&[(3, POLL, 0), (4, POLL, 0), (-1, WorkerKind::Main, 0)]);
    let mut q = queues(&[(1, 0, 0), (1, 1, 0), (2, 0, 0)]);
    q[0].pinned = Some(WorkerId(9));
    let plan = check(&q, &w, Policy::RoundRobin, true, &[3, 4, 3]);
    assert_eq!(plan.steps[0], Step::CannotPin(0, WorkerId(9)));
    q[0].pinned = Some(WorkerId(3));
    q[1].pinned = Some(WorkerId(4));
    let plan = check(&q, &w, Policy::Cycles, true, &[3, 4, 3]);
    assert!(plan.steps.contains(&Step::NoneFree(2)));
    check(&q, &w[2..], Policy::Cycles, true, &[-1, -1, -1]);
}

#[test]
fn kinds_and_nodes() {
    let w = workers(&[(-1, WorkerKind::Main, 0), (-2, WorkerKind::Event, 0), (1, POLL, 1), (2, POLL, 1), (5, POLL, 3)]);
    let mut q = queues(&[(1, 0, 0), (2, 0, 0), (3, 0, 0), (4, 0, 0), (5, 0, 0)]);
    q[0].polling = Polling::Main;
    q[1].polling = Polling::Event;
    // No node 0: nodes 1 and 3 in turn; each deals on as it did before.
    let plan = check(&q, &w, Policy::Cycles, true, &[-1, -2, 1, 5, 2]);
    let crossed: Vec<_> = plan.steps.iter().filter(|s| matches!(s, Step::CrossNuma(..))).collect();
    assert_eq!(crossed, [&Step::CrossNuma(2, 0, 1), &Step::CrossNuma(3, 0, 3), &Step::CrossNuma(4, 0, 1)]);
    check(&q, &w[..1], Policy::Cycles, true, &[-1, -1, -1, -1, -1]);
    assert_eq!(assign(&q, &[], Rules::default()).workers, [None; 5]);
}

// UP-40: what has a place keeps it, and what is new goes where there is room.
#[test]
fn what_is_kept_stays() {
    let w = workers(&[(3, POLL, 0), (4, POLL, 0), (7, POLL, 1)]);
    let mut q = queues(&[(1, 0, 50), (1, 1, 40), (2, 0, 0), (3, 0, 0)]);
    q[0].keep = Some(WorkerId(4));
    q[1].keep = Some(WorkerId(4));
    check(&q, &w, Policy::Cycles, true, &[4, 4, 3, 3]);
    check(&q, &w, Policy::RoundRobin, true, &[4, 4, 3, 3]);
    // Not where it must not be: on another node, on a core that is isolated or has gone.
    q[0].keep = Some(WorkerId(7));
    check(&q, &w, Policy::Group, true, &[3, 4, 4, 3]);
    q[0].keep = Some(WorkerId(9));
    q[3].pinned = Some(WorkerId(4));
    check(&q, &w, Policy::Group, true, &[3, 3, 3, 4]);
}

fn any_queues() -> impl Strategy<Value = Vec<QueueDemand>> {
    let queue =
        (1..6u32, 0..4usize, 0..3u8, -1..3i32, 0..1000u64, prop::option::of(0..8i32), prop::option::of(-3..8i32));
    prop::collection::vec(queue, 0..24).prop_map(|all| {
        let mut seen = BTreeSet::new();
        let queue =
            |(port, queue, polling, numa, cycles, pinned, keep): (u32, _, u8, i32, _, Option<i32>, Option<i32>)| {
                QueueDemand {
                    port: DpPort(port),
                    queue,
                    polling: [Polling::Poll, Polling::Event, Polling::Main][usize::from(polling)],
                    numa: (numa >= 0).then_some(numa),
                    cycles,
                    enabled_pct: 100,
                    pinned: pinned.map(WorkerId),
                    keep: keep.map(WorkerId),
                }
            };
        all.into_iter().map(queue).filter(|q| seen.insert((q.port, q.queue))).collect()
    })
}

fn any_workers() -> impl Strategy<Value = Vec<WorkerSlot>> {
    prop::collection::btree_map(0..8i32, 0..3i32, 0..6).prop_map(|poll| {
        let mut all: Vec<(i32, WorkerKind, i32)> = vec![(-1, WorkerKind::Main, 0), (-2, WorkerKind::Event, 0)];
        all.extend(poll.into_iter().map(|(id, numa)| (id, POLL, numa)));
        workers(&all)
    })
}

fn any_rules() -> impl Strategy<Value = Rules> {
    let policy = prop_oneof![Just(Policy::Cycles), Just(Policy::RoundRobin), Just(Policy::Group)];
    (policy, any::<bool>()).prop_map(|(policy, isolate)| Rules { policy, isolate })
}

proptest! {
    /// Everybody is polled, by a worker of the right kind, where it is pinned to, on its node if there
    /// is a free worker, and never beside a pinned queue while another would do.
    #[test]
    fn promises(queues in any_queues(), workers in any_workers(), rules in any_rules()) {
        let plan = assign(&queues, &workers, rules);
        let slot = |id| workers.iter().find(|w| w.id == id);
        for (q, w) in queues.iter().zip(&plan.workers) {
            let w = slot(w.expect("a worker")).expect("a worker that exists");
            let kind = kind_of(q.polling);
            prop_assert!(w.kind == kind || !workers.iter().any(|w| w.kind == kind));
            if kind != POLL {
                continue;
            }
            let pin = q.pinned.and_then(slot).filter(|w| w.kind == POLL);
            if let Some(pin) = pin {
                prop_assert_eq!(w.id, pin.id);
                continue;
            }
            let free: Vec<_> = workers.iter().filter(|w| w.kind == POLL && !plan.isolated.contains(&w.id)).collect();
            if !free.is_empty() {
                prop_assert!(free.contains(&w));
            }
            if q.numa.is_some() && free.iter().any(|w| w.numa == q.numa) {
                prop_assert_eq!(w.numa, q.numa);
            }
        }
    }

    /// A plan that is kept is the plan: nothing moves for its own sake.
    #[test]
    fn keeping_everything_moves_nothing(queues in any_queues(), workers in any_workers(), rules in any_rules()) {
        let plan = assign(&queues, &workers, rules);
        let mut again = queues.clone();
        again.iter_mut().zip(&plan.workers).for_each(|(q, w)| q.keep = *w);
        // Where there is no free worker, or none of its kind, a queue has no place of its own to keep.
        let settled: Vec<usize> = plan.steps.iter().filter_map(|s| match s {
            Step::Dealt(q, w) | Step::Kept(q, w) if !plan.isolated.contains(w) => Some(*q),
            Step::Pinned(q, _) => Some(*q),
            _ => None,
        }).filter(|q| {
            let kind = kind_of(queues[*q].polling);
            workers.iter().any(|w| w.kind == kind)
        }).collect();
        let next = assign(&again, &workers, rules);
        for q in settled {
            prop_assert_eq!(next.workers[q], plan.workers[q]);
        }
    }

    /// Which order queues and workers are listed in makes no difference.
    #[test]
    fn order_is_nothing(queues in any_queues(), workers in any_workers(), rules in any_rules()) {
        let plan = assign(&queues, &workers, rules);
        let (mut q, mut w) = (queues.clone(), workers.clone());
        q.reverse();
        w.reverse();
        let mut back = assign(&q, &w, rules).workers;
        back.reverse();
        prop_assert_eq!(back, plan.workers);
    }

    /// Group: no worker of a node has more than the lightest one and one queue.
    #[test]
    fn groups_are_even(cycles in prop::collection::vec(1..1000u64, 1..30), n in 1..6i32) {
        let q = queues(&cycles.iter().enumerate().map(|(i, c)| (1, i, *c)).collect::<Vec<_>>());
        let w = workers(&(0..n).map(|i| (i, POLL, 0)).collect::<Vec<_>>());
        let plan = assign(&q, &w, Rules { policy: Policy::Group, isolate: true });
        let load = |id| q.iter().zip(&plan.workers).filter(move |(_, w)| **w == Some(WorkerId(id))).map(|(q, _)| q.cycles);
        let heaviest = (0..n).map(|i| load(i).sum::<u64>() - load(i).min().unwrap_or(0)).max().unwrap();
        let lightest = (0..n).map(|i| load(i).sum::<u64>()).min().unwrap();
        prop_assert!(heaviest <= lightest);
    }
}
