//! The one clock. Every thread takes its time from here, so that `time/stop` and `time/warp`
//! make time virtual for the whole process.

use std::ops::{Add, AddAssign, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Nanoseconds: a point on the monotonic clock, or a span, as the name of the value says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Nanos(pub u64);

impl Nanos {
    pub const ZERO: Nanos = Nanos(0);
    /// Later than any time that is ever reached: "never".
    pub const MAX: Nanos = Nanos(u64::MAX);
    pub const fn from_ms(ms: u64) -> Nanos {
        Nanos(ms.saturating_mul(1_000_000))
    }
    pub const fn from_secs(s: u64) -> Nanos {
        Nanos(s.saturating_mul(1_000_000_000))
    }
    pub const fn ms(self) -> u64 {
        self.0 / 1_000_000
    }
    pub const fn secs(self) -> u64 {
        self.0 / 1_000_000_000
    }
    pub const fn saturating_sub(self, o: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(o.0))
    }
    pub const fn saturating_add(self, o: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(o.0))
    }
}

/// Ends at "never", as spans come from configuration and commands.
impl Add for Nanos {
    type Output = Nanos;
    fn add(self, o: Nanos) -> Nanos {
        self.saturating_add(o)
    }
}
impl AddAssign for Nanos {
    fn add_assign(&mut self, o: Nanos) {
        *self = *self + o;
    }
}
impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, o: Nanos) -> Nanos {
        Nanos(self.0 - o.0)
    }
}
impl From<Duration> for Nanos {
    fn from(d: Duration) -> Nanos {
        Nanos(d.as_nanos() as u64)
    }
}
impl From<Nanos> for Duration {
    fn from(n: Nanos) -> Duration {
        Duration::from_nanos(n.0)
    }
}

/// Where a clock that is moved forward stops, so that there is always a later time.
const LATEST: Nanos = Nanos(u64::MAX / 2);

/// The process's clock: real until stopped, then moved only by `advance`.
///
/// Cloning shares the clock. Reading it costs one relaxed load and, while real, one
/// `clock_gettime`; workers read it once a turn.
#[derive(Clone)]
pub struct Clock(Arc<Inner>);

struct Inner {
    base: std::time::Instant,
    /// Added to the real monotonic clock, so that time goes on from the warped value.
    offset: AtomicU64,
    stopped: AtomicBool,
    /// Monotonic time while stopped.
    frozen: AtomicU64,
    /// Wall-clock minus monotonic, fixed at start: wall time is virtual with the rest.
    wall_minus_mono: u64,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// A real clock. Monotonic time starts at the system's uptime-like value, never at zero, so
    /// that "long ago" can be expressed by subtraction.
    pub fn new() -> Clock {
        let base_ns = 1_000_000_000_000;
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        Clock(Arc::new(Inner {
            base: std::time::Instant::now(),
            offset: AtomicU64::new(base_ns),
            stopped: AtomicBool::new(false),
            frozen: AtomicU64::new(0),
            wall_minus_mono: wall.saturating_sub(base_ns),
        }))
    }

    /// A clock that starts stopped, for simulation.
    pub fn stopped() -> Clock {
        let c = Clock::new();
        c.stop();
        c
    }

    fn real(&self) -> u64 {
        self.0.base.elapsed().as_nanos() as u64 + self.0.offset.load(Ordering::Relaxed)
    }

    /// Monotonic now.
    pub fn now(&self) -> Nanos {
        if self.0.stopped.load(Ordering::Acquire) {
            Nanos(self.0.frozen.load(Ordering::Acquire))
        } else {
            Nanos(self.real())
        }
    }

    /// Wall-clock now, nanoseconds since the epoch. Follows the virtual clock while stopped.
    pub fn wall(&self) -> Nanos {
        Nanos(self.now().0 + self.0.wall_minus_mono)
    }

    /// Makes time virtual: it stands still until `advance`. Idempotent.
    pub fn stop(&self) {
        if !self.is_stopped() {
            self.0.frozen.store(self.real(), Ordering::Release);
            self.0.stopped.store(true, Ordering::Release);
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }

    /// Moves time forward: the virtual clock while stopped, else the real clock's offset. Not beyond
    /// the end of time, three centuries from now.
    pub fn advance(&self, by: Nanos) {
        let moved = if self.is_stopped() { &self.0.frozen } else { &self.0.offset };
        let to = |t: u64| Some(t.saturating_add(by.0).min(LATEST.0));
        let _ = moved.fetch_update(Ordering::AcqRel, Ordering::Acquire, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopped_clock_moves_only_by_advance() {
        let c = Clock::new();
        c.stop();
        let t = c.now();
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(c.now(), t);
        c.advance(Nanos::from_ms(5));
        assert_eq!(c.now() - t, Nanos::from_ms(5));
        let w = c.wall();
        c.advance(Nanos::from_ms(1));
        assert_eq!(c.wall() - w, Nanos::from_ms(1));
    }

    #[test]
    fn time_does_not_overflow() {
        let c = Clock::stopped();
        for _ in 0..4 {
            c.advance(Nanos::from_ms(u64::MAX));
            assert!(c.now() + Nanos::from_secs(u64::MAX) == Nanos::MAX && c.wall() > c.now());
            assert!(c.now() + Nanos::from_secs(1) > c.now());
        }
    }

    #[test]
    fn real_clock_goes_on_from_a_warp() {
        let c = Clock::new();
        let t = c.now();
        c.advance(Nanos::from_secs(10));
        assert!(c.now() - t >= Nanos::from_secs(10));
    }
}
