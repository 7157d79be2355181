//! The reference's `ovs-ofctl` against a bridge: what it prints equals what it prints with the
//! reference (`ofctl.txt`, recorded from `ofctl.cmds`).

mod server;

use std::io::Write;
use std::process::Stdio;

use server::Server;

/// Takes out what differs from run to run.
fn clean(s: &str) -> Vec<String> {
    let cut = |s: &str, from: &str, end: &str| {
        let mut out = String::new();
        let mut rest = s;
        while let Some(i) = rest.find(from) {
            out.push_str(&rest[..i]);
            rest = &rest[i..];
            rest = rest.find(end).map_or("", |j| &rest[j + end.len()..]);
        }
        out + rest
    };
    let mut lines: Vec<String> = Vec::new();
    for l in s.lines() {
        let mut l = cut(l, " (xid=", ")");
        if l.contains("ref_count=") {
            l = cut(&l, "duration=", "s,");
        }
        l = cut(&l, " duration:", "s");
        l = cut(&l, "unix:", " ");
        for (from, end) in [("duration=", "s, "), ("idle_age=", ", "), ("hard_age=", ", "), ("cookie=0x0, ", " ")] {
            l = cut(&l, from, end);
        }
        if l.trim_start().starts_with("duration=") {
            l = String::new();
        }
        if let Some(i) = l.find("lookup=") {
            l = format!("{}lookup=N, matched=N", &l[..i]);
        }
        if l.starts_with("Software: ") {
            l = "Software: VERSION".into();
        }
        // A log line: its text.
        if l.starts_with("20") {
            l = l.rsplit('|').next().unwrap_or_default().to_owned();
        }
        lines.push(l.trim_end().to_owned());
    }
    lines
}

/// What a command whose last word is the name of a file reads from its standard input instead.
const FILES: [(&str, &str); 2] = [
    (
        "groups",
        "group add group_id=11,type=all,bucket=1\ngroup mod group_id=11,type=all,bucket=2\n\
         group delete group_id=61\nflow add table=6,priority=1,actions=drop\n",
    ),
    ("bad-groups", "group add group_id=12,type=all,bucket=1\nflow add table=6,priority=1,actions=group:77\n"),
];

fn file(word: &str) -> Option<&'static str> {
    FILES.iter().find(|(name, _)| *name == word).map(|(_, text)| *text)
}

fn input(command: &str) -> &'static str {
    if let Some(text) = command.rsplit(' ').next().and_then(file) {
        text
    } else if command.contains("replace-flows") {
        "table=5,priority=1,actions=drop\n"
    } else if command.contains(" bundle ") {
        "flow add table=6,priority=1,actions=drop\nflow delete_strict priority=11,in_port=2\n"
    } else {
        ""
    }
}

fn run(s: &Server, command: &str) -> Vec<String> {
    let mut child = s
        .ofctl()
        .args(command.split_whitespace().map(|w| if file(w).is_some() { "-" } else { w }))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ovs-ofctl is installed");
    // A command that does not read its input may be gone already.
    let _ = child.stdin.take().unwrap().write_all(input(command).as_bytes());
    let out = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    let mut lines = clean(&text);
    // In the order of a hash table.
    let sorts = ["dump-flows", "dump-group", "dump-meter", "meter-stats"];
    if sorts.iter().any(|s| command.contains(s)) && lines.len() > 1 {
        lines[1..].sort();
    }
    lines
}

#[test]
fn output_equals_the_recorded() {
    let s = Server::start();
    let mut cases: Vec<(&str, Vec<String>)> = Vec::new();
    for line in include_str!("ofctl.txt").lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            cases.push((command, Vec::new()));
        } else if let Some((_, want)) = cases.last_mut() {
            want.push(line.strip_prefix('|').unwrap_or(line).trim_start_matches(' ').to_owned());
        }
    }
    assert!(cases.len() > 60);
    let mut wrong = String::new();
    for (command, want) in cases {
        let got: Vec<String> = run(&s, command).iter().map(|l| l.trim_start().to_owned()).collect();
        if got != want {
            wrong += &format!("$ {command}\n-- want\n{}\n-- got\n{}\n\n", want.join("\n"), got.join("\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A running `ovs-ofctl monitor`, read line by line.
struct Monitor {
    child: std::process::Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Monitor {
    fn start(s: &Server, args: &str) -> Monitor {
        let mut c = s.ofctl();
        c.args(args.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = c.spawn().unwrap();
        let out = child.stderr.take().unwrap();
        let (tx, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for l in std::io::BufRead::lines(std::io::BufReader::new(out)).map_while(Result::ok) {
                if tx.send(clean(&l).concat()).is_err() {
                    break;
                }
            }
        });
        Monitor { child, lines }
    }

    /// Repeats `cause` until a line begins with `start`: a monitor that is still setting itself up
    /// throws away what it hears.
    fn expect(&self, start: &str, cause: impl Fn()) -> String {
        let mut seen = Vec::new();
        for _ in 0..200 {
            cause();
            while let Ok(l) = self.lines.recv_timeout(std::time::Duration::from_millis(100)) {
                if l.starts_with(start) {
                    return l;
                }
                seen.push(l);
            }
        }
        panic!("no line {start:?} in {seen:#?}");
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn monitors_hear_what_happens() {
    use fv_core::OfPort;
    use fv_ofproto::PacketInJob;
    use fv_openflow::msg::packet::{PacketIn, PacketInReason};

    let cases = [
        (
            "-P nxt_packet_in monitor br0 65534 --no-stats",
            "NXT_PACKET_IN: cookie=0x5 total_len=60 in_port=1 (via action) data_len=60 (unbuffered)",
            "OFPT_FLOW_REMOVED:  reason=delete ",
        ),
        (
            "monitor br0 65534",
            "NXT_PACKET_IN2: cookie=0x5 total_len=60 in_port=1 (via action) data_len=60 (unbuffered)",
            "OFPT_FLOW_REMOVED:  reason=delete ",
        ),
        (
            "-P standard -O OpenFlow13 monitor br0 65534",
            "OFPT_PACKET_IN (OF1.3): cookie=0x5 total_len=60 in_port=1 (via action) data_len=60 (unbuffered)",
            "OFPT_FLOW_REMOVED (OF1.3):  reason=delete table_id=7 ",
        ),
    ];
    for (args, packet_in, removed) in cases {
        let s = Server::start();
        let m = Monitor::start(&s, args);
        m.expect(packet_in, || {
            s.with(|o, _, now| {
                let mut p = PacketIn {
                    packet: vec![0; 60],
                    total_len: 60,
                    reason: PacketInReason::Action,
                    cookie: 5,
                    ..PacketIn::default()
                };
                p.metadata.set_in_port(OfPort(1));
                o.packet_in(&PacketInJob { bridge: o.id(), packet_in: p, controller_id: 0, max_len: 0 }, now);
            });
        });
        assert!(run(&s, "add-flow br0 table=7,send_flow_rem,actions=drop").is_empty());
        assert!(run(&s, "del-flows br0 table=7").is_empty());
        assert!(m.expect("OFPT_FLOW_REMOVED", || ()).starts_with(removed));
        assert!(run(&s, "mod-port br0 p1 no-flood").is_empty());
        m.expect("OFPT_PORT_STATUS", || ());
    }
}

/// Changes of flows as `ovs-ofctl monitor watch:` shows them with the reference.
#[test]
fn flow_monitors_hear_of_changes() {
    let changes = [
        "add-flow br0 table=3,cookie=5,priority=9,in_port=2,idle_timeout=100,hard_timeout=200,actions=2",
        "mod-flows br0 table=3,in_port=2,actions=2,1",
        // Nothing changes, and nothing is said.
        "mod-flows br0 table=3,in_port=2,actions=2,1",
        "add-flow br0 table=3,cookie=6,priority=9,in_port=2,actions=2,1",
        "del-flows br0 table=3,in_port=2",
        "add-flow br0 table=5,priority=9,in_port=2,actions=1",
        "del-flows br0 table=5",
    ];
    let all = [
        "event=ADDED table=3 idle_timeout=100 hard_timeout=200 cookie=0x5 in_port=2 actions=output:2",
        "event=MODIFIED table=3 idle_timeout=100 hard_timeout=200 cookie=0 in_port=2 actions=output:2,output:1",
        "event=ADDED table=3 cookie=0x6 in_port=2 actions=output:2,output:1",
        "event=DELETED reason=delete table=3 cookie=0x6 in_port=2 actions=output:2,output:1",
        "event=ADDED table=5 cookie=0 in_port=2 actions=output:1",
        "event=DELETED reason=delete table=5 cookie=0 in_port=2 actions=output:1",
    ];
    let short = |l: &str| l.split(" actions=").next().unwrap().to_owned();
    for (version, name) in [
        ("OpenFlow10", "NXST_FLOW_MONITOR reply:"),
        ("OpenFlow12", "NXST_FLOW_MONITOR reply (OF1.2):"),
        ("OpenFlow13", "ONFST_FLOW_MONITOR reply (OF1.3):"),
        ("OpenFlow14", "OFPST_FLOW_MONITOR reply (OF1.4):"),
        ("OpenFlow15", "OFPST_FLOW_MONITOR reply (OF1.5):"),
    ] {
        for (watch, want) in [
            ("watch:", all.map(str::to_owned).to_vec()),
            ("watch:!actions", all.map(short).to_vec()),
            ("watch:!initial,table=3,out_port=2", all[..4].iter().map(|l| (*l).to_owned()).collect()),
            ("watch:!add,!delete,!initial", vec![all[1].to_owned()]),
        ] {
            let s = Server::start();
            assert!(run(&s, "del-flows br0").is_empty());
            assert!(run(&s, "add-flow br0 table=7,priority=3,cookie=0x9,actions=drop").is_empty());
            let m = Monitor::start(&s, &format!("-O {version} monitor br0 {watch}"));
            s.wait_for(|o| o.conns().iter().any(fv_ofproto::Connection::watches_flows));
            let mut got = Vec::new();
            for c in changes {
                assert!(run(&s, c).is_empty());
            }
            while got.len() < want.len() {
                let l = m.lines.recv_timeout(std::time::Duration::from_secs(10)).unwrap_or_else(|_| panic!("{got:#?}"));
                if l.contains("event=INITIAL") || l.contains("cookie=0x9") {
                    assert!(!watch.contains("!initial"), "{l}");
                } else if l.trim_start().starts_with("event=") {
                    got.push(l.trim_start().to_owned());
                } else if l.contains("FLOW_MONITOR") {
                    assert!(l == name || l.trim_end() == name, "{l}");
                }
            }
            assert_eq!(got, want, "{version} {watch}");
        }
    }
}
