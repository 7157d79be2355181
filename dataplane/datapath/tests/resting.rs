//! Queues that their device says are not worth polling: what they cost, what flips cost others, and queues that
//! come and go.
#![allow(unsafe_code)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use common::*;
use fv_core::{Clock, DpPort, Nanos};
use fv_datapath::{Dp, Worker, WorkerKind};
use fv_dpif::{Datapath, WorkerId};
use fv_netdev::{
    Changed, Device, DeviceError, DeviceStatus, EnabledQueues, Options, Polling, PortStats, RxQueue, TxOffloads,
    TxQueue,
};
use fv_packet::{Batch, Packet};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A device that decides which of its queues are worth polling, and how many it has.
struct Guest {
    mem: Arc<Mem>,
    enabled: Arc<EnabledQueues>,
    n: AtomicUsize,
    /// Looks into each queue.
    visits: Vec<Arc<AtomicU64>>,
}

impl Guest {
    fn new(name: &str, n: usize, max: usize) -> Arc<Guest> {
        Arc::new(Guest {
            mem: Mem::new(name, Polling::Poll, max),
            enabled: Arc::new(EnabledQueues::new(max)),
            n: AtomicUsize::new(n),
            visits: (0..max).map(|_| Arc::default()).collect(),
        })
    }

    fn visits(&self) -> Vec<u64> {
        self.visits.iter().map(|v| v.swap(0, Relaxed)).collect()
    }
}

struct Rx(Box<dyn RxQueue>, Arc<AtomicU64>);

impl RxQueue for Rx {
    fn recv(&mut self, out: &mut Batch) -> Result<usize, DeviceError> {
        self.1.fetch_add(1, Relaxed);
        self.0.recv(out)
    }
    fn len_hint(&self) -> Option<u32> {
        self.1.fetch_add(1, Relaxed);
        None
    }
}

impl Device for Guest {
    fn name(&self) -> &str {
        self.mem.name()
    }
    fn kind(&self) -> &'static str {
        "guest"
    }
    fn polling(&self) -> Polling {
        Polling::Poll
    }
    fn n_rxq(&self) -> usize {
        self.n.load(Relaxed)
    }
    fn n_txq(&self) -> usize {
        self.n.load(Relaxed)
    }
    fn numa_id(&self) -> Option<i32> {
        Some(0)
    }
    fn open_rxq(&self, q: usize) -> Result<Box<dyn RxQueue>, DeviceError> {
        Ok(Box::new(Rx(self.mem.open_rxq(q)?, self.visits[q].clone())))
    }
    fn open_txq(&self, q: usize) -> Result<Box<dyn TxQueue>, DeviceError> {
        self.mem.open_txq(q)
    }
    fn enabled_rxqs(&self) -> Option<Arc<EnabledQueues>> {
        Some(self.enabled.clone())
    }
    fn status(&self) -> DeviceStatus {
        DeviceStatus::default()
    }
    fn stats(&self) -> PortStats {
        PortStats::default()
    }
    fn change_seq(&self) -> u64 {
        0
    }
    fn offloads(&self) -> TxOffloads {
        TxOffloads::ALL
    }
    fn set_mac(&self, _: [u8; 6]) -> Result<(), DeviceError> {
        Ok(())
    }
    fn set_mtu(&self, _: u32) -> Result<(), DeviceError> {
        Ok(())
    }
    fn set_admin_up(&self, _: bool) -> Result<(), DeviceError> {
        Ok(())
    }
    fn set_options(&self, _: &Options) -> Result<Changed, DeviceError> {
        Ok(Changed::Nothing)
    }
    fn remove(&self) {}
}

fn make_dp() -> (Arc<Dp>, Arc<Mem>) {
    let dp = Dp::new("ovs-netdev", "netdev", Clock::stopped(), || 0);
    let sink = Mem::new("sink", Polling::Main, 1);
    dp.add_port(sink.clone(), Some(DpPort(9))).unwrap();
    dp.set_upcall_handler(Some(Control::new(|_| forward(vec![output(9)], dst_mask()))));
    (dp, sink)
}

fn worker(dp: &Dp, id: i32) -> Worker {
    dp.new_worker(WorkerId(id), WorkerKind::Poll, Some(0)).unwrap()
}

fn turn(w: &mut Worker) -> usize {
    w.turn(Nanos::ZERO, 64).packets
}

fn inject(wire: &Wire, n: u32) {
    wire.rx.lock().extend((0..n).map(|i| Packet::from_slice(&udp(i % 8, i))));
}

#[test]
fn a_resting_queue_is_never_looked_into() {
    let (dp, _sink) = make_dp();
    let mut w = worker(&dp, 0);
    let g = Guest::new("g", 64, 64);
    dp.add_port(g.clone(), Some(DpPort(1))).unwrap();
    turn(&mut w);
    g.visits();
    (0..100).for_each(|_| assert_eq!(turn(&mut w), 0));
    assert_eq!(g.visits(), [0; 64], "none is enabled");
    assert_eq!(w.queues().count(), 0);

    for q in [3, 60] {
        g.enabled.set(q, true);
        inject(&g.mem.wires[q], 5);
        inject(&g.mem.wires[q + 1], 5);
    }
    let got: usize = (0..20).map(|_| turn(&mut w)).sum();
    assert_eq!(got, 10);
    let visits = g.visits();
    for (q, n) in visits.iter().enumerate() {
        assert_eq!(*n >= 20, [3, 60].contains(&q), "queue {q}: {n}");
        assert!(*n == 0 || *n >= 20);
    }
    assert!(dp.queues().iter().filter(|q| q.port == DpPort(1)).all(|q| q.enabled == [3, 60].contains(&q.queue)));

    g.enabled.set(3, false);
    (0..20).for_each(|_| _ = turn(&mut w));
    g.visits();
    inject(&g.mem.wires[3], 5);
    (0..20).for_each(|_| assert_eq!(turn(&mut w), 0));
    assert_eq!(g.visits()[3], 0);
}

#[test]
fn a_storm_of_flips_costs_another_port_no_packet() {
    let (dp, sink) = make_dp();
    let mut w = worker(&dp, 0);
    let (stormy, victim) = (Guest::new("s", 16, 16), Guest::new("v", 1, 1));
    dp.add_port(stormy.clone(), Some(DpPort(1))).unwrap();
    dp.add_port(victim.clone(), Some(DpPort(2))).unwrap();
    victim.enabled.set(0, true);
    turn(&mut w);
    let over = Arc::new(AtomicBool::new(false));
    let flips = {
        let (s, over) = (stormy.clone(), over.clone());
        std::thread::spawn(move || {
            let changed = (0..100_008usize).filter(|i| s.enabled.set(i % 16, i / 16 % 2 == 0)).count();
            over.store(true, Relaxed);
            changed
        })
    };
    let (mut sent, mut got) = (0, 0);
    while !over.load(Relaxed) {
        inject(&victim.mem.wires[0], 32);
        sent += 32;
        got += turn(&mut w);
    }
    assert_eq!(flips.join().unwrap(), 100_008);
    got += turn(&mut w) + turn(&mut w);
    assert_eq!((got, sink.wires[0].sent.load(Relaxed)), (sent, sent as u64));
    // The state that remains is the last one.
    for q in 0..16 {
        inject(&stormy.mem.wires[q], 1);
    }
    let enabled = stormy.enabled.count();
    assert_eq!(enabled, 8);
    assert_eq!((0..40).map(|_| turn(&mut w)).sum::<usize>(), enabled);

    stormy.mem.wires.iter().for_each(|w| w.rx.lock().clear());

    // No flip and no turn around it allocates.
    let before = ALLOCATIONS.with(Cell::get);
    for i in 0..1000 {
        stormy.enabled.set(i % 16, i / 16 % 2 == 0);
        turn(&mut w);
    }
    assert_eq!(ALLOCATIONS.with(Cell::get), before);
}

#[test]
fn a_port_grows_and_shrinks_without_a_loss() {
    let (dp, _sink) = make_dp();
    let mut w = worker(&dp, 0);
    let g = Guest::new("g", 1, 8);
    dp.add_port(g.clone(), Some(DpPort(1))).unwrap();
    (0..8).for_each(|q| _ = g.enabled.set(q, true));
    turn(&mut w);
    let take = |w: &mut Worker| (0..10).map(|_| turn(w)).sum::<usize>();
    for n in [4, 1, 8, 2] {
        (0..8).for_each(|q| g.mem.wires[q].rx.lock().clear());
        inject(&g.mem.wires[0], 20);
        g.n.store(n, Relaxed);
        assert!(dp.resize_port(DpPort(1)).unwrap() && !dp.resize_port(DpPort(1)).unwrap());
        (1..8).for_each(|q| inject(&g.mem.wires[q], 1));
        assert_eq!(take(&mut w), 20 + n - 1, "{n} queues");
        assert_eq!(dp.queues().iter().filter(|q| q.port == DpPort(1)).count(), n);
        assert_eq!(w.queues().count(), n);
    }
    let gone = dp.del_port(DpPort(1)).unwrap();
    turn(&mut w);
    dp.turn_main(Nanos::ZERO, 1);
    assert!(gone.is_done() && w.queues().count() == 0);
    assert!(dp.resize_port(DpPort(1)).is_err());
}

// Queues that rest have owners, spread within their port; those that do not are dealt as if they were alone.
#[test]
fn owners_are_spread_by_what_is_enabled() {
    let (dp, _sink) = make_dp();
    let mut workers: Vec<Worker> = (0..2).map(|i| worker(&dp, i)).collect();
    let ports: Vec<Arc<Guest>> = (0..4).map(|i| Guest::new(&format!("g{i}"), 4, 4)).collect();
    for (i, g) in ports.iter().enumerate() {
        g.enabled.set(0, true);
        dp.add_port(g.clone(), Some(DpPort(i as u32 + 1))).unwrap();
    }
    dp.deal_all();
    workers.iter_mut().for_each(|w| _ = turn(w));
    workers.iter_mut().for_each(|w| _ = turn(w));
    for w in &workers {
        let on = dp.queues().iter().filter(|q| q.worker == w.id() && q.enabled).count();
        assert_eq!((on, w.queues().count()), (2, 2), "enabled queues of {:?}", w.id());
        for port in 1..5 {
            let owned = dp.queues().iter().filter(|q| q.worker == w.id() && q.port == DpPort(port)).count();
            assert_eq!(owned, 2, "of port {port}");
        }
    }
    // A flip moves nothing.
    let owners: Vec<_> = dp.queues().iter().map(|q| q.worker).collect();
    ports[0].enabled.set(0, false);
    ports[0].enabled.set(3, true);
    workers.iter_mut().for_each(|w| _ = turn(w));
    assert_eq!(dp.queues().iter().map(|q| q.worker).collect::<Vec<_>>(), owners);
}
