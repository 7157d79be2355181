//! What a tunnel port makes of a flow's metadata: on the way out, and of what came in.

use std::net::IpAddr;

use fv_flow::key::{IP_ECN_MASK, Tun, eth, tunf};
use fv_flow::{FlowKey, FlowMask};

use crate::config::{Address, Config, Key, Origin};

/// ECN: congestion experienced.
const CE: u8 = 3;
/// ECN: capable, codepoint 0.
const ECT_0: u8 = 2;

fn is_ip(key: &FlowKey) -> bool {
    matches!(key.base.dl_type.get(), eth::IP | eth::IPV6)
}

/// The two forms in which keys hold an address; that of the other family is zero.
fn halves(a: IpAddr) -> (u32, [u8; 16]) {
    match a {
        IpAddr::V4(a) => (a.to_bits(), [0; 16]),
        IpAddr::V6(a) => (0, a.octets()),
    }
}

impl Config {
    /// Completes the metadata of a packet that leaves through this port; `mask` gains what that depends on.
    pub fn prepare(&self, key: &mut FlowKey, mask: &mut FlowMask) {
        if let Some(mark) = self.egress_pkt_mark {
            key.dp.base.pkt_mark = mark;
            mask.0.dp.base.pkt_mark = u32::MAX;
        }
        self.addresses(&mut key.dp.tun);
        let ip = is_ip(key);
        let (base, tun) = (&key.dp.base, &mut key.dp.tun);
        let m = &mut mask.0.dp.base;
        match self.out_key {
            Key::Flow => {}
            Key::Fixed(n) => tun.id = n.into(),
            Key::None => tun.id = 0.into(),
        }
        tun.ttl = match self.ttl {
            Origin::Inherit if ip => {
                m.nw_ttl = 0xff;
                base.nw_ttl
            }
            Origin::Inherit => 64,
            Origin::Fixed(n) => n,
        };
        tun.tos = match self.tos {
            Origin::Inherit if ip => {
                m.nw_tos = 0xff;
                base.nw_tos
            }
            Origin::Inherit => 0,
            Origin::Fixed(n) => n,
        } & !IP_ECN_MASK;
        if ip {
            // Congestion is told to the receiver of the inner packet alone.
            m.nw_tos |= IP_ECN_MASK;
            let inner = base.nw_tos & IP_ECN_MASK;
            tun.tos |= if inner == CE { ECT_0 } else { inner };
        }
        let bits = [
            (tunf::DONT_FRAGMENT, self.dont_fragment),
            (tunf::CSUM, self.csum == Some(true)),
            (tunf::KEY, self.out_key != Key::None),
        ];
        tun.flags = bits.iter().filter(|(_, on)| *on).fold(tun.flags & tunf::PUBLIC, |f, (b, _)| f | b);
        tun.tp_dst = self.vport.dst_port.into();
        tun.tp_src = 0.into();
        self.erspan(key);
    }

    fn addresses(&self, tun: &mut Tun) {
        match self.local {
            Address::Flow => {}
            Address::Fixed(a) => {
                let (v4, v6) = halves(a);
                (tun.src, tun.ipv6_src) = (v4.into(), v6);
            }
            Address::Any => (tun.src, tun.ipv6_src) = (0.into(), [0; 16]),
        }
        if let Address::Fixed(a) = self.remote {
            let (v4, v6) = halves(a);
            (tun.dst, tun.ipv6_dst) = (v4.into(), v6);
        }
    }

    fn erspan(&self, key: &mut FlowKey) {
        if !self.kind().is_erspan() {
            return;
        }
        if !self.erspan_ver_flow {
            key.dp.tun.erspan_ver = self.erspan_ver;
        }
        if !self.erspan_idx_flow {
            key.dp.tun.erspan_idx = self.erspan_idx.into();
        }
        if !self.erspan_dir_flow {
            key.dp.misc.erspan_dir = self.erspan_dir;
        }
        if !self.erspan_hwid_flow {
            key.dp.misc.erspan_hwid = self.erspan_hwid;
        }
    }
}

/// What every packet out of a tunnel is matched by.
pub fn receive_mask(key: &FlowKey, mask: &mut FlowMask) {
    let m = &mut mask.0.dp;
    m.tun.id = u64::MAX.into();
    if key.tun.ipv6_dst == [0; 16] {
        (m.tun.src, m.tun.dst) = (u32::MAX.into(), u32::MAX.into());
    } else {
        (m.tun.ipv6_src, m.tun.ipv6_dst) = ([0xff; 16], [0xff; 16]);
    }
    m.tun.flags |= tunf::DONT_FRAGMENT | tunf::CSUM | tunf::KEY;
    m.tun.tos = 0xff;
    if is_ip(key) && key.tun.tos & IP_ECN_MASK == CE {
        m.base.nw_tos |= IP_ECN_MASK;
    }
}

/// Carries congestion that the outer packet met to the inner one; false if its sender could not understand that,
/// and the packet must be dropped instead (RFC 6040).
pub fn ecn_in(key: &mut FlowKey) -> bool {
    if !is_ip(key) || key.tun.tos & IP_ECN_MASK != CE {
        return true;
    }
    if key.base.nw_tos & IP_ECN_MASK == 0 {
        return false;
    }
    key.dp.base.nw_tos |= CE;
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use fv_dpif::TunnelKind;

    fn prepared(o: &[(&str, &str)], tos: u8) -> (FlowKey, FlowMask) {
        let o = o.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let c = parse("t", TunnelKind::Vxlan, &o).unwrap().0;
        let (mut k, mut m) = (FlowKey::default(), FlowMask::default());
        k.dp.base.dl_type = eth::IP.into();
        (k.dp.base.nw_tos, k.dp.base.nw_ttl) = (tos, 63);
        k.dp.tun.src = 7.into();
        c.prepare(&mut k, &mut m);
        (k, m)
    }

    #[test]
    fn outer_headers_follow_options_and_ecn() {
        let (k, m) = prepared(&[("remote_ip", "1.2.3.4"), ("key", "5")], 0x21);
        assert_eq!((k.tun.tos, k.tun.ttl, k.tun.id.get(), k.tun.src.get()), (1, 64, 5, 0));
        assert_eq!((m.0.base.nw_tos, m.0.base.nw_ttl), (3, 0));
        assert_eq!(k.tun.flags, tunf::DONT_FRAGMENT | tunf::KEY);
        let (k, m) = prepared(&[("remote_ip", "1.2.3.4"), ("tos", "inherit"), ("ttl", "inherit")], 0x23);
        assert_eq!((k.tun.tos, k.tun.ttl, m.0.base.nw_tos, m.0.base.nw_ttl), (0x22, 63, 0xff, 0xff));
    }

    #[test]
    fn congestion_outside() {
        for (outer, inner, want) in [(0, 0, Some(0)), (3, 0, None), (3, 1, Some(3)), (3, 2, Some(3)), (1, 2, Some(2))] {
            let mut k = FlowKey::default();
            k.dp.base.dl_type = eth::IPV6.into();
            (k.dp.tun.tos, k.dp.base.nw_tos) = (outer, inner);
            assert_eq!(ecn_in(&mut k).then_some(k.base.nw_tos), want, "{outer} {inner}");
        }
    }
}
