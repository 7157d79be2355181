//! What the card does with a packet of a fully offloaded flow.

use fv_core::DpPort;
use fv_dpif::action::{Masked, SetField};
use fv_dpif::{DpAction, Program};
use fv_flow::key::VLAN_CFI;
use fv_packet::hdr::vlan::Tag;
use fv_packet::{Packet, set as hdr, vlan};

/// Runs a program on a packet whose header offsets are known; `send` gets it for each port.
pub fn forward(packet: Packet, program: &Program, send: &mut dyn FnMut(DpPort, Packet)) {
    let mut left = program.actions.iter().filter(|a| matches!(a, DpAction::Output(_))).count();
    let mut packet = Some(packet);
    for action in &program.actions {
        let Some(p) = packet.as_mut() else { return };
        match action {
            DpAction::Output(port) => {
                left -= 1;
                let copy = if left == 0 { packet.take() } else { Some(p.duplicate()) };
                copy.into_iter().for_each(|p| send(*port, p));
            }
            DpAction::PushVlan { tpid, tci } => vlan::push(p, Tag { tpid: *tpid, tci: tci & !VLAN_CFI }),
            DpAction::PopVlan => {
                vlan::pop(p);
            }
            DpAction::Set(field) => set(p, field),
            // The capabilities let nothing else through.
            _ => return,
        }
    }
}

fn set(p: &mut Packet, field: &SetField) {
    match field {
        SetField::Eth { src, dst } => {
            put(p, src, hdr::eth_src);
            put(p, dst, hdr::eth_dst);
        }
        SetField::Ipv4 { src, dst, tos, ttl } => {
            put(p, src, hdr::ipv4_src);
            put(p, dst, hdr::ipv4_dst);
            put(p, tos, hdr::ipv4_tos);
            put(p, ttl, hdr::ipv4_ttl);
        }
        SetField::Ipv6 { src, dst, label, tclass, hlimit } => {
            for (m, f) in [(src, hdr::ipv6_src as fn(&mut Packet, &[u8; 16], &[u8; 16]) -> bool), (dst, hdr::ipv6_dst)]
            {
                if m.mask != [0; 16] {
                    f(p, &m.value, &m.mask);
                }
            }
            put(p, label, hdr::ipv6_label);
            put(p, tclass, hdr::ipv6_tclass);
            put(p, hlimit, hdr::ipv6_hlimit);
        }
        SetField::Tcp { src, dst } | SetField::Udp { src, dst } | SetField::Sctp { src, dst } => {
            put(p, src, hdr::l4_src);
            put(p, dst, hdr::l4_dst);
        }
        _ => {}
    }
}

/// Writes a field, unless no bit of it is to be written.
fn put<T: Copy + PartialEq + Default>(p: &mut Packet, m: &Masked<T>, f: fn(&mut Packet, T, T) -> bool) {
    if m.mask != T::default() {
        f(p, m.value, m.mask);
    }
}
