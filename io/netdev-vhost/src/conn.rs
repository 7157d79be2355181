//! A connection's bytes and descriptors: messages in, replies out. Nothing blocks; a message that has come in part
//! waits for its rest, and a front end that does not read its replies is not read from.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::message::{BadMessage, FDS_MAX, HEADER, Header, PAYLOAD_MAX, Reply, Request};
use crate::port::{Port, PortRings};
use crate::session::{Refused, Session};

/// Messages that are taken at a time, so that no front end keeps the others waiting.
const BUDGET: usize = 64;
/// Descriptors that one system call can bring; more than any message may have are seen, closed, and refused.
const FDS_ROOM: usize = 2 * FDS_MAX;

/// Why a connection is over.
#[derive(Debug, thiserror::Error)]
pub enum End {
    #[error("connection closed by the front end")]
    Closed,
    #[error("{0}")]
    Io(#[from] Errno),
    #[error("{name}: {error}")]
    Message { name: &'static str, error: BadMessage },
    #[error("{name}: {error}")]
    Refused { name: &'static str, error: Refused },
    #[error("guest memory was taken away")]
    Memory,
}

pub struct Conn {
    socket: OwnedFd,
    pub session: Session,
    buffer: [u8; HEADER + PAYLOAD_MAX],
    /// Bytes of the current message that have come.
    have: usize,
    header: Option<Header>,
    fds: Vec<OwnedFd>,
    replies: VecDeque<Reply>,
    /// Messages carried out.
    pub messages: u64,
}

impl Conn {
    /// `socket` does not block.
    pub fn new(socket: OwnedFd) -> Conn {
        Conn {
            socket,
            session: Session::default(),
            buffer: [0; HEADER + PAYLOAD_MAX],
            have: 0,
            header: None,
            fds: Vec::new(),
            replies: VecDeque::new(),
            messages: 0,
        }
    }

    /// Takes messages that have come, as many as are due at a time.
    pub fn turn(&mut self, port: &Port) -> Result<(), End> {
        for _ in 0..BUDGET {
            if !self.flush()? || !self.receive()? {
                return Ok(());
            }
            self.message(port)?;
        }
        self.flush().map(|_| ())
    }

    /// Replies wait for room in the socket.
    pub fn is_stuffed(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Sends what waits; false if some still does.
    fn flush(&mut self) -> Result<bool, End> {
        while let Some(reply) = self.replies.front_mut() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let fds: Vec<BorrowedFd<'_>> = reply.fd.iter().map(|fd| fd.as_fd()).collect();
            if !fds.is_empty() {
                control.push(SendAncillaryMessage::ScmRights(&fds));
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match sendmsg(&self.socket, &[IoSlice::new(&reply.bytes)], &mut control, flags) {
                Ok(n) => {
                    reply.bytes.drain(..n);
                    reply.fd = None;
                    if reply.bytes.is_empty() {
                        self.replies.pop_front();
                    }
                }
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(true)
    }

    /// Whether a whole message is there.
    fn receive(&mut self) -> Result<bool, End> {
        loop {
            let want = HEADER + self.header.map_or(0, |h| h.size);
            if self.have < want && !self.read(want)? {
                return Ok(false);
            }
            if self.have < want {
                continue;
            }
            if self.header.is_some() {
                return Ok(true);
            }
            let mut bytes = [0; HEADER];
            bytes.copy_from_slice(&self.buffer[..HEADER]);
            let name = crate::message::name(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
            self.header = Some(Header::parse(&bytes).map_err(|error| End::Message { name, error })?);
        }
    }

    /// Reads up to byte `want` of the message; false if nothing has come.
    fn read(&mut self, want: usize) -> Result<bool, End> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_ROOM))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut into = [IoSliceMut::new(&mut self.buffer[self.have..want])];
        let got = match recvmsg(&self.socket, &mut into, &mut control, flags) {
            Ok(got) => got,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(e) => return Err(e.into()),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds);
            }
        }
        if got.bytes == 0 {
            return Err(End::Closed);
        }
        if got.flags.contains(ReturnFlags::CTRUNC) || self.fds.len() > FDS_MAX {
            let name = self.header.map_or("message", |h| crate::message::name(h.request));
            return Err(End::Message { name, error: BadMessage::Fds });
        }
        self.have += got.bytes;
        Ok(true)
    }

    fn message(&mut self, port: &Port) -> Result<(), End> {
        let Some(header) = self.header.take() else { return Ok(()) };
        let (request, name) = (header.request, crate::message::name(header.request));
        let payload = &self.buffer[HEADER..self.have];
        let fds = std::mem::take(&mut self.fds);
        self.have = 0;
        let parsed = Request::parse(request, payload, fds).map_err(|error| End::Message { name, error })?;
        let mut rings = PortRings(port);
        let (reply, refused) = self
            .session
            .handle(request, header.need_reply, parsed, &mut rings)
            .map_err(|error| End::Refused { name, error })?;
        self.messages += 1;
        self.replies.extend(reply);
        if let Some(error) = refused {
            port.refused(name, &error);
        }
        Ok(())
    }
}

impl AsFd for Conn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
