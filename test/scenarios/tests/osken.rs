//! An independent controller, made with os-ken, against the built daemon: a learning switch, groups,
//! meters, and the rate of packet-ins. It is installed from the Python package index into the target
//! directory; without it these tests fail.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use fv_testkit::{Daemon, Env, run, wait_until};
use serde_json::Value;

/// What is installed; these work together, and with Python 3.9 to 3.13.
const PACKAGES: [&str; 2] = ["os-ken==4.2.2", "eventlet==0.41.3"];
const INSTALL_SECS: u64 = 300;

/// Python with os-ken.
fn python() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("venv-{}", PACKAGES.join("-")));
        let (python, done) = (dir.join("bin/python"), dir.join("complete"));
        if !done.exists() {
            let must = |c: &mut Command| {
                let o = run(c, INSTALL_SECS);
                let what =
                    "os-ken cannot be installed; these tests need the Python package index (pip) and python3-venv";
                assert!(o.ok(), "{what}:\n{}{}", o.stdout, o.stderr);
            };
            must(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&dir));
            must(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES));
            std::fs::write(done, "").expect("a mark");
        }
        python
    })
}

/// A bridge with four ports and the controller.
struct Net {
    e: Env,
}

impl Net {
    /// The controller has programmed the bridge when this returns.
    fn new(daemon: Daemon, column: &str) -> Net {
        let mut e = Env::dummy(daemon);
        e.add_dummy_bridge("br0", 1..=4);
        let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
        let app = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/osken/app.py");
        let mut cmd = Command::new(python());
        cmd.arg(app).arg(port.to_string()).env("PYTHONDONTWRITEBYTECODE", "1");
        e.spawn("osken", &cmd);
        e.vsctl(&format!(
            "set Bridge br0 other-config:controller-queue-size=512 -- set-controller br0 tcp:127.0.0.1:{port} -- \
             set Controller br0 max_backoff=1000 {column}"
        ));
        let n = Net { e };
        wait_until("the controller's barrier", 60, || n.events("barrier").len() == 1);
        n
    }

    /// What the controller has told so far, of one kind.
    fn events(&self, kind: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.e.path("osken.out")).unwrap_or_default();
        let all = text.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
        all.filter(|v| v["event"] == kind).collect()
    }

    fn packet_ins(&self) -> u64 {
        self.events("packet_ins").last().and_then(|v| v["n"].as_u64()).unwrap_or(0)
    }

    /// A packet from host `src` at that port to host `dst`.
    fn receive(&self, src: u32, dst: u32, rest: &str) {
        let eth = format!("in_port({src}),eth(src=50:54:00:00:00:0{src},dst=50:54:00:00:00:0{dst})");
        self.e.appctl(&format!("netdev-dummy/receive p{src} '{eth},{rest}'"));
    }

    /// Packets that left by ports 1 to 4.
    fn sent(&self) -> Vec<u64> {
        (1..=4)
            .map(|n| {
                let text = self.e.ofctl(&format!("dump-ports br0 p{n}"));
                let after = text.split("tx pkts=").nth(1).and_then(|t| t.split(',').next());
                after.and_then(|t| t.parse().ok()).expect("a counter")
            })
            .collect()
    }

    /// How many left by each port while `f` ran.
    fn leaves(&self, f: impl Fn()) -> Vec<u64> {
        let before = self.sent();
        f();
        self.sent().iter().zip(before).map(|(a, b)| a - b).collect()
    }
}

fn ip(proto: u32) -> String {
    format!("eth_type(0x0800),ipv4(src=198.18.0.1,dst=198.18.0.2,proto={proto},tos=0,ttl=64,frag=no)")
}

#[test]
fn a_learning_switch() {
    let mut n = Net::new(Daemon::Ours, "inactivity_probe=30000");
    let frame = "eth_type(0x1234)";
    // Unknown: everywhere but back. The answer goes straight, and from then on by a flow.
    wait_until("its role", 10, || n.e.value("Controller", "br0", "role") == "master");
    n.receive(1, 2, frame);
    wait_until("flooded", 10, || n.sent() == [0, 1, 1, 1]);
    n.receive(2, 1, frame);
    wait_until("straight", 10, || n.sent() == [1, 1, 1, 1]);
    let learned = || n.e.ofctl("dump-flows br0").matches("priority=10").count();
    wait_until("a flow", 10, || learned() == 1);
    n.receive(1, 2, frame);
    wait_until("both flows", 10, || learned() == 2 && n.sent() == [1, 2, 1, 1]);
    assert_eq!(n.events("packet_in").len(), 3);
    assert_eq!(n.leaves(|| (0..5).for_each(|_| n.receive(1, 2, frame))), [0, 5, 0, 0]);
    assert_eq!(n.events("packet_in").len(), 3);
    // It hears of ports.
    n.e.ofctl("mod-port br0 p4 down");
    wait_until("port status", 10, || n.events("port_status").iter().any(|p| p["port"] == 4 && p["config"] == 1));
    n.e.healthy(&["connection"]);
}

#[test]
fn groups_and_meters() {
    let mut n = Net::new(Daemon::Ours, "inactivity_probe=30000");
    let to = |proto| n.leaves(|| n.receive(1, 2, &ip(proto)));
    assert_eq!(to(100), [0, 1, 1, 0], "all");
    assert_eq!(to(101).iter().sum::<u64>(), 1, "select");
    assert_eq!(to(102), [0, 1, 0, 0], "fast failover");
    assert_eq!(to(103), [0, 1, 0, 0], "indirect");
    n.e.ofctl("mod-port br0 p2 down");
    assert_eq!(to(102), [0, 0, 1, 0], "fast failover, the first is down");
    n.e.ofctl("mod-port br0 p2 up");
    assert_eq!(to(102), [0, 1, 0, 0], "and up again");
    // A burst of four, then one a second.
    let metered = n.leaves(|| (0..12).for_each(|_| n.receive(1, 2, &ip(104))));
    assert!((4..=7).contains(&metered[1]), "{metered:?}");
    n.e.healthy(&["connection"]);
}

/// What the switch answers is what the reference answers.
#[test]
fn answers_are_the_reference_s() {
    const KINDS: [&str; 11] = [
        "ports",
        "groups",
        "group_features",
        "group_stats",
        "meters",
        "meter_features",
        "meter_stats",
        "tables",
        "role",
        "error",
        "barrier",
    ];
    let told = |d| {
        let n = Net::new(d, "inactivity_probe=30000");
        KINDS.map(|k| n.events(k))
    };
    assert_eq!(told(Daemon::Ours), told(Daemon::Reference));
}

#[test]
fn packet_ins_are_limited_by_their_rate() {
    let many = |n: &Net, count| {
        let one = "in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x9000)";
        let all: Vec<String> = (0..count).map(|_| format!("'{one}'")).collect();
        n.e.appctl(&format!("netdev-dummy/receive p1 {}", all.join(" ")));
    };
    let n = Net::new(Daemon::Ours, "inactivity_probe=30000");
    many(&n, 300);
    wait_until("all of them", 20, || n.packet_ins() == 300);
    let n = Net::new(Daemon::Ours, "inactivity_probe=30000 controller_rate_limit=100 controller_burst_limit=25");
    many(&n, 300);
    // A burst, as many wait; what there is no room for is lost.
    wait_until("the burst, and those that waited", 20, || n.packet_ins() >= 50);
    n.e.appctl("version");
    assert!(n.packet_ins() < 150, "{}", n.packet_ins());
    // Time goes on: there is room again.
    let so_far = n.packet_ins();
    wait_until("more", 20, || {
        many(&n, 1);
        n.packet_ins() > so_far + 3
    });
}
