//! Flows in software and in hardware, through the overlay.

mod bed;

use std::sync::Arc;

use bed::Bed;
use fv_core::{DpPort, Nanos};
use fv_datapath::Stat;
use fv_dpif::{Datapath, DpAction, FlowStats};
use fv_offload::WhySoft;
use parking_lot::Mutex;

const MARK_ONLY: &str = "actions= mark-bits=24";

#[test]
fn a_flow_is_offloaded_and_its_counts_are_those_of_both_places() {
    let mut bed = Bed::new("stats-delay-ms=50 op-latency-us=300");
    bed.send(1, 5);
    bed.step(100);
    assert_eq!(bed.shown(1), (false, "ovs"));
    for _ in 0..20 {
        bed.send(1, 3);
        bed.step(100);
    }
    assert_eq!(bed.shown(1), (true, "simnic"));
    assert_eq!(bed.overlay.why(bed.ufid(1).unwrap()), None);
    bed.wait_ms(300);
    // The packet that missed is not the flow's.
    assert_eq!((bed.stats(1).packets, bed.stats(1).bytes), (64, 64 * 60));
    let software = bed.dp.flow_get(bed.ufid(1).unwrap()).unwrap().stats.packets;
    assert!(software < 15, "hardware has the rest: {software}");
    assert_eq!((bed.received, bed.misdirected), (65, 0));
}

#[test]
fn modifications_move_nothing_and_lose_nothing() {
    let mut bed = Bed::new("stats-delay-ms=100 op-latency-us=250");
    for round in 0..300u64 {
        bed.send(1, 2);
        bed.step(100);
        if round % 7 == 3 {
            assert!(bed.modify(1));
        }
    }
    bed.wait_ms(300);
    assert_eq!((bed.stats(1).packets, bed.received, bed.misdirected), (599, 600, 0));
    let pool = &bed.overlay.pools()[0];
    assert_eq!((pool.inserts, pool.full, bed.card().rules()), (1, 1, 1));
    // Into something that the NIC cannot do, and back.
    *bed.control.actions.lock() = Some(vec![DpAction::Meter(7), DpAction::Output(DpPort(2))]);
    bed.modify(1);
    bed.wait_ms(2);
    assert_eq!(bed.shown(1), (true, "ovs"));
    assert!(matches!(bed.overlay.why(bed.ufid(1).unwrap()), Some(WhySoft::Partial(_))));
    *bed.control.actions.lock() = None;
    bed.modify(1);
    bed.wait_ms(2);
    assert_eq!((bed.shown(1), bed.stats(1).packets), ((true, "simnic"), 599));
}

#[test]
fn a_deleted_flow_tells_its_last_count_when_it_is_known() {
    let mut bed = Bed::new("stats-delay-ms=1000 op-latency-us=500");
    bed.send(1, 1);
    bed.wait_ms(2);
    bed.send(1, 10);
    bed.wait_ms(2);
    let last: Arc<Mutex<Option<FlowStats>>> = Arc::default();
    let told = last.clone();
    bed.overlay.flow_retire(bed.ufid(1).unwrap(), Box::new(move |stats| *told.lock() = Some(stats))).unwrap();
    // The hardware goes on until it has been told.
    bed.send(1, 4);
    bed.step(1);
    assert_eq!((*last.lock(), bed.card().rules()), (None, 1));
    bed.wait_ms(2);
    let stats = last.lock().unwrap();
    assert_eq!((stats.packets, bed.card().rules(), bed.received), (14, 0, 15));
    assert!(stats.used > Some(Nanos::ZERO));
}

#[test]
fn a_reset_and_evictions_lose_no_count_and_flows_come_back() {
    let mut bed = Bed::new("stats-delay-ms=500 op-latency-us=100");
    for n in 1..=20 {
        bed.send(n, 2);
    }
    bed.wait_ms(5);
    for n in 1..=20 {
        bed.send(n, 10);
    }
    bed.step(100);
    bed.card().reset();
    bed.step(0);
    assert!(bed.shown(1) == (false, "ovs") || bed.card().rules() > 0);
    assert!(bed.card().evict_one() || bed.card().rules() == 0);
    bed.wait_ms(5);
    for n in 1..=20 {
        assert_eq!(bed.stats(n).packets, 11);
        bed.send(n, 5);
    }
    bed.wait_ms(900);
    assert_eq!(bed.card().rules(), 20);
    assert!((1..=20).all(|n| bed.stats(n).packets == 16), "whoever had them");
    assert_eq!((bed.received, bed.misdirected), (20 * 17, 0));
}

#[test]
fn marks_lead_to_flows() {
    let mut bed = Bed::new(MARK_ONLY);
    for n in 1..=5 {
        bed.send(n, 1);
    }
    bed.wait_ms(2);
    let before = bed.stat(Stat::MarkHit);
    for n in 1..=5 {
        bed.send(n, 40);
    }
    bed.wait_ms(2);
    // The first packet with a mark tells what it means.
    let hits = bed.stat(Stat::MarkHit) - before;
    assert!((60..200).contains(&hits), "{hits}");
    bed.send(3, 30);
    bed.step(100);
    assert_eq!(bed.stat(Stat::MarkHit) - before, hits + 30);
    assert_eq!((bed.shown(3), bed.stats(3).packets, bed.misdirected), ((true, "ovs"), 70, 0));
    // A changed program is the next packet's, and the mark stays.
    bed.modify(3);
    bed.send(3, 1);
    bed.step(100);
    assert_eq!((bed.stat(Stat::MarkHit) - before, bed.misdirected), (hits + 31, 0));
    // A dying flow is a miss.
    let misses = bed.stat(Stat::Missed);
    bed.overlay.flow_del(bed.ufid(3).unwrap()).unwrap();
    bed.send(3, 1);
    bed.step(100);
    assert_eq!((bed.stat(Stat::MarkHit) - before, bed.stat(Stat::Missed)), (hits + 31, misses + 1));
}

#[test]
fn without_a_mark_to_give_flows_stay_in_software() {
    let mut bed = Bed::new("actions= mark-bits=2");
    for n in 1..=10 {
        bed.send(n, 5);
    }
    bed.wait_ms(20);
    assert_eq!(bed.card().rules(), 3, "mark 0 is none");
    assert!((1..=10).all(|n| bed.stats(n).packets == 4));
}

#[test]
fn an_active_flow_never_looks_idle() {
    let mut bed = Bed::new("stats-delay-ms=2000");
    bed.send(1, 1);
    bed.wait_ms(2);
    for _ in 0..400 {
        bed.send(1, 1);
        bed.step(10_000);
        let idle = bed.clock.now().saturating_sub(bed.stats(1).used.unwrap_or(Nanos::ZERO));
        assert!(idle < Nanos::from_ms(200), "{idle:?} after {}", bed.sent[&1]);
    }
    // And an idle one does, later.
    for _ in 0..1000 {
        bed.step(10_000);
    }
    let idle = bed.clock.now().saturating_sub(bed.stats(1).used.unwrap_or(Nanos::ZERO));
    assert!(idle > Nanos::from_secs(7) && idle < Nanos::from_secs(11), "{idle:?}");
}

#[test]
fn the_busiest_flows_are_in_a_small_table() {
    let mut bed = Bed::new("table-size=4 op-latency-us=200");
    let heavy = |n: u16, set: u16| n / 4 == set;
    for (set, seconds) in [(0, 4), (2, 6)] {
        for _ in 0..seconds * 20 {
            for n in 0..16 {
                bed.send(n, if heavy(n, set) { 50 } else { 1 });
            }
            bed.step(50_000);
        }
        for n in 0..16 {
            assert_eq!(bed.shown(n).0, heavy(n, set), "{n} {:?}", bed.overlay.why(bed.ufid(n).unwrap()));
        }
        let light = bed.overlay.why(bed.ufid(15).unwrap());
        assert!(matches!(light, Some(WhySoft::Full { used: 4, .. })), "{light:?}");
    }
    bed.wait_ms(500);
    for (n, sent) in bed.sent.clone() {
        assert_eq!(bed.stats(n).packets + 1, sent);
    }
    assert_eq!((bed.received, bed.misdirected), (bed.sent.values().sum(), 0));
}

#[test]
fn offload_is_switched_at_run_time() {
    let mut bed = Bed::new("");
    bed.send(1, 10);
    bed.wait_ms(2);
    bed.send(1, 10);
    bed.wait_ms(2);
    assert_eq!(bed.card().rules(), 1);
    bed.overlay.set_enabled(false);
    bed.send(1, 10);
    bed.wait_ms(2);
    assert_eq!((bed.card().rules(), bed.shown(1), bed.stats(1).packets), (0, (false, "ovs"), 29));
    assert_eq!(bed.overlay.why(bed.ufid(1).unwrap()), Some(WhySoft::Disabled));
    bed.overlay.set_enabled(true);
    bed.wait_ms(2);
    assert_eq!((bed.card().rules(), bed.shown(1).0), (1, true));
    // A port that leaves.
    bed.overlay.detach(DpPort(2));
    bed.send(1, 10);
    bed.wait_ms(2);
    assert_eq!(bed.stats(1).packets, 39);
    bed.overlay.detach(DpPort(1));
    bed.wait_ms(2);
    assert_eq!(bed.card().rules(), 0);
}

#[test]
fn errors_of_the_nic_are_got_over() {
    let mut bed = Bed::new("fail-percent=30 busy-percent=30 op-latency-us=100");
    for _ in 0..200 {
        for n in 1..=10 {
            bed.send(n, 1);
            if n % 3 == 0 {
                bed.modify(n);
            }
        }
        bed.step(20_000);
    }
    bed.wait_ms(500);
    assert!((1..=10).all(|n| bed.stats(n).packets == 199));
    assert!(bed.overlay.n_offloaded() > 5);
    assert_eq!((bed.received, bed.misdirected), (2000, 0));
}
