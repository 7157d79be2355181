//! Rate limits per place in the code, so that one that repeats does not fill the disk. Progress
//! messages (info) have a limit only for the worst case; warnings and errors, which hostile input
//! can provoke at will, a tight one.

use std::collections::HashMap;

use fv_core::Nanos;

use super::Level;

/// Places that are watched; beyond, a message is let through.
const SITES_MAX: usize = 4096;

/// (messages a minute, burst) of a level.
fn rate(level: Level) -> (u64, u64) {
    match level {
        Level::Info => (6000, 6000),
        Level::Dbg => (6000, 6000),
        _ => (60, 60),
    }
}

/// File, line and module: one `log!` in a helper serves many modules.
pub type Site = (usize, u32, usize);

#[derive(Default)]
pub struct Limiter {
    sites: HashMap<Site, Bucket>,
}

struct Bucket {
    /// Messages that may pass, in 60,000,000,000ths.
    tokens: u64,
    filled: Nanos,
    dropped: u64,
    first_dropped: Nanos,
    last_dropped: Nanos,
}

/// What happens to a message.
#[derive(PartialEq, Eq, Debug)]
pub enum Verdict {
    Drop,
    Pass,
    /// Passes, after a line with this text about those that did not.
    PassAfter(String),
}

const MINUTE: u64 = 60_000_000_000;

impl Limiter {
    pub fn check(&mut self, site: Site, level: Level, now: Nanos) -> Verdict {
        let (per_minute, burst) = rate(level);
        if self.sites.len() >= SITES_MAX && !self.sites.contains_key(&site) {
            return Verdict::Pass;
        }
        let b = self.sites.entry(site).or_insert(Bucket {
            tokens: burst * MINUTE,
            filled: now,
            dropped: 0,
            first_dropped: now,
            last_dropped: now,
        });
        let gained = now.saturating_sub(b.filled).0.saturating_mul(per_minute);
        b.tokens = b.tokens.saturating_add(gained).min(burst * MINUTE);
        b.filled = now;
        if b.tokens < MINUTE {
            if b.dropped == 0 {
                b.first_dropped = now;
            }
            b.dropped += 1;
            b.last_dropped = now;
            return Verdict::Drop;
        }
        b.tokens -= MINUTE;
        if b.dropped == 0 {
            return Verdict::Pass;
        }
        let text = format!(
            "Dropped {} log messages in last {} seconds (most recently, {} seconds ago) due to excessive rate",
            b.dropped,
            now.saturating_sub(b.first_dropped).secs(),
            now.saturating_sub(b.last_dropped).secs()
        );
        b.dropped = 0;
        Verdict::PassAfter(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_the_rest_is_counted() {
        let mut l = Limiter::default();
        let site = (1, 2, 3);
        let t = Nanos::from_secs(100);
        let passed = (0..100).filter(|_| l.check(site, Level::Warn, t) == Verdict::Pass).count();
        assert_eq!(passed, 60);
        assert_eq!(l.check((1, 3, 3), Level::Warn, t), Verdict::Pass);
        let text = "Dropped 40 log messages in last 3 seconds (most recently, 3 seconds ago) due to excessive rate";
        let t = t.saturating_add(Nanos::from_secs(3));
        assert_eq!(l.check(site, Level::Warn, t), Verdict::PassAfter(text.into()));
        assert_eq!(l.check(site, Level::Warn, t), Verdict::Pass);
        assert_eq!(l.check(site, Level::Warn, t), Verdict::Pass);
        assert_eq!(l.check(site, Level::Warn, t), Verdict::Drop);
    }
}
