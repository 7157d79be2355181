//! Which receive queues of a port are worth polling, told by the device to whoever polls them.

use std::sync::atomic::{AtomicU64, Ordering};

/// A bit for each receive queue, changed by the device at any time, and a number that moves with each change.
/// Cost to the reader while nothing changes: one load.
pub struct EnabledQueues {
    seq: AtomicU64,
    words: Box<[AtomicU64]>,
}

impl EnabledQueues {
    /// None of `n` is enabled.
    pub fn new(n: usize) -> EnabledQueues {
        EnabledQueues { seq: AtomicU64::new(0), words: (0..n.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Says whether that is a change. Queues that there are not are never enabled.
    pub fn set(&self, q: usize, enabled: bool) -> bool {
        let Some(word) = self.words.get(q / 64) else { return false };
        let bit = 1 << (q % 64);
        let before = match enabled {
            true => word.fetch_or(bit, Ordering::Relaxed),
            false => word.fetch_and(!bit, Ordering::Relaxed),
        };
        let changed = (before & bit != 0) != enabled;
        if changed {
            // Release: who sees the number sees the bit.
            self.seq.fetch_add(1, Ordering::Release);
        }
        changed
    }

    #[inline]
    pub fn is_enabled(&self, q: usize) -> bool {
        self.words.get(q / 64).is_some_and(|w| w.load(Ordering::Relaxed) >> (q % 64) & 1 != 0)
    }

    /// Moves with each change.
    #[inline]
    pub fn seq(&self) -> u64 {
        self.seq.load(Ordering::Acquire)
    }

    /// Queues that are enabled.
    pub fn count(&self) -> usize {
        self.words.iter().map(|w| w.load(Ordering::Relaxed).count_ones() as usize).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_move_the_number() {
        let e = EnabledQueues::new(65);
        assert!(!e.set(3, false) && e.seq() == 0);
        assert!(e.set(64, true) && e.set(3, true) && !e.set(3, true));
        assert_eq!((e.seq(), e.count(), e.is_enabled(64), e.is_enabled(4)), (2, 2, true, false));
        assert!(e.set(64, false) && !e.is_enabled(64) && e.is_enabled(3));
        assert!(!e.set(128, true) && !e.is_enabled(128));
    }
}
