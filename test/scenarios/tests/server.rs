//! The switch as a client of Debian's database server, which comes and goes.

use fv_testkit::{Daemon, Env, wait_until};

const FRAME: &str = "in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x1234)";

fn forwarded(e: &Env) -> bool {
    let before = e.ofctl("dump-ports br0 p2");
    e.appctl(&format!("netdev-dummy/receive p1 '{FRAME}'"));
    e.ofctl("dump-ports br0 p2") != before
}

#[test]
fn a_killed_server_does_not_disturb_the_traffic() {
    let mut e = Env::dummy(Daemon::Ours);
    e.add_dummy_bridge("br0", 1..=2);
    e.ofctl("add-flow br0 in_port=1,actions=2");
    for round in 1..=4 {
        e.proc("ovsdb-server").kill();
        e.stop("ovsdb-server");
        assert!(forwarded(&e), "round {round}: no traffic without the server");
        assert!(e.ofctl("dump-flows br0").contains("actions=output:2"));
        // Changed while nobody served it: what comes back is another content.
        let n = 10 + round;
        let ops = format!(
            r#"["Open_vSwitch",{{"op":"insert","table":"Interface","uuid-name":"i","row":{{"name":"q{n}","type":"dummy"}}}},{{"op":"insert","table":"Port","uuid-name":"p","row":{{"name":"q{n}","interfaces":["named-uuid","i"]}}}},{{"op":"mutate","table":"Bridge","where":[["name","==","br0"]],"mutations":[["ports","insert",["named-uuid","p"]]]}}]"#
        );
        e.must("ovsdb-tool", &format!("transact conf.db '{ops}'"));
        e.start_db();
        wait_until("the new port", 20, || e.appctl("dpif/show").contains(&format!("q{n} ")));
        assert!(forwarded(&e), "round {round}: no traffic afterwards");
        assert!(e.ofctl("dump-flows br0").contains("actions=output:2"), "rules are kept");
        e.vsctl(&format!("add-port br0 r{n} -- set Interface r{n} type=dummy"));
    }
    e.healthy(&["connection dropped", "connection closed", "connection attempt failed"]);
}

#[test]
fn the_daemon_waits_for_a_server_that_is_not_there_yet() {
    let mut e = Env::new();
    e.start(Daemon::Ours, "--enable-dummy --disable-system");
    e.start_db();
    e.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy");
    assert!(e.appctl("ofproto/list").contains("br0"));
    e.healthy(&["connection attempt failed"]);
}

#[test]
fn a_killed_daemon_comes_back_with_the_same_ports() {
    let mut e = Env::dummy(Daemon::Ours);
    e.add_dummy_bridge("br0", 1..=2);
    e.vsctl("add-port br0 named -- set Interface named type=dummy");
    let port = e.value("Interface", "named", "ofport");
    for _ in 0..5 {
        e.proc("daemon").kill();
        e.stop("daemon");
        e.start(Daemon::Ours, "--enable-dummy --disable-system --disable-system-route");
        wait_until("the ports", 10, || e.appctl("dpif/show").contains("named "));
        assert_eq!(e.value("Interface", "named", "ofport"), port);
    }
    e.healthy(&[]);
}
