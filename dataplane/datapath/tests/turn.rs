//! The whole turn over devices in memory.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use fv_core::{DpPort, Nanos, RecircId};
use fv_datapath::{CacheUse, Stat, WorkerKind};
use fv_dpif::{Datapath, DpAction, DpError, DropReason, FlowPut, Program, Userspace, Verdict, WorkerId};
use fv_flow::{DpKey, DpMask};
use fv_netdev::Polling;
use fv_packet::Packet;

/// Forwards to port 2 whatever port 1 gets.
fn to_two() -> Arc<Control> {
    Control::new(|_| forward(vec![output(2)], dst_mask()))
}

#[test]
fn a_miss_installs_and_later_packets_hit() {
    let (dp, dev) = switch(2);
    let control = to_two();
    dp.set_upcall_handler(Some(control.clone()));
    dev[0].inject(&udp(5, 0));
    turn(&dp);
    for tag in 1..4 {
        dev[0].inject(&udp(5, tag));
    }
    dev[0].inject(&udp(6, 9));
    turn(&dp);
    let sent = dev[1].sent();
    assert_eq!(sent[0], udp(5, 0));
    assert_eq!(sent.iter().map(|f| tag_of(f)).collect::<Vec<_>>(), [0, 1, 2, 3, 9]);
    assert_eq!(control.misses(), 2);
    assert!(control.installed.lock().iter().all(|(_, ok)| *ok));
    assert_eq!((dp.stats().hit, dp.stats().missed, dp.stats().flows), (3, 2, 2));
    // The packet that missed is the control plane's to count, as in the reference.
    let flow = dp.flow_get(control.installed.lock()[0].0).unwrap();
    assert_eq!((flow.stats.packets, flow.stats.bytes), (3, 180));
    assert_eq!(flow.stats.used, Some(Nanos::from_secs(1000)));
    assert_eq!(flow.worker, WorkerId::MAIN);
    check_conserved(&dp);
}

#[test]
fn flows_of_a_burst_keep_their_order() {
    let (dp, dev) = switch(2);
    let control = to_two();
    dp.set_upcall_handler(Some(control.clone()));
    for round in 0..6 {
        for tag in 0..200u32 {
            dev[0].inject(&udp(tag % 7 + round, round << 16 | tag));
        }
        turn(&dp);
        let mut last = [None; 16];
        for frame in dev[1].sent() {
            let flow = usize::from(frame[33]);
            assert!(last[flow] < Some(tag_of(&frame)), "overtaken");
            last[flow] = Some(tag_of(&frame));
        }
    }
    assert_eq!(control.misses(), 12);
    check_conserved(&dp);
}

#[test]
fn without_control_packets_are_lost_and_counted() {
    let (dp, dev) = switch(2);
    let before = DropReason::UpcallError.counter().value();
    dev[0].inject(&udp(5, 0));
    turn(&dp);
    assert!(DropReason::UpcallError.counter().value() > before);
    assert_eq!((dp.stats().missed, dp.stats().lost), (1, 1));
    let before = DropReason::RxInvalidPacket.counter().value();
    dev[0].inject(&[0; 13]);
    turn(&dp);
    assert!(DropReason::RxInvalidPacket.counter().value() > before);
    assert_eq!((dp.stats().missed, total(&dp, Stat::Dropped)), (1, 2));
}

#[test]
fn a_deleted_flow_never_matches_again() {
    let (dp, dev) = switch(2);
    let control = to_two();
    dp.set_upcall_handler(Some(control.clone()));
    dp.set_cache_use(CacheUse::Inverse(1));
    for _ in 0..3 {
        dev[0].inject(&udp(5, 0));
        turn(&dp);
    }
    assert_eq!(total(&dp, Stat::CacheHit), 1);
    let ufid = control.installed.lock()[0].0;
    assert_eq!(dp.flow_del(ufid).unwrap().packets, 2);
    assert_eq!(dp.flow_del(ufid), Err(DpError::NotFound));
    assert_eq!(dp.flow_count(), 0);
    dev[0].inject(&udp(5, 0));
    turn(&dp);
    assert_eq!((control.misses(), dp.flow_count()), (2, 1));
    dp.flow_flush();
    assert_eq!(dp.flow_count(), 0);
    dev[0].inject(&udp(5, 0));
    turn(&dp);
    assert_eq!(control.misses(), 3);
    assert_eq!(dp.with_main(|w| w.table_size()), Some((1, 1)));
}

#[test]
fn put_get_modify_dump() {
    let (dp, dev) = switch(3);
    dp.set_upcall_handler(Some(to_two()));
    let mut key = DpKey::default();
    key.base.in_port = 1;
    key.base.dl_type = 0x800.into();
    key.base.nw_dst = 0x0a00_0005.into();
    let put = |actions, create, modify| FlowPut {
        key,
        mask: dst_mask(),
        program: program(actions),
        ufid: None,
        create,
        modify,
        worker: None,
    };
    assert_eq!(dp.flow_put(put(vec![output(3)], false, true)), Err(DpError::NotFound));
    assert_eq!(dp.flow_put(put(vec![output(3)], true, false)), Ok(None));
    assert_eq!(dp.flow_put(put(vec![output(3)], true, false)), Err(DpError::Exists));
    let wider = FlowPut { mask: DpMask::default(), ..put(vec![output(3)], true, false) };
    assert_eq!(dp.flow_put(wider), Err(DpError::Exists), "overlap");
    dev[0].inject(&udp(5, 1));
    turn(&dp);
    assert_eq!(dev[2].sent().len(), 1);
    let before = dp.flow_put(put(vec![output(2), output(3)], false, true)).unwrap().unwrap();
    assert_eq!((before.packets, before.bytes), (1, 60));
    dev[0].inject(&udp(5, 2));
    turn(&dp);
    assert_eq!((dev[1].sent().len(), dev[2].sent().len()), (1, 1));
    let mut flows = Vec::new();
    dp.flow_dump(&mut |flow| {
        flows.push(flow);
        true
    });
    assert_eq!((flows.len(), flows[0].stats.packets), (1, 2));
    assert_eq!(flows[0].program.actions, [output(2), output(3)]);
    assert_eq!(flows[0].mask.0.base.in_port, u32::MAX);
    check_conserved(&dp);
}

#[test]
fn recirculation_is_bounded() {
    let (dp, dev) = switch(2);
    let control = Control::new(|key| {
        let id = RecircId(key.base.recirc_id);
        let actions = if key.base.nw_dst.get() & 255 == 1 {
            vec![DpAction::Recirc(RecircId(7))]
        } else if id.0 == 0 {
            vec![DpAction::Recirc(RecircId(1)), output(2)]
        } else {
            vec![output(2)]
        };
        forward(actions, dst_mask())
    });
    dp.set_upcall_handler(Some(control.clone()));
    dev[0].inject(&udp(2, 0));
    turn(&dp);
    assert_eq!(dev[1].sent().len(), 2);
    let before = DropReason::RecircError.counter().value();
    dev[0].inject(&udp(1, 0));
    turn(&dp);
    // Tests share the counters.
    assert!(DropReason::RecircError.counter().value() > before);
    assert_eq!(total(&dp, Stat::Recirculated), 1 + 8);
    assert_eq!(control.misses(), 4);
    check_conserved(&dp);
}

#[test]
fn a_storm_of_recirculating_copies_ends() {
    let (dp, dev) = switch(2);
    let again = || DpAction::Recirc(RecircId(1));
    let control = Control::new(move |_| forward((0..16).map(|_| again()).collect(), dst_mask()));
    dp.set_upcall_handler(Some(control));
    dev[0].inject(&udp(1, 0));
    turn(&dp);
    check_conserved(&dp);
}

#[test]
fn other_flows_verdicts_do_not_install() {
    let (dp, dev) = switch(2);
    let control = Control::new(|_| Verdict::Forward {
        program: program(vec![output(2)]),
        mask: DpMask::default(),
        install: false,
    });
    dp.set_upcall_handler(Some(control.clone()));
    for _ in 0..2 {
        dev[0].inject(&udp(1, 0));
    }
    turn(&dp);
    assert_eq!((control.misses(), dev[1].sent().len(), dp.flow_count()), (2, 2, 0));
}

#[test]
fn ports_come_and_go() {
    let (dp, dev) = switch(3);
    dp.set_upcall_handler(Some(Control::new(|_| forward(vec![output(2), output(3)], dst_mask()))));
    let taken = Mem::new("p2", Polling::Main, 1);
    assert_eq!(dp.add_port(taken, None), Err(DpError::Exists));
    assert_eq!(dp.add_port(Mem::new("x", Polling::Main, 1), Some(DpPort(2))), Err(DpError::Exists));
    assert_eq!(dp.add_port(Mem::new("br0", Polling::Main, 1), None), Ok(DpPort(100)));
    assert_eq!(dp.add_port(Mem::new("x", Polling::Main, 1), None), Ok(DpPort(4)));
    dev[0].inject(&udp(5, 0));
    turn(&dp);
    let before = DropReason::InvalidPort.counter().value();
    assert!(dp.del_port(DpPort(2)).unwrap().wait(Duration::from_secs(5)));
    assert_eq!(Arc::strong_count(&dev[1].wires[0]), 1, "queues are closed");
    dev[0].inject(&udp(5, 0));
    turn(&dp);
    assert_eq!((dev[1].sent().len(), dev[2].sent().len()), (1, 2));
    assert!(DropReason::InvalidPort.counter().value() > before);
    assert_eq!(dp.del_port(DpPort(2)).err(), Some(DpError::NoSuchPort));
    dp.reopen_port(DpPort(1), Duration::from_secs(5)).unwrap();
    dev[0].inject(&udp(5, 0));
    turn(&dp);
    assert_eq!(dev[2].sent().len(), 1);
    let names: Vec<_> = dp.ports().into_iter().map(|p| (p.port.0, p.name)).collect();
    assert_eq!(names.len(), 4);
    assert_eq!(dp.port_by_name("x"), Some(DpPort(4)));
    check_conserved(&dp);
}

#[test]
fn a_full_device_drops_and_counts() {
    let (dp, dev) = switch(2);
    dp.set_upcall_handler(Some(to_two()));
    dev[1].wires[0].room.store(3, std::sync::atomic::Ordering::Relaxed);
    for _ in 0..10 {
        dev[0].inject(&udp(5, 0));
    }
    turn(&dp);
    assert_eq!((dev[1].sent().len(), total(&dp, Stat::Dropped)), (3, 7));
    check_conserved(&dp);
}

#[test]
fn execute_from_inside_an_upcall() {
    let (dp, dev) = switch(2);
    let weak = Arc::downgrade(&dp);
    let control = Control::new(move |key| {
        let program = Program::new(vec![output(1), DpAction::Recirc(RecircId(5))]);
        if key.base.recirc_id == 0 {
            weak.upgrade().unwrap().execute(Packet::from_slice(&udp(9, 77)), key, &program);
        }
        forward(vec![output(2)], dst_mask())
    });
    dp.set_upcall_handler(Some(control.clone()));
    dev[0].inject(&udp(5, 0));
    turn(&dp);
    assert_eq!(dev[0].sent().iter().map(|f| tag_of(f)).collect::<Vec<_>>(), [77]);
    assert_eq!(dev[1].sent().len(), 2);
    assert_eq!(control.misses(), 2);
    check_conserved(&dp);
}

#[test]
fn a_cut_lasts_until_the_next_output() {
    let (dp, dev) = switch(3);
    let clone = DpAction::Clone(vec![output(2)]);
    let actions = vec![DpAction::Trunc(30), clone, output(3), output(3)];
    dp.set_upcall_handler(Some(Control::new(move |_| forward(actions.clone(), dst_mask()))));
    dev[0].inject(&udp(5, 0));
    turn(&dp);
    let lengths = |d: &Mem| d.sent().iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!((lengths(&dev[1]), lengths(&dev[2])), (vec![30], vec![30, 60]));
}

#[test]
fn a_turn_within_a_turn_is_idle_and_one_beside_it_is_not() {
    let (dp, dev) = switch(2);
    let weak = Arc::downgrade(&dp);
    let control = Control::new(move |_| {
        let dp = weak.upgrade().unwrap();
        assert!(!dp.turn_main(Nanos::ZERO, 1).busy());
        let beside = std::thread::spawn(move || dp.turn_main(Nanos::ZERO, 1).busy());
        assert!(beside.join().unwrap());
        forward(vec![output(2)], dst_mask())
    });
    dp.set_upcall_handler(Some(control.clone()));
    dev[0].inject(&udp(5, 0));
    turn(&dp);
    assert_eq!((control.misses(), dev[1].sent().len()), (1, 1));
}

#[test]
fn userspace_gets_packet_and_key_as_they_are_there() {
    let (dp, dev) = switch(2);
    let what = Userspace::Data(vec![1, 2]);
    let punt = DpAction::Userspace { what, pid: 0, with_actions: false, tunnel_out_port: None };
    let push = DpAction::PushVlan { tpid: 0x8100, tci: 0x1005 };
    let actions = vec![punt.clone(), push, DpAction::Trunc(40), punt, output(2)];
    let control = Control::new(move |_| forward(actions.clone(), dst_mask()));
    dp.set_upcall_handler(Some(control.clone()));
    dev[0].inject(&udp(5, 3));
    turn(&dp);
    let seen = control.actions.lock();
    assert_eq!(seen[0].0, udp(5, 3));
    assert_eq!(seen[0].1.base.vlans[0].tci.get(), 0);
    assert_eq!(seen[1].0.len(), 40);
    assert_eq!(seen[1].1.base.vlans[0].tci.get(), 0x1005);
    assert_eq!(dev[1].sent()[0].len(), 64, "a cut is for one action only");
    drop(seen);
    check_conserved(&dp);
}

#[test]
fn misses_beyond_the_budget_wait_in_order() {
    let (dp, dev) = switch(2);
    let polled = Mem::new("p8", Polling::Poll, 1);
    dp.add_port(polled.clone(), None).unwrap();
    let mut worker = dp.new_worker(WorkerId(0), WorkerKind::Poll, Some(0)).unwrap();
    let control = to_two();
    dp.set_upcall_handler(Some(control.clone()));
    let ack = dp.deal_all();
    assert!(ack.is_done());
    for tag in 0..400 {
        polled.inject(&udp(tag % 100, tag));
    }
    let first = worker.turn(Nanos::from_secs(1), 1000);
    assert_eq!(first.packets, 400);
    assert!(first.more);
    assert!(total(&dp, Stat::Deferred) > 0);
    while worker.turn(Nanos::from_secs(1), 1000).busy() {}
    let mut last = [None; 100];
    let sent = dev[1].sent();
    assert_eq!(sent.len(), 400);
    for frame in sent {
        let (flow, tag) = (usize::from(frame[33]), tag_of(&frame));
        assert!(last[flow] < Some(tag), "flow {flow} overtaken");
        last[flow] = Some(tag);
    }
    assert_eq!(control.misses(), 100);
    check_conserved(&dp);
    dp.remove_worker(worker);
    polled.inject(&udp(1, 0));
    turn(&dp);
    assert_eq!(dev[1].sent().len(), 1, "the control thread has the queue now");
}

mod random {
    use super::*;
    use fv_dpif::action::{HashAlg, Masked, SetField};
    use proptest::prelude::*;

    fn action() -> impl Strategy<Value = DpAction> {
        let ttl = Masked { value: 9, mask: 255 };
        let (none, tos) = (Masked::default(), Masked::default());
        let simple = prop_oneof![
            4 => (1u32..6).prop_map(output),
            1 => Just(DpAction::PushVlan { tpid: 0x8100, tci: 0x1007 }),
            1 => Just(DpAction::PopVlan),
            1 => Just(DpAction::PushMpls { lse: 0x1140, eth_type: 0x8847 }),
            1 => Just(DpAction::PopMpls { eth_type: 0x800 }),
            1 => Just(DpAction::PopEth),
            1 => Just(DpAction::PushEth { src: [2; 6], dst: [4; 6] }),
            1 => Just(DpAction::Set(SetField::Ipv4 { src: none, dst: none, tos, ttl })),
            2 => (1u32..4).prop_map(|id| DpAction::Recirc(RecircId(id))),
            1 => Just(DpAction::Hash(HashAlg::SymL4 { basis: 1 })),
            1 => Just(DpAction::CtClear),
            1 => Just(DpAction::Ct(Box::default())),
            1 => (14u32..80).prop_map(DpAction::Trunc),
            1 => Just(DpAction::TunnelPop(DpPort(1))),
            1 => Just(DpAction::Drop(1)),
            1 => Just(DpAction::Userspace {
                what: Userspace::Data(vec![]), pid: 0, with_actions: false, tunnel_out_port: None,
            }),
        ];
        simple.prop_recursive(3, 16, 4, |inner| {
            let list = proptest::collection::vec(inner, 0..4);
            prop_oneof![
                list.clone().prop_map(DpAction::Clone),
                list.clone().prop_map(|exception| DpAction::DecTtl { exception }),
                (any::<u32>(), list.clone())
                    .prop_map(|(probability, actions)| DpAction::Sample { probability, actions }),
                (40u16..80, list.clone(), list)
                    .prop_map(|(size, greater, less_equal)| { DpAction::CheckPktLen { size, greater, less_equal } }),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever programs do, every packet ends in exactly one place.
        #[test]
        fn packets_are_conserved(
            programs in proptest::collection::vec(proptest::collection::vec(action(), 0..6), 4),
            packets in proptest::collection::vec((0u32..6, 14usize..60), 1..40),
            install: bool,
        ) {
            let (dp, dev) = switch(3);
            let control = Control::new(move |key| Verdict::Forward {
                program: program(programs[key.base.recirc_id as usize % 4].clone()),
                mask: dst_mask(),
                install,
            });
            dp.set_upcall_handler(Some(control));
            for (dst, len) in &packets {
                let frame = udp(*dst, 0);
                dev[*dst as usize % 3].inject(if dst % 2 == 0 { &frame } else { &frame[..*len] });
            }
            turn(&dp);
            check_conserved(&dp);
            prop_assert_eq!(total(&dp, Stat::Received), packets.len() as u64);
        }
    }
}
