//! Packets put together from the inside out, with lengths and checksums filled in.
//!
//! Begin with the payload, then put each header in front: `Compose::payload(b"hi").udp(1, 2).ipv4(f).eth(d, s)`.

use crate::bytes::set16;
use crate::csum::{self, add, finish, finish_udp, l4_csum_offset, pseudo_v4, pseudo_v6};
use crate::hdr::eth::{self, Mac, ethertype};
use crate::hdr::vlan::{self, Tag};
use crate::hdr::{Lse, arp, icmp, icmpv6, ipproto, ipv4, ipv6, mpls, sctp, tcp, udp};
use crate::{GsoKind, Packet};

/// A packet in the making.
pub struct Compose {
    packet: Packet,
    /// Protocol of the outermost header, if it goes into IP.
    proto: u8,
    /// Type of the outermost header, if it goes into Ethernet.
    ethertype: u16,
}

impl Compose {
    pub fn payload(bytes: &[u8]) -> Compose {
        Compose { packet: Packet::from_slice(bytes), proto: ipproto::NO_NEXT, ethertype: 0 }
    }

    /// `n` bytes that count up.
    pub fn payload_len(n: usize) -> Compose {
        let mut packet = Packet::with_capacity(n);
        for (i, byte) in packet.put_back(n).iter_mut().enumerate() {
            *byte = i as u8;
        }
        Compose { packet, proto: ipproto::NO_NEXT, ethertype: 0 }
    }

    /// A TCP header; its checksum follows with the IP header.
    pub fn tcp(self, f: &tcp::Fields) -> Compose {
        self.tcp_options(f, &[])
    }

    /// As [`Compose::tcp`]; `options` are up to 40 bytes, a multiple of four.
    pub fn tcp_options(mut self, f: &tcp::Fields, options: &[u8]) -> Compose {
        let options = &options[..(options.len() & !3).min(40)];
        let len = tcp::MIN_LEN + options.len();
        let out = self.packet.push_front(len);
        tcp::write(out, f, len);
        out[tcp::MIN_LEN..].copy_from_slice(options);
        self.proto = ipproto::TCP;
        self
    }

    pub fn udp(mut self, src: u16, dst: u16) -> Compose {
        let length = (udp::LEN + self.packet.len()).min(0xffff) as u16;
        udp::write(self.packet.push_front(udp::LEN), src, dst, length);
        self.proto = ipproto::UDP;
        self
    }

    /// An SCTP header with its checksum over the payload.
    pub fn sctp(mut self, src: u16, dst: u16, vtag: u32) -> Compose {
        sctp::write(self.packet.push_front(sctp::LEN), src, dst, vtag);
        sctp::write_csum(self.packet.data_mut());
        self.proto = ipproto::SCTP;
        self
    }

    /// The first eight bytes of an ICMP message, with the checksum over the payload.
    pub fn icmp(mut self, icmp_type: u8, code: u8, id: u16, seq: u16) -> Compose {
        icmp::write(self.packet.push_front(icmp::LEN), icmp_type, code, id, seq);
        let csum = csum::of(self.packet.data());
        set16(self.packet.data_mut(), icmp::CSUM, csum);
        self.proto = ipproto::ICMP;
        self
    }

    /// The first four bytes of an ICMPv6 message; the payload is the rest of it.
    pub fn icmpv6(mut self, icmp_type: u8, code: u8) -> Compose {
        self.packet.push_front(icmpv6::LEN).copy_from_slice(&[icmp_type, code, 0, 0]);
        self.proto = ipproto::ICMPV6;
        self
    }

    /// An IPv6 extension header: `body` is its bytes from the third on.
    pub fn extension(mut self, number: u8, body: &[u8]) -> Compose {
        let next = self.proto;
        let units = (body.len() + 2).div_ceil(8);
        let out = self.packet.push_front(units * 8);
        out.fill(0);
        out[0] = next;
        out[1] = if number == ipproto::FRAGMENT { 0 } else { units as u8 - 1 };
        out[2..2 + body.len()].copy_from_slice(body);
        self.proto = number;
        self
    }

    /// An IPv4 header around what is there; `f.proto` is filled in unless nothing set it. Completes the
    /// L4 checksum, except in later fragments.
    pub fn ipv4(self, f: &ipv4::Fields) -> Compose {
        self.ipv4_options(f, &[])
    }

    /// As [`Compose::ipv4`]; `options` are up to 40 bytes, a multiple of four.
    pub fn ipv4_options(mut self, f: &ipv4::Fields, options: &[u8]) -> Compose {
        let options = &options[..(options.len() & !3).min(40)];
        let mut f = *f;
        if self.proto != ipproto::NO_NEXT {
            f.proto = self.proto;
        }
        let l4_len = self.packet.len().min(0xffff) as u16;
        if f.frag & ipv4::FRAG_OFS_MASK == 0 {
            self.l4_checksum(f.proto, pseudo_v4(f.src, f.dst, f.proto, l4_len));
        }
        let header_len = ipv4::MIN_LEN + options.len();
        let total = (header_len + self.packet.len()).min(0xffff) as u16;
        let out = self.packet.push_front(header_len);
        ipv4::write(out, &f, total);
        out[ipv4::MIN_LEN..].copy_from_slice(options);
        out[ipv4::VER_IHL] = 0x40 | (header_len / 4) as u8;
        ipv4::write_csum(out);
        self.ethertype = ethertype::IPV4;
        self.proto = ipproto::IPIP;
        self
    }

    /// An IPv6 header around what is there; `f.next` is filled in unless nothing set it. Completes the
    /// L4 checksum when no extension header stands between.
    pub fn ipv6(mut self, f: &ipv6::Fields) -> Compose {
        let mut f = *f;
        if self.proto != ipproto::NO_NEXT {
            f.next = self.proto;
        }
        let len = self.packet.len();
        let out = self.packet.push_front(ipv6::LEN);
        ipv6::write(out, &f, len.min(0xffff) as u16);
        let chain = ipv6::Chain::walk(self.packet.data());
        if let Some(chain) = chain.filter(|c| !c.is_later_fragment()) {
            let l4_len = self.packet.len() - chain.l4_ofs;
            let sum = pseudo_v6(&f.src, &f.dst, chain.proto, l4_len as u32);
            l4_checksum(&mut self.packet.data_mut()[chain.l4_ofs..], chain.proto, sum);
        }
        self.ethertype = ethertype::IPV6;
        self.proto = ipproto::IPV6;
        self
    }

    fn l4_checksum(&mut self, proto: u8, pseudo: u32) {
        if proto != ipproto::ICMP {
            l4_checksum(self.packet.data_mut(), proto, pseudo);
        }
    }

    pub fn arp(op: u16, sha: Mac, spa: u32, tha: Mac, tpa: u32) -> Compose {
        let mut c = Compose::payload(&[]);
        arp::write(c.packet.push_front(arp::LEN), op, sha, spa, tha, tpa);
        c.ethertype = ethertype::ARP;
        c
    }

    pub fn mpls(mut self, lse: Lse) -> Compose {
        self.packet.push_front(mpls::LEN).copy_from_slice(&lse.0.to_be_bytes());
        self.ethertype = ethertype::MPLS;
        self
    }

    /// Takes the type of what is there as `t`.
    pub fn ethertype(mut self, t: u16) -> Compose {
        self.ethertype = t;
        self
    }

    pub fn vlan(mut self, tag: Tag) -> Compose {
        let inner = self.ethertype;
        let out = self.packet.push_front(vlan::LEN);
        set16(out, 0, tag.tci);
        set16(out, 2, inner);
        self.ethertype = tag.tpid;
        self
    }

    /// The Ethernet header; the packet is done.
    pub fn eth(mut self, dst: Mac, src: Mac) -> Packet {
        eth::write(self.packet.push_front(eth::LEN), dst, src, self.ethertype);
        self.packet
    }

    /// The packet as far as it is.
    pub fn build(self) -> Packet {
        self.packet
    }
}

fn l4_checksum(l4: &mut [u8], proto: u8, pseudo: u32) {
    let Some(at) = l4_csum_offset(proto).filter(|at| at + 2 <= l4.len()) else { return };
    match proto {
        ipproto::SCTP => {}
        ipproto::UDP => {
            set16(l4, at, 0);
            let csum = finish_udp(add(pseudo, l4));
            set16(l4, at, csum);
        }
        _ => {
            set16(l4, at, 0);
            let csum = finish(add(pseudo, l4));
            set16(l4, at, csum);
        }
    }
}

/// Makes `frame`, which is complete, one whose L4 checksum is due, and that is to be cut into pieces of `size`
/// bytes if `kind` says so. Says whether its headers allow it: TCP, UDP or SCTP, no fragment.
pub fn make_partial(frame: &mut Packet, kind: GsoKind, size: u16) -> bool {
    let Some(l) = crate::hdr::Layout::of(frame.data()) else { return false };
    let pseudo = matches!(l.proto, ipproto::TCP | ipproto::UDP | ipproto::SCTP) && !l.fragment;
    let field = if l.proto == ipproto::SCTP { 4 } else { 2 };
    let Some(at) = l4_csum_offset(l.proto).filter(|at| pseudo && l.l4_ofs + at + field <= l.end) else {
        return false;
    };
    if l.proto != ipproto::SCTP {
        crate::csum_pseudo::write(frame.data_mut(), &l, at);
    }
    let meta = frame.meta_mut();
    meta.csum = crate::Csum::Partial;
    meta.csum_start = l.l4_ofs as u16;
    meta.csum_offset = at as u16;
    meta.gso = crate::Gso { kind, ecn: false, size };
    true
}
