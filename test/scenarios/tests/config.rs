//! Configuration by ovs-vsctl in the dummy world: what is set works, and what is wrong says so in its row.

use fv_testkit::{Daemon, Env, wait_until};

fn env() -> Env {
    let e = Env::dummy(Daemon::Ours);
    e.add_dummy_bridge("br0", 1..=2);
    e
}

#[test]
fn ports_come_and_go() {
    let mut e = env();
    assert_eq!(e.value("Interface", "p1", "ofport"), "1");
    assert_eq!(e.value("Interface", "br0", "ofport"), "65534");
    assert_eq!(e.value("Interface", "p1", "link_state"), "up");
    assert_eq!(e.value("Interface", "p1", "admin_state"), "up");
    assert_eq!(e.value("Interface", "p1", "mtu"), "1500");
    assert!(e.value("Interface", "p1", "mac_in_use").starts_with("aa:55:aa:55:"));
    assert_eq!(e.value("Interface", "p1", "error"), "[]");
    assert_eq!(e.value("Bridge", "br0", "datapath_id").len(), 16);
    assert_eq!(e.value("Open_vSwitch", ".", "cur_cfg"), e.value("Open_vSwitch", ".", "next_cfg"));

    e.vsctl("add-port br0 p9 -- set Interface p9 type=dummy");
    assert_eq!(e.value("Interface", "p9", "ofport"), "3", "the lowest free number");
    e.vsctl("del-port br0 p1");
    let show = e.appctl("dpif/show");
    assert!(!show.contains("p1 ") && show.contains("p2 2/2: (dummy)") && show.contains("p9 3/9: (dummy)"), "{show}");
    e.vsctl("set Interface p2 ofport_request=7");
    wait_until("another OpenFlow port", 5, || e.value("Interface", "p2", "ofport") == "7");
    e.vsctl("del-br br0");
    assert_eq!(e.appctl("dpif/show"), "");
    assert_eq!(e.appctl("ofproto/list"), "");
    e.healthy(&[]);
}

#[test]
fn requested_port_numbers_come_before_chosen_ones() {
    let mut e = Env::dummy(Daemon::Ours);
    let mut line = String::from("add-br br0 -- set bridge br0 datapath-type=dummy fail-mode=secure");
    for (name, request) in
        [("a", ""), ("b", "ofport_request=1"), ("c", ""), ("d", "ofport_request=2"), ("e", "ofport_request=1")]
    {
        line += &format!(" -- add-port br0 {name} -- set Interface {name} type=dummy {request}");
    }
    e.vsctl(&line);
    let port = |n: &str| e.value("Interface", n, "ofport");
    assert!(port("b") == "1" || port("e") == "1");
    assert_eq!(port("d"), "2");
    let mut all = ["a", "b", "c", "d", "e"].map(port).to_vec();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 5, "{all:?}");
    e.healthy(&[]);
}

#[test]
fn what_is_wrong_is_reported_in_its_row_and_nowhere_else() {
    let mut e = env();
    let add = |name: &str, settings: &str| {
        e.run("ovs-vsctl", &format!("--timeout=25 add-port br0 {name} -- set Interface {name} {settings}"))
    };
    for (name, settings) in [
        ("bad1", "type=nosuchtype"),
        ("fvnodevice0", "type=system"),
        ("bad2", "type=dummy options:pcap=/no/such/dir/x.pcap"),
        ("bad3", "type=patch"),
        ("bad4", "type=dummy mtu_request=100000"),
    ] {
        add(name, settings);
        if name != "bad4" && name != "bad2" {
            assert_eq!(e.value("Interface", name, "ofport"), "-1", "{name}");
            assert_ne!(e.value("Interface", name, "error"), "[]", "{name}");
        }
    }
    assert_eq!(e.value("Interface", "p1", "ofport"), "1");
    // Repaired, it works.
    e.vsctl("set Interface bad1 type=dummy");
    wait_until("a repaired port", 5, || e.value("Interface", "bad1", "error") == "[]");
    assert_ne!(e.value("Interface", "bad1", "ofport"), "-1");
    // A failed port is not tried in a tight loop.
    let before = e.daemon_ticks();
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(e.daemon_ticks() - before < 15, "busy while ports cannot be opened");
    e.vsctl("add-port br0 p5 -- set Interface p5 type=dummy");
    assert_ne!(e.value("Interface", "p5", "ofport"), "-1");
    assert!(e.proc("daemon").running());
}

#[test]
fn a_port_that_fails_makes_vsctl_say_so() {
    let e = env();
    let o = e.run("ovs-vsctl", "--timeout=25 add-port br0 fvnodevice1");
    assert!(o.stderr.contains("Error detected while setting up 'fvnodevice1'"), "{o:?}");
    assert!(e.value("Interface", "fvnodevice1", "error").contains("fvnodevice1"));
}

#[test]
fn a_bridge_name_with_a_slash_is_refused_and_the_others_work() {
    let mut e = env();
    e.run("ovs-vsctl", "--timeout=25 add-br a/b -- set bridge a/b datapath_type=dummy");
    e.vsctl("add-port br0 p3 -- set Interface p3 type=dummy");
    assert_eq!(e.value("Interface", "p3", "ofport"), "3");
    assert!(!e.appctl("ofproto/list").contains("a/b"));
    e.healthy(&["invalid name", "a/b"]);
}

#[test]
fn a_bad_vlan_leaves_the_other_ports_alone() {
    let mut e = env();
    let o = e.run("ovs-vsctl", "--timeout=25 set Port p1 tag=5000");
    assert!(o.stderr.contains("not in the valid range"), "{o:?}");
    e.vsctl("set Port p1 vlan_mode=dot1q-tunnel tag=100 cvlans=1,2");
    e.vsctl("set Port p2 trunks=1,2,3 tag=4095");
    e.vsctl("set Port p1 tag=3");
    assert!(e.proc("daemon").running());
    assert!(e.appctl("dpif/show").contains("p1 1/1: (dummy)"));
}

#[test]
fn identity_of_a_bridge_can_be_set() {
    let mut e = env();
    e.vsctl("set bridge br0 other-config:datapath-id=fedcba9876543210 other-config:hwaddr=aa:66:aa:66:00:00");
    wait_until("the datapath id", 5, || e.value("Bridge", "br0", "datapath_id") == "fedcba9876543210");
    wait_until("the address", 5, || e.value("Interface", "br0", "mac_in_use") == "aa:66:aa:66:00:00");
    let show = e.ofctl("show br0");
    assert!(show.contains("dpid:fedcba9876543210"), "{show}");
    assert!(show.contains("LOCAL(br0): addr:aa:66:aa:66:00:00"), "{show}");
    e.healthy(&[]);
}

#[test]
fn statistics_reach_the_database() {
    let mut e = env();
    e.ofctl("add-flow br0 actions=normal");
    let frame = "in_port(1),eth(src=00:00:00:00:00:01,dst=00:00:00:00:00:02),eth_type(0x1234)";
    e.appctl(&format!("netdev-dummy/receive p1 '{frame}'"));
    wait_until("statistics", 12, || e.vsctl("--if-exists get Interface p1 statistics:rx_packets").trim() == "1");
    assert_eq!(e.vsctl("get Interface p2 statistics:tx_packets").trim(), "1");
    e.healthy(&[]);
}

#[test]
fn many_ports_and_many_bridges() {
    let mut e = Env::dummy(Daemon::Ours);
    e.add_dummy_bridge("br0", 1..=100);
    assert_eq!(e.value("Interface", "p100", "ofport"), "100");
    for b in 1..=5 {
        let (x, y) = (format!("x{b}"), format!("y{b}"));
        e.vsctl(&format!(
            "add-br b{b} -- set bridge b{b} datapath_type=dummy -- add-port b{b} {x} -- set Interface {x} type=patch \
             options:peer={y} -- add-port br0 {y} -- set Interface {y} type=patch options:peer={x}"
        ));
    }
    assert_eq!(e.appctl("ofproto/list").lines().count(), 6);
    let mut line = String::from("--if-exists del-port br0 p1");
    (2..=100).for_each(|n| line += &format!(" -- del-port br0 p{n}"));
    e.vsctl(&line);
    let show = e.appctl("dpif/show");
    assert!(!show.contains("(dummy)"), "{show}");
    assert!(show.contains("y3 ") && show.contains("(patch: peer=x3)"), "{show}");
    e.healthy(&[]);
}
