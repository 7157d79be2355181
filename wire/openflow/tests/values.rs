//! Values survive the way to bytes and back in every version that can say them.

use fv_core::{OfPort, TableId};
use fv_flow::{Field, FieldValue, Match};
use fv_openflow::action::{Action, Actions, PacketInReason};
use fv_openflow::error::OfError;
use fv_openflow::msg::flow::*;
use fv_openflow::msg::packet::{Continuation, PacketIn, PacketOut, Resume};
use fv_openflow::msg::port::*;
use fv_openflow::msg::session::*;
use fv_openflow::msg::stats::{Desc, Multipart, Reply};
use fv_openflow::msg::table::*;
use fv_openflow::msg::{Body, BundleAdd, BundleControl, BundleControlKind, DecodeCx, Message};
use fv_openflow::{Version, VersionSet};

fn round_trip(v: Version, body: Body) {
    let m = Message::new(v, 0x1234_5678, body);
    let bytes = m.encode().unwrap();
    assert_eq!(usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), bytes.len());
    let back = Message::decode(&bytes, &DecodeCx::default());
    assert_eq!(back.as_ref(), Ok(&m), "{v:?} {bytes:02x?}");
}

fn since(min: Version) -> impl Iterator<Item = Version> {
    Version::ALL.into_iter().filter(move |v| *v >= min)
}

fn in_port(p: OfPort) -> Match {
    let mut m = Match::default();
    m.set_field(Field::InPortOxm, &FieldValue::new(p.0.into()));
    m
}

fn tcp_match() -> Match {
    let mut m = in_port(OfPort(3));
    for (f, v) in [(Field::EthType, 0x800), (Field::IpProto, 6), (Field::Ipv4Dst, 0x0a00_0001), (Field::TcpDst, 80)] {
        m.set_field(f, &FieldValue::new(v));
    }
    m
}

#[test]
fn packets_to_controllers() {
    for v in Version::ALL {
        let mut p = PacketIn {
            packet: (0..60).collect(),
            total_len: 1500,
            reason: PacketInReason::Action,
            table: if v == Version::V10 { 0 } else { 5 },
            cookie: if v >= Version::V13 { 0x77 } else { u64::MAX },
            metadata: in_port(OfPort(7)),
            ..PacketIn::default()
        };
        round_trip(v, Body::PacketIn(Box::new(p.clone())));
        (p.table, p.cookie) = (5, 0x77);
        p.metadata.set_field(Field::Reg0, &FieldValue::new(5));
        p.metadata.set_field(Field::TunId, &FieldValue::new(9));
        p.metadata.set_field(Field::Metadata, &FieldValue::new(0x1_0000));
        // NXM names ports with 16 bits.
        round_trip(v, Body::NxPacketIn(PacketInFormat::Nxt, Box::new(p.clone())));
        p.userdata = vec![1, 2, 3];
        p.continuation = Some(Box::new(Continuation {
            bridge: [9; 16],
            stack: vec![vec![0, 5]],
            actions: vec![Action::Exit],
            ..Continuation::default()
        }));
        round_trip(v, Body::NxPacketIn(PacketInFormat::Nxt2, Box::new(p.clone())));
        round_trip(v, Body::Resume(Box::new(Resume { packet_in: p })));
    }
}

/// A packet that no message has room for is cut; its length is told as far as 16 bits go.
#[test]
fn a_packet_longer_than_a_message_is_cut() {
    for v in Version::ALL {
        for format in [PacketInFormat::Standard, PacketInFormat::Nxt, PacketInFormat::Nxt2] {
            let p = PacketIn {
                packet: vec![1; 70_000],
                total_len: 70_000,
                metadata: in_port(OfPort(1)),
                ..Default::default()
            };
            let body = match format {
                PacketInFormat::Standard => Body::PacketIn(Box::new(p)),
                f => Body::NxPacketIn(f, Box::new(p)),
            };
            let bytes = Message::new(v, 0, body).encode().unwrap();
            let m = Message::decode(&bytes, &DecodeCx::default()).unwrap();
            let (Body::PacketIn(got) | Body::NxPacketIn(_, got)) = m.body else { panic!("{m:?}") };
            assert!(got.packet.len() > 60_000 && got.total_len >= 65_535);
        }
    }
}

#[test]
fn flows_that_are_gone() {
    for v in Version::ALL {
        let mut f = FlowRemoved {
            match_: tcp_match(),
            cookie: 5,
            priority: 7,
            reason: FlowRemovedReason::HardTimeout,
            table: if v == Version::V10 { TABLE_ALL } else { 3 },
            duration_s: 9,
            duration_ns: 10,
            idle_timeout_s: 11,
            hard_timeout_s: if v == Version::V10 { 0 } else { 12 },
            packets: 13,
            bytes: 14,
        };
        round_trip(v, Body::FlowRemoved(Box::new(f.clone())));
        (f.table, f.hard_timeout_s) = (3, 0);
        f.match_.set_field(Field::Reg3, &FieldValue::new(1));
        round_trip(v, Body::NxFlowRemoved(Box::new(f)));
    }
}

#[test]
fn ports() {
    for v in Version::ALL {
        let later = v > Version::V10;
        let p = Port {
            port_no: OfPort::LOCAL,
            hw_addr: [2, 0, 0, 0, 0, 1],
            name: "br0".into(),
            config: PortConfig::NO_RECV.with(PortConfig::PORT_DOWN),
            state: PortState::LINK_DOWN,
            curr: PortFeatures::G10_FD.with(PortFeatures::COPPER).with(PortFeatures::PAUSE_ASYM),
            advertised: PortFeatures::FIBER,
            supported: PortFeatures::M10_HD,
            peer: PortFeatures::AUTONEG,
            curr_speed_kbps: if later { 10_000_000 } else { 0 },
            max_speed_kbps: if later { 40_000_000 } else { 0 },
        };
        for reason in [PortReason::Add, PortReason::Delete, PortReason::Modify] {
            round_trip(v, Body::PortStatus(Box::new(PortStatus { reason, desc: p.clone() })));
        }
        let mask = PortConfig::NO_FWD.with(PortConfig::NO_PACKET_IN);
        let advertise = PortFeatures::FIBER;
        let m = PortMod { port_no: OfPort(2), hw_addr: p.hw_addr, config: PortConfig::NO_FWD, mask, advertise };
        round_trip(v, Body::PortMod(m));
        let mut s = PortStats::unknown(OfPort(4));
        (s.rx_packets, s.collisions) = (5, 6);
        s.duration_ns = (v >= Version::V13).then_some(7_000_000_008);
        let q = QueueStats {
            port_no: OfPort(1),
            queue: 2,
            tx_bytes: 3,
            tx_packets: 4,
            tx_errors: 5,
            duration_ns: s.duration_ns,
        };
        for body in
            [Reply::PortDesc(vec![p.clone(), p.clone()]), Reply::Port(vec![s.clone(), s]), Reply::Queue(vec![q])]
        {
            round_trip(v, Body::MultipartReply(Multipart { more: false, body }));
        }
        let f = Features {
            datapath_id: 0xfedc_ba98_7654_3210,
            n_buffers: 0,
            n_tables: 254,
            capabilities: Capabilities(Capabilities::FLOW_STATS | Capabilities::QUEUE_STATS),
            actions: if later { 0 } else { 0xfff },
            ports: if v <= Version::V12 { vec![p] } else { Vec::new() },
            ..Features::default()
        };
        round_trip(v, Body::FeaturesReply(Box::new(f)));
    }
}

#[test]
fn sessions() {
    for v in Version::ALL {
        round_trip(v, Body::Hello(Hello { versions: VersionSet::of(v).with(Version::V10) }));
        for e in OfError::ALL.iter().filter(|e| e.code(v).is_some()) {
            // A few share a number: the way back finds the first of them.
            let e = OfError::from_code(v, e.code(v).unwrap()).unwrap();
            round_trip(v, Body::Error(ErrorMsg { error: ErrorKind::Known(e), data: vec![1, 2, 3] }));
        }
        for role in [Role::Equal, Role::Primary, Role::Secondary] {
            let claims = v >= Version::V12 && role != Role::Equal;
            round_trip(v, Body::RoleRequest(RoleMsg { role, generation_id: claims.then_some(5) }));
        }
        let all = if v >= Version::V14 { 0x3f } else { 7 };
        let mut a = AsyncConfig {
            packet_in: [1, 2],
            flow_removed: [3, 4],
            port_status: [5, 6],
            given: all,
            ..Default::default()
        };
        if v >= Version::V14 {
            (a.role_status, a.table_status, a.requestforward) = ([7, 4], [8, 16], [1, 2]);
        }
        round_trip(v, Body::SetAsync(a));
        round_trip(v, Body::SetPacketInFormat(PacketInFormat::Nxt2));
        round_trip(v, Body::SetControllerId(7));
        round_trip(v, Body::FlowAge);
    }
    for v in since(Version::V13) {
        round_trip(v, Body::RoleStatus(RoleStatus { role: Role::Secondary, reason: 9, generation_id: Some(1) }));
        let c = BundleControl { bundle_id: 5, kind: BundleControlKind::CommitRequest, flags: 3 };
        round_trip(v, Body::BundleControl(c));
        let msg = Message::new(
            v,
            0x1234_5678,
            Body::FlowMod(Box::new(FlowMod { match_: tcp_match(), table: 1, ..FlowMod::default() })),
        );
        round_trip(v, Body::BundleAdd(Box::new(BundleAdd { bundle_id: 5, flags: 1, msg })));
    }
}

/// A bundle in a bundle is refused before it is looked into.
#[test]
fn bundles_do_not_nest() {
    let mut msg = Message::new(Version::V14, 1, Body::BarrierRequest);
    for _ in 0..100 {
        msg = Message::new(Version::V14, 1, Body::BundleAdd(Box::new(BundleAdd { bundle_id: 1, flags: 0, msg })));
    }
    assert_eq!(Message::decode(&msg.encode().unwrap(), &DecodeCx::default()), Err(OfError::BfcMsgUnsup));
}

#[test]
fn tables() {
    let fields = vec![Field::InPortOxm, Field::EthDst, Field::Metadata, Field::Reg0];
    let actions = TableActions { actions: 0x0241_8001, set_fields: fields.clone() };
    let t = TableInstructions { next: vec![4, 5, 6], instructions: 0x3e, write: actions.clone(), apply: actions };
    let f = TableFeatures {
        table: TableId(3),
        name: "table3".into(),
        metadata_match: 1,
        metadata_write: 2,
        max_entries: 1_000_000,
        nonmiss: t.clone(),
        matches: fields.clone(),
        mask: vec![Field::Metadata],
        wildcard: fields,
        ..TableFeatures::default()
    };
    for v in since(Version::V13) {
        let body = Reply::TableFeatures(vec![f.clone(), f.clone()]);
        round_trip(v, Body::MultipartReply(Multipart { more: true, body }));
    }
    for v in since(Version::V14) {
        let vacancy = Some(Vacancy { down: 20, up: 80, current: 50 });
        let d = TableDesc { table: TableId(1), eviction: true, eviction_flags: 1, vacancy };
        round_trip(v, Body::MultipartReply(Multipart { more: false, body: Reply::TableDesc(vec![d, d]) }));
    }
    for v in Version::ALL {
        let d = Desc { manufacturer: "m".into(), serial: "s".into(), ..Default::default() };
        round_trip(v, Body::MultipartReply(Multipart { more: false, body: Reply::Desc(d) }));
    }
}

#[test]
fn long_replies_are_split() {
    for v in Version::ALL {
        let flow = |n: u32| FlowStats {
            match_: tcp_match(),
            cookie: n.into(),
            table: 1,
            priority: 2,
            duration_s: 3,
            duration_ns: 4,
            idle_timeout_s: 5,
            hard_timeout_s: 6,
            idle_age_s: (v >= Version::V15).then_some(7),
            hard_age_s: None,
            importance: 0,
            flags: FlowModFlags::default(),
            packets: 8,
            bytes: 9,
            actions: Actions(vec![Action::output(OfPort(1)), Action::output(OfPort(2))]),
        };
        let flows: Vec<FlowStats> = (0..2000).map(flow).collect();
        let parts = Reply::Flow(flows.clone()).encode_parts(v, 5).unwrap();
        assert!(parts.len() > 1);
        let mut got = Vec::new();
        for (i, p) in parts.iter().enumerate() {
            let m = Message::decode(p, &DecodeCx::default()).unwrap();
            let Body::MultipartReply(Multipart { more, body: Reply::Flow(mut f) }) = m.body else { panic!("{v:?}") };
            assert_eq!((m.xid, more), (5, i + 1 < parts.len()));
            got.append(&mut f);
        }
        assert_eq!(got, flows);
    }
}

#[test]
fn packets_from_controllers() {
    for v in Version::ALL {
        let p = PacketOut {
            packet: vec![1; 60],
            buffer_id: NO_BUFFER,
            metadata: in_port(OfPort::CONTROLLER),
            actions: Actions(vec![Action::output(OfPort::TABLE)]),
        };
        round_trip(v, Body::PacketOut(Box::new(p.clone())));
        let bad = PacketOut { metadata: in_port(OfPort::FLOOD), ..p };
        let bytes = Message::new(v, 1, Body::PacketOut(Box::new(bad))).encode().unwrap();
        assert_eq!(Message::decode(&bytes, &DecodeCx::default()), Err(OfError::BrcBadPort));
    }
}
