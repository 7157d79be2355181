//! Protocol versions and sets of them.

use std::fmt;

/// An OpenFlow version, in the order of the wire numbers 1 to 6.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Version {
    V10 = 1,
    V11 = 2,
    V12 = 3,
    V13 = 4,
    V14 = 5,
    V15 = 6,
}

impl Version {
    pub const ALL: [Version; 6] = [Version::V10, Version::V11, Version::V12, Version::V13, Version::V14, Version::V15];

    /// The header's version byte.
    pub const fn wire(self) -> u8 {
        self as u8
    }

    pub const fn from_wire(v: u8) -> Option<Version> {
        match v {
            1 => Some(Version::V10),
            2 => Some(Version::V11),
            3 => Some(Version::V12),
            4 => Some(Version::V13),
            5 => Some(Version::V14),
            6 => Some(Version::V15),
            _ => None,
        }
    }

    /// Configuration's name, e.g. `OpenFlow13`.
    pub const fn name(self) -> &'static str {
        ["OpenFlow10", "OpenFlow11", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"][self as usize - 1]
    }

    /// Short name for message texts, e.g. `OF1.3`.
    pub const fn short(self) -> &'static str {
        ["OF1.0", "OF1.1", "OF1.2", "OF1.3", "OF1.4", "OF1.5"][self as usize - 1]
    }

    /// From configuration text: `OpenFlow13` or `OpenFlow1.3`, in any case.
    pub fn from_name(s: &str) -> Option<Version> {
        let digits = s.to_ascii_lowercase();
        let digits = digits.strip_prefix("openflow")?.replace('.', "");
        Version::ALL.into_iter().find(|v| v.name()[8..] == digits)
    }
}

/// A set of versions, as the hello bitmap carries it: bit N is wire version N.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct VersionSet(pub u32);

impl VersionSet {
    /// Every version that we speak.
    pub const ALL: VersionSet = VersionSet(0x7e);

    pub const fn of(v: Version) -> VersionSet {
        VersionSet(1 << v.wire())
    }
    /// Every wire version from 1 to `v`, known or not.
    pub const fn up_to(v: u8) -> VersionSet {
        VersionSet(if v >= 31 { !1 } else { (2u32 << v) - 2 })
    }
    pub const fn contains(self, v: Version) -> bool {
        self.0 & 1 << v.wire() != 0
    }
    pub const fn and(self, o: VersionSet) -> VersionSet {
        VersionSet(self.0 & o.0)
    }
    pub const fn with(self, v: Version) -> VersionSet {
        VersionSet(self.0 | 1 << v.wire())
    }
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// Highest known version of the set.
    pub fn highest(self) -> Option<Version> {
        Version::ALL.into_iter().rev().find(|v| self.contains(*v))
    }
    pub fn iter(self) -> impl Iterator<Item = Version> {
        Version::ALL.into_iter().filter(move |v| self.contains(*v))
    }
}

impl FromIterator<Version> for VersionSet {
    fn from_iter<I: IntoIterator<Item = Version>>(i: I) -> Self {
        i.into_iter().fold(VersionSet::default(), VersionSet::with)
    }
}

impl fmt::Debug for VersionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sets() {
        for v in Version::ALL {
            assert_eq!(Version::from_wire(v.wire()), Some(v));
            assert_eq!(Version::from_name(v.name()), Some(v));
        }
        assert_eq!(Version::from_name("openflow1.3"), Some(Version::V13));
        assert_eq!(Version::from_name("openflow16"), None);
        assert_eq!(VersionSet::up_to(4).highest(), Some(Version::V13));
        assert_eq!(VersionSet::up_to(9).and(VersionSet::ALL), VersionSet::ALL);
        assert_eq!(VersionSet::up_to(255).0, !1);
    }
}
