//! What users of such switches reported, as tests; each names its report.

use std::time::{Duration, Instant};

use fv_testkit::{Daemon, Env, Netns, Veth, run, unique, wait_until};

fn env(ports: u32) -> Env {
    let e = Env::dummy(Daemon::Ours);
    e.add_dummy_bridge("br0", 1..=ports);
    e
}

fn long() -> bool {
    std::env::var_os("FERROVIA_LONG").is_some()
}

fn sent(e: &Env, port: u32) -> u64 {
    let text = e.ofctl(&format!("dump-ports br0 {port}"));
    let rest = text.split("tx pkts=").nth(1).unwrap_or_default();
    rest.split(',').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

// UP-13: a rule on flags or on a neighbour's address behind one on ports: the first packet's megaflow
// must not cover those that the rule is for.
#[test]
fn a_port_decides_but_does_not_hide_what_is_beside_it() {
    let mut e = env(2);
    let eth = "in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02)";
    let tcp = |flags: &str, dst: u32| {
        format!(
            "{eth},eth_type(0x0800),ipv4(src=198.18.0.1,dst=198.18.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=9,dst={dst}),tcp_flags({flags})"
        )
    };
    let nd = |target: &str| {
        format!(
            "{eth},eth_type(0x86dd),ipv6(src=fd00::1,dst=fd00::2,label=0,proto=58,tclass=0,hlimit=255,frag=no),icmpv6(type=135,code=0),nd(target={target},sll=50:54:00:00:00:01)"
        )
    };
    e.ofctl("add-flow br0 priority=10,tcp,tp_dst=80,tcp_flags=+psh,actions=drop");
    e.ofctl("add-flow br0 priority=9,icmp6,icmp_type=135,nd_target=fd00::9,actions=drop");
    e.ofctl("add-flow br0 priority=0,actions=2");
    // (what comes, whether it leaves), with the cache warm from those before.
    let steps = [
        (tcp("syn", 80), 1),
        (tcp("psh|ack", 80), 0),
        (tcp("ack", 80), 1),
        (tcp("psh|ack", 81), 1),
        (tcp("psh|ack", 80), 0),
        (nd("fd00::8"), 1),
        (nd("fd00::9"), 0),
        (nd("fd00::8"), 1),
    ];
    for (f, leaves) in &steps {
        let before = sent(&e, 2);
        e.appctl(&format!("netdev-dummy/receive p1 '{f}'"));
        assert_eq!(sent(&e, 2) - before, *leaves, "{f}\n{}", e.appctl("dpctl/dump-flows"));
    }
    e.healthy(&[]);
}

// UP-32, as far as there are no tunnels: a rule that changes from allow to deny holds for cached flows
// within a second, also where it matches a tunnel's key, metadata, or a register.
#[test]
fn a_changed_policy_holds_for_cached_flows() {
    let mut e = env(2);
    let f = "in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x1234)";
    let cases = [
        ("set_tunnel:5", "tun_id=5"),
        ("write_metadata:7,goto_table:1", "metadata=7"),
        ("load:3->NXM_NX_REG4[]", "reg4=3"),
        ("load:2->NXM_NX_PKT_MARK[]", "pkt_mark=2"),
    ];
    for (first, matched) in cases {
        let go = if first.contains("goto") { "" } else { ",resubmit(,1)" };
        e.ofctl("del-flows br0");
        e.ofctl(&format!("-O OpenFlow13 add-flow br0 in_port=1,actions={first}{go}"));
        e.ofctl(&format!("add-flow br0 table=1,{matched},actions=2"));
        let leaves = || {
            let before = sent(&e, 2);
            e.appctl(&format!("netdev-dummy/receive p1 '{f}'"));
            sent(&e, 2) > before
        };
        assert!(leaves() && leaves(), "{matched}");
        e.ofctl(&format!("mod-flows br0 table=1,{matched},actions=drop"));
        let since = Instant::now();
        wait_until("denied", 5, || !leaves());
        assert!(since.elapsed() < Duration::from_secs(1), "{matched}: {:?}", since.elapsed());
        e.ofctl(&format!("mod-flows br0 table=1,{matched},actions=2"));
        wait_until("allowed again", 5, leaves);
    }
    e.healthy(&[]);
}

// UP-14: an untagged packet's megaflow must not catch tagged packets.
#[test]
fn tagged_and_untagged_packets_do_not_share_a_flow() {
    let mut e = env(3);
    e.ofctl("add-flow br0 priority=10,in_port=1,dl_vlan=10,actions=2");
    e.ofctl("add-flow br0 priority=5,in_port=1,actions=3");
    let ip = "eth_type(0x0800),ipv4(src=198.18.0.1,dst=198.18.0.2,proto=17,ttl=64,frag=no),udp(src=1,dst=2)";
    let eth = "in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02)";
    let untagged = format!("{eth},{ip}");
    let tagged = |vid: u32| format!("{eth},eth_type(0x8100),vlan(vid={vid},pcp=0),encap({ip})");
    // In every order: the first packet decides what the cached flow looks like.
    for order in [[&untagged, &tagged(10), &tagged(11)], [&tagged(11), &untagged, &tagged(10)]] {
        e.appctl("revalidator/purge");
        for (n, f) in order.iter().cycle().take(6).enumerate() {
            let before = (sent(&e, 2), sent(&e, 3));
            e.appctl(&format!("netdev-dummy/receive p1 '{f}'"));
            let want = if f.contains("vid=10") { (before.0 + 1, before.1) } else { (before.0, before.1 + 1) };
            assert_eq!((sent(&e, 2), sent(&e, 3)), want, "packet {n}: {f}\n{}", e.appctl("dpctl/dump-flows"));
        }
    }
    e.healthy(&[]);
}

// UP-16: flows that drop are not deleted by each revalidation, to be made again by the next packet.
#[test]
fn dropping_flows_stay() {
    let mut e = env(2);
    let f = "in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x1234)";
    e.appctl("time/stop");
    for _ in 0..10 {
        e.appctl(&format!("netdev-dummy/receive p1 '{f}'"));
        e.appctl("time/warp 1000 500");
    }
    let show = e.appctl("dpctl/show");
    assert!(show.contains("hit:9 missed:1 lost:0"), "{show}");
    e.healthy(&[]);
}

// UP-16, for a port that no bridge has: what it sends is dropped by one flow that only idleness removes.
#[test]
fn what_comes_from_a_port_without_a_bridge_ages() {
    let mut e = env(1);
    let f = "eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x1234)";
    e.appctl("time/stop");
    e.appctl("dpctl/add-if dummy@ovs-dummy p9,type=dummy");
    for n in 0..10 {
        // A change of the rules looks at every flow again.
        e.ofctl(&format!("add-flow br0 priority={n},in_port=1,actions=drop"));
        e.appctl(&format!("netdev-dummy/receive p9 '{f}'"));
        e.appctl("time/warp 1000 500");
    }
    let show = e.appctl("dpctl/show");
    assert!(show.contains("hit:9 missed:1 lost:0") && show.contains("flows: 1"), "{show}");
    e.appctl("time/warp 12000 500");
    let show = e.appctl("dpctl/show");
    assert!(show.contains("flows: 0"), "{show}");
    e.healthy(&["no bridge"]);
}

// UP-20: packet-outs with every kind of action do not disturb the datapath.
#[test]
fn packet_outs_with_any_action() {
    let mut e = env(3);
    e.ofctl("add-flow br0 table=1,actions=normal");
    let packet = "50540000000150540000000208004500001c00000000401166cc c6120001c6120002000100020008000000000000";
    let packet = packet.replace(' ', "");
    for actions in [
        "resubmit(,1)",
        "normal",
        "flood",
        "controller",
        "mod_vlan_vid:7,2,strip_vlan,3",
        "dec_ttl,2",
        "learn(table=2,hard_timeout=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),2",
        "learn(table=2,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),resubmit(,2)",
        "table",
        "in_port",
        "drop",
    ] {
        for in_port in ["1", "local", "controller"] {
            let line = format!("--timeout=10 packet-out br0 'in_port={in_port},packet={packet},actions={actions}'");
            let o = e.run("ovs-ofctl", &line);
            assert!(!o.stderr.contains("connection"), "{line}: {o:?}");
        }
        // Fragments, first and later.
        let (first, later) = (
            packet.replacen("00000000401166cc", "00002000401146cc", 1),
            packet.replacen("00000000401166cc", "00000020401166ac", 1),
        );
        for p in [first, later] {
            e.run("ovs-ofctl", &format!("--timeout=10 packet-out br0 'in_port=1,packet={p},actions={actions}'"));
        }
    }
    assert!(sent(&e, 2) > 0);
    assert!(e.proc("daemon").running(), "the daemon is gone");
}

// UP-28: memory after a storm of addresses comes back, or at least does not grow with the next one.
#[test]
fn memory_after_a_storm() {
    let mut e = env(2);
    e.ofctl("add-flow br0 actions=normal");
    e.vsctl("set bridge br0 fail-mode=standalone");
    let storm = |e: &Env, seed: u32| {
        for batch in 0..if long() { 300 } else { 60 } {
            let mut line = String::from("netdev-dummy/receive p1");
            for n in 0..100u32 {
                let x = seed + batch * 100 + n;
                line += &format!(
                    " 'in_port(1),eth(src=50:54:00:{:02x}:{:02x}:{:02x},dst=50:54:00:ff:ff:ff),eth_type(0x0800),ipv4(src=198.18.{}.{},proto=17,frag=no),udp(src=68,dst=67)'",
                    x >> 16 & 0xff,
                    x >> 8 & 0xff,
                    x & 0xff,
                    x >> 8 & 0xff,
                    x & 0xff
                );
            }
            e.appctl(&line);
        }
        e.appctl("revalidator/purge");
        e.appctl("fdb/flush br0");
        e.daemon_rss_kib()
    };
    let first = storm(&e, 0);
    let second = storm(&e, 1 << 16);
    let third = storm(&e, 2 << 16);
    let most = first + first / 5 + 8 * 1024;
    assert!(third.min(second) < most, "{first} KiB, {second} KiB, {third} KiB after each storm");
    e.healthy(&[]);
}

// UP-37: a command does not wait for a busy worker.
#[test]
fn commands_are_quick_while_ports_are_busy() {
    let mut e = Env::system();
    let br = unique("fvb");
    e.vsctl(&format!("add-br {br} -- set bridge {br} datapath_type=netdev"));
    let (a, b) = (Netns::new(), Netns::new());
    let (va, vb) = (Veth::new(&a, &["198.18.0.1/24"]), Veth::new(&b, &["198.18.0.2/24"]));
    e.vsctl(&format!("add-port {br} {} -- add-port {br} {}", va.outer(), vb.outer()));
    a.wait_ping("198.18.0.2", 10);
    let server = b.command("iperf3 -s -1 --forceflush");
    e.spawn("server", &server);
    wait_until("iperf3 listens", 10, || {
        std::fs::read_to_string(e.path("server.out")).unwrap_or_default().contains("listening")
    });
    let client = a.command("iperf3 -c 198.18.0.2 -t 20");
    e.spawn("client", &client);
    std::thread::sleep(Duration::from_millis(500));
    let mut slowest = Duration::ZERO;
    for n in 0..20 {
        let begin = Instant::now();
        e.ofctl(&format!("add-flow {br} priority=7,in_port=1,udp,udp_dst={n},actions=drop"));
        e.appctl("dpctl/show");
        slowest = slowest.max(begin.elapsed());
    }
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    assert!(e.proc("client").running(), "the traffic ended early");
    e.healthy(&[]);
    assert!(!e.log().contains("blocked"), "{}", e.log());
    e.stop("client");
    let _ = e.run("ovs-appctl", "--timeout=5 exit --cleanup");
}

// UP-39: many changes of the kernel's routes cost next to nothing.
#[test]
fn changing_routes_do_not_burn_a_core() {
    let mut e = Env::system();
    let br = unique("fvb");
    e.vsctl(&format!("add-br {br} -- set bridge {br} datapath_type=netdev"));
    let (dev, table) = (unique("fvd"), 4242);
    fv_testkit::ip(&format!("link add {dev} type veth peer name {dev}p"));
    fv_testkit::ip(&format!("link set {dev} up"));
    let before = e.daemon_ticks();
    for verb in ["add", "del"] {
        let mut batch = String::new();
        for n in 0..4000 {
            batch += &format!("route {verb} 198.19.{}.{}/32 dev {dev} table {table}\n", n >> 8, n & 0xff);
        }
        std::fs::write(e.path("batch"), batch).unwrap();
        let o = run(std::process::Command::new("ip").arg("-batch").arg(e.path("batch")), 60);
        assert!(o.ok() || verb == "del", "{o:?}");
    }
    let used = e.daemon_ticks() - before;
    fv_testkit::ip(&format!("link del {dev}"));
    assert!(used < 100, "{used} ticks of 10 ms for 8000 changes");
    e.healthy(&[]);
    let _ = e.run("ovs-appctl", "--timeout=5 exit --cleanup");
}

// UP-117: many flow-mods do not starve the database connection.
#[test]
fn bulk_rules_do_not_starve_the_database() {
    let mut e = env(2);
    e.vsctl("set Open_vSwitch . external_ids:probe=1");
    let count = 57_000;
    let rules: String = (0..count)
        .map(|n| {
            format!(
                "priority={},ip,nw_src=198.18.{}.{},tp_dst={},udp,actions=output:2\n",
                n % 7,
                n >> 8 & 0xff,
                n & 0xff,
                n
            )
        })
        .map(|l| l.replace(",udp", "").replace("ip,", "udp,"))
        .collect();
    std::fs::write(e.path("rules"), rules).unwrap();
    let file = e.file("rules");
    let cmd = e.command("ovs-ofctl", &format!("add-flows br0 {file}"));
    e.spawn("add-flows", &cmd);
    let mut slowest = Duration::ZERO;
    let mut asked = 0;
    while e.proc("add-flows").running() {
        let begin = Instant::now();
        e.vsctl(&format!("set bridge br0 other_config:n={asked}"));
        slowest = slowest.max(begin.elapsed());
        asked += 1;
        assert!(asked < 2000, "the rules are not done");
    }
    assert_eq!(e.proc("add-flows").wait(1), Some(0));
    assert!(slowest < Duration::from_secs(5), "a change of configuration took {slowest:?} meanwhile");
    let agg = e.ofctl("dump-aggregate br0");
    assert!(agg.contains(&format!("flow_count={count}")), "{agg}");
    let begin = Instant::now();
    e.ofctl("del-flows br0");
    assert!(begin.elapsed() < Duration::from_secs(10));
    e.healthy(&[]);
}

// UP-119: LLDP frames, well formed or not, are frames like others.
#[test]
fn lldp_frames_do_no_harm() {
    let mut e = env(2);
    e.ofctl("add-flow br0 actions=normal");
    e.vsctl("set Interface p1 lldp:enable=true");
    let head = "0180c200000e50540000000188cc";
    let id = "0207045054000000010403027031060200780";
    for tail in [
        format!("{id}000000"),
        "02ff04".into(),
        "0207".into(),
        format!("{}0", "0207045054000000010403027031060200780a"),
        format!("0207045054000000010403027031060200781{}", "0fe0000000".repeat(20)),
        "fe050012bb01".repeat(100),
        "1005fffffffffe0a004d4200010203".into(),
        String::new(),
    ] {
        let mut hex = format!("{head}{tail}");
        if hex.len() % 2 == 1 {
            hex.push('0');
        }
        let o = e.run("ovs-appctl", &format!("netdev-dummy/receive p1 {hex}"));
        assert!(o.ok(), "{hex}: {o:?}");
    }
    e.healthy(&[]);
}

// UP-120: a packet-in that would be too long for its message is cut, with the true length in it.
#[test]
fn long_packets_to_a_controller_are_cut() {
    for of in ["OpenFlow10", "OpenFlow13"] {
        let mut e = env(2);
        e.ofctl("add-flow br0 in_port=1,actions=controller");
        let cmd = e.command("ovs-ofctl", &format!("-O {of} -P standard monitor br0 65535 --unixctl=none"));
        e.spawn("monitor", &cmd);
        let text = |e: &Env| {
            let read = |s: &str| std::fs::read_to_string(e.path(&format!("monitor.{s}"))).unwrap_or_default();
            read("out") + &read("err")
        };
        let f = "in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=198.18.0.1,dst=198.18.0.2,proto=17,frag=no),udp(src=1,dst=2)";
        wait_until("a packet-in", 20, || {
            e.appctl(&format!("netdev-dummy/receive p1 '{f}' --len 65500"));
            text(&e).contains("total_len=65500")
        });
        // The connection goes on.
        e.appctl(&format!("netdev-dummy/receive p1 '{f}' --len 100"));
        wait_until("the next packet-in", 10, || text(&e).contains("total_len=100"));
        assert!(!text(&e).contains("decode error"), "{}", text(&e));
        assert!(e.proc("monitor").running());
        e.healthy(&[]);
    }
}

// A packet of IP protocol 0 must not decide how packets of other protocols are rewritten (CVE-2023-1668).
#[test]
fn rewriting_depends_on_the_protocol() {
    let mut e = env(2);
    let packet = |proto: u32| {
        let l4 = if proto == 17 { ",udp(src=1,dst=2)" } else { "" };
        format!(
            "in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=198.18.0.1,dst=198.18.0.2,proto={proto},ttl=64,frag=no){l4}"
        )
    };
    for actions in [
        "mod_nw_dst:198.18.0.9",
        "set_field:198.18.0.9->ip_dst",
        "load:0xc6120009->NXM_OF_IP_DST[]",
        "dec_ttl",
        "push:NXM_NX_REG0[],pop:NXM_OF_IP_DST[]",
        "move:NXM_NX_REG0[]->NXM_OF_IP_DST[]",
    ] {
        e.ofctl(&format!("add-flow br0 in_port=1,ip,actions={actions},2"));
        e.appctl("revalidator/purge");
        for proto in [0, 17] {
            e.appctl(&format!("netdev-dummy/receive p1 '{}'", packet(proto)));
        }
        let flows = e.appctl("dpctl/dump-flows");
        assert!(flows.lines().any(|l| !l.contains("proto=0") && l.contains("actions:set(ipv4(")), "{actions}: {flows}");
    }
    e.healthy(&[]);
}
