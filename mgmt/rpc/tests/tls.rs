//! TLS with the reference's programs and certificates, and with OpenSSL.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use fv_core::{Clock, Nanos};
use fv_rpc::jsonrpc::Limits;
use fv_rpc::{Acceptor, Connection, Listener, Message, Poller, Session, Tls};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(30);

/// Certificates of `ovs-pki`: a switch's and a controller's, each under its own authority.
struct Pki {
    dir: tempfile::TempDir,
}

impl Pki {
    fn new() -> Pki {
        let pki = Pki { dir: tempfile::tempdir().unwrap() };
        pki.run(&["init"]);
        pki.run(&["req+sign", "sc", "switch"]);
        pki.run(&["req+sign", "ctl", "controller"]);
        pki
    }

    fn run(&self, args: &[&str]) {
        let d = self.dir.path().display();
        let mut c = Command::new("ovs-pki");
        c.current_dir(self.dir.path()).arg(format!("--dir={d}/pki")).arg(format!("--log={d}/log")).arg("--force");
        let o = c.args(args).output().unwrap();
        assert!(o.status.success(), "ovs-pki {args:?}: {}", String::from_utf8_lossy(&o.stderr));
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn ca(&self, of: &str) -> PathBuf {
        self.file(&format!("pki/{of}ca/cacert.pem"))
    }

    /// Settings of the owner of certificate `who`, trusting the authority of `trusted`.
    fn tls(&self, who: &str, trusted: &str) -> Tls {
        let tls = Tls::default();
        let (key, cert) = (self.file(&format!("{who}-privkey.pem")), self.file(&format!("{who}-cert.pem")));
        tls.set_key_and_cert(Some(&key), Some(&cert));
        tls.set_ca(Some(&self.ca(trusted)), false);
        tls
    }

    /// The same for the reference's programs.
    fn args(&self, who: &str, trusted: &Path) -> Vec<String> {
        let f = |n: &str| self.file(&format!("{who}-{n}.pem")).display().to_string();
        vec!["-p".into(), f("privkey"), "-c".into(), f("cert"), "-C".into(), trusted.display().to_string()]
    }
}

/// Serves `list_dbs` to everybody until `child` has ended.
fn serve_while(acceptor: &mut Acceptor, child: &mut Child) {
    let clock = Clock::new();
    let mut poller = Poller::new().unwrap();
    let mut open: Vec<Connection> = Vec::new();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < PATIENCE, "the client does not end");
        let now = clock.now();
        open.extend(acceptor.turn(now).into_iter().map(|s| Connection::new(s, Limits::default())));
        for c in &mut open {
            c.turn();
            if let Some(Message::Request { method, id, .. }) = c.recv() {
                assert_eq!(method, "list_dbs");
                c.send(&Message::Reply { result: json!(["from_us"]), id });
            }
        }
        open.retain(|c| c.closed().is_none());
        acceptor.want(&mut poller, now);
        open.iter().for_each(|c| c.want(&mut poller));
        poller.wait(Some(now.saturating_add(Nanos::from_ms(20))), &clock).unwrap();
    }
}

fn client_of_ours(tls: &Tls, program: &str, args: &[String]) -> Output {
    let mut acceptor = Acceptor::open("pssl:0:127.0.0.1", tls, None).unwrap();
    let port = acceptor.listener().local().unwrap().port();
    let args: Vec<String> = args.iter().map(|a| a.replace("PORT", &port.to_string())).collect();
    let mut child = Command::new(program)
        .args(&args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    serve_while(&mut acceptor, &mut child);
    child.wait_with_output().unwrap()
}

fn ovsdb_client(tls: &Tls, args: Vec<String>) -> Output {
    let mut all = vec!["--timeout=10".into()];
    all.extend(args);
    all.extend(["list-dbs".into(), "ssl:127.0.0.1:PORT".into()]);
    client_of_ours(tls, "ovsdb-client", &all)
}

#[test]
fn the_references_client_and_our_listener() {
    let pki = Pki::new();
    let tls = pki.tls("ctl", "switch");
    let o = ovsdb_client(&tls, pki.args("sc", &pki.ca("controller")));
    assert_eq!(String::from_utf8_lossy(&o.stdout), "from_us\n", "{}", String::from_utf8_lossy(&o.stderr));

    // It does not trust us.
    let o = ovsdb_client(&tls, pki.args("sc", &pki.ca("switch")));
    assert_eq!((o.status.success(), o.stdout.len()), (false, 0));
    // We do not trust it.
    let o = ovsdb_client(&tls, pki.args("ctl", &pki.ca("controller")));
    assert_eq!((o.status.success(), o.stdout.len()), (false, 0));

    // It fetches our authority first.
    let mut args = pki.args("sc", &pki.ca("controller"));
    args.truncate(4);
    let fetched = pki.file("fetched.pem");
    tls.set_peer_ca(Some(&pki.ca("controller")));
    args.push(format!("--bootstrap-ca-cert={}", fetched.display()));
    let o = ovsdb_client(&tls, args.clone());
    assert!(fetched.exists(), "{}", String::from_utf8_lossy(&o.stderr));
    let o = ovsdb_client(&tls, args);
    assert_eq!(String::from_utf8_lossy(&o.stdout), "from_us\n", "{}", String::from_utf8_lossy(&o.stderr));
}

#[test]
fn versions_are_limited_and_files_read_again() {
    let pki = Pki::new();
    let tls = pki.tls("ctl", "switch");
    let try_with = |tls: &Tls, version: &str| {
        let mut args: Vec<String> = ["s_client", "-connect", "127.0.0.1:PORT", version].map(String::from).into();
        let f = |n: &str| pki.file(n).display().to_string();
        args.extend(["-key".into(), f("sc-privkey.pem"), "-cert".into(), f("sc-cert.pem")]);
        args.extend(["-CAfile".into(), f("pki/controllerca/cacert.pem"), "-verify_return_error".into()]);
        let o = client_of_ours(tls, "openssl", &args);
        let text = String::from_utf8_lossy(&o.stdout);
        text.contains("Verify return code: 0 (ok)") && !text.contains("Cipher is (NONE)")
    };
    assert!(try_with(&tls, "-tls1_2"));
    assert!(try_with(&tls, "-tls1_3"));
    assert!(!try_with(&tls, "-tls1_1"));
    tls.set_protocols(Some("TLSv1.3"));
    assert!(!try_with(&tls, "-tls1_2"));
    assert!(try_with(&tls, "-tls1_3"));
    tls.set_protocols(Some("TLSv1.2"));
    tls.set_ciphers(Some("ECDHE-RSA-AES128-GCM-SHA256:NO-SUCH"));
    assert!(try_with(&tls, "-tls1_2"));

    // A certificate of the other authority takes its place.
    std::fs::copy(pki.file("sc-privkey.pem"), pki.file("ctl-privkey.pem")).unwrap();
    std::fs::copy(pki.file("sc-cert.pem"), pki.file("ctl-cert.pem")).unwrap();
    assert!(!try_with(&tls, "-tls1_2"));
    // One that cannot be used does not.
    std::fs::write(pki.file("ctl-cert.pem"), "junk").unwrap();
    assert!(Listener::open("pssl:0:127.0.0.1", &tls, None).is_ok());
}

/// Debian's database server with a TLS listener.
struct Server(Child, u16);

impl Server {
    fn start(pki: &Pki) -> Server {
        let d = pki.dir.path();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let db = pki.file("conf.db");
        let created = Command::new("ovsdb-tool").arg("create").arg(&db).arg(schema(pki)).output().unwrap();
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
        let child = Command::new("ovsdb-server")
            .env("OVS_RUNDIR", d)
            .arg(format!("--remote=pssl:{port}:127.0.0.1"))
            .arg("--unixctl=none")
            .arg(format!("--peer-ca-cert={}", pki.ca("controller").display()))
            .args(pki.args("ctl", &pki.ca("switch")))
            .arg(&db)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(start.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
        Server(child, port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn schema(pki: &Pki) -> PathBuf {
    let f = pki.file("schema");
    let text = json!({"name": "Example", "version": "1.0.0", "tables": {"T": {"columns": {"c": {"type": "string"}}}}});
    std::fs::write(&f, text.to_string()).unwrap();
    f
}

/// Asks `list_dbs` over a session; None if there is no connection in `tries` attempts.
fn ask(port: u16, tls: &Tls, tries: u32) -> Option<serde_json::Value> {
    let clock = Clock::new();
    let mut poller = Poller::new().unwrap();
    let name = format!("ssl:127.0.0.1:{port}");
    let mut s = Session::open(&[&name], tls, Limits::default(), clock.now());
    s.fsm_mut().set_backoff_free_tries(tries + 1);
    s.fsm_mut().set_max_tries(Some(tries));
    let mut asked = false;
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE);
        s.turn(clock.now());
        if s.is_connected() && !asked {
            asked = s.send(&Message::Request { method: "list_dbs".into(), params: vec![], id: 1.into() });
        }
        match s.recv() {
            Some(Message::Reply { result, .. }) => return Some(result),
            Some(m) => panic!("{m:?}"),
            None if !s.is_alive() => return None,
            None => {}
        }
        s.want(&mut poller, clock.now());
        poller.wait(None, &clock).unwrap();
    }
}

#[test]
fn our_client_and_the_references_server() {
    let pki = Pki::new();
    let server = Server::start(&pki);
    let expected = Some(json!(["Example", "_Server"]));
    assert_eq!(ask(server.1, &pki.tls("sc", "controller"), 1), expected);
    assert_eq!(ask(server.1, &pki.tls("sc", "switch"), 1), None, "not certified by whom we trust");
    assert_eq!(ask(server.1, &Tls::default(), 1), None, "nothing configured");

    let tls = pki.tls("sc", "controller");
    let fetched = pki.file("fetched.pem");
    tls.set_ca(Some(&fetched), true);
    assert_eq!(ask(server.1, &tls, 2), expected, "the first attempt fetches, the second is checked");
    let text = |p: &Path| std::fs::read_to_string(p).unwrap();
    assert!(text(&pki.ca("controller")).contains(text(&fetched).trim()));
}

#[test]
fn bulk_in_both_directions_between_ourselves() {
    let pki = Pki::new();
    let mut acceptor = Acceptor::open("pssl:0:[::1]", &pki.tls("ctl", "switch"), None).unwrap();
    let port = acceptor.listener().local().unwrap().port();
    assert_eq!(acceptor.listener().name(), format!("pssl:{port}:[::1]"));
    let name = format!("ssl:[::1]:{port}");
    let clock = Clock::new();
    let mut poller = Poller::new().unwrap();
    let mut client = Session::open(&[&name], &pki.tls("sc", "controller"), Limits::default(), clock.now());
    let mut server: Option<Connection> = None;
    let big = "x".repeat(3 << 20);
    let mut sent = false;
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE);
        client.turn(clock.now());
        if client.is_connected() && !sent {
            let m = Message::Request { method: "m".into(), params: vec![json!(big)], id: 1.into() };
            sent = client.send(&m);
        }
        if let Some(m) = client.recv() {
            assert_eq!(m, Message::Reply { result: json!([big]), id: 1.into() });
            break;
        }
        if let Some(s) = acceptor.turn(clock.now()).pop() {
            server = Some(Connection::new(s, Limits::default()));
        }
        if let Some(c) = &mut server {
            c.turn();
            if let Some(Message::Request { params, id, .. }) = c.recv() {
                c.send(&Message::echo_reply(params, id));
            }
            c.want(&mut poller);
        }
        acceptor.want(&mut poller, clock.now());
        client.want(&mut poller, clock.now());
        poller.wait(None, &clock).unwrap();
    }
}

#[test]
fn a_peer_that_does_not_shake_hands_is_dropped() {
    let pki = Pki::new();
    let mut acceptor = Acceptor::open("pssl:0:127.0.0.1", &pki.tls("ctl", "switch"), None).unwrap();
    let address = acceptor.listener().local().unwrap();
    let mut peers: Vec<_> = (0..3).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    std::io::Write::write_all(&mut peers[0], b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let clock = Clock::new();
    assert_eq!(acceptor.turn(clock.now()).len(), 0);
    clock.advance(Nanos::from_secs(11));
    assert_eq!(acceptor.turn(clock.now()).len(), 0);
    for p in &mut peers {
        p.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut all = Vec::new();
        // An alert may come first; then the end, in one way or the other.
        let end = std::io::Read::read_to_end(p, &mut all);
        assert!(end.is_ok() || end.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset));
    }
}
