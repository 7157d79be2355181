//! Passive streams.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use fv_core::Nanos;
use rustix::io::Errno;

use super::{Error, Io, Stream, Tls, TlsStream, addr, socket};
use crate::poll::{Interest, Poller, SourceId};

/// Rest of a listener that ran out of descriptors or memory: without it, the connection that
/// cannot be accepted keeps the thread busy.
const PAUSE: Nanos = Nanos::from_ms(200);

/// A listening socket of `ptcp:`, `pssl:` or `punix:`.
pub struct Listener {
    name: String,
    source: SourceId,
    fd: OwnedFd,
    kind: Kind,
    paused_until: Nanos,
}

enum Kind {
    Tcp,
    Ssl(Tls),
    /// Path and (device, inode) of the socket file that is ours to remove.
    Unix(PathBuf, Option<(u64, u64)>),
}

impl Listener {
    pub fn open(name: &str, tls: &Tls, default_port: Option<u16>) -> Result<Listener, Error> {
        let local = addr::passive(name, default_port)?;
        let (fd, kind) = match local {
            addr::Local::Tcp(a) => (socket::listen_tcp(a)?, Kind::Tcp),
            addr::Local::Ssl(a) => {
                tls.server().map_err(Error::Tls)?;
                (socket::listen_tcp(a)?, Kind::Ssl(tls.clone()))
            }
            addr::Local::Unix(path) => {
                let fd = socket::listen_unix(&path)?;
                let id = fs::symlink_metadata(&path).ok().map(|m| (m.dev(), m.ino()));
                (fd, Kind::Unix(path, id))
            }
        };
        let mut l = Listener { name: name.to_string(), source: SourceId::fresh(), fd, kind, paused_until: Nanos::ZERO };
        if let Some(a) = l.local() {
            // A port that the system chose is only known from here.
            let (_, asked) = name.split_once(':').unwrap_or_default();
            if asked.split(':').next() == Some("0") {
                let host = match a {
                    _ if !asked.contains(':') => String::new(),
                    SocketAddr::V4(a) => format!(":{}", a.ip()),
                    SocketAddr::V6(a) => format!(":[{}]", a.ip()),
                };
                log::info!(target: "socket_util", "{asked}: listening on port {}", a.port());
                l.name = format!("{}:{}{host}", name.split(':').next().unwrap_or_default(), a.port());
            }
        }
        Ok(l)
    }

    /// The next connection, if there is one. Its stream still has to `connect` (TLS).
    pub fn accept(&mut self, now: Nanos) -> io::Result<Option<Stream>> {
        if now < self.paused_until {
            return Ok(None);
        }
        let (fd, peer) = match socket::accept(self.fd.as_fd()) {
            Ok(Some(c)) => c,
            Ok(None) => return Ok(None),
            Err(e) => {
                let out = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
                if out.iter().any(|o| Some(o.raw_os_error()) == e.raw_os_error()) {
                    self.paused_until = now.saturating_add(PAUSE);
                }
                return Err(e);
            }
        };
        let stream = match &self.kind {
            Kind::Tcp => Stream::new(format!("tcp:{}", text(peer)), peer, Io::Plain { fd, connected: true }),
            Kind::Unix(..) => {
                static NEXT: AtomicU64 = AtomicU64::new(0);
                let name = format!("unix#{}", NEXT.fetch_add(1, Ordering::Relaxed));
                Stream::new(name, None, Io::Plain { fd, connected: true })
            }
            Kind::Ssl(tls) => {
                let server = tls.server().map_err(io::Error::other)?;
                let io = TlsStream::server(fd, server).map_err(io::Error::other)?;
                Stream::new(format!("ssl:{}", text(peer)), peer, Io::Tls(Box::new(io)))
            }
        };
        Ok(Some(stream))
    }

    pub fn want(&self, poller: &mut Poller, now: Nanos) {
        if now < self.paused_until {
            poller.wake_at(self.paused_until);
        } else {
            poller.want(self.source, self.fd.as_fd(), Interest::READ);
        }
    }

    /// The name asked for, with the port that was really taken.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn source(&self) -> SourceId {
        self.source
    }

    /// Bound address of a TCP or TLS listener.
    pub fn local(&self) -> Option<SocketAddr> {
        socket::bound_address(self.fd.as_fd())
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Kind::Unix(path, id) = &self.kind {
            // Somebody may have taken the path over in the meantime.
            let now = fs::symlink_metadata(path).ok().map(|m| (m.dev(), m.ino()));
            if now.is_some() && now == *id {
                let _ = fs::remove_file(path);
            }
        }
    }
}

fn text(peer: Option<SocketAddr>) -> String {
    peer.map_or_else(|| "?".to_string(), |a| a.to_string())
}
