use super::*;
use crate::field::{Field, FieldValue, Protocols};
use proptest::prelude::*;

fn ports(s: &str) -> Option<OfPort> {
    (s == "p1").then_some(OfPort(1))
}

fn protocols(s: &str) -> Protocols {
    match s {
        "any" => Protocols::ANY,
        "NXM,OXM" => Protocols::NXM_OXM,
        "NXM,OXM,OpenFlow11" => Protocols::NXM_OXM_OF11,
        s => panic!("{s}"),
    }
}

#[test]
fn matches_as_the_reference_reads_and_prints_them() {
    let mut wrong = String::new();
    let mut differs = |given: &str, got: &dyn std::fmt::Debug, want: &dyn std::fmt::Debug, same: bool| {
        if !same {
            wrong += &format!("{given}: {got:?}, not {want:?}\n");
        }
    };
    for line in include_str!("../../tests/data/matches.txt").lines().filter(|l| !l.starts_with('#')) {
        let (given, want) = line.split_once(" => ").unwrap();
        let got = parse_match(given, Some(&ports));
        if let Some(e) = want.strip_prefix("error: ") {
            let got = got.map(|_| String::new()).unwrap_or_else(|e| e.to_string());
            differs(given, &got, &e, got == e);
            continue;
        }
        let (text, usable) = want.rsplit_once(" | ").unwrap();
        let (m, p) = got.unwrap_or_else(|e| panic!("{given}: {e}"));
        let printed = format_match(&m, None, Style::Rule);
        differs(given, &printed, &text, printed == text.trim());
        differs(given, &p, &usable, p == protocols(usable));
        let again = parse_match(&printed, None).map(|(m, _)| m);
        let again = again.map(|m| format_match(&m, None, Style::Rule)).unwrap_or_else(|e| e.to_string());
        differs(given, &again, &printed, again == printed);
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn flows_as_the_reference_prints_them() {
    for line in include_str!("../../tests/data/flows.txt").lines().filter(|l| !l.starts_with('#')) {
        let (given, want) = line.split_once(" => ").unwrap();
        match parse_exact_flow(given, Some(&ports)) {
            Ok(k) => assert_eq!(format_flow(&k, None), want.trim(), "{given}"),
            Err(e) => assert_eq!(format!("error: {e}"), want.trim(), "{given}"),
        }
    }
}

#[test]
fn packets_without_ethernet() {
    let odp = crate::odp::parse("in_port(1),eth_type(0x0800),ipv4(proto=132),sctp(src=3)", &|_| None).unwrap();
    let flow = crate::FlowKey { dp: odp.key, ..Default::default() };
    let text = "packet_type=(1,0x800),in_port=1,nw_src=0.0.0.0,nw_dst=0.0.0.0,nw_proto=132,nw_tos=0,nw_ecn=0,nw_ttl=0,nw_frag=no,tp_src=3,tp_dst=0";
    assert_eq!(format_flow(&flow, None), text);
    assert_eq!(parse_exact_flow(text, None).unwrap(), flow);
    let (m, _) = parse_match("packet_type=(1,0x800),nw_src=1.2.3.4", None).unwrap();
    assert!(Field::Ipv4Src.are_prereqs_ok(&m) && !Field::EthSrc.are_prereqs_ok(&m));
}

#[test]
fn megaflows_say_ethernet() {
    let check = |given: &str, want: &str| {
        let (mut m, _) = parse_match(given, None).unwrap();
        m.set(Field::RecircId, 0);
        assert_eq!(format_match(&m, None, Style::Megaflow), want);
    };
    check("ip,in_port=1,nw_frag=no", "recirc_id=0,eth,ip,in_port=1,nw_frag=no");
    check("in_port=1,dl_type=0x1234", "recirc_id=0,eth,in_port=1,dl_type=0x1234");
    check("in_port=LOCAL,dl_type=0", "recirc_id=0,eth,in_port=LOCAL,dl_type=0x0000");
}

#[test]
fn ports_by_name() {
    let names = |p: OfPort| match p.0 {
        1 => Some("p1".to_owned()),
        2 => Some("2x".to_owned()),
        3 => Some("local".to_owned()),
        _ => None,
    };
    let text = |n: u32| port_text(OfPort(n), Some(&names));
    assert_eq!([text(1), text(2), text(3), text(4)], ["p1", "\"2x\"", "\"local\"", "4"]);
    assert_eq!(text(0xffff_fffe), "LOCAL");
    assert_eq!(parse_port("\"p1\"", Some(&ports)), Some(OfPort(1)));
    assert_eq!(parse_port("4294967294", None), Some(OfPort::LOCAL));
    assert_eq!(parse_port("99999", None), None);
}

/// As the reference prints what no packet can be.
#[test]
fn a_later_fragment_of_icmpv6_has_a_type() {
    let text = |s| format_flow(&parse_exact_flow(s, None).unwrap(), None);
    assert!(text("icmp6,ip_frag=later").ends_with("nw_frag=later,icmp_type=0,icmp_code=0"));
    assert!(text("icmp,ip_frag=later").ends_with("nw_frag=later"));
}

#[test]
fn values_of_fields() {
    let check = |f: Field, v: u128, m: Option<u128>, want: &str| {
        assert_eq!(format_field(f, &FieldValue::new(v), m.map(FieldValue::new).as_ref(), None), want);
    };
    check(Field::Reg0, 5, None, "0x5");
    check(Field::Reg0, 0, None, "0");
    check(Field::Reg0, 0, Some(0x10), "0/0x10");
    check(Field::VlanVid, 4101, None, "4101");
    check(Field::Ipv4Src, 0x0a00_0001, None, "10.0.0.1");
    check(Field::Ipv4Src, 0x0a00_0000, Some(0xff00_0000), "10.0.0.0/8");
    check(Field::EthDst, 1, None, "00:00:00:00:00:01");
    check(Field::CtState, 0x21, Some(0x23), "+new-est+trk");
    check(Field::InPort, 0xfffe, None, "LOCAL");
    check(Field::IpFrag, 3, None, "later");
    check(Field::TcpFlags, 0x12, None, "syn|ack");
    check(Field::PacketType, 0x1_0800, None, "(1,0x800)");
}

proptest! {
    #[test]
    fn any_text_is_survived(s in "[a-z_0-9(),=/:|+* -]{0,60}") {
        let _ = parse_match(&s, None);
        let _ = parse_exact_flow(&s, None);
    }

    #[test]
    fn matches_survive_their_texts(fields in proptest::collection::vec((0..crate::field::N_FIELDS, any::<u128>(), any::<u128>(), any::<bool>()), 0..6), word in 0usize..17) {
        let mut m = crate::Match::default();
        m.set_default_packet_type();
        let k = KEYWORDS[word % KEYWORDS.len()];
        m.set_dl_type(k.dl_type);
        if let Some(p) = k.nw_proto {
            m.set_nw_proto(p);
        }
        for (n, v, mask, exact) in fields {
            let f = Field::all().nth(n).unwrap();
            let exact = exact || f.info().maskable == crate::field::Maskable::Exact;
            let mask = if exact { f.mask_bits() } else { FieldValue::new(mask & f.mask_bits().0) };
            // Fields whose text depends on others, or has no mask.
            let skip = ["vlan", "nw_frag", "ip_frag", "port", "proto", "eth_type", "packet_type", "nsh", "mpls", "ct_state", "actset", "tun_t", "nd_", "gbp_flags"];
            if f.are_prereqs_ok(&m) && !skip.iter().any(|s| f.name().contains(s)) {
                m.set_field_masked(f, &FieldValue::new(v), &mask);
            }
        }
        let text = format_match(&m, None, Style::Rule);
        let again = parse_match(&text, None).map_err(|e| TestCaseError::fail(format!("{text}: {e}")))?.0;
        prop_assert_eq!(again, m, "{}", text);
    }

    #[test]
    fn values_round_trip(n in 0..crate::field::N_FIELDS, v: u128) {
        let f = Field::all().nth(n).unwrap();
        let mut v = FieldValue::new(v & f.mask_bits().0);
        match f {
            Field::CtState => v.0 &= 0xff,
            Field::IpFrag => v.0 = [0, 1, 3][(v.0 % 3) as usize],
            Field::InPortOxm | Field::ActsetOutput => v.0 &= 0x7fff,
            _ => {}
        }
        let text = format_field(f, &v, None, None);
        let (got, mask) = parse_field_value(f, &text, None).unwrap();
        prop_assert_eq!(got, v, "{}", text);
        prop_assert!(f == Field::TunFlags || mask == f.mask_bits());
    }
}

#[test]
fn matches_are_normalized_as_the_reference_does() {
    for line in include_str!("../../tests/data/normalized.txt").lines().filter(|l| !l.starts_with('#')) {
        let (given, want) = line.split_once(" => ").unwrap();
        let (mut m, _) = parse_match(given, None).unwrap();
        m.normalize();
        assert_eq!(format_match(&m, None, Style::Rule), want, "{given}");
    }
}
