#![allow(unsafe_code)]
//! The system calls that rustix lacks: socket options by number, ethtool and interface requests.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `setsockopt` with an `int` value.
pub fn set_int(fd: BorrowedFd<'_>, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the value pointer and its length describe a live i32.
    let r = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const value).cast(), size_of::<i32>() as libc::socklen_t)
    };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Attaches a classic BPF program that the kernel runs on each datagram before it is queued.
pub fn attach_filter(fd: BorrowedFd<'_>, program: &[libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let prog = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: the kernel copies `len` instructions that `program` holds and does not write to them.
    let r = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const prog).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `SIOCETHTOOL` on device `name`; `data` holds a request that starts with its command number and
/// is at least as long as the kernel's structure for that command.
pub fn ethtool(fd: BorrowedFd<'_>, name: &str, data: &mut [u32]) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut req: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= libc::IFNAMSIZ || name.is_empty() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in req.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    req.ifr_ifru.ifru_data = data.as_mut_ptr().cast();
    // SAFETY: ifr_data points to `data`, which callers size for the command; both outlive the call.
    let r = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &raw mut req) };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
