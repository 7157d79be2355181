//! Namespaces, far ends and a forwarder for tests against the running kernel.
#![allow(dead_code)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fv_hostnet::{Rtnl, netns};
use fv_netdev::{Device, RxQueue};
use fv_packet::{Batch, Csum, Packet};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub fn run(program: &str, args: &[&str]) -> String {
    let o = Command::new(program).args(args).output().expect("runs");
    assert!(o.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&o.stderr));
    String::from_utf8_lossy(&o.stdout).into_owned()
}

/// A namespace that goes away with the value, and everything in it, also when the test fails.
pub struct Ns(pub String);

impl Ns {
    pub fn new(tag: &str) -> Ns {
        let ns = Ns(format!("fvn{}{tag}", std::process::id()));
        run("ip", &["netns", "add", &ns.0]);
        ns.ip("link set lo up");
        // No router solicitations and the like among the frames of a test.
        ns.exec("sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
        ns
    }
    pub fn fd(&self) -> OwnedFd {
        netns::named(&self.0).expect("namespace")
    }
    pub fn ip(&self, args: &str) -> String {
        let mut all = vec!["-n", &self.0];
        all.extend(args.split(' '));
        run("ip", &all)
    }
    pub fn exec(&self, command: &str) -> String {
        let mut all = vec!["netns", "exec", &self.0];
        all.extend(command.split(' '));
        run("ip", &all)
    }
    /// Runs `f` with this thread, and those that it starts, inside.
    pub fn inside<T>(&self, f: impl FnOnce() -> T) -> T {
        netns::inside(self.fd().as_fd(), f).expect("enter")
    }
    /// A far end: `eth0` here, with address 198.18.0.N/24, joined to `port` in `switch`.
    pub fn plug(&self, switch: &Ns, port: &str, n: u8, mtu: u32) {
        switch.ip(&format!("link add {port} mtu {mtu} type veth peer name eth0 netns {}", self.0));
        self.ip(&format!("link set eth0 mtu {mtu} up"));
        self.ip(&format!("addr add 198.18.0.{n}/24 dev eth0"));
        switch.ip(&format!("link set {port} up"));
        // Until the kernel has put the queues in place it drops what is sent, and says nothing.
        for (ns, name) in [(self, "eth0"), (switch, port)] {
            let mut rtnl = Rtnl::open_in(ns.fd().as_fd()).expect("rtnetlink");
            until("link up", || rtnl.link_by_name(name).is_ok_and(|l| l.is_running()));
        }
    }
    /// TCP and UDP checksum errors seen here.
    pub fn checksum_errors(&self) -> u64 {
        let text = self.exec("cat /proc/net/snmp");
        let mut errors = 0;
        for kind in ["Tcp:", "Udp:"] {
            let mut lines = text.lines().filter(|l| l.starts_with(kind));
            let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
            let at = names.split(' ').position(|n| n == "InCsumErrors").expect("counted");
            errors += values.split(' ').nth(at).expect("value").parse::<u64>().expect("number");
        }
        errors
    }
}

impl Drop for Ns {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// Fails after ten seconds.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::yield_now();
    }
}

/// Waits until `q` has packets and appends them.
pub fn recv(q: &mut dyn RxQueue, out: &mut Batch, what: &str) {
    let end = Instant::now() + Duration::from_secs(10);
    while q.recv(out).expect("recv") == 0 {
        assert!(Instant::now() < end, "nothing received: {what}");
        wait(&[q], 100);
    }
}

pub fn wait(queues: &[&mut dyn RxQueue], timeout_ms: i64) {
    let mut fds: Vec<_> =
        queues.iter().map(|q| PollFd::from_borrowed_fd(q.fd().expect("descriptor"), PollFlags::IN)).collect();
    let _ = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: timeout_ms * 1_000_000 }));
}

#[derive(Default)]
pub struct Moved {
    pub packets: AtomicU64,
    pub segmented: AtomicU64,
    pub partial: AtomicU64,
    pub longest: AtomicU64,
    pub dropped: AtomicU64,
}

/// Moves packets between two devices until it is dropped.
pub struct Forwarder {
    stop: Arc<AtomicBool>,
    pub moved: Arc<Moved>,
    thread: Option<JoinHandle<()>>,
}

impl Forwarder {
    pub fn start(a: &dyn Device, b: &dyn Device) -> Forwarder {
        Forwarder::with(a, b, |_, _| {})
    }

    /// `change` sees each packet and which way it goes (0: from a to b).
    pub fn with(a: &dyn Device, b: &dyn Device, change: fn(usize, &mut Packet)) -> Forwarder {
        let mut rx = [a.open_rxq(0).expect("rxq"), b.open_rxq(0).expect("rxq")];
        let mut tx = [b.open_txq(0).expect("txq"), a.open_txq(0).expect("txq")];
        let (stop, moved) = (Arc::new(AtomicBool::new(false)), Arc::new(Moved::default()));
        let (s, m) = (stop.clone(), moved.clone());
        let thread = std::thread::spawn(move || {
            let mut batch = Batch::new();
            while !s.load(Relaxed) {
                let mut n = 0;
                for (way, (rx, tx)) in rx.iter_mut().zip(&mut tx).enumerate() {
                    n += rx.recv(&mut batch).expect("recv");
                    batch.iter_mut().for_each(|p| change(way, p));
                    m.count(&batch);
                    let sent = tx.send(&mut batch);
                    m.dropped.fetch_add(sent.dropped.into(), Relaxed);
                }
                if n == 0 {
                    let [a, b] = &mut rx;
                    wait(&[a.as_mut(), b.as_mut()], 10);
                }
            }
        });
        Forwarder { stop, moved, thread: Some(thread) }
    }
}

impl Moved {
    fn count(&self, batch: &Batch) {
        for p in batch {
            self.packets.fetch_add(1, Relaxed);
            self.segmented.fetch_add(u64::from(p.meta().gso.is_some()), Relaxed);
            self.partial.fetch_add(u64::from(p.meta().csum == Csum::Partial), Relaxed);
            self.longest.fetch_max(p.len() as u64, Relaxed);
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        let r = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            r.expect("running").expect("the forwarder did not fail");
        }
    }
}

/// Sends `len` patterned bytes from `client` to `server` over TCP and checks them there.
pub fn tcp(client: &Ns, server: &Ns, server_ip: &str, len: usize) {
    let at: SocketAddr = format!("{server_ip}:5001").parse().expect("address");
    let listener = server.inside(|| TcpListener::bind(at).expect("bind"));
    let byte = |i: usize| (i * 7 + (i >> 8)) as u8;
    let timeout = Some(Duration::from_secs(10));
    std::thread::scope(|s| {
        s.spawn(move || {
            let (mut c, _) = listener.accept().expect("accept");
            c.set_read_timeout(timeout).expect("timeout");
            let mut got = Vec::new();
            c.read_to_end(&mut got).expect("read");
            assert_eq!(got.len(), len);
            assert!(got.iter().enumerate().all(|(i, &b)| b == byte(i)), "bytes differ");
            c.write_all(b"ok").expect("answer");
        });
        let mut c = client.inside(|| TcpStream::connect_timeout(&at, Duration::from_secs(10)).expect("connect"));
        c.set_write_timeout(timeout).expect("timeout");
        c.set_read_timeout(timeout).expect("timeout");
        let data: Vec<u8> = (0..len).map(byte).collect();
        c.write_all(&data).expect("write");
        c.shutdown(std::net::Shutdown::Write).expect("shutdown");
        let mut answer = String::new();
        c.read_to_string(&mut answer).expect("answer");
        assert_eq!(answer, "ok");
    });
}

/// One datagram of `len` bytes there and back.
pub fn udp(client: &Ns, server: &Ns, client_ip: &str, server_ip: &str, len: usize) {
    let bind = |ns: &Ns, ip: &str| {
        let s = ns.inside(|| UdpSocket::bind(format!("{ip}:5002")).expect("bind"));
        s.set_read_timeout(Some(Duration::from_secs(10))).expect("timeout");
        s
    };
    let (c, s) = (bind(client, client_ip), bind(server, server_ip));
    let data: Vec<u8> = (0..len).map(|i| i as u8).collect();
    c.send_to(&data, s.local_addr().expect("address")).expect("send");
    let mut buf = vec![0; 65536];
    let (n, from) = s.recv_from(&mut buf).expect("receive");
    assert_eq!(buf[..n], data);
    s.send_to(&buf[..n], from).expect("send back");
    assert_eq!(c.recv_from(&mut buf).expect("receive").0, len);
}

/// A frame of a local experimental type whose payload says `tag`.
pub fn frame(tag: u8, len: usize) -> Packet {
    let mut p = Packet::from_slice(&vec![tag; len]);
    p.data_mut()[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    p
}

pub fn batch(packets: impl IntoIterator<Item = Packet>) -> Batch {
    let mut b = Batch::new();
    packets.into_iter().for_each(|p| b.push(p).expect("room"));
    b
}

/// `UDP_SEGMENT`: the kernel cuts what is sent into datagrams of `size` bytes, as late as it can.
#[allow(unsafe_code)]
pub fn udp_segment(socket: &UdpSocket, size: i32) {
    use std::os::fd::AsRawFd;
    const UDP_SEGMENT: i32 = 103;
    // SAFETY: the value pointer and its length describe a live i32.
    let r = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, UDP_SEGMENT, (&raw const size).cast(), 4) };
    assert_eq!(r, 0);
}
