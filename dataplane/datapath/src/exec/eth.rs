//! The Ethernet header as a whole.

use fv_dpif::DropReason;
use fv_packet::{NO_OFS, Packet};

/// Namespace 1 of packet types: an EtherType.
const PT_ETHERTYPE: u32 = 1 << 16;
const ETH_LEN: usize = 14;

/// A packet that has a header already is left alone.
pub fn push(packet: &mut Packet, src: &[u8; 6], dst: &[u8; 6]) -> Result<(), DropReason> {
    let packet_type = packet.meta().packet_type;
    if packet_type == 0 {
        return Ok(());
    }
    let eth_type = packet_type as u16;
    let header = packet.push_front(ETH_LEN);
    header[..6].copy_from_slice(dst);
    header[6..12].copy_from_slice(src);
    header[12..].copy_from_slice(&eth_type.to_be_bytes());
    packet.meta_mut().packet_type = 0;
    Ok(())
}

/// Takes everything in front of the network layer: what is left is a packet of its EtherType.
pub fn pop(packet: &mut Packet) -> Result<(), DropReason> {
    if packet.meta().packet_type != 0 {
        return Ok(());
    }
    let meta = packet.meta();
    let start = if meta.l2_5_ofs != NO_OFS { meta.l2_5_ofs } else { meta.l3_ofs };
    let start = usize::from(start);
    if start == usize::from(NO_OFS) || start < ETH_LEN || start > packet.len() {
        return Err(DropReason::ActionNoHeader);
    }
    let eth_type = u16::from_be_bytes([packet.data()[start - 2], packet.data()[start - 1]]);
    packet.pull_front(start);
    packet.meta_mut().packet_type = PT_ETHERTYPE | u32::from(eth_type);
    Ok(())
}
