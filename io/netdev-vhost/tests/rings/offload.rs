//! Checksums and segmentation: what a guest asks for, and what it may be asked for.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fv_netdev_vhost::ring::{Counts, Features, feature};
use fv_packet::compose::make_partial;
use fv_packet::hdr::{ipv4, ipv6, tcp};
use fv_packet::vnet::gso_type as t;
use fv_packet::{Batch, Compose, Csum, Gso, GsoKind, Packet, VnetHdr, validate, vnet};

use crate::guest::{Driver, Memory};

const ALL: u64 = Features::RINGS.0 & !feature::RING_PACKED & !feature::LOG_ALL;

fn tcp4(payload: usize) -> Packet {
    let f = ipv4::Fields { src: 0x0a00_0001, dst: 0x0a00_0002, ..Default::default() };
    Compose::payload_len(payload).tcp(&tcp::Fields::default()).ipv4(&f).eth([2; 6], [3; 6])
}

fn udp6(payload: usize) -> Packet {
    Compose::payload_len(payload).udp(1, 2).ipv6(&ipv6::Fields::default()).eth([2; 6], [3; 6])
}

/// What becomes of a frame that a guest sends with a header.
fn from_guest(features: u64, header: VnetHdr, frame: &Packet) -> Option<Packet> {
    let features = Features(features);
    let memory = Arc::new(Memory::new(1, 0x20000));
    let mut driver = Driver::new(memory.clone(), features, 8, 0);
    let at = driver.free_from;
    let mut arrived = Vec::new();
    // In one piece, and in two with the cut inside the header.
    for cut in [0, 5] {
        memory.write(at, &header.to_le_bytes()[..features.header_len()]);
        memory.write(at + features.header_len() as u64, frame.data());
        let len = (features.header_len() + frame.len()) as u32;
        let list = if cut == 0 { vec![(at, len)] } else { vec![(at, cut), (at + u64::from(cut), len - cut)] };
        let counts = Arc::new(Counts::default());
        let mut ring = driver.rx(&counts);
        driver.offer(&list, false, true).unwrap();
        driver.publish();
        let mut batch = Batch::new();
        let n = ring.recv(&mut batch);
        assert_eq!((n + counts.bad_header.load(Relaxed) as usize, ring.fault()), (1, None));
        assert_eq!(driver.reap().len(), 1);
        arrived.push(batch.pop());
    }
    let second = arrived.pop().flatten();
    let first = arrived.pop().flatten();
    assert_eq!(first.as_ref().map(|p| (p.data(), p.meta())), second.as_ref().map(|p| (p.data(), p.meta())));
    first
}

fn hdr(flags: u8, gso_type: u8, gso_size: u16, csum_start: u16, csum_offset: u16) -> VnetHdr {
    VnetHdr { flags, gso_type, hdr_len: 0xffff, gso_size, csum_start, csum_offset, num_buffers: 7 }
}

#[test]
fn what_guests_ask_for() {
    use vnet::{DATA_VALID, NEEDS_CSUM};
    let kind = |features, h, frame: &Packet| from_guest(features, h, frame).map(|p| (p.meta().csum, p.meta().gso));
    let plain = Some((Csum::Unknown, Gso::NONE));
    let due = Some((Csum::Partial, Gso::NONE));
    assert_eq!(kind(ALL, hdr(0, 0, 0, 0, 0), &tcp4(100)), plain);
    assert_eq!(kind(ALL, hdr(DATA_VALID, 0, 9, 9, 9), &tcp4(100)), plain, "a guest's word is no proof");
    assert_eq!(kind(ALL, hdr(NEEDS_CSUM, 0, 0, 34, 16), &tcp4(100)), due);
    let cut = |kind, size| Some((Csum::Partial, Gso { kind, ecn: false, size }));
    assert_eq!(kind(ALL, hdr(NEEDS_CSUM, t::TCPV4, 1000, 34, 16), &tcp4(3000)), cut(GsoKind::Tcp4, 1000));
    assert_eq!(kind(ALL, hdr(NEEDS_CSUM, t::UDP_L4, 1000, 54, 6), &udp6(3000)), cut(GsoKind::UdpL4, 1000));
    assert_eq!(kind(ALL, hdr(NEEDS_CSUM, t::UDP, 1000, 54, 6), &udp6(3000)), cut(GsoKind::Udp6, 1000));
    // Lies.
    assert_eq!(kind(ALL, hdr(NEEDS_CSUM, 0, 0, 0xffff, 0xffff), &tcp4(100)), None);
    assert_eq!(kind(ALL, hdr(NEEDS_CSUM, 0, 0, 153, 0), &tcp4(100)), None);
    assert_eq!(kind(ALL, hdr(NEEDS_CSUM, t::TCPV4, 0, 34, 16), &tcp4(3000)), None);
    assert_eq!(kind(ALL, hdr(NEEDS_CSUM, t::TCPV6, 1000, 34, 16), &tcp4(3000)), None);
    assert_eq!(kind(ALL, hdr(NEEDS_CSUM, t::TCPV4, 1000, 33, 16), &tcp4(3000)), None);
    assert_eq!(kind(ALL, hdr(0, 9, 1000, 34, 16), &tcp4(3000)), None);
    // Not negotiated.
    assert_eq!(kind(ALL & !feature::CSUM, hdr(NEEDS_CSUM, 0, 0, 34, 16), &tcp4(100)), None);
    assert_eq!(kind(ALL & !feature::HOST_TSO4, hdr(NEEDS_CSUM, t::TCPV4, 1000, 34, 16), &tcp4(3000)), None);
    assert_eq!(kind(ALL & !feature::HOST_USO, hdr(NEEDS_CSUM, t::UDP_L4, 1000, 54, 6), &udp6(3000)), None);
    // The header of a legacy guest has no buffer count.
    let legacy = feature::CSUM | feature::HOST_TSO4;
    assert_eq!(kind(legacy, hdr(NEEDS_CSUM, t::TCPV4, 1000, 34, 16), &tcp4(3000)), cut(GsoKind::Tcp4, 1000));
}

/// What a guest with these features receives: header and frame of each.
fn to_guest(features: u64, packet: Packet) -> Vec<(VnetHdr, Packet)> {
    let features = Features(features);
    let memory = Arc::new(Memory::new(1, 0x80000));
    let mut driver = Driver::new(memory.clone(), features, 64, 0);
    let (counts, at) = (Arc::new(Counts::default()), driver.free_from);
    let len = if features.has(feature::MRG_RXBUF) { 1500 } else { 9000 };
    for i in 0..48 {
        driver.offer(&[(at + i * u64::from(len), len)], true, false).unwrap();
    }
    driver.publish();
    let mut ring = driver.tx(&counts);
    let mut batch = Batch::new();
    batch.push(packet).unwrap();
    let sent = ring.send(&mut batch);
    assert_eq!((sent.dropped, ring.fault()), (0, None));
    let mut used = driver.reap().into_iter();
    let mut out = Vec::new();
    while let Some(u) = used.next() {
        let mut whole = memory.read(at + u.token as u64 * u64::from(len), u.len as usize);
        let mut header = [0; 12];
        header[..features.header_len()].copy_from_slice(&whole[..features.header_len()]);
        let header = VnetHdr::from_le_bytes(&header);
        for _ in 1..header.num_buffers {
            let u = used.next().unwrap();
            whole.extend(memory.read(at + u.token as u64 * u64::from(len), u.len as usize));
        }
        out.push((header, Packet::from_slice(&whole[features.header_len()..])));
    }
    assert_eq!(sent.packets as usize, out.len());
    out
}

fn partial(mut p: Packet, kind: GsoKind, size: u16) -> Packet {
    assert!(make_partial(&mut p, kind, size));
    p
}

/// Every frame's checksum is right.
fn complete(got: Vec<(VnetHdr, Packet)>) -> usize {
    let n = got.len();
    for (h, mut p) in got {
        assert_eq!((h.flags & vnet::NEEDS_CSUM, h.gso_type, h.gso_size), (0, 0, 0));
        p.meta_mut().l3_ofs = 14;
        assert!(validate(&mut p) && fv_packet::csum::validate_ip(&mut p));
    }
    n
}

#[test]
fn what_guests_are_told() {
    let whole = to_guest(ALL, partial(tcp4(5000), GsoKind::Tcp4, 1000));
    let (h, p) = &whole[0];
    assert_eq!((whole.len(), p.len(), h.num_buffers), (1, 5054, 4));
    assert_eq!((h.flags, h.gso_type, h.gso_size, h.hdr_len), (vnet::NEEDS_CSUM, t::TCPV4, 1000, 54));
    assert_eq!((h.csum_start, h.csum_offset), (34, 16));
    let uso = to_guest(ALL, partial(udp6(3000), GsoKind::UdpL4, 1000));
    assert_eq!((uso[0].0.gso_type, uso[0].0.csum_start), (t::UDP_L4, 54));
    let csum = to_guest(ALL, partial(tcp4(100), GsoKind::None, 0));
    assert_eq!((csum[0].0.flags, csum[0].0.gso_type), (vnet::NEEDS_CSUM, 0));

    let mut good = tcp4(100);
    good.meta_mut().csum = Csum::Good;
    assert_eq!(to_guest(ALL, good.duplicate())[0].0.flags, vnet::DATA_VALID);
    assert_eq!(to_guest(ALL & !feature::GUEST_CSUM, good)[0].0.flags, 0);
}

#[test]
fn what_guests_cannot_is_done_for_them() {
    assert_eq!(complete(to_guest(0, partial(tcp4(100), GsoKind::None, 0))), 1);
    assert_eq!(complete(to_guest(0, partial(tcp4(5000), GsoKind::Tcp4, 1000))), 5);
    assert_eq!(
        complete(to_guest(feature::VERSION_1 | feature::GUEST_TSO4, partial(tcp4(5000), GsoKind::Tcp4, 1000))),
        5
    );
    assert_eq!(complete(to_guest(ALL & !feature::GUEST_CSUM, partial(udp6(5000), GsoKind::UdpL4, 1000))), 5);
    let cut = to_guest(ALL & !feature::GUEST_TSO4, partial(tcp4(5000), GsoKind::Tcp4, 1000));
    assert!(cut.len() == 5 && cut.iter().all(|(h, _)| h.flags == vnet::NEEDS_CSUM && h.gso_type == 0));
    let mut ecn = partial(tcp4(5000), GsoKind::Tcp4, 1000);
    ecn.meta_mut().gso.ecn = true;
    assert_eq!(to_guest(ALL, ecn.duplicate())[0].0.gso_type, t::TCPV4 | t::ECN);
    assert_eq!(to_guest(ALL & !feature::GUEST_ECN, ecn).len(), 5);
    assert_eq!(to_guest(ALL & !feature::GUEST_USO6, partial(udp6(5000), GsoKind::UdpL4, 1000)).len(), 5);
}
