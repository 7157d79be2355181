use super::*;
use crate::compose::make_partial;
use crate::csum::{add, crc32c, finish, finish_udp, of};
use crate::hdr::vlan::Tag;
use crate::hdr::{Layout, icmpv6, ipv4, ipv6, tcp};
use crate::{Compose, GsoKind, bytes, finish_checksum, validate};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Tcp,
    Udp,
    UdpNone,
    Sctp,
    Icmp,
    Nd,
}

const KINDS: [Kind; 6] = [Kind::Tcp, Kind::Udp, Kind::UdpNone, Kind::Sctp, Kind::Icmp, Kind::Nd];

fn packet(kind: Kind, v6: bool, extended: bool, tags: usize, payload: usize) -> Packet {
    let c = Compose::payload_len(payload);
    let mut c = match kind {
        Kind::Tcp => c.tcp(&tcp::Fields { src: 1, dst: 2, ..Default::default() }),
        Kind::Udp | Kind::UdpNone => c.udp(1, 2),
        Kind::Sctp => c.sctp(1, 2, 3),
        Kind::Icmp if v6 => c.icmpv6(128, 0),
        Kind::Icmp => c.icmp(8, 0, 1, 2),
        Kind::Nd => {
            let mut body = vec![0; 36];
            body[4..20].copy_from_slice(&[0xfe; 16]);
            body[20..22].copy_from_slice(&[icmpv6::OPT_SLL, 1]);
            body[28..30].copy_from_slice(&[icmpv6::OPT_TLL, 1]);
            Compose::payload(&body).icmpv6(icmpv6::NEIGHBOR_SOLICIT, 0)
        }
    };
    c = if v6 || kind == Kind::Nd {
        if extended {
            c = c.extension(ipproto::DSTOPTS, &[1, 4, 0, 0, 0, 0]);
        }
        c.ipv6(&ipv6::Fields { src: [1; 16], dst: [2; 16], ..Default::default() })
    } else {
        let options = if extended { &[1u8; 8][..] } else { &[] };
        c.ipv4_options(&ipv4::Fields { src: 0x0a00_0001, dst: 0x0a00_0002, id: 7, ..Default::default() }, options)
    };
    for i in 0..tags {
        c = c.vlan(Tag { tpid: 0x8100, tci: i as u16 });
    }
    let mut p = c.eth([2; 6], [4; 6]);
    let l = Layout::of(p.data()).unwrap();
    if kind == Kind::UdpNone && !l.is_v6 {
        bytes::set16(p.data_mut(), l.l4_ofs + 6, 0);
    }
    p.meta_mut().l3_ofs = l.l3_ofs as u16;
    p.meta_mut().l4_ofs = l.l4_ofs as u16;
    p
}

/// One rewrite: what is called, and the bytes that a naive reader would change.
#[derive(Clone, Debug)]
struct Edit {
    field: usize,
    value: [u8; 16],
    mask: [u8; 16],
}

fn word<const N: usize>(b: &[u8; 16]) -> [u8; N] {
    b[..N].try_into().unwrap()
}

/// Calls the function of field `e.field`, and writes the same bytes into `naive` by plain offsets.
fn apply(e: &Edit, p: &mut Packet, naive: &mut [u8], kind: Kind) -> bool {
    let l = Layout::of(naive).unwrap();
    let (l3, l4) = (l.l3_ofs, l.l4_ofs);
    let (v, m) = (&e.value, &e.mask);
    let u32_of = |b| u32::from_be_bytes(word::<4>(b));
    let u16_of = |b| u16::from_be_bytes(word::<2>(b));
    let ports = matches!(kind, Kind::Tcp | Kind::Udp | Kind::UdpNone | Kind::Sctp);
    let icmp = matches!(kind, Kind::Icmp | Kind::Nd);
    let nd = kind == Kind::Nd;
    let (done, there, at, bytes): (bool, bool, usize, Vec<(u8, u8)>) = {
        let full = |n: usize| (0..n).map(|i| (v[i], m[i])).collect::<Vec<_>>();
        match e.field {
            0 => (eth_dst(p, word(v), word(m)), true, 0, full(6)),
            1 => (eth_src(p, word(v), word(m)), true, 6, full(6)),
            2 => (ipv4_src(p, u32_of(v), u32_of(m)), !l.is_v6, l3 + 12, full(4)),
            3 => (ipv4_dst(p, u32_of(v), u32_of(m)), !l.is_v6, l3 + 16, full(4)),
            4 => (ipv4_tos(p, v[0], m[0]), !l.is_v6, l3 + 1, full(1)),
            5 => (ipv4_ttl(p, v[0], m[0]), !l.is_v6, l3 + 8, full(1)),
            6 => (ipv6_src(p, v, m), l.is_v6, l3 + 8, full(16)),
            7 => (ipv6_dst(p, v, m), l.is_v6, l3 + 24, full(16)),
            8 => {
                let bits = vec![(v[0] >> 4, m[0] >> 4), (v[0] << 4, m[0] << 4)];
                (ipv6_tclass(p, v[0], m[0]), l.is_v6, l3, bits)
            }
            9 => {
                let (value, mask) = (u32_of(v) & 0xf_ffff, u32_of(m) & 0xf_ffff);
                let bits = value.to_be_bytes().into_iter().zip(mask.to_be_bytes()).collect();
                (ipv6_label(p, u32_of(v), u32_of(m)), l.is_v6, l3, bits)
            }
            10 => (ipv6_hlimit(p, v[0], m[0]), l.is_v6, l3 + 7, full(1)),
            11 => (l4_src(p, u16_of(v), u16_of(m)), ports, l4, full(2)),
            12 => (l4_dst(p, u16_of(v), u16_of(m)), ports, l4 + 2, full(2)),
            13 => (icmp_code(p, v[0], m[0]), icmp, l4 + 1, full(1)),
            14 => (nd_target(p, v, m), nd, l4 + 8, full(16)),
            15 => (nd_sll(p, word(v), word(m)), nd, l4 + 26, full(6)),
            16 => (nd_tll(p, word(v), word(m)), nd, l4 + 34, full(6)),
            17 => (nd_reserved(p, u32_of(v), u32_of(m)), nd, l4 + 4, full(4)),
            18 => (nd_options_type(p, v[0], m[0]), nd, l4 + 24, full(1)),
            _ => (icmp_type(p, v[0], m[0]), icmp, l4, full(1)),
        }
    };
    assert_eq!(done, there, "{e:?} {kind:?}");
    if there {
        for (i, (value, mask)) in bytes.into_iter().enumerate() {
            naive[at + i] = naive[at + i] & !mask | value & mask;
        }
    }
    there
}

const FIELDS: usize = 20;

/// All checksums from scratch. A UDP checksum of 0 over IPv4 stays.
fn recompute(frame: &mut [u8], none: bool) {
    let l = Layout::of(frame).unwrap();
    if !l.is_v6 {
        ipv4::write_csum(&mut frame[l.l3_ofs..l.l4_ofs]);
    }
    let pseudo = crate::csum::pseudo(frame, &l);
    let l4 = &mut frame[l.l4_ofs..];
    let (at, pseudo) = match l.proto {
        ipproto::TCP => (16, pseudo),
        ipproto::UDP if none => return,
        ipproto::UDP => (6, pseudo),
        ipproto::ICMP => (2, 0),
        ipproto::ICMPV6 => (2, pseudo),
        _ => {
            l4[8..12].fill(0);
            let crc = crc32c(l4);
            return l4[8..12].copy_from_slice(&crc.to_le_bytes());
        }
    };
    bytes::set16(l4, at, 0);
    let sum = add(pseudo, l4);
    bytes::set16(l4, at, if l.proto == ipproto::UDP { finish_udp(sum) } else { finish(sum) });
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let mask = prop_oneof![Just([0xff; 16]), any::<[u8; 16]>(), Just([0; 16])];
    let edit = (0..FIELDS, any::<[u8; 16]>(), mask).prop_map(|(field, value, mask)| Edit { field, value, mask });
    proptest::collection::vec(edit, 1..5)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Right,
    Due,
    Wrong,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn like_recomputation(
        kind in 0..KINDS.len(), v6 in any::<bool>(), extended in any::<bool>(), tags in 0usize..3, payload in 0usize..80,
        state in prop_oneof![Just(State::Right), Just(State::Due), Just(State::Wrong)], edits in edits(),
    ) {
        let kind = KINDS[kind];
        let mut p = packet(kind, v6, extended, tags, payload);
        let l = Layout::of(p.data()).unwrap();
        let none = kind == Kind::UdpNone && !l.is_v6;
        let mut naive = p.data().to_vec();
        let due = state == State::Due && !none && make_partial(&mut p, GsoKind::None, 0);
        let wrong = state == State::Wrong && !none && kind != Kind::Icmp;
        if wrong {
            // Anything but a change by 0xffff, which ones' complement does not see.
            let at = crate::csum::l4_csum_offset(l.proto).unwrap() + l.l4_ofs;
            p.data_mut()[at] ^= 0x10;
        }
        for e in &edits {
            // The type decides whether later edits find neighbour discovery.
            if !(e.field >= 18 || e.field == 13) || kind != Kind::Nd {
                apply(e, &mut p, &mut naive, kind);
            }
        }
        recompute(&mut naive, none);
        if wrong {
            prop_assert!(!validate(&mut p));
            return Ok(());
        }
        if due {
            finish_checksum(&mut p).unwrap();
        }
        prop_assert_eq!(p.data(), &naive[..], "{:?}", kind);
    }

    /// Types of ND messages and options, one at a time.
    #[test]
    fn nd_types(field in prop_oneof![Just(13usize), Just(18), Just(19)], value in any::<[u8; 16]>()) {
        let mut p = packet(Kind::Nd, true, false, 0, 0);
        let mut naive = p.data().to_vec();
        apply(&Edit { field, value, mask: [0xff; 16] }, &mut p, &mut naive, Kind::Nd);
        recompute(&mut naive, false);
        prop_assert_eq!(p.data(), &naive[..]);
    }

    /// Nothing panics on broken packets, and nothing but the packet's own bytes matters.
    #[test]
    fn hostile(
        kind in 0..KINDS.len(), v6 in any::<bool>(), cut in 0usize..150, at in 0usize..120, flip in any::<u8>(),
        l3_ofs in prop_oneof![Just(14u16), any::<u16>()], partial in any::<bool>(), field in 0..FIELDS,
    ) {
        let mut p = packet(KINDS[kind], v6, true, 0, 30);
        if let Some(b) = p.data_mut().get_mut(at) {
            *b ^= flip;
        }
        p.truncate(cut);
        p.meta_mut().l3_ofs = l3_ofs;
        if partial {
            p.meta_mut().csum = Csum::Partial;
            p.meta_mut().csum_start = 34;
        }
        let len = p.len();
        call(field, &mut p);
        prop_assert_eq!(p.len(), len);
    }
}

/// Calls the function of `field` with all bits set.
fn call(field: usize, p: &mut Packet) -> bool {
    let mac = [0xff; 6];
    let v6 = &[0xff; 16];
    match field {
        0 => eth_dst(p, mac, mac),
        1 => eth_src(p, mac, mac),
        2 => ipv4_src(p, !0, !0),
        3 => ipv4_dst(p, !0, !0),
        4 => ipv4_tos(p, !0, !0),
        5 => ipv4_ttl(p, !0, !0),
        6 => ipv6_src(p, v6, v6),
        7 => ipv6_dst(p, v6, v6),
        8 => ipv6_tclass(p, !0, !0),
        9 => ipv6_label(p, !0, !0),
        10 => ipv6_hlimit(p, !0, !0),
        11 => l4_src(p, !0, !0),
        12 => l4_dst(p, !0, !0),
        13 => icmp_code(p, !0, !0),
        14 => nd_target(p, v6, v6),
        15 => nd_sll(p, mac, mac),
        16 => nd_tll(p, mac, mac),
        17 => nd_reserved(p, !0, !0),
        18 => nd_options_type(p, !0, !0),
        _ => icmp_type(p, !0, !0) | arp_op(p, !0, !0) | arp_sha(p, mac, mac) | arp_tpa(p, !0, !0),
    }
}

#[test]
fn later_fragments_keep_their_payload() {
    let mut p = packet(Kind::Udp, false, false, 0, 40);
    let frag_at = 14 + 6;
    bytes::set16(p.data_mut(), frag_at, 5);
    ipv4::write_csum(&mut p.data_mut()[14..34]);
    let payload = p.data()[34..].to_vec();
    assert!(!l4_src(&mut p, 9, 0xffff));
    assert!(ipv4_src(&mut p, 9, !0));
    assert_eq!(&p.data()[34..], &payload[..]);
    assert_eq!(of(&p.data()[14..34]), 0);
}

#[test]
fn arp_fields() {
    let mut p = Compose::arp(1, [1; 6], 2, [3; 6], 4).eth([0xff; 6], [1; 6]);
    assert!(!arp_op(&mut p, 2, !0), "no offset yet");
    p.meta_mut().l3_ofs = 14;
    assert!(arp_op(&mut p, 2, !0) && arp_sha(&mut p, [7; 6], [0xff; 6]) && arp_tha(&mut p, [8; 6], [0xff; 6]));
    assert!(arp_spa(&mut p, 9, 0xff) && arp_tpa(&mut p, 0xffff_ffff, 0xff00_0000));
    assert_eq!(p.data(), Compose::arp(2, [7; 6], 9, [8; 6], 0xff00_0004).eth([0xff; 6], [1; 6]).data());
    assert!(!ipv4_src(&mut p, 1, !0));
}

#[test]
fn a_source_route_keeps_the_checksum() {
    let c = Compose::payload_len(4).udp(1, 2).extension(ipproto::ROUTING, &[0, 1, 0, 0, 0, 0]);
    let mut p = c.ipv6(&ipv6::Fields::default()).eth([1; 6], [2; 6]);
    p.meta_mut().l3_ofs = 14;
    let l4 = p.data()[62..].to_vec();
    assert!(ipv6_dst(&mut p, &[9; 16], &[0xff; 16]));
    assert_eq!(&p.data()[62..], &l4[..]);
    assert!(ipv6_src(&mut p, &[9; 16], &[0xff; 16]));
    assert_ne!(&p.data()[62..], &l4[..]);
}
