//! When to connect: a state machine without I/O. A front end that is not there is tried again for ever, at first
//! soon, then less often.

use fv_core::Nanos;

/// First and longest pause between two tries.
const PAUSE_MIN: Nanos = Nanos::from_ms(10);
const PAUSE_MAX: Nanos = Nanos::from_secs(1);

#[derive(Debug, Default)]
pub struct Link {
    /// When to try next; None while there is a connection.
    next: Option<Nanos>,
    pause: Nanos,
}

impl Link {
    pub fn new(now: Nanos) -> Link {
        Link { next: Some(now), pause: PAUSE_MIN }
    }

    /// When something is to be done.
    pub fn next(&self) -> Option<Nanos> {
        self.next
    }

    pub fn is_due(&self, now: Nanos) -> bool {
        self.next.is_some_and(|at| at <= now)
    }

    pub fn connected(&mut self) {
        self.next = None;
    }

    /// A try has failed.
    pub fn failed(&mut self, now: Nanos) {
        self.next = Some(now + self.pause);
        self.pause = Nanos((self.pause.0 * 2).min(PAUSE_MAX.0));
    }

    /// The connection is over. One that `spoke` was with a front end that works: it may be back at once.
    pub fn ended(&mut self, now: Nanos, spoke: bool) {
        if spoke {
            self.pause = PAUSE_MIN;
        }
        self.failed(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_for_ever_and_less_often() {
        let mut l = Link::new(Nanos::ZERO);
        let mut now = Nanos::ZERO;
        let mut pauses = Vec::new();
        for _ in 0..10 {
            assert!(l.is_due(now) && !l.is_due(now.saturating_sub(Nanos(1))) || now == Nanos::ZERO);
            l.failed(now);
            pauses.push(l.next().unwrap().saturating_sub(now).ms());
            now = l.next().unwrap();
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000]);
        l.connected();
        assert_eq!((l.next(), l.is_due(Nanos::MAX)), (None, false));
        l.ended(now, false);
        assert_eq!(l.next(), Some(now + Nanos::from_secs(1)), "it has said nothing");
        l.ended(now, true);
        assert_eq!(l.next(), Some(now + PAUSE_MIN));
    }
}
