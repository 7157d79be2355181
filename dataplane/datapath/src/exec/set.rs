//! Rewriting header fields and metadata.

use fv_dpif::DropReason;
use fv_dpif::action::SetField;
use fv_packet::Packet;

pub fn set(packet: &mut Packet, field: &SetField) -> Result<(), DropReason> {
    match field {
        SetField::SkbPriority(priority) => packet.meta_mut().skb_priority = *priority,
        SetField::SkbMark(mark) => {
            let meta = packet.meta_mut();
            meta.pkt_mark = meta.pkt_mark & !mark.mask | mark.value & mark.mask;
        }
        _ => return Err(DropReason::ActionUnsupported),
    }
    Ok(())
}
