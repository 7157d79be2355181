//! MPLS label stack entries.

use fv_dpif::DropReason;
use fv_packet::hdr::mpls::Lse;
use fv_packet::{Packet, mpls};

pub fn push(packet: &mut Packet, lse: u32, eth_type: u16) -> Result<(), DropReason> {
    if mpls::push(packet, eth_type, Lse(lse)) { Ok(()) } else { Err(DropReason::ActionNoHeader) }
}

/// A packet without a label is left alone, as in the reference.
pub fn pop(packet: &mut Packet, eth_type: u16) -> Result<(), DropReason> {
    mpls::pop(packet, eth_type);
    Ok(())
}
