//! Generated rule sets and packets through both daemons.

use fv_differential::{Case, Pair, minimise};

/// Cases of the ordinary test; `FERROVIA_LONG=1` runs many more, `FERROVIA_SEEDS=A..B,C,D` those.
const SEEDS: std::ops::Range<u64> = 0..60;
const LONG: std::ops::Range<u64> = 0..5000;
/// Cases that are shown in full.
const MAX_SHOWN: usize = 5;

fn seeds() -> Vec<u64> {
    let number = |s: &str| s.parse::<u64>().expect("FERROVIA_SEEDS=A..B,C,D");
    if let Ok(s) = std::env::var("FERROVIA_SEEDS") {
        let range = |part: &str| match part.split_once("..") {
            Some((a, b)) => number(a)..number(b),
            None => number(part)..number(part) + 1,
        };
        return s.split(',').flat_map(range).collect();
    }
    if std::env::var_os("FERROVIA_LONG").is_some() { LONG.collect() } else { SEEDS.collect() }
}

fn show(c: &Case) -> String {
    let mut s = format!("seed {}: {:?}, frags {}\n", c.seed, c.dialect, c.frags);
    for (p, set) in &c.ports {
        s += &format!("  {p}: {set}\n");
    }
    for (b, p, m) in &c.port_mods {
        s += &format!("  mod-port br{b} {p} {m}\n");
    }
    for g in &c.groups {
        s += &format!("  group: {g}\n");
    }
    for (b, rules) in c.rules.iter().enumerate() {
        for r in rules {
            s += &format!("  br{b}: {r}\n");
        }
    }
    for step in &c.steps {
        s += &format!("  {step:?}\n");
    }
    s
}

#[test]
fn the_same_as_the_reference() {
    let mut pair = Pair::new();
    let (mut failed, mut unsteady) = (Vec::new(), Vec::new());
    for seed in seeds() {
        let case = Case::new(seed);
        let first = pair.run(&case);
        if first.is_empty() {
            continue;
        }
        // What depends on when a thread of either had its turn does not show again.
        let diffs = pair.run(&case);
        if diffs.is_empty() {
            println!("seed {seed}: only once:");
            first.iter().for_each(|d| println!("{d}"));
            unsteady.push(seed);
            continue;
        }
        println!("seed {seed}: {} differences", diffs.len());
        failed.push(seed);
        if std::env::var_os("FERROVIA_RAW").is_some() {
            diffs.iter().for_each(|d| println!("{d}"));
            if std::env::var_os("FERROVIA_SHOW").is_some() {
                println!("{}", show(&case));
            }
            continue;
        }
        if failed.len() > MAX_SHOWN {
            continue;
        }
        pair = Pair::new();
        let small = minimise(&case, |c| !pair.run(c).is_empty());
        println!("{}", show(&small));
        for d in pair.run(&small).iter().chain(if small == case { &diffs[..] } else { &[] }).take(4) {
            println!("{d}");
        }
        pair = Pair::new();
    }
    println!("{} seeds differed only once: {unsteady:?}", unsteady.len());
    assert!(failed.is_empty(), "{} seeds differ: {failed:?}", failed.len());
}
