//! Output to ports, to sets of ports, and through patch ports.

use fv_core::OfPort;
use fv_dpif::DpAction;
use fv_flow::{FlowKey, Subfield};
use fv_ofproto::view::PortView;
use fv_openflow::action::PacketInReason;
use fv_openflow::msg::port::PortConfig;

use crate::ctx::{Credit, Ctx, no_recv};
use crate::trace::Kind;

impl Ctx<'_> {
    /// Brings the datapath's packet to what the pipeline has made of it.
    pub fn commit(&mut self) {
        self.slow |= crate::commit::commit(&self.flow, &mut self.base, &mut self.mask, &mut self.out);
    }

    pub fn output_action(&mut self, port: OfPort, max_len: u16) {
        match port {
            OfPort::IN_PORT => {
                let p = self.in_port();
                self.output(p);
            }
            OfPort::TABLE => {
                let p = self.in_port();
                self.table_action(p, 0, true, true);
            }
            OfPort::NORMAL => self.normal(),
            OfPort::FLOOD => self.flood(false),
            OfPort::ALL => self.flood(true),
            OfPort::CONTROLLER => {
                let reason = match self.inp.start {
                    crate::Start::Actions(_) if !self.inp.trace => PacketInReason::PacketOut,
                    _ if self.in_group => PacketInReason::Group,
                    _ if self.in_action_set => PacketInReason::ActionSet,
                    _ => PacketInReason::Action,
                };
                self.send_to_controller(max_len, reason, 0);
            }
            OfPort::NONE => {}
            p if p == self.in_port() => self.note(Kind::Warn, |_| "skipping output to input port".into()),
            p => self.output(p),
        }
    }

    pub fn output_reg(&mut self, src: &Subfield, max_len: u16) {
        let v = src.read(&self.flow);
        let Ok(p) = u16::try_from(v) else {
            self.note(Kind::Warn, |_| format!("output port {v} is out of range"));
            return;
        };
        self.note(Kind::Detail, |_| format!("output port is {v}"));
        src.unwildcard(&mut self.mask);
        self.output_action(OfPort::from_u16(p), max_len);
    }

    pub fn output_trunc(&mut self, port: OfPort, max_len: u32) {
        let set = matches!(
            port,
            OfPort::TABLE | OfPort::NORMAL | OfPort::FLOOD | OfPort::ALL | OfPort::CONTROLLER | OfPort::NONE
        );
        if set {
            self.note(Kind::Warn, |_| format!("output_trunc does not support port: {port}"));
            return;
        }
        if port == self.in_port() {
            self.note(Kind::Warn, |_| "skipping output to input port".into());
            return;
        }
        if self.port(port).is_none_or(|p| p.dp_port.is_none()) {
            // What cuts the packet would meet whatever the other bridge does first.
            self.note(Kind::Error, |_| format!("output_trunc does not support patch port {port}"));
            return;
        }
        if !self.inp.view.features.trunc {
            self.slow |= fv_dpif::action::SlowReasons::ACTION;
        }
        self.out.push(DpAction::Trunc(max_len));
        self.output_action(port, 0);
    }

    pub fn enqueue(&mut self, port: OfPort, queue: u32) {
        self.mask.0.dp.misc.skb_priority = u32::MAX;
        let port = if port == OfPort::IN_PORT { self.in_port() } else { port };
        if port == self.in_port() {
            return;
        }
        let old = std::mem::replace(&mut self.flow.dp.misc.skb_priority, queue);
        self.output(port);
        self.flow.dp.misc.skb_priority = old;
    }

    /// Every port but the one of entry; `all` also those configured not to be flooded.
    fn flood(&mut self, all: bool) {
        let in_port = self.in_port();
        let ports: Vec<OfPort> =
            self.br.ports.values().filter(|p| all || !p.config.has(PortConfig::NO_FLOOD)).map(|p| p.ofp).collect();
        self.is_last = false;
        for p in crate::order::like_reference(ports).into_iter().filter(|p| *p != in_port) {
            self.output(p);
        }
    }

    /// Ports of NORMAL that are protected do not forward to one another, whoever says so.
    fn is_protected(&self, out: &PortView) -> bool {
        let protected = |p: &PortView| p.bundle.and_then(|b| self.br.bundles.get(b)).is_some_and(|b| b.protected);
        protected(out) && self.port(self.in_port()).is_some_and(|p| protected(&p))
    }

    /// Sends the packet as it is now out of `port`, which may be a patch into another bridge.
    pub fn output(&mut self, port: OfPort) {
        let Some(p) = self.port(port) else {
            self.note(Kind::Warn, |_| "Nonexistent output port".into());
            return;
        };
        if p.config.has(PortConfig::NO_FWD) {
            self.note(Kind::Detail, |_| "OFPPC_NO_FWD set, skipping output".into());
            return;
        }
        if self.is_protected(&p) {
            self.note(Kind::Warn, |_| "Flow is between protected ports, skipping output.".into());
            return;
        }
        if let Some(tunnel) = p.tunnel.clone() {
            return self.output_tunnel(&p, &tunnel);
        }
        if self.flow.misc.packet_type != 0 {
            // Every other port carries Ethernet frames.
            self.note(Kind::Warn, |_| {
                "Trying to send non-Ethernet packet through legacy L2 port. Dropping packet.".into()
            });
            return;
        }
        if let Some((bridge, peer)) = p.peer {
            self.patch(&p, bridge, peer);
            return;
        }
        let Some(dp_port) = p.dp_port else { return };
        let opens = self.ends_here(&p);
        self.commit();
        self.out.push(opens.map_or(DpAction::Output(dp_port), DpAction::TunnelPop));
    }

    /// The packet continues in the peer's bridge, with a fresh pipeline.
    fn patch(&mut self, from: &PortView, bridge: fv_ofproto::view::BridgeId, peer: OfPort) {
        let Some(other) = self.inp.view.bridges.get(&bridge).cloned() else { return };
        let Some(peer_port) = other.ports.get(&peer).cloned() else { return };
        let id = self.br.id;
        let mut flow = self.flow;
        (flow.dp.tun, flow.dp.opts) = Default::default();
        self.cross(other, &peer_port, flow);
        self.credits.push(Credit::PatchTx(id, from.ofp));
        self.credits.push(Credit::PatchRx(bridge, peer));
    }

    /// A packet of `flow` enters another bridge at `port`; here everything is as before afterwards, but for what
    /// the datapath has done to the packet.
    pub(crate) fn cross(
        &mut self,
        other: std::sync::Arc<fv_ofproto::view::BridgeView>,
        port: &PortView,
        flow: FlowKey,
    ) {
        let peer = port.ofp;
        let old_br = std::mem::replace(&mut self.br, other);
        let (old_table, old_rule) = (self.table, self.rule.clone());
        let old_flow = std::mem::replace(&mut self.flow, flow);
        let old_stack = std::mem::take(&mut self.stack);
        let old_set = std::mem::take(&mut self.action_set);
        let (old_mpls, old_rest) = (self.was_mpls, std::mem::take(&mut self.rest));
        let old_unrolled = self.unrolled.take();
        self.flow.dp.base.in_port = peer.0;
        self.flow.pipe = Default::default();
        self.flow.pipe.actset_output = OfPort::UNSET.0;
        self.enter(Kind::Bridge, |c| format!("bridge(\"{}\")", c.br.name));
        if !self.is_special(port) && !no_recv(port, self.flow.base.dl_dst) {
            self.table_action_then(peer, 0, true, true, Self::follow_aside, Self::end_of_pipeline);
        }
        self.leave();
        self.br = old_br;
        (self.flow, self.table, self.rule) = (old_flow, old_table, old_rule);
        (self.stack, self.action_set) = (old_stack, old_set);
        (self.was_mpls, self.rest, self.unrolled) = (old_mpls, old_rest, old_unrolled);
        // How the other bridge ended does not concern this one, not even that it failed.
        self.exit = false;
        self.freezing = false;
        self.error = None;
    }
}
