//! The levels of lookup as tools see them, their settings, and what bounds them.

use std::collections::BTreeSet;

use fv_testkit::{Daemon, Env, wait_until};

/// A bridge with a port `p0` that a poll worker serves, and `p1`.
fn env(queues: u32, mask: u32) -> Env {
    let mut e = Env::new();
    e.start_db();
    e.start(Daemon::Ours, "--enable-dummy --disable-system --disable-system-route --dummy-numa=0,0,0,0");
    e.vsctl(&format!(
        "add-br br0 -- set bridge br0 datapath-type=dummy fail-mode=secure -- set Open_vSwitch . \
         other_config:pmd-cpu-mask={mask:#x} -- add-port br0 p0 -- set Interface p0 type=dummy-pmd \
         options:n_rxq={queues} -- add-port br0 p1 -- set Interface p1 type=dummy-pmd"
    ));
    e
}

fn udp(src: u32, dst: u32) -> String {
    format!(
        "'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),\
         ipv4(src=198.18.0.1,dst=198.18.0.2,proto=17,ttl=64,frag=no),udp(src={src},dst={dst})'"
    )
}

fn stat(block: &str, name: &str) -> u64 {
    let line = block.lines().find_map(|l| l.trim().strip_prefix(name)?.strip_prefix(": "));
    let word = line.unwrap_or_else(|| panic!("no {name} in\n{block}")).split(' ').next().unwrap_or_default();
    word.parse().unwrap_or_else(|_| panic!("{name}: {word}"))
}

/// (simple, EMC, SMC, megaflow hits, misses, lost) of the worker.
fn levels(e: &Env) -> [u64; 6] {
    let show = e.appctl("dpif-netdev/pmd-stats-show -pmd 0");
    [
        "simple match hits",
        "emc hits",
        "smc hits",
        "megaflow hits",
        "miss with success upcall",
        "miss with failed upcall",
    ]
    .map(|name| stat(&show, name))
}

/// Sends packets one after the other, each when the one before is through, so that bursts have one packet.
fn send(e: &Env, packets: &[String]) {
    for p in packets {
        let before: u64 = levels(e).iter().sum();
        e.appctl(&format!("netdev-dummy/receive p0 {p}"));
        wait_until("the packet is through", 20, || levels(e).iter().sum::<u64>() == before + 1);
    }
}

/// What `f` adds to the levels.
fn added(e: &Env, f: impl FnOnce()) -> [u64; 6] {
    let before = levels(e);
    f();
    let after = levels(e);
    std::array::from_fn(|i| after[i] - before[i])
}

#[test]
fn each_level_counts_what_it_answers() {
    let mut e = env(1, 1);
    let config = |line: &str| e.vsctl(&format!("set Open_vSwitch . other_config:{line}"));
    // Rules that look at the port alone: simple matches.
    e.ofctl("add-flow br0 in_port=p0,actions=output:p1");
    assert_eq!(added(&e, || send(&e, &[udp(1, 1), udp(2, 2), udp(3, 3)])), [2, 0, 0, 0, 1, 0]);
    // Two flows that are told apart by ports, in turn, so that none is the last burst's.
    e.ofctl("add-flow br0 priority=40000,in_port=p0,udp,udp_dst=7,actions=drop");
    e.appctl("revalidator/purge");
    let two = [udp(1, 1), udp(1, 7)];
    config("emc-insert-inv-prob=0");
    assert_eq!(added(&e, || send(&e, &two)), [0, 0, 0, 0, 2, 0]);
    assert_eq!(added(&e, || send(&e, &[two.clone(), two.clone()].concat())), [0, 0, 0, 4, 0, 0]);
    // Each insertion kept: the first time is the subtables', then it is the cache's.
    config("emc-insert-inv-prob=1");
    assert_eq!(added(&e, || send(&e, &two)), [0, 0, 0, 2, 0, 0]);
    assert_eq!(added(&e, || send(&e, &[two.clone(), two.clone()].concat())), [0, 4, 0, 0, 0, 0]);
    // As seldom as can be: nothing gets in.
    config("emc-insert-inv-prob=4294967295");
    assert_eq!(added(&e, || send(&e, &[two.clone(), two.clone()].concat())), [0, 0, 0, 4, 0, 0]);
    e.vsctl("remove Open_vSwitch . other_config emc-insert-inv-prob");
    config("smc-enable=true");
    assert_eq!(added(&e, || send(&e, &two)), [0, 0, 0, 2, 0, 0]);
    assert_eq!(added(&e, || send(&e, &[two.clone(), two.clone()].concat())), [0, 0, 4, 0, 0, 0]);
    // What cannot be answered is lost, and `dpctl/show` says so.
    config("smc-enable=false");
    config("flow-restore-wait=true");
    e.appctl("revalidator/purge");
    assert_eq!(added(&e, || send(&e, &two)), [0, 0, 0, 0, 0, 2]);
    assert!(e.appctl("dpctl/show").contains("lost:2"), "{}", e.appctl("dpctl/show"));
    e.vsctl("remove Open_vSwitch . other_config flow-restore-wait");
    let log = e.log();
    assert!(log.contains("EMC insertion probability changed to zero") && log.contains("SMC cache is enabled"));
    e.healthy(&["flow-restore-wait"]);
}

#[test]
fn the_command_says_what_each_queue_does_and_why() {
    let mut e = env(2, 1);
    let show = || e.appctl("dpif-netdev/cache-show");
    let lines = |why: &str| {
        [("br0", 0), ("p0", 0), ("p0", 1), ("p1", 0)]
            .map(|(port, q)| format!("  port: {port:16}  queue-id:  {q}  cache: {why}\n"))
            .concat()
    };
    assert_eq!(show(), format!("cache: chosen for each queue by trial\n{}", lines("not used (no packets yet)")));
    e.ofctl("add-flow br0 in_port=p0,actions=output:p1");
    send(&e, &[udp(1, 1), udp(1, 2)]);
    assert!(show().contains("queue-id:  0  cache: not used (so few subtables are searched faster)"), "{}", show());
    for (set, head, why) in [
        ("emc-insert-inv-prob=0", "cache: never (emc-insert-inv-prob=0)\n", "not used (as set)"),
        ("emc-insert-inv-prob=20", "cache: one insertion in 20 (emc-insert-inv-prob)\n", "used (as set)"),
        ("smc-enable=true", "cache: always (smc-enable)\n", "used (as set)"),
    ] {
        e.vsctl(&format!("set Open_vSwitch . other_config:{set}"));
        send(&e, &[udp(1, 3)]);
        assert!(show().starts_with(head), "{}", show());
        assert!(show().contains(&format!("p0                queue-id:  0  cache: {why}")), "{}", show());
    }
    assert!(!e.run("ovs-appctl", "dpif-netdev/cache-show foo").ok());
    e.healthy(&[]);
}

// UP-05: caches are kept when other queues and ports come, go and change.
#[test]
fn caches_survive_changes_elsewhere() {
    let mut e = env(1, 1);
    e.vsctl("set Open_vSwitch . other_config:emc-insert-inv-prob=1");
    e.ofctl("add-flow br0 in_port=p0,udp,udp_dst=1,actions=output:p1");
    e.ofctl("add-flow br0 in_port=p0,udp,udp_dst=2,actions=drop");
    let two = [udp(1, 1), udp(1, 2)];
    send(&e, &[two.clone(), two.clone()].concat());
    let change = |what: &str, line: &str| {
        e.vsctl(line);
        assert_eq!(added(&e, || send(&e, &two)), [0, 2, 0, 0, 0, 0], "{what}");
    };
    change("a port comes", "add-port br0 q0 -- set Interface q0 type=dummy-pmd options:n_rxq=3");
    change("it has more queues", "set Interface q0 options:n_rxq=5");
    change("another is pinned", "set Interface q0 other_config:pmd-rxq-affinity=1:0");
    change("it goes", "del-port q0");
    change("a worker starts", "set Open_vSwitch . other_config:pmd-cpu-mask=0x3 other_config:pmd-rxq-assign=group");
    change("a bridge comes", "add-br br1 -- set bridge br1 datapath-type=dummy");
    change("settings of the other port", "set Interface p1 other_config:tx-steering=hash");
    e.ofctl("add-flow br0 in_port=p1,actions=drop");
    assert_eq!(added(&e, || send(&e, &two)), [0, 2, 0, 0, 0, 0], "a rule of another port");
    e.healthy(&["pinned", "isolat"]);
}

// UP-10: packets that ask for a mask each do not get one each, and the flows that they get are right.
#[test]
fn a_port_has_a_budget_of_masks() {
    let mut e = env(1, 1);
    for rule in [
        "priority=100,tcp,tcp_dst=80,actions=output:p1",
        "priority=90,ip,nw_src=10.0.0.1,actions=output:p1",
        "priority=80,tcp,tcp_src=12345,actions=output:p1",
        "priority=0,actions=drop",
    ] {
        e.ofctl(&format!("add-flow br0 {rule}"));
    }
    let tcp = |src: u32, sport: u32, dport: u32| {
        let [a, b, c, d] = src.to_be_bytes();
        format!(
            "'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),\
             ipv4(src={a}.{b}.{c}.{d},dst=198.18.0.2,proto=6,ttl=64,frag=no),tcp(src={sport},dst={dport})'"
        )
    };
    let mut sent = 0;
    for bit in 0..32 {
        let mut line = String::from("netdev-dummy/receive p0");
        for (s, d) in (0..16).flat_map(|s| [(s, (s * 5 + bit) % 16), (s, (s * 3 + bit + 7) % 16)]) {
            line += &format!(" {}", tcp(0x0a00_0001 ^ 1 << bit, 12345 ^ 1 << s, 80 ^ 1 << d));
            sent += 1;
        }
        e.appctl(&line);
        wait_until("packets are through", 60, || levels(&e).iter().sum::<u64>() == sent);
    }
    let flows = e.appctl("dpctl/dump-flows");
    let masks: BTreeSet<String> = flows
        .lines()
        .filter(|l| l.contains("in_port"))
        .map(|l| {
            let key = l.split(", packets:").next().unwrap_or_default();
            // Only what stands behind a slash, or that there is none, tells the mask.
            let fields = key.split([',', '(', ')']).filter(|f| f.contains('='));
            fields
                .map(|f| format!("{}/{} ", f.split('=').next().unwrap_or(f), f.split('/').nth(1).unwrap_or("all")))
                .collect()
        })
        .collect();
    assert!(masks.len() > 50 && masks.len() <= 102, "{} masks", masks.len());
    // Nothing was lost, nothing forwarded that is to be dropped, and the rules still hold.
    assert_eq!(levels(&e)[5], 0);
    let forwarded = || {
        e.ofctl("dump-ports br0 p1")
            .split("tx pkts=")
            .nth(1)
            .and_then(|r| r.split(',').next()?.parse().ok())
            .unwrap_or(0u64)
    };
    assert_eq!(forwarded(), 0, "{flows}");
    send(&e, &[tcp(0x0b00_0001, 5, 80), tcp(0x0a00_0001, 5, 81), tcp(0x0b00_0001, 12345, 81), tcp(0x0b00_0001, 5, 81)]);
    assert_eq!(forwarded(), 3);
    e.healthy(&[]);
}

// UP-24: a megaflow counts once, however many workers use it.
#[test]
fn megaflows_are_counted_once() {
    let mut e = env(4, 0xf);
    e.ofctl("add-flow br0 in_port=p0,actions=output:p1");
    for q in 0..4 {
        e.appctl(&format!("netdev-dummy/receive p0 --qid {q} {0} {0} {0}", udp(1, q)));
    }
    let show = || e.appctl("dpctl/show");
    wait_until("packets are through", 20, || e.ofctl("dump-ports br0 p1").contains("tx pkts=12"));
    assert!(show().contains("flows: 1\n"), "{}", show());
    e.appctl("revalidator/wait");
    assert!(e.appctl("upcall/show").contains("(current 1)"), "{}", e.appctl("upcall/show"));
    e.healthy(&[]);
}

// UP-23: over the limit flows that are idle go; those that carry traffic stay, without a miss.
#[test]
fn the_limit_does_not_hit_those_that_work() {
    let mut e = Env::dummy(Daemon::Ours);
    e.add_dummy_bridge("br0", 1..=2);
    for n in 0..60 {
        e.ofctl(&format!("add-flow br0 in_port=1,udp,udp_dst={n},actions=2"));
    }
    let receive = |range: std::ops::Range<u32>| {
        let packets: Vec<String> = range.map(|n| udp(1, n)).collect();
        e.appctl(&format!("netdev-dummy/receive p1 {}", packets.join(" ")));
    };
    let missed = || -> u64 {
        let show = e.appctl("dpctl/show");
        show.split("missed:").nth(1).and_then(|r| r.split_whitespace().next()?.parse().ok()).expect("missed")
    };
    e.appctl("time/stop");
    receive(0..60);
    assert_eq!(missed(), 60);
    e.vsctl("set Open_vSwitch . other_config:flow-limit=20");
    for _ in 0..20 {
        receive(0..5);
        e.appctl("time/warp 50 50");
        e.appctl("revalidator/wait");
    }
    assert_eq!(missed(), 60, "{}", e.appctl("dpctl/dump-flows"));
    let show = e.appctl("dpctl/show");
    let limit = || {
        let show = e.appctl("upcall/show");
        show.split("(limit ").nth(1).and_then(|r| r.split(')').next()?.parse::<u64>().ok()).expect("a limit")
    };
    assert!(show.contains("flows: 5\n") && limit() == 20, "{show}\n{}", e.appctl("upcall/show"));
    // It comes back round by round, as flows come.
    e.vsctl("set Open_vSwitch . other_config:flow-limit=200000");
    receive(0..60);
    for _ in 0..5 {
        let before = limit();
        e.appctl("revalidator/wait");
        assert!(limit() > before && limit() <= before + 10_000, "{before}, then {}", limit());
    }
    e.healthy(&[]);
}

// UP-26: packets of connections that are not known yet, while ports come and go: each is forwarded.
#[test]
fn no_miss_is_lost_to_a_reconfiguration() {
    let mut e = env(2, 3);
    e.ofctl("add-flow br0 in_port=p0,udp,actions=move:NXM_OF_UDP_SRC[]->NXM_NX_REG0[0..15],output:p1");
    let mut sent = 0;
    for n in 0..12u32 {
        let line = match n % 4 {
            0 => "add-port br0 q0 -- set Interface q0 type=dummy-pmd options:n_rxq=2",
            1 => "set Open_vSwitch . other_config:pmd-cpu-mask=0x7",
            2 => "del-port q0",
            _ => "set Open_vSwitch . other_config:pmd-cpu-mask=0x3",
        };
        let cmd = e.command("ovs-vsctl", &format!("--timeout=25 {line}"));
        let name = format!("change{n}");
        e.spawn(&name, &cmd);
        for round in 0..3 {
            let packets: Vec<String> = (0..20).map(|k| udp(1000 * n + 100 * round + k, 9)).collect();
            e.appctl(&format!("netdev-dummy/receive p0 --qid {} {}", n % 2, packets.join(" ")));
            sent += 20;
            wait_until("packets arrive", 30, || e.ofctl("dump-ports br0 p1").contains(&format!("tx pkts={sent},")));
        }
        assert_eq!(e.proc(&name).wait(30), Some(0));
    }
    let show = e.appctl("dpctl/show");
    assert!(show.contains(&format!("missed:{sent} lost:0")), "{show}");
    e.healthy(&["pinned"]);
}
