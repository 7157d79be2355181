//! Packets over sockets: each with its length in 16 bits, big-endian, in front.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use fv_core::Nanos;
use fv_packet::Packet;
use fv_packet::hdr::eth;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::dummy::config::under;

/// Connections that a listener serves at most; further ones are closed.
const PEERS_MAX: usize = 64;
/// Bytes that wait for one peer to read at most; packets beyond are dropped.
const TX_MAX: usize = 256 * 1024;
/// Bytes read from one peer in a turn at most.
const RX_BUDGET: usize = 256 * 1024;
const BACKOFF_MIN: Nanos = Nanos::from_secs(1);
const BACKOFF_MAX: Nanos = Nanos::from_secs(8);

/// Where a stream goes to or listens, and how the option said it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub name: String,
    place: Place,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Place {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl Target {
    /// `unix:PATH` or `tcp:IP:PORT`; for a listener `punix:PATH` or `ptcp:PORT[:IP]`.
    pub fn parse(text: &str, passive: bool, rundir: &Path) -> Result<Target, String> {
        let (method, rest) = text.split_once(':').unwrap_or((text, ""));
        let place = match (method, passive) {
            ("unix", false) | ("punix", true) if !rest.is_empty() => Place::Unix(under(rundir, rest)),
            ("tcp", false) => Place::Tcp(rest.parse().map_err(|_| "not an IP address and port")?),
            ("ptcp", true) => {
                let (port, ip) = rest.split_once(':').unwrap_or((rest, "0.0.0.0"));
                let ip: IpAddr = ip.trim_matches(['[', ']']).parse().map_err(|_| "not an IP address")?;
                Place::Tcp(SocketAddr::new(ip, port.parse().map_err(|_| "not a port")?))
            }
            _ => return Err("unknown connection method".into()),
        };
        Ok(Target { name: text.into(), place })
    }
}

/// What is known of an active connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnState {
    Connected,
    Disconnected,
    /// There is none to be made.
    Unknown,
}

impl std::fmt::Display for ConnState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ConnState::Connected => "connected",
            ConnState::Disconnected => "disconnected",
            ConnState::Unknown => "unknown",
        })
    }
}

/// The sockets of a device.
pub enum Conn {
    None,
    Active { target: Target, link: Link, retry_at: Nanos, backoff: Nanos },
    Passive { listener: Listener, peers: Vec<Peer> },
}

/// An active connection.
pub enum Link {
    Down,
    Connecting(Socket),
    Up(Peer),
}

pub enum Listener {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

pub enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// One connection with what is half received and not yet sent.
pub struct Peer {
    socket: Socket,
    rx: Vec<u8>,
    tx: VecDeque<u8>,
}

impl Conn {
    pub fn open(stream: Option<&Target>, pstream: Option<&Target>) -> io::Result<Conn> {
        if let Some(target) = pstream {
            return Ok(Conn::Passive { listener: Listener::open(&target.place)?, peers: Vec::new() });
        }
        Ok(match stream {
            Some(target) => {
                Conn::Active { target: target.clone(), link: Link::Down, retry_at: Nanos::ZERO, backoff: BACKOFF_MIN }
            }
            None => Conn::None,
        })
    }

    pub fn state(&self) -> ConnState {
        match self {
            Conn::Active { link: Link::Up(_), .. } => ConnState::Connected,
            Conn::Active { .. } => ConnState::Disconnected,
            _ => ConnState::Unknown,
        }
    }

    /// Queues `frame` for every peer, and sends what the sockets take.
    pub fn send(&mut self, frame: &[u8]) {
        match self {
            Conn::Active { link: Link::Up(peer), .. } => peer.send(frame),
            Conn::Passive { peers, .. } => peers.iter_mut().for_each(|p| p.send(frame)),
            _ => {}
        }
    }

    /// Connects, accepts, sends and receives without waiting. Says whether anything happened.
    pub fn turn(&mut self, now: Nanos, out: &mut Vec<Packet>) -> bool {
        let before = out.len();
        let mut active = false;
        match self {
            Conn::None => {}
            Conn::Active { target, link, retry_at, backoff } => {
                active |= turn_active(target, link, retry_at, backoff, now, out);
            }
            Conn::Passive { listener, peers } => {
                while let Some(socket) = listener.accept() {
                    active = true;
                    if peers.len() < PEERS_MAX {
                        peers.push(Peer::new(socket));
                    }
                }
                let n = peers.len();
                peers.retain_mut(|p| p.turn(out).is_ok());
                active |= peers.len() != n;
            }
        }
        active || out.len() > before
    }
}

fn turn_active(
    target: &Target,
    link: &mut Link,
    retry_at: &mut Nanos,
    backoff: &mut Nanos,
    now: Nanos,
    out: &mut Vec<Packet>,
) -> bool {
    let next = match std::mem::replace(link, Link::Down) {
        Link::Down if now < *retry_at => return false,
        Link::Down => Socket::connect(&target.place).map(Link::Connecting),
        Link::Connecting(socket) => match socket.connected() {
            Ok(true) => {
                *backoff = BACKOFF_MIN;
                Ok(Link::Up(Peer::new(socket)))
            }
            Ok(false) => Ok(Link::Connecting(socket)),
            Err(e) => Err(e),
        },
        Link::Up(mut peer) => peer.turn(out).map(|()| Link::Up(peer)),
    };
    let moved = match &next {
        Ok(Link::Up(_)) => false,
        Ok(_) => matches!(target.place, Place::Unix(_)),
        Err(_) => true,
    };
    match next {
        Ok(new) => *link = new,
        Err(_) => {
            *retry_at = now.saturating_add(*backoff);
            *backoff = Nanos((backoff.0 * 2).min(BACKOFF_MAX.0));
        }
    }
    moved
}

impl Listener {
    fn open(place: &Place) -> io::Result<Listener> {
        match place {
            Place::Unix(path) => {
                // What is left of a listener that was killed; a live one keeps its path.
                if UnixStream::connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
                    std::fs::remove_file(path)?;
                }
                let listener = UnixListener::bind(path)?;
                listener.set_nonblocking(true)?;
                Ok(Listener::Unix(listener, path.clone()))
            }
            Place::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok(Listener::Tcp(listener))
            }
        }
    }

    fn accept(&self) -> Option<Socket> {
        let socket = match self {
            Listener::Unix(l, _) => Socket::Unix(l.accept().ok()?.0),
            Listener::Tcp(l) => Socket::Tcp(l.accept().ok()?.0),
        };
        let blocking = match &socket {
            Socket::Unix(s) => s.set_nonblocking(true),
            Socket::Tcp(s) => s.set_nonblocking(true),
        };
        blocking.ok().map(|()| socket)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Socket {
    /// Begins to connect.
    fn connect(place: &Place) -> io::Result<Socket> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let begin = |result: rustix::io::Result<()>| match result {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(()),
            Err(e) => Err(io::Error::from(e)),
        };
        match place {
            Place::Unix(path) => {
                let s = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
                begin(rustix::net::connect(&s, &rustix::net::SocketAddrUnix::new(path)?))?;
                Ok(Socket::Unix(s.into()))
            }
            Place::Tcp(address) => {
                let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                let s = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
                begin(rustix::net::connect(&s, address))?;
                Ok(Socket::Tcp(s.into()))
            }
        }
    }

    /// Whether the connection stands; an error when it failed.
    fn connected(&self) -> io::Result<bool> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let fd = match self {
            Socket::Unix(s) => s.as_fd(),
            Socket::Tcp(s) => s.as_fd(),
        };
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        if fds[0].revents().is_empty() {
            return Ok(false);
        }
        rustix::net::sockopt::socket_error(fd)??;
        Ok(true)
    }
}

impl Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(s) => s.read(buf),
            Socket::Tcp(s) => s.read(buf),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(s) => s.write(buf),
            Socket::Tcp(s) => s.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Peer {
    fn new(socket: Socket) -> Peer {
        Peer { socket, rx: Vec::new(), tx: VecDeque::new() }
    }

    fn send(&mut self, frame: &[u8]) {
        let Ok(len) = u16::try_from(frame.len()) else { return };
        if self.tx.len() + 2 + frame.len() > TX_MAX {
            return;
        }
        self.tx.extend(len.to_be_bytes());
        self.tx.extend(frame);
        // An error shows again at the next turn, which closes the connection.
        let _ = self.flush();
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.tx.is_empty() {
            match self.socket.write(self.tx.as_slices().0) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => drop(self.tx.drain(..n)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Sends and receives; an error means that the connection is over.
    fn turn(&mut self, out: &mut Vec<Packet>) -> io::Result<()> {
        self.flush()?;
        let mut budget = RX_BUDGET;
        let mut chunk = [0u8; 16 * 1024];
        while budget > 0 {
            match self.socket.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    budget = budget.saturating_sub(n);
                    self.rx.extend_from_slice(&chunk[..n]);
                    self.cut(out)?;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Takes whole frames out of what was received. What stays is less than one.
    fn cut(&mut self, out: &mut Vec<Packet>) -> io::Result<()> {
        let mut at = 0;
        while let Some(&[hi, lo]) = self.rx.get(at..at + 2) {
            let len = usize::from(u16::from_be_bytes([hi, lo]));
            if len < eth::LEN {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let Some(frame) = self.rx.get(at + 2..at + 2 + len) else { break };
            out.push(Packet::from_slice(frame));
            at += 2 + len;
        }
        self.rx.drain(..at);
        Ok(())
    }
}
