use super::*;
use proptest::prelude::*;

const A: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn s(n: u64) -> Nanos {
    Nanos::from_secs(1000 + n)
}

fn mac(n: u16) -> [u8; 6] {
    let [h, l] = n.to_be_bytes();
    [2, 0, 0, 0, h, l]
}

#[test]
fn learns_moves_ages() {
    let t = MacTable::new();
    let g = t.generation();
    assert_eq!(t.learn(s(0), 0, A, 1, Learn::default()), Learned::New);
    assert_ne!(t.generation(), g);
    let g = t.generation();
    assert_eq!(t.learn(s(5), 0, A, 1, Learn::default()), Learned::Refreshed);
    assert_eq!(t.generation(), g);
    assert_eq!(t.lookup(0, A).unwrap().age_s(s(7)), 2);
    assert_eq!(t.lookup(1, A), None);
    assert!(t.would_change(s(6), 0, A, 2, Learn::default()));
    assert_eq!(t.learn(s(6), 0, A, 2, Learn::default()), Learned::Moved(1));
    assert_ne!(t.generation(), g);
    assert_eq!(t.expire(s(305)), Some(s(306)));
    assert_eq!(t.expire(s(306)), None);
    assert_eq!(t.lookup(0, A), None);
    let st = t.stats();
    assert_eq!((st.entries, st.learned, st.expired, st.moved), (0, 1, 1, 1));
}

#[test]
fn refuses_multicast_and_flooded_vlans() {
    let t = MacTable::new();
    assert_eq!(t.learn(s(0), 0, [1, 0, 0, 0, 0, 1], 1, Learn::default()), Learned::Refused);
    t.learn(s(0), 7, A, 1, Learn::default());
    t.set_flood_vlans([7].into_iter().collect());
    assert_eq!(t.lookup(7, A), None);
    assert_eq!(t.learn(s(0), 7, A, 1, Learn::default()), Learned::Refused);
    assert_eq!(t.learn(s(0), 8, A, 1, Learn::default()), Learned::New);
}

#[test]
fn static_entries_stay() {
    let t = MacTable::new();
    t.learn(s(0), 0, A, 1, Learn::default());
    assert!(t.add_static(s(0), 0, A, 9));
    assert_eq!(t.learn(s(1), 0, A, 1, Learn::default()), Learned::Refused);
    t.expire(s(10_000));
    t.flush();
    assert_eq!(t.lookup(0, A).unwrap().port, 9);
    assert_eq!((t.stats().static_entries, t.len()), (1, 1));
    t.flush_port(9);
    assert!(t.is_empty());
}

#[test]
fn the_greedy_port_loses_its_oldest() {
    let t = MacTable::new();
    t.set_max_entries(10);
    t.learn(s(0), 0, mac(1000), 1, Learn::default());
    for i in 0..9 {
        t.learn(s(1 + u64::from(i)), 0, mac(i), 2, Learn::default());
    }
    // The oldest of port 2 is refreshed, so that the next one goes.
    t.learn(s(20), 0, mac(0), 2, Learn::default());
    assert_eq!(t.learn(s(21), 0, mac(50), 3, Learn::default()), Learned::New);
    assert!(t.lookup(0, mac(1)).is_none());
    for kept in [1000, 0, 2, 50] {
        assert!(t.lookup(0, mac(kept)).is_some(), "{kept}");
    }
    assert_eq!((t.len(), t.stats().evicted), (10, 1));
}

#[test]
fn gratuitous_arp_locks_out_reflections() {
    let t = MacTable::new();
    let garp = |from_bond| Learn { gratuitous_arp: true, from_bond };
    assert_eq!(t.learn(s(0), 0, A, 1, garp(false)), Learned::New);
    assert_eq!(t.learn(s(1), 0, A, 2, garp(true)), Learned::Refused);
    assert_eq!(t.lookup(0, A).unwrap().port, 1);
    assert_eq!(t.learn(s(5), 0, A, 2, garp(true)), Learned::Moved(1));
}

proptest! {
    /// Against a list: same ports and count, whatever is done.
    #[test]
    fn equals_a_list(ops in prop::collection::vec((0u8..4, 0u16..30, 0u64..4), 0..200)) {
        let t = MacTable::new();
        t.set_max_entries(20);
        t.set_idle_time(50);
        let mut list: Vec<(u16, u64, u64)> = Vec::new(); // mac, port, used
        for (i, (op, m, p)) in ops.iter().enumerate() {
            let now = i as u64;
            match op {
                0 | 1 => {
                    match list.iter_mut().find(|e| e.0 == *m) {
                        Some(e) => (e.1, e.2) = (*p, now),
                        None => {
                            if list.len() == 20 {
                                let count = |p: u64, l: &Vec<(u16, u64, u64)>| l.iter().filter(|e| e.1 == p).count();
                                let port = (0..4).max_by_key(|p| (count(*p, &list), *p)).unwrap();
                                let at = (0..20).filter(|i| list[*i].1 == port).min_by_key(|i| list[*i].2).unwrap();
                                list.remove(at);
                            }
                            list.push((*m, *p, now));
                        }
                    }
                    t.learn(s(now), 0, mac(*m), *p, Learn::default());
                }
                2 => {
                    list.retain(|e| e.2 + 50 > now);
                    t.expire(s(now));
                }
                _ => {
                    list.retain(|e| e.0 != *m);
                    t.remove(0, mac(*m));
                }
            }
            prop_assert_eq!(t.len(), list.len());
            for (m, p, u) in &list {
                let e = t.lookup(0, mac(*m)).unwrap();
                prop_assert_eq!((e.port, e.used), (*p, s(*u)));
            }
        }
    }
}

/// Several threads learn, move, look up and expire; in the end the order agrees with the entries.
#[test]
fn threads_share_the_table() {
    let t = MacTable::new();
    t.set_max_entries(50);
    std::thread::scope(|sc| {
        for thread in 0..3u64 {
            let t = &t;
            sc.spawn(move || {
                for i in 0..5000u64 {
                    let m = mac((i * 7 + thread) as u16 % 80);
                    t.learn(s(i / 100), (i % 2) as u16, m, (i + thread) % 4, Learn::default());
                    t.lookup(0, m);
                    if i % 500 == 0 {
                        t.expire(s(i / 100));
                        t.remove(0, m);
                    }
                }
            });
        }
    });
    assert!(t.len() <= 50);
    assert_eq!(t.entries().len(), t.len());
    t.expire(s(100_000));
    assert!(t.is_empty() && t.entries().is_empty());
}
