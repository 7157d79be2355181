//! Groups and meters of the model.

use std::sync::Arc;

use fv_classifier::{ClsRule, MiniMatch};
use fv_flow::Match;
use fv_openflow::action::Action;
use fv_openflow::msg::group::*;
use fv_openflow::msg::meter::*;
use fv_openflow::{Actions, OfError};

use super::{FakeHost, at, bridge};
use crate::*;

fn bucket(id: u32, actions: Vec<Action>) -> Bucket {
    Bucket { bucket_id: id, actions: Actions(actions), ..Bucket::default() }
}

/// A group of type all whose buckets send to groups.
fn to_groups(command: GroupCommand, id: u32, groups: &[u32]) -> GroupMod {
    let buckets = groups.iter().enumerate().map(|(i, g)| bucket(i as u32, vec![Action::Group(*g)])).collect();
    GroupMod { command, group_id: id, buckets, ..GroupMod::default() }
}

#[test]
fn loops_are_refused() {
    let mut o = bridge(true);
    let mut check = |command, id, groups: &[u32], want| {
        assert_eq!(o.group_mod(at(1), &to_groups(command, id, groups)), want, "{id} {groups:?}");
    };
    use GroupCommand::{Add, AddOrModify, InsertBucket, Modify};
    check(Add, 1, &[1], Err(OfError::GmfcLoop));
    check(Add, 1, &[2, 3], Ok(()));
    check(Add, 2, &[4], Ok(()));
    check(Add, 3, &[4], Ok(()));
    check(Add, 4, &[1], Err(OfError::GmfcLoop));
    check(AddOrModify, 4, &[5], Ok(()));
    check(Modify, 4, &[3], Err(OfError::GmfcLoop));
    let insert = GroupMod { command_bucket_id: BUCKET_LAST, ..to_groups(InsertBucket, 4, &[9, 9, 2]) };
    let insert = GroupMod { buckets: insert.buckets[2..].to_vec(), ..insert };
    assert_eq!(o.group_mod(at(1), &insert), Err(OfError::GmfcLoop));
    assert_eq!(o.groups()[&4].buckets.len(), 1);
}

#[test]
fn a_buckets_counter_survives_its_neighbours() {
    let mut o = bridge(true);
    let add = GroupMod { group_id: 1, buckets: vec![bucket(5, vec![]), bucket(6, vec![])], ..GroupMod::default() };
    o.group_mod(at(1), &add).unwrap();
    let g = o.groups()[&1].clone();
    g.credit(None, 1, 100);
    g.credit(Some(1), 2, 200);
    assert_eq!(g.stats.read(), (3, 300));
    let insert = GroupMod {
        command: GroupCommand::InsertBucket,
        command_bucket_id: 5,
        buckets: vec![bucket(7, vec![])],
        ..add.clone()
    };
    o.group_mod(at(9), &insert).unwrap();
    // A translation that still has the old group counts for the same bucket.
    g.credit(Some(1), 1, 100);
    let s = &o.group_stats(1, at(11))[0];
    assert_eq!((s.packets, s.duration), (0, Some((10, 0))));
    assert_eq!(s.buckets, [(1, 100), (0, 0), (4, 400)]);
    o.group_mod(at(12), &GroupMod { command: GroupCommand::Modify, ..add }).unwrap();
    assert_eq!(o.group_stats(1, at(13))[0].buckets, [(0, 0), (0, 0)]);
    assert_eq!(o.group_stats(1, at(13))[0].duration, Some((12, 0)));
}

/// A flow that is in the table although flow-mods may not add it yet.
fn add_flow(o: &mut Ofproto, actions: Vec<Action>) -> RuleRef {
    let rule = Rule::new(3, 0, Arc::new(Actions(actions)), at(0));
    let rule = Arc::new(ClsRule::new(MiniMatch::new(&Match::default()), 7, rule));
    let mut steps = Vec::new();
    o.add_step(rule.clone(), &mut steps);
    o.finish(at(0), steps);
    o.commit(&mut FakeHost::default());
    rule
}

#[test]
fn what_is_deleted_takes_its_flows_along() {
    let band = Band { kind: BandKind::Drop, rate: 1000, burst: 0 };
    let meter = MeterConfig { meter_id: 4, flags: MeterFlags::KBPS, bands: vec![band] };
    for by_group in [true, false] {
        let mut o = bridge(true);
        o.group_mod(at(1), &GroupMod { group_id: 4, ..GroupMod::default() }).unwrap();
        o.meter_mod(at(1), &MeterMod { command: MeterCommand::Add, config: meter.clone() }).unwrap();
        let user = if by_group { Action::Group(4) } else { Action::Meter(4) };
        let flow = add_flow(&mut o, vec![Action::WriteActions(Actions(vec![user]))]);
        assert_eq!(o.group_stats(4, at(2))[0].ref_count, u32::from(by_group));
        assert_eq!(o.meter_stats(4, at(2)).unwrap()[0].flow_count, u32::from(!by_group));
        let mut host = FakeHost::default();
        if by_group {
            let delete = GroupMod { command: GroupCommand::Delete, group_id: GROUP_ALL, ..GroupMod::default() };
            o.group_mod(at(3), &delete).unwrap();
        } else {
            let config = MeterConfig { meter_id: METER_ALL, ..meter.clone() };
            o.meter_mod(at(3), &MeterMod { command: MeterCommand::Delete, config }).unwrap();
        }
        o.commit(&mut host);
        assert!(flow.removed_at().is_some());
        assert_eq!(o.tables().flow_count(), 0);
        assert_eq!((o.groups().is_empty(), o.meters().is_empty()), (by_group, !by_group));
        o.publish_view(&mut host);
        let view = host.views.pop().unwrap();
        assert_eq!((view.groups.is_empty(), view.meters.is_empty()), (by_group, !by_group));
    }
}

#[test]
fn a_failed_bundle_leaves_groups_as_they_were() {
    use crate::flow_mod::ChangeRef;
    let mut o = bridge(true);
    o.group_mod(at(1), &to_groups(GroupCommand::Add, 1, &[7])).unwrap();
    let flow = add_flow(&mut o, vec![Action::Group(1)]);
    let (old, n) = (o.groups()[&1].clone(), o.groups().len());
    let mods = [
        to_groups(GroupCommand::Modify, 1, &[8]),
        to_groups(GroupCommand::Add, 2, &[8]),
        to_groups(GroupCommand::Delete, 1, &[]),
        to_groups(GroupCommand::Add, 2, &[9]),
    ];
    let r = o.changes(at(2), mods.iter().map(ChangeRef::Group));
    assert_eq!(r, Err((3, OfError::GmfcGroupExists)));
    assert!(Arc::ptr_eq(&o.groups()[&1], &old) && o.groups().len() == n);
    assert!(flow.removed_at().is_none());
    assert_eq!(o.group_stats(1, at(3))[0].ref_count, 1);
}

#[test]
fn what_a_meter_may_be() {
    let mut o = bridge(true);
    let mut check = |command, meter_id, flags: MeterFlags, bands: &[(BandKind, u32)], want| {
        let bands = bands.iter().map(|(kind, rate)| Band { kind: *kind, rate: *rate, burst: 0 }).collect();
        let m = MeterMod { command, config: MeterConfig { meter_id, flags, bands } };
        assert_eq!(o.meter_mod(at(1), &m), want, "{m:?}");
    };
    use MeterCommand::{Add, Modify};
    let drop = [(BandKind::Drop, 10); 9];
    check(Add, 1, MeterFlags::KBPS, &drop[..1], Ok(()));
    check(Add, 1, MeterFlags::KBPS, &drop[..1], Err(OfError::MmfcMeterExists));
    check(Add, METER_MAX, MeterFlags::PKTPS.with(MeterFlags::STATS), &drop[..8], Ok(()));
    for id in [0, METER_MAX + 1, METER_SLOWPATH, METER_CONTROLLER, METER_ALL] {
        check(Add, id, MeterFlags::KBPS, &drop[..1], Err(OfError::MmfcInvalidMeter));
    }
    check(Add, 2, MeterFlags::KBPS, &drop, Err(OfError::MmfcOutOfBands));
    check(Add, 2, MeterFlags::KBPS, &[(BandKind::DscpRemark { prec_level: 1 }, 1)], Err(OfError::MmfcBadBand));
    check(Add, 2, MeterFlags::BURST, &drop[..1], Err(OfError::MmfcBadFlags));
    check(Modify, 2, MeterFlags::KBPS, &drop[..1], Err(OfError::MmfcUnknownMeter));
    check(Modify, 1, MeterFlags(1 << 7 | 1), &drop[..1], Err(OfError::MmfcBadFlags));
    check(Modify, 1, MeterFlags::PKTPS, &drop[..2], Ok(()));
    assert_eq!(o.meter_stats(1, at(2)).unwrap()[0].bands.len(), 2);
}

#[test]
fn others_hear_of_changes_if_they_ask() {
    use super::conn::{Net, error_of};
    use fv_openflow::Version;
    use fv_openflow::msg::{AsyncConfig, Body};
    let (v, old) = (Version::V15, Version::V10);
    let mut n = Net::new();
    let (by, asks, silent) = (n.open(Kind::Primary, old), n.open(Kind::Primary, v), n.open(Kind::Primary, v));
    for c in [asks, silent] {
        let requestforward = [u32::from(c == asks), 0];
        n.ask(c, v, Body::SetAsync(AsyncConfig { requestforward, given: 1 << 5, ..AsyncConfig::default() }));
    }
    let add = GroupMod { group_id: 1, buckets: vec![bucket(5, vec![])], ..GroupMod::default() };
    assert_eq!(n.ask(by, old, Body::GroupMod(Box::new(add.clone()))), []);
    let heard = n.read(asks);
    let [m] = &heard[..] else { panic!("{heard:?}") };
    let Body::RequestForward(inner) = &m.body else { panic!("{m:?}") };
    assert_eq!((inner.version, inner.xid, &inner.body), (v, 7, &Body::GroupMod(Box::new(add.clone()))));
    // What is refused did not happen.
    assert_eq!(error_of(&n.ask(by, old, Body::GroupMod(Box::new(add)))), Some(OfError::GmfcGroupExists));
    assert!(n.read(asks).is_empty() && n.read(silent).is_empty());
}
