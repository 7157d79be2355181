//! Connection tracking: the seam to `conntrack`.

use fv_dpif::DropReason;
use fv_dpif::action::CtAction;
use fv_packet::Packet;

/// No tracker is attached: nothing can be said about the packet's connection.
pub fn ct(_: &mut Packet, _: &CtAction) -> Result<(), DropReason> {
    Err(DropReason::ActionUnsupported)
}

/// Forgets what is known of the packet's connection.
pub fn clear(packet: &mut Packet) -> Result<(), DropReason> {
    let meta = packet.meta_mut();
    meta.ct_state = 0;
    meta.ct_zone = 0;
    meta.ct_mark = 0;
    meta.ct_label = 0;
    Ok(())
}
