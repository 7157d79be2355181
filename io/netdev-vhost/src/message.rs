//! Messages of the front end as bytes and descriptors, and the replies to them (vhost-user specification, "Message
//! Specification" and "Front-end message types"). Numbers are in the host's byte order.

use std::os::fd::OwnedFd;

use crate::memory::RegionSpec;

/// Bytes of the header: request, flags, payload size.
pub const HEADER: usize = 12;
/// Payload bytes at most: the largest is that of the configuration space.
pub const PAYLOAD_MAX: usize = 512;
/// Regions of `SET_MEM_TABLE`, and descriptors of any message.
pub const FDS_MAX: usize = 8;
/// Bytes of configuration space that one message carries.
pub const CONFIG_MAX: usize = 256;

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;
/// In `SET_VRING_KICK` and its like: the low byte is the ring, this bit says that there is no descriptor.
const NO_FD: u64 = 1 << 8;

/// Why a message cannot be read. The connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadMessage {
    #[error("unknown version")]
    Version,
    #[error("a reply where a request is due")]
    Reply,
    #[error("unknown request")]
    Request,
    #[error("payload too long")]
    TooLong,
    #[error("wrong payload size")]
    Size,
    #[error("wrong number of descriptors")]
    Fds,
    #[error("ring number out of range")]
    Ring,
    #[error("value out of range")]
    Value,
}

/// Where the parts of a ring are, in the front end's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VringAddr {
    /// Bit 0: writes to the used ring are to be logged.
    pub flags: u32,
    pub desc: u64,
    pub used: u64,
    pub avail: u64,
    /// Guest-physical address of the used ring.
    pub log: u64,
}

/// A shared area of some protocol part: bytes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Area {
    pub size: u64,
    pub offset: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InflightSpec {
    pub area: Area,
    pub queues: u16,
    pub size: u16,
}

/// What a front end can ask. Rings are as the message has them: whoever acts on them checks the number.
#[derive(Debug)]
pub enum Request {
    Features,
    SetFeatures(u64),
    SetOwner,
    ResetOwner,
    SetMemTable(Vec<(RegionSpec, OwnedFd)>),
    SetLogBase(Area, OwnedFd),
    SetLogFd(OwnedFd),
    SetVringNum {
        ring: u32,
        size: u32,
    },
    SetVringAddr {
        ring: u32,
        addr: VringAddr,
    },
    SetVringBase {
        ring: u32,
        base: u32,
    },
    VringBase {
        ring: u32,
    },
    SetVringKick {
        ring: u32,
        fd: Option<OwnedFd>,
    },
    SetVringCall {
        ring: u32,
        fd: Option<OwnedFd>,
    },
    SetVringErr {
        ring: u32,
        fd: Option<OwnedFd>,
    },
    ProtocolFeatures,
    SetProtocolFeatures(u64),
    QueueNum,
    SetVringEnable {
        ring: u32,
        enabled: bool,
    },
    SendRarp([u8; 6]),
    NetSetMtu(u64),
    SetBackendReqFd(OwnedFd),
    Config {
        offset: u32,
        size: u32,
        flags: u32,
    },
    SetConfig {
        offset: u32,
        flags: u32,
        data: Vec<u8>,
    },
    InflightFd(InflightSpec),
    SetInflightFd(InflightSpec, OwnedFd),
    ResetDevice,
    MaxMemSlots,
    /// The descriptor is missing only while a page-fault handler is set up, which is not offered.
    AddMemReg(RegionSpec, OwnedFd),
    RemMemReg(RegionSpec),
    SetStatus(u64),
    Status,
}

/// Request numbers and names.
macro_rules! codes {
    ($($name:ident = $n:literal,)*) => {
        pub mod code {
            $(pub const $name: u32 = $n;)*
        }
        /// A request's name, for logs.
        pub fn name(request: u32) -> &'static str {
            match request {
                $(code::$name => stringify!($name),)*
                _ => "unknown request",
            }
        }
    };
}

codes! {
    GET_FEATURES = 1, SET_FEATURES = 2, SET_OWNER = 3, RESET_OWNER = 4, SET_MEM_TABLE = 5, SET_LOG_BASE = 6,
    SET_LOG_FD = 7, SET_VRING_NUM = 8, SET_VRING_ADDR = 9, SET_VRING_BASE = 10, GET_VRING_BASE = 11,
    SET_VRING_KICK = 12, SET_VRING_CALL = 13, SET_VRING_ERR = 14, GET_PROTOCOL_FEATURES = 15,
    SET_PROTOCOL_FEATURES = 16, GET_QUEUE_NUM = 17, SET_VRING_ENABLE = 18, SEND_RARP = 19, NET_SET_MTU = 20,
    SET_BACKEND_REQ_FD = 21, GET_CONFIG = 24, SET_CONFIG = 25, GET_INFLIGHT_FD = 31, SET_INFLIGHT_FD = 32,
    RESET_DEVICE = 34, GET_MAX_MEM_SLOTS = 36, ADD_MEM_REG = 37, REM_MEM_REG = 38, SET_STATUS = 39,
    GET_STATUS = 40,
}

/// The header of a message that has begun to arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub request: u32,
    /// The front end waits for a reply even where the request has none.
    pub need_reply: bool,
    pub size: usize,
}

impl Header {
    pub fn parse(bytes: &[u8; HEADER]) -> Result<Header, BadMessage> {
        let mut r = Reader(bytes);
        let (request, flags, size) = (r.u32()?, r.u32()?, r.u32()?);
        if flags & VERSION_MASK != VERSION {
            return Err(BadMessage::Version);
        }
        if flags & REPLY != 0 {
            return Err(BadMessage::Reply);
        }
        let size = usize::try_from(size).ok().filter(|n| *n <= PAYLOAD_MAX).ok_or(BadMessage::TooLong)?;
        Ok(Header { request, need_reply: flags & NEED_REPLY != 0, size })
    }
}

impl Request {
    /// Reads a whole message. Descriptors that no request takes are closed, and are an error.
    pub fn parse(request: u32, payload: &[u8], fds: Vec<OwnedFd>) -> Result<Request, BadMessage> {
        let mut r = Reader(payload);
        let mut fds = fds.into_iter();
        let parsed = Request::read(request, &mut r, &mut fds)?;
        if !r.0.is_empty() {
            return Err(BadMessage::Size);
        }
        if fds.next().is_some() {
            return Err(BadMessage::Fds);
        }
        Ok(parsed)
    }

    fn read(request: u32, r: &mut Reader<'_>, fds: &mut std::vec::IntoIter<OwnedFd>) -> Result<Request, BadMessage> {
        let mut fd = || fds.next().ok_or(BadMessage::Fds);
        Ok(match request {
            code::GET_FEATURES => Request::Features,
            code::SET_FEATURES => Request::SetFeatures(r.u64()?),
            code::SET_OWNER => Request::SetOwner,
            code::RESET_OWNER => Request::ResetOwner,
            code::SET_MEM_TABLE => {
                let (n, _padding) = (r.u32()?, r.u32()?);
                if n as usize > FDS_MAX {
                    return Err(BadMessage::Value);
                }
                Request::SetMemTable((0..n).map(|_| Ok((r.region()?, fd()?))).collect::<Result<_, BadMessage>>()?)
            }
            code::SET_LOG_BASE => Request::SetLogBase(r.area()?, fd()?),
            code::SET_LOG_FD => Request::SetLogFd(fd()?),
            code::SET_VRING_NUM => Request::SetVringNum { ring: r.u32()?, size: r.u32()? },
            code::SET_VRING_ADDR => {
                let (ring, flags) = (r.u32()?, r.u32()?);
                let (desc, used, avail, log) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
                Request::SetVringAddr { ring, addr: VringAddr { flags, desc, used, avail, log } }
            }
            code::SET_VRING_BASE => Request::SetVringBase { ring: r.u32()?, base: r.u32()? },
            code::GET_VRING_BASE => {
                let (ring, _unused) = (r.u32()?, r.u32()?);
                Request::VringBase { ring }
            }
            code::SET_VRING_KICK | code::SET_VRING_CALL | code::SET_VRING_ERR => {
                let word = r.u64()?;
                let ring = (word & 0xff) as u32;
                let fd = if word & NO_FD == 0 { Some(fd()?) } else { None };
                match request {
                    code::SET_VRING_KICK => Request::SetVringKick { ring, fd },
                    code::SET_VRING_CALL => Request::SetVringCall { ring, fd },
                    _ => Request::SetVringErr { ring, fd },
                }
            }
            code::GET_PROTOCOL_FEATURES => Request::ProtocolFeatures,
            code::SET_PROTOCOL_FEATURES => Request::SetProtocolFeatures(r.u64()?),
            code::GET_QUEUE_NUM => Request::QueueNum,
            code::SET_VRING_ENABLE => Request::SetVringEnable { ring: r.u32()?, enabled: r.flag()? },
            code::SEND_RARP => {
                let b = r.u64()?.to_ne_bytes();
                Request::SendRarp([b[0], b[1], b[2], b[3], b[4], b[5]])
            }
            code::NET_SET_MTU => Request::NetSetMtu(r.u64()?),
            code::SET_BACKEND_REQ_FD => Request::SetBackendReqFd(fd()?),
            code::GET_CONFIG => {
                let (offset, size, flags) = (r.u32()?, r.u32()?, r.u32()?);
                r.bytes(size)?;
                Request::Config { offset, size, flags }
            }
            code::SET_CONFIG => {
                let (offset, size, flags) = (r.u32()?, r.u32()?, r.u32()?);
                Request::SetConfig { offset, flags, data: r.bytes(size)?.to_vec() }
            }
            code::GET_INFLIGHT_FD => Request::InflightFd(r.inflight()?),
            code::SET_INFLIGHT_FD => Request::SetInflightFd(r.inflight()?, fd()?),
            code::RESET_DEVICE => Request::ResetDevice,
            code::GET_MAX_MEM_SLOTS => Request::MaxMemSlots,
            code::ADD_MEM_REG => {
                r.u64()?;
                Request::AddMemReg(r.region()?, fd()?)
            }
            code::REM_MEM_REG => {
                r.u64()?;
                let region = r.region()?;
                // Some front ends attach the region's descriptor here too.
                drop(fds.next());
                Request::RemMemReg(region)
            }
            code::SET_STATUS => Request::SetStatus(r.u64()?),
            code::GET_STATUS => Request::Status,
            _ => return Err(BadMessage::Request),
        })
    }
}

/// What is left of a payload.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadMessage> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(BadMessage::Size)?;
        self.0 = rest;
        Ok(*head)
    }

    fn u16(&mut self) -> Result<u16, BadMessage> {
        self.array().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Result<u32, BadMessage> {
        self.array().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Result<u64, BadMessage> {
        self.array().map(u64::from_ne_bytes)
    }

    fn flag(&mut self) -> Result<bool, BadMessage> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(BadMessage::Value),
        }
    }

    fn bytes(&mut self, n: u32) -> Result<&'a [u8], BadMessage> {
        let n = usize::try_from(n).ok().filter(|n| *n <= CONFIG_MAX).ok_or(BadMessage::Value)?;
        let (head, rest) = self.0.split_at_checked(n).ok_or(BadMessage::Size)?;
        self.0 = rest;
        Ok(head)
    }

    fn area(&mut self) -> Result<Area, BadMessage> {
        Ok(Area { size: self.u64()?, offset: self.u64()? })
    }

    fn region(&mut self) -> Result<RegionSpec, BadMessage> {
        let (gpa, len, user, offset) = (self.u64()?, self.u64()?, self.u64()?, self.u64()?);
        Ok(RegionSpec { gpa, len, user, offset })
    }

    /// Front ends whose compiler pads the message send its padding.
    fn inflight(&mut self) -> Result<InflightSpec, BadMessage> {
        let spec = InflightSpec { area: self.area()?, queues: self.u16()?, size: self.u16()? };
        if self.0.len() == 4 {
            self.0 = &[];
        }
        Ok(spec)
    }
}

/// What goes back.
#[derive(Debug, Default)]
pub struct Reply {
    pub bytes: Vec<u8>,
    pub fd: Option<OwnedFd>,
}

impl Reply {
    pub fn empty(request: u32) -> Reply {
        Reply::of(request, &[])
    }

    pub fn u64(request: u32, value: u64) -> Reply {
        Reply::of(request, &value.to_ne_bytes())
    }

    /// What `need_reply` asks for: 0 is success.
    pub fn ack(request: u32, done: bool) -> Reply {
        Reply::u64(request, u64::from(!done))
    }

    pub fn vring_state(request: u32, ring: u32, value: u32) -> Reply {
        Reply::of(request, &[ring.to_ne_bytes(), value.to_ne_bytes()].concat())
    }

    /// `data` of no bytes says that the space has no such range.
    pub fn config(request: u32, offset: u32, flags: u32, data: &[u8]) -> Reply {
        let head = [offset, data.len() as u32, flags].map(u32::to_ne_bytes).concat();
        let payload = if data.is_empty() { Vec::new() } else { [&head, data].concat() };
        Reply::of(request, &payload)
    }

    pub fn inflight(request: u32, spec: InflightSpec, fd: Option<OwnedFd>) -> Reply {
        let mut payload = [spec.area.size.to_ne_bytes(), spec.area.offset.to_ne_bytes()].concat();
        payload.extend([spec.queues.to_ne_bytes(), spec.size.to_ne_bytes()].concat());
        // Padding, as front ends in C expect.
        payload.extend([0; 4]);
        Reply { fd, ..Reply::of(request, &payload) }
    }

    fn of(request: u32, payload: &[u8]) -> Reply {
        let head = [request, VERSION | REPLY, payload.len() as u32].map(u32::to_ne_bytes).concat();
        Reply { bytes: [&head, payload].concat(), fd: None }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fd() -> OwnedFd {
        rustix::pipe::pipe().unwrap().0
    }

    fn parse(request: u32, words: &[u32], n_fds: usize) -> Result<Request, BadMessage> {
        let payload: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        Request::parse(request, &payload, (0..n_fds).map(|_| fd()).collect())
    }

    #[test]
    fn headers() {
        let check = |words: [u32; 3], expected| {
            let mut bytes = [0; HEADER];
            bytes.copy_from_slice(&words.map(u32::to_ne_bytes).concat());
            assert_eq!(Header::parse(&bytes), expected, "{words:?}");
        };
        check([1, 1, 0], Ok(Header { request: 1, need_reply: false, size: 0 }));
        check([1, 9, 512], Ok(Header { request: 1, need_reply: true, size: 512 }));
        check([1, 1, 513], Err(BadMessage::TooLong));
        check([1, 1, u32::MAX], Err(BadMessage::TooLong));
        check([1, 2, 0], Err(BadMessage::Version));
        check([1, 5, 0], Err(BadMessage::Reply));
    }

    #[test]
    fn payloads_and_descriptors_are_as_many_as_they_should() {
        let error = |r: Result<Request, BadMessage>| r.err();
        assert!(matches!(parse(code::SET_VRING_NUM, &[3, 256], 0), Ok(Request::SetVringNum { ring: 3, size: 256 })));
        assert_eq!(error(parse(code::SET_VRING_NUM, &[3], 0)), Some(BadMessage::Size));
        assert_eq!(error(parse(code::SET_VRING_NUM, &[3, 1, 1], 0)), Some(BadMessage::Size));
        assert_eq!(error(parse(code::SET_VRING_NUM, &[3, 256], 1)), Some(BadMessage::Fds));
        assert!(matches!(parse(code::SET_VRING_KICK, &[3, 0], 1), Ok(Request::SetVringKick { ring: 3, fd: Some(_) })));
        assert!(matches!(parse(code::SET_VRING_CALL, &[0x103, 0], 0), Ok(Request::SetVringCall { ring: 3, fd: None })));
        assert_eq!(error(parse(code::SET_VRING_KICK, &[3, 0], 0)), Some(BadMessage::Fds));
        assert_eq!(error(parse(code::SET_VRING_KICK, &[0x103, 0], 1)), Some(BadMessage::Fds));
        assert_eq!(error(parse(code::SET_VRING_ENABLE, &[0, 2], 0)), Some(BadMessage::Value));
        let region = [0, 0, 4096, 0, 0, 0, 0, 0];
        assert_eq!(error(parse(code::SET_MEM_TABLE, &[&[1, 0], &region[..]].concat(), 0)), Some(BadMessage::Fds));
        assert_eq!(error(parse(code::SET_MEM_TABLE, &[&[1, 0], &region[..]].concat(), 2)), Some(BadMessage::Fds));
        assert_eq!(error(parse(code::SET_MEM_TABLE, &[2, 0], 0)), Some(BadMessage::Size));
        assert_eq!(error(parse(code::SET_MEM_TABLE, &[9, 0], 0)), Some(BadMessage::Value));
        assert_eq!(error(parse(code::SET_LOG_BASE, &[1, 0, 0, 0], 0)), Some(BadMessage::Fds));
        assert_eq!(error(parse(code::GET_CONFIG, &[0, 257, 0], 0)), Some(BadMessage::Value));
        assert_eq!(error(parse(99, &[], 0)), Some(BadMessage::Request));
    }

    #[test]
    fn replies() {
        let r = Reply::u64(code::GET_FEATURES, 7);
        assert_eq!(r.bytes, [1u32, 5, 8, 7, 0].map(u32::to_ne_bytes).concat());
        assert_eq!(Reply::ack(code::ADD_MEM_REG, false).bytes, [37u32, 5, 8, 1, 0].map(u32::to_ne_bytes).concat());
        assert_eq!(Reply::config(24, 2, 0, &[]).bytes, [24u32, 5, 0].map(u32::to_ne_bytes).concat());
        assert_eq!(Reply::vring_state(11, 3, 9).bytes, [11u32, 5, 8, 3, 9].map(u32::to_ne_bytes).concat());
    }

    proptest! {
        // Whatever comes is read or refused, and never costs a descriptor.
        #[test]
        fn any_bytes(request in 0u32..64, payload in prop::collection::vec(any::<u8>(), 0..PAYLOAD_MAX), n in 0usize..10) {
            let (read, write) = rustix::pipe::pipe().unwrap();
            let fds = (0..n).map(|_| write.try_clone().unwrap()).collect();
            drop(Request::parse(request, &payload, fds));
            drop(write);
            // End of file: no writer is left.
            let mut byte = [0];
            prop_assert_eq!(rustix::io::read(&read, &mut byte).unwrap(), 0);
        }
    }
}
