//! Packets that the switch itself consumes: those of the protocols that guard a port.

use fv_dpif::action::SlowReasons;
use fv_l2::{BfdMatch, bfd};
use fv_ofproto::PortView;

use crate::ctx::{Ctx, Effect};

const UDP: u8 = 17;

impl Ctx<'_> {
    /// Whether the packet goes no further than its port's protocols. The mask gains what decides that.
    pub(crate) fn is_special(&mut self, p: &PortView) -> bool {
        let (Some(monitor), Some(m)) = (&p.monitor, &p.bfd) else { return false };
        if !self.is_bfd(m) {
            return false;
        }
        self.slow |= SlowReasons::BFD;
        if let Some(packet) = self.inp.packet {
            self.effects.push(Effect::Bfd { monitor: monitor.0.clone(), frame: packet.data().to_vec() });
        }
        true
    }

    fn is_bfd(&mut self, m: &BfdMatch) -> bool {
        let b = self.flow.base;
        let seen = &mut self.mask.0.dp.base;
        if let Some(mac) = m.dst_mac {
            seen.dl_dst = [0xff; 6];
            if mac != b.dl_dst {
                return false;
            }
        }
        if b.dl_type.get() != 0x0800 {
            return false;
        }
        seen.nw_proto = u8::MAX;
        if b.nw_proto != UDP {
            return false;
        }
        // One bit that differs is enough to tell others by: hosts with many ports need few flows.
        let differs = b.tp_dst.get() ^ bfd::UDP_PORT;
        if differs != 0 {
            let bit = 0x8000 >> differs.leading_zeros();
            seen.tp_dst = (seen.tp_dst.get() | bit).into();
            return false;
        }
        seen.tp_dst = u16::MAX.into();
        if m.check_tnl_key {
            self.mask.0.dp.tun.id = u64::MAX.into();
            if self.flow.tun.id.get() != 0 {
                return false;
            }
        }
        if let Some(ip) = m.dst_ip {
            self.mask.0.dp.base.nw_dst = u32::MAX.into();
            return b.nw_dst.get() == ip;
        }
        true
    }
}
