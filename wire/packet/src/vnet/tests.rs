use super::*;
use crate::hdr::{ipv4, ipv6, tcp::Fields as TcpFields};
use crate::{Compose, NO_OFS, validate};
use proptest::prelude::*;

fn tcp4(payload: usize) -> Packet {
    let f = ipv4::Fields { src: 0x0a00_0001, dst: 0x0a00_0002, ..Default::default() };
    Compose::payload_len(payload).tcp(&TcpFields::default()).ipv4(&f).eth([2; 6], [3; 6])
}

fn udp6(payload: usize) -> Packet {
    Compose::payload_len(payload).udp(1, 2).ipv6(&ipv6::Fields::default()).eth([2; 6], [3; 6])
}

fn hdr(flags: u8, gso_type: u8, gso_size: u16, csum_start: u16, csum_offset: u16) -> VnetHdr {
    VnetHdr { flags, gso_type, hdr_len: 0, gso_size, csum_start, csum_offset, num_buffers: 0 }
}

#[test]
fn lies_are_refused() {
    use gso_type::*;
    let cases = [
        (hdr(0, NONE, 0, 0, 0), tcp4(5000), Ok(Csum::Unknown)),
        (hdr(DATA_VALID, NONE, 99, 0, 0), tcp4(5000), Ok(Csum::Good)),
        (hdr(NEEDS_CSUM, NONE, 0, 34, 16), tcp4(0), Ok(Csum::Partial)),
        (hdr(NEEDS_CSUM, NONE, 0, 34, 19), tcp4(0), Err(BadOffload::CsumRange)),
        (hdr(NEEDS_CSUM, NONE, 0, 34, 18), tcp4(0), Ok(Csum::Partial)),
        (hdr(NEEDS_CSUM, NONE, 0, 44, 8), tcp4(0), Err(BadOffload::CsumRange)),
        (hdr(NEEDS_CSUM, NONE, 0, 13, 2), tcp4(0), Err(BadOffload::CsumRange)),
        (hdr(NEEDS_CSUM, NONE, 0, 0xffff, 0xffff), tcp4(0), Err(BadOffload::CsumRange)),
        (hdr(NEEDS_CSUM, TCPV4, 1448, 34, 16), tcp4(5000), Ok(Csum::Partial)),
        (hdr(0, TCPV4, 1448, 0, 0), tcp4(5000), Ok(Csum::Partial)),
        (hdr(NEEDS_CSUM, TCPV4 | ECN, 1448, 34, 16), tcp4(5000), Ok(Csum::Partial)),
        (hdr(NEEDS_CSUM, TCPV4, 0, 34, 16), tcp4(5000), Err(BadOffload::GsoSize)),
        (hdr(NEEDS_CSUM, TCPV6, 1448, 34, 16), tcp4(5000), Err(BadOffload::GsoHeaders)),
        (hdr(NEEDS_CSUM, UDP_L4, 1448, 34, 16), tcp4(5000), Err(BadOffload::GsoHeaders)),
        (hdr(NEEDS_CSUM, TCPV4, 1448, 35, 16), tcp4(5000), Err(BadOffload::GsoCsum)),
        (hdr(NEEDS_CSUM, TCPV4, 1448, 34, 6), tcp4(5000), Err(BadOffload::GsoCsum)),
        (hdr(NEEDS_CSUM, 2, 1448, 34, 16), tcp4(5000), Err(BadOffload::GsoType)),
        (hdr(NEEDS_CSUM, 0x7f, 1448, 34, 16), tcp4(5000), Err(BadOffload::GsoType)),
        (hdr(NEEDS_CSUM, UDP | ECN, 1448, 54, 6), udp6(5000), Err(BadOffload::GsoType)),
        (hdr(NEEDS_CSUM, UDP, 1448, 54, 6), udp6(5000), Ok(Csum::Partial)),
        (hdr(NEEDS_CSUM, UDP_L4, 1448, 54, 6), udp6(5000), Ok(Csum::Partial)),
        (hdr(NEEDS_CSUM, TCPV4, 1448, 14, 16), Packet::from_slice(&[0; 60]), Err(BadOffload::GsoHeaders)),
        (hdr(NEEDS_CSUM, TCPV4, 1448, 14, 16), Packet::from_slice(&[]), Err(BadOffload::CsumRange)),
    ];
    for (i, (h, mut p, want)) in cases.into_iter().enumerate() {
        let got = from_vnet_hdr(&h, &mut p).map(|()| p.meta().csum);
        assert_eq!(got, want, "case {i}");
    }
}

#[test]
fn a_frame_longer_than_its_ip_packet_is_no_gso() {
    let mut p = tcp4(5000);
    p.put_back(1);
    assert_eq!(from_vnet_hdr(&hdr(1, 1, 1448, 34, 16), &mut p), Err(BadOffload::GsoHeaders));
}

#[test]
fn small_gso_is_none_and_csum_is_made_due() {
    let mut p = tcp4(1000);
    from_vnet_hdr(&hdr(0, gso_type::TCPV4, 1000, 0, 0), &mut p).unwrap();
    assert_eq!((p.meta().gso, p.meta().csum, p.meta().csum_start), (Gso::NONE, Csum::Partial, 34));
    crate::finish_checksum(&mut p).unwrap();
    assert_eq!(p.data(), tcp4(1000).data());
}

#[test]
fn round_trips() {
    for (t, start, offset, mut p) in [
        (gso_type::TCPV4, 34, 16, tcp4(5000)),
        (gso_type::TCPV4 | gso_type::ECN, 34, 16, tcp4(5000)),
        (gso_type::UDP, 54, 6, udp6(3000)),
        (gso_type::UDP_L4, 54, 6, udp6(3000)),
    ] {
        let mut h = hdr(NEEDS_CSUM, t, 1400, start, offset);
        from_vnet_hdr(&h, &mut p).unwrap();
        h.hdr_len = start + if offset == 16 { 20 } else { 8 };
        assert_eq!(to_vnet_hdr(&p), h);
        assert_eq!(VnetHdr::from_ne_bytes(&h.to_ne_bytes()), h);
        h.num_buffers = 3;
        assert_eq!(VnetHdr::from_le_bytes(&h.to_le_bytes()), h);
    }
}

#[test]
fn a_tag_moves_the_checksum() {
    let mut p = tcp4(100);
    from_vnet_hdr(&hdr(NEEDS_CSUM, 0, 0, 34, 16), &mut p).unwrap();
    crate::csum_pseudo::write(p.data_mut(), &Layout::of(tcp4(100).data()).unwrap(), 16);
    crate::vlan::push(&mut p, crate::hdr::vlan::Tag { tpid: 0x8100, tci: 5 });
    assert_eq!(to_vnet_hdr(&p).csum_start, 38);
    crate::finish_checksum(&mut p).unwrap();
    p.meta_mut().csum = Csum::Unknown;
    assert_eq!(p.meta().l3_ofs, NO_OFS);
    p.meta_mut().l3_ofs = 18;
    assert!(validate(&mut p));
}

proptest! {
    /// No header and no bytes make anything panic, and what is accepted can be completed.
    #[test]
    fn hostile(
        raw in any::<[u8; LEN]>(), easy in any::<bool>(), bytes in proptest::collection::vec(any::<u8>(), 0..100),
        cut in 0usize..120, flip in (0usize..80, any::<u8>()), v6 in any::<bool>(),
    ) {
        let mut p = if easy { if v6 { udp6(60) } else { tcp4(60) } } else { Packet::from_slice(&bytes) };
        p.truncate(cut);
        if let Some(byte) = p.data_mut().get_mut(flip.0) {
            *byte ^= flip.1;
        }
        let mut h = VnetHdr::from_ne_bytes(&raw);
        if easy {
            h.flags &= 3;
            h.gso_type &= 0x87;
            h.csum_start = if v6 { 54 } else { 34 };
            h.csum_offset &= 0x16;
        }
        if from_vnet_hdr(&h, &mut p).is_ok() {
            let out = to_vnet_hdr(&p);
            prop_assert!(usize::from(out.hdr_len) <= p.len());
            if p.meta().gso.is_some() {
                for s in crate::segment(p, crate::L4Csum::Finish).into_iter().flatten() {
                    prop_assert!(s.len() <= 120);
                }
            } else if p.meta().csum == Csum::Partial {
                prop_assert!(crate::finish_checksum(&mut p).is_ok());
            }
        }
    }
}
