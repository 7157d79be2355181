//! The split ring (virtio 1.2, 2.7): a table of descriptors, a ring of numbers that the driver makes available,
//! a ring of numbers and lengths that the device has used.
#![allow(unsafe_code)]

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use fv_packet::BATCH_MAX;

use super::counts::Fault;
use super::desc::{self, Desc, Head, INDIRECT, NEXT, REST_ENOUGH, Taken};
use super::features::feature;
use super::log::DirtyLog;
use super::mem::{load16, load64, prefetch, store16};
use super::vq::{Base, Layout, Setup};

/// Available ring: flags, index, entries, then the used event.
const AVAIL_IDX: usize = 2;
const AVAIL_RING: usize = 4;
/// The driver wants no interrupts.
const NO_INTERRUPT: u16 = 1;

/// Used ring: flags, index, entries of number and length, then the available event.
const USED_IDX: usize = 2;
const USED_RING: usize = 4;
const USED_ENTRY: usize = 8;
/// The device wants no kicks.
const NO_NOTIFY: u16 = 1;

pub(super) struct Split {
    desc: *mut u8,
    avail: *mut u8,
    used: *mut u8,
    size: u16,
    mask: u16,
    event_idx: bool,
    /// The next entry to take.
    next: u16,
    /// The driver's index when it was read last.
    seen: u16,
    /// The next entry to fill; as the driver sees it, since all are published at once.
    used_next: u16,
    /// Value of `used_next` when interrupts were thought about last.
    called_at: u16,
    log: Option<(u64, DirtyLog)>,
}

impl Split {
    /// # Safety
    /// As for [`super::vq::Vq::new`], which has checked the setup.
    pub unsafe fn new(setup: &Setup) -> Split {
        let p = &setup.parts;
        // SAFETY: the used ring is as long as a ring of this size needs, and aligned.
        let used = unsafe { load16(p.used.add(USED_IDX), Acquire) };
        // What the ring itself says was used counts more than the base: after a crash of the device there is
        // nobody to ask, and buffers that were taken but not used are taken again.
        let mut ring = Split {
            desc: p.desc,
            avail: p.avail,
            used: p.used,
            size: setup.size as u16,
            mask: (setup.size - 1) as u16,
            event_idx: setup.features.has(feature::EVENT_IDX),
            next: used,
            seen: used,
            used_next: used,
            called_at: used,
            log: None,
        };
        ring.ask_kicks(false);
        ring
    }

    pub fn set_log(&mut self, log: Option<(u64, DirtyLog)>) {
        self.log = log;
    }

    #[inline(always)]
    fn avail_entry(&self, i: u16) -> u16 {
        // SAFETY: the entry is below the ring's size, so inside the available ring; entries are aligned to 2.
        unsafe { load16(self.avail.add(AVAIL_RING + usize::from(i & self.mask) * 2), Relaxed) }
    }

    #[inline(always)]
    fn desc_at(&self, i: u16) -> *mut u8 {
        debug_assert!(i < self.size);
        self.desc.wrapping_add(usize::from(i) * desc::LEN)
    }

    /// Descriptor `i` < size.
    #[inline(always)]
    fn read(&self, i: u16) -> Desc {
        let at = self.desc_at(i);
        // SAFETY: the callers have checked the number; descriptors are aligned to 16.
        Desc::split(unsafe { [load64(at, Relaxed), load64(at.add(8), Relaxed)] })
    }

    /// Reads the rest of a chain. Whether it has come back to itself shows in its length.
    fn follow(&self, head: &mut Head, rest: &mut Vec<Desc>) -> Result<(), Fault> {
        let start = rest.len();
        let mut d = head.desc;
        while d.flags & (NEXT | INDIRECT) == NEXT {
            if rest.len() - start + 1 >= usize::from(self.size) {
                return Err(Fault::ChainTooLong);
            }
            if d.tag >= self.size {
                return Err(Fault::NoDescriptor);
            }
            d = self.read(d.tag);
            rest.push(d);
        }
        head.rest = (start as u32, (rest.len() - start) as u32);
        Ok(())
    }

    /// Fills in entries from `first` on.
    #[inline(always)]
    fn put_used(&self, first: usize, heads: &[Head], lens: &[u32]) {
        debug_assert!(first + heads.len() <= usize::from(self.size));
        let at = self.used.wrapping_add(USED_RING + first * USED_ENTRY);
        for (i, (head, len)) in heads.iter().zip(lens).enumerate() {
            let entry = u64::from(head.id) | u64::from(*len) << 32;
            // SAFETY: the entry is below the ring's size, so inside the used ring; nobody may look at it before
            // the index has moved.
            unsafe { at.add(i * USED_ENTRY).cast::<u64>().write_unaligned(entry.to_le()) };
        }
        self.log(USED_RING + first * USED_ENTRY, heads.len() * USED_ENTRY);
    }

    #[inline(always)]
    fn log(&self, offset: usize, len: usize) {
        if let Some((gpa, log)) = &self.log {
            log.mark(gpa.saturating_add(offset as u64), len as u64);
        }
    }
}

impl Layout for Split {
    #[inline(always)]
    fn take(&mut self, want: usize, taken: &mut Taken) -> Result<(), Fault> {
        let mut waiting = self.seen.wrapping_sub(self.next);
        // The index is in a line that the driver writes: it is only read when what it said before is not enough.
        if usize::from(waiting) < want {
            // SAFETY: the index is in the available ring. Acquire: entries are read behind it.
            self.seen = unsafe { load16(self.avail.add(AVAIL_IDX), Acquire) };
            waiting = self.seen.wrapping_sub(self.next);
            if waiting > self.size {
                self.seen = self.next;
                return Err(Fault::IndexJump);
            }
        }
        let n = want.min(waiting.into()).min(BATCH_MAX);
        let mut ids = [0; BATCH_MAX];
        self.entries(n, &mut ids);
        let ids = &ids[..n];
        if usize::from(waiting) > n {
            self.ask_ahead(self.next.wrapping_add(n as u16));
        }
        let worst = ids.iter().fold(0, |worst, id| worst.max(*id));
        if worst >= self.size {
            let good = ids.iter().position(|id| *id >= self.size).unwrap_or(n);
            return self.read_heads(&ids[..good], taken).and(Err(Fault::NoDescriptor));
        }
        self.read_heads(ids, taken)
    }

    fn untake(&mut self, heads: &[Head]) {
        self.next = self.next.wrapping_sub(heads.len() as u16);
    }

    #[inline(always)]
    fn give(&mut self, heads: &[Head], lens: &[u32]) {
        if heads.is_empty() {
            return;
        }
        // A run up to the end of the ring, and one from its beginning.
        let first = usize::from(self.used_next & self.mask);
        let run = (usize::from(self.size) - first).min(heads.len());
        self.put_used(first, &heads[..run], &lens[..run]);
        self.put_used(0, &heads[run..], &lens[run..]);
        self.used_next = self.used_next.wrapping_add(heads.len() as u16);
        // SAFETY: the index is in the used ring. Release: whoever sees it sees entries and payload.
        unsafe { store16(self.used.add(USED_IDX), self.used_next, Release) };
        self.log(USED_IDX, 2);
    }

    fn wants_call(&mut self) -> bool {
        let (old, new) = (self.called_at, self.used_next);
        if old == new {
            return false;
        }
        self.called_at = new;
        // The driver's wish must be read behind our index, as it reads our index behind its wish.
        fence(SeqCst);
        if self.event_idx {
            // SAFETY: the used event is behind the entries of the available ring.
            let event = unsafe { load16(self.avail.add(AVAIL_RING + usize::from(self.size) * 2), Relaxed) };
            return passes(event, new, old);
        }
        // SAFETY: the flags are the first thing in the available ring.
        unsafe { load16(self.avail, Relaxed) & NO_INTERRUPT == 0 }
    }

    fn ask_kicks(&mut self, wanted: bool) {
        let flags_or_event = if !self.event_idx {
            // SAFETY: the flags are the first thing in the used ring.
            unsafe { store16(self.used, if wanted { 0 } else { NO_NOTIFY }, Relaxed) };
            0
        } else {
            // A driver kicks when its index passes the event: the one before `next` is passed last.
            let event = if wanted { self.seen } else { self.next.wrapping_sub(1) };
            let at = USED_RING + usize::from(self.size) * USED_ENTRY;
            // SAFETY: the available event is behind the entries of the used ring.
            unsafe { store16(self.used.add(at), event, Relaxed) };
            at
        };
        self.log(flags_or_event, 2);
        // What the driver made available before it saw this is found by the look that follows.
        fence(SeqCst);
    }

    fn has_some(&self) -> bool {
        // SAFETY: the index is in the available ring.
        self.seen != self.next || unsafe { load16(self.avail.add(AVAIL_IDX), Relaxed) } != self.next
    }

    fn base(&self) -> Base {
        Base { avail: self.next, used: self.used_next }
    }
}

impl Split {
    /// Copies the next `n` entries of the available ring, at most a batch.
    #[inline(always)]
    fn entries(&self, n: usize, ids: &mut [u16; BATCH_MAX]) {
        let first = usize::from(self.next & self.mask);
        if first + BATCH_MAX <= usize::from(self.size) {
            // SAFETY: the ring has a batch of entries from `first` on; they are copied once.
            *ids = unsafe { self.avail.add(AVAIL_RING + first * 2).cast::<[u16; BATCH_MAX]>().read() };
            if cfg!(target_endian = "big") {
                ids.iter_mut().for_each(|id| *id = u16::from_le(*id));
            }
            return;
        }
        for (i, id) in ids.iter_mut().enumerate().take(n) {
            *id = self.avail_entry(self.next.wrapping_add(i as u16));
        }
    }

    /// Asks for what the next burst will read, from entry `next` on: entries, and their descriptors on the guess that
    /// the driver hands them out in order, four to a line. Only what is available already: other lines are the
    /// driver's to write.
    #[inline(always)]
    fn ask_ahead(&self, next: u16) {
        let first = next & self.mask;
        prefetch(self.avail.wrapping_add(AVAIL_RING + usize::from(first) * 2 + 64));
        let id = self.avail_entry(next);
        for line in 0..BATCH_MAX as u16 / 4 {
            prefetch(self.desc_at(id.wrapping_add(line * 4) & self.mask));
        }
    }

    /// Appends the buffers with these descriptors, which are in the table, and ends the burst behind a lot of chained
    /// ones.
    #[inline(always)]
    fn read_heads(&mut self, ids: &[u16], taken: &mut Taken) -> Result<(), Fault> {
        for id in ids {
            prefetch(self.desc_at(*id));
        }
        let first = taken.heads.len();
        let mut flags = 0;
        taken.heads.extend(ids.iter().map(|id| {
            let desc = self.read(*id);
            flags |= desc.flags;
            Head { desc, id: *id, slots: 1, rest: (0, 0) }
        }));
        self.next = self.next.wrapping_add(ids.len() as u16);
        if flags & NEXT == 0 { Ok(()) } else { self.follow_all(first, taken) }
    }

    #[cold]
    fn follow_all(&mut self, first: usize, taken: &mut Taken) -> Result<(), Fault> {
        let n = taken.heads.len();
        for i in first..n {
            let followed = self.follow(&mut taken.heads[i], &mut taken.rest);
            let keep = if followed.is_err() { i } else { i + 1 };
            if followed.is_err() || taken.rest.len() >= REST_ENOUGH {
                self.next = self.next.wrapping_sub((n - keep) as u16);
                taken.heads.truncate(keep);
                return followed;
            }
        }
        Ok(())
    }
}

/// Whether an index that went from `old` to `new` has gone past `event` (2.7.10).
#[inline]
pub(super) fn passes(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}
