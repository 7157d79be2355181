//! What an action changes is declared; nothing else may move, and checksums that were right stay so.

use std::ops::Range;

use fv_dpif::action::{Masked, SetField};
use fv_packet::compose::{Compose, make_partial};
use fv_packet::csum::{finish_checksum, validate, validate_ip};
use fv_packet::hdr::{icmpv6, ipproto, ipv4, ipv6, tcp};
use fv_packet::{Csum, GsoKind, Packet};
use proptest::prelude::*;

use super::*;
use crate::parse;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Proto {
    Tcp,
    Udp,
    Sctp,
    Icmp,
    Nd,
}

fn frame(v6: bool, proto: Proto, vlan: bool, payload: &[u8]) -> Packet {
    let c = Compose::payload(payload);
    let c = match proto {
        Proto::Tcp => c.tcp(&tcp::Fields { src: 1000, dst: 80, ..Default::default() }),
        Proto::Udp => c.udp(2000, 53),
        Proto::Sctp => c.sctp(7, 8, 9),
        Proto::Icmp if v6 => c.icmpv6(128, 0),
        Proto::Icmp => c.icmp(8, 0, 1, 2),
        Proto::Nd => {
            // Flags, target, a source and a target link-layer address.
            let mut body = vec![0; 4];
            body.extend([0xfe; 16]);
            body.extend([1, 1, 0, 1, 2, 3, 4, 5, 2, 1, 9, 8, 7, 6, 5, 4]);
            Compose::payload(&body).icmpv6(icmpv6::NEIGHBOR_SOLICIT, 0)
        }
    };
    let v6 = v6 || proto == Proto::Nd;
    let c = if v6 {
        c.ipv6(&ipv6::Fields { src: [1; 16], dst: [2; 16], ..Default::default() })
    } else {
        c.ipv4(&ipv4::Fields { src: 0x0a000001, dst: 0x0a000002, ..Default::default() })
    };
    let c = if vlan { c.vlan(fv_packet::hdr::vlan::Tag { tpid: 0x8100, tci: 5 }) } else { c };
    let mut p = c.eth([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]);
    parse::extract(&mut p, 2);
    p
}

/// Random masked values for every field; half of the masks are whole.
#[derive(Clone, Debug)]
struct Random([u8; 64]);

impl Random {
    fn bytes<const N: usize>(&self, at: usize) -> Masked<[u8; N]> {
        let r = |i: usize| self.0[(at + i) % 64];
        let whole = self.0[(at * 7) % 64] & 1 == 0;
        Masked { value: std::array::from_fn(r), mask: std::array::from_fn(|i| if whole { 255 } else { r(i + 32) }) }
    }
    fn n8(&self, at: usize) -> Masked<u8> {
        let m = self.bytes::<1>(at);
        Masked { value: m.value[0], mask: m.mask[0] }
    }
    fn n16(&self, at: usize) -> Masked<u16> {
        let m = self.bytes::<2>(at);
        Masked { value: u16::from_be_bytes(m.value), mask: u16::from_be_bytes(m.mask) }
    }
    fn n32(&self, at: usize) -> Masked<u32> {
        let m = self.bytes::<4>(at);
        Masked { value: u32::from_be_bytes(m.value), mask: u32::from_be_bytes(m.mask) }
    }
}

/// (the action, the ranges of bytes that it may change besides checksums)
fn action(kind: usize, r: &Random, l3: usize, l4: usize) -> (SetField, Vec<Range<usize>>) {
    let of = |base: usize, list: &[(usize, usize)]| list.iter().map(|(a, n)| base + a..base + a + n).collect();
    match kind {
        0 => (SetField::Eth { src: r.bytes(0), dst: r.bytes(6) }, of(0, &[(0, 12)])),
        1 => {
            let f = SetField::Ipv4 { src: r.n32(0), dst: r.n32(4), tos: r.n8(8), ttl: r.n8(9) };
            (f, of(l3, &[(1, 1), (8, 1), (12, 8)]))
        }
        2 => {
            let f = SetField::Ipv6 {
                src: r.bytes(0),
                dst: r.bytes(16),
                label: r.n32(32),
                tclass: r.n8(36),
                hlimit: r.n8(37),
            };
            (f, of(l3, &[(0, 4), (7, 1), (8, 32)]))
        }
        3 => (SetField::Tcp { src: r.n16(0), dst: r.n16(2) }, of(l4, &[(0, 4)])),
        4 => (SetField::Udp { src: r.n16(0), dst: r.n16(2) }, of(l4, &[(0, 4)])),
        5 => (SetField::Sctp { src: r.n16(0), dst: r.n16(2) }, of(l4, &[(0, 4)])),
        6 => (SetField::Icmp { ty: r.n8(0), code: r.n8(1) }, of(l4, &[(0, 2)])),
        7 => (SetField::Icmpv6 { ty: r.n8(0), code: r.n8(1) }, of(l4, &[(0, 2)])),
        8 => {
            let f = SetField::Nd { target: r.bytes(0), sll: r.bytes(16), tll: r.bytes(22) };
            (f, of(l4, &[(8, 16), (26, 6), (34, 6)]))
        }
        _ => (SetField::NdExt { reserved: r.n32(0), options_type: r.n8(4) }, of(l4, &[(4, 4), (24, 1)])),
    }
}

fn protos() -> impl Strategy<Value = Proto> {
    prop_oneof![Just(Proto::Tcp), Just(Proto::Udp), Just(Proto::Sctp), Just(Proto::Icmp), Just(Proto::Nd)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn set_changes_what_it_says(
        v6: bool, proto in protos(), vlan: bool, partial: bool, cut in 0usize..80,
        kind in 0usize..10, random in any::<[u8; 32]>(), payload in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(&random);
        bytes[32..].copy_from_slice(&random.map(|b| b.rotate_left(3) ^ 0x5a));
        let random = Random(bytes);
        let mut p = frame(v6, proto, vlan, &payload);
        let is_partial = partial && matches!(proto, Proto::Tcp | Proto::Udp) && make_partial(&mut p, GsoKind::None, 0);
        // Most packets are whole, some are cut anywhere.
        if cut < p.len() && cut % 2 == 1 {
            let short = Packet::from_slice(&p.data()[..cut]);
            p = short;
            parse::extract(&mut p, 2);
        }
        let before = p.data().to_vec();
        let meta = *p.meta();
        let (l3, l4) = (usize::from(meta.l3_ofs), usize::from(meta.l4_ofs));
        let (field, ranges) = action(kind, &random, l3, l4);
        let done = set::set(&mut p, &field);
        let after = p.data().to_vec();
        prop_assert_eq!(before.len(), after.len());
        if done.is_err() {
            prop_assert_eq!(&before, &after);
            return Ok(());
        }
        // A packet that was cut has its checksum where its headers say, if there.
        if before.len() != frame(v6, proto, vlan, &payload).len() {
            return Ok(());
        }
        let l4_csum = match proto {
            Proto::Tcp => 16..18,
            Proto::Udp => 6..8,
            Proto::Sctp => 8..12,
            _ => 2..4,
        };
        let ip_csum = l3 + 10..l3 + 12;
        for (i, (a, b)) in before.iter().zip(&after).enumerate() {
            let csum = ip_csum.contains(&i) && !v6 || l4_csum.contains(&i.wrapping_sub(l4));
            prop_assert!(a == b || csum || ranges.iter().any(|r| r.contains(&i)), "byte {i} changed by {field:?}");
        }
        let mut expected = meta;
        expected.ip_csum = p.meta().ip_csum;
        prop_assert_eq!(&expected, p.meta());
        if is_partial {
            prop_assert!(finish_checksum(&mut p).is_ok());
        }
        p.meta_mut().csum = Csum::Unknown;
        p.meta_mut().ip_csum = Csum::Unknown;
        prop_assert!(validate_ip(&mut p) && validate(&mut p), "bad checksum after {field:?}");
        // Once more changes nothing: all fields have their values.
        let once = p.data().to_vec();
        prop_assert!(set::set(&mut p, &field).is_ok());
        prop_assert_eq!(once, p.data());
    }
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    for proto in [Proto::Tcp, Proto::Udp, Proto::Sctp] {
        let mut p = frame(false, proto, false, b"hello");
        let last = p.len() - 1;
        p.data_mut()[last] ^= 1;
        let whole = |v| Masked { value: v, mask: 0xffff };
        let (src, dst) = (whole(4), whole(5));
        for field in [SetField::Tcp { src, dst }, SetField::Udp { src, dst }, SetField::Sctp { src, dst }] {
            set::set(&mut p, &field).unwrap();
        }
        assert!(!validate(&mut p), "{proto:?}");
    }
}

#[test]
fn a_udp_packet_without_checksum_stays_without() {
    let mut p = frame(false, Proto::Udp, false, b"hello");
    let at = usize::from(p.meta().l4_ofs) + 6;
    p.data_mut()[at..at + 2].fill(0);
    let src = Masked { value: 0x01020304, mask: u32::MAX };
    let none = Masked::default();
    set::set(&mut p, &SetField::Ipv4 { src, dst: none, tos: Masked::default(), ttl: Masked::default() }).unwrap();
    assert_eq!(p.data()[at..at + 2], [0, 0]);
    assert!(validate_ip(&mut p));
}

#[test]
fn ttl_counts_down_to_one() {
    for v6 in [false, true] {
        let mut p = frame(v6, Proto::Udp, true, b"hello");
        for _ in 0..63 {
            assert!(set::decrement_ttl(&mut p));
        }
        assert!(validate_ip(&mut p) && validate(&mut p));
        let before = p.data().to_vec();
        assert!(!set::decrement_ttl(&mut p));
        assert_eq!(before, p.data());
    }
    let mut arp = Compose::arp(1, [1; 6], 1, [2; 6], 2).eth([255; 6], [1; 6]);
    parse::extract(&mut arp, 1);
    assert!(set::decrement_ttl(&mut arp));
}

#[test]
fn tags_labels_and_ethernet_round_trip() {
    let mut p = frame(false, Proto::Tcp, true, b"hello");
    let before = p.data().to_vec();
    let key = parse::extract(&mut p, 2);
    vlan::push(&mut p, 0x88a8, 0x1000 | 77).unwrap();
    let tagged = parse::extract(&mut p, 2);
    assert_eq!((tagged.base.vlans[0].tpid.get(), tagged.base.vlans[0].tci.get()), (0x88a8, 0x1000 | 77));
    vlan::pop(&mut p).unwrap();
    assert_eq!((parse::extract(&mut p, 2), p.data()), (key, &before[..]));
    mpls::push(&mut p, 0x12345 << 12 | 0x100 | 64, 0x8847).unwrap();
    assert_eq!(parse::extract(&mut p, 2).misc.mpls_lse[0].get() >> 12, 0x12345);
    mpls::pop(&mut p, 0x800).unwrap();
    assert_eq!((parse::extract(&mut p, 2), p.data()), (key, &before[..]));
    eth::pop(&mut p).unwrap();
    let bare = parse::extract(&mut p, 2);
    assert_eq!((bare.misc.packet_type, bare.base.nw_dst), (1 << 16 | 0x800, key.base.nw_dst));
    eth::push(&mut p, &[3; 6], &[4; 6]).unwrap();
    let again = parse::extract(&mut p, 2);
    assert_eq!((again.base.dl_dst, again.base.dl_type.get(), p.len()), ([4; 6], 0x800, before.len() - 4));
    assert_eq!(p.meta().in_port, 0);
}

#[test]
fn nesting_has_an_end() {
    let nest = |n: usize| (1..n).fold(vec![DpAction::PopVlan], |inner, _| vec![DpAction::Clone(inner)]);
    assert_eq!(Shape::of(&nest(NESTING_MAX)), Shape::Actions);
    assert_eq!(Shape::of(&nest(NESTING_MAX + 1)), Shape::Drop(DropReason::ActionUnsupported));
    assert_eq!(Shape::of(&nest(1000)), Shape::Drop(DropReason::ActionUnsupported));
    assert_eq!(ipproto::TCP, 6);
}
