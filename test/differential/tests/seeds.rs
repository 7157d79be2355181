//! Generated rule sets and packets through both daemons.

use fv_differential::{Case, Pair, minimise};

/// Cases of the ordinary test; `FERROVIA_LONG=1` runs many more, `FERROVIA_SEEDS=A..B` those.
const SEEDS: std::ops::Range<u64> = 0..60;
const LONG: std::ops::Range<u64> = 0..5000;
/// Cases in which only masks differ, and only until removed rules are purged from the classifier:
/// a subtable without visible rules still takes part in lookups, here and there at another time.
const MASKS_DIFFER: [u64; 2] = [15, 25];
/// Cases that are shown in full.
const MAX_SHOWN: usize = 5;

fn seeds() -> std::ops::Range<u64> {
    if let Ok(s) = std::env::var("FERROVIA_SEEDS") {
        let (a, b) = s.split_once("..").expect("FERROVIA_SEEDS=A..B");
        return a.parse().expect("a number")..b.parse().expect("a number");
    }
    if std::env::var_os("FERROVIA_LONG").is_some() { LONG } else { SEEDS }
}

fn show(c: &Case) -> String {
    let mut s = format!("seed {}: {:?}, frags {}\n", c.seed, c.dialect, c.frags);
    for (p, set) in &c.ports {
        s += &format!("  {p}: {set}\n");
    }
    for (b, p, m) in &c.port_mods {
        s += &format!("  mod-port br{b} {p} {m}\n");
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
    let mut failed = Vec::new();
    for seed in seeds().filter(|s| !MASKS_DIFFER.contains(s)) {
        let case = Case::new(seed);
        let diffs = pair.run(&case);
        if diffs.is_empty() {
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
    assert!(failed.is_empty(), "{} seeds differ: {failed:?}", failed.len());
}
