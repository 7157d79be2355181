//! Every kind of frame that a port with an offload header may hand over leaves a port without any offload
//! complete: all checksums right by an independent reading, no bytes lost.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use fv_netdev::{TxOffloads, egress_fixup};
use fv_packet::compose::{Compose, make_partial};
use fv_packet::hdr::vlan::Tag;
use fv_packet::hdr::{Layout, ipproto, ipv4, ipv6, sctp, tcp};
use fv_packet::{GsoKind, Packet, VnetHdr, from_vnet_hdr, to_vnet_hdr};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Ip {
    V4,
    V4Options,
    V6,
    V6Extensions,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum L4 {
    Tcp,
    Udp,
    UdpNoCsum,
    Icmp,
    Sctp,
}

fn frame(ip: Ip, l4: L4, tags: usize, payload: usize) -> Packet {
    let v6 = matches!(ip, Ip::V6 | Ip::V6Extensions);
    let c = Compose::payload_len(payload);
    let mut c = match l4 {
        L4::Tcp => c.tcp_options(&tcp::Fields { src: 7, dst: 80, seq: 5, ..Default::default() }, &[1; 12]),
        L4::Udp | L4::UdpNoCsum => c.udp(7, 53),
        L4::Icmp if v6 => c.icmpv6(128, 0),
        L4::Icmp => c.icmp(8, 0, 1, 1),
        L4::Sctp => c.sctp(7, 9, 1),
    };
    let f4 = ipv4::Fields { src: 0x0a00_0001, dst: 0x0a00_0002, id: 1, ..Default::default() };
    let f6 = ipv6::Fields { src: [0xfd; 16], dst: [0xfe; 16], ..Default::default() };
    c = match ip {
        Ip::V4 => c.ipv4(&f4),
        Ip::V4Options => c.ipv4_options(&f4, &[1; 12]),
        Ip::V6 => c.ipv6(&f6),
        Ip::V6Extensions => c
            .extension(ipproto::DSTOPTS, &[1, 4, 0, 0, 0, 0])
            .extension(ipproto::HOPOPTS, &[1, 4, 0, 0, 0, 0])
            .ipv6(&f6),
    };
    for i in 0..tags {
        c = c.vlan(Tag { tpid: 0x8100, tci: 10 + i as u16 });
    }
    let mut p = c.eth([2; 6], [4; 6]);
    if l4 == L4::UdpNoCsum && !v6 {
        let at = Layout::of(p.data()).unwrap().l4_ofs + 6;
        p.data_mut()[at..at + 2].fill(0);
    }
    p
}

/// Reads a frame without any of our own code, SCTP's checksum excepted, and answers its L4 payload's length.
fn verify(p: &Packet, l4: L4, what: &str) -> usize {
    let parsed = SlicedPacket::from_ethernet(p.data()).unwrap_or_else(|e| panic!("{what}: {e:?}"));
    let (v4, v6) = match parsed.net.as_ref().expect(what) {
        NetSlice::Ipv4(ip) => {
            let h = ip.header().to_header();
            assert_eq!(h.header_checksum, h.calc_header_checksum(), "{what}");
            (Some(h), None)
        }
        NetSlice::Ipv6(ip) => (None, Some(ip.header().to_header())),
        NetSlice::Arp(_) => panic!("{what}"),
    };
    match (parsed.transport.as_ref(), l4) {
        (Some(TransportSlice::Tcp(t)), L4::Tcp) => {
            let h = t.to_header();
            let want = match (&v4, &v6) {
                (Some(ip), _) => h.calc_checksum_ipv4(ip, t.payload()).unwrap(),
                (_, Some(ip)) => h.calc_checksum_ipv6(ip, t.payload()).unwrap(),
                _ => unreachable!(),
            };
            assert_eq!(h.checksum, want, "{what}");
            t.payload().len()
        }
        (Some(TransportSlice::Udp(u)), _) => {
            let h = u.to_header();
            let want = match (&v4, &v6) {
                (Some(_), _) if l4 == L4::UdpNoCsum => 0,
                (Some(ip), _) => h.calc_checksum_ipv4(ip, u.payload()).unwrap(),
                (_, Some(ip)) => h.calc_checksum_ipv6(ip, u.payload()).unwrap(),
                _ => unreachable!(),
            };
            assert_eq!(h.checksum, want, "{what}");
            u.payload().len()
        }
        (Some(TransportSlice::Icmpv4(i)), L4::Icmp) => {
            assert_eq!(i.header().icmp_type.calc_checksum(i.payload()), i.header().checksum, "{what}");
            i.payload().len()
        }
        (Some(TransportSlice::Icmpv6(i)), L4::Icmp) => {
            let ip = v6.unwrap();
            assert!(i.is_checksum_valid(ip.source, ip.destination), "{what}");
            i.slice().len() - 4
        }
        (None, L4::Sctp) => {
            let l = Layout::of(p.data()).unwrap();
            let mut message = p.data()[l.l4_ofs..].to_vec();
            let field = message[8..12].to_vec();
            sctp::write_csum(&mut message);
            assert_eq!(message[8..12], field, "{what}");
            message.len() - 12
        }
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn whatever_comes_in_goes_out_complete() {
    let mut combinations = 0;
    for ip in [Ip::V4, Ip::V4Options, Ip::V6, Ip::V6Extensions] {
        for l4 in [L4::Tcp, L4::Udp, L4::UdpNoCsum, L4::Icmp, L4::Sctp] {
            for tags in 0..3 {
                for (due, gso) in [(false, false), (true, false), (true, true)] {
                    if run(ip, l4, tags, due, gso) {
                        combinations += 1;
                    }
                }
            }
        }
    }
    assert_eq!(combinations, 3 * 4 * (5 + 4 + 2) - 3 * 2);
}

fn run(ip: Ip, l4: L4, tags: usize, due: bool, gso: bool) -> bool {
    let what = format!("{ip:?} {l4:?} {tags} tags, due {due}, gso {gso}");
    let v4 = matches!(ip, Ip::V4 | Ip::V4Options);
    let kind = match (l4, gso) {
        (_, false) => GsoKind::None,
        (L4::Tcp, _) if v4 => GsoKind::Tcp4,
        (L4::Tcp, _) => GsoKind::Tcp6,
        (L4::Udp, _) => GsoKind::UdpL4,
        _ => return false,
    };
    // What the sender means by "no checksum" or a checksum of its own is never due.
    if due && (l4 == L4::Icmp || l4 == L4::UdpNoCsum && v4) {
        return false;
    }
    let payload = if gso { 5000 } else { 333 };
    let original = frame(ip, l4, tags, payload);

    // As the sender's kernel would say it, then over the header's bytes.
    let mut sent = original.duplicate();
    if due {
        assert!(make_partial(&mut sent, kind, 1400), "{what}");
    }
    let header = VnetHdr::from_ne_bytes(&to_vnet_hdr(&sent).to_ne_bytes());
    let mut received = Packet::from_slice(sent.data());
    from_vnet_hdr(&header, &mut received).unwrap_or_else(|e| panic!("{what}: {e:?}"));

    let mut out = Vec::new();
    egress_fixup(received, &TxOffloads::default(), &mut |p| out.push(p)).unwrap_or_else(|e| panic!("{what}: {e:?}"));
    assert_eq!(out.len(), if gso { 4 } else { 1 }, "{what}");
    let total: usize = out.iter().map(|p| verify(p, l4, &what)).sum();
    assert_eq!(total, payload, "{what}");
    if !gso {
        assert_eq!(out[0].data(), original.data(), "{what}");
    }
    true
}
