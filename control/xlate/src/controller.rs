//! Packets to controllers.

use fv_core::RecircId;
use fv_dpif::action::ControllerUpcall;
use fv_dpif::{DpAction, Userspace};
use fv_openflow::action::{Controller, PacketInReason};

use crate::ctx::{Ctx, Frozen};

impl Ctx<'_> {
    pub fn controller(&mut self, c: &Controller) {
        if c.pause {
            // The rest waits for the controller's leave.
            self.pause = Some(Box::new(c.clone()));
            self.freeze_here();
            return;
        }
        self.send(c);
    }

    /// Emits the action that sends the packet, as it is now, to the controllers with `id`.
    pub fn send_to_controller(&mut self, max_len: u16, reason: PacketInReason, id: u16) {
        self.send(&Controller { max_len, reason, controller_id: id, ..Controller::default() });
    }

    fn send(&mut self, c: &Controller) {
        self.commit();
        let reason = match (&self.rule, c.reason) {
            // OpenFlow 1.3: a packet sent by a table-miss rule is a miss, not an action.
            (Some(r), PacketInReason::Action) if is_table_miss(r) => PacketInReason::ExplicitMiss,
            (_, r) => r,
        };
        let cookie = self.rule.as_ref().map_or(self.thawed_cookie, |r| r.cookie);
        let state = Frozen {
            bridge: self.br.id,
            table: self.table,
            key: self.flow,
            stack: Vec::new(),
            action_set: Vec::new(),
            actions: Vec::new(),
            cookie,
            userdata: c.userdata.clone(),
            pause: false,
        };
        let key = metadata_of(&state.key);
        self.controller_upcall(c, reason, Frozen { key, ..state });
    }

    /// The action that sends the packet with what `state` says. Its meter may keep it from that, but from
    /// nothing that follows; one that is not there limits nothing.
    pub fn controller_upcall(&mut self, c: &Controller, reason: PacketInReason, state: Frozen) {
        let (cookie, pause) = (state.cookie, state.pause);
        let RecircId(recirc_id) = self.freeze(state);
        let what = ControllerUpcall {
            reason: reason as u8,
            // A trace without a packet has nothing to send.
            dont_send: self.inp.trace && self.inp.packet.is_none(),
            continuation: pause,
            recirc_id,
            rule_cookie: cookie,
            controller_id: c.controller_id,
            max_len: c.max_len,
            state: u64::from(recirc_id),
        };
        let send = DpAction::Userspace {
            what: Userspace::Controller(what),
            pid: 0,
            with_actions: false,
            tunnel_out_port: None,
        };
        self.out.push(match self.br.meters.get(&c.meter_id) {
            Some(m) => {
                let actions = vec![DpAction::Meter(m.running.id().number()), send];
                DpAction::Sample { probability: u32::MAX, actions }
            }
            None => send,
        });
    }

    pub fn freeze(&mut self, state: Frozen) -> RecircId {
        let id = (self.inp.freeze)(state);
        self.frozen.push(id);
        id
    }
}

/// OpenFlow 1.3: the rule of priority 0 that matches everything.
fn is_table_miss(r: &fv_ofproto::RuleRef) -> bool {
    r.priority() == 0 && r.matches().is_catch_all()
}

/// The part of a key that does not come from the packet's headers.
pub(crate) fn metadata_of(k: &fv_flow::FlowKey) -> fv_flow::FlowKey {
    let mut m = fv_flow::FlowKey::default();
    m.dp.base.in_port = k.base.in_port;
    m.dp.base.pkt_mark = k.base.pkt_mark;
    (m.dp.base.ct_state, m.dp.base.ct_zone, m.dp.base.ct_mark) = (k.base.ct_state, k.base.ct_zone, k.base.ct_mark);
    (m.dp.tun, m.dp.opts) = (k.tun, k.opts);
    m.dp.ct = k.ct;
    m.dp.misc.packet_type = k.misc.packet_type;
    m.pipe = k.pipe;
    m
}
