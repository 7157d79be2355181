//! Meters: one that is not there limits nothing.

use fv_core::Nanos;
use fv_dpif::DropReason;
use fv_packet::Packet;

use crate::shared::Shared;

pub fn meter(packet: &mut Packet, meter: u32, shared: &Shared, now: Nanos) -> Result<(), DropReason> {
    let meters = shared.meters.load();
    match meters.get(meter as usize).and_then(Option::as_ref) {
        Some(m) if !m.pass(now, packet.len() as u32) => Err(DropReason::Meter),
        _ => Ok(()),
    }
}
