//! The pool's counters. One test, because they are the process's.

use fv_packet::{Batch, Packet, pool};
use std::sync::mpsc::sync_channel;

#[test]
fn steady_state_allocates_nothing_and_memory_is_bounded_and_returned() {
    // One thread that keeps up to 1000 packets, in both sizes.
    let round = || {
        let _small: Vec<Packet> = (0..1000).map(|_| Packet::with_capacity(1500)).collect();
        let _large: Vec<Packet> = (0..50).map(|_| Packet::with_capacity(60_000)).collect();
        let mut batch = Batch::new();
        while batch.push(Packet::with_capacity(64)).is_ok() {}
    };
    round();
    let warm = pool::stats();
    for _ in 0..20 {
        round();
    }
    assert_eq!(pool::stats().from_heap, warm.from_heap);

    // One thread that receives what another one frees.
    let (tx, rx) = sync_channel::<Packet>(256);
    let freeing = std::thread::spawn(move || rx.into_iter().map(|p| p.len()).sum::<usize>());
    for i in 0..100_000usize {
        tx.send(Packet::from_slice(&vec![0; i % 7])).unwrap();
    }
    drop(tx);
    assert!(freeing.join().unwrap() > 0);
    let crossed = pool::stats();
    assert!(crossed.from_heap - warm.from_heap < 1000, "{crossed:?}");

    // A burst far beyond the bounds goes back to the allocator.
    drop((0..40_000).map(|_| Packet::with_capacity(1)).collect::<Vec<_>>());
    let burst = pool::stats();
    assert!(burst.depot <= 256 * 64 + 16 * 8, "{burst:?}");
    assert!(burst.to_heap >= 20_000, "{burst:?}");
    pool::trim(0);
    let idle = pool::stats();
    assert_eq!(idle.depot, 0);
    assert!(idle.from_heap - idle.to_heap <= 2 * (64 + 8), "what this thread keeps: {idle:?}");

    // Neither size nor class is a limit.
    drop(Packet::with_capacity(1 << 20));
    assert_eq!(pool::stats().to_heap, idle.to_heap + 1);
}
