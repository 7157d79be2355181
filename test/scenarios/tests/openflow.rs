//! OpenFlow by ovs-ofctl: rules, statistics, messages both ways, controllers.

use fv_testkit::{Daemon, Env, normalise, wait_until};

fn env() -> Env {
    let e = Env::dummy(Daemon::Ours);
    e.add_dummy_bridge("br0", 1..=3);
    e
}

const FRAME: &str = "in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),\
    ipv4(src=198.18.0.1,dst=198.18.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=1000,dst=80),tcp_flags(syn)";

fn send(e: &Env) {
    e.appctl(&format!("netdev-dummy/receive p1 '{FRAME}'"));
}

fn rules(e: &Env, of: &str) -> Vec<String> {
    let text = e.ofctl(&format!("-O {of} --no-stats dump-flows br0"));
    let mut out: Vec<String> = text.lines().map(|l| l.trim().to_string()).filter(|l| !l.contains("reply")).collect();
    out.sort_by(|a, b| b.cmp(a));
    out
}

#[test]
fn rules_are_added_changed_and_deleted_strictly_and_loosely() {
    let mut e = env();
    for of in ["OpenFlow10", "OpenFlow13", "OpenFlow15"] {
        e.ofctl(&format!("-O {of} del-flows br0"));
        let ofctl = |line: &str| e.ofctl(&format!("-O {of} {line}"));
        ofctl("add-flow br0 priority=10,in_port=1,tcp,tp_dst=80,actions=2");
        ofctl("add-flow br0 priority=20,in_port=1,tcp,tp_dst=80,actions=3");
        ofctl("add-flow br0 priority=30,in_port=2,actions=drop");
        assert_eq!(
            rules(&e, of),
            [
                "priority=30,in_port=2 actions=drop",
                "priority=20,tcp,in_port=1,tp_dst=80 actions=output:3",
                "priority=10,tcp,in_port=1,tp_dst=80 actions=output:2"
            ],
            "{of}"
        );
        ofctl("--strict mod-flows br0 priority=10,in_port=1,tcp,tp_dst=80,actions=1");
        assert!(rules(&e, of).contains(&"priority=10,tcp,in_port=1,tp_dst=80 actions=output:1".into()), "{of}");
        ofctl("mod-flows br0 tcp,actions=local");
        let now = rules(&e, of);
        assert_eq!(now.iter().filter(|l| l.ends_with("actions=LOCAL")).count(), 2, "{of}: {now:?}");
        ofctl("--strict del-flows br0 priority=10,in_port=1,tcp,tp_dst=80");
        assert_eq!(rules(&e, of).len(), 2, "{of}");
        ofctl("del-flows br0 in_port=1");
        assert_eq!(rules(&e, of), ["priority=30,in_port=2 actions=drop"], "{of}");
        ofctl("del-flows br0");
        assert!(rules(&e, of).is_empty(), "{of}");
    }
    e.healthy(&[]);
}

#[test]
fn counters_are_exact_in_every_version() {
    let mut e = env();
    e.ofctl("add-flow br0 table=0,in_port=1,actions=mod_dl_src:00:00:00:00:00:09,resubmit(,5)");
    e.ofctl("add-flow br0 table=5,priority=7,tcp,actions=2");
    for _ in 0..10 {
        send(&e);
    }
    for of in ["OpenFlow10", "OpenFlow13", "OpenFlow15"] {
        let text = e.ofctl(&format!("-O {of} dump-flows br0"));
        assert_eq!(text.matches("n_packets=10, n_bytes=540,").count(), 2, "{of}: {text}");
        let agg = e.ofctl(&format!("-O {of} dump-aggregate br0 table=5"));
        assert!(agg.contains("packet_count=10") && agg.contains("flow_count=1"), "{of}: {agg}");
    }
    let tables = e.ofctl("-O OpenFlow13 dump-tables br0");
    assert!(tables.contains("active=1, lookup=10, matched=10"), "{tables}");
    let ports = e.ofctl("dump-ports br0 p2");
    assert!(ports.contains("tx pkts=10, bytes=540"), "{ports}");
    e.healthy(&[]);
}

#[test]
fn the_switch_describes_itself() {
    let mut e = env();
    for of in ["OpenFlow10", "OpenFlow13"] {
        let show = e.ofctl(&format!("-O {of} show br0"));
        assert!(
            show.contains("1(p1): addr:") && show.contains("LOCAL(br0)") && show.contains("n_tables:254"),
            "{show}"
        );
        let desc = e.ofctl(&format!("-O {of} dump-desc br0"));
        assert!(desc.contains("Manufacturer:"), "{desc}");
    }
    let o = e.run("ovs-ofctl", "-O OpenFlow13 add-flow br0 actions=goto_table:0");
    assert!(!o.ok(), "{o:?}");
    assert!(e.ofctl("-O OpenFlow14 dump-ports-desc br0").contains("3(p3)"));
    e.vsctl("set bridge br0 protocols=OpenFlow13");
    wait_until("version 1.0 is refused", 5, || !e.run("ovs-ofctl", "--timeout=5 -O OpenFlow10 show br0").ok());
    assert!(e.ofctl("-O OpenFlow13 show br0").contains("OFPT_FEATURES_REPLY (OF1.3)"));
    e.healthy(&["version negotiation failed"]);
}

#[test]
fn packets_go_to_a_monitor_and_come_from_a_controller() {
    let mut e = env();
    e.ofctl("add-flow br0 in_port=1,actions=controller");
    e.ofctl("add-flow br0 in_port=3,actions=2");
    for of in ["OpenFlow10", "OpenFlow13"] {
        let name = format!("monitor-{of}");
        let cmd = e.command("ovs-ofctl", &format!("-O {of} -P standard monitor br0 65534 --unixctl=none"));
        e.spawn(&name, &cmd);
        let text = |e: &Env| {
            let read = |s: &str| std::fs::read_to_string(e.path(&format!("{name}.{s}"))).unwrap_or_default();
            read("out") + &read("err")
        };
        wait_until("a packet-in", 10, || {
            send(&e);
            text(&e).contains("OFPT_PACKET_IN")
        });
        let got = text(&e);
        assert!(got.contains("in_port=1") || got.contains("in_port=p1"), "{got}");
        assert!(got.contains("tcp,vlan_tci=0x0000,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02"), "{got}");
        e.stop(&name);
    }
    e.ofctl(
        "packet-out br0 'in_port=3,packet=50540000000205054000000010800000000000000000000000000,actions=table' "
            .replace("020505", "02505")
            .as_str(),
    );
    wait_until("the packet left", 5, || e.ofctl("dump-ports br0 p2").contains("tx pkts=1"));
    e.healthy(&[]);
}

#[test]
fn removed_rules_and_changed_ports_are_told() {
    let mut e = env();
    let cmd = e.command("ovs-ofctl", "-O OpenFlow13 monitor br0 65534 --unixctl=none");
    e.spawn("monitor", &cmd);
    let text = |e: &Env| {
        let read = |s: &str| std::fs::read_to_string(e.path(&format!("monitor.{s}"))).unwrap_or_default();
        read("out") + &read("err")
    };
    // The monitor is connected once a rule's removal reaches it.
    wait_until("flow-removed", 10, || {
        e.ofctl("add-flow br0 in_port=1,send_flow_rem,actions=2");
        e.ofctl("del-flows br0");
        text(&e).contains("OFPT_FLOW_REMOVED")
    });
    assert!(text(&e).contains("reason=delete"), "{}", text(&e));
    e.ofctl("add-flow br0 in_port=2,send_flow_rem,hard_timeout=1,actions=3");
    wait_until("expiry", 5, || text(&e).contains("reason=hard"));
    e.ofctl("mod-port br0 p2 down");
    wait_until("port status", 5, || text(&e).contains("OFPT_PORT_STATUS") && text(&e).contains("PORT_DOWN"));
    e.vsctl("del-port br0 p3");
    wait_until("port deletion", 5, || text(&e).contains("DEL: 3(p3)"));
    e.healthy(&[]);
}

#[test]
fn actions_rewrite_packets() {
    let mut e = env();
    let trace = |actions: &str| {
        e.ofctl(&format!("add-flow br0 in_port=1,actions={actions}"));
        let t = e.appctl(&format!("ofproto/trace ovs-dummy '{FRAME}'"));
        t.lines().last().unwrap_or_default().trim_start_matches("Datapath actions: ").to_string()
    };
    for (actions, expected) in [
        ("output:2", "2"),
        ("in_port", "1"),
        ("drop", "drop"),
        ("flood", "2,3,100"),
        ("all", "2,3,100"),
        ("local", "100"),
        ("dec_ttl,2", "set(ipv4(ttl=63)),2"),
        ("mod_nw_src:198.18.9.9,2", "set(ipv4(src=198.18.9.9)),2"),
        ("mod_tp_dst:8080,2", "set(tcp(dst=8080)),2"),
        ("mod_vlan_vid:5,2", "push_vlan(vid=5,pcp=0),2"),
        ("mod_vlan_vid:5,2,strip_vlan,3", "push_vlan(vid=5,pcp=0),2,pop_vlan,3"),
        (
            "mod_dl_dst:50:54:00:00:00:99,2,mod_dl_dst:50:54:00:00:00:02,3",
            "set(eth(dst=50:54:00:00:00:99)),2,set(eth(dst=50:54:00:00:00:02)),3",
        ),
    ] {
        let got = trace(actions);
        let sorted = |t: &str| {
            let mut p: Vec<String> = t.split(',').map(Into::into).collect();
            p.sort();
            p
        };
        match actions {
            "flood" | "all" => assert_eq!(sorted(&got), sorted(expected), "{actions}"),
            _ => assert_eq!(got, expected, "{actions}"),
        }
    }
    e.ofctl("-O OpenFlow13 add-flow br0 in_port=1,actions=write_actions(output:3),goto_table:9");
    e.ofctl("-O OpenFlow13 add-flow br0 table=9,ip,actions=set_field:198.18.7.7->ip_dst,output:2");
    let t = e.appctl(&format!("ofproto/trace ovs-dummy '{FRAME}'"));
    assert!(
        t.ends_with("Datapath actions: set(ipv4(dst=198.18.7.7)),2,3\n")
            || t.trim_end().ends_with("set(ipv4(dst=198.18.7.7)),2,3"),
        "{t}"
    );
    e.healthy(&[]);
}

#[test]
fn endless_resubmits_end() {
    let mut e = env();
    e.ofctl("add-flow br0 in_port=1,actions=resubmit(1,0),2");
    send(&e);
    e.ofctl("add-flow br0 in_port=1,actions=resubmit(,1),resubmit(,1)");
    for t in 1..60 {
        e.ofctl(&format!("add-flow br0 table={t},actions=resubmit(,{}),resubmit(,{})", t + 1, t + 1));
    }
    let begin = std::time::Instant::now();
    send(&e);
    assert!(begin.elapsed().as_secs() < 10, "{:?}", begin.elapsed());
    assert!(e.appctl("coverage/show").contains("drop_action_"), "{}", e.appctl("coverage/show"));
    e.healthy(&["resubmit", "recurs", "over max", "too many", "too deep"]);
}

#[test]
fn malformed_messages_are_answered_and_cost_at_most_their_connection() {
    use std::io::{Read, Write};
    let mut e = env();
    let open = || {
        let s = std::os::unix::net::UnixStream::connect(e.path("br0.mgmt")).unwrap();
        s.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        s
    };
    let hello = [4u8, 0, 0, 8, 0, 0, 0, 1];
    // An unknown type: an error message back, and the connection stays.
    let mut s = open();
    s.write_all(&hello).unwrap();
    s.write_all(&[4, 99, 0, 8, 0, 0, 0, 2]).unwrap();
    s.write_all(&[4, 2, 0, 8, 0, 0, 0, 3]).unwrap();
    let mut got = Vec::new();
    let mut buf = [0; 4096];
    while !has_message(&got, 3, 3) {
        let n = s.read(&mut buf).unwrap();
        assert!(n > 0, "closed before the echo reply");
        got.extend(&buf[..n]);
    }
    assert!(has_message(&got, 1, 2), "no error message: {got:x?}");
    // A flow-mod cut short, one whose match says it is longer than the message, and garbage.
    for bad in [vec![4u8, 14, 0, 16, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0], {
        let mut m = vec![4u8, 14, 0, 56, 0, 0, 0, 5];
        m.resize(48, 0);
        m.extend([0, 1, 0xff, 0xff, 0, 0, 0, 0]);
        m
    }] {
        s.write_all(&bad).unwrap();
    }
    s.write_all(&[4, 2, 0, 8, 0, 0, 0, 6]).unwrap();
    while !has_message(&got, 3, 6) {
        let n = s.read(&mut buf).unwrap();
        assert!(n > 0, "closed");
        got.extend(&buf[..n]);
    }
    assert!(has_message(&got, 1, 4) && has_message(&got, 1, 5), "{got:x?}");
    // A length below the header's: only this connection ends.
    let mut t = open();
    t.write_all(&hello).unwrap();
    t.write_all(&[4, 2, 0, 3, 0, 0, 0, 9]).unwrap();
    let mut rest = Vec::new();
    let _ = t.read_to_end(&mut rest);
    let mut u = open();
    let _ = u.write_all(&[0xff; 4096]);
    let _ = u.read_to_end(&mut rest);
    assert!(e.ofctl("show br0").contains("1(p1)"));
    let p = e.proc("daemon").running();
    assert!(p);
}

/// A whole message of that type and transaction id in `stream`.
fn has_message(stream: &[u8], kind: u8, xid: u32) -> bool {
    let mut rest = stream;
    while rest.len() >= 8 {
        let len = usize::from(u16::from_be_bytes([rest[2], rest[3]])).max(8);
        let id = u32::from_be_bytes([rest[4], rest[5], rest[6], rest[7]]);
        if rest.len() >= len && rest[1] == kind && id == xid {
            return true;
        }
        rest = rest.get(len..).unwrap_or_default();
    }
    false
}

#[test]
fn fail_modes_without_a_controller() {
    let mut e = env();
    let ports = |e: &Env| e.ofctl("dump-ports br0 p2");
    e.vsctl("set-fail-mode br0 standalone");
    wait_until("the bridge learns by itself", 5, || {
        send(&e);
        !ports(&e).contains("tx pkts=0")
    });
    // Standalone with a controller that is not there: NORMAL takes over after a while.
    e.vsctl("set-fail-mode br0 secure");
    e.vsctl("set-controller br0 tcp:127.0.0.1:1");
    let row = e.vsctl("--columns=is_connected,target --no-headings --bare list Controller");
    assert!(row.contains("tcp:127.0.0.1:1") && !row.contains("true"), "{row}");
    let rule_count = normalise(&e.ofctl("dump-flows br0")).lines().count();
    assert!(rule_count >= 1);
    e.vsctl("del-controller br0");
    assert!(e.proc("daemon").running());
}

#[test]
fn controllers_by_every_kind_of_connection() {
    let mut e = env();
    // The switch listens; a client works through it.
    e.vsctl("set-controller br0 ptcp:0:127.0.0.1 punix:extra.sock");
    wait_until("the socket", 5, || e.path("extra.sock").exists());
    assert!(e.ofctl(&format!("show unix:{}", e.file("extra.sock"))).contains("1(p1)"));
    // The switch connects out: a monitor listens.
    let listen = e.file("out.sock");
    let cmd = e.command("ovs-ofctl", &format!("monitor punix:{listen} --unixctl=none"));
    e.spawn("passive", &cmd);
    e.vsctl(&format!("set-controller br0 unix:{listen}"));
    let connected = |e: &Env| e.vsctl("--columns=is_connected,target --no-headings list Controller");
    if e.path("out.sock").exists() {
        wait_until("connected", 15, || connected(&e).contains("true"));
    }
    e.vsctl("del-controller br0");
    wait_until("no controller", 5, || e.vsctl("list Controller").trim().is_empty());
    assert!(e.proc("daemon").running());
}
