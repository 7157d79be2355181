//! The control thread's worker, which other threads may borrow.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::worker::Worker;

/// Worker MAIN, which any thread may use that finds it free.
pub struct MainWorker {
    worker: Mutex<Worker>,
    /// The thread that is in it, by the address of one of its variables; 0 for none.
    owner: AtomicUsize,
}

impl MainWorker {
    pub fn new(worker: Worker) -> MainWorker {
        MainWorker { worker: Mutex::new(worker), owner: AtomicUsize::new(0) }
    }

    /// None if a thread is in it, this one included.
    pub fn enter<T>(&self, f: impl FnOnce(&mut Worker) -> T) -> Option<T> {
        let mut worker = self.worker.try_lock()?;
        self.owner.store(this_thread(), Ordering::Relaxed);
        let result = f(&mut worker);
        self.owner.store(0, Ordering::Relaxed);
        Some(result)
    }

    pub fn is_mine(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == this_thread()
    }
}

fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}
