//! The reference's programs, and our own client, on our server over sockets.

mod support;

use fv_core::Clock;
use fv_ovsdb::{Datum, vswitch};
use fv_ovsdb_db::client::{Client, Config};
use fv_ovsdb_db::log::LogFile;
use fv_ovsdb_db::remote::{ClientDriver, ServerDriver};
use fv_ovsdb_db::server::{Now, Server};
use fv_rpc::{Poller, Tls, Waker};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use support::{tool, tool_ok, wait_for};

/// A server in a thread, as the daemon has it.
struct Running {
    dir: tempfile::TempDir,
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    waker: Waker,
}

impl Running {
    fn start() -> Running {
        let dir = tempfile::tempdir().unwrap();
        Running::start_in(dir)
    }

    fn start_in(dir: tempfile::TempDir) -> Running {
        let clock = Clock::new();
        let (log, db) = LogFile::open(&dir.path().join("conf.db"), &vswitch::vswitch_schema(), 1).unwrap();
        let server = Server::new(vec![(db, Some(Box::new(log)))]);
        let mut driver = ServerDriver::new(server, Tls::default());
        driver.add_remote(&format!("punix:{}", dir.path().join("db.sock").display()), clock.now()).unwrap();
        let mut poller = Poller::new().unwrap();
        let (waker, stop) = (poller.waker(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                driver.turn(Now::of(&clock));
                driver.want(&mut poller, clock.now());
                poller.wait(None, &clock).unwrap();
            }
        });
        Running { dir, thread: Some(thread), stop, waker }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn socket(&self) -> String {
        format!("unix:{}", self.path().join("db.sock").display())
    }

    fn vsctl(&self, args: &[&str]) -> String {
        let db = format!("--db={}", self.socket());
        tool_ok("ovs-vsctl", &[&[db.as_str(), "--no-wait", "--timeout=10"], args].concat())
    }

    fn client(&self, args: &[&str]) -> String {
        tool_ok("ovsdb-client", &[&["--timeout=10"], args].concat())
    }

    fn stop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(t) = self.thread.take() {
            t.join().unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

#[test]
fn vsctl_configures_a_switch() {
    let mut s = Running::start();
    s.vsctl(&["init"]);
    s.vsctl(&["add-br", "br0", "--", "add-port", "br0", "p1", "tag=9", "--", "add-bond", "br0", "b0", "e1", "e2"]);
    s.vsctl(&["set-controller", "br0", "tcp:127.0.0.1:6653", "--", "set-fail-mode", "br0", "secure"]);
    s.vsctl(&[
        "--",
        "--id=@m",
        "create",
        "mirror",
        "name=m0",
        "select_all=true",
        "--",
        "add",
        "bridge",
        "br0",
        "mirrors",
        "@m",
    ]);
    s.vsctl(&[
        "--",
        "--id=@q",
        "create",
        "qos",
        "type=linux-htb",
        "queues:0=@qq",
        "--",
        "--id=@qq",
        "create",
        "queue",
        "other_config:max-rate=5",
        "--",
        "set",
        "port",
        "p1",
        "qos=@q",
    ]);
    let shown = s.vsctl(&["show"]);
    assert!(shown.contains("Bridge br0") && shown.contains("tag: 9") && shown.contains("fail_mode: secure"), "{shown}");
    assert_eq!(s.vsctl(&["list-ports", "br0"]), "b0\np1\n");
    assert_eq!(s.vsctl(&["get", "port", "p1", "tag"]), "9\n");
    assert_eq!(s.vsctl(&["get", "mirror", "m0", "select_all"]), "true\n");
    let db = format!("--db={}", s.socket());
    let refused = tool("ovs-vsctl", &[&db, "--no-wait", "--timeout=10", "set", "port", "p1", "tag=5000"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("constraint violation"));
    s.vsctl(&["del-port", "br0", "b0"]);
    assert_eq!(s.vsctl(&["--columns=name", "--bare", "list", "interface"]).split_whitespace().count(), 2);
    // The interfaces of a bond went with it; QoS is a root and stays.
    s.vsctl(&["del-br", "br0"]);
    assert_eq!(s.vsctl(&["list", "interface"]), "");
    assert_eq!(s.vsctl(&["--columns=type", "--bare", "list", "qos"]).trim(), "linux-htb");
    s.vsctl(&["add-br", "br1"]);
    s.vsctl(&["add-port", "br1", "p9"]);

    // A restart, and the reference's own server on the same file.
    s.stop();
    let dir = std::mem::replace(&mut s.dir, tempfile::tempdir().unwrap());
    let reference = support::ReferenceServer::start(dir.path(), &dir.path().join("conf.db"));
    let db = format!("--db=unix:{}", reference.socket.display());
    assert_eq!(
        tool_ok("ovs-vsctl", &[&db, "--no-wait", "add-port", "br1", "p8", "--", "list-ports", "br1"]),
        "p8\np9\n"
    );
    drop(reference);
    let s = Running::start_in(dir);
    assert_eq!(s.vsctl(&["list-ports", "br1"]), "p8\np9\n");
}

#[test]
fn ovsdb_client_speaks_every_method() {
    let s = Running::start();
    let sock = s.socket();
    assert_eq!(s.client(&["list-dbs", &sock]), "Open_vSwitch\n_Server\n");
    assert_eq!(s.client(&["get-schema-version", &sock]).trim(), vswitch::vswitch_schema().version);
    assert_eq!(s.client(&["get-schema-cksum", &sock]).trim(), vswitch::vswitch_schema().cksum);
    assert!(s.client(&["list-columns", &sock, "Open_vSwitch", "Bridge"]).contains("flood_vlans"));
    s.vsctl(&["init", "--", "add-br", "br0"]);
    let dump = s.client(&["dump", &sock, "Open_vSwitch", "Bridge", "name", "stp_enable"]);
    assert!(dump.contains("br0") && dump.contains("false"), "{dump}");
    assert!(s.client(&["dump", &sock, "_Server", "Database", "name", "model"]).contains("standalone"));
    let r = s.client(&[
        "transact",
        &sock,
        r#"["Open_vSwitch",{"op":"select","table":"Bridge","where":[],"columns":["name"]}]"#,
    ]);
    assert_eq!(r.trim(), r#"[{"rows":[{"name":"br0"}]}]"#);
    s.client(&["wait", &sock, "Open_vSwitch", "connected"]);
    let backup = s.client(&["backup", &sock]);
    assert!(backup.starts_with("OVSDB JSON "));
    let file = s.path().join("backup.db");
    std::fs::write(&file, &backup).unwrap();
    s.vsctl(&["add-br", "br1", "--", "set", "bridge", "br0", "other_config:a=b"]);
    let restored = Command::new("ovsdb-client")
        .args(["--timeout=10", "restore", &sock])
        .stdin(std::fs::File::open(&file).unwrap())
        .output()
        .unwrap();
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    assert_eq!(s.vsctl(&["list-br"]), "br0\n");
    assert_eq!(s.vsctl(&["get", "bridge", "br0", "other_config"]), "{}\n");
    let needs = s.client(&["needs-conversion", &sock, &schema_file(&s)]);
    assert_eq!(needs.trim(), "no");
}

fn schema_file(s: &Running) -> String {
    let p = s.path().join("vswitch.ovsschema");
    std::fs::write(&p, vswitch::VSWITCH_SCHEMA).unwrap();
    p.display().to_string()
}

/// Lines of a program that goes on, until `enough`.
fn watch(args: &[&str], mut act: impl FnMut(usize), enough: usize) -> Vec<String> {
    let mut child = Command::new("ovsdb-client").args(args).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = Vec::new();
    for l in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
        lines.push(l);
        act(lines.len());
        if lines.len() == enough {
            break;
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    lines
}

#[test]
fn ovsdb_client_monitors_and_locks() {
    let s = Running::start();
    let sock = s.socket();
    s.vsctl(&["init", "--", "add-br", "br0"]);
    let act = |n: usize| {
        if n == 1 {
            s.vsctl(&["set", "bridge", "br0", "other_config:x=y"]);
        }
    };
    let lines = watch(
        &["--timeout=10", "--format=json", "monitor", &sock, "Open_vSwitch", "Bridge", "name,other_config"],
        act,
        2,
    );
    assert!(lines[0].contains("\"br0\"") && lines[1].contains("[\"map\",[[\"x\",\"y\"]]]"), "{lines:?}");
    let act = |n: usize| {
        if n == 1 {
            s.vsctl(&["remove", "bridge", "br0", "other_config", "x"]);
        }
    };
    let condition = r#"[["name","==","br0"]]"#;
    let lines = watch(
        &[
            "--timeout=10",
            "--format=json",
            "monitor-cond",
            &sock,
            "Open_vSwitch",
            condition,
            "Bridge",
            "name,other_config",
        ],
        act,
        2,
    );
    assert!(lines[0].contains("initial") && lines[1].contains("modify"), "{lines:?}");
    let lines = watch(&["--timeout=10", "lock", &sock, "l1"], |_| (), 1);
    assert!(lines[0].contains("locked") || lines[0].contains("true"), "{lines:?}");
}

#[test]
fn python_idl_follows() {
    let s = Running::start();
    s.vsctl(&["init", "--", "add-br", "br0"]);
    let script = r#"
import sys
import ovs.db.idl, ovs.poller
h = ovs.db.idl.SchemaHelper(sys.argv[2]); h.register_columns("Bridge", ["name", "other_config", "external_ids"])
idl = ovs.db.idl.Idl(sys.argv[1], h)
def until(f):
    while not f():
        idl.run()
        if f(): return
        p = ovs.poller.Poller(); idl.wait(p); p.block()
until(lambda: idl.has_ever_connected() and len(idl.tables["Bridge"].rows) == 1)
row = next(iter(idl.tables["Bridge"].rows.values()))
t = ovs.db.idl.Transaction(idl)
row.setkey("external_ids", "from", "python")
assert t.commit_block() in (t.SUCCESS, t.INCOMPLETE), t.get_error()
until(lambda: row.external_ids.get("from") == "python")
t = ovs.db.idl.Transaction(idl)
row.delkey("external_ids", "from")
row.setkey("other_config", "k", "v")
assert t.commit_block() == t.SUCCESS
until(lambda: "from" not in row.external_ids and row.other_config.get("k") == "v")
last = idl.last_id
assert last and last != "00000000-0000-0000-0000-000000000000", last
idl.force_reconnect()
seqno = idl.change_seqno
until(lambda: idl.change_seqno != seqno and idl._session.is_connected() and idl.state == idl.IDL_S_MONITORING)
assert idl.last_id == last
assert [r.name for r in idl.tables["Bridge"].rows.values()] == ["br0"]
row = next(iter(idl.tables["Bridge"].rows.values()))
t = ovs.db.idl.Transaction(idl)
row.setkey("external_ids", "again", "yes")
assert t.commit_block() == t.SUCCESS
until(lambda: row.external_ids.get("again") == "yes")
print("done")
"#;
    assert_eq!(tool_ok("/usr/bin/python3", &["-c", script, &s.socket(), &schema_file(&s)]), "done\n");
    assert_eq!(s.vsctl(&["get", "bridge", "br0", "other_config"]), "{k=v}\n");
}

#[test]
fn managers_become_listeners_and_connections() {
    let s = Running::start();
    s.vsctl(&["init"]);
    s.vsctl(&["set-manager", "ptcp:0:127.0.0.1"]);
    let port = wait_for("the bound port", || {
        let p = s.vsctl(&["--bare", "--columns=status", "list", "manager"]);
        let (_, port) = p.split_once("bound_port=")?;
        Some(port.trim_matches('"').chars().take_while(char::is_ascii_digit).collect::<String>())
    });
    let tcp = format!("tcp:127.0.0.1:{port}");
    assert!(tool_ok("ovsdb-client", &["--timeout=10", "list-dbs", &tcp]).contains("Open_vSwitch"));

    // An active connection, to a socket that we listen on.
    let path = s.path().join("manager.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let target = format!("unix:{}", path.display());
    s.vsctl(&["set-manager", &target]);
    let (stream, _) = listener.accept().unwrap();
    wait_for("is_connected", || {
        (s.vsctl(&["--bare", "--columns=is_connected", "list", "manager"]).trim() == "true").then_some(())
    });
    wait_for("the end of the listener", || {
        (!tool("ovsdb-client", &["--timeout=2", "list-dbs", &tcp]).status.success()).then_some(())
    });
    drop(stream);
    s.vsctl(&["del-manager"]);
}

#[test]
fn our_client_over_a_socket_and_after_a_restart() {
    let mut s = Running::start();
    s.vsctl(&["init", "--", "add-br", "br0"]);
    let clock = Clock::new();
    let mut poller = Poller::new().unwrap();
    let config = Config { lock: Some("ovs_vswitchd".into()), ..Config::vswitch() };
    let mut c = ClientDriver::open(Client::new(config), &s.socket(), &Tls::default(), clock.now());
    let mut until = |c: &mut ClientDriver, what: &str, f: &dyn Fn(&Client) -> bool| {
        wait_for(what, || {
            c.turn(clock.now());
            if f(&c.client) {
                return Some(());
            }
            c.want(&mut poller, clock.now());
            poller.wait(Some(clock.now() + fv_core::Nanos::from_ms(50)), &clock).unwrap();
            None
        });
    };
    until(&mut c, "sync", &|c| c.is_synced() && c.has_lock() && c.row_count("Bridge") == 1);
    let uuid = c.client.first("Bridge").unwrap().uuid();
    let mut t = c.client.txn();
    t.update("Bridge", uuid, vec![("datapath_id", Datum::string("0123").into())]);
    let id = c.client.commit(t);
    until(&mut c, "the write", &|c| c.first("Bridge").unwrap().str("datapath_id") == "0123");
    assert!(c.client.outcome(id).unwrap().is_success());

    let dir: PathBuf = s.path().to_owned();
    s.stop();
    until(&mut c, "the end", &|c| !c.is_connected());
    assert_eq!(c.client.first("Bridge").unwrap().str("name"), "br0");
    let dir_handle = std::mem::replace(&mut s.dir, tempfile::tempdir().unwrap());
    assert_eq!(dir_handle.path(), dir);
    let s = Running::start_in(dir_handle);
    s.vsctl(&["add-br", "br1"]);
    until(&mut c, "resynchronisation", &|c| c.is_synced() && c.has_lock() && c.row_count("Bridge") == 2);
    assert_eq!(c.client.first("Bridge").unwrap().str("datapath_id"), "", "ephemeral");
}

#[test]
fn managers_over_tls() {
    let s = Running::start();
    s.vsctl(&["init"]);
    let pki = s.path().join("pki");
    let sh = |command: &str| {
        let out = Command::new("sh").args(["-ec", command]).current_dir(s.path()).output().unwrap();
        assert!(out.status.success(), "{command}: {}", String::from_utf8_lossy(&out.stderr));
    };
    let dir = format!("--dir={} --log={}/pki.log", pki.display(), s.path().display());
    sh(&format!(
        "ovs-pki {dir} init && ovs-pki {dir} -u req+sign sc switch && ovs-pki {dir} -u req+sign cl controller"
    ));
    let file = |n: &str| s.path().join(n).display().to_string();
    let ca = pki.join("controllerca/cacert.pem").display().to_string();
    let server_ca = pki.join("switchca/cacert.pem").display().to_string();
    s.vsctl(&["set-ssl", &file("sc-privkey.pem"), &file("sc-cert.pem"), &ca]);
    s.vsctl(&["set-manager", "pssl:0:127.0.0.1"]);
    let port = wait_for("the bound port", || {
        let p = s.vsctl(&["--bare", "--columns=status", "list", "manager"]);
        let (_, port) = p.split_once("bound_port=")?;
        Some(port.trim_matches('"').chars().take_while(char::is_ascii_digit).collect::<String>())
    });
    let remote = format!("ssl:127.0.0.1:{port}");
    let (key, cert) = (format!("-p{}", file("cl-privkey.pem")), format!("-c{}", file("cl-cert.pem")));
    let list = tool_ok("ovsdb-client", &["--timeout=10", &key, &cert, &format!("-C{server_ca}"), "list-dbs", &remote]);
    assert!(list.contains("Open_vSwitch"));
    // A certificate of the wrong authority.
    let (key, cert) = (format!("-p{}", file("sc-privkey.pem")), format!("-c{}", file("sc-cert.pem")));
    let refused = tool("ovsdb-client", &["--timeout=3", &key, &cert, &format!("-C{server_ca}"), "list-dbs", &remote]);
    assert!(!refused.status.success());
    assert!(s.vsctl(&["get-ssl"]).contains("sc-cert.pem"));
}

/// Garbage, half messages and silence on some connections do not disturb the others.
#[test]
fn bad_peers_disturb_nobody() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    let s = Running::start();
    s.vsctl(&["init"]);
    let path = s.path().join("db.sock");
    let mut idle: Vec<UnixStream> = (0..20).map(|_| UnixStream::connect(&path).unwrap()).collect();
    for (i, c) in idle.iter_mut().enumerate() {
        let _ = c.write_all(&b"{\"method\": \"transact\", \"params\": [\"Open_vSwitch\""[..i * 2]);
    }
    let deep = format!("{{\"method\":\"echo\",\"id\":1,\"params\":{}{}}}", "[".repeat(5000), "]".repeat(5000));
    for garbage in ["}", "[1,2]", "\0\0\0", "{\"method\":5,\"params\":[],\"id\":1}", "{\"a\":1e999}", &deep] {
        let mut c = UnixStream::connect(&path).unwrap();
        c.write_all(garbage.as_bytes()).unwrap();
        let mut end = Vec::new();
        c.set_read_timeout(Some(support::PATIENCE)).unwrap();
        // Closed without an answer; a reset is as good.
        if let Ok(n) = c.read_to_end(&mut end) {
            assert_eq!(n, 0, "{garbage}");
        }
    }
    s.vsctl(&["add-br", "br0"]);
    assert_eq!(s.vsctl(&["list-br"]), "br0\n");
}

/// One that asks for much and reads nothing: its requests wait, others are served, and when it
/// reads at last it gets everything.
#[test]
fn a_peer_that_does_not_read_is_not_read_from() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    let s = Running::start();
    let bridges: Vec<String> = (0..100).flat_map(|i| ["--".into(), "add-br".into(), format!("br{i}")]).collect();
    s.vsctl(&[&["init"], bridges.iter().map(String::as_str).collect::<Vec<_>>().as_slice()].concat());
    let mut c = UnixStream::connect(s.path().join("db.sock")).unwrap();
    let mut writer = c.try_clone().unwrap();
    let n = 100;
    let asking = std::thread::spawn(move || {
        for i in 0..n {
            let m = format!(
                r#"{{"id":{i},"method":"monitor","params":["Open_vSwitch",{i},{{"Bridge":{{}},"Port":{{}},"Interface":{{}}}}]}}"#
            );
            writer.write_all(m.as_bytes()).unwrap();
        }
        writer.write_all(br#"{"id":"end","method":"list_dbs","params":[]}"#).unwrap();
    });
    assert_eq!(s.vsctl(&["get", "bridge", "br7", "name"]), "br7\n");
    let mut text = Vec::new();
    c.set_read_timeout(Some(support::PATIENCE)).unwrap();
    let last = br#""id":"end","result":["Open_vSwitch","_Server"]}"#;
    let mut chunk = vec![0; 1 << 20];
    while !text.ends_with(last) {
        let k = c.read(&mut chunk).unwrap();
        assert!(k > 0, "closed after {} bytes", text.len());
        text.extend_from_slice(&chunk[..k]);
    }
    asking.join().unwrap();
    assert!(text.len() > 8 << 20, "{}", text.len());
}
