//! Messages that are wrong: the reference and ours answer each with the same error, byte by byte, and
//! nothing of them takes effect. Multipart requests in parts are answered the same, too.

use std::collections::HashMap;

use fv_testkit::{Answers, Daemon, Env, OfConn, hex, sorted};

const MALFORMED: &str = include_str!("same/malformed.txt");

/// Both daemons, with something that wrong messages could change.
fn both() -> [Env; 2] {
    [Daemon::Reference, Daemon::Ours].map(|d| {
        let e = Env::dummy(d);
        e.add_dummy_bridge("br0", 1..=3);
        e.ofctl("add-flow br0 table=0,priority=5,in_port=1,actions=2");
        e.ofctl("-O OpenFlow13 add-group br0 group_id=1,type=all,bucket=output:1");
        e.ofctl("-O OpenFlow13 add-meter br0 meter=1,kbps,band=type=drop,rate=100");
        e
    })
}

/// All that a controller can change.
fn state(e: &Env) -> String {
    let lines = [
        "--no-stats dump-flows br0",
        "-O OpenFlow15 dump-groups br0",
        "-O OpenFlow13 dump-meters br0",
        "-O OpenFlow14 dump-table-desc br0",
        "-O OpenFlow13 get-frags br0",
        "dump-tlv-map br0",
    ];
    let ports = e.ofctl("dump-ports-desc br0");
    let config: String = ports.lines().filter(|l| l.contains("config:")).collect();
    lines.iter().map(|l| sorted(&e.ofctl(l))).collect::<String>() + &config
}

/// One connection of each version to one daemon.
struct Peers<'a> {
    env: &'a Env,
    conns: HashMap<u8, OfConn>,
}

impl Peers<'_> {
    fn ask(&mut self, version: u8, bytes: &[u8]) -> Answers {
        let path = self.env.path("br0.mgmt");
        let a = self.conns.entry(version).or_insert_with(|| OfConn::open(&path, version)).ask(bytes);
        if a.closed {
            self.conns.remove(&version);
        }
        a
    }
}

#[test]
fn wrong_messages_are_answered_alike_and_change_nothing() {
    let envs = both();
    let before = envs.each_ref().map(state);
    let [mut reference, mut ours] = envs.each_ref().map(|env| Peers { env, conns: HashMap::new() });
    let (mut bad, mut n) = (String::new(), 0);
    for line in MALFORMED.lines().filter(|l| !l.starts_with('#')) {
        let bytes = hex(line);
        let (want, got) = (reference.ask(bytes[0], &bytes), ours.ask(bytes[0], &bytes));
        let is_error = matches!(&want.messages[..], [m] if m[1] == 1);
        n += 1;
        if want != got || !is_error {
            bad += &format!("{line}\n  reference {want:02x?}\n  ours      {got:02x?}\n");
        }
    }
    assert!(bad.is_empty(), "{bad}");
    assert!(n >= 120, "{n}");
    assert_eq!(envs.each_ref().map(state), before);
}

/// Requests in parts, and what is special about each.
const PARTS: &[(&str, &[&str])] = &[
    ("a description", &["04120010000000070000000100000000", "04120010000000070000000000000000"]),
    ("another kind follows", &["04120010000000070000000100000000", "04120010000000070003000000000000"]),
    (
        "two bodies of what is no list",
        &[
            "04120038000000070001000100000000ff000000ffffffffffffffff00000000000000000000000000000000000000000001000400000000",
            "04120038000000070001000000000000ff000000ffffffffffffffff00000000000000000000000000000000000000000001000400000000",
        ],
    ),
    (
        "the body first",
        &[
            "04120038000000070001000100000000ff000000ffffffffffffffff00000000000000000000000000000000000000000001000400000000",
            "04120010000000070001000000000000",
        ],
    ),
    (
        "the body last",
        &[
            "04120010000000070001000100000000",
            "04120038000000070001000000000000ff000000ffffffffffffffff00000000000000000000000000000000000000000001000400000000",
        ],
    ),
    (
        "a first part that is wrong",
        &["041200180000000700000001000000000000000000000000", "04120010000000070000000000000000"],
    ),
    (
        "a second part that is wrong",
        &[
            "04120010000000070000000100000000",
            "041200180000000700000000000000000000000000000000",
            "04120010000000070000000000000000",
        ],
    ),
    (
        "entries that are wrong",
        &["0412001800000007000c0001000000000000000000000000", "0412001000000007000c000000000000"],
    ),
    (
        "two requests at a time",
        &[
            "04120010000000070000000100000000",
            "04120010000000080000000100000000",
            "04120010000000080000000000000000",
            "04120010000000070000000000000000",
        ],
    ),
    (
        "three parts, the second of another kind",
        &["04120010000000070000000100000000", "04120010000000070003000100000000", "04120010000000070000000000000000"],
    ),
    ("OpenFlow 1.0 has no parts", &["0110000c0000000700000001", "0110000c0000000700000000"]),
    ("other flags mean nothing", &["04120010000000070000000200000000"]),
    (
        "monitors are a list",
        &[
            "0512002800000007001000010000000000000001ffffffffffffffff0007ff000001000400000000",
            "0512002800000007001000000000000000000002ffffffffffffffff0007ff000001000400000000",
        ],
    ),
    (
        "those of Nicira are not",
        &[
            "0312002800000007ffff0001000000000000232000000002000000010007ffff0000ff0000000000",
            "0312002800000007ffff0000000000000000232000000002000000020007ffff0000ff0000000000",
        ],
    ),
];

#[test]
fn requests_in_parts_are_put_together() {
    let envs = both();
    for (what, parts) in PARTS {
        let bytes: Vec<u8> = parts.iter().flat_map(|p| hex(p)).collect();
        let [want, got] = envs.each_ref().map(|e| OfConn::open(&e.path("br0.mgmt"), bytes[0]).ask(&bytes));
        let heads = |a: &Answers| -> Vec<Vec<u8>> {
            let head = |m: &Vec<u8>| m[..if m[1] == 1 { m.len() } else { 12 }].to_vec();
            a.messages.iter().map(head).collect()
        };
        assert_eq!(heads(&got), heads(&want), "{what}");
        assert!(!want.messages.is_empty() && !got.closed, "{what}");
    }
}

/// The last part never comes: an error says so after a second, and the rest is a request by itself.
#[test]
fn a_request_without_its_last_part_times_out() {
    let envs = both();
    let first = hex("04120010000000070000000100000000");
    let [want, got] = envs.each_ref().map(|e| {
        let mut c = OfConn::open(&e.path("br0.mgmt"), 4);
        c.send(&first);
        c.recv().expect("an error")
    });
    assert_eq!(want[1], 1);
    assert_eq!(got, want);
}

/// Parts without end take no memory without end.
#[test]
fn parts_are_bounded() {
    let [_, ours] = both();
    let mut c = OfConn::open(&ours.path("br0.mgmt"), 4);
    // Table features of 64 KiB a part.
    let mut part = hex("0412fff800000007000c000100000000");
    part.resize(0xfff8, 0);
    let mut sent = 0;
    let error = loop {
        let a = c.ask(&part);
        sent += 1;
        if let Some(m) = a.messages.into_iter().next() {
            break m;
        }
        assert!(sent < 100);
    };
    assert_eq!(
        (&error[..2], &error[8..12]),
        (&[4, 1][..], &[0, 1, 0, 13][..]),
        "BAD_REQUEST, MULTIPART_BUFFER_OVERFLOW"
    );
    assert_eq!(c.ask(&hex("04120010000000080000000000000000")).messages.len(), 1);
}
