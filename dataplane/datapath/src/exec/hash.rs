//! `hash`: a flow's hash for later selection among buckets or members. The values are the
//! reference's, as users see which bucket a connection takes.

use fv_dpif::DropReason;
use fv_dpif::action::HashAlg;
use fv_flow::hash::{dp_hash_l4, dp_hash_sym_l4};
use fv_packet::Packet;

use crate::parse;

/// Never zero, so that a packet shows that it was hashed.
pub fn hash(packet: &mut Packet, algorithm: HashAlg, vlan_limit: u8) -> Result<(), DropReason> {
    let key = parse::extract(packet, vlan_limit);
    let meta = packet.meta_mut();
    let h = match algorithm {
        HashAlg::L4 { basis } => dp_hash_l4(&key, meta.rss_valid.then_some(meta.rss_hash), basis),
        HashAlg::SymL4 { basis } => dp_hash_sym_l4(&key, basis),
    };
    meta.dp_hash = h.max(1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_hashed_as_the_reference_does() {
        let flow = "in_port(1),eth(src=00:01:02:03:04:05,dst=10:11:12:13:14:15),eth_type(0x0800),ipv4(src=1.2.3.4,dst=5.6.7.8,proto=17,ttl=64,frag=no),udp(src=1,dst=2)";
        let key = fv_flow::odp::parse(flow, &|_| None).unwrap().key;
        let mut packet = Packet::from_slice(&fv_flow::compose(&key, 64));
        hash(&mut packet, HashAlg::L4 { basis: 0 }, 1).unwrap();
        assert_eq!(packet.meta().dp_hash, 0x521e_cae3);
        hash(&mut packet, HashAlg::SymL4 { basis: 3 }, 1).unwrap();
        let there = packet.meta().dp_hash;
        let (src, dst) = (key.base.nw_src, key.base.nw_dst);
        let mut back = key;
        (back.base.nw_src, back.base.nw_dst) = (dst, src);
        let mut packet = Packet::from_slice(&fv_flow::compose(&back, 64));
        hash(&mut packet, HashAlg::SymL4 { basis: 3 }, 1).unwrap();
        assert_eq!(packet.meta().dp_hash, there);
    }
}
