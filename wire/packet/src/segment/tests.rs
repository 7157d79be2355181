use super::*;
use crate::compose::make_partial;
use crate::hdr::tcp::flags;
use crate::hdr::vlan::Tag;
use crate::hdr::{ipv4, ipv6, tcp};
use crate::{Compose, finish_checksum};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;

const SRC6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

#[derive(Clone, Copy, Debug)]
struct Shape {
    kind: GsoKind,
    payload: usize,
    size: u16,
    tags: usize,
    ip_options: usize,
    tcp_options: usize,
    extensions: bool,
    flags: u16,
}

fn shape() -> impl Strategy<Value = Shape> {
    let kinds = prop_oneof![
        Just(GsoKind::Tcp4),
        Just(GsoKind::Tcp6),
        Just(GsoKind::UdpL4),
        Just(GsoKind::Udp4),
        Just(GsoKind::Udp6)
    ];
    (kinds, 0usize..6000, 8u16..1500, 0usize..3, 0usize..3, 0usize..4, any::<bool>(), 0u16..0x200).prop_map(
        |(kind, payload, size, tags, io, to, extensions, flags)| Shape {
            kind,
            payload,
            size,
            tags,
            ip_options: io * 4,
            tcp_options: to * 4,
            extensions,
            flags,
        },
    )
}

/// The packet of a shape, complete.
fn packet(s: &Shape) -> Packet {
    let c = Compose::payload_len(s.payload);
    let mut c = match s.kind {
        GsoKind::Tcp4 | GsoKind::Tcp6 => c.tcp_options(
            &tcp::Fields { src: 5, dst: 80, seq: u32::MAX - 1000, ack: 9, flags: s.flags, window: 77 },
            &[1; 12][..s.tcp_options],
        ),
        _ => c.udp(53, 5353),
    };
    c = match s.kind {
        GsoKind::Tcp6 | GsoKind::Udp6 => {
            if s.extensions {
                c = c.extension(ipproto::DSTOPTS, &[1, 4, 0, 0, 0, 0]).extension(ipproto::HOPOPTS, &[1, 4, 0, 0, 0, 0]);
            }
            c.ipv6(&ipv6::Fields { src: SRC6, dst: [7; 16], tclass: 3, label: 9, ..Default::default() })
        }
        _ => c.ipv4_options(
            &ipv4::Fields { src: 0x0a000001, dst: 0x0a000002, id: 0xfffe, tos: 3, ..Default::default() },
            &[1; 8][..s.ip_options],
        ),
    };
    for i in 0..s.tags {
        c = c.vlan(Tag { tpid: [0x8100, 0x88a8][i], tci: 0x1000 + i as u16 });
    }
    c.eth([2; 6], [4; 6])
}

/// Segments by an independent reading: each must parse, carry right checksums, and together the payload.
fn check(s: &Shape, l4_csum: L4Csum) {
    let mut whole = packet(s);
    let original = whole.duplicate();
    assert!(make_partial(&mut whole, s.kind, s.size), "{s:?}");
    let segments = segment(whole, l4_csum).unwrap_or_else(|e| panic!("{s:?}: {e:?}"));
    let count = segments.remaining();
    let mut stream = Vec::new();
    for (i, mut seg) in segments.enumerate() {
        assert!(!seg.meta().gso.is_some());
        finish_checksum(&mut seg).unwrap();
        let parsed = SlicedPacket::from_ethernet(seg.data()).unwrap_or_else(|e| panic!("{s:?} segment {i}: {e:?}"));
        assert_eq!(parsed.link_exts.len(), s.tags);
        let last = i + 1 == count;
        match parsed.net.as_ref().expect("an IP header") {
            NetSlice::Ipv4(ip) => {
                let h = ip.header().to_header();
                assert_eq!(h.header_checksum, h.calc_header_checksum());
                assert_eq!(usize::from(h.total_len), seg.len() - 14 - 4 * s.tags);
                let fragmenting = s.kind == GsoKind::Udp4;
                assert_eq!(h.identification, 0xfffeu16.wrapping_add(if fragmenting { 0 } else { i as u16 }));
                assert_eq!(h.more_fragments, fragmenting && !last);
                if fragmenting {
                    assert_eq!(usize::from(h.fragment_offset.value()) * 8, stream.len());
                    stream.extend_from_slice(ip.payload().payload);
                    continue;
                }
            }
            NetSlice::Ipv6(ip) => {
                assert_eq!(usize::from(ip.header().payload_length()), seg.len() - 54 - 4 * s.tags);
                if s.kind == GsoKind::Udp6 {
                    let chain = ipv6::Chain::walk(&seg.data()[14 + 4 * s.tags..]).unwrap();
                    let frag = chain.frag.unwrap();
                    assert_eq!((usize::from(frag.offset), frag.more), (stream.len(), !last));
                    assert_ne!(frag.id, 0);
                    let at = chain.frag.unwrap().at + 8;
                    stream.extend_from_slice(&seg.data()[14 + 4 * s.tags + at..]);
                    continue;
                }
            }
            NetSlice::Arp(_) => panic!("ARP"),
        }
        match parsed.transport.as_ref().expect("a transport header") {
            TransportSlice::Tcp(t) => {
                let h = t.to_header();
                assert_eq!(h.sequence_number, (u32::MAX - 1000).wrapping_add(stream.len() as u32));
                let on = |f: u16, here: bool| s.flags & f != 0 && here;
                let (fin, psh, cwr) = (on(flags::FIN, last), on(flags::PSH, last), on(flags::CWR, i == 0));
                assert_eq!((h.fin, h.psh, h.cwr), (fin, psh, cwr));
                assert_eq!(h.syn, s.flags & flags::SYN != 0);
                assert_eq!(h.options.as_slice().len(), s.tcp_options);
                let payload = t.payload();
                let want = match parsed.net.as_ref().unwrap() {
                    NetSlice::Ipv4(ip) => h.calc_checksum_ipv4(&ip.header().to_header(), payload).unwrap(),
                    NetSlice::Ipv6(ip) => h.calc_checksum_ipv6(&ip.header().to_header(), payload).unwrap(),
                    NetSlice::Arp(_) => unreachable!(),
                };
                assert_eq!(h.checksum, want, "{s:?} segment {i}");
                assert!(payload.len() <= usize::from(s.size));
                stream.extend_from_slice(payload);
            }
            TransportSlice::Udp(u) => {
                let h = u.to_header();
                let want = match parsed.net.as_ref().unwrap() {
                    NetSlice::Ipv4(ip) => h.calc_checksum_ipv4(&ip.header().to_header(), u.payload()).unwrap(),
                    _ => panic!("UDP over IPv4 alone is made here"),
                };
                assert_eq!(h.checksum, want);
                stream.extend_from_slice(u.payload());
            }
            other => panic!("{other:?}"),
        }
    }
    let tail = original.len() - stream.len();
    assert_eq!(&original.data()[tail..], &stream[..], "{s:?}");
    let expected_payload = s.payload + if matches!(s.kind, GsoKind::Udp4 | GsoKind::Udp6) { 8 } else { 0 };
    assert_eq!(stream.len(), expected_payload);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_segment_is_right(s in shape(), leave in any::<bool>()) {
        check(&s, if leave { L4Csum::Leave } else { L4Csum::Finish });
    }

    /// Flipped and cut headers are refused or give bounded segments.
    #[test]
    fn hostile(s in shape(), at in 0usize..90, flip in any::<u8>(), cut in 0usize..6100, size in any::<u16>()) {
        let mut p = packet(&s);
        make_partial(&mut p, s.kind, size);
        if let Some(byte) = p.data_mut().get_mut(at) {
            *byte ^= flip;
        }
        p.truncate(cut);
        let len = p.len();
        if let Ok(segments) = segment(p, L4Csum::Finish) {
            let count = segments.remaining();
            prop_assert!(count <= MAX_SEGMENTS);
            prop_assert_eq!(segments.inspect(|seg| assert!(seg.len() <= len + 8)).count(), count);
        }
    }
}

#[test]
fn refusals() {
    let base = Shape {
        kind: GsoKind::Tcp4,
        payload: 3000,
        size: 1000,
        tags: 0,
        ip_options: 0,
        tcp_options: 0,
        extensions: false,
        flags: 0x10,
    };
    let check = |s: Shape, edit: fn(&mut Packet), want: BadGso| {
        let mut p = packet(&s);
        make_partial(&mut p, s.kind, s.size);
        edit(&mut p);
        assert_eq!(segment(p, L4Csum::Finish).err(), Some(want));
    };
    check(base, |p| p.meta_mut().gso.size = 0, BadGso::Size);
    check(base, |p| p.meta_mut().gso.kind = GsoKind::Tcp6, BadGso::Headers);
    check(base, |p| p.meta_mut().gso.kind = GsoKind::UdpL4, BadGso::Headers);
    check(base, |p| p.truncate(1000), BadGso::Headers);
    check(base, |p| p.extend(&[0]), BadGso::Length);
    check(base, |p| p.data_mut()[20] |= 0x20, BadGso::Fragment);
    check(base, |p| p.data_mut()[46] = 0x40, BadGso::Headers);
    check(Shape { kind: GsoKind::Udp4, size: 7, ..base }, |_| (), BadGso::Size);
    check(Shape { kind: GsoKind::Udp4, ..base }, |p| p.data_mut()[38] ^= 1, BadGso::Length);
}

#[test]
fn largest_and_smallest() {
    let f = ipv4::Fields { src: 1, dst: 2, ..Default::default() };
    let mut p = Compose::payload_len(65535 - 40).tcp(&tcp::Fields::default()).ipv4(&f).eth([2; 6], [3; 6]);
    assert!(make_partial(&mut p, GsoKind::Tcp4, 1));
    assert_eq!(segment(p, L4Csum::Leave).unwrap().count(), 65495);

    let plain = Packet::from_slice(b"anything");
    let out: Vec<Packet> = segment(plain, L4Csum::Finish).unwrap().collect();
    assert_eq!(out[0].data(), b"anything");
}

mod tunnels {
    use super::*;
    use crate::hdr::Mac;

    const MAC: Mac = [2; 6];

    /// What goes around the inner frame or packet.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Tunnel {
        Vxlan,
        VxlanCsum,
        Geneve,
        GreEthernet,
        GreIp,
        Ipip,
    }

    fn outer(c: Compose, v6: bool) -> Packet {
        match v6 {
            true => c.ipv6(&ipv6::Fields { src: [8; 16], dst: [9; 16], ..Default::default() }).eth(MAC, MAC),
            false => c.ipv4(&ipv4::Fields { src: 8, dst: 9, id: 100, ..Default::default() }).eth(MAC, MAC),
        }
    }

    /// Wraps `inner`, an Ethernet frame, and answers how many bytes went in front, and how many came off.
    fn wrap(inner: &Packet, t: Tunnel, v6: bool) -> (Packet, usize, usize) {
        let with = |header: &[u8], strip: usize| [header, &inner.data()[strip..]].concat();
        let gre = |bytes: Vec<u8>| {
            let f = ipv4::Fields { src: 8, dst: 9, id: 100, proto: ipproto::GRE, ..Default::default() };
            let g = ipv6::Fields { next: ipproto::GRE, ..Default::default() };
            let c = Compose::payload(&bytes);
            if v6 { c.ipv6(&g).eth(MAC, MAC) } else { c.ipv4(&f).eth(MAC, MAC) }
        };
        let (p, strip) = match t {
            Tunnel::Vxlan | Tunnel::VxlanCsum => {
                let mut p = outer(Compose::payload(&with(&[8, 0, 0, 0, 0, 0, 1, 0], 0)).udp(9, 4789), v6);
                if t == Tunnel::Vxlan {
                    let at = if v6 { 54 } else { 34 } + 6;
                    set16(p.data_mut(), at, 0);
                }
                (p, 0)
            }
            Tunnel::Geneve => {
                let h = [1, 0, 0x65, 0x58, 0, 0, 1, 0, 0, 0, 0, 0];
                (outer(Compose::payload(&with(&h, 0)).udp(9, 6081), v6), 0)
            }
            Tunnel::GreEthernet => {
                let mut bytes = with(&[0xa0, 0, 0x65, 0x58, 0, 0, 0, 0, 0, 0, 0, 7], 0);
                let csum = crate::csum::of(&bytes);
                set16(&mut bytes, 4, csum);
                (gre(bytes), 0)
            }
            Tunnel::GreIp => (gre(with(&[0, 0, inner.data()[12], inner.data()[13]], 14)), 14),
            Tunnel::Ipip => {
                let f = ipv4::Fields { src: 8, dst: 9, id: 100, proto: 4, ..Default::default() };
                (Compose::payload(&inner.data()[14..]).ipv4(&f).eth(MAC, MAC), 14)
            }
        };
        let front = p.len() - (inner.len() - strip);
        (p, front, strip)
    }

    fn shape(payload: usize) -> Shape {
        let kind = GsoKind::Tcp4;
        Shape { kind, payload, size: 1000, tags: 0, ip_options: 4, tcp_options: 8, extensions: false, flags: 0x18 }
    }

    /// Cutting inside the tunnel equals cutting first and putting each segment into the tunnel.
    fn check(levels: &[(Tunnel, bool)], payload: usize) {
        let s = shape(payload);
        let mut inner = packet(&s);
        make_partial(&mut inner, s.kind, s.size);
        let mut meta = *inner.meta();
        let mut whole = inner.duplicate();
        for (t, v6) in levels {
            let (p, front, strip) = wrap(&whole, *t, *v6);
            meta.csum_start = meta.csum_start + front as u16 - strip as u16;
            whole = p;
        }
        *whole.meta_mut() = meta;
        let want: Vec<Packet> = segment(inner, L4Csum::Finish)
            .unwrap()
            .enumerate()
            .map(|(i, mut seg)| {
                for (t, v6) in levels {
                    seg = wrap(&seg, *t, *v6).0;
                    if !v6 {
                        set16(seg.data_mut(), 18, 100 + i as u16);
                        ipv4::write_csum(&mut seg.data_mut()[14..34]);
                    }
                }
                seg
            })
            .collect();
        let got: Vec<Packet> = segment(whole, L4Csum::Leave).unwrap_or_else(|e| panic!("{levels:?} {e:?}")).collect();
        assert_eq!(got.len(), want.len());
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            assert_eq!(got.data(), want.data(), "{levels:?} segment {i}");
            assert_eq!(got.meta().csum, Csum::Good);
        }
    }

    #[test]
    fn cut_inside() {
        use Tunnel::*;
        for v6 in [false, true] {
            for t in [Vxlan, VxlanCsum, Geneve, GreEthernet, GreIp] {
                check(&[(t, v6)], 3456);
                check(&[(t, v6), (VxlanCsum, !v6)], 3456);
                check(&[(GreEthernet, v6), (t, v6), (Geneve, v6)], 2001);
            }
        }
        check(&[(Ipip, false)], 3000);
    }

    #[test]
    fn a_place_that_no_tunnel_leads_to() {
        let s = shape(3000);
        let (mut p, front, _) = wrap(&packet(&s), Tunnel::Vxlan, false);
        p.meta_mut().gso = Gso { kind: GsoKind::Tcp4, ecn: false, size: 1000 };
        p.meta_mut().csum = Csum::Partial;
        for start in 0..200u16 {
            p.meta_mut().csum_start = start;
            let inner_l4 = front + 14 + 24;
            assert_eq!(segment(p.duplicate(), L4Csum::Finish).is_ok(), usize::from(start) == inner_l4, "{start}");
        }
    }

    #[test]
    fn offload_headers_name_the_inner_packet() {
        let (p, front, _) = wrap(&packet(&shape(3000)), Tunnel::Geneve, true);
        let start = (front + 14 + 24) as u16;
        let hdr = |csum_start, gso_type| crate::VnetHdr {
            flags: 1,
            gso_type,
            gso_size: 1000,
            csum_start,
            csum_offset: 16,
            ..Default::default()
        };
        let mut q = p.duplicate();
        crate::from_vnet_hdr(&hdr(start, 1), &mut q).unwrap();
        assert_eq!(segment(q, L4Csum::Finish).unwrap().count(), 3);
        assert!(crate::from_vnet_hdr(&hdr(start + 1, 1), &mut p.duplicate()).is_err());
        assert!(crate::from_vnet_hdr(&hdr(start, 4), &mut p.duplicate()).is_err());
    }
}
