//! IP protocol numbers (IANA).

pub const HOPOPTS: u8 = 0;
pub const ICMP: u8 = 1;
pub const IGMP: u8 = 2;
pub const IPIP: u8 = 4;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const IPV6: u8 = 41;
pub const ROUTING: u8 = 43;
pub const FRAGMENT: u8 = 44;
pub const GRE: u8 = 47;
pub const ESP: u8 = 50;
pub const AH: u8 = 51;
pub const ICMPV6: u8 = 58;
pub const NO_NEXT: u8 = 59;
pub const DSTOPTS: u8 = 60;
pub const DCCP: u8 = 33;
pub const SCTP: u8 = 132;
pub const UDPLITE: u8 = 136;
