//! Files of other processes, mapped. Whoever holds such a file can shorten it under the mapping; a read behind
//! its new end is then a SIGBUS. The process's handler asks [`repair`], which puts zeros there and flags the
//! mapping; its owner looks at the flag when it is done with what it was doing.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use rustix::fs::FileType;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Mappings of all ports together.
pub const MAPPINGS_MAX: usize = 4096;
const PAGE: u64 = 4096;
/// The largest page that a file system has.
const PAGE_MAX: u64 = 1 << 30;

#[derive(Debug, thiserror::Error)]
pub enum MapError {
    #[error("not a file that can be mapped")]
    Kind,
    #[error("the file ends before the region does")]
    Short,
    #[error("empty or too large")]
    Length,
    #[error("too many mappings")]
    TooMany,
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// `len` bytes of a file from `offset`, shared, to be read and written.
pub struct Mapping {
    /// Of the page that has the first byte.
    start: NonNull<u8>,
    whole: usize,
    /// From `start` to the first byte.
    skip: usize,
    len: usize,
    entry: &'static Entry,
}

// SAFETY: a mapping is an address range that any thread may use; this type reads and writes nothing.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub fn new(file: impl AsFd, offset: u64, len: u64) -> Result<Mapping, MapError> {
        let stat = rustix::fs::fstat(&file).map_err(io::Error::from)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(MapError::Kind);
        }
        let end = offset.checked_add(len).ok_or(MapError::Length)?;
        if len == 0 {
            return Err(MapError::Length);
        }
        if u64::try_from(stat.st_size).map_or(true, |size| end > size) {
            return Err(MapError::Short);
        }
        // On hugetlbfs all addresses and lengths are multiples of its pages.
        let page = (stat.st_blksize as u64).clamp(PAGE, PAGE_MAX);
        let page = if page.is_power_of_two() { page } else { PAGE };
        let skip = offset & (page - 1);
        let whole = (skip + len).checked_next_multiple_of(page).ok_or(MapError::Length)?;
        let (whole, skip, len) = match (usize::try_from(whole), usize::try_from(skip), usize::try_from(len)) {
            (Ok(w), Ok(s), Ok(l)) => (w, s, l),
            _ => return Err(MapError::Length),
        };
        let entry = Entry::reserve().ok_or(MapError::TooMany)?;
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: a new mapping, where the kernel finds room for it.
        let mapped = unsafe { rustix::mm::mmap(std::ptr::null_mut(), whole, prot, flags, &file, offset - skip as u64) };
        let start = match mapped.map(|at| NonNull::new(at.cast::<u8>())) {
            Ok(Some(at)) => at,
            other => {
                entry.release();
                let error = other.err().map_or_else(|| io::ErrorKind::Other.into(), io::Error::from);
                return Err(error.into());
            }
        };
        entry.fill(start.as_ptr().addr(), whole, page as usize);
        // A core dump of the switch has no use for the memory of guests.
        // SAFETY: the range was just mapped; the advice changes nothing that is read there.
        let _ = unsafe { rustix::mm::madvise(start.as_ptr().cast(), whole, Advice::LinuxDontDump) };
        Ok(Mapping { start, whole, skip, len, entry })
    }

    /// The first byte.
    pub fn base(&self) -> NonNull<u8> {
        // SAFETY: `skip` is less than a page, inside the mapping.
        unsafe { self.start.add(self.skip) }
    }

    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The file has been shortened, and bytes were touched that it no longer has.
    pub fn is_dead(&self) -> bool {
        self.entry.dead.load(Ordering::Relaxed)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.entry.start.store(RESERVED, Ordering::Release);
        // SAFETY: the range is this mapping's alone, and whoever uses it holds the mapping.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.whole) };
        self.entry.release();
    }
}

/// What a signal handler can know of a mapping.
struct Entry {
    /// 0: free.
    start: AtomicUsize,
    len: AtomicUsize,
    page: AtomicUsize,
    dead: AtomicBool,
}

const RESERVED: usize = 1;

static ENTRIES: [Entry; MAPPINGS_MAX] = [const {
    Entry {
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        page: AtomicUsize::new(0),
        dead: AtomicBool::new(false),
    }
}; MAPPINGS_MAX];

static REPAIRS: AtomicU64 = AtomicU64::new(0);

/// Moves whenever some mapping dies.
#[inline]
pub fn repairs() -> u64 {
    REPAIRS.load(Ordering::Relaxed)
}

impl Entry {
    fn reserve() -> Option<&'static Entry> {
        ENTRIES.iter().find(|e| e.start.compare_exchange(0, RESERVED, Ordering::Acquire, Ordering::Relaxed).is_ok())
    }

    fn fill(&self, start: usize, len: usize, page: usize) {
        self.dead.store(false, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.page.store(page, Ordering::Relaxed);
        self.start.store(start, Ordering::Release);
    }

    fn release(&self) {
        self.start.store(0, Ordering::Release);
    }
}

/// For the handler of SIGBUS: if `address` is in a mapping, puts a page of zeros there, flags the mapping, and
/// says true; the instruction may then be repeated. Does nothing that a signal handler may not do.
pub fn repair(address: usize) -> bool {
    for e in &ENTRIES {
        let start = e.start.load(Ordering::Acquire);
        let len = e.len.load(Ordering::Relaxed);
        if start <= RESERVED || address < start || address - start >= len {
            continue;
        }
        let page = e.page.load(Ordering::Relaxed);
        let at = address & !(page - 1);
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED);
        // SAFETY: the page is inside a mapping of this module, whose owner only ever touches it as bytes that
        // change under its hands; now they have become zeros.
        let mapped = unsafe { rustix::mm::mmap_anonymous(at as *mut _, page, prot, flags) };
        e.dead.store(true, Ordering::Relaxed);
        REPAIRS.fetch_add(1, Ordering::Relaxed);
        return mapped.is_ok();
    }
    false
}

#[cfg(test)]
mod tests {
    use rustix::fs::MemfdFlags;

    use super::*;

    fn file(len: u64) -> std::os::fd::OwnedFd {
        let f = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&f, len).unwrap();
        f
    }

    #[test]
    fn maps_what_the_file_has() {
        let f = file(3 * PAGE);
        rustix::io::pwrite(&f, b"hello", PAGE + 7).unwrap();
        let m = Mapping::new(&f, PAGE + 7, 5).unwrap();
        // SAFETY: the mapping has five bytes.
        assert_eq!(unsafe { m.base().cast::<[u8; 5]>().read() }, *b"hello");
        let error = |offset, len| Mapping::new(&f, offset, len).map(|_| ()).unwrap_err().to_string();
        assert!(Mapping::new(&f, 0, 3 * PAGE).is_ok());
        assert_eq!(error(0, 3 * PAGE + 1), "the file ends before the region does");
        assert_eq!(error(3 * PAGE, 1), "the file ends before the region does");
        assert_eq!(error(u64::MAX, 2), "empty or too large");
        assert_eq!(error(0, 0), "empty or too large");
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        assert!(matches!(Mapping::new(&pipe, 0, 1), Err(MapError::Kind)));
    }

    #[test]
    fn repairs_its_own_pages_only() {
        let f = file(4 * PAGE);
        rustix::io::pwrite(&f, &[7; 8192], PAGE).unwrap();
        let m = Mapping::new(&f, PAGE, 3 * PAGE).unwrap();
        let at = m.base().as_ptr();
        assert!(!repair(RESERVED) && !m.is_dead());
        assert!(repair(at.addr() + PAGE as usize + 3) && m.is_dead());
        // SAFETY: three pages are mapped.
        let (kept, zeroed) = unsafe { (*at, *at.add(PAGE as usize)) };
        assert_eq!((kept, zeroed), (7, 0));
        let (start, len) = (at.addr(), m.len());
        drop(m);
        assert!(!repair(start + len - 1), "what was unmapped is nobody's");
    }
}
