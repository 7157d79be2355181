//! Flow monitors: who hears of what, and when.

use fv_openflow::action::Action;
use fv_openflow::msg::flow::FlowMod;
use fv_openflow::msg::monitor::*;
use fv_openflow::msg::stats::{Multipart, Reply, Request};
use fv_openflow::msg::{Body, FlowModCommand};
use fv_openflow::{Actions, OfError, Version};

use super::conn::{Net, add_flow, error_of};
use super::*;

const V: Version = Version::V14;
const PAUSED: u32 = 1_000_001;
const RESUMED: u32 = 1_000_002;
const CHANGES: MonitorFlags = MonitorFlags(0xe);

fn monitor(id: u32, flags: MonitorFlags) -> MonitorRequest {
    MonitorRequest { id, flags, ..MonitorRequest::default() }
}

fn request(all: &[MonitorRequest]) -> Body {
    Body::MultipartRequest(Multipart { more: false, body: Request::FlowMonitor(all.to_vec()) })
}

/// Event and priority of each update; an abbreviation is its message's number.
fn updates(bodies: &[Body]) -> Vec<(Option<MonitorEvent>, u32)> {
    let mut out = Vec::new();
    for b in bodies {
        let Body::MultipartReply(Multipart { body: Reply::FlowMonitor(l), .. }) = b else { continue };
        out.extend(l.iter().map(|u| match u {
            FlowUpdate::Full(f) => (Some(f.event), f.priority.into()),
            FlowUpdate::Abbrev(xid) => (None, *xid),
            FlowUpdate::Paused => (None, PAUSED),
            FlowUpdate::Resumed => (None, RESUMED),
        }));
    }
    out
}

#[test]
fn own_changes_are_abbreviated_unless_asked_for() {
    for (flags, want) in [(CHANGES, (None, 7)), (CHANGES.with(MonitorFlags::OWN), (Some(MonitorEvent::Added), 5))] {
        let mut n = Net::new();
        let (mine, other) = (n.open(Kind::Service, V), n.open(Kind::Service, V));
        assert_eq!(n.ask(mine, V, request(&[monitor(1, flags)])).len(), 1);
        assert_eq!(updates(&n.ask(mine, V, add_flow(5))), [want]);
        assert_eq!(n.ask(other, V, add_flow(6)), []);
        let heard: Vec<Body> = n.read(mine).into_iter().map(|m| m.body).collect();
        assert_eq!(updates(&heard), [(Some(MonitorEvent::Added), 6)]);
        // They come before the answer to a barrier.
        n.send(mine, V, add_flow(8));
        let heard = n.ask(mine, V, Body::BarrierRequest);
        assert_eq!((updates(&heard[..1]).len(), &heard[1]), (1, &Body::BarrierReply));
    }
}

#[test]
fn what_was_there_is_told_once() {
    let mut n = Net::new();
    let c = n.open(Kind::Service, V);
    n.send(c, V, add_flow(5));
    // In the same turn: the flow is not new to the monitor.
    let flags = CHANGES.with(MonitorFlags::INITIAL);
    let heard = n.ask(c, V, request(&[monitor(1, flags), monitor(2, flags.with(MonitorFlags::ACTIONS))]));
    assert_eq!(updates(&heard), [(Some(MonitorEvent::Initial), 5)]);
    // None, and it says so.
    let nothing = MonitorRequest { table: 9, ..monitor(3, flags) };
    let heard = n.ask(c, V, request(&[nothing]));
    assert_eq!((heard.len(), updates(&heard)), (1, vec![]));
}

#[test]
fn requests_are_carried_out_whole_or_not_at_all() {
    let mut n = Net::new();
    let c = n.open(Kind::Service, V);
    let with = |m: MonitorRequest, command| MonitorRequest { command, ..m };
    let mut check = |all: &[MonitorRequest], want| {
        assert_eq!(error_of(&n.ask(c, V, request(all))), want, "{all:?}");
    };
    let one = monitor(1, CHANGES);
    check(&[one.clone(), one.clone()], Some(OfError::MofcMonitorExists));
    check(std::slice::from_ref(&one), None);
    check(&[monitor(2, CHANGES), one.clone()], Some(OfError::MofcMonitorExists));
    check(&[monitor(2, CHANGES)], None);
    check(&[with(monitor(3, CHANGES), MonitorCommand::Modify)], Some(OfError::MofcUnknownMonitor));
    check(&[with(monitor(1, CHANGES), MonitorCommand::Modify)], None);
    check(&[with(monitor(3, CHANGES), MonitorCommand::Delete)], Some(OfError::MofcUnknownMonitor));
    check(&[with(one, MonitorCommand::Delete), with(monitor(2, CHANGES), MonitorCommand::Delete)], None);
    assert_eq!(n.ask(c, V, add_flow(5)), []);
    // Older versions end a monitor by a message of its own.
    let c = n.open(Kind::Service, Version::V13);
    assert_eq!(error_of(&n.ask(c, Version::V13, Body::MonitorCancel(1))), Some(OfError::MofcUnknownMonitor));
    n.ask(c, Version::V13, request(&[monitor(1, CHANGES)]));
    assert_eq!(updates(&n.ask(c, Version::V13, add_flow(6))).len(), 1);
    assert_eq!(n.ask(c, Version::V13, Body::MonitorCancel(1)), []);
    assert_eq!(n.ask(c, Version::V13, add_flow(7)), []);
}

/// A flow that goes while the first flows are still being told is not told to be there afterwards.
#[test]
fn changes_wait_for_the_first_flows() {
    let mut n = Net::new();
    let (c, other) = (n.open(Kind::Service, V), n.open(Kind::Service, V));
    let flows = 16_000u32;
    let mods: Vec<FlowMod> = (0..flows)
        .map(|i| FlowMod { match_: on_port(i), priority: 1, table: 0, actions: output(1), ..FlowMod::default() })
        .collect();
    n.o.flow_mods(n.now, &mods).unwrap();
    let flags = CHANGES.with(MonitorFlags::INITIAL).with(MonitorFlags::ACTIONS);
    n.send(c, V, request(&[monitor(1, flags)]));
    n.turn();
    let all = Body::FlowMod(Box::new(FlowMod { command: FlowModCommand::Delete, ..FlowMod::default() }));
    assert_eq!(n.ask(other, V, all), []);
    let (mut heard, mut rest) = (Vec::new(), true);
    while rest {
        let part: Vec<Body> = n.read(c).into_iter().map(|m| m.body).collect();
        rest = !part.is_empty();
        heard.extend(updates(&part));
        n.turn();
    }
    // It lags, too; that is not the matter here.
    heard.retain(|u| u.0.is_some());
    assert_eq!(heard.len(), 2 * flows as usize);
    let (first, then) = heard.split_at(flows as usize);
    assert!(first.iter().all(|(e, _)| *e == Some(MonitorEvent::Initial)));
    assert!(then.iter().all(|(e, _)| matches!(e, Some(MonitorEvent::Deleted(_)))));
}

/// A peer that does not read: its monitors pause, and catch up when it has read. Whoever replays what
/// it was told knows the flows, in every version.
#[test]
fn a_monitor_that_lags_is_paused_and_catches_up() {
    for v in Version::ALL {
        let mut n = Net::new();
        let (watcher, other) = (n.open(Kind::Service, v), n.open(Kind::Service, Version::V13));
        n.ask(watcher, v, request(&[monitor(1, CHANGES.with(MonitorFlags::ACTIONS))]));
        let flow = |n: &mut Net, command, priority: u16, cookie| {
            // Long, so that few flows do.
            let actions = Actions(vec![Action::Note(vec![1; 1000])]);
            let fm = FlowMod { command, priority, cookie, table: 0, actions, ..FlowMod::default() };
            assert_eq!(n.ask(other, Version::V13, Body::FlowMod(Box::new(fm))), []);
        };
        // Until it is paused, and some more.
        let paused_at = 128 << 10;
        let mut last = 0;
        let mut more = 50;
        while more > 0 {
            last += 1;
            flow(&mut n, FlowModCommand::Add, last, 1);
            more -= u16::from(n.o.connection(watcher).unwrap().output().len() > paused_at);
        }
        let size = n.o.connection(watcher).unwrap().output().len();
        // One that was told, one that was not; the one after each is modified, which is told later.
        flow(&mut n, FlowModCommand::DeleteStrict, 1, 0);
        flow(&mut n, FlowModCommand::DeleteStrict, last, 0);
        let one_deletion = n.o.connection(watcher).unwrap().output().len() - size;
        assert!((1..1500).contains(&one_deletion), "{one_deletion}");
        flow(&mut n, FlowModCommand::Add, 2, 2);
        flow(&mut n, FlowModCommand::Add, last - 1, 2);
        let mut heard = Vec::new();
        loop {
            let part = n.read(watcher);
            if part.is_empty() {
                break;
            }
            heard.extend(part.into_iter().map(|m| m.body));
            n.turn();
        }
        let position = |m: &Body, u: &FlowUpdate| {
            heard.iter().position(|b| {
                b == m
                    || matches!(b, Body::MultipartReply(Multipart { body: Reply::FlowMonitor(l), .. }) if l.contains(u))
            })
        };
        let paused = position(&Body::MonitorPaused, &FlowUpdate::Paused).expect("paused");
        let resumed = position(&Body::MonitorResumed, &FlowUpdate::Resumed).expect("resumed");
        assert_eq!(resumed, heard.len() - 1, "{v:?}");
        // In between: one deletion, the modification, and what came after the pause, once each.
        let between = updates(&heard[paused + 1..resumed]);
        let deleted: Vec<u32> =
            between.iter().filter(|u| matches!(u.0, Some(MonitorEvent::Deleted(_)))).map(|u| u.1).collect();
        assert_eq!(deleted, [1], "{v:?}");
        let mut known = std::collections::BTreeMap::new();
        for b in &heard {
            let Body::MultipartReply(Multipart { body: Reply::FlowMonitor(l), .. }) = b else { continue };
            for u in l {
                let FlowUpdate::Full(f) = u else { continue };
                match f.event {
                    MonitorEvent::Deleted(_) => drop(known.remove(&f.priority)),
                    _ => drop(known.insert(f.priority, f.cookie)),
                }
            }
        }
        let there: std::collections::BTreeMap<u16, u64> =
            n.o.tables()
                .visible()
                .flat_map(|(_, t)| t.cls.rules(n.o.tables().version()))
                .map(|r| (r.priority() as u16, r.cookie))
                .collect();
        assert_eq!(known, there, "{v:?}");
        // It goes on as before.
        flow(&mut n, FlowModCommand::DeleteStrict, 3, 0);
        let heard: Vec<Body> = n.read(watcher).into_iter().map(|m| m.body).collect();
        assert_eq!(updates(&heard).len(), 1);
    }
}
