//! What happens to packets, in the dummy world: learning, flooding, VLANs, expiry, counters.

use fv_testkit::{Daemon, Env, wait_until};

fn env(ports: u32) -> Env {
    let e = Env::dummy(Daemon::Ours);
    e.add_dummy_bridge("br0", 1..=ports);
    e.vsctl("set bridge br0 fail-mode=standalone");
    e
}

fn normal(ports: u32) -> Env {
    let e = env(ports);
    e.ofctl("del-flows br0");
    e.ofctl("add-flow br0 actions=normal");
    e
}

fn frame(port: u32, src: u8, dst: u8, rest: &str) -> String {
    format!("in_port({port}),eth(src=50:54:00:00:00:{src:02x},dst=50:54:00:00:00:{dst:02x}){rest}")
}

fn send(e: &Env, port: u32, frame: &str) {
    e.appctl(&format!("netdev-dummy/receive p{port} '{frame}'"));
}

const IP: &str = ",eth_type(0x0800),ipv4(src=198.18.0.1,dst=198.18.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2)";

/// Packets that left each port p1..pN so far.
fn sent(e: &Env, ports: u32) -> Vec<u64> {
    let text = e.ofctl("dump-ports br0");
    let mut out = vec![0; ports as usize];
    let mut port = None;
    for line in text.lines() {
        let t = line.trim();
        if let Some(rest) = t.strip_prefix("port ") {
            let name = rest.split(':').next().unwrap_or_default().trim().trim_matches('"');
            port = name.strip_prefix('p').unwrap_or(name).parse::<usize>().ok().filter(|n| *n <= out.len());
        }
        if let (Some(n), Some((_, rest))) = (port, t.split_once("tx pkts=")) {
            out[n - 1] = rest.split(',').next().and_then(|x| x.parse().ok()).unwrap_or(0);
        }
    }
    out
}

/// Sends a frame and returns by which ports it left.
fn leaves(e: &Env, ports: u32, from: u32, f: &str) -> Vec<u32> {
    let before = sent(e, ports);
    send(e, from, f);
    let after = sent(e, ports);
    (1..=ports).filter(|n| after[*n as usize - 1] > before[*n as usize - 1]).collect()
}

#[test]
fn learns_and_floods() {
    let mut e = normal(3);
    let (a_to_b, b_to_a) = (frame(1, 1, 2, IP), frame(2, 2, 1, IP));
    assert_eq!(leaves(&e, 3, 1, &a_to_b), [2, 3], "unknown: flooded");
    assert_eq!(leaves(&e, 3, 2, &b_to_a), [1], "learnt");
    assert_eq!(leaves(&e, 3, 1, &a_to_b), [2], "learnt meanwhile");
    let fdb = e.appctl("fdb/show br0");
    assert!(fdb.contains("50:54:00:00:00:01") && fdb.contains("50:54:00:00:00:02"), "{fdb}");
    // The first host moves.
    assert_eq!(leaves(&e, 3, 3, &frame(3, 1, 2, IP)), [2]);
    wait_until("the flow follows", 5, || leaves(&e, 3, 2, &b_to_a) == [3]);
    e.appctl("fdb/flush br0");
    assert_eq!(leaves(&e, 3, 2, &b_to_a), [1, 3]);
    // Reserved addresses stay here, unless the bridge forwards them.
    let bpdu = "in_port(1),eth(src=50:54:00:00:00:01,dst=01:80:c2:00:00:00),eth_type(0x8902)";
    assert!(leaves(&e, 3, 1, bpdu).is_empty());
    e.vsctl("set bridge br0 other-config:forward-bpdu=true");
    wait_until("BPDUs pass", 5, || leaves(&e, 3, 1, bpdu) == [2, 3]);
    e.healthy(&[]);
}

#[test]
fn access_and_trunk_ports() {
    let mut e = normal(5);
    // p1, p2: access 10; p3: access 20; p4: trunk of 10; p5: trunk of all, 20 untagged.
    e.vsctl(
        "set Port p1 tag=10 -- set Port p2 tag=10 -- set Port p3 tag=20 -- set Port p4 trunks=10 \
         -- set Port p5 vlan_mode=native-untagged tag=20",
    );
    let tagged = |port, src, vid: u32| {
        frame(
            port,
            src,
            0xee,
            &format!(
                ",eth_type(0x8100),vlan(vid={vid},pcp=0),encap(eth_type(0x0800),ipv4(src=198.18.0.1,dst=198.18.0.2,proto=17,ttl=64,frag=no),udp(src=1,dst=2))"
            ),
        )
    };
    assert_eq!(leaves(&e, 5, 1, &frame(1, 1, 0xee, IP)), [2, 4, 5]);
    assert_eq!(leaves(&e, 5, 3, &frame(3, 3, 0xee, IP)), [5]);
    assert_eq!(leaves(&e, 5, 4, &tagged(4, 4, 10)), [1, 2, 5]);
    assert!(leaves(&e, 5, 4, &tagged(4, 4, 20)).is_empty(), "not a VLAN of this trunk");
    assert!(leaves(&e, 5, 4, &frame(4, 4, 0xee, IP)).is_empty(), "untagged is VLAN 0 on a trunk");
    assert_eq!(leaves(&e, 5, 5, &frame(5, 5, 0xee, IP)), [3], "untagged is VLAN 20 here");
    assert!(leaves(&e, 5, 1, &tagged(1, 1, 10)).is_empty(), "tagged on an access port");

    // Tags are put on and taken off on the way.
    let out = |f: &str| {
        let t = e.appctl(&format!("ofproto/trace ovs-dummy '{f}'"));
        t.lines().last().unwrap_or_default().to_string()
    };
    let a = out(&frame(1, 1, 0xee, IP));
    assert!(a.contains("push_vlan(vid=10,pcp=0)") && a.contains('4'), "{a}");
    let t = out(&tagged(4, 4, 10));
    assert!(t.contains("pop_vlan"), "{t}");
    e.healthy(&["dropping VLAN", "tagged with VLAN"]);
}

#[test]
fn flows_are_cached_counted_and_expire() {
    let mut e = normal(2);
    e.appctl("time/stop");
    let f = frame(1, 1, 2, IP);
    for _ in 0..5 {
        send(&e, 1, &f);
    }
    let flows = e.appctl("dpctl/dump-flows");
    assert!(flows.starts_with("flow-dump from the main thread:\n"), "{flows}");
    assert!(flows.contains("in_port(1)") && flows.contains("packets:4,"), "{flows}");
    assert!(e.appctl("dpctl/show").contains("lookups: hit:4 missed:1 lost:0"), "{}", e.appctl("dpctl/show"));
    // A request for statistics counts what the datapath has, without a wait.
    let rules = e.ofctl("dump-flows br0");
    assert!(rules.contains("n_packets=5"), "{rules}");
    e.appctl("time/warp 5000");
    assert!(e.appctl("dpctl/dump-flows").contains("in_port(1)"), "still used 5 s ago");
    e.appctl("time/warp 12000 500");
    wait_until("the idle flow is gone", 5, || !e.appctl("dpctl/dump-flows").contains("in_port(1)"));
    let rules = e.ofctl("dump-flows br0");
    assert!(rules.contains("n_packets=5"), "counted once and not lost: {rules}");
    e.healthy(&[]);
}

#[test]
fn addresses_age() {
    let mut e = normal(2);
    e.vsctl("set bridge br0 other-config:mac-aging-time=15");
    e.appctl("time/stop");
    send(&e, 1, &frame(1, 1, 2, IP));
    assert!(e.appctl("fdb/show br0").contains("50:54:00:00:00:01"));
    e.appctl("time/warp 30000 1000");
    wait_until("forgotten", 5, || !e.appctl("fdb/show br0").contains("50:54:00:00:00:01"));
    e.appctl("fdb/add br0 p2 0 50:54:00:00:00:77");
    let fdb = e.appctl("fdb/show br0");
    assert!(fdb.contains("50:54:00:00:00:77") && fdb.contains("static"), "{fdb}");
    assert_eq!(leaves(&e, 2, 1, &frame(1, 1, 0x77, IP)), [2]);
    e.appctl("fdb/del br0 0 50:54:00:00:00:77");
    assert!(!e.appctl("fdb/show br0").contains("50:54:00:00:00:77"));
    e.healthy(&[]);
}

#[test]
fn a_changed_rule_changes_the_cached_flow() {
    let mut e = env(3);
    e.ofctl("del-flows br0");
    e.ofctl("add-flow br0 in_port=1,actions=2");
    let f = frame(1, 1, 2, IP);
    assert_eq!(leaves(&e, 3, 1, &f), [2]);
    e.ofctl("mod-flows br0 in_port=1,actions=3");
    wait_until("the new port", 3, || leaves(&e, 3, 1, &f) == [3]);
    e.ofctl("del-flows br0");
    wait_until("dropped", 3, || leaves(&e, 3, 1, &f).is_empty());
    e.healthy(&[]);
}

#[test]
fn patch_ports_join_bridges() {
    let mut e = normal(1);
    e.add_dummy_bridge("br1", 2..=2);
    e.ofctl("add-flow br1 actions=normal");
    e.vsctl(
        "add-port br0 a -- set Interface a type=patch options:peer=b -- add-port br1 b -- set Interface b type=patch options:peer=a",
    );
    let f = frame(1, 1, 2, IP);
    let last =
        |e: &Env| e.appctl(&format!("ofproto/trace ovs-dummy '{f}'")).lines().last().unwrap_or_default().to_string();
    assert!(last(&e).contains('2'), "{}", last(&e));
    send(&e, 1, &f);
    let ports = e.ofctl("dump-ports br1 p2");
    assert!(ports.contains("tx pkts=1"), "{ports}");
    e.healthy(&[]);
}

#[test]
fn captures_are_files_that_others_read() {
    let mut e = Env::dummy(Daemon::Ours);
    e.add_dummy_bridge("br0", 1..=2);
    e.vsctl("set Interface p1 options:rxq_pcap=rx.pcap -- set Interface p2 options:tx_pcap=tx.pcap");
    e.ofctl("add-flow br0 in_port=1,actions=mod_vlan_vid:7,2");
    wait_until("the captures", 5, || e.path("rx.pcap").exists() && e.path("tx.pcap").exists());
    send(&e, 1, &frame(1, 1, 2, IP));
    let rx = e.must("tcpdump", "-nner rx.pcap");
    let tx = e.must("tcpdump", "-nner tx.pcap");
    assert!(rx.contains("50:54:00:00:00:01 > 50:54:00:00:00:02") && !rx.contains("vlan 7"), "{rx}");
    assert!(tx.contains("vlan 7"), "{tx}");
    e.healthy(&[]);
}

#[test]
fn malformed_packets_are_dropped_and_counted_not_more() {
    let mut e = normal(2);
    // Truncated IPv4, wrong header length, IPv6 with a length beyond its end, runts of every kind.
    let base = "505400000002505400000001";
    for (n, tail) in [
        "0800",
        "08004500",
        "080046000014000000004011000001020304",
        "86dd60000000ffff1140",
        "8100",
        "81000001",
        "810000018100000208004f",
        "8847",
        "88470000",
        "080045000014000020004006000001020304050607080001",
    ]
    .iter()
    .enumerate()
    {
        let o = e.run("ovs-appctl", &format!("netdev-dummy/receive p1 {base}{tail}"));
        assert!(o.ok(), "{n}: {o:?}");
    }
    assert_eq!(leaves(&e, 2, 1, &frame(1, 1, 9, IP)), [2], "a good one still passes");
    e.healthy(&[]);
}

#[test]
fn polled_ports_forward_too() {
    let mut e = Env::dummy(Daemon::Ours);
    e.vsctl(
        "add-br br0 -- set bridge br0 datapath-type=dummy fail-mode=secure \
         -- add-port br0 p1 -- set Interface p1 type=dummy-pmd ofport_request=1 \
         -- add-port br0 p2 -- set Interface p2 type=dummy-pmd ofport_request=2 options:n_rxq=2",
    );
    e.ofctl("add-flow br0 in_port=1,actions=2");
    for n in 1..=5 {
        send(&e, 1, &frame(1, n, 2, IP));
    }
    wait_until("all left", 10, || sent(&e, 2) == [0, 5]);
    let flows = e.appctl("dpctl/dump-flows");
    assert!(flows.contains("flow-dump from pmd on cpu core: "), "{flows}");
    assert!(e.ofctl("dump-flows br0").contains("n_packets=5"));
    let show = e.appctl("dpif/show");
    assert!(show.contains("p2 2/2: (dummy-pmd: n_rxq=2, n_txq=1, numa_id=0)"), "{show}");
    e.vsctl("del-port p1");
    e.healthy(&["pmd", "numa"]);
}

#[test]
fn a_chain_of_bridges_is_one_path() {
    let mut e = normal(3);
    // Several bridges at once, joined in a chain by patch ports: one megaflow, and counters along the chain.
    for n in 1..=4 {
        e.vsctl(&format!("add-br c{n} -- set bridge c{n} datapath_type=dummy"));
        e.ofctl(&format!("add-flow c{n} actions=normal"));
    }
    for (a, b) in [("br0", "c1"), ("c1", "c2"), ("c2", "c3"), ("c3", "c4")] {
        let (x, y) = (format!("{a}-{b}"), format!("{b}-{a}"));
        e.vsctl(&format!(
            "add-port {a} {x} -- set Interface {x} type=patch options:peer={y} \
             -- add-port {b} {y} -- set Interface {y} type=patch options:peer={x}"
        ));
    }
    e.vsctl("add-port c4 p9 -- set Interface p9 type=dummy ofport_request=9");
    send(&e, 1, &frame(1, 1, 2, IP));
    assert!(e.ofctl("dump-ports c4 p9").contains("tx pkts=1"), "{}", e.ofctl("dump-ports c4 p9"));
    e.appctl("netdev-dummy/receive p9 'in_port(9),eth(src=50:54:00:00:00:02,dst=50:54:00:00:00:01),eth_type(0x1234)'");
    assert!(sent(&e, 3)[0] == 1, "the answer comes straight back: {:?}", sent(&e, 3));
    for n in 1..=4 {
        assert!(e.ofctl(&format!("dump-flows c{n}")).contains("n_packets=2"), "bridge c{n}");
    }
    // A loop of patches ends at a limit, not never.
    e.vsctl(
        "add-port br0 l1 -- set Interface l1 type=patch options:peer=l2 -- add-port c4 l2 -- set Interface l2 type=patch options:peer=l1",
    );
    send(&e, 1, &frame(1, 7, 0xff, IP));
    assert!(e.proc("daemon").running());
}
