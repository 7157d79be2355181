//! The dispatch of a list of actions.

use fv_core::OfPort;
use fv_openflow::action::{Action, TABLE_CURRENT};

use crate::ctx::{Credit, Ctx};
use crate::trace::Kind;

const TCP: u8 = 6;

impl Ctx<'_> {
    /// Does `list` in order until it ends, `exit` is met or translation fails.
    pub fn do_actions(&mut self, list: &[Action]) {
        if list.is_empty() {
            self.note(Kind::Action, |_| "drop".into());
        }
        let is_last = self.is_last;
        for (i, a) in list.iter().enumerate() {
            self.is_last = is_last && i + 1 == list.len() && self.action_set.is_empty();
            if self.exit || self.error.is_some() {
                self.unroll(&list[i..]);
                break;
            }
            if self.was_mpls && below_labels(a) {
                // The headers below the popped labels show when the packet comes round again.
                self.freeze_here();
                self.unroll(&list[i..]);
                break;
            }
            self.enter(Kind::Action, |c| c.action_text(a));
            if let Action::CheckPktLarger { dst, pkt_len } = a {
                self.check_pkt_larger(dst, *pkt_len, &list[i + 1..]);
                self.leave();
                break;
            }
            let go_on = self.do_action(a);
            self.leave();
            if !go_on {
                break;
            }
        }
        self.is_last = is_last;
    }

    /// What a frozen pipeline has still to do. Table and cookie come back before what tells them.
    fn unroll(&mut self, rest: &[Action]) {
        if !self.freezing {
            return;
        }
        let here = (self.table, self.rule.as_ref().map_or(self.thawed_cookie, |r| r.cookie));
        for a in rest {
            if tells_where(a) && self.unrolled != Some(here) {
                self.unrolled = Some(here);
                self.rest.push(Action::UnrollXlate { table: here.0, cookie: here.1 });
            }
            self.rest.push(a.clone());
        }
    }

    /// False ends the list that the action is in.
    fn do_action(&mut self, a: &Action) -> bool {
        match a {
            Action::Output { port, max_len } => self.output_action(*port, *max_len),
            Action::OutputReg { src, max_len } => self.output_reg(src, *max_len),
            Action::OutputTrunc { port, max_len } => self.output_trunc(*port, *max_len),
            Action::Controller(c) => self.controller(c),
            Action::Enqueue { port, queue } => self.enqueue(*port, *queue),

            Action::SetVlanVid { .. } | Action::SetVlanPcp { .. } | Action::StripVlan { .. } | Action::PushVlan(_) => {
                self.vlan_action(a);
            }
            Action::SetEthSrc(_)
            | Action::SetEthDst(_)
            | Action::SetIpv4Src(_)
            | Action::SetIpv4Dst(_)
            | Action::SetIpDscp(_)
            | Action::SetIpEcn(_)
            | Action::SetIpTtl(_)
            | Action::SetL4SrcPort(_)
            | Action::SetL4DstPort(_)
            | Action::SetTunnel { .. }
            | Action::SetQueue(_)
            | Action::PopQueue => self.header_action(a),
            Action::RegMove { src, dst } => self.reg_move(src, dst),
            Action::SetField(s) => self.set_field(s),
            Action::DeleteField(f) => self.delete_field(*f),
            Action::StackPush(s) => self.stack_push(s),
            Action::StackPop(s) => self.stack_pop(s),
            Action::DecTtl(d) => return self.dec_ttl(d),
            Action::SetMplsLabel(_)
            | Action::SetMplsTc(_)
            | Action::SetMplsTtl(_)
            | Action::PushMpls(_)
            | Action::PopMpls(_) => self.mpls_action(a),
            Action::DecMplsTtl => return self.dec_mpls_ttl(),

            Action::Group(id) => {
                self.group(*id);
                // A group that waits for a hash is asked again.
                self.unroll(std::slice::from_ref(a));
            }
            Action::Meter(id) => {
                // One that is gone limits nothing.
                if let Some(m) = self.br.meters.get(id) {
                    self.out.push(fv_dpif::DpAction::Meter(m.running.id().number()));
                }
            }
            Action::Resubmit(r) => self.resubmit(r),
            Action::GotoTable(t) => {
                let port = self.in_port();
                self.table_action(port, *t, true, true);
            }
            Action::Clone(inner) => self.clone_actions(&inner.0),
            Action::ClearActions => {
                self.note_action_set("was");
                self.action_set.clear();
                self.flow.pipe.actset_output = OfPort::UNSET.0;
            }
            Action::WriteActions(w) => self.write_actions(&w.0),
            Action::UnrollXlate { table, cookie } => {
                self.table = *table;
                self.thawed_cookie = *cookie;
                self.rule = None;
                // The cookie as the reference writes it: in the order of the network.
                self.note(Kind::Table, |_| {
                    format!("restored state: table={table}, cookie={}", crate::fields::hex(u128::from(cookie.to_be())))
                });
            }
            Action::WriteMetadata { metadata, mask } => {
                let old = self.flow.pipe.metadata.get();
                self.flow.pipe.metadata = (old & !mask | metadata & mask).into();
            }
            Action::Exit => self.exit = true,
            // Nothing is tracked, so there is nothing to clear.
            Action::Note(_) | Action::Conjunction { .. } | Action::CtClear => {}
            Action::FinTimeout { idle_s, hard_s } => self.fin_timeout(*idle_s, *hard_s),
            Action::Learn(l) => self.learn_flow(l),
            Action::Multipath(m) => self.multipath(m),
            Action::Bundle(b) => self.bundle(b),
            Action::DebugRecirc => self.freeze_here(),
            Action::DebugSlow => self.slow |= fv_dpif::action::SlowReasons::ACTION,
            // There are no collectors: a sample has nowhere to go.
            Action::Sample(_) => {}
            // The switch refuses rules with the rest when they are installed.
            _ => {
                self.note(Kind::Warn, |_| "action is not supported, ignored".into());
            }
        }
        true
    }

    /// The packet as it is goes through `inner`; what they change is undone afterwards. Headers that
    /// the datapath has changed by then are changed back by what follows, unless the actions
    /// cannot be undone: those need a copy of the packet.
    pub fn clone_actions(&mut self, inner: &[Action]) {
        let (flow, stack, set) = (self.flow, self.stack.clone(), self.action_set.clone());
        if self.is_last || reversible(inner) {
            self.do_actions(inner);
            self.end_of_pipeline();
        } else {
            self.commit();
            let (base, was_mpls) = (self.base, self.was_mpls);
            let outer = std::mem::take(&mut self.out);
            // Nothing follows within the copy.
            let is_last = std::mem::replace(&mut self.is_last, true);
            self.do_actions(inner);
            self.end_of_pipeline();
            self.is_last = is_last;
            let body = std::mem::replace(&mut self.out, outer);
            if !body.is_empty() {
                self.out.push(match self.inp.view.features.clone {
                    true => fv_dpif::DpAction::Clone(body),
                    false => fv_dpif::DpAction::Sample { probability: u32::MAX, actions: body },
                });
            }
            (self.base, self.was_mpls) = (base, was_mpls);
        }
        (self.flow, self.stack, self.action_set) = (flow, stack, set);
    }

    /// A connection that ends lets the flow's timeouts shrink.
    fn fin_timeout(&mut self, idle_s: u16, hard_s: u16) {
        self.mask.0.dp.base.nw_proto = 0xff;
        if self.flow.base.nw_proto == TCP
            && let Some(rule) = self.rule.clone()
        {
            self.credits.push(Credit::FinTimeout { tables: self.br.tables.clone(), rule, idle_s, hard_s });
        }
    }

    fn write_actions(&mut self, list: &[Action]) {
        let has_group = |l: &[Action]| l.iter().any(|a| matches!(a, Action::Group(_)));
        if !has_group(&self.action_set) {
            let out =
                list.iter().rev().find_map(|a| if let Action::Output { port, .. } = a { Some(*port) } else { None });
            if has_group(list) {
                self.flow.pipe.actset_output = OfPort::UNSET.0;
            } else if let Some(p) = out {
                self.flow.pipe.actset_output = p.0;
            }
        }
        self.action_set.extend_from_slice(list);
        self.note_action_set("is");
    }

    fn note_action_set(&mut self, verb: &str) {
        self.note(Kind::Detail, |c| match &ordered_set(&c.action_set)[..] {
            [] => format!("action set {verb} empty"),
            list => format!("action set {verb}: {}", c.actions_text(list)),
        });
    }
}

/// Whether all that the actions change can be changed back by rewriting headers.
fn reversible(list: &[Action]) -> bool {
    use Action::*;
    let lasting =
        |a: &Action| matches!(a, Ct(_) | Nat(_) | Meter(_) | OutputTrunc { .. } | Encap(_) | Decap(_) | DecNshTtl);
    !list.iter().any(lasting)
}

/// Whether the table or the rule that an action is in shows in what it does.
fn tells_where(a: &Action) -> bool {
    match a {
        Action::Output { port, .. } => *port == OfPort::CONTROLLER,
        Action::Resubmit(r) => r.table == TABLE_CURRENT,
        Action::OutputReg { .. }
        | Action::Controller(_)
        | Action::Group(_)
        | Action::DecTtl(_)
        | Action::DecMplsTtl
        | Action::DecNshTtl
        | Action::Clone(_)
        | Action::CheckPktLarger { .. } => true,
        _ => false,
    }
}

/// Actions on headers that a popped label hid until now.
fn below_labels(a: &Action) -> bool {
    match a {
        Action::SetIpv4Src(_)
        | Action::SetIpv4Dst(_)
        | Action::SetIpDscp(_)
        | Action::SetIpEcn(_)
        | Action::SetIpTtl(_)
        | Action::SetL4SrcPort(_)
        | Action::SetL4DstPort(_)
        | Action::DecTtl(_)
        | Action::Learn(_)
        | Action::Multipath(_)
        | Action::Bundle(_)
        | Action::FinTimeout { .. }
        | Action::PopMpls(_)
        | Action::PushMpls(_)
        | Action::Clone(_)
        | Action::Resubmit(_)
        | Action::GotoTable(_)
        | Action::Ct(_) => true,
        Action::SetField(s) => below(s.field),
        Action::RegMove { src, dst } => below(src.field) || below(dst.field),
        Action::StackPush(s) | Action::StackPop(s) => below(s.field),
        _ => false,
    }
}

fn below(f: fv_flow::Field) -> bool {
    f >= fv_flow::Field::Ipv4Src && f.tun_option().is_none()
}

const SLOT_SET: u8 = 9;
const SLOT_QUEUE: u8 = 10;
const SLOT_GROUP: u8 = 11;
const SLOT_OUTPUT: u8 = 12;
const SLOT_RESUBMIT: u8 = 13;
const SLOT_CT: u8 = 14;
const SLOT_NONE: u8 = 15;

/// The place of an action in the action set (OpenFlow 1.3.5 section 5.10).
fn slot(a: &Action) -> u8 {
    match a {
        Action::StripVlan { .. } => 0,
        Action::PopMpls(_) => 1,
        Action::Decap(_) => 2,
        Action::Encap(_) => 3,
        Action::PushMpls(_) => 4,
        Action::PushVlan(_) => 5,
        Action::DecTtl(_) => 6,
        Action::DecMplsTtl => 7,
        Action::DecNshTtl => 8,
        Action::SetField(_)
        | Action::RegMove { .. }
        | Action::SetEthSrc(_)
        | Action::SetEthDst(_)
        | Action::SetIpv4Src(_)
        | Action::SetIpv4Dst(_)
        | Action::SetIpDscp(_)
        | Action::SetIpEcn(_)
        | Action::SetIpTtl(_)
        | Action::SetL4SrcPort(_)
        | Action::SetL4DstPort(_)
        | Action::SetVlanVid { .. }
        | Action::SetVlanPcp { .. }
        | Action::SetTunnel { .. }
        | Action::SetMplsLabel(_)
        | Action::SetMplsTc(_)
        | Action::SetMplsTtl(_) => SLOT_SET,
        Action::SetQueue(_) => SLOT_QUEUE,
        Action::Group(_) => SLOT_GROUP,
        Action::Output { .. } => SLOT_OUTPUT,
        Action::Resubmit(_) => SLOT_RESUBMIT,
        Action::Ct(_) => SLOT_CT,
        _ => SLOT_NONE,
    }
}

/// The action set in the order in which it is executed. Of each kind the last one counts, but all
/// that set fields do, in their order. A group displaces an output, an output a resubmit.
pub(crate) fn ordered_set(set: &[Action]) -> Vec<Action> {
    let last_of = |k: u8| set.iter().rev().find(|a| slot(a) == k).cloned();
    let Some(end) = [SLOT_GROUP, SLOT_OUTPUT, SLOT_RESUBMIT, SLOT_CT].into_iter().find_map(last_of) else {
        return Vec::new();
    };
    let mut v: Vec<Action> = (0..SLOT_SET).filter_map(last_of).collect();
    v.extend(set.iter().filter(|a| slot(a) == SLOT_SET).cloned());
    v.extend(last_of(SLOT_QUEUE));
    v.push(end);
    v
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_is_ordered_and_needs_a_destination() {
        let out = Action::Output { port: OfPort(1), max_len: 0 };
        let set = [out.clone(), Action::SetIpTtl(3), Action::PushVlan(0x8100), Action::StripVlan { pop_vlan: true }];
        let got = ordered_set(&set);
        assert_eq!(got, [set[3].clone(), set[2].clone(), set[1].clone(), out.clone()]);
        assert_eq!(ordered_set(&set[1..]), []);
        assert_eq!(ordered_set(&[out.clone(), Action::Group(1)]), [Action::Group(1)]);
        let later = Action::Output { port: OfPort(2), max_len: 0 };
        assert_eq!(ordered_set(&[out, Action::SetIpTtl(3), later.clone()]), [Action::SetIpTtl(3), later]);
    }
}
