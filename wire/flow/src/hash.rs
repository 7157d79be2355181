//! Hashes of flows.
//!
//! Those whose values users see (which link a `multipath` takes, which bucket a select group picks,
//! `dp_hash` in a flow dump) are the reference's: Bob Jenkins' lookup3 and MurmurHash3's 32-bit mixing, over
//! the words of the headers as a little-endian machine loads them. [`fold`] is for our own tables.

use crate::field::Field;
use crate::key::{DpKey, FlowKey, FlowMask, VLAN_CFI, VLAN_VID_MASK, eth, ipproto};

/// One step of MurmurHash3.
pub const fn add(hash: u32, data: u32) -> u32 {
    let d = data.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    (hash ^ d).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}

/// Two steps, the low half first.
pub const fn add64(hash: u32, data: u64) -> u32 {
    add(add(hash, data as u32), (data >> 32) as u32)
}

/// MurmurHash3's end, with `last` (usually the length) mixed in.
pub const fn finish(hash: u32, last: u32) -> u32 {
    let h = hash ^ last;
    let h = (h ^ h >> 16).wrapping_mul(0x85eb_ca6b);
    let h = (h ^ h >> 13).wrapping_mul(0xc2b2_ae35);
    h ^ h >> 16
}

pub const fn two_words(x: u32, y: u32) -> u32 {
    finish(add(add(x, 0), y), 8)
}

/// The weight of a bundle's member `i` for a flow of that hash: the heaviest takes it.
pub const fn hrw_weight(i: u32, hash: u32) -> u32 {
    two_words(i, hash)
}

pub const fn int(x: u32, basis: u32) -> u32 {
    two_words(x, basis)
}

/// Any bytes.
pub fn bytes(p: &[u8], basis: u32) -> u32 {
    let mut words = p.chunks_exact(4);
    let mut h = words.by_ref().fold(basis, |h, w| add(h, le32(w)));
    if let rest @ [_, ..] = words.remainder() {
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        h = add(h, le32(&last));
    }
    finish(h, p.len() as u32)
}

/// A MAC address in a VLAN, as bonds and `bond/hash` see it.
pub fn mac_vlan(mac: &[u8; 6], vlan: u16, basis: u32) -> u32 {
    let m = mac.iter().fold(u64::from(vlan), |v, b| v << 8 | u64::from(*b));
    finish(add64(basis, m), 8)
}

/// lookup3 over `p`, in whole groups of 12 bytes and one that is padded with zeros.
pub fn jhash(p: &[u8], basis: u32) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(p.len() as u32).wrapping_add(basis);
    let mut s = [start; 3];
    let groups = p.chunks_exact(12);
    let rest = groups.remainder();
    let words = |g: &[u8]| -> [u32; 3] { std::array::from_fn(|i| le32(&g[4 * i..])) };
    for g in groups {
        jhash_add(&mut s, words(g));
        jhash_mix(&mut s);
    }
    if !rest.is_empty() {
        let mut last = [0; 12];
        last[..rest.len()].copy_from_slice(rest);
        jhash_add(&mut s, words(&last));
        jhash_final(&mut s);
    }
    s[2]
}

fn le32(b: &[u8]) -> u32 {
    u32::from_le_bytes([b[0], b[1], b[2], b[3]])
}

fn jhash_add(s: &mut [u32; 3], w: [u32; 3]) {
    for (a, b) in s.iter_mut().zip(w) {
        *a = a.wrapping_add(b);
    }
}

fn jhash_mix([a, b, c]: &mut [u32; 3]) {
    let step = |x: &mut u32, y: &mut u32, z: &mut u32, k: u32| {
        *x = x.wrapping_sub(*z) ^ z.rotate_left(k);
        *z = z.wrapping_add(*y);
    };
    step(a, b, c, 4);
    step(b, c, a, 6);
    step(c, a, b, 8);
    step(a, b, c, 16);
    step(b, c, a, 19);
    step(c, a, b, 4);
}

fn jhash_final([a, b, c]: &mut [u32; 3]) {
    let step = |x: &mut u32, y: u32, k: u32| *x = (*x ^ y).wrapping_sub(y.rotate_left(k));
    step(c, *b, 14);
    step(a, *c, 11);
    step(b, *a, 25);
    step(c, *b, 16);
    step(a, *c, 4);
    step(b, *a, 14);
    step(c, *b, 24);
}

/// Header fields that `multipath`, `bundle` and select groups hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HashFields {
    EthSrc,
    SymmetricL4,
    SymmetricL3L4,
    SymmetricL3L4Udp,
    NwSrc,
    NwDst,
    SymmetricL3,
}

impl HashFields {
    /// With the numbers of NX_HASH_FIELDS_*.
    pub const ALL: [(HashFields, u16, &'static str); 7] = [
        (HashFields::EthSrc, 0, "eth_src"),
        (HashFields::SymmetricL4, 1, "symmetric_l4"),
        (HashFields::SymmetricL3L4, 2, "symmetric_l3l4"),
        (HashFields::SymmetricL3L4Udp, 3, "symmetric_l3l4+udp"),
        (HashFields::NwSrc, 4, "nw_src"),
        (HashFields::NwDst, 5, "nw_dst"),
        (HashFields::SymmetricL3, 6, "symmetric_l3"),
    ];

    pub fn by_name(name: &str) -> Option<HashFields> {
        HashFields::ALL.iter().find(|(_, _, n)| *n == name).map(|(f, ..)| *f)
    }

    pub fn by_code(code: u16) -> Option<HashFields> {
        HashFields::ALL.iter().find(|(_, c, _)| *c == code).map(|(f, ..)| *f)
    }

    pub fn name(self) -> &'static str {
        HashFields::ALL[self as usize].2
    }

    pub fn code(self) -> u16 {
        HashFields::ALL[self as usize].1
    }

    /// The hash of the flow's fields.
    pub fn hash(self, key: &DpKey, basis: u32) -> u32 {
        match self {
            HashFields::EthSrc => jhash(&key.base.dl_src, basis),
            HashFields::SymmetricL4 => symmetric_l4(key, basis),
            HashFields::SymmetricL3L4 => symmetric_l3l4(key, basis, false),
            HashFields::SymmetricL3L4Udp => symmetric_l3l4(key, basis, true),
            HashFields::NwSrc => address(key, key.base.nw_src.get(), &key.v6.ipv6_src, basis),
            HashFields::NwDst => address(key, key.base.nw_dst.get(), &key.v6.ipv6_dst, basis),
            HashFields::SymmetricL3 => symmetric_l3(key, basis),
        }
    }

    /// Adds what [`HashFields::hash`] looks at to what is matched.
    pub fn unwildcard(self, key: &FlowKey, mask: &mut FlowMask) {
        let mut set = |fs: &[Field]| fs.iter().for_each(|f| mask.set_field(*f));
        let (t, proto) = (key.base.dl_type.get(), key.base.nw_proto);
        let ip = matches!(t, eth::IP | eth::IPV6);
        use Field::*;
        match self {
            HashFields::EthSrc => set(&[EthSrc]),
            HashFields::NwSrc if t == eth::IP => set(&[Ipv4Src]),
            HashFields::NwSrc if t == eth::IPV6 => set(&[Ipv6Src]),
            HashFields::NwDst if t == eth::IP => set(&[Ipv4Dst]),
            HashFields::NwDst if t == eth::IPV6 => set(&[Ipv6Dst]),
            HashFields::NwSrc | HashFields::NwDst => {}
            _ => {
                match t {
                    eth::IP => set(&[Ipv4Src, Ipv4Dst]),
                    eth::IPV6 => set(&[Ipv6Src, Ipv6Dst]),
                    _ => {}
                }
                let ports = match self {
                    HashFields::SymmetricL3 => false,
                    HashFields::SymmetricL3L4 | HashFields::SymmetricL3L4Udp if key.base.nw_frag != 0 => false,
                    HashFields::SymmetricL3L4Udp => matches!(proto, ipproto::TCP | ipproto::SCTP | ipproto::UDP),
                    _ => matches!(proto, ipproto::TCP | ipproto::SCTP),
                };
                if ip && self != HashFields::SymmetricL3 {
                    set(&[IpProto]);
                    if ports {
                        set(&[TcpSrc, TcpDst]);
                    }
                }
                // Layer 2 where it is hashed: always by symmetric_l4, else for what is not IP.
                if self == HashFields::SymmetricL4 || (!ip && self != HashFields::SymmetricL3) {
                    set(&[EthSrc, EthDst]);
                    for tag in &mut mask.0.dp.base.vlans {
                        tag.tci = (tag.tci.get() | VLAN_VID_MASK | VLAN_CFI).into();
                    }
                }
            }
        }
    }
}

fn address(key: &DpKey, v4: u32, v6: &[u8; 16], basis: u32) -> u32 {
    match key.base.dl_type.get() {
        eth::IP => jhash(&v4.to_be_bytes(), basis),
        eth::IPV6 => jhash(v6, basis),
        _ => basis,
    }
}

fn xor<const N: usize>(a: &[u8; N], b: &[u8; N]) -> [u8; N] {
    std::array::from_fn(|i| a[i] ^ b[i])
}

/// Exclusive or of both addresses, left-aligned in 16 bytes.
fn xor_addresses(key: &DpKey) -> [u8; 16] {
    let mut out = [0; 16];
    match key.base.dl_type.get() {
        eth::IP => out[..4].copy_from_slice(&(key.base.nw_src.get() ^ key.base.nw_dst.get()).to_be_bytes()),
        eth::IPV6 => out = xor(&key.v6.ipv6_src, &key.v6.ipv6_dst),
        _ => {}
    }
    out
}

fn xor_vids(key: &DpKey) -> u16 {
    key.base.vlans.iter().fold(0, |v, t| v ^ t.tci.get() & VLAN_VID_MASK)
}

fn xor_ports(key: &DpKey) -> [u8; 2] {
    (key.base.tp_src.get() ^ key.base.tp_dst.get()).to_be_bytes()
}

fn is_ip(key: &DpKey) -> bool {
    matches!(key.base.dl_type.get(), eth::IP | eth::IPV6)
}

/// The same in both directions of a connection. UDP ports are left out: they need not be symmetric.
pub fn symmetric_l4(key: &DpKey, basis: u32) -> u32 {
    let mut f = [0; 32];
    f[..16].copy_from_slice(&xor_addresses(key));
    f[16..18].copy_from_slice(&key.base.dl_type.get().to_be_bytes());
    f[18..20].copy_from_slice(&xor_vids(key).to_be_bytes());
    f[22..28].copy_from_slice(&xor(&key.base.dl_src, &key.base.dl_dst));
    if is_ip(key) {
        f[28] = key.base.nw_proto;
        if matches!(key.base.nw_proto, ipproto::TCP | ipproto::SCTP) {
            f[20..22].copy_from_slice(&xor_ports(key));
        }
    }
    jhash(&f, basis)
}

/// As [`symmetric_l4`] without layer 2; of what is not IP, layer 2 alone.
pub fn symmetric_l3l4(key: &DpKey, basis: u32, udp: bool) -> u32 {
    let a = xor_addresses(key);
    let mut h = basis;
    match key.base.dl_type.get() {
        eth::IP => h = add(h, le32(&a)),
        eth::IPV6 => h = a.chunks_exact(4).fold(h, |h, w| add(h, le32(w))),
        _ => return symmetric_l2(key, basis),
    }
    h = add(h, key.base.nw_proto.into());
    let ports = match key.base.nw_proto {
        ipproto::TCP | ipproto::SCTP => true,
        ipproto::UDP => udp,
        _ => false,
    };
    // All fragments of a packet go one way.
    if ports && key.base.nw_frag == 0 {
        h = add(h, u16::from_le_bytes(xor_ports(key)).into());
    }
    finish(h, basis)
}

/// Addresses, EtherType and VLAN.
pub fn symmetric_l2(key: &DpKey, basis: u32) -> u32 {
    let mut f = [0; 12];
    f[..2].copy_from_slice(&key.base.dl_type.get().to_be_bytes());
    f[2..4].copy_from_slice(&xor_vids(key).to_be_bytes());
    f[4..10].copy_from_slice(&xor(&key.base.dl_src, &key.base.dl_dst));
    finish(f.chunks_exact(4).fold(basis, |h, w| add(h, le32(w))), basis)
}

fn symmetric_l3(key: &DpKey, basis: u32) -> u32 {
    let mut f = [0; 20];
    f[..16].copy_from_slice(&xor_addresses(key));
    f[16..18].copy_from_slice(&key.base.dl_type.get().to_be_bytes());
    jhash(&f, basis)
}

/// The 5-tuple: what stands for a NIC's RSS hash where there is none.
pub fn five_tuple(key: &DpKey, basis: u32) -> u32 {
    let words = |h: u32, a: &[u8]| a.chunks_exact(4).fold(h, |h, w| add(h, le32(w)));
    let b = &key.base;
    let mut h = basis;
    match b.dl_type.get() {
        eth::IPV6 => h = words(words(h, &key.v6.ipv6_src), &key.v6.ipv6_dst),
        eth::IP | eth::ARP => h = words(words(h, &b.nw_src.get().to_be_bytes()), &b.nw_dst.get().to_be_bytes()),
        _ => return finish(h, 42),
    }
    h = add(h, b.nw_proto.into());
    let ports = [ipproto::TCP, ipproto::UDP, ipproto::SCTP, ipproto::ICMP, ipproto::ICMPV6];
    if ports.contains(&b.nw_proto) {
        let ([s0, s1], [d0, d1]) = (b.tp_src.to_bytes(), b.tp_dst.to_bytes());
        h = add(h, u32::from_le_bytes([s0, s1, d0, d1]));
    }
    finish(h, 42)
}

/// The datapath action `hash(l4(basis))` of a packet whose RSS hash is `rss`, or has none.
pub fn dp_hash_l4(key: &DpKey, rss: Option<u32>, basis: u32) -> u32 {
    int(rss.unwrap_or_else(|| five_tuple(key, 0)), basis)
}

/// The datapath action `hash(sym_l4(basis))`.
pub fn dp_hash_sym_l4(key: &DpKey, basis: u32) -> u32 {
    symmetric_l3l4(key, basis, false)
}

/// How `multipath` makes a link of a hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MultipathAlgorithm {
    ModuloN,
    HashThreshold,
    Hrw,
    IterHash,
}

impl MultipathAlgorithm {
    /// In the order of their codes.
    pub const ALL: [(MultipathAlgorithm, &'static str); 4] = [
        (MultipathAlgorithm::ModuloN, "modulo_n"),
        (MultipathAlgorithm::HashThreshold, "hash_threshold"),
        (MultipathAlgorithm::Hrw, "hrw"),
        (MultipathAlgorithm::IterHash, "iter_hash"),
    ];

    /// The link, below `n_links` (which is at least 1).
    pub fn link(self, hash: u32, n_links: u32, arg: u32) -> u32 {
        let n_links = n_links.max(1);
        match self {
            MultipathAlgorithm::HashThreshold if n_links == 1 => 0,
            MultipathAlgorithm::HashThreshold => hash / (u32::MAX / n_links + 1),
            // Linear in the links: only for few.
            MultipathAlgorithm::Hrw if n_links <= 64 => highest_random_weight(hash, n_links),
            MultipathAlgorithm::ModuloN | MultipathAlgorithm::Hrw => hash % n_links,
            MultipathAlgorithm::IterHash => iter_hash(hash, n_links, arg),
        }
    }
}

fn highest_random_weight(hash: u32, n: u32) -> u32 {
    (1..n)
        .fold((0, two_words(hash, 0)), |best, i| {
            let w = two_words(hash, i);
            if w > best.1 { (i, w) } else { best }
        })
        .0
}

fn iter_hash(hash: u32, n_links: u32, modulo: u32) -> u32 {
    /// Each try succeeds with a probability of at least a half.
    const MAX_TRIES: u32 = 256;
    let modulo = if modulo < n_links || modulo / 2 > n_links {
        n_links.checked_next_power_of_two().unwrap_or(u32::MAX)
    } else {
        modulo
    };
    (0..MAX_TRIES).map(|i| two_words(hash, i) % modulo).find(|l| *l < n_links).unwrap_or(hash % n_links)
}

/// A hash of words for tables of this process: one wide multiplication a word.
pub fn fold(words: &[u64], seed: u64) -> u64 {
    words.iter().fold(seed ^ FOLD_KEY, |h, w| mul_fold(h ^ w))
}

/// [`fold`] of the words under a mask.
pub fn fold_masked(words: &[u64], mask: &[u64], seed: u64) -> u64 {
    words.iter().zip(mask).fold(seed ^ FOLD_KEY, |h, (w, m)| mul_fold(h ^ (w & m)))
}

const FOLD_KEY: u64 = 0x9e37_79b9_7f4a_7c15;

fn mul_fold(x: u64) -> u64 {
    let p = u128::from(x ^ 0x2545_f491_4f6c_dd1d) * u128::from(FOLD_KEY);
    (p >> 64) as u64 ^ p as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    #[test]
    fn links_as_the_reference_chooses_them() {
        for line in include_str!("../tests/data/multipath.txt").lines().filter(|l| !l.starts_with('#')) {
            let w: Vec<&str> = line.splitn(6, ' ').collect();
            let (alg, _) = MultipathAlgorithm::ALL.into_iter().find(|(_, n)| *n == w[0]).unwrap();
            let fields = HashFields::by_name(w[1]).unwrap();
            let key = text::parse_exact_flow(w[5], None).unwrap();
            let hash = fields.hash(&key.dp, w[2].parse().unwrap());
            assert_eq!(alg.link(hash, w[3].parse().unwrap(), 0), w[4].parse().unwrap(), "{line}");
        }
    }

    #[test]
    fn dp_hash_as_the_reference_computes_it() {
        let check = |flow: &str, want: u32| {
            let flow = format!("in_port(1),eth(src=00:01:02:03:04:05,dst=10:11:12:13:14:15),{flow}");
            let key = crate::odp::parse(&flow, &|_| None).unwrap().key;
            assert_eq!(dp_hash_l4(&key, None, 0), want, "{flow}");
        };
        check("eth_type(0x0800),ipv4(src=1.2.3.4,dst=5.6.7.8,proto=17),udp(src=1,dst=2)", 0x521e_cae3);
        check("eth_type(0x86dd),ipv6(src=::1,dst=2001::2,proto=6),tcp(src=1,dst=2)", 0x7ae2_fb08);
        check("eth_type(0x0800),ipv4(src=1.2.3.4,dst=5.6.7.8,proto=1),icmp(type=8,code=0)", 0xd853_5c7a);
        check("eth_type(0x0800),ipv4(src=1.2.3.4,dst=5.6.7.8,proto=47)", 0xd505_a60f);
        check("eth_type(0x0806),arp(sip=1.2.3.4,tip=5.6.7.8,op=1)", 0xf2fd_9a70);
        check("eth_type(0x1234)", 0x15d7_a4ff);
    }

    #[test]
    fn bonds_hash_macs() {
        let mac = [0, 1, 2, 3, 4, 5];
        for (vlan, basis, want) in [(5, 7, 104), (5, 8, 53), (6, 0, 147)] {
            assert_eq!(mac_vlan(&mac, vlan, basis) & 0xff, want);
        }
    }

    #[test]
    fn hashes_look_only_at_what_they_say() {
        let flows = [
            "tcp,nw_src=1.2.3.4,tcp_dst=80",
            "udp6,ipv6_src=::5,udp_dst=80",
            "dl_vlan=5,dl_type=0x1234,dl_src=00:00:00:00:00:01",
        ];
        for flow in flows {
            let key = text::parse_exact_flow(flow, None).unwrap();
            for (f, ..) in HashFields::ALL {
                let mut mask = FlowMask::default();
                f.unwildcard(&key, &mut mask);
                mask.0.dp.base.dl_type = 0xffff.into();
                let masked = mask.apply(&key);
                assert_eq!(f.hash(&masked.dp, 3), f.hash(&key.dp, 3), "{flow} {f:?}");
            }
        }
    }

    #[test]
    fn folding_spreads() {
        let mut seen = std::collections::HashSet::new();
        for i in 0..64 * 8u64 {
            let mut w = [0u64; 8];
            w[i as usize / 64] = 1 << (i % 64);
            assert!(seen.insert(fold(&w, 1) as u32));
            let mask = [u64::MAX; 8];
            assert_eq!(fold(&w, 1), fold_masked(&w, &mask, 1));
        }
    }
}
