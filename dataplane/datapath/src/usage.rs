//! A total that grows, by intervals: what queues and workers have cost lately.

/// Intervals that are remembered.
pub const INTERVALS: usize = 12;

/// The growth of a total in each of the last intervals.
#[derive(Clone, Copy, Default, Debug)]
pub struct Usage {
    ring: [u64; INTERVALS],
    filled: usize,
    next: usize,
    /// The total at the last look; None before the first, since that interval was not a whole one.
    last: Option<u64>,
}

impl Usage {
    /// An interval ends, and `total` is what it is.
    pub fn sample(&mut self, total: u64) {
        if let Some(last) = self.last {
            self.ring[self.next] = total.saturating_sub(last);
            self.next = (self.next + 1) % INTERVALS;
            self.filled = (self.filled + 1).min(INTERVALS);
        }
        self.last = Some(total);
    }

    /// Whole intervals that are known.
    pub fn known(&self) -> usize {
        self.filled
    }

    /// The growth in the newest `n` intervals, or as many as are known.
    pub fn sum(&self, n: usize) -> u64 {
        let back = |i: usize| self.ring[(self.next + INTERVALS - 1 - i) % INTERVALS];
        (0..n.min(self.filled)).map(back).fold(0, u64::saturating_add)
    }
}

/// Whether a queue was worth polling in each of the last intervals.
#[derive(Clone, Copy, Default, Debug)]
pub struct Enabled {
    history: u16,
    filled: u32,
}

impl Enabled {
    /// An interval ends.
    pub fn sample(&mut self, enabled: bool) {
        self.history = (self.history << 1 | u16::from(enabled)) & ((1 << INTERVALS) - 1);
        self.filled = (self.filled + 1).min(INTERVALS as u32);
    }

    /// Share of the time, in percent; `now` where nothing is known yet. A queue that is worth it now is not 0.
    pub fn percent(&self, now: bool) -> u8 {
        let known = (self.history.count_ones() * 100).checked_div(self.filled);
        let past = known.unwrap_or(if now { 100 } else { 0 }) as u8;
        past.max(u8::from(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_of_time() {
        let mut e = Enabled::default();
        assert_eq!((e.percent(true), e.percent(false)), (100, 0));
        e.sample(false);
        assert_eq!((e.percent(true), e.percent(false)), (1, 0));
        (0..3).for_each(|_| e.sample(true));
        assert_eq!(e.percent(false), 75);
        (0..12).for_each(|_| e.sample(false));
        assert_eq!(e.percent(false), 0);
    }

    #[test]
    fn whole_intervals_count_and_old_ones_go() {
        let mut u = Usage::default();
        u.sample(1000);
        assert_eq!((u.known(), u.sum(12)), (0, 0), "the first interval was not a whole one");
        for n in 1..=20 {
            u.sample(1000 + n * (n + 1) / 2);
        }
        assert_eq!((u.known(), u.sum(1), u.sum(2), u.sum(100)), (12, 20, 39, (9..=20).sum()));
        u.sample(0);
        assert_eq!(u.sum(1), 0);
    }
}
