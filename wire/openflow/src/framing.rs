//! Messages out of a byte stream, and the choice of a version.

use crate::error::OfError;
use crate::msg::session::{ErrorKind, Hello};
use crate::msg::{Body, DecodeCx, ErrorMsg, HEADER_LEN, Message, RawHeader};
use crate::version::{Version, VersionSet};
use crate::wire::Put;

/// Collects bytes until messages are whole. Holds at most one message (64 KiB) and what was pushed.
#[derive(Debug, Default)]
pub struct Splitter {
    buf: Vec<u8>,
    /// Bytes of `buf` that were handed out already.
    used: usize,
}

/// The stream cannot be split any further: the connection is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("received too-short ofp_header ({0} bytes)")]
pub struct ShortMessage(pub u16);

impl Splitter {
    pub fn new() -> Splitter {
        Splitter::default()
    }

    /// Adds what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.used > 0 {
            self.buf.drain(..self.used);
            self.used = 0;
        }
        self.buf.extend_from_slice(bytes);
    }

    /// The next whole message.
    pub fn next_message(&mut self) -> Result<Option<&[u8]>, ShortMessage> {
        let rest = &self.buf[self.used..];
        let Some(h) = RawHeader::peek(rest) else { return Ok(None) };
        let len = usize::from(h.len);
        if len < HEADER_LEN {
            return Err(ShortMessage(h.len));
        }
        if rest.len() < len {
            return Ok(None);
        }
        let start = self.used;
        self.used += len;
        Ok(Some(&self.buf[start..start + len]))
    }

    /// Bytes that wait for the rest of their message.
    pub fn pending(&self) -> usize {
        self.buf.len() - self.used
    }
}

/// The first exchange of a connection: each side's hello, then the highest common version.
#[derive(Clone, Copy, Debug)]
pub struct Negotiator {
    allowed: VersionSet,
}

/// Why a connection ends before it began.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed {
    /// What to send before closing.
    pub reply: Vec<u8>,
    /// For the log.
    pub reason: String,
}

impl Negotiator {
    pub fn new(allowed: VersionSet) -> Negotiator {
        Negotiator { allowed }
    }

    /// Our hello: the highest version in the header, the others in a bitmap where the header alone
    /// would promise too much.
    pub fn hello(&self, xid: u32) -> Vec<u8> {
        let version = self.allowed.highest().unwrap_or(Version::V10);
        let hello = Message::new(version, xid, Body::Hello(Hello { versions: self.allowed }));
        hello.encode().unwrap_or_default()
    }

    /// The version that both speak, from the peer's first message.
    pub fn peer(&self, message: &[u8]) -> Result<Version, Failed> {
        let header = RawHeader::peek(message);
        let hello = match Message::decode(message, &DecodeCx::default()) {
            Ok(Message { body: Body::Hello(h), .. }) => h,
            other => {
                let what = match (other, header) {
                    (Ok(m), _) => m.body.name().to_owned(),
                    (Err(_), Some(h)) => format!("message of type {}", h.kind),
                    (Err(_), None) => "a short message".to_owned(),
                };
                let text = format!("received {what} as first message; expected OFPT_HELLO");
                return Err(self.fail(header, OfError::BrcBadType, &text));
            }
        };
        let common = self.allowed.and(hello.versions).highest();
        common.ok_or_else(|| {
            let text = format!(
                "We support {}, you support {}, no common versions.",
                describe(self.allowed),
                describe(hello.versions)
            );
            self.fail(header, OfError::HfcIncompatible, &text)
        })
    }

    fn fail(&self, peer: Option<RawHeader>, error: OfError, text: &str) -> Failed {
        // In the peer's version if we know its numbers.
        let version = peer.and_then(|h| Version::from_wire(h.version)).unwrap_or(Version::V10);
        let error = ErrorMsg { error: ErrorKind::Known(error), data: text.as_bytes().to_vec() };
        let msg = Message::new(version, peer.map_or(0, |h| h.xid), Body::Error(error));
        let mut reply = msg.encode().unwrap_or_default();
        // A version that we do not know gets its own number back.
        if let (Some(h), Some(first)) = (peer, reply.first_mut())
            && Version::from_wire(h.version).is_none()
            && h.version != 0
        {
            *first = h.version;
        }
        Failed { reply, reason: text.to_owned() }
    }
}

/// A set of versions as a phrase: "version 0x01", "versions 0x01 and 0x04", "versions 0x01, ...".
pub fn describe(versions: VersionSet) -> String {
    let v: Vec<String> = (0..32).filter(|n| versions.0 & 1 << n != 0).map(|n| format!("0x{n:02x}")).collect();
    match v.as_slice() {
        [] => "no versions".to_owned(),
        [one] => format!("version {one}"),
        [a, b] => format!("versions {a} and {b}"),
        // A run of three and more that has no gap.
        [first, .., last] if versions.0.count_ones() == versions.0.ilog2() - versions.0.trailing_zeros() + 1 => {
            format!("versions {first} to {last}")
        }
        [head @ .., last] => format!("versions {}, and {last}", head.join(", ")),
    }
}

/// The protocol's error for a message that could not be decoded, ready to send.
pub fn error_reply(error: OfError, request: &[u8], version: Version) -> Vec<u8> {
    let xid = RawHeader::peek(request).map_or(0, |h| h.xid);
    let mut out =
        Message::new(version, xid, Body::Error(ErrorMsg::reply_to(error, request))).encode().unwrap_or_default();
    if out.is_empty() {
        out.u8(version.wire()).u8(1).u16(12).u32(xid).u32(0);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_split_wherever_it_was_cut() {
        let mut stream = Vec::new();
        for (xid, n) in [(1, 0usize), (2, 5), (3, 4000)] {
            stream.extend(Message::new(Version::V13, xid, Body::EchoRequest(vec![7; n])).encode().unwrap());
        }
        for step in [1, 3, 8, 1000, 9000] {
            let (mut s, mut got) = (Splitter::new(), Vec::new());
            for part in stream.chunks(step) {
                s.push(part);
                while let Some(m) = s.next_message().unwrap() {
                    got.extend_from_slice(m);
                }
            }
            assert_eq!(got, stream, "step {step}");
            assert_eq!(s.pending(), 0);
        }
    }

    #[test]
    fn a_length_below_the_header_is_fatal() {
        let mut s = Splitter::new();
        s.push(&[4, 0, 0, 7, 0, 0, 0, 0]);
        assert_eq!(s.next_message(), Err(ShortMessage(7)));
    }

    #[test]
    fn the_highest_common_version_is_chosen() {
        let set = |v: &[Version]| v.iter().copied().collect::<VersionSet>();
        let check = |ours: VersionSet, theirs: VersionSet, want: Option<Version>| {
            let hello = Negotiator::new(theirs).hello(9);
            assert_eq!(Negotiator::new(ours).peer(&hello).ok(), want, "{ours:?} {theirs:?}");
        };
        use Version::*;
        check(VersionSet::ALL, VersionSet::ALL, Some(V15));
        check(VersionSet::ALL, set(&[V10]), Some(V10));
        check(set(&[V10, V13]), set(&[V10, V11, V12, V14]), Some(V10));
        check(set(&[V13]), set(&[V10, V14]), None);
        // A plain hello promises every version below its own.
        assert_eq!(Negotiator::new(set(&[V12])).peer(&[4, 0, 0, 8, 0, 0, 0, 1]), Ok(V12));
        assert_eq!(Negotiator::new(VersionSet::ALL).peer(&[9, 0, 0, 8, 0, 0, 0, 1]), Ok(V15));
        assert!(Negotiator::new(VersionSet::ALL).peer(&[4, 2, 0, 8, 0, 0, 0, 1]).is_err());
        assert!(Negotiator::new(VersionSet::ALL).peer(&[4]).is_err());
    }

    #[test]
    fn no_common_version_is_explained() {
        let f = Negotiator::new(VersionSet::of(Version::V13)).peer(&[1, 0, 0, 8, 0, 0, 0, 5]).unwrap_err();
        assert_eq!(f.reason, "We support version 0x04, you support version 0x01, no common versions.");
        assert_eq!(f.reply[..12], [1, 1, 0, f.reply.len() as u8, 0, 0, 0, 5, 0, 0, 0, 0]);
        assert_eq!(&f.reply[12..], f.reason.as_bytes());
    }

    #[test]
    fn version_sets_as_phrases() {
        for (bits, want) in [
            (0x2, "version 0x01"),
            (0x12, "versions 0x01 and 0x04"),
            (0x7e, "versions 0x01 to 0x06"),
            (0x2a, "versions 0x01, 0x03, and 0x05"),
        ] {
            assert_eq!(describe(VersionSet(bits)), want);
        }
    }
}
