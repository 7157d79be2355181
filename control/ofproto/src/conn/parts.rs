//! Multipart requests in several messages: kept until the last part has come.

use fv_core::Nanos;
use fv_openflow::OfError;
use fv_openflow::msg::{Message, RequestPart};

use super::{HEADER_LEN, xid_of};

/// How long the next part may take.
const PART_TIMEOUT: Nanos = Nanos::from_secs(1);
/// Requests of one connection that wait for more, and bytes of all of them.
const MAX_WAITING: usize = 16;
const MAX_BYTES: usize = 1 << 20;

struct Waiting {
    xid: u32,
    /// The first part, as it came.
    first: Vec<u8>,
    /// All parts so far, in one.
    joined: Vec<u8>,
    /// Length of its headers.
    body_at: usize,
    until: Nanos,
}

#[derive(Default)]
pub(crate) struct Parts {
    waiting: Vec<Waiting>,
}

/// What a message leads to.
pub(crate) enum Joined {
    /// It is no part: to be decoded by itself.
    Whole,
    /// There is more to come.
    Waits,
    /// The last part: the first one's bytes, and what the whole request says.
    Request(Vec<u8>, Result<Message, OfError>),
    Error(OfError),
}

impl Parts {
    pub(crate) fn take(&mut self, frame: &[u8], now: Nanos) -> Joined {
        let part = match Message::request_part(frame) {
            Ok(Some(p)) => p,
            Ok(None) => return Joined::Whole,
            Err(e) => return Joined::Error(e),
        };
        let xid = xid_of(frame);
        match self.waiting.iter().position(|w| w.xid == xid) {
            None if !part.more => Joined::Whole,
            None => self.begin(xid, frame, part, now),
            Some(at) => {
                let mut w = self.waiting.swap_remove(at);
                if !w.asks_the_same(frame) {
                    return Joined::Error(OfError::BrcBadStat);
                }
                if !w.append(frame, part) {
                    return Joined::Request(w.first, Err(OfError::BrcBadStat));
                }
                if !part.more {
                    let message = Message::decode_joined(&w.joined);
                    return Joined::Request(w.first, message);
                }
                w.until = now.saturating_add(PART_TIMEOUT);
                self.keep(w)
            }
        }
    }

    fn begin(&mut self, xid: u32, frame: &[u8], part: RequestPart, now: Nanos) -> Joined {
        let until = now.saturating_add(PART_TIMEOUT);
        self.keep(Waiting { xid, first: frame.to_vec(), joined: frame.to_vec(), body_at: part.body_at, until })
    }

    fn keep(&mut self, w: Waiting) -> Joined {
        let bytes = self.waiting.iter().map(|w| w.joined.len()).sum::<usize>() + w.joined.len();
        if self.waiting.len() >= MAX_WAITING || bytes > MAX_BYTES {
            return Joined::Error(OfError::BrcMultipartBufferOverflow);
        }
        self.waiting.push(w);
        Joined::Waits
    }

    /// Drops what waited too long: the first part of each.
    pub(crate) fn expire(&mut self, now: Nanos) -> Vec<Vec<u8>> {
        self.waiting.extract_if(.., |w| w.until <= now).map(|w| w.first).collect()
    }

    pub(crate) fn next_expiry(&self) -> Option<Nanos> {
        self.waiting.iter().map(|w| w.until).min()
    }
}

impl Waiting {
    fn asks_the_same(&self, frame: &[u8]) -> bool {
        let kind = |f: &[u8]| f.get(HEADER_LEN..HEADER_LEN + 2).map(<[u8]>::to_vec);
        kind(frame) == kind(&self.joined)
    }

    /// Only lists can go on in another part; anything else is all in one of them.
    fn append(&mut self, frame: &[u8], part: RequestPart) -> bool {
        let body = frame.get(part.body_at..).unwrap_or_default();
        self.joined.extend_from_slice(body);
        part.list || body.is_empty() || self.joined.len() == self.body_at + body.len()
    }
}
