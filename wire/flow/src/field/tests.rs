use super::*;
use crate::key::{FlowKey, FlowMask, Match, VLAN_CFI, cs, eth, ipproto};
use proptest::prelude::*;

#[test]
fn rows_are_consistent() {
    let mut seen = std::collections::HashSet::new();
    for (n, f) in Field::all().enumerate() {
        let i = f.info();
        assert_eq!(f.row(), n);
        assert!(usize::from(i.place.ofs) + usize::from(i.place.size) <= size_of::<FlowKey>(), "{f:?}");
        assert!(i.n_bits.div_ceil(8) <= i.n_bytes, "{f:?}");
        assert!(i.names.iter().all(|n| seen.insert(*n)), "{f:?} shares a name");
        for h in i.headers {
            assert_eq!(Field::by_header(h.id()), Some(f), "{f:?}");
            assert_eq!(Field::by_header(h.id() | 0x100 | u64::from(i.n_bytes)), Some(f));
            assert_eq!(Field::by_header_name(h.name), Some(f));
        }
        assert_eq!(Field::by_name(i.name()), Some(f));
    }
    assert_eq!(Field::by_name("no_such_field"), None);
    assert_eq!(Field::all().count(), N_FIELDS);
}

#[test]
fn the_code_depends_on_the_version() {
    let check = |f: Field, version, name: &str| assert_eq!(f.header(version).map(|h| h.name), Some(name));
    check(Field::EthSrc, 1, "NXM_OF_ETH_SRC");
    check(Field::EthSrc, 3, "OXM_OF_ETH_SRC");
    check(Field::TcpFlags, 3, "NXM_NX_TCP_FLAGS");
    check(Field::TcpFlags, 4, "ONFOXM_ET_TCP_FLAGS");
    check(Field::TcpFlags, 6, "OXM_OF_TCP_FLAGS");
    check(Field::TunId, 3, "NXM_NX_TUN_ID");
    check(Field::TunId, 4, "OXM_OF_TUNNEL_ID");
    check(Field::InPortOxm, 1, "OXM_OF_IN_PORT");
    assert!(Field::TunTtl.header(6).is_none());
}

#[test]
fn vlan_fields_share_a_tag() {
    let mut k = FlowKey::default();
    Field::DlVlan.set(&mut k, &FieldValue::new(5));
    assert_eq!(k.base.vlans[0].tci, 0x1005);
    assert_eq!(k.base.vlans[0].tpid, 0x8100);
    Field::VlanPcp.set(&mut k, &FieldValue::new(3));
    assert_eq!(k.base.vlans[0].tci, 0x7005);
    assert_eq!(Field::VlanVid.value(&k), FieldValue::new(0x1005));
    assert_eq!(Field::DlVlan.value(&k), FieldValue::new(5));
    Field::DlVlan.set(&mut k, &FieldValue::new(0xffff));
    assert_eq!((k.base.vlans[0].tci.get(), k.base.vlans[0].tpid.get()), (0, 0));
}

#[test]
fn matches_imply_what_the_field_needs() {
    let check = |f: Field, v: u64, tci: u16, mask: u16| {
        let mut m = Match::default();
        m.set_field(f, &v.into());
        assert_eq!((m.key.base.vlans[0].tci.get(), m.mask.0.base.vlans[0].tci.get()), (tci, mask), "{f:?}");
    };
    check(Field::DlVlan, 5, 0x1005, 0x1fff);
    check(Field::DlVlan, 0xffff, 0, 0xffff);
    check(Field::DlVlanPcp, 3, 0x7000, 0xf000);
    check(Field::VlanVid, 3, 3, 0x1fff);
    let mut m = Match::default();
    m.set_field(Field::Icmpv4Type, &FieldValue::new(8));
    assert_eq!((m.key.base.tp_src.get(), m.mask.0.base.tp_src.get()), (8, 0xffff));
    m.set_field(Field::InPort, &FieldValue::new(0xfffe));
    assert_eq!((m.key.base.in_port, m.mask.0.base.in_port), (0xffff_fffe, u32::MAX));
    assert_eq!(Field::InPort.of_match(&m), (FieldValue::new(0xfffe), FieldValue::new(0xffff)));
}

#[test]
fn wide_registers_are_registers() {
    let mut k = FlowKey::default();
    Field::XXReg1.set(&mut k, &FieldValue::new(0x1111_1111_2222_2222_3333_3333_4444_4444));
    assert_eq!(k.pipe.regs[4..8], [0x1111_1111, 0x2222_2222, 0x3333_3333, 0x4444_4444]);
    assert_eq!(Field::XReg2.value(&k), FieldValue::new(0x1111_1111_2222_2222));
    assert_eq!(Field::Reg7.value(&k), FieldValue::new(0x4444_4444));
    assert_eq!(Field::reg(7), Some(Field::Reg7));
    assert_eq!(Field::reg(16), None);
    assert_eq!(Field::Reg7.reg_index(), Some(7));
}

fn ip(proto: u8, ethertype: u16) -> FlowKey {
    let mut k = FlowKey::default();
    k.base.dl_type = ethertype.into();
    k.base.nw_proto = proto;
    k
}

#[test]
fn prerequisites() {
    let check = |f: Field, k: &FlowKey, want: bool| assert_eq!(f.prerequisites_met(k), want, "{f:?}");
    check(Field::TcpSrc, &ip(ipproto::TCP, eth::IP), true);
    check(Field::TcpSrc, &ip(ipproto::TCP, eth::IPV6), true);
    check(Field::TcpSrc, &ip(ipproto::UDP, eth::IP), false);
    check(Field::TcpSrc, &ip(ipproto::TCP, eth::ARP), false);
    check(Field::ArpOp, &ip(1, eth::RARP), true);
    check(Field::Ipv6Label, &ip(1, eth::IP), false);
    check(Field::VlanPcp, &FlowKey::default(), false);
    check(Field::MplsLabel, &ip(0, eth::MPLS), true);
    let mut later = ip(ipproto::UDP, eth::IP);
    later.base.nw_frag = 3;
    check(Field::UdpDst, &later, false);
    let mut nd = ip(ipproto::ICMPV6, eth::IPV6);
    nd.base.tp_src = 135.into();
    check(Field::NdTarget, &nd, true);
    check(Field::NdSll, &nd, true);
    check(Field::NdTll, &nd, false);
    let mut seen = FlowMask::default();
    assert!(Field::NdSll.prerequisites_met_wc(&nd, &mut seen));
    assert_eq!((seen.0.base.tp_src.get(), seen.0.base.tp_dst.get(), seen.0.base.nw_proto), (0xffff, 0xffff, 0xff));
    let mut ct = Match::default();
    ct.set_field_masked(Field::CtState, &u64::from(cs::TRK).into(), &u64::from(cs::TRK).into());
    assert!(!Field::CtNwSrc.are_prereqs_ok(&ct));
    ct.set_field_masked(Field::CtState, &u64::from(cs::TRK).into(), &u64::from(cs::TRK | cs::INV).into());
    assert!(Field::CtNwSrc.are_prereqs_ok(&ct));
    assert_eq!(VLAN_CFI, 0x1000);
}

#[test]
fn prefixes() {
    let mut m = FlowMask::default();
    m.set_prefix(Field::Ipv4Dst, 20);
    assert_eq!(m.0.base.nw_dst, 0xffff_f000);
    m.set_prefix(Field::Ipv6Src, 9);
    assert_eq!(m.0.v6.ipv6_src[..3], [0xff, 0x80, 0]);
    m.set_prefix(Field::TcpDst, 99);
    assert_eq!(m.0.base.tp_dst, 0xffff);
    m.clear_field(Field::TcpDst);
    assert_eq!(m.0.base.tp_dst, 0);
}

fn any_field() -> impl Strategy<Value = Field> {
    (0..N_FIELDS).prop_map(|n| Field::all().nth(n).unwrap())
}

proptest! {
    #[test]
    fn what_is_set_is_read(f in any_field(), v: u128) {
        let v = FieldValue::new(v & f.mask_bits().0);
        let v = if matches!(f, Field::InPort) { FieldValue::new(v.0 & 0x7fff) } else { v };
        let mut k = FlowKey::default();
        f.set(&mut k, &v);
        prop_assert_eq!(f.value(&k), v);
    }

    #[test]
    fn a_match_holds_no_unmatched_bit(f in any_field(), v: u128, m: u128) {
        let mut x = Match::default();
        x.set_field_masked(f, &FieldValue::new(v), &FieldValue::new(m));
        prop_assert_eq!(x.mask.apply(&x.key), x.key);
        x.clear_field(f);
        prop_assert!(Field::VlanPcp == f || Field::DlVlanPcp == f || x == Match::default());
    }

    #[test]
    fn subfields_write_only_their_bits(f in any_field(), ofs in 0u32..128, n in 1u32..129, v: u128) {
        let f = if f.name().contains("vlan") || f == Field::InPort { Field::Reg0 } else { f };
        let ofs = ofs % f.n_bits();
        let s = Subfield::new(f, ofs, 1 + (n - 1) % (f.n_bits() - ofs));
        prop_assert!(s.check().is_ok());
        let n = s.n_bits;
        let mut k = FlowKey::default();
        s.write(&mut k, v);
        prop_assume!(f.info().valid & s.mask().0 == s.mask().0);
        prop_assert_eq!(s.read(&k), v & FieldValue::ones(n).0);
        prop_assert_eq!(f.value(&k).0 & !s.mask().0, 0);
    }
}
