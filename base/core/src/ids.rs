//! Newtypes for the numbers that must not be confused with one another.

use std::fmt;

macro_rules! id {
    ($(#[$m:meta])* $name:ident($t:ty)) => {
        $(#[$m])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $t);
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl From<$t> for $name {
            fn from(v: $t) -> Self { Self(v) }
        }
    };
}

id!(/// A port number of a datapath ("odp port"), shared by all bridges of one datapath.
    DpPort(u32));
id!(/// An OpenFlow port number of one bridge, in the 32-bit form of OpenFlow 1.1+.
    OfPort(u32));
id!(/// A recirculation id; 0 is a packet that has not been recirculated.
    RecircId(u32));
id!(/// An OpenFlow table number; 255 is OFPTT_ALL.
    TableId(u8));
id!(/// An OpenFlow cookie.
    Cookie(u64));

impl DpPort {
    /// "No port": the reference's ODPP_NONE.
    pub const NONE: DpPort = DpPort(u32::MAX);
    /// The datapath's local port.
    pub const LOCAL: DpPort = DpPort(0);
}

impl OfPort {
    /// First number that is reserved (OFPP_MAX of OpenFlow 1.1+ is this value).
    pub const MAX: OfPort = OfPort(0xffff_ff00);
    pub const UNSET: OfPort = OfPort(0xffff_fff7);
    pub const IN_PORT: OfPort = OfPort(0xffff_fff8);
    pub const TABLE: OfPort = OfPort(0xffff_fff9);
    pub const NORMAL: OfPort = OfPort(0xffff_fffa);
    pub const FLOOD: OfPort = OfPort(0xffff_fffb);
    pub const ALL: OfPort = OfPort(0xffff_fffc);
    pub const CONTROLLER: OfPort = OfPort(0xffff_fffd);
    pub const LOCAL: OfPort = OfPort(0xffff_fffe);
    /// OFPP_ANY / OFPP_NONE.
    pub const NONE: OfPort = OfPort(0xffff_ffff);

    /// From the 16-bit number of OpenFlow 1.0; reserved numbers are widened.
    pub fn from_u16(p: u16) -> OfPort {
        if p >= 0xff00 { OfPort(0xffff_0000 | u32::from(p)) } else { OfPort(u32::from(p)) }
    }

    /// To the 16-bit number of OpenFlow 1.0; None where it has none.
    pub fn to_u16(self) -> Option<u16> {
        match self.0 {
            p if p < 0xff00 => Some(p as u16),
            p if p >= 0xffff_ff00 => Some(p as u16),
            _ => None,
        }
    }

    /// True for the numbers that name a behaviour (NORMAL, FLOOD ...), LOCAL among them.
    pub fn is_reserved(self) -> bool {
        self.0 >= Self::MAX.0
    }
}

/// A flow's unique id in the datapath: 128 bits, printed as a UUID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ufid(pub u128);

impl fmt::Display for Ufid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v = self.0;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            (v >> 96) as u32,
            (v >> 80) as u16,
            (v >> 64) as u16,
            (v >> 48) as u16,
            v & 0xffff_ffff_ffff
        )
    }
}

impl fmt::Debug for Ufid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Ufid {
    type Err = ();
    fn from_str(s: &str) -> Result<Self, ()> {
        let groups: Vec<&str> = s.split('-').collect();
        if groups.iter().map(|g| g.len()).ne([8, 4, 4, 4, 12]) || !s.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit())
        {
            return Err(());
        }
        u128::from_str_radix(&groups.concat(), 16).map(Ufid).map_err(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_openflow_1_0_widen_and_narrow() {
        for (narrow, wide) in
            [(1, OfPort(1)), (0xfeff, OfPort(0xfeff)), (0xfffe, OfPort::LOCAL), (0xfffa, OfPort::NORMAL)]
        {
            assert_eq!(OfPort::from_u16(narrow), wide);
            assert_eq!(wide.to_u16(), Some(narrow));
        }
        assert_eq!(OfPort(0x1_0000).to_u16(), None);
    }

    #[test]
    fn ufid_text_round_trips() {
        let u = Ufid(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(u.to_string(), "01234567-89ab-cdef-0123-456789abcdef");
        assert_eq!(u.to_string().parse(), Ok(u));
        assert!("0123".parse::<Ufid>().is_err());
    }
}
