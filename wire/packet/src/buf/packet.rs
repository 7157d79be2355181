//! [`Packet`]: an owned, pointer-sized handle on one buffer.
#![allow(unsafe_code)]

use std::fmt;
use std::mem::{align_of, size_of};
use std::ptr::NonNull;

use super::pool::{self, Class, HEAD};
use crate::meta::Meta;

/// Bytes of a side note at most.
pub const SIDE_MAX: usize = 512;
/// Bytes that a fresh packet has in front of its data.
pub const HEADROOM: usize = 256;

/// What precedes the data area in memory: two cache lines, the first with all that a plain
/// forwarding decision reads.
#[repr(C, align(64))]
struct Head {
    /// Where the data begins, from the end of the head.
    off: u32,
    len: u32,
    /// Bytes behind the head.
    cap: u32,
    class: Class,
    meta: Meta,
}

/// Copied as a whole, which is cheaper than field by field.
static FRESH: Head = Head { off: HEADROOM as u32, len: 0, cap: 0, class: Class::Small, meta: Meta::NEW };

const _: () = assert!(size_of::<Head>() == HEAD && align_of::<Head>() == 64);
const _: () = assert!(size_of::<Option<Packet>>() == size_of::<usize>());

/// One packet: bytes with room on both sides, and [`Meta`]. Dropping it recycles the buffer.
///
/// The bytes are linear. Whatever moves the front of the data ([`Packet::push_front`],
/// [`Packet::pull_front`]) moves the offsets in the metadata along, so they keep naming the same
/// bytes.
pub struct Packet {
    head: NonNull<Head>,
}

// SAFETY: a packet is the only owner of its buffer, and shared access only reads.
unsafe impl Send for Packet {}
// SAFETY: as above.
unsafe impl Sync for Packet {}

impl Packet {
    /// An empty packet with room for `len` bytes behind [`HEADROOM`] bytes of headroom.
    #[inline]
    pub fn with_capacity(len: usize) -> Packet {
        Packet::with_rooms(HEADROOM, len)
    }

    /// A packet with a copy of `bytes`.
    pub fn from_slice(bytes: &[u8]) -> Packet {
        let mut p = Packet::with_capacity(bytes.len());
        p.head_mut().len = bytes.len() as u32;
        p.data_mut().copy_from_slice(bytes);
        p
    }

    #[inline]
    fn with_rooms(headroom: usize, len: usize) -> Packet {
        let want = headroom.saturating_add(len);
        let class = Class::of(want);
        let cap = class.cap(want);
        assert!(cap <= u32::MAX as usize / 2, "packet of {len} bytes");
        let head = pool::take(class, cap).cast::<Head>();
        // SAFETY: the buffer is ours, aligned to 64 and longer than a head.
        unsafe {
            head.copy_from_nonoverlapping(NonNull::from(&FRESH), 1);
            let head = &mut *head.as_ptr();
            head.off = headroom as u32;
            head.cap = cap as u32;
            head.class = class;
        }
        Packet { head }
    }

    #[inline]
    fn head(&self) -> &Head {
        // SAFETY: `head` is valid for as long as the packet lives, and `self` is borrowed.
        unsafe { self.head.as_ref() }
    }

    #[inline]
    fn head_mut(&mut self) -> &mut Head {
        // SAFETY: as in `head`, and `self` is borrowed mutably.
        unsafe { self.head.as_mut() }
    }

    /// The bytes `off..off + len` behind the head.
    #[inline]
    fn area(&self, off: usize, len: usize) -> &[u8] {
        debug_assert!(off + len <= self.head().cap as usize);
        // SAFETY: callers keep off + len <= cap; every byte is initialised since allocation, and
        // only `&mut self` writes.
        unsafe {
            let base = self.head.as_ptr().cast::<u8>().add(HEAD);
            std::slice::from_raw_parts(base.add(off), len)
        }
    }

    #[inline]
    fn area_mut(&mut self, off: usize, len: usize) -> &mut [u8] {
        debug_assert!(off + len <= self.head().cap as usize);
        // SAFETY: as in `area`, and `self` is borrowed mutably.
        unsafe {
            let base = self.head.as_ptr().cast::<u8>().add(HEAD);
            std::slice::from_raw_parts_mut(base.add(off), len)
        }
    }

    /// Back to an empty packet with full headroom and default metadata.
    pub fn reset(&mut self) {
        let head = self.head_mut();
        head.off = HEADROOM.min(head.cap as usize) as u32;
        head.len = 0;
        head.meta = Meta::NEW;
    }

    /// Puts `n` bytes in front and returns them; they hold anything, the caller writes them all.
    /// Grows into a new buffer when the headroom is too small.
    #[inline]
    pub fn push_front(&mut self, n: usize) -> &mut [u8] {
        if n > self.headroom() {
            self.grow(n.saturating_add(HEADROOM), 0);
        }
        let head = self.head_mut();
        head.off -= n as u32;
        head.len += n as u32;
        head.meta.front_grew(n);
        let off = head.off as usize;
        self.area_mut(off, n)
    }

    /// Takes up to `n` bytes from the front and says how many.
    #[inline]
    pub fn pull_front(&mut self, n: usize) -> usize {
        let n = n.min(self.len());
        let head = self.head_mut();
        head.off += n as u32;
        head.len -= n as u32;
        head.meta.front_shrank(n);
        n
    }

    /// Appends `n` zero bytes and returns them. Grows when the tailroom is too small.
    pub fn put_back(&mut self, n: usize) -> &mut [u8] {
        if n > self.tailroom() {
            self.grow(self.headroom(), n);
        }
        let head = self.head_mut();
        let end = (head.off + head.len) as usize;
        head.len += n as u32;
        let new = self.area_mut(end, n);
        new.fill(0);
        new
    }

    /// Appends a copy of `bytes`.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.put_back(bytes.len()).copy_from_slice(bytes);
    }

    /// Cuts the packet to at most `n` bytes.
    #[inline]
    pub fn truncate(&mut self, n: usize) {
        let head = self.head_mut();
        head.len = head.len.min(n.min(u32::MAX as usize) as u32);
    }

    /// Writable bytes behind the data, to receive into; then [`Packet::set_len`].
    pub fn spare_mut(&mut self) -> &mut [u8] {
        let end = self.head().off as usize + self.len();
        let room = self.tailroom();
        self.area_mut(end, room)
    }

    /// Makes the packet `n` bytes long, at most what fits its buffer: the bytes are what is there.
    #[inline]
    pub fn set_len(&mut self, n: usize) {
        let most = self.len() + self.tailroom();
        self.head_mut().len = n.min(most) as u32;
    }

    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let (off, len) = (self.head().off as usize, self.len());
        self.area_mut(off, len)
    }

    #[inline]
    pub fn meta_mut(&mut self) -> &mut Meta {
        &mut self.head_mut().meta
    }

    /// Bytes and metadata at once.
    #[inline]
    pub fn parts_mut(&mut self) -> (&mut [u8], &mut Meta) {
        let (off, len) = (self.head().off as usize, self.len());
        // SAFETY: the metadata lies inside the head and the data behind it, so the two references
        // do not overlap; both last as long as the mutable borrow of `self`.
        unsafe {
            let head = self.head.as_ptr();
            let base = head.cast::<u8>().add(HEAD);
            (std::slice::from_raw_parts_mut(base.add(off), len), &mut (*head).meta)
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.head().len as usize
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub fn data(&self) -> &[u8] {
        self.area(self.head().off as usize, self.len())
    }

    #[inline]
    pub fn meta(&self) -> &Meta {
        &self.head().meta
    }

    #[inline]
    pub fn headroom(&self) -> usize {
        let head = self.head();
        (head.off as usize).saturating_sub(4 * usize::from(head.meta.side))
    }

    /// A note that travels with the packet and its copies, as what it had around it before. It lies at the far end
    /// of the headroom, so that a packet without one pays nothing.
    pub fn side(&self) -> &[u8] {
        let head = self.head();
        self.area(0, (4 * usize::from(head.meta.side)).min(head.off as usize))
    }

    #[inline]
    pub fn has_side(&self) -> bool {
        self.head().meta.side != 0
    }

    /// Replaces the note; an empty one is none. Its length counts in words of four bytes. Grows into a new buffer when the headroom is too small.
    pub fn set_side(&mut self, note: &[u8]) {
        debug_assert!(note.len().is_multiple_of(4) && note.len() <= SIDE_MAX);
        let note = &note[..note.len().min(SIDE_MAX)];
        self.head_mut().meta.side = 0;
        if note.len() > self.headroom() {
            self.grow(HEADROOM + note.len(), 0);
        }
        self.area_mut(0, note.len()).copy_from_slice(note);
        self.head_mut().meta.side = (note.len() / 4) as u8;
    }

    #[inline]
    pub fn tailroom(&self) -> usize {
        let head = self.head();
        (head.cap - head.off - head.len) as usize
    }

    /// A deep copy with the metadata and full headroom.
    pub fn duplicate(&self) -> Packet {
        let mut p = Packet::from_slice(self.data());
        p.copy_meta(self);
        p
    }

    /// Takes over another packet's metadata, with its note.
    pub fn copy_meta(&mut self, of: &Packet) {
        *self.meta_mut() = *of.meta();
        self.head_mut().meta.side = 0;
        if of.has_side() {
            self.set_side(of.side());
        }
    }

    /// Asks the processor for the first line of metadata and of data, for a packet that is read soon.
    #[inline]
    pub fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch reads nothing that the program sees, and the addresses are in the buffer: fresh data
        // begins behind HEADROOM, so the head need not be read to find it.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let head = self.head.as_ptr().cast::<i8>();
            _mm_prefetch::<_MM_HINT_T0>(head);
            _mm_prefetch::<_MM_HINT_T0>(head.add(HEAD + HEADROOM));
        }
    }

    /// Moves the data to a buffer with at least these rooms around it.
    #[cold]
    fn grow(&mut self, headroom: usize, tailroom: usize) {
        let side = self.side().len();
        let mut new = Packet::with_rooms(headroom + side, self.len().saturating_add(tailroom));
        new.set_len(self.len());
        new.data_mut().copy_from_slice(self.data());
        new.area_mut(0, side).copy_from_slice(self.side());
        *new.meta_mut() = *self.meta();
        *self = new;
    }
}

impl Drop for Packet {
    #[inline]
    fn drop(&mut self) {
        let (class, cap) = (self.head().class, self.head().cap as usize);
        // SAFETY: the buffer came from `pool::take` with this class and capacity, and this was the
        // only handle on it.
        unsafe { pool::give(self.head.cast(), class, cap) };
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packet({} bytes", self.len())?;
        for (i, byte) in self.data().iter().take(64).enumerate() {
            write!(f, "{}{byte:02x}", if i % 4 == 0 { " " } else { "" })?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Csum, NO_OFS};

    #[test]
    fn front_and_back_keep_offsets() {
        let mut p = Packet::from_slice(&[7; 60]);
        p.meta_mut().l3_ofs = 14;
        p.meta_mut().csum = Csum::Partial;
        p.meta_mut().csum_start = 34;
        p.push_front(4).fill(1);
        assert_eq!((p.len(), p.meta().l3_ofs, p.meta().csum_start), (64, 18, 38));
        assert_eq!(p.pull_front(20), 20);
        assert_eq!((p.len(), p.meta().l3_ofs, p.meta().csum_start), (44, NO_OFS, 18));
        p.pull_front(19);
        assert_eq!((p.meta().csum, p.meta().l4_ofs), (Csum::Unknown, NO_OFS));
        p.extend(&[9; 3]);
        assert_eq!(&p.data()[p.len() - 4..], &[7, 9, 9, 9]);
        p.truncate(2);
        assert_eq!(p.data(), &[7, 7]);
        assert_eq!(p.pull_front(99), 2);
        assert!(p.is_empty());
    }

    #[test]
    fn grows_in_both_directions() {
        let mut p = Packet::from_slice(b"middle");
        p.meta_mut().in_port = 3;
        p.push_front(3000).fill(b'a');
        p.put_back(70_000).fill(b'z');
        assert_eq!(p.len(), 73_006);
        assert_eq!(&p.data()[2999..3007], b"amiddlez");
        assert_eq!(p.meta().in_port, 3);
        let copy = p.duplicate();
        assert_eq!(copy.data(), p.data());
        assert_eq!(copy.meta(), p.meta());
        p.reset();
        assert_eq!((p.len(), p.meta().in_port, p.headroom()), (0, 0, HEADROOM));
    }

    #[test]
    fn notes_stay_with_their_packet() {
        let mut p = Packet::from_slice(&[7; 60]);
        p.set_side(&[1; 80]);
        assert_eq!((p.headroom(), p.duplicate().side()), (HEADROOM - 80, &[1; 80][..]));
        p.push_front(HEADROOM - 80).fill(2);
        assert_eq!((p.headroom(), p.side()), (0, &[1; 80][..]));
        p.push_front(1).fill(3);
        p.put_back(5000);
        assert_eq!((p.side(), p.data()[0]), (&[1; 80][..], 3));
        p.set_side(&[9; 400]);
        assert_eq!((p.side().len(), p.data()[0], p.duplicate().side().len()), (400, 3, 400));
        p.set_side(&[]);
        assert!(!p.has_side() && p.duplicate().side().is_empty());
        p.set_side(&[5; 8]);
        p.reset();
        assert!(!p.has_side());
    }

    #[test]
    fn receive_into_spare() {
        let mut p = Packet::with_capacity(2048);
        assert_eq!(p.tailroom(), 2048);
        p.spare_mut()[..3].copy_from_slice(b"abc");
        p.set_len(3);
        assert_eq!(p.data(), b"abc");
        p.set_len(usize::MAX);
        assert_eq!(p.len(), 2048);
        assert!(p.spare_mut().is_empty());
    }

    #[test]
    fn packets_cross_threads() {
        let (tx, rx) = std::sync::mpsc::sync_channel::<Packet>(64);
        let sender = std::thread::spawn(move || {
            for i in 0..20_000u32 {
                let mut p = Packet::from_slice(&i.to_be_bytes());
                p.meta_mut().in_port = i;
                tx.send(p).unwrap();
            }
        });
        for (i, p) in rx.iter().enumerate() {
            assert_eq!(p.data(), (i as u32).to_be_bytes());
            assert_eq!(p.meta().in_port, i as u32);
        }
        sender.join().unwrap();
    }
}
