//! Packet to key, the datapath's way.

use fv_flow::DpKey;
use fv_packet::Packet;

/// The key of a packet; header offsets go to its metadata.
#[inline]
pub fn extract(packet: &mut Packet, vlan_limit: u8) -> DpKey {
    fv_flow::extract::extract(packet, &fv_flow::extract::Extra { vlan_limit, ..Default::default() })
}

/// As `extract`, into a key that is used again: `dirty` are the blocks that may hold something from
/// before. Returns those that may now.
#[inline]
pub fn extract_into(packet: &mut Packet, vlan_limit: u8, key: &mut DpKey, dirty: u8) -> u8 {
    let extra = fv_flow::extract::Extra { vlan_limit, ..Default::default() };
    fv_flow::extract::extract_into(packet, &extra, key, dirty)
}
