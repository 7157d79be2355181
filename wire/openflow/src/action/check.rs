//! Whether a list of actions makes sense for the packets that a match selects.

use super::*;
use crate::error::OfError;
use crate::version::Version;
use fv_flow::Match;
use fv_flow::field::SubfieldError;
use fv_flow::key::{VLAN_CFI, cs, eth, ipproto};

/// What the list is checked against.
#[derive(Clone, Copy, Debug)]
pub struct CheckCx<'a> {
    pub match_: &'a Match,
    /// Numbers from here to the reserved ones are no ports.
    pub max_port: OfPort,
    /// The flow's table, 0xff if it is not known, and how many tables there are.
    pub table: u8,
    pub n_tables: u8,
    /// 1.0 (and its extension) lets actions pass that do not fit the match: they do nothing.
    pub version: Version,
}

/// What the packet looks like so far, as the actions before have changed it.
struct State<'a> {
    cx: CheckCx<'a>,
    m: Match,
}

/// Checks the list, and records in it what the match guarantees (tags, L4 protocols).
pub fn check(actions: &mut Actions, cx: &CheckCx) -> Result<(), OfError> {
    let is_conjunction = |a: &Action| matches!(a, Action::Conjunction { .. });
    if actions.iter().any(is_conjunction) && !actions.iter().all(|a| is_conjunction(a) || matches!(a, Action::Note(_)))
    {
        return Err(OfError::NxBacBadConjunction);
    }
    State { cx: *cx, m: *cx.match_ }.list(actions)
}

impl State<'_> {
    fn list(&mut self, list: &mut Actions) -> Result<(), OfError> {
        list.0.iter_mut().try_for_each(|a| self.one(a))
    }

    /// An action that the match does not provide for.
    fn require(&self, holds: bool) -> Result<(), OfError> {
        if holds || self.cx.version == Version::V10 { Ok(()) } else { Err(OfError::BacMatchInconsistent) }
    }

    fn dl_type(&self) -> u16 {
        self.m.key.dp.base.dl_type.get()
    }
    fn is_ip(&self) -> bool {
        [eth::IP, eth::IPV6].contains(&self.dl_type())
    }
    fn is_mpls(&self) -> bool {
        [eth::MPLS, eth::MPLS_MCAST].contains(&self.dl_type())
    }
    fn has_vlan(&self) -> bool {
        self.m.key.dp.base.vlans[0].tci.get() & VLAN_CFI != 0
    }
    fn tag(&mut self) {
        let t = &mut self.m.key.dp.base.vlans[0].tci;
        *t = (t.get() | VLAN_CFI).into();
    }

    fn port(&self, p: OfPort) -> Result<(), OfError> {
        match p {
            OfPort::IN_PORT
            | OfPort::TABLE
            | OfPort::NORMAL
            | OfPort::FLOOD
            | OfPort::ALL
            | OfPort::CONTROLLER
            | OfPort::LOCAL => Ok(()),
            p if p < self.cx.max_port => Ok(()),
            _ => Err(OfError::BacBadOutPort),
        }
    }

    fn src(&self, s: &Subfield) -> Result<(), OfError> {
        s.check_src(Some(&self.m)).map_err(subfield_error)
    }
    fn dst(&self, s: &Subfield) -> Result<(), OfError> {
        s.check_dst(Some(&self.m)).map_err(subfield_error)
    }

    fn one(&mut self, a: &mut Action) -> Result<(), OfError> {
        match a {
            Action::Output { port, .. } | Action::OutputTrunc { port, .. } => self.port(*port),
            Action::Enqueue { port, .. } => {
                let ok = *port < self.cx.max_port || [OfPort::IN_PORT, OfPort::LOCAL].contains(port);
                if ok { Ok(()) } else { Err(OfError::BacBadOutPort) }
            }
            Action::OutputReg { src, .. } => self.src(src),
            Action::Bundle(b) => {
                b.members.iter().filter(|p| **p != OfPort::NONE).try_for_each(|p| self.port(*p))?;
                b.dst.iter().try_for_each(|d| self.dst(d))
            }
            Action::Multipath(m) => self.dst(&m.dst),
            Action::CheckPktLarger { dst, .. } => self.dst(dst),
            Action::StackPush(s) => self.src(s),
            Action::StackPop(s) => self.dst(s),
            Action::RegMove { src, dst } => {
                self.src(src)?;
                not_ct(dst.field)?;
                self.dst(dst)
            }
            Action::SetField(s) => {
                not_ct(s.field)?;
                self.set_field(s)
            }
            Action::Learn(l) => self.learn(l),
            Action::Ct(c) => self.ct(c),
            // Outside of ct there is nothing to translate.
            Action::Nat(_) => Err(OfError::BacBadArgument),
            Action::Resubmit(r) => {
                if r.with_ct_orig && !self.ct_valid(false) {
                    return Err(OfError::BacMatchInconsistent);
                }
                Ok(())
            }
            Action::Clone(list) => State { cx: self.cx, m: self.m }.list(list),
            Action::WriteActions(list) => {
                if !list.iter().all(Action::is_for_action_set) {
                    return Err(OfError::BacBadType);
                }
                // What the packet is when the set is executed is not known here: actions for which
                // it has no header do nothing then, as in 1.0.
                State { cx: CheckCx { version: Version::V10, ..self.cx }, m: self.m }.list(list)
            }
            Action::GotoTable(t) => {
                let back = self.cx.table != 0xff && *t <= self.cx.table;
                if back || self.cx.n_tables != 0xff && *t >= self.cx.n_tables {
                    return Err(OfError::BicBadTableId);
                }
                Ok(())
            }
            _ => self.header(a),
        }
    }

    /// Actions that need a header, and those that add and take one.
    fn header(&mut self, a: &mut Action) -> Result<(), OfError> {
        match a {
            Action::SetVlanVid { push_vlan_if_needed, flow_has_vlan, .. }
            | Action::SetVlanPcp { push_vlan_if_needed, flow_has_vlan, .. } => {
                *flow_has_vlan = self.has_vlan();
                self.require(*flow_has_vlan || *push_vlan_if_needed)?;
                self.tag();
                Ok(())
            }
            Action::StripVlan { .. } => {
                self.require(self.has_vlan())?;
                let v = &mut self.m.key.dp.base.vlans;
                *v = [v[1], Default::default()];
                Ok(())
            }
            Action::PushVlan(tpid) => {
                let v = &mut self.m.key.dp.base.vlans;
                if v[1].tci.get() & VLAN_CFI != 0 {
                    return Err(OfError::BacBadTag);
                }
                v[1] = v[0];
                v[0].tpid = (*tpid).into();
                self.tag();
                Ok(())
            }
            Action::SetIpv4Src(_) | Action::SetIpv4Dst(_) => self.require(self.dl_type() == eth::IP),
            Action::SetIpDscp(_) | Action::SetIpEcn(_) | Action::SetIpTtl(_) | Action::DecTtl(_) => {
                self.require(self.is_ip())
            }
            Action::SetL4SrcPort(p) | Action::SetL4DstPort(p) => {
                p.ip_proto = self.m.key.dp.base.nw_proto;
                let l4 = [ipproto::TCP, ipproto::UDP, ipproto::SCTP].contains(&p.ip_proto);
                self.require(self.is_ip() && l4 && self.m.key.dp.base.nw_frag & fv_flow::key::FRAG_LATER == 0)
            }
            Action::SetMplsLabel(_) | Action::SetMplsTc(_) | Action::SetMplsTtl(_) | Action::DecMplsTtl => {
                self.require(self.is_mpls())
            }
            Action::PushMpls(t) => {
                let b = &mut self.m.key.dp.base;
                b.dl_type = (*t).into();
                b.nw_proto = 0;
                Ok(())
            }
            Action::PopMpls(t) => {
                self.require(self.is_mpls())?;
                self.m.key.dp.base.dl_type = (*t).into();
                Ok(())
            }
            Action::DecNshTtl => self.require(self.dl_type() == eth::NSH),
            Action::Encap(e) => {
                self.m.key.dp.misc.packet_type = e.packet_type;
                self.m.key.dp.base.dl_type = (e.packet_type as u16).into();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn set_field(&mut self, s: &mut SetField) -> Result<(), OfError> {
        let needs_tag = matches!(s.field, Field::VlanVid | Field::VlanPcp);
        if !s.field.are_prereqs_ok(&self.m) || needs_tag && !self.has_vlan() {
            return Err(OfError::BacMatchInconsistent);
        }
        if !s.field.is_writable() {
            return Err(OfError::BacBadSetArgument);
        }
        s.flow_has_vlan = self.has_vlan();
        if s.field == Field::VlanTci {
            self.m.key.dp.base.vlans[0].tci = (s.value.get().0 as u16).into();
        }
        Ok(())
    }

    /// The steps build the match of the new flow, which later steps depend on.
    fn learn(&self, l: &Learn) -> Result<(), OfError> {
        let mut learned = Match::default();
        for s in &l.specs {
            if let LearnSrc::Field(f) = &s.src {
                self.src(f)?;
            }
            match &s.dst {
                LearnDst::Match(d) => {
                    d.check_src(Some(&learned)).map_err(subfield_error)?;
                    match &s.src {
                        LearnSrc::Value(v) => d.write_match(&mut learned, FieldValue::from_be_bytes(v)),
                        // The value is not known, the prerequisites that it may satisfy are this match's.
                        LearnSrc::Field(f) => d.write_match(&mut learned, f.value(&self.m.key)),
                    }
                }
                LearnDst::Load(d) => d.check_dst(Some(&learned)).map_err(subfield_error)?,
                LearnDst::Output => {}
            }
        }
        l.result_dst.iter().try_for_each(|d| self.dst(d))
    }

    /// Whether connection tracking can look at the packet.
    fn ct_valid(&self, commit: bool) -> bool {
        self.is_ip() && !(commit && self.m.key.dp.base.ct_state & cs::INV != 0)
    }

    fn ct(&mut self, c: &mut Ct) -> Result<(), OfError> {
        self.require(self.ct_valid(c.commit))?;
        if let CtZone::Field(f) = &c.zone {
            self.src(f)?;
        }
        let proto = self.m.key.dp.base.nw_proto;
        match c.alg {
            21 => self.require(self.is_ip() && proto == ipproto::TCP)?,
            69 => self.require(self.is_ip() && proto == ipproto::UDP)?,
            _ => {}
        }
        for a in &c.exec {
            match a {
                Action::Nat(n) => match n.range {
                    NatRange::V4(..) => self.require(self.dl_type() == eth::IP)?,
                    NatRange::V6(..) => self.require(self.dl_type() == eth::IPV6)?,
                    NatRange::None => {}
                },
                Action::SetField(s) if is_ct(s.field) => {}
                Action::RegMove { src, dst } if is_ct(dst.field) => self.src(src)?,
                _ => return Err(OfError::BacBadArgument),
            }
        }
        Ok(())
    }
}

fn is_ct(f: Field) -> bool {
    matches!(f, Field::CtMark | Field::CtLabel)
}

/// A connection's fields change only while it is committed.
fn not_ct(f: Field) -> Result<(), OfError> {
    if is_ct(f) { Err(OfError::BacBadSetArgument) } else { Ok(()) }
}

fn subfield_error(e: SubfieldError) -> OfError {
    match e {
        SubfieldError::OutOfRange { .. } => OfError::BacBadSetLen,
        SubfieldError::ReadOnly(_) => OfError::BacBadSetArgument,
        SubfieldError::Prerequisites(_) => OfError::BacMatchInconsistent,
    }
}

impl Action {
    /// Whether `write_actions` may hold it.
    pub fn is_for_action_set(&self) -> bool {
        !self.is_instruction()
            && !matches!(
                self,
                Action::Bundle(_)
                    | Action::Clone(_)
                    | Action::Controller(_)
                    | Action::CtClear
                    | Action::Conjunction { .. }
                    | Action::Enqueue { .. }
                    | Action::Exit
                    | Action::FinTimeout { .. }
                    | Action::Learn(_)
                    | Action::Multipath(_)
                    | Action::Note(_)
                    | Action::OutputReg { .. }
                    | Action::OutputTrunc { .. }
                    | Action::PopQueue
                    | Action::Sample(_)
                    | Action::StackPop(_)
                    | Action::StackPush(_)
                    | Action::UnrollXlate { .. }
                    | Action::DebugRecirc
                    | Action::DebugSlow
                    | Action::CheckPktLarger { .. }
                    | Action::DeleteField(_)
            )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{Lookups, parse_flow};

    /// The answers are those of the reference to the same flow over OpenFlow 1.3.
    #[test]
    fn actions_fit_the_match_or_not() {
        let check = |flow: &str, want: Result<(), OfError>| {
            let mut f = parse_flow(flow, Lookups::default()).unwrap_or_else(|e| panic!("{flow}: {e}")).flow;
            let (max_port, version) = (OfPort(0xff00), Version::V13);
            let cx = CheckCx { match_: &f.match_, max_port, table: 1, n_tables: 254, version };
            assert_eq!(super::check(&mut f.actions, &cx), want, "{flow}");
            // 1.0 lets packets pass unchanged instead, except where a field does not exist.
            let cx = CheckCx { version: Version::V10, ..cx };
            assert!(want != Ok(()) || super::check(&mut f.actions, &cx).is_ok(), "{flow}");
        };
        let inconsistent = Err(OfError::BacMatchInconsistent);
        check("tcp,actions=mod_tp_src:80,dec_ttl,mod_nw_src:1.2.3.4", Ok(()));
        check("ip,actions=mod_tp_src:80", inconsistent);
        check("actions=dec_ttl", inconsistent);
        check("ipv6,actions=mod_nw_src:1.2.3.4", inconsistent);
        check("actions=mod_vlan_vid:5,strip_vlan", Ok(()));
        check("actions=strip_vlan", inconsistent);
        check("actions=set_vlan_vid:5", inconsistent);
        check("dl_vlan=3,actions=set_field:4101->vlan_vid", Ok(()));
        check("actions=set_field:4101->vlan_vid", inconsistent);
        check("actions=push_vlan:0x8100,set_field:4101->vlan_vid", Ok(()));
        check("actions=push_vlan:0x8100,push_vlan:0x8100,push_vlan:0x8100", Err(OfError::BacBadTag));
        check("ip,actions=push_mpls:0x8847,set_mpls_ttl:3,pop_mpls:0x0800,dec_ttl", Ok(()));
        check("ip,actions=push_mpls:0x8847,dec_ttl", inconsistent);
        check("actions=output:65535", Err(OfError::BacBadOutPort));
        check("actions=goto_table:1", Err(OfError::BicBadTableId));
        check("actions=goto_table:2", Ok(()));
        check("actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG0[]", inconsistent);
        check("ip,actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG0[]", Ok(()));
        check("actions=set_field:1->ct_mark", Err(OfError::BacBadSetArgument));
        check("ip,actions=ct(commit,exec(set_field:1->ct_mark))", Ok(()));
        check("ip,actions=ct(commit,exec(dec_ttl))", Err(OfError::BacBadArgument));
        check("actions=ct(commit)", inconsistent);
        check("udp,actions=ct(commit,alg=ftp)", inconsistent);
        check("tcp6,actions=ct(commit,nat(src=1.2.3.4))", inconsistent);
        check("actions=write_actions(exit)", Err(OfError::BacBadType));
        check("actions=write_actions(dec_ttl,strip_vlan,output:1)", Ok(()));
        check("ip,actions=push_mpls:0x8847,write_actions(dec_ttl,pop_mpls:0x800)", Ok(()));
        check("actions=write_actions(set_field:1.2.3.4->ip_src)", inconsistent);
        check("actions=conjunction(1,1/2),note:01", Ok(()));
        check("actions=conjunction(1,1/2),output:1", Err(OfError::NxBacBadConjunction));
        check("ip,actions=learn(table=2,eth_type=0x800,NXM_OF_IP_DST[]=NXM_OF_IP_SRC[])", Ok(()));
        check("ip,actions=learn(table=2,NXM_OF_IP_DST[]=NXM_OF_IP_SRC[])", inconsistent);
    }
}
