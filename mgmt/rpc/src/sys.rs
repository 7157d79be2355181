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

/// Longest formatted date.
const DATE_MAX: usize = 256;

/// `strftime(3)` of a time since the epoch. Empty if it does not fit.
pub fn strftime(format: &str, secs: i64, local: bool) -> String {
    let Ok(format) = std::ffi::CString::new(format) else { return String::new() };
    let mut buf = [0u8; DATE_MAX];
    // SAFETY: `tm` is filled by the reentrant conversions (all-zero is a valid value if they
    // fail); strftime writes at most `buf.len()` bytes and reads the NUL-terminated format.
    let n = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        if local {
            libc::localtime_r(&secs, &mut tm);
        } else {
            libc::gmtime_r(&secs, &mut tm);
        }
        libc::strftime(buf.as_mut_ptr().cast(), buf.len(), format.as_ptr(), &tm)
    };
    String::from_utf8_lossy(&buf[..n]).into_owned()
}
