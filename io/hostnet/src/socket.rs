//! One rtnetlink socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketFlags, SocketType};

use crate::sys;

const SOL_NETLINK: i32 = 270;
const NETLINK_ADD_MEMBERSHIP: i32 = 1;
const NETLINK_GET_STRICT_CHK: i32 = 12;

/// The kernel fills at most 32 KiB a dump datagram; a notification with many next hops may be
/// larger. What does not fit is reported as [`Received::Truncated`].
pub const RECV_LEN: usize = 64 * 1024;

pub struct Socket {
    fd: OwnedFd,
    seq: u32,
}

/// What one receive brought.
pub enum Received {
    /// This many bytes of whole messages.
    Datagram(usize),
    /// Nothing is waiting.
    Empty,
    /// Notifications were lost (the queue overflowed) or cut: the reader's copy is out of date.
    Lost,
    /// From somebody who is not the kernel, or empty: ignored.
    Foreign,
}

impl Socket {
    /// A non-blocking socket in the calling thread's namespace. Strict checking is switched on so
    /// that dump requests are filtered by the kernel.
    pub fn open() -> io::Result<Socket> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // No protocol is protocol 0, which is NETLINK_ROUTE.
        let fd = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        rustix::net::bind(&fd, &SocketAddrNetlink::new(0, 0))?;
        // Kernels before 4.20 lack it: they answer with everything, which the reader sorts out.
        let _ = sys::set_int(fd.as_fd(), SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1);
        Ok(Socket { fd, seq: 0 })
    }

    pub fn join(&self, group: i32) -> io::Result<()> {
        sys::set_int(self.fd.as_fd(), SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, group)
    }

    /// Room for `bytes` of notifications. The limit of the system applies where the process may not
    /// pass it.
    pub fn receive_buffer(&self, bytes: usize) {
        if rustix::net::sockopt::set_socket_recv_buffer_size_force(&self.fd, bytes).is_err() {
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&self.fd, bytes);
        }
    }

    pub fn next_seq(&mut self) -> u32 {
        self.seq = self.seq.wrapping_add(1).max(1);
        self.seq
    }

    pub fn send(&self, request: &[u8]) -> io::Result<()> {
        loop {
            match rustix::net::sendto(&self.fd, request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0)) {
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
                Ok(_) => return Ok(()),
            }
        }
    }

    /// Receives one datagram into `buf` without waiting.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<Received> {
        use rustix::io::Errno;
        let (_, len, from) = match rustix::net::recvfrom(&self.fd, &mut *buf, RecvFlags::TRUNC) {
            Ok(r) => r,
            Err(Errno::AGAIN) => return Ok(Received::Empty),
            Err(Errno::NOBUFS) => return Ok(Received::Lost),
            Err(Errno::INTR) => return Ok(Received::Foreign),
            Err(e) => return Err(e.into()),
        };
        if !from.is_some_and(is_kernel) {
            return Ok(Received::Foreign);
        }
        Ok(if len > buf.len() { Received::Lost } else { Received::Datagram(len) })
    }

    /// Waits until something can be received.
    pub fn wait(&self, timeout_ms: u32) -> io::Result<bool> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let t = Timespec { tv_sec: (timeout_ms / 1000).into(), tv_nsec: i64::from(timeout_ms % 1000) * 1_000_000 };
        Ok(poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&t))? > 0)
    }
}

/// Any process may send to a netlink socket that it can name; only port 0 is the kernel.
fn is_kernel(from: SocketAddrAny) -> bool {
    SocketAddrNetlink::try_from(from).is_ok_and(|a| a.pid() == 0)
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
