//! Waits that end: a condition is polled until it holds or its time is over.

use std::time::{Duration, Instant};

/// Pause between two looks at a condition.
const STEP: Duration = Duration::from_millis(20);

/// A point in time after which waiting stops.
#[derive(Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    pub fn after_secs(secs: u64) -> Deadline {
        Deadline(Instant::now() + Duration::from_secs(secs))
    }

    pub fn over(&self) -> bool {
        Instant::now() >= self.0
    }
}

/// Polls until `f` gives a value; None when `secs` are over.
pub fn wait_value<T>(secs: u64, mut f: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Deadline::after_secs(secs);
    loop {
        if let Some(v) = f() {
            return Some(v);
        }
        if end.over() {
            return None;
        }
        std::thread::sleep(STEP);
    }
}

/// Polls until `f` holds; panics, naming `what`, when `secs` are over.
#[track_caller]
pub fn wait_until(what: &str, secs: u64, mut f: impl FnMut() -> bool) {
    if wait_value(secs, || f().then_some(())).is_none() {
        panic!("not within {secs} s: {what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_either_way() {
        let mut n = 0;
        wait_until("three", 5, || {
            n += 1;
            n == 3
        });
        assert_eq!(wait_value(0, || None::<u8>), None);
    }
}
