//! One connection's state: what was negotiated, the memory, and each ring's configuration. A request changes it
//! and starts, stops or restarts rings; no I/O happens here beyond mapping what the front end hands over.
//!
//! Requests may come in any order. A ring starts when it has a size, addresses that its memory has, and a kick,
//! and runs while it is enabled; a change of what a running ring was made of takes it out and puts it in again
//! where it was.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::mapping::{MapError, Mapping};
use crate::memory::{GuestMemory, MemoryError, REGIONS_MAX};
use crate::message::{Area, InflightSpec, Reply, Request, VringAddr};
use crate::offer::{FEATURES, PROTOCOL_FEATURES, feature, protocol};

/// Queue pairs of one port.
pub const PAIRS_MAX: usize = 128;
/// Rings of one port: each pair has one in each direction.
pub const RINGS_MAX: usize = 2 * PAIRS_MAX;
/// Places of a ring at most (virtio 1.2, 2.7 and 2.8).
const RING_SIZE_MAX: u32 = 32768;
/// Bytes of the in-flight area at most: the front end's, but made here.
const INFLIGHT_MAX: u64 = 16 << 20;
/// Bytes of the dirty log at most: one bit a page of 128 TiB.
const LOG_MAX: u64 = 1 << 32;
/// The part of the configuration space that is told, as far as virtio 1.2 defines it.
const CONFIG_SPACE: usize = 24;

/// Why a request is not carried out; it has changed nothing but, where it says so, stopped a ring.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("ring number out of range")]
    RingNumber,
    #[error("ring size out of range")]
    RingSize,
    #[error("ring index out of range")]
    RingBase,
    #[error("features that were not offered")]
    Features,
    #[error("{0}")]
    Memory(#[from] MemoryError),
    #[error("dirty log: {0}")]
    Log(MapError),
    #[error("in-flight area is too small or too large")]
    Inflight,
    #[error("configuration space has no such range")]
    Config,
    #[error("MTU out of range")]
    Mtu,
    #[error("ring {0}: {1}")]
    Ring(usize, String),
    /// The connection cannot go on.
    #[error("ring {0} is held by its worker")]
    Stuck(usize),
}

/// What a ring is made of.
pub struct RingPlan {
    pub size: u32,
    pub desc: NonNull<u8>,
    pub avail: NonNull<u8>,
    pub used: NonNull<u8>,
    /// Guest-physical address for the dirty log of what the device writes in the ring.
    pub used_log: Option<u64>,
    /// As in `SET_VRING_BASE`.
    pub base: u32,
    pub features: u64,
    pub memory: Arc<GuestMemory>,
    pub log: Option<Arc<Mapping>>,
    pub call: Option<Arc<OwnedFd>>,
    pub enabled: bool,
}

/// Who runs the rings.
pub trait Rings {
    /// Puts a ring in.
    fn start(&mut self, ring: usize, plan: RingPlan) -> Result<(), Refused>;
    /// Takes a ring out once nobody is in it: its position.
    fn stop(&mut self, ring: usize) -> Result<Option<u32>, Refused>;
    /// Lets a ring run or rest; it stays where it is.
    fn enable(&mut self, ring: usize, enabled: bool) -> Result<(), Refused>;
    /// The guest has arrived here; switches should learn where its address is.
    fn announce(&mut self, mac: [u8; 6]);
    /// The guest's MTU.
    fn set_guest_mtu(&mut self, mtu: u16);
    /// Address and queue pairs for the configuration space.
    fn identity(&self) -> ([u8; 6], u16);
}

#[derive(Default)]
struct Vring {
    size: u32,
    addr: Option<VringAddr>,
    /// None until somebody has said where the ring goes on: at its beginning.
    base: Option<u32>,
    /// Some: the ring may start. Without a descriptor the ring is to be polled, as all are here anyway.
    kick: Option<Option<OwnedFd>>,
    call: Option<Arc<OwnedFd>>,
    err: Option<OwnedFd>,
    enabled: bool,
    /// It has been put in.
    started: bool,
}

#[derive(Default)]
pub struct Session {
    features: u64,
    protocol: u64,
    memory: Arc<GuestMemory>,
    log: Option<Arc<Mapping>>,
    rings: Vec<Vring>,
    status: u8,
    mtu: u16,
    /// Where we could ask something of the front end; held open as long as it wants.
    backend_requests: Option<OwnedFd>,
}

impl Session {
    /// Carries a request out. An error with `need_reply` is answered, if that was negotiated and the
    /// connection can go on; else it ends.
    pub fn handle(
        &mut self,
        number: u32,
        need_reply: bool,
        request: Request,
        rings: &mut dyn Rings,
    ) -> Result<(Option<Reply>, Option<Refused>), Refused> {
        let wants_ack = need_reply && self.protocol & protocol::REPLY_ACK != 0;
        match self.carry_out(number, request, rings) {
            Ok(Some(reply)) => Ok((Some(reply), None)),
            Ok(None) => Ok((wants_ack.then(|| Reply::ack(number, true)), None)),
            Err(e @ Refused::Stuck(_)) => Err(e),
            Err(e) if wants_ack => Ok((Some(Reply::ack(number, false)), Some(e))),
            Err(e) => Err(e),
        }
    }

    /// Takes all rings out: the connection is over.
    pub fn close(&mut self, rings: &mut dyn Rings) {
        for n in 0..self.rings.len() {
            if std::mem::take(&mut self.rings[n].started) {
                let _ = rings.stop(n);
            }
        }
        *self = Session::default();
    }

    pub fn features(&self) -> u64 {
        self.features
    }

    /// Sizes of the rings that have one, by number.
    pub fn ring_sizes(&self) -> impl Iterator<Item = u32> + Clone + '_ {
        self.rings.iter().map(|r| r.size)
    }

    /// A file of the guest's memory was shortened and its missing bytes were touched.
    pub fn is_dead(&self) -> bool {
        self.memory.is_dead() || self.log.as_ref().is_some_and(|l| l.is_dead())
    }

    /// Tells the front end about a ring that has failed.
    pub fn signal_error(&self, ring: usize) {
        if let Some(fd) = self.rings.get(ring).and_then(|r| r.err.as_ref()) {
            let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
        }
    }

    fn carry_out(&mut self, number: u32, request: Request, rings: &mut dyn Rings) -> Result<Option<Reply>, Refused> {
        match request {
            Request::Features => return Ok(Some(Reply::u64(number, FEATURES))),
            Request::ProtocolFeatures => return Ok(Some(Reply::u64(number, PROTOCOL_FEATURES))),
            Request::QueueNum => return Ok(Some(Reply::u64(number, PAIRS_MAX as u64))),
            Request::MaxMemSlots => return Ok(Some(Reply::u64(number, REGIONS_MAX as u64))),
            Request::Status => return Ok(Some(Reply::u64(number, self.status.into()))),
            Request::Config { offset, size, flags } => {
                let space = self.config_space(rings);
                let range = space.get(offset as usize..(offset as usize).saturating_add(size as usize));
                return Ok(Some(Reply::config(number, offset, flags, range.unwrap_or(&[]))));
            }
            Request::InflightFd(spec) => return self.inflight_area(number, spec).map(Some),
            Request::VringBase { ring } => {
                let n = self.ring(ring)?;
                self.take_out(n, rings)?;
                self.rings[n].kick = None;
                return Ok(Some(Reply::vring_state(number, ring, self.base(n))));
            }
            Request::SetLogBase(area, fd) => {
                self.set_log(area, &fd, rings)?;
                return Ok((self.protocol & protocol::LOG_SHMFD != 0).then(|| Reply::empty(number)));
            }
            // Nobody here is to be woken when a page is logged; the descriptor is closed.
            Request::SetLogFd(_) | Request::SetOwner => {}
            Request::SetFeatures(bits) => {
                if bits & !FEATURES != 0 {
                    return Err(Refused::Features);
                }
                if std::mem::replace(&mut self.features, bits) != bits {
                    self.restart_all(rings)?;
                }
            }
            Request::SetProtocolFeatures(bits) => {
                if bits & !PROTOCOL_FEATURES != 0 {
                    return Err(Refused::Features);
                }
                self.protocol = bits;
            }
            Request::ResetOwner => self.close(rings),
            Request::ResetDevice => self.reset(rings)?,
            Request::SetStatus(status) => self.status = status as u8,
            Request::SetMemTable(regions) => {
                let mut memory = GuestMemory::default();
                for (spec, fd) in regions {
                    memory = memory.with(spec, fd)?;
                }
                self.set_memory(memory, rings)?;
            }
            Request::AddMemReg(spec, fd) => self.set_memory(self.memory.with(spec, fd)?, rings)?,
            Request::RemMemReg(spec) => self.set_memory(self.memory.without(spec)?, rings)?,
            Request::SendRarp(mac) => rings.announce(mac),
            Request::NetSetMtu(mtu) => {
                self.mtu = u16::try_from(mtu).ok().filter(|m| *m >= 68).ok_or(Refused::Mtu)?;
                rings.set_guest_mtu(self.mtu);
            }
            Request::SetBackendReqFd(fd) => self.backend_requests = Some(fd),
            // What drivers write there has no effect on a switch port.
            Request::SetConfig { offset, data, .. } => {
                (offset as usize).checked_add(data.len()).filter(|end| *end <= CONFIG_SPACE).ok_or(Refused::Config)?;
            }
            // Buffers are returned in the order in which they were taken, each burst before the next one is looked
            // at, so that a ring goes on at its used index: nothing in the area is ever in flight.
            Request::SetInflightFd(spec, fd) => self.check_inflight(spec, &fd)?,
            request => self.change_ring(request, rings)?,
        }
        Ok(None)
    }

    fn change_ring(&mut self, request: Request, rings: &mut dyn Rings) -> Result<(), Refused> {
        match request {
            Request::SetVringNum { ring, size } => {
                let n = self.ring(ring)?;
                if !(1..=RING_SIZE_MAX).contains(&size) {
                    return Err(Refused::RingSize);
                }
                self.change(n, rings, |r| r.size = size)
            }
            Request::SetVringAddr { ring, addr } => {
                let n = self.ring(ring)?;
                self.change(n, rings, |r| r.addr = Some(addr))
            }
            Request::SetVringBase { ring, base } => {
                let n = self.ring(ring)?;
                if self.features & feature::RING_PACKED == 0 && base > 0xffff {
                    return Err(Refused::RingBase);
                }
                self.change(n, rings, |r| r.base = Some(base))
            }
            Request::SetVringKick { ring, fd } => {
                let n = self.ring(ring)?;
                // The kick of a running ring is never looked at.
                self.rings[n].kick = Some(fd);
                if self.rings[n].started { Ok(()) } else { self.put_in(n, rings) }
            }
            Request::SetVringCall { ring, fd } => {
                let n = self.ring(ring)?;
                self.change(n, rings, |r| r.call = fd.map(Arc::new))
            }
            Request::SetVringErr { ring, fd } => {
                let n = self.ring(ring)?;
                self.rings[n].err = fd;
                Ok(())
            }
            Request::SetVringEnable { ring, enabled } => {
                let n = self.ring(ring)?;
                self.rings[n].enabled = enabled;
                if self.rings[n].started { rings.enable(n, self.is_enabled(n)) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    /// The ring of a number in a message.
    fn ring(&mut self, ring: u32) -> Result<usize, Refused> {
        let n = usize::try_from(ring).ok().filter(|n| *n < RINGS_MAX).ok_or(Refused::RingNumber)?;
        if self.rings.len() <= n {
            self.rings.resize_with(n + 1, Vring::default);
        }
        Ok(n)
    }

    /// Without protocol features, rings begin enabled, and nobody says so.
    fn is_enabled(&self, n: usize) -> bool {
        self.rings[n].enabled || self.features & feature::PROTOCOL_FEATURES == 0
    }

    /// Both wrap counters of a packed ring begin at 1 (virtio 1.2, 2.8.1).
    fn base(&self, n: usize) -> u32 {
        let beginning = if self.features & feature::RING_PACKED != 0 { 0x8000_8000 } else { 0 };
        self.rings[n].base.unwrap_or(beginning)
    }

    /// Changes what a ring is made of, whether it runs or not.
    fn change(&mut self, n: usize, rings: &mut dyn Rings, f: impl FnOnce(&mut Vring)) -> Result<(), Refused> {
        self.take_out(n, rings)?;
        f(&mut self.rings[n]);
        self.put_in(n, rings)
    }

    fn take_out(&mut self, n: usize, rings: &mut dyn Rings) -> Result<(), Refused> {
        if std::mem::take(&mut self.rings[n].started)
            && let Some(base) = rings.stop(n)?
        {
            self.rings[n].base = Some(base);
        }
        Ok(())
    }

    /// Starts a ring if all is there that it needs. Memory may come later than addresses.
    fn put_in(&mut self, n: usize, rings: &mut dyn Rings) -> Result<(), Refused> {
        let r = &self.rings[n];
        let (true, Some(addr)) = (r.kick.is_some() && r.size > 0, r.addr) else { return Ok(()) };
        let packed = self.features & feature::RING_PACKED != 0;
        let [desc_len, avail_len, used_len] = part_lengths(packed, r.size);
        let at = |user, len| self.memory.user_to_host(user, len);
        let (Some(desc), Some(avail), Some(used)) =
            (at(addr.desc, desc_len), at(addr.avail, avail_len), at(addr.used, used_len))
        else {
            return Ok(());
        };
        let logs = self.features & feature::LOG_ALL != 0;
        let used_log = if packed { self.memory.user_to_gpa(addr.desc) } else { Some(addr.log) };
        let plan = RingPlan {
            size: r.size,
            desc,
            avail,
            used,
            used_log: used_log.filter(|_| logs && addr.flags & 1 != 0),
            base: self.base(n),
            features: self.features,
            memory: self.memory.clone(),
            log: self.log.clone().filter(|_| logs),
            call: r.call.clone(),
            enabled: self.is_enabled(n),
        };
        rings.start(n, plan)?;
        self.rings[n].started = true;
        Ok(())
    }

    fn restart_all(&mut self, rings: &mut dyn Rings) -> Result<(), Refused> {
        for n in 0..self.rings.len() {
            self.take_out(n, rings)?;
        }
        for n in 0..self.rings.len() {
            self.put_in(n, rings)?;
        }
        Ok(())
    }

    fn set_memory(&mut self, memory: GuestMemory, rings: &mut dyn Rings) -> Result<(), Refused> {
        self.memory = Arc::new(memory);
        self.restart_all(rings)
    }

    /// All rings rest, and are as if they had not been set up; what was negotiated stays.
    fn reset(&mut self, rings: &mut dyn Rings) -> Result<(), Refused> {
        for n in 0..self.rings.len() {
            self.take_out(n, rings)?;
        }
        self.rings.clear();
        self.status = 0;
        Ok(())
    }

    fn set_log(&mut self, area: Area, fd: &OwnedFd, rings: &mut dyn Rings) -> Result<(), Refused> {
        if area.size > LOG_MAX {
            return Err(Refused::Log(MapError::Length));
        }
        self.log = Some(Arc::new(Mapping::new(fd, area.offset, area.size).map_err(Refused::Log)?));
        self.restart_all(rings)
    }

    /// `virtio_net_config`: address, link, queue pairs, MTU, speed and duplex, which are not known.
    fn config_space(&self, rings: &dyn Rings) -> [u8; CONFIG_SPACE] {
        let (mac, pairs) = rings.identity();
        let mut space = [0; CONFIG_SPACE];
        space[..6].copy_from_slice(&mac);
        space[6..8].copy_from_slice(&1u16.to_le_bytes());
        space[8..10].copy_from_slice(&pairs.to_le_bytes());
        let mtu = if self.mtu == 0 { 1500 } else { self.mtu };
        space[10..12].copy_from_slice(&mtu.to_le_bytes());
        space[12..17].copy_from_slice(&[0xff; 5]);
        space
    }

    /// An area in which nothing is in flight.
    fn inflight_area(&self, number: u32, spec: InflightSpec) -> Result<Reply, Refused> {
        let packed = self.features & feature::RING_PACKED != 0;
        let (queues, per_queue) = inflight_lengths(packed, spec).ok_or(Refused::Inflight)?;
        let size = queues * per_queue;
        let fd = inflight_file(packed, spec, size, per_queue).map_err(|e| Refused::Log(e.into()))?;
        Ok(Reply::inflight(number, InflightSpec { area: Area { size, offset: 0 }, ..spec }, Some(fd)))
    }

    fn check_inflight(&self, spec: InflightSpec, fd: &OwnedFd) -> Result<(), Refused> {
        let packed = self.features & feature::RING_PACKED != 0;
        let (queues, per_queue) = inflight_lengths(packed, spec).ok_or(Refused::Inflight)?;
        let end = spec.area.offset.checked_add(spec.area.size);
        let file = rustix::fs::fstat(fd).ok().and_then(|s| u64::try_from(s.st_size).ok()).unwrap_or(0);
        let fits = spec.area.size >= queues * per_queue && end.is_some_and(|end| end <= file);
        if fits { Ok(()) } else { Err(Refused::Inflight) }
    }
}

/// Bytes of a ring's parts: descriptors, driver area, device area (virtio 1.2, 2.7 and 2.8).
fn part_lengths(packed: bool, size: u32) -> [u64; 3] {
    let n = u64::from(size);
    if packed { [16 * n, 4, 4] } else { [16 * n, 6 + 2 * n, 6 + 8 * n] }
}

/// Queues, and bytes of each.
fn inflight_lengths(packed: bool, spec: InflightSpec) -> Option<(u64, u64)> {
    let legal = usize::from(spec.queues) <= RINGS_MAX && u32::from(spec.size) <= RING_SIZE_MAX;
    let (head, entry) = if packed { (64, 32) } else { (64, 16) };
    let (queues, per_queue) = (u64::from(spec.queues), (head + entry * u64::from(spec.size)).next_multiple_of(64));
    (legal && spec.queues > 0 && spec.size > 0 && queues * per_queue <= INFLIGHT_MAX).then_some((queues, per_queue))
}

fn inflight_file(packed: bool, spec: InflightSpec, size: u64, per_queue: u64) -> std::io::Result<OwnedFd> {
    use rustix::fs::{MemfdFlags, SealFlags};
    let fd = rustix::fs::memfd_create("vhost-inflight", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, size)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    // Features, version 1, places, and in a packed one the list of free entries, which begins at 0.
    let mut queue = vec![0u8; per_queue as usize];
    queue[8..10].copy_from_slice(&1u16.to_ne_bytes());
    queue[10..12].copy_from_slice(&spec.size.to_ne_bytes());
    if packed {
        for (i, entry) in queue[64..].chunks_exact_mut(32).take(spec.size.into()).enumerate() {
            entry[2..4].copy_from_slice(&(i as u16 + 1).to_ne_bytes());
        }
    }
    for n in 0..u64::from(spec.queues) {
        let told = if packed { &queue[..] } else { &queue[..64] };
        rustix::io::pwrite(&fd, told, n * per_queue)?;
    }
    Ok(fd)
}
