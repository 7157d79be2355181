//! A bridge behind a socket, for the reference's tools: one thread, one bridge, no datapath.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use fv_core::{Clock, DpPort, Nanos, OfPort};
use fv_ofproto::{BridgeId, BridgeView, ConnId, Host, Kind, Ofproto, PortSpec, Settings};
use fv_openflow::OfError;
use fv_openflow::msg::packet::{PacketOut, Resume};
use fv_openflow::msg::port::{PortStats, QueueStats};

/// Outputs of packet-outs are counted as sent, nothing else happens.
#[derive(Default)]
pub struct TestHost {
    pub sent: HashMap<OfPort, (u64, u64)>,
    pub packet_outs: Vec<PacketOut>,
}

impl Host for TestHost {
    fn pull_stats(&mut self, _: BridgeId) {}
    fn port_stats(&mut self, _: BridgeId, port: OfPort) -> Option<PortStats> {
        let (tx_packets, tx_bytes) = self.sent.get(&port).copied().unwrap_or_default();
        Some(PortStats { rx_packets: 0, rx_bytes: 0, tx_packets, tx_bytes, ..PortStats::unknown(port) })
    }
    fn queue_stats(&mut self, _: BridgeId, _: OfPort) -> Vec<QueueStats> {
        Vec::new()
    }
    fn publish(&mut self, _: Arc<BridgeView>) {}
    fn hold_packet_out(&mut self, _: BridgeId, _: &PacketOut, _: Arc<BridgeView>) -> Result<(), OfError> {
        Ok(())
    }
    fn end_packet_outs(&mut self, _: bool) {}
    fn packet_out(&mut self, _: BridgeId, p: &PacketOut) -> Result<(), OfError> {
        for a in &p.actions {
            if let fv_openflow::Action::Output { port, .. } = a {
                let s = self.sent.entry(*port).or_default();
                *s = (s.0 + 1, s.1 + p.packet.len() as u64);
            }
        }
        self.packet_outs.push(p.clone());
        Ok(())
    }
    fn resume(&mut self, _: BridgeId, _: &Resume) -> Result<(), OfError> {
        Ok(())
    }
    fn set_admin_state(&mut self, _: BridgeId, _: OfPort, _: bool) -> Option<bool> {
        None
    }
}

type Job = Box<dyn FnOnce(&mut Ofproto, &mut TestHost, Nanos) + Send>;

pub struct Server {
    pub dir: PathBuf,
    _tmp: tempfile::TempDir,
    jobs: Option<Sender<Job>>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

fn bridge(now: Nanos, settings: Settings) -> Ofproto {
    let mut o = Ofproto::new(BridgeId(0), "br0", settings, now);
    for (ofp, dp, name, last) in [(OfPort::LOCAL.0, 0, "br0", 0), (1, 1, "p1", 0x0a), (2, 2, "p2", 9)] {
        o.set_port(
            PortSpec {
                ofp: OfPort(ofp),
                dp_port: Some(DpPort(dp)),
                name: name.into(),
                hw_addr: [0xaa, 0x55, 0xaa, 0x55, 0, last],
                ..PortSpec::default()
            },
            now,
        );
    }
    o
}

impl Server {
    /// Serves `br0` with ports p1 and p2, as `br0.mgmt` and `br0.snoop` in `dir`.
    pub fn start() -> Server {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().to_owned();
        let (jobs, todo) = channel();
        let (wake, woken) = UnixStream::pair().unwrap();
        let clock = Clock::new();
        let mgmt = listen(&dir, "br0.mgmt");
        let snoop = listen(&dir, "br0.snoop");
        let thread =
            std::thread::spawn(move || serve(&[(mgmt, Kind::Service), (snoop, Kind::Snoop)], &todo, &woken, &clock));
        Server { dir, _tmp: tmp, jobs: Some(jobs), wake, thread: Some(thread) }
    }

    /// Runs `f` on the bridge, in its thread, and waits for it.
    pub fn with<T: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Ofproto, &mut TestHost, Nanos) -> T + Send + 'static,
    ) -> T {
        let (tx, rx) = channel();
        let job: Job = Box::new(move |o, h, now| {
            let _ = tx.send(f(o, h, now));
        });
        self.jobs.as_ref().unwrap().send(job).unwrap();
        (&self.wake).write_all(&[0]).unwrap();
        rx.recv().unwrap()
    }

    /// Looks at the bridge until it is as expected.
    pub fn wait_for(&self, is: fn(&Ofproto) -> bool) {
        let begun = std::time::Instant::now();
        while !self.with(move |o, _, _| is(o)) {
            assert!(begun.elapsed().as_secs() < 20, "it does not happen");
            std::thread::yield_now();
        }
    }

    pub fn ofctl(&self) -> Command {
        let mut c = Command::new("ovs-ofctl");
        c.env("OVS_RUNDIR", &self.dir).env("OVS_LOGDIR", &self.dir).arg("--timeout=20");
        c
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.jobs = None;
        let _ = (&self.wake).write_all(&[0]);
        if let Some(t) = self.thread.take() {
            t.join().unwrap();
        }
    }
}

fn listen(dir: &Path, name: &str) -> UnixListener {
    let l = UnixListener::bind(dir.join(name)).unwrap();
    l.set_nonblocking(true).unwrap();
    l
}

/// Until the other end of `todo` is gone.
fn serve(listeners: &[(UnixListener, Kind)], todo: &Receiver<Job>, woken: &UnixStream, clock: &Clock) {
    woken.set_nonblocking(true).unwrap();
    let mut host = TestHost::default();
    let settings = Settings { dpid: 0xfedc_ba98_7654_3210, ..Settings::default() };
    let mut o = bridge(clock.now(), settings);
    let mut streams: HashMap<ConnId, UnixStream> = HashMap::new();
    loop {
        wait(listeners, &streams, woken, &o);
        let _ = Read::read(&mut &*woken, &mut [0; 64]);
        loop {
            match todo.try_recv() {
                Ok(job) => job(&mut o, &mut host, clock.now()),
                Err(std::sync::mpsc::TryRecvError::Empty) => break,
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
            }
        }
        for (l, kind) in listeners {
            while let Ok((s, _)) = l.accept() {
                s.set_nonblocking(true).unwrap();
                streams.insert(o.connect(*kind, "unix", clock.now()), s);
            }
        }
        let mut gone: Vec<ConnId> =
            streams.iter().filter(|(id, s)| !read(&mut o, **id, s, clock)).map(|(id, _)| *id).collect();
        while o.turn(clock.now(), 1000, &mut host).more {}
        for (id, s) in &mut streams {
            while let Some(out) = o.connection(*id).map(|c| c.output().to_vec()).filter(|o| !o.is_empty()) {
                match s.write(&out) {
                    Ok(n) => o.sent(*id, n),
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => {
                        gone.push(*id);
                        break;
                    }
                }
            }
            if o.closed(*id).is_some() {
                gone.push(*id);
            }
        }
        for id in gone {
            streams.remove(&id);
            o.disconnect(id);
        }
    }
}

/// False if the peer is gone.
fn read(o: &mut Ofproto, id: ConnId, mut s: &UnixStream, clock: &Clock) -> bool {
    let mut buf = [0; 65536];
    while o.connection(id).is_some_and(|c| c.wants_read()) {
        match s.read(&mut buf) {
            Ok(0) => return false,
            Ok(n) => o.receive(id, &buf[..n], clock.now()),
            Err(e) => return e.kind() == ErrorKind::WouldBlock,
        }
    }
    true
}

fn wait(listeners: &[(UnixListener, Kind)], streams: &HashMap<ConnId, UnixStream>, woken: &UnixStream, o: &Ofproto) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = vec![PollFd::from_borrowed_fd(woken.as_fd(), PollFlags::IN)];
    fds.extend(listeners.iter().map(|(l, _)| PollFd::from_borrowed_fd(l.as_fd(), PollFlags::IN)));
    for (id, s) in streams {
        let Some(c) = o.connection(*id) else { continue };
        let mut want = PollFlags::empty();
        want.set(PollFlags::IN, c.wants_read());
        want.set(PollFlags::OUT, !c.output().is_empty());
        fds.push(PollFd::from_borrowed_fd(s.as_fd(), want));
    }
    let tenth = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    let _ = poll(&mut fds, Some(&tenth));
}
