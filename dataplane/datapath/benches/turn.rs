//! Clock cycles a packet of a whole turn, against moving the same packets from source to sink
//! without a datapath. Rounds are interleaved; the lowest decile counts.
//!
//! `cargo bench -p fv-datapath [-- ROUNDS [ONLY]]`
#![allow(unsafe_code)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::Arc;

use common::source::Source;
use common::*;
use fv_core::{Clock, DpPort, Nanos};
use fv_datapath::{CacheUse, Dp};
use fv_dpif::Datapath;
use fv_flow::DpMask;
use fv_netdev::{Device, Polling, RxQueue, TxQueue};
use fv_packet::Batch;

const TURNS: usize = 100;

fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reading the time stamp counter has no preconditions.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

struct Case {
    name: String,
    run: Box<dyn FnMut() -> usize>,
    cycles: Vec<u64>,
}

fn frames(n: u32) -> Vec<Vec<u8>> {
    // A fixed shuffle, so that neighbours differ and tables are not walked in order.
    (0..n).map(|i| udp((u64::from(i) * 7_919 % u64::from(n)) as u32, i)).collect()
}

fn io(n: u32) -> Case {
    let source = Source::new("p1", Polling::Main, frames(n));
    let mut rx: Box<dyn RxQueue> = source.open_rxq(0).unwrap();
    let mut tx: Box<dyn TxQueue> = source.open_txq(0).unwrap();
    let run = move || {
        let mut batch = Batch::new();
        let got = rx.recv(&mut batch).unwrap();
        tx.send(&mut batch);
        got
    };
    Case { name: format!("io {n}"), run: Box::new(run), cycles: Vec::new() }
}

fn turns(name: &str, n: u32, masks: u32, exact: bool, cache: CacheUse) -> Case {
    let dp: Arc<Dp> = Dp::new("ovs-dummy", "dummy", Clock::stopped(), || 0);
    dp.add_port(Source::new("p1", Polling::Main, frames(n)), Some(DpPort(1))).unwrap();
    dp.add_port(Source::new("p2", Polling::Main, Vec::new()), Some(DpPort(2))).unwrap();
    dp.set_cache_use(cache);
    let control = Control::new(move |key| {
        let mut mask = DpMask::default();
        if exact {
            mask = dst_mask();
            // As many masks as asked for: each also looks at some other bits.
            mask.0.base.nw_src = (key.base.nw_dst.get() % masks).into();
        }
        forward(vec![output(2)], mask)
    });
    dp.set_upcall_handler(Some(control));
    for turn in 0..(n as usize / 32 + 1) {
        dp.turn_main(Nanos(turn as u64), 32);
    }
    let mut turn = 0;
    let run = move || {
        turn += 1;
        dp.turn_main(Nanos(1_000_000_000 + turn), 32).packets
    };
    Case { name: name.into(), run: Box::new(run), cycles: Vec::new() }
}

fn main() {
    let rounds = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(300);
    let mut cases = Vec::new();
    for n in [1u32, 1_000, 10_000, 100_000] {
        cases.push(io(n));
        cases.push(turns(&format!("one megaflow, {n}"), n, 1, false, CacheUse::Adaptive));
        cases.push(turns(&format!("exact, {n}"), n, 1, true, CacheUse::Adaptive));
        cases.push(turns(&format!("exact, 16 masks, {n}"), n, 16, true, CacheUse::Adaptive));
        cases.push(turns(&format!("exact, 16 masks, no cache, {n}"), n, 16, true, CacheUse::Inverse(0)));
    }
    if let Some(only) = std::env::args().skip(1).filter(|a| a != "--bench").nth(1) {
        cases.retain(|c| c.name.starts_with(&only));
    }
    for _ in 0..rounds {
        for case in &mut cases {
            let mut packets = 0;
            let start = ticks();
            for _ in 0..TURNS {
                packets += (case.run)();
            }
            case.cycles.push((ticks() - start) * 10 / packets.max(1) as u64);
        }
    }
    for case in &mut cases {
        case.cycles.sort_unstable();
        let at = |share: usize| case.cycles[case.cycles.len() * share / 100] as f64 / 10.0;
        println!("{:32} {:8.1} cycles a packet (median {:.1})", case.name, at(10), at(50));
    }
}
