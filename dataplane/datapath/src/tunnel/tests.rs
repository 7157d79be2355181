//! Headers on and off: every kind there and back, checksums with and without work left, and hostile bytes.

use fv_core::Nanos;
use fv_dpif::action::TunnelPush;
use fv_dpif::text::parse_actions;
use fv_dpif::{DpAction, DropReason, TunnelKind, Vport};
use fv_flow::TunnelKey;
use fv_packet::compose::make_partial;
use fv_packet::hdr::{ipv4, tcp};
use fv_packet::{Compose, Csum, GsoKind, L4Csum, Packet, finish_checksum, segment, validate};

use super::{Tunnel, TunnelPorts, open, push};

const ETH: &str = "eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800)";
const IP: &str = "ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0x1,ttl=64,frag=0x4000)";

fn header(size: usize, kind: TunnelKind, rest: &str) -> TunnelPush {
    let gre = !kind.is_udp();
    let ip = if gre { IP.replace("proto=17", "proto=47") } else { IP.into() };
    let text = format!("tnl_push(tnl_port(7),header(size={size},type={},{ETH},{ip},{rest}),out_port(1))", kind.code());
    match &parse_actions(&text, &|_| None).unwrap()[..] {
        [DpAction::TunnelPush(p)] => (**p).clone(),
        other => panic!("{other:?}"),
    }
}

fn vport(kind: TunnelKind) -> Vport {
    Vport { kind, dst_port: 4789, gbp: false, gpe: false, payload: 0 }
}

fn frame(payload: usize) -> Packet {
    let ip = ipv4::Fields { src: 0x0a00_0001, dst: 0x0a00_0002, ..Default::default() };
    Compose::payload_len(payload).tcp(&tcp::Fields::default()).ipv4(&ip).eth([2; 6], [3; 6])
}

fn pushed(mut packet: Packet, h: &TunnelPush, t: &Tunnel) -> Packet {
    let source = TunnelPorts::default().of_hash(push::flow_hash(&mut packet, 1));
    push::push(&mut packet, h, t, source, Nanos::from_secs(1)).unwrap();
    packet
}

/// Every header with what its checksums cover is right, outer and inner.
fn assert_whole(mut p: Packet) {
    let outer = p.meta().csum == Csum::Partial;
    finish_checksum(&mut p).unwrap();
    let _ = outer;
    p.meta_mut().csum = Csum::Unknown;
    p.meta_mut().ip_csum = Csum::Unknown;
    p.meta_mut().l3_ofs = 14;
    assert!(fv_packet::csum::validate_ip(&mut p));
    assert!(validate(&mut p), "outer {p:?}");
}

fn cases() -> Vec<(TunnelKind, TunnelPush)> {
    let udp = |csum| format!("udp(src=0,dst=4789,csum={csum})");
    vec![
        (TunnelKind::Vxlan, header(50, TunnelKind::Vxlan, &format!("{},vxlan(flags=0x8000000,vni=0x7b)", udp("0x0")))),
        (
            TunnelKind::Vxlan,
            header(50, TunnelKind::Vxlan, &format!("{},vxlan(flags=0x8000000,vni=0x7b)", udp("0xffff"))),
        ),
        (TunnelKind::Geneve, header(50, TunnelKind::Geneve, &format!("{},geneve(vni=0x7b)", udp("0xffff")))),
        (TunnelKind::Gre, header(42, TunnelKind::Gre, "gre((flags=0x2000,proto=0x6558),key=0x7b)")),
        (TunnelKind::Gre, header(50, TunnelKind::Gre, "gre((flags=0xb000,proto=0x6558),csum=0x0,key=0x7b,seq=0x0)")),
        (TunnelKind::Erspan, header(50, TunnelKind::Erspan, "erspan(ver=1,sid=0x7b,idx=0x3)")),
        (TunnelKind::Erspan, header(54, TunnelKind::Erspan, "erspan(ver=2,sid=0x7b,dir=1,hwid=0x7)")),
    ]
}

#[test]
fn there_and_back() {
    for (kind, h) in cases() {
        for partial in [false, true] {
            let t = Tunnel::new(vport(kind));
            let whole = frame(200);
            let mut inner = whole.duplicate();
            if partial {
                assert!(make_partial(&mut inner, GsoKind::None, 0));
            }
            let p = pushed(inner, &h, &t);
            assert_whole(p.duplicate());
            let mut sent = p;
            finish_checksum(&mut sent).unwrap();
            let mut back = Packet::from_slice(sent.data());
            open::open(&mut back, &t.vport).unwrap_or_else(|e| panic!("{kind:?} {partial}: {e:?}"));
            assert_eq!(back.data(), whole.data(), "{kind:?} {partial}");
            let key = TunnelKey::of_note(back.side()).unwrap();
            assert_eq!((key.tun.id.get(), key.tun.src.get(), key.tun.ttl, key.tun.tos), (0x7b, 0x0101_0258, 64, 1));
            // What is still due when the packet never left the host.
            let mut local = pushed(whole.duplicate(), &h, &t);
            open::open(&mut local, &t.vport).unwrap();
            assert_eq!(local.data(), whole.data());
        }
    }
}

#[test]
fn segments_are_no_longer_than_asked_and_whole() {
    for (kind, h) in cases().into_iter().filter(|(k, _)| !k.is_erspan()) {
        let t = Tunnel::new(vport(kind));
        let mut inner = frame(3000);
        assert!(make_partial(&mut inner, GsoKind::Tcp4, 1000));
        let p = pushed(inner, &h, &t);
        let list: Vec<Packet> = segment(p, L4Csum::Leave).unwrap().collect();
        assert_eq!(list.len(), 3);
        for s in list {
            assert_eq!(s.len(), h.header.len() + 14 + 20 + 20 + 1000, "{kind:?}");
            assert_whole(s.duplicate());
            let mut back = Packet::from_slice(s.data());
            open::open(&mut back, &t.vport).unwrap();
            back.meta_mut().l3_ofs = 14;
            assert!(validate(&mut back), "inner of {kind:?}");
        }
    }
}

#[test]
fn bad_bytes_have_their_reasons() {
    let (kind, h) = &cases()[1];
    let t = Tunnel::new(vport(*kind));
    let mut sent = pushed(frame(64), h, &t);
    finish_checksum(&mut sent).unwrap();
    let reason = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = sent.data().to_vec();
        change(&mut bytes);
        open::open(&mut Packet::from_slice(&bytes), &t.vport).err()
    };
    let fix = |b: &mut Vec<u8>| {
        b[24..26].fill(0);
        let sum = fv_packet::csum::of(&b[14..34]);
        b[24..26].copy_from_slice(&sum.to_be_bytes());
        b[40..42].fill(0);
    };
    assert_eq!(reason(&|_| ()), None);
    assert_eq!(reason(&|b| b[100] ^= 1), Some(DropReason::TunnelChecksum));
    assert_eq!(reason(&|b| b[26] ^= 1), Some(DropReason::TunnelChecksum));
    assert_eq!(reason(&|b| b.truncate(60)), Some(DropReason::TunnelTruncated));
    for (change, want) in [
        (&(|b: &mut Vec<u8>| b[20] = 0x20) as &dyn Fn(&mut Vec<u8>), DropReason::TunnelFragment),
        (&|b| b[38] = 0xff, DropReason::TunnelTruncated),
        (&|b| b[39] = 7, DropReason::TunnelTruncated),
        (&|b| b[42] = 0, DropReason::TunnelHeader),
        (&|b| b[42] = 0x88, DropReason::TunnelHeader),
        (&|b| b[49] = 1, DropReason::TunnelHeader),
        (&|b| b[23] = 6, DropReason::TunnelHeader),
    ] {
        let got = reason(&|b| {
            change(b);
            fix(b);
        });
        assert_eq!(got, Some(want));
    }
}

#[test]
fn no_bytes_panic() {
    let mut random = 1u64;
    let mut next = || {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) as usize
    };
    for (kind, h) in cases().into_iter().chain([
        (
            TunnelKind::Gtpu,
            header(50, TunnelKind::Gtpu, "udp(src=0,dst=2152,csum=0x0),gtpu(flags=0x37,msgtype=255,teid=0x9)"),
        ),
        (TunnelKind::Bareudp, header(42, TunnelKind::Bareudp, "udp(src=0,dst=6635,csum=0x0)")),
    ]) {
        let t = Tunnel::new(Vport { gbp: true, gpe: true, ..vport(kind) });
        let sent = pushed(frame(40), &h, &t);
        for _ in 0..3000 {
            let mut bytes = sent.data().to_vec();
            for _ in 0..1 + next() % 4 {
                let at = 14 + next() % (bytes.len() - 14);
                bytes[at] = next() as u8;
            }
            bytes.truncate(next() % (bytes.len() + 1));
            let mut p = Packet::from_slice(&bytes);
            p.meta_mut().ip_csum = Csum::Good;
            p.meta_mut().csum = if next() % 2 == 0 { Csum::Good } else { Csum::Unknown };
            let _ = open::open(&mut p, &t.vport);
        }
    }
}

#[test]
fn one_flow_one_source_port() {
    let ports = TunnelPorts::default();
    assert_eq!((ports.of_hash(0), ports.of_hash(u32::MAX)), (32768, 60999));
    ports.set(5, 6);
    assert_eq!((ports.of_hash(0), ports.of_hash(u32::MAX)), (5, 5));
}
