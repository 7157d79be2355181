//! Packets from small pools of addresses, so that the rules' matches meet them.

use crate::rng::Rng;

pub const MACS: [&str; 5] =
    ["50:54:00:00:00:01", "50:54:00:00:00:02", "50:54:00:00:00:03", "01:00:5e:00:00:05", "ff:ff:ff:ff:ff:ff"];
pub const IPS: [&str; 6] = ["10.0.0.1", "10.0.0.2", "10.0.1.1", "10.1.0.7", "192.168.0.1", "224.0.0.5"];
pub const IP6S: [&str; 4] = ["fd00::1", "fd00::2", "fd00:0:0:1::3", "2001:db8::77"];
pub const PORTS: [u16; 6] = [80, 443, 53, 1000, 1001, 1015];
pub const VIDS: [u16; 4] = [10, 20, 30, 100];
pub const LABELS: [u32; 3] = [100, 101, 1000];

/// The bytes of one Ethernet frame.
pub fn packet(r: &mut Rng) -> Vec<u8> {
    let mut p = Vec::with_capacity(128);
    let dst = if r.one_in(40) { [1, 0x80, 0xc2, 0, 0, r.of(&[0, 3, 0xe, 0x21])] } else { mac(r.pick(&MACS)) };
    p.extend_from_slice(&dst);
    p.extend_from_slice(&mac(MACS[r.below(3) as usize]));
    for _ in 0..r.of(&[0, 0, 0, 1, 1, 2, 3]).min(if r.one_in(12) { 3 } else { 2 }) {
        let tpid: u16 = if r.one_in(5) { 0x88a8 } else { 0x8100 };
        let vid = if r.one_in(6) { 0 } else { r.of(&VIDS) };
        p.extend_from_slice(&tpid.to_be_bytes());
        p.extend_from_slice(&(vid | (r.of(&[0u16, 0, 3, 7]) << 13)).to_be_bytes());
    }
    match r.below(20) {
        0..=9 => {
            p.extend_from_slice(&[8, 0]);
            ipv4(r, &mut p);
        }
        10..=13 => {
            p.extend_from_slice(&[0x86, 0xdd]);
            ipv6(r, &mut p);
        }
        14 | 15 => arp(r, &mut p),
        16 | 17 => mpls(r, &mut p),
        18 => {
            // IEEE 802.3 with LLC.
            p.extend_from_slice(&[0, 46, 0x42, 0x42, 3]);
            p.extend_from_slice(&[0; 43]);
        }
        _ => {
            p.extend_from_slice(&[0x12, 0x34]);
            p.extend((0..50).map(|i| i as u8));
        }
    }
    if p.len() < 60 {
        p.resize(60, 0);
    }
    p
}

pub fn hex(p: &[u8]) -> String {
    p.iter().map(|b| format!("{b:02x}")).collect()
}

pub fn mac(s: &str) -> [u8; 6] {
    let mut out = [0; 6];
    for (o, b) in out.iter_mut().zip(s.split(':')) {
        *o = u8::from_str_radix(b, 16).expect("a MAC address");
    }
    out
}

fn arp(r: &mut Rng, p: &mut Vec<u8>) {
    p.extend_from_slice(if r.one_in(5) { &[0x80, 0x35] } else { &[8, 6] });
    p.extend_from_slice(&[0, 1, 8, 0, 6, 4, 0, r.of(&[1, 1, 2, 2, 3])]);
    let sender = r.pick(&IPS);
    let target = if r.one_in(3) { sender } else { r.pick(&IPS) };
    p.extend_from_slice(&mac(r.pick(&MACS)));
    p.extend_from_slice(&ip4(sender));
    p.extend_from_slice(&mac(r.pick(&MACS)));
    p.extend_from_slice(&ip4(target));
}

fn mpls(r: &mut Rng, p: &mut Vec<u8>) {
    p.extend_from_slice(if r.one_in(5) { &[0x88, 0x48] } else { &[0x88, 0x47] });
    let n = 1 + r.below(4);
    for i in 0..n {
        let bos = u32::from(i + 1 == n);
        let lse = r.of(&LABELS) << 12 | r.of(&[0u32, 5]) << 9 | bos << 8 | r.of(&[64u32, 1, 0, 255]);
        p.extend_from_slice(&lse.to_be_bytes());
    }
    if r.one_in(4) {
        ipv6(r, p);
    } else {
        ipv4(r, p);
    }
}

fn ip4(s: &str) -> [u8; 4] {
    s.parse::<std::net::Ipv4Addr>().expect("an IPv4 address").octets()
}

fn ip6(s: &str) -> [u8; 16] {
    s.parse::<std::net::Ipv6Addr>().expect("an IPv6 address").octets()
}

/// RFC 1071 over `parts`, each of which starts at an even offset.
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for b in parts.iter().flat_map(|p| p.chunks(2)) {
        sum += u32::from(b[0]) << 8 | u32::from(*b.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn ipv4(r: &mut Rng, p: &mut Vec<u8>) {
    let (src, dst) = (ip4(r.pick(&IPS)), ip4(r.pick(&IPS)));
    let proto = r.of(&[6u8, 6, 6, 17, 17, 1, 132, 2, 47]);
    let mut pseudo = Vec::new();
    pseudo.extend_from_slice(&src);
    pseudo.extend_from_slice(&dst);
    pseudo.extend_from_slice(&[0, proto]);
    let l4 = transport(r, proto, &pseudo);
    let options: &[u8] = if r.one_in(8) { &[1, 1, 1, 0] } else { &[] };
    let frag: u16 = match r.below(12) {
        0 => 0x2000,
        1 => 0x2010,
        2 => 0x0020,
        3 => 0x4000,
        _ => 0,
    };
    let mut h = vec![0x45 + (options.len() / 4) as u8, r.of(&[0, 0, 0x20, 0xb9, 3])];
    let total = 20 + options.len() + l4.len();
    h.extend_from_slice(&(total as u16).to_be_bytes());
    h.extend_from_slice(&[0, 9]);
    h.extend_from_slice(&frag.to_be_bytes());
    h.extend_from_slice(&[r.of(&[64, 64, 64, 2, 1, 0]), proto, 0, 0]);
    h.extend_from_slice(&src);
    h.extend_from_slice(&dst);
    h.extend_from_slice(options);
    let c = checksum(&[&h]).to_be_bytes();
    h[10..12].copy_from_slice(&c);
    p.extend_from_slice(&h);
    p.extend_from_slice(&l4);
}

fn ipv6(r: &mut Rng, p: &mut Vec<u8>) {
    let (src, dst) = (ip6(r.pick(&IP6S)), ip6(r.pick(&IP6S)));
    let proto = r.of(&[6u8, 6, 17, 58, 58, 132, 59]);
    let mut pseudo = Vec::new();
    pseudo.extend_from_slice(&src);
    pseudo.extend_from_slice(&dst);
    pseudo.extend_from_slice(&[0, proto]);
    let l4 = transport(r, proto, &pseudo);
    let (first, ext): (u8, Vec<u8>) = match r.below(10) {
        0 => (0, vec![proto, 0, 1, 4, 0, 0, 0, 0]),
        1 => (44, vec![proto, 0, 0, 1, 0, 0, 0, 7]),
        2 => (44, vec![proto, 0, 0, 0x50, 0, 0, 0, 7]),
        _ => (proto, vec![]),
    };
    let label = r.of(&[0u32, 0, 0xabcde]) | u32::from(r.of(&[0u8, 0x20, 0xb9])) << 20;
    p.extend_from_slice(&(6 << 28 | label).to_be_bytes());
    p.extend_from_slice(&((ext.len() + l4.len()) as u16).to_be_bytes());
    p.extend_from_slice(&[first, r.of(&[64, 64, 255, 255, 1, 0])]);
    p.extend_from_slice(&src);
    p.extend_from_slice(&dst);
    p.extend_from_slice(&ext);
    p.extend_from_slice(&l4);
}

/// The layer 4 header and some payload, with its checksum; sometimes cut off within the header.
fn transport(r: &mut Rng, proto: u8, pseudo: &[u8]) -> Vec<u8> {
    let (sport, dport) = (r.of(&PORTS).to_be_bytes(), r.of(&PORTS).to_be_bytes());
    let mut t = Vec::new();
    let mut at = None;
    match proto {
        6 => {
            t.extend_from_slice(&[sport[0], sport[1], dport[0], dport[1], 0, 0, 0, 1, 0, 0, 0, 2]);
            t.extend_from_slice(&[0x50, r.of(&[2, 0x10, 0x18, 0x12, 1, 4]), 0xff, 0xff, 0, 0, 0, 0]);
            at = Some(16);
        }
        17 => {
            t.extend_from_slice(&[sport[0], sport[1], dport[0], dport[1], 0, 18, 0, 0]);
            at = (!r.one_in(5)).then_some(6);
        }
        132 => t.extend_from_slice(&[sport[0], sport[1], dport[0], dport[1], 0, 0, 0, 1, 0, 0, 0, 0]),
        1 => {
            t.extend_from_slice(&[r.of(&[8, 0, 3]), r.of(&[0, 0, 1]), 0, 0, 0, 1, 0, 2]);
            at = Some(2);
        }
        58 if !r.one_in(3) => {
            let kind = r.of(&[135u8, 136]);
            t.extend_from_slice(&[kind, 0, 0, 0, 0, 0, 0, 0]);
            t.extend_from_slice(&ip6(r.pick(&IP6S)));
            if !r.one_in(3) {
                t.extend_from_slice(&[kind - 134, 1]);
                t.extend_from_slice(&mac(r.pick(&MACS)));
            }
            at = Some(2);
        }
        58 => {
            t.extend_from_slice(&[r.of(&[128, 129]), 0, 0, 0, 0, 1, 0, 2]);
            at = Some(2);
        }
        _ => t.extend_from_slice(&[0x11, 0x16, 0, 0, 224, 0, 0, 9]),
    }
    if proto != 58 {
        t.extend((0..10).map(|i| i as u8));
    }
    if let Some(at) = at {
        let len = (t.len() as u16).to_be_bytes();
        let parts: [&[u8]; 3] = if proto == 1 { [&[], &[], &t] } else { [pseudo, &len, &t] };
        let mut c = checksum(&parts);
        if proto == 17 && c == 0 {
            c = 0xffff;
        }
        t[at..at + 2].copy_from_slice(&c.to_be_bytes());
    }
    if r.one_in(25) {
        t.truncate(r.below(8) as usize);
    }
    t
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_header_sums_to_zero() {
        let mut r = Rng::new(3);
        let mut p = Vec::new();
        ipv4(&mut r, &mut p);
        let n = usize::from(p[0] & 15) * 4;
        assert_eq!(checksum(&[&p[..n]]), 0);
        assert!((0..500).all(|_| packet(&mut r).len() >= 60));
    }
}
