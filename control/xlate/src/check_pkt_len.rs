//! `check_pkt_larger`: the rest of the list is done once for packets that are larger and once for
//! those that are not; the datapath takes one of the two branches.

use fv_dpif::DpAction;
use fv_dpif::action::SlowReasons;
use fv_flow::Subfield;
use fv_openflow::action::Action;

use crate::ctx::Ctx;

impl Ctx<'_> {
    pub fn check_pkt_larger(&mut self, dst: &Subfield, size: u16, rest: &[Action]) {
        if !self.inp.view.features.check_pkt_len {
            // The slow path sees each packet, and so its length.
            self.slow |= SlowReasons::ACTION;
            let longer = self.inp.packet.is_some_and(|p| p.len() > usize::from(size));
            dst.unwildcard(&mut self.mask);
            dst.write(&mut self.flow, u128::from(longer));
            self.do_actions(rest);
            return;
        }
        self.commit();
        let greater = self.branch(dst, 1, rest);
        let less_equal = self.branch(dst, 0, rest);
        self.out.push(DpAction::CheckPktLen { size, greater, less_equal });
    }

    /// What is done with a packet for which the bit is `bit`. Nothing of it is left afterwards.
    fn branch(&mut self, dst: &Subfield, bit: u128, rest: &[Action]) -> Vec<DpAction> {
        let (flow, base, was_mpls) = (self.flow, self.base, self.was_mpls);
        let (stack, set) = (self.stack.clone(), self.action_set.clone());
        let outer = std::mem::take(&mut self.out);
        dst.unwildcard(&mut self.mask);
        dst.write(&mut self.flow, bit);
        self.do_actions(rest);
        self.end_of_pipeline();
        (self.flow, self.base, self.was_mpls) = (flow, base, was_mpls);
        (self.stack, self.action_set) = (stack, set);
        (self.exit, self.freezing) = (false, false);
        std::mem::replace(&mut self.out, outer)
    }
}
