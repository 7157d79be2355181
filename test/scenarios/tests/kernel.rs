//! Kernel devices as ports: namespaces talk through the switch with the settings the kernel gives them.

use std::time::Duration;

use fv_testkit::{Env, Netns, Veth, ip, unique, wait_until};

/// A bridge of kernel ports, named so that tests side by side do not meet.
struct Lan {
    env: Env,
    bridge: String,
}

impl Lan {
    fn new() -> Lan {
        let env = Env::system();
        let bridge = unique("fvb");
        env.vsctl(&format!("add-br {bridge} -- set bridge {bridge} datapath_type=netdev"));
        Lan { env, bridge }
    }

    fn add(&self, dev: &str, settings: &str) {
        self.env.vsctl(&format!("add-port {} {dev} {settings}", self.bridge));
    }

    /// A namespace with `address` (and an IPv6 address of the same number) behind a veth port.
    fn host(&self, n: u32, settings: &str) -> (Netns, Veth) {
        let ns = Netns::new();
        let v = Veth::new(&ns, &[&format!("198.18.0.{n}/24"), &format!("fd00:c612::{n}/64")]);
        self.add(v.outer(), settings);
        (ns, v)
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        // The bridge's own device goes with a daemon that ends in order.
        let _ = self.env.run("ovs-appctl", "--timeout=5 exit --cleanup");
    }
}

/// Runs iperf3 from `from` to `to`; received Mbit/s, with `extra` arguments of the client.
fn iperf(lan: &mut Lan, from: &Netns, to: &Netns, address: &str, extra: &str) -> f64 {
    let name = unique("iperf");
    let server = to.command("iperf3 -s -1 --forceflush");
    lan.env.spawn(&name, &server);
    wait_until("iperf3 listens", 10, || {
        std::fs::read_to_string(lan.env.path(&format!("{name}.out"))).unwrap_or_default().contains("listening")
    });
    let o = from.run(&format!("iperf3 -J -c {address} -t 1 {extra}"), 20);
    lan.env.stop(&name);
    let v: serde_json::Value = serde_json::from_str(&o.stdout).unwrap_or_default();
    let end = &v["end"];
    let sum = if extra.contains("-u") { &end["sum"] } else { &end["sum_received"] };
    let mbit = sum["bits_per_second"].as_f64().unwrap_or(0.0) / 1e6;
    assert!(mbit > 0.0, "iperf3 {extra}: {}{}", o.stdout, o.stderr);
    mbit
}

// UP-74: TCP works with default offloads, not only ping; UP-77: and not at a crawl.
#[test]
fn tcp_and_udp_pass_with_default_offloads() {
    let mut lan = Lan::new();
    let (a, _va) = lan.host(1, "");
    let (b, _vb) = lan.host(2, "");
    a.wait_ping("198.18.0.2", 10);
    assert!(a.ping("198.18.0.2", 20), "pings are lost");
    assert!(a.ping("fd00:c612::2", 20), "IPv6 pings are lost");
    for address in ["198.18.0.2", "fd00:c612::2"] {
        let tcp = iperf(&mut lan, &a, &b, address, "");
        assert!(tcp > 100.0, "TCP to {address}: {tcp} Mbit/s");
        let back = iperf(&mut lan, &a, &b, address, "-R");
        assert!(back > 100.0, "TCP from {address}: {back} Mbit/s");
        let udp = iperf(&mut lan, &a, &b, address, "-u -b 50M -l 1200");
        assert!(udp > 40.0, "UDP to {address}: {udp} Mbit/s");
    }
    let flows = lan.env.appctl("dpctl/dump-flows");
    assert!(flows.contains("eth_type(0x0800)"), "{flows}");
    let rules = lan.env.ofctl(&format!("dump-flows {}", lan.bridge));
    assert!(!rules.contains("n_packets=0"), "{rules}");
    lan.env.healthy(&[]);
}

#[test]
fn offloads_of_either_end_may_be_off() {
    let mut lan = Lan::new();
    let (a, _va) = lan.host(1, "");
    let (b, vb) = lan.host(2, "");
    a.wait_ping("198.18.0.2", 10);
    let off = fv_testkit::run(
        std::process::Command::new("ethtool").args([
            "-K",
            vb.outer(),
            "tso",
            "off",
            "gso",
            "off",
            "gro",
            "off",
            "tx",
            "off",
            "rx",
            "off",
        ]),
        10,
    );
    assert!(off.ok(), "{off:?}");
    assert!(iperf(&mut lan, &a, &b, "198.18.0.2", "") > 50.0);
    assert!(iperf(&mut lan, &a, &b, "198.18.0.2", "-R") > 50.0);
    let o = a.run("ethtool -K eth0 tso off gso off tx off", 10);
    assert!(o.ok(), "{o:?}");
    assert!(iperf(&mut lan, &a, &b, "198.18.0.2", "") > 20.0);
    lan.env.healthy(&[]);
}

#[test]
fn vlans_by_access_ports_and_a_trunk() {
    let mut lan = Lan::new();
    let (a, _va) = lan.host(1, "tag=10");
    let (c, _vc) = lan.host(3, "tag=20");
    // Another bridge behind a trunk: frames cross a kernel device with their tags.
    let (near, far) = (unique("fvq"), unique("fvr"));
    let second = unique("fvb");
    ip(&format!("link add {near} type veth peer name {far}"));
    let pair = Pair(near.clone());
    ip(&format!("link set {near} up"));
    ip(&format!("link set {far} up"));
    lan.add(&near, "trunks=10,20");
    lan.env.vsctl(&format!(
        "add-br {second} -- set bridge {second} datapath_type=netdev -- add-port {second} {far} trunks=10,20"
    ));
    let (b, d) = (Netns::new(), Netns::new());
    let vb = Veth::new(&b, &["198.18.0.2/24"]);
    let vd = Veth::new(&d, &["198.18.0.4/24"]);
    lan.env.vsctl(&format!("add-port {second} {} tag=10 -- add-port {second} {} tag=20", vb.outer(), vd.outer()));
    a.wait_ping("198.18.0.2", 10);
    c.wait_ping("198.18.0.4", 10);
    assert!(!a.ping("198.18.0.4", 1) && !a.ping("198.18.0.3", 1), "different VLANs must not meet");
    assert!(iperf(&mut lan, &a, &b, "198.18.0.2", "") > 50.0, "TCP through tags");
    assert!(iperf(&mut lan, &d, &c, "198.18.0.3", "") > 50.0, "TCP through tags");
    let seen = lan.env.appctl("dpctl/dump-flows");
    assert!(seen.contains("vlan(vid=10") && seen.contains("vlan(vid=20"), "{seen}");
    lan.env.healthy(&["tagged with VLAN", "dropping VLAN"]);
    drop(pair);
}

/// A veth pair whose ends are both here.
struct Pair(String);

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = fv_testkit::run(std::process::Command::new("ip").args(["link", "del", &self.0]), 10);
    }
}

#[test]
fn the_internal_port_works_here_and_in_another_namespace() {
    let mut lan = Lan::new();
    let (a, _va) = lan.host(1, "");
    let ns = Netns::new();
    let dev = unique("fvi");
    lan.add(&dev, &format!("-- set Interface {dev} type=internal"));
    assert!(ip("-o link show").contains(&dev));
    ip(&format!("link set {dev} netns {}", ns.name()));
    ns.ip(&format!("addr add 198.18.0.7/24 dev {dev}"));
    ns.ip(&format!("link set {dev} up"));
    a.wait_ping("198.18.0.7", 15);
    assert!(iperf(&mut lan, &a, &ns, "198.18.0.7", "") > 50.0);
    assert!(iperf(&mut lan, &ns, &a, "198.18.0.1", "") > 50.0);
    assert_ne!(lan.env.value("Interface", &dev, "ofport"), "-1");
    lan.env.vsctl(&format!("del-port {dev}"));
    wait_until("the device is gone", 5, || !ns.ip("-o link show").contains(&dev));
    lan.env.healthy(&[&dev, "No such device"]);
}

#[test]
fn a_tap_device_can_be_opened() {
    let mut lan = Lan::new();
    let dev = unique("fvt");
    lan.add(&dev, &format!("-- set Interface {dev} type=tap"));
    assert!(ip("-o link show").contains(&dev), "the switch makes it");
    assert_ne!(lan.env.value("Interface", &dev, "ofport"), "-1");
    lan.env.vsctl(&format!("del-port {dev}"));
    wait_until("removed with its port", 5, || !ip("-o link show").contains(&dev));
    lan.env.healthy(&[]);
}

#[test]
fn the_mtu_can_change() {
    let mut lan = Lan::new();
    let (a, va) = lan.host(1, "");
    let (b, vb) = lan.host(2, "");
    a.wait_ping("198.18.0.2", 10);
    for v in [&va, &vb] {
        lan.env.vsctl(&format!("set Interface {} mtu_request=3000", v.outer()));
        wait_until("the MTU", 10, || lan.env.value("Interface", v.outer(), "mtu") == "3000");
        assert!(ip(&format!("link show {}", v.outer())).contains("mtu 3000"));
    }
    for ns in [&a, &b] {
        ns.ip("link set eth0 mtu 3000");
    }
    let big = || a.run("ping -n -M do -s 2900 -W 1 -c 1 198.18.0.2", 5).ok();
    wait_until("large packets pass", 10, big);
    // Changed behind the switch's back, it says so.
    ip(&format!("link set {} mtu 2000", va.outer()));
    lan.env.vsctl(&format!("remove Interface {} mtu_request 3000", va.outer()));
    ip(&format!("link set {} mtu 2100", va.outer()));
    wait_until("the MTU is noticed", 10, || lan.env.value("Interface", va.outer(), "mtu") == "2100");
    assert!(iperf(&mut lan, &a, &b, "198.18.0.2", "") > 20.0);
    lan.env.healthy(&[]);
}

// UP-78: a device that is not there is not opened in a loop.
#[test]
fn a_device_may_go_and_come_back() {
    let mut lan = Lan::new();
    let (a, _va) = lan.host(1, "");
    let ns = Netns::new();
    let dev = unique("fvx");
    let make = || {
        ip(&format!("link add {dev} type veth peer name eth0 netns {}", ns.name()));
        ns.ip("addr add 198.18.0.5/24 dev eth0");
        ns.ip("link set eth0 up");
        ip(&format!("link set {dev} up"));
    };
    make();
    lan.add(&dev, "");
    a.wait_ping("198.18.0.5", 10);
    for _ in 0..2 {
        ip(&format!("link del {dev}"));
        wait_until("its loss is reported", 10, || lan.env.value("Interface", &dev, "error") != "[]");
        assert!(a.ping("198.18.0.1", 1));
        let before = lan.env.daemon_ticks();
        std::thread::sleep(Duration::from_secs(1));
        let used = lan.env.daemon_ticks() - before;
        assert!(used < 15, "busy while the device is gone: {used} ticks in a second");
        make();
        wait_until("it is opened again", 20, || lan.env.value("Interface", &dev, "error") == "[]");
        // The new device has another address.
        a.ip("neigh flush all");
        a.wait_ping("198.18.0.5", 10);
    }
    lan.env.vsctl(&format!("del-port {dev}"));
    ip(&format!("link del {dev}"));
    assert!(lan.env.proc("daemon").running());
}

#[test]
fn a_link_that_goes_down_is_reported() {
    let lan = Lan::new();
    let (a, va) = lan.host(1, "");
    wait_until("up", 10, || lan.env.value("Interface", va.outer(), "link_state") == "up");
    a.ip("link set eth0 down");
    wait_until("the peer is down", 10, || lan.env.value("Interface", va.outer(), "link_state") == "down");
    a.ip("link set eth0 up");
    wait_until("the peer is up", 10, || lan.env.value("Interface", va.outer(), "link_state") == "up");
    ip(&format!("link set {} down", va.outer()));
    wait_until("the port is down", 10, || lan.env.value("Interface", va.outer(), "admin_state") == "down");
    let show = lan.env.ofctl(&format!("show {}", lan.bridge));
    assert!(show.contains("PORT_DOWN"), "{show}");
}

#[test]
fn many_ports() {
    let mut lan = Lan::new();
    let hosts: Vec<(Netns, Veth)> = (1..=16).map(|n| lan.host(n, "")).collect();
    for (n, (ns, _)) in hosts.iter().enumerate() {
        ns.wait_ping(&format!("198.18.0.{}", (n + 1) % 16 + 1), 10);
    }
    let fdb = lan.env.appctl(&format!("fdb/show {}", lan.bridge));
    assert!(fdb.lines().count() >= 17, "{fdb}");
    lan.env.healthy(&[]);
}

#[test]
fn an_idle_switch_costs_next_to_nothing() {
    let lan = Lan::new();
    let (a, _va) = lan.host(1, "");
    let (_b, _vb) = lan.host(2, "");
    a.wait_ping("198.18.0.2", 10);
    // The last flows go, and with them what revalidates them.
    std::thread::sleep(Duration::from_secs(1));
    let before = lan.env.daemon_ticks();
    std::thread::sleep(Duration::from_secs(2));
    let used = lan.env.daemon_ticks() - before;
    assert!(used <= 6, "{used} ticks of 10 ms in 2 s");
}

#[test]
fn a_rule_stops_one_connection_and_not_the_other() {
    let mut lan = Lan::new();
    let (a, _va) = lan.host(1, "");
    let (b, _vb) = lan.host(2, "");
    a.wait_ping("198.18.0.2", 10);
    assert!(a.ping("fd00:c612::2", 2));
    lan.env.ofctl(&format!("add-flow {} priority=9,icmp,actions=drop", lan.bridge));
    wait_until("pings are dropped", 5, || !a.ping("198.18.0.2", 1));
    assert!(a.ping("fd00:c612::2", 2));
    assert!(iperf(&mut lan, &a, &b, "198.18.0.2", "") > 50.0);
    let rules = lan.env.ofctl(&format!("dump-flows {} icmp", lan.bridge));
    assert!(!rules.contains("n_packets=0"), "{rules}");
    lan.env.ofctl(&format!("--strict del-flows {} priority=9,icmp", lan.bridge));
    a.wait_ping("198.18.0.2", 5);
    lan.env.healthy(&[]);
}

#[test]
fn a_restart_keeps_nothing_it_should_not() {
    let mut lan = Lan::new();
    let (a, _va) = lan.host(1, "");
    let (_b, _vb) = lan.host(2, "");
    a.wait_ping("198.18.0.2", 10);
    lan.env.appctl("exit --cleanup");
    assert_eq!(lan.env.proc("daemon").wait(10), Some(0));
    assert!(!ip("-o link show").contains(&lan.bridge), "the bridge's device is gone");
    lan.env.start(fv_testkit::Daemon::Ours, "");
    a.wait_ping("198.18.0.2", 15);
    // Killed, and started again: what is left over does not stand in the way.
    lan.env.proc("daemon").kill();
    lan.env.start(fv_testkit::Daemon::Ours, "");
    a.wait_ping("198.18.0.2", 15);
}

// UP-113: restarts under load.
#[test]
fn restarts_under_traffic() {
    let mut lan = Lan::new();
    let (a, _va) = lan.host(1, "");
    let (_b, _vb) = lan.host(2, "");
    a.wait_ping("198.18.0.2", 10);
    let flood = a.command("ping -n -q -f -w 60 198.18.0.2");
    lan.env.spawn("flood", &flood);
    for round in 0..6 {
        match round % 3 {
            0 => {
                lan.env.appctl("exit");
                assert!(lan.env.proc("daemon").wait(10).is_some(), "it does not end");
            }
            1 => {
                lan.env.appctl("exit --cleanup");
                assert!(lan.env.proc("daemon").wait(10).is_some(), "it does not end");
            }
            _ => lan.env.proc("daemon").kill(),
        }
        lan.env.stop("daemon");
        lan.env.start(fv_testkit::Daemon::Ours, "");
        a.wait_ping("198.18.0.2", 15);
    }
    lan.env.stop("flood");
    lan.env.healthy(&[]);
}

#[test]
fn ports_come_and_go_under_traffic() {
    let mut lan = Lan::new();
    let (a, _va) = lan.host(1, "");
    let (_b, _vb) = lan.host(2, "");
    let ns = Netns::new();
    let v = Veth::new(&ns, &["198.18.0.3/24"]);
    a.wait_ping("198.18.0.2", 10);
    let flood = a.command("ping -n -q -f -w 60 198.18.0.2");
    lan.env.spawn("flood", &flood);
    for round in 0..15 {
        lan.add(v.outer(), if round % 2 == 0 { "" } else { "tag=3" });
        if round % 2 == 0 {
            ns.wait_ping("198.18.0.1", 10);
        }
        lan.env.vsctl(&format!("del-port {}", v.outer()));
        lan.env.ofctl(&format!("add-flow {} priority=1,actions=normal", lan.bridge));
        lan.env.ofctl(&format!("--strict del-flows {} priority=1", lan.bridge));
    }
    assert!(a.ping("198.18.0.2", 5));
    assert_eq!(lan.env.appctl("dpctl/show").matches("port ").count(), 3);
    lan.env.stop("flood");
    lan.env.healthy(&[]);
}

#[test]
fn a_tap_carries_frames_of_another_program() {
    let mut lan = Lan::new();
    let (a, _va) = lan.host(1, "");
    let dev = unique("fvt");
    lan.add(&dev, &format!("-- set Interface {dev} type=tap"));
    let ns = Netns::new();
    ip(&format!("link set {dev} netns {}", ns.name()));
    ns.ip(&format!("addr add 198.18.0.8/24 dev {dev}"));
    ns.ip(&format!("link set {dev} up"));
    a.wait_ping("198.18.0.8", 15);
    assert!(iperf(&mut lan, &a, &ns, "198.18.0.8", "") > 50.0);
    lan.env.healthy(&[]);
}

// Families of packets that raw sockets get wrong: fragments, options, errors with packets inside.
#[test]
fn fragments_options_and_errors_pass() {
    let mut lan = Lan::new();
    let (a, _va) = lan.host(1, "");
    let (b, _vb) = lan.host(2, "");
    a.wait_ping("198.18.0.2", 10);
    let run = |line: &str| {
        let o = a.run(line, 20);
        assert!(o.ok(), "{line}: {o:?}");
        o.stdout
    };
    run("ping -n -q -i 0.05 -c 5 -W 2 -s 8000 198.18.0.2");
    run("ping -n -q -i 0.05 -c 5 -W 2 -s 8000 fd00:c612::2");
    run("ping -n -q -i 0.05 -c 3 -W 2 -s 60000 198.18.0.2");
    let route = run("ping -n -R -c 1 -W 2 198.18.0.2");
    assert!(route.contains("RR:"), "record route: {route}");
    run("ping -n -T tsonly -c 1 -W 2 198.18.0.2");
    // Nobody listens: the refusal comes back, which holds the packet's head.
    let o = a.run("iperf3 -c 198.18.0.2 -p 9 --connect-timeout 3000", 10);
    assert!((o.stdout.clone() + &o.stderr).contains("refused"), "{o:?}");
    // Small segments and large ones, in both directions at once.
    assert!(iperf(&mut lan, &a, &b, "198.18.0.2", "-M 536") > 20.0);
    assert!(iperf(&mut lan, &a, &b, "198.18.0.2", "-P 8") > 50.0);
    let udp = iperf(&mut lan, &a, &b, "198.18.0.2", "-u -b 20M -l 8000");
    assert!(udp > 15.0, "UDP in fragments: {udp} Mbit/s");
    lan.env.healthy(&[]);
}
