//! Flows that packets teach.

use fv_core::Nanos;
use fv_openflow::action::{Action, Learn, LearnFlags};
use fv_openflow::msg::flow::{FlowMod, FlowModCommand};

use super::*;
use crate::learn::{LearnJob, Learned};

fn job(port: u32, limit: u32) -> Arc<LearnJob> {
    let flow = FlowMod {
        command: FlowModCommand::ModifyStrict,
        match_: on_port(port),
        table: 1,
        new_cookie: 7,
        modify_cookie: true,
        idle_timeout_s: 10,
        actions: output(2),
        ..FlowMod::default()
    };
    Arc::new(LearnJob { flow, limit })
}

fn learner(limit: u32, delete_learned: bool) -> FlowMod {
    let learn = Learn {
        idle_timeout_s: 10,
        hard_timeout_s: 0,
        priority: 0x8000,
        table: 1,
        cookie: 7,
        fin_idle_timeout_s: 0,
        fin_hard_timeout_s: 0,
        flags: LearnFlags { send_flow_rem: false, delete_learned },
        limit,
        result_dst: None,
        specs: vec![],
    };
    FlowMod { table: 0, actions: Actions(vec![Action::Learn(Box::new(learn))]), ..FlowMod::default() }
}

fn learned(o: &Ofproto) -> Vec<RuleRef> {
    o.all_rules().into_iter().filter(|r| r.table == 1).collect()
}

#[test]
fn the_next_lookup_finds_what_a_packet_taught() {
    let (mut o, mut host) = (bridge(true), FakeHost::default());
    let tables = o.tables().clone();
    assert_eq!(tables.learn(&job(1, 0), at(1)), Learned::Added);
    assert!(tables.lookup(1, tables.version(), &on_port(1).key, None).is_some());
    assert_eq!(tables.learn(&job(1, 0), at(5)), Learned::Refreshed);
    // Another cookie is another flow: control puts it in the place of the first.
    let mut other = (*job(1, 0)).clone();
    other.flow.new_cookie = 8;
    assert_eq!(tables.learn(&Arc::new(other), at(6)), Learned::Waiting);
    o.make_learned(&mut host);
    let rules = learned(&o);
    assert_eq!((rules.len(), rules[0].cookie, tables.has_learned()), (1, 8, false));
    // The timers know it.
    o.expire(at(20), &mut host);
    assert!(learned(&o).is_empty());
}

#[test]
fn a_limit_holds_whoever_teaches() {
    let (mut o, mut host) = (bridge(true), FakeHost::default());
    o.flow_mod(at(0), &learner(5, false)).unwrap();
    o.commit(&mut host);
    let tables = o.tables().clone();
    let added: usize = std::thread::scope(|s| {
        let teach = |first: u32| {
            let tables = &tables;
            s.spawn(move || (first..first + 100).filter(|p| tables.learn(&job(*p, 5), at(1)) == Learned::Added).count())
        };
        let threads = [teach(0), teach(100), teach(50)];
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    o.make_learned(&mut host);
    // Those that met another thread were left to control, which keeps to the limit too.
    assert!(added <= 5, "{added}");
    assert_eq!(learned(&o).len(), 5);
    o.expire(at(100), &mut host);
    assert_eq!(tables.learn(&job(1, 5), at(101)), Learned::Added, "there is room again");
}

#[test]
fn many_threads_and_control_leave_each_flow_once() {
    let (mut o, mut host) = (bridge(true), FakeHost::default());
    let tables = o.tables().clone();
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                for p in 0..300 {
                    let _ = tables.learn(&job(p, 0), at(1));
                }
            });
        }
        for p in 0..300 {
            o.flow_mod(at(1), &FlowMod { command: FlowModCommand::Add, ..job(p, 0).flow.clone() }).unwrap();
            o.commit(&mut host);
        }
    });
    o.make_learned(&mut host);
    let mut ports: Vec<u32> = learned(&o).iter().map(|r| r.matches().expand().key.base.in_port).collect();
    ports.sort_unstable();
    assert_eq!(ports, (0..300).collect::<Vec<_>>());
}

#[test]
fn learned_flows_go_with_the_last_who_taught_them() {
    let (mut o, mut host) = (bridge(true), FakeHost::default());
    let second = FlowMod { priority: 3, ..learner(0, true) };
    for fm in [&learner(0, true), &second] {
        o.flow_mod(at(0), fm).unwrap();
    }
    o.commit(&mut host);
    assert_eq!(o.tables().learn(&job(1, 0), at(1)), Learned::Added);
    o.make_learned(&mut host);
    let delete = |fm: &FlowMod| FlowMod { command: FlowModCommand::DeleteStrict, ..fm.clone() };
    o.flow_mod(at(2), &delete(&second)).unwrap();
    o.commit(&mut host);
    assert_eq!(learned(&o).len(), 1);
    // Replaced by one that teaches the same, they stay.
    o.flow_mod(at(2), &learner(0, true)).unwrap();
    o.commit(&mut host);
    assert_eq!(learned(&o).len(), 1);
    o.flow_mod(at(3), &delete(&learner(0, true))).unwrap();
    o.commit(&mut host);
    assert!(learned(&o).is_empty());
    assert_eq!(o.tables().learn(&job(2, 0), Nanos(at(4).0)), Learned::Added);
}
