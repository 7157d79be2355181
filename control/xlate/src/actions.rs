//! The dispatch of a list of actions.

use fv_openflow::action::Action;

use crate::ctx::Ctx;
use crate::trace::Kind;

impl Ctx<'_> {
    /// Does `list` in order until it ends, `exit` is met or translation fails.
    pub fn do_actions(&mut self, list: &[Action]) {
        for a in list {
            if self.exit {
                break;
            }
            self.enter(Kind::Action, |_| crate::text::format_action(a));
            let go_on = self.do_action(a);
            self.leave();
            if !go_on {
                break;
            }
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
            Action::StackPush(s) => self.stack_push(s),
            Action::StackPop(s) => self.stack_pop(s),
            Action::DecTtl(d) => return self.dec_ttl(d),
            Action::SetMplsLabel(_)
            | Action::SetMplsTc(_)
            | Action::SetMplsTtl(_)
            | Action::PushMpls(_)
            | Action::PopMpls(_) => self.mpls_action(a),
            Action::DecMplsTtl => return self.dec_mpls_ttl(),

            Action::Resubmit(r) => self.resubmit(r),
            Action::GotoTable(t) => {
                let port = self.in_port();
                self.table_action(port, *t, true);
            }
            Action::Clone(inner) => self.clone_action(&inner.0),
            Action::ClearActions => {
                self.action_set.clear();
                self.note(Kind::Detail, |_| "action set is empty".into());
            }
            Action::WriteActions(w) => self.write_actions(&w.0),
            Action::WriteMetadata { metadata, mask } => {
                let old = self.flow.pipe.metadata.get();
                self.flow.pipe.metadata = (old & !mask | metadata & mask).into();
            }
            Action::Exit => self.exit = true,
            Action::Note(_) | Action::Conjunction { .. } | Action::FinTimeout { .. } => {}
            Action::DebugSlow => self.slow |= fv_dpif::action::SlowReasons::ACTION,
            other => {
                // The switch refuses rules with these when they are installed.
                let _ = other;
                self.note(Kind::Warn, |_| "action is not supported, ignored".into());
            }
        }
        true
    }

    /// The packet as it is goes through `inner`; what they change is undone afterwards.
    fn clone_action(&mut self, inner: &[Action]) {
        let (flow, base, stack, set) = (self.flow, self.base, self.stack.clone(), self.action_set.clone());
        let (exit, mut outer) = (self.exit, std::mem::take(&mut self.out));
        self.do_actions(inner);
        let changed = self.base != base;
        let body = std::mem::take(&mut self.out);
        if changed {
            // The headers that were written must not be seen by what follows.
            if !body.is_empty() {
                outer.push(fv_dpif::DpAction::Clone(body));
            }
        } else {
            outer.extend(body);
        }
        self.out = outer;
        (self.flow, self.base, self.stack, self.action_set) = (flow, base, stack, set);
        if self.error.is_none() {
            self.exit = exit;
        }
    }

    fn write_actions(&mut self, list: &[Action]) {
        for a in list {
            // A later action of a kind replaces the earlier one.
            self.action_set.retain(|o| slot(o) != slot(a));
            self.action_set.push(a.clone());
        }
        self.note(Kind::Detail, |c| {
            format!("action set is: {}", crate::text::format_actions(&ordered_set(&c.action_set)))
        });
    }
}

/// The place of an action in the action set (OpenFlow 1.3.5 section 5.10), and what makes two
/// actions the same one: equal slots replace each other.
fn slot(a: &Action) -> (u8, u32) {
    match a {
        Action::StripVlan { .. } => (1, 0),
        Action::PopMpls(_) => (1, 1),
        Action::Decap(_) => (1, 2),
        Action::Encap(_) => (2, 0),
        Action::PushMpls(_) => (3, 0),
        Action::PushVlan(_) => (4, 0),
        Action::DecMplsTtl => (5, 0),
        Action::DecTtl(_) => (5, 1),
        Action::DecNshTtl => (5, 2),
        Action::SetField(s) => (6, s.field as u32),
        Action::SetEthSrc(_) => (6, 0x1000),
        Action::SetEthDst(_) => (6, 0x1001),
        Action::SetIpv4Src(_) => (6, 0x1002),
        Action::SetIpv4Dst(_) => (6, 0x1003),
        Action::SetIpDscp(_) => (6, 0x1004),
        Action::SetIpEcn(_) => (6, 0x1005),
        Action::SetIpTtl(_) => (6, 0x1006),
        Action::SetL4SrcPort(_) => (6, 0x1007),
        Action::SetL4DstPort(_) => (6, 0x1008),
        Action::SetVlanVid { .. } => (6, 0x1009),
        Action::SetVlanPcp { .. } => (6, 0x100a),
        Action::SetTunnel { .. } => (6, 0x100b),
        Action::SetMplsLabel(_) => (6, 0x100c),
        Action::SetMplsTc(_) => (6, 0x100d),
        Action::SetMplsTtl(_) => (6, 0x100e),
        Action::RegMove { .. } => (6, 0x100f),
        Action::SetQueue(_) => (7, 0),
        Action::Group(_) => (8, 0),
        Action::Output { .. } => (9, 0),
        Action::Resubmit(_) => (10, 0),
        Action::Ct(_) => (11, 0),
        _ => (12, 0),
    }
}

/// The action set in the order in which it is executed. A group displaces an output, an output a resubmit.
pub(crate) fn ordered_set(set: &[Action]) -> Vec<Action> {
    let mut v: Vec<Action> = set.to_vec();
    v.sort_by_key(|a| slot(a).0);
    let has = |n: u8| v.iter().any(|a| slot(a).0 == n);
    let last = [8, 9, 10, 11].into_iter().find(|n| has(*n));
    v.retain(|a| slot(a).0 < 8 || Some(slot(a).0) == last);
    if last.is_none() { Vec::new() } else { v }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fv_core::OfPort;

    #[test]
    fn the_set_is_ordered_and_needs_a_destination() {
        let out = Action::Output { port: OfPort(1), max_len: 0 };
        let set = [out.clone(), Action::SetIpTtl(3), Action::PushVlan(0x8100), Action::StripVlan { pop_vlan: true }];
        let got = ordered_set(&set);
        assert_eq!(got, [set[3].clone(), set[2].clone(), set[1].clone(), out.clone()]);
        assert_eq!(ordered_set(&set[1..]), []);
        assert_eq!(ordered_set(&[out.clone(), Action::Group(1)]), [Action::Group(1)]);
    }
}
