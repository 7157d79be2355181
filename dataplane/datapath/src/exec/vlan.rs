//! VLAN tags.

use fv_dpif::DropReason;
use fv_flow::key::VLAN_CFI;
use fv_packet::hdr::vlan::Tag;
use fv_packet::{Packet, vlan};

/// `tci` carries the presence bit, which is no part of the tag on the wire.
pub fn push(packet: &mut Packet, tpid: u16, tci: u16) -> Result<(), DropReason> {
    if packet.len() < 14 {
        return Err(DropReason::ActionNoHeader);
    }
    vlan::push(packet, Tag { tpid, tci: tci & !VLAN_CFI });
    Ok(())
}

/// A packet without a tag is left alone, as in the reference.
pub fn pop(packet: &mut Packet) -> Result<(), DropReason> {
    vlan::pop(packet);
    Ok(())
}
