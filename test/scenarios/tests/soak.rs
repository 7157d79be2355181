//! The whole daemon under traffic while everything around is changed at random: ports, masks, workers,
//! assignment, rules, groups, meters, controllers that come and go. What nobody touches loses nothing,
//! and neither memory nor file descriptors grow. 15 seconds; ten minutes in the long form.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fv_testkit::{Daemon, Env, wait_until};

struct Random(u64);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % u64::from(n)) as u32
    }
}

/// A controller that says hello, answers echo requests, and hangs up when told.
struct Controller {
    target: String,
    hang_up: Arc<AtomicBool>,
    connections: Arc<AtomicU64>,
}

fn serve(mut s: TcpStream, hang_up: &AtomicBool) {
    let _ = s.set_read_timeout(Some(Duration::from_millis(20)));
    let _ = s.write_all(&[4, 0, 0, 8, 0, 0, 0, 1]);
    let mut header = [0; 8];
    while !hang_up.swap(false, Ordering::Relaxed) {
        match s.peek(&mut header) {
            Ok(0) => return,
            Ok(8) => {
                let mut message = vec![0; usize::from(u16::from_be_bytes([header[2], header[3]])).max(8)];
                if s.read_exact(&mut message).is_err() {
                    return;
                }
                if message[1] == 2 {
                    message[1] = 3;
                    let _ = s.write_all(&message);
                }
            }
            Ok(_) => {}
            Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
    }
}

impl Controller {
    fn start() -> Controller {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let target = format!("tcp:{}", listener.local_addr().expect("its address"));
        let (hang_up, connections) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (flag, count) = (hang_up.clone(), connections.clone());
        // It ends with the process.
        std::thread::spawn(move || {
            for s in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::Relaxed);
                serve(s, &flag);
            }
        });
        Controller { target, hang_up, connections }
    }
}

struct Soak {
    e: Env,
    r: Random,
    controller: Controller,
    /// Random ports that are there.
    ports: Vec<u32>,
    meters: Vec<u32>,
    steady: u64,
    injected: u64,
    did: Vec<String>,
}

const IP: &str = "eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800)";
/// Numbers of ports that come and go.
const PORTS: u32 = 6;

fn packet(n: u32) -> String {
    let [_, _, c, d] = n.to_be_bytes();
    format!(
        "'in_port(1),{IP},ipv4(src=198.18.{c}.{d},dst=198.18.0.2,proto=17,ttl=64,frag=no),udp(src={},dst=2)'",
        n % 9
    )
}

impl Soak {
    fn new(seed: u64) -> Soak {
        let mut e = Env::new();
        e.start_db();
        e.start(Daemon::Ours, "--enable-dummy --disable-system --disable-system-route --dummy-numa=0,0,1,1");
        let controller = Controller::start();
        e.vsctl(
            "add-br br0 -- set bridge br0 datapath-type=dummy fail-mode=secure \
             protocols=OpenFlow10,OpenFlow13,OpenFlow15 -- add-port br0 s1 -- set Interface s1 type=dummy-pmd \
             options:n_rxq=2 -- add-port br0 s2 -- set Interface s2 type=dummy-pmd",
        );
        // What others flood does not get there.
        e.vsctl("set Port s1 tag=77 -- set Port s2 tag=77");
        e.vsctl(&format!("set-controller br0 {}", controller.target));
        wait_until("the controller is connected", 20, || controller.connections.load(Ordering::Relaxed) > 0);
        e.ofctl("add-flow br0 priority=65535,in_port=s1,actions=output:s2");
        let (ports, meters, did) = (Vec::new(), Vec::new(), Vec::new());
        Soak { e, r: Random(seed), controller, ports, meters, steady: 0, injected: 0, did }
    }

    fn inject(&mut self, port: &str, n: u32) -> bool {
        let packets: Vec<String> = (0..n).map(|_| packet(self.r.below(4000))).collect();
        let line = format!("--timeout=25 netdev-dummy/receive {port} {}", packets.join(" "));
        let ok = self.e.run("ovs-appctl", &line).ok();
        self.injected += if ok { u64::from(n) } else { 0 };
        ok
    }

    /// Packets of the flow that nobody touches: all arrive.
    fn steady(&mut self) {
        let n = 1 + self.r.below(30);
        assert!(self.inject("s1", n), "the steady port takes packets; last: {:?}", self.last());
        self.steady += u64::from(n);
        let (want, e) = (format!("tx pkts={},", self.steady), &self.e);
        let arrived = fv_testkit::wait_value(30, || e.ofctl("dump-ports br0 s2").contains(&want).then_some(()));
        let last = self.last();
        assert!(arrived.is_some(), "{} were sent: {}; last: {last:?}", self.steady, self.e.ofctl("dump-ports br0 s2"));
    }

    fn last(&self) -> &[String] {
        &self.did[self.did.len().saturating_sub(8)..]
    }

    fn any_port(&mut self) -> Option<u32> {
        (!self.ports.is_empty()).then(|| self.ports[self.r.below(self.ports.len() as u32) as usize])
    }

    fn step(&mut self) {
        let what = self.r.below(14);
        let n = self.r.below(PORTS);
        let vsctl = |s: &mut Soak, line: String| {
            s.did.push(line.clone());
            s.e.vsctl(&line);
        };
        match what {
            0 | 1 => match self.ports.iter().position(|p| *p == n) {
                Some(at) => {
                    self.ports.remove(at);
                    vsctl(self, format!("del-port r{n}"));
                }
                None => {
                    let (queues, kind) = (1 + self.r.below(4), ["dummy", "dummy-pmd"][self.r.below(2) as usize]);
                    self.ports.push(n);
                    let number = 10 + n;
                    vsctl(
                        self,
                        format!(
                            "add-port br0 r{n} -- set Interface r{n} type={kind} options:n_rxq={queues} ofport_request={number}"
                        ),
                    );
                }
            },
            2 => {
                let mask = 1 + self.r.below(15);
                vsctl(self, format!("set Open_vSwitch . other_config:pmd-cpu-mask={mask:#x}"));
            }
            3 => {
                let how = ["cycles", "roundrobin", "group"][self.r.below(3) as usize];
                vsctl(self, format!("set Open_vSwitch . other_config:pmd-rxq-assign={how}"));
                self.e.appctl("dpif-netdev/pmd-rxq-rebalance");
            }
            4 => {
                let core = self.r.below(4);
                vsctl(self, format!("set Interface s1 other_config:pmd-rxq-affinity=0:{core}"));
            }
            5 => {
                let set = [
                    "emc-insert-inv-prob=1",
                    "emc-insert-inv-prob=0",
                    "smc-enable=true",
                    "smc-enable=false",
                    "pmd-sleep-max=100",
                    "pmd-sleep-max=0",
                    "tx-flush-interval=50",
                    "tx-flush-interval=0",
                ];
                let one = set[self.r.below(set.len() as u32) as usize];
                vsctl(self, format!("set Open_vSwitch . other_config:{one}"));
            }
            6 | 7 => {
                let (priority, port, dst) = (self.r.below(1000), 10 + n, self.r.below(9));
                let group = 1 + self.r.below(3);
                let mut actions = vec![
                    format!("output:{port}"),
                    "drop".into(),
                    "NORMAL".into(),
                    format!("group:{group}"),
                    "controller".into(),
                ];
                if let Some(m) = self.meters.first() {
                    actions.push(format!("meter:{m},output:{port}"));
                }
                let action = &actions[self.r.below(actions.len() as u32) as usize];
                let line = format!(
                    "priority={priority},in_port={},udp,udp_src={dst},actions={action}",
                    10 + self.r.below(PORTS)
                );
                self.did.push(line.clone());
                // Groups may not be there.
                let _ = self.e.run("ovs-ofctl", &format!("-O OpenFlow13 --timeout=25 add-flow br0 '{line}'"));
            }
            8 => {
                self.did.push("del-flows".into());
                self.e.ofctl(&format!("del-flows br0 in_port={}", 10 + n));
            }
            9 => {
                let (id, verb) =
                    (1 + self.r.below(3), ["add-group --may-create", "del-groups"][self.r.below(2) as usize]);
                let line = match verb {
                    "del-groups" => format!("del-groups br0 group_id={id}"),
                    _ => format!(
                        "--may-create mod-group br0 'group_id={id},type=select,bucket=output:{},bucket=output:{}'",
                        10 + n,
                        10 + self.r.below(PORTS)
                    ),
                };
                self.did.push(line.clone());
                self.e.must("ovs-ofctl", &format!("-O OpenFlow13 --timeout=25 {line}"));
            }
            10 => {
                let id = 1 + self.r.below(3);
                let line = match self.meters.iter().position(|m| *m == id) {
                    Some(at) => {
                        self.meters.remove(at);
                        format!("del-meter br0 meter={id}")
                    }
                    None => {
                        self.meters.push(id);
                        format!("add-meter br0 meter={id},pktps,band=type=drop,rate={}", 1 + self.r.below(1000))
                    }
                };
                self.did.push(line.clone());
                self.e.must("ovs-ofctl", &format!("-O OpenFlow13 --timeout=25 {line}"));
            }
            11 => {
                self.did.push("the controller hangs up".into());
                self.controller.hang_up.store(true, Ordering::Relaxed);
            }
            12 => {
                let other = ["", " tcp:127.0.0.1:1", " ptcp:0:127.0.0.1"][self.r.below(3) as usize];
                let target = self.controller.target.clone();
                vsctl(self, format!("set-controller br0 {target}{other}"));
            }
            _ => {
                let (limit, idle) = ([1000, 5000, 200_000][self.r.below(3) as usize], 500 + self.r.below(3000));
                vsctl(self, format!("set Open_vSwitch . other_config:flow-limit={limit} other_config:max-idle={idle}"));
            }
        }
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.e.daemon_pid())).map_or(0, Iterator::count)
    }

    /// Everything as it was at first; what the daemon has then.
    fn settle(&mut self) -> (usize, u64) {
        for p in std::mem::take(&mut self.ports) {
            self.e.vsctl(&format!("del-port r{p}"));
        }
        let target = self.controller.target.clone();
        self.e.vsctl(&format!(
            "set-controller br0 {target} -- clear Open_vSwitch . other_config -- clear Interface s1 other_config"
        ));
        for m in std::mem::take(&mut self.meters) {
            self.e.must("ovs-ofctl", &format!("-O OpenFlow13 del-meter br0 meter={m}"));
        }
        self.e.must("ovs-ofctl", "-O OpenFlow13 del-groups br0");
        let e = &self.e;
        wait_until("the controller is back", 40, || e.vsctl("--columns=is_connected list controller").contains("true"));
        self.steady();
        self.e.appctl("revalidator/purge");
        (self.descriptors(), self.e.daemon_rss_kib())
    }
}

#[test]
fn what_nobody_touches_loses_nothing() {
    let seconds = if std::env::var_os("FERROVIA_LONG").is_some() { 600 } else { 15 };
    let seed = std::env::var("FERROVIA_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed);
    println!("FERROVIA_SEED={seed}");
    let mut s = Soak::new(seed);
    let play = |s: &mut Soak, time: u64| {
        let (start, mut told) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_secs(time) {
            s.step();
            s.steady();
            if let Some(p) = s.any_port() {
                s.inject(&format!("r{p}"), 20);
            }
            if start.elapsed().as_secs() >= told + 30 {
                told = start.elapsed().as_secs();
                println!("{told} s: {} changes, {} packets", s.did.len(), s.injected);
            }
        }
        s.settle()
    };
    let before = play(&mut s, seconds / 3);
    let after = play(&mut s, seconds - seconds / 3);
    println!("{} changes, {} packets of which {} on the steady port", s.did.len(), s.injected, s.steady);
    println!("(file descriptors, KiB) {before:?}, at the end {after:?}");
    assert!(s.did.len() > 5, "hardly anything was changed");
    assert!(after.0 <= before.0 + 2, "file descriptors: {before:?}, at the end {after:?}");
    assert!(after.1 <= before.1 + before.1 / 4 + 16 * 1024, "memory: {before:?}, at the end {after:?}");
    // Each packet that a worker took was looked up, those that a group recirculates twice; none was lost.
    let show = s.e.appctl("dpctl/show");
    let number = |name: &str| -> u64 {
        let rest = show.split(name).nth(1).unwrap_or_default();
        rest.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{name}: {show}"))
    };
    let looked_up = number("hit:") + number("missed:");
    assert!(looked_up >= s.steady && looked_up <= 2 * s.injected, "{show}: {} were sent", s.injected);
    assert_eq!(number("lost:"), 0, "{show}");
    s.e.healthy(&[
        "connmgr",
        "rconn",
        "pinned",
        "No non-isolated",
        "flow-limit",
        "dynamic limit",
        "pmd-",
        "could not",
        "no pmd",
        "ptcp",
    ]);
}
