//! [`DpKey`] -> packet bytes, with valid lengths and checksums: what `netdev-dummy/receive` and
//! `ofproto/trace -generate` make of a flow.

use crate::extract::{Offsets, parse};
use crate::key::{DpKey, FRAG_ANY, FRAG_LATER, N_MPLS, VLAN_CFI, eth, ipproto};
use fv_packet::{NO_OFS, csum};

/// Payload that a transport header gets unless told otherwise.
pub const DEFAULT_PAYLOAD: usize = 64;
/// Offset of a later fragment, in units of 8 bytes.
const LATER_OFFSET: u16 = 100;
const MORE_FRAGMENTS: u16 = 0x2000;
/// Flags of segments that carry no data here.
const TCP_NO_DATA: u16 = 0x007;

/// A packet of this flow, with `payload` bytes (counting up) behind headers that carry data.
pub fn compose(key: &DpKey, payload: usize) -> Vec<u8> {
    let data: Vec<u8> = (0..payload).map(|i| i as u8).collect();
    compose_data(key, &data)
}

/// As [`compose`], with these bytes behind the headers.
pub fn compose_data(key: &DpKey, data: &[u8]) -> Vec<u8> {
    let mut f = Vec::with_capacity(160 + data.len());
    if key.misc.packet_type == 0 {
        f.extend_from_slice(&key.base.dl_dst);
        f.extend_from_slice(&key.base.dl_src);
        if key.base.dl_type.get() < eth::TYPE_MIN {
            f.extend_from_slice(&[0, 14]);
            return f;
        }
        for tag in key.base.vlans.iter().filter(|t| t.tci.get() & VLAN_CFI != 0) {
            f.extend_from_slice(&tag.tpid.get().to_be_bytes());
            f.extend_from_slice(&(tag.tci.get() & !VLAN_CFI).to_be_bytes());
        }
        f.extend_from_slice(&key.base.dl_type.get().to_be_bytes());
    }
    match key.base.dl_type.get() {
        eth::IP => ipv4(&mut f, key, data),
        eth::IPV6 => ipv6(&mut f, key, data),
        eth::ARP | eth::RARP => arp(&mut f, key),
        eth::MPLS | eth::MPLS_MCAST => {
            for lse in key.misc.mpls_lse.iter().take(mpls_depth(key)) {
                f.extend_from_slice(&lse.get().to_be_bytes());
            }
        }
        _ => {}
    }
    seal(&mut f, key);
    f
}

/// A packet of this flow of exactly `len` bytes, zeros behind its headers. None if they need more.
pub fn compose_len(key: &DpKey, len: usize) -> Option<Vec<u8>> {
    let mut f = compose(key, 0);
    if f.len() > len {
        return None;
    }
    f.resize(len, 0);
    seal(&mut f, key);
    Some(f)
}

fn mpls_depth(key: &DpKey) -> usize {
    key.misc.mpls_lse.iter().position(|l| l.get() & 0x100 != 0).map_or(N_MPLS, |n| n + 1)
}

fn ipv4(f: &mut Vec<u8>, key: &DpKey, data: &[u8]) {
    let b = &key.base;
    let mut frag = 0;
    if b.nw_frag & FRAG_ANY != 0 {
        frag = MORE_FRAGMENTS | if b.nw_frag & FRAG_LATER != 0 { LATER_OFFSET } else { 0 };
    }
    f.extend_from_slice(&[0x45, b.nw_tos, 0, 0, 0, 0]);
    f.extend_from_slice(&frag.to_be_bytes());
    f.extend_from_slice(&[b.nw_ttl, b.nw_proto, 0, 0]);
    f.extend_from_slice(&b.nw_src.get().to_be_bytes());
    f.extend_from_slice(&b.nw_dst.get().to_be_bytes());
    l4(f, key, data, false);
}

fn ipv6(f: &mut Vec<u8>, key: &DpKey, data: &[u8]) {
    let b = &key.base;
    let first = 6 << 28 | u32::from(b.nw_tos) << 20 | key.v6.ipv6_label.get();
    f.extend_from_slice(&first.to_be_bytes());
    f.extend_from_slice(&[0, 0, b.nw_proto, b.nw_ttl]);
    f.extend_from_slice(&key.v6.ipv6_src);
    f.extend_from_slice(&key.v6.ipv6_dst);
    l4(f, key, data, true);
}

fn arp(f: &mut Vec<u8>, key: &DpKey) {
    f.extend_from_slice(&[0, 1, 8, 0, 6, 4, 0, key.base.nw_proto]);
    if !matches!(key.base.nw_proto, 1 | 2) {
        return f.extend_from_slice(&[0; 20]);
    }
    f.extend_from_slice(&key.v6.arp_sha);
    f.extend_from_slice(&key.base.nw_src.get().to_be_bytes());
    f.extend_from_slice(&key.v6.arp_tha);
    f.extend_from_slice(&key.base.nw_dst.get().to_be_bytes());
}

fn l4(f: &mut Vec<u8>, key: &DpKey, data: &[u8], v6: bool) {
    let b = &key.base;
    if b.nw_frag & FRAG_LATER != 0 {
        return;
    }
    let ports = [b.tp_src.get().to_be_bytes(), b.tp_dst.get().to_be_bytes()].concat();
    let type_code = [b.tp_src.get() as u8, b.tp_dst.get() as u8];
    match b.nw_proto {
        ipproto::TCP => {
            let flags = b.tcp_flags.get() & 0xfff;
            f.extend_from_slice(&ports);
            f.extend_from_slice(&[0; 8]);
            f.extend_from_slice(&(0x5000 | flags).to_be_bytes());
            f.extend_from_slice(&[0; 6]);
            if flags & TCP_NO_DATA == 0 {
                f.extend_from_slice(data);
            }
        }
        ipproto::UDP => {
            f.extend_from_slice(&ports);
            f.extend_from_slice(&[0; 4]);
            f.extend_from_slice(data);
        }
        ipproto::SCTP => {
            f.extend_from_slice(&ports);
            f.extend_from_slice(&[0; 8]);
        }
        ipproto::ICMP if !v6 => {
            f.extend_from_slice(&type_code);
            f.extend_from_slice(&[0; 6]);
            if matches!(type_code[0], 0 | 8) {
                f.extend_from_slice(data);
            }
        }
        ipproto::IGMP if !v6 => {
            f.extend_from_slice(&type_code);
            f.extend_from_slice(&[0; 2]);
            f.extend_from_slice(&key.misc.igmp_group_ip4.get().to_be_bytes());
        }
        ipproto::ICMPV6 if v6 => icmpv6(f, key, data, type_code),
        _ => {}
    }
}

fn icmpv6(f: &mut Vec<u8>, key: &DpKey, data: &[u8], type_code: [u8; 2]) {
    f.extend_from_slice(&type_code);
    f.extend_from_slice(&[0; 2]);
    if type_code[1] == 0 && matches!(type_code[0], 135 | 136) {
        f.extend_from_slice(&key.misc.nd_reserved.get().to_be_bytes());
        f.extend_from_slice(&key.v6.nd_target);
        for (option, lla) in [(1, &key.v6.arp_sha), (2, &key.v6.arp_tha)] {
            if *lla != [0; 6] {
                f.extend_from_slice(&[option, 1]);
                f.extend_from_slice(lla);
            }
        }
        return;
    }
    f.extend_from_slice(&[0; 4]);
    if matches!(type_code[0], 128 | 129) {
        f.extend_from_slice(data);
    }
}

/// Writes lengths up to the end of the frame, and checksums.
fn seal(f: &mut [u8], key: &DpKey) {
    let Some(l3) = l3_offset(f, key) else { return };
    let len = f.len() - l3;
    match key.base.dl_type.get() {
        eth::IP if len >= 20 => {
            put(f, l3 + 2, len as u16);
            put(f, l3 + 10, 0);
            let sum = csum::of(&f[l3..l3 + 20]);
            put(f, l3 + 10, sum);
            let (src, dst) = (key.base.nw_src.get(), key.base.nw_dst.get());
            let n = (len - 20) as u16;
            seal_l4(f, key, l3 + 20, csum::pseudo_v4(src, dst, key.base.nw_proto, n));
        }
        eth::IPV6 if len >= 40 => {
            put(f, l3 + 4, (len - 40) as u16);
            let n = (len - 40) as u32;
            let pseudo = csum::pseudo_v6(&key.v6.ipv6_src, &key.v6.ipv6_dst, key.base.nw_proto, n);
            seal_l4(f, key, l3 + 40, pseudo);
        }
        _ => {}
    }
}

fn l3_offset(f: &[u8], key: &DpKey) -> Option<usize> {
    let mut k = DpKey::default();
    k.misc.packet_type = key.misc.packet_type;
    let mut ofs = Offsets::default();
    parse(f, 2, &mut k, &mut ofs);
    (ofs.l3 != NO_OFS).then_some(usize::from(ofs.l3))
}

fn seal_l4(f: &mut [u8], key: &DpKey, at: usize, pseudo: u32) {
    if key.base.nw_frag & FRAG_LATER != 0 {
        return;
    }
    let v4 = key.base.dl_type.get() == eth::IP;
    let (place, pseudo) = match key.base.nw_proto {
        ipproto::TCP => (16, pseudo),
        ipproto::UDP => {
            let n = f.len() - at;
            if n >= 8 {
                put(f, at + 4, n as u16);
            }
            (6, pseudo)
        }
        ipproto::ICMP | ipproto::IGMP if v4 => (2, 0),
        ipproto::ICMPV6 if !v4 => (2, pseudo),
        _ => return,
    };
    if f.len() < at + place + 2 {
        return;
    }
    put(f, at + place, 0);
    let sum = csum::add(pseudo, &f[at..]);
    let sum = if key.base.nw_proto == ipproto::UDP { csum::finish_udp(sum) } else { csum::finish(sum) };
    put(f, at + place, sum);
}

fn put(f: &mut [u8], at: usize, v: u16) {
    f[at..at + 2].copy_from_slice(&v.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::odp;

    fn key(flow: &str) -> DpKey {
        let flow = flow.replace("ETH", "in_port(1),eth(src=00:01:02:03:04:05,dst=10:11:12:13:14:15)");
        odp::parse(&flow, &|_| None).unwrap_or_else(|e| panic!("{flow}: {e}")).key
    }

    #[test]
    fn packets_as_the_reference_composes_them() {
        for line in include_str!("../tests/data/composed.txt").lines().filter(|l| !l.starts_with('#')) {
            let (flow, want) = line.split_once(" => ").unwrap();
            let got: String = compose(&key(flow), DEFAULT_PAYLOAD)[12..].iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(got, want, "{flow}");
        }
    }

    #[test]
    fn what_is_composed_is_extracted() {
        for line in include_str!("../tests/data/composed.txt").lines().filter(|l| !l.starts_with('#')) {
            let flow = line.split_once(" => ").unwrap().0;
            // Not composed: fragment headers of IPv6, addresses of other ARP operations, 802.3.
            let exceptions = ["ipv6(src=::1,dst=::2,label=0,proto=6", "op=3", "op=4", "proto=0,"];
            if exceptions.iter().any(|e| flow.contains(e)) || flow == "ETH" {
                continue;
            }
            let want = key(flow);
            let mut got = DpKey::default();
            got.base.in_port = 1;
            parse(&compose(&want, DEFAULT_PAYLOAD), 2, &mut got, &mut Offsets::default());
            got.misc.nd_options_type = want.misc.nd_options_type;
            assert_eq!(got, want, "{flow}");
        }
    }

    #[test]
    fn lengths_on_demand() {
        let k = key("ETH,eth_type(0x0800),ipv4(src=1.2.3.4,dst=5.6.7.8,proto=17,ttl=64,frag=no),udp(src=1,dst=2)");
        let f = compose_len(&k, 100).unwrap();
        assert_eq!((f.len(), f[16..18].to_vec(), f[38..40].to_vec()), (100, vec![0, 86], vec![0, 66]));
        assert_eq!(csum::of(&f[14..34]), 0);
        assert_eq!(csum::fold(csum::add(csum::pseudo_v4(0x0102_0304, 0x0506_0708, 17, 66), &f[34..])), 0xffff);
        assert_eq!(compose_len(&k, 41), None);
        assert_eq!(compose_len(&k, 42).unwrap().len(), 42);
    }
}
