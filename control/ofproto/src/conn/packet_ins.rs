//! The packet-ins of one connection: bounded, rate-limited, fair among input ports.

use std::collections::{BTreeMap, VecDeque};

use fv_core::Nanos;

/// Packet-ins go to the output while less than this waits there, so that answers are not behind
/// a long tail of them.
pub(crate) const TX_LOW: usize = 64 << 10;
/// Default of `controller-queue-size`.
const QUEUE_SIZE: usize = 100;
/// Defaults of a rate limit's burst.
const MIN_RATE: u32 = 1;

/// Tokens are thousandths of a packet.
const TOKEN: u64 = 1000;

struct Limiter {
    /// Packets a second.
    rate: u64,
    burst: u64,
    tokens: u64,
    filled: Nanos,
    /// Waiting, by input port.
    waiting: BTreeMap<u32, VecDeque<Vec<u8>>>,
    n_waiting: usize,
    /// Port served last.
    last: u32,
}

#[derive(Default)]
pub(crate) struct PacketIns {
    limiter: Option<Limiter>,
    ready: VecDeque<Vec<u8>>,
    queue_size: Option<usize>,
    dropped: u64,
}

impl PacketIns {
    pub(crate) fn set_queue_size(&mut self, n: usize) {
        self.queue_size = Some(n.clamp(1, 512));
    }

    /// (packets a second, burst), None for no limit.
    pub(crate) fn set_rate_limit(&mut self, limit: Option<(u32, u32)>) {
        let Some((rate, burst)) = limit else {
            if let Some(l) = self.limiter.take() {
                l.waiting.into_values().flatten().for_each(|b| self.enqueue(b));
            }
            return;
        };
        let rate = u64::from(rate.max(MIN_RATE));
        // As long a burst as a quarter of a second, if none is given.
        let burst = if burst == 0 { (rate / 4).max(1) } else { u64::from(burst) };
        match &mut self.limiter {
            Some(l) => (l.rate, l.burst, l.tokens) = (rate, burst, l.tokens.min(burst * TOKEN)),
            None => {
                self.limiter = Some(Limiter {
                    rate,
                    burst,
                    tokens: burst * TOKEN,
                    filled: Nanos::ZERO,
                    waiting: BTreeMap::new(),
                    n_waiting: 0,
                    last: 0,
                });
            }
        }
    }

    pub(crate) fn push(&mut self, bytes: Vec<u8>, port: u32, now: Nanos) {
        let Some(l) = &mut self.limiter else {
            self.enqueue(bytes);
            return;
        };
        l.fill(now);
        if l.n_waiting == 0 && l.take() {
            self.enqueue(bytes);
            return;
        }
        if l.n_waiting as u64 >= l.burst.max(1) {
            l.drop_from_longest();
            self.dropped += 1;
        }
        l.waiting.entry(port).or_default().push_back(bytes);
        l.n_waiting += 1;
    }

    /// Lets go what the rate permits by now; when there will be more.
    pub(crate) fn release(&mut self, now: Nanos) -> Option<Nanos> {
        let mut out = Vec::new();
        let l = self.limiter.as_mut()?;
        l.fill(now);
        while l.n_waiting > 0 && l.take() {
            out.extend(l.next());
        }
        let next = (l.n_waiting > 0).then(|| {
            let missing = TOKEN - l.tokens.min(TOKEN);
            now.saturating_add(Nanos(missing * 1_000_000 / l.rate + 1))
        });
        out.into_iter().for_each(|b| self.enqueue(b));
        next
    }

    fn enqueue(&mut self, bytes: Vec<u8>) {
        if self.ready.len() >= self.queue_size.unwrap_or(QUEUE_SIZE) {
            self.dropped += 1;
        } else {
            self.ready.push_back(bytes);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        self.ready.pop_front()
    }

    #[cfg(test)]
    fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl Limiter {
    fn fill(&mut self, now: Nanos) {
        // One token takes a million nanoseconds over the rate.
        let span = now.saturating_sub(self.filled).0;
        let new = (u128::from(span) * u128::from(self.rate) / 1_000_000).min(u128::from(self.burst * TOKEN)) as u64;
        if new > 0 {
            self.tokens = (self.tokens + new).min(self.burst * TOKEN);
            self.filled = now;
        }
    }

    fn take(&mut self) -> bool {
        let ok = self.tokens >= TOKEN;
        if ok {
            self.tokens -= TOKEN;
        }
        ok
    }

    /// Round-robin over the ports.
    fn next(&mut self) -> Option<Vec<u8>> {
        let after = self.waiting.range(self.last.saturating_add(1)..).next().or(self.waiting.iter().next());
        let port = *after?.0;
        self.last = port;
        self.pop_of(port)
    }

    fn drop_from_longest(&mut self) {
        if let Some((&port, _)) = self.waiting.iter().max_by_key(|(_, q)| q.len()) {
            self.pop_of(port);
        }
    }

    fn pop_of(&mut self, port: u32) -> Option<Vec<u8>> {
        let q = self.waiting.get_mut(&port)?;
        let b = q.pop_front();
        if q.is_empty() {
            self.waiting.remove(&port);
        }
        self.n_waiting -= usize::from(b.is_some());
        b
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(p: &mut PacketIns) -> usize {
        std::iter::from_fn(|| p.pop()).count()
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut p = PacketIns::default();
        p.set_queue_size(3);
        for _ in 0..5 {
            p.push(vec![0], 1, Nanos::ZERO);
        }
        assert_eq!((count(&mut p), p.dropped()), (3, 2));
    }

    #[test]
    fn a_rate_limit_delays_and_shares() {
        let mut p = PacketIns::default();
        p.set_rate_limit(Some((10, 4)));
        let t = Nanos::from_secs(100);
        for i in 0..20 {
            p.push(vec![1, i], 1, t);
        }
        p.push(vec![2], 2, t);
        // The burst at once, as many wait, the rest is gone, at the cost of the busy port.
        assert_eq!((count(&mut p), p.dropped()), (4, 13));
        let next = p.release(t).unwrap();
        assert!(next > t && next <= t + Nanos::from_ms(101), "{next:?}");
        p.release(t + Nanos::from_ms(220));
        let got: Vec<_> = std::iter::from_fn(|| p.pop()).collect();
        assert_eq!(got.len(), 2);
        assert!(got.contains(&vec![2]));
    }
}
