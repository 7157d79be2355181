//! A driver of one ring.

use std::collections::HashMap;
use std::sync::Arc;

use fv_netdev_vhost::ring::{Base, Counts, Features, GuestMap, Parts, RxRing, Setup, TxRing, feature};

use super::memory::{BASE, Memory};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// One piece of a buffer: address and length.
pub type Buffer = (u64, u32);

/// A buffer that came back: what it was offered as, and the bytes that the device says it wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Used {
    pub token: usize,
    pub len: u32,
}

/// Where a driver's ring, tables and buffers are in guest memory.
pub struct Driver {
    pub memory: Arc<Memory>,
    pub features: Features,
    pub size: u16,
    desc: u64,
    avail: u64,
    used: u64,
    tables: u64,
    /// First byte that the ring does not use.
    pub free_from: u64,
    /// Descriptor numbers (split) or buffer ids (packed) that are free.
    free: Vec<u16>,
    /// Places of a packed ring that are free.
    room: u16,
    /// By id: token, and the descriptors (split) or places (packed) that it has.
    out: HashMap<u16, (usize, Vec<u16>)>,
    next_token: usize,
    /// Split: index to be published; packed: place and wrap counter of the next descriptor.
    next: u16,
    wrap: bool,
    /// Packed: the first of what is not published yet.
    hidden: Option<(u16, u16)>,
    used_next: u16,
    used_wrap: bool,
    /// What was published before the last question about kicks.
    kicked_at: u16,
    /// Where the device begins: where the driver did, until it is told otherwise.
    pub base: Base,
    /// Buffers in the order in which they were offered.
    pub order: Vec<usize>,
}

impl Driver {
    /// A ring at the beginning of the guest's memory, with its indices `start` steps on.
    pub fn new(memory: Arc<Memory>, features: Features, size: u16, start: u16) -> Driver {
        let packed = features.has(feature::RING_PACKED);
        let n = u64::from(size);
        let desc = BASE;
        let avail = desc + n * 16;
        let used = (avail + 6 + n * 2).next_multiple_of(64);
        let tables = (used + 6 + n * 8).next_multiple_of(64);
        let mut d = Driver {
            memory,
            features,
            size,
            desc,
            avail,
            used,
            tables,
            free_from: tables + n * 16 * 16,
            free: (0..size).rev().collect(),
            room: size,
            out: HashMap::new(),
            next_token: 0,
            next: start,
            wrap: true,
            hidden: None,
            used_next: start,
            used_wrap: true,
            kicked_at: start,
            base: Base { avail: start, used: start },
            order: Vec::new(),
        };
        if packed {
            d.next = start % size;
            d.wrap = (start / size).is_multiple_of(2);
            let place = d.next | u16::from(d.wrap) << 15;
            d.base = Base { avail: place, used: place };
            (d.used_next, d.used_wrap) = (d.next, d.wrap);
            // Descriptors of the lap before look used.
            for i in 0..size {
                let wrap = if i < d.next { d.wrap } else { !d.wrap };
                let flags = if wrap { AVAIL | USED } else { 0 };
                d.memory.set16(desc + u64::from(i) * 16 + 14, flags);
            }
        } else {
            d.memory.set16(avail + 2, start);
            d.memory.set16(used + 2, start);
        }
        d
    }

    pub fn packed(&self) -> bool {
        self.features.has(feature::RING_PACKED)
    }

    pub fn setup(&self, counts: &Arc<Counts>) -> Setup {
        Setup {
            size: self.size.into(),
            parts: Parts {
                desc: self.memory.host(self.desc),
                avail: self.memory.host(self.avail),
                used: self.memory.host(self.used),
                used_log: Some(if self.packed() { self.desc } else { self.used }),
            },
            base: self.base,
            features: self.features,
            call: None,
            counts: counts.clone(),
        }
    }

    fn map(&self) -> GuestMap {
        self.memory.map(self.features.has(feature::LOG_ALL))
    }

    /// The device's side, of a guest that sends.
    pub fn rx(&self, counts: &Arc<Counts>) -> RxRing {
        // SAFETY: the parts are inside of the guest's memory, which the map keeps.
        unsafe { RxRing::new(self.setup(counts), self.map()) }.expect("a legal ring")
    }

    /// The device's side, of a guest that receives.
    pub fn tx(&self, counts: &Arc<Counts>) -> TxRing {
        // SAFETY: the parts are inside of the guest's memory, which the map keeps.
        unsafe { TxRing::new(self.setup(counts), self.map()) }.expect("a legal ring")
    }

    /// Offers a buffer, not yet to be seen; none if there is no room.
    pub fn offer(&mut self, pieces: &[Buffer], writable: bool, indirect: bool) -> Option<usize> {
        let token = self.next_token;
        if pieces.len() > usize::from(self.size) {
            return None;
        }
        let table = indirect && self.features.has(feature::INDIRECT_DESC) && pieces.len() <= 16;
        let slots = if table { 1 } else { pieces.len() };
        let room = if self.packed() { usize::from(self.room).min(self.free.len() * slots) } else { self.free.len() };
        if slots > room {
            return None;
        }
        let direction = if writable { WRITE } else { 0 };
        if self.packed() {
            self.offer_packed(pieces, direction, table, slots)
        } else {
            self.offer_split(pieces, direction, table)
        }
        self.next_token += 1;
        self.order.push(token);
        Some(token)
    }

    fn offer_split(&mut self, pieces: &[Buffer], direction: u16, table: bool) {
        let last = pieces.len() - 1;
        let ids: Vec<u16> = if table {
            let id = self.free.pop().expect("there is room");
            let at = self.tables + u64::from(id) * 256;
            // Linked in any order: backwards, so that the first is at the front all the same.
            let place = |i: usize| if i == 0 { 0 } else { pieces.len() - i };
            for (i, (addr, len)) in pieces.iter().enumerate() {
                let (flags, next) = if i == last { (0, 0) } else { (NEXT, place(i + 1) as u16) };
                self.put(at + place(i) as u64 * 16, *addr, *len, flags | direction, next);
            }
            self.put(self.desc + u64::from(id) * 16, at, pieces.len() as u32 * 16, INDIRECT, 0);
            vec![id]
        } else {
            let ids: Vec<u16> = pieces.iter().map(|_| self.free.pop().expect("there is room")).collect();
            for (i, (addr, len)) in pieces.iter().enumerate() {
                let (flags, next) = if i == last { (0, 0xffff) } else { (NEXT, ids[i + 1]) };
                self.put(self.desc + u64::from(ids[i]) * 16, *addr, *len, flags | direction, next);
            }
            ids
        };
        let entry = self.next % self.size;
        self.memory.set16(self.avail + 4 + u64::from(entry) * 2, ids[0]);
        self.next = self.next.wrapping_add(1);
        self.out.insert(ids[0], (self.next_token, ids));
    }

    fn offer_packed(&mut self, pieces: &[Buffer], direction: u16, table: bool, slots: usize) {
        let id = self.free.pop().expect("there is room");
        let mut list: Vec<(u64, u32, u16)> = pieces.iter().map(|(a, l)| (*a, *l, direction)).collect();
        if table {
            let at = self.tables + u64::from(id) * 256;
            for (i, (addr, len, flags)) in list.iter().enumerate() {
                self.put(at + i as u64 * 16, *addr, *len, 0xdead, *flags);
            }
            list = vec![(at, pieces.len() as u32 * 16, INDIRECT)];
        }
        let n = list.len();
        for (i, (addr, len, flags)) in list.into_iter().enumerate() {
            let at = self.desc + u64::from(self.next) * 16;
            let bits = if self.wrap { AVAIL } else { USED };
            let more = if i + 1 < n { NEXT } else { 0 };
            // Only the last one's id counts.
            let tag = if i + 1 < n { 0xbeef } else { id };
            self.memory.write(at, &addr.to_le_bytes());
            self.memory.write(at + 8, &len.to_le_bytes());
            self.memory.set16(at + 12, tag);
            let word = bits | more | flags;
            if self.hidden.is_none() {
                self.hidden = Some((self.next, word));
            } else {
                self.memory.set16(at + 14, word);
            }
            self.next += 1;
            if self.next == self.size {
                (self.next, self.wrap) = (0, !self.wrap);
            }
        }
        self.room -= slots as u16;
        self.out.insert(id, (self.next_token, vec![id; slots]));
    }

    /// A descriptor: in split rings the last two words are flags and next, in packed tables id and flags.
    fn put(&self, at: u64, addr: u64, len: u32, a: u16, b: u16) {
        self.memory.write(at, &addr.to_le_bytes());
        self.memory.write(at + 8, &len.to_le_bytes());
        self.memory.set16(at + 12, a);
        self.memory.set16(at + 14, b);
    }

    /// Lets the device see what was offered.
    pub fn publish(&mut self) {
        if !self.packed() {
            self.memory.set16(self.avail + 2, self.next);
        } else if let Some((at, flags)) = self.hidden.take() {
            self.memory.set16(self.desc + u64::from(at) * 16 + 14, flags);
        }
    }

    /// What the device has used, in its order.
    pub fn reap(&mut self) -> Vec<Used> {
        let mut done = Vec::new();
        loop {
            let Some((id, len)) = (if self.packed() { self.reap_packed() } else { self.reap_split() }) else {
                return done;
            };
            let (token, ids) = self.out.remove(&id).expect("the device returns what was offered, once");
            if self.packed() {
                self.room += ids.len() as u16;
                self.used_next += ids.len() as u16;
                if self.used_next >= self.size {
                    self.used_next -= self.size;
                    self.used_wrap = !self.used_wrap;
                }
                self.free.push(id);
            } else {
                self.used_next = self.used_next.wrapping_add(1);
                self.free.extend(ids);
            }
            done.push(Used { token, len });
        }
    }

    fn reap_split(&self) -> Option<(u16, u32)> {
        if self.memory.u16(self.used + 2) == self.used_next {
            return None;
        }
        let at = self.used + 4 + u64::from(self.used_next % self.size) * 8;
        let id = u32::from_le_bytes(self.memory.word(at));
        Some((id.try_into().expect("a descriptor number"), u32::from_le_bytes(self.memory.word(at + 4))))
    }

    fn reap_packed(&self) -> Option<(u16, u32)> {
        let at = self.desc + u64::from(self.used_next) * 16;
        let flags = self.memory.u16(at + 14);
        let used = (flags & USED != 0, flags & AVAIL != 0) == (self.used_wrap, self.used_wrap);
        let len = if flags & WRITE != 0 { u32::from_le_bytes(self.memory.word(at + 8)) } else { 0 };
        used.then(|| (self.memory.u16(at + 12), len))
    }

    /// Buffers that are with the device.
    pub fn outstanding(&self) -> usize {
        self.out.len()
    }

    /// Where the next one is reaped: index (split), or place and wrap counter (packed).
    pub fn used_place(&self) -> (u16, bool) {
        (self.used_next, self.used_wrap)
    }

    /// Whether interrupts are wanted; without an event index, or with one for everything.
    pub fn want_calls(&self, wanted: bool) {
        if self.packed() {
            self.memory.set16(self.avail + 2, if wanted { 0 } else { 1 });
        } else {
            self.memory.set16(self.avail, if wanted { 0 } else { 1 });
        }
    }

    /// Interrupt when the `ahead`-th buffer (split) or place (packed) from here has been used.
    pub fn want_call_at(&self, ahead: u16) {
        assert!(self.features.has(feature::EVENT_IDX));
        if self.packed() {
            let at = self.used_next + ahead;
            let (at, wrap) = if at >= self.size { (at - self.size, !self.used_wrap) } else { (at, self.used_wrap) };
            self.memory.set16(self.avail, at | u16::from(wrap) << 15);
            self.memory.set16(self.avail + 2, 2);
        } else {
            let at = self.avail + 4 + u64::from(self.size) * 2;
            self.memory.set16(at, self.used_next.wrapping_add(ahead));
        }
    }

    /// Whether the device wants to be told of what was published since the last question.
    pub fn must_kick(&mut self) -> bool {
        let old = std::mem::replace(&mut self.kicked_at, self.next);
        if self.packed() {
            return match self.memory.u16(self.used + 2) & 3 {
                0 => true,
                1 => false,
                _ => self.memory.u16(self.used) & 0x7fff == old,
            };
        }
        if self.features.has(feature::EVENT_IDX) {
            let event = self.memory.u16(self.used + 4 + u64::from(self.size) * 8);
            return self.next.wrapping_sub(event).wrapping_sub(1) < self.next.wrapping_sub(old);
        }
        self.memory.u16(self.used) & 1 == 0
    }

    /// Guest-physical addresses of the parts: descriptors, driver area, device area.
    pub fn places(&self) -> [u64; 3] {
        [self.desc, self.avail, self.used]
    }
}
