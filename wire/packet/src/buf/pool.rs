//! Recycled buffers: two magazines a thread and class, and a bounded depot that all threads share.
//!
//! A thread allocates from and frees to its loaded magazine; when that is empty or full it swaps in
//! its spare one, and only then visits the depot, one mutex per `MAGAZINE` buffers. Past the
//! depot's bound buffers go back to the allocator. Cost of the common case: a thread-local access, a
//! pointer pop and a counter.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes before the data area: the head with the metadata.
pub(super) const HEAD: usize = 128;
/// Bytes behind the head in a small buffer (256 of headroom and 2048 of data).
pub(super) const SMALL_CAP: usize = 256 + 2048;
/// Bytes behind the head in a large buffer (256 of headroom, 65536 + 256 of data: the longest IP
/// packet with its link-layer headers).
pub(super) const LARGE_CAP: usize = 256 + 65536 + 256;

const CLASSES: usize = 2;
/// Buffers in a magazine, per class.
const MAGAZINE: [u32; CLASSES] = [64, 8];
/// Magazines that the depot keeps at most, per class: 40 MB small, 8.5 MB large.
const DEPOT_MAX: [usize; CLASSES] = [256, 16];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Class {
    Small,
    Large,
    /// Longer than any packet should be: straight from the allocator and back.
    Huge,
}

impl Class {
    /// The smallest class with `cap` bytes behind the head.
    #[inline]
    pub(super) fn of(cap: usize) -> Class {
        if cap <= SMALL_CAP {
            Class::Small
        } else if cap <= LARGE_CAP {
            Class::Large
        } else {
            Class::Huge
        }
    }

    /// Bytes behind the head that a request for `cap` gets.
    #[inline]
    pub(super) fn cap(self, cap: usize) -> usize {
        match self {
            Class::Small => SMALL_CAP,
            Class::Large => LARGE_CAP,
            Class::Huge => cap,
        }
    }
}

/// A free buffer's first bytes: the link to the next one.
struct Free {
    next: Option<NonNull<Free>>,
}

/// A stack of free buffers of one class.
struct Magazine {
    top: Option<NonNull<Free>>,
    count: u32,
}

// SAFETY: the buffers in a magazine are owned by it alone; nothing else points to them.
unsafe impl Send for Magazine {}

impl Magazine {
    const EMPTY: Magazine = Magazine { top: None, count: 0 };

    #[inline]
    fn pop(&mut self) -> Option<NonNull<u8>> {
        let top = self.top?;
        // SAFETY: `top` is a free buffer owned by this magazine and starts with a valid `Free`.
        self.top = unsafe { top.as_ref().next };
        self.count -= 1;
        Some(top.cast())
    }

    /// # Safety
    /// `buf` is a buffer of this magazine's class that nothing else refers to.
    #[inline]
    unsafe fn push(&mut self, buf: NonNull<u8>) {
        let node = buf.cast::<Free>();
        // SAFETY: a buffer is at least HEAD bytes, aligned to 64, and ours to write.
        unsafe { node.write(Free { next: self.top }) };
        self.top = Some(node);
        self.count += 1;
    }

    fn release_all(&mut self, class: Class) {
        while let Some(buf) = self.pop() {
            // SAFETY: every buffer in the magazine was allocated for `class`.
            unsafe { to_heap(buf, class, class.cap(0)) };
        }
    }
}

struct Local {
    loaded: [Magazine; CLASSES],
    spare: [Magazine; CLASSES],
}

impl Drop for Local {
    fn drop(&mut self) {
        for (i, class) in [Class::Small, Class::Large].into_iter().enumerate() {
            for mut magazine in [
                std::mem::replace(&mut self.loaded[i], Magazine::EMPTY),
                std::mem::replace(&mut self.spare[i], Magazine::EMPTY),
            ] {
                if magazine.count == MAGAZINE[i] {
                    depot_put(magazine, class);
                } else {
                    magazine.release_all(class);
                }
            }
        }
    }
}

thread_local! {
    static LOCAL: UnsafeCell<Local> = const {
        UnsafeCell::new(Local {
            loaded: [Magazine::EMPTY, Magazine::EMPTY],
            spare: [Magazine::EMPTY, Magazine::EMPTY],
        })
    };
}

static DEPOT: [Mutex<Vec<Magazine>>; CLASSES] = [Mutex::new(Vec::new()), Mutex::new(Vec::new())];

static FROM_HEAP: AtomicU64 = AtomicU64::new(0);
static TO_HEAP: AtomicU64 = AtomicU64::new(0);

/// What the pool did since the start, over all threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolStats {
    /// Buffers taken from the allocator.
    pub from_heap: u64,
    /// Buffers given back to it.
    pub to_heap: u64,
    /// Free buffers in the shared depot.
    pub depot: u64,
}

/// Counters of the pool; takes the depot's locks.
pub fn stats() -> PoolStats {
    let depot = (0..CLASSES).map(|i| lock(i).len() as u64 * u64::from(MAGAZINE[i])).sum();
    PoolStats { from_heap: FROM_HEAP.load(Relaxed), to_heap: TO_HEAP.load(Relaxed), depot }
}

/// Gives all but `keep` magazines of each class in the shared depot back to the allocator.
pub fn trim(keep: usize) {
    for (i, class) in [Class::Small, Class::Large].into_iter().enumerate() {
        let surplus = {
            let mut depot = lock(i);
            let at = keep.min(depot.len());
            depot.split_off(at)
        };
        for mut magazine in surplus {
            magazine.release_all(class);
        }
    }
}

/// A buffer of `class` with `cap` bytes behind the head. Every byte is initialised (zeros when it is
/// new, stale otherwise).
#[inline]
pub(super) fn take(class: Class, cap: usize) -> NonNull<u8> {
    let i = match class {
        Class::Small => 0,
        Class::Large => 1,
        Class::Huge => return from_heap(class, cap),
    };
    let pooled = LOCAL.try_with(|local| {
        // SAFETY: the cell belongs to this thread, and no code below calls back into the pool
        // while this reference lives.
        let local = unsafe { &mut *local.get() };
        if local.loaded[i].count == 0 {
            if local.spare[i].count == 0 {
                local.spare[i] = depot_take(i)?;
            }
            std::mem::swap(&mut local.loaded[i], &mut local.spare[i]);
        }
        local.loaded[i].pop()
    });
    match pooled {
        Ok(Some(buf)) => buf,
        _ => from_heap(class, cap),
    }
}

/// Takes a buffer back.
///
/// # Safety
/// `buf` came from [`take`] with the same `class` and `cap`, and nothing refers to it any more.
#[inline]
pub(super) unsafe fn give(buf: NonNull<u8>, class: Class, cap: usize) {
    let i = match class {
        Class::Small => 0,
        Class::Large => 1,
        // SAFETY: as the caller promises.
        Class::Huge => return unsafe { to_heap(buf, class, cap) },
    };
    let kept = LOCAL.try_with(|local| {
        // SAFETY: the cell belongs to this thread, and no code below calls back into the pool
        // while this reference lives.
        let local = unsafe { &mut *local.get() };
        if local.loaded[i].count == MAGAZINE[i] {
            std::mem::swap(&mut local.loaded[i], &mut local.spare[i]);
            if local.loaded[i].count == MAGAZINE[i] {
                let full = std::mem::replace(&mut local.loaded[i], Magazine::EMPTY);
                depot_put(full, class);
            }
        }
        // SAFETY: the buffer is of this class and the caller gave it up.
        unsafe { local.loaded[i].push(buf) };
    });
    if kept.is_err() {
        // SAFETY: the thread is ending and its magazines are gone; the caller gave the buffer up.
        unsafe { to_heap(buf, class, cap) };
    }
}

fn lock(i: usize) -> std::sync::MutexGuard<'static, Vec<Magazine>> {
    DEPOT[i].lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cold]
fn depot_take(i: usize) -> Option<Magazine> {
    lock(i).pop()
}

#[cold]
fn depot_put(mut full: Magazine, class: Class) {
    let i = class as usize;
    {
        let mut depot = lock(i);
        if depot.len() < DEPOT_MAX[i] {
            depot.push(full);
            return;
        }
    }
    full.release_all(class);
}

fn layout(cap: usize) -> Layout {
    // A length that overflows here was never a packet's: the callers bound it.
    Layout::from_size_align(HEAD.saturating_add(cap), 64).expect("buffer length fits a layout")
}

#[cold]
fn from_heap(class: Class, cap: usize) -> NonNull<u8> {
    let layout = layout(class.cap(cap));
    FROM_HEAP.fetch_add(1, Relaxed);
    // SAFETY: the layout is never empty.
    let ptr = unsafe { alloc_zeroed(layout) };
    NonNull::new(ptr).unwrap_or_else(|| handle_alloc_error(layout))
}

/// # Safety
/// `buf` came from [`from_heap`] with `class` and `cap`, and nothing refers to it any more.
#[cold]
unsafe fn to_heap(buf: NonNull<u8>, class: Class, cap: usize) {
    TO_HEAP.fetch_add(1, Relaxed);
    // SAFETY: the layout is the one it was allocated with.
    unsafe { dealloc(buf.as_ptr(), layout(class.cap(cap))) };
}
