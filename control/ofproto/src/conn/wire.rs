//! Messages to bytes and back.

use fv_openflow::msg::packet::PacketIn;
use fv_openflow::msg::{Message, PacketInFormat};
use fv_openflow::{OfError, Version, VersionSet};

/// Bytes of an offending message that an error reply carries.
pub(crate) const MAX_ERROR_DATA: usize = 65_535 - 12;

pub(crate) fn encode(_m: &Message) -> Vec<u8> {
    Vec::new()
}

pub(crate) fn decode(_frame: &[u8], _table_id_in_command: bool) -> Result<Message, OfError> {
    Err(OfError::BrcBadType)
}

/// The versions of a hello; None if it is not one.
pub(crate) fn hello_versions(_frame: &[u8]) -> Option<VersionSet> {
    None
}

pub(crate) fn encode_packet_in(_v: Version, _f: PacketInFormat, _p: PacketIn) -> Vec<u8> {
    Vec::new()
}
