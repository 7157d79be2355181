//! Building, comparing and normalising matches.

use crate::field::{Field, FieldValue, prefix_mask};
use crate::key::{FlowKey, FlowMask, Match, eth, ipproto};
use fv_core::ids::OfPort;
use std::hash::{Hash, Hasher};

impl Match {
    /// Matches every packet.
    pub fn catch_all() -> Match {
        Match::default()
    }

    /// `key` under `mask`, dropping the bits that are not matched.
    pub fn new(key: &FlowKey, mask: &FlowMask) -> Match {
        Match { key: mask.apply(key), mask: *mask, ..Match::default() }
    }

    /// Restores the rule that the key holds no unmatched bit.
    pub fn zero_unmatched(&mut self) {
        self.key = self.mask.apply(&self.key);
    }

    pub fn is_catch_all(&self) -> bool {
        self.mask.is_empty()
    }

    /// Whether a packet with this key is matched.
    pub fn matches(&self, key: &FlowKey) -> bool {
        self.mask.equal(&self.key, key)
    }

    /// Whether some packet could match both.
    pub fn overlaps(&self, o: &Match) -> bool {
        let (a, b) = (self.key.words().iter().zip(self.mask.0.words()), o.key.words().iter().zip(o.mask.0.words()));
        a.zip(b).all(|((ak, am), (bk, bm))| (ak ^ bk) & am & bm == 0)
    }

    /// Whether `self` is at least as specific as `o`: each packet that `self` matches, `o` matches
    /// too. This is what a loose flow-mod selects with `o` as its description.
    pub fn is_subset_of(&self, o: &Match) -> bool {
        o.mask.is_subset_of(&self.mask) && o.mask.equal(&o.key, &self.key)
    }

    pub fn set_in_port(&mut self, port: OfPort) -> &mut Self {
        self.set(Field::InPortOxm, port.0.into())
    }
    pub fn set_dl_type(&mut self, ethertype: u16) -> &mut Self {
        self.set(Field::EthType, ethertype.into())
    }
    pub fn set_dl_src(&mut self, mac: [u8; 6]) -> &mut Self {
        self.set(Field::EthSrc, FieldValue::from_be_bytes(&mac).0)
    }
    pub fn set_dl_dst(&mut self, mac: [u8; 6]) -> &mut Self {
        self.set(Field::EthDst, FieldValue::from_be_bytes(&mac).0)
    }
    pub fn set_dl_vlan(&mut self, vid: u16) -> &mut Self {
        self.set(Field::DlVlan, vid.into())
    }
    pub fn set_nw_proto(&mut self, proto: u8) -> &mut Self {
        self.set(Field::IpProto, proto.into())
    }
    pub fn set_nw_src(&mut self, addr: u32, prefix: u32) -> &mut Self {
        self.set_prefix(Field::Ipv4Src, addr.into(), prefix)
    }
    pub fn set_nw_dst(&mut self, addr: u32, prefix: u32) -> &mut Self {
        self.set_prefix(Field::Ipv4Dst, addr.into(), prefix)
    }
    pub fn set_tp_src(&mut self, port: u16) -> &mut Self {
        self.set(Field::TcpSrc, port.into())
    }
    pub fn set_tp_dst(&mut self, port: u16) -> &mut Self {
        self.set(Field::TcpDst, port.into())
    }
    pub fn set_recirc_id(&mut self, id: u32) -> &mut Self {
        self.set(Field::RecircId, id.into())
    }
    pub fn set_reg(&mut self, n: usize, v: u32) -> &mut Self {
        match Field::reg(n) {
            Some(f) => self.set(f, v.into()),
            None => self,
        }
    }

    /// Matches the field exactly.
    pub fn set(&mut self, f: Field, v: u128) -> &mut Self {
        self.set_field(f, &FieldValue::new(v));
        self
    }

    /// Matches the first `len` bits of the field.
    pub fn set_prefix(&mut self, f: Field, v: u128, len: u32) -> &mut Self {
        self.set_field_masked(f, &FieldValue::new(v), &prefix_mask(f.n_bits(), len));
        self
    }

    /// A match that says nothing of the packet's type means Ethernet.
    pub fn set_default_packet_type(&mut self) {
        if self.mask.0.dp.misc.packet_type == 0 {
            self.set(Field::PacketType, 0);
        }
    }

    /// Drops what the match cannot mean, because no packet that satisfies the rest of it has the
    /// field. True if that changed anything.
    pub fn normalize(&mut self) -> bool {
        let before = self.mask;
        let keep = Applicable::of(&self.key);
        let (b, v6, misc) = (&mut self.mask.0.dp.base, &mut self.mask.0.dp.v6, &mut self.mask.0.dp.misc);
        if !keep.nw_addr {
            (b.nw_src, b.nw_dst) = Default::default();
        }
        if !keep.tp {
            (b.tp_src, b.tp_dst) = Default::default();
        }
        if !keep.nw_proto {
            b.nw_proto = 0;
        }
        if !keep.ip {
            (b.nw_tos, b.nw_ttl) = Default::default();
        }
        if !keep.sha {
            v6.arp_sha = [0; 6];
        }
        if !keep.tha {
            v6.arp_tha = [0; 6];
        }
        if !keep.ipv6 {
            (v6.ipv6_src, v6.ipv6_dst, v6.ipv6_label) = Default::default();
        }
        if !keep.nd_target {
            v6.nd_target = [0; 16];
        }
        if !keep.mpls {
            misc.mpls_lse = Default::default();
        }
        if !keep.ethernet {
            (b.dl_src, b.dl_dst) = Default::default();
        }
        self.zero_unmatched();
        self.mask != before
    }
}

/// Which groups of fields a match on this key may speak of.
#[derive(Default)]
struct Applicable {
    ethernet: bool,
    nw_proto: bool,
    nw_addr: bool,
    ip: bool,
    tp: bool,
    ipv6: bool,
    sha: bool,
    tha: bool,
    nd_target: bool,
    mpls: bool,
}

impl Applicable {
    fn of(key: &FlowKey) -> Applicable {
        let b = &key.dp.base;
        let ports = [ipproto::TCP, ipproto::UDP, ipproto::SCTP].contains(&b.nw_proto);
        let mut a = Applicable { ethernet: key.dp.misc.packet_type == 0, ..Applicable::default() };
        match key.l3_type() {
            eth::IP => {
                (a.nw_proto, a.nw_addr, a.ip) = (true, true, true);
                a.tp = ports || b.nw_proto == ipproto::ICMP;
            }
            eth::IPV6 => {
                (a.nw_proto, a.ipv6, a.ip) = (true, true, true);
                let icmp = b.nw_proto == ipproto::ICMPV6;
                a.tp = ports || icmp;
                (a.sha, a.tha) = (icmp && b.tp_src == 135, icmp && b.tp_src == 136);
                a.nd_target = a.sha || a.tha;
            }
            eth::ARP | eth::RARP => (a.nw_proto, a.nw_addr, a.sha, a.tha) = (true, true, true, true),
            eth::MPLS | eth::MPLS_MCAST => a.mpls = true,
            _ => {}
        }
        a
    }
}

impl FlowKey {
    /// The EtherType of what follows layer 2, also for packets that have no Ethernet header.
    pub fn l3_type(&self) -> u16 {
        match self.dp.misc.packet_type {
            t if t >> 16 == 1 => t as u16,
            _ => self.dp.base.dl_type.get(),
        }
    }
}

impl FlowMask {
    /// Whether every bit of `self` is matched by `o` too.
    pub fn is_subset_of(&self, o: &FlowMask) -> bool {
        self.0.words().iter().zip(o.0.words()).all(|(a, b)| a & !b == 0)
    }
}

impl Hash for FlowKey {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.words().hash(h);
    }
}

impl Hash for FlowMask {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.0.hash(h);
    }
}

impl Hash for crate::key::DpKey {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.words().hash(h);
    }
}

impl Hash for crate::key::DpMask {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.0.hash(h);
    }
}

impl Hash for Match {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.key.hash(h);
        self.mask.hash(h);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn m(fields: &[(Field, u128)]) -> Match {
        let mut m = Match::default();
        for (f, v) in fields {
            m.set(*f, *v);
        }
        m
    }

    #[test]
    fn normalisation_drops_what_cannot_be_meant() {
        use Field::*;
        let check = |given: &[(Field, u128)], want: &[(Field, u128)]| {
            let mut x = m(given);
            assert_eq!(x.normalize(), given != want, "{given:?}");
            assert_eq!(x, m(want), "{given:?}");
        };
        let ip = (EthType, 0x800);
        let ipv6 = (EthType, 0x86dd);
        check(&[ip, (Ipv4Src, 5)], &[ip, (Ipv4Src, 5)]);
        check(&[(Ipv4Src, 5)], &[]);
        check(&[(TcpSrc, 5)], &[]);
        check(&[ip, (TcpSrc, 5)], &[ip]);
        check(&[ip, (IpProto, 2), (TcpSrc, 5)], &[ip, (IpProto, 2)]);
        check(&[(EthType, 0x806), (IpDscp, 4)], &[(EthType, 0x806)]);
        check(&[ipv6, (IpProto, 58), (NdTarget, 1)], &[ipv6, (IpProto, 58)]);
        let ns = [ipv6, (IpProto, 58), (Icmpv6Type, 135)];
        check(&[&ns[..], &[(NdSll, 1)]].concat(), &[&ns[..], &[(NdSll, 1)]].concat());
        check(&[&ns[..], &[(NdTll, 1)]].concat(), &ns);
        check(&[(MplsLabel, 3)], &[]);
        check(&[(PacketType, 0x1_0800), (EthSrc, 1)], &[(PacketType, 0x1_0800)]);
        check(&[(PacketType, 0x1_0800), (Ipv4Src, 1)], &[(PacketType, 0x1_0800), (Ipv4Src, 1)]);
        check(&[(DlVlan, 5), (EthSrc, 1)], &[(DlVlan, 5), (EthSrc, 1)]);
    }

    #[test]
    fn overlap_and_subset() {
        use Field::*;
        let any = Match::default();
        let a = m(&[(EthType, 0x800), (IpProto, 6)]);
        let b = m(&[(EthType, 0x800), (IpProto, 17)]);
        let port = m(&[(InPort, 1)]);
        assert!(a.overlaps(&any) && a.overlaps(&port) && !a.overlaps(&b));
        assert!(a.is_subset_of(&any) && !any.is_subset_of(&a) && a.is_subset_of(&a));
        assert!(a.is_subset_of(&m(&[(EthType, 0x800)])) && !a.is_subset_of(&b) && !a.is_subset_of(&port));
        assert!(any.is_catch_all() && a.matches(&a.key) && !a.matches(&b.key));
    }
}
