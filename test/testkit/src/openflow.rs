//! A peer that speaks raw OpenFlow with a switch.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;
/// Transaction id of the echo that ends the answers to a request.
const MARK: [u8; 4] = *b"mark";

/// A connection to a switch's management socket, or another byte stream.
pub struct OfConn<S = UnixStream> {
    pub stream: S,
    version: u8,
    buf: Vec<u8>,
}

/// What came in answer to a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answers {
    pub messages: Vec<Vec<u8>>,
    /// The switch closed the connection.
    pub closed: bool,
}

impl OfConn {
    /// Connects to `path` and negotiates `version` (1 is OpenFlow 1.0).
    #[track_caller]
    pub fn open(path: &Path, version: u8) -> OfConn {
        let stream = UnixStream::connect(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        OfConn::greet(stream, version)
    }
}

impl<S: Read + Write> OfConn<S> {
    /// Says and hears hello.
    #[track_caller]
    pub fn greet(stream: S, version: u8) -> OfConn<S> {
        let mut c = OfConn { stream, version, buf: Vec::new() };
        c.send(&message(version, 0, [0, 0, 0, 1], &[]));
        let hello = c.recv().expect("a hello");
        assert_eq!(hello.get(1), Some(&0), "{hello:x?}");
        c
    }

    pub fn version(&self) -> u8 {
        self.version
    }

    /// A connection that is closed meanwhile is noticed by `recv`.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// The next whole message; None if the switch closed the connection.
    #[track_caller]
    pub fn recv(&mut self) -> Option<Vec<u8>> {
        let mut chunk = [0; 16 << 10];
        loop {
            if let Some(l) = self.buf.get(2..4).map(|l| usize::from(u16::from_be_bytes([l[0], l[1]])))
                && l >= 8
                && self.buf.len() >= l
            {
                return Some(self.buf.drain(..l).collect());
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(n) => self.buf.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return None,
                Err(e) => panic!("no answer: {e}"),
            }
        }
    }

    /// The answers to `bytes`: all that comes before that to an echo request sent behind.
    #[track_caller]
    pub fn ask(&mut self, bytes: &[u8]) -> Answers {
        self.send(bytes);
        self.send(&message(self.version, ECHO_REQUEST, MARK, &[]));
        let mut a = Answers::default();
        loop {
            match self.recv() {
                None => {
                    a.closed = true;
                    return a;
                }
                Some(m) if m[1] == ECHO_REPLY && m[4..8] == MARK => return a,
                Some(m) if m[1] == ECHO_REQUEST => {
                    let reply = message(m[0], ECHO_REPLY, [m[4], m[5], m[6], m[7]], &m[8..]);
                    self.send(&reply);
                }
                Some(m) => a.messages.push(m),
            }
        }
    }
}

/// A message of a type of that version.
pub fn message(version: u8, kind: u8, xid: [u8; 4], body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(8 + body.len()).expect("a message's length");
    let mut m = vec![version, kind];
    m.extend(len.to_be_bytes());
    m.extend(xid);
    m.extend_from_slice(body);
    m
}

/// Bytes from hexadecimal digits.
#[track_caller]
pub fn hex(digits: &str) -> Vec<u8> {
    let byte = |i: usize| u8::from_str_radix(&digits[i..i + 2], 16).unwrap_or_else(|_| panic!("{digits}"));
    (0..digits.len()).step_by(2).map(byte).collect()
}
