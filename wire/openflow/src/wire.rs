//! Reading and writing of big-endian fields.

use crate::error::OfError;

/// A cursor over bytes. Running short is the error that it was made with.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    buf: &'a [u8],
    short: OfError,
}

impl<'a> Reader<'a> {
    pub fn new(buf: &'a [u8], short: OfError) -> Self {
        Reader { buf, short }
    }
    /// A message's body.
    pub fn body(buf: &'a [u8]) -> Self {
        Reader::new(buf, OfError::BrcBadLen)
    }
    pub fn len(&self) -> usize {
        self.buf.len()
    }
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }
    /// What is left, without taking it.
    pub fn rest(&self) -> &'a [u8] {
        self.buf
    }
    pub fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.buf)
    }
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], OfError> {
        let (a, b) = self.buf.split_at_checked(n).ok_or(self.short)?;
        self.buf = b;
        Ok(a)
    }
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], OfError> {
        let (a, b) = self.buf.split_first_chunk::<N>().ok_or(self.short)?;
        self.buf = b;
        Ok(*a)
    }
    pub fn skip(&mut self, n: usize) -> Result<(), OfError> {
        self.bytes(n).map(drop)
    }
    pub fn u8(&mut self) -> Result<u8, OfError> {
        self.array::<1>().map(|a| a[0])
    }
    pub fn u16(&mut self) -> Result<u16, OfError> {
        self.array().map(u16::from_be_bytes)
    }
    pub fn u32(&mut self) -> Result<u32, OfError> {
        self.array().map(u32::from_be_bytes)
    }
    pub fn u64(&mut self) -> Result<u64, OfError> {
        self.array().map(u64::from_be_bytes)
    }
    /// The next `n` bytes as a cursor of their own.
    pub fn sub(&mut self, n: usize) -> Result<Reader<'a>, OfError> {
        Ok(Reader { buf: self.bytes(n)?, short: self.short })
    }
    /// Bytes that must be zero.
    pub fn zeros(&mut self, n: usize, error: OfError) -> Result<(), OfError> {
        if self.bytes(n)?.iter().all(|b| *b == 0) { Ok(()) } else { Err(error) }
    }
}

/// Appending to a buffer.
pub(crate) trait Put {
    fn buf(&mut self) -> &mut Vec<u8>;

    fn u8(&mut self, v: u8) -> &mut Self {
        self.buf().push(v);
        self
    }
    fn u16(&mut self, v: u16) -> &mut Self {
        self.put(&v.to_be_bytes())
    }
    fn u32(&mut self, v: u32) -> &mut Self {
        self.put(&v.to_be_bytes())
    }
    fn u64(&mut self, v: u64) -> &mut Self {
        self.put(&v.to_be_bytes())
    }
    fn put(&mut self, b: &[u8]) -> &mut Self {
        self.buf().extend_from_slice(b);
        self
    }
    fn zero(&mut self, n: usize) -> &mut Self {
        let len = self.buf().len() + n;
        self.buf().resize(len, 0);
        self
    }
    /// A text in a field of `n` bytes, cut to leave room for a final zero.
    fn text(&mut self, s: &str, n: usize) -> &mut Self {
        let mut len = s.len().min(n - 1);
        while !s.is_char_boundary(len) {
            len -= 1;
        }
        self.put(&s.as_bytes()[..len]).zero(n - len)
    }
    /// Zeros until what follows `start` is a multiple of 8 bytes.
    fn pad8(&mut self, start: usize) -> &mut Self {
        let n = (self.buf().len() - start).wrapping_neg() % 8;
        self.zero(n)
    }
    /// Ends a chain where no value is wanted.
    fn done(&mut self) {}
    /// Overwrites two bytes.
    fn set_u16(&mut self, at: usize, v: u16) {
        self.buf()[at..at + 2].copy_from_slice(&v.to_be_bytes());
    }
}

impl Put for Vec<u8> {
    fn buf(&mut self) -> &mut Vec<u8> {
        self
    }
}

/// Text of a fixed field: up to the first zero byte; what is not UTF-8 is replaced.
pub(crate) fn text(b: &[u8]) -> String {
    let n = b.iter().position(|c| *c == 0).unwrap_or(b.len());
    String::from_utf8_lossy(&b[..n]).into_owned()
}

/// One property of OpenFlow 1.4+ and of Nicira's extensible messages.
pub(crate) struct Prop<'a> {
    pub kind: u16,
    /// For the experimenter type (0xffff): who, and their type.
    pub experimenter: Option<(u32, u32)>,
    pub body: Reader<'a>,
}

impl<'a> Prop<'a> {
    /// Takes one property and its padding. Errors are BPC_BAD_LEN.
    pub fn pull(r: &mut Reader<'a>) -> Result<Prop<'a>, OfError> {
        let bad = OfError::BpcBadLen;
        let whole = r.rest();
        let mut head = Reader::new(whole, bad);
        let kind = head.u16()?;
        let len = usize::from(head.u16()?);
        if len < 4 || len.next_multiple_of(8) > whole.len() {
            return Err(bad);
        }
        let mut body = Reader::new(&whole[4..len], bad);
        r.skip(len.next_multiple_of(8))?;
        let experimenter = if kind >= 0xfffe { Some((body.u32()?, body.u32()?)) } else { None };
        Ok(Prop { kind, experimenter, body })
    }

    /// Nothing may be left of the value but padding that the length counts.
    pub fn end(&self) -> Result<(), OfError> {
        if self.body.len() < 4 { Ok(()) } else { Err(OfError::BpcBadLen) }
    }

    /// The error for a property that is not known.
    pub fn unknown(&self) -> OfError {
        if self.experimenter.is_some() { OfError::BpcBadExperimenter } else { OfError::BpcBadType }
    }
}

/// Writes one property: header, body, padding.
pub(crate) fn put_prop(out: &mut Vec<u8>, kind: u16, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.u16(kind).u16(0);
    body(out);
    let len = out.len() - start;
    out.set_u16(start + 2, len as u16);
    out.pad8(start);
}

/// A property of one or two bytes: its length counts its padding.
pub(crate) fn put_prop_u8(out: &mut Vec<u8>, kind: u16, v: u8) {
    out.u16(kind).u16(8).u8(v).zero(3);
}
pub(crate) fn put_prop_u16(out: &mut Vec<u8>, kind: u16, v: u16) {
    out.u16(kind).u16(8).u16(v).zero(2);
}
