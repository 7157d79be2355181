//! Header and register rewriting. Each action first notes in the mask what it depends on.

use fv_dpif::action::SlowReasons;
use fv_flow::{Field, FieldValue, Subfield};
use fv_openflow::action::{Action, DecTtl, PacketInReason, SetField};

use crate::commit::{is_mpls, mpls_depth};
use crate::ctx::{Ctx, MAX_STACK, XlateError};
use crate::trace::Kind;

const N_MPLS: usize = 3;

impl Ctx<'_> {
    /// The fixed-form header actions of OpenFlow 1.0 and 1.1.
    pub fn header_action(&mut self, a: &Action) {
        let b = self.flow.base;
        let (ip, ipv4) = (matches!(b.dl_type.get(), 0x0800 | 0x86dd), b.dl_type == 0x0800);
        match a {
            Action::SetEthSrc(mac) => self.put(Field::EthSrc, mac_value(mac)),
            Action::SetEthDst(mac) => self.put(Field::EthDst, mac_value(mac)),
            Action::SetIpv4Src(v) if ipv4 => self.put(Field::Ipv4Src, u128::from(*v)),
            Action::SetIpv4Dst(v) if ipv4 => self.put(Field::Ipv4Dst, u128::from(*v)),
            Action::SetIpDscp(v) if ip => self.put(Field::IpDscp, u128::from(*v)),
            Action::SetIpEcn(v) if ip => self.put(Field::IpEcn, u128::from(*v)),
            Action::SetIpTtl(v) if ip => self.put(Field::IpTtl, u128::from(*v)),
            Action::SetL4SrcPort(p) => self.set_l4(Field::TcpSrc, p.port),
            Action::SetL4DstPort(p) => self.set_l4(Field::TcpDst, p.port),
            Action::SetTunnel { id, .. } => self.flow.dp.tun.id = (*id).into(),
            Action::SetQueue(q) => self.flow.dp.misc.skb_priority = *q,
            Action::PopQueue => self.flow.dp.misc.skb_priority = self.inp.key.misc.skb_priority,
            _ => {}
        }
    }

    fn put(&mut self, f: Field, v: u128) {
        self.mask.set_field(f);
        f.set(&mut self.flow, &FieldValue(v));
    }

    fn set_l4(&mut self, f: Field, port: u16) {
        let b = &self.flow.base;
        let has_ports =
            matches!(b.dl_type.get(), 0x0800 | 0x86dd) && b.nw_frag & 2 == 0 && matches!(b.nw_proto, 6 | 17 | 132);
        if matches!(b.dl_type.get(), 0x0800 | 0x86dd) {
            self.mask.0.dp.base.nw_proto = 0xff;
        }
        if has_ports {
            self.put(f, u128::from(port));
        }
    }

    pub fn set_field(&mut self, s: &SetField) {
        if !s.field.prerequisites_met_wc(&self.flow, &mut self.mask) {
            return;
        }
        self.mask.set_bits(s.field, &s.mask);
        s.field.set_masked(&mut self.flow, &s.value, &s.mask);
    }

    pub fn reg_move(&mut self, src: &Subfield, dst: &Subfield) {
        let ok = src.field.prerequisites_met_wc(&self.flow, &mut self.mask)
            & dst.field.prerequisites_met_wc(&self.flow, &mut self.mask);
        src.unwildcard(&mut self.mask);
        dst.unwildcard(&mut self.mask);
        if ok {
            let v = src.read(&self.flow);
            dst.write(&mut self.flow, v);
            self.note(Kind::Detail, |c| {
                format!(
                    "{} is now {}",
                    fv_openflow::text::format_subfield(dst),
                    fv_flow::text::format_field(dst.field, &dst.field.value(&c.flow), None, None)
                )
            });
        }
    }

    pub fn stack_push(&mut self, s: &Subfield) {
        if (self.stack.len() + 1) * size_of::<u128>() > MAX_STACK {
            self.fail(XlateError::StackTooDeep);
            return;
        }
        s.unwildcard(&mut self.mask);
        self.stack.push(s.read(&self.flow));
    }

    pub fn stack_pop(&mut self, s: &Subfield) {
        s.unwildcard(&mut self.mask);
        match self.stack.pop() {
            Some(v) => s.write(&mut self.flow, v),
            None => self.note(Kind::Warn, |_| "Failed to pop from an empty stack.".into()),
        }
    }

    /// False when the TTL expired, which ends the list.
    pub fn dec_ttl(&mut self, d: &DecTtl) -> bool {
        if !matches!(self.flow.base.dl_type.get(), 0x0800 | 0x86dd) {
            return true;
        }
        self.mask.0.dp.base.nw_ttl = 0xff;
        if self.flow.base.nw_ttl > 1 {
            self.flow.dp.base.nw_ttl -= 1;
            return true;
        }
        let none = [0];
        let controllers = if d.controllers.is_empty() { &none[..] } else { &d.controllers };
        for id in controllers {
            self.send_to_controller(u16::MAX, PacketInReason::InvalidTtl, *id, &[], false);
        }
        self.note(Kind::Warn, |_| "IPv4 decrement TTL exception".into());
        false
    }

    pub fn mpls_action(&mut self, a: &Action) {
        match a {
            Action::PushMpls(ty) => return self.push_mpls(*ty),
            Action::PopMpls(ty) => return self.pop_mpls(*ty),
            _ => {}
        }
        if !is_mpls(self.flow.base.dl_type.get()) {
            return;
        }
        let lse = self.flow.misc.mpls_lse[0].get();
        let (bits, value) = match a {
            Action::SetMplsLabel(v) => (0xffff_f000, v << 12),
            Action::SetMplsTc(v) => (0x0000_0e00, u32::from(*v) << 9),
            Action::SetMplsTtl(v) => (0x0000_00ff, u32::from(*v)),
            _ => return,
        };
        self.mask.0.dp.misc.mpls_lse[0] = (self.mask.0.misc.mpls_lse[0].get() | bits).into();
        self.flow.dp.misc.mpls_lse[0] = (lse & !bits | value & bits).into();
    }

    /// False when the TTL expired, which ends the list.
    pub fn dec_mpls_ttl(&mut self) -> bool {
        if !is_mpls(self.flow.base.dl_type.get()) {
            return true;
        }
        let lse = self.flow.misc.mpls_lse[0].get();
        self.mask.0.dp.misc.mpls_lse[0] = (self.mask.0.misc.mpls_lse[0].get() | 0xff).into();
        if lse & 0xff > 1 {
            self.flow.dp.misc.mpls_lse[0] = (lse - 1).into();
            return true;
        }
        self.send_to_controller(u16::MAX, PacketInReason::InvalidTtl, 0, &[], false);
        self.note(Kind::Warn, |_| "MPLS decrement TTL exception".into());
        false
    }

    fn push_mpls(&mut self, eth_type: u16) {
        let n = mpls_depth(&self.flow);
        if n >= N_MPLS {
            self.note(Kind::Error, |_| {
                "MPLS push action can't be performed as it would cause stack to be too deep".into()
            });
            self.fail(XlateError::TooManyMplsLabels);
            return;
        }
        let b = self.flow.base;
        self.mask.0.dp.misc.mpls_lse = [u32::MAX.into(); N_MPLS];
        let lse = if n > 0 {
            self.flow.misc.mpls_lse[0].get() & !0x100
        } else {
            // Below the first label: the headers must be committed, they cannot be reached afterwards.
            self.commit();
            let (label, tc, ttl) = match b.dl_type.get() {
                0x0800 | 0x86dd => {
                    self.mask.0.dp.base.nw_tos |= 0xfc;
                    self.mask.0.dp.base.nw_ttl = 0xff;
                    (if b.dl_type == 0x0800 { 0 } else { 2 }, u32::from(b.nw_tos >> 5 & 7), u32::from(b.nw_ttl))
                }
                _ => (0, 0, 64),
            };
            let ttl = if ttl == 0 { 64 } else { ttl };
            label << 12 | tc << 9 | 0x100 | ttl
        };
        self.flow.dp.misc.mpls_lse.rotate_right(1);
        self.flow.dp.misc.mpls_lse[0] = lse.into();
        let base = &mut self.flow.dp.base;
        base.dl_type = eth_type.into();
        (base.nw_tos, base.nw_ttl, base.nw_proto, base.nw_frag) = (0, 0, 0, 0);
        (base.nw_src, base.nw_dst) = (0.into(), 0.into());
        (base.tp_src, base.tp_dst, base.tcp_flags) = (0.into(), 0.into(), 0.into());
        self.flow.dp.v6 = Default::default();
    }

    fn pop_mpls(&mut self, eth_type: u16) {
        let n = mpls_depth(&self.flow);
        if n == 0 {
            return;
        }
        self.mask.0.dp.misc.mpls_lse[0] = (self.mask.0.misc.mpls_lse[0].get() | 0x100).into();
        let bottom = self.flow.misc.mpls_lse[0].get() & 0x100 != 0;
        self.flow.dp.misc.mpls_lse.rotate_left(1);
        self.flow.dp.misc.mpls_lse[N_MPLS - 1] = 0.into();
        self.flow.dp.base.dl_type = eth_type.into();
        if bottom && !is_mpls(eth_type) {
            // What is below shows only when the packet comes round again.
            self.slow |= SlowReasons::default();
        }
    }
}

fn mac_value(mac: &[u8; 6]) -> u128 {
    FieldValue::from_be_bytes(mac).0
}
