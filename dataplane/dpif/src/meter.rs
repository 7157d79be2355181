//! Meters: rate limits that programs name (OpenFlow 1.3.5, section 5.7).
//!
//! A band is a token bucket that holds at most its burst and fills with its rate; a packet for which
//! a band has too little exceeds it, and of several exceeded bands the one of the highest rate takes
//! the packet. Control makes meters and the datapath runs them; both hold the same object.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fv_core::Nanos;

/// What one packet, or one bit, costs; a rate of one a second gives as much as there are
/// nanoseconds in it, so that nothing is ever rounded.
const UNIT: u128 = 1_000_000_000;
/// Bits a second of one kilobit a second.
const KILO: u64 = 1000;

/// Numbers of meters of the whole process, so that any bridges may share a datapath.
static IDS: Mutex<Ids> = Mutex::new(Ids { next: 0, free: BTreeSet::new() });

struct Ids {
    /// Never used, nor any above.
    next: u32,
    /// Used once and free again, all below `next`.
    free: BTreeSet<u32>,
}

/// A datapath's number of a meter, the lowest that was free. Free again when dropped.
#[derive(Debug)]
pub struct MeterId(u32);

impl MeterId {
    pub fn allocate() -> Arc<MeterId> {
        let mut ids = IDS.lock().unwrap_or_else(PoisonError::into_inner);
        let id = ids.free.pop_first().unwrap_or_else(|| {
            ids.next += 1;
            ids.next - 1
        });
        Arc::new(MeterId(id))
    }

    pub fn number(&self) -> u32 {
        self.0
    }
}

impl Drop for MeterId {
    fn drop(&mut self) {
        IDS.lock().unwrap_or_else(PoisonError::into_inner).free.insert(self.0);
    }
}

/// What a meter counts in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MeterUnit {
    /// Rates in packets a second, bursts in packets.
    Packets,
    /// Rates in kilobits a second, bursts in kilobits.
    Kilobits,
}

/// A band that drops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MeterBand {
    pub rate: u32,
    /// Zero is as much as comes in a second.
    pub burst: u32,
}

#[derive(Debug)]
struct Bucket {
    /// Per nanosecond, in units of `1 / UNIT`.
    rate: u64,
    level: u128,
    max: u128,
    packets: u64,
    bytes: u64,
}

#[derive(Debug)]
struct State {
    at: Nanos,
    buckets: Vec<Bucket>,
    packets: u64,
    bytes: u64,
}

/// A meter at work.
#[derive(Debug)]
pub struct Meter {
    id: Arc<MeterId>,
    unit: MeterUnit,
    /// Held for some additions: a meter is one bucket for all workers, or it would not be exact.
    state: Mutex<State>,
}

/// (packets, bytes) of all, and of each band.
pub type MeterCounts = ((u64, u64), Vec<(u64, u64)>);

impl Meter {
    pub fn new(id: Arc<MeterId>, unit: MeterUnit, bands: &[MeterBand], now: Nanos) -> Meter {
        let bucket = |b: &MeterBand| {
            let kilo = if unit == MeterUnit::Kilobits { KILO } else { 1 };
            let burst = if b.burst == 0 { b.rate } else { b.burst };
            let max = u128::from(burst) * u128::from(kilo) * UNIT;
            Bucket { rate: u64::from(b.rate) * kilo, level: max, max, packets: 0, bytes: 0 }
        };
        let state = State { at: now, buckets: bands.iter().map(bucket).collect(), packets: 0, bytes: 0 };
        Meter { id, unit, state: Mutex::new(state) }
    }

    pub fn id(&self) -> &Arc<MeterId> {
        &self.id
    }

    /// Counts a packet; whether it may go on.
    pub fn pass(&self, now: Nanos, bytes: u32) -> bool {
        let cost = match self.unit {
            MeterUnit::Packets => UNIT,
            MeterUnit::Kilobits => u128::from(bytes) * 8 * UNIT,
        };
        let mut s = self.lock();
        let passed = now.0.saturating_sub(s.at.0);
        s.at = s.at.max(now);
        s.packets += 1;
        s.bytes += u64::from(bytes);
        let mut worst: Option<&mut Bucket> = None;
        for b in &mut s.buckets {
            b.level = (b.level + u128::from(b.rate) * u128::from(passed)).min(b.max);
            if let Some(left) = b.level.checked_sub(cost) {
                b.level = left;
            } else if worst.as_ref().is_none_or(|w| w.rate < b.rate) {
                worst = Some(b);
            }
        }
        match worst {
            Some(b) => {
                b.packets += 1;
                b.bytes += u64::from(bytes);
                false
            }
            None => true,
        }
    }

    pub fn counts(&self) -> MeterCounts {
        let s = self.lock();
        ((s.packets, s.bytes), s.buckets.iter().map(|b| (b.packets, b.bytes)).collect())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn meter(unit: MeterUnit, bands: &[(u32, u32)]) -> Meter {
        let bands: Vec<MeterBand> =
            bands.iter().map(|(rate, burst)| MeterBand { rate: *rate, burst: *burst }).collect();
        Meter::new(MeterId::allocate(), unit, &bands, Nanos::ZERO)
    }

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let m = meter(MeterUnit::Packets, &[(1, 2)]);
        let passed = |at_ms: u64| m.pass(Nanos(at_ms * 1_000_000), 100);
        assert_eq!(
            [0, 0, 0, 999, 1000, 1999, 2000, 2000].map(passed),
            [true, true, false, false, true, false, true, false]
        );
        assert_eq!(m.counts(), ((8, 800), vec![(4, 400)]));
    }

    #[test]
    fn bits_are_counted_by_length() {
        // A kilobit is 125 bytes.
        let m = meter(MeterUnit::Kilobits, &[(1, 1)]);
        assert_eq!([100, 25, 1].map(|n| m.pass(Nanos::ZERO, n)), [true, true, false]);
        assert!(m.pass(Nanos::from_secs(1), 125));
        assert!(!m.pass(Nanos::from_secs(1), 1));
    }

    #[test]
    fn the_highest_exceeded_rate_takes_the_packet() {
        let m = meter(MeterUnit::Packets, &[(1, 1), (3, 3), (2, 2)]);
        (0..5).for_each(|_| {
            m.pass(Nanos::ZERO, 10);
        });
        assert_eq!(m.counts().1, [(1, 10), (2, 20), (1, 10)]);
    }

    #[test]
    fn the_largest_burst_passes_whole() {
        let m = meter(MeterUnit::Kilobits, &[(1, u32::MAX)]);
        assert!((0..125).all(|_| m.pass(Nanos::ZERO, u32::MAX)));
        assert!(!m.pass(Nanos::ZERO, 1));
    }

    #[test]
    fn threads_share_one_bucket() {
        let m = meter(MeterUnit::Packets, &[(1000, 500)]);
        let passed: u64 = std::thread::scope(|s| {
            let send = || (0..20_000u64).filter(|n| m.pass(Nanos(n * 50_000), 64)).count() as u64;
            let threads: Vec<_> = (0..4).map(|_| s.spawn(send)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        // The burst, and what comes at the rate until the last packet, at 999.95 ms.
        assert_eq!(passed, 500 + 999);
        assert_eq!(m.counts().1, [(80_000 - passed, (80_000 - passed) * 64)]);
    }

    #[test]
    fn without_bands_all_pass() {
        let m = meter(MeterUnit::Packets, &[]);
        assert!((0..1000).all(|_| m.pass(Nanos::ZERO, 1)));
        assert!(!meter(MeterUnit::Packets, &[(0, 0)]).pass(Nanos::from_secs(9), 1));
    }

    #[test]
    fn numbers_are_used_again() {
        let held: Vec<_> = (0..8).map(|_| MeterId::allocate()).collect();
        let number = held[3].number();
        let unique: BTreeSet<u32> = held.iter().map(|i| i.number()).collect();
        assert_eq!(unique.len(), held.len());
        drop(held);
        let again: Vec<_> = (0..64).map(|_| MeterId::allocate()).collect();
        assert!(again.iter().any(|i| i.number() == number));
    }

    proptest! {
        /// In any time no more than the burst and what came at the rate since, to the packet.
        #[test]
        fn equals_the_naive_count(rate in 1u32..2000, burst in 1u32..50, gaps_us in proptest::collection::vec(0u64..5000, 1..300)) {
            let m = meter(MeterUnit::Packets, &[(rate, burst)]);
            let (mut tokens, mut now) = (u128::from(burst) * 1_000_000, 0);
            for gap in gaps_us {
                now += gap;
                tokens = (tokens + u128::from(rate) * u128::from(gap)).min(u128::from(burst) * 1_000_000);
                let want = tokens >= 1_000_000;
                tokens -= if want { 1_000_000 } else { 0 };
                prop_assert_eq!(m.pass(Nanos(now * 1000), 64), want);
            }
        }
    }
}
