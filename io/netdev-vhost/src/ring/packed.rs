//! The packed ring (virtio 1.2, 2.8): one ring of descriptors that the driver makes available and the device
//! overwrites with what it used, told apart by two bits and the wrap counters.
#![allow(unsafe_code)]

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use super::counts::Fault;
use super::desc::{self, Desc, Head, INDIRECT, NEXT, REST_ENOUGH, Taken, WRITE};
use super::features::feature;
use super::log::DirtyLog;
use super::mem::{load32, load64, store32, store64};
use super::split::passes;
use super::vq::{Base, Layout, Setup};

const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;
/// Where length, id and flags of a descriptor are: one word, read and written at once.
const WORD: usize = 8;

/// Event suppression (2.8.14): place and wrap counter in the low half, flags in the high one.
const EVENTS_OFF: u32 = 1;
const EVENTS_AT: u32 = 2;
const EVENT_FLAGS: u32 = 3;

/// A place in the ring with the wrap counter that goes with it.
#[derive(Clone, Copy)]
struct Place {
    at: u16,
    wrap: bool,
}

impl Place {
    fn from_base(base: u16) -> Place {
        Place { at: base & 0x7fff, wrap: base & 0x8000 != 0 }
    }

    fn base(self) -> u16 {
        self.at | u16::from(self.wrap) << 15
    }

    /// `slots` is at most the ring's size.
    #[inline(always)]
    fn advance(&mut self, slots: u16, size: u16) {
        let at = u32::from(self.at) + u32::from(slots);
        if at >= size.into() {
            self.at = (at - u32::from(size)) as u16;
            self.wrap = !self.wrap;
        } else {
            self.at = at as u16;
        }
    }

    fn go_back(&mut self, slots: u16, size: u16) {
        match self.at.checked_sub(slots) {
            Some(at) => self.at = at,
            None => {
                self.at = (u32::from(self.at) + u32::from(size) - u32::from(slots)) as u16;
                self.wrap = !self.wrap;
            }
        }
    }
}

pub(super) struct Packed {
    ring: *mut u8,
    /// The driver's wish for interrupts.
    driver: *mut u8,
    /// Ours for kicks.
    device: *mut u8,
    size: u16,
    event_idx: bool,
    next: Place,
    used: Place,
    /// Places taken and not returned.
    out: u16,
    /// Places returned since interrupts were thought about last, at most the ring's size.
    since_call: u16,
    log: Option<(u64, DirtyLog)>,
}

impl Packed {
    /// # Safety
    /// As for [`super::vq::Vq::new`], which has checked the setup.
    pub unsafe fn new(setup: &Setup) -> Packed {
        let mut ring = Packed {
            ring: setup.parts.desc,
            driver: setup.parts.avail,
            device: setup.parts.used,
            size: setup.size as u16,
            event_idx: setup.features.has(feature::EVENT_IDX),
            next: Place::from_base(setup.base.avail),
            used: Place::from_base(setup.base.used),
            out: 0,
            since_call: 0,
            log: None,
        };
        ring.ask_kicks(false);
        ring
    }

    pub fn set_log(&mut self, log: Option<(u64, DirtyLog)>) {
        self.log = log;
    }

    #[inline(always)]
    fn desc_at(&self, i: u16) -> *mut u8 {
        debug_assert!(i < self.size);
        self.ring.wrapping_add(usize::from(i) * desc::LEN)
    }

    /// The descriptor at `place`, if the driver has made it available.
    #[inline(always)]
    fn available(&self, place: Place) -> Option<Desc> {
        let at = self.desc_at(place.at);
        // SAFETY: the place is below the ring's size, descriptors are aligned to 16. Acquire: the address, and
        // other descriptors of the chain, are read behind the flags.
        let word = unsafe { load64(at.add(WORD), Acquire) };
        let flags = (word >> 48) as u16;
        let is = flags & (AVAIL | USED) == if place.wrap { AVAIL } else { USED };
        // SAFETY: as above.
        is.then(|| Desc::packed([unsafe { load64(at, Relaxed) }, word]))
    }

    /// Reads the rest of a chain, which is in the places behind its first one; the last one has the id.
    fn follow(&self, head: &mut Head, rest: &mut Vec<Desc>) -> Result<(), Fault> {
        let start = rest.len();
        let mut place = self.next;
        let mut d = head.desc;
        while d.flags & (NEXT | INDIRECT) == NEXT {
            head.slots += 1;
            if head.slots > self.size {
                return Err(Fault::ChainTooLong);
            }
            place.advance(1, self.size);
            let at = self.desc_at(place.at);
            // SAFETY: as in `available`.
            d = Desc::packed(unsafe { [load64(at, Relaxed), load64(at.add(WORD), Relaxed)] });
            rest.push(d);
        }
        head.id = d.tag;
        head.rest = (start as u32, (rest.len() - start) as u32);
        Ok(())
    }

    /// Takes buffers some of which are chains.
    #[cold]
    fn take_chained(&mut self, want: usize, taken: &mut Taken) -> Result<(), Fault> {
        for _ in 0..want {
            let Some(desc) = self.available(self.next) else { return Ok(()) };
            let mut head = Head { desc, id: desc.tag, slots: 1, rest: (0, 0) };
            if desc.flags & (NEXT | INDIRECT) == NEXT {
                if taken.rest.len() >= REST_ENOUGH {
                    return Ok(());
                }
                self.follow(&mut head, &mut taken.rest)?;
            }
            if head.slots > self.size - self.out {
                return Err(Fault::IndexJump);
            }
            self.out += head.slots;
            self.next.advance(head.slots, self.size);
            taken.heads.push(head);
        }
        Ok(())
    }

    fn log(&self, place: u16) {
        if let Some((gpa, log)) = &self.log {
            log.mark(gpa.saturating_add(u64::from(place) * desc::LEN as u64), desc::LEN as u64);
        }
    }

    /// The word of a used descriptor: both bits are the wrap counter.
    #[inline(always)]
    fn used_word(&self, id: u16, len: u32, wrap: bool) -> u64 {
        let bits = if wrap { AVAIL | USED } else { 0 } | if len > 0 { WRITE } else { 0 };
        u64::from(len) | u64::from(id) << 32 | u64::from(bits) << 48
    }
}

impl Layout for Packed {
    #[inline(always)]
    fn take(&mut self, want: usize, taken: &mut Taken) -> Result<(), Fault> {
        // A driver cannot offer places again that were not returned.
        let room = usize::from(self.size - self.out);
        taken.heads.reserve(want);
        let (mut place, mut n) = (self.next, 0);
        let mut chained = false;
        for spot in taken.heads.spare_capacity_mut().iter_mut().take(want.min(room)) {
            let Some(desc) = self.available(place) else { break };
            if desc.flags & (NEXT | INDIRECT) == NEXT {
                chained = true;
                break;
            }
            spot.write(Head { desc, id: desc.tag, slots: 1, rest: (0, 0) });
            place.advance(1, self.size);
            n += 1;
        }
        // SAFETY: the first `n` spots behind the old length were written.
        unsafe { taken.heads.set_len(taken.heads.len() + n) };
        self.out += n as u16;
        self.next = place;
        if chained {
            return self.take_chained(want - n, taken);
        }
        if n == room && n < want && self.available(place).is_some() {
            return Err(Fault::IndexJump);
        }
        Ok(())
    }

    fn untake(&mut self, heads: &[Head]) {
        for head in heads {
            self.next.go_back(head.slots, self.size);
            self.out -= head.slots;
        }
    }

    #[inline(always)]
    fn give(&mut self, heads: &[Head], lens: &[u32]) {
        let (Some((first, others)), Some((first_len, other_lens))) = (heads.split_first(), lens.split_first()) else {
            return;
        };
        let start = self.used;
        let mut slots = first.slots;
        self.used.advance(first.slots, self.size);
        for (head, len) in others.iter().zip(other_lens) {
            let word = self.used_word(head.id, *len, self.used.wrap);
            // SAFETY: the place is below the ring's size, words are aligned to 8. The driver does not look here
            // before it has seen the first one.
            unsafe { store64(self.desc_at(self.used.at).add(WORD), word, Release) };
            if self.log.is_some() {
                self.log(self.used.at);
            }
            slots += head.slots;
            self.used.advance(head.slots, self.size);
        }
        let word = self.used_word(first.id, *first_len, start.wrap);
        // SAFETY: as above. Release: whoever sees it sees payload and the other descriptors.
        unsafe { store64(self.desc_at(start.at).add(WORD), word, Release) };
        self.log(start.at);
        self.out -= slots;
        self.since_call = self.since_call.saturating_add(slots).min(self.size);
    }

    fn wants_call(&mut self) -> bool {
        if self.since_call == 0 {
            return false;
        }
        let since = std::mem::take(&mut self.since_call);
        // The driver's wish must be read behind our descriptors, as it reads those behind its wish.
        fence(SeqCst);
        // SAFETY: the event suppression structure is 4 bytes, aligned to 4: place and flags belong together.
        let wish = unsafe { load32(self.driver, Relaxed) };
        match wish >> 16 & EVENT_FLAGS {
            EVENTS_OFF => false,
            EVENTS_AT if self.event_idx => {
                let event = Place::from_base(wish as u16);
                let new = self.used.at;
                // Counted from the place where our lap began, as if places did not wrap.
                let event_at = if event.wrap == self.used.wrap { event.at } else { event.at.wrapping_sub(self.size) };
                passes(event_at, new, new.wrapping_sub(since))
            }
            _ => true,
        }
    }

    fn ask_kicks(&mut self, wanted: bool) {
        let wish = match (wanted, self.event_idx) {
            (false, _) => EVENTS_OFF << 16,
            (true, false) => 0,
            (true, true) => EVENTS_AT << 16 | u32::from(self.next.base()),
        };
        // SAFETY: the structure is 4 bytes, aligned to 4.
        unsafe { store32(self.device, wish, Relaxed) };
        // What the driver made available before it saw this is found by the look that follows.
        fence(SeqCst);
    }

    fn has_some(&self) -> bool {
        self.available(self.next).is_some()
    }

    fn base(&self) -> Base {
        Base { avail: self.next.base(), used: self.used.base() }
    }
}
