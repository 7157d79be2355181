use super::*;
use crate::key::{DpKey, DpMask};

fn names(n: u32) -> Option<String> {
    (n == 1).then(|| "p1".to_owned())
}

fn port(s: &str) -> Option<u32> {
    (s == "p1").then_some(1)
}

/// What a datapath matches of every flow.
fn always(mut p: Parsed) -> (DpKey, DpMask) {
    let m = &mut p.mask.0;
    m.base.recirc_id = u32::MAX;
    m.base.in_port = u32::MAX;
    m.base.dl_type = 0xffff.into();
    (p.key, p.mask)
}

const ETH: &str = "eth(src=00:01:02:03:04:05,dst=10:11:12:13:14:15),";

/// Parses `given` and compares the short text; an empty expectation means that the text is `given`
/// behind "recirc_id(0),in_port(1),".
fn check(given: &str, want: &str) {
    let given = given.replace("ETH,", ETH);
    let p = parse(&given, &port).unwrap_or_else(|e| panic!("{given}: {e}"));
    let (k, m) = always(p);
    let want = if want.is_empty() { format!("recirc_id(0),{given}") } else { want.replace("ETH,", ETH) };
    assert_eq!(format(&k, Some(&m), false, None), want);
    // The text says all that is matched.
    let again = always(parse(&want, &port).unwrap_or_else(|e| panic!("{want}: {e}")));
    assert_eq!((m.apply(&again.0), again.1), (m.apply(&k), m), "{given}");
}

#[test]
fn short_text_of_what_the_reference_prints() {
    for line in include_str!("../../tests/data/odp-flows.txt").lines() {
        if !line.is_empty() && !line.starts_with('#') {
            let (given, want) = line.split_once(" => ").unwrap_or((line, ""));
            check(given.trim(), want.trim());
        }
    }
}

#[test]
fn verbose_text_shows_what_is_wild() {
    let check = |given: &str, want: &str| {
        let (k, m) = always(parse(&given.replace("ETH,", ETH), &port).unwrap());
        let head = "recirc_id(0),dp_hash(0/0),skb_priority(0/0),in_port(p1),skb_mark(0/0),ct_state(0/0),ct_zone(0/0),ct_mark(0/0),ct_label(0/0),";
        assert_eq!(format(&k, Some(&m), true, Some(&names)), format!("{head}{}", want.replace("ETH,", ETH)));
    };
    check(
        "in_port(1),ETH,eth_type(0x0800),ipv4(src=1.2.3.4/255.255.255.0,frag=no)",
        "packet_type(ns=0/0,id=0/0),ETH,eth_type(0x0800),ipv4(src=1.2.3.4/255.255.255.0,dst=0.0.0.0/0.0.0.0,proto=0/0,tos=0/0,ttl=0/0,frag=no)",
    );
    check(
        "in_port(1),eth_type(0x0800),ipv4(proto=6),tcp(),tcp_flags(0x12/0xfff)",
        "packet_type(ns=1/0,id=0x800/0),eth_type(0x0800),ipv4(src=0.0.0.0/0.0.0.0,dst=0.0.0.0/0.0.0.0,proto=6,tos=0/0,ttl=0/0),tcp(src=0/0,dst=0/0),tcp_flags(syn|ack)",
    );
    check(
        "in_port(1),eth(),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(proto=1),icmp(type=8,code=0/0)",
        "packet_type(ns=0,id=0),eth(src=00:00:00:00:00:00/00:00:00:00:00:00,dst=00:00:00:00:00:00/00:00:00:00:00:00),eth_type(0x0800),ipv4(src=0.0.0.0/0.0.0.0,dst=0.0.0.0/0.0.0.0,proto=1,tos=0/0,ttl=0/0),icmp(type=8,code=0/0)",
    );
    check(
        "in_port(1),ETH,eth_type(0x86dd),ipv6(proto=58),icmpv6(type=135,code=0),nd(target=::3,sll=00:05:06:07:08:09)",
        "packet_type(ns=0/0,id=0/0),ETH,eth_type(0x86dd),ipv6(src=::/::,dst=::/::,label=0/0,proto=58,tclass=0/0,hlimit=0/0),icmpv6(type=135,code=0),nd(target=::3,sll=00:05:06:07:08:09,tll=00:00:00:00:00:00/00:00:00:00:00:00)",
    );
    check(
        "in_port(1),ETH,eth_type(0x0806),arp(sip=1.2.3.4)",
        "packet_type(ns=0/0,id=0/0),ETH,eth_type(0x0806),arp(sip=1.2.3.4,tip=0.0.0.0/0.0.0.0,op=0/0,sha=00:00:00:00:00:00/00:00:00:00:00:00,tha=00:00:00:00:00:00/00:00:00:00:00:00)",
    );
}

#[test]
fn a_key_alone_is_exact() {
    let p = parse(&format!("in_port(1),{ETH}eth_type(0x0800),ipv4(proto=17),udp(src=1,dst=2)"), &port).unwrap();
    assert_eq!(
        format(&p.key, None, true, None),
        format!(
            "recirc_id(0),dp_hash(0),skb_priority(0),in_port(1),skb_mark(0),ct_state(0),ct_zone(0),ct_mark(0),ct_label(0),packet_type(ns=0,id=0),{ETH}eth_type(0x0800),ipv4(src=0.0.0.0,dst=0.0.0.0,proto=17,tos=0,ttl=0,frag=no),udp(src=1,dst=2)"
        )
    );
}

#[test]
fn errors_name_the_text() {
    let check = |given: &str, want: &str| assert_eq!(parse(given, &port).unwrap_err().to_string(), want);
    check("foo(1)", "syntax error at foo(1)");
    check("in_port(1),eth_type(0x0800),ipv4(src=bad)", "syntax error at ipv4(src=bad)");
    check("in_port(nonesuch),eth()", "syntax error at in_port(nonesuch),eth()");
    check("recirc_id(0x5/0xf),eth()", "syntax error at recirc_id(0x5/0xf),eth()");
    check("eth(),eth_type(0x0800),ipv4(dst=0.0.0.0/0)", "syntax error at ipv4(dst=0.0.0.0/0)");
    check("eth(),eth_type(0x0800),ipv4(frag=no/0)", "syntax error at ipv4(frag=no/0)");
    check("eth(", "syntax error at eth(");
    check("eth(),eth_type(0x0806),ipv4()", "ipv4 does not fit the rest of the flow");
    check("eth(),eth_type(0x0800),ipv4(proto=6),udp()", "udp does not fit the rest of the flow");
    check("encap(encap(encap()))", "syntax error at encap(encap(encap()))");
    let p = parse("in_port(1),eth(),eth_type(0x0800)", &port).unwrap();
    assert_eq!(p.fit, Fit::TooLittle("ipv4"));
}

#[test]
fn ufid_is_taken_along() {
    let p = parse("ufid:01020304-0506-0708-090a-0b0c0d0e0f10, in_port(p1),eth()", &port).unwrap();
    assert_eq!(p.ufid.map(|u| u.to_string()).as_deref(), Some("01020304-0506-0708-090a-0b0c0d0e0f10"));
    assert_eq!(p.key.base.in_port, 1);
}

#[test]
fn empty_key() {
    assert_eq!(
        format(
            &DpKey { misc: crate::key::Misc { packet_type: 2 << 16, ..Default::default() }, ..Default::default() },
            Some(&DpMask::default()),
            false,
            None
        ),
        "<empty>"
    );
}

mod random {
    use super::super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_is_survived(s in "[a-z_0-9(),=/:|+{}-]{0,60}") {
            let _ = parse(&s, &|_| None);
        }

        #[test]
        fn edited_flows_are_survived(at in 0usize..200, with in "[a-z0-9(),=/]{0,3}") {
            let mut s = "tunnel(tun_id=0x7f,src=10.0.0.1,flags(df|key),vxlan(gbp(id=4,flags=0x8))),in_port(1),eth(),eth_type(0x8100),vlan(vid=1,pcp=0),encap(eth_type(0x0800),ipv4(proto=6),tcp(src=1),tcp_flags(+syn))".to_owned();
            let at = at.min(s.len());
            s.replace_range(at..(at + with.len()).min(s.len()), &with);
            let _ = parse(&s, &|_| None);
        }

        #[test]
        fn any_key_has_a_text(bytes in proptest::collection::vec(any::<u8>(), size_of::<crate::key::DpKey>()), ty in prop_oneof![Just(0x800u16), Just(0x86dd), Just(0x806), Just(0x8847), Just(0x894f), any::<u16>()]) {
            use zerocopy::FromBytes;
            let mut k = crate::key::DpKey::read_from_bytes(&bytes).unwrap();
            k.base.dl_type = ty.into();
            format(&k, None, true, None);
            format(&k, Some(&crate::key::DpMask(k)), false, None);
        }
    }
}
