//! Matches and flows as text, in the reference's order and with its abbreviations.

use super::value::{format_field, frag, ip4, ip6, mac};
use super::{PortNames, port_text};
use crate::field::{Field, FieldValue, TunLayout};
use crate::key::{
    FRAG_LATER, FlowKey, FlowMask, IP_DSCP_MASK, IP_ECN_MASK, Match, N_MPLS, N_REGS, VLAN_CFI, VLAN_PCP_MASK,
    VLAN_VID_MASK, eth, ipproto, tunf,
};
use crate::odp::{CT_STATES, TCP_FLAGS, TUN_FLAGS, hex, masked_flags_text};
use fv_core::ids::OfPort;

/// What is said of the packet type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// Ethernet goes without saying, unless the recirculation id is matched too: only datapath flows
    /// do that.
    Rule,
    /// `eth` whenever the packet type is matched.
    Megaflow,
}

struct Out<'a> {
    m: &'a Match,
    names: Option<PortNames<'a>>,
    parts: Vec<String>,
    /// EtherType of layer 3, also of packets without Ethernet.
    dl_type: u16,
}

/// A match as `ovs-ofctl dump-flows` and `ofproto/trace` print it, without a priority.
pub fn format_match(m: &Match, names: Option<PortNames>, style: Style) -> String {
    let mut o = Out { m, names, parts: Vec::new(), dl_type: m.key.base.dl_type.get() };
    o.context();
    o.conntrack();
    o.packet_type(style);
    let (type_said, proto_said) = o.keyword();
    for n in 0..N_REGS {
        o.hex(&format!("reg{n}"), m.key.pipe.regs[n], m.mask.0.pipe.regs[n], u32::MAX);
    }
    o.tunnel();
    o.hex("metadata", m.key.pipe.metadata.get(), m.mask.0.pipe.metadata.get(), u64::MAX);
    if m.mask.0.base.in_port != 0 {
        let p = port_text(OfPort(m.key.base.in_port), names);
        o.push("in_port", p);
    }
    o.vlans();
    o.mac("dl_src", &m.key.base.dl_src, &m.mask.0.base.dl_src);
    o.mac("dl_dst", &m.key.base.dl_dst, &m.mask.0.base.dl_dst);
    if !type_said && m.mask.0.base.dl_type != 0 {
        let t = m.key.base.dl_type.get();
        o.push("dl_type", format!("{t:#06x}"));
    }
    o.layer3(proto_said);
    o.mpls();
    if let Some(f) = frag(m.key.base.nw_frag, m.mask.0.base.nw_frag) {
        o.push("nw_frag", f.to_owned());
    }
    o.layer4();
    o.parts.join(",")
}

impl Out<'_> {
    fn push(&mut self, name: &str, value: String) {
        self.parts.push(format!("{name}={value}"));
    }

    fn hex<T: Into<u128> + Copy>(&mut self, name: &str, v: T, m: T, all: T) {
        let (v, m) = (v.into(), m.into());
        if m == all.into() {
            self.push(name, hex(v));
        } else if m != 0 {
            self.push(name, format!("{}/{}", hex(v), hex(m)));
        }
    }

    /// Decimal if exact, else hexadecimal.
    fn dec<T: Into<u128> + Copy>(&mut self, name: &str, v: T, m: T, all: T) {
        if m.into() == all.into() {
            self.push(name, v.into().to_string());
        } else if m.into() != 0 {
            self.push(name, format!("{:#x}/{:#x}", v.into(), m.into()));
        }
    }

    fn ip4(&mut self, name: &str, v: u32, m: u32) {
        if m != 0 {
            self.push(name, ip4(v, m));
        }
    }

    fn ip6(&mut self, name: &str, v: &[u8; 16], m: &[u8; 16]) {
        if *m != [0; 16] {
            self.push(name, ip6(u128::from_be_bytes(*v), u128::from_be_bytes(*m)));
        }
    }

    fn mac(&mut self, name: &str, v: &[u8; 6], m: &[u8; 6]) {
        if *m != [0; 6] {
            let n = |b: &[u8; 6]| FieldValue::from_be_bytes(b).0;
            self.push(name, mac(n(v), n(m)));
        }
    }

    fn context(&mut self) {
        let (k, m) = (&self.m.key, &self.m.mask.0);
        self.hex("pkt_mark", k.base.pkt_mark, m.base.pkt_mark, u32::MAX);
        self.hex("recirc_id", k.base.recirc_id, m.base.recirc_id, u32::MAX);
        self.hex("dp_hash", k.base.dp_hash, m.base.dp_hash, u32::MAX);
        self.dec("conj_id", k.pipe.conj_id, m.pipe.conj_id, u32::MAX);
        self.hex("skb_priority", k.misc.skb_priority, m.misc.skb_priority, u32::MAX);
        if m.pipe.actset_output != 0 {
            self.push("actset_output", port_text(OfPort(k.pipe.actset_output), self.names));
        }
    }

    fn conntrack(&mut self) {
        let (k, m) = (&self.m.key, &self.m.mask.0);
        if m.base.ct_state != 0 {
            let text = masked_flags_text(&CT_STATES, k.base.ct_state.into(), m.base.ct_state.into(), u16::MAX.into());
            self.push("ct_state", text);
        }
        self.dec("ct_zone", k.base.ct_zone, m.base.ct_zone, u16::MAX);
        self.hex("ct_mark", k.base.ct_mark, m.base.ct_mark, u32::MAX);
        let n = |b: &[u8; 16]| u128::from_be_bytes(*b);
        self.hex("ct_label", n(&k.ct.label), n(&m.ct.label), u128::MAX);
        self.ip4("ct_nw_src", k.ct.nw_src.get(), m.ct.nw_src.get());
        self.ip6("ct_ipv6_src", &k.ct.ipv6_src, &m.ct.ipv6_src);
        self.ip4("ct_nw_dst", k.ct.nw_dst.get(), m.ct.nw_dst.get());
        self.ip6("ct_ipv6_dst", &k.ct.ipv6_dst, &m.ct.ipv6_dst);
        self.dec("ct_nw_proto", k.ct.nw_proto, m.ct.nw_proto, u8::MAX);
        self.dec("ct_tp_src", k.ct.tp_src.get(), m.ct.tp_src.get(), u16::MAX);
        self.dec("ct_tp_dst", k.ct.tp_dst.get(), m.ct.tp_dst.get(), u16::MAX);
    }

    fn packet_type(&mut self, style: Style) {
        let t = self.m.key.misc.packet_type;
        if self.m.mask.0.misc.packet_type == 0 {
            return;
        }
        if t != 0 {
            self.push("packet_type", format!("({},{})", t >> 16, hex((t & 0xffff).into())));
            if t >> 16 == 1 {
                self.dl_type = t as u16;
            }
        } else if style == Style::Megaflow || self.m.mask.0.base.recirc_id != 0 {
            self.parts.push("eth".into());
        }
    }

    /// `tcp`, `ip`, `arp` ... Whether it said the EtherType, and the protocol.
    fn keyword(&mut self) -> (bool, bool) {
        let (b, mb) = (&self.m.key.base, &self.m.mask.0.base);
        if mb.dl_type != 0xffff {
            return (false, false);
        }
        let proto = if mb.nw_proto != 0 { b.nw_proto } else { ipproto::NONE };
        let (word, proto_said) = match (b.dl_type.get(), proto) {
            (eth::IP, ipproto::TCP) => ("tcp", true),
            (eth::IP, ipproto::UDP) => ("udp", true),
            (eth::IP, ipproto::SCTP) => ("sctp", true),
            (eth::IP, ipproto::ICMP) => ("icmp", true),
            (eth::IP, _) => ("ip", false),
            (eth::IPV6, ipproto::TCP) => ("tcp6", true),
            (eth::IPV6, ipproto::UDP) => ("udp6", true),
            (eth::IPV6, ipproto::SCTP) => ("sctp6", true),
            (eth::IPV6, ipproto::ICMPV6) => ("icmp6", true),
            (eth::IPV6, _) => ("ipv6", false),
            (eth::ARP, _) => ("arp", false),
            (eth::RARP, _) => ("rarp", false),
            (eth::MPLS, _) => ("mpls", false),
            (eth::MPLS_MCAST, _) => ("mplsm", false),
            _ => return (false, false),
        };
        self.parts.push(word.into());
        (true, proto_said)
    }

    fn tunnel(&mut self) {
        let (k, m) = (&self.m.key, &self.m.mask.0);
        let (t, tm) = (&k.tun, &m.tun);
        self.hex("tun_id", t.id.get(), tm.id.get(), u64::MAX);
        self.ip4("tun_src", t.src.get(), tm.src.get());
        self.ip4("tun_dst", t.dst.get(), tm.dst.get());
        self.ip6("tun_ipv6_src", &t.ipv6_src, &tm.ipv6_src);
        self.ip6("tun_ipv6_dst", &t.ipv6_dst, &tm.ipv6_dst);
        self.dec("tun_gbp_id", t.gbp_id.get(), tm.gbp_id.get(), u16::MAX);
        if tm.gbp_flags != 0 {
            self.push("tun_gbp_flags", hex(t.gbp_flags.into()));
        }
        if tm.tos != 0 {
            self.push("tun_tos", format!("{:x}", t.tos));
        }
        if tm.ttl != 0 {
            self.push("tun_ttl", t.ttl.to_string());
        }
        self.dec("tun_erspan_ver", t.erspan_ver, tm.erspan_ver & 0xf, 0xf);
        self.hex("tun_erspan_idx", t.erspan_idx.get(), tm.erspan_idx.get() & 0xf_ffff, 0xf_ffff);
        self.dec("tun_erspan_dir", k.misc.erspan_dir, m.misc.erspan_dir & 1, 1);
        self.hex("tun_erspan_hwid", k.misc.erspan_hwid, m.misc.erspan_hwid & 0x3f, 0x3f);
        self.hex("gtpu_flags", k.misc.gtpu_flags, m.misc.gtpu_flags, u8::MAX);
        self.dec("gtpu_msgtype", k.misc.gtpu_msgtype, m.misc.gtpu_msgtype, u8::MAX);
        let all = u32::from(tunf::OAM | tunf::DONT_FRAGMENT | tunf::CSUM | tunf::KEY);
        let mask = u32::from(tm.flags) & all;
        if mask != 0 {
            let text = masked_flags_text(&TUN_FLAGS, u32::from(t.flags) & mask, mask, all);
            self.push("tun_flags", text);
        }
        for f in self.m.layout.iter().map(Field::TunMetadata).filter(|f| !f.is_all_wild(&self.m.mask)) {
            let (v, mask) = f.of_match(self.m);
            if f.tun_option().is_some_and(|o| !o.is_in(&self.m.key)) {
                // That it is not there is what is matched.
                self.push(f.name(), "NP".into());
            } else if mask.is_zero() {
                self.parts.push(f.name().into());
            } else {
                self.push(f.name(), format_field(f, &v, Some(&mask), None));
            }
        }
    }

    fn vlans(&mut self) {
        for n in 0..2 {
            let (tci, m) = (self.m.key.base.vlans[n].tci.get(), self.m.mask.0.base.vlans[n].tci.get());
            let (vid, pcp) = (m & VLAN_VID_MASK, m & VLAN_PCP_MASK);
            let whole = |part: u16, all: u16| part == 0 || part == all;
            let nth = if n == 0 { "" } else { "1" };
            if m & tci & VLAN_CFI != 0 && whole(vid, VLAN_VID_MASK) && whole(pcp, VLAN_PCP_MASK) && m & !VLAN_CFI != 0 {
                if vid != 0 {
                    self.push(&format!("dl_vlan{nth}"), (tci & VLAN_VID_MASK).to_string());
                }
                if pcp != 0 {
                    self.push(&format!("dl_vlan_pcp{nth}"), (tci >> 13).to_string());
                }
            } else if m == u16::MAX {
                self.push(&format!("vlan_tci{nth}"), format!("{tci:#06x}"));
            } else if m != 0 {
                self.push(&format!("vlan_tci{nth}"), format!("{tci:#06x}/{m:#06x}"));
            }
        }
    }

    fn layer3(&mut self, proto_said: bool) {
        let (k, m) = (&self.m.key, &self.m.mask.0);
        let (b, mb) = (&k.base, &m.base);
        let arp = matches!(self.dl_type, eth::ARP | eth::RARP);
        match self.dl_type {
            eth::IPV6 => {
                self.ip6("ipv6_src", &k.v6.ipv6_src, &m.v6.ipv6_src);
                self.ip6("ipv6_dst", &k.v6.ipv6_dst, &m.v6.ipv6_dst);
                let (l, lm) = (k.v6.ipv6_label.get(), m.v6.ipv6_label.get() & 0xf_ffff);
                match lm {
                    0 => {}
                    0xf_ffff => self.push("ipv6_label", format!("{l:#07x}")),
                    _ => self.push("ipv6_label", format!("{l:#07x}/{lm:#07x}")),
                }
            }
            eth::NSH => self.nsh(),
            _ => {
                let (src, dst) = if arp { ("arp_spa", "arp_tpa") } else { ("nw_src", "nw_dst") };
                self.ip4(src, b.nw_src.get(), mb.nw_src.get());
                self.ip4(dst, b.nw_dst.get(), mb.nw_dst.get());
            }
        }
        if !proto_said && mb.nw_proto != 0 {
            self.push(if arp { "arp_op" } else { "nw_proto" }, b.nw_proto.to_string());
        }
        if arp {
            self.mac("arp_sha", &k.v6.arp_sha, &m.v6.arp_sha);
            self.mac("arp_tha", &k.v6.arp_tha, &m.v6.arp_tha);
        }
        if mb.nw_tos & IP_DSCP_MASK != 0 {
            self.push("nw_tos", (b.nw_tos & IP_DSCP_MASK).to_string());
        }
        if mb.nw_tos & IP_ECN_MASK != 0 {
            self.push("nw_ecn", (b.nw_tos & IP_ECN_MASK).to_string());
        }
        if mb.nw_ttl != 0 {
            self.push("nw_ttl", b.nw_ttl.to_string());
        }
    }

    fn nsh(&mut self) {
        let (k, m) = (&self.m.key.misc, &self.m.mask.0.misc);
        self.dec("nsh_flags", k.nsh_flags, m.nsh_flags, u8::MAX);
        self.dec("nsh_ttl", k.nsh_ttl, m.nsh_ttl, u8::MAX);
        self.dec("nsh_mdtype", k.nsh_mdtype, m.nsh_mdtype, u8::MAX);
        self.dec("nsh_np", k.nsh_np, m.nsh_np, u8::MAX);
        let (p, pm) = (k.nsh_path_hdr.get(), m.nsh_path_hdr.get());
        if pm >> 8 != 0 {
            self.push("nsh_spi", format!("{:#x}", p >> 8));
        }
        if pm & 0xff != 0 {
            self.push("nsh_si", (p & 0xff).to_string());
        }
        for n in 0..4 {
            let (v, vm) = (k.nsh_context[n].get(), m.nsh_context[n].get());
            if vm == u32::MAX {
                self.push(&format!("nsh_c{}", n + 1), format!("{v:#x}"));
            } else {
                self.hex(&format!("nsh_c{}", n + 1), v, vm, u32::MAX);
            }
        }
    }

    fn mpls(&mut self) {
        for f in [Field::MplsLabel, Field::MplsTc, Field::MplsTtl, Field::MplsBos] {
            let (v, m) = f.of_match(self.m);
            if m.0 != 0 {
                self.push(f.name(), v.0.to_string());
            }
        }
        for n in 1..N_MPLS {
            let (v, m) = (self.m.key.misc.mpls_lse[n].get(), self.m.mask.0.misc.mpls_lse[n].get());
            match m {
                0 => {}
                u32::MAX => self.push(&format!("mpls_lse{n}"), v.to_string()),
                _ => self.push(&format!("mpls_lse{n}"), format!("{v:#010x}/{m:#010x}")),
            }
        }
    }

    fn layer4(&mut self) {
        let (k, m) = (&self.m.key, &self.m.mask.0);
        let (b, mb) = (&k.base, &m.base);
        let icmp4 = self.dl_type == eth::IP && b.nw_proto == ipproto::ICMP;
        let icmp6 = self.dl_type == eth::IPV6 && b.nw_proto == ipproto::ICMPV6;
        let (src, dst) = if icmp4 || icmp6 { ("icmp_type", "icmp_code") } else { ("tp_src", "tp_dst") };
        self.dec(src, b.tp_src.get(), mb.tp_src.get(), u16::MAX);
        self.dec(dst, b.tp_dst.get(), mb.tp_dst.get(), u16::MAX);
        if icmp6 {
            self.ip6("nd_target", &k.v6.nd_target, &m.v6.nd_target);
            self.mac("nd_sll", &k.v6.arp_sha, &m.v6.arp_sha);
            self.mac("nd_tll", &k.v6.arp_tha, &m.v6.arp_tha);
            if m.misc.nd_reserved != 0 {
                self.push("nd_reserved", k.misc.nd_reserved.get().to_string());
            }
            if m.misc.nd_options_type != 0 {
                self.push("nd_options_type", k.misc.nd_options_type.to_string());
            }
        }
        let ip = matches!(self.dl_type, eth::IP | eth::IPV6);
        let fm = u32::from(mb.tcp_flags.get()) & 0xfff;
        if ip && b.nw_proto == ipproto::TCP && fm != 0 {
            self.push("tcp_flags", masked_flags_text(&TCP_FLAGS, b.tcp_flags.get().into(), fm, 0xfff));
        }
    }
}

/// The flow of a packet: every field that the packet has, and the context that is not zero.
pub fn format_flow(key: &FlowKey, names: Option<PortNames>) -> String {
    format_flow_in(key, &TunLayout::default(), names)
}

/// The same in a bridge with a table of tunnel options.
pub fn format_flow_in(key: &FlowKey, layout: &TunLayout, names: Option<PortNames>) -> String {
    let mut k = *key;
    if k.base.in_port == 0 {
        k.base.in_port = OfPort::NONE.0;
    }
    let mut mask = packet_mask(&k);
    if is_tunnelled(&k) {
        for f in layout.iter().filter(|o| o.is_in(&k)).map(Field::TunMetadata) {
            mask.set_field(f);
        }
    }
    format_match(&Match { layout: *layout, ..Match::new(&k, &mask) }, names, Style::Rule)
}

/// The fields that a packet of this flow has, without zero context.
fn packet_mask(k: &FlowKey) -> FlowMask {
    let mut m = FlowMask::default();
    let ctx = [
        Field::SkbPriority,
        Field::PktMark,
        Field::RecircId,
        Field::DpHash,
        Field::CtState,
        Field::CtZone,
        Field::CtMark,
        Field::CtLabel,
        Field::Metadata,
    ];
    let regs = (0..N_REGS).filter_map(Field::reg);
    for f in ctx.into_iter().chain(regs).filter(|f| !f.is_zero(k)) {
        m.set_field(f);
    }
    m.set_field(Field::InPortOxm);
    tunnel_mask(k, &mut m);
    if k.ct.nw_proto != 0 {
        ct_mask(k, &mut m);
    }
    m.set_field(Field::PacketType);
    let base = &mut m.0.dp.base;
    if k.misc.packet_type == 0 {
        (base.dl_src, base.dl_dst, base.dl_type) = ([0xff; 6], [0xff; 6], 0xffff.into());
        for (n, tag) in k.base.vlans.iter().enumerate() {
            base.vlans[n].tci = 0xffff.into();
            if tag.tci == 0 {
                break;
            }
        }
    }
    headers_mask(k, &mut m);
    m
}

/// Whether the packet came through a tunnel: those have a destination.
fn is_tunnelled(k: &FlowKey) -> bool {
    k.tun.dst != 0 || k.tun.ipv6_dst != [0; 16]
}

fn tunnel_mask(k: &FlowKey, m: &mut FlowMask) {
    let t = &k.tun;
    let real = is_tunnelled(k);
    if if real { t.flags & tunf::KEY != 0 } else { t.id != 0 } {
        m.set_field(Field::TunId);
    }
    if !real {
        return;
    }
    use Field::*;
    for f in [
        TunSrc,
        TunDst,
        TunIpv6Src,
        TunIpv6Dst,
        TunGbpId,
        TunGbpFlags,
        TunTos,
        TunTtl,
        TunErspanVer,
        TunGtpuFlags,
        TunGtpuMsgtype,
    ] {
        m.set_field(f);
    }
    match t.erspan_ver {
        1 => m.set_field(TunErspanIdx),
        2 => {
            m.set_field(TunErspanDir);
            m.set_field(TunErspanHwid);
        }
        _ => {}
    }
    m.0.dp.tun.flags = tunf::OAM | tunf::DONT_FRAGMENT | tunf::CSUM | tunf::KEY;
}

fn ct_mask(k: &FlowKey, m: &mut FlowMask) {
    use Field::*;
    let addresses = if k.l3_type() == eth::IPV6 { [CtIpv6Src, CtIpv6Dst] } else { [CtNwSrc, CtNwDst] };
    for f in addresses.into_iter().chain([CtNwProto, CtTpSrc, CtTpDst]) {
        m.set_field(f);
    }
}

fn headers_mask(k: &FlowKey, m: &mut FlowMask) {
    use Field::*;
    let mut all = |fs: &[Field]| fs.iter().for_each(|f| m.set_field(*f));
    match k.l3_type() {
        eth::IP => all(&[Ipv4Src, Ipv4Dst]),
        eth::IPV6 => all(&[Ipv6Src, Ipv6Dst, Ipv6Label]),
        eth::ARP | eth::RARP => return all(&[Ipv4Src, Ipv4Dst, IpProto, ArpSha, ArpTha]),
        eth::MPLS | eth::MPLS_MCAST => {
            for n in 0..N_MPLS {
                m.0.dp.misc.mpls_lse[n] = u32::MAX.into();
                if k.misc.mpls_lse[n].get() & 0x100 != 0 {
                    break;
                }
            }
            return;
        }
        eth::NSH => {
            all(&[NshFlags, NshTtl, NshMdtype, NshNp, NshSpi, NshSi]);
            if k.misc.nsh_mdtype == 1 {
                all(&[NshC1, NshC2, NshC3, NshC4]);
            }
        }
        _ => return,
    }
    all(&[IpProto, IpDscp, IpEcn, IpTtl, IpFrag]);
    if k.base.nw_frag & FRAG_LATER != 0 {
        // No packet is one, as later fragments have another protocol there; the reference prints them.
        if k.l3_type() == eth::IPV6 && k.base.nw_proto == ipproto::ICMPV6 {
            all(&[TcpSrc, TcpDst]);
        }
        return;
    }
    match k.base.nw_proto {
        ipproto::TCP => all(&[TcpSrc, TcpDst, TcpFlags]),
        ipproto::UDP | ipproto::SCTP | ipproto::ICMP | ipproto::ICMPV6 | ipproto::IGMP => all(&[TcpSrc, TcpDst]),
        _ => {}
    }
    if NdTarget.prerequisites_met(k) {
        all(&[NdTarget, NdSll, NdTll]);
    }
}
