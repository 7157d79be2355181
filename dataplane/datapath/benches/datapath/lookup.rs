//! Lookups alone: keys in hand, no packets.

use std::sync::Arc;

use fv_core::Nanos;
use fv_datapath::CacheUse;
use fv_datapath::inner::{Flow, Probe, Table};
use fv_dpif::WorkerId;
use fv_flow::DpKey;

use crate::measure::{Case, Run, result};
use crate::turn::Rules;

const PACKETS: usize = 8192;

fn key(flow: u32) -> DpKey {
    let mut key = DpKey::default();
    key.base.in_port = 1;
    key.base.dl_type = 0x800.into();
    key.base.nw_proto = 17;
    key.base.nw_src = 0x0a00_0001.into();
    key.base.nw_dst = (0x0a00_0000 | flow).into();
    key
}

fn case(name: String, flows: u32, rules: Rules, cache: CacheUse) -> Case {
    let mut made: Option<(Table, Vec<Probe>)> = None;
    let mut at = 0usize;
    Case::new(name, None, move || {
        let (table, probes) = made.get_or_insert_with(|| {
            let mut table = Table::default();
            table.set_cache_use(cache);
            for flow in 0..flows {
                let key = key(flow);
                if table.lookup(&Probe::new(&key)).index().is_none() {
                    let flow = Flow::new(&key, &rules.mask(flow), None, Arc::default(), Some(WorkerId::MAIN));
                    table.insert(&flow, WorkerId::MAIN);
                }
            }
            let order = |i: u64| (i * 7_919 % u64::from(flows)) as u32;
            let probes: Vec<Probe> = (0..u64::from(flows.max(32))).map(|i| Probe::new(&key(order(i)))).collect();
            // As in turns: until the cache has found its size, and subtables their order.
            for (n, burst) in probes.chunks(32).cycle().take(1 + 400_000 / 32).enumerate() {
                table.lookup_burst(burst, &mut [0; 32]);
                table.tick(Nanos::from_secs(n as u64 / 1000), 1);
            }
            (table, probes)
        });
        let mut found = [0; 32];
        for _ in 0..PACKETS / 32 {
            if at + 32 > probes.len() {
                at = 0;
            }
            table.lookup_burst(&probes[at..at + 32], &mut found);
            std::hint::black_box(&found);
            at += 32;
        }
        PACKETS
    })
}

/// The tag cache while all flows fit its smallest size.
pub fn emc(run: &Run) {
    let sizes = [1, 128, 1_000, 8_000];
    let cases = sizes.map(|n| case(format!("flows {n}"), n, Rules::Exact(16), CacheUse::Inverse(1)));
    result(&run.measure(cases.into()), &[]);
}

/// The tag cache when it has to grow.
pub fn smc(run: &Run) {
    let mut cases = Vec::new();
    for n in [10_000, 100_000] {
        cases.push(case(format!("exact {n}"), n, Rules::Exact(16), CacheUse::Inverse(1)));
        cases.push(case(format!("single {n}"), n, Rules::Single(16), CacheUse::Inverse(1)));
    }
    cases.push(case("single 1000000".into(), 1_000_000, Rules::Single(16), CacheUse::Inverse(1)));
    result(&run.measure(cases), &[]);
}

/// Subtables alone.
pub fn dpcls(run: &Run) {
    let mut cases = Vec::new();
    for masks in [1, 4, 16, 64] {
        cases.push(case(format!("single {masks}"), masks, Rules::Single(masks), CacheUse::Inverse(0)));
        cases.push(case(format!("10k {masks}"), 10_000, Rules::Exact(masks), CacheUse::Inverse(0)));
        cases.push(case(format!("adaptive 10k {masks}"), 10_000, Rules::Exact(masks), CacheUse::Adaptive));
    }
    let rows = run.measure(cases);
    let low = |name: &str| rows.iter().find(|r| r.name == name).map_or(f64::NAN, |r| r.low);
    let ratio = low("adaptive 10k 64") / low("adaptive 10k 1");
    result(&rows, &[("ratio_64_to_1", format!("{ratio:.2}"))]);
}
