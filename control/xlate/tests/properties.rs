//! What holds for every rule set and packet: a flow does for all that it covers what translation of
//! each alone would do, a second look changes nothing, and nothing panics.

use std::sync::Arc;

use fv_core::{DpPort, Nanos, OfPort, RecircId};
use fv_flow::key::{DP_WORDS, VLAN_CFI};
use fv_flow::{Field, FieldValue, FlowKey, FlowMask};
use fv_ofproto::view::{BridgeId, BridgeView, BundleView, View, VlanMode};
use fv_ofproto::{Host, Ofproto, PortSpec, Settings};
use fv_openflow::OfError;
use fv_openflow::msg::packet::{PacketOut, Resume};
use fv_openflow::msg::port::{PortStats, QueueStats};
use fv_openflow::text::{Lookups, parse_flow};
use fv_packet::Packet;
use fv_xlate::{Effect, Input, Output, Start, translate};

const RULE_SETS: u64 = 150;
const KEYS: usize = 25;
const VARIANTS: usize = 12;

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn value(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    fn below(&mut self, n: usize) -> usize {
        (self.value() % n as u64) as usize
    }
    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// Nothing outside of the bridge.
struct Nobody;

impl Host for Nobody {
    fn pull_stats(&mut self, _: BridgeId) {}
    fn port_stats(&mut self, _: BridgeId, _: OfPort) -> Option<PortStats> {
        None
    }
    fn queue_stats(&mut self, _: BridgeId, _: OfPort) -> Vec<QueueStats> {
        Vec::new()
    }
    fn publish(&mut self, _: Arc<BridgeView>) {}
    fn hold_packet_out(&mut self, _: BridgeId, _: &PacketOut, _: Arc<BridgeView>) -> Result<(), OfError> {
        Ok(())
    }
    fn end_packet_outs(&mut self, _: bool) {}
    fn packet_out(&mut self, _: BridgeId, _: &PacketOut) -> Result<(), OfError> {
        Ok(())
    }
    fn resume(&mut self, _: BridgeId, _: &Resume) -> Result<(), OfError> {
        Ok(())
    }
    fn set_admin_state(&mut self, _: BridgeId, _: OfPort, _: bool) -> Option<bool> {
        None
    }
}

const NOW: Nanos = Nanos::from_secs(1000);
const MATCHES: [&str; 30] = [
    "",
    "in_port=1",
    "in_port=2",
    "dl_vlan=10",
    "dl_vlan=20,dl_vlan_pcp=3",
    "vlan_tci=0x1000/0x1000",
    "vlan_tci=0",
    "dl_src=50:54:00:00:00:01",
    "dl_dst=50:54:00:00:00:02/ff:ff:ff:ff:ff:fe",
    "ip",
    "ip,nw_src=10.0.0.0/8",
    "ip,nw_dst=10.0.1.0/24",
    "ip,nw_src=10.0.0.1,nw_dst=10.0.1.1",
    "tcp,tp_dst=80",
    "tcp,tp_src=1000/0xfff8",
    "udp,tp_dst=53",
    "tcp,tcp_flags=+syn-ack",
    "ip,nw_ttl=64",
    "ip,nw_tos=32",
    "ip,nw_ecn=1",
    "ip,ip_frag=later",
    "icmp,icmp_type=8",
    "arp",
    "arp,arp_op=1,arp_spa=10.0.0.0/24",
    "ipv6,ipv6_src=fd00::/64",
    "tcp6,tp_dst=443",
    "icmp6,icmp_type=135,icmp_code=0,nd_target=fd00::1",
    "mpls,mpls_label=100",
    "reg0=0x1/0x3",
    "metadata=0x1",
];
const ACTIONS: [(&str, &str); 36] = [
    ("", "output:2"),
    ("", "NORMAL"),
    ("", "FLOOD"),
    ("", "IN_PORT"),
    ("", "resubmit(,1)"),
    ("", "resubmit(,2)"),
    ("", "resubmit(3,1)"),
    ("", "mod_dl_src:50:54:00:00:00:03"),
    ("", "mod_dl_dst:50:54:00:00:00:01"),
    ("", "push_vlan:0x8100,set_field:4126->vlan_vid"),
    ("vlan", "strip_vlan"),
    ("vlan", "mod_vlan_vid:10"),
    ("ip", "dec_ttl"),
    ("ip", "mod_nw_tos:32"),
    ("ip", "set_field:1->nw_ecn"),
    ("ip", "mod_nw_dst:10.0.0.9"),
    ("ip", "move:NXM_OF_IP_SRC[]->NXM_OF_IP_DST[]"),
    ("tcp", "mod_tp_dst:81"),
    ("udp", "mod_tp_src:54"),
    ("icmp", "set_field:1->icmp_code"),
    ("arp", "set_field:2->arp_op"),
    ("arp", "set_field:10.0.0.7->arp_tpa"),
    ("", "load:0x3->NXM_NX_REG0[]"),
    ("", "move:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15]"),
    ("", "move:NXM_OF_VLAN_TCI[0..11]->NXM_NX_REG1[0..11]"),
    ("", "output:NXM_NX_REG0[0..15]"),
    ("", "push:NXM_OF_ETH_SRC[],pop:NXM_OF_ETH_DST[]"),
    ("", "clone(mod_dl_src:50:54:00:00:00:09,output:3)"),
    ("", "clone(output(port=3,max_len=64),resubmit(,2))"),
    ("", "CONTROLLER"),
    ("", "set_queue:3"),
    ("", "exit"),
    ("", "multipath(symmetric_l4,50,hrw,3,0,NXM_NX_REG0[0..1]),output:NXM_NX_REG0[]"),
    ("mpls", "dec_mpls_ttl,output:2"),
    ("mpls", "pop_mpls:0x0800,resubmit(,1)"),
    ("ip", "push_mpls:0x8847,output:3"),
];

/// A bridge of four ports with some rules.
fn bridge(r: &mut Rng) -> (Ofproto, Arc<BridgeView>) {
    let settings = Settings { fail_secure: true, ..Settings::default() };
    let mut o = Ofproto::new(BridgeId(1), "br0", settings, NOW);
    for n in 1..=4 {
        let dp_port = Some(DpPort(n));
        o.set_port(PortSpec { ofp: OfPort(n), dp_port, name: format!("p{n}"), ..PortSpec::default() }, NOW);
    }
    let mode = |n: u32| match n {
        2 => (VlanMode::Access, 10),
        3 => (VlanMode::NativeUntagged, 20),
        _ => (VlanMode::Trunk, 0),
    };
    let bundle = |n: u32| {
        let (vlan_mode, tag) = mode(n);
        BundleView { name: format!("p{n}"), vlan_mode, tag, members: vec![OfPort(n)], ..BundleView::default() }
    };
    o.set_bundles((1..=4).map(bundle).collect());
    let fits = |m: &str, a: &str| match a {
        "" => true,
        "vlan" => m.contains("dl_vlan") || m.contains("0x1000"),
        "ip" => ["ip,", "tcp,", "udp,", "icmp,"].iter().any(|p| format!("{m},").starts_with(p)),
        a => format!("{m},").starts_with(&format!("{a},")),
    };
    for n in 0..4 + r.below(20) {
        let m = r.of(&MATCHES);
        let list: Vec<&str> =
            (0..1 + r.below(4)).map(|_| r.of(&ACTIONS)).filter(|(k, _)| fits(m, k)).map(|a| a.1).collect();
        let comma = if m.is_empty() { "" } else { "," };
        let actions = if list.is_empty() { "drop".into() } else { list.join(",") };
        let text = format!("table={},priority={},{m}{comma}actions={actions}", r.of(&[0, 0, 0, 1, 1, 2]), 10 + n);
        let flow = parse_flow(&text, Lookups::default()).unwrap_or_else(|e| panic!("{text}: {e}")).flow;
        o.flow_mod(NOW, &flow).unwrap_or_else(|e| panic!("{text}: {e:?}"));
    }
    o.commit(&mut Nobody);
    let v = o.view();
    (o, v)
}

fn set(k: &mut FlowKey, f: Field, v: u128) {
    f.set(k, &FieldValue::new(v));
}

/// The key of some packet from port 1 to 4.
fn key(r: &mut Rng) -> FlowKey {
    let mut k = FlowKey::default();
    k.dp.base.in_port = 1 + r.below(4) as u32;
    k.dp.base.dl_src = [0x50, 0x54, 0, 0, 0, r.of(&[1, 2, 3])];
    k.dp.base.dl_dst = [r.of(&[0x50, 0x50, 0x51]), 0x54, 0, 0, 0, r.of(&[1, 2, 3])];
    if r.below(3) == 0 {
        k.dp.base.vlans[0].tpid = 0x8100.into();
        k.dp.base.vlans[0].tci = (VLAN_CFI | r.of(&[0, 10, 20, 30]) | r.of(&[0, 3]) << 13).into();
    }
    k.dp.base.dl_type = r.of(&[0x0800, 0x0800, 0x0800, 0x86dd, 0x0806, 0x8847, 0x1234]).into();
    match k.dp.base.dl_type.get() {
        0x0800 => {
            set(&mut k, Field::Ipv4Src, u128::from(r.of(&[0x0a00_0001u32, 0x0a00_0101, 0xc0a8_0001])));
            set(&mut k, Field::Ipv4Dst, u128::from(r.of(&[0x0a00_0002u32, 0x0a00_0101, 0xe000_0005])));
        }
        0x86dd => {
            k.dp.v6.ipv6_src = (0xfd00 << 112 | r.of(&[1u128, 1 << 64])).to_be_bytes();
            k.dp.v6.ipv6_dst = (0xfd00 << 112 | 2u128).to_be_bytes();
        }
        0x0806 => {
            k.dp.base.nw_proto = r.of(&[0, 1, 2]);
            set(&mut k, Field::ArpSpa, u128::from(r.of(&[0x0a00_0001u32, 0x0a01_0001])));
            return k;
        }
        0x8847 => {
            let bottom = r.below(3);
            for (i, l) in k.dp.misc.mpls_lse[..=bottom].iter_mut().enumerate() {
                *l = (r.of(&[100u32, 101, 1000]) << 12 | u32::from(i == bottom) << 8 | r.of(&[1, 64])).into();
            }
            return k;
        }
        _ => return k,
    }
    k.dp.base.nw_ttl = r.of(&[0, 1, 64]);
    k.dp.base.nw_tos = r.of(&[0, 1, 32, 184]);
    k.dp.base.nw_frag = r.of(&[0, 0, 0, 1, 3]);
    let v6 = k.dp.base.dl_type.get() == 0x86dd;
    k.dp.base.nw_proto = r.of(&[6, 17, if v6 { 58 } else { 1 }, 0, 47]);
    if k.dp.base.nw_frag == 3 {
        return k;
    }
    match k.dp.base.nw_proto {
        6 | 17 => {
            k.dp.base.tp_src = r.of(&[53, 1000, 1015]).into();
            k.dp.base.tp_dst = r.of(&[53, 80, 443]).into();
            k.dp.base.tcp_flags = if k.dp.base.nw_proto == 6 { r.of(&[2, 0x12, 0x10]).into() } else { 0.into() };
        }
        1 => k.dp.base.tp_src = r.of(&[0, 8]).into(),
        58 => k.dp.base.tp_src = r.of(&[128, 135]).into(),
        _ => {}
    }
    k
}

/// Fields that a packet can have otherwise without becoming one of another kind.
const FREE: [Field; 22] = [
    Field::EthSrc,
    Field::EthDst,
    Field::VlanVid,
    Field::VlanPcp,
    Field::Ipv4Src,
    Field::Ipv4Dst,
    Field::Ipv6Src,
    Field::Ipv6Dst,
    Field::Ipv6Label,
    Field::IpDscp,
    Field::IpEcn,
    Field::IpTtl,
    Field::TcpSrc,
    Field::TcpDst,
    Field::TcpFlags,
    Field::UdpSrc,
    Field::UdpDst,
    Field::ArpSpa,
    Field::ArpTpa,
    Field::ArpSha,
    Field::MplsLabel,
    Field::MplsTtl,
];

/// Another packet that a flow of `key` and `mask` covers.
fn variant(r: &mut Rng, key: &FlowKey, mask: &FlowMask) -> FlowKey {
    let mut k = *key;
    for f in FREE {
        let tag = matches!(f, Field::VlanVid | Field::VlanPcp);
        if (tag && key.base.vlans[0].tci.get() & VLAN_CFI == 0) || !f.prerequisites_met(key) || r.below(3) != 0 {
            continue;
        }
        let noise = u128::from(r.value()) << 64 | u128::from(r.value());
        f.set_masked(&mut k, &FieldValue::new(noise), &FieldValue::new(u128::MAX));
    }
    let words = k.dp.words_mut();
    for (w, (old, m)) in words.iter_mut().zip(key.dp.words().iter().zip(mask.0.dp.words())) {
        *w = *w & !m | old & m;
    }
    k
}

fn run(view: &View, key: FlowKey, packet: Option<&Packet>) -> Output {
    // Equal states get equal numbers.
    let states = std::cell::RefCell::new(Vec::new());
    let freeze = |f| {
        let mut s = states.borrow_mut();
        let at = s.iter().position(|x| *x == f).unwrap_or_else(|| {
            s.push(f);
            s.len() - 1
        });
        RecircId(at as u32 + 1)
    };
    let start = Start::Tables;
    let bridge = BridgeId(1);
    translate(&Input { view, bridge, key, packet, start, freeze: &freeze, now: NOW, trace: false, names: false })
}

fn learn(out: &Output) {
    for e in &out.effects {
        if let Effect::MacLearn { table, vlan, mac, bundle, how, .. } = e {
            table.learn(NOW, *vlan, *mac, *bundle, *how);
        }
    }
}

/// Absent tags are always matched, as the slow path installs flows.
fn installed(mut m: FlowMask) -> FlowMask {
    let tci = &mut m.0.dp.base.vlans[0].tci;
    if tci.get() == 0 {
        *tci = VLAN_CFI.into();
    }
    m
}

#[test]
fn a_flow_does_for_all_that_it_covers_what_each_alone_gets() {
    for seed in 0..RULE_SETS {
        let r = &mut Rng(seed);
        let (_o, view) = bridge(r);
        let view = View::of([view], 1);
        let packet = Packet::from_slice(&[0; 64]);
        (0..10).for_each(|_| learn(&run(&view, key(r), Some(&packet))));
        for _ in 0..KEYS {
            let k = key(r);
            let out = run(&view, k, None);
            if out.error.is_some() {
                continue;
            }
            let mask = installed(out.mask);
            for _ in 0..VARIANTS {
                let v = variant(r, &k, &mask);
                let alone = run(&view, v, None);
                let text = |k: &FlowKey| fv_flow::text::format_flow(k, None);
                assert_eq!(
                    out.program,
                    alone.program,
                    "seed {seed}\n{}\n{}\n{:?}",
                    text(&k),
                    text(&v),
                    out.mask.0.dp.base
                );
                assert_eq!(out.slow, alone.slow);
            }
        }
    }
}

#[test]
fn a_second_look_changes_nothing() {
    for seed in 0..RULE_SETS {
        let r = &mut Rng(seed ^ 0xabcd);
        let (_o, view) = bridge(r);
        let view = View::of([view], 1);
        let packet = Packet::from_slice(&[0; 64]);
        for _ in 0..KEYS {
            let k = key(r);
            learn(&run(&view, k, Some(&packet)));
            let first = run(&view, k, None);
            let second = run(&view, k, None);
            assert_eq!(first.program, second.program);
            assert_eq!(first.mask, second.mask);
            // Nor does a packet that teaches nothing new.
            let again = run(&view, k, Some(&packet));
            assert_eq!(first.program, again.program, "seed {seed}: {}", fv_flow::text::format_flow(&k, None));
        }
    }
}

#[test]
fn arbitrary_keys_are_translated() {
    let mut made = 0;
    for seed in 0..RULE_SETS {
        let r = &mut Rng(seed ^ 0x1234_5678);
        let (_o, view) = bridge(r);
        let view = View::of([view], 1);
        for n in 0..KEYS {
            let mut k = FlowKey::default();
            for w in &mut k.dp.words_mut()[..DP_WORDS] {
                *w = r.value() & r.value();
            }
            k.dp.base.in_port = 1 + r.below(5) as u32;
            if n % 2 == 0 {
                k.dp.misc.packet_type = 0;
                k.dp.base.dl_type = r.of(&[0x0800, 0x86dd, 0x0806, 0x8847, 0x8100]).into();
            }
            let out = run(&view, k, None);
            made += usize::from(!out.program.actions.is_empty());
        }
    }
    assert!(made > 100, "only {made} do something");
}
