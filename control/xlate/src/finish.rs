//! The end of a translation: masks of what the packet never had are cleared, the program is closed.

use fv_dpif::{DpAction, Program};
use fv_flow::key::{FRAG_LATER, VLAN_CFI};

use crate::commit::is_mpls;
use crate::ctx::{Ctx, Looked, Output, Start};

impl Ctx<'_> {
    pub fn finish(mut self) -> Output {
        // What is done last needs no copy of the packet.
        if let Some(DpAction::Clone(body)) = self.out.pop_if(|a| matches!(a, DpAction::Clone(_))) {
            self.out.extend(body);
        }
        let mut program = Program::new(std::mem::take(&mut self.out));
        if let Some(e) = self.error {
            // Half a translation must not be executed.
            program = e.program();
        }
        if self.error.is_none() {
            self.trim_mask();
        }
        if self.flow.pipe.actset_output == fv_core::OfPort::UNSET.0 {
            self.flow.pipe.actset_output = self.inp.key.pipe.actset_output;
        }
        if !matches!(self.inp.start, Start::Tables) {
            // What a frozen state brings in is not in the packet.
            self.looked = Looked::ALL;
        }
        Output {
            program,
            mask: self.mask,
            flow: self.flow,
            effects: self.effects,
            credits: self.credits,
            frozen: self.frozen,
            slow: self.slow,
            error: self.error,
            looked: self.looked,
            unresolved: self.unresolved,
            trace: self.tracer.take().map(|t| t.finish()).unwrap_or_default(),
        }
    }

    /// Bits of fields that the packet does not have come from what the pipeline wrote; matching on
    /// them would only make revalidation disagree with the datapath.
    fn trim_mask(&mut self) {
        let key = &self.inp.key.dp;
        let tun_present = self.mask.0.pipe.tun_present;
        self.mask.0.pipe = Default::default();
        let m = &mut self.mask.0.dp;
        if key.tun.dst == 0 && key.tun.ipv6_dst == [0; 16] {
            // What was written for the way out.
            (m.tun, m.opts) = Default::default();
        } else {
            self.mask.0.pipe.tun_present = tun_present;
        }
        if key.misc.packet_type != 0 {
            // No Ethernet header, no addresses.
            (m.base.dl_src, m.base.dl_dst) = ([0; 6], [0; 6]);
        }
        if !is_mpls(key.base.dl_type.get()) {
            m.misc.mpls_lse = Default::default();
        } else {
            // Nothing below the labels was parsed.
            (m.base.nw_src, m.base.nw_dst) = (0.into(), 0.into());
            (m.base.nw_proto, m.base.nw_tos, m.base.nw_ttl, m.base.nw_frag) = (0, 0, 0, 0);
            (m.base.tp_src, m.base.tp_dst, m.base.tcp_flags) = (0.into(), 0.into(), 0.into());
            m.v6 = Default::default();
        }
        for (v, k) in m.base.vlans.iter_mut().zip(&key.base.vlans) {
            if k.tci.get() & VLAN_CFI == 0 {
                *v = Default::default();
            } else if v.tci.get() != 0 {
                v.tci = (v.tci.get() | VLAN_CFI).into();
            }
            if v.tci == u16::MAX {
                // Who takes tags off asks for all of them, and may ask for the type the next time.
                v.tpid = u16::MAX.into();
            }
        }
        let icmp = matches!((key.base.dl_type.get(), key.base.nw_proto), (0x0800, 1) | (0x86dd, 58));
        if icmp {
            m.base.tp_src = (m.base.tp_src.get() & 0xff).into();
            m.base.tp_dst = (m.base.tp_dst.get() & 0xff).into();
        }
        if key.base.nw_frag & FRAG_LATER != 0 {
            (m.base.tp_src, m.base.tp_dst) = (0.into(), 0.into());
        }
    }
}
