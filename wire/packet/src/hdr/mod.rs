//! One file per header: offsets of fields, a view that is checked once, and what writes it.
//!
//! A view's `parse` answers `None` unless the header is whole and its own lengths are possible; after
//! that no accessor can fail.

pub mod arp;
pub mod eth;
pub mod icmp;
pub mod icmpv6;
pub mod igmp;
pub mod ipproto;
pub mod ipv4;
pub mod ipv6;
pub mod layout;
pub mod llc;
pub mod mpls;
pub mod nest;
pub mod sctp;
pub mod tcp;
pub mod udp;
pub mod vlan;

pub use arp::Arp;
pub use eth::{Eth, Mac};
pub use icmp::Icmp;
pub use icmpv6::Icmpv6;
pub use igmp::Igmp;
pub use ipv4::Ipv4;
pub use ipv6::{Chain, Ipv6};
pub use layout::Layout;
pub use mpls::Lse;
pub use nest::Nest;
pub use sctp::Sctp;
pub use tcp::Tcp;
pub use udp::Udp;
