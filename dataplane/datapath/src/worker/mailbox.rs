//! Messages from control to a worker, taken between two batches.
//!
//! Nothing here waits. When too many flow messages pile up they collapse into "look for dead flows"
//! or "read the registry again", which lose nothing; port messages are as many as there are ports.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fv_core::DpPort;
use parking_lot::{Condvar, Mutex};

use super::Worker;
use super::rxq::Rxq;
use super::tx::PortTx;
use crate::flow::Flow;
use crate::lookup::CacheUse;

/// Flows that may wait in a mailbox, added and removed ones each.
const FLOWS_MAX: usize = 4096;

/// What can be asked of a worker.
pub enum Msg {
    AddQueue(Box<Rxq>),
    AddTx(Arc<PortTx>),
    /// Closes the port's queues here and forgets how to send to it.
    DropPort(DpPort, AckToken),
    /// Closes those of the port's queues that have been taken away.
    DropQueues(DpPort, AckToken),
    /// Hands a queue to another worker, directly.
    MoveQueue {
        port: DpPort,
        queue: usize,
        to: Arc<Mailbox>,
        token: AckToken,
    },
    CacheUse(CacheUse),
    VlanLimit(u8),
    /// Something to find out on the worker's own thread; must be quick.
    Ask(Box<dyn FnOnce(&mut Worker) + Send>),
    /// Says only that everything before it is done.
    Barrier(AckToken),
}

/// What a worker finds in its mailbox.
#[derive(Default)]
pub struct Mail {
    pub messages: Vec<Msg>,
    pub added: Vec<Arc<Flow>>,
    pub removed: Vec<Arc<Flow>>,
    /// Flows were removed that are not in `removed`.
    pub sweep: bool,
    /// Flows were added that are not in `added`.
    pub resync: bool,
}

impl Mail {
    pub fn len(&self) -> usize {
        self.messages.len() + self.added.len() + self.removed.len()
    }
}

/// Wakes a sleeping worker; called by any thread, must not block.
pub type Waker = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
pub struct Mailbox {
    pending: AtomicBool,
    mail: Mutex<Mail>,
    waker: OnceLock<Waker>,
}

impl Mailbox {
    /// Set once, before the worker first sleeps.
    pub fn set_waker(&self, waker: Waker) {
        if self.waker.set(waker).is_ok() && self.pending() {
            self.wake();
        }
    }

    pub fn send(&self, msg: Msg) {
        self.put(|mail| mail.messages.push(msg));
    }

    pub fn add_flow(&self, flow: &Arc<Flow>) {
        self.put(|mail| {
            if mail.added.len() < FLOWS_MAX {
                mail.added.push(flow.clone());
            } else {
                mail.resync = true;
            }
        });
    }

    pub fn remove_flow(&self, flow: &Arc<Flow>) {
        self.put(|mail| {
            if mail.removed.len() < FLOWS_MAX {
                mail.removed.push(flow.clone());
            } else {
                mail.sweep = true;
            }
        });
    }

    /// Many flows are dead, or all.
    pub fn sweep(&self) {
        self.put(|mail| mail.sweep = true);
    }

    pub fn resync(&self) {
        self.put(|mail| mail.resync = true);
    }

    fn put(&self, f: impl FnOnce(&mut Mail)) {
        f(&mut self.mail.lock());
        if !self.pending.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker();
        }
    }

    /// Whether `take` would find something. One load.
    #[inline]
    pub fn pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    /// Exchanges what is there for `into`, which is empty; false if a sender is at it just now.
    pub(crate) fn take(&self, into: &mut Mail) -> bool {
        let Some(mut mail) = self.mail.try_lock() else { return false };
        self.pending.store(false, Ordering::Release);
        std::mem::swap(&mut *mail, into);
        true
    }
}

/// How control learns that workers have done something.
#[derive(Default)]
pub struct Ack {
    left: AtomicUsize,
    lock: Mutex<()>,
    done: Condvar,
}

impl Ack {
    pub fn new() -> Arc<Ack> {
        Arc::new(Ack::default())
    }

    /// To be dropped when the thing is done, or will never be.
    pub fn token(self: &Arc<Ack>) -> AckToken {
        self.left.fetch_add(1, Ordering::AcqRel);
        AckToken(self.clone())
    }

    pub fn is_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Waits until all tokens are gone; false if that took longer.
    pub fn wait(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut guard = self.lock.lock();
        while !self.is_done() {
            if self.done.wait_until(&mut guard, until).timed_out() {
                return self.is_done();
            }
        }
        true
    }
}

pub struct AckToken(Arc<Ack>);

impl Drop for AckToken {
    fn drop(&mut self) {
        if self.0.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let _guard = self.0.lock.lock();
            self.0.done.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fv_flow::{DpKey, DpMask};

    #[test]
    fn wakes_once_until_taken() {
        let woken = Arc::new(AtomicUsize::new(0));
        let mailbox = Mailbox::default();
        mailbox.sweep();
        let count = woken.clone();
        mailbox.set_waker(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        mailbox.sweep();
        assert_eq!(woken.load(Ordering::Relaxed), 1);
        let mut mail = Mail::default();
        assert!(mailbox.take(&mut mail) && mail.sweep && !mailbox.pending());
        mailbox.send(Msg::CacheUse(CacheUse::Adaptive));
        assert_eq!(woken.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn too_many_flows_collapse() {
        let mailbox = Mailbox::default();
        let flow = Flow::new(&DpKey::default(), &DpMask::default(), None, Arc::default(), None);
        for _ in 0..FLOWS_MAX + 10 {
            mailbox.add_flow(&flow);
            mailbox.remove_flow(&flow);
        }
        let mut mail = Mail::default();
        mailbox.take(&mut mail);
        assert!(mail.sweep && mail.resync);
        assert_eq!((mail.added.len(), mail.removed.len()), (FLOWS_MAX, FLOWS_MAX));
    }

    #[test]
    fn an_ack_is_done_when_its_tokens_are_gone() {
        let ack = Ack::new();
        assert!(ack.is_done());
        let (a, b) = (ack.token(), ack.token());
        drop(a);
        assert!(!ack.wait(Duration::from_millis(1)));
        let thread = std::thread::spawn(move || drop(b));
        assert!(ack.wait(Duration::from_secs(10)));
        thread.join().unwrap();
    }
}
