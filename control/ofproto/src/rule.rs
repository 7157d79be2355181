//! One flow of the tables.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};

use fv_classifier::ClsRule;
use fv_core::Nanos;
use fv_flow::{Match, TunLayout};
use fv_openflow::Actions;
use fv_openflow::msg::FlowModFlags;

/// A rule as the classifier holds it: match and priority outside, the rest within.
pub type RuleRef = Arc<ClsRule<Rule>>;

/// Priorities above this are the switch's own; controllers neither see nor touch them.
pub const MAX_OPENFLOW_PRIORITY: i32 = 0xffff;
/// The rule that forwards normally while no controller is there.
pub const FAIL_OPEN_PRIORITY: i32 = 0x00f0_f0f0;

/// What a rule has forwarded. A rule that replaces another by modification shares it.
#[derive(Debug)]
pub struct RuleStats {
    packets: AtomicU64,
    bytes: AtomicU64,
    used: AtomicU64,
    tcp_flags: AtomicU16,
}

impl RuleStats {
    /// `used` starts as the time of creation: idle time counts from there.
    pub fn new(now: Nanos) -> RuleStats {
        RuleStats {
            packets: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            used: AtomicU64::new(now.0),
            tcp_flags: AtomicU16::new(0),
        }
    }
    pub fn packets(&self) -> u64 {
        self.packets.load(Relaxed)
    }
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
    pub fn used(&self) -> Nanos {
        Nanos(self.used.load(Relaxed))
    }
    /// OR of the flags of the TCP packets that were credited.
    pub fn tcp_flags(&self) -> u16 {
        self.tcp_flags.load(Relaxed)
    }
}

/// Immutable but for statistics and timeouts: a modification makes a new rule.
#[derive(Debug)]
pub struct Rule {
    pub table: u8,
    pub cookie: u64,
    pub actions: Arc<Actions>,
    pub flags: FlowModFlags,
    pub importance: u16,
    /// When the flow was added; modifications keep it.
    pub created: Nanos,
    pub stats: Arc<RuleStats>,
    modified: AtomicU64,
    idle_timeout_s: AtomicU16,
    hard_timeout_s: AtomicU16,
    /// The time under which the bridge's timers know it; 0 if they do not.
    pub(crate) timer: AtomicU64,
    /// Where the options of tunnels are that the match names, if it names any.
    options: Option<Box<TunLayout>>,
}

/// The rule's match.
pub fn match_of(r: &RuleRef) -> Match {
    let m = r.matches().expand();
    match &r.options {
        Some(layout) => Match { layout: **layout, ..m },
        None => m,
    }
}

impl Rule {
    pub fn new(table: u8, cookie: u64, actions: Arc<Actions>, now: Nanos) -> Rule {
        Rule {
            table,
            cookie,
            actions,
            flags: FlowModFlags::default(),
            importance: 0,
            created: now,
            stats: Arc::new(RuleStats::new(now)),
            modified: AtomicU64::new(now.0),
            idle_timeout_s: AtomicU16::new(0),
            hard_timeout_s: AtomicU16::new(0),
            timer: AtomicU64::new(0),
            options: None,
        }
    }

    /// What modifying the flow makes of it: the same, with other actions.
    pub(crate) fn modified_by(&self, actions: Arc<Actions>, cookie: u64, reset_counts: bool, now: Nanos) -> Rule {
        Rule {
            table: self.table,
            cookie,
            actions,
            flags: self.flags,
            importance: self.importance,
            created: self.created,
            stats: if reset_counts { Arc::new(RuleStats::new(now)) } else { self.stats.clone() },
            modified: AtomicU64::new(now.0),
            idle_timeout_s: AtomicU16::new(self.idle_timeout_s()),
            hard_timeout_s: AtomicU16::new(self.hard_timeout_s()),
            timer: AtomicU64::new(0),
            options: self.options.clone(),
        }
    }

    /// As the rule of a match.
    #[must_use]
    pub fn with_match(mut self, m: &Match) -> Rule {
        self.options = (m.mask.0.pipe.tun_present != 0).then(|| Box::new(m.layout));
        self
    }

    #[must_use]
    pub fn with_timeouts(mut self, idle_s: u16, hard_s: u16) -> Rule {
        *self.idle_timeout_s.get_mut() = idle_s;
        *self.hard_timeout_s.get_mut() = hard_s;
        self
    }

    /// Counts packets that this rule handled. From any thread.
    pub fn credit(&self, packets: u64, bytes: u64, used: Nanos, tcp_flags: u16) {
        let s = &self.stats;
        s.packets.fetch_add(packets, Relaxed);
        s.bytes.fetch_add(bytes, Relaxed);
        s.used.fetch_max(used.0, Relaxed);
        if tcp_flags != 0 {
            s.tcp_flags.fetch_or(tcp_flags, Relaxed);
        }
    }

    pub fn modified(&self) -> Nanos {
        Nanos(self.modified.load(Relaxed))
    }

    /// Starts the hard timeout anew, as `learn` does for a flow that it finds unchanged.
    pub fn touch(&self, now: Nanos) {
        self.modified.fetch_max(now.0, Relaxed);
    }

    pub fn idle_timeout_s(&self) -> u16 {
        self.idle_timeout_s.load(Relaxed)
    }

    pub fn hard_timeout_s(&self) -> u16 {
        self.hard_timeout_s.load(Relaxed)
    }

    /// Lowers the timeouts to at most these (0 leaves one alone), as `fin_timeout` does. Callers use
    /// [`crate::Tables::reduce_timeouts`], which also tells the timers.
    pub(crate) fn reduce_timeouts(&self, idle_s: u16, hard_s: u16) {
        let lower = |a: &AtomicU16, to: u16| {
            if to != 0 {
                let _ = a.fetch_update(Relaxed, Relaxed, |v| (v == 0 || v > to).then_some(to));
            }
        };
        lower(&self.idle_timeout_s, idle_s);
        lower(&self.hard_timeout_s, hard_s);
    }

    pub fn idle_expires(&self) -> Option<Nanos> {
        let s = self.idle_timeout_s();
        (s != 0).then(|| self.stats.used().saturating_add(Nanos::from_secs(u64::from(s))))
    }

    /// The earlier of the two.
    pub(crate) fn expires(&self) -> Option<Nanos> {
        [self.idle_expires(), self.hard_expires()].into_iter().flatten().min()
    }

    pub fn hard_expires(&self) -> Option<Nanos> {
        let s = self.hard_timeout_s();
        (s != 0).then(|| self.modified().saturating_add(Nanos::from_secs(u64::from(s))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_only_shrink() {
        let t = Nanos::from_secs(100);
        let r = Rule::new(0, 0, Arc::default(), t).with_timeouts(10, 0);
        assert_eq!(r.idle_expires(), Some(Nanos::from_secs(110)));
        assert_eq!(r.hard_expires(), None);
        r.reduce_timeouts(20, 5);
        assert_eq!((r.idle_timeout_s(), r.hard_timeout_s()), (10, 5));
        r.credit(1, 60, Nanos::from_secs(107), 1);
        r.credit(1, 60, Nanos::from_secs(103), 2);
        assert_eq!(r.idle_expires(), Some(Nanos::from_secs(117)));
        assert_eq!((r.stats.packets(), r.stats.bytes(), r.stats.tcp_flags()), (2, 120, 3));
    }
}
