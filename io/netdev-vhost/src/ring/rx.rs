//! From the guest: buffers that it has filled become packets.
//!
//! Reads: available ring, descriptors, header and payload. Writes: packet buffers, used ring. Next: the worker's
//! extraction. Cost a burst: one look at the index, one store of the index, and a fence if the guest may want to be
//! interrupted; a packet: its lines of descriptors and payload, asked for a stage before they are used.
#![allow(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use fv_packet::hdr::eth;
use fv_packet::{BATCH_MAX, Batch, Packet, VnetHdr, from_vnet_hdr, vnet};

use super::copy::{Width, at_width, blocks, exactly};
use super::counts::{Counts, Fault};
use super::desc::{Head, INDIRECT, NEXT, Taken, WRITE, Walk};
use super::features::{Features, feature};
use super::mem::{GuestMap, Seg, prefetch};
use super::vq::{Base, Layout, Setup, Vq};

/// A frame's bytes at most: a 64 KiB IP packet with its link-layer headers, and what a large buffer holds.
const MAX_FRAME: usize = 65536 + 256;
/// Payload up to here goes into a small buffer, which has room for whole blocks.
const SMALL: usize = 2048;

/// A ring whose guest sends.
pub struct RxRing {
    vq: Vq,
    side: Side,
    width: Width,
}

struct Side {
    map: GuestMap,
    walk: Walk,
    header: usize,
    features: Features,
    taken: Taken,
    segs: Vec<Seg>,
    counts: Arc<Counts>,
    call: Option<Arc<OwnedFd>>,
    fault: Option<Fault>,
}

impl RxRing {
    /// # Safety
    /// The ring's parts can be read and written while `map` lives: `size` descriptors, and what belongs to them
    /// (virtio 1.2, 2.7.1 and 2.8.1).
    pub unsafe fn new(setup: Setup, map: GuestMap) -> Result<RxRing, Fault> {
        // SAFETY: as the caller promises; the ring and the map are kept together.
        let mut vq = unsafe { Vq::new(&setup)? };
        let used_log = setup.parts.used_log.zip(map.log.clone());
        match &mut vq {
            Vq::Split(r) => r.set_log(used_log),
            Vq::Packed(r) => r.set_log(used_log),
        }
        let features = setup.features;
        let walk = Walk { packed: features.has(feature::RING_PACKED), features, size: setup.size as u16, direction: 0 };
        let side = Side {
            map,
            walk,
            header: features.header_len(),
            features,
            taken: Taken::with_room(BATCH_MAX),
            segs: Vec::with_capacity(64),
            counts: setup.counts,
            call: setup.call,
            fault: None,
        };
        Ok(RxRing { vq, side, width: Width::best() })
    }

    /// Appends what the guest has sent, as far as the batch has room, and says how many packets.
    pub fn recv(&mut self, out: &mut Batch) -> usize {
        if self.side.fault.is_some() {
            return 0;
        }
        match &mut self.vq {
            Vq::Split(ring) => at(self.width, ring, &mut self.side, out),
            Vq::Packed(ring) => at(self.width, ring, &mut self.side, out),
        }
    }

    /// Whether something waits.
    pub fn has_some(&self) -> bool {
        self.side.fault.is_none()
            && match &self.vq {
                Vq::Split(r) => r.has_some(),
                Vq::Packed(r) => r.has_some(),
            }
    }

    /// Asks the guest to kick for what it makes available from now on, or not to; then look once more.
    pub fn ask_kicks(&mut self, wanted: bool) {
        match &mut self.vq {
            Vq::Split(r) => r.ask_kicks(wanted),
            Vq::Packed(r) => r.ask_kicks(wanted),
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

fn at<L: Layout>(width: Width, ring: &mut L, side: &mut Side, out: &mut Batch) -> usize {
    at_width!(width, fn burst(ring: &mut L, side: &mut Side, out: &mut Batch) -> usize)
}

#[inline(always)]
fn burst<L: Layout, const W: usize>(ring: &mut L, side: &mut Side, out: &mut Batch) -> usize {
    let before = out.len();
    side.taken.clear();
    let mut fault = ring.take(out.room(), &mut side.taken).err();
    let n = side.taken.heads.len();
    if n == 0 && fault.is_none() {
        return 0;
    }
    let mut places = [Place::NONE; BATCH_MAX];
    for (place, head) in places.iter_mut().zip(&side.taken.heads) {
        *place = side.map.place::<W>(head, side.header);
    }
    let (mut done, mut bytes) = (0, 0);
    for place in &places[..n] {
        let result = if place.at.is_null() {
            side.chain(done)
        } else {
            // SAFETY: the guest's memory has the bytes that the place tells.
            unsafe { side.plain::<W>(*place) }
        };
        match result {
            Ok(Some(packet)) => {
                bytes += packet.len();
                // Never full: no more were taken than there is room.
                let _ = out.push(packet);
            }
            Ok(None) => {}
            Err(f) => {
                fault = Some(f);
                break;
            }
        }
        done += 1;
    }
    if done < n {
        ring.untake(&side.taken.heads[done..]);
    }
    ring.give(&side.taken.heads[..done], &[0; BATCH_MAX][..done]);
    Counts::add(&side.counts.packets, (out.len() - before) as u64);
    Counts::add(&side.counts.bytes, bytes as u64);
    if side.call.is_some() && ring.wants_call() {
        side.call();
    }
    if let Some(fault) = fault {
        side.fault = Some(fault);
        side.counts.stop(fault);
    }
    out.len() - before
}

/// Where a buffer of one descriptor is.
#[derive(Clone, Copy)]
struct Place {
    /// The header; null if the buffer is none of one contiguous descriptor with a frame.
    at: *const u8,
    len: u32,
    /// Whole blocks of payload can be read.
    whole: bool,
}

impl Place {
    const NONE: Place = Place { at: std::ptr::null(), len: 0, whole: false };
}

impl GuestMap {
    #[inline(always)]
    fn place<const W: usize>(&mut self, head: &Head, header: usize) -> Place {
        let d = &head.desc;
        if d.flags & (NEXT | WRITE | INDIRECT) != 0 || (d.len as usize) < header + eth::LEN {
            return Place::NONE;
        }
        let Some(at) = self.contiguous(d.addr, d.len) else { return Place::NONE };
        prefetch(at);
        prefetch(at.wrapping_add(64));
        let whole = self.left(d.addr) >= (header as u64) + u64::from(d.len).next_multiple_of(W as u64);
        Place { at, len: d.len, whole }
    }
}

impl Side {
    /// A frame in one descriptor.
    ///
    /// # Safety
    /// `place.len` bytes, header and an Ethernet header at least, can be read there, and whole blocks of payload
    /// if it says so.
    #[inline(always)]
    unsafe fn plain<const W: usize>(&mut self, place: Place) -> Result<Option<Packet>, Fault> {
        let len = place.len as usize - self.header;
        if len > MAX_FRAME {
            return Err(Fault::FrameTooLong);
        }
        // SAFETY: the header is there, at least ten bytes.
        let asks = u16::from_le(unsafe { place.at.cast::<u16>().read_unaligned() });
        let payload = place.at.wrapping_add(self.header);
        let mut packet;
        if place.whole && len <= SMALL {
            packet = Packet::with_capacity(SMALL);
            // SAFETY: whole blocks can be read, and SMALL is a multiple of every block.
            unsafe { blocks::<W>(packet.spare_mut().as_mut_ptr(), payload, len) };
        } else {
            packet = Packet::with_capacity(len);
            // SAFETY: the guest has the bytes and the packet the room.
            unsafe { exactly::<W>(packet.spare_mut().as_mut_ptr(), payload, len) };
        }
        packet.set_len(len);
        if asks == 0 {
            return Ok(Some(packet));
        }
        let mut header = [0; vnet::LEN_MERGED];
        // SAFETY: as above. The first two bytes may have changed meanwhile: only this copy counts from here on.
        unsafe { exactly::<16>(header.as_mut_ptr(), place.at, vnet::LEN) };
        Ok(self.offloads(&header, packet))
    }

    /// A frame in several pieces, or what is none.
    #[cold]
    fn chain(&mut self, i: usize) -> Result<Option<Packet>, Fault> {
        self.segs.clear();
        self.walk.segments(&self.taken.heads[i], &self.taken.rest, &mut self.map, &mut self.segs)?;
        let total: usize = self.segs.iter().map(|s| s.len).sum();
        if total > MAX_FRAME + self.header {
            return Err(Fault::FrameTooLong);
        }
        let Some(len) = total.checked_sub(self.header).filter(|len| *len >= eth::LEN) else {
            Counts::add(&self.counts.short, 1);
            return Ok(None);
        };
        let mut packet = Packet::with_capacity(len);
        let mut header = [0; vnet::LEN_MERGED];
        let payload = packet.spare_mut();
        let mut at = 0;
        for seg in &self.segs {
            let of_header = self.header.saturating_sub(at).min(seg.len);
            // SAFETY: the pieces are guest memory that is mapped. What comes before `self.header` goes into the
            // header, which is that long at least, and the rest into the payload, which is `len` long.
            unsafe {
                exactly::<16>(header.as_mut_ptr().add(at.min(self.header)), seg.at, of_header);
                let to = payload.as_mut_ptr().add((at + of_header).saturating_sub(self.header));
                std::ptr::copy_nonoverlapping(seg.at.add(of_header), to, seg.len - of_header);
            }
            at += seg.len;
        }
        packet.set_len(len);
        if header[..2] == [0; 2] {
            return Ok(Some(packet));
        }
        Ok(self.offloads(&header, packet))
    }

    /// What the header says of the packet, if it is true.
    #[inline(never)]
    fn offloads(&mut self, header: &[u8; vnet::LEN_MERGED], mut packet: Packet) -> Option<Packet> {
        let mut h = VnetHdr::from_le_bytes(header);
        // Drivers say nothing of finished checksums (5.1.6.2.1), and a guest's word would not count.
        h.flags &= vnet::NEEDS_CSUM;
        if !self.features.may_ask(h.flags, h.gso_type) || from_vnet_hdr(&h, &mut packet).is_err() {
            Counts::add(&self.counts.bad_header, 1);
            return None;
        }
        Some(packet)
    }

    #[cold]
    fn call(&self) {
        if let Some(fd) = &self.call {
            interrupt(fd, &self.counts);
        }
    }
}

/// Interrupts the guest. An error means that the front end is gone, of which its socket tells.
pub(super) fn interrupt(fd: &OwnedFd, counts: &Counts) {
    Counts::add(&counts.calls, 1);
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}
