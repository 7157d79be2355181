//! VLAN tags put into and taken out of frames in place; offsets and a due checksum's place follow.

use crate::Packet;
use crate::bytes::set16;
use crate::hdr::eth::{self, ethertype};
use crate::hdr::vlan::{self, Tag};

/// Puts a tag behind the addresses, outside of those that are there. A frame too short to have
/// addresses stays as it is.
pub fn push(packet: &mut Packet, tag: Tag) {
    if packet.len() < eth::TYPE {
        return;
    }
    packet.push_front(vlan::LEN);
    let data = packet.data_mut();
    data.copy_within(vlan::LEN..vlan::LEN + eth::TYPE, 0);
    set16(data, eth::TYPE, tag.tpid);
    set16(data, eth::TYPE + 2, tag.tci);
}

/// The outermost tag.
pub fn outer(packet: &Packet) -> Option<Tag> {
    let tag = Tag::parse(packet.data().get(eth::TYPE..)?)?;
    // The type that the tag stands in front of is there too.
    (ethertype::is_vlan(tag.tpid) && packet.len() >= eth::LEN + vlan::LEN).then_some(tag)
}

/// Takes the outermost tag off.
pub fn pop(packet: &mut Packet) -> Option<Tag> {
    let tag = outer(packet)?;
    packet.data_mut().copy_within(0..eth::TYPE, vlan::LEN);
    packet.pull_front(vlan::LEN);
    Some(tag)
}

/// Rewrites the outermost tag's control information under `mask`, and says whether there was one.
pub fn set_tci(packet: &mut Packet, tci: u16, mask: u16) -> bool {
    let Some(tag) = outer(packet) else { return false };
    set16(packet.data_mut(), eth::TYPE + 2, tag.tci & !mask | tci & mask);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Csum, NO_OFS};

    #[test]
    fn there_and_back() {
        let mut p = Packet::from_slice(&(0..64).collect::<Vec<u8>>());
        set16(p.data_mut(), eth::TYPE, ethertype::IPV4);
        let before = p.duplicate();
        p.meta_mut().l3_ofs = 14;
        p.meta_mut().csum = Csum::Partial;
        p.meta_mut().csum_start = 34;
        let want = *p.meta();
        let tag = |tci| Tag { tpid: ethertype::VLAN, tci };
        push(&mut p, tag(0x2005));
        push(&mut p, Tag { tpid: ethertype::QINQ, tci: 7 });
        assert_eq!(
            &p.data()[..22],
            b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x88\xa8\x00\x07\x81\x00\x20\x05\x08\x00"
        );
        assert_eq!((p.meta().l3_ofs, p.meta().csum_start, p.meta().l4_ofs), (22, 42, NO_OFS));
        assert!(set_tci(&mut p, 0xffff, 0x0fff));
        assert_eq!(pop(&mut p), Some(Tag { tpid: ethertype::QINQ, tci: 0xfff }));
        assert_eq!(pop(&mut p), Some(tag(0x2005)));
        assert_eq!(pop(&mut p), None);
        assert_eq!((p.data(), p.meta()), (before.data(), &want));
    }

    #[test]
    fn short_frames() {
        for len in 0..20 {
            let mut p = Packet::from_slice(&vec![0x81; len]);
            if len >= 14 {
                set16(p.data_mut(), eth::TYPE, ethertype::VLAN);
            }
            assert_eq!(pop(&mut p).is_some(), len >= 18, "{len}");
            let len = p.len();
            push(&mut p, Tag { tpid: ethertype::VLAN, tci: 1 });
            assert_eq!(p.len(), if len < 12 { len } else { len + 4 });
        }
    }
}
