//! TLS over a non-blocking socket.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::io::Errno;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};

use super::{socket, tls};
use crate::poll::Interest;

/// Cleartext that waits inside for the socket; more is refused with `WouldBlock`.
const BUFFER_MAX: usize = 64 * 1024;

pub(super) struct TlsStream {
    fd: OwnedFd,
    tls: Connection,
    /// The TCP connection below stands.
    below: bool,
    open: bool,
    plaintext: usize,
    /// Store the peer's authority here, then fail so that the next attempt checks it.
    bootstrap: Option<PathBuf>,
}

impl TlsStream {
    pub fn client(fd: OwnedFd, client: tls::Client, name: ServerName<'static>) -> Result<TlsStream, String> {
        let conn = ClientConnection::new(client.config, name).map_err(|e| e.to_string())?;
        Ok(TlsStream::new(fd, conn.into(), false, client.bootstrap))
    }

    pub fn server(fd: OwnedFd, config: Arc<ServerConfig>) -> Result<TlsStream, String> {
        let conn = ServerConnection::new(config).map_err(|e| e.to_string())?;
        Ok(TlsStream::new(fd, conn.into(), true, None))
    }

    fn new(fd: OwnedFd, mut tls: Connection, below: bool, bootstrap: Option<PathBuf>) -> TlsStream {
        tls.set_buffer_limit(Some(BUFFER_MAX));
        TlsStream { fd, tls, below, open: false, plaintext: 0, bootstrap }
    }

    pub fn connect(&mut self, name: &str) -> io::Result<bool> {
        if !self.below {
            self.below = socket::connect_outcome(self.fd.as_fd())?;
            if !self.below {
                return Ok(false);
            }
        }
        while !self.open {
            self.send()?;
            if !self.tls.is_handshaking() {
                self.finish(name)?;
                break;
            }
            match self.receive(name) {
                Ok(0) => return Err(reset("connection closed during handshake", name)),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(self.open)
    }

    fn finish(&mut self, name: &str) -> io::Result<()> {
        if let Some(path) = self.bootstrap.take() {
            let chain = self.tls.peer_certificates().unwrap_or_default();
            match tls::store_ca(&path, chain) {
                Ok(()) => log::info!(
                    target: "stream_ssl",
                    "{name}: successfully bootstrapped CA cert to {}",
                    path.display()
                ),
                Err(e) => log::error!(target: "stream_ssl", "{name}: {e}"),
            }
            return Err(Errno::PROTO.into());
        }
        self.open = true;
        Ok(())
    }

    pub fn read(&mut self, buf: &mut [u8], name: &str) -> io::Result<usize> {
        if !self.open || buf.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        loop {
            match self.tls.reader().read(buf) {
                Ok(n) => {
                    self.plaintext = self.plaintext.saturating_sub(n);
                    return Ok(n);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                // Peers that just close the socket are common; message framing above detects
                // what a cut would leave.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                Err(e) => return Err(e),
            }
            self.plaintext = 0;
            self.receive(name)?;
            self.flush();
        }
    }

    pub fn write(&mut self, buf: &[u8], _name: &str) -> io::Result<usize> {
        if !self.open {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.send()?;
        let n = self.tls.writer().write(buf)?;
        if n == 0 && !buf.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.send()?;
        Ok(n)
    }

    /// Best effort; an error is seen by the next read or write.
    pub fn flush(&mut self) {
        if self.below {
            let _ = self.send();
        }
    }

    pub fn has_plaintext(&self) -> bool {
        self.plaintext > 0
    }

    pub fn interest(&self, want: Interest) -> Interest {
        if !self.below {
            return Interest::WRITE;
        }
        if !self.open {
            return Interest { read: true, write: self.tls.wants_write() };
        }
        Interest { read: want.read, write: want.write || self.tls.wants_write() }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Bytes from the socket through the TLS layer: their number, 0 at the end.
    fn receive(&mut self, name: &str) -> io::Result<usize> {
        let n = self.tls.read_tls(&mut Raw(self.fd.as_fd()))?;
        match self.tls.process_new_packets() {
            Ok(state) => {
                self.plaintext = state.plaintext_bytes_to_read();
                Ok(n)
            }
            Err(e) => {
                // Tells the peer why, if it still listens.
                let _ = self.send();
                log::warn!(target: "stream_ssl", "{name}: TLS error: {e}");
                Err(Errno::PROTO.into())
            }
        }
    }

    /// As much as the socket takes now.
    fn send(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Raw(self.fd.as_fd())) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        if self.open {
            self.tls.send_close_notify();
            let _ = self.send();
        }
    }
}

fn reset(why: &str, name: &str) -> io::Error {
    log::warn!(target: "stream_ssl", "{name}: {why}");
    Errno::PROTO.into()
}

struct Raw<'a>(BorrowedFd<'a>);

impl Read for Raw<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        super::retry(|| socket::read(self.0, buf))
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        super::retry(|| socket::write(self.0, buf))
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
