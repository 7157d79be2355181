//! Packet to key, the datapath's way.

use fv_flow::DpKey;
use fv_packet::Packet;

/// The key of a packet; header offsets go to its metadata.
#[inline]
pub fn extract(packet: &mut Packet, vlan_limit: u8) -> DpKey {
    fv_flow::extract::extract(packet, &fv_flow::extract::Extra { vlan_limit, ..Default::default() })
}
