//! The steps of CI. Each prints its name and how long it took, and stops at the first failure.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::{layers as graph, tidy};

pub fn ci(_: &[String]) -> Result<()> {
    step("format", fmt)?;
    step("layers", layers)?;
    step("tidy", tidy::check)?;
    step("clippy", clippy)?;
    step("docs", docs)?;
    step("build", build)?;
    step("tests", tests)
}

fn step(name: &str, f: fn() -> Result<()>) -> Result<()> {
    println!("== {name}");
    let t = Instant::now();
    f().with_context(|| format!("step {name} failed"))?;
    println!("== {name}: {:.0} s", t.elapsed().as_secs_f32());
    Ok(())
}

/// Runs cargo with warnings as errors.
fn cargo(args: &[&str]) -> Result<()> {
    run(Command::new(std::env::var("CARGO").unwrap_or("cargo".into())).args(args))
}

fn run(c: &mut Command) -> Result<()> {
    let status = c.status().with_context(|| format!("cannot run {c:?}"))?;
    if !status.success() {
        bail!("{c:?}: {status}");
    }
    Ok(())
}

pub fn fmt() -> Result<()> {
    cargo(&["fmt", "--all", "--check"])
}

pub fn clippy() -> Result<()> {
    cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"])
}

pub fn docs() -> Result<()> {
    run(Command::new("cargo").args(["doc", "--quiet", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
}

pub fn layers() -> Result<()> {
    let rules = graph::Layers::load(&std::fs::read_to_string(root().join("layers.toml"))?)?;
    let bad = rules.violations(&graph::workspace_graph()?);
    if !bad.is_empty() {
        bail!("{}", bad.join("\n"));
    }
    Ok(())
}

fn build() -> Result<()> {
    cargo(&["build", "--release", "--quiet", "--bin", "ferroviad", "--bin", "ferrovia"])
}

/// All tests; the scenarios drive the release binaries.
pub fn tests() -> Result<()> {
    build()?;
    cargo(&["test", "--workspace", "--no-fail-fast", "--exclude", "fv-scenarios"])?;
    cargo(&["test", "--no-fail-fast", "--package", "fv-scenarios", "--", "--test-threads=2"])
}

/// A long form: what it is called, the package, and which of its test targets (all if none).
type Long = (&'static str, &'static str, &'static [&'static str]);

/// The long forms, one after the other: each has the processors for itself.
const LONG: &[Long] = &[
    ("classifier against its linear twin", "fv-classifier", &[]),
    ("keys, extraction, text", "fv-flow", &[]),
    ("packets", "fv-packet", &[]),
    ("datapath flows as text", "fv-dpif", &[]),
    ("MAC table, sessions", "fv-l2", &[]),
    ("devices", "fv-netdev", &[]),
    ("database values", "fv-ovsdb", &[]),
    ("JSON-RPC and streams", "fv-rpc", &[]),
    ("OpenFlow messages and text", "fv-openflow", &[]),
    ("database against its naive twin, killed and restarted", "fv-ovsdb-db", &[]),
    ("lookups, order, every CPU level", "fv-datapath", &["order", "threads", "turn"]),
    ("changes of ports, workers, assignment and rules under traffic, 10 minutes", "fv-datapath", &["soak"]),
    ("translation: megaflows, second looks", "fv-xlate", &[]),
    ("flows after changes of rules", "fv-slowpath", &[]),
    ("the bridge's model", "fv-ofproto", &[]),
    ("rings under hostile guests", "fv-netdev-vhost", &[]),
    ("an emulated NIC", "fv-nic-sim", &[]),
    ("flow tables of NICs", "fv-offload", &[]),
    ("headers of tunnels", "fv-tunnel", &[]),
    ("the whole daemon under reconfiguration, 10 minutes", "fv-scenarios", &["soak"]),
    ("field reports", "fv-scenarios", &["reports"]),
    ("beside the reference, 5,000 seeds", "fv-differential", &[]),
    ("fuzzing, a minute a target", "fv-fuzz", &[]),
];

/// The same tests with the limits lifted: more cases, more seeds, more time. `long WORD` runs those whose
/// name or package has the word.
pub fn long(args: &[String]) -> Result<()> {
    let wanted = |l: &&Long| args.first().is_none_or(|w| l.0.contains(w.as_str()) || l.1.contains(w.as_str()));
    let parts: Vec<&Long> = LONG.iter().filter(wanted).collect();
    // These drive the built daemon.
    if parts.iter().any(|l| ["fv-scenarios", "fv-differential"].contains(&l.1)) {
        step("build", build)?;
    }
    let mut summary = Vec::new();
    for (n, (what, package, targets)) in parts.iter().enumerate() {
        println!("== {}/{}: {what} ({package})", n + 1, parts.len());
        let start = Instant::now();
        let mut c = Command::new(std::env::var("CARGO").unwrap_or("cargo".into()));
        c.args(["test", "--release", "--quiet", "--no-fail-fast", "--package", package]);
        targets.iter().for_each(|t| {
            c.args(["--test", t]);
        });
        c.env("PROPTEST_CASES", "20000").env("FERROVIA_LONG", "1").env("FERROVIA_FUZZ_SECONDS", "60");
        let result = run(&mut c);
        summary.push((what, start.elapsed().as_secs(), result.is_ok()));
        println!("== {}/{}: {} after {} s", n + 1, parts.len(), verdict(result.is_ok()), start.elapsed().as_secs());
    }
    println!("== summary");
    for (what, seconds, ok) in &summary {
        println!("{:6} {seconds:6} s  {what}", verdict(*ok));
    }
    let failed = summary.iter().filter(|s| !s.2).count();
    println!("RESULT parts={} failed={failed}", summary.len());
    if failed > 0 {
        bail!("{failed} of {} long forms failed", summary.len());
    }
    Ok(())
}

fn verdict(ok: bool) -> &'static str {
    if ok { "ok" } else { "FAILED" }
}

/// Runs the fuzz targets for a time of one's own choice.
pub fn fuzz(args: &[String]) -> Result<()> {
    let seconds = args.first().map_or("60", String::as_str);
    run(Command::new("cargo")
        .args(["test", "--release", "--package", "fv-fuzz", "--", "--nocapture"])
        .env("FERROVIA_FUZZ_SECONDS", seconds))
}

pub fn root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is inside the workspace").to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What has properties has a long form.
    #[test]
    fn no_properties_are_left_out() {
        let list = std::fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock");
        for package in list.split("[[package]]").filter(|p| p.contains("\n \"proptest\"")) {
            let name = package.split('"').nth(1).unwrap_or_default();
            assert!(
                !name.starts_with("fv-") || LONG.iter().any(|l| l.1 == name),
                "{name} has properties, and no long form"
            );
        }
    }
}
