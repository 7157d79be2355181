//! Workers on their threads while control changes flows and ports under them.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::source::Source;
use common::*;
use fv_core::{Clock, DpPort, Ufid};
use fv_datapath::{Dp, Stat, Worker, WorkerKind};
use fv_dpif::{Datapath, DropReason, Verdict, WorkerId};
use fv_netdev::Polling;
use parking_lot::Mutex;

/// Threads that turn workers until told to stop, and give them back.
struct Threads {
    stop: Arc<AtomicBool>,
    handles: Vec<std::thread::JoinHandle<Worker>>,
}

impl Threads {
    fn start(dp: &Arc<Dp>, n: i32, clock: &Clock) -> Threads {
        let stop = Arc::<AtomicBool>::default();
        let spawn = |id| {
            let mut worker = dp.new_worker(WorkerId(id), WorkerKind::Poll, None).unwrap();
            let (stop, clock) = (stop.clone(), clock.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if !worker.turn(clock.now(), 32).busy() {
                        std::thread::yield_now();
                    }
                }
                worker
            })
        };
        let handles = (0..n).map(spawn).collect();
        Threads { stop, handles }
    }

    fn finish(self, dp: &Dp) {
        self.stop.store(true, Ordering::Relaxed);
        for handle in self.handles {
            dp.remove_worker(handle.join().unwrap());
        }
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::yield_now();
    }
}

/// Two workers hit the same flows; each deletion is followed by a change of mind, and no packet may
/// be treated by the old mind afterwards.
#[test]
fn a_deletion_holds_once_it_has_returned() {
    let clock = Clock::new();
    let dp = Dp::new("ovs-netdev", "netdev", clock.clone(), || 0);
    let sources: Vec<_> =
        ["a", "b"].iter().map(|name| Source::new(name, Polling::Poll, (0..64).map(|n| udp(n, n)).collect())).collect();
    for s in &sources {
        dp.add_port(s.clone(), None).unwrap();
    }
    let sinks: Vec<_> = (0..2).map(|n| Source::new(&format!("s{n}"), Polling::Main, Vec::new())).collect();
    for s in &sinks {
        dp.add_port(s.clone(), None).unwrap();
    }
    // Ports 3 and 4 are the sinks; the mind says which one is in use.
    let mind = Arc::new(AtomicU64::new(3));
    let (m, installed) = (mind.clone(), Arc::new(Mutex::new(Vec::<Ufid>::new())));
    let control = Control::new(move |_| forward(vec![output(m.load(Ordering::SeqCst) as u32)], dst_mask()));
    dp.set_upcall_handler(Some(control.clone()));
    let threads = Threads::start(&dp, 2, &clock);
    dp.deal_all();
    for round in 0..40u64 {
        until("all flows are there", || dp.flow_count() == 128);
        let before = [0, 1].map(|i: usize| sinks[i].swallowed.load(Ordering::SeqCst));
        until("packets flow", || [0, 1].iter().any(|i| sinks[*i].swallowed.load(Ordering::SeqCst) > before[*i] + 1000));
        mind.store(4 - round % 2, Ordering::SeqCst);
        // Stop the misses that were asked before the change of mind from installing after the flush.
        dp.set_upcall_handler(None);
        quiesce(&dp);
        dp.flow_flush();
        quiesce(&dp);
        let old = &sinks[(round % 2) as usize];
        let count = old.swallowed.load(Ordering::SeqCst);
        dp.set_upcall_handler(Some(control.clone()));
        until("all flows are back", || dp.flow_count() == 128);
        quiesce(&dp);
        assert_eq!(old.swallowed.load(Ordering::SeqCst), count, "round {round}: a deleted flow was hit");
        installed.lock().clear();
    }
    for s in &sources {
        s.on.store(false, Ordering::Relaxed);
    }
    threads.finish(&dp);
    while dp.turn_main(clock.now(), 1000).busy() {}
    assert!(dp.stats().hit > 0 && dp.stats().missed >= 40 * 128);
}

/// Every worker has begun a new turn since.
fn quiesce(dp: &Dp) {
    assert!(dp.barrier().wait(Duration::from_secs(60)));
}

/// Counters of flows, workers and devices agree after workers on two threads had the same flows.
#[test]
fn statistics_add_up() {
    let clock = Clock::new();
    let dp = Dp::new("ovs-netdev", "netdev", clock.clone(), || 0);
    let a = Source::new("a", Polling::Poll, (0..64).map(|n| udp(n, n)).collect());
    dp.add_port(a.clone(), None).unwrap();
    let b = Mem::new("b", Polling::Poll, 2);
    dp.add_port(b.clone(), None).unwrap();
    let sink = Source::new("sink", Polling::Main, Vec::new());
    dp.add_port(sink.clone(), None).unwrap();
    dp.set_upcall_handler(Some(Control::new(|_| forward(vec![output(3)], dst_mask()))));
    let threads = Threads::start(&dp, 2, &clock);
    dp.deal_all();
    for n in 0..4000u32 {
        let packet = fv_packet::Packet::from_slice(&udp(n % 10, n));
        b.wires[n as usize % 2].rx.lock().push_back(packet);
    }
    until("both have worked", || {
        let empty = b.wires.iter().all(|w| w.rx.lock().is_empty());
        empty && sink.swallowed.load(Ordering::Relaxed) > 20_000
    });
    a.on.store(false, Ordering::Relaxed);
    quiesce(&dp);
    quiesce(&dp);
    let (received, sent) = (total(&dp, Stat::Received), total(&dp, Stat::Sent));
    check_conserved(&dp);
    let mut packets = 0;
    dp.flow_dump(&mut |f| {
        packets += f.stats.packets;
        true
    });
    assert_eq!((packets + total(&dp, Stat::Missed), sent), (received, sink.swallowed.load(Ordering::Relaxed)));
    threads.finish(&dp);
}

/// Ports that come, go and move disturb no other port.
#[test]
fn ports_change_under_traffic() {
    let clock = Clock::new();
    let dp = Dp::new("ovs-netdev", "netdev", clock.clone(), || 0);
    let a = Source::new("a", Polling::Poll, (0..8).map(|n| udp(n, n)).collect());
    dp.add_port(a.clone(), None).unwrap();
    let sink = Source::new("sink", Polling::Main, Vec::new());
    dp.add_port(sink.clone(), None).unwrap();
    dp.set_upcall_handler(Some(Control::new(|key| match key.base.in_port {
        1 => forward(vec![output(2)], dst_mask()),
        _ => Verdict::Drop(DropReason::UpcallError),
    })));
    let threads = Threads::start(&dp, 2, &clock);
    dp.deal_all();
    for round in 0..50 {
        let before = sink.swallowed.load(Ordering::Relaxed);
        let other = Source::new("other", Polling::Poll, vec![udp(1, 1)]);
        assert_eq!(dp.add_port(other.clone(), Some(DpPort(9))), Ok(DpPort(9)));
        until("traffic goes on", || sink.swallowed.load(Ordering::Relaxed) > before + 100);
        if round % 2 == 0 {
            dp.pin_queues(DpPort(1), &[(0, WorkerId(round / 2 % 2))]).unwrap();
            assert!(dp.deal_all().wait(Duration::from_secs(60)));
        }
        assert!(dp.del_port(DpPort(9)).unwrap().wait(Duration::from_secs(60)));
        assert_eq!(Arc::strong_count(&other.on), 1, "the device's queues are closed");
    }
    a.on.store(false, Ordering::Relaxed);
    threads.finish(&dp);
    while dp.turn_main(clock.now(), 1000).busy() {}
    assert!(dp.queues().iter().all(|q| q.worker == WorkerId::MAIN));
    let flow_packets = total(&dp, Stat::Received);
    assert_eq!(flow_packets, 0, "the control thread received nothing");
}
