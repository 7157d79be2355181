//! Where a running ring sits between the thread that polls it and the one that talks to the front end.
//!
//! The ring object is in the seat, not with the worker: to stop it, its owner takes it out, at most one burst
//! later, with its true position, and the guest's memory goes with it, whether the queue is still polled or
//! not. A worker never waits: while the owner has the seat, the ring is empty to it.
//! Cost to the worker: an exchange of one word a burst, nothing while no ring is there.

use std::sync::atomic::{AtomicU8, Ordering, fence};
use std::time::Duration;

use parking_lot::Mutex;

pub struct Seat<R> {
    /// One of the states below. Written by the owner.
    state: AtomicU8,
    ring: Mutex<Option<R>>,
}

/// There is no ring, or it may not run.
const STOPPED: u8 = 0;
const RUNNING: u8 = 1;
/// The owner has given up waiting for the worker, which drops the ring when it leaves it.
const ABANDONED: u8 = 2;

/// The worker has been inside for longer than any burst takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stuck;

impl<R> Default for Seat<R> {
    fn default() -> Seat<R> {
        Seat { state: AtomicU8::new(STOPPED), ring: Mutex::new(None) }
    }
}

impl<R> Seat<R> {
    /// For the worker: one burst. None if there is no ring to run.
    #[inline]
    pub fn run<T>(&self, burst: impl FnOnce(&mut R) -> T) -> Option<T> {
        if self.state.load(Ordering::Relaxed) != RUNNING {
            return None;
        }
        let mut seat = self.ring.try_lock()?;
        let done = seat.as_mut().map(burst);
        drop(seat);
        if self.state.load(Ordering::Relaxed) != RUNNING {
            self.leave();
        }
        done
    }

    #[cold]
    fn leave(&self) {
        // Either this sees that the owner has given up, or the owner's last try finds the seat free.
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) == ABANDONED
            && let Some(mut seat) = self.ring.try_lock()
        {
            *seat = None;
        }
    }

    pub fn is_running(&self) -> bool {
        self.state.load(Ordering::Relaxed) == RUNNING
    }

    /// For the owner: puts a ring in, to rest until [`Seat::resume`]. One that is there is dropped.
    pub fn put(&self, ring: R, patience: Duration) -> Result<(), Stuck> {
        let mut seat = self.ring.try_lock_for(patience).ok_or(Stuck)?;
        self.state.store(STOPPED, Ordering::Release);
        *seat = Some(ring);
        Ok(())
    }

    /// For the owner: takes the ring out. If the worker does not leave it in time, it is dropped when it does.
    pub fn stop(&self, patience: Duration) -> Result<Option<R>, Stuck> {
        self.state.store(STOPPED, Ordering::Release);
        if let Some(mut seat) = self.ring.try_lock_for(patience) {
            return Ok(seat.take());
        }
        self.state.store(ABANDONED, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Ok(self.ring.try_lock().ok_or(Stuck)?.take())
    }

    /// For the owner: the ring rests where it is, and the worker has left it.
    pub fn pause(&self, patience: Duration) -> Result<(), Stuck> {
        self.state.store(STOPPED, Ordering::Release);
        self.ring.try_lock_for(patience).map(|_| ()).ok_or(Stuck)
    }

    /// For the owner: a ring that is there runs again.
    pub fn resume(&self) {
        self.state.store(RUNNING, Ordering::Release);
    }

    /// For the owner: changes something about a ring that goes on.
    pub fn adjust<T>(&self, patience: Duration, change: impl FnOnce(&mut R) -> T) -> Result<Option<T>, Stuck> {
        Ok(self.ring.try_lock_for(patience).ok_or(Stuck)?.as_mut().map(change))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    #[test]
    fn a_stopped_ring_comes_back_with_its_position() {
        let seat = Arc::new(Seat::<u64>::default());
        assert_eq!(seat.run(|_| ()), None);
        let bursts = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (s, b, halt) = (seat.clone(), bursts.clone(), stop.clone());
        let worker = std::thread::spawn(move || {
            while !halt.load(Ordering::Relaxed) {
                let ran = s.run(|ring| *ring += 1).is_some();
                b.fetch_add(u64::from(ran), Ordering::Relaxed);
            }
        });
        let mut position = 0;
        for round in 0..200 {
            seat.put(position, LONG).unwrap();
            seat.resume();
            while bursts.load(Ordering::Relaxed) <= round {
                std::thread::yield_now();
            }
            position = seat.stop(LONG).unwrap().expect("it was running");
        }
        stop.store(true, Ordering::Relaxed);
        worker.join().unwrap();
        assert_eq!(position, bursts.load(Ordering::Relaxed), "each burst moved the position");
        assert_eq!(seat.run(|_| ()), None);
        assert_eq!(seat.stop(LONG), Ok(None));
    }

    // The memory of a queue that nobody polls goes at once; that of one whose worker is stuck, when it leaves.
    #[test]
    fn a_ring_lets_go_of_its_memory() {
        let memory = Arc::new(());
        let seat = Arc::new(Seat::default());
        seat.put(memory.clone(), LONG).unwrap();
        seat.resume();
        drop(seat.stop(LONG));
        assert_eq!(Arc::strong_count(&memory), 1);
        seat.put(memory.clone(), LONG).unwrap();
        assert_eq!(seat.run(|_| ()), None, "it rests");
        seat.resume();
        seat.pause(LONG).unwrap();
        assert_eq!(seat.run(|_| ()), None);
        seat.resume();
        seat.run(|_| assert_eq!(seat.stop(Duration::from_millis(1)), Err(Stuck)));
        assert_eq!(Arc::strong_count(&memory), 1);
    }
}
