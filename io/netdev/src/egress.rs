//! What a device cannot do to a packet on transmission, done in software before.

use fv_packet::csum::{CsumError, finish_checksum, finish_ip_checksum};
use fv_packet::hdr::{Layout, sctp};
use fv_packet::{BadGso, Csum, GsoKind, L4Csum, Packet, segment};

use crate::device::TxOffloads;

/// Why a packet cannot be sent: its metadata promises what its bytes do not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EgressError {
    Gso(BadGso),
    Csum(CsumError),
}

impl From<BadGso> for EgressError {
    fn from(e: BadGso) -> EgressError {
        EgressError::Gso(e)
    }
}

impl From<CsumError> for EgressError {
    fn from(e: CsumError) -> EgressError {
        EgressError::Csum(e)
    }
}

/// Passes `packet` to `out` as a device with `offloads` takes it: segmented and with checksums computed as far
/// as the device does not. On an error the packet is dropped, and nothing was passed.
/// Cost when nothing is due: three comparisons.
pub fn egress_fixup(packet: Packet, offloads: &TxOffloads, out: &mut impl FnMut(Packet)) -> Result<(), EgressError> {
    let meta = packet.meta();
    if meta.gso.is_some() && (!takes_gso(offloads, meta.gso.kind, meta.gso.ecn) || is_nested(&packet)) {
        let l4_csum = if offloads.l4_csum { L4Csum::Leave } else { L4Csum::Finish };
        for segment in segment(packet, l4_csum)? {
            out(segment);
        }
        return Ok(());
    }
    let mut packet = packet;
    finish_due(&mut packet, offloads)?;
    out(packet);
    Ok(())
}

/// The packet to be cut is inside another, of which no offload tells a device.
fn is_nested(packet: &Packet) -> bool {
    let m = packet.meta();
    let outermost = || Layout::of(packet.data());
    m.csum == Csum::Partial && outermost().is_some_and(|l| l.l4_ofs != usize::from(m.csum_start))
}

fn takes_gso(offloads: &TxOffloads, kind: GsoKind, ecn: bool) -> bool {
    match kind {
        GsoKind::None => true,
        GsoKind::Tcp4 => offloads.tso4 && (!ecn || offloads.tso_ecn),
        GsoKind::Tcp6 => offloads.tso6 && (!ecn || offloads.tso_ecn),
        GsoKind::Udp4 | GsoKind::Udp6 => offloads.ufo,
        GsoKind::UdpL4 => offloads.uso,
    }
}

fn finish_due(packet: &mut Packet, offloads: &TxOffloads) -> Result<(), CsumError> {
    let meta = packet.meta();
    if meta.ip_csum == Csum::Partial && !offloads.ip_csum {
        finish_ip_checksum(packet)?;
    }
    let meta = packet.meta();
    if meta.csum != Csum::Partial || meta.gso.is_some() {
        return Ok(());
    }
    let is_sctp = usize::from(meta.csum_offset) == sctp::CSUM;
    if is_sctp && !offloads.sctp_csum || !is_sctp && !offloads.l4_csum {
        // The IPv4 checksum may stay due for the device.
        let ip_csum = meta.ip_csum;
        packet.meta_mut().ip_csum = Csum::Unknown;
        let done = finish_checksum(packet);
        packet.meta_mut().ip_csum = ip_csum;
        done?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fv_packet::compose::make_partial;
    use fv_packet::hdr::{ipv4, tcp};
    use fv_packet::{Compose, validate};

    fn frame(payload: usize) -> Packet {
        let f = ipv4::Fields { src: 0x0a000001, dst: 0x0a000002, ..Default::default() };
        Compose::payload_len(payload).tcp(&tcp::Fields::default()).ipv4(&f).eth([2; 6], [3; 6])
    }

    fn run(packet: Packet, offloads: TxOffloads) -> Result<Vec<Packet>, EgressError> {
        let mut out = Vec::new();
        egress_fixup(packet, &offloads, &mut |p| out.push(p)).map(|()| out)
    }

    #[test]
    fn only_what_the_device_cannot() {
        let none = TxOffloads::default();
        let csum = TxOffloads { l4_csum: true, ..none };
        let tso = TxOffloads { tso4: true, ..csum };
        let cases = [
            (GsoKind::None, none, 1, Csum::Good),
            (GsoKind::None, csum, 1, Csum::Partial),
            (GsoKind::Tcp4, none, 3, Csum::Good),
            (GsoKind::Tcp4, csum, 3, Csum::Partial),
            (GsoKind::Tcp4, tso, 1, Csum::Partial),
            (GsoKind::Tcp4, TxOffloads::ALL, 1, Csum::Partial),
        ];
        for (kind, offloads, count, state) in cases {
            let mut p = frame(3000);
            assert!(make_partial(&mut p, kind, 1000));
            let out = run(p, offloads).unwrap();
            assert_eq!((out.len(), out[0].meta().csum), (count, state), "{kind:?} {offloads:?}");
            for mut p in out.into_iter().filter(|p| p.meta().csum == Csum::Good) {
                p.meta_mut().csum = Csum::Unknown;
                p.meta_mut().l3_ofs = 14;
                assert!(validate(&mut p));
            }
        }
    }

    #[test]
    fn ecn_needs_a_device_that_knows_it() {
        let mut p = frame(3000);
        make_partial(&mut p, GsoKind::Tcp4, 1000);
        p.meta_mut().gso.ecn = true;
        let tso = TxOffloads { l4_csum: true, tso4: true, ..Default::default() };
        assert_eq!(run(p.duplicate(), tso).unwrap().len(), 3);
        assert_eq!(run(p, TxOffloads { tso_ecn: true, ..tso }).unwrap().len(), 1);
    }

    #[test]
    fn due_ip_checksum() {
        let mut p = frame(10);
        let whole = p.duplicate();
        p.data_mut()[24..26].fill(0x55);
        p.meta_mut().ip_csum = Csum::Partial;
        let left = run(p.duplicate(), TxOffloads { ip_csum: true, ..Default::default() }).unwrap();
        assert_eq!((left[0].data(), left[0].meta().ip_csum), (p.data(), Csum::Partial));
        let done = run(p, TxOffloads::default()).unwrap();
        assert_eq!((done[0].data(), done[0].meta().ip_csum), (whole.data(), Csum::Good));
    }

    #[test]
    fn lies_are_errors() {
        let mut p = frame(3000);
        make_partial(&mut p, GsoKind::Tcp6, 1000);
        assert_eq!(run(p, TxOffloads::default()).err(), Some(EgressError::Gso(BadGso::Headers)));
        let mut p = Packet::from_slice(&[0; 20]);
        p.meta_mut().csum = Csum::Partial;
        p.meta_mut().csum_start = 19;
        assert_eq!(run(p, TxOffloads::default()).err(), Some(EgressError::Csum(CsumError::Beyond)));
    }
}
