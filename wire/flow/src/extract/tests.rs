use super::*;
use crate::key::ipproto;
use etherparse::PacketBuilder;
use proptest::prelude::*;

fn fast(frame: &[u8], vlan_limit: u8) -> (DpKey, Offsets) {
    let mut r = (DpKey::default(), Offsets::default());
    parse(frame, vlan_limit, &mut r.0, &mut r.1);
    r
}

fn naive(frame: &[u8], vlan_limit: u8) -> (DpKey, Offsets) {
    let mut r = (DpKey::default(), Offsets::default());
    twin::parse(frame, vlan_limit, &mut r.0, &mut r.1);
    r
}

fn hex(s: &str) -> Vec<u8> {
    let s: String = s.split_whitespace().collect();
    (0..s.len()).step_by(2).map(|i| u8::from_str_radix(&s[i..i + 2], 16).unwrap()).collect()
}

const MACS: &str = "0a0000000001 0a0000000002";

fn frame(rest: &str) -> Vec<u8> {
    hex(&format!("{MACS}{rest}"))
}

/// IPv4 header of 20 bytes with the given total length, fragment word and protocol.
fn ipv4(total: u16, frag: u16, proto: u8) -> String {
    format!("0800 4500{total:04x} 0000{frag:04x} 40{proto:02x}0000 0a000001 0a000002")
}

fn ipv6(payload: u16, next: u8) -> String {
    format!("86dd 61234567 {payload:04x}{next:02x}40 {:032x} {:032x}", 1, 2)
}

/// Frames that reach every parser; mutations of them reach the rest.
fn corpus() -> Vec<Vec<u8>> {
    let mut v: Vec<Vec<u8>> = Vec::new();
    let mut push = |b: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        b(&mut out);
        v.push(out);
    };
    let e = || PacketBuilder::ethernet2([2; 6], [4; 6]);
    push(&|o| e().ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1, 2).write(o, &[0; 18]).unwrap());
    push(&|o| e().ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(1, 2, 3, 4).syn().write(o, &[0; 9]).unwrap());
    push(&|o| e().single_vlan(5u16.try_into().unwrap()).ipv6([1; 16], [2; 16], 9).udp(5, 6).write(o, &[]).unwrap());
    push(&|o| {
        let d = e().double_vlan(5u16.try_into().unwrap(), 6u16.try_into().unwrap());
        d.ipv4([1; 4], [2; 4], 3).icmpv4_echo_request(1, 2).write(o, &[1, 2]).unwrap()
    });
    push(&|o| e().ipv6([1; 16], [2; 16], 9).icmpv6_echo_reply(1, 2).write(o, &[7; 80]).unwrap());
    let opts = "0101 0a0b0c0d0e0f 0201 1a1b1c1d1e1f 0502 0000 0000 0000 0000 0000 0000 0000";
    let nd = |ty: u8, opts: &str| {
        let body = hex(&format!("{ty:02x}000000 20000000 {:032x} {opts}", 9));
        let text: String = body.iter().map(|b| format!("{b:02x}")).collect();
        frame(&format!("{}{text}", ipv6(body.len() as u16, ipproto::ICMPV6)))
    };
    v.push(nd(135, opts));
    v.push(nd(136, opts));
    v.push(nd(136, "0101 0a0b0c0d0e0f 0101 0a0b0c0d0e0f"));
    v.push(nd(135, "01ff 0a0b0c0d0e0f"));
    v.push(frame("0806 0001 0800 06 04 0001 0a0000000001 0a000001 000000000000 0a000002"));
    v.push(frame("8035 0001 0800 06 04 0103 0a0000000001 0a000001 000000000000 0a000002"));
    v.push(frame("8847 00001040 00002040 00003040 00004140 45000014"));
    v.push(frame("8848 00001140 45000014"));
    v.push(frame("0020 aaaa03 000000 0800 4500001c 00000000 40110000 0a000001 0a000002 00010002 00080000"));
    v.push(frame("0026 424203 000000 0000"));
    v.push(frame(&format!("{} 1100000001020304", ipv4(28, 0, 2))));
    v.push(frame(&format!("{} 00010002 00000003 00000004", ipv4(32, 0, 132))));
    v.push(frame(&format!("{} 00010002 00080000", ipv4(28, 0x2000, 17))));
    v.push(frame(&format!("{} 00010002 00080000", ipv4(28, 0x0003, 17))));
    let chain =
        "2b00 010400000000 3c00 000000000000 2c01 0104000000000000000000000000 1100 0001 00000000 00010002 00080000";
    v.push(frame(&format!("{} {chain}", ipv6(8 + 8 + 16 + 8 + 8, 0))));
    v.push(frame(&format!("{} 1100 0009 00000000 00010002 00080000", ipv6(16, 44))));
    v.push(frame(&format!("{} 1101 0000 00000000 00000000 00010002 00080000", ipv6(20, 51))));
    v.push(frame("894f 0fc6 0101 00000102 00000001 00000002 00000003 00000004 4500"));
    v.push(frame("894f 0fc4 0203 00000102 00000001 00000002"));
    v.push(frame("88a8 0064 8100 00c8 88cc 0200"));
    v
}

#[test]
fn both_extractors_agree_on_the_corpus_at_every_length() {
    for f in corpus() {
        for n in 0..=f.len() {
            for limit in [0, 1, 2] {
                assert_eq!(fast(&f[..n], limit), naive(&f[..n], limit), "{:02x?}", &f[..n]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]
    #[test]
    fn both_extractors_agree_on_mutations(
        n in 0usize..64, cut in 0usize..160, pad in 0usize..40, limit in 0u8..3,
        edits in proptest::collection::vec((12usize..90, any::<u8>()), 0..5),
        ptype in prop_oneof![9 => Just(0u32), 1 => Just(0x1_0800u32), 1 => Just(0x1_86ddu32), 1 => Just(0x2_0000u32)],
    ) {
        let all = corpus();
        let mut f = all[n % all.len()].clone();
        f.extend(std::iter::repeat_n(0x5a, pad));
        for (at, b) in edits {
            if let Some(x) = f.get_mut(at) {
                *x = b;
            }
        }
        f.truncate(f.len().max(cut) - cut.min(f.len()) / 4);
        if ptype != 0 {
            f.drain(..14.min(f.len()));
        }
        let base = DpKey { misc: crate::key::Misc { packet_type: ptype, ..Default::default() }, ..Default::default() };
        let (mut a, mut b) = ((base, Offsets::default()), (base, Offsets::default()));
        parse(&f, limit, &mut a.0, &mut a.1);
        twin::parse(&f, limit, &mut b.0, &mut b.1);
        prop_assert_eq!(a, b);
    }

    #[test]
    fn keys_survive_their_texts(n in 0usize..64, edits in proptest::collection::vec((12usize..90, any::<u8>()), 0..4)) {
        let all = corpus();
        let mut f = all[n % all.len()].clone();
        for (at, b) in edits {
            if let Some(x) = f.get_mut(at) {
                *x = b;
            }
        }
        let mut key = fast(&f, 2).0;
        key.base.in_port = 3;
        let text = crate::odp::format(&key, None, true, None);
        let parsed = crate::odp::parse(&text, &|_| None);
        // What the text of the datapath cannot say.
        key.misc.igmp_group_ip4 = 0.into();
        if key.base.nw_proto == ipproto::IGMP {
            (key.base.tp_src, key.base.tp_dst) = Default::default();
        }
        match parsed {
            Ok(p) => prop_assert_eq!(p.key, key, "{}", text),
            Err(e) => prop_assert!(false, "{}: {}", text, e),
        }
        let flow = crate::FlowKey { dp: key, ..Default::default() };
        // Nor can that of OpenFlow say second tags, label stacks, or both addresses of ND.
        let said = key.base.vlans[1].tci == 0
            && key.base.vlans[0].tpid != eth::VLAN_8021AD
            && ![eth::NSH, eth::MPLS, eth::MPLS_MCAST].contains(&key.base.dl_type.get())
            && ![ipproto::IGMP, ipproto::ICMP, ipproto::ICMPV6].contains(&key.base.nw_proto)
            && !crate::Field::NdTarget.prerequisites_met(&flow);
        if said {
            let text = crate::text::format_flow(&flow, None).replace("vlan_tci1=0x0000,", "");
            let again = crate::text::parse_exact_flow(&text, None);
            prop_assert_eq!(again.map(|k| k.dp), Ok(key), "{}", text);
        }
    }

    #[test]
    fn noise_is_harmless(f in proptest::collection::vec(any::<u8>(), 0..200), limit in 0u8..3) {
        prop_assert_eq!(fast(&f, limit), naive(&f, limit));
    }
}

#[test]
fn what_is_in_a_key() {
    let all = corpus();
    let (k, o) = fast(&all[1], 1);
    assert_eq!((k.base.tp_src.get(), k.base.tp_dst.get(), k.base.tcp_flags.get()), (1, 2, 2));
    assert_eq!((o.l3, o.l4, o.l4_valid, o.l2_5), (14, 34, true, NO_OFS));
    let (k, _) = fast(&all[5], 1);
    assert_eq!((k.v6.arp_sha, k.v6.arp_tha[0], k.misc.nd_options_type), ([10, 11, 12, 13, 14, 15], 0x1a, 1));
    assert_eq!((k.v6.nd_target[15], k.misc.nd_reserved.get()), (9, 0x2000_0000));
    // A repeated address discredits the whole message.
    let (k, _) = fast(&all[7], 1);
    assert_eq!((k.v6.nd_target, k.v6.arp_sha, k.base.tp_src.get()), ([0; 16], [0; 6], 136));
    // An option longer than the packet ends the list.
    let (k, _) = fast(&all[8], 1);
    assert_eq!((k.v6.nd_target[15], k.v6.arp_sha), (9, [0; 6]));
    let (k, o) = fast(&all[11], 1);
    assert_eq!(k.misc.mpls_lse.map(|l| l.get()), [0x1040, 0x2040, 0x3040]);
    assert_eq!((o.l2_5, o.l3), (14, 30));
}

#[test]
fn ip_lengths_decide() {
    let l4 = |f: Vec<u8>| fast(&f, 1).0.base.tp_dst.get();
    let udp = "00010002 00080000";
    assert_eq!(l4(frame(&format!("{} {udp}", ipv4(28, 0, 17)))), 2);
    // Total length smaller than the header, larger than the frame, header beyond the packet.
    for (total, first) in [(19, "45"), (29, "45"), (28, "44"), (40, "4b"), (28, "48")] {
        let f = frame(&format!("{} {udp}", ipv4(total, 0, 17).replacen("0800 45", &format!("0800 {first}"), 1)));
        let k = fast(&f, 1).0;
        assert_eq!((k.base.dl_type.get(), k.base.nw_src.get(), k.base.tp_dst.get()), (0x800, 0, 0), "{total} {first}");
    }
    // Padding of any size.
    for pad in [1, 255, 256, 4000] {
        let mut f = frame(&format!("{} {udp}", ipv4(28, 0, 17)));
        f.resize(f.len() + pad, 0);
        let (k, o) = fast(&f, 1);
        assert_eq!((k.base.tp_dst.get(), usize::from(o.l2_pad)), (2, pad));
    }
    // A payload length that only fits if the header is forgotten.
    let mut f = frame(&format!("{} {udp}", ipv6(48, 17)));
    assert_eq!(fast(&f, 1).0.v6.ipv6_dst, [0; 16]);
    f.resize(f.len() + 40, 0);
    assert_eq!(fast(&f, 1).0.base.tp_dst.get(), 2);
}

#[test]
fn chains_are_bounded() {
    let long = |n: usize| {
        let body = "0000000000000000".repeat(n) + "1100000000000000 0001000200080000";
        frame(&format!("{} {body}", ipv6((n * 8 + 16) as u16, 0)))
    };
    assert_eq!(fast(&long(MAX_EXT_HEADERS - 2), 1).0.base.tp_dst.get(), 2);
    assert_eq!(fast(&long(MAX_EXT_HEADERS), 1).0.base.nw_ttl, 0);
    let labels = frame(&("8847".to_owned() + &"00001040".repeat(10_000)));
    assert_eq!(usize::from(fast(&labels, 1).1.l3), 14 + 4 * MAX_LABELS_WALKED);
}

#[test]
fn a_key_can_be_used_again() {
    let (mut key, mut dirty) = (DpKey::default(), 0);
    let t = TunnelKey { tun: Tun { id: 5.into(), ..Tun::default() }, gtpu_flags: 3, ..TunnelKey::default() };
    let all = corpus();
    for n in 0..all.len() * 20 {
        let mut p = Packet::from_slice(&all[n * 7 % all.len()]);
        p.meta_mut().ct_state = if n % 5 == 0 { 0x21 } else { 0 };
        p.meta_mut().ct_label = 9;
        let extra = Extra { tunnel: (n % 11 == 0).then_some(&t), vlan_limit: 2, ..Extra::default() };
        dirty = extract_into(&mut p, &extra, &mut key, dirty);
        let fresh = extract(&mut p, &extra);
        assert_eq!(key, fresh);
        let empty = [
            fresh.v6 == Default::default(),
            fresh.tun == Default::default(),
            fresh.ct == Default::default(),
            fresh.misc == Default::default(),
        ];
        for (i, empty) in empty.into_iter().enumerate() {
            assert!(empty || dirty >> (i + 1) & 1 != 0, "block {}", i + 1);
        }
    }
}

#[test]
fn metadata_reaches_the_key() {
    let mut p = Packet::from_slice(&corpus()[0]);
    let m = p.meta_mut();
    (m.in_port, m.recirc_id, m.ct_state, m.ct_zone, m.ct_label) = (7, 9, 0x21, 5, 3);
    let t = TunnelKey { tun: Tun { id: 5.into(), ..Tun::default() }, erspan_dir: 1, ..TunnelKey::default() };
    let k = extract(&mut p, &Extra { tunnel: Some(&t), ..Extra::default() });
    assert_eq!((k.base.in_port, k.base.recirc_id, k.base.ct_state, k.base.ct_zone), (7, 9, 0x21, 5));
    assert_eq!((k.ct.label[15], k.tun.id.get(), k.misc.erspan_dir), (3, 5, 1));
    assert_eq!((p.meta().l3_ofs, p.meta().l4_ofs), (14, 34));
}

#[test]
fn packets_as_the_reference_sees_them() {
    let mut wrong = String::new();
    for line in include_str!("../../tests/data/packets.txt").lines().filter(|l| !l.starts_with('#')) {
        let (packet, want) = line.split_once(" => ").unwrap();
        let mut k = crate::FlowKey::default();
        k.base.in_port = 1;
        parse(&hex(packet), 2, &mut k.dp, &mut Offsets::default());
        let got = crate::text::format_flow(&k, None);
        if got != want {
            wrong += &format!("{packet}\n  {got}\n  {want}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
