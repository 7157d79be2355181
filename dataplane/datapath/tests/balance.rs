//! `pmd-auto-lb` from measuring to moving, on workers that the test turns itself.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};

use common::*;
use fv_core::{Clock, DpPort, Nanos};
use fv_datapath::{Dp, Limits, Policy, Rules, Worker, WorkerKind};
use fv_dpif::{Datapath, WorkerId};
use fv_netdev::Polling;

/// A clock that goes on with every look at it.
fn ticks() -> u64 {
    static NOW: AtomicU64 = AtomicU64::new(0);
    NOW.fetch_add(100, Ordering::Relaxed)
}

#[test]
fn queues_of_an_overloaded_worker_are_spread_once() {
    let dp = Dp::new("ovs-netdev", "netdev", Clock::stopped(), ticks);
    let (a, sink) = (Mem::new("a", Polling::Poll, 3), Mem::new("b", Polling::Main, 1));
    dp.add_port(a.clone(), None).unwrap();
    dp.add_port(sink.clone(), None).unwrap();
    dp.set_upcall_handler(Some(Control::new(|_| forward(vec![output(2)], dst_mask()))));
    dp.set_rules(Rules { policy: Policy::Group, isolate: false });
    let worker = |id| dp.new_worker(WorkerId(id), WorkerKind::Poll, Some(0)).unwrap();
    let mut workers: Vec<Worker> = (0..2).map(worker).collect();
    let mut now = Nanos::ZERO;
    let mut sent = 0;
    let mut step = |workers: &mut Vec<Worker>| {
        for wire in &a.wires {
            wire.rx.lock().extend((0..10).map(|n| fv_packet::Packet::from_slice(&udp(n, n))));
        }
        sent += 30;
        for _ in 0..4 {
            workers.iter_mut().for_each(|w| {
                w.turn(now, 64);
            });
        }
        dp.measure(now);
        now += Nanos::from_secs(5);
        dp.queues().iter().filter(|q| q.port == DpPort(1)).map(|q| q.worker.0).collect::<Vec<_>>()
    };
    // All on one worker, where they stay when nothing holds them there any more: they have traffic.
    let pins: Vec<_> = (0..3).map(|q| (q, WorkerId(0))).collect();
    dp.pin_queues(DpPort(1), &pins).unwrap();
    assert!(dp.deal_if_due(false).is_some());
    assert_eq!(step(&mut workers), [0, 0, 0]);
    dp.pin_queues(DpPort(1), &[]).unwrap();
    assert!(dp.deal_if_due(false).is_some() && dp.deal_if_due(false).is_none());
    assert_eq!(step(&mut workers), [0, 0, 0]);
    dp.set_balancing(
        Some(Limits { load_pct: 0, improvement_pct: 25, interval: Nanos::from_secs(60) }),
        Nanos::from_secs(5),
    );
    let placed: Vec<Vec<i32>> = (0..80).map(|_| step(&mut workers)).collect();
    let moves: Vec<usize> = (1..80).filter(|n| placed[*n] != placed[*n - 1]).collect();
    assert_eq!(moves.len(), 1, "{placed:?}");
    assert!((11..=13).contains(&moves[0]), "after a minute: {moves:?}");
    let at_0 = placed[79].iter().filter(|w| **w == 0).count();
    assert!(at_0 == 1 || at_0 == 2, "{placed:?}");
    let usage = dp.worker_usage(WorkerId(1));
    assert!(usage.all.known() == 12 && usage.busy.sum(12) > 0 && usage.busy.sum(12) < usage.all.sum(12));
    assert_eq!(sink.sent().len(), sent, "and nothing is lost");
    check_conserved(&dp);
}
