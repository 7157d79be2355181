//! Header views and composition against an independent reader and writer, and against noise.

use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use fv_packet::compose::Compose;
use fv_packet::hdr::*;
use proptest::prelude::*;

type Bytes = Vec<u8>;

fn written(builder: etherparse::PacketBuilderStep<etherparse::UdpHeader>, payload: &[u8]) -> Bytes {
    let mut out = Vec::new();
    builder.write(&mut out, payload).unwrap();
    out
}

proptest! {
    #[test]
    fn udp4_is_composed_as_by_another(
        src: u32, dst: u32, ports: (u16, u16), ttl: u8, macs: ([u8; 6], [u8; 6]),
        payload in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let b = PacketBuilder::ethernet2(macs.0, macs.1).ipv4(src.to_be_bytes(), dst.to_be_bytes(), ttl);
        let want = written(b.udp(ports.0, ports.1), &payload);
        // The other writer says "do not fragment".
        let f = ipv4::Fields { src, dst, ttl, frag: ipv4::DF, ..Default::default() };
        let got = Compose::payload(&payload).udp(ports.0, ports.1).ipv4(&f).eth(macs.1, macs.0);
        prop_assert_eq!(got.data(), &want[..]);

        let e = Eth::parse(&want).unwrap();
        let ip = Ipv4::parse(&want[eth::LEN..]).unwrap();
        let u = Udp::parse(&want[eth::LEN + ip.header_len()..]).unwrap();
        prop_assert_eq!((e.src(), e.dst(), e.ethertype()), (macs.0, macs.1, eth::ethertype::IPV4));
        prop_assert_eq!((ip.src(), ip.dst(), ip.ttl(), ip.proto()), (src, dst, ttl, ipproto::UDP));
        prop_assert_eq!((u.src(), u.dst(), u.length()), (ports.0, ports.1, payload.len() + 8));
    }

    #[test]
    fn tcp6_is_composed_as_by_another(
        src: [u8; 16], dst: [u8; 16], ports: (u16, u16), seq: u32, ack: u32, window: u16, vid in 0u16..4096,
        payload in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut want = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .vlan(etherparse::VlanHeader::Single(etherparse::SingleVlanHeader {
                pcp: etherparse::VlanPcp::ZERO,
                drop_eligible_indicator: false,
                vlan_id: etherparse::VlanId::try_new(vid).unwrap(),
                ether_type: etherparse::EtherType::IPV6,
            }))
            .ipv6(src, dst, 7)
            .tcp(ports.0, ports.1, seq, window)
            .ack(ack)
            .psh()
            .write(&mut want, &payload)
            .unwrap();
        let t = tcp::Fields {
            src: ports.0, dst: ports.1, seq, ack, flags: tcp::flags::ACK | tcp::flags::PSH, window,
        };
        let f = ipv6::Fields { src, dst, hlim: 7, ..Default::default() };
        let tag = vlan::Tag { tpid: eth::ethertype::VLAN, tci: vid };
        let got = Compose::payload(&payload).tcp(&t).ipv6(&f).vlan(tag).eth([4; 6], [2; 6]);
        prop_assert_eq!(got.data(), &want[..]);

        let l = Layout::of(&want).unwrap();
        prop_assert_eq!((l.l3_ofs, l.l4_ofs, l.end, l.proto, l.is_v6), (18, 58, want.len(), ipproto::TCP, true));
        let view = Tcp::parse(&want[l.l4_ofs..]).unwrap();
        prop_assert_eq!((view.seq(), view.ack(), view.flags(), view.window()), (seq, ack, t.flags, window));
    }

    /// Where both read a mangled frame, they agree.
    #[test]
    fn mangled_frames_are_read_alike(
        v6 in any::<bool>(), tags in 0usize..3, cut in 40usize..140, flips in proptest::collection::vec((0usize..80, any::<u8>()), 0..3),
    ) {
        let mut c = Compose::payload_len(20).tcp(&tcp::Fields::default());
        c = if v6 {
            c.extension(ipproto::DSTOPTS, &[1, 4]).ipv6(&ipv6::Fields::default())
        } else {
            c.ipv4_options(&ipv4::Fields::default(), &[1; 4])
        };
        for _ in 0..tags {
            c = c.vlan(vlan::Tag { tpid: 0x8100, tci: 1 });
        }
        let mut p = c.eth([2; 6], [4; 6]);
        for (at, flip) in flips {
            if let Some(b) = p.data_mut().get_mut(at) {
                *b ^= flip;
            }
        }
        p.truncate(cut);
        let (Some(ours), Ok(theirs)) = (Layout::of(p.data()), SlicedPacket::from_ethernet(p.data())) else {
            return Ok(());
        };
        let Some(net) = theirs.net else { return Ok(()) };
        let base = p.data().as_ptr() as usize;
        match &net {
            NetSlice::Ipv4(ip) => {
                prop_assert_eq!(ours.l3_ofs, ip.header().slice().as_ptr() as usize - base);
                prop_assert_eq!(ours.later_fragment, ip.header().fragments_offset().value() != 0);
                // The other reader goes on through authentication headers.
                prop_assume!(ip.header().protocol().0 != ipproto::AH);
                prop_assert_eq!(ours.proto, ip.header().protocol().0);
                prop_assert_eq!(ours.l4_ofs, ip.payload().payload.as_ptr() as usize - base);
            }
            NetSlice::Ipv6(ip) => {
                prop_assert_eq!(ours.l3_ofs, ip.header().slice().as_ptr() as usize - base);
                prop_assume!(ip.header().payload_length() != 0);
                if !ours.later_fragment && matches!(ours.proto, ipproto::TCP | ipproto::UDP) {
                    prop_assert_eq!(ours.proto, ip.payload().ip_number.0);
                    prop_assert_eq!(ours.l4_ofs, ip.payload().payload.as_ptr() as usize - base);
                }
            }
            NetSlice::Arp(_) => prop_assert!(false),
        }
        if let Some(TransportSlice::Tcp(t)) = &theirs.transport {
            let view = Tcp::parse(&p.data()[ours.l4_ofs..]).unwrap();
            prop_assert_eq!(view.header_len(), t.slice().len() - t.payload().len());
        }
    }

    /// Noise makes no view panic, and every accessor of one that parses works.
    #[test]
    fn noise(bytes in proptest::collection::vec(any::<u8>(), 0..120), first in any::<u8>()) {
        let mut b = bytes.clone();
        if let Some(byte) = b.first_mut() {
            // Often a plausible version.
            *byte = [0x45, 0x60, 0x4f, 0x6f, first][usize::from(first) % 5];
        }
        if let Some(ip) = Ipv4::parse(&b) {
            prop_assert!(ip.header_len() >= 20 && ip.total_len() >= ip.header_len());
            let _ = (ip.tos(), ip.id(), ip.frag(), ip.is_fragment(), ip.ttl(), ip.proto(), ip.csum(), ip.src(), ip.dst());
        }
        if let Some(chain) = Chain::walk(&b) {
            prop_assert!(chain.l4_ofs <= b.len() && chain.proto_at < b.len());
        }
        if let Some(t) = Tcp::parse(&b) {
            prop_assert!(t.options().len() <= 40);
        }
        if let Some(nd) = Icmpv6::parse(&b).and_then(|i| i.nd()) {
            let _ = (nd.target(), nd.sll(), nd.tll(), nd.flags());
        }
        prop_assert!(icmpv6::nd_options(&b).count() <= icmpv6::MAX_OPTIONS);
        let _ = (Arp::parse(&b).map(|a| a.tpa()), Sctp::parse(&b).map(|s| s.csum()), Igmp::parse(&b).map(|i| i.group()));
        let _ = (Lse::parse(&b), llc::snap_type(&b), Layout::of(&bytes), Layout::of_ip(&b, 0, 0x86dd));
    }
}

#[test]
fn extension_chains_have_an_end() {
    let chain = |n: usize| {
        let mut c = Compose::payload_len(8).udp(1, 2);
        for _ in 0..n {
            c = c.extension(ipproto::DSTOPTS, &[1, 4, 0, 0, 0, 0]);
        }
        Chain::walk(c.ipv6(&ipv6::Fields::default()).build().data())
    };
    assert_eq!(chain(0).map(|c| (c.proto, c.l4_ofs)), Some((ipproto::UDP, 40)));
    assert_eq!(chain(ipv6::MAX_EXTENSIONS).map(|c| c.l4_ofs), Some(40 + 8 * 32));
    assert_eq!(chain(ipv6::MAX_EXTENSIONS + 1), None);
}

#[test]
fn fragments_of_ipv6() {
    let f = ipv6::Fields::default();
    let frag = |field: [u8; 2]| {
        let body = [field[0], field[1], 0, 0, 0, 9];
        let p = Compose::payload_len(16).udp(1, 2).extension(ipproto::FRAGMENT, &body).ipv6(&f).build();
        let c = Chain::walk(p.data()).unwrap();
        (c.proto, c.l4_ofs, c.is_fragment(), c.is_later_fragment(), c.frag.unwrap().id)
    };
    assert_eq!(frag([0, 0]), (ipproto::UDP, 48, false, false, 9));
    assert_eq!(frag([0, 1]), (ipproto::UDP, 48, true, false, 9));
    assert_eq!(frag([0, 8]), (ipproto::UDP, 48, true, true, 9));
}
