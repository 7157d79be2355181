//! A receive queue as its worker holds it, with the misses that wait for their verdict.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fv_core::DpPort;
use fv_netdev::{EnabledQueues, RxQueue};
use fv_packet::Packet;

use super::adapt::Adapt;
use super::budget::Bucket;
use super::mailbox::AckToken;
use super::stats::QueueStats;
use crate::lookup::Probe;

/// Misses that may wait, per queue.
pub const WAITING_MAX: usize = 512;

/// A miss that waits. Its key is as it was when it missed.
pub struct Waiting {
    pub packet: Packet,
    pub probe: Probe,
    pub depth: u8,
}

pub struct Rxq {
    pub port: DpPort,
    pub queue: usize,
    pub rx: Box<dyn RxQueue>,
    pub stats: Arc<QueueStats>,
    /// In the order of arrival.
    pub waiting: VecDeque<Waiting>,
    /// Time for its misses; more of them wait.
    pub budget: Bucket,
    /// Whether its lookups ask the cache.
    pub adapt: Adapt,
    /// Where its device says whether it is worth polling; None if it always is.
    pub enabled: Option<Arc<EnabledQueues>>,
    /// Failed for good: not polled again until its port is opened anew.
    pub broken: bool,
    life: Life,
}

/// Ties a queue to its port: on its way between workers it may miss that it has been taken away.
pub struct Life {
    pub closed: Arc<AtomicBool>,
    /// Whoever closes it waits for all of these.
    pub token: AckToken,
}

impl Rxq {
    pub fn new(port: DpPort, queue: usize, rx: Box<dyn RxQueue>, stats: Arc<QueueStats>, life: Life) -> Rxq {
        Rxq {
            port,
            queue,
            rx,
            stats,
            waiting: VecDeque::new(),
            budget: Bucket::default(),
            adapt: Adapt::default(),
            enabled: None,
            broken: false,
            life,
        }
    }

    /// Cost: one load.
    #[inline]
    pub fn is_worth_polling(&self) -> bool {
        self.enabled.as_ref().is_none_or(|e| e.is_enabled(self.queue))
    }

    /// It has been taken away.
    pub fn is_closed(&self) -> bool {
        self.life.closed.load(Ordering::Acquire)
    }

    /// Takes out the waiting misses that `matches`, in order.
    pub fn take_waiting(&mut self, mut matches: impl FnMut(&Probe) -> bool) -> Vec<Waiting> {
        if !self.waiting.iter().any(|w| matches(&w.probe)) {
            return Vec::new();
        }
        let (out, rest) = self.waiting.drain(..).partition::<VecDeque<_>, _>(|w| matches(&w.probe));
        self.waiting = rest;
        out.into()
    }
}
