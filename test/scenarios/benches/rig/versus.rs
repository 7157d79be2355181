//! A packet through the datapath, against the reference's with DPDK: `net_pcap` is the source,
//! `net_null` the sink, what both cost without a switch is measured with `dpdk-testpmd` and taken off.
//! Ours is the `turn` bench of `fv-datapath`, whose source and sink are taken off in the same way.
//!
//! Time is the polling thread's processor time, the least of several windows; ours is the lowest decile.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fv_testkit::{Env, Proc, wait_value};
use rustix::process::Signal;

const TESTPMD: &str = "dpdk-testpmd";
const REFERENCE: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";
/// Megabytes that either program of DPDK may have, and pages of 2 MB for that.
const MEMORY: usize = 400;
const PAGES: usize = 300;
/// Windows of measuring and their length.
const WINDOWS: usize = 5;
const WINDOW: Duration = Duration::from_millis(1000);
const START_SECS: u64 = 60;
/// Packets until flows are set up and caches filled.
const SETTLED: u64 = 5_000_000;

/// A number of flows, the rules of the reference, and what the same is called in the `turn` bench.
struct Case {
    flows: u32,
    rules: &'static str,
    ours: &'static str,
}

/// One megaflow that looks at no more than the first headers; one that does, so that the caches are
/// asked; one for each flow.
const SIMPLE: &str = "in_port=1,actions=2";
const ONE: &str = "in_port=1,udp,actions=2";
const EXACT: &str = "in_port=1,udp,actions=multipath(symmetric_l3l4+udp,0,modulo_n,1,0,NXM_NX_REG0[]),2";

const CASES: &[Case] = &[
    Case { flows: 1, rules: SIMPLE, ours: "one" },
    Case { flows: 1, rules: ONE, ours: "one" },
    Case { flows: 1_000, rules: ONE, ours: "one" },
    Case { flows: 10_000, rules: ONE, ours: "one" },
    Case { flows: 1_000, rules: EXACT, ours: "exact1" },
    Case { flows: 10_000, rules: EXACT, ours: "exact1" },
];

/// The packets of the `turn` bench, in the same order.
fn write_pcap(path: &Path, flows: u32) -> Result<()> {
    let mut out = Vec::new();
    for word in [0xa1b2_c3d4u32, 4 << 16 | 2, 0, 0, 65535, 1] {
        out.extend(word.to_le_bytes());
    }
    for i in 0..flows.max(32) {
        let flow = (u64::from(i) * 7_919 % u64::from(flows)) as u32;
        let mut f = vec![2; 6];
        f.extend([4; 6]);
        f.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1]);
        f.extend((0x0a00_0000 | flow).to_be_bytes());
        f.extend([3, 0xe8, 7, 0xd0, 0, 26, 0, 0]);
        f.resize(60, 0);
        for word in [0, 0, 60u32, 60] {
            out.extend(word.to_le_bytes());
        }
        out.extend(f);
    }
    std::fs::write(path, out).with_context(|| path.display().to_string())
}

fn source(pcap: &Path) -> String {
    format!("net_pcap0,rx_pcap={},infinite_rx=1", pcap.display())
}

/// Processor time of a process's thread whose name begins so.
fn thread_time(pid: u32, name: &str) -> Option<Duration> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut own = tasks
        .flatten()
        .filter(|t| std::fs::read_to_string(t.path().join("comm")).is_ok_and(|comm| comm.starts_with(name)));
    let text = std::fs::read_to_string(own.next()?.path().join("schedstat")).ok()?;
    Some(Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?))
}

/// Nanoseconds a packet that source and sink take, and the clock's MHz.
fn device(env: &Env, pcap: &Path, flows: &str) -> Result<(f64, f64)> {
    let mut line = format!("-l 0,1 --no-pci --in-memory -m {MEMORY}");
    line += &format!(" --vdev {} --vdev net_null0,no-rx=1 --", source(pcap));
    line += " --forward-mode=io --stats-period 1 --no-mlockall --total-num-mbufs=30000 --record-core-cycles";
    let (mut times, mut mhz) = (Vec::new(), 0.0);
    for round in 0..3 {
        let (out, err) = (env.path(&format!("testpmd.{flows}.{round}")), env.path("testpmd.err"));
        let mut p = Proc::spawn(TESTPMD, &env.command(TESTPMD, &line), &out, &err);
        let worker = || thread_time(p.pid(), "rte-worker").or_else(|| thread_time(p.pid(), "lcore-worker"));
        let ran = wait_value(START_SECS, || worker().filter(|t| *t > WINDOW * 2));
        let Some(ran) = ran else { bail!("testpmd does not forward") };
        // Once it has stopped its thread only waits: the last time that is seen is all it took.
        p.signal(Signal::INT);
        let mut ran = ran;
        wait_value(START_SECS, || match worker() {
            Some(time) => {
                ran = time;
                None
            }
            None => Some(()),
        });
        p.wait(START_SECS);
        let text = std::fs::read_to_string(&out)?;
        let number = |l: &str, before: &str| {
            let (_, rest) = l.split_once(before)?;
            rest.split_whitespace().next()?.parse::<f64>().ok()
        };
        let packets = text.lines().filter_map(|l| number(l, "TX-total:")).fold(0.0, f64::max);
        mhz = text.lines().filter(|l| l.contains("MHz Clock")).find_map(|l| number(l, ") at ")).unwrap_or(mhz);
        ensure!(packets > 0.0, "testpmd sent nothing");
        times.push(ran.as_nanos() as f64 / packets);
    }
    Ok((times.into_iter().fold(f64::MAX, f64::min), mhz))
}

/// Nanoseconds a packet of the reference's polling thread, and what answered its lookups.
fn reference(pcap: &Path, case: &Case) -> Result<(f64, String)> {
    let mut env = Env::new();
    env.start_db();
    env.vsctl(&format!(
        "--no-wait set Open_vSwitch . other_config:dpdk-init=true other_config:pmd-cpu-mask=2 \
         other_config:dpdk-lcore-mask=1 other_config:dpdk-socket-mem={MEMORY} \
         other_config:dpdk-extra=\"--no-pci --in-memory\""
    ));
    let db = format!("unix:{}", env.file("db.sock"));
    let cmd = env.command(REFERENCE, &format!("{db} --pidfile --log-file -vconsole:off"));
    let pid = env.spawn("reference", &cmd).pid();
    env.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev fail-mode=secure");
    env.vsctl("add-port br0 p2 -- set Interface p2 type=dpdk options:dpdk-devargs=net_null0,no-rx=1 ofport_request=2");
    env.ofctl(&format!("add-flow br0 {}", case.rules));
    let args = source(pcap);
    env.vsctl(&format!(
        "add-port br0 p1 -- set Interface p1 type=dpdk options:dpdk-devargs=\"{args}\" ofport_request=1"
    ));
    let stats = || env.must("ovs-appctl", "--timeout=25 -t ovs-vswitchd-dpdk dpif-netdev/pmd-stats-show");
    let count = |text: &str| {
        let line = text.lines().find_map(|l| l.trim().strip_prefix("packets received:"));
        line.and_then(|n| n.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let going = wait_value(START_SECS, || (count(&stats()) > SETTLED).then_some(()));
    ensure!(going.is_some(), "no packets in the reference: {}", stats());
    // Asking takes a while: time is what passes until the middle of it.
    let look = || -> Result<(f64, f64)> {
        let now = || thread_time(pid, "pmd").context("no polling thread");
        let (before, packets, after) = (now()?, count(&stats()), now()?);
        Ok((packets as f64, (before + after).as_nanos() as f64 / 2.0))
    };
    let mut windows = Vec::new();
    for _ in 0..WINDOWS {
        let (packets, time) = look()?;
        std::thread::sleep(WINDOW);
        let (more, later) = look()?;
        windows.push((later - time) / (more - packets).max(1.0));
    }
    let gross = windows.into_iter().fold(f64::MAX, f64::min);
    let text = stats();
    let main = text.split("main thread").next().unwrap_or_default();
    let hits = main.lines().filter(|l| l.contains(" hits:") && !l.trim().ends_with(" 0")).map(str::trim);
    Ok((gross, hits.collect::<Vec<_>>().join(", ")))
}

/// Ticks a packet of ours.
fn ours(case: &Case) -> Result<f64> {
    let name = format!("{} {}", case.ours, case.flows);
    let cargo = std::env::var("CARGO").unwrap_or("cargo".into());
    let mut c = Command::new(cargo);
    c.args(["bench", "--quiet", "--package", "fv-datapath", "--bench", "datapath", "--", "turn", "--no-callgrind"]);
    let out = c.args(["--only", &name]).output().with_context(|| format!("cannot run {c:?}"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    let key = format!("{}=", name.replace(' ', "_"));
    let value = text.split_whitespace().find_map(|w| w.strip_prefix(&key)?.parse().ok());
    value.with_context(|| format!("{c:?} gave no {key}"))
}

/// Pages for DPDK; those that there were come back at the end.
struct HugePages(String);

impl HugePages {
    fn take() -> Result<HugePages> {
        let before = std::fs::read_to_string(HUGE_PAGES)?;
        let there: usize = before.trim().parse()?;
        std::fs::write(HUGE_PAGES, there.max(PAGES).to_string()).context("huge pages")?;
        Ok(HugePages(before))
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = std::fs::write(HUGE_PAGES, self.0.trim());
    }
}

pub fn run(args: &[String]) -> Result<()> {
    ensure!(Path::new(REFERENCE).exists(), "{REFERENCE} is not installed");
    let _pages = HugePages::take()?;
    let env = Env::new();
    let mut line = String::from("RESULT");
    println!("ticks a packet, source and sink taken off; what they take");
    for case in CASES {
        let kind = match case.rules {
            SIMPLE => "simple",
            ONE => "one",
            _ => "exact",
        };
        let name = format!("{kind}_{}", case.flows);
        if args.first().is_some_and(|only| !name.starts_with(only)) {
            continue;
        }
        let pcap = env.path("source.pcap");
        write_pcap(&pcap, case.flows)?;
        let (device, mhz) = device(&env, &pcap, &name)?;
        let (gross, hits) = reference(&pcap, case)?;
        let (reference, ours) = ((gross - device) * mhz / 1000.0, ours(case)?);
        let (ratio, device) = (reference / ours, device * mhz / 1000.0);
        println!("{name:16} reference {reference:8.1} (of {device:6.1})  ours {ours:8.1}  ratio {ratio:5.2}  {hits}");
        line += &format!(" {name}={ratio:.2} {name}_reference={reference:.0} {name}_ours={ours:.1}");
    }
    println!("{line}");
    Ok(())
}
