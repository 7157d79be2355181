//! Two workers on disjoint ports against one: packets a second of processor time, both measured at
//! once. A machine with fewer idle processors than workers shows less than the code can do, so the
//! figure is cycles a packet of two at once against one alone.

use std::sync::{Arc, Barrier};

use fv_core::{Clock, DpPort, Nanos};
use fv_datapath::{Dp, Worker, WorkerKind};
use fv_dpif::{Datapath, WorkerId};
use fv_netdev::Polling;
use rustix::time::{ClockId, clock_gettime};

use crate::common::*;
use crate::measure::{Row, Run, quantile, result, ticks};
use crate::ring::{Ring, shuffled, to_flow};
use crate::turn::{IN_FLIGHT, LATER};

const PACKETS: usize = 1 << 20;

fn thread_ns() -> f64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as f64 * 1e9 + t.tv_nsec as f64
}

/// Nanoseconds of its own processor that a worker takes a packet.
fn spin(worker: &mut Worker, start: &Barrier) -> f64 {
    start.wait();
    let (from, mut got, mut now) = (thread_ns(), 0, LATER.0);
    while got < PACKETS {
        now += 1000;
        got += worker.turn(Nanos(now), 32).packets;
    }
    (thread_ns() - from) / got as f64
}

/// Two workers of one datapath, each with a port of its own.
fn workers() -> (Arc<Dp>, Vec<Worker>) {
    let dp = Dp::new("ovs-netdev", "netdev", Clock::stopped(), ticks);
    for n in 0..2 {
        let ring = Ring::of(&format!("p{}", 2 * n + 1), IN_FLIGHT, shuffled(1000), to_flow, Polling::Poll);
        dp.add_port(ring.clone(), Some(DpPort(2 * n + 1))).unwrap();
        dp.add_port(ring.sink(&format!("p{}", 2 * n + 2)), Some(DpPort(2 * n + 2))).unwrap();
    }
    dp.set_upcall_handler(Some(Control::new(|key| forward(vec![output(key.base.in_port + 1)], dst_mask()))));
    let mut workers: Vec<_> = (0..2).map(|n| dp.new_worker(WorkerId(n), WorkerKind::Poll, None).unwrap()).collect();
    for (n, worker) in workers.iter().enumerate() {
        dp.pin_queues(DpPort(2 * n as u32 + 1), &[(0, worker.id())]).unwrap();
        dp.pin_queues(DpPort(2 * n as u32 + 2), &[(0, worker.id())]).unwrap();
    }
    let ack = dp.deal_all();
    while !ack.is_done() {
        workers.iter_mut().for_each(|w| w.take_messages(Nanos::ZERO));
    }
    for turn in 0..2000u64 {
        workers.iter_mut().for_each(|w| {
            w.turn(Nanos(turn * 1000), 32);
        });
    }
    (dp, workers)
}

pub fn run(run: &Run) {
    let (_dp, mut workers) = workers();
    let (mut alone, mut both) = (Vec::new(), Vec::new());
    for _ in 0..run.rounds.min(20) {
        let one = Barrier::new(1);
        alone.extend(workers.iter_mut().map(|w| spin(w, &one)));
        let two = Barrier::new(2);
        let at_once: Vec<f64> = std::thread::scope(|scope| {
            let threads: Vec<_> = workers.iter_mut().map(|w| scope.spawn(|| spin(w, &two))).collect();
            threads.into_iter().filter_map(|t| t.join().ok()).collect()
        });
        both.extend(at_once);
    }
    let (one, two) = (quantile(&alone, 25), quantile(&both, 25));
    println!("ns a packet: alone {one:.1}, each of two at once {two:.1}");
    let figures = [("scale", 2.0 * one / two), ("alone_ns", one), ("both_ns", two)];
    result(&[] as &[Row], &figures.map(|(key, value)| (key, format!("{value:.2}"))));
}
