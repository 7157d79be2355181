//! Benches of misses and revalidation: `cargo xtask bench NAME`, or
//! `cargo bench -p fv-slowpath --bench slowpath -- NAME [ARGS]`. Each ends with a line `RESULT key=value ...`.

#[path = "../../../../dataplane/datapath/tests/common/mod.rs"]
mod common;

mod change;
mod miss;
mod switch;
mod writer;

use std::process::{Command, Stdio};

const BENCHES: &[(&str, fn(&[String]))] = &[("miss", miss::run), ("change", change::run), ("writer", writer::run)];

fn main() {
    // Cargo adds `--bench`.
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    match args.first().and_then(|a| BENCHES.iter().find(|b| b.0 == a)) {
        Some((_, f)) => f(&args[1..]),
        None => println!("benches: {}", BENCHES.iter().map(|b| b.0).collect::<Vec<_>>().join(" ")),
    }
}

/// The lowest decile.
fn low(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 10).copied().unwrap_or(f64::NAN)
}

/// What callgrind looks at.
#[inline(never)]
fn counted(run: &mut dyn FnMut() -> usize) -> usize {
    std::hint::black_box(run())
}

/// Instructions that this program needs for each of what it says that it did, with other arguments.
fn callgrind(args: &[&str]) -> Option<f64> {
    let out = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no", "--toggle-collect=*counted*"])
        .arg("--callgrind-out-file=/dev/null")
        .arg(std::env::current_exe().ok()?)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let number = |text: &[u8], before: &str| {
        let text = String::from_utf8_lossy(text).into_owned();
        let line = text.lines().find(|l| l.contains(before))?;
        line.split(before).nth(1)?.split_whitespace().find_map(|w| w.parse::<f64>().ok())
    };
    Some(number(&out.stderr, "Collected")? / number(&out.stdout, "DONE")?)
}
