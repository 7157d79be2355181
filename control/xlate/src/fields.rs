//! Header and register rewriting. Each action first notes in the mask what it depends on.

use fv_flow::key::FRAG_LATER;
use fv_flow::{Field, FieldValue, Subfield};
use fv_openflow::action::{Action, DecTtl, PacketInReason, SetField};

use crate::commit::{is_mpls, mpls_depth};
use crate::ctx::{Ctx, Pushed, XlateError};
use crate::trace::Kind;

const N_MPLS: usize = 3;
/// Bottom of stack.
const BOS: u32 = 0x100;

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
            Action::SetQueue(q) => {
                self.mask.0.dp.misc.skb_priority = u32::MAX;
                self.flow.dp.misc.skb_priority = *q;
            }
            Action::PopQueue => {
                self.mask.0.dp.misc.skb_priority = u32::MAX;
                let first = self.inp.key.misc.skb_priority;
                if self.flow.misc.skb_priority != first {
                    self.flow.dp.misc.skb_priority = first;
                    self.note(Kind::Detail, |_| format!("queue = {}", hex(first.into())));
                }
            }
            _ => {}
        }
    }

    fn put(&mut self, f: Field, v: u128) {
        self.mask.set_field(f);
        self.see_protocol(f);
        f.set(&mut self.flow, &FieldValue::new(v));
    }

    /// A packet of protocol 0, or of ARP operation 0, is not rewritten above Ethernet, so what is
    /// written there depends on it.
    fn see_protocol(&mut self, written: Field) {
        let seen = match self.flow.base.dl_type.get() {
            0x0800 | 0x86dd => is_l3(written),
            0x0806 => is_arp(written),
            _ => false,
        };
        if seen {
            self.mask.0.dp.base.nw_proto = 0xff;
        }
    }

    /// The same for copies and OpenFlow 1.2's DSCP: as in the reference's masks they see the protocol
    /// only where it keeps the packet from being rewritten.
    fn see_no_protocol(&mut self, written: Field) {
        if self.flow.base.nw_proto == 0 {
            self.see_protocol(written);
        }
    }

    fn set_l4(&mut self, f: Field, port: u16) {
        let b = &self.flow.base;
        if matches!(b.dl_type.get(), 0x0800 | 0x86dd) && b.nw_frag & FRAG_LATER == 0 {
            self.mask.0.dp.base.nw_proto = 0xff;
            self.put(f, u128::from(port));
        }
    }

    pub fn set_field(&mut self, s: &SetField) {
        if !s.field.prerequisites_met_wc(&self.flow, &mut self.mask) {
            self.note(Kind::Warn, |_| format!("unmet prerequisites for {}, set_field ignored", s.field.name()));
            return;
        }
        let (value, mask) = (s.value.get(), s.mask.get());
        self.mask.set_bits(s.field, &mask);
        match s.field {
            Field::IpDscpShifted => self.see_no_protocol(s.field),
            _ => self.see_protocol(s.field),
        }
        s.field.set_masked(&mut self.flow, &value, &mask);
    }

    pub fn reg_move(&mut self, src: &Subfield, dst: &Subfield) {
        let ok = dst.field.prerequisites_met_wc(&self.flow, &mut self.mask)
            && src.field.prerequisites_met_wc(&self.flow, &mut self.mask);
        if ok {
            src.unwildcard(&mut self.mask);
            dst.unwildcard(&mut self.mask);
            let v = src.value(&self.flow);
            self.see_no_protocol(dst.field);
            dst.write(&mut self.flow, v);
        }
        self.note_subfield(dst);
    }

    pub fn note_subfield(&mut self, s: &Subfield) {
        self.note(Kind::Detail, |c| {
            let name = fv_openflow::text::format_subfield(s);
            if s.n_bits == s.field.n_bits() {
                let text = fv_flow::text::format_field(s.field, &s.field.value(&c.flow), None, None);
                format!("{name} is now {text}")
            } else {
                format!("{name} is now {}", s.value(&c.flow).hex())
            }
        });
    }

    /// Takes an option out of the tunnel's header.
    pub fn delete_field(&mut self, f: Field) {
        let Some(o) = f.tun_option() else { return };
        o.delete(&mut self.flow);
        self.note(Kind::Detail, |_| format!("delete {}", f.name()));
    }

    pub fn stack_push(&mut self, s: &Subfield) {
        s.unwildcard(&mut self.mask);
        self.stack.push(Pushed { value: s.value(&self.flow), n_bytes: s.n_bits.div_ceil(8) as u8 });
    }

    pub fn stack_pop(&mut self, s: &Subfield) {
        s.unwildcard(&mut self.mask);
        match self.stack.pop() {
            Some(v) => {
                self.see_no_protocol(s.field);
                s.write(&mut self.flow, v.value);
                self.note_subfield(s);
            }
            None => self.note(Kind::Error, |_| "stack underflow".into()),
        }
    }

    /// False when the TTL expired, which ends the list.
    pub fn dec_ttl(&mut self, d: &DecTtl) -> bool {
        self.mask.0.dp.base.nw_ttl = 0xff;
        let version = match self.flow.base.dl_type.get() {
            0x0800 => 4,
            0x86dd => 6,
            _ => return true,
        };
        self.see_protocol(Field::IpTtl);
        if self.flow.base.nw_ttl > 1 {
            self.flow.dp.base.nw_ttl -= 1;
            return true;
        }
        let none = [0];
        let controllers = if d.controllers.is_empty() { &none[..] } else { &d.controllers };
        for id in controllers {
            self.send_to_controller(u16::MAX, PacketInReason::InvalidTtl, *id);
        }
        self.note(Kind::Warn, |_| format!("IPv{version} decrement TTL exception"));
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
            self.note(Kind::Warn, |_| "MPLS decrement TTL exception".into());
            return false;
        }
        let lse = self.flow.misc.mpls_lse[0].get();
        self.mask.0.dp.misc.mpls_lse[0] = (self.mask.0.misc.mpls_lse[0].get() | 0xff).into();
        if lse & 0xff > 1 {
            self.flow.dp.misc.mpls_lse[0] = (lse - 1).into();
            return true;
        }
        self.send_to_controller(u16::MAX, PacketInReason::InvalidTtl, 0);
        self.note(Kind::Warn, |_| "MPLS decrement TTL exception".into());
        false
    }

    /// Labels of the flow. The mask gains the bottom-of-stack bits that decide it.
    fn count_labels(&mut self) -> usize {
        if !is_mpls(self.flow.base.dl_type.get()) {
            return 0;
        }
        for (m, l) in self.mask.0.dp.misc.mpls_lse.iter_mut().zip(&self.flow.misc.mpls_lse) {
            // One that is zero does not count, so all of it decides.
            *m = if l.get() == 0 { u32::MAX.into() } else { (m.get() | BOS).into() };
            if l.get() & BOS != 0 {
                break;
            }
        }
        mpls_depth(&self.flow)
    }

    fn push_mpls(&mut self, eth_type: u16) {
        let n = self.count_labels();
        if n >= N_MPLS {
            if self.inp.packet.is_some() {
                self.note(Kind::Error, |_| {
                    format!(
                        "dropping packet on which an MPLS push action can't be performed as it would have more MPLS \
                         LSEs than the {N_MPLS} supported."
                    )
                });
            }
            self.fail(XlateError::TooManyMplsLabels);
            return;
        }
        let lse = if n > 0 {
            self.mask.0.dp.misc.mpls_lse[..n].fill(u32::MAX.into());
            self.flow.misc.mpls_lse[0].get() & !BOS
        } else {
            // Below the first label: the headers must be committed, they cannot be reached afterwards.
            self.commit();
            let b = self.flow.base;
            let mut ttl = 64;
            let mut label = 0;
            let mut tc = 0;
            if matches!(b.dl_type.get(), 0x0800 | 0x86dd) {
                label = if b.dl_type == 0x0800 { 0 } else { 2 };
                tc = u32::from(b.nw_tos >> 2 & 7);
                self.mask.0.dp.base.nw_tos |= 0xfc;
                self.mask.0.dp.base.nw_ttl = 0xff;
                ttl = if b.nw_ttl == 0 { 64 } else { u32::from(b.nw_ttl) };
            }
            label << 12 | tc << 9 | BOS | ttl
        };
        self.flow.dp.misc.mpls_lse.rotate_right(1);
        self.flow.dp.misc.mpls_lse[0] = lse.into();
        let base = &mut self.flow.dp.base;
        base.dl_type = eth_type.into();
        if n == 0 {
            (base.nw_tos, base.nw_ttl, base.nw_proto, base.nw_frag) = (0, 0, 0, 0);
            (base.nw_src, base.nw_dst) = (0.into(), 0.into());
            (base.tp_src, base.tp_dst, base.tcp_flags) = (0.into(), 0.into(), 0.into());
            self.flow.dp.v6 = Default::default();
        }
    }

    fn pop_mpls(&mut self, eth_type: u16) {
        let n = self.count_labels();
        if n == 0 {
            return;
        }
        if n == N_MPLS && self.flow.misc.mpls_lse[n - 1].get() & BOS == 0 {
            // What comes up at the end of the stack is not known.
            if self.inp.packet.is_some() {
                self.note(Kind::Error, |_| {
                    format!(
                        "dropping packet on which an MPLS pop action can't be performed as it has more MPLS LSEs than \
                         the {N_MPLS} supported."
                    )
                });
            }
            self.fail(XlateError::TooManyMplsLabels);
            return;
        }
        self.mask.0.dp.misc.mpls_lse[1..n].fill(u32::MAX.into());
        self.flow.dp.misc.mpls_lse.rotate_left(1);
        self.flow.dp.misc.mpls_lse[N_MPLS - 1] = 0.into();
        self.flow.dp.base.dl_type = eth_type.into();
        if !is_mpls(eth_type) {
            // What is below shows only when the packet comes round again.
            self.was_mpls = true;
        }
    }
}

fn mac_value(mac: &[u8; 6]) -> u128 {
    FieldValue::from_be_bytes(mac).0
}

/// `{:#x}`, with a bare zero.
pub(crate) fn hex(v: u128) -> String {
    if v == 0 { "0".into() } else { format!("{v:#x}") }
}

/// Fields of IPv4 and IPv6 headers.
fn is_l3(f: Field) -> bool {
    use Field::*;
    matches!(f, Ipv4Src | Ipv4Dst | Ipv6Src | Ipv6Dst | Ipv6Label | IpDscp | IpDscpShifted | IpEcn | IpTtl)
}

/// Fields of ARP packets but for the operation.
fn is_arp(f: Field) -> bool {
    use Field::*;
    matches!(f, Ipv4Src | Ipv4Dst | ArpSpa | ArpTpa | ArpSha | ArpTha)
}
