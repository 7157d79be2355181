//! Text against a corpus of the reference's `dpctl/parse-actions`, and hostile text.

use std::sync::Arc;

use fv_core::{DpPort, Nanos, Ufid};
use fv_flow::{DpKey, DpMask};
use proptest::prelude::*;

use super::*;
use crate::action::{DpAction, Program};
use crate::flow::{FlowDump, FlowStats, WorkerId};

/// Lines `< text` with what it prints as behind it (`> text`), or an error (`!`).
const CORPUS: &str = include_str!("actions.txt");

fn ports(name: &str) -> Option<u32> {
    name.strip_prefix('p')?.parse().ok()
}

#[test]
fn the_corpus_reads_and_prints() {
    let mut n = 0;
    let lines: Vec<&str> = CORPUS.lines().collect();
    for pair in lines.chunks(2) {
        let [input, expected] = pair else { panic!("odd corpus") };
        let text = input.strip_prefix("< ").unwrap_or_default();
        let printed = parse_actions(text, &ports).map(|a| format_actions(&a, None));
        match expected.strip_prefix("> ") {
            Some(expected) => {
                assert_eq!(printed.as_deref(), Ok(expected), "{text}");
                let again = parse_actions(expected, &ports).unwrap();
                assert_eq!(format_actions(&again, None), expected, "twice");
            }
            None => assert!(printed.is_err(), "{text}: {printed:?}"),
        }
        n += 1;
    }
    assert!(n > 120, "{n}");
}

#[test]
fn names_and_errors() {
    let names = |port: u32| (port < 10).then(|| format!("p{port}"));
    let actions = parse_actions("p3,clone(p4,20),tnl_pop(p5)", &ports).unwrap();
    assert_eq!(format_actions(&actions, Some(&names)), "p3,clone(p4,20),tnl_pop(p5)");
    assert_eq!(actions[0], DpAction::Output(DpPort(3)));
    for (text, error) in [
        ("1,foo", "syntax error at foo"),
        ("1,set(ipv4(bar=1))", "syntax error at bar=1"),
        ("clone(1,trunc(x))", "syntax error at trunc(x)"),
        ("1)", "syntax error at )"),
        ("add_mpls(label=1)", "add_mpls(label=1): action not supported"),
    ] {
        assert_eq!(parse_actions(text, &ports).unwrap_err().to_string(), error, "{text}");
    }
    let deep = "clone(".repeat(500) + "1" + &")".repeat(500);
    assert!(matches!(parse_actions(&deep, &ports), Err(TextError::TooDeep(_))));
}

fn flow(actions: &str) -> FlowDump {
    let put = parse_flow(
        "in_port(p1),eth(src=00:01:02:03:04:05),eth_type(0x0800),ipv4(src=1.1.1.1/255.255.255.0,proto=6,frag=no),tcp(src=1,dst=2)",
        actions,
        &ports,
    );
    let put = put.unwrap();
    FlowDump {
        ufid: Ufid(0x01020304_0506_4708_890a_0b0c0d0e0f10),
        key: put.key,
        mask: put.mask,
        program: put.program,
        stats: FlowStats::default(),
        worker: WorkerId::MAIN,
        offloaded: false,
        layer: "ovs",
    }
}

#[test]
fn flows_print_as_the_reference_prints_them() {
    let mut f = flow("p2,3");
    let less = FlowText::default();
    let names = |port: u32| Some(format!("p{port}"));
    let text = format_flow(&f, Nanos::from_secs(5), less, None);
    assert_eq!(
        text,
        "recirc_id(0),in_port(1),eth(src=00:01:02:03:04:05),eth_type(0x0800),ipv4(src=1.1.1.1/255.255.255.0,proto=6,frag=no),tcp(src=1,dst=2), packets:0, bytes:0, used:never, actions:2,3"
    );
    f.stats = FlowStats { packets: 3, bytes: 162, used: Some(Nanos::from_ms(3766)), tcp_flags: 0x112 };
    let text = format_flow(&f, Nanos::from_secs(5), less, Some(&names));
    assert!(text.contains("in_port(p1)"), "{text}");
    assert!(text.ends_with(", packets:3, bytes:162, used:1.234s, flags:S.N, actions:p2,p3"), "{text}");
    f.offloaded = true;
    let text = format_flow(&f, Nanos::from_secs(5), FlowText { more: true }, None);
    assert!(text.starts_with("ufid:01020304-0506-4708-890a-0b0c0d0e0f10, "), "{text}");
    assert!(text.ends_with(", flags:S.N, offloaded:partial, dp:ovs, actions:2,3"), "{text}");
    f.program = Arc::new(Program::default());
    assert!(format_flow(&f, Nanos::ZERO, less, None).ends_with(", actions:drop"));
}

#[test]
fn flows_need_their_port() {
    assert_eq!(parse_flow("eth()", "1", &ports).unwrap_err(), TextError::InPort);
    assert!(parse_flow("in_port(1),fo", "1", &ports).unwrap_err().to_string().contains("fo"));
    let put = parse_flow("ufid:01020304-0506-4708-890a-0b0c0d0e0f10,in_port(1),eth()", "1", &ports).unwrap();
    assert!(put.ufid.is_some());
    assert_ne!((put.key, put.mask), (DpKey::default(), DpMask::default()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Pieces of real text, put together at random: nothing panics, and what is read prints stably.
    #[test]
    fn mangled_text(pieces in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<u8>()), 1..6)) {
        let lines: Vec<&str> = CORPUS.lines().filter_map(|l| l.strip_prefix("< ")).collect();
        let mut text = String::new();
        for (line, from, to) in pieces {
            let line = line.get(&lines);
            let (a, b) = (usize::from(from) % (line.len() + 1), usize::from(to) % (line.len() + 1));
            text.push_str(line.get(a.min(b)..a.max(b)).unwrap_or_default());
            if from % 3 == 0 {
                text.push_str([",", ")", "(", "="][usize::from(to) % 4]);
            }
        }
        if let Ok(actions) = parse_actions(&text, &ports) {
            let printed = format_actions(&actions, None);
            let again = parse_actions(&printed, &ports);
            prop_assert_eq!(again.map(|a| format_actions(&a, None)), Ok(printed));
        }
    }
}
