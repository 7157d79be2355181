//! The table against its twin: a list of flows that is searched from the front.

use std::sync::Arc;

use fv_core::Nanos;
use fv_dpif::WorkerId;
use proptest::prelude::*;

use super::*;

/// Few values in few fields, so that masks overlap and keys repeat.
fn key(bits: u32) -> DpKey {
    let mut k = DpKey::default();
    k.base.in_port = 1 + (bits & 1);
    k.base.recirc_id = bits >> 1 & 1;
    k.base.nw_dst = (bits >> 2 & 7).into();
    k.base.tp_dst = ((bits >> 5 & 7) as u16).into();
    k.base.nw_ttl = (bits >> 8 & 1) as u8;
    k.v6.ipv6_dst[15] = (bits >> 9 & 3) as u8;
    k.misc.skb_priority = bits >> 11 & 1;
    k
}

fn mask(bits: u32) -> DpMask {
    let mut m = DpMask::default();
    m.0.base.nw_dst = (bits & 7).into();
    m.0.base.tp_dst = if bits & 8 != 0 { 7u16.into() } else { 0u16.into() };
    m.0.base.nw_ttl = if bits & 16 != 0 { 255 } else { 0 };
    m.0.v6.ipv6_dst[15] = (bits >> 5 & 3) as u8;
    m.0.misc.skb_priority = bits >> 7 & 1;
    m
}

#[derive(Clone, Debug)]
enum Step {
    Put(u32, u32),
    /// Kills the n-th flow, and tells the table if so.
    Kill(usize, bool),
    Look(u32),
    Sweep,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0u32..1 << 12, 0u32..1 << 8).prop_map(|(k, m)| Step::Put(k, m)),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(n, told)| Step::Kill(n, told)),
        6 => (0u32..1 << 12).prop_map(Step::Look),
        1 => Just(Step::Sweep),
    ];
    proptest::collection::vec(step, 1..300)
}

fn probe(k: DpKey) -> Probe {
    Probe::new(&k)
}

fn run(steps: &[Step], cache: CacheUse, level: Level) {
    let mut table = Table::at(level);
    table.set_cache_use(cache);
    let mut twin: Vec<Arc<Flow>> = Vec::new();
    for (n, step) in steps.iter().enumerate() {
        match *step {
            Step::Put(k, m) => {
                let flow = Flow::new(&key(k), &mask(m), None, Arc::default(), None);
                if !twin.iter().any(|f| f.megaflow == flow.megaflow) {
                    table.insert(&flow, WorkerId(1));
                    twin.push(flow);
                }
            }
            Step::Kill(n, told) if !twin.is_empty() => {
                let flow = twin.swap_remove(n % twin.len());
                flow.kill();
                if told {
                    table.remove(&flow);
                }
            }
            Step::Kill(..) => {}
            Step::Look(k) => {
                let p = probe(key(k));
                let fits = |f: &Flow| f.covers(&p.key);
                // Alone and in a burst.
                let mut found = [NONE; 2];
                table.lookup_burst(&[p, probe(key(k ^ 4))], &mut found);
                let found = match k >> 10 {
                    0 => found[0],
                    1 => table.lookup(&p).index().unwrap_or(NONE),
                    // With a hash that came with the packet, whatever it is.
                    _ => {
                        let (hashes, hashed) = (&mut [u64::from(k % 7) << 47; BURST], &mut 1);
                        table.lookup_all(Burst { probes: &[p], hashes, hashed, found: &mut found }, Ask::Remember);
                        found[0]
                    }
                };
                match (found != NONE).then_some(found) {
                    None => assert!(!twin.iter().any(|f| fits(f)), "step {n}: missed"),
                    Some(i) => {
                        let flow = &table.entry(i).unwrap().flow;
                        assert!(!flow.is_dead() && fits(flow), "step {n}: wrong flow");
                        assert!(twin.iter().any(|f| Arc::ptr_eq(f, flow)), "step {n}: unknown flow");
                    }
                }
            }
            Step::Sweep => {
                table.start_sweep();
                while table.tick(Nanos::from_secs(n as u64), 7) {}
            }
        }
    }
    table.start_sweep();
    while table.tick(Nanos::ZERO, 7) {}
    assert_eq!(table.len(), twin.len());
    for flow in &twin {
        table.remove(flow);
    }
    assert_eq!((table.len(), table.subtables()), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    // UP-03.
    #[test]
    fn finds_what_the_list_finds(steps in steps(), cache in 0u32..4) {
        let cache = if cache == 3 { CacheUse::Adaptive } else { CacheUse::Inverse(cache) };
        for level in Level::ALL.into_iter().filter(|l| l.available()) {
            run(&steps, cache, level);
        }
        // Two keys of one hash never share a flow.
        run(&steps, cache, Level::Colliding);
    }
}

#[test]
fn thousands_of_flows_in_a_subtable_come_and_go() {
    let mut table = Table::default();
    let mut m = DpMask::default();
    m.0.base.nw_dst = u32::MAX.into();
    let flow = |n: u32| {
        let mut k = DpKey { ..DpKey::default() };
        k.base.in_port = 1;
        k.base.nw_dst = n.into();
        Flow::new(&k, &m, None, Arc::default(), None)
    };
    let flows: Vec<_> = (0..5000).map(flow).collect();
    for (n, f) in flows.iter().enumerate() {
        table.insert(f, WorkerId(0));
        let back = &flows[n / 2];
        let found = table.lookup(&probe(back.key())).index().unwrap();
        assert!(Arc::ptr_eq(&table.entry(found).unwrap().flow, back));
    }
    for f in flows.iter().step_by(2) {
        table.remove(f);
    }
    for (n, f) in flows.iter().enumerate() {
        assert_eq!(table.lookup(&probe(f.key())).index().is_some(), n % 2 == 1);
    }
    assert_eq!(table.len(), 2500);
}

#[test]
fn a_dead_flow_gives_way_to_its_successor() {
    let mut table = Table::default();
    let old = Flow::new(&key(0), &mask(0), None, Arc::default(), None);
    table.insert(&old, WorkerId(0));
    old.kill();
    assert_eq!(table.lookup(&probe(key(0))), Found::Miss(1));
    let new = Flow::new(&key(0), &mask(0), None, Arc::default(), None);
    table.insert(&new, WorkerId(0));
    table.remove(&old);
    let i = table.lookup(&probe(key(0))).index().unwrap();
    assert!(Arc::ptr_eq(&table.entry(i).unwrap().flow, &new));
    assert_eq!(table.len(), 1);
}

#[test]
fn the_cache_ignores_what_changes_within_a_connection() {
    let hash = |k| probe(k).hash::<Portable>();
    let mut a = key(5);
    a.base.tcp_flags = 2u16.into();
    a.base.nw_tos = 3;
    a.base.dp_hash = 9;
    assert_eq!(hash(a), hash(key(5)));
    a.base.tp_src = 1u16.into();
    assert_ne!(hash(a), hash(key(5)));
}

#[test]
fn the_hash_of_another_pass_tells_passes_apart() {
    let mut later = key(5);
    later.base.recirc_id = 7;
    let (first, again) = (probe(key(5)).hash_again(1 << 40), probe(later).hash_again(1 << 40));
    assert_ne!(first, again);
    assert_eq!(again, probe(later).hash_again(1 << 40));
    later.base.ct_state = 2;
    assert_ne!(again, probe(later).hash_again(1 << 40));
}

#[test]
fn the_subtable_of_most_packets_comes_first() {
    let mut table = Table::default();
    table.set_cache_use(CacheUse::Inverse(0));
    for bits in 0..16u32 {
        let mut m = mask(0);
        m.0.base.nw_src = (1 << bits).into();
        let mut k = key(0);
        k.base.nw_src = (1 << bits).into();
        table.insert(&Flow::new(&k, &m, None, Arc::default(), None), WorkerId(0));
    }
    let mut k = key(0);
    k.base.nw_src = (1 << 9).into();
    let probes = [probe(k); BURST];
    let mut found = [NONE; BURST];
    assert_eq!(table.lookup_burst(&probes, &mut found).tried, 10 * BURST as u64);
    table.tick(Nanos::from_secs(5), 1);
    assert_eq!(table.lookup_burst(&probes, &mut found).tried, BURST as u64);
}
