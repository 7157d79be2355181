//! Every target for a few seconds, each run with a seed of its own day; `FERROVIA_FUZZ_SECONDS` makes it longer.

use std::time::{Duration, SystemTime};

#[test]
fn no_input_breaks_a_target() {
    let seconds: f32 = std::env::var("FERROVIA_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(4.0);
    let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
    for t in fv_fuzz::TARGETS {
        println!("target {} seed {seed}", t.name);
        let n = fv_fuzz::run(t, seed, Duration::from_secs_f32(seconds));
        println!("  {n} inputs");
        assert!(n > 10, "{}: hardly any input was tried", t.name);
    }
}
