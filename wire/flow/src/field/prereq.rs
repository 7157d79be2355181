//! What must hold of a flow for a field to exist in it.

use super::{Field, Prereq};
use crate::key::{FRAG_LATER, FlowKey, FlowMask, Match, VLAN_CFI, cs, eth, ipproto};

/// Conntrack states that say a connection is known.
const CT_KNOWN: u16 = cs::NEW | cs::EST | cs::REL | cs::RPL | cs::SNAT | cs::DNAT;
const CT_EXTRACTED: u16 = cs::NEW | cs::EST | cs::RPL;

/// The key that is asked about, and where to record which bits the answer depends on.
struct View<'a> {
    key: &'a FlowKey,
    /// Of a match: which bits of `key` say something.
    of_match: Option<&'a FlowMask>,
    looked_at: Option<&'a mut FlowMask>,
}

impl View<'_> {
    fn look(&mut self, f: impl FnOnce(&mut FlowKey)) {
        if let Some(m) = &mut self.looked_at {
            f(&mut m.0);
        }
    }

    fn dl_type(&self) -> u16 {
        // EtherTypes and packet types are always part of a datapath flow: no need to record the look.
        self.key.l3_type()
    }

    fn ethernet(&mut self) -> bool {
        self.look(|m| m.dp.misc.packet_type = u32::MAX);
        self.key.dp.misc.packet_type == 0
    }

    fn vlan(&mut self) -> bool {
        self.look(|m| {
            let t = m.dp.base.vlans[0].tci.get();
            m.dp.base.vlans[0].tci = (t | VLAN_CFI).into();
        });
        self.key.dp.base.vlans[0].tci.get() & VLAN_CFI != 0
    }

    fn proto(&mut self, dl_types: &[u16], proto: u8) -> bool {
        if !dl_types.contains(&self.dl_type()) {
            return false;
        }
        self.look(|m| m.dp.base.nw_proto = 0xff);
        self.key.dp.base.nw_proto == proto
    }

    fn l4(&mut self, proto: u8) -> bool {
        self.proto(&[eth::IP, eth::IPV6], proto) && self.not_later_fragment()
    }

    fn not_later_fragment(&mut self) -> bool {
        self.look(|m| m.dp.base.nw_frag |= FRAG_LATER);
        self.key.dp.base.nw_frag & FRAG_LATER == 0
    }

    /// An ICMPv6 message of one of `types` with code 0.
    fn nd(&mut self, types: &[u16]) -> bool {
        if !self.proto(&[eth::IPV6], ipproto::ICMPV6) {
            return false;
        }
        self.look(|m| m.dp.base.tp_dst = 0xffff.into());
        if self.key.dp.base.tp_dst != 0 {
            return false;
        }
        self.look(|m| m.dp.base.tp_src = 0xffff.into());
        types.contains(&self.key.dp.base.tp_src.get())
    }

    fn ct(&mut self) -> bool {
        let state = self.key.dp.base.ct_state;
        match self.of_match {
            Some(mask) => {
                state & CT_KNOWN != 0
                    || state & cs::TRK != 0 && mask.0.dp.base.ct_state & cs::INV != 0 && state & cs::INV == 0
            }
            None => {
                self.look(|m| m.dp.base.ct_state |= CT_EXTRACTED);
                state & CT_EXTRACTED != 0
            }
        }
    }

    fn holds(&mut self, p: Prereq) -> bool {
        match p {
            Prereq::None => true,
            Prereq::Ethernet => self.ethernet(),
            Prereq::Arp => [eth::ARP, eth::RARP].contains(&self.dl_type()),
            Prereq::VlanVid => self.vlan(),
            Prereq::Ipv4 => self.dl_type() == eth::IP,
            Prereq::Ipv6 => self.dl_type() == eth::IPV6,
            Prereq::IpAny => [eth::IP, eth::IPV6].contains(&self.dl_type()),
            Prereq::Ct => self.ct(),
            Prereq::Mpls => [eth::MPLS, eth::MPLS_MCAST].contains(&self.dl_type()),
            Prereq::Nsh => self.dl_type() == eth::NSH,
            Prereq::Tcp => self.l4(ipproto::TCP),
            Prereq::Udp => self.l4(ipproto::UDP),
            Prereq::Sctp => self.l4(ipproto::SCTP),
            Prereq::Icmpv4 => self.proto(&[eth::IP], ipproto::ICMP),
            Prereq::Icmpv6 => self.proto(&[eth::IPV6], ipproto::ICMPV6),
            Prereq::Nd => self.nd(&[135, 136]),
            Prereq::NdSolicit => self.nd(&[135]),
            Prereq::NdAdvert => self.nd(&[136]),
        }
    }
}

impl Field {
    /// Whether the field exists in the flow of an extracted packet.
    pub fn prerequisites_met(self, key: &FlowKey) -> bool {
        View { key, of_match: None, looked_at: None }.holds(self.info().prereq)
    }

    /// As [`Field::prerequisites_met`], recording in `looked_at` the bits that the answer depends on.
    pub fn prerequisites_met_wc(self, key: &FlowKey, looked_at: &mut FlowMask) -> bool {
        View { key, of_match: None, looked_at: Some(looked_at) }.holds(self.info().prereq)
    }

    /// Whether every packet that `m` matches has the field.
    pub fn are_prereqs_ok(self, m: &Match) -> bool {
        View { key: &m.key, of_match: Some(&m.mask), looked_at: None }.holds(self.info().prereq)
    }
}
