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
