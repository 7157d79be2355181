//! `virtio_net_hdr` (virtio 1.2, section 5.1.6), the header that packet sockets and taps exchange
//! with the kernel in front of each frame, and what it says in terms of [`Meta`].
//!
//! Ten bytes in host order: flags, GSO type, header length, segment size, checksum start, checksum
//! offset.

use fv_packet::{Csum, Gso, GsoKind, Meta, Packet};

pub const VNET_LEN: usize = 10;

const F_NEEDS_CSUM: u8 = 1;
const F_DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_UDP: u8 = 3;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// The kernel puts this much of a large frame into the linear part of its buffer when the headers'
/// length is not known, the rest into pages. With 0 it would look for one contiguous piece.
const LINEAR_GUESS: usize = 128;
/// Frames up to here are cheapest in one piece.
const ONE_PIECE: usize = 2048;

/// Why a header cannot be used: the frame's segments cannot be told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadVnet;

/// Notes in `meta` what the kernel says about a frame of `data`.
pub fn decode(hdr: &[u8; VNET_LEN], data: &[u8], meta: &mut Meta) -> Result<(), BadVnet> {
    let word = |at: usize| u16::from_ne_bytes([hdr[at], hdr[at + 1]]);
    if hdr[0] & F_NEEDS_CSUM != 0 {
        let (start, offset) = (word(6), word(8));
        if usize::from(start) + usize::from(offset) + 2 > data.len() {
            return Err(BadVnet);
        }
        meta.csum = Csum::Partial;
        meta.csum_start = start;
        meta.csum_offset = offset;
    } else if hdr[0] & F_DATA_VALID != 0 {
        meta.csum = Csum::Good;
    }
    let kind = match hdr[1] & !GSO_ECN {
        GSO_NONE => return Ok(()),
        GSO_TCPV4 => GsoKind::Tcp4,
        GSO_TCPV6 => GsoKind::Tcp6,
        GSO_UDP if is_ipv6(data) => GsoKind::Udp6,
        GSO_UDP => GsoKind::Udp4,
        GSO_UDP_L4 => GsoKind::UdpL4,
        _ => return Err(BadVnet),
    };
    let size = word(4);
    if size == 0 {
        return Err(BadVnet);
    }
    meta.gso = Gso { kind, ecn: hdr[1] & GSO_ECN != 0, size };
    Ok(())
}

/// The header that makes the kernel finish what is left to do on `packet`.
pub fn encode(packet: &Packet) -> [u8; VNET_LEN] {
    let (meta, data) = (packet.meta(), packet.data());
    let mut hdr = [0; VNET_LEN];
    let mut put = |at: usize, v: u16| hdr[at..at + 2].copy_from_slice(&v.to_ne_bytes());
    let mut headers = if data.len() > ONE_PIECE { LINEAR_GUESS } else { 0 };
    if meta.csum == Csum::Partial {
        put(6, meta.csum_start);
        put(8, meta.csum_offset);
    }
    if meta.gso.is_some() {
        put(4, meta.gso.size);
        headers = headers_len(meta, data);
    }
    put(2, headers.min(data.len()) as u16);
    if meta.csum == Csum::Partial {
        hdr[0] = F_NEEDS_CSUM;
    }
    hdr[1] = match meta.gso.kind {
        GsoKind::None => GSO_NONE,
        GsoKind::Tcp4 => GSO_TCPV4,
        GsoKind::Tcp6 => GSO_TCPV6,
        GsoKind::Udp4 | GsoKind::Udp6 => GSO_UDP,
        GsoKind::UdpL4 => GSO_UDP_L4,
    };
    if meta.gso.is_some() && meta.gso.ecn {
        hdr[1] |= GSO_ECN;
    }
    hdr
}

/// Bytes up to the payload, where the checksum start tells where the L4 header is.
fn headers_len(meta: &Meta, data: &[u8]) -> usize {
    const TCP_DATA_OFFSET_AT: usize = 12;
    const UDP_LEN: usize = 8;
    if meta.csum != Csum::Partial {
        return LINEAR_GUESS;
    }
    let l4 = usize::from(meta.csum_start);
    l4 + match meta.gso.kind {
        GsoKind::Tcp4 | GsoKind::Tcp6 => {
            data.get(l4 + TCP_DATA_OFFSET_AT).map_or(20, |b| usize::from(b >> 4).max(5) * 4)
        }
        _ => UDP_LEN,
    }
}

/// Whether the frame's network layer is IPv6, behind up to two VLAN tags.
fn is_ipv6(data: &[u8]) -> bool {
    let mut at = 12;
    for _ in 0..3 {
        match data.get(at..at + 2) {
            Some([0x81, 0x00] | [0x88, 0xa8]) => at += 4,
            Some([0x86, 0xdd]) => return true,
            _ => return false,
        }
    }
    false
}

/// Puts a VLAN tag that the kernel took out of the frame back behind the addresses. Checksum start
/// and offsets move along.
pub fn put_vlan_back(packet: &mut Packet, tpid: u16, tci: u16) {
    const ADDRESSES: usize = 12;
    if packet.len() < ADDRESSES {
        return;
    }
    packet.push_front(4);
    let data = packet.data_mut();
    data.copy_within(4..4 + ADDRESSES, 0);
    data[ADDRESSES..ADDRESSES + 2].copy_from_slice(&tpid.to_be_bytes());
    data[ADDRESSES + 2..ADDRESSES + 4].copy_from_slice(&tci.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(len: usize) -> Packet {
        let mut p = Packet::from_slice(&vec![0; len]);
        let d = p.data_mut();
        d[..12].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        d[12..14].copy_from_slice(&[0x86, 0xdd]);
        p
    }

    #[test]
    fn says_the_same_in_both_directions() {
        let cases = [
            (Csum::Unknown, Gso::NONE, 60, [0, 0], 0),
            (Csum::Partial, Gso::NONE, 64, [1, 0], 0),
            (Csum::Partial, Gso::NONE, 9000, [1, 0], 128),
            (Csum::Partial, Gso { kind: GsoKind::Tcp6, ecn: true, size: 1400 }, 9000, [1, 0x84], 54 + 20),
            (Csum::Partial, Gso { kind: GsoKind::UdpL4, ecn: false, size: 1400 }, 9000, [1, 5], 54 + 8),
            (Csum::Partial, Gso { kind: GsoKind::Udp6, ecn: false, size: 1400 }, 9000, [1, 3], 54 + 8),
        ];
        for (csum, gso, len, first, headers) in cases {
            let mut p = frame(len);
            p.meta_mut().csum = csum;
            p.meta_mut().gso = gso;
            if csum == Csum::Partial {
                p.meta_mut().csum_start = 54;
                p.meta_mut().csum_offset = 6;
            }
            let hdr = encode(&p);
            assert_eq!((&hdr[..2], u16::from_ne_bytes([hdr[2], hdr[3]])), (&first[..], headers));
            let mut back = Meta::default();
            decode(&hdr, p.data(), &mut back).unwrap();
            assert_eq!(&back, p.meta());
        }
    }

    #[test]
    fn refuses_what_makes_no_sense() {
        let check = |hdr: [u8; VNET_LEN], ok: bool| {
            assert_eq!(decode(&hdr, &[0; 60], &mut Meta::default()).is_ok(), ok, "{hdr:?}");
        };
        let le = |v: u16| v.to_ne_bytes();
        let csum = |start: u16, offset: u16| {
            let (s, o) = (le(start), le(offset));
            [1, 0, 0, 0, 0, 0, s[0], s[1], o[0], o[1]]
        };
        check(csum(34, 16), true);
        check(csum(50, 8), true);
        check(csum(51, 8), false);
        check(csum(u16::MAX, u16::MAX), false);
        check([0, 1, 0, 0, 0, 0, 0, 0, 0, 0], false);
        check([0, 9, 0, 0, 1, 1, 0, 0, 0, 0], false);
        check([2, 0, 0, 0, 0, 0, 0, 0, 0, 0], true);
    }

    #[test]
    fn vlan_goes_back_in_its_place() {
        let mut p = frame(60);
        p.meta_mut().csum = Csum::Partial;
        p.meta_mut().csum_start = 34;
        put_vlan_back(&mut p, 0x88a8, 0x6007);
        assert_eq!(p.data()[..18], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x88, 0xa8, 0x60, 7, 0x86, 0xdd]);
        assert_eq!((p.len(), p.meta().csum_start), (64, 38));
        let mut short = Packet::from_slice(&[1; 11]);
        put_vlan_back(&mut short, 0x8100, 1);
        assert_eq!(short.data(), &[1; 11]);
    }
}
