//! The project's own tasks. `cargo xtask` lists them.

mod bench;
mod ci;
mod layers;
mod tidy;

use anyhow::{Result, bail};

const TASKS: &[(&str, &str, fn(&[String]) -> Result<()>)] = &[
    ("ci", "what CI runs: format, lints, layers, tidiness, docs, build, tests", ci::ci),
    ("fmt", "check formatting", |_| ci::fmt()),
    ("clippy", "lints, warnings are errors", |_| ci::clippy()),
    ("layers", "compare layers.toml with the crate graph", |_| ci::layers()),
    ("tidy", "rules on files that no compiler checks", |_| tidy::check()),
    ("test", "unit, property and scenario tests", |_| ci::tests()),
    ("fuzz", "[SECONDS] of each fuzz target, optimised (default 60)", ci::fuzz),
    ("bench", "NAME, or compare A B: benches, each ending in a line of figures", bench::bench),
    (
        "long",
        "[WORD] the long forms of properties, soaks, differential tests and fuzzing, one after the other",
        ci::long,
    ),
];

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(task) = args.first().and_then(|a| TASKS.iter().find(|t| t.0 == a)) else {
        for (name, what, _) in TASKS {
            println!("  cargo xtask {name:8} {what}");
        }
        match args.first().map(String::as_str) {
            None | Some("help" | "--help" | "-h") => return Ok(()),
            Some(other) => bail!("no task named {other}"),
        }
    };
    task.2(&args[1..])
}
