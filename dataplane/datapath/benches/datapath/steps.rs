//! A clock that stands still while the processor is away.
//!
//! The thread looks at the time stamp counter every few hundred nanoseconds of its work. Where two looks
//! are further apart than any work in between can take, something else had the processor: another
//! thread, an interrupt, or the machine below, of which the kernel here knows nothing and counts it as
//! the thread's own time. A plain loop on the same processor shows how often that happens to anybody.

use std::cell::Cell;

use crate::measure::ticks;

/// No work between two looks takes so long.
const STEP_US: u64 = 20;

#[derive(Clone, Copy, Default)]
struct Clock {
    last: u64,
    /// Ticks of gaps so far, and how many there were.
    away: u64,
    gaps: u64,
    step: u64,
}

thread_local! {
    static CLOCK: Cell<Clock> = const { Cell::new(Clock { last: 0, away: 0, gaps: 0, step: u64::MAX }) };
}

/// From here on, with so many ticks a microsecond.
pub fn start(ticks_per_us: u64) {
    CLOCK.set(Clock { last: ticks(), step: STEP_US * ticks_per_us, ..Clock::default() });
}

/// Looks at the counter; returns the ticks that the thread has had the processor since the beginning of
/// the counter.
pub fn look() -> u64 {
    let mut c = CLOCK.get();
    let now = ticks();
    let gap = now.wrapping_sub(c.last);
    c.last = now;
    if gap > c.step {
        c.away += gap;
        c.gaps += 1;
    }
    CLOCK.set(c);
    now.wrapping_sub(c.away)
}

/// Gaps since the start, and the ticks in them.
pub fn gaps() -> (u64, u64) {
    let c = CLOCK.get();
    (c.gaps, c.away)
}
