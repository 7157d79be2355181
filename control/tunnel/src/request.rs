//! Questions to neighbours: ARP, and neighbour solicitations.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fv_packet::csum;

/// Ethernet padding is the device's.
const ARP_LEN: usize = 42;
const ND_LEN: usize = 14 + 40 + 32;

/// The frame that asks who has `target`; None if the two addresses are not of one family.
pub fn frame(src_mac: [u8; 6], src: IpAddr, target: IpAddr) -> Option<Vec<u8>> {
    match (src, target) {
        (IpAddr::V4(s), IpAddr::V4(t)) => Some(arp(src_mac, s, t)),
        (IpAddr::V6(s), IpAddr::V6(t)) => Some(solicitation(src_mac, s, t)),
        _ => None,
    }
}

fn arp(src_mac: [u8; 6], src: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let mut f = Vec::with_capacity(ARP_LEN);
    f.extend([0xff; 6]);
    f.extend(src_mac);
    f.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    f.extend(src_mac);
    f.extend(src.octets());
    f.extend([0; 6]);
    f.extend(target.octets());
    f
}

fn solicitation(src_mac: [u8; 6], src: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let t = target.octets();
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(t[13]), u16::from_be_bytes([t[14], t[15]]));
    let mut f = Vec::with_capacity(ND_LEN);
    f.extend([0x33, 0x33, 0xff, t[13], t[14], t[15]]);
    f.extend(src_mac);
    f.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255]);
    f.extend(src.octets());
    f.extend(group.octets());
    let icmp = f.len();
    f.extend([135, 0, 0, 0, 0, 0, 0, 0]);
    f.extend(t);
    f.extend([1, 1]);
    f.extend(src_mac);
    let sum = csum::pseudo_v6(&src.octets(), &group.octets(), 58, 32);
    let sum = csum::finish(csum::add(sum, &f[icmp..]));
    f[icmp + 2..icmp + 4].copy_from_slice(&sum.to_be_bytes());
    f
}

#[cfg(test)]
mod tests {
    use super::*;
    use fv_packet::{Packet, validate};

    #[test]
    fn questions_are_whole() {
        let f = frame([2; 6], "10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()).unwrap();
        let mut p = Packet::from_slice(&f);
        let k = fv_flow::extract::extract(&mut p, &Default::default());
        assert_eq!((k.base.nw_proto, k.base.nw_dst.get(), k.v6.arp_sha), (1, 0x0a00_0002, [2; 6]));
        let target: Ipv6Addr = "2001:2::9:1".parse().unwrap();
        let f = frame([2; 6], "2001:2::1".parse().unwrap(), target.into()).unwrap();
        let mut p = Packet::from_slice(&f);
        let k = fv_flow::extract::extract(&mut p, &Default::default());
        assert_eq!((k.v6.nd_target, k.v6.arp_sha), (target.octets(), [2; 6]));
        assert!(validate(&mut p));
        assert_eq!(frame([2; 6], "10.0.0.1".parse().unwrap(), target.into()), None);
    }
}
