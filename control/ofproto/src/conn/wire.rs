//! Messages to bytes and back.

use fv_openflow::msg::codec::DecodeCx;
use fv_openflow::msg::packet::PacketIn;
use fv_openflow::msg::{Body, Message, PacketInFormat};
use fv_openflow::{OfError, Version};

/// Bytes of an offending message that an error reply carries: all of it, less the error's own header
/// at its longest.
pub(crate) const MAX_ERROR_DATA: usize = 65_535 - 24;
/// Offset and value of a multipart reply's "more follow".
const FLAGS_AT: usize = 10;
const MORE: [u8; 2] = [0, 1];

/// One message, or a multipart reply as as many as it takes. Nothing if the version cannot say it.
pub(crate) fn encode(m: &Message) -> Vec<u8> {
    let encoded = match &m.body {
        Body::MultipartReply(r) => r.body.encode_parts(m.version, m.xid).map(|mut parts| {
            if r.more
                && let Some(flags) = parts.last_mut().and_then(|p| p.get_mut(FLAGS_AT..FLAGS_AT + 2))
            {
                flags.copy_from_slice(&MORE);
            }
            parts.concat()
        }),
        _ => m.encode(),
    };
    encoded.unwrap_or_else(|e| {
        log::debug!("{} in {}: {e}", m.body.name(), m.version.short());
        Vec::new()
    })
}

pub(crate) fn decode(frame: &[u8], flow_mod_table_id: bool) -> Result<Message, OfError> {
    Message::decode(frame, &DecodeCx { flow_mod_table_id })
}

/// A packet that is longer than a message can carry is cut; `total_len` tells.
pub(crate) fn encode_packet_in(v: Version, format: PacketInFormat, p: PacketIn) -> Vec<u8> {
    let body = match format {
        PacketInFormat::Standard => Body::PacketIn(Box::new(p)),
        f => Body::NxPacketIn(f, Box::new(p)),
    };
    encode(&Message::new(v, 0, body))
}
