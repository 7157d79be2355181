//! System calls that rustix does not have.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Deletes by number: the descriptor may be closed, then the kernel says so and that is fine.
pub fn epoll_delete(ep: &OwnedFd, raw: RawFd) {
    // SAFETY: epoll_ctl(DEL) touches no memory of ours; a number that is closed or not in the set
    // gives EBADF or ENOENT.
    unsafe {
        libc::epoll_ctl(ep.as_raw_fd(), libc::EPOLL_CTL_DEL, raw, std::ptr::null_mut());
    }
}
