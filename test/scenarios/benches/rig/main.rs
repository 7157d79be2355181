//! Comparisons with the reference that need both daemons: each prints a table and ends with a line
//! `RESULT key=value ...`. Sides take turns within one run, so that only ratios are to be read.
//!
//! `cargo xtask bench NAME`, or `cargo bench -p fv-scenarios --bench rig -- NAME [ARGS]`, after
//! `cargo build --release -p ferroviad`.

mod cpu;
mod report;
mod rules;
mod shapes;
mod versus;
mod wire;

use anyhow::{Result, bail};

const BENCHES: &[(&str, &str, fn(&[String]) -> Result<()>)] = &[
    ("rules", "[RULES] [ROUNDS]: loading rules in three ways, resident memory at ten times as many", rules::run),
    ("versus", "[CASE]: a packet through the datapath, against the reference's with DPDK", versus::run),
];

fn main() -> Result<()> {
    // Cargo adds `--bench`.
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let Some(bench) = args.first().and_then(|a| BENCHES.iter().find(|b| b.0 == a)) else {
        for (name, what, _) in BENCHES {
            println!("  {name} {what}");
        }
        bail!("which bench?");
    };
    bench.2(&args[1..])
}
