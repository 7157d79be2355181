//! Network namespaces. A socket belongs for life to the namespace that its maker was in, so reaching
//! into another one takes a short visit, not a thread that lives there.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The calling thread's own namespace.
pub fn current() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open("/proc/thread-self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// The namespace that `ip netns` knows by this name.
pub fn named(name: &str) -> io::Result<OwnedFd> {
    if name.is_empty() || name.contains('/') {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    Ok(rustix::fs::open(format!("/run/netns/{name}"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Runs `f` with the calling thread inside `ns`. Only this thread moves; `f` should do no more than
/// make sockets.
///
/// Aborts the process if the way back is barred: going on in a foreign namespace would apply every
/// later change to the wrong machine.
pub fn inside<T>(ns: BorrowedFd<'_>, f: impl FnOnce() -> T) -> io::Result<T> {
    struct Home(OwnedFd);
    impl Drop for Home {
        fn drop(&mut self) {
            if move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).is_err() {
                std::process::abort();
            }
        }
    }
    let home = current()?;
    move_into_link_name_space(ns, Some(LinkNameSpaceType::Network))?;
    let _home = Home(home);
    Ok(f())
}
