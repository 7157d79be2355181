//! Turns the difference between the flow as translation changed it and the flow as the datapath
//! has it at this point into the fewest datapath actions.
//!
//! A field whose value did not change is not written, and a written field is masked by what
//! translation read or wrote of it, so that one megaflow can serve packets that differ elsewhere.

use fv_dpif::DpAction;
use fv_dpif::action::{Masked, SetField, SlowReasons};
use fv_flow::key::{V6, VLAN_CFI, Vlan};
use fv_flow::{FlowKey, FlowMask};

const ETH_ARP: u16 = 0x0806;
const ETH_IP: u16 = 0x0800;
const ETH_IPV6: u16 = 0x86dd;
const ETH_MPLS: u16 = 0x8847;
const ETH_MPLS_MCAST: u16 = 0x8848;

pub fn is_mpls(eth_type: u16) -> bool {
    matches!(eth_type, ETH_MPLS | ETH_MPLS_MCAST)
}

/// Appends to `out` what makes a packet of `base` one of `flow`, and sets `base` to `flow`'s headers.
///
/// `mask` gains the bits on which the result depends. The result says why the slow path must
/// execute the actions, if it must: the kernel's datapath cannot write these headers, and every
/// datapath is treated alike.
pub fn commit(flow: &FlowKey, base: &mut FlowKey, mask: &mut FlowMask, out: &mut Vec<DpAction>) -> SlowReasons {
    ethernet(flow, base, mask, out);
    // Without its labels first: L3 and L4 headers can be written only then.
    let unlabel = is_mpls(base.base.dl_type.get()) && !is_mpls(flow.base.dl_type.get());
    if unlabel {
        mpls(flow, base, mask, out);
    }
    let slow = network(flow, base, mask, out);
    ports(flow, base, mask, out);
    if !unlabel {
        mpls(flow, base, mask, out);
    }
    vlan(flow, base, mask, out);
    metadata(flow, base, mask, out);
    if slow { SlowReasons::ACTION } else { SlowReasons::default() }
}

/// A written field: value and the bits translation touched; a zero mask where nothing changed.
fn changed<T: PartialEq + Default + Bits>(new: T, old: T, mask: T) -> Masked<T> {
    if new == old { Masked::default() } else { Masked { value: new.and(&mask), mask } }
}

/// Values whose bits can be taken apart.
trait Bits {
    fn and(self, mask: &Self) -> Self;
}

macro_rules! bits_of_integers {
    ($($t:ty),*) => {$(
        impl Bits for $t {
            fn and(self, mask: &Self) -> Self {
                self & mask
            }
        }
    )*};
}
bits_of_integers!(u8, u16, u32);

impl<const N: usize> Bits for [u8; N] {
    fn and(mut self, mask: &Self) -> Self {
        self.iter_mut().zip(mask).for_each(|(b, m)| *b &= m);
        self
    }
}

fn any<T: PartialEq + Default>(m: &Masked<T>) -> bool {
    m.mask != T::default()
}

fn ethernet(flow: &FlowKey, base: &mut FlowKey, mask: &FlowMask, out: &mut Vec<DpAction>) {
    match (base.misc.packet_type, flow.misc.packet_type) {
        (0, 1..) => {
            out.push(DpAction::PopEth);
            (base.dp.base.dl_src, base.dp.base.dl_dst) = ([0; 6], [0; 6]);
        }
        (1.., 0) => {
            out.push(DpAction::PushEth { src: flow.base.dl_src, dst: flow.base.dl_dst });
            (base.dp.base.dl_src, base.dp.base.dl_dst) = (flow.base.dl_src, flow.base.dl_dst);
        }
        _ => {}
    }
    base.dp.misc.packet_type = flow.misc.packet_type;
    if flow.misc.packet_type != 0 {
        return;
    }
    let (f, b, m) = (&flow.base, &mut base.dp.base, &mask.0.base);
    let src = changed(f.dl_src, b.dl_src, m.dl_src);
    let dst = changed(f.dl_dst, b.dl_dst, m.dl_dst);
    if any(&src) || any(&dst) {
        out.push(DpAction::Set(SetField::Eth { src, dst }));
        (b.dl_src, b.dl_dst) = (f.dl_src, f.dl_dst);
    }
}

/// True where the slow path must do it.
fn network(flow: &FlowKey, base: &mut FlowKey, mask: &mut FlowMask, out: &mut Vec<DpAction>) -> bool {
    // A flow that lost its L3 header (a pushed label) cannot be rewritten below it.
    if flow.base.nw_proto == 0 {
        return false;
    }
    match base.base.dl_type.get() {
        ETH_IP => {
            ipv4(flow, base, mask, out);
            icmp(flow, base, mask, out, 1)
        }
        ETH_IPV6 => {
            ipv6(flow, base, mask, out);
            let icmp = icmp(flow, base, mask, out, 58);
            neighbour(flow, base, mask, out) | icmp
        }
        // RARP's fields can be matched, but nothing writes them.
        ETH_ARP => arp(flow, base, mask, out),
        _ => false,
    }
}

fn ipv4(flow: &FlowKey, base: &mut FlowKey, mask: &mut FlowMask, out: &mut Vec<DpAction>) {
    let (f, b) = (&flow.base, &mut base.dp.base);
    let m = &mut mask.0.dp.base;
    let src = changed(f.nw_src.get(), b.nw_src.get(), m.nw_src.get());
    let dst = changed(f.nw_dst.get(), b.nw_dst.get(), m.nw_dst.get());
    let tos = changed(f.nw_tos, b.nw_tos, m.nw_tos);
    let ttl = changed(f.nw_ttl, b.nw_ttl, m.nw_ttl);
    if any(&src) || any(&dst) || any(&tos) || any(&ttl) {
        out.push(DpAction::Set(SetField::Ipv4 { src, dst, tos, ttl }));
        (b.nw_src, b.nw_dst, b.nw_tos, b.nw_ttl) = (f.nw_src, f.nw_dst, f.nw_tos, f.nw_ttl);
    }
}

fn ipv6(flow: &FlowKey, base: &mut FlowKey, mask: &mut FlowMask, out: &mut Vec<DpAction>) {
    let (f6, b6) = (&flow.v6, &mut base.dp.v6);
    let (f, b) = (&flow.base, &mut base.dp.base);
    let m6 = &mask.0.dp.v6;
    let src = changed(f6.ipv6_src, b6.ipv6_src, m6.ipv6_src);
    let dst = changed(f6.ipv6_dst, b6.ipv6_dst, m6.ipv6_dst);
    let label = changed(f6.ipv6_label.get(), b6.ipv6_label.get(), m6.ipv6_label.get());
    let m = &mut mask.0.dp.base;
    let tclass = changed(f.nw_tos, b.nw_tos, m.nw_tos);
    let hlimit = changed(f.nw_ttl, b.nw_ttl, m.nw_ttl);
    if any(&src) || any(&dst) || any(&label) || any(&tclass) || any(&hlimit) {
        out.push(DpAction::Set(SetField::Ipv6 { src, dst, label, tclass, hlimit }));
        (b6.ipv6_src, b6.ipv6_dst, b6.ipv6_label) = (f6.ipv6_src, f6.ipv6_dst, f6.ipv6_label);
        (b.nw_tos, b.nw_ttl) = (f.nw_tos, f.nw_ttl);
    }
}

fn icmp(flow: &FlowKey, base: &mut FlowKey, mask: &mut FlowMask, out: &mut Vec<DpAction>, proto: u8) -> bool {
    let (f, b) = (&flow.base, &mut base.dp.base);
    let m = &mut mask.0.dp.base;
    if b.nw_proto != proto {
        return false;
    }
    // Both are written together or not at all.
    let (ty, code) = (f.tp_src.get() as u8, f.tp_dst.get() as u8);
    if (ty, code) != (b.tp_src.get() as u8, b.tp_dst.get() as u8) {
        m.nw_proto = 0xff;
        (m.tp_src, m.tp_dst) = (0xff.into(), 0xff.into());
        let (ty, code) = (Masked { value: ty, mask: 0xff }, Masked { value: code, mask: 0xff });
        out.push(DpAction::Set(if proto == 1 { SetField::Icmp { ty, code } } else { SetField::Icmpv6 { ty, code } }));
        (b.tp_src, b.tp_dst) = (f.tp_src, f.tp_dst);
        return true;
    }
    false
}

fn neighbour(flow: &FlowKey, base: &mut FlowKey, mask: &mut FlowMask, out: &mut Vec<DpAction>) -> bool {
    let is_nd = base.base.nw_proto == 58 && base.base.tp_dst.get() == 0 && matches!(base.base.tp_src.get(), 135 | 136);
    if !is_nd {
        return false;
    }
    let (f, b): (&V6, &mut V6) = (&flow.dp.v6, &mut base.dp.v6);
    let m = &mask.0.dp.v6;
    let target = changed(f.nd_target, b.nd_target, m.nd_target);
    let sll = changed(f.arp_sha, b.arp_sha, m.arp_sha);
    let tll = changed(f.arp_tha, b.arp_tha, m.arp_tha);
    if any(&target) || any(&sll) || any(&tll) {
        out.push(DpAction::Set(SetField::Nd { target, sll, tll }));
        (b.nd_target, b.arp_sha, b.arp_tha) = (f.nd_target, f.arp_sha, f.arp_tha);
        let m = &mut mask.0.dp.base;
        m.nw_proto = 0xff;
        m.tp_src = u16::MAX.into();
        m.tp_dst = u16::MAX.into();
        return true;
    }
    false
}

fn arp(flow: &FlowKey, base: &mut FlowKey, mask: &FlowMask, out: &mut Vec<DpAction>) -> bool {
    let (f, b, m) = (&flow.dp, &mut base.dp, &mask.0.dp);
    let sip = changed(f.base.nw_src.get(), b.base.nw_src.get(), m.base.nw_src.get());
    let tip = changed(f.base.nw_dst.get(), b.base.nw_dst.get(), m.base.nw_dst.get());
    let op = changed(u16::from(f.base.nw_proto), u16::from(b.base.nw_proto), u16::from(m.base.nw_proto));
    let op = if op.mask != 0 { Masked { mask: 0xffff, ..op } } else { op };
    let sha = changed(f.v6.arp_sha, b.v6.arp_sha, m.v6.arp_sha);
    let tha = changed(f.v6.arp_tha, b.v6.arp_tha, m.v6.arp_tha);
    if any(&sip) || any(&tip) || any(&op) || any(&sha) || any(&tha) {
        out.push(DpAction::Set(SetField::Arp { sip, tip, op, sha, tha }));
        (b.base.nw_src, b.base.nw_dst, b.base.nw_proto) = (f.base.nw_src, f.base.nw_dst, f.base.nw_proto);
        (b.v6.arp_sha, b.v6.arp_tha) = (f.v6.arp_sha, f.v6.arp_tha);
        return true;
    }
    false
}

fn ports(flow: &FlowKey, base: &mut FlowKey, mask: &mut FlowMask, out: &mut Vec<DpAction>) {
    let (f, b) = (&flow.base, &mut base.dp.base);
    let m = &mut mask.0.dp.base;
    // A flow without L3 header has no ports.
    if f.nw_proto == 0 || !matches!(b.dl_type.get(), ETH_IP | ETH_IPV6) {
        return;
    }
    let src = changed(f.tp_src.get(), b.tp_src.get(), m.tp_src.get());
    let dst = changed(f.tp_dst.get(), b.tp_dst.get(), m.tp_dst.get());
    if !any(&src) && !any(&dst) {
        return;
    }
    let set = match b.nw_proto {
        6 => SetField::Tcp { src, dst },
        17 => SetField::Udp { src, dst },
        132 => SetField::Sctp { src, dst },
        _ => return,
    };
    m.nw_proto = 0xff;
    out.push(DpAction::Set(set));
    (b.tp_src, b.tp_dst) = (f.tp_src, f.tp_dst);
}

/// Labels of the key's stack, up to the bottom-of-stack bit; without one, those that are not zero.
pub fn mpls_depth(k: &FlowKey) -> usize {
    if !is_mpls(k.base.dl_type.get()) {
        return 0;
    }
    let lse = &k.misc.mpls_lse;
    let bottom = lse.iter().position(|l| l.get() & 0x100 != 0);
    bottom.map_or_else(|| lse.iter().filter(|l| l.get() != 0).count(), |n| n + 1)
}

fn mpls(flow: &FlowKey, base: &mut FlowKey, mask: &mut FlowMask, out: &mut Vec<DpAction>) {
    let (nf, mut nb) = (mpls_depth(flow), mpls_depth(base));
    if nf == 0 && nb == 0 {
        return;
    }
    let f = flow.misc.mpls_lse;
    // Labels shared from the bottom up stay.
    let common = |b: &FlowKey, nb: usize| (1..=nf.min(nb)).take_while(|i| f[nf - i] == b.misc.mpls_lse[nb - i]).count();
    let mut same = common(base, nb);
    while nb > same {
        if nb == nf && same + 1 == nf {
            // Only the outermost differs: rewrite it.
            let lse = changed(f[0].get(), base.misc.mpls_lse[0].get(), mask.0.misc.mpls_lse[0].get());
            out.push(DpAction::Set(SetField::Mpls { lse }));
            base.dp.misc.mpls_lse[0] = f[0];
            return;
        }
        let eth_type = if nb == 1 { flow.base.dl_type.get() } else { base.base.dl_type.get() };
        let eth_type = if nb == 1 && is_mpls(eth_type) && nf > 0 { ETH_IP } else { eth_type };
        out.push(DpAction::PopMpls { eth_type });
        let l = &mut base.dp.misc.mpls_lse;
        l.rotate_left(1);
        l[2] = 0.into();
        nb -= 1;
        if nb == 0 {
            base.dp.base.dl_type = eth_type.into();
            base.dp.misc.mpls_lse = Default::default();
        }
        same = common(base, nb);
    }
    for i in (0..nf - same).rev() {
        out.push(DpAction::PushMpls { lse: f[i].get(), eth_type: flow.base.dl_type.get() });
    }
    if nf > same {
        base.dp.base.dl_type = flow.base.dl_type;
        base.dp.misc.mpls_lse = f;
        // Below a pushed label nothing is known any more.
        base.dp.base.nw_proto = flow.base.nw_proto;
    }
    let _ = mask;
}

fn n_vlans(v: &[Vlan; 2]) -> usize {
    v.iter().take_while(|v| v.tci.get() & VLAN_CFI != 0).count()
}

fn vlan(flow: &FlowKey, base: &mut FlowKey, mask: &mut FlowMask, out: &mut Vec<DpAction>) {
    let (f, b) = (flow.base.vlans, base.base.vlans);
    let (nf, nb) = (n_vlans(&f), n_vlans(&b));
    let same = (1..=nf.min(nb)).take_while(|i| f[nf - i] == b[nb - i]).count();
    for _ in same..nb {
        out.push(DpAction::PopVlan);
    }
    // What was popped must be what this flow's packets have; its type only where another tag takes its place.
    for m in mask.0.dp.base.vlans[..nb - same].iter_mut() {
        let tpid = if nf > same { u16::MAX.into() } else { m.tpid };
        *m = Vlan { tpid, tci: u16::MAX.into() };
    }
    for v in f[..nf - same].iter().rev() {
        out.push(DpAction::PushVlan { tpid: v.tpid.get(), tci: v.tci.get() });
    }
    base.dp.base.vlans = f;
}

fn metadata(flow: &FlowKey, base: &mut FlowKey, mask: &FlowMask, out: &mut Vec<DpAction>) {
    if flow.misc.skb_priority != base.misc.skb_priority {
        out.push(DpAction::Set(SetField::SkbPriority(flow.misc.skb_priority)));
        base.dp.misc.skb_priority = flow.misc.skb_priority;
    }
    let mark = changed(flow.base.pkt_mark, base.base.pkt_mark, mask.0.base.pkt_mark);
    if any(&mark) {
        out.push(DpAction::Set(SetField::SkbMark(mark)));
        base.dp.base.pkt_mark = flow.base.pkt_mark;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact() -> FlowMask {
        let mut m = FlowMask::default();
        m.0.words_mut().fill(u64::MAX);
        m
    }

    fn udp() -> FlowKey {
        let mut k = FlowKey::default();
        k.dp.base.dl_type = ETH_IP.into();
        k.dp.base.nw_proto = 17;
        k.dp.base.nw_src = 0x0a00_0001.into();
        k.dp.base.tp_dst = 53.into();
        k
    }

    fn actions(from: &FlowKey, to: &FlowKey) -> Vec<DpAction> {
        let (mut base, mut mask, mut out) = (*from, exact(), Vec::new());
        commit(to, &mut base, &mut mask, &mut out);
        assert_eq!(&base, to, "base follows the flow");
        let n = out.len();
        commit(to, &mut base, &mut mask, &mut out);
        assert_eq!(out.len(), n, "a second commit has nothing to do");
        out
    }

    #[test]
    fn nothing_changed_nothing_done() {
        assert_eq!(actions(&udp(), &udp()), []);
    }

    #[test]
    fn only_changed_fields_are_written() {
        let mut to = udp();
        to.dp.base.nw_ttl = 63;
        let [DpAction::Set(SetField::Ipv4 { src, ttl, .. })] = &actions(&udp(), &to)[..] else { panic!() };
        assert_eq!((src.mask, ttl.value, ttl.mask), (0, 63, 255));
        let mut to = udp();
        to.dp.base.tp_dst = 54.into();
        let got = actions(&udp(), &to);
        assert!(matches!(&got[..], [DpAction::Set(SetField::Udp { dst: Masked { value: 54, mask: 0xffff }, .. })]));
    }

    #[test]
    fn tags_are_popped_and_pushed_around_the_common_ones() {
        let v = |vid: u16| Vlan { tpid: 0x8100.into(), tci: (VLAN_CFI | vid).into() };
        let push = |vid: u16| DpAction::PushVlan { tpid: 0x8100, tci: VLAN_CFI | vid };
        let none = Vlan::default();
        for (from, to, want) in [
            ([none, none], [v(1), none], vec![push(1)]),
            ([v(1), none], [none, none], vec![DpAction::PopVlan]),
            ([v(1), none], [v(2), none], vec![DpAction::PopVlan, push(2)]),
            ([v(1), none], [v(2), v(1)], vec![push(2)]),
            ([v(2), v(1)], [v(1), none], vec![DpAction::PopVlan]),
            ([none, none], [v(2), v(1)], vec![push(1), push(2)]),
        ] {
            let (mut a, mut b) = (udp(), udp());
            a.dp.base.vlans = from;
            b.dp.base.vlans = to;
            assert_eq!(actions(&a, &b), want);
        }
    }

    #[test]
    fn labels() {
        let (mut a, mut b) = (udp(), udp());
        b.dp.base.dl_type = ETH_MPLS.into();
        b.dp.misc.mpls_lse[0] = 0x1940.into();
        assert_eq!(actions(&a, &b), [DpAction::PushMpls { lse: 0x1940, eth_type: ETH_MPLS }]);
        assert_eq!(actions(&b, &a), [DpAction::PopMpls { eth_type: ETH_IP }]);
        a = b;
        a.dp.misc.mpls_lse[0] = 0x2940.into();
        let got = actions(&a, &b);
        assert!(matches!(&got[..], [DpAction::Set(SetField::Mpls { lse: Masked { value: 0x1940, .. } })]), "{got:?}");
    }
}
