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

/// The same tests with the limits lifted: more cases, more seeds, more time.
pub fn long(_: &[String]) -> Result<()> {
    build()?;
    run(Command::new("cargo")
        .args(["test", "--release", "--workspace"])
        .env("PROPTEST_CASES", "20000")
        .env("FERROVIA_LONG", "1"))
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
