//! Flow-mods, timeouts, fail modes, ports: the model without connections.

use fv_core::OfPort;
use fv_flow::{FlowKey, Match};
use fv_openflow::action::Action;
use fv_openflow::msg::flow::{FlowMod, FlowModCommand as Command, FlowModFlags as Flags};
use fv_openflow::msg::port::{PortConfig, PortFeatures, PortMod};
use fv_openflow::{Actions, OfError};

use super::*;

fn fm(command: Command, match_: Match, priority: u16) -> FlowMod {
    FlowMod { command, match_, priority, table: 0, actions: output(1), ..FlowMod::default() }
}

/// (priority, cookie, number of actions, packets) of the flows in tables 0 to 253, sorted.
fn flows(o: &Ofproto) -> Vec<(i32, u64, usize, u64)> {
    let v = o.tables().version();
    let mut all: Vec<_> = o
        .tables()
        .visible()
        .flat_map(|(_, t)| t.cls.rules(v))
        .map(|r| (r.priority(), r.cookie, r.actions.len(), r.stats.packets()))
        .collect();
    all.sort();
    all
}

#[test]
fn a_change_is_visible_after_the_commit() {
    let mut o = bridge(true);
    let mut host = FakeHost::default();
    o.flow_mod(at(0), &fm(Command::Add, on_port(1), 5)).unwrap();
    assert!(flows(&o).is_empty());
    o.commit(&mut host);
    assert_eq!(flows(&o), [(5, 0, 1, 0)]);
}

#[test]
fn adding_again_replaces() {
    for (flags, packets) in [(Flags::default(), 3), (Flags::RESET_COUNTS, 0)] {
        let mut o = bridge(true);
        let mut host = FakeHost::default();
        o.flow_mod(at(0), &fm(Command::Add, on_port(1), 5)).unwrap();
        o.commit(&mut host);
        o.all_rules().iter().for_each(|r| r.credit(3, 180, at(1), 0));
        o.flow_mod(at(2), &FlowMod { new_cookie: 9, flags, ..fm(Command::Add, on_port(1), 5) }).unwrap();
        o.commit(&mut host);
        assert_eq!(flows(&o), [(5, 9, 1, packets)]);
    }
}

#[test]
fn modify_keeps_counters_and_times() {
    let mut o = bridge(true);
    let mut host = FakeHost::default();
    o.flow_mod(at(0), &FlowMod { idle_timeout_s: 60, new_cookie: 1, ..fm(Command::Add, on_port(1), 5) }).unwrap();
    o.flow_mod(at(0), &FlowMod { new_cookie: 2, ..fm(Command::Add, on_port(2), 6) }).unwrap();
    o.commit(&mut host);
    o.all_rules().iter().for_each(|r| r.credit(3, 180, at(1), 0));
    // Loose, by cookie; no cookie for those modified.
    let m = FlowMod {
        cookie: 1,
        cookie_mask: u64::MAX,
        new_cookie: u64::MAX,
        actions: Actions::default(),
        ..fm(Command::Modify, Match::default(), 0)
    };
    o.flow_mod(at(10), &m).unwrap();
    o.commit(&mut host);
    assert_eq!(flows(&o), [(5, 1, 0, 3), (6, 2, 1, 3)]);
    let r = o.all_rules().into_iter().find(|r| r.cookie == 1).unwrap();
    assert_eq!((r.created, r.modified(), r.idle_timeout_s()), (at(0), at(10), 60));
}

#[test]
fn modify_adds_only_where_the_version_says_so() {
    let mut o = bridge(true);
    let mut host = FakeHost::default();
    let m = fm(Command::ModifyStrict, on_port(1), 5);
    o.flow_mod(at(0), &FlowMod { new_cookie: u64::MAX, ..m.clone() }).unwrap();
    o.commit(&mut host);
    assert!(flows(&o).is_empty());
    o.flow_mod(at(0), &m).unwrap();
    o.commit(&mut host);
    assert_eq!(flows(&o).len(), 1);
}

#[test]
fn deletion_is_filtered() {
    let delete = |f: fn(&mut FlowMod)| {
        let mut o = bridge(true);
        let mut host = FakeHost::default();
        o.flow_mod(at(0), &FlowMod { new_cookie: 0x10, ..fm(Command::Add, on_port(1), 5) }).unwrap();
        o.flow_mod(at(0), &FlowMod { new_cookie: 0x21, actions: output(2), ..fm(Command::Add, on_port(2), 5) })
            .unwrap();
        o.flow_mod(at(0), &FlowMod { new_cookie: 0x22, table: 3, ..fm(Command::Add, Match::default(), 0) }).unwrap();
        let mut d = FlowMod { table: 0xff, ..fm(Command::Delete, Match::default(), 0) };
        f(&mut d);
        o.flow_mod(at(0), &d).unwrap();
        o.commit(&mut host);
        flows(&o).into_iter().map(|f| f.1).collect::<Vec<_>>()
    };
    assert!(delete(|_| ()).is_empty());
    assert_eq!(delete(|d| d.table = 0), [0x22]);
    assert_eq!(delete(|d| (d.cookie, d.cookie_mask) = (0x20, 0xf0)), [0x10]);
    assert_eq!(delete(|d| d.out_port = OfPort(2)), [0x22, 0x10]);
    assert_eq!(delete(|d| d.match_ = on_port(1)), [0x22, 0x21]);
    assert_eq!(
        delete(|d| (d.command, d.match_, d.priority) = (Command::DeleteStrict, on_port(1), 4)),
        [0x22, 0x10, 0x21]
    );
    assert_eq!(delete(|d| (d.command, d.match_, d.priority) = (Command::DeleteStrict, on_port(1), 5)), [0x22, 0x21]);
}

#[test]
fn what_is_refused() {
    let with = |a: Action| Actions(vec![a]);
    let base = fm(Command::Add, on_port(1), 5);
    let cases: Vec<(FlowMod, OfError)> = vec![
        (FlowMod { table: 254, ..base.clone() }, OfError::BrcEperm),
        (FlowMod { flags: Flags::EMERG, ..base.clone() }, OfError::FmfcTableFull),
        (FlowMod { actions: with(Action::Group(1)), ..base.clone() }, OfError::BacBadOutGroup),
        (FlowMod { actions: with(Action::Meter(1)), ..base.clone() }, OfError::MmfcInvalidMeter),
        (FlowMod { actions: output(0xff05), ..base.clone() }, OfError::BacBadOutPort),
        (FlowMod { actions: output(OfPort::NONE.0), ..base.clone() }, OfError::BacBadOutPort),
        (FlowMod { table: 4, actions: with(Action::GotoTable(4)), ..base.clone() }, OfError::BicBadTableId),
        (FlowMod { actions: with(Action::Clone(with(Action::Group(1)))), ..base.clone() }, OfError::BacBadOutGroup),
        (
            FlowMod {
                actions: Actions(vec![Action::Conjunction { id: 1, clause: 0, n_clauses: 2 }, Action::CtClear]),
                ..base.clone()
            },
            OfError::NxBacBadConjunction,
        ),
        (FlowMod { table: 254, ..fm(Command::Delete, Match::default(), 0) }, OfError::BrcEperm),
    ];
    for (m, want) in cases {
        let mut o = bridge(true);
        assert_eq!(o.flow_mod(at(0), &m), Err(want), "{m:?}");
        o.commit(&mut FakeHost::default());
        assert!(flows(&o).is_empty());
    }
}

#[test]
fn overlap_is_checked_on_demand() {
    let mut o = bridge(true);
    o.flow_mod(at(0), &fm(Command::Add, on_port(1), 5)).unwrap();
    let mut m = Match::default();
    (m.key.dp.base.dl_src, m.mask.0.dp.base.dl_src) = ([2; 6], [0xff; 6]);
    let check = |priority, m| FlowMod { flags: Flags::CHECK_OVERLAP, ..fm(Command::Add, m, priority) };
    assert_eq!(o.flow_mod(at(0), &check(5, m)), Err(OfError::FmfcOverlap));
    assert_eq!(o.flow_mod(at(0), &check(6, m)), Ok(()));
    // The very same flow is replaced, and another port shares no packet.
    assert_eq!(o.flow_mod(at(0), &check(5, on_port(1))), Ok(()));
    assert_eq!(o.flow_mod(at(0), &check(5, on_port(2))), Ok(()));
}

#[test]
fn a_bundle_is_all_or_nothing() {
    let mut o = bridge(true);
    let mut host = FakeHost::default();
    o.flow_mod(at(0), &FlowMod { new_cookie: 1, ..fm(Command::Add, on_port(1), 5) }).unwrap();
    o.commit(&mut host);
    let mods = [
        FlowMod { new_cookie: 2, ..fm(Command::Add, on_port(1), 5) },
        fm(Command::Delete, Match::default(), 0),
        FlowMod { new_cookie: 3, ..fm(Command::Add, on_port(2), 6) },
        FlowMod { actions: Actions(vec![Action::Group(1)]), ..fm(Command::Add, on_port(3), 6) },
    ];
    assert_eq!(o.flow_mods(at(1), &mods), Err((3, OfError::BacBadOutGroup)));
    o.commit(&mut host);
    assert_eq!(flows(&o), [(5, 1, 1, 0)]);
    o.flow_mods(at(1), &mods[..3]).unwrap();
    o.commit(&mut host);
    assert_eq!(flows(&o), [(6, 3, 1, 0)]);
    o.collect_garbage();
    assert_eq!(flows(&o), [(6, 3, 1, 0)]);
}

#[test]
fn flows_expire() {
    let mut o = bridge(true);
    let mut host = FakeHost::default();
    o.flow_mod(at(0), &FlowMod { idle_timeout_s: 10, ..fm(Command::Add, on_port(1), 1) }).unwrap();
    o.flow_mod(at(0), &FlowMod { hard_timeout_s: 20, ..fm(Command::Add, on_port(2), 2) }).unwrap();
    o.commit(&mut host);
    let idle = o.all_rules().into_iter().find(|r| r.priority() == 1 && r.table == 0).unwrap();
    idle.credit(1, 60, at(8), 0);
    assert!(o.expire(at(11), &mut host) > Some(at(18)));
    assert_eq!(flows(&o).len(), 2);
    // Exactly at its time a flow is still there.
    o.expire(at(18), &mut host);
    assert_eq!(flows(&o).len(), 2);
    o.expire(at(19), &mut host);
    assert_eq!(flows(&o).len(), 1);
    // A modification starts the hard timeout anew.
    o.flow_mod(at(15), &fm(Command::Modify, on_port(2), 0)).unwrap();
    o.commit(&mut host);
    o.expire(at(30), &mut host);
    assert_eq!(flows(&o).len(), 1);
    assert_eq!(o.expire(at(36), &mut host), None);
    assert!(flows(&o).is_empty());
    assert!(host.pulls > 0);
}

#[test]
fn lowered_timeouts_are_noticed() {
    let mut o = bridge(true);
    let mut host = FakeHost::default();
    o.flow_mod(at(0), &FlowMod { idle_timeout_s: 600, ..fm(Command::Add, on_port(1), 1) }).unwrap();
    o.commit(&mut host);
    let r = o.all_rules().into_iter().find(|r| r.priority() == 1 && r.table == 0).unwrap();
    o.tables().reduce_timeouts(&r, 5, 0);
    o.expire(at(6), &mut host);
    assert!(flows(&o).is_empty());
}

#[test]
fn flow_restore_wait_holds_expiry() {
    let mut o = bridge(true);
    let mut host = FakeHost::default();
    o.set_settings(Settings { flow_restore_wait: true, ..o.settings().clone() }, at(0));
    o.flow_mod(at(0), &FlowMod { hard_timeout_s: 1, ..fm(Command::Add, on_port(1), 1) }).unwrap();
    o.commit(&mut host);
    o.expire(at(9), &mut host);
    assert_eq!(flows(&o).len(), 1);
}

#[test]
fn fail_modes() {
    let normal =
        |o: &Ofproto| o.tables().lookup(0, o.tables().version(), &FlowKey::default(), None).map(|r| r.priority());
    let mut host = FakeHost::default();
    assert_eq!(normal(&bridge(true)), None);
    let mut o = bridge(false);
    assert_eq!(normal(&o), Some(0));
    // A controller is configured: the flow goes; it stays away too long: fail-open.
    let spec = ControllerSpec {
        target: "tcp:c".into(),
        passive: false,
        probe_interval: at(5) - at(0),
        rate_limit: None,
        enable_async: true,
    };
    o.set_controllers(vec![spec], at(0));
    o.turn(at(0), 10, &mut host);
    assert_eq!(normal(&o), None);
    o.turn(at(14), 10, &mut host);
    assert_eq!(normal(&o), None);
    o.turn(at(15), 10, &mut host);
    assert_eq!(normal(&o), Some(rule::FAIL_OPEN_PRIORITY));
    // Controllers can neither see nor delete it.
    o.flow_mod(at(16), &FlowMod { table: 0xff, ..fm(Command::Delete, Match::default(), 0) }).unwrap();
    o.turn(at(16), 10, &mut host);
    assert_eq!(normal(&o), Some(rule::FAIL_OPEN_PRIORITY));
    o.set_controllers(vec![], at(17));
    o.turn(at(17), 10, &mut host);
    assert_eq!(normal(&o), Some(0));
    o.set_settings(Settings { fail_secure: true, ..o.settings().clone() }, at(18));
    o.turn(at(18), 10, &mut host);
    assert_eq!(normal(&o), None);
}

#[test]
fn a_full_table_refuses_or_evicts() {
    let mut o = bridge(true);
    let mut host = FakeHost::default();
    let t = o.tables().clone();
    let t = t.table(0).unwrap();
    t.set_max_flows(Some(2));
    let add = |p: u32, hard| FlowMod { hard_timeout_s: hard, ..fm(Command::Add, on_port(p), p as u16) };
    o.flow_mod(at(0), &add(1, 50)).unwrap();
    o.flow_mod(at(0), &add(2, 20)).unwrap();
    assert_eq!(o.flow_mod(at(0), &add(3, 9)), Err(OfError::FmfcTableFull));
    assert_eq!(o.flow_mod(at(0), &add(1, 50)), Ok(()));
    t.set_evicts(true);
    o.flow_mod(at(0), &add(3, 9)).unwrap();
    o.commit(&mut host);
    assert_eq!(flows(&o).iter().map(|f| f.0).collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn port_mods() {
    let mut o = bridge(true);
    let mut host = FakeHost::default();
    let m =
        |port_no, hw_addr, config, mask| PortMod { port_no, hw_addr, config, mask, advertise: PortFeatures::default() };
    let hw = o.port(OfPort(1)).unwrap().hw_addr;
    let flood = PortConfig::NO_FLOOD;
    let b = |name: &str, port| BundleView { name: name.into(), members: vec![OfPort(port)], ..BundleView::default() };
    o.set_bundles(vec![b("p1", 1), b("p2", 2)]);
    assert_eq!(o.port_mod(&m(OfPort(9), hw, flood, flood), false, &mut host), Err(OfError::PmfcBadPort));
    assert_eq!(o.port_mod(&m(OfPort(1), [9; 6], flood, flood), false, &mut host), Err(OfError::PmfcBadHwAddr));
    o.port_mod(&m(OfPort(1), hw, flood, flood), false, &mut host).unwrap();
    let down = PortConfig::PORT_DOWN;
    o.port_mod(&m(OfPort(1), [0; 6], down, down), true, &mut host).unwrap();
    assert_eq!(o.port(OfPort(1)).unwrap().config, flood.with(down));
    assert!(!o.port(OfPort(1)).unwrap().may_output());
    assert_eq!(host.admin, [(OfPort(1), false)]);
    o.turn(at(1), 10, &mut host);
    let view = host.views.last().unwrap();
    assert!(view.port(OfPort(1)).unwrap().config.has(flood));
    assert_eq!(view.bundles.iter().map(|b| b.floodable).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn port_numbers_are_reused_late() {
    let mut o = bridge(true);
    assert_eq!(o.alloc_port(Some(OfPort(7))), Some(OfPort(7)));
    assert_eq!(o.alloc_port(Some(OfPort(1))), Some(OfPort(3)));
    assert_eq!(o.alloc_port(None), Some(OfPort(4)));
    o.remove_port(OfPort(1));
    assert_eq!(o.alloc_port(None), Some(OfPort(5)));
}

#[test]
fn bundles_keep_their_ids() {
    let mut o = bridge(true);
    let b = |name: &str, port| BundleView { name: name.into(), members: vec![OfPort(port)], ..BundleView::default() };
    o.set_bundles(vec![b("p1", 1), b("p2", 2)]);
    o.mac_table().learn(at(0), 0, [2; 6], 0, fv_l2::Learn::default());
    o.mac_table().learn(at(0), 0, [4; 6], 1, fv_l2::Learn::default());
    o.set_bundles(vec![b("p2", 2)]);
    assert_eq!(
        (o.mac_table().len(), o.port(OfPort(1)).unwrap().bundle, o.port(OfPort(2)).unwrap().bundle),
        (1, None, Some(1))
    );
    o.set_bundles(vec![b("p3", 1), b("p2", 2)]);
    assert_eq!(o.view().bundle_of(OfPort(1)).unwrap().0, 0);
    assert_eq!(o.mac_table().lookup(0, [4; 6]).unwrap().port, 1);
}

/// Translations on other threads, while two tables are changed together over and over: a snapshot
/// always finds a flow in both, and the same generation of it.
#[test]
fn a_snapshot_never_sees_half_a_change() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let mut o = bridge(true);
    let mut host = FakeHost::default();
    let mods = |cookie| [0u8, 1].map(|table| FlowMod { table, new_cookie: cookie, ..fm(Command::Add, on_port(1), 5) });
    o.flow_mods(at(0), &mods(0)).unwrap();
    o.turn(at(0), 10, &mut host);
    let (tables, stop) = (o.tables().clone(), AtomicBool::new(false));
    std::thread::scope(|s| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                s.spawn(|| {
                    let mut n = 0u64;
                    while n == 0 || !stop.load(Ordering::Relaxed) {
                        let snap = tables.snapshot();
                        let cookie = |t| snap.lookup(t, &on_port(1).key, None).map(|r| r.cookie);
                        let first = cookie(0);
                        assert!(first.is_some());
                        assert_eq!(first, cookie(1));
                        n += 1;
                    }
                })
            })
            .collect();
        for i in 1..2000 {
            o.flow_mods(at(0), &mods(i)).unwrap();
            o.turn(at(0), 10, &mut host);
        }
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|r| r.join().unwrap());
    });
    // Nothing that was replaced is kept.
    while o.collect_garbage() {}
    assert_eq!(tables.flow_count(), 2);
}
