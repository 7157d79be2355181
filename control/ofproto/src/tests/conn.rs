//! Connections: sequences of messages in, messages out.

use fv_core::OfPort;
use fv_flow::Match;
use fv_openflow::msg::bundle::{BUNDLE_ATOMIC, BundleAdd, BundleControl, BundleControlKind};
use fv_openflow::msg::codec::{DecodeCx, RawHeader};
use fv_openflow::msg::flow::{FlowMod, FlowModCommand, FlowModFlags, FlowStatsRequest};
use fv_openflow::msg::packet::{PacketIn, PacketInReason};
use fv_openflow::msg::session::{Config, ErrorKind, Hello};
use fv_openflow::msg::stats::{Multipart, Reply, Request};
use fv_openflow::msg::{Body, Message, PacketInFormat, PortReason, Role, RoleMsg};
use fv_openflow::{Version, VersionSet};

use super::*;
use crate::conn::{MAX_RX, TX_MAX};

pub(super) struct Net {
    pub(super) o: Ofproto,
    host: FakeHost,
    pub(super) now: Nanos,
}

impl Net {
    pub(super) fn new() -> Net {
        Net { o: bridge(true), host: FakeHost::default(), now: at(0) }
    }

    pub(super) fn turn(&mut self) {
        while self.o.turn(self.now, 100, &mut self.host).more {}
    }

    /// A connection that has negotiated `v`; its greeting is read.
    pub(super) fn open(&mut self, kind: Kind, v: Version) -> ConnId {
        let id = self.o.connect(kind, "tcp:c", self.now);
        self.send(id, v, Body::Hello(Hello { versions: VersionSet::of(v) }));
        self.turn();
        assert!(matches!(self.read(id)[0].body, Body::Hello(_)));
        assert_eq!(self.o.connection(id).unwrap().version(), Some(v));
        id
    }

    pub(super) fn send(&mut self, id: ConnId, v: Version, body: Body) {
        let bytes = Message::new(v, 7, body).encode().unwrap();
        self.o.receive(id, &bytes, self.now);
    }

    /// What is in the output; it is taken.
    pub(super) fn read(&mut self, id: ConnId) -> Vec<Message> {
        let out = self.o.connection(id).unwrap().output().to_vec();
        self.o.sent(id, out.len());
        let mut v = Vec::new();
        let mut b = &out[..];
        while let Some(h) = RawHeader::peek(b) {
            let (frame, rest) = b.split_at(usize::from(h.len));
            v.push(Message::decode(frame, &DecodeCx::default()).unwrap());
            b = rest;
        }
        v
    }

    /// Sends and returns the answers.
    pub(super) fn ask(&mut self, id: ConnId, v: Version, body: Body) -> Vec<Body> {
        self.send(id, v, body);
        self.turn();
        self.read(id).into_iter().map(|m| m.body).collect()
    }
}

pub(super) fn error_of(b: &[Body]) -> Option<OfError> {
    b.iter().find_map(|b| match b {
        Body::Error(e) => match e.error {
            ErrorKind::Known(e) => Some(e),
            ErrorKind::Unknown(_) => None,
        },
        _ => None,
    })
}

pub(super) fn add_flow(priority: u16) -> Body {
    Body::FlowMod(Box::new(FlowMod {
        priority,
        table: 0,
        flags: FlowModFlags::SEND_FLOW_REM,
        actions: output(1),
        ..FlowMod::default()
    }))
}

fn packet_in(o: &mut Ofproto, reason: PacketInReason, len: usize, now: Nanos) {
    let packet_in = PacketIn {
        packet: vec![0x55; len],
        total_len: len as u32,
        reason,
        metadata: on_port(1),
        ..PacketIn::default()
    };
    o.packet_in(&PacketInJob { bridge: o.id(), packet_in, controller_id: 0, max_len: 20 }, now);
}

#[test]
fn the_highest_common_version_is_spoken() {
    for v in Version::ALL {
        let mut n = Net::new();
        let id = n.open(Kind::Service, v);
        let b = n.ask(id, v, Body::EchoRequest(vec![1, 2, 3]));
        assert_eq!(b, [Body::EchoReply(vec![1, 2, 3])]);
    }
}

#[test]
fn no_common_version_is_an_error_and_the_end() {
    let mut n = Net::new();
    n.o.set_settings(Settings { versions: VersionSet::of(Version::V13), ..n.o.settings().clone() }, at(0));
    let id = n.o.connect(Kind::Service, "x", at(0));
    n.read(id);
    let b = n.ask(id, Version::V10, Body::Hello(Hello { versions: VersionSet::of(Version::V10) }));
    assert_eq!(error_of(&b), Some(OfError::HfcIncompatible));
    assert_eq!(n.o.closed(id), Some(Closed::Version));
}

#[test]
fn what_is_not_a_hello_first_closes() {
    let mut n = Net::new();
    let id = n.o.connect(Kind::Service, "x", at(0));
    n.send(id, Version::V13, Body::BarrierRequest);
    n.turn();
    assert_eq!(n.o.closed(id), Some(Closed::Version));
}

#[test]
fn bad_bytes_get_errors_and_the_connection_stays() {
    let mut n = Net::new();
    let id = n.open(Kind::Service, Version::V13);
    // A type that does not exist, and a flow-mod that is too short.
    for (kind, want) in [(99, OfError::BrcBadType), (14, OfError::BrcBadLen)] {
        let frame = [4, kind, 0, 12, 0, 0, 0, 9, 1, 2, 3, 4];
        n.o.receive(id, &frame, n.now);
        n.turn();
        let m = n.read(id).remove(0);
        assert_eq!(m.xid, 9);
        let Body::Error(e) = &m.body else { panic!("{m:?}") };
        assert_eq!((e.error, &e.data[..]), (ErrorKind::Known(want), &frame[..]));
    }
    assert_eq!(n.ask(id, Version::V13, Body::BarrierRequest), [Body::BarrierReply]);
    // Another version, and a length less than a header's, are the end.
    n.o.receive(id, &[1, 2, 0, 8, 0, 0, 0, 1], n.now);
    n.turn();
    assert_eq!(n.o.closed(id), Some(Closed::Protocol));
    let id = n.open(Kind::Service, Version::V13);
    n.o.receive(id, &[4, 2, 0, 7, 0, 0, 0, 1], n.now);
    n.turn();
    assert_eq!(n.o.closed(id), Some(Closed::Protocol));
}

#[test]
fn messages_may_come_in_pieces() {
    let mut n = Net::new();
    let id = n.open(Kind::Service, Version::V13);
    let mut bytes = Message::new(Version::V13, 7, add_flow(5)).encode().unwrap();
    bytes.extend(Message::new(Version::V13, 8, Body::BarrierRequest).encode().unwrap());
    for b in bytes {
        n.o.receive(id, &[b], n.now);
        n.turn();
    }
    assert!(matches!(n.read(id)[..], [Message { xid: 8, body: Body::BarrierReply, .. }]));
    assert_eq!(n.o.tables().flow_count(), 1);
}

#[test]
fn services_hear_nothing_unasked() {
    let mut n = Net::new();
    let v = Version::V10;
    let (primary, service) = (n.open(Kind::Primary, v), n.open(Kind::Service, v));
    let down = PortSpec { link_up: false, ..n.o.ports[&OfPort(1)].spec.clone() };
    let up = PortSpec { link_up: true, ..down.clone() };
    n.o.set_port(down, n.now);
    packet_in(&mut n.o, PacketInReason::NoMatch, 60, n.now);
    n.turn();
    assert_eq!(n.read(primary).len(), 2);
    assert!(n.read(service).is_empty());
    let cfg = Config { miss_send_len: 128, ..Config::default() };
    n.ask(service, v, Body::SetConfig(cfg));
    n.o.set_port(up, n.now);
    n.turn();
    let b = n.read(service);
    assert!(matches!(&b[0].body, Body::PortStatus(p) if p.reason == PortReason::Modify), "{b:?}");
}

#[test]
fn flow_removed_tells_the_last_counters() {
    let mut n = Net::new();
    let v = Version::V13;
    let id = n.open(Kind::Primary, v);
    n.ask(id, v, add_flow(5));
    n.o.all_rules().iter().for_each(|r| r.credit(3, 300, at(1), 0));
    n.now = at(2);
    let delete = FlowMod { command: FlowModCommand::Delete, table: 0xff, ..FlowMod::default() };
    let b = n.ask(id, v, Body::FlowMod(Box::new(delete)));
    let [Body::FlowRemoved(f)] = &b[..] else { panic!("{b:?}") };
    assert_eq!((f.packets, f.bytes, f.duration_s, f.priority), (3, 300, 2, 5));
    assert!(n.host.pulls > 0);
}

#[test]
fn packet_ins_by_version_and_reason() {
    use PacketInReason as R;
    let wants = |v, reason| {
        let mut n = Net::new();
        let id = n.open(Kind::Primary, v);
        packet_in(&mut n.o, reason, 60, at(0));
        n.turn();
        let got = n.read(id);
        got.into_iter().find_map(|m| match m.body {
            Body::PacketIn(p) => Some((p.reason, p.packet.len(), p.total_len)),
            _ => None,
        })
    };
    assert_eq!(wants(Version::V10, R::Action), Some((R::Action, 60, 60)));
    assert_eq!(wants(Version::V10, R::ImplicitMiss), Some((R::NoMatch, 60, 60)));
    assert_eq!(wants(Version::V13, R::ImplicitMiss), None);
    assert_eq!(wants(Version::V13, R::ExplicitMiss), Some((R::NoMatch, 60, 60)));
    assert_eq!(wants(Version::V13, R::Group), Some((R::Action, 60, 60)));
    assert_eq!(wants(Version::V14, R::Group), Some((R::Group, 60, 60)));
    assert_eq!(wants(Version::V13, R::InvalidTtl), None);
}

/// A packet that does not fit a message is cut, and its length is told (as far as the version can).
#[test]
fn giant_packet_ins_are_cut() {
    for format in [PacketInFormat::Standard, PacketInFormat::Nxt, PacketInFormat::Nxt2] {
        for v in [Version::V10, Version::V13] {
            let mut n = Net::new();
            let id = n.open(Kind::Primary, v);
            n.ask(id, v, Body::SetPacketInFormat(format));
            packet_in(&mut n.o, PacketInReason::Action, 65_535, at(0));
            let out = n.o.connection(id).unwrap().output().to_vec();
            let h = RawHeader::peek(&out).unwrap();
            assert_eq!(usize::from(h.len), out.len());
            assert!(out.len() > 64_000, "{}", out.len());
        }
    }
}

#[test]
fn the_packet_in_queue_is_bounded() {
    let mut n = Net::new();
    n.o.set_settings(Settings { controller_queue_size: 10, ..n.o.settings().clone() }, at(0));
    let id = n.open(Kind::Primary, Version::V13);
    for _ in 0..1000 {
        packet_in(&mut n.o, PacketInReason::Action, 30_000, at(0));
    }
    let mut count = 0;
    loop {
        let got = n.read(id);
        if got.is_empty() {
            break;
        }
        count += got.len();
    }
    assert!((10..=13).contains(&count), "{count}");
    assert_eq!(n.o.closed(id), None);
}

/// A controller that sends requests but reads nothing is stopped, and others are served.
#[test]
fn a_peer_that_does_not_read_delays_nobody() {
    let mut n = Net::new();
    let v = Version::V13;
    let (deaf, other) = (n.open(Kind::Service, v), n.open(Kind::Service, v));
    let echo = Message::new(v, 1, Body::EchoRequest(vec![0; 60_000])).encode().unwrap();
    let mut sent = 0;
    while n.o.connection(deaf).unwrap().wants_read() && sent < 1000 {
        n.o.receive(deaf, &echo, n.now);
        n.turn();
        sent += 1;
    }
    assert!(sent < 100, "{sent}");
    let c = n.o.connection(deaf).unwrap();
    assert!(c.output().len() < TX_MAX && MAX_RX < TX_MAX);
    assert_eq!(n.ask(other, v, Body::BarrierRequest), [Body::BarrierReply]);
}

/// Messages that are not asked for cannot pile up without end either.
#[test]
fn a_backlog_of_asynchronous_messages_disconnects() {
    let mut n = Net::new();
    let id = n.open(Kind::Primary, Version::V13);
    let mut spec = n.o.ports[&OfPort(1)].spec.clone();
    for i in 0..300_000u32 {
        spec.link_up = i % 2 == 0;
        n.o.set_port(spec.clone(), n.now);
        if i % 1000 == 0 {
            n.turn();
        }
        if n.o.closed(id).is_some() {
            break;
        }
    }
    assert_eq!(n.o.closed(id), Some(Closed::Backlog));
}

/// One connection's bulk does not starve another's echo, nor its own turn end late.
#[test]
fn a_turn_is_bounded_and_fair() {
    let mut n = Net::new();
    let v = Version::V13;
    let (bulk, other) = (n.open(Kind::Service, v), n.open(Kind::Service, v));
    let flow = |i: u16| Message::new(v, 1, add_flow(i)).encode().unwrap();
    for i in 0..1000 {
        n.o.receive(bulk, &flow(i), n.now);
    }
    n.send(other, v, Body::EchoRequest(vec![]));
    let t = n.o.turn(n.now, 64, &mut n.host);
    assert!(t.more);
    assert!(n.o.tables().flow_count() <= 64);
    assert!(matches!(n.read(other)[..], [Message { body: Body::EchoReply(_), .. }]));
    n.turn();
    assert_eq!(n.o.tables().flow_count(), 1000);
}

#[test]
fn long_dumps_come_in_parts() {
    let mut n = Net::new();
    let v = Version::V13;
    let id = n.open(Kind::Service, v);
    for i in 0..5000 {
        let fm = FlowMod { match_: on_port(i), table: 0, actions: output(1), ..FlowMod::default() };
        n.o.flow_mod(n.now, &fm).unwrap();
    }
    let all = Request::Flow(Box::<FlowStatsRequest>::default());
    let b = n.ask(id, v, Body::MultipartRequest(Multipart { more: false, body: all }));
    let mut flows = 0;
    for (i, m) in b.iter().enumerate() {
        let Body::MultipartReply(Multipart { more, body: Reply::Flow(f) }) = m else { panic!("{m:?}") };
        assert_eq!(*more, i + 1 < b.len());
        flows += f.len();
    }
    assert_eq!(flows, 5000);
    assert!(b.len() > 5);
}

fn net_with_flows(n_flows: u32) -> Net {
    let mut n = Net::new();
    for i in 0..n_flows {
        let fm = FlowMod { match_: on_port(i), table: 0, actions: output(1), ..FlowMod::default() };
        n.o.flow_mod(n.now, &fm).unwrap();
    }
    n
}

fn ask_all(request: fn(Box<FlowStatsRequest>) -> Request) -> Body {
    Body::MultipartRequest(Multipart { more: false, body: request(Box::default()) })
}

#[test]
fn nothing_is_made_for_a_peer_that_left() {
    let mut n = net_with_flows(5000);
    let v = Version::V13;
    let id = n.open(Kind::Service, v);
    (0..300).for_each(|_| n.send(id, v, ask_all(Request::Flow)));
    n.send(id, v, add_flow(9000));
    n.o.disconnect(id);
    n.o.turn(n.now, 400, &mut n.host);
    assert_eq!(n.o.tables().flow_count(), 5001, "what changes something is still carried out");
}

#[test]
fn costly_requests_leave_time_for_others() {
    let mut n = net_with_flows(5000);
    let v = Version::V13;
    for request in [Request::Flow, Request::Aggregate] {
        let (costly, other) = (n.open(Kind::Service, v), n.open(Kind::Service, v));
        (0..100).for_each(|_| n.send(costly, v, ask_all(request)));
        n.send(other, v, Body::BarrierRequest);
        assert!(n.o.turn(n.now, 100, &mut n.host).more);
        assert!(n.read(costly).len() < 20);
        assert!(matches!(n.read(other)[..], [Message { body: Body::BarrierReply, .. }]));
        n.o.disconnect(costly);
        n.turn();
    }
}

#[test]
fn roles() {
    let mut n = Net::new();
    let v = Version::V13;
    let (a, b) = (n.open(Kind::Primary, v), n.open(Kind::Primary, v));
    let ask = |role, generation_id| Body::RoleRequest(RoleMsg { role, generation_id });
    n.ask(a, v, ask(Role::Primary, Some(5)));
    n.ask(b, v, ask(Role::Primary, Some(6)));
    assert_eq!(n.o.connection(a).unwrap().role(), Role::Secondary);
    assert_eq!(error_of(&n.ask(a, v, add_flow(1))), Some(OfError::BrcIsSecondary));
    assert_eq!(error_of(&n.ask(a, v, ask(Role::Primary, Some(5)))), Some(OfError::RrfcStale));
    packet_in(&mut n.o, PacketInReason::Action, 60, at(0));
    assert_eq!((n.read(a).len(), n.read(b).len()), (0, 1));
}

#[test]
fn idle_controllers_are_probed() {
    let mut n = Net::new();
    let spec = ControllerSpec {
        target: "tcp:c".into(),
        passive: false,
        probe_interval: at(5) - at(0),
        rate_limit: None,
        enable_async: true,
    };
    n.o.set_controllers(vec![spec], n.now);
    let id = n.open(Kind::Primary, Version::V13);
    n.now = at(5);
    n.turn();
    assert!(matches!(n.read(id)[..], [Message { body: Body::EchoRequest(_), .. }]));
    n.send(id, Version::V13, Body::EchoReply(vec![]));
    n.now = at(9);
    n.turn();
    assert_eq!((n.read(id).len(), n.o.closed(id)), (0, None));
    n.now = at(10);
    n.turn();
    n.now = at(15);
    n.turn();
    assert_eq!(n.o.closed(id), Some(Closed::Inactive));
}

#[test]
fn a_snoop_sees_what_the_controller_says_and_hears() {
    let mut n = Net::new();
    let v = Version::V13;
    let (c, s) = (n.open(Kind::Primary, v), n.open(Kind::Snoop, v));
    n.ask(c, v, Body::BarrierRequest);
    let seen: Vec<_> = n.read(s).into_iter().map(|m| m.body).collect();
    assert_eq!(seen, [Body::BarrierRequest, Body::BarrierReply]);
    // It is not obeyed.
    n.send(s, v, add_flow(1));
    n.turn();
    assert_eq!(n.o.tables().flow_count(), 0);
}

#[test]
fn packet_out_sees_the_flows_before_it() {
    use fv_openflow::msg::packet::PacketOut;
    let mut n = Net::new();
    let v = Version::V10;
    let id = n.open(Kind::Service, v);
    let mut metadata = Match::default();
    metadata.set_in_port(OfPort::CONTROLLER);
    let p = PacketOut { packet: vec![0; 60], buffer_id: u32::MAX, metadata, actions: output(1) };
    n.send(id, v, add_flow(1));
    n.send(id, v, Body::PacketOut(Box::new(p.clone())));
    n.turn();
    assert_eq!((n.host.packets.len(), n.o.tables().flow_count()), (1, 1));
    let b = n.ask(id, v, Body::PacketOut(Box::new(PacketOut { buffer_id: 3, packet: vec![], ..p })));
    assert_eq!(error_of(&b), Some(OfError::BrcBufferUnknown));
}

#[test]
fn a_peer_that_says_nothing_is_given_up() {
    let mut n = Net::new();
    let id = n.o.connect(Kind::Service, "x", n.now);
    n.now = at(14);
    n.turn();
    assert_eq!(n.o.closed(id), None);
    n.now = at(15);
    n.turn();
    assert_eq!(n.o.closed(id), Some(Closed::Version));
}

/// Actions that the match does not provide for: an error from OpenFlow 1.1 on.
#[test]
fn actions_are_checked_against_the_match() {
    use fv_openflow::Actions;
    let set_tos = FlowMod { actions: Actions(vec![Action::SetIpTtl(3)]), table: 0, ..FlowMod::default() };
    let mut n = Net::new();
    let v = Version::V13;
    let id = n.open(Kind::Service, v);
    let b = n.ask(id, v, Body::FlowMod(Box::new(set_tos.clone())));
    assert_eq!(error_of(&b), Some(OfError::BacMatchInconsistent));
    let mut m = Match::default();
    m.set_dl_type(0x0800);
    assert!(n.ask(id, v, Body::FlowMod(Box::new(FlowMod { match_: m, ..set_tos }))).is_empty());
}

/// A tool that comes and goes changes nothing for packets: flows stay valid.
#[test]
fn only_listeners_change_the_view() {
    let mut n = Net::new();
    n.turn();
    let views = n.host.views.len();
    let id = n.open(Kind::Service, Version::V10);
    n.turn();
    assert_eq!(n.host.views.len(), views);
    n.ask(id, Version::V10, Body::SetConfig(Config { miss_send_len: 128, ..Config::default() }));
    assert!(n.host.views.last().unwrap().wants_miss);
    n.o.disconnect(id);
    n.turn();
    assert!(!n.host.views.last().unwrap().wants_miss);
}

/// Who sends and hangs up at once is obeyed nevertheless.
#[test]
fn the_last_words_count() {
    let mut n = Net::new();
    let v = Version::V13;
    let id = n.open(Kind::Primary, v);
    n.send(id, v, add_flow(3));
    n.send(id, v, Body::EchoRequest(vec![0; 100]));
    n.o.disconnect(id);
    assert!(n.o.connection(id).is_none() && !n.o.view().has_controller);
    n.turn();
    assert_eq!((n.o.tables().flow_count(), n.o.conns().iter().count()), (1, 0));
}

#[test]
fn a_closed_peer_that_does_not_read_is_left() {
    let mut n = Net::new();
    let id = n.open(Kind::Service, Version::V13);
    n.o.receive(id, &[1, 2, 0, 8, 0, 0, 0, 1], n.now);
    n.turn();
    assert!(!n.o.connection(id).unwrap().output().is_empty());
    n.now = at(5);
    n.turn();
    assert!(n.o.connection(id).unwrap().output().is_empty());
}

proptest::proptest! {
    /// Whatever follows a hello: no panic, an answer or the end, and never without bound.
    #[test]
    fn any_bytes_are_survived(
        v in 1u8..=6,
        frames in proptest::collection::vec(
            (0u8..40, proptest::collection::vec(proptest::prelude::any::<u8>(), 0..120), 0u8..4), 1..30),
    ) {
        let mut n = Net::new();
        let id = n.open(Kind::Service, Version::from_wire(v).unwrap());
        for (kind, mut body, how) in frames {
            // Some bodies begin like Nicira's messages, some have large numbers made small.
            if how == 1 && body.len() >= 8 {
                body[..6].copy_from_slice(&[0, 0, 0x23, 0x20, 0, 0]);
            } else if how == 2 {
                body.iter_mut().for_each(|b| *b &= 3);
            }
            let len = (8 + body.len()) as u16;
            let mut frame = vec![v, kind, (len >> 8) as u8, len as u8, 0, 0, 0, 1];
            frame.extend(body);
            n.o.receive(id, &frame, n.now);
            n.turn();
            let out = n.o.connection(id).unwrap().output().len();
            proptest::prop_assert!(out < TX_MAX);
            n.o.sent(id, out);
        }
        n.now = at(100);
        n.turn();
    }
}

/// A table tells each threshold that it crosses, once, to those who asked.
#[test]
fn tables_tell_how_full_they_are() {
    use fv_openflow::msg::table::{TableDesc, TableMiss, TableMod, TableReason, Vacancy};
    use fv_openflow::msg::{AsyncConfig, TableStatus};
    let v = Version::V14;
    let mut n = Net::new();
    let (c, other) = (n.open(Kind::Primary, v), n.open(Kind::Primary, v));
    let mask = [1 << TableReason::VacancyDown as u32 | 1 << TableReason::VacancyUp as u32, 0];
    n.ask(c, v, Body::SetAsync(AsyncConfig { table_status: mask, given: 1 << 4, ..AsyncConfig::default() }));
    n.o.tables().table(0).unwrap().set_max_flows(Some(10));
    let thresholds = Vacancy { down: 40, up: 60, current: 0 };
    let m = TableMod {
        table: fv_core::TableId(0),
        miss: TableMiss::Default,
        eviction: Some(false),
        eviction_flags: 0,
        vacancy: Some(thresholds),
    };
    assert_eq!(n.ask(c, v, Body::TableMod(m)), []);
    let mut heard = Vec::new();
    let flow = |i: u16, command| {
        let f = FlowMod { command, priority: i, table: 0, actions: output(1), ..FlowMod::default() };
        Body::FlowMod(Box::new(f))
    };
    let there_and_back = (1..=9).map(|i| (i, FlowModCommand::Add));
    let there_and_back = there_and_back.chain((1..=9).map(|i| (i, FlowModCommand::DeleteStrict)));
    for (step, (i, command)) in there_and_back.enumerate() {
        for b in n.ask(c, v, flow(i, command)) {
            let Body::TableStatus(TableStatus { reason, desc }) = b else { panic!("{b:?}") };
            let TableDesc { vacancy: Some(at), .. } = desc else { panic!("{desc:?}") };
            heard.push((step, reason, at.current));
        }
    }
    // Below 40 % with the seventh, above 60 % when three are left.
    assert_eq!(heard, [(6, TableReason::VacancyDown, 30), (14, TableReason::VacancyUp, 70)]);
    assert_eq!(n.read(other), []);
    n.ask(c, v, Body::TableMod(TableMod { vacancy: Some(Vacancy::default()), ..m }));
    for i in 1..=9 {
        assert_eq!(n.ask(c, v, flow(i, FlowModCommand::Add)), []);
    }
}

/// A large bundle: prepared in portions between which echo requests are answered and nothing of it is
/// seen, then all of it at once, or nothing.
#[test]
fn a_large_bundle_is_prepared_in_portions() {
    const FLOWS: u16 = 6000;
    let v = Version::V14;
    let control = |kind| Body::BundleControl(BundleControl { bundle_id: 1, kind, flags: BUNDLE_ATOMIC });
    for (bad, interrupt) in [(false, false), (true, false), (false, true)] {
        let mut n = Net::new();
        let (bulk, other) = (n.open(Kind::Service, v), n.open(Kind::Service, v));
        n.ask(bulk, v, control(BundleControlKind::OpenRequest));
        for i in 0..FLOWS {
            let mut body = add_flow(i);
            if let (Body::FlowMod(fm), true) = (&mut body, bad && i == FLOWS - 1) {
                fm.actions = Actions(vec![Action::Group(9)]);
            }
            let msg = Message::new(v, 7, body);
            n.send(bulk, v, Body::BundleAdd(Box::new(BundleAdd { bundle_id: 1, flags: BUNDLE_ATOMIC, msg })));
            if i % 500 == 0 {
                n.turn();
            }
        }
        n.turn();
        n.send(bulk, v, control(BundleControlKind::CommitRequest));
        n.send(other, v, Body::EchoRequest(vec![1]));
        n.send(other, v, Body::BarrierRequest);
        let visible =
            |n: &Net| n.o.tables().visible().map(|(_, t)| t.cls.rules(n.o.tables().version()).len()).sum::<usize>();
        let (mut turns, mut echoes, mut barrier_at) = (0, 0, None);
        while n.o.turn(n.now, 100, &mut n.host).more || barrier_at.is_none() {
            turns += 1;
            assert!(turns < 1000);
            for m in n.read(other) {
                match m.body {
                    Body::EchoReply(_) => {
                        echoes += 1;
                        n.send(other, v, Body::EchoRequest(vec![1]));
                    }
                    Body::BarrierReply => barrier_at = Some(visible(&n)),
                    b => panic!("{b:?}"),
                }
            }
            if barrier_at.is_none() {
                assert_eq!(visible(&n), 0, "turn {turns}");
            }
            if interrupt && turns == 3 {
                n.o.flow_mod(n.now, &FlowMod { table: 5, ..FlowMod::default() }).unwrap();
            }
        }
        let all: usize = if bad { 0 } else { FLOWS.into() };
        assert_eq!(visible(&n), all + usize::from(interrupt));
        assert!(interrupt || turns >= 10 && echoes >= 1, "{turns} {echoes}");
        let answers: Vec<Body> = n.read(bulk).into_iter().map(|m| m.body).collect();
        if bad {
            let errors: Vec<_> = answers.iter().map(|b| error_of(std::slice::from_ref(b))).collect();
            assert_eq!(errors, [Some(OfError::BacBadOutGroup), Some(OfError::BfcMsgFailed)]);
        } else {
            let reply = BundleControl { bundle_id: 1, kind: BundleControlKind::CommitReply, flags: 0 };
            assert_eq!(answers, [Body::BundleControl(reply)]);
        }
    }
}
