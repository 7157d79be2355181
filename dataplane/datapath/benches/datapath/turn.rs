//! A whole turn, source and sink taken off.

use std::sync::Arc;

use fv_core::{Clock, DpPort, Nanos};
use fv_datapath::{CacheUse, Dp};
use fv_dpif::{Datapath, DpAction};
use fv_flow::DpMask;
use fv_netdev::{Device, RxQueue, TxQueue};
use fv_packet::Batch;

use crate::common::*;
use crate::measure::{Case, Run, result};
use crate::ring::{Pattern, Ring, shuffled};

/// Packets in flight: their headers stay in the second-level cache.
pub const IN_FLIGHT: usize = 256;
/// Where measured time begins: after whatever set things up.
pub const LATER: Nanos = Nanos::from_secs(1_000_000);
/// Packets of a run.
pub const PACKETS: usize = 3200;

/// What it costs to move the same packets without looking at them.
pub fn io(name: String, pattern: Pattern) -> Case {
    let ring = Ring::new("p1", IN_FLIGHT, pattern);
    let mut rx: Box<dyn RxQueue> = ring.open_rxq(0).unwrap();
    let mut tx: Box<dyn TxQueue> = ring.open_txq(0).unwrap();
    Case::new(name, None, move || {
        let mut got = 0;
        while got < PACKETS {
            let mut batch = Batch::new();
            got += rx.recv(&mut batch).unwrap();
            tx.send(&mut batch);
        }
        got
    })
}

/// Turns until a queue has found out what the cache is worth, for few flows and for many.
const SETTLED: [usize; 2] = [40_000, 200_000];

/// How flows are cut into megaflows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// One for all.
    One,
    /// One each, over so many masks.
    Exact(u32),
    /// One for each of so many masks.
    Single(u32),
}

impl Rules {
    fn masks(self) -> u32 {
        match self {
            Rules::One => 1,
            Rules::Exact(masks) | Rules::Single(masks) => masks,
        }
    }

    pub fn mask(self, flow: u32) -> DpMask {
        let mut mask = DpMask::default();
        mask.0.base.dl_type = 0xffff.into();
        // Rules of different masks differ in some bits that both look at, as disjoint ones must.
        match self {
            Rules::One => {}
            Rules::Exact(masks) => {
                mask.0.base.nw_dst = u32::MAX.into();
                mask.0.base.nw_src = (flow % masks).into();
            }
            Rules::Single(masks) => {
                mask.0.base.nw_dst = (masks.next_power_of_two() - 1).into();
                mask.0.base.nw_src = (flow % masks).into();
            }
        }
        mask
    }
}

/// A datapath of one source whose packets go to its sink, after the flows have been set up.
pub fn switch(ring: &Arc<Ring>, rules: Rules, actions: Vec<DpAction>, cache: CacheUse, flows: u32) -> Arc<Dp> {
    let dp: Arc<Dp> = Dp::new("ovs-dummy", "dummy", Clock::stopped(), crate::measure::ticks);
    dp.add_port(ring.clone(), Some(DpPort(1))).unwrap();
    dp.add_port(ring.sink("p2"), Some(DpPort(2))).unwrap();
    dp.set_cache_use(cache);
    let control = Control::new(move |key| {
        let actions = if key.base.recirc_id == 0 { actions.clone() } else { vec![output(2)] };
        forward(actions, rules.mask(key.base.nw_dst.get() & 0xff_ffff))
    });
    dp.set_upcall_handler(Some(control));
    // Once to set up, and until caches have grown and filled; where there are several masks, until it is known
    // what the cache is worth.
    let turns = (flows as usize / 32 + 1) * 5;
    let turns = if rules.masks() > 1 { turns.max(SETTLED[usize::from(flows > 50_000)]) } else { turns };
    for turn in 0..turns {
        dp.turn_main(Nanos(turn as u64), 32);
    }
    dp
}

pub fn case(
    name: String,
    base: usize,
    pattern: Pattern,
    rules: Rules,
    actions: Vec<DpAction>,
    cache: CacheUse,
    flows: u32,
) -> Case {
    let ring = Ring::new("p1", IN_FLIGHT, pattern);
    let mut dp = None;
    let mut turn = 0;
    Case::new(name, Some(base), move || {
        // Made when it is needed, so that counting one case does not set up the others.
        let dp = dp.get_or_insert_with(|| switch(&ring, rules, actions.clone(), cache, flows));
        let mut got = 0;
        while got < PACKETS {
            // As if turns were a microsecond long.
            turn += 1000;
            got += dp.turn_main(Nanos(LATER.0 + turn), 32).packets;
        }
        got
    })
}

pub fn run(run: &Run) {
    let mut cases = Vec::new();
    for n in [1u32, 1_000, 10_000, 100_000, 1_000_000] {
        let base = cases.len();
        cases.push(io(format!("io {n}"), shuffled(n)));
        let mut add = |name: &str, rules, cache| {
            cases.push(case(format!("{name} {n}"), base, shuffled(n), rules, vec![output(2)], cache, n));
        };
        add("one", Rules::One, CacheUse::Adaptive);
        if n <= 100_000 {
            add("exact1", Rules::Exact(1), CacheUse::Adaptive);
            add("exact16", Rules::Exact(16), CacheUse::Adaptive);
        }
        if n == 10_000 {
            add("exact16 no cache", Rules::Exact(16), CacheUse::Inverse(0));
        }
        if n <= 10_000 {
            add("single16", Rules::Single(16), CacheUse::Adaptive);
        }
    }
    result(&run.measure(cases), &[]);
}
