//! MPLS label stack entries pushed and popped in place.

use crate::bytes::set16;
use crate::hdr::eth::ethertype;
use crate::hdr::mpls::{LEN, Lse};
use crate::{NO_OFS, Packet, bytes};

/// Pushes `lse` in front of the label stack or the L3 header, and makes `ethertype` the frame's type. Needs
/// the L3 or L2.5 offset in the metadata; says whether it was there.
pub fn push(packet: &mut Packet, ethertype: u16, lse: Lse) -> bool {
    let meta = packet.meta();
    let at = if meta.l2_5_ofs != NO_OFS { meta.l2_5_ofs } else { meta.l3_ofs };
    let ofs = usize::from(at);
    if at == NO_OFS || ofs < 2 || ofs > packet.len() {
        return false;
    }
    packet.push_front(LEN);
    let data = packet.data_mut();
    data.copy_within(LEN..LEN + ofs, 0);
    set16(data, ofs - 2, ethertype);
    bytes::set32(data, ofs, lse.0);
    packet.meta_mut().l2_5_ofs = at;
    true
}

/// Pops the outermost entry and makes `ethertype` the frame's type.
pub fn pop(packet: &mut Packet, ethertype: u16) -> Option<Lse> {
    let lse = outer(packet)?;
    let at = packet.meta().l2_5_ofs;
    let ofs = usize::from(at);
    let data = packet.data_mut();
    set16(data, ofs - 2, ethertype);
    data.copy_within(0..ofs, LEN);
    packet.pull_front(LEN);
    packet.meta_mut().l2_5_ofs = if ethertype::is_mpls(ethertype) { at } else { NO_OFS };
    Some(lse)
}

/// The outermost entry.
pub fn outer(packet: &Packet) -> Option<Lse> {
    let ofs = usize::from(packet.meta().l2_5_ofs);
    if ofs < 2 {
        return None;
    }
    Lse::parse(packet.data().get(ofs..)?)
}

/// Rewrites the outermost entry under `mask`.
pub fn set_lse(packet: &mut Packet, lse: Lse, mask: u32) -> bool {
    let Some(old) = outer(packet) else { return false };
    let ofs = usize::from(packet.meta().l2_5_ofs);
    bytes::set32(packet.data_mut(), ofs, old.0 & !mask | lse.0 & mask);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let mut p = Packet::from_slice(&(0..40).collect::<Vec<u8>>());
        set16(p.data_mut(), 12, ethertype::IPV4);
        p.meta_mut().l3_ofs = 14;
        p.meta_mut().l4_ofs = 34;
        let (before, meta) = (p.duplicate(), *p.meta());
        assert!(push(&mut p, ethertype::MPLS, Lse::new(5, 0, true, 64)));
        assert_eq!((p.meta().l2_5_ofs, p.meta().l3_ofs), (14, 18));
        assert!(push(&mut p, ethertype::MPLS, Lse::new(6, 7, false, 63)));
        assert_eq!(&p.data()[12..22], &[0x88, 0x47, 0, 0, 0x6e, 63, 0, 0, 0x51, 64]);
        assert!(set_lse(&mut p, Lse(0), 0xff));
        assert_eq!(pop(&mut p, ethertype::MPLS), Some(Lse::new(6, 7, false, 0)));
        assert_eq!(pop(&mut p, ethertype::IPV4), Some(Lse::new(5, 0, true, 64)));
        assert_eq!((p.data(), p.meta()), (before.data(), &meta));
        assert_eq!(pop(&mut p, ethertype::IPV4), None);
    }

    #[test]
    fn bad_offsets() {
        for ofs in [0u16, 1, 40, 41, 0xfffe, NO_OFS] {
            let mut p = Packet::from_slice(&[0; 40]);
            p.meta_mut().l2_5_ofs = ofs;
            assert_eq!(pop(&mut p, 0x800), None);
            assert!(!set_lse(&mut p, Lse(0), 0));
            assert_eq!(push(&mut p, ethertype::MPLS, Lse(0)), ofs == 40);
        }
    }
}
