//! Ports of TCP, UDP and SCTP, which are at the same place.

use super::{L4, replace};
use crate::csum::{crc32c, delta};
use crate::hdr::{ipproto, sctp};
use crate::{Packet, bytes};

pub fn l4_src(packet: &mut Packet, port: u16, mask: u16) -> bool {
    set_port(packet, 0, port, mask)
}

pub fn l4_dst(packet: &mut Packet, port: u16, mask: u16) -> bool {
    set_port(packet, 2, port, mask)
}

fn set_port(packet: &mut Packet, at: usize, port: u16, mask: u16) -> bool {
    let Some(l4) = L4::of(packet) else { return false };
    let (value, mask) = (port.to_be_bytes(), mask.to_be_bytes());
    let header_len = match l4.proto {
        ipproto::TCP => 20,
        ipproto::UDP | ipproto::UDPLITE => 8,
        ipproto::SCTP => sctp::LEN,
        _ => return false,
    };
    if packet.len() < l4.ofs + header_len {
        return false;
    }
    if l4.proto == ipproto::SCTP {
        return set_sctp_port(packet, l4, at, &value, &mask);
    }
    let Some((old, new)) = replace(packet, l4.ofs + at, &value, &mask) else { return false };
    if old != new {
        l4.data_changed(packet, delta(&old, &new));
    }
    true
}

/// A CRC has no cheap update at a distance: two passes, whose difference goes into the field, so that a wrong
/// checksum stays wrong. Without the whole message, in a first fragment, it cannot be kept.
fn set_sctp_port(packet: &mut Packet, l4: L4, at: usize, value: &[u8; 2], mask: &[u8; 2]) -> bool {
    let end = packet.len().saturating_sub(packet.meta().l2_pad.into());
    let due = l4.is_due(packet);
    let crc = |packet: &mut Packet| {
        let message = &mut packet.data_mut()[l4.ofs..end];
        let field: [u8; 4] = bytes::array(message, sctp::CSUM);
        message[sctp::CSUM..sctp::CSUM + 4].fill(0);
        let crc = crc32c(message);
        message[sctp::CSUM..sctp::CSUM + 4].copy_from_slice(&field);
        crc
    };
    if end < l4.ofs + sctp::LEN {
        return false;
    }
    let before = if due { 0 } else { crc(packet) };
    let Some((old, new)) = replace(packet, l4.ofs + at, value, mask) else { return false };
    if !due && old != new {
        let change = before ^ crc(packet);
        let field = &mut packet.data_mut()[l4.ofs + sctp::CSUM..][..4];
        let csum = u32::from_le_bytes(bytes::array(field, 0)) ^ change;
        field.copy_from_slice(&csum.to_le_bytes());
    }
    true
}
