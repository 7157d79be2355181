//! A vhost-user front end with a guest of the simplest kind: memory in a file that both sides map or read, split
//! rings, one descriptor a buffer. What a test wants to do wrong it can do by hand: every message and every word
//! of the rings is within reach.

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::fs::MemfdFlags;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::wait_value;

/// Places of each ring.
pub const SIZE: u16 = 64;
/// Bytes of the guest's memory that one ring and its buffers have.
const AREA: u64 = 0x2_0000;
const AVAIL: u64 = 0x1000;
const USED: u64 = 0x2000;
const BUFFERS: u64 = 0x4000;
/// Bytes of each buffer.
const BUFFER: u64 = 1536;
/// Guest-physical address of the memory, and the front end's own.
pub const GPA: u64 = 0x10_0000;
pub const USER: u64 = 0x7f00_0000_0000;
/// Header before each frame: version 1.
const NET_HEADER: usize = 12;
/// Longest wait for a reply.
const PATIENCE: Duration = Duration::from_secs(20);

pub const VERSION_1: u64 = 1 << 32;
pub const PROTOCOL_FEATURES: u64 = 1 << 30;
pub const LOG_ALL: u64 = 1 << 26;
pub const MQ: u64 = 1 << 22;

/// Request numbers.
pub mod req {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const RESET_OWNER: u32 = 4;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_LOG_BASE: u32 = 6;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SEND_RARP: u32 = 19;
    pub const NET_SET_MTU: u32 = 20;
    pub const GET_CONFIG: u32 = 24;
    pub const GET_INFLIGHT_FD: u32 = 31;
    pub const SET_INFLIGHT_FD: u32 = 32;
    pub const RESET_DEVICE: u32 = 34;
    pub const GET_MAX_MEM_SLOTS: u32 = 36;
    pub const ADD_MEM_REG: u32 = 37;
    pub const REM_MEM_REG: u32 = 38;
    pub const SET_STATUS: u32 = 39;
    pub const GET_STATUS: u32 = 40;
}

/// Waits for the switch to connect to a front end that listens.
pub struct Waiting(UnixListener);

impl Waiting {
    pub fn at(path: &Path) -> Waiting {
        let _ = std::fs::remove_file(path);
        let l = UnixListener::bind(path).expect("socket");
        l.set_nonblocking(true).expect("a socket that does not block");
        Waiting(l)
    }

    /// The next connection, if it comes in time.
    #[track_caller]
    pub fn accept(&self, pairs: usize) -> FrontEnd {
        let got = wait_value(20, || self.0.accept().ok());
        let (socket, _) = got.expect("no connection from the switch");
        socket.set_nonblocking(false).expect("a socket that blocks");
        FrontEnd::new(socket, pairs)
    }
}

struct Ring {
    avail: u16,
    used: u16,
    /// Buffers that the switch does not have.
    free: Vec<u16>,
}

pub struct FrontEnd {
    pub socket: UnixStream,
    pub memory: OwnedFd,
    rings: Vec<Ring>,
    pub features: u64,
}

impl FrontEnd {
    /// Connects to a switch that listens.
    #[track_caller]
    pub fn connect(path: &Path, pairs: usize) -> FrontEnd {
        let socket = wait_value(20, || UnixStream::connect(path).ok()).expect("no socket of the switch");
        FrontEnd::new(socket, pairs)
    }

    pub fn new(socket: UnixStream, pairs: usize) -> FrontEnd {
        socket.set_read_timeout(Some(PATIENCE)).expect("time limit");
        let memory = rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).expect("memory");
        rustix::fs::ftruncate(&memory, 2 * pairs as u64 * AREA).expect("size of the memory");
        let ring = |_| Ring { avail: 0, used: 0, free: (0..SIZE).collect() };
        let features = VERSION_1 | PROTOCOL_FEATURES | MQ;
        FrontEnd { socket, memory, rings: (0..2 * pairs).map(ring).collect(), features }
    }

    // Messages.

    pub fn send_flags(&self, request: u32, flags: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let head = [request, flags, payload.len() as u32].map(u32::to_ne_bytes).concat();
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        let bytes = [&head, payload].concat();
        sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    #[track_caller]
    pub fn send(&self, request: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) {
        self.send_flags(request, 1, payload, fds).expect("message");
    }

    #[track_caller]
    pub fn words(&self, request: u32, words: &[u32]) {
        self.send(request, &bytes(words), &[]);
    }

    /// The next reply's payload, and whether a descriptor came with it.
    pub fn reply(&mut self) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
        let mut head = [0; 12];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = rustix::net::RecvAncillaryBuffer::new(&mut space);
        let flags = rustix::net::RecvFlags::CMSG_CLOEXEC | rustix::net::RecvFlags::WAITALL;
        let got = rustix::net::recvmsg(&self.socket, &mut [IoSliceMut::new(&mut head)], &mut control, flags)?;
        if got.bytes < head.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut fd = None;
        for m in control.drain() {
            if let rustix::net::RecvAncillaryMessage::ScmRights(mut fds) = m {
                fd = fds.next();
            }
        }
        let mut payload = vec![0; u32::from_ne_bytes([head[8], head[9], head[10], head[11]]) as usize];
        self.socket.read_exact(&mut payload)?;
        Ok((payload, fd))
    }

    #[track_caller]
    pub fn ask(&mut self, request: u32, payload: &[u8]) -> Vec<u8> {
        self.send(request, payload, &[]);
        self.reply().expect("reply").0
    }

    #[track_caller]
    pub fn ask_u64(&mut self, request: u32) -> u64 {
        u64::from_ne_bytes(self.ask(request, &[]).try_into().expect("eight bytes"))
    }

    /// Sends with a wish for an answer: whether the request was carried out.
    #[track_caller]
    pub fn try_request(&mut self, request: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        self.send_flags(request, 9, payload, fds).expect("message");
        self.reply().expect("reply").0 == [0; 8]
    }

    /// The switch has closed the connection.
    pub fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        loop {
            match self.socket.read(&mut byte) {
                Ok(0) => return true,
                // What was on its way.
                Ok(_) => {}
                Err(e) => return e.kind() == io::ErrorKind::ConnectionReset,
            }
        }
    }

    /// Everything that a guest's first messages set up, with each pair's rings enabled if `enabled` says so.
    #[track_caller]
    pub fn set_up(&mut self, enabled: impl Fn(usize) -> bool) {
        self.negotiate();
        self.share_memory();
        for ring in 0..self.rings.len() {
            self.set_up_ring(ring);
            self.enable(ring, enabled(ring / 2));
        }
    }

    #[track_caller]
    pub fn negotiate(&mut self) {
        let offered = self.ask_u64(req::GET_FEATURES);
        assert_eq!(offered & self.features, self.features, "{offered:x}");
        let protocol = self.ask_u64(req::GET_PROTOCOL_FEATURES);
        self.send(req::SET_PROTOCOL_FEATURES, &protocol.to_ne_bytes(), &[]);
        self.send(req::SET_OWNER, &[], &[]);
        self.send(req::SET_FEATURES, &self.features.to_ne_bytes(), &[]);
    }

    #[track_caller]
    pub fn share_memory(&self) {
        self.send(req::SET_MEM_TABLE, &self.memory_table(), &[self.memory.as_fd()]);
    }

    pub fn memory_len(&self) -> u64 {
        self.rings.len() as u64 * AREA
    }

    pub fn memory_table(&self) -> Vec<u8> {
        [&bytes(&[1, 0])[..], &self.region()].concat()
    }

    pub fn region(&self) -> Vec<u8> {
        [GPA, self.memory_len(), USER, 0].map(u64::to_ne_bytes).concat()
    }

    /// Size, place, base and kick of a ring.
    #[track_caller]
    pub fn set_up_ring(&self, ring: usize) {
        self.words(req::SET_VRING_NUM, &[ring as u32, SIZE.into()]);
        self.words(req::SET_VRING_BASE, &[ring as u32, self.rings[ring].avail.into()]);
        self.place_ring(ring, 0);
        self.kick_ring(ring);
    }

    /// `flags` 1 asks for the used ring's writes to be logged.
    #[track_caller]
    pub fn place_ring(&self, ring: usize, flags: u32) {
        let at = ring as u64 * AREA;
        let addresses =
            [USER + at, USER + at + USED, USER + at + AVAIL, GPA + at + USED].map(u64::to_ne_bytes).concat();
        self.send(req::SET_VRING_ADDR, &[&bytes(&[ring as u32, flags])[..], &addresses].concat(), &[]);
    }

    #[track_caller]
    pub fn kick_ring(&self, ring: usize) {
        let kick = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("eventfd");
        self.send(req::SET_VRING_KICK, &(ring as u64).to_ne_bytes(), &[kick.as_fd()]);
    }

    #[track_caller]
    pub fn enable(&self, ring: usize, enabled: bool) {
        self.words(req::SET_VRING_ENABLE, &[ring as u32, enabled.into()]);
    }

    /// Stops a ring: where it was.
    #[track_caller]
    pub fn stop(&mut self, ring: usize) -> u32 {
        let state = self.ask(req::GET_VRING_BASE, &bytes(&[ring as u32, 0]));
        u32::from_ne_bytes(state[4..8].try_into().expect("a state"))
    }

    // Rings.

    pub fn put(&self, at: u64, bytes: &[u8]) {
        assert_eq!(rustix::io::pwrite(&self.memory, bytes, at).expect("guest memory"), bytes.len());
    }

    fn word16(&self, at: u64) -> u16 {
        let mut b = [0; 2];
        rustix::io::pread(&self.memory, &mut b, at).expect("guest memory");
        u16::from_le_bytes(b)
    }

    /// Where ring `n` begins in the memory.
    pub fn ring_at(n: usize) -> u64 {
        n as u64 * AREA
    }

    /// Writes descriptor `d` of a ring.
    pub fn describe(&self, ring: usize, d: u16, address: u64, len: u32, flags: u16, next: u16) {
        let mut b = [address.to_le_bytes(), [0; 8]].concat();
        b[8..12].copy_from_slice(&len.to_le_bytes());
        b[12..14].copy_from_slice(&flags.to_le_bytes());
        b[14..16].copy_from_slice(&next.to_le_bytes());
        self.put(Self::ring_at(ring) + 16 * u64::from(d), &b);
    }

    /// Makes descriptor `d` available.
    pub fn offer(&mut self, ring: usize, d: u16) {
        let at = Self::ring_at(ring) + AVAIL;
        let avail = self.rings[ring].avail;
        self.put(at + 4 + 2 * u64::from(avail % SIZE), &d.to_le_bytes());
        self.rings[ring].avail = avail.wrapping_add(1);
        self.put(at + 2, &self.rings[ring].avail.to_le_bytes());
    }

    /// Sets the available index, whatever is behind it.
    pub fn jump(&mut self, ring: usize, avail: u16) {
        self.put(Self::ring_at(ring) + AVAIL + 2, &avail.to_le_bytes());
    }

    fn buffer(ring: usize, d: u16) -> u64 {
        Self::ring_at(ring) + BUFFERS + BUFFER * u64::from(d)
    }

    /// Descriptors that the switch has returned, with the bytes written.
    fn reap(&mut self, ring: usize) -> Option<(u16, u32)> {
        let at = Self::ring_at(ring) + USED;
        let used = self.rings[ring].used;
        if self.word16(at + 2) == used {
            return None;
        }
        let mut b = [0; 8];
        rustix::io::pread(&self.memory, &mut b, at + 4 + 8 * u64::from(used % SIZE)).expect("guest memory");
        self.rings[ring].used = used.wrapping_add(1);
        let id = u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as u16;
        Some((id, u32::from_le_bytes([b[4], b[5], b[6], b[7]])))
    }

    /// Sends a frame on queue `q`; false if the ring has no room.
    pub fn transmit(&mut self, q: usize, frame: &[u8]) -> bool {
        let ring = 2 * q + 1;
        while let Some((d, _)) = self.reap(ring) {
            self.rings[ring].free.push(d);
        }
        let Some(d) = self.rings[ring].free.pop() else { return false };
        let at = Self::buffer(ring, d);
        self.put(at, &[&[0; NET_HEADER][..], frame].concat());
        self.describe(ring, d, GPA + at, (NET_HEADER + frame.len()) as u32, 0, 0);
        self.offer(ring, d);
        true
    }

    /// Offers all buffers of queue `q` that the switch does not have.
    pub fn fill(&mut self, q: usize) {
        let ring = 2 * q;
        while let Some(d) = self.rings[ring].free.pop() {
            let at = Self::buffer(ring, d);
            self.describe(ring, d, GPA + at, BUFFER as u32, 2, 0);
            self.offer(ring, d);
        }
    }

    /// A frame that has come on queue `q`; its buffer is offered again.
    pub fn receive(&mut self, q: usize) -> Option<Vec<u8>> {
        let ring = 2 * q;
        let (d, len) = self.reap(ring)?;
        let at = Self::buffer(ring, d);
        let mut frame = vec![0; (len as usize).saturating_sub(NET_HEADER)];
        rustix::io::pread(&self.memory, &mut frame, at + NET_HEADER as u64).expect("guest memory");
        self.rings[ring].free.push(d);
        self.fill(q);
        Some(frame)
    }

    /// Waits for a frame on queue `q`.
    #[track_caller]
    pub fn wait_frame(&mut self, q: usize) -> Vec<u8> {
        wait_value(20, || self.receive(q)).expect("no frame has come")
    }

    /// Forgets where the rings were, as a guest does that boots.
    pub fn restart(&mut self) {
        for (n, r) in self.rings.iter_mut().enumerate() {
            *r = Ring { avail: 0, used: 0, free: (0..SIZE).collect() };
            let at = Self::ring_at(n);
            for area in [at + AVAIL, at + USED] {
                rustix::io::pwrite(&self.memory, &[0; 4], area).expect("guest memory");
            }
        }
    }
}

pub fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_ne_bytes()).collect()
}
