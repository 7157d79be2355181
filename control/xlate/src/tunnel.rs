//! Tunnels: what goes out gets its outer headers and crosses the bridge that has the route; what comes in for an
//! address of a bridge loses them; who is where is learnt on the way.

use std::net::IpAddr;
use std::sync::Arc;

use fv_core::{DpPort, OfPort};
use fv_dpif::DpAction;
use fv_dpif::action::{SetField, TunnelKey, TunnelPush};
use fv_flow::key::{Tun, eth, ipproto, tunf};
use fv_flow::{FlowKey, FlowMask};
use fv_ofproto::view::{BridgeView, PortView};
use fv_tunnel::header::{self, Path};
use fv_tunnel::{Config, Inner, address};

use crate::ctx::{AskNeighbour, Credit, Ctx, Effect};
use crate::trace::Kind;

const ARP_REPLY: u8 = 2;
const ND_ADVERT: u16 = 136;
const PACKET_TYPE_ETHERTYPE: u32 = 1 << 16;

fn dst_of(t: &Tun) -> IpAddr {
    address(t.dst.get(), &t.ipv6_dst)
}

impl Ctx<'_> {
    /// A packet arrived on `p`: if that is a tunnel, what its outer header says is matched and carried over. False
    /// if it must be dropped.
    pub(crate) fn leaves_tunnel(&mut self, p: Option<&PortView>) -> bool {
        let Some(p) = p.filter(|p| p.tunnel.is_some()) else { return true };
        if self.flow.tun.dst == 0 && self.flow.tun.ipv6_dst == [0; 16] {
            // As if it were from there, but it never was in a tunnel.
            return true;
        }
        fv_tunnel::receive_mask(&self.flow, &mut self.mask);
        self.credits.push(Credit::PatchRx(self.br.id, p.ofp));
        if p.tunnel.as_ref().is_some_and(|t| t.inner == Inner::Layer3) && self.flow.misc.packet_type != 0 {
            // The bridge sees Ethernet alone; the header, of zeros, is put on when it is needed.
            self.flow.dp.misc.packet_type = 0;
        }
        let old = self.flow.base.nw_tos;
        let passes = fv_tunnel::ecn_in(&mut self.flow);
        if self.flow.base.nw_tos != old {
            self.mask.0.dp.base.nw_tos |= fv_flow::key::IP_ECN_MASK;
        }
        passes
    }

    /// Sends the packet through a tunnel port.
    pub(crate) fn output_tunnel(&mut self, p: &PortView, c: &Arc<Config>) {
        let Some(vport) = p.dp_port else { return };
        let (tun, misc) = (self.flow.dp.tun, self.flow.dp.misc);
        c.prepare(&mut self.flow, &mut self.mask);
        let dst = dst_of(&self.flow.tun);
        if dst == dst_of(&self.inp.key.tun) {
            self.note(Kind::Warn, |_| "Not tunneling to our own address".into());
        } else if self.fits(c) {
            self.credits.push(Credit::PatchTx(self.br.id, p.ofp));
            if self.inp.view.features.tnl_push_pop {
                self.through_bridge(vport, c, dst);
            } else {
                self.through_port(vport);
            }
        }
        self.flow.dp.tun = tun;
        let m = &mut self.flow.dp.misc;
        (m.packet_type, m.erspan_dir, m.erspan_hwid) = (misc.packet_type, misc.erspan_dir, misc.erspan_hwid);
    }

    /// Whether the port carries such packets, which may need a header more or less for it.
    fn fits(&mut self, c: &Config) -> bool {
        let ty = &mut self.flow.dp.misc.packet_type;
        match (c.inner, *ty) {
            (Inner::Layer3, 0) => *ty = PACKET_TYPE_ETHERTYPE | u32::from(self.flow.dp.base.dl_type.get()),
            (Inner::Ethernet, 1..) => {
                *ty = 0;
                (self.flow.dp.base.dl_src, self.flow.dp.base.dl_dst) = ([0; 6], [0; 6]);
            }
            _ => {}
        }
        true
    }

    /// The datapath's port puts the headers on, from the metadata that it is given.
    fn through_port(&mut self, vport: DpPort) {
        self.note(Kind::Detail, |_| "output to kernel tunnel".into());
        if self.base.tun != self.flow.tun {
            self.base.dp.tun = self.flow.tun;
            self.out.push(DpAction::Set(SetField::Tunnel(Box::new(key_of(&self.flow)))));
        }
        self.commit();
        self.out.push(DpAction::Output(vport));
    }

    /// We put the headers on, and the result goes through the bridge that has the route.
    fn through_bridge(&mut self, vport: DpPort, c: &Config, dst: IpAddr) {
        self.commit();
        self.note(Kind::Detail, |_| "output to native tunnel".into());
        let net = self.inp.view.tunnels.net.clone();
        let found = net.routes.read().lookup(self.flow.base.pkt_mark, dst);
        let out = found.and_then(|r| Some((self.inp.view.bridge_by_name(&r.device)?.clone(), r)));
        let Some((out, route)) = out else { return self.no_route() };
        let Some(local) = out.ports.get(&OfPort::LOCAL).cloned() else { return self.no_route() };
        let Some(out_port) = local.dp_port else { return self.no_route() };
        self.note(Kind::Detail, |_| format!("tunneling to {dst} via {}", out.name));
        let own = address(self.flow.tun.src.get(), &self.flow.tun.ipv6_src);
        let src = if own.is_unspecified() { route.source } else { Some(own) };
        let Some(src) = src.filter(|s| s.is_ipv4() == dst.is_ipv4()) else { return self.no_route() };
        let neighbour = net.neighbours.find(&out.name, route.next_hop, self.inp.now);
        let Some(dst_mac) = neighbour else {
            let kind = if dst.is_ipv4() { "ARP" } else { "ND" };
            self.note(Kind::Detail, |_| {
                format!("neighbor cache miss for {} on bridge {}, sending {kind} request", route.next_hop, out.name)
            });
            return self.ask(&out, &local, src, route.next_hop);
        };
        let bridge: Arc<str> = out.name.as_str().into();
        self.credits.push(Credit::NeighbourUse { net, bridge, ip: route.next_hop });
        let path = Path { src_mac: local.hw_addr, dst_mac, src, dst };
        self.note(Kind::Detail, |_| {
            format!(
                "tunneling from {} {src} to {} {dst}",
                fv_flow::odp::format_mac(&path.src_mac),
                fv_flow::odp::format_mac(&dst_mac)
            )
        });
        let header = match header::build(c, &self.flow, &path) {
            Ok(h) => h,
            Err(e) => return self.note(Kind::Warn, |_| format!("native tunnel header build failed: {e}")),
        };
        let push = TunnelPush { tnl_port: vport, out_port, kind: c.kind().code(), header };
        self.outside(out, &local, push);
    }

    fn no_route(&mut self) {
        self.note(Kind::Warn, |_| "native tunnel routing failed".into());
    }

    fn ask(&mut self, out: &BridgeView, local: &PortView, src: IpAddr, target: IpAddr) {
        let ask = Arc::new(AskNeighbour {
            net: self.inp.view.tunnels.net.clone(),
            bridge: out.id,
            bridge_name: out.name.clone(),
            src_mac: local.hw_addr,
            src,
            target,
        });
        self.effects.push(Effect::AskNeighbour(ask.clone()));
        self.credits.push(Credit::NeighbourAgain(Effect::AskNeighbour(ask.clone())));
        self.unresolved.push(ask);
    }

    /// The packet with its outer headers goes through the other bridge, on a copy: what rules there look at is in
    /// the header that we made, so that nothing of it is matched.
    fn outside(&mut self, out: Arc<BridgeView>, local: &PortView, push: TunnelPush) {
        let mut flow = outer_flow(&self.flow, &push.header);
        flow.dp.base.in_port = local.ofp.0;
        let (mask, base) = (self.mask, std::mem::replace(&mut self.base, flow));
        let before = std::mem::take(&mut self.out);
        let is_last = std::mem::replace(&mut self.is_last, true);
        let was_mpls = std::mem::replace(&mut self.was_mpls, false);
        self.mask = FlowMask::default();
        self.cross(out, local, flow);
        (self.mask, self.base, self.is_last, self.was_mpls) = (mask, base, is_last, was_mpls);
        let after = std::mem::replace(&mut self.out, before);
        if after.is_empty() {
            return;
        }
        let mut body = vec![DpAction::TunnelPush(Box::new(push))];
        body.extend(after);
        self.out.push(match self.inp.view.features.clone {
            true => DpAction::Clone(body),
            false => DpAction::Sample { probability: u32::MAX, actions: body },
        });
    }

    /// A packet goes to a port of the host: the tunnel that it ends, if it does; and who sent it is learnt.
    pub(crate) fn ends_here(&mut self, p: &PortView) -> Option<DpPort> {
        let t = &self.inp.view.tunnels;
        if !p.is_internal || !self.inp.view.features.tnl_push_pop || !t.listeners.has_device(&p.name) {
            return None;
        }
        let found = t.listeners.find(&self.flow, &mut self.mask);
        let known = match found {
            // An answer will go back the same way.
            Some(_) => Some((source_of(&self.flow), self.flow.base.dl_src)),
            None => self.told(),
        };
        if let Some((ip, mac)) = known {
            let (net, bridge) = (t.net.clone(), self.br.name.as_str().into());
            let learn = Effect::NeighbourLearn { net, bridge, ip, mac };
            self.credits.push(Credit::NeighbourAgain(learn.clone()));
            self.effects.push(learn);
        }
        found
    }

    /// What an ARP packet or a neighbour advertisement tells of its sender.
    fn told(&mut self) -> Option<(IpAddr, [u8; 6])> {
        let (k, m) = (&self.flow.dp, &mut self.mask.0.dp);
        match (k.base.dl_type.get(), k.base.nw_proto) {
            (eth::ARP, op) => {
                (m.base.nw_src, m.base.nw_dst) = (u32::MAX.into(), u32::MAX.into());
                if k.base.nw_src != k.base.nw_dst {
                    m.base.nw_proto = 0xff;
                    if op != ARP_REPLY {
                        return None;
                    }
                }
                m.v6.arp_sha = [0xff; 6];
                Some((address(k.base.nw_src.get(), &[0; 16]), k.v6.arp_sha))
            }
            (eth::IPV6, ipproto::ICMPV6) => {
                m.base.nw_proto = 0xff;
                (m.base.tp_src, m.base.tp_dst) = (0xff.into(), 0xff.into());
                if k.base.tp_src.get() != ND_ADVERT || k.base.tp_dst != 0 || k.v6.arp_tha == [0; 6] {
                    return None;
                }
                (m.v6.nd_target, m.v6.arp_tha) = ([0xff; 16], [0xff; 6]);
                Some((IpAddr::from(k.v6.nd_target), k.v6.arp_tha))
            }
            _ => None,
        }
    }
}

fn source_of(k: &FlowKey) -> IpAddr {
    if k.base.dl_type == eth::IPV6 { IpAddr::from(k.v6.ipv6_src) } else { address(k.base.nw_src.get(), &[0; 16]) }
}

/// The key of the packet once `header` is in front of it. The UDP source port is not known yet.
fn outer_flow(inner: &FlowKey, header: &[u8]) -> FlowKey {
    let mut flow = FlowKey::default();
    let mut packet = fv_packet::Packet::from_slice(header);
    complete_lengths(packet.data_mut());
    flow.dp = fv_flow::extract::extract(&mut packet, &Default::default());
    flow.dp.base.pkt_mark = inner.base.pkt_mark;
    flow.dp.misc.skb_priority = inner.misc.skb_priority;
    flow
}

/// Makes the header a packet without payload.
fn complete_lengths(h: &mut [u8]) {
    let len = h.len();
    let (at, value) = match h.get(12..14) {
        Some([8, 0]) => (16, len - 14),
        _ => (18, len - 54),
    };
    if let Some(field) = h.get_mut(at..at + 2) {
        field.copy_from_slice(&(value as u16).to_be_bytes());
    }
}

fn key_of(k: &FlowKey) -> TunnelKey {
    let t = &k.tun;
    TunnelKey {
        id: t.id.get(),
        src: t.src.get(),
        dst: t.dst.get(),
        ipv6_src: t.ipv6_src,
        ipv6_dst: t.ipv6_dst,
        tos: t.tos,
        ttl: t.ttl,
        tp_src: t.tp_src.get(),
        tp_dst: t.tp_dst.get(),
        flags: t.flags & (tunf::OAM | tunf::DONT_FRAGMENT | tunf::CSUM | tunf::KEY),
        gbp_id: t.gbp_id.get(),
        gbp_flags: t.gbp_flags,
        erspan_ver: t.erspan_ver,
        erspan_idx: t.erspan_idx.get(),
        erspan_dir: k.misc.erspan_dir,
        erspan_hwid: k.misc.erspan_hwid,
    }
}
