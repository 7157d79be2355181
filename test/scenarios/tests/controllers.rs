//! A controller of a few lines, to which the switch connects: it comes, goes, and stays silent.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use fv_testkit::{Daemon, Env, OfConn, message, wait_until};

const FRAME: &str = "in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x1234)";
const HELLO: u8 = 0;
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;
const FEATURES_REQUEST: u8 = 5;
const FEATURES_REPLY: u8 = 6;
const PACKET_IN: u8 = 10;
const FLOW_MOD: u8 = 14;
const VERSION: u8 = 4;

struct Peer(TcpStream);

impl Peer {
    fn accept(l: &TcpListener) -> Peer {
        let (s, _) = l.accept().expect("a connection");
        s.set_read_timeout(Some(Duration::from_secs(15))).expect("timeout");
        let mut p = Peer(s);
        p.send(HELLO, 1, &[]);
        p
    }

    fn send(&mut self, kind: u8, xid: u32, body: &[u8]) {
        let mut m = vec![VERSION, kind];
        m.extend_from_slice(&u16::try_from(8 + body.len()).expect("short").to_be_bytes());
        m.extend_from_slice(&xid.to_be_bytes());
        m.extend_from_slice(body);
        self.0.write_all(&m).expect("sent");
    }

    /// The next message: type, transaction id, body.
    fn recv(&mut self) -> (u8, u32, Vec<u8>) {
        let mut h = [0; 8];
        self.0.read_exact(&mut h).expect("a message");
        let len = usize::from(u16::from_be_bytes([h[2], h[3]]));
        let mut body = vec![0; len.saturating_sub(8)];
        self.0.read_exact(&mut body).expect("its body");
        (h[1], u32::from_be_bytes([h[4], h[5], h[6], h[7]]), body)
    }

    /// Answers echo requests until a message of that type comes.
    fn until(&mut self, kind: u8) -> Vec<u8> {
        loop {
            let (k, xid, body) = self.recv();
            if k == kind {
                return body;
            }
            if k == ECHO_REQUEST {
                self.send(ECHO_REPLY, xid, &body);
            }
        }
    }
}

fn setup(fail_mode: &str, probe_ms: u32) -> (Env, TcpListener, String) {
    let e = Env::dummy(Daemon::Ours);
    e.add_dummy_bridge("br0", 1..=2);
    let l = TcpListener::bind("127.0.0.1:0").expect("a port");
    let target = format!("tcp:127.0.0.1:{}", l.local_addr().expect("address").port());
    e.vsctl(&format!(
        "set-fail-mode br0 {fail_mode} -- set-controller br0 {target} -- \
         set Controller br0 inactivity_probe={probe_ms} max_backoff=1000"
    ));
    (e, l, target)
}

fn connected(e: &Env) -> bool {
    e.vsctl("--bare --columns=is_connected --no-headings list Controller").trim() == "true"
}

fn frame_leaves(e: &Env) -> bool {
    let before = e.ofctl("dump-ports br0 p2");
    e.appctl(&format!("netdev-dummy/receive p1 '{FRAME}'"));
    e.ofctl("dump-ports br0 p2") != before
}

#[test]
fn a_controller_programs_the_switch_and_hears_from_it() {
    let (mut e, l, _) = setup("secure", 5000);
    let mut c = Peer::accept(&l);
    c.until(HELLO);
    c.send(FEATURES_REQUEST, 7, &[]);
    let features = c.until(FEATURES_REPLY);
    assert_eq!(features.len(), 24);
    wait_until("the row says connected", 10, || connected(&e));
    let role = e.vsctl("--bare --columns=role --no-headings list Controller");
    assert_eq!(role.trim(), "other");

    // A rule that matches everything and sends to the controller.
    let mut fm = vec![0; 16];
    fm.extend([0, 0, 0, 0, 0, 0, 0x80, 0]);
    fm.extend([0xff; 12]);
    fm.extend([0, 0, 0, 0]);
    fm.extend([0, 1, 0, 4, 0, 0, 0, 0]);
    fm.extend([0, 4, 0, 24, 0, 0, 0, 0]);
    fm.extend([0, 0, 0, 16, 0xff, 0xff, 0xff, 0xfd, 0xff, 0xff, 0, 0, 0, 0, 0, 0]);
    c.send(FLOW_MOD, 8, &fm);
    wait_until("the rule", 5, || e.ofctl("dump-flows br0").contains("actions=CONTROLLER:65535"));
    e.appctl(&format!("netdev-dummy/receive p1 '{FRAME}'"));
    let packet_in = c.until(PACKET_IN);
    assert!(packet_in.windows(6).any(|w| w == [0x50, 0x54, 0, 0, 0, 1]), "{packet_in:x?}");
    e.healthy(&["connection"]);
}

#[test]
fn without_its_controller_a_standalone_bridge_forwards_by_itself() {
    let (mut e, l, _) = setup("standalone", 1000);
    let mut c = Peer::accept(&l);
    c.until(HELLO);
    c.send(FEATURES_REQUEST, 7, &[]);
    c.until(FEATURES_REPLY);
    wait_until("connected", 10, || connected(&e));
    assert!(!frame_leaves(&e), "the controller has not said anything");
    drop(c);
    drop(l);
    wait_until("disconnected", 10, || !connected(&e));
    wait_until("it forwards by itself", 30, || frame_leaves(&e));
    e.healthy(&["connection", "forwarding", "fail"]);
}

#[test]
fn a_silent_controller_is_given_up_and_tried_again() {
    let (mut e, l, _) = setup("secure", 1000);
    let mut c = Peer::accept(&l);
    c.until(HELLO);
    // Echo requests stay without an answer: the switch closes and connects again.
    let mut rest = Vec::new();
    let _ = c.0.read_to_end(&mut rest);
    let mut again = Peer::accept(&l);
    again.until(HELLO);
    assert!(!frame_leaves(&e), "secure: nothing is forwarded meanwhile");
    e.healthy(&["connection", "no response", "inactivity"]);
}

#[test]
fn rules_of_a_secure_bridge_outlive_its_controller() {
    let (mut e, l, target) = setup("secure", 5000);
    let mut c = Peer::accept(&l);
    c.until(HELLO);
    e.ofctl("add-flow br0 in_port=1,actions=2");
    assert!(frame_leaves(&e));
    drop(c);
    drop(l);
    wait_until("disconnected", 10, || !connected(&e));
    assert!(frame_leaves(&e));
    assert!(e.vsctl("get-controller br0").contains(&target));
    e.healthy(&["connection"]);
}

#[test]
fn garbage_from_a_controller_costs_its_connection_only() {
    let (mut e, l, _) = setup("secure", 5000);
    for junk in
        [vec![0xff; 64], vec![4, 0, 0, 4, 0, 0, 0, 1], vec![9, 0, 0, 8, 0, 0, 0, 1], vec![4, 14, 0xff, 0xff, 0, 0]]
    {
        let (mut s, _) = l.accept().expect("a connection");
        let _ = s.write_all(&junk);
        let _ = s.shutdown(std::net::Shutdown::Write);
        let _ = s.set_read_timeout(Some(Duration::from_secs(10)));
        let _ = s.read_to_end(&mut Vec::new());
    }
    assert!(e.ofctl("show br0").contains("1(p1)"));
    assert!(e.proc("daemon").running());
}

/// Who connects to a passive target is probed like a controller; a tool on the management socket is not.
#[test]
fn a_silent_guest_of_a_passive_target_is_given_up() {
    let e = Env::dummy(Daemon::Ours);
    e.add_dummy_bridge("br0", 1..=2);
    // A port that is free now.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
    e.vsctl(&format!("set-controller br0 ptcp:{port}:127.0.0.1 -- set Controller br0 inactivity_probe=1000"));
    let mut stream = None;
    wait_until("it listens", 10, || {
        stream = TcpStream::connect(("127.0.0.1", port)).ok();
        stream.is_some()
    });
    let stream = stream.expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("timeout");
    let mut guest = OfConn::greet(stream, VERSION);
    let mut tool = OfConn::open(&e.path("br0.mgmt"), VERSION);
    wait_until("the row says connected", 10, || connected(&e));
    // Less than five seconds is taken for five.
    let asked = std::time::Instant::now();
    assert_eq!(guest.recv().expect("a probe")[1], ECHO_REQUEST);
    assert!(asked.elapsed() > Duration::from_secs(3), "{:?}", asked.elapsed());
    assert_eq!(guest.recv(), None);
    // The guest is gone; the tool, as silent, has heard nothing.
    assert!(tool.ask(&[]).messages.is_empty());
}

#[test]
fn the_row_of_a_controller_tells_its_state() {
    let (e, l, _) = setup("secure", 5000);
    let column = |c: &str| e.vsctl(&format!("--bare --columns={c} --no-headings list Controller")).trim().to_owned();
    let mut c = Peer::accept(&l);
    c.until(HELLO);
    wait_until("active", 10, || column("status").contains("state=ACTIVE"));
    assert!(column("status").contains("sec_since_connect="), "{}", column("status"));
    c.until(ECHO_REQUEST);
    wait_until("idle", 10, || column("status").contains("state=IDLE"));
    // A role is told.
    let mut role = vec![0, 0, 0, 2, 0, 0, 0, 0];
    role.extend([0; 8]);
    c.send(ECHO_REPLY, 0, &[]);
    c.send(24, 5, &role);
    c.until(25);
    wait_until("the role", 10, || column("role") == "master");
    drop(c);
    drop(l);
    wait_until("refused", 20, || column("status").contains("last_error=Connection refused"));
    assert!(column("status").contains("sec_since_disconnect="), "{}", column("status"));
    assert_eq!((column("is_connected").as_str(), column("role").as_str()), ("false", ""));
}

/// `enable_async_messages=false`: nothing comes unasked until the controller says what it wants.
#[test]
fn a_controller_may_begin_without_asynchronous_messages() {
    const PORT_STATUS: u8 = 12;
    let (e, l, _) = setup("secure", 60_000);
    e.vsctl("set Controller br0 enable_async_messages=false");
    let (s, _) = l.accept().expect("a connection");
    drop(s);
    let mut c = Peer::accept(&l);
    c.until(HELLO);
    wait_until("connected", 10, || connected(&e));
    e.ofctl("mod-port br0 p1 no-flood");
    c.send(FEATURES_REQUEST, 7, &[]);
    assert_eq!(c.recv().0, FEATURES_REPLY, "no word of the port");
    // All reasons of port status, as primary or equal; nothing else.
    let masks: Vec<u8> = [0u32, 0, 7, 0, 0, 0].iter().flat_map(|m| m.to_be_bytes()).collect();
    c.send(28, 8, &masks);
    c.send(FEATURES_REQUEST, 9, &[]);
    c.until(FEATURES_REPLY);
    e.ofctl("mod-port br0 p1 flood");
    assert_eq!(c.recv().0, PORT_STATUS);
}

/// Who asks to hear of every change of groups and then does not read is given up at the limit of what
/// may wait; nobody else waits for that.
#[test]
fn who_does_not_read_is_given_up_and_delays_nobody() {
    const V14: u8 = 5;
    const XID: [u8; 4] = [0, 0, 0, 9];
    let mut e = Env::dummy(Daemon::Ours);
    e.add_dummy_bridge("br0", 1..=2);
    let open = || OfConn::open(&e.path("br0.mgmt"), V14);
    let (mut deaf, mut busy, mut other) = (open(), open(), open());
    // A tool that gets unasked messages, and wants group-mods of others.
    let config = message(V14, 9, XID, &[0, 0, 0, 128]);
    let wants = message(V14, 28, XID, &[0, 11, 0, 8, 0, 0, 0, 1]);
    assert_eq!(deaf.ask(&[config, wants].concat()).messages, Vec::<Vec<u8>>::new());
    // A group of 1500 buckets, 48 kB, again and again.
    let bucket: [u8; 32] = {
        let mut b = [0; 32];
        b[1] = 32;
        b[4..12].fill(0xff);
        b[17] = 0;
        b[19] = 16;
        b[23] = 1;
        b
    };
    let group = |command: u8| {
        let mut body = vec![0, command, 0, 0, 0, 0, 0, 1];
        body.extend((0..1500).flat_map(|_| bucket));
        message(V14, 15, XID, &body)
    };
    assert!(busy.ask(&group(0)).messages.is_empty());
    let mut slowest = Duration::ZERO;
    // 24 MB, more than may wait and than sockets hold.
    for _ in 0..500 {
        busy.send(&group(1));
        let asked = std::time::Instant::now();
        assert!(!other.ask(&[]).closed);
        slowest = slowest.max(asked.elapsed());
    }
    assert!(busy.ask(&[]).messages.is_empty());
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    // What had been sent can be read; then it ends.
    let mut heard = 0;
    while let Some(m) = deaf.recv() {
        assert_eq!((m[1], &m[4..8]), (32, &[0; 4][..]), "a request that is passed on");
        heard += 1;
    }
    assert!(heard < 500, "{heard}");
    e.healthy(&["connection"]);
}
