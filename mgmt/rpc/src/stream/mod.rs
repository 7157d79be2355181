//! Byte streams that never block, active and passive, over TCP, Unix sockets and TLS.
//!
//! `read` and `write` follow the socket convention: `WouldBlock` when there is nothing to do now,
//! 0 from `read` at the end. Until `connect` says true they answer `WouldBlock` too.

mod acceptor;
mod addr;
mod ciphers;
mod der;
mod listener;
mod names;
mod socket;
mod tls;
mod tls_stream;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustls::pki_types::ServerName;

use crate::poll::{Interest, Poller, SourceId};

pub use acceptor::Acceptor;
pub use addr::{DEFAULT_PORT, is_passive};
pub use listener::Listener;
pub use socket::DEFAULT_DSCP;
pub use tls::Tls;

use socket::Connecting;
use tls_stream::TlsStream;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}: unknown stream type")]
    UnknownType(String),
    #[error("{0}")]
    BadAddress(String),
    /// The name server has been asked; the next attempt may know.
    #[error("{0}: host name is being resolved")]
    Resolving(String),
    #[error("{0}")]
    Tls(String),
    #[error("{}", errno_text(.0))]
    Io(#[from] io::Error),
}

impl Error {
    /// The same as the reference would put in parentheses after "connection attempt failed".
    pub fn reason(&self) -> String {
        match self {
            Error::UnknownType(_) => "Address family not supported by protocol".into(),
            Error::BadAddress(_) => "Invalid argument".into(),
            Error::Resolving(_) => "Resource temporarily unavailable".into(),
            Error::Tls(_) => "Protocol not available".into(),
            Error::Io(e) => errno_text(e),
        }
    }
}

/// The system's words for an error, without the number that std adds.
pub fn errno_text(e: &io::Error) -> String {
    let text = e.to_string();
    match text.find(" (os error ") {
        Some(at) if e.raw_os_error().is_some() => text[..at].to_string(),
        _ => text,
    }
}

/// An active or accepted stream.
pub struct Stream {
    name: String,
    source: SourceId,
    peer: Option<SocketAddr>,
    io: Io,
}

enum Io {
    Plain { fd: OwnedFd, connected: bool },
    Tls(Box<TlsStream>),
}

impl Stream {
    /// Starts to connect to `tcp:`, `ssl:` or `unix:`; `default_port` is for names without one.
    /// Failures that are known at once are returned, the others by `connect`.
    pub fn open(name: &str, tls: &Tls, default_port: Option<u16>, dscp: u8) -> Result<Stream, Error> {
        let target = addr::active(name, default_port)?;
        let (connecting, peer) = match &target {
            addr::Target::Tcp(a) => (socket::connect_tcp(*a, dscp)?, Some(*a)),
            addr::Target::Unix(p) => (socket::connect_unix(p)?, None),
            addr::Target::Ssl(a) => {
                // Looked at first: without keys there is nothing to connect for.
                let client = tls.client().map_err(Error::Tls)?;
                let server = ServerName::from(a.ip());
                let fd = match socket::connect_tcp(*a, dscp)? {
                    Connecting::Done(fd) | Connecting::InProgress(fd) => fd,
                };
                let io = TlsStream::client(fd, client, server).map_err(Error::Tls)?;
                return Ok(Stream::new(name.to_string(), Some(*a), Io::Tls(Box::new(io))));
            }
        };
        let io = match connecting {
            Connecting::Done(fd) => Io::Plain { fd, connected: true },
            Connecting::InProgress(fd) => Io::Plain { fd, connected: false },
        };
        Ok(Stream::new(name.to_string(), peer, io))
    }

    /// Wraps a connected descriptor, e.g. one half of a socket pair. It must be non-blocking.
    pub fn from_fd(name: &str, fd: OwnedFd) -> Stream {
        Stream::new(name.to_string(), None, Io::Plain { fd, connected: true })
    }

    fn new(name: String, peer: Option<SocketAddr>, io: Io) -> Stream {
        Stream { name, source: SourceId::fresh(), peer, io }
    }

    /// Goes on connecting; true once data can flow.
    pub fn connect(&mut self) -> io::Result<bool> {
        match &mut self.io {
            Io::Plain { connected: true, .. } => Ok(true),
            Io::Plain { fd, connected } => {
                *connected = socket::connect_outcome(fd.as_fd())?;
                Ok(*connected)
            }
            Io::Tls(t) => t.connect(&self.name),
        }
    }

    pub fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match &mut self.io {
            Io::Plain { connected: false, .. } => Err(io::ErrorKind::WouldBlock.into()),
            Io::Plain { fd, .. } => retry(|| socket::read(fd.as_fd(), buf)),
            Io::Tls(t) => t.read(buf, &self.name),
        }
    }

    pub fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match &mut self.io {
            Io::Plain { connected: false, .. } => Err(io::ErrorKind::WouldBlock.into()),
            Io::Plain { fd, .. } => retry(|| socket::write(fd.as_fd(), buf)),
            Io::Tls(t) => t.write(buf, &self.name),
        }
    }

    /// Moves bytes that were written but are still inside the TLS layer.
    pub fn turn(&mut self) {
        if let Io::Tls(t) = &mut self.io {
            t.flush();
        }
    }

    /// Registers what has to happen for `interest` to make sense.
    pub fn want(&self, poller: &mut Poller, interest: Interest) {
        if let Io::Tls(t) = &self.io
            && interest.read
            && t.has_plaintext()
        {
            poller.wake_now();
        }
        poller.want(self.source, self.fd(), self.interest(interest));
    }

    /// What the descriptor must be ready for, so that `want` can make progress.
    pub fn interest(&self, want: Interest) -> Interest {
        match &self.io {
            Io::Plain { connected: false, .. } => Interest::WRITE,
            Io::Plain { .. } => want,
            Io::Tls(t) => t.interest(want),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn source(&self) -> SourceId {
        self.source
    }

    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Our address of a TCP connection.
    pub fn local(&self) -> Option<SocketAddr> {
        socket::bound_address(self.fd())
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        match &self.io {
            Io::Plain { fd, .. } => fd.as_fd(),
            Io::Tls(t) => t.fd(),
        }
    }
}

fn retry(mut f: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match f() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            r => return r,
        }
    }
}
