//! Poll workers: which there are, what they poll, what commands say of them, beside the reference.

use fv_testkit::{Daemon, Env, wait_until};

/// A bridge with poll-mode ports; cores 0 and 1 are on NUMA node 0, 2 and 3 on node 1.
fn env(daemon: Daemon, ports: &[(&str, &str)]) -> Env {
    let mut e = Env::new();
    e.start_db();
    e.start(daemon, "--enable-dummy --disable-system --disable-system-route --dummy-numa=0,0,1,1");
    let mut line = "add-br br0 -- set bridge br0 datapath-type=dummy fail-mode=secure".to_string();
    for (name, options) in ports {
        line += &format!(" -- add-port br0 {name} -- set Interface {name} type=dummy-pmd {options}");
    }
    e.vsctl(&line);
    e
}

fn ours(ports: &[(&str, &str)]) -> Env {
    env(Daemon::Ours, ports)
}

const IP: &str = "eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),\
                  ipv4(src=198.18.0.1,dst=198.18.0.2,proto=17,ttl=64,frag=no),udp(src=1,dst=2)";

/// Sends `n` packets into a port's queue.
fn inject(e: &Env, port: &str, queue: usize, n: usize) {
    let packets = vec![format!("'in_port(1),{IP}'"); n].join(" ");
    e.appctl(&format!("netdev-dummy/receive {port} --qid {queue} {packets}"));
}

/// The number behind `name: ` in a `pmd-stats-show` block.
fn stat(block: &str, name: &str) -> u64 {
    let line = block.lines().find_map(|l| l.trim().strip_prefix(name)?.strip_prefix(": "));
    let word = line.unwrap_or_else(|| panic!("no {name} in\n{block}")).split(' ').next().unwrap_or_default();
    word.parse().unwrap_or_else(|_| panic!("{name}: {word}"))
}

/// (core, port, queue) of `pmd-rxq-show`.
fn rxqs(e: &Env) -> Vec<(u32, String, u32)> {
    let mut core = 0;
    let mut all = Vec::new();
    for line in e.appctl("dpif-netdev/pmd-rxq-show").lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["pmd", "thread", "numa_id", _, "core_id", c] => core = c.trim_end_matches(':').parse().unwrap(),
            ["port:", name, "queue-id:", q, ..] => all.push((core, name.to_string(), q.parse().unwrap())),
            _ => {}
        }
    }
    all
}

fn both(script: &str, ports: &[(&str, &str)], accepted: impl Fn(&str) -> String) {
    let envs = [env(Daemon::Reference, ports), env(Daemon::Ours, ports)];
    for line in script.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let one = |e: &Env| {
            let (program, rest) = line.split_once(' ').expect("a program and arguments");
            let o = e.run(&format!("ovs-{program}"), rest);
            accepted(&format!("{}{}status {}\n", o.stdout, o.stderr, o.status))
        };
        let [theirs, mine] = [one(&envs[0]), one(&envs[1])];
        assert_eq!(mine, theirs, "{line}");
    }
}

#[test]
fn assignment_is_the_references() {
    both(
        "appctl dpif-netdev/pmd-rxq-show
         vsctl set Open_vSwitch . other_config:pmd-cpu-mask=0xf
         appctl dpif-netdev/pmd-rxq-show
         appctl dpif-netdev/pmd-rxq-show -pmd 1
         appctl dpif-netdev/pmd-rxq-show -pmd 9
         appctl dpif-netdev/pmd-rxq-show -secs 7
         appctl dpif-netdev/pmd-rxq-show -secs 61
         appctl dpif-netdev/pmd-rxq-show -secs x
         appctl dpif-netdev/pmd-rxq-show -secs 5 -pmd 0
         vsctl set Interface p0 other_config:pmd-rxq-affinity=0:1,2:3
         appctl dpif-netdev/pmd-rxq-show
         vsctl set Open_vSwitch . other_config:pmd-rxq-assign=group other_config:pmd-rxq-isolate=false
         appctl dpif-netdev/pmd-rxq-show
         vsctl set Open_vSwitch . other_config:pmd-rxq-assign=roundrobin
         appctl dpif-netdev/pmd-rxq-show
         vsctl clear Interface p0 other_config -- remove Open_vSwitch . other_config pmd-rxq-isolate
         appctl dpif-netdev/pmd-rxq-show
         vsctl set Open_vSwitch . other_config:pmd-cpu-mask=0x3
         appctl dpif-netdev/pmd-rxq-show
         vsctl set Open_vSwitch . other_config:pmd-rxq-assign=cycles
         appctl dpif-netdev/pmd-rxq-rebalance
         vsctl set Interface p1 options:n_rxq=5
         appctl dpif-netdev/pmd-rxq-show
         vsctl del-port p1
         appctl dpif-netdev/pmd-rxq-show
         vsctl del-port p0
         appctl dpif-netdev/pmd-rxq-show",
        &[("p0", "options:n_rxq=4"), ("p1", "options:n_rxq=3 options:numa_id=1")],
        // A host that is slow enough has measured something by now.
        |text| {
            let usage = |l: &str| match (l.split_once("usage: "), l.split_once("overhead: ")) {
                (Some((head, _)), _) | (_, Some((head, _))) => format!("{head}\n"),
                _ => format!("{l}\n"),
            };
            text.lines().map(usage).collect()
        },
    );
}

#[test]
fn commands_answer_as_the_reference() {
    both(
        "appctl dpif-netdev/pmd-stats-show a b c d
         appctl dpif-netdev/pmd-stats-show -pmd 7
         appctl dpif-netdev/pmd-stats-clear
         appctl dpif-netdev/pmd-stats-clear -pmd 9
         appctl dpif-netdev/pmd-rxq-rebalance
         appctl dpif-netdev/pmd-rxq-rebalance foo
         appctl dpif-netdev/pmd-rxq-rebalance ovs-dummy
         appctl dpif-netdev/bond-show
         appctl dpif-netdev/bond-show foo
         appctl dpif-netdev/subtable-lookup-info-get
         appctl dpif-netdev/subtable-lookup-prio-get
         appctl dpif-netdev/subtable-lookup-prio-set generic 3
         appctl dpif-netdev/subtable-lookup-info-get
         appctl dpif-netdev/subtable-lookup-prio-set foo 3
         appctl dpif-netdev/subtable-lookup-prio-set generic 300
         appctl dpif-netdev/subtable-lookup-prio-set generic
         appctl dpif-netdev/dpif-impl-get
         appctl dpif-netdev/dpif-impl-set dpif_scalar
         appctl dpif-netdev/dpif-impl-set foo
         appctl dpif-netdev/miniflow-parser-get
         appctl dpif-netdev/miniflow-parser-set scalar
         appctl dpif-netdev/miniflow-parser-set foo
         appctl dpif-netdev/miniflow-parser-set scalar 5
         appctl dpif-netdev/miniflow-parser-set scalar 5 6
         appctl dpif-netdev/miniflow-parser-set -pmd
         appctl dpif-netdev/miniflow-parser-set -pmd 0
         appctl dpif-netdev/miniflow-parser-set -pmd x scalar
         appctl dpif-netdev/miniflow-parser-set -pmd 0 scalar
         appctl dpif-netdev/miniflow-parser-set -pmd 9 scalar",
        &[("p0", ""), ("p1", "options:numa_id=1")],
        // There is one implementation of each: the reference's others are not listed.
        |text| {
            let other = |l: &&str| !l.starts_with("  autovalidator (") && !l.starts_with("  study (");
            text.lines().filter(other).map(|l| format!("{l}\n")).collect()
        },
    );
}

#[test]
fn counters_are_exact() {
    let mut e = ours(&[("p0", "options:n_rxq=2"), ("p1", "options:numa_id=1")]);
    e.ofctl("add-flow br0 in_port=p0,actions=p1");
    e.appctl("dpif-netdev/pmd-stats-clear");
    inject(&e, "p0", 0, 30);
    inject(&e, "p0", 1, 12);
    let show = || e.appctl("dpif-netdev/pmd-stats-show -pmd 0");
    wait_until("packets", 20, || stat(&show(), "packets received") == 42);
    let s = show();
    let hits: u64 = ["simple match hits", "emc hits", "smc hits", "megaflow hits"].iter().map(|h| stat(&s, h)).sum();
    let misses = stat(&s, "miss with success upcall");
    assert_eq!((hits + misses, misses), (42, 1), "{s}");
    for (name, want) in
        [("packet recirculations", 0), ("phwol hits", 0), ("mfex opt hits", 0), ("miss with failed upcall", 0)]
    {
        assert_eq!(stat(&s, name), want, "{name}\n{s}");
    }
    assert!(s.starts_with("pmd thread numa_id 0 core_id 0:\n") && s.contains("passes per packet: 1.00"), "{s}");
    let (idle, busy) = (stat(&s, "idle cycles"), stat(&s, "processing cycles"));
    assert!(s.contains(&format!("({}/42)", idle + busy)) && s.contains(&format!("({busy}/42)")), "{s}");
    let perf = e.appctl("dpif-netdev/pmd-perf-show -pmd 0");
    let lines: Vec<&str> = perf.lines().collect();
    assert!(lines[0].is_empty() && lines[1].starts_with("Time: ") && lines[2].starts_with("Measurement duration: "));
    assert_eq!(lines[3..6], ["", "pmd thread numa_id 0 core_id 0:", ""]);
    for want in [
        "  Rx packets:                   42  (",
        "  Datapath passes:              42  (1.00 passes/pkt)",
        "  - PHWOL hits:                  0  (  0.0 %)",
        "  - Upcalls:                     1  (  2.4 %, ",
        "  - Lost upcalls:                0  (  0.0 %)",
        "  Tx packets:                   42  (",
    ] {
        assert!(lines.iter().any(|l| l.starts_with(want)), "{want}\n{perf}");
    }
    assert_eq!(e.appctl("dpif-netdev/pmd-perf-show -nh -pmd 9"), "");
    let all = e.appctl("dpif-netdev/pmd-stats-show");
    let (_, rest) = all.split_once("pmd thread numa_id 1 core_id 2:\n").expect("the other worker");
    let (other, main) = rest.split_once("main thread:\n").expect("the main thread last");
    assert_eq!((stat(other, "packets received"), stat(main, "packets received")), (0, 0));
    assert!(!main.contains("cycles"), "{main}");
    assert_eq!(stat(&e.appctl("dpctl/show").replace("hit:", "hit: "), "lookups: hit"), 41);
    e.appctl("dpif-netdev/pmd-stats-clear");
    assert_eq!(stat(&show(), "packets received"), 0);
    e.healthy(&[]);
}

// UP-40, UP-05: what does not have to move keeps its worker, its flows and its packets.
#[test]
fn only_what_must_move_moves() {
    let mut e = ours(&[("p0", "options:n_rxq=4"), ("p1", "")]);
    e.vsctl("set Open_vSwitch . other_config:pmd-cpu-mask=0x3");
    e.ofctl("add-flow br0 in_port=p0,actions=p1");
    for q in 0..4 {
        inject(&e, "p0", q, 5);
    }
    let total = |e: &Env| -> u64 {
        let s = e.appctl("dpif-netdev/pmd-stats-show");
        s.lines().filter_map(|l| l.trim().strip_prefix("packets received: ")?.parse::<u64>().ok()).sum()
    };
    wait_until("packets", 20, || total(&e) == 20);
    let of_p0 = |e: &Env| -> Vec<_> { rxqs(e).into_iter().filter(|q| q.1 == "p0").collect() };
    let before = of_p0(&e);
    assert_eq!(before.len(), 4);
    for n in 2..6 {
        e.vsctl(&format!("add-port br0 q{n} -- set Interface q{n} type=dummy-pmd options:n_rxq=3"));
        assert_eq!(of_p0(&e), before, "a port was added");
    }
    e.vsctl("del-port q3 -- del-port q5");
    assert_eq!(of_p0(&e), before, "ports were taken away");
    e.vsctl("set Interface q2 other_config:tx-steering=hash options:n_rxq=1");
    assert_eq!(of_p0(&e), before, "another port was changed");
    // Its worker goes: it moves, and nothing else.
    e.vsctl("set Open_vSwitch . other_config:pmd-cpu-mask=0x2");
    assert!(rxqs(&e).iter().all(|q| q.0 == 1));
    for q in 0..4 {
        inject(&e, "p0", q, 5);
    }
    wait_until("packets", 20, || e.ofctl("dump-ports br0 p1").contains("tx pkts=40"));
    e.healthy(&[]);
}

// UP-44: queues that no free worker may have are polled all the same, with a warning.
#[test]
fn no_queue_is_left_alone() {
    let mut e = ours(&[("p0", "options:n_rxq=3"), ("p1", "")]);
    e.ofctl("add-flow br0 in_port=p0,actions=p1");
    e.vsctl(
        "set Open_vSwitch . other_config:pmd-cpu-mask=0x2 -- set Interface p0 other_config:pmd-rxq-affinity=0:7,1:1",
    );
    assert!(e.log().contains(
        "Core  7 cannot be pinned with port 'p0' rx queue 0. Use pmd-cpu-mask to enable a pmd on core 7. \
         An alternative core will be assigned."
    ));
    assert!(e.log().contains("No non-isolated pmd on any numa available for port 'p0' rx queue 2"));
    assert_eq!(rxqs(&e).len(), 4);
    // No core of the mask exists: the control thread polls.
    e.vsctl("set Open_vSwitch . other_config:pmd-cpu-mask=0x100");
    for q in 0..3 {
        inject(&e, "p0", q, 2);
    }
    wait_until("packets", 20, || e.ofctl("dump-ports br0 p1").contains("tx pkts=6"));
    e.healthy(&["pinned", "No non-isolated"]);
}

#[test]
fn sleeping_is_configured_by_core() {
    let mut e = ours(&[("p0", ""), ("p1", "")]);
    e.vsctl("set Open_vSwitch . other_config:pmd-cpu-mask=0x3");
    let show = |e: &Env| e.appctl("dpif-netdev/pmd-sleep-show");
    let text = |default: u32, a: u32, b: u32| {
        let one = |core, us| format!("pmd thread numa_id 0 core_id {core}:\n  max sleep: {us:4} us\n");
        format!("Default max sleep: {default:4} us\n{}{}", one(0, a), one(1, b))
    };
    assert_eq!(show(&e), text(0, 0, 0));
    for (value, want) in [
        ("50", text(50, 50, 50)),
        ("50,1:200", text(50, 50, 200)),
        ("1:20000", text(0, 0, 10_000)),
        ("0:0,60", text(60, 0, 60)),
        ("70,1:x,foo", text(70, 70, 70)),
    ] {
        e.vsctl(&format!("set Open_vSwitch . other_config:pmd-sleep-max='\"{value}\"'"));
        assert_eq!(show(&e), want, "{value}");
    }
    assert!(e.log().contains("pmd-sleep-max: \"1:x\" is neither microseconds nor core:microseconds, ignored"));
    // Sleeping workers lose nothing and wake for what is asked of them.
    e.vsctl("set Open_vSwitch . other_config:pmd-sleep-max=10000");
    e.ofctl("add-flow br0 in_port=p0,actions=p1");
    for n in 1..=5 {
        inject(&e, "p0", 0, 20);
        let sent = || e.ofctl("dump-ports br0 p1").contains(&format!("tx pkts={}", 20 * n));
        wait_until("packets through sleeping workers", 20, sent);
    }
    e.healthy(&["pmd-sleep-max"]);
}

// `pmd-perf-metrics`: histograms and histories, in the reference's columns.
#[test]
fn turns_are_sampled_on_demand() {
    let [theirs, mine] = [Daemon::Reference, Daemon::Ours].map(|daemon| {
        let e = env(daemon, &[("p0", ""), ("p1", "")]);
        e.vsctl("set Open_vSwitch . other_config:pmd-cpu-mask=0x1 other_config:pmd-perf-metrics=true");
        e.ofctl("add-flow br0 in_port=p0,actions=p1");
        e.appctl("dpif-netdev/pmd-stats-clear");
        inject(&e, "p0", 0, 7);
        wait_until("packets", 20, || stat(&e.appctl("dpif-netdev/pmd-stats-show -pmd 0"), "packets received") == 7);
        for (args, ok) in [("", true), ("on -b 3 -a 7 -us 100 -q 5 -e", true), ("off -ne", true), ("foo", false)] {
            assert_eq!(e.run("ovs-appctl", &format!("dpif-netdev/pmd-perf-log-set {args}")).ok(), ok, "{args}");
        }
        e.appctl("dpif-netdev/pmd-perf-show -it 2 -ms 2")
    });
    // Numbers differ, and with them where the table ends; names, bins and their order do not.
    let shape = |text: &str| -> Vec<String> {
        let (_, table) = text.split_once("\nHistograms\n").expect("histograms");
        let wall = |l: &str| {
            let words: Vec<&str> = l.split_whitespace().collect();
            match words.len() {
                14 => words.iter().step_by(2).copied().collect::<Vec<_>>().join(" "),
                _ if l.contains("cycles") || l.starts_with("---") => l.trim_end().to_string(),
                n => n.to_string(),
            }
        };
        table.lines().map(wall).collect()
    };
    assert_eq!(shape(&mine), shape(&theirs), "{mine}\n{theirs}");
    // Seven packets in one column, whatever their turns.
    let packets: u64 = mine
        .lines()
        .filter_map(|l| {
            let w: Vec<&str> = l.split_whitespace().collect();
            (w.len() == 14).then(|| w[2].parse::<u64>().ok()?.checked_mul(w[3].parse().ok()?)).flatten()
        })
        .sum();
    assert_eq!(packets, 7, "{mine}");
}

// A turn that is too long is told to the log, also by workers that start after the command.
#[test]
fn suspicious_turns_are_logged() {
    let e = ours(&[("p0", ""), ("p1", "")]);
    e.appctl("dpif-netdev/pmd-perf-log-set on -b 1 -a 1 -us 0");
    e.vsctl("set Open_vSwitch . other_config:pmd-cpu-mask=0x2 other_config:pmd-perf-metrics=true");
    wait_until("a line in the log", 20, || e.log().contains("WARN|Suspicious iteration (Excessive total cycles)"));
    e.appctl("dpif-netdev/pmd-perf-log-set off");
}
