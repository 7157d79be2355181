//! VLAN tags as OpenFlow actions change them.

use fv_flow::key::{VLAN_CFI, Vlan};
use fv_openflow::action::Action;

use crate::ctx::Ctx;

const VID: u16 = 0x0fff;
const PCP: u16 = 0xe000;
const TPID: u16 = 0x8100;

impl Ctx<'_> {
    pub fn vlan_action(&mut self, a: &Action) {
        match a {
            Action::SetVlanVid { vid, push_vlan_if_needed, .. } => {
                self.see_tag(0, VID | VLAN_CFI);
                self.set_tci(VID, *vid & VID, *push_vlan_if_needed);
            }
            Action::SetVlanPcp { pcp, push_vlan_if_needed, .. } => {
                self.see_tag(0, PCP | VLAN_CFI);
                self.set_tci(PCP, u16::from(*pcp) << 13, *push_vlan_if_needed);
            }
            Action::StripVlan { .. } => self.pop_vlan(),
            Action::PushVlan(tpid) => self.push_vlan(*tpid),
            _ => {}
        }
    }

    /// The mask gains bits of tag `n`.
    pub fn see_tag(&mut self, n: usize, tci_bits: u16) {
        let m = &mut self.mask.0.dp.base.vlans[n].tci;
        *m = (m.get() | tci_bits).into();
    }

    fn set_tci(&mut self, bits: u16, value: u16, push_if_needed: bool) {
        let v = &mut self.flow.dp.base.vlans[0];
        if v.tci.get() & VLAN_CFI == 0 && !push_if_needed {
            return;
        }
        if v.tpid == 0 {
            v.tpid = TPID.into();
        }
        v.tci = (v.tci.get() & !bits | value | VLAN_CFI).into();
    }

    pub fn pop_vlan(&mut self) {
        let v = &mut self.flow.dp.base.vlans;
        if v[1].tci.get() & VLAN_CFI != 0 {
            self.mask.0.dp.base.vlans[1] = exact();
        }
        v[0] = v[1];
        v[1] = Vlan::default();
    }

    /// An empty tag in front; the innermost of three is lost from view.
    pub fn push_vlan(&mut self, tpid: u16) {
        let v = &mut self.flow.dp.base.vlans;
        for (m, v) in self.mask.0.dp.base.vlans.iter_mut().zip(v.iter()) {
            if v.tci.get() & VLAN_CFI != 0 {
                *m = exact();
            }
        }
        v[1] = v[0];
        v[0] = Vlan { tpid: tpid.into(), tci: VLAN_CFI.into() };
    }
}

fn exact() -> Vlan {
    Vlan { tpid: u16::MAX.into(), tci: u16::MAX.into() }
}
