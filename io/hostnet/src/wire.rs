//! The netlink format (RFC 3549; linux/netlink.h): a datagram holds messages, a message holds a fixed
//! part and attributes, all aligned to 4 bytes, integers in host order.
//!
//! Iterators end at the first length that does not fit; they never read outside the slice.

/// Size of `nlmsghdr`.
pub const HEADER_LEN: usize = 16;
/// Nested attributes and byte order flags share the type field.
const TYPE_MASK: u16 = 0x3fff;

pub const NLMSG_NOOP: u16 = 1;
pub const NLMSG_ERROR: u16 = 2;
pub const NLMSG_DONE: u16 = 3;

pub const NLM_F_REQUEST: u16 = 0x1;
pub const NLM_F_ACK: u16 = 0x4;
pub const NLM_F_DUMP_INTR: u16 = 0x10;
pub const NLM_F_DUMP: u16 = 0x300;
pub const NLM_F_REPLACE: u16 = 0x100;
pub const NLM_F_EXCL: u16 = 0x200;
pub const NLM_F_CREATE: u16 = 0x400;
pub const NLM_F_APPEND: u16 = 0x800;

const fn align(n: usize) -> usize {
    (n + 3) & !3
}

/// One message: its header's fields and the bytes behind the header.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    pub kind: u16,
    pub flags: u16,
    pub seq: u32,
    pub port: u32,
    pub body: &'a [u8],
}

impl<'a> Message<'a> {
    /// The fixed part of `N` bytes and the attributes behind it.
    pub fn split<const N: usize>(&self) -> Option<(&'a [u8; N], Attrs<'a>)> {
        let (fixed, _) = self.body.split_first_chunk::<N>()?;
        let rest = self.body.get(align(N)..).unwrap_or_default();
        Some((fixed, Attrs(rest)))
    }

    /// The errno of an `NLMSG_ERROR` (0 = acknowledgement) or of an `NLMSG_DONE`, positive.
    pub fn errno(&self) -> Option<i32> {
        let code = i32::from_ne_bytes(*self.body.first_chunk::<4>()?);
        code.checked_neg()
    }
}

/// The messages of one datagram.
pub struct Messages<'a>(pub &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let h = self.0.first_chunk::<HEADER_LEN>()?;
        let len = u32_at(h, 0) as usize;
        if len < HEADER_LEN || len > self.0.len() {
            self.0 = &[];
            return None;
        }
        let body = &self.0[HEADER_LEN..len];
        let m = Message { kind: u16_at(h, 4), flags: u16_at(h, 6), seq: u32_at(h, 8), port: u32_at(h, 12), body };
        self.0 = self.0.get(align(len)..).unwrap_or_default();
        Some(m)
    }
}

/// One attribute.
#[derive(Clone, Copy, Debug)]
pub struct Attr<'a> {
    pub kind: u16,
    pub data: &'a [u8],
}

impl<'a> Attr<'a> {
    pub fn u8(&self) -> Option<u8> {
        self.data.first().copied()
    }
    pub fn u16(&self) -> Option<u16> {
        self.data.first_chunk().map(|b| u16::from_ne_bytes(*b))
    }
    pub fn u32(&self) -> Option<u32> {
        self.data.first_chunk().map(|b| u32::from_ne_bytes(*b))
    }
    pub fn i32(&self) -> Option<i32> {
        self.data.first_chunk().map(|b| i32::from_ne_bytes(*b))
    }
    pub fn mac(&self) -> Option<[u8; 6]> {
        self.data.try_into().ok()
    }
    /// An address: its family is its length.
    pub fn ip(&self) -> Option<std::net::IpAddr> {
        ip(self.data)
    }
    /// A text that may or may not carry its terminating zero.
    pub fn text(&self) -> String {
        let end = self.data.iter().position(|&b| b == 0).unwrap_or(self.data.len());
        String::from_utf8_lossy(&self.data[..end]).into_owned()
    }
    pub fn nested(&self) -> Attrs<'a> {
        Attrs(self.data)
    }
}

/// The attributes of a message or of a nest.
#[derive(Clone, Copy)]
pub struct Attrs<'a>(pub &'a [u8]);

impl<'a> Iterator for Attrs<'a> {
    type Item = Attr<'a>;

    fn next(&mut self) -> Option<Attr<'a>> {
        let h = self.0.first_chunk::<4>()?;
        let len = usize::from(u16_at(h, 0));
        if len < 4 || len > self.0.len() {
            self.0 = &[];
            return None;
        }
        let a = Attr { kind: u16_at(h, 2) & TYPE_MASK, data: &self.0[4..len] };
        self.0 = self.0.get(align(len)..).unwrap_or_default();
        Some(a)
    }
}

pub(crate) fn ip(b: &[u8]) -> Option<std::net::IpAddr> {
    match b.len() {
        4 => <[u8; 4]>::try_from(b).ok().map(Into::into),
        16 => <[u8; 16]>::try_from(b).ok().map(Into::into),
        _ => None,
    }
}

/// Reads a host-order integer; 0 outside the slice (callers pass fixed-size headers).
pub(crate) fn u16_at(b: &[u8], at: usize) -> u16 {
    b.get(at..).and_then(|s| s.first_chunk()).map_or(0, |c| u16::from_ne_bytes(*c))
}
pub(crate) fn u32_at(b: &[u8], at: usize) -> u32 {
    b.get(at..).and_then(|s| s.first_chunk()).map_or(0, |c| u32::from_ne_bytes(*c))
}

/// Builds one request.
pub struct Builder(Vec<u8>);

impl Builder {
    /// `fixed` is the family's fixed part (`ifinfomsg`, `rtmsg`, ...).
    pub fn new(kind: u16, flags: u16, seq: u32, fixed: &[u8]) -> Builder {
        let mut b = Vec::with_capacity(128);
        b.extend_from_slice(&0u32.to_ne_bytes());
        b.extend_from_slice(&kind.to_ne_bytes());
        b.extend_from_slice(&flags.to_ne_bytes());
        b.extend_from_slice(&seq.to_ne_bytes());
        b.extend_from_slice(&0u32.to_ne_bytes());
        b.extend_from_slice(fixed);
        let mut b = Builder(b);
        b.pad();
        b
    }

    fn pad(&mut self) {
        self.0.resize(align(self.0.len()), 0);
    }

    pub fn attr(&mut self, kind: u16, data: &[u8]) -> &mut Self {
        let len = u16::try_from(data.len() + 4).expect("requests are built from short values");
        self.0.extend_from_slice(&len.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(data);
        self.pad();
        self
    }

    pub fn u32(&mut self, kind: u16, v: u32) -> &mut Self {
        self.attr(kind, &v.to_ne_bytes())
    }

    pub fn text(&mut self, kind: u16, s: &str) -> &mut Self {
        let mut z = s.as_bytes().to_vec();
        z.push(0);
        self.attr(kind, &z)
    }

    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Builder)) -> &mut Self {
        let at = self.0.len();
        self.attr(kind, &[]);
        fill(self);
        let len = u16::try_from(self.0.len() - at).expect("requests are built from short values");
        self.0[at..at + 2].copy_from_slice(&len.to_ne_bytes());
        self
    }

    pub fn bytes(&mut self, b: &[u8]) -> &mut Self {
        self.0.extend_from_slice(b);
        self.pad();
        self
    }

    pub fn finish(&mut self) -> &[u8] {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut b = Builder::new(16, NLM_F_REQUEST, 7, &[1, 2, 3]);
        b.text(3, "eth0").u32(4, 1500).nest(18, |n| {
            n.text(1, "veth");
        });
        b.finish().to_vec()
    }

    #[test]
    fn built_message_reads_back() {
        let bytes = sample();
        let all: Vec<_> = Messages(&bytes).collect();
        assert_eq!(all.len(), 1);
        let (fixed, attrs) = all[0].split::<3>().unwrap();
        assert_eq!(fixed, &[1, 2, 3]);
        let attrs: Vec<_> = attrs.collect();
        assert_eq!(attrs[0].text(), "eth0");
        assert_eq!(attrs[1].u32(), Some(1500));
        assert_eq!(attrs[2].nested().next().unwrap().text(), "veth");
    }

    #[test]
    fn every_truncation_and_every_length_is_survived() {
        let good = sample();
        for cut in 0..good.len() {
            for m in Messages(&good[..cut]) {
                let _ = m.split::<3>().map(|(_, a)| a.count());
            }
        }
        for at in 0..good.len() {
            for v in [0u8, 1, 3, 4, 5, 0x7f, 0xff] {
                let mut bad = good.clone();
                bad[at] = v;
                let mut steps = 0;
                for m in Messages(&bad) {
                    steps += 1;
                    let _ = m.errno();
                    steps += m.split::<3>().map_or(0, |(_, a)| a.map(|x| x.nested().count() + 1).sum());
                }
                assert!(steps < 64, "no endless walk");
            }
        }
    }
}
