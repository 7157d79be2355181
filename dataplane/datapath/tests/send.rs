//! Which transmit queue packets take, and how long they wait for others.

mod common;

use std::sync::atomic::Ordering;

use common::*;
use fv_core::{Clock, DpPort, Nanos};
use fv_datapath::{Dp, WorkerKind};
use fv_dpif::{Datapath, WorkerId};
use fv_netdev::Polling;

/// Port 1 receives, port 2 has four transmit queues.
fn setup() -> (std::sync::Arc<Dp>, std::sync::Arc<Mem>, std::sync::Arc<Mem>, fv_datapath::Worker) {
    let dp = Dp::new("ovs-netdev", "netdev", Clock::stopped(), || 0);
    let (a, b) = (Mem::new("a", Polling::Poll, 1), Mem::new("b", Polling::Poll, 4));
    dp.add_port(a.clone(), None).unwrap();
    dp.add_port(b.clone(), None).unwrap();
    dp.set_upcall_handler(Some(Control::new(|_| forward(vec![output(2)], dst_mask()))));
    let mut worker = dp.new_worker(WorkerId(0), WorkerKind::Poll, Some(0)).unwrap();
    let ack = dp.deal_all();
    worker.turn(Nanos::ZERO, 32);
    assert!(ack.is_done());
    (dp, a, b, worker)
}

#[test]
fn a_hash_spreads_flows_over_queues_and_keeps_their_order() {
    let (dp, a, b, mut worker) = setup();
    let send = |worker: &mut fv_datapath::Worker| {
        (0..160).for_each(|n| a.inject(&udp(n % 16, n)));
        for _ in 0..20 {
            worker.turn(Nanos::ZERO, 64);
        }
        b.wires.iter().map(|w| w.tx.lock().drain(..).map(|p| tag_of(p.data())).collect()).collect::<Vec<Vec<u32>>>()
    };
    let by_thread = send(&mut worker);
    assert_eq!(by_thread.iter().filter(|q| !q.is_empty()).count(), 1, "a worker's own queue");
    assert_eq!(dp.steer_by_hash(DpPort(2), true), Ok(false));
    let by_hash = send(&mut worker);
    assert!(by_hash.iter().filter(|q| !q.is_empty()).count() > 1, "{by_hash:?}");
    assert_eq!(by_hash.iter().map(Vec::len).sum::<usize>(), 160);
    for flow in 0..16 {
        let of = |q: &Vec<u32>| q.iter().copied().filter(|n| n % 16 == flow).collect::<Vec<_>>();
        let queues: Vec<_> = by_hash.iter().map(of).filter(|q| !q.is_empty()).collect();
        assert_eq!(queues, [(0..10).map(|n| n * 16 + flow).collect::<Vec<_>>()], "flow {flow}");
    }
    assert_eq!(dp.steer_by_hash(DpPort(2), false), Ok(true));
    check_conserved(&dp);
}

#[test]
fn packets_wait_for_others_as_long_as_they_may() {
    let (dp, a, b, mut worker) = setup();
    worker.handle().limits.flush_interval_us.store(100, Ordering::Relaxed);
    let us = |n: u64| Nanos(n * 1000);
    let mut after = |now, inject: u32| {
        (0..inject).for_each(|n| a.inject(&udp(1, n)));
        worker.turn(us(now), 64);
        b.sent().len()
    };
    assert_eq!([after(1000, 3), after(1050, 2), after(1099, 0), after(1100, 0)], [0, 0, 0, 5]);
    assert_eq!([after(1200, 1), after(1250, 40)], [0, 33], "a full buffer goes at once");
    assert_eq!([after(1299, 0), after(1400, 0)], [0, 8]);
    // What a worker holds back when it ends is sent.
    assert_eq!(after(1500, 2), 0);
    dp.remove_worker(worker);
    assert_eq!(b.sent().len(), 2);
    let mut worker = dp.new_worker(WorkerId(0), WorkerKind::Poll, Some(0)).unwrap();
    dp.deal_all();
    worker.turn(us(1600), 64);
    // One that may sleep does not come back in time, and holds nothing back.
    worker.handle().limits.flush_interval_us.store(100, Ordering::Relaxed);
    worker.handle().limits.max_sleep_us.store(10, Ordering::Relaxed);
    a.inject(&udp(1, 1));
    worker.turn(us(2000), 64);
    assert_eq!(b.sent().len(), 1);
}
