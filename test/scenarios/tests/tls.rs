//! TLS with certificates made by ovs-pki, for the database and for OpenFlow.

use fv_testkit::{Daemon, Env, wait_until};

const DUMMY: &str = "--enable-dummy --disable-system --disable-system-route";

/// A switch's and a controller's key and certificate, signed by their authorities.
fn pki(e: &Env) {
    let dir = e.file("pki");
    e.must("ovs-pki", &format!("--force --dir={dir} --log={dir}.log init"));
    e.must("ovs-pki", &format!("--dir={dir} --log={dir}.log req+sign sc switch"));
    e.must("ovs-pki", &format!("--dir={dir} --log={dir}.log req+sign cc controller"));
}

fn tls_options(e: &Env, who: &str, peer_ca: &str) -> String {
    format!(
        "--private-key={} --certificate={} --ca-cert={}",
        e.file(&format!("{who}-privkey.pem")),
        e.file(&format!("{who}-cert.pem")),
        e.file(&format!("pki/{peer_ca}ca/cacert.pem"))
    )
}

/// A port that nothing listens on at the moment.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn the_database_and_openflow_over_tls() {
    let mut e = Env::new();
    pki(&e);
    // Database: Debian's server listens, the switch connects.
    e.must("ovsdb-tool", "create conf.db /usr/share/openvswitch/vswitch.ovsschema");
    let port = free_port();
    let server = format!(
        "conf.db --remote=punix:db.sock --remote=pssl:{port}:127.0.0.1 {} --pidfile --log-file -vconsole:off",
        tls_options(&e, "cc", "switch")
    );
    let cmd = e.command("ovsdb-server", &server);
    e.spawn("ovsdb-server", &cmd);
    wait_until("the server", 10, || e.run("ovs-vsctl", "--timeout=5 --no-wait init").ok());
    let ours = format!(
        "ssl:127.0.0.1:{port} {DUMMY} {} --pidfile --log-file -vconsole:off",
        tls_options(&e, "sc", "controller")
    );
    let cmd = e.command(Daemon::Ours.path(), &ours);
    e.spawn("daemon", &cmd);
    e.add_dummy_bridge("br0", 1..=1);
    assert!(e.appctl("dpif/show").contains("p1 1/1"));

    // OpenFlow: the switch listens with the certificates of the SSL table.
    e.vsctl(&format!(
        "set-ssl {} {} {}",
        e.file("sc-privkey.pem"),
        e.file("sc-cert.pem"),
        e.file("pki/controllerca/cacert.pem")
    ));
    let of = free_port();
    e.vsctl(&format!("set-controller br0 pssl:{of}:127.0.0.1"));
    let client = tls_options(&e, "cc", "switch");
    let show = format!("--timeout=5 {client} show ssl:127.0.0.1:{of}");
    wait_until("OpenFlow over TLS", 15, || e.run("ovs-ofctl", &show).stdout.contains("1(p1)"));
    // A peer whose certificate another authority signed gets nothing.
    let stranger = tls_options(&e, "sc", "controller");
    let o = e.run("ovs-ofctl", &format!("--timeout=5 {stranger} show ssl:127.0.0.1:{of}"));
    assert!(!o.ok(), "{o:?}");
    assert!(e.run("ovs-ofctl", &show).ok(), "and the others still do");
    assert!(e.proc("daemon").running());
}

#[test]
fn the_embedded_database_over_tls() {
    let mut e = Env::new();
    pki(&e);
    e.start_embedded(DUMMY);
    e.vsctl(&format!(
        "set-ssl {} {} {}",
        e.file("sc-privkey.pem"),
        e.file("sc-cert.pem"),
        e.file("pki/controllerca/cacert.pem")
    ));
    let port = free_port();
    e.vsctl(&format!("set-manager pssl:{port}:127.0.0.1"));
    let client = tls_options(&e, "cc", "switch");
    let line = format!("--timeout=5 {client} list-dbs ssl:127.0.0.1:{port}");
    wait_until("the database over TLS", 15, || e.run("ovsdb-client", &line).stdout.contains("Open_vSwitch"));
    e.vsctl(&format!("--db=ssl:127.0.0.1:{port} {client} add-br br0 -- set bridge br0 datapath_type=dummy"));
    assert!(e.appctl("ofproto/list").contains("br0"));
    assert!(e.proc("daemon").running());
}
