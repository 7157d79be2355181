//! Loading rules: one by one, as a bundle, as a replacement, over a bare connection; and memory.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fv_testkit::{Daemon, Env};

use crate::cpu;
use crate::report::{Row, head};
use crate::shapes::Shape;
use crate::wire::OfConn;

const RULES: usize = 100_000;
const ROUNDS: usize = 3;
/// Resident memory is compared at so many times more rules.
const MEMORY_FACTOR: usize = 10;
/// Longest time for one load.
const LOAD_SECS: u64 = 600;

struct Side {
    env: Env,
    pid: u32,
}

/// What one load cost.
struct Cost {
    wall: f64,
    cpu: f64,
}

impl Side {
    fn new(d: Daemon) -> Side {
        let mut env = Env::new();
        env.start_db();
        env.start(d, "--enable-dummy --disable-system -vfile:warn");
        env.add_dummy_bridge("br0", 1..=3);
        let pid = env.daemon_pid();
        Side { env, pid }
    }

    fn timed(&self, f: impl FnOnce() -> Result<()>) -> Result<Cost> {
        let (t, c) = (Instant::now(), cpu::of(self.pid));
        f()?;
        let secs = |d: Duration| d.as_secs_f64();
        Ok(Cost { wall: secs(t.elapsed()), cpu: secs(cpu::of(self.pid).saturating_sub(c)) })
    }

    fn ofctl(&self, line: &str) -> Result<Cost> {
        self.timed(|| {
            let o =
                fv_testkit::run(&self.env.command("ovs-ofctl", &format!("--timeout={LOAD_SECS} {line}")), LOAD_SECS);
            ensure!(o.ok(), "ovs-ofctl {line}: {}", o.stderr);
            Ok(())
        })
    }

    fn count(&self) -> usize {
        let text = self.env.ofctl("dump-aggregate br0");
        text.rsplit("flow_count=").next().and_then(|n| n.trim().parse().ok()).unwrap_or(0)
    }

    fn clear(&self) -> Result<()> {
        self.ofctl("del-flows br0").map(drop)
    }

    /// The three loads of one shape, from files `a` and `b`.
    fn loads(&self, a: &Path, b: &Path, n: usize) -> Result<[Cost; 3]> {
        let (a, b) = (a.display(), b.display());
        self.clear()?;
        let single = self.ofctl(&format!("add-flows br0 {a}"))?;
        ensure!(self.count() == n, "{} rules instead of {n}", self.count());
        self.clear()?;
        let bundle = self.ofctl(&format!("--bundle add-flows br0 {a}"))?;
        ensure!(self.count() == n, "{} rules instead of {n}", self.count());
        let replace = self.ofctl(&format!("replace-flows br0 {b}"))?;
        ensure!(self.count() == n, "{} rules instead of {n}", self.count());
        Ok([single, bundle, replace])
    }

    fn stream(&self, n: usize) -> Result<Cost> {
        self.clear()?;
        let cost = self.timed(|| OfConn::open(&self.env.path("br0.mgmt"))?.add(0..n as u32))?;
        ensure!(self.count() == n, "{} rules instead of {n}", self.count());
        Ok(cost)
    }
}

/// Bytes of resident memory that `n` rules take in a fresh daemon.
fn memory(d: Daemon, n: usize) -> Result<(f64, f64)> {
    let s = Side::new(d);
    let before = s.env.daemon_rss_kib();
    s.stream(n)?;
    let after = s.env.daemon_rss_kib();
    Ok((after as f64, after.saturating_sub(before) as f64 * 1024.0 / n as f64))
}

fn compare(n: usize, rounds: usize) -> Result<()> {
    let files = Env::new();
    let (reference, ours) = (Side::new(Daemon::Reference), Side::new(Daemon::Ours));
    let mut rows = Vec::new();
    head();
    for shape in Shape::ALL {
        let (a, b) = (files.path(&format!("{}.a", shape.name())), files.path(&format!("{}.b", shape.name())));
        shape.write(&a, n, 0)?;
        shape.write(&b, n, 1)?;
        let mut own = ["add-flows", "bundle", "replace-flows"].map(|what| {
            let row = |m: &str| Row::new(format!("{} {what}, {m}", shape.name()));
            (row("time"), row("processor"))
        });
        for _ in 0..rounds {
            let (r, o) = (reference.loads(&a, &b, n)?, ours.loads(&a, &b, n)?);
            for ((wall, cpu), (r, o)) in own.iter_mut().zip(r.iter().zip(&o)) {
                wall.push(r.wall, o.wall);
                cpu.push(r.cpu, o.cpu);
            }
        }
        for (wall, cpu) in own {
            wall.print("s");
            cpu.print("s");
            rows.push(wall);
            rows.push(cpu);
        }
    }
    let (mut wall, mut cpu) = (Row::new("exact without barriers, time"), Row::new("exact without barriers, processor"));
    for _ in 0..rounds {
        let (r, o) = (reference.stream(n)?, ours.stream(n)?);
        wall.push(r.wall, o.wall);
        cpu.push(r.cpu, o.cpu);
    }
    wall.print("s");
    cpu.print("s");
    drop((reference, ours));

    let many = n * MEMORY_FACTOR;
    let (r, o) = (memory(Daemon::Reference, many)?, memory(Daemon::Ours, many)?);
    let (mut rss, mut each) = (Row::new(format!("memory at {many} rules")), Row::new("memory per rule"));
    rss.push(r.0 / 1024.0, o.0 / 1024.0);
    each.push(r.1, o.1);
    rss.print("MiB");
    each.print("B");

    let of = |what: &str| {
        let all = rows.iter().filter(|r| r.name.contains(what)).map(Row::ratio);
        all.fold(0.0, f64::max)
    };
    println!(
        "RESULT rules={n} worst_add_flows={:.2} worst_bundle={:.2} worst_replace={:.2} stream={:.2} rss={:.2} rule_bytes={:.0}",
        of("add-flows, time"),
        of("bundle, time"),
        of("replace-flows, time"),
        wall.ratio(),
        rss.ratio(),
        o.1
    );
    Ok(())
}

pub fn run(args: &[String]) -> Result<()> {
    let number = |i: usize, default: usize| args.get(i).map_or(Ok(default), |a| a.parse());
    compare(number(0, RULES)?, number(1, ROUNDS)?)
}
