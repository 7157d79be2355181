//! Messages to bytes and back.

use fv_openflow::msg::packet::PacketIn;
use fv_openflow::msg::{Body, DecodeCx, Message, PacketInFormat};
use fv_openflow::{OfError, Version, VersionSet};

/// Bytes of an offending message that an error reply carries.
pub(crate) const MAX_ERROR_DATA: usize = 65_535 - 12;

/// A multipart reply may take several messages; what no version can say is nothing.
pub(crate) fn encode(m: &Message) -> Vec<u8> {
    match &m.body {
        Body::MultipartReply(part) if !part.more => {
            part.body.encode_parts(m.version, m.xid).map(|p| p.concat()).unwrap_or_default()
        }
        _ => m.encode().unwrap_or_default(),
    }
}

pub(crate) fn decode(frame: &[u8], table_id_in_command: bool) -> Result<Message, OfError> {
    Message::decode(frame, &DecodeCx { flow_mod_table_id: table_id_in_command })
}

/// The versions of a hello; None if it is not one.
pub(crate) fn hello_versions(frame: &[u8]) -> Option<VersionSet> {
    match Message::decode(frame, &DecodeCx::default()).ok()?.body {
        Body::Hello(h) => Some(h.versions),
        _ => None,
    }
}

pub(crate) fn encode_packet_in(v: Version, f: PacketInFormat, p: PacketIn) -> Vec<u8> {
    let body = match f {
        PacketInFormat::Standard => Body::PacketIn(Box::new(p)),
        f => Body::NxPacketIn(f, Box::new(p)),
    };
    encode(&Message::new(v, 0, body))
}
