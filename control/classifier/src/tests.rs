use std::sync::Arc;

use fv_flow::{FlowKey, FlowMask, Match};
use proptest::prelude::*;
use zerocopy::byteorder::network_endian::{U16, U32};

use crate::linear::Linear;
use crate::*;

/// A match on a few fields, chosen by `which`, with values from a small space.
fn make(which: u8, v: [u8; 6], plen: u8) -> Match {
    let mut m = Match::default();
    let (k, w) = (&mut m.key.dp, &mut m.mask.0.dp);
    let prefix = if plen == 0 { 0 } else { u32::MAX << (32 - plen.min(32)) };
    if which & 1 != 0 {
        (k.base.in_port, w.base.in_port) = (u32::from(v[0]), u32::MAX);
    }
    if which & 2 != 0 {
        (k.base.dl_src, w.base.dl_src) = ([v[1]; 6], [0xff; 6]);
    }
    if which & 4 != 0 {
        (k.base.dl_type, w.base.dl_type) = (U16::new(0x0800), U16::new(0xffff));
        (k.base.nw_dst, w.base.nw_dst) = (U32::new(addr(v[2]) & prefix), U32::new(prefix));
    }
    if which & 8 != 0 {
        (k.base.dl_type, w.base.dl_type) = (U16::new(0x0800), U16::new(0xffff));
        (k.base.nw_src, w.base.nw_src) = (U32::new(addr(v[3]) & prefix), U32::new(prefix));
    }
    if which & 16 != 0 {
        (k.base.nw_proto, w.base.nw_proto) = (6, 0xff);
        let mask = if plen.is_multiple_of(2) { 0xffff } else { 0xfff0 };
        (k.base.tp_dst, w.base.tp_dst) = (U16::new(port(v[4]) & mask), U16::new(mask));
    }
    if which & 32 != 0 {
        (k.base.tcp_flags, w.base.tcp_flags) = (U16::new(u16::from(v[5] & 1) << 3), U16::new(8));
    }
    if which & 64 != 0 {
        (m.key.pipe.regs[0], m.mask.0.pipe.regs[0]) = (u32::from(v[0]), 0xff);
    }
    m
}

fn addr(v: u8) -> u32 {
    [0x0a000001, 0x0a000002, 0x0a010001, 0xc0a80001][usize::from(v & 3)]
}

fn port(v: u8) -> u16 {
    [80, 81, 443, 8080][usize::from(v & 3)]
}

fn packet(v: [u8; 6], arp: bool) -> FlowKey {
    let mut k = make(0x7f, v, 32).key;
    k.dp.base.tp_src = U16::new(4096 + u16::from(v[5]));
    if arp {
        k.dp.base.dl_type = U16::new(0x0806);
    }
    k
}

/// Changes bits that the mask does not match.
fn perturb(key: &FlowKey, mask: &FlowMask, noise: &FlowKey) -> FlowKey {
    let mut k = *key;
    for (i, w) in k.words_mut().iter_mut().enumerate() {
        let m = mask.0.words()[i];
        *w = (*w & m) | (noise.words()[i] & !m);
    }
    k
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Results equal the list's at every version, and any packet that agrees in the mask gets the
    /// same result.
    #[test]
    fn equals_the_list_and_masks_suffice(
        rules in prop::collection::vec(
            (any::<u8>(), any::<[u8; 6]>().prop_map(|v| v.map(|x| x & 3)), prop::sample::select(vec![8u8, 15, 16, 24, 31, 32]), 0i32..8), 0..40),
        removed in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        purge in any::<bool>(),
        prefixes in prop::sample::select(vec![0usize, 1, 4]),
        parts in any::<bool>(),
        probes in prop::collection::vec((any::<[u8; 6]>().prop_map(|v| v.map(|x| x & 3)), any::<bool>(), any::<[u8; 6]>().prop_map(|v| v.map(|x| x & 3)), any::<bool>()), 1..30),
    ) {
        let cls = Classifier::<usize>::new();
        let mut list = Linear(Vec::new());
        for (i, (which, v, plen, prio)) in rules.iter().enumerate() {
            let m = make(*which, *v, *plen);
            if cls.find_exactly(&m, *prio, Version(100)).is_some() {
                continue;
            }
            let mut r = ClsRule::new(MiniMatch::new(&m), *prio, i);
            if parts && i % 2 == 0 {
                // One id a priority; and rules that are for it.
                let (id, clause, n_clauses) = (100 + *prio as u32, v[5] & 1, 2);
                r = r.with_conjunctions(vec![Conjunction { id, clause, n_clauses }]);
            } else if parts && i % 3 == 0 {
                let mut m = m;
                (m.key.pipe.conj_id, m.mask.0.pipe.conj_id) = (100 + u32::from(v[0] * 2), u32::MAX);
                if cls.find_exactly(&m, *prio, Version(100)).is_some() {
                    continue;
                }
                r = ClsRule::new(MiniMatch::new(&m), *prio, i);
            }
            let r = Arc::new(r);
            cls.insert(r.clone(), Version(1 + (i % 3) as u64));
            list.0.push(r);
            if i == 7 {
                cls.set_prefixes(&DEFAULT_PREFIXES[..prefixes]);
            }
        }
        for ix in removed {
            if !list.0.is_empty() {
                let r = ix.get(&list.0).clone();
                if r.removed_at().is_none() {
                    cls.remove(&r, Version(4));
                }
            }
        }
        let versions = if purge { cls.purge(Version(4), usize::MAX); 4..5 } else { 0..5 };
        for (v, arp, other, other_arp) in &probes {
            let key = packet(*v, *arp);
            for version in versions.clone().map(Version) {
                let mut wc = FlowMask::default();
                let got = cls.lookup(version, &key, Some(&mut wc)).map(|r| r.priority());
                prop_assert_eq!(got, list.lookup(version, &key));
                prop_assert_eq!(cls.lookup(version, &key, None).map(|r| r.priority()), got);
                let sibling = perturb(&key, &wc, &packet(*other, *other_arp));
                prop_assert_eq!(list.lookup(version, &sibling), got);
            }
        }
    }

    #[test]
    fn loose_selection_equals_the_definition(
        rules in prop::collection::vec((any::<u8>(), any::<[u8; 6]>().prop_map(|v| v.map(|x| x & 1)), Just(16u8), 0i32..8), 0..30),
        c in (any::<u8>(), any::<[u8; 6]>().prop_map(|v| v.map(|x| x & 1))),
    ) {
        let cls = Classifier::<usize>::new();
        let criterion = make(c.0 & 0x15, c.1, 16);
        let mut want = 0;
        let mut overlap = false;
        for (i, (which, v, plen, prio)) in rules.iter().enumerate() {
            let m = make(*which, *v, *plen);
            cls.insert(Arc::new(ClsRule::new(MiniMatch::new(&m), *prio, i)), Version(1));
            let more = criterion.mask.0.words().iter().zip(m.mask.0.words()).all(|(c, m)| c & !m == 0);
            want += usize::from(more && criterion.mask.equal(&criterion.key, &m.key));
            let mut both = criterion.mask;
            for (a, b) in both.0.words_mut().iter_mut().zip(m.mask.0.words()) { *a &= b; }
            overlap |= *prio == 3 && both.equal(&criterion.key, &m.key);
        }
        prop_assert_eq!(cls.rules_within(&criterion, Version(1)).len(), want);
        prop_assert_eq!(cls.overlaps(&criterion, 3, Version(1)), overlap);
        prop_assert_eq!(cls.rules(Version(1)).len(), rules.len());
    }
}

fn add(cls: &Classifier<&'static str>, m: &Match, prio: i32, name: &'static str) -> Arc<ClsRule<&'static str>> {
    let r = Arc::new(ClsRule::new(MiniMatch::new(m), prio, name));
    cls.insert(r.clone(), Version(1));
    r
}

fn wc_of(cls: &Classifier<&'static str>, key: &FlowKey) -> (&'static str, FlowMask) {
    let mut wc = FlowMask::default();
    let r = cls.lookup(Version(1), key, Some(&mut wc)).map_or("none", |r| r.value);
    (r, wc)
}

// UP-13, in the classifier.
/// A rule on port and flags that a packet misses by its flags must leave the flags in the mask.
#[test]
fn the_ports_trie_does_not_hide_other_fields_of_its_stage() {
    let cls = Classifier::new();
    let mut m = Match::default();
    (m.key.dp.base.tp_dst, m.mask.0.dp.base.tp_dst) = (U16::new(80), U16::new(0xffff));
    (m.key.dp.base.tcp_flags, m.mask.0.dp.base.tcp_flags) = (U16::new(8), U16::new(8));
    add(&cls, &m, 10, "drop");
    add(&cls, &Match::default(), 0, "forward");
    let mut k = FlowKey::default();
    k.dp.base.tp_dst = U16::new(80);
    k.dp.base.tcp_flags = U16::new(2);
    let (r, wc) = wc_of(&cls, &k);
    assert_eq!(r, "forward");
    assert_eq!(wc.0.base.tcp_flags.get(), 8);
    assert_eq!(wc.0.base.tp_dst.get(), 0xffff);
    // A port that differs in its first bit costs that bit only.
    k.dp.base.tp_dst = U16::new(0x8000);
    let (_, wc) = wc_of(&cls, &k);
    assert_eq!(wc.0.base.tp_dst.get(), 0x8000);
}

#[test]
fn stages_leave_later_fields_wild() {
    let cls = Classifier::new();
    let mut m = make(1 | 2 | 4 | 16, [1, 1, 0, 0, 0, 0], 32);
    add(&cls, &m, 10, "a");
    let mut k = m.key;
    assert_eq!(wc_of(&cls, &k).1, m.mask);
    // Another port: only metadata was looked at.
    k.dp.base.in_port = 9;
    let (r, wc) = wc_of(&cls, &k);
    let mut want = FlowMask::default();
    want.0.dp.base.in_port = u32::MAX;
    assert_eq!((r, wc), ("none", want));
    // Another address: the trie says so after L2 and before L3.
    k = m.key;
    k.dp.base.nw_dst = U32::new(0x8a000001);
    let (_, wc) = wc_of(&cls, &k);
    m.mask.0.dp.base.nw_dst = U32::new(0x8000_0000);
    m.mask.0.dp.base.nw_proto = 0;
    m.mask.0.dp.base.tp_dst = U16::new(0);
    assert_eq!(wc, m.mask);
}

#[test]
fn a_removed_rule_stays_for_older_versions() {
    let cls = Classifier::new();
    let a = add(&cls, &Match::default(), 5, "a");
    let k = FlowKey::default();
    cls.remove(&a, Version(2));
    let b = Arc::new(ClsRule::new(MiniMatch::new(&Match::default()), 5, "b"));
    cls.insert(b, Version(2));
    assert_eq!(cls.lookup(Version(1), &k, None).unwrap().value, "a");
    assert_eq!(cls.lookup(Version(2), &k, None).unwrap().value, "b");
    assert_eq!(cls.len(), 1);
    cls.purge(Version(2), usize::MAX);
    assert!(cls.lookup(Version(1), &k, None).is_none());
}

// UP-17: prefixes are reconfigured under lookups; UP-18: subtables are sorted under lookups.
/// Readers on other threads, while rules come and go and the tries are replaced, always see the
/// rule that all versions have.
// Packets wait for no writer, however long one takes.
#[test]
fn lookups_wait_for_no_writer() {
    let cls = Arc::new(Classifier::<u32>::new());
    for n in 0..200u8 {
        let m = make(n % 32, [n, n, n, n, n, n], 8 + n % 25);
        cls.insert(Arc::new(ClsRule::new(MiniMatch::new(&m), i32::from(n), u32::from(n))), Version::MIN);
    }
    let keys: Vec<FlowKey> = (0..100u8).map(|n| packet([n, n / 2, n / 3, n, n, n], n % 7 == 0)).collect();
    let all = |cls: &Classifier<u32>| -> Vec<Option<u32>> {
        let found = keys.iter().map(|k| cls.lookup(Version::MIN, k, Some(&mut FlowMask::default())));
        found.map(|r| r.map(|r| r.value)).collect()
    };
    let calm = all(&cls);
    assert!(calm.iter().any(Option::is_some));
    cls.while_writing(|| {
        std::thread::scope(|s| {
            let (send, done) = std::sync::mpsc::channel();
            let (cls, all) = (&cls, &all);
            s.spawn(move || send.send(all(cls)));
            // A lookup that waited would wait for ever.
            match done.recv_timeout(std::time::Duration::from_secs(60)) {
                Ok(found) => assert_eq!(found, calm),
                Err(_) => std::process::abort(),
            }
        });
    });
}

// UP-17.
#[test]
fn lookups_go_on_while_rules_and_tries_change() {
    let cls = Classifier::<usize>::new();
    let base = make(4, [0; 6], 8);
    cls.insert(Arc::new(ClsRule::new(MiniMatch::new(&base), 1, 0)), Version(1));
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        let reader = s.spawn(|| {
            let key = packet([0; 6], false);
            let mut n = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) || n == 0 {
                let mut wc = FlowMask::default();
                assert_eq!(cls.lookup(Version(1), &key, Some(&mut wc)).unwrap().value, 0);
                n += 1;
            }
        });
        for round in 0..300u64 {
            let v = Version(2 + round);
            let rules: Vec<_> = (0..20u8)
                .map(|i| {
                    let m = make(4 | 16, [0, 0, i, 0, i, 0], 16 + i % 16);
                    Arc::new(ClsRule::new(MiniMatch::new(&m), i32::from(i) + 2, 1))
                })
                .collect();
            rules.iter().for_each(|r| cls.insert(r.clone(), v));
            cls.set_prefixes(&DEFAULT_PREFIXES[..(round % 4) as usize]);
            rules.iter().for_each(|r| cls.remove(r, v.next()));
            cls.purge(v.next(), usize::MAX);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        reader.join().unwrap();
    });
    assert_eq!(cls.len(), 1);
}

#[test]
fn many_rules_in_one_subtable() {
    let cls = Classifier::<u32>::new();
    let mut m = make(4, [0; 6], 32);
    cls.defer();
    let n = 5000;
    let rules: Vec<_> = (0..n)
        .map(|i| {
            m.key.dp.base.nw_dst = U32::new(i);
            Arc::new(ClsRule::new(MiniMatch::new(&m), 1, i))
        })
        .collect();
    rules.iter().for_each(|r| cls.insert(r.clone(), Version(1)));
    cls.publish();
    for i in (0..n).step_by(7) {
        m.key.dp.base.nw_dst = U32::new(i);
        assert_eq!(cls.lookup(Version(1), &m.key, None).unwrap().value, i);
        assert!(cls.find_exactly(&m, 1, Version(1)).is_some());
    }
    rules.iter().for_each(|r| cls.remove(r, Version(2)));
    cls.purge(Version(2), usize::MAX);
    assert!(cls.rules(Version(1)).is_empty() && cls.is_empty());
}

/// Two clauses of which both must match, and what a lower rule of the same match as a part decides.
#[test]
fn conjunctions_need_every_clause() {
    let cls = Classifier::new();
    let part = |m: &Match, clause| {
        let c = Conjunction { id: 7, clause, n_clauses: 2 };
        let r = ClsRule::new(MiniMatch::new(m), 10, "part").with_conjunctions(vec![c]);
        cls.insert(Arc::new(r), Version(1));
    };
    let (src, dst) = (make(8, [0; 6], 32), make(16, [0; 6], 8));
    part(&src, 0);
    part(&dst, 1);
    let mut id = Match::default();
    (id.key.pipe.conj_id, id.mask.0.pipe.conj_id) = (7, u32::MAX);
    add(&cls, &id, 10, "both");
    add(&cls, &src, 5, "source alone");
    add(&cls, &Match::default(), 0, "rest");
    for (v, want) in [
        ([0, 0, 0, 0, 0, 0], "both"),
        ([0, 0, 0, 0, 1, 0], "source alone"),
        ([0, 0, 0, 1, 0, 0], "rest"),
        ([0, 0, 0, 1, 1, 0], "rest"),
    ] {
        assert_eq!(wc_of(&cls, &packet(v, false)).0, want, "{v:?}");
    }
}
