//! A guest's memory: an immutable table of mapped regions, shared by all of a port's rings. A change makes a new
//! table, which shares the mappings of regions that stay; one that left is unmapped when the last table with it
//! is dropped, that is when no ring uses it any more.

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::mapping::{MapError, Mapping};

/// Regions of one guest.
pub const REGIONS_MAX: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    #[error("memory region: {0}")]
    Map(#[from] MapError),
    #[error("memory region {gpa:#x}+{len:#x} wraps around")]
    Wraps { gpa: u64, len: u64 },
    #[error("memory region {gpa:#x}+{len:#x} overlaps another")]
    Overlaps { gpa: u64, len: u64 },
    #[error("more than {REGIONS_MAX} memory regions")]
    TooMany,
    #[error("no memory region {gpa:#x}+{len:#x}")]
    Unknown { gpa: u64, len: u64 },
}

/// Where a region is, as the front end describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionSpec {
    /// Guest-physical address.
    pub gpa: u64,
    pub len: u64,
    /// Address in the front end, by which it names rings.
    pub user: u64,
    /// Where the region begins in its file.
    pub offset: u64,
}

impl RegionSpec {
    fn overlaps(&self, o: &RegionSpec) -> bool {
        let both = |a: u64, b: u64| a < b.saturating_add(o.len) && b < a.saturating_add(self.len);
        both(self.gpa, o.gpa) || both(self.user, o.user)
    }
}

pub struct Region {
    pub spec: RegionSpec,
    mapping: Mapping,
}

impl Region {
    pub fn host(&self) -> NonNull<u8> {
        self.mapping.base()
    }

    pub fn is_dead(&self) -> bool {
        self.mapping.is_dead()
    }

    /// The offset of `len` bytes from `address` in a region that begins at `start`, if it has them all. Also checked
    /// where `len` is 0.
    fn offset(&self, start: u64, address: u64, len: u64) -> Option<usize> {
        let at = address.checked_sub(start)?;
        let inside = at < self.spec.len && len <= self.spec.len - at;
        usize::try_from(at).ok().filter(|_| inside)
    }

    fn pointer(&self, offset: usize) -> Option<NonNull<u8>> {
        NonNull::new(self.host().as_ptr().wrapping_add(offset))
    }
}

#[derive(Clone, Default)]
pub struct GuestMemory {
    /// By guest-physical address, apart from each other.
    regions: Box<[Arc<Region>]>,
}

impl GuestMemory {
    /// The table with one more region.
    pub fn with(&self, spec: RegionSpec, file: impl AsFd) -> Result<GuestMemory, MemoryError> {
        let RegionSpec { gpa, len, user, .. } = spec;
        if self.regions.len() >= REGIONS_MAX {
            return Err(MemoryError::TooMany);
        }
        if gpa.checked_add(len).is_none() || user.checked_add(len).is_none() {
            return Err(MemoryError::Wraps { gpa, len });
        }
        if self.regions.iter().any(|r| r.spec.overlaps(&spec)) {
            return Err(MemoryError::Overlaps { gpa, len });
        }
        let mapping = Mapping::new(file, spec.offset, len)?;
        let mut regions = self.regions.to_vec();
        let at = regions.partition_point(|r| r.spec.gpa < gpa);
        regions.insert(at, Arc::new(Region { spec, mapping }));
        Ok(GuestMemory { regions: regions.into() })
    }

    /// The table without a region; the file's offset does not count.
    pub fn without(&self, spec: RegionSpec) -> Result<GuestMemory, MemoryError> {
        let same = |r: &Region| (r.spec.gpa, r.spec.len, r.spec.user) == (spec.gpa, spec.len, spec.user);
        let regions: Box<[_]> = self.regions.iter().filter(|r| !same(r)).cloned().collect();
        match regions.len() < self.regions.len() {
            true => Ok(GuestMemory { regions }),
            false => Err(MemoryError::Unknown { gpa: spec.gpa, len: spec.len }),
        }
    }

    pub fn regions(&self) -> &[Arc<Region>] {
        &self.regions
    }

    /// Where the `len` bytes at guest-physical address `gpa` are, if one region has them all.
    pub fn slice(&self, gpa: u64, len: u32) -> Option<NonNull<u8>> {
        let i = self.regions.partition_point(|r| r.spec.gpa <= gpa).checked_sub(1)?;
        let r = &self.regions[i];
        r.pointer(r.offset(r.spec.gpa, gpa, len.into())?)
    }

    /// The same for an address of the front end.
    pub fn user_to_host(&self, user: u64, len: u64) -> Option<NonNull<u8>> {
        self.regions.iter().find_map(|r| r.pointer(r.offset(r.spec.user, user, len)?))
    }

    /// The guest-physical address of an address of the front end.
    pub fn user_to_gpa(&self, user: u64) -> Option<u64> {
        self.regions.iter().find_map(|r| Some(r.spec.gpa + r.offset(r.spec.user, user, 1)? as u64))
    }

    /// Some region's file has been shortened under us.
    pub fn is_dead(&self) -> bool {
        self.regions.iter().any(|r| r.is_dead())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::fs::MemfdFlags;

    use super::*;

    fn file() -> OwnedFd {
        let f = rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&f, 0x10000).unwrap();
        f
    }

    fn spec(gpa: u64, len: u64, user: u64) -> RegionSpec {
        RegionSpec { gpa, len, user, offset: 0x1000 }
    }

    #[test]
    fn translates_what_one_region_has() {
        let f = file();
        let m = GuestMemory::default().with(spec(0x9000, 0x1000, 0x7000_0000), &f).unwrap();
        let m = m.with(spec(0x1000, 0x2000, 0x8000_0000), &f).unwrap();
        let first = m.regions()[0].host();
        assert_eq!(m.slice(0x1000, 0x2000), Some(first));
        assert_eq!(m.slice(0x1fff, 1).map(|p| p.addr().get() - first.addr().get()), Some(0xfff));
        for (gpa, len) in
            [(0xfff, 1), (0x2fff, 2), (0x3000, 0), (0x3000, 1), (0x1000, u32::MAX), (u64::MAX, 1), (0, 0x2000)]
        {
            assert_eq!(m.slice(gpa, len), None, "{gpa:#x}+{len:#x}");
        }
        assert_eq!(m.user_to_host(0x8000_0000, 0x2000), Some(first));
        assert_eq!(m.user_to_host(0x8000_0001, 0x2000), None);
        assert_eq!(m.user_to_host(0x8000_0001, u64::MAX), None);
        assert_eq!((m.user_to_gpa(0x7000_0fff), m.user_to_gpa(0x7000_1000)), (Some(0x9fff), None));
        assert_eq!(GuestMemory::default().slice(0, 0), None);
    }

    #[test]
    fn bad_regions_change_nothing() {
        let f = file();
        let m = GuestMemory::default().with(spec(0x2000, 0x2000, 0x7000_0000), &f).unwrap();
        let error = |s| m.with(s, &f).map(|_| ()).unwrap_err().to_string();
        assert_eq!(error(spec(0x3fff, 1, 0)), "memory region 0x3fff+0x1 overlaps another");
        assert_eq!(error(spec(0x1000, 0x1001, 0)), "memory region 0x1000+0x1001 overlaps another");
        assert_eq!(error(spec(0x8000, 1, 0x7000_0001)), "memory region 0x8000+0x1 overlaps another");
        assert_eq!(error(spec(u64::MAX, 2, 0)), "memory region 0xffffffffffffffff+0x2 wraps around");
        assert_eq!(error(spec(0x8000, 0x10000, 0)), "memory region: the file ends before the region does");
        assert_eq!(error(spec(0x8000, 0, 0)), "memory region: empty or too large");
        assert!(m.without(spec(0x2000, 0x1000, 0x7000_0000)).is_err());
        assert_eq!(m.without(spec(0x2000, 0x2000, 0x7000_0000)).unwrap().regions().len(), 0);
        let mut full = GuestMemory::default();
        for i in 0..REGIONS_MAX as u64 {
            full = full.with(spec(i << 16, 0x1000, i << 16), &f).unwrap();
        }
        assert!(matches!(full.with(spec(1 << 40, 0x1000, 1 << 40), &f), Err(MemoryError::TooMany)));
    }
}
