//! LLC and SNAP (IEEE 802.2) behind an 802.3 length.

use crate::bytes::be16;

pub const LLC_LEN: usize = 3;
pub const SNAP_LEN: usize = 5;
/// DSAP, SSAP and control of spanning tree.
pub const STP: [u8; 3] = [0x42, 0x42, 0x03];

/// The type that LLC/SNAP at the start of `b` carries with the organisation code 0; `None` for any
/// other LLC.
pub fn snap_type(b: &[u8]) -> Option<u16> {
    let h: &[u8; LLC_LEN + SNAP_LEN] = b.first_chunk()?;
    (h[..6] == [0xaa, 0xaa, 0x03, 0, 0, 0]).then(|| be16(h, 6))
}
