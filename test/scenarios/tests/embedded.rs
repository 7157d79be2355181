//! The embedded database, used by other programs than the switch.

use std::time::{Duration, Instant};

use fv_testkit::{Env, run, wait_until};

const DUMMY: &str = "--enable-dummy --disable-system --disable-system-route";

fn env() -> Env {
    let mut e = Env::new();
    e.start_embedded(DUMMY);
    e
}

#[test]
fn the_switch_needs_no_other_process() {
    let mut e = env();
    e.add_dummy_bridge("br0", 1..=3);
    assert!(e.appctl("dpif/show").contains("p3 3/3: (dummy)"));
    assert!(e.vsctl("show").contains("Bridge br0"));
    e.vsctl("set Open_vSwitch . external_ids:who=me -- set bridge br0 other_config:x=y");
    assert_eq!(e.vsctl("get Open_vSwitch . external_ids:who").trim(), "me");
    let o = e.run("ovs-vsctl", "--timeout=10 add-port nosuch p9");
    assert!(!o.ok() && o.stderr.contains("no bridge named nosuch"), "{o:?}");
    // Everything is there again after a restart.
    e.appctl("exit");
    assert_eq!(e.proc("daemon").wait(10), Some(0));
    e.start_embedded(DUMMY);
    wait_until("the ports", 10, || e.appctl("dpif/show").contains("p3 3/3: (dummy)"));
    assert_eq!(e.vsctl("get Open_vSwitch . external_ids:who").trim(), "me");
    e.healthy(&[]);
}

#[test]
fn standard_clients_can_use_it() {
    let mut e = env();
    e.add_dummy_bridge("br0", 1..=1);
    assert_eq!(e.must("ovsdb-client", "list-dbs unix:db.sock"), "Open_vSwitch\n_Server\n");
    assert!(e.must("ovsdb-client", "list-tables unix:db.sock").contains("Interface"));
    let schema: serde_json::Value =
        serde_json::from_str(&e.must("ovsdb-client", "get-schema unix:db.sock Open_vSwitch")).unwrap();
    assert_eq!(schema["name"], "Open_vSwitch");
    assert!(e.must("ovsdb-client", "dump unix:db.sock Open_vSwitch Bridge name").contains("br0"));
    let transact =
        r#"transact unix:db.sock '["Open_vSwitch",{"op":"select","table":"Port","where":[],"columns":["name"]}]'"#;
    let rows = e.must("ovsdb-client", transact);
    assert!(rows.contains("p1") && rows.contains("br0"), "{rows}");
    // Constraints hold: a reference to nothing, a value out of range, a second row of the root table.
    for (ops, error) in [
        (
            r#"{"op":"mutate","table":"Open_vSwitch","where":[],"mutations":[["bridges","insert",["uuid","00000000-0000-0000-0000-000000000001"]]]}"#,
            "referential integrity violation",
        ),
        (r#"{"op":"update","table":"Port","where":[],"row":{"tag":5000}}"#, "constraint violation"),
        (r#"{"op":"insert","table":"Open_vSwitch","row":{}}"#, "constraint violation"),
        (r#"{"op":"nonsense"}"#, "syntax error"),
    ] {
        let o = e.run("ovsdb-client", &format!("transact unix:db.sock '[\"Open_vSwitch\",{ops}]'"));
        assert!(o.stdout.contains(error) || o.stderr.contains(error), "{ops}: {o:?}");
    }
    e.healthy(&[]);
}

#[test]
fn monitors_see_changes() {
    let mut e = env();
    let cmd = e.command("ovsdb-client", "monitor unix:db.sock Open_vSwitch Bridge name --format=csv");
    e.spawn("monitor", &cmd);
    let text = |e: &Env| std::fs::read_to_string(e.path("monitor.out")).unwrap_or_default();
    wait_until("the monitor is there", 10, || {
        text(&e).contains("name") || {
            e.vsctl("--may-exist add-br first -- set bridge first datapath_type=dummy");
            text(&e).contains("first")
        }
    });
    e.vsctl("add-br seen -- set bridge seen datapath_type=dummy");
    wait_until("an insertion", 10, || text(&e).lines().any(|l| l.contains("insert") && l.contains("seen")));
    e.vsctl("del-br seen");
    wait_until("a deletion", 10, || text(&e).lines().any(|l| l.contains("delete") && l.contains("seen")));
    e.healthy(&[]);
}

#[test]
fn the_file_is_the_standard_one() {
    let mut e = env();
    e.add_dummy_bridge("br0", 1..=1);
    e.appctl("exit");
    assert_eq!(e.proc("daemon").wait(10), Some(0));
    let log = e.must("ovsdb-tool", "show-log conf.db");
    assert!(log.contains("record 0: \"Open_vSwitch\" schema"), "{log}");
    let query = r#"query conf.db '["Open_vSwitch",{"op":"select","table":"Bridge","where":[],"columns":["name"]}]'"#;
    assert!(e.must("ovsdb-tool", query).contains("br0"));
    e.must("ovsdb-tool", "compact conf.db");
    // Debian's server goes on with it, and the switch then with what that wrote.
    e.start_db();
    assert!(e.vsctl("--no-wait list-br").contains("br0"));
    e.vsctl("--no-wait add-br br1 -- set bridge br1 datapath_type=dummy");
    e.proc("ovsdb-server").signal(rustix::process::Signal::TERM);
    assert!(e.proc("ovsdb-server").wait(10).is_some());
    e.start_embedded(DUMMY);
    wait_until("both bridges", 10, || e.appctl("ofproto/list").lines().count() == 2);
    e.healthy(&[]);
}

#[test]
fn a_database_that_is_served_already_is_not_served_twice() {
    let mut e = Env::new();
    e.start_db();
    let o = run(&e.command(fv_testkit::Daemon::Ours.path(), &format!("--embedded-db {DUMMY}")), 15);
    assert!(o.status == 1 && !o.stderr.is_empty(), "{o:?}");
    // Without that demand it becomes a client.
    e.start_embedded(DUMMY);
    e.add_dummy_bridge("br0", 1..=1);
    assert!(e.appctl("dpif/show").contains("p1 1/1"));
    e.healthy(&[]);
}

#[test]
fn the_python_idl_works() {
    let mut e = env();
    e.add_dummy_bridge("br0", 1..=2);
    std::fs::write(e.path("idl.py"), IDL).unwrap();
    let out = e.must("/usr/bin/python3", &format!("idl.py {}", e.file("db.sock")));
    assert!(
        out.contains("bridges: br0") && out.contains("committed: success") && out.contains("now: br0 viaidl"),
        "{out}"
    );
    wait_until("the bridge from Python", 5, || e.appctl("ofproto/list").contains("viaidl"));
    e.healthy(&[]);
}

const IDL: &str = r#"
import sys, time
import ovs.db.idl, ovs.poller
helper = ovs.db.idl.SchemaHelper(location="/usr/share/openvswitch/vswitch.ovsschema")
helper.register_all()
idl = ovs.db.idl.Idl("unix:" + sys.argv[1], helper)
end = time.time() + 20
def turn():
    if time.time() > end:
        sys.exit("timeout")
    p = ovs.poller.Poller(); idl.wait(p); p.timer_wait(100); p.block(); idl.run()
def names():
    return " ".join(sorted(b.name for b in idl.tables["Bridge"].rows.values()))
while not idl.has_ever_connected(): turn()
print("bridges:", names())
while True:
    txn = ovs.db.idl.Transaction(idl)
    root = list(idl.tables["Open_vSwitch"].rows.values())[0]
    i = txn.insert(idl.tables["Interface"]); i.name = "viaidl"; i.type = "internal"
    p = txn.insert(idl.tables["Port"]); p.name = "viaidl"; p.interfaces = [i]
    b = txn.insert(idl.tables["Bridge"]); b.name = "viaidl"; b.datapath_type = "dummy"; b.ports = [p]
    root.addvalue("bridges", b)
    root.verify("bridges")
    status = txn.commit_block()
    if status != ovs.db.idl.Transaction.TRY_AGAIN: break
print("committed:", status)
while "viaidl" not in names(): turn()
print("now:", names())
"#;

// No acknowledged transaction is lost, whenever the process ends.
#[test]
fn killed_at_any_instant_it_loses_nothing_that_was_acknowledged() {
    let mut e = env();
    let mut acknowledged = 0u32;
    for round in 0..8u64 {
        let begin = Instant::now();
        let life = Duration::from_millis(150 + 61 * round);
        let (dir, next) = (e.dir().to_path_buf(), acknowledged + 1);
        let socket = e.file("db.sock");
        let writer = std::thread::spawn(move || {
            let mut n = next;
            while begin.elapsed() < life + Duration::from_millis(200) {
                let mut c = std::process::Command::new("ovs-vsctl");
                c.current_dir(&dir).args(["--timeout=2", "--no-wait", &format!("--db=unix:{socket}")]);
                c.args(["set", "Open_vSwitch", ".", &format!("external_ids:k{n}={n}")]);
                if !run(&c, 5).ok() {
                    break;
                }
                n += 1;
            }
            n - 1
        });
        std::thread::sleep(life.saturating_sub(begin.elapsed()));
        e.proc("daemon").kill();
        acknowledged = writer.join().unwrap();
        // What was being written may end in the middle of a record.
        e.start_embedded(DUMMY);
        let ids = e.vsctl("get Open_vSwitch . external_ids");
        for n in 1..=acknowledged {
            assert!(ids.contains(&format!("k{n}=\"{n}\"")), "round {round}: {n} of {acknowledged} is lost: {ids}");
        }
    }
    assert!(acknowledged > 8, "too few transactions to tell: {acknowledged}");
}

#[test]
fn a_torn_tail_is_repaired() {
    let mut e = env();
    e.add_dummy_bridge("br0", 1..=1);
    e.proc("daemon").kill();
    let mut bytes = std::fs::read(e.path("conf.db")).unwrap();
    bytes.extend_from_slice(b"OVSDB JSON 999 0123456789abcdef0123456789abcdef01234567\n{\"half\":");
    std::fs::write(e.path("conf.db"), &bytes).unwrap();
    e.start_embedded(DUMMY);
    wait_until("the bridge", 10, || e.appctl("dpif/show").contains("p1 1/1"));
    e.vsctl("add-br br1 -- set bridge br1 datapath_type=dummy");
    e.appctl("exit");
    e.proc("daemon").wait(10);
    assert!(e.must("ovsdb-tool", "show-log conf.db").contains("record"));
    let log = e.log();
    assert!(log.contains("conf.db"), "the repair is logged: {log}");
}

#[test]
fn managers_can_connect_over_tcp_and_be_connected_to() {
    let mut e = env();
    e.vsctl("set-manager ptcp:0:127.0.0.1 punix:extra.sock");
    wait_until("the extra socket", 10, || e.path("extra.sock").exists());
    assert!(e.must("ovsdb-client", "list-dbs unix:extra.sock").contains("Open_vSwitch"));
    e.vsctl("del-manager");
    wait_until("it is closed", 10, || !e.run("ovsdb-client", "list-dbs unix:extra.sock").ok());
    e.healthy(&[]);
}

#[test]
fn malformed_requests_are_answered_or_cost_their_connection_only() {
    use std::io::{Read, Write};
    let mut e = env();
    e.add_dummy_bridge("br0", 1..=1);
    // Sends `text`; with an `until`, reads up to that, else ends its own side and reads to the end.
    let talk = |text: &[u8], until: Option<&str>| {
        let mut s = std::os::unix::net::UnixStream::connect(e.path("db.sock")).unwrap();
        s.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // The other side may close before it has read everything.
        let _ = s.write_all(text);
        if until.is_none() {
            let _ = s.shutdown(std::net::Shutdown::Write);
        }
        let (mut out, mut buf) = (String::new(), [0; 4096]);
        while !until.is_some_and(|u| out.contains(u)) {
            match s.read(&mut buf) {
                Ok(n) if n > 0 => out += &String::from_utf8_lossy(&buf[..n]),
                _ => break,
            }
        }
        out
    };
    // Requests that are wrong: an error with their id, and the next one is answered.
    let echo = r#"{"method":"echo","params":["x"],"id":99}"#;
    for bad in [
        r#"{"method":"nonsense","params":[],"id":1}"#,
        r#"{"method":"transact","params":[],"id":1}"#,
        r#"{"method":"transact","params":["nosuchdb"],"id":1}"#,
        r#"{"method":"transact","params":["Open_vSwitch",7],"id":1}"#,
        r#"{"method":"monitor","params":["Open_vSwitch",null,{"NoTable":{}}],"id":1}"#,
        r#"{"method":"monitor_cond_since","params":["Open_vSwitch"],"id":1}"#,
        r#"{"method":"get_schema","params":[{}],"id":1}"#,
        r#"{"method":"cancel","params":[1],"id":1}"#,
    ] {
        let got = talk(format!("{bad}{echo}").as_bytes(), Some("\"id\":99"));
        assert!(got.contains("\"id\":99"), "{bad}: {got}");
    }
    // No JSON, too deep, too long, not UTF-8: closed.
    for bad in [
        b"}{".to_vec(),
        "[".repeat(100_000).into_bytes(),
        b"{\"method\":\"\xff\xfe\"".to_vec(),
        vec![b'"'; 10],
        vec![0; 100],
    ] {
        talk(&bad, None);
    }
    let mut endless = b"\"".to_vec();
    endless.resize(64 << 20, b'a');
    let rss = e.daemon_rss_kib();
    talk(&endless, None);
    assert!(e.daemon_rss_kib() < rss + 300 * 1024, "memory for a message that never ends");
    assert!(e.vsctl("show").contains("br0"));
    let p = e.proc("daemon").running();
    assert!(p);
}

#[test]
fn locks_conditions_backup_and_restore() {
    let mut e = env();
    e.add_dummy_bridge("br0", 1..=2);
    let read = |e: &Env, name: &str| std::fs::read_to_string(e.path(&format!("{name}.out"))).unwrap_or_default();
    // Two clients and one lock.
    for name in ["first", "second"] {
        let cmd = e.command("ovsdb-client", "lock unix:db.sock mylock");
        e.spawn(name, &cmd);
        wait_until("an answer to lock", 10, || !read(&e, name).is_empty());
    }
    assert!(read(&e, "first").contains("locked") || read(&e, "first").contains("true"), "{}", read(&e, "first"));
    let waiting = read(&e, "second");
    e.stop("first");
    wait_until("the lock passes on", 10, || read(&e, "second").len() > waiting.len());
    e.stop("second");

    // A monitor with a condition sees only what it asked for.
    let cmd = e.command(
        "ovsdb-client",
        "monitor-cond unix:db.sock Open_vSwitch '[[\"name\",\"==\",\"wanted\"]]' Bridge name --format=csv",
    );
    e.spawn("cond", &cmd);
    wait_until("the condition is met", 20, || {
        e.vsctl("--if-exists del-br unwanted -- --if-exists del-br wanted");
        e.vsctl("add-br unwanted -- set bridge unwanted datapath_type=dummy");
        e.vsctl("add-br wanted -- set bridge wanted datapath_type=dummy");
        read(&e, "cond").contains("wanted")
    });
    assert!(!read(&e, "cond").contains("unwanted"), "{}", read(&e, "cond"));
    e.stop("cond");

    // A backup, a change, and back.
    let backup = e.must("ovsdb-client", "backup unix:db.sock");
    std::fs::write(e.path("backup"), &backup).unwrap();
    e.vsctl("del-br br0");
    assert!(!e.appctl("ofproto/list").contains("br0"));
    let socket = e.file("db.sock");
    e.must("sh", &format!("-c 'ovsdb-client restore unix:{socket} < backup'"));
    wait_until("the bridge is back", 10, || e.appctl("dpif/show").contains("p2 "));
    e.healthy(&[]);
}

#[test]
fn it_connects_out_to_managers() {
    let mut e = env();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let cmd = e.command("ovsdb-client", &format!("list-dbs ptcp:{port}:127.0.0.1"));
    e.spawn("manager", &cmd);
    e.vsctl(&format!("set-manager tcp:127.0.0.1:{port} -- set Manager . max_backoff=1000"));
    let status = e.proc("manager").wait(20);
    assert_eq!(status, Some(0));
    assert!(std::fs::read_to_string(e.path("manager.out")).unwrap().contains("Open_vSwitch"));
    e.healthy(&["connection"]);
}
