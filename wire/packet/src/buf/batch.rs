//! [`Batch`]: up to 32 packets in place, no heap.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};

use super::packet::Packet;

/// Packets in a batch at most.
pub const BATCH_MAX: usize = 32;

/// A fixed array of up to [`BATCH_MAX`] packets; derefs to a slice of them.
pub struct Batch {
    slots: [MaybeUninit<Packet>; BATCH_MAX],
    /// The first `len` slots hold packets, the others nothing.
    len: usize,
}

impl Batch {
    pub const fn new() -> Batch {
        Batch { slots: [const { MaybeUninit::uninit() }; BATCH_MAX], len: 0 }
    }

    /// Appends a packet, or gives it back when the batch is full.
    #[inline]
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        if self.len == BATCH_MAX {
            return Err(packet);
        }
        self.slots[self.len].write(packet);
        self.len += 1;
        Ok(())
    }

    #[inline]
    pub fn pop(&mut self) -> Option<Packet> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: the slot was below the old length, so it held a packet; it is out of bounds now.
        Some(unsafe { self.slots[self.len].assume_init_read() })
    }

    /// Empties the batch, packet by packet in order; what is not taken is dropped.
    #[inline]
    pub fn drain(&mut self) -> Drain<'_> {
        // Forgetting the iterator then leaks packets but never doubles them.
        let len = std::mem::take(&mut self.len);
        Drain { batch: self, next: 0, len }
    }

    /// Moves all packets out into a new batch.
    pub fn take(&mut self) -> Batch {
        std::mem::take(self)
    }

    pub fn clear(&mut self) {
        self.drain();
    }

    pub fn is_full(&self) -> bool {
        self.len == BATCH_MAX
    }

    /// Packets that still fit.
    pub fn room(&self) -> usize {
        BATCH_MAX - self.len
    }
}

impl Deref for Batch {
    type Target = [Packet];

    #[inline]
    fn deref(&self) -> &[Packet] {
        // SAFETY: the first `len` slots hold packets, and MaybeUninit<T> has the layout of T.
        unsafe { std::slice::from_raw_parts(self.slots.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for Batch {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Packet] {
        // SAFETY: as in `deref`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.slots.as_mut_ptr().cast(), self.len) }
    }
}

impl Default for Batch {
    fn default() -> Batch {
        Batch::new()
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<'a> IntoIterator for &'a Batch {
    type Item = &'a Packet;
    type IntoIter = std::slice::Iter<'a, Packet>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Batch {
    type Item = &'a mut Packet;
    type IntoIter = std::slice::IterMut<'a, Packet>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

/// The packets of a batch that is being emptied.
pub struct Drain<'a> {
    batch: &'a mut Batch,
    next: usize,
    len: usize,
}

impl Iterator for Drain<'_> {
    type Item = Packet;

    #[inline]
    fn next(&mut self) -> Option<Packet> {
        if self.next == self.len {
            return None;
        }
        let slot = &self.batch.slots[self.next];
        self.next += 1;
        // SAFETY: slots below the old length held packets; the batch's length is 0 already and
        // `next` only grows, so each is read once.
        Some(unsafe { slot.assume_init_read() })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len - self.next, Some(self.len - self.next))
    }
}

impl ExactSizeIterator for Drain<'_> {}

impl Drop for Drain<'_> {
    fn drop(&mut self) {
        for packet in self.by_ref() {
            drop(packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(n: u8) -> Batch {
        let mut b = Batch::new();
        for i in 0..n {
            b.push(Packet::from_slice(&[i])).unwrap();
        }
        b
    }

    #[test]
    fn fills_and_drains_in_order() {
        let mut b = batch(32);
        assert!(b.is_full());
        assert_eq!(b.push(Packet::from_slice(&[99])).unwrap_err().data(), &[99]);
        let seen: Vec<u8> = b.drain().map(|p| p.data()[0]).collect();
        assert_eq!(seen, (0..32).collect::<Vec<u8>>());
        assert!(b.is_empty());
        assert!(b.pop().is_none());
    }

    #[test]
    fn partial_drain_drops_the_rest() {
        let mut b = batch(5);
        assert_eq!(b.drain().next().map(|p| p.len()), Some(1));
        assert!(b.is_empty());
        b.push(Packet::from_slice(&[1, 2])).unwrap();
        let moved = b.take();
        assert_eq!((b.len(), moved.len(), moved[0].len()), (0, 1, 2));
    }

    #[test]
    fn slices() {
        let mut b = batch(3);
        for p in &mut b {
            p.meta_mut().in_port = 4;
        }
        assert!(b.iter().all(|p| p.meta().in_port == 4));
        assert_eq!(b.pop().map(|p| p.data()[0]), Some(2));
        assert_eq!((b.len(), b.room()), (2, 30));
    }
}
