//! Non-blocking sockets: connecting, listening, Unix paths that are too long for an address.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{RecvFlags, SendFlags};
use rustix::net::{accept_with, bind, connect, getsockname, listen, recv, send, socket_with};

/// Longest path that fits into a socket address, with its final zero.
const UNIX_PATH_MAX: usize = 107;
const BACKLOG: i32 = 64;
/// Mode of our Unix sockets before the umask: nobody but owner and group.
const UNIX_MODE: Mode = Mode::from_bits_truncate(0o770);
/// Traffic class of management connections (CS6).
pub const DEFAULT_DSCP: u8 = 48;

/// Whether a connect is finished, and a socket that does it.
pub enum Connecting {
    Done(OwnedFd),
    InProgress(OwnedFd),
}

pub fn connect_tcp(to: SocketAddr, dscp: u8) -> io::Result<Connecting> {
    let fd = tcp_socket(&to)?;
    set_dscp(fd.as_fd(), &to, dscp);
    start(fd, |fd| connect(fd, &to))
}

pub fn connect_unix(path: &Path) -> io::Result<Connecting> {
    let fd = unix_socket()?;
    let short = ShortPath::new(path)?;
    start(fd, |fd| connect(fd, &SocketAddrUnix::new(short.path())?))
}

fn start(fd: OwnedFd, f: impl FnOnce(&OwnedFd) -> rustix::io::Result<()>) -> io::Result<Connecting> {
    match f(&fd) {
        Ok(()) => Ok(Connecting::Done(fd)),
        // A Unix listener whose backlog is full says AGAIN and never tells when there is room:
        // an error, retried by whoever reconnects.
        Err(Errno::INPROGRESS | Errno::INTR) => Ok(Connecting::InProgress(fd)),
        Err(e) => Err(e.into()),
    }
}

/// The outcome of a connect in progress: Ok(false) while there is none.
pub fn connect_outcome(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut p = [rustix::event::PollFd::from_borrowed_fd(fd, rustix::event::PollFlags::OUT)];
    let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    match rustix::event::poll(&mut p, Some(&zero)) {
        Ok(0) | Err(Errno::INTR) => return Ok(false),
        Ok(_) => {}
        Err(e) => return Err(e.into()),
    }
    match sockopt::socket_error(fd)? {
        Ok(()) => Ok(true),
        Err(e) => Err(e.into()),
    }
}

pub fn listen_tcp(at: SocketAddr) -> io::Result<OwnedFd> {
    let fd = tcp_socket(&at)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    set_dscp(fd.as_fd(), &at, DEFAULT_DSCP);
    bind(&fd, &at)?;
    listen(&fd, BACKLOG)?;
    Ok(fd)
}

/// Listens at `path`, replacing a socket that is there; any other file is left alone and is an
/// error.
pub fn listen_unix(path: &Path) -> io::Result<OwnedFd> {
    if fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let fd = unix_socket()?;
    let short = ShortPath::new(path)?;
    // Before it has a name, so that there is no moment with another mode.
    fchmod(&fd, UNIX_MODE)?;
    bind(&fd, &SocketAddrUnix::new(short.path())?)?;
    listen(&fd, BACKLOG)?;
    Ok(fd)
}

/// The next connection, if there is one now.
pub fn accept(fd: BorrowedFd<'_>) -> io::Result<Option<(OwnedFd, Option<SocketAddr>)>> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    match accept_with(fd, flags) {
        Ok(conn) => {
            let peer = rustix::net::getpeername(&conn).ok().flatten().and_then(|a| ip_of(&a));
            if peer.is_some() {
                let _ = sockopt::set_tcp_nodelay(&conn, true);
            }
            Ok(Some((conn, peer)))
        }
        // A peer that went away before it was accepted is no failure of the listener.
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED | Errno::PROTO) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

pub fn read(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    Ok(recv(fd, buf, RecvFlags::empty())?.0)
}

pub fn write(fd: BorrowedFd<'_>, buf: &[u8]) -> io::Result<usize> {
    Ok(send(fd, buf, SendFlags::NOSIGNAL)?)
}

pub fn bound_address(fd: BorrowedFd<'_>) -> Option<SocketAddr> {
    ip_of(&getsockname(fd).ok()?)
}

fn ip_of(a: &SocketAddrAny) -> Option<SocketAddr> {
    SocketAddr::try_from(a.clone()).ok()
}

fn tcp_socket(a: &SocketAddr) -> io::Result<OwnedFd> {
    let family = if a.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    Ok(fd)
}

fn unix_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?)
}

/// Marks management traffic; a kernel that refuses loses nothing but the mark.
pub fn set_dscp(fd: BorrowedFd<'_>, to: &SocketAddr, dscp: u8) {
    let tos = dscp << 2;
    let _ = match to {
        SocketAddr::V4(_) => sockopt::set_ip_tos(fd, tos),
        SocketAddr::V6(_) => sockopt::set_ipv6_tclass(fd, u32::from(tos)),
    };
}

/// A name for a path of any length: the directory's descriptor stands in for a long prefix.
struct ShortPath {
    path: PathBuf,
    _dir: Option<File>,
}

impl ShortPath {
    fn new(path: &Path) -> io::Result<ShortPath> {
        if path.as_os_str().len() <= UNIX_PATH_MAX {
            return Ok(ShortPath { path: path.into(), _dir: None });
        }
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let dir = File::open(parent)?;
        let path = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
        Ok(ShortPath { path, _dir: Some(dir) })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}
