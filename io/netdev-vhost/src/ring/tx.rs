//! To the guest: packets go into buffers that it has offered.
//!
//! Reads: packets, available ring, descriptors. Writes: the guest's buffers, used ring. Cost a burst: one look at the
//! index unless what it said before is enough, one store of the index, and a fence if the guest may want to be
//! interrupted; a packet: its lines of descriptors and buffer, asked for a stage before they are used.
#![allow(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use fv_netdev::{Sent, TxOffloads, egress_fixup};
use fv_packet::{BATCH_MAX, Batch, Csum, Packet, to_vnet_hdr, vnet};

use super::copy::{Width, at_width, exactly};
use super::counts::{Counts, Fault};
use super::desc::{Head, REST_ENOUGH, Taken, WRITE, Walk};
use super::features::{Features, feature};
use super::mem::{GuestMap, Seg};
use super::rx::interrupt;
use super::vq::{Base, Layout, Setup, Vq};

/// Buffers that one packet is put into at most (64 KiB in pieces of 128 bytes).
const MERGE_MAX: usize = 512;

/// A ring whose guest receives.
pub struct TxRing {
    vq: Vq,
    side: Side,
    width: Width,
    /// Packets made of those that had to be cut.
    segments: Vec<Packet>,
    retries_max: u32,
}

struct Side {
    map: GuestMap,
    walk: Walk,
    header: usize,
    mergeable: bool,
    /// The guest may be told about checksums.
    csum: bool,
    offloads: TxOffloads,
    taken: Taken,
    /// Bytes written into each of the buffers that are filled; the others follow.
    lens: Vec<u32>,
    segs: Vec<Seg>,
    counts: Arc<Counts>,
    call: Option<Arc<OwnedFd>>,
    fault: Option<Fault>,
}

/// Why a packet is not placed.
enum No {
    /// There are not enough buffers.
    Full,
    /// What is filled must go back first.
    Again,
    TooLong,
    Fault(Fault),
}

impl TxRing {
    /// # Safety
    /// The ring's parts can be read and written while `map` lives: `size` descriptors, and what belongs to them
    /// (virtio 1.2, 2.7.1 and 2.8.1).
    pub unsafe fn new(setup: Setup, map: GuestMap) -> Result<TxRing, Fault> {
        // SAFETY: as the caller promises; the ring and the map are kept together.
        let mut vq = unsafe { Vq::new(&setup)? };
        let used_log = setup.parts.used_log.zip(map.log.clone());
        match &mut vq {
            Vq::Split(r) => r.set_log(used_log),
            Vq::Packed(r) => r.set_log(used_log),
        }
        let features: Features = setup.features;
        let packed = features.has(feature::RING_PACKED);
        let side = Side {
            map,
            walk: Walk { packed, features, size: setup.size as u16, direction: WRITE },
            header: features.header_len(),
            mergeable: features.has(feature::MRG_RXBUF),
            csum: features.has(feature::GUEST_CSUM),
            offloads: features.tx_offloads(),
            taken: Taken::with_room(BATCH_MAX + MERGE_MAX),
            lens: Vec::with_capacity(BATCH_MAX + MERGE_MAX),
            segs: Vec::with_capacity(64),
            counts: setup.counts,
            call: setup.call,
            fault: None,
        };
        Ok(TxRing { vq, side, width: Width::best(), segments: Vec::new(), retries_max: 0 })
    }

    /// How often a burst that found too few buffers looks again, as long as each look finds some.
    pub fn set_retries_max(&mut self, n: u32) {
        self.retries_max = n;
    }

    /// Sends the packets and empties the batch.
    pub fn send(&mut self, batch: &mut Batch) -> Sent {
        if self.side.fault.is_some() {
            Counts::add(&self.side.counts.stopped, batch.len() as u64);
            let sent = Sent { dropped: batch.len() as u32, ..Sent::default() };
            batch.clear();
            return sent;
        }
        let work = batch.iter().fold(false, |work, p| work | needs_work(p));
        let sent = if work { self.send_cut(batch) } else { self.put_all(batch) };
        batch.clear();
        self.side.account(&sent);
        sent
    }

    /// Sends packets some of which must be segmented or need checksums, in order.
    #[cold]
    fn send_cut(&mut self, batch: &mut Batch) -> Sent {
        let mut sent = Sent::default();
        for packet in batch.drain() {
            let segments = &mut self.segments;
            if egress_fixup(packet, &self.side.offloads, &mut |p| segments.push(p)).is_err() {
                Counts::add(&self.side.counts.bad_offload, 1);
                sent.dropped += 1;
                segments.clear();
            }
            if self.segments.len() >= BATCH_MAX {
                self.put_segments(&mut sent);
            }
        }
        self.put_segments(&mut sent);
        sent
    }

    fn put_segments(&mut self, sent: &mut Sent) {
        let mut segments = std::mem::take(&mut self.segments);
        for chunk in segments.chunks(BATCH_MAX) {
            let part = self.put_all(chunk);
            sent.packets += part.packets;
            sent.bytes += part.bytes;
            sent.dropped += part.dropped;
        }
        segments.clear();
        // A packet of tiny segments is rare; what it needed is not kept.
        segments.shrink_to(4 * BATCH_MAX);
        self.segments = segments;
    }

    /// At most a batch of packets, none of which needs work.
    fn put_all(&mut self, packets: &[Packet]) -> Sent {
        let mut sent = Sent::default();
        let mut looks = 0;
        loop {
            let rest = &packets[(sent.packets + sent.dropped) as usize..];
            let (part, again) = match &mut self.vq {
                Vq::Split(ring) => at(self.width, ring, &mut self.side, rest),
                Vq::Packed(ring) => at(self.width, ring, &mut self.side, rest),
            };
            sent.packets += part.packets;
            sent.bytes += part.bytes;
            sent.dropped += part.dropped;
            let left = packets.len() as u32 - sent.packets - sent.dropped;
            if left == 0 {
                return sent;
            }
            if again {
                continue;
            }
            looks += 1;
            if part.packets == 0 || looks > self.retries_max || self.side.fault.is_some() {
                let why =
                    if self.side.fault.is_some() { &self.side.counts.stopped } else { &self.side.counts.ring_full };
                Counts::add(why, left.into());
                sent.dropped += left;
                return sent;
            }
        }
    }

    /// Where the ring goes on.
    pub fn base(&self) -> Base {
        match &self.vq {
            Vq::Split(r) => r.base(),
            Vq::Packed(r) => r.base(),
        }
    }

    /// Why it has stopped, if it has.
    pub fn fault(&self) -> Option<Fault> {
        self.side.fault
    }
}

fn at<L: Layout>(width: Width, ring: &mut L, side: &mut Side, packets: &[Packet]) -> (Sent, bool) {
    at_width!(width, fn burst(ring: &mut L, side: &mut Side, packets: &[Packet]) -> (Sent, bool))
}

/// Sends packets until the buffers are used up; what is neither sent nor dropped then is left. Also says whether
/// there may be more buffers all the same.
#[inline(always)]
fn burst<L: Layout, const W: usize>(ring: &mut L, side: &mut Side, packets: &[Packet]) -> (Sent, bool) {
    side.taken.clear();
    let fault = ring.take(packets.len(), &mut side.taken).err();
    let mut places = [std::ptr::null_mut(); BATCH_MAX];
    for (place, head) in places.iter_mut().zip(&side.taken.heads) {
        *place = side.map.target(head);
    }
    let mut lens = [0; BATCH_MAX];
    let (mut n, mut bytes) = (0, 0);
    for ((packet, head), place) in packets.iter().zip(&side.taken.heads).zip(&places) {
        let need = side.header + packet.len();
        if place.is_null() || need > head.desc.len as usize {
            break;
        }
        // SAFETY: the guest's memory has the head's bytes at the place.
        unsafe { side.fill::<W>(*place, packet) };
        side.map.wrote(head.desc.addr, need);
        lens[n] = need as u32;
        bytes += packet.len() as u64;
        n += 1;
    }
    let mut sent = Sent { packets: n as u32, bytes, dropped: 0 };
    if n < packets.len() {
        side.lens.clear();
        side.lens.extend_from_slice(&lens[..n]);
        let again = side.go_on(ring, packets, &places, fault, &mut sent);
        return (sent, again);
    }
    ring.give(&side.taken.heads[..n], &lens[..n]);
    if side.call.is_some() && ring.wants_call() {
        side.call();
    }
    (sent, false)
}

impl GuestMap {
    /// Where a buffer of one descriptor is, null if it is none.
    #[inline(always)]
    fn target(&mut self, head: &Head) -> *mut u8 {
        let d = &head.desc;
        if !head.is_plain() || d.flags & WRITE == 0 || d.len == 0 {
            return std::ptr::null_mut();
        }
        let Some(at) = self.contiguous(d.addr, d.len) else { return std::ptr::null_mut() };
        prefetch_to_write(at);
        prefetch_to_write(at.wrapping_add(64));
        at
    }
}

impl Side {
    /// The first ten bytes of the header, and the number of buffers.
    #[inline(always)]
    fn header(&self, packet: &Packet, buffers: u16) -> [u8; vnet::LEN_MERGED] {
        let meta = packet.meta();
        if meta.csum == Csum::Partial || meta.gso.is_some() {
            return self.full_header(packet, buffers);
        }
        let valid = if meta.csum == Csum::Good && self.csum { vnet::DATA_VALID } else { 0 };
        let [low, high] = buffers.to_le_bytes();
        [valid, 0, 0, 0, 0, 0, 0, 0, 0, 0, low, high]
    }

    #[inline(never)]
    fn full_header(&self, packet: &Packet, buffers: u16) -> [u8; vnet::LEN_MERGED] {
        let mut h = to_vnet_hdr(packet);
        h.num_buffers = buffers;
        h.to_le_bytes()
    }

    /// # Safety
    /// Header and packet can be written at `at`.
    #[inline(always)]
    unsafe fn fill<const W: usize>(&self, at: *mut u8, packet: &Packet) {
        let header = self.header(packet, 1);
        let data = packet.data();
        // SAFETY: as the caller promises; the header is ten or twelve bytes.
        unsafe {
            at.cast::<[u8; 8]>().write_unaligned([
                header[0], header[1], header[2], header[3], header[4], header[5], header[6], header[7],
            ]);
            if self.header == vnet::LEN_MERGED {
                at.add(8).cast::<[u8; 4]>().write_unaligned([header[8], header[9], header[10], header[11]]);
            } else {
                at.add(8).cast::<[u8; 2]>().write_unaligned([header[8], header[9]]);
            }
            exactly::<W>(at.add(self.header), data.as_ptr(), data.len());
        }
    }

    /// Sends the rest of a burst, whose first packets are in place, in whatever buffers there are.
    #[cold]
    fn go_on<L: Layout>(
        &mut self,
        ring: &mut L,
        packets: &[Packet],
        places: &[*mut u8; BATCH_MAX],
        mut fault: Option<Fault>,
        sent: &mut Sent,
    ) -> bool {
        let mut again = false;
        for packet in &packets[sent.packets as usize..] {
            let next = self.lens.len();
            let need = self.header + packet.len();
            let place = places.get(next).filter(|p| next < self.taken.heads.len() && !p.is_null());
            if let Some(place) = place.filter(|_| need <= self.taken.heads[next].desc.len as usize) {
                // SAFETY: the guest's memory has the head's bytes at the place.
                unsafe { self.fill::<16>(*place, packet) };
                self.map.wrote(self.taken.heads[next].desc.addr, need);
                self.lens.push(need as u32);
                sent.packets += 1;
                sent.bytes += packet.len() as u64;
                continue;
            }
            match self.scatter(ring, packet, fault) {
                Ok(()) => {
                    sent.packets += 1;
                    sent.bytes += packet.len() as u64;
                }
                Err(No::TooLong) => {
                    Counts::add(&self.counts.too_long, 1);
                    sent.dropped += 1;
                }
                Err(No::Full) => break,
                Err(No::Again) => {
                    again = true;
                    break;
                }
                Err(No::Fault(f)) => {
                    fault = Some(f);
                    break;
                }
            }
        }
        let used = self.lens.len();
        ring.untake(&self.taken.heads[used..]);
        ring.give(&self.taken.heads[..used], &self.lens);
        if self.call.is_some() && ring.wants_call() {
            self.call();
        }
        // A fault behind buffers that were enough for now shows again when it is reached.
        if let Some(fault) = fault.filter(|_| sent.packets + sent.dropped < packets.len() as u32) {
            self.fault = Some(fault);
            self.counts.stop(fault);
        }
        again
    }

    /// Puts a packet into chains, or into several buffers if the guest takes that. Nothing is written if it
    /// does not fit.
    fn scatter<L: Layout>(&mut self, ring: &mut L, packet: &Packet, fault: Option<Fault>) -> Result<(), No> {
        let need = self.header + packet.len();
        let first = self.lens.len();
        let mut room = 0;
        self.segs.clear();
        while room < need {
            let next = self.lens.len();
            if next > first && !self.mergeable || next - first == MERGE_MAX {
                self.lens.truncate(first);
                return Err(No::TooLong);
            }
            if let Err(no) = self.chain(ring, next, fault) {
                self.lens.truncate(first);
                return Err(no);
            }
            let all: usize = self.segs.iter().map(|s| s.len).sum();
            self.lens.push((all.min(need) - room) as u32);
            room = all.min(need);
        }
        let header = self.header(packet, (self.lens.len() - first) as u16);
        self.write(&header, packet.data());
        Ok(())
    }

    /// Appends the pieces of buffer `next`, which is taken from the ring if it was not yet.
    fn chain<L: Layout>(&mut self, ring: &mut L, next: usize, fault: Option<Fault>) -> Result<(), No> {
        if next == self.taken.heads.len() {
            if let Some(f) = fault {
                return Err(No::Fault(f));
            }
            // Past enough chained descriptors what is filled goes back first, unless this packet has some.
            if self.taken.rest.len() >= REST_ENOUGH && self.segs.is_empty() {
                return Err(No::Again);
            }
            ring.take(1, &mut self.taken).map_err(No::Fault)?;
        }
        let head = *self.taken.heads.get(next).ok_or(No::Full)?;
        self.walk.segments(&head, &self.taken.rest, &mut self.map, &mut self.segs).map_err(No::Fault)
    }

    fn write(&self, header: &[u8; vnet::LEN_MERGED], data: &[u8]) {
        let mut parts = [&header[..self.header], data];
        for seg in &self.segs {
            let mut at = 0;
            for part in &mut parts {
                let n = part.len().min(seg.len - at);
                let (now, later) = part.split_at(n);
                // SAFETY: the piece is guest memory that is mapped, and `at + n` is at most its length.
                unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), seg.at.add(at), n) };
                *part = later;
                at += n;
            }
            self.map.wrote(seg.gpa, at);
        }
    }

    fn account(&self, sent: &Sent) {
        Counts::add(&self.counts.packets, sent.packets.into());
        Counts::add(&self.counts.bytes, sent.bytes);
    }

    #[cold]
    fn call(&self) {
        if let Some(fd) = &self.call {
            interrupt(fd, &self.counts);
        }
    }
}

/// Whether segmentation or a checksum is due, which the guest may or may not take over.
#[inline(always)]
fn needs_work(p: &Packet) -> bool {
    let meta = p.meta();
    meta.gso.is_some() | (meta.csum == Csum::Partial) | (meta.ip_csum == Csum::Partial)
}

/// Asks for the line at `at`, to be written soon.
#[inline(always)]
fn prefetch_to_write(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program sees, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_ET0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
