//! Fuzz targets: each takes any bytes and must neither panic nor hang nor use memory without bound.
//!
//! [`run`] mutates seeds without looking at coverage, for as long as it is told; the test of this
//! crate runs every target for seconds, `cargo xtask fuzz` for as long as one likes.

#[path = "../../io/netdev-vhost/tests/guest/mod.rs"]
mod guest;
pub mod mutate;
mod rings;
pub mod targets;
mod vhost;

use std::time::{Duration, Instant};

pub use mutate::Rng;
pub use targets::{TARGETS, Target};

/// Runs one target on its seeds and on mutations of them. Returns how many inputs were tried.
///
/// A panic goes through, after the input was printed as hexadecimal.
pub fn run(t: &Target, seed: u64, time: Duration) -> u64 {
    let mut rng = Rng::new(seed);
    let seeds = (t.seeds)();
    let end = Instant::now() + time;
    let mut n = 0;
    for s in &seeds {
        once(t, s);
        n += 1;
    }
    while Instant::now() < end {
        for _ in 0..64 {
            let base = &seeds[rng.below(seeds.len())];
            let input = mutate::mutate(&mut rng, base, &seeds);
            once(t, &input);
            n += 1;
        }
    }
    n
}

/// One input; prints it if the target panics.
fn once(t: &Target, input: &[u8]) {
    struct Print<'a>(&'a str, &'a [u8]);
    impl Drop for Print<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let hex: String = self.1.iter().map(|b| format!("{b:02x}")).collect();
                eprintln!("target {} panicked on {hex}", self.0);
            }
        }
    }
    let p = Print(t.name, input);
    (t.run)(input);
    drop(p);
}
