//! Benches of the datapath: `cargo xtask bench NAME`, or
//! `cargo bench -p fv-datapath --bench datapath -- NAME [--rounds N] [--only CASE] [--no-callgrind]`.
//!
//! Each prints a line a case, in clock cycles (ticks of the time stamp counter) a packet, and last
//! a line `RESULT key=value ...`.
#![allow(unsafe_code)]

#[path = "../../tests/common/mod.rs"]
mod common;

mod action;
mod adaptive;
mod lookup;
mod marks;
mod measure;
mod parse;
mod ring;
mod scale;
mod steps;
mod storm;
mod tse;
mod turn;

use measure::Run;

const BENCHES: &[(&str, fn(&Run))] = &[
    ("parse", parse::run),
    ("emc", lookup::emc),
    ("smc", lookup::smc),
    ("dpcls", lookup::dpcls),
    ("action", action::run),
    ("turn", turn::run),
    ("marks", marks::run),
    ("adaptive", adaptive::run),
    ("tse", tse::run),
    ("storm", storm::run),
    ("scale", scale::run),
];

fn main() {
    let mut args = std::env::args().skip(1);
    let mut run = Run { bench: String::new(), rounds: 100, only: None, count: None, callgrind: true };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            // Given by cargo.
            "--bench" => {}
            "--rounds" => run.rounds = args.next().and_then(|n| n.parse().ok()).unwrap_or(run.rounds),
            "--only" => run.only = args.next(),
            "--count" => run.count = args.next().and_then(|n| n.parse().ok()),
            "--no-callgrind" => run.callgrind = false,
            name => run.bench = name.into(),
        }
    }
    match BENCHES.iter().find(|b| b.0 == run.bench) {
        Some((_, f)) => f(&run),
        None => println!("benches: {}", BENCHES.iter().map(|b| b.0).collect::<Vec<_>>().join(" ")),
    }
}
