//! Named event counters ("coverage" counters of the reference): drops, slow paths, rare events.
//!
//! A crate declares its counters as statics and lists them in `pub const COUNTERS`, so that the
//! application can show them all, zeros included. Not for per-packet statistics.

use std::sync::atomic::{AtomicU64, Ordering};

/// A monotone event counter. Increment is one relaxed atomic add.
pub struct Counter {
    name: &'static str,
    n: AtomicU64,
}

impl Counter {
    pub const fn new(name: &'static str) -> Counter {
        Counter { name, n: AtomicU64::new(0) }
    }
    pub fn inc(&self) {
        self.n.fetch_add(1, Ordering::Relaxed);
    }
    pub fn add(&self, n: u64) {
        self.n.fetch_add(n, Ordering::Relaxed);
    }
    pub fn name(&self) -> &'static str {
        self.name
    }
    pub fn value(&self) -> u64 {
        self.n.load(Ordering::Relaxed)
    }
}

/// Declares static counters and `pub const COUNTERS: &[&Counter]`, one list for code and display.
///
/// `counters! { pub UPCALLS = "upcalls", pub DROPS = "drops" }`
#[macro_export]
macro_rules! counters {
    ($($(#[$m:meta])* $v:vis $id:ident = $name:literal),* $(,)?) => {
        $($(#[$m])* $v static $id: $crate::Counter = $crate::Counter::new($name);)*
        /// Every counter of this crate.
        pub const COUNTERS: &[&$crate::Counter] = &[$(&$id),*];
    };
}
