//! Protocols that guard ports, beside the reference and with it.

use std::time::{Duration, Instant};

use fv_testkit::{Daemon, Env, normalise};

/// Two bridges, joined by patch ports p0 and p1; dummies q and r on the first. Time stands still.
fn side(daemon: Daemon) -> Env {
    let env = Env::dummy(daemon);
    for n in 0..2 {
        let other = 1 - n;
        env.vsctl(&format!(
            "add-br br{n} -- set bridge br{n} datapath-type=dummy fail-mode=standalone \
             other-config:hwaddr=aa:55:aa:55:00:0{n} protocols=OpenFlow10,OpenFlow13 \
             -- add-port br{n} p{n} -- set Interface p{n} type=patch options:peer=p{other} ofport_request=1"
        ));
    }
    for (port, n) in [("q", 7), ("r", 8)] {
        env.vsctl(&format!("add-port br0 {port} -- set Interface {port} type=dummy ofport_request={n}"));
    }
    env.appctl("time/stop");
    env
}

/// Without what is each side's own (discriminators, moments, addresses of ports), and without what the row "BFD
/// packets to other addresses" of the accepted differences says.
fn comparable(text: &str) -> String {
    let own =
        |l: &&str| !l.contains("Discriminator") && !["Detect Time", "Next TX", "Last TX"].iter().any(|w| l.contains(w));
    let blank = |l: &str| {
        let l = l.split_once(" addr:").map_or(l, |(head, _)| head);
        let other = if l.starts_with("Megaflow") { "nw_dst=1.2.3.4," } else { "\n" };
        l.replace(other, "") + "\n"
    };
    text.lines().filter(own).map(blank).collect()
}

fn perform(env: &Env, line: &str) -> String {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let o = match verb {
        "of" => env.run("ovs-ofctl", &format!("--timeout=15 -O OpenFlow13 {rest}")),
        "vsctl" => env.run("ovs-vsctl", &format!("--timeout=15 {rest}")),
        _ => env.run("ovs-appctl", &format!("--timeout=15 {line}")),
    };
    comparable(&format!("{}{}status {}\n", normalise(&o.stdout), normalise(&o.stderr), o.status))
}

#[track_caller]
fn same(script: &str) {
    let (ours, theirs) = (side(Daemon::Ours), side(Daemon::Reference));
    for line in script.lines().map(str::trim).filter(|l| !l.is_empty()) {
        assert_eq!(perform(&ours, line), perform(&theirs, line), "left ours, right theirs, after: {line}");
    }
}

#[test]
fn bfd_sessions() {
    same(
        "
        bfd/show
        bfd/show p0
        vsctl set Interface p0 bfd:enable=true bfd:min_tx=300 bfd:min_rx=300
        vsctl set Interface p1 bfd:enable=true bfd:min_tx=500 bfd:min_rx=500
        time/warp 5000 100
        bfd/show p0
        bfd/show p1
        vsctl --columns=bfd_status list Interface p0
        of dump-ports-desc br0 1
        vsctl set Interface p0 bfd:min_tx=100 bfd:min_rx=700
        time/warp 3000 100
        bfd/show p0
        vsctl set Interface p1 bfd:cpath_down=true
        time/warp 2000 100
        bfd/show p0
        bfd/show p1
        vsctl set Interface p1 bfd:cpath_down=false
        time/warp 2000 100
        bfd/set-forwarding p0 bad
        bfd/set-forwarding nope true
        bfd/set-forwarding p0 false
        bfd/show p0
        of dump-ports-desc br0 1
        bfd/set-forwarding normal
        time/warp 1000 100
        of dump-ports-desc br0 1
        vsctl set Interface p1 bfd:enable=false
        time/warp 5000 100
        bfd/show p0
        bfd/show p1
        vsctl --columns=bfd_status list Interface p0
        vsctl --columns=bfd_status list Interface p1
        of dump-ports-desc br0 1
        vsctl set Interface p0 bfd:mult=0 bfd:min_rx=0 bfd:min_tx=0
        time/warp 1000 100
        bfd/show p0
        ",
    );
}

/// UP-11: with a session on a port, packets to other UDP ports need a handful of flows.
#[test]
fn packets_that_a_session_takes() {
    let eth = "in_port=7,dl_src=00:00:00:00:00:05,dl_dst=00:23:20:00:00:01";
    let trace = |rest: &str| format!("ofproto/trace br0 {eth},{rest}\n");
    let ip = "nw_src=169.254.1.1,nw_dst=1.2.3.4,nw_ttl=255";
    let mut script = "vsctl set Interface q bfd:enable=true\nof add-flow br0 priority=1,actions=r\n".to_string();
    for rest in [
        format!("udp,{ip},udp_dst=3784"),
        format!("udp,{ip},udp_dst=3785"),
        format!("udp,{ip},udp_dst=80"),
        format!("tcp,{ip},tcp_dst=3784"),
        "dl_type=0x1234".into(),
        "udp6,udp_dst=3784".into(),
    ] {
        script += &trace(&rest);
    }
    script += "vsctl set Interface q bfd:bfd_src_ip=10.0.0.1\n";
    script += &trace(&format!("udp,{ip},udp_dst=3784"));
    script += &trace("udp,nw_src=169.254.1.1,nw_dst=10.0.0.1,udp_dst=3784");
    script += "vsctl set Interface q bfd:check_tnl_key=true\n";
    script += &trace("udp,nw_src=169.254.1.1,nw_dst=10.0.0.1,udp_dst=3784");
    script += r#"vsctl set Interface q bfd:bfd_remote_dst_mac="00:00:00:00:00:77"
                 "#;
    script += &trace("udp,nw_src=169.254.1.1,nw_dst=10.0.0.1,udp_dst=3784");
    same(&script);

    let env = side(Daemon::Ours);
    env.vsctl("set Interface q bfd:enable=true");
    for n in 0..10_000u32 {
        let port = 1 + n * 6;
        let flow = format!(
            "in_port(7),eth(src=00:00:00:00:00:05,dst=00:00:00:00:00:06),eth_type(0x0800),\
             ipv4(src=198.18.0.1,dst=198.18.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst={port})"
        );
        if n % 97 == 0 {
            env.appctl(&format!("netdev-dummy/receive q {flow}"));
        }
    }
    let flows = env.appctl("dpctl/dump-flows").lines().filter(|l| l.contains("proto=17")).count();
    assert!((1..=17).contains(&flows), "{flows} flows");
}

/// A group that watches the port of a session leaves it when the session falls.
#[test]
fn a_group_follows_a_session() {
    same(
        "
        of add-group br0 group_id=1,type=ff,bucket=watch_port:1,actions=1,bucket=watch_port:8,actions=8
        of add-flow br0 in_port=7,actions=group:1
        vsctl set Interface p0 bfd:enable=true bfd:min_rx=300
        time/warp 1000 100
        ofproto/trace br0 in_port=7,dl_type=0x1234
        vsctl set Interface p1 bfd:enable=true
        time/warp 5000 100
        ofproto/trace br0 in_port=7,dl_type=0x1234
        vsctl set Interface p1 bfd:enable=false
        time/warp 4000 100
        ofproto/trace br0 in_port=7,dl_type=0x1234
        vsctl set Interface p0 bfd:enable=false
        ofproto/trace br0 in_port=7,dl_type=0x1234
        ",
    );
}

#[track_caller]
fn wait_for(what: &str, mut f: impl FnMut() -> bool) {
    let start = Instant::now();
    while !f() {
        assert!(start.elapsed() < Duration::from_secs(30), "timed out: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The two ends of a session are different programs, in real time.
#[test]
fn a_session_with_the_reference() {
    let (ours, theirs) = (Env::dummy(Daemon::Ours), Env::dummy(Daemon::Reference));
    let wire = theirs.dir().join("wire.sock");
    for (env, option) in [(&theirs, "pstream=punix:"), (&ours, "stream=unix:")] {
        env.vsctl(&format!(
            "add-br br0 -- set bridge br0 datapath-type=dummy -- add-port br0 w -- set Interface w type=dummy \
             options:{option}{} bfd:enable=true bfd:min_tx=50 bfd:min_rx=50",
            wire.display()
        ));
    }
    let up = |e: &Env| e.appctl("bfd/show w").contains("Local Session State: up");
    wait_for("both up", || up(&ours) && up(&theirs));
    for want in ["Forwarding: true", "TX Interval: Approx 50ms", "RX Interval: Approx 50ms"] {
        wait_for(want, || ours.appctl("bfd/show w").contains(want));
    }
    // It stays up over many times the detection time.
    std::thread::sleep(Duration::from_secs(2));
    wait_for("status", || ours.vsctl("get Interface w bfd_status:flap_count").contains('1'));
    assert!(up(&ours) && up(&theirs));
    theirs.vsctl("set Interface w bfd:cpath_down=true");
    wait_for("told of the path", || ours.vsctl("get Interface w bfd_status:forwarding").contains("false"));
    theirs.vsctl("set Interface w bfd:enable=false");
    wait_for("down", || ours.appctl("bfd/show w").contains("Local Session State: down"));
}

/// A veth pair in the host's namespace, without addresses; it goes when dropped.
struct Pair([String; 2]);

impl Pair {
    fn new() -> Pair {
        let ends = [fv_testkit::unique("bfa"), fv_testkit::unique("bfb")];
        fv_testkit::ip(&format!("link add {} type veth peer name {}", ends[0], ends[1]));
        ends.iter().for_each(|e| drop(fv_testkit::ip(&format!("link set {e} up"))));
        Pair(ends)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = std::process::Command::new("ip").args(["link", "del", &self.0[0]]).status();
    }
}

/// UP-38: what control is busy with does not hold sessions up.
#[test]
fn long_work_of_control_delays_no_timer() {
    let (env, wire) = (Env::system(), Pair::new());
    for (n, end) in wire.0.iter().enumerate() {
        env.vsctl(&format!(
            "add-br br{n} -- set bridge br{n} datapath-type=netdev protocols=OpenFlow14 -- add-port br{n} {end} \
             -- set Interface {end} bfd:enable=true bfd:min_tx=100 bfd:min_rx=100 bfd:mult=5"
        ));
    }
    let value = |end: &String, key: &str| env.vsctl(&format!("get Interface {end} bfd_status:{key}"));
    wait_for("up", || wire.0.iter().all(|e| value(e, "forwarding").contains("true")));
    let flaps = || wire.0.iter().map(|e| value(e, "flap_count")).collect::<Vec<_>>();
    let before = flaps();
    let rule = |n: u32| format!("tcp,tp_dst={},nw_src=10.0.0.{},actions=drop\n", n % 60_000, n % 250);
    let rules: String = (0..60_000).map(rule).collect();
    std::fs::write(env.path("rules"), rules).expect("a file");
    let started = Instant::now();
    // Several times the detection time.
    while started.elapsed() < Duration::from_secs(3) {
        env.run("ovs-ofctl", "--timeout=120 -O OpenFlow14 --bundle add-flows br0 rules");
        env.run("ovs-ofctl", "--timeout=120 -O OpenFlow14 del-flows br0");
    }
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(flaps(), before);
}
