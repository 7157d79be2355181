//! Benches: `cargo xtask bench NAME [--json FILE] [ARGS]` and `cargo xtask bench compare A B [NAME]`.
//!
//! A bench is a program that ends with a line `RESULT key=value ...`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// A bench: its name, the package and target it is in, and how to ask for it there.
const BENCHES: &[(&str, &str, &str)] = &[
    ("parse", "fv-datapath", "datapath"),
    ("emc", "fv-datapath", "datapath"),
    ("smc", "fv-datapath", "datapath"),
    ("dpcls", "fv-datapath", "datapath"),
    ("action", "fv-datapath", "datapath"),
    ("turn", "fv-datapath", "datapath"),
    ("rules", "fv-scenarios", "rig"),
    ("versus", "fv-scenarios", "rig"),
    ("adaptive", "fv-datapath", "datapath"),
    ("tse", "fv-datapath", "datapath"),
    ("storm", "fv-datapath", "datapath"),
    ("scale", "fv-datapath", "datapath"),
    ("miss", "fv-slowpath", "slowpath"),
    ("change", "fv-slowpath", "slowpath"),
    ("writer", "fv-slowpath", "slowpath"),
    ("marks", "fv-datapath", "datapath"),
    ("races", "fv-nic-sim", "nic"),
    ("rebalance", "fv-offload", "offload"),
    ("vring", "fv-netdev-vhost", "vhost"),
];

/// Times that each of two commits is run, in turn.
const COMPARE_ROUNDS: usize = 5;

type Figures = Vec<(String, String)>;

pub fn bench(args: &[String]) -> Result<()> {
    match args.first().map(String::as_str) {
        Some("compare") => compare(&args[1..]),
        Some(name) if find(name).is_some() => one(name, &args[1..]),
        other => {
            println!("  cargo xtask bench NAME [--json FILE] [--rounds N] [--only CASE] [--no-callgrind]");
            println!("  cargo xtask bench compare A B [NAME]   (commits; NAME is turn if not given)");
            println!("NAME is one of: {}", BENCHES.iter().map(|b| b.0).collect::<Vec<_>>().join(" "));
            match other {
                None => Ok(()),
                Some(other) => bail!("no bench named {other}"),
            }
        }
    }
}

fn find(name: &str) -> Option<(&'static str, &'static str)> {
    BENCHES.iter().find(|b| b.0 == name).map(|b| (b.1, b.2))
}

fn one(name: &str, args: &[String]) -> Result<()> {
    let (mut json, mut rest) = (None, Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--json" => json = Some(args.next().context("--json needs a file")?.clone()),
            _ => rest.push(arg.clone()),
        }
    }
    let figures = run(&crate::ci::root(), name, &rest, true)?;
    if let Some(file) = json {
        let values = figures.into_iter().map(|(key, value)| {
            let value = value.parse::<f64>().map_or(serde_json::Value::from(value.as_str()), serde_json::Value::from);
            (key, value)
        });
        let all = serde_json::json!({ "bench": name, "cpu": cpu(), "result": serde_json::Map::from_iter(values) });
        std::fs::write(&file, serde_json::to_string_pretty(&all)?).with_context(|| format!("cannot write {file}"))?;
    }
    Ok(())
}

/// Runs a bench of the tree at `dir` and returns what its last line says.
fn run(dir: &Path, name: &str, args: &[String], show: bool) -> Result<Figures> {
    let (package, target) = find(name).with_context(|| format!("no bench named {name}"))?;
    let mut c = Command::new(std::env::var("CARGO").unwrap_or("cargo".into()));
    c.current_dir(dir).args(["bench", "--quiet", "--package", package, "--bench", target, "--", name]).args(args);
    let out = c.stderr(Stdio::inherit()).output().with_context(|| format!("cannot run {c:?}"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    if show {
        print!("{text}");
    }
    if !out.status.success() {
        bail!("{c:?}: {}", out.status);
    }
    figures(&text).with_context(|| format!("bench {name} printed no RESULT"))
}

/// The pairs of the last `RESULT` line.
fn figures(text: &str) -> Option<Figures> {
    let line = text.lines().rev().find_map(|l| l.strip_prefix("RESULT"))?;
    Some(line.split_whitespace().filter_map(|w| w.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect())
}

/// Two commits side by side: each is checked out and built once, then they run in turn, and the
/// best of each figure counts.
fn compare(args: &[String]) -> Result<()> {
    let [a, b, rest @ ..] = args else { bail!("two commits are needed") };
    let name = rest.first().map_or("turn", String::as_str);
    let trees = [checkout(a)?, checkout(b)?];
    let args: Vec<String> = ["--no-callgrind".to_owned()].into_iter().chain(rest.iter().skip(1).cloned()).collect();
    let mut best: [Figures; 2] = Default::default();
    for round in 0..COMPARE_ROUNDS {
        for (tree, best) in trees.iter().zip(&mut best) {
            let new = run(tree, name, &args, false)?;
            if round == 0 {
                *best = new;
                continue;
            }
            for (key, value) in best.iter_mut() {
                let again = new.iter().find(|(k, _)| k == key).and_then(|(_, v)| v.parse::<f64>().ok());
                if let (Some(again), Ok(was)) = (again, value.parse::<f64>()) {
                    *value = was.min(again).to_string();
                }
            }
        }
    }
    println!("{:40} {:>12} {:>12} {:>8}", name, short(a), short(b), "B / A");
    let mut line = String::from("RESULT");
    for (key, was) in &best[0] {
        let Some((_, is)) = best[1].iter().find(|(k, _)| k == key) else { continue };
        if let (Ok(was), Ok(is)) = (was.parse::<f64>(), is.parse::<f64>()) {
            println!("{key:40} {was:12.1} {is:12.1} {:8.3}", is / was);
            line += &format!(" {key}={:.3}", is / was);
        }
    }
    println!("{line}");
    Ok(())
}

fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}

/// A work tree of a commit, below the build directory, with a build directory of its own.
fn checkout(commit: &str) -> Result<PathBuf> {
    let git = |args: &[&str]| -> Result<String> {
        let out = Command::new("git").current_dir(crate::ci::root()).args(args).output().context("cannot run git")?;
        if !out.status.success() {
            bail!("git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        }
        Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
    };
    let hash = git(&["rev-parse", "--verify", &format!("{commit}^{{commit}}")])?;
    let dir = target().join("bench-compare").join(&hash);
    if !dir.exists() {
        git(&["worktree", "add", "--detach", &dir.to_string_lossy(), &hash])?;
    }
    Ok(dir)
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::ci::root().join("target"), PathBuf::from)
}

fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|l| l.strip_prefix("model name")?.split_once(": "));
    model.map_or("unknown".into(), |(_, name)| name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_last_result() {
        let text = "RESULT old=1\ncase 1.0 cycles\nRESULT a=1.5 b=x\n";
        assert_eq!(figures(text), Some(vec![("a".into(), "1.5".into()), ("b".into(), "x".into())]));
        assert_eq!(figures("nothing"), None);
    }

    #[test]
    fn names_are_unique() {
        for (n, b) in BENCHES.iter().enumerate() {
            assert!(BENCHES[..n].iter().all(|a| a.0 != b.0), "{}", b.0);
        }
    }
}
