//! Classic pcap files (<https://www.tcpdump.org/manpages/pcap-savefile.5.html>): written as microseconds in host order,
//! read in both orders with micro- or nanoseconds. Ethernet frames only.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use fv_core::Nanos;
use fv_packet::Packet;

const MAGIC_US: u32 = 0xa1b2_c3d4;
const MAGIC_NS: u32 = 0xa1b2_3c4d;
const LINKTYPE_ETHERNET: u32 = 1;
const SNAPLEN: u32 = 1518;
/// Longer records are taken as damage.
const RECORD_MAX: u32 = 256 * 1024;

/// A capture being written. Each packet is in the file when `write` returns.
pub struct Writer<W: Write = File> {
    out: W,
}

impl Writer<File> {
    /// Appends to the capture at `path`; a new or empty file gets a header.
    pub fn append(path: &Path) -> io::Result<Writer> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        if file.metadata()?.len() == 0 { Writer::new(file) } else { Ok(Writer { out: file }) }
    }
}

impl<W: Write> Writer<W> {
    /// Begins a capture.
    pub fn new(mut out: W) -> io::Result<Writer<W>> {
        let mut header = [0u8; 24];
        header[..4].copy_from_slice(&MAGIC_US.to_ne_bytes());
        header[4..6].copy_from_slice(&2u16.to_ne_bytes());
        header[6..8].copy_from_slice(&4u16.to_ne_bytes());
        header[16..20].copy_from_slice(&SNAPLEN.to_ne_bytes());
        header[20..].copy_from_slice(&LINKTYPE_ETHERNET.to_ne_bytes());
        out.write_all(&header)?;
        Ok(Writer { out })
    }

    /// Appends `frame`, seen at `wall` since the epoch.
    pub fn write(&mut self, wall: Nanos, frame: &[u8]) -> io::Result<()> {
        let len = u32::try_from(frame.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut record = Vec::with_capacity(16 + frame.len());
        for word in [wall.secs() as u32, (wall.0 / 1000 % 1_000_000) as u32, len, len] {
            record.extend_from_slice(&word.to_ne_bytes());
        }
        record.extend_from_slice(frame);
        self.out.write_all(&record)?;
        self.out.flush()
    }

    pub fn into_inner(self) -> W {
        self.out
    }
}

/// Why a capture cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum PcapError {
    #[error("not a pcap file")]
    NotPcap,
    #[error("link type {0} is not Ethernet")]
    LinkType(u32),
    #[error("bad record length {0}")]
    BadLength(u32),
    #[error("file ends inside a record")]
    Truncated,
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A capture being read.
pub struct Reader<R: Read> {
    input: R,
    word: fn([u8; 4]) -> u32,
    /// Nanoseconds in a unit of the fractional part.
    unit: u64,
}

impl Reader<BufReader<File>> {
    pub fn open(path: &Path) -> Result<Self, PcapError> {
        Reader::new(BufReader::new(File::open(path)?))
    }
}

impl<R: Read> Reader<R> {
    pub fn new(mut input: R) -> Result<Reader<R>, PcapError> {
        let mut header = [0u8; 24];
        input.read_exact(&mut header).map_err(|_| PcapError::NotPcap)?;
        let magic = [header[0], header[1], header[2], header[3]];
        let (word, unit): (fn([u8; 4]) -> u32, u64) = match (u32::from_le_bytes(magic), u32::from_be_bytes(magic)) {
            (MAGIC_US, _) => (u32::from_le_bytes, 1000),
            (MAGIC_NS, _) => (u32::from_le_bytes, 1),
            (_, MAGIC_US) => (u32::from_be_bytes, 1000),
            (_, MAGIC_NS) => (u32::from_be_bytes, 1),
            _ => return Err(PcapError::NotPcap),
        };
        let link = word([header[20], header[21], header[22], header[23]]) & 0xffff;
        if link != LINKTYPE_ETHERNET {
            return Err(PcapError::LinkType(link));
        }
        Ok(Reader { input, word, unit })
    }

    /// The next frame and its time; `None` at the end.
    pub fn read(&mut self) -> Result<Option<(Nanos, Packet)>, PcapError> {
        let mut header = [0u8; 16];
        match read_full(&mut self.input, &mut header)? {
            0 => return Ok(None),
            16 => {}
            _ => return Err(PcapError::Truncated),
        }
        let at = |i: usize| (self.word)([header[i], header[i + 1], header[i + 2], header[i + 3]]);
        let time = u64::from(at(0)) * 1_000_000_000 + u64::from(at(4)) * self.unit;
        let len = at(8);
        if len > RECORD_MAX {
            return Err(PcapError::BadLength(len));
        }
        let mut packet = Packet::with_capacity(len as usize);
        let room = &mut packet.spare_mut()[..len as usize];
        if read_full(&mut self.input, room)? != len as usize {
            return Err(PcapError::Truncated);
        }
        packet.set_len(len as usize);
        Ok(Some((Nanos(time), packet)))
    }
}

/// Fills `buf` as far as the input goes.
fn read_full(input: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match input.read(&mut buf[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<(u64, Vec<u8>)>, PcapError> {
        let mut reader = Reader::new(bytes)?;
        let mut out = Vec::new();
        while let Some((t, p)) = reader.read()? {
            out.push((t.0, p.data().to_vec()));
        }
        Ok(out)
    }

    #[test]
    fn written_is_read() {
        let mut w = Writer::new(Vec::new()).unwrap();
        let t = Nanos(1_700_000_000_123_456_789);
        w.write(t, b"first frame").unwrap();
        w.write(t, b"").unwrap();
        w.write(t, &[7; 70_000]).unwrap();
        let bytes = w.into_inner();
        let t = 1_700_000_000_123_456_000;
        assert_eq!(all(&bytes).unwrap(), [(t, b"first frame".to_vec()), (t, vec![]), (t, vec![7; 70_000])]);
        for cut in 0..100 {
            let got = all(&bytes[..cut]);
            let whole = [24, 24 + 16 + 11, 24 + 16 + 11 + 16].contains(&cut);
            assert_eq!(got.is_ok(), whole, "{cut}");
        }
    }

    #[test]
    fn both_orders_and_units() {
        let file = |magic: u32, be: bool, fraction: u32| {
            let word = |v: u32| if be { v.to_be_bytes() } else { v.to_le_bytes() };
            let mut f = Vec::new();
            for v in [magic, 0, 0, 0, 65535, 1, 5, fraction, 3, 3] {
                f.extend_from_slice(&word(v));
            }
            f.extend_from_slice(b"abc");
            f
        };
        for be in [false, true] {
            for (magic, fraction) in [(MAGIC_US, 8), (MAGIC_NS, 8000)] {
                assert_eq!(all(&file(magic, be, fraction)).unwrap(), [(5_000_008_000, b"abc".to_vec())]);
            }
        }
        assert!(matches!(all(&file(1, false, 0)), Err(PcapError::NotPcap)));
        let mut long = file(MAGIC_US, false, 0);
        long[35] = 0xff;
        assert!(matches!(all(&long), Err(PcapError::BadLength(0xff00_0003))));
        long[20] = 101;
        assert!(matches!(all(&long), Err(PcapError::LinkType(101))));
    }

    #[test]
    fn appends_with_one_header() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pcap");
        for frame in [b"one", b"two"] {
            Writer::append(&path).unwrap().write(Nanos::from_secs(1), frame).unwrap();
        }
        let mut reader = Reader::open(&path).unwrap();
        assert_eq!(reader.read().unwrap().unwrap().1.data(), b"one");
        assert_eq!(reader.read().unwrap().unwrap().1.data(), b"two");
        assert!(reader.read().unwrap().is_none());
        assert!(Writer::append(dir.path()).is_err());
    }
}
