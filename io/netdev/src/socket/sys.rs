#![allow(unsafe_code)]
//! The system calls of packet sockets and taps: bursts into and out of packet buffers.

use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use fv_packet::{Batch, Packet};

use super::vnet::VNET_LEN;

/// Packets of one system call at most.
pub const BURST: usize = fv_packet::BATCH_MAX;
/// A frame's first bytes go into a small buffer, the rest into a large one that is only used, and
/// then gets the first bytes copied in front, when there is a rest. So a small frame never holds
/// 64 KiB, and a large one costs one copy of this many bytes.
pub const SMALL: usize = 2048;
/// The longest frame: a 64 KiB network layer packet with link-layer headers.
pub const LARGE: usize = 65_536 + 256;

const SOL_PACKET: i32 = 263;

/// `setsockopt` with an `int`.
fn set_int(fd: BorrowedFd<'_>, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the value pointer and its length describe a live i32.
    let r =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const value).cast(), size_of::<i32>() as u32) };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A packet socket. It hears nothing until [`PacketSocket::bind`]: made with protocol 0, it cannot
/// catch frames of other devices between its making and its binding.
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    pub fn new(receive_buffer: i32, send_buffer: i32) -> io::Result<PacketSocket> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers.
        let raw = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just gave us this descriptor.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        let set = |level, option, value| set_int(fd.as_fd(), level, option, value);
        set(SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        set(SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
        // What the switch sends must not come back: Linux 4.20 is needed.
        set(SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        for (force, plain, bytes) in [
            (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, receive_buffer),
            (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, send_buffer),
        ] {
            set(libc::SOL_SOCKET, force, bytes).or_else(|_| set(libc::SOL_SOCKET, plain, bytes))?;
        }
        Ok(PacketSocket(fd))
    }

    /// Receives from and sends to device `ifindex` from now on. May be repeated: the device may have
    /// been removed and made again meanwhile.
    pub fn bind(&self, ifindex: u32) -> io::Result<()> {
        // SAFETY: all-zero bytes are a valid sockaddr_ll.
        let mut at: libc::sockaddr_ll = unsafe { zeroed() };
        at.sll_family = libc::AF_PACKET as u16;
        at.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        at.sll_ifindex = i32::try_from(ifindex).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
        // SAFETY: the address pointer and its length describe `at`.
        let r =
            unsafe { libc::bind(self.0.as_raw_fd(), (&raw const at).cast(), size_of::<libc::sockaddr_ll>() as u32) };
        if r != 0 {
            return Err(io::Error::last_os_error());
        }
        let all = libc::packet_mreq {
            mr_ifindex: at.sll_ifindex,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        // SAFETY: the value pointer and its length describe `all`.
        let r = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                SOL_PACKET,
                libc::PACKET_ADD_MEMBERSHIP,
                (&raw const all).cast(),
                size_of::<libc::packet_mreq>() as u32,
            )
        };
        if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Throws away what waits, at most `max` frames.
    pub fn discard(&self, max: usize) {
        for _ in 0..max {
            // SAFETY: nothing is written through a null pointer of length 0.
            let n = unsafe {
                libc::recv(self.0.as_raw_fd(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT | libc::MSG_TRUNC)
            };
            if n < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock {
                return;
            }
        }
    }

    /// (received, dropped because the queue was full) since the last call.
    pub fn take_statistics(&self) -> io::Result<(u32, u32)> {
        // SAFETY: all-zero bytes are a valid tpacket_stats.
        let mut stats: libc::tpacket_stats = unsafe { zeroed() };
        let mut len = size_of::<libc::tpacket_stats>() as u32;
        // SAFETY: the value pointer and its length describe `stats`.
        let r = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut len,
            )
        };
        if r == 0 { Ok((stats.tp_packets, stats.tp_drops)) } else { Err(io::Error::last_os_error()) }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Room for one control message with `tpacket_auxdata`, aligned as control messages are.
type Control = [u64; 5];
const _: () = assert!(size_of::<Control>() >= 16 + size_of::<libc::tpacket_auxdata>());

/// One received frame.
pub struct Frame {
    pub packet: Packet,
    pub vnet: [u8; VNET_LEN],
    /// (TPID, TCI) that the kernel took out of the frame.
    pub vlan: Option<(u16, u16)>,
    /// The frame was longer than any buffer and is cut.
    pub cut: bool,
}

/// Buffers that wait for frames, and the vectors that describe them to the kernel.
pub struct RxRing {
    msgs: Box<[libc::mmsghdr; BURST]>,
    iovs: Box<[[libc::iovec; 3]; BURST]>,
    vnets: Box<[[u8; VNET_LEN]; BURST]>,
    controls: Box<[Control; BURST]>,
    small: [Option<Packet>; BURST],
    large: [Option<Packet>; BURST],
    /// Slots below have had buffers and vectors that point to them.
    ready: usize,
    /// Slots below may have been filled since.
    used: usize,
}

// SAFETY: the raw pointers in `msgs` and `iovs` point only into this value's own heap blocks.
unsafe impl Send for RxRing {}

impl RxRing {
    pub fn new() -> RxRing {
        let no_iov = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        RxRing {
            // SAFETY: all-zero bytes are a valid mmsghdr.
            msgs: Box::new([unsafe { zeroed() }; BURST]),
            iovs: Box::new([[no_iov; 3]; BURST]),
            vnets: Box::new([[0; VNET_LEN]; BURST]),
            controls: Box::new([[0; 5]; BURST]),
            small: [const { None }; BURST],
            large: [const { None }; BURST],
            ready: 0,
            used: 0,
        }
    }

    /// Gives slots below `n` buffers and fresh vectors, where the last call has used theirs. The
    /// kernel changes a slot only by filling it, so that looking for frames that are not there costs
    /// the system call alone.
    fn prepare(&mut self, n: usize) {
        for i in (0..self.used.min(n)).chain(self.ready..n) {
            let small = self.small[i].get_or_insert_with(|| Packet::with_capacity(SMALL));
            let large = self.large[i].get_or_insert_with(|| Packet::with_capacity(LARGE));
            let vnet = &mut self.vnets[i];
            let (s, l) = (&mut small.spare_mut()[..SMALL], &mut large.spare_mut()[SMALL..LARGE]);
            self.iovs[i] = [iov(vnet), iov(s), iov(l)];
            let h = &mut self.msgs[i].msg_hdr;
            h.msg_iov = self.iovs[i].as_mut_ptr();
            h.msg_iovlen = 3;
            h.msg_control = self.controls[i].as_mut_ptr().cast();
            h.msg_controllen = size_of::<Control>();
        }
        // A shorter call leaves the slots from `n` on as they are.
        self.ready = self.ready.max(n);
        self.used = if self.used > n { self.used } else { 0 };
    }

    /// Receives up to `max` frames without waiting and hands each to `take`. Returns their number.
    pub fn recv(&mut self, fd: BorrowedFd<'_>, max: usize, mut take: impl FnMut(Frame)) -> io::Result<usize> {
        let max = max.min(BURST);
        self.prepare(max);
        // SAFETY: each message's vectors point to a header, buffers and control room of slot i, which
        // live in `self` and are not touched until the call returns.
        let n = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                self.msgs.as_mut_ptr(),
                max as u32,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        if n < 0 {
            return Err(io::Error::last_os_error());
        }
        self.used = self.used.max(n as usize);
        for i in 0..n as usize {
            let len = (self.msgs[i].msg_len as usize).saturating_sub(VNET_LEN);
            let cut = self.msgs[i].msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            let vlan = self.vlan(i);
            if let Some(packet) = take_frame(&mut self.small[i], &mut self.large[i], len) {
                take(Frame { packet, vnet: self.vnets[i], vlan, cut });
            }
        }
        Ok(n as usize)
    }

    /// Reads one frame from a tap.
    pub fn read(&mut self, fd: BorrowedFd<'_>) -> io::Result<Option<Frame>> {
        self.prepare(1);
        // SAFETY: the vectors point to a header and buffers of slot 0, which live in `self`.
        let n = unsafe { libc::readv(fd.as_raw_fd(), self.iovs[0].as_ptr(), 3) };
        if n < 0 {
            return Err(io::Error::last_os_error());
        }
        self.used = self.used.max(1);
        let len = (n as usize).saturating_sub(VNET_LEN);
        Ok(take_frame(&mut self.small[0], &mut self.large[0], len).map(|packet| Frame {
            packet,
            vnet: self.vnets[0],
            vlan: None,
            cut: false,
        }))
    }

    /// The VLAN tag in slot `i`'s control message.
    fn vlan(&self, i: usize) -> Option<(u16, u16)> {
        let h = &self.msgs[i].msg_hdr;
        // SAFETY: the kernel filled msg_control and msg_controllen of this slot; CMSG_FIRSTHDR checks
        // that a whole header is there, and the length test that all of the auxdata is.
        let aux = unsafe {
            let c = libc::CMSG_FIRSTHDR(h);
            if c.is_null()
                || (*c).cmsg_level != SOL_PACKET
                || (*c).cmsg_type != libc::PACKET_AUXDATA
                || ((*c).cmsg_len as usize) < libc::CMSG_LEN(size_of::<libc::tpacket_auxdata>() as u32) as usize
            {
                return None;
            }
            libc::CMSG_DATA(c).cast::<libc::tpacket_auxdata>().read_unaligned()
        };
        if aux.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
            return None;
        }
        let tpid = if aux.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0 {
            aux.tp_vlan_tpid
        } else {
            libc::ETH_P_8021Q as u16
        };
        Some((tpid, aux.tp_vlan_tci))
    }
}

fn iov(b: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: b.as_mut_ptr().cast(), iov_len: b.len() }
}

/// Takes the buffer that holds a frame of `len` bytes.
fn take_frame(small: &mut Option<Packet>, large: &mut Option<Packet>, len: usize) -> Option<Packet> {
    if len <= SMALL {
        let mut p = small.take()?;
        p.set_len(len);
        return Some(p);
    }
    let mut p = large.take()?;
    let first = small.as_mut()?;
    p.set_len(len);
    p.data_mut()[..SMALL].copy_from_slice(&first.spare_mut()[..SMALL]);
    Some(p)
}

/// The vectors of one burst of transmission.
pub struct TxRing {
    msgs: Box<[MaybeUninit<libc::mmsghdr>; BURST]>,
    iovs: Box<[[libc::iovec; 2]; BURST]>,
    vnets: Box<[[u8; VNET_LEN]; BURST]>,
}

// SAFETY: the raw pointers are only followed inside `send`, which sets them anew.
unsafe impl Send for TxRing {}

impl TxRing {
    pub fn new() -> TxRing {
        let no_iov = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        TxRing {
            msgs: Box::new([const { MaybeUninit::zeroed() }; BURST]),
            iovs: Box::new([[no_iov; 2]; BURST]),
            vnets: Box::new([[0; VNET_LEN]; BURST]),
        }
    }

    /// Offers the packets of `batch` to the kernel in one call a round. `failed` decides what becomes
    /// of a packet that was refused.
    pub fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        batch: &Batch,
        vnet: impl Fn(&Packet) -> [u8; VNET_LEN],
        mut failed: impl FnMut(io::Error) -> Refused,
    ) -> Refusals {
        let n = batch.len();
        for (i, p) in batch.iter().enumerate() {
            self.vnets[i] = vnet(p);
            let data = p.data();
            self.iovs[i] = [
                iov(&mut self.vnets[i]),
                // The kernel only reads what a send's vector points to.
                libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() },
            ];
            // SAFETY: all-zero bytes are a valid mmsghdr.
            let mut m: libc::mmsghdr = unsafe { zeroed() };
            m.msg_hdr.msg_iov = self.iovs[i].as_mut_ptr();
            m.msg_hdr.msg_iovlen = 2;
            self.msgs[i].write(m);
        }
        let mut out = Refusals::default();
        let mut at = 0;
        while at < n {
            // SAFETY: messages `at..n` were written above; their vectors point to headers in `self`
            // and to packets that `batch` keeps alive.
            let r = unsafe {
                libc::sendmmsg(
                    fd.as_raw_fd(),
                    self.msgs[at].as_mut_ptr(),
                    (n - at) as u32,
                    (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
                )
            };
            if r > 0 {
                at += r as usize;
                continue;
            }
            match failed(io::Error::last_os_error()) {
                Refused::Again => {}
                Refused::This => {
                    out.0 |= 1 << at;
                    at += 1;
                }
                Refused::Rest => {
                    (at..n).for_each(|i| out.0 |= 1 << i);
                    break;
                }
            }
        }
        out
    }

    /// Writes one frame to a tap.
    pub fn write(fd: BorrowedFd<'_>, vnet: &[u8; VNET_LEN], data: &[u8]) -> io::Result<()> {
        let iovs = [
            libc::iovec { iov_base: vnet.as_ptr().cast_mut().cast(), iov_len: VNET_LEN },
            libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() },
        ];
        // SAFETY: the kernel only reads the two slices that the vectors describe.
        let n = unsafe { libc::writev(fd.as_raw_fd(), iovs.as_ptr(), 2) };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// What to do about a refused packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Offer it again.
    Again,
    /// Drop it, go on with the next.
    This,
    /// Drop it and all that follow.
    Rest,
}

/// Which packets of a burst were not sent, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refusals(u32);

const _: () = assert!(BURST <= 32);

impl Refusals {
    pub fn has(self, i: usize) -> bool {
        self.0 >> i & 1 != 0
    }
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }
}

/// `ioctl` with a pointer to a value that the kernel may read and write.
///
/// # Safety
/// `request` must take a pointer to a `T`.
pub unsafe fn ioctl<T>(fd: BorrowedFd<'_>, request: libc::Ioctl, arg: &mut T) -> io::Result<i32> {
    // SAFETY: the caller promises that the request takes this type; `arg` outlives the call.
    let r = unsafe { libc::ioctl(fd.as_raw_fd(), request, std::ptr::from_mut(arg)) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(r) }
}
