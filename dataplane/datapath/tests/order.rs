//! Packets of one port and flow leave in the order in which they came, whichever level finds them.

mod common;

use common::*;
use fv_core::Nanos;
use fv_datapath::{CacheUse, WorkerKind};
use fv_dpif::{Datapath, WorkerId};
use fv_netdev::Polling;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    /// A packet of a flow.
    Packet(u32),
    Turn,
    /// Forgets all flows, so that some packets wait while later ones come.
    Flush,
    Cache(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        40 => (0u32..70).prop_map(Step::Packet),
        3 => Just(Step::Turn),
        1 => Just(Step::Flush),
        1 => (0u32..4).prop_map(Step::Cache),
    ];
    proptest::collection::vec(step, 1..600)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn flows_keep_their_order(steps in steps(), masks in 1u32..20) {
        let (dp, dev) = switch(2);
        let polled = Mem::new("p8", Polling::Poll, 1);
        dp.add_port(polled.clone(), None).unwrap();
        let mut worker = dp.new_worker(WorkerId(0), WorkerKind::Poll, Some(0)).unwrap();
        dp.set_upcall_handler(Some(Control::new(move |key| {
            let mut mask = dst_mask();
            mask.0.base.nw_src = (key.base.nw_dst.get() % masks).into();
            forward(vec![output(2)], mask)
        })));
        prop_assert!(dp.deal_all().is_done());
        let (mut sent, mut now) = (0u32, 0);
        for step in steps {
            match step {
                Step::Packet(flow) => {
                    sent += 1;
                    polled.inject(&udp(flow, sent));
                }
                Step::Turn => {
                    now += 1_000;
                    worker.turn(Nanos(now), 64);
                }
                Step::Flush => dp.flow_flush(),
                Step::Cache(n) => dp.set_cache_use([
                    CacheUse::Adaptive, CacheUse::Always, CacheUse::Inverse(0), CacheUse::Inverse(2),
                ][n as usize]),
            }
        }
        while worker.turn(Nanos(now), 1000).busy() {}
        let mut last = [0; 70];
        let out = dev[1].sent();
        prop_assert_eq!(out.len(), sent as usize);
        for frame in out {
            let (flow, tag) = (usize::from(frame[33]), tag_of(&frame));
            prop_assert!(last[flow] < tag, "flow {} overtaken", flow);
            last[flow] = tag;
        }
        check_conserved(&dp);
    }
}
