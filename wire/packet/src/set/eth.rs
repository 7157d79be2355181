//! Ethernet addresses and ARP; no checksum covers them.

use super::{l3_ofs, replace};
use crate::Packet;
use crate::hdr::{Arp, Mac, arp, eth};

pub fn eth_dst(packet: &mut Packet, mac: Mac, mask: Mac) -> bool {
    replace(packet, eth::DST, &mac, &mask).is_some()
}

pub fn eth_src(packet: &mut Packet, mac: Mac, mask: Mac) -> bool {
    replace(packet, eth::SRC, &mac, &mask).is_some()
}

pub fn arp_op(packet: &mut Packet, op: u16, mask: u16) -> bool {
    arp_field(packet, arp::OP, &op.to_be_bytes(), &mask.to_be_bytes())
}

pub fn arp_spa(packet: &mut Packet, address: u32, mask: u32) -> bool {
    arp_field(packet, arp::SPA, &address.to_be_bytes(), &mask.to_be_bytes())
}

pub fn arp_tpa(packet: &mut Packet, address: u32, mask: u32) -> bool {
    arp_field(packet, arp::TPA, &address.to_be_bytes(), &mask.to_be_bytes())
}

pub fn arp_sha(packet: &mut Packet, mac: Mac, mask: Mac) -> bool {
    arp_field(packet, arp::SHA, &mac, &mask)
}

pub fn arp_tha(packet: &mut Packet, mac: Mac, mask: Mac) -> bool {
    arp_field(packet, arp::THA, &mac, &mask)
}

fn arp_field<const N: usize>(packet: &mut Packet, at: usize, value: &[u8; N], mask: &[u8; N]) -> bool {
    let Some(ofs) = l3_ofs(packet) else { return false };
    let is_arp = packet.data().get(ofs..).and_then(Arp::parse).is_some();
    is_arp && replace(packet, ofs + at, value, mask).is_some()
}
