//! Which outer packets are ours to open: those to an address of a bridge, of a kind that some tunnel port has.

use std::net::IpAddr;
use std::sync::Arc;

use fv_classifier::{Classifier, ClsRule, MiniMatch, Version};
use fv_core::DpPort;
use fv_dpif::Vport;
use fv_flow::key::{eth, ipproto};
use fv_flow::{FlowKey, FlowMask, Match};

const VERSION: Version = Version(1);

/// An address of a bridge.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Local {
    pub device: String,
    pub mac: [u8; 6],
    pub address: IpAddr,
}

/// What is listened for. A value: changes make a new one.
#[derive(Default)]
pub struct Listeners {
    cls: Classifier<DpPort>,
    /// With the number of tunnel ports behind each.
    ports: Vec<(Vport, DpPort, usize)>,
    locals: Vec<Local>,
}

impl Listeners {
    pub fn new(ports: Vec<(Vport, DpPort, usize)>, locals: Vec<Local>) -> Listeners {
        let cls = Classifier::new();
        // Few rules: looking at whole addresses keeps flows as they are when rules come.
        cls.set_prefixes(&[]);
        cls.defer();
        for l in &locals {
            for (v, p, _) in &ports {
                for m in matches(l, v) {
                    cls.insert(Arc::new(ClsRule::new(MiniMatch::new(&m), 0, *p)), VERSION);
                }
            }
        }
        cls.publish();
        Listeners { cls, ports, locals }
    }

    /// The tunnel port that opens the packet; `mask` gains what was looked at.
    pub fn find(&self, key: &FlowKey, mask: &mut FlowMask) -> Option<DpPort> {
        self.cls.lookup(VERSION, key, Some(mask)).map(|r| r.value)
    }

    pub fn is_empty(&self) -> bool {
        self.ports.is_empty() || self.locals.is_empty()
    }

    pub fn is_local(&self, a: IpAddr) -> bool {
        self.locals.iter().any(|l| l.address == a)
    }

    /// Whether a device has an address: only then packets to it may end a tunnel.
    pub fn has_device(&self, name: &str) -> bool {
        self.locals.iter().any(|l| l.device == name)
    }

    pub fn locals(&self) -> &[Local] {
        &self.locals
    }

    /// As `tnl/ports/show` prints it.
    pub fn show(&self, verbose: bool) -> String {
        let mut out = String::from("Listening ports:\n");
        let mut lines: Vec<String> = if verbose {
            let rule = |v: &Vport, p: DpPort, l: &Local| {
                let line = |m: &Match| {
                    let mut mask = m.mask.dp();
                    mask.0.base.vlans = Default::default();
                    let text = fv_flow::odp::format(&m.key.dp, Some(&mask), false, None);
                    // The port of entry is not part of it.
                    let at = text.find("eth(").unwrap_or(0);
                    format!("{} ({p}) : {}\n", v.name(), &text[at..])
                };
                matches(l, v).iter().map(line).collect::<String>()
            };
            self.locals.iter().flat_map(|l| self.ports.iter().map(|(v, p, _)| rule(v, *p, l))).collect()
        } else {
            self.ports.iter().map(|(v, p, n)| format!("{} ({p}) ref_cnt={n}\n", v.name())).collect()
        };
        lines.sort();
        out.extend(lines);
        out
    }
}

fn matches(l: &Local, v: &Vport) -> Vec<Match> {
    let mut m = Match::default();
    let (k, w) = (&mut m.key.dp, &mut m.mask.0.dp);
    k.base.dl_dst = l.mac;
    w.base.dl_dst = [0xff; 6];
    w.base.dl_type = u16::MAX.into();
    w.base.nw_frag = 3;
    w.base.nw_proto = 0xff;
    // Not tagged.
    w.base.vlans[0].tci = u16::MAX.into();
    match l.address {
        IpAddr::V4(a) => {
            k.base.dl_type = eth::IP.into();
            k.base.nw_dst = a.to_bits().into();
            w.base.nw_dst = u32::MAX.into();
        }
        IpAddr::V6(a) => {
            k.base.dl_type = eth::IPV6.into();
            k.v6.ipv6_dst = a.octets();
            w.v6.ipv6_dst = [0xff; 16];
        }
    }
    if v.kind.is_udp() {
        k.base.nw_proto = ipproto::UDP;
        k.base.tp_dst = v.dst_port.into();
        w.base.tp_dst = u16::MAX.into();
        return vec![m];
    }
    if v.kind.is_gre() {
        k.base.nw_proto = ipproto::GRE;
        return vec![m];
    }
    // SRv6: either version may be inside, on IPv6 alone.
    if l.address.is_ipv4() {
        return Vec::new();
    }
    let inside = |proto| {
        let mut m = m;
        m.key.dp.base.nw_proto = proto;
        m
    };
    vec![inside(4), inside(41)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use fv_dpif::TunnelKind;

    fn vport(kind: TunnelKind, dst_port: u16) -> Vport {
        Vport { kind, dst_port, gbp: false, gpe: false, payload: 0 }
    }

    #[test]
    fn ours_and_others() {
        let local = |a: &str| Local { device: "br0".into(), mac: [2; 6], address: a.parse().unwrap() };
        let ports = vec![(vport(TunnelKind::Vxlan, 4789), DpPort(4789), 2), (vport(TunnelKind::Gre, 0), DpPort(3), 1)];
        let l = Listeners::new(ports, vec![local("1.1.2.88"), local("2001:cafe::88")]);
        let key = |text: &str| {
            let dp = fv_flow::odp::parse(text, &|_| None).unwrap().key;
            FlowKey { dp, ..FlowKey::default() }
        };
        let udp = "in_port(1),eth(src=03:03:03:03:03:03,dst=02:02:02:02:02:02),eth_type(0x0800),ipv4(src=1.1.2.92,dst=1.1.2.88,proto=17,frag=no),udp(src=1,dst=4789)";
        let mut mask = FlowMask::default();
        assert_eq!(l.find(&key(udp), &mut mask), Some(DpPort(4789)));
        assert_eq!((mask.0.base.nw_dst.get(), mask.0.base.tp_dst.get()), (u32::MAX, u16::MAX));
        assert_eq!((mask.0.base.nw_src.get(), mask.0.base.tp_src.get()), (0, 0));
        for other in ["4789)", "dst=1.1.2.88", "dst=02:02:02:02:02:02", "frag=no"] {
            let wrong =
                other.replace("4789", "4790").replace("88", "89").replace("dst=02", "dst=12").replace("no", "first");
            assert_eq!(l.find(&key(&udp.replace(other, &wrong)), &mut FlowMask::default()), None, "{wrong}");
        }
        assert_eq!(
            l.show(true).lines().nth(1),
            Some("gre_sys (3) : eth(dst=02:02:02:02:02:02),eth_type(0x0800),ipv4(dst=1.1.2.88,proto=47,frag=no)")
        );
        assert_eq!(l.show(false), "Listening ports:\ngre_sys (3) ref_cnt=1\nvxlan_sys_4789 (4789) ref_cnt=2\n");
    }
}
