//! Ports of virtual machines: a front end of the test's own, and DPDK's.

use fv_testkit::vhost::{FrontEnd, Waiting, req};
use fv_testkit::{Env, unique, wait_until, wait_value};

/// A bridge with ports v0, v1, ... of these types, each of which sends to its neighbour.
struct Lan {
    env: Env,
    bridge: String,
}

impl Lan {
    fn new(kinds: &[&str]) -> Lan {
        let mut env = Env::new();
        env.start_db();
        env.start(fv_testkit::Daemon::Ours, "");
        let bridge = unique("fvb");
        let mut line = format!("add-br {bridge} -- set bridge {bridge} datapath_type=netdev fail-mode=secure");
        for (n, kind) in kinds.iter().enumerate() {
            line += &format!(
                " -- add-port {bridge} v{n} -- set Interface v{n} type={kind} ofport_request={} \
                 options:vhost-server-path={}",
                n + 1,
                env.file(&format!("v{n}.sock"))
            );
        }
        env.vsctl(&line);
        for n in (1..=kinds.len()).step_by(2) {
            env.ofctl(&format!("add-flow {bridge} in_port={n},actions={}", n + 1));
            env.ofctl(&format!("add-flow {bridge} in_port={},actions={n}", n + 1));
        }
        Lan { env, bridge }
    }

    /// The front end of server port `n`.
    fn connect(&self, n: usize, pairs: usize) -> FrontEnd {
        FrontEnd::connect(&self.env.path(&format!("v{n}")), pairs)
    }

    fn listen(&self, n: usize) -> Waiting {
        Waiting::at(&self.env.path(&format!("v{n}.sock")))
    }

    /// Lines of `pmd-rxq-show` about a port: queue and state.
    fn queues(&self, port: &str) -> Vec<(usize, bool)> {
        let text = self.env.appctl("dpif-netdev/pmd-rxq-show");
        let words = text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
        let of_port = words.filter_map(|w| match w[..] {
            ["port:", p, "queue-id:", q, state, ..] if p == port => Some((q.parse().unwrap(), state == "(enabled)")),
            _ => None,
        });
        of_port.collect()
    }

    fn status(&self, port: &str, key: &str) -> String {
        self.env.value("Interface", port, &format!("status:{key}"))
    }

    #[track_caller]
    fn wait_link(&self, port: &str, state: &str) {
        wait_until("the link's state", 20, || self.env.value("Interface", port, "link_state") == state);
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        // The bridge's own device goes with a daemon that ends in order.
        let _ = self.env.run("ovs-appctl", "--timeout=5 exit --cleanup");
    }
}

fn frame(n: u32) -> Vec<u8> {
    let mut f = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
    f.extend(n.to_be_bytes());
    f.resize(64, 0);
    f
}

/// A frame from one guest to the other.
#[track_caller]
fn pass(from: &mut FrontEnd, to: &mut FrontEnd, n: u32) {
    to.fill(0);
    assert!(from.transmit(0, &frame(n)), "the ring is full");
    assert_eq!(to.wait_frame(0), frame(n));
}

#[test]
fn guests_talk_and_come_back() {
    let mut lan = Lan::new(&["dpdkvhostuser", "dpdkvhostuserclient"]);
    let waiting = lan.listen(1);
    let mut a = lan.connect(0, 2);
    a.set_up(|q| q == 0);
    let mut b = waiting.accept(1);
    b.set_up(|_| true);
    lan.wait_link("v0", "up");
    lan.wait_link("v1", "up");
    for n in 0..100 {
        pass(&mut a, &mut b, n);
        pass(&mut b, &mut a, n);
    }
    // Queues that the guest has but does not use rest.
    wait_until("both queues", 20, || lan.queues("v0") == [(0, true), (1, false)]);
    a.enable(3, true);
    wait_until("the second queue", 20, || lan.queues("v0") == [(0, true), (1, true)]);
    a.fill(1);
    assert!(a.transmit(1, &frame(7)));
    assert_eq!(b.wait_frame(0), frame(7));
    assert_eq!((lan.status("v0", "mode"), lan.status("v1", "mode")), ("server".into(), "client".into()));
    assert_eq!((lan.status("v0", "num_of_vrings"), lan.status("v0", "vring_2_size")), ("4".into(), "64".into()));
    assert!(lan.status("v1", "socket").ends_with("/v1.sock"));
    let show = lan.env.ofctl(&format!("dump-ports {} v1", lan.bridge));
    assert!(show.contains("rx pkts=100,") && show.contains("tx pkts=101,"), "{show}");

    // Set down, a port takes nothing and gives nothing.
    lan.env.ofctl(&format!("mod-port {} v0 down", lan.bridge));
    wait_until("rest", 20, || lan.queues("v0") == [(0, false), (1, false)]);
    assert!(a.transmit(0, &frame(8)));
    lan.env.ofctl(&format!("mod-port {} v0 up", lan.bridge));
    assert_eq!(b.wait_frame(0), frame(8));

    // Both go and come back.
    drop((a, b));
    lan.wait_link("v0", "down");
    lan.wait_link("v1", "down");
    wait_until("the end of the connection", 20, || lan.status("v0", "status") == "disconnected");
    wait_until("one queue", 20, || lan.queues("v0") == [(0, false)]);
    let (mut a, mut b) = (lan.connect(0, 1), waiting.accept(1));
    a.set_up(|_| true);
    b.set_up(|_| true);
    lan.wait_link("v0", "up");
    lan.wait_link("v1", "up");
    pass(&mut a, &mut b, 9);
    // One that takes another's place in the middle of it all.
    drop(waiting);
    lan.env.vsctl(&format!("set Interface v1 options:vhost-server-path={}", lan.env.file("other")));
    let mut b = Waiting::at(&lan.env.path("other")).accept(1);
    b.set_up(|_| true);
    lan.wait_link("v1", "up");
    pass(&mut a, &mut b, 10);
    lan.env.vsctl(&format!("del-port {} v0", lan.bridge));
    assert!(a.is_closed() && !lan.env.path("v0").exists());
    lan.env.healthy(&[]);
}

#[test]
fn settings_that_are_wrong_are_told() {
    let mut lan = Lan::new(&["dpdkvhostuserclient"]);
    lan.env.vsctl("clear Interface v0 options");
    wait_until("the reason", 20, || {
        let o = lan.env.run("ovs-vsctl", "--timeout=10 get Interface v0 status:error");
        o.stdout.contains("options:vhost-server-path is not set")
    });
    assert_eq!(lan.env.value("Interface", "v0", "error"), "[]");
    lan.env.vsctl("set Interface v0 options:tx-retries-max=33");
    wait_until("the error", 20, || lan.env.value("Interface", "v0", "error").contains("tx-retries-max"));
    lan.env.vsctl("set Interface v0 options:tx-retries-max=0");
    wait_until("no error", 20, || lan.env.value("Interface", "v0", "error") == "[]");
    // Sockets elsewhere in the run directory; nowhere else.
    std::fs::create_dir(lan.env.path("guests")).unwrap();
    for (dir, socket) in [("guests", "guests/s0"), ("nowhere", "s1"), ("guests/../..", "s2")] {
        lan.env.vsctl(&format!("set Open_vSwitch . other_config:vhost-sock-dir={dir}"));
        let name = &socket[socket.len() - 2..];
        lan.env.vsctl(&format!("add-port {} {name} -- set Interface {name} type=dpdkvhostuser", lan.bridge));
        assert!(lan.env.path(socket).exists(), "{socket}");
    }
    lan.env.healthy(&["tx-retries-max", "vhost-sock-dir"]);
}

// A file that is shortened under the switch costs its owner the connection, and nobody else anything.
#[test]
fn memory_that_is_taken_away() {
    let mut lan = Lan::new(&["dpdkvhostuser", "dpdkvhostuser", "dpdkvhostuser"]);
    let [mut a, mut b, mut c] = [0, 1, 2].map(|n| lan.connect(n, 1));
    for f in [&mut a, &mut b, &mut c] {
        f.set_up(|_| true);
    }
    (0..3).for_each(|n| lan.wait_link(&format!("v{n}"), "up"));
    pass(&mut a, &mut b, 1);
    for round in 0..3 {
        rustix::fs::ftruncate(&c.memory, 0).unwrap();
        assert!(c.is_closed(), "the connection ends");
        wait_until("the reason", 20, || {
            let o = lan.env.run("ovs-vsctl", "--timeout=10 get Interface v2 status:error");
            o.stdout.contains("guest memory was taken away")
        });
        pass(&mut b, &mut a, round);
        c = lan.connect(2, 1);
        c.set_up(|_| true);
        lan.wait_link("v2", "up");
    }
    lan.env.healthy(&["guest memory was taken away"]);
}

// UP-52: queues that are switched on and off as fast as the socket takes it, while statistics are read.
#[test]
fn a_storm_of_flips_disturbs_nobody() {
    let mut lan = Lan::new(&["dpdkvhostuser", "dpdkvhostuser", "dpdkvhostuser"]);
    let [mut a, mut b] = [0, 1].map(|n| lan.connect(n, 1));
    let mut storm = lan.connect(2, 8);
    for f in [&mut a, &mut b, &mut storm] {
        f.set_up(|_| true);
    }
    (0..3).for_each(|n| lan.wait_link(&format!("v{n}"), "up"));
    let flips = 100_000u32;
    std::thread::scope(|scope| {
        let storm = &mut storm;
        let flipping = scope.spawn(move || {
            for n in 0..flips {
                storm.words(req::SET_VRING_ENABLE, &[n % 16, n / 16 % 2]);
            }
            storm.ask_u64(req::GET_FEATURES);
        });
        let mut n = 0;
        while !flipping.is_finished() {
            pass(&mut a, &mut b, n);
            n += 1;
            if n % 100 == 0 {
                lan.env.ofctl(&format!("dump-ports {}", lan.bridge));
            }
        }
        flipping.join().unwrap();
        assert!(n > 10);
    });
    // The last word counts.
    let last = (flips - 1) / 16 % 2 == 1;
    wait_until("the last state", 20, || lan.queues("v2").iter().all(|(_, on)| *on == last));
    let lines = lan.env.log().lines().filter(|l| l.contains("queue states")).count();
    assert!(lines < 60, "{lines} lines about it");
    lan.env.healthy(&[]);
}

/// DPDK's packet generator as two guests: packets received on each of its ports.
fn testpmd(lan: &mut Lan, devices: [&str; 2], queues: usize) -> [u64; 2] {
    let name = unique("pmd");
    let mut line =
        format!("--lcores 0@0,1@0 --no-pci --no-huge -m 192 --file-prefix {name} --single-file-segments --log-level=4");
    for (n, d) in devices.iter().enumerate() {
        line += &format!(" --vdev=net_virtio_user{n},{d},queues={queues},queue_size=256,mac=02:00:00:00:00:0{}", n + 1);
    }
    line += &format!(
        " -- --stats-period 1 --forward-mode=flowgen --no-mlockall --total-num-mbufs=8192 --auto-start --rxq={queues} --txq={queues}"
    );
    let cmd = lan.env.command("dpdk-testpmd", &line);
    lan.env.spawn(&name, &cmd);
    let out = lan.env.path(&format!("{name}.out"));
    let asked = || {
        let text = std::fs::read_to_string(&out).unwrap_or_default();
        let counts: Vec<u64> = text
            .lines()
            .filter_map(|l| l.trim().strip_prefix("RX-packets:")?.split_whitespace().next()?.parse().ok())
            .collect();
        let last = counts.last_chunk::<2>().copied()?;
        last.iter().all(|n| *n > 1000).then_some(last)
    };
    let got = wait_value(60, asked);
    lan.env.stop(&name);
    got.unwrap_or_else(|| {
        let err = std::fs::read_to_string(lan.env.path(&format!("{name}.err"))).unwrap_or_default();
        panic!(
            "hardly anything was received: {devices:?}\n{}\n{err}",
            std::fs::read_to_string(&out).unwrap_or_default()
        )
    })
}

#[test]
fn dpdk_guests_of_every_kind() {
    let mut lan = Lan::new(&["dpdkvhostuserclient", "dpdkvhostuser"]);
    let (client, server) = (lan.env.file("v0.sock"), lan.env.file("v1"));
    for (a, b, queues) in [
        ("packed_vq=0,mrg_rxbuf=1", "packed_vq=1,mrg_rxbuf=1", 1),
        ("packed_vq=1,mrg_rxbuf=0", "packed_vq=0,mrg_rxbuf=0", 1),
        ("packed_vq=0,mrg_rxbuf=0,in_order=1", "packed_vq=1,mrg_rxbuf=0,in_order=0", 2),
    ] {
        // What the last one left.
        let _ = std::fs::remove_file(&client);
        let devices = [format!("path={client},server=1,{a}"), format!("path={server},{b}")];
        let received = testpmd(&mut lan, [&devices[0], &devices[1]], queues);
        assert!(received.iter().all(|n| *n > 1000), "{received:?}");
        lan.wait_link("v0", "down");
        lan.wait_link("v1", "down");
    }
    lan.env.healthy(&[]);
}
