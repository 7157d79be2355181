//! Where the headers of a frame are, found from its bytes alone.
//!
//! For what must not trust metadata (offload headers, software segmentation) or has none yet. The
//! datapath's extraction is faster and knows more.

use super::eth::{self, ethertype};
use super::ipv4::Ipv4;
use super::ipv6::{self, Chain, Ipv6};
use super::vlan;
use crate::bytes::be16;

/// VLAN tags that are looked through.
pub const MAX_TAGS: usize = 4;

/// A frame's IP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    pub l3_ofs: usize,
    pub l4_ofs: usize,
    /// Behind the IP packet as its length field says; what follows is padding.
    pub end: usize,
    pub is_v6: bool,
    pub proto: u8,
    /// Any fragment.
    pub fragment: bool,
    /// A fragment without L4 header.
    pub later_fragment: bool,
    /// An IPv6 routing header with segments left is there.
    pub routing: bool,
}

impl Layout {
    /// `None` unless `frame` is Ethernet with at most [`MAX_TAGS`] tags around IPv4 or IPv6 whose headers
    /// are whole and whose length is not beyond the frame.
    pub fn of(frame: &[u8]) -> Option<Layout> {
        let (l3_ofs, ethertype) = l3(frame)?;
        Layout::of_ip(frame, l3_ofs, ethertype)
    }

    /// As [`Layout::of`], with the L3 header known to be at `l3_ofs`.
    pub fn of_ip(frame: &[u8], l3_ofs: usize, ethertype: u16) -> Option<Layout> {
        let l3 = frame.get(l3_ofs..)?;
        let layout = match ethertype {
            ethertype::IPV4 => {
                let ip = Ipv4::parse(l3)?;
                Layout {
                    l3_ofs,
                    l4_ofs: l3_ofs + ip.header_len(),
                    end: l3_ofs + ip.total_len(),
                    is_v6: false,
                    proto: ip.proto(),
                    fragment: ip.is_fragment(),
                    later_fragment: ip.is_later_fragment(),
                    routing: false,
                }
            }
            ethertype::IPV6 => {
                let end = ipv6::LEN + Ipv6::parse(l3)?.payload_len();
                let chain = Chain::walk(l3.get(..end)?)?;
                Layout {
                    l3_ofs,
                    l4_ofs: l3_ofs + chain.l4_ofs,
                    end: l3_ofs + end,
                    is_v6: true,
                    proto: chain.proto,
                    fragment: chain.is_fragment(),
                    later_fragment: chain.is_later_fragment(),
                    routing: chain.routing,
                }
            }
            _ => return None,
        };
        (layout.end <= frame.len()).then_some(layout)
    }
}

/// Where the L3 header of an Ethernet frame begins, and its type. An 802.3 length counts as a type.
pub fn l3(frame: &[u8]) -> Option<(usize, u16)> {
    let mut at = eth::TYPE;
    for _ in 0..=MAX_TAGS {
        let t = be16(frame.get(at..at + 2)?, 0);
        if !ethertype::is_vlan(t) {
            return Some((at + 2, t));
        }
        at += vlan::LEN;
    }
    None
}
