//! What a worker counts: single writer, any reader.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

macro_rules! stats {
    ($($(#[$m:meta])* $id:ident),* $(,)?) => {
        /// One of a worker's counters.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Stat { $($(#[$m])* $id),* }
        impl Stat {
            pub const ALL: &'static [Stat] = &[$(Stat::$id),*];
        }
    };
}

stats! {
    /// Packets that receive queues delivered.
    Received,
    /// Packets that came in by `execute`.
    Executed,
    /// Packets sent through the datapath again.
    Recirculated,
    /// Lookups on ports whose flows look at no more than ingress port, EtherType, VLAN and fragment bits
    /// ("simple match").
    SimpleHit,
    /// Lookups that the tag cache answered while it was as small as an EMC is.
    CacheHit,
    /// Those that it answered while it was larger ("SMC").
    BigCacheHit,
    /// Lookups that a subtable answered.
    SubtableHit,
    /// Subtables searched for those.
    SubtableLookups,
    /// Packets whose mark led to their flow.
    MarkHit,
    /// Lookups without a flow.
    Missed,
    /// Misses that ended without a verdict to forward.
    Lost,
    /// Misses that had to wait.
    Deferred,
    /// Verdicts that were carried out but not kept, as the port has its share of flows.
    Refused,
    /// Packets that devices took.
    Sent,
    SentBytes,
    /// Calls that took them.
    SendBatches,
    /// Packets dropped, whatever the reason.
    Dropped,
    /// Packets made: copies and segments.
    Copied,
    /// Packets handed to the control plane for good.
    Punted,
    /// Packets whose program ended without a consuming last action.
    Ended,
    /// Turns without and with packets, and clock ticks in them.
    IdleTurns,
    BusyTurns,
    IdleTicks,
    BusyTicks,
    /// Ticks spent in upcalls.
    UpcallTicks,
    /// Sleeps of a poll worker's thread between turns.
    SleepTurns,
    SleepNanos,
}

impl Stat {
    /// Lookups that found a flow, whatever answered them.
    pub const HITS: [Stat; 5] = [Stat::SimpleHit, Stat::CacheHit, Stat::BigCacheHit, Stat::SubtableHit, Stat::MarkHit];
}

const N: usize = Stat::ALL.len();

/// A worker's counters.
#[derive(Default, Debug)]
pub struct WorkerStats {
    counts: CachePadded<[AtomicU64; N]>,
}

impl WorkerStats {
    #[inline]
    pub fn add(&self, stat: Stat, n: u64) {
        let c = &self.counts[stat as usize];
        c.store(c.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    pub fn value(&self, stat: Stat) -> u64 {
        self.counts[stat as usize].load(Ordering::Relaxed)
    }

    /// All values, in the order of [`Stat::ALL`].
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(std::array::from_fn(|i| self.counts[i].load(Ordering::Relaxed)))
    }
}

/// A worker's counters at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Snapshot([u64; N]);

impl Default for Snapshot {
    fn default() -> Snapshot {
        Snapshot([0; N])
    }
}

impl Snapshot {
    pub fn value(&self, stat: Stat) -> u64 {
        self.0[stat as usize]
    }

    /// What both have counted together.
    pub fn plus(&self, other: &Snapshot) -> Snapshot {
        Snapshot(std::array::from_fn(|i| self.0[i].wrapping_add(other.0[i])))
    }

    /// What was counted since `earlier`.
    pub fn since(&self, earlier: &Snapshot) -> Snapshot {
        Snapshot(std::array::from_fn(|i| self.0[i].wrapping_sub(earlier.0[i])))
    }
}

/// What one receive queue delivered and cost.
#[derive(Default, Debug)]
pub struct QueueStats {
    packets: AtomicU64,
    ticks: AtomicU64,
    /// Misses dropped because this queue's were too many.
    overflow: AtomicU64,
    /// Times that it was found to hold no more, after what it had held was dealt with.
    emptied: AtomicU64,
    /// What its lookups do about the cache.
    pub cache: CacheChoice,
}

impl QueueStats {
    pub(crate) fn add(&self, packets: u64, ticks: u64) {
        self.packets.store(self.packets() + packets, Ordering::Release);
        self.ticks.store(self.ticks() + ticks, Ordering::Relaxed);
    }

    pub(crate) fn overflowed(&self) {
        self.overflow.store(self.overflow() + 1, Ordering::Relaxed);
    }

    pub(crate) fn emptied_once(&self) {
        self.emptied.store(self.emptied() + 1, Ordering::Release);
    }

    pub fn emptied(&self) -> u64 {
        self.emptied.load(Ordering::Acquire)
    }

    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    pub fn ticks(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    pub fn overflow(&self) -> u64 {
        self.overflow.load(Ordering::Relaxed)
    }
}

/// Why a queue's lookups ask the cache, or do not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Why {
    /// No packet has come yet.
    Idle,
    /// `other_config` or the interface says so.
    Set,
    /// The subtables are so few that no cache can be faster.
    Cheap,
    /// Not tried yet.
    Untried,
    /// By trial.
    Measured,
}

impl Why {
    const ALL: [Why; 5] = [Why::Idle, Why::Set, Why::Cheap, Why::Untried, Why::Measured];
}

/// A queue's choice, published by its worker.
#[derive(Default, Debug)]
pub struct CacheChoice {
    /// `emc-enable` of the port is false. Written by control.
    forbidden: AtomicBool,
    on: AtomicBool,
    why: AtomicU8,
    trials: AtomicU64,
    /// Sixteenths of ticks a packet's lookup took with and without, at the last trial.
    with: AtomicU64,
    without: AtomicU64,
}

impl CacheChoice {
    pub(crate) fn set(&self, on: bool, why: Why) {
        self.on.store(on, Ordering::Relaxed);
        self.why.store(why as u8, Ordering::Relaxed);
    }

    pub(crate) fn tried(&self, with: u64, without: u64) {
        self.with.store(with, Ordering::Relaxed);
        self.without.store(without, Ordering::Relaxed);
        self.trials.store(self.trials() + 1, Ordering::Relaxed);
    }

    /// Says what was before.
    pub(crate) fn forbid(&self, forbidden: bool) -> bool {
        self.forbidden.swap(forbidden, Ordering::Relaxed)
    }

    #[inline]
    pub fn forbidden(&self) -> bool {
        self.forbidden.load(Ordering::Relaxed)
    }

    pub fn on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn why(&self) -> Why {
        Why::ALL.get(usize::from(self.why.load(Ordering::Relaxed))).copied().unwrap_or(Why::Idle)
    }

    pub fn trials(&self) -> u64 {
        self.trials.load(Ordering::Relaxed)
    }

    /// Ticks that a packet's lookup took with and without the cache, at the last trial.
    pub fn costs(&self) -> (f64, f64) {
        let cost = |c: &AtomicU64| c.load(Ordering::Relaxed) as f64 / 16.0;
        (cost(&self.with), cost(&self.without))
    }
}
