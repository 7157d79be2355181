//! [`DpKey`] -> text.

use super::{CT_STATES, TCP_FLAGS, TUN_FLAGS, flags_text, format_ip6, hex, masked_flags_text};
use crate::key::{DpKey, DpMask, FRAG_ANY, FRAG_LATER, VLAN_CFI, VLAN_VID_MASK, eth, ipproto, tunf};
use std::net::Ipv4Addr;

/// Names of datapath ports.
pub type Names<'a> = &'a dyn Fn(u32) -> Option<String>;

/// How a number is written.
#[derive(Clone, Copy)]
enum Style {
    Dec,
    Hex,
    Ip4,
    Ip6,
    Mac,
}

/// `0a:00:00:00:00:01`.
pub fn format_mac(m: &[u8]) -> String {
    m.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":")
}

impl Style {
    fn value(self, v: u128) -> String {
        match self {
            Style::Dec => v.to_string(),
            Style::Hex => hex(v),
            Style::Ip4 => Ipv4Addr::from(v as u32).to_string(),
            Style::Ip6 => format_ip6(v),
            Style::Mac => format_mac(&v.to_be_bytes()[10..]),
        }
    }

    fn mask(self, m: u128) -> String {
        match self {
            Style::Dec => hex(m),
            s => s.value(m),
        }
    }
}

/// The fields inside one attribute's parentheses.
struct Fields {
    verbose: bool,
    out: Vec<String>,
}

impl Fields {
    fn put(&mut self, name: &str, style: Style, v: u128, mask: u128, all: u128) -> &mut Self {
        if mask == all {
            self.out.push(format!("{name}={}", style.value(v)));
        } else if self.verbose || mask != 0 {
            self.out.push(format!("{name}={}/{}", style.value(v), style.mask(mask)));
        }
        self
    }

    fn dec(&mut self, name: &str, v: impl Into<u128>, mask: impl Into<u128>, all: u128) -> &mut Self {
        self.put(name, Style::Dec, v.into(), mask.into(), all)
    }

    fn hex(&mut self, name: &str, v: impl Into<u128>, mask: impl Into<u128>, all: u128) -> &mut Self {
        self.put(name, Style::Hex, v.into(), mask.into(), all)
    }

    fn ip4(&mut self, name: &str, v: u32, mask: u32) -> &mut Self {
        self.put(name, Style::Ip4, v.into(), mask.into(), u32::MAX.into())
    }

    fn ip6(&mut self, name: &str, v: &[u8; 16], mask: &[u8; 16]) -> &mut Self {
        self.put(name, Style::Ip6, u128::from_be_bytes(*v), u128::from_be_bytes(*mask), u128::MAX)
    }

    fn mac(&mut self, name: &str, v: &[u8; 6], mask: &[u8; 6]) -> &mut Self {
        let n = |b: &[u8; 6]| b.iter().fold(0u128, |v, x| v << 8 | u128::from(*x));
        self.put(name, Style::Mac, n(v), n(mask), (1 << 48) - 1)
    }

    fn raw(&mut self, s: String) -> &mut Self {
        self.out.push(s);
        self
    }
}

/// The attributes of one nesting level.
struct Attrs<'a> {
    key: &'a DpKey,
    mask: &'a DpKey,
    /// No mask was given: everything is exact.
    exact: bool,
    verbose: bool,
    out: Vec<String>,
}

/// The text of a key, or of a key and its mask. `verbose` also shows what is not matched; `names`
/// replaces port numbers.
pub fn format(key: &DpKey, mask: Option<&DpMask>, verbose: bool, names: Option<Names>) -> String {
    let all;
    let m = match mask {
        Some(m) => &m.0,
        None => {
            let mut k = DpKey::default();
            k.words_mut().fill(u64::MAX);
            all = k;
            &all
        }
    };
    let mut a = Attrs { key, mask: m, exact: mask.is_none(), verbose, out: Vec::new() };
    a.metadata(names);
    let shown = a.packet_type();
    a.layer2(shown);
    if a.out.is_empty() { "<empty>".into() } else { a.out.join(",") }
}

impl Attrs<'_> {
    /// `name(value[/mask])` of a scalar; skipped when wild, unless verbose.
    fn scalar(&mut self, name: &str, v: impl Into<u128>, m: impl Into<u128>, all: u128) {
        let (v, m) = (v.into(), m.into());
        if m == all {
            self.out.push(format!("{name}({})", hex(v)));
        } else if self.verbose || m != 0 {
            self.out.push(format!("{name}({}/{})", hex(v), hex(m)));
        }
    }

    /// `name(fields)`; skipped when all of them are wild, unless verbose.
    fn group(&mut self, name: &str, f: impl FnOnce(&DpKey, &DpKey, &mut Fields)) {
        let mut fields = Fields { verbose: self.verbose, out: Vec::new() };
        f(self.key, self.mask, &mut fields);
        if !fields.out.is_empty() {
            self.out.push(format!("{name}({})", fields.out.join(",")));
        }
    }

    fn metadata(&mut self, names: Option<Names>) {
        let (k, m) = (self.key, self.mask);
        let (b, mb) = (&k.base, &m.base);
        let all = u128::from(u32::MAX);
        self.scalar("recirc_id", b.recirc_id, mb.recirc_id, all);
        self.scalar("dp_hash", b.dp_hash, mb.dp_hash, all);
        self.scalar("skb_priority", k.misc.skb_priority, m.misc.skb_priority, all);
        if has_tunnel(k) {
            let t = self.tunnel();
            self.out.push(t);
        }
        if self.verbose || mb.in_port != 0 {
            let name = names.and_then(|n| n(b.in_port)).unwrap_or_else(|| b.in_port.to_string());
            self.out.push(match mb.in_port {
                u32::MAX => format!("in_port({name})"),
                m => format!("in_port({}/{})", b.in_port, hex(m.into())),
            });
        }
        self.scalar("skb_mark", b.pkt_mark, mb.pkt_mark, all);
        self.ct_state();
        self.scalar("ct_zone", b.ct_zone, mb.ct_zone, u16::MAX.into());
        self.scalar("ct_mark", b.ct_mark, mb.ct_mark, all);
        let label = |l: &[u8; 16]| u128::from_be_bytes(*l);
        self.scalar("ct_label", label(&k.ct.label), label(&m.ct.label), u128::MAX);
        self.ct_tuple();
    }

    fn ct_state(&mut self) {
        let (s, m) = (u32::from(self.key.base.ct_state), u32::from(self.mask.base.ct_state));
        let text = match (self.exact, self.verbose) {
            (true, true) => hex(s.into()),
            (true, false) => flags_text(&CT_STATES, s),
            (false, true) => format!("{}/{}", hex(s.into()), hex(m.into())),
            (false, false) if m == 0 => return,
            (false, false) => masked_flags_text(&CT_STATES, s, m & 0xff, u32::MAX),
        };
        self.out.push(format!("ct_state({text})"));
    }

    fn ct_tuple(&mut self) {
        if self.key.ct.nw_proto == 0 {
            return;
        }
        match self.key.base.dl_type.get() {
            eth::IP => self.group("ct_tuple4", |k, m, f| {
                f.ip4("src", k.ct.nw_src.get(), m.ct.nw_src.get()).ip4("dst", k.ct.nw_dst.get(), m.ct.nw_dst.get());
                f.dec("proto", k.ct.nw_proto, m.ct.nw_proto, 0xff);
                f.dec("tp_src", k.ct.tp_src.get(), m.ct.tp_src.get(), 0xffff);
                f.dec("tp_dst", k.ct.tp_dst.get(), m.ct.tp_dst.get(), 0xffff);
            }),
            eth::IPV6 => self.group("ct_tuple6", |k, m, f| {
                f.ip6("src", &k.ct.ipv6_src, &m.ct.ipv6_src).ip6("dst", &k.ct.ipv6_dst, &m.ct.ipv6_dst);
                f.dec("proto", k.ct.nw_proto, m.ct.nw_proto, 0xff);
                f.dec("src_port", k.ct.tp_src.get(), m.ct.tp_src.get(), 0xffff);
                f.dec("dst_port", k.ct.tp_dst.get(), m.ct.tp_dst.get(), 0xffff);
            }),
            _ => {}
        }
    }

    fn tunnel(&self) -> String {
        let (k, m) = (&self.key.tun, &self.mask.tun);
        let (km, mm) = (&self.key.misc, &self.mask.misc);
        let mut f = Fields { verbose: self.verbose, out: Vec::new() };
        if k.id != 0 || k.flags & tunf::KEY != 0 {
            f.hex("tun_id", k.id.get(), m.id.get(), u64::MAX.into());
        }
        if k.src != 0 {
            f.ip4("src", k.src.get(), m.src.get());
        }
        if k.dst != 0 {
            f.ip4("dst", k.dst.get(), m.dst.get());
        }
        if k.ipv6_src != [0; 16] {
            f.ip6("ipv6_src", &k.ipv6_src, &m.ipv6_src);
        }
        if k.ipv6_dst != [0; 16] {
            f.ip6("ipv6_dst", &k.ipv6_dst, &m.ipv6_dst);
        }
        if k.tos != 0 {
            f.hex("tos", k.tos, m.tos, 0xff);
        }
        f.dec("ttl", k.ttl, m.ttl, 0xff);
        if k.tp_src != 0 {
            f.dec("tp_src", k.tp_src.get(), m.tp_src.get(), 0xffff);
        }
        if k.tp_dst != 0 {
            f.dec("tp_dst", k.tp_dst.get(), m.tp_dst.get(), 0xffff);
        }
        let mut nested = |name: &str, put: &dyn Fn(&mut Fields)| {
            let mut g = Fields { verbose: self.verbose, out: Vec::new() };
            put(&mut g);
            f.raw(format!("{name}({})", g.out.join(",")));
        };
        if k.gbp_id != 0 || k.gbp_flags != 0 {
            nested("vxlan", &|g| {
                let mut h = Fields { verbose: self.verbose, out: Vec::new() };
                h.dec("id", k.gbp_id.get(), m.gbp_id.get(), 0xffff).hex("flags", k.gbp_flags, m.gbp_flags, 0xff);
                g.raw(format!("gbp({})", h.out.join(",")));
            });
        }
        if k.erspan_ver != 0 {
            nested("erspan", &|g| {
                g.dec("ver", k.erspan_ver, m.erspan_ver & 0xf, 0xf);
                if k.erspan_ver == 1 {
                    g.hex("idx", k.erspan_idx.get(), m.erspan_idx.get() & 0xf_ffff, 0xf_ffff);
                } else {
                    g.dec("dir", km.erspan_dir, mm.erspan_dir & 1, 1);
                    g.hex("hwid", km.erspan_hwid, mm.erspan_hwid & 0x3f, 0x3f);
                }
            });
        }
        if km.gtpu_flags != 0 || km.gtpu_msgtype != 0 {
            nested("gtpu", &|g| {
                g.hex("flags", km.gtpu_flags, mm.gtpu_flags, 0xff);
                g.dec("msgtype", km.gtpu_msgtype, mm.gtpu_msgtype, 0xff);
            });
        }
        if km.opts_len != 0 {
            f.raw(format!("geneve({})", super::geneve::format(self.key, self.mask, self.verbose)));
        }
        let all = u32::from(tunf::OAM | tunf::DONT_FRAGMENT | tunf::CSUM | tunf::KEY);
        let (flags, mask) = (u32::from(k.flags) & all, u32::from(m.flags) & all);
        if mask != 0 {
            f.raw(format!("flags({})", masked_flags_text(&TUN_FLAGS, flags & mask, mask, all)));
        }
        format!("tunnel({})", f.out.join(","))
    }

    /// True if it is in the text, so that an all-wild Ethernet header need not be.
    fn packet_type(&mut self) -> bool {
        let (k, m) = (self.key.misc.packet_type, self.mask.misc.packet_type);
        self.group("packet_type", |_, _, f| {
            f.dec("ns", k >> 16, m >> 16, 0xffff).hex("id", k & 0xffff, m & 0xffff, 0xffff);
        });
        m != 0
    }

    fn layer2(&mut self, type_shown: bool) {
        let (k, m) = (self.key, self.mask);
        let mut depth = 0;
        if k.misc.packet_type == 0 {
            let before = self.out.len();
            self.group("eth", |k, m, f| {
                f.mac("src", &k.base.dl_src, &m.base.dl_src).mac("dst", &k.base.dl_dst, &m.base.dl_dst);
            });
            if self.out.len() == before && !type_shown {
                self.out.push("eth()".into());
            }
            let dl_type = k.base.dl_type.get();
            let truncated = matches!(dl_type, eth::VLAN_8021Q | eth::VLAN_8021AD);
            for (n, tag) in k.base.vlans.iter().enumerate() {
                let (tci, mask) = (tag.tci.get(), m.base.vlans[n].tci.get());
                if tci == 0 && !(truncated && n == 0) {
                    break;
                }
                let tpid = if tci == 0 { dl_type } else { tag.tpid.get() };
                self.out.push(format!("eth_type({tpid:#06x})"));
                self.vlan(tci, mask);
                self.out.push("encap(".into());
                depth += 1;
                if tci == 0 {
                    return self.close(depth);
                }
            }
        }
        self.layer3();
        self.close(depth);
    }

    /// Joins what follows the last `encap(` marks into them.
    fn close(&mut self, depth: usize) {
        for _ in 0..depth {
            let Some(at) = self.out.iter().rposition(|s| s == "encap(") else { return };
            let inner = self.out.split_off(at + 1).join(",");
            self.out[at] = format!("encap({inner})");
        }
    }

    fn vlan(&mut self, tci: u16, mask: u16) {
        let before = self.out.len();
        self.group("vlan", |_, _, f| {
            // A value is shown even where it is not matched.
            for (name, v, m, all) in
                [("vid", tci & VLAN_VID_MASK, mask & VLAN_VID_MASK, VLAN_VID_MASK), ("pcp", tci >> 13, mask >> 13, 7)]
            {
                if m == all {
                    f.raw(format!("{name}={v}"));
                } else if f.verbose || v != 0 || m != 0 {
                    f.raw(format!("{name}={v}/{m:#x}"));
                }
            }
            if tci & VLAN_CFI == 0 {
                f.raw("cfi=0".into());
            }
        });
        if self.out.len() == before {
            self.out.push("vlan()".into());
        }
    }

    fn layer3(&mut self) {
        let (t, m) = (self.key.base.dl_type.get(), self.mask.base.dl_type.get());
        if t < eth::TYPE_MIN {
            if !self.exact && m != 0 {
                self.out.push(format!("eth_type(0/{m:#06x})"));
            }
            return;
        }
        if m == u16::MAX {
            self.out.push(format!("eth_type({t:#06x})"));
        } else if self.verbose || m != 0 {
            self.out.push(format!("eth_type({t:#06x}/{m:#06x})"));
        }
        match t {
            eth::IP => self.ipv4(),
            eth::IPV6 => self.ipv6(),
            eth::ARP | eth::RARP => self.arp(),
            eth::MPLS | eth::MPLS_MCAST => self.mpls(),
            eth::NSH => self.nsh(),
            _ => return,
        }
        if matches!(t, eth::IP | eth::IPV6) && self.key.base.nw_frag & FRAG_LATER == 0 {
            self.layer4(t);
        }
    }

    fn ipv4(&mut self) {
        self.group("ipv4", |k, m, f| {
            let (b, mb) = (&k.base, &m.base);
            f.ip4("src", b.nw_src.get(), mb.nw_src.get()).ip4("dst", b.nw_dst.get(), mb.nw_dst.get());
            f.dec("proto", b.nw_proto, mb.nw_proto, 0xff).hex("tos", b.nw_tos, mb.nw_tos, 0xff);
            f.dec("ttl", b.nw_ttl, mb.nw_ttl, 0xff);
            frag(f, b.nw_frag, mb.nw_frag);
        });
    }

    fn ipv6(&mut self) {
        self.group("ipv6", |k, m, f| {
            let (b, mb) = (&k.base, &m.base);
            f.ip6("src", &k.v6.ipv6_src, &m.v6.ipv6_src).ip6("dst", &k.v6.ipv6_dst, &m.v6.ipv6_dst);
            f.hex("label", k.v6.ipv6_label.get(), m.v6.ipv6_label.get() & 0xf_ffff, 0xf_ffff);
            f.dec("proto", b.nw_proto, mb.nw_proto, 0xff).hex("tclass", b.nw_tos, mb.nw_tos, 0xff);
            f.dec("hlimit", b.nw_ttl, mb.nw_ttl, 0xff);
            frag(f, b.nw_frag, mb.nw_frag);
        });
    }

    fn arp(&mut self) {
        self.group("arp", |k, m, f| {
            let (b, mb) = (&k.base, &m.base);
            f.ip4("sip", b.nw_src.get(), mb.nw_src.get()).ip4("tip", b.nw_dst.get(), mb.nw_dst.get());
            let op = if mb.nw_proto == 0xff { 0xffff } else { u16::from(mb.nw_proto) };
            f.dec("op", b.nw_proto, op, 0xffff);
            f.mac("sha", &k.v6.arp_sha, &m.v6.arp_sha).mac("tha", &k.v6.arp_tha, &m.v6.arp_tha);
        });
    }

    fn mpls(&mut self) {
        let (k, m) = (self.key, self.mask);
        let depth = k
            .misc
            .mpls_lse
            .iter()
            .position(|l| l.get() & 0x100 != 0)
            .map_or(k.misc.mpls_lse.iter().filter(|l| l.get() != 0).count().max(1), |n| n + 1);
        if !self.verbose && m.misc.mpls_lse[..depth].iter().all(|l| *l == 0) {
            return;
        }
        self.group("mpls", |k, m, f| {
            for (l, lm) in k.misc.mpls_lse.iter().zip(&m.misc.mpls_lse).take(depth) {
                let (l, lm) = (l.get(), lm.get());
                let mut part = |name: &str, shift: u32, all: u32, prefix: &str| {
                    let (v, m) = (l >> shift & all, lm >> shift & all);
                    f.raw(if lm == u32::MAX { format!("{name}={v}") } else { format!("{name}={v}/{prefix}{m:x}") });
                };
                part("label", 12, 0xf_ffff, "0x");
                part("tc", 9, 7, "");
                part("ttl", 0, 0xff, "0x");
                part("bos", 8, 1, "");
            }
        });
    }

    fn nsh(&mut self) {
        self.group("nsh", |k, m, f| {
            let (k, m) = (&k.misc, &m.misc);
            f.dec("flags", k.nsh_flags, m.nsh_flags, 0xff).dec("ttl", k.nsh_ttl, m.nsh_ttl, 0xff);
            f.dec("mdtype", k.nsh_mdtype, m.nsh_mdtype, 0xff).dec("np", k.nsh_np, m.nsh_np, 0xff);
            let (path, pm) = (k.nsh_path_hdr.get(), m.nsh_path_hdr.get());
            f.hex("spi", path >> 8, pm >> 8, 0xff_ffff).dec("si", path & 0xff, pm & 0xff, 0xff);
            if k.nsh_mdtype == 1 {
                for n in 0..4 {
                    let c = format!("c{}", n + 1);
                    f.hex(&c, k.nsh_context[n].get(), m.nsh_context[n].get(), u32::MAX.into());
                }
            }
        });
    }

    fn layer4(&mut self, dl_type: u16) {
        match (self.key.base.nw_proto, dl_type) {
            (ipproto::TCP, _) => {
                self.ports("tcp");
                self.tcp_flags();
            }
            (ipproto::UDP, _) => self.ports("udp"),
            (ipproto::SCTP, _) => self.ports("sctp"),
            (ipproto::ICMP, eth::IP) => self.type_code("icmp"),
            (ipproto::ICMPV6, eth::IPV6) => self.icmpv6(),
            _ => {}
        }
    }

    fn ports(&mut self, name: &str) {
        self.group(name, |k, m, f| {
            f.dec("src", k.base.tp_src.get(), m.base.tp_src.get(), 0xffff);
            f.dec("dst", k.base.tp_dst.get(), m.base.tp_dst.get(), 0xffff);
        });
    }

    fn tcp_flags(&mut self) {
        let (v, m) = (u32::from(self.key.base.tcp_flags.get()), u32::from(self.mask.base.tcp_flags.get()) & 0xfff);
        if self.verbose || m != 0 {
            self.out.push(format!("tcp_flags({})", masked_flags_text(&TCP_FLAGS, v, m, 0xfff)));
        }
    }

    fn type_code(&mut self, name: &str) {
        self.group(name, |k, m, f| {
            f.dec("type", k.base.tp_src.get(), m.base.tp_src.get() & 0xff, 0xff);
            f.dec("code", k.base.tp_dst.get(), m.base.tp_dst.get() & 0xff, 0xff);
        });
    }

    fn icmpv6(&mut self) {
        self.type_code("icmpv6");
        let (k, m) = (self.key, self.mask);
        let nd = matches!(k.base.tp_src.get(), 135 | 136) && k.base.tp_dst == 0;
        let decided = m.base.tp_src.get() & 0xff == 0xff && m.base.tp_dst.get() & 0xff == 0xff;
        if !nd || !(decided || self.verbose) {
            return;
        }
        self.group("nd", |k, m, f| {
            f.ip6("target", &k.v6.nd_target, &m.v6.nd_target);
            f.mac("sll", &k.v6.arp_sha, &m.v6.arp_sha).mac("tll", &k.v6.arp_tha, &m.v6.arp_tha);
        });
        let ext = |x: &DpKey| x.misc.nd_reserved != 0 || x.misc.nd_options_type != 0;
        if if self.exact { ext(k) } else { ext(m) } {
            self.group("nd_ext", |k, m, f| {
                f.hex("nd_reserved", k.misc.nd_reserved.get(), m.misc.nd_reserved.get(), u32::MAX.into());
                f.dec("nd_options_type", k.misc.nd_options_type, m.misc.nd_options_type, 0xff);
            });
        }
    }
}

fn has_tunnel(k: &DpKey) -> bool {
    k.tun.dst != 0 || k.tun.ipv6_dst != [0; 16]
}

/// A fragment field that nothing matches is never shown.
fn frag(f: &mut Fields, v: u8, mask: u8) {
    if mask != 0 {
        let text = match v & (FRAG_ANY | FRAG_LATER) {
            0 => "no",
            FRAG_ANY => "first",
            _ => "later",
        };
        f.raw(format!("frag={text}"));
    }
}
