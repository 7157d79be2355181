//! Output to ports, to sets of ports, and through patch ports.

use fv_core::OfPort;
use fv_dpif::DpAction;
use fv_flow::Subfield;
use fv_ofproto::view::PortView;
use fv_openflow::action::PacketInReason;
use fv_openflow::msg::port::PortConfig;

use crate::ctx::{Credit, Ctx, no_recv};
use crate::trace::Kind;

impl Ctx<'_> {
    /// Brings the datapath's packet to what the pipeline has made of it.
    pub fn commit(&mut self) {
        crate::commit::commit(&self.flow, &mut self.base, &mut self.mask, &mut self.out);
    }

    pub fn output_action(&mut self, port: OfPort, max_len: u16) {
        match port {
            OfPort::IN_PORT => {
                let p = self.in_port();
                self.output(p);
            }
            OfPort::TABLE => {
                let p = self.in_port();
                self.table_action(p, 0, true);
            }
            OfPort::NORMAL => self.normal(),
            OfPort::FLOOD => self.flood(false),
            OfPort::ALL => self.flood(true),
            OfPort::CONTROLLER => {
                let reason = match self.inp.start {
                    crate::Start::Actions(_) if self.rule.is_none() => PacketInReason::PacketOut,
                    _ => PacketInReason::Action,
                };
                self.send_to_controller(max_len, reason, 0, &[], false);
            }
            OfPort::NONE => {}
            p if p == self.in_port() => self.note(Kind::Warn, |_| "skipping output to input port".into()),
            p => self.output(p),
        }
    }

    pub fn output_reg(&mut self, src: &Subfield, max_len: u16) {
        src.unwildcard(&mut self.mask);
        let v = src.read(&self.flow);
        self.note(Kind::Detail, |_| format!("output port is {v}"));
        if let Ok(p) = u16::try_from(v) {
            self.output_action(OfPort::from_u16(p), max_len);
        } else if let Ok(p) = u32::try_from(v) {
            self.output_action(OfPort(p), max_len);
        }
    }

    pub fn output_trunc(&mut self, port: OfPort, max_len: u32) {
        match port {
            OfPort::IN_PORT | OfPort::LOCAL => {}
            p if p.is_reserved() => {
                self.note(Kind::Warn, |_| format!("output_trunc does not support port: {p}"));
                return;
            }
            p if p == self.in_port() => {
                self.note(Kind::Warn, |_| "skipping output to input port".into());
                return;
            }
            _ => {}
        }
        let port = if port == OfPort::IN_PORT { self.in_port() } else { port };
        let before = self.out.len();
        self.commit();
        let at = self.out.len();
        self.output(port);
        if self.out.len() > at {
            self.out.insert(at, DpAction::Trunc(max_len));
        } else {
            self.out.truncate(before);
        }
    }

    pub fn enqueue(&mut self, port: OfPort, queue: u32) {
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
        let mut ports: Vec<OfPort> =
            self.br.ports.values().filter(|p| all || !p.config.has(PortConfig::NO_FLOOD)).map(|p| p.ofp).collect();
        ports.sort_by_key(|p| (*p != OfPort::LOCAL, *p));
        for p in ports.into_iter().filter(|p| *p != in_port) {
            self.output(p);
        }
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
        if let Some((bridge, peer)) = p.peer {
            self.patch(&p, bridge, peer);
            return;
        }
        let Some(dp_port) = p.dp_port else { return };
        self.commit();
        self.out.push(DpAction::Output(dp_port));
    }

    /// The packet continues in the peer's bridge, with a fresh pipeline.
    fn patch(&mut self, from: &PortView, bridge: fv_ofproto::view::BridgeId, peer: OfPort) {
        let Some(other) = self.inp.view.bridges.get(&bridge).cloned() else { return };
        let Some(peer_port) = other.ports.get(&peer).cloned() else { return };
        if self.depth >= crate::ctx::MAX_DEPTH {
            self.note(Kind::Error, |_| format!("over max translation depth {}", crate::ctx::MAX_DEPTH));
            self.fail(crate::XlateError::RecursionTooDeep);
            return;
        }
        let old_br = std::mem::replace(&mut self.br, other);
        let (old_flow, old_table, old_rule) = (self.flow, self.table, self.rule.take());
        let old_stack = std::mem::take(&mut self.stack);
        let old_set = std::mem::take(&mut self.action_set);
        let old_exit = self.exit;
        self.flow.dp.base.in_port = peer.0;
        self.flow.pipe = Default::default();
        self.flow.pipe.actset_output = OfPort::UNSET.0;
        self.flow.dp.tun = Default::default();
        self.enter(Kind::Bridge, |c| format!("bridge(\"{}\")", c.br.name));
        if !no_recv(&peer_port, self.flow.base.dl_dst) {
            self.depth += 1;
            self.table_action(peer, 0, true);
            if self.error.is_none() {
                self.execute_action_set();
            }
            self.depth -= 1;
        }
        self.leave();
        self.credits.push(Credit::PatchTx(old_br.id, from.ofp));
        self.credits.push(Credit::PatchRx(bridge, peer));
        self.br = old_br;
        (self.flow, self.table, self.rule) = (old_flow, old_table, old_rule);
        (self.stack, self.action_set) = (old_stack, old_set);
        if self.error.is_none() {
            self.exit = old_exit;
        }
    }
}
