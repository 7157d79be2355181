//! Streams and sessions on loopback and Unix sockets.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use fv_core::{Clock, Nanos};
use fv_rpc::jsonrpc::{Closed, Limits};
use fv_rpc::{Connection, Listener, Message, Poller, Session, Stream, Tls};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(20);

/// Turns `s` until `done`; time is real.
fn until(s: &mut Session, poller: &mut Poller, clock: &Clock, mut done: impl FnMut(&mut Session) -> bool) {
    let start = Instant::now();
    loop {
        s.turn(clock.now());
        if done(s) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "state {}", s.fsm().state());
        s.want(poller, clock.now());
        poller.wait(Some(clock.now().saturating_add(Nanos::from_ms(10))), clock).unwrap();
    }
}

fn setup(remotes: &[&str]) -> (Session, Poller, Clock) {
    let clock = Clock::new();
    (Session::open(remotes, &Tls::default(), Limits::default(), clock.now()), Poller::new().unwrap(), clock)
}

#[test]
fn a_session_comes_up_answers_echo_and_comes_back() {
    let l = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut s, mut p, clock) = setup(&[&format!("tcp:{}", l.local_addr().unwrap())]);
    until(&mut s, &mut p, &clock, |s| s.is_connected());
    let (mut peer, _) = l.accept().unwrap();
    let first = s.seqno();
    peer.write_all(br#"{"method":"echo","params":["a"],"id":3}{"method":"hello","params":[],"id":null}"#).unwrap();
    let mut got = None;
    until(&mut s, &mut p, &clock, |s| {
        got = got.take().or(s.recv());
        got.is_some()
    });
    assert_eq!(got, Some(Message::Notify { method: "hello".into(), params: vec![] }));
    let mut b = [0; 256];
    let n = peer.read(&mut b).unwrap();
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&b[..n]).unwrap(),
        json!({"id": 3, "result": ["a"], "error": null})
    );

    drop(peer);
    until(&mut s, &mut p, &clock, |s| !s.is_connected());
    until(&mut s, &mut p, &clock, |s| s.is_connected());
    assert!(s.seqno() > first);
}

#[test]
fn a_silent_peer_is_probed_and_dropped() {
    let l = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut s, mut p, clock) = setup(&[&format!("tcp:{}", l.local_addr().unwrap())]);
    until(&mut s, &mut p, &clock, |s| s.is_connected());
    let (mut peer, _) = l.accept().unwrap();
    clock.advance(Nanos::from_secs(6));
    s.turn(clock.now());
    let mut b = [0; 256];
    let n = peer.read(&mut b).unwrap();
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&b[..n]).unwrap(),
        json!({"id": "echo", "method": "echo", "params": []})
    );
    // An answer that was there before the thread came back from a long sleep counts.
    peer.write_all(br#"{"id":"echo","result":[],"error":null}"#).unwrap();
    clock.advance(Nanos::from_secs(6));
    until(&mut s, &mut p, &clock, |s| s.fsm().state() == fv_rpc::reconnect::State::Active);
    assert_eq!(s.recv(), None);
    clock.advance(Nanos::from_secs(6));
    s.turn(clock.now());
    clock.advance(Nanos::from_secs(6));
    s.turn(clock.now());
    assert!(!s.is_connected());
}

#[test]
fn the_second_remote_is_tried_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("there");
    let _l = UnixListener::bind(&path).unwrap();
    let missing = format!("unix:{}", dir.path().join("missing").display());
    let (mut s, _, clock) = setup(&[&missing, &format!("unix:{}", path.display())]);
    for _ in 0..3 {
        s.turn(clock.now());
    }
    assert!(s.is_connected());
    assert!(s.name().ends_with("there"));
}

#[test]
fn a_passive_session_takes_the_newest_peer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sock");
    let (mut s, mut p, clock) = setup(&[&format!("punix:{}", path.display())]);
    until(&mut s, &mut p, &clock, |_| path.exists());
    let mut old = UnixStream::connect(&path).unwrap();
    until(&mut s, &mut p, &clock, |s| s.is_connected());
    let first = s.seqno();
    let _new = UnixStream::connect(&path).unwrap();
    until(&mut s, &mut p, &clock, |s| s.is_connected() && s.seqno() > first);
    assert_eq!(old.read(&mut [0; 8]).unwrap(), 0);
}

#[test]
fn garbage_and_floods_close_the_connection() {
    let connection = |limits| {
        let (a, b) = UnixStream::pair().unwrap();
        a.set_nonblocking(true).unwrap();
        (Connection::new(Stream::from_fd("pair", a.into()), limits), b)
    };
    let small = Limits { message_bytes: 64, backlog_bytes: 4 << 20 };
    let check = |input: &[u8], expected: &str| {
        let (mut c, mut peer) = connection(small);
        peer.write_all(input).unwrap();
        c.turn();
        match c.closed() {
            Some(Closed::Protocol(e)) => assert!(e.contains(expected), "{e}"),
            other => panic!("{other:?}"),
        }
    };
    check(b"GET / HTTP/1.0\r\n", "neither an object nor an array");
    check(&[b'['; 2000], "deeper");
    check(&[&b"{\"a\":\""[..], &[b'x'; 100]].concat(), "longer");
    check(b"{\"a\" 1}", "expected");
    check(b"[1]", "not a JSON object");
    check(b"{\"method\":\"\xff\",\"params\":[]}", "");

    let (mut c, peer) = connection(small);
    let m = Message::Notify { method: "x".repeat(1 << 20), params: vec![] };
    (0..8).for_each(|_| c.send(&m));
    assert_eq!(c.closed(), Some(&Closed::Protocol("output backlog is too long".into())));
    drop(peer);

    // What came before the end is still there.
    let (mut c, mut peer) = connection(small);
    peer.write_all(b"{\"method\":\"m\",\"params\":[],\"id\":1} {\"meth").unwrap();
    drop(peer);
    c.turn();
    assert!(c.recv().is_some());
    assert_eq!(c.closed(), Some(&Closed::Eof));
}

#[test]
fn unix_sockets_have_a_mode_and_any_length_of_path() {
    let dir = tempfile::tempdir().unwrap();
    let long = dir.path().join("d".repeat(120));
    std::fs::create_dir(&long).unwrap();
    let path = long.join("s");
    let mut l = Listener::open(&format!("punix:{}", path.display()), &Tls::default(), None).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o707, 0o700);
    let mut s = Stream::open(&format!("unix:{}", path.display()), &Tls::default(), None, 0).unwrap();
    assert!(s.connect().unwrap());
    let a = l.accept(Nanos::ZERO).unwrap().unwrap();
    assert!(a.name().starts_with("unix#"));
    drop(l);
    assert!(!path.exists());
}

#[test]
fn what_cannot_connect_says_why() {
    let check = |name: &str, expected: &str| {
        let clock = Clock::new();
        let error = match Stream::open(name, &Tls::default(), Some(1), 0) {
            Err(e) => e.reason(),
            Ok(mut s) => loop {
                match s.connect() {
                    Ok(true) => panic!("{name} connected"),
                    Ok(false) => assert!(clock.now().secs() < 1020),
                    Err(e) => break fv_rpc::stream::errno_text(&e),
                }
            },
        };
        assert_eq!(error, expected, "{name}");
    };
    check("tcp:127.0.0.1:1", "Connection refused");
    check("tcp:[::1]:1", "Connection refused");
    check("unix:/nonexistent/x", "No such file or directory");
    check("ssl:127.0.0.1:1", "Protocol not available");
    check("foo:bar", "Address family not supported by protocol");
}
