//! Every target for a few seconds, each run with a seed of its own day; `FERROVIA_FUZZ_SECONDS` makes it longer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime};

#[test]
fn no_input_breaks_a_target() {
    let seconds: f32 = std::env::var("FERROVIA_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(4.0);
    let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
    let targets = fv_fuzz::TARGETS;
    let (mut total, mut broken) = (0, Vec::new());
    for (at, t) in targets.iter().enumerate() {
        println!("{}/{}: target {} seed {seed}", at + 1, targets.len(), t.name);
        // One that breaks does not keep the others from being tried.
        match catch_unwind(AssertUnwindSafe(|| fv_fuzz::run(t, seed, Duration::from_secs_f32(seconds)))) {
            Ok(n) if n > 10 => {
                println!("  {n} inputs");
                total += n;
            }
            Ok(n) => broken.push(format!("{}: only {n} inputs were tried", t.name)),
            Err(_) => broken.push(format!("{}: broken", t.name)),
        }
    }
    println!("RESULT targets={} inputs={total} broken={}", targets.len(), broken.len());
    assert!(broken.is_empty(), "{broken:?}");
}
