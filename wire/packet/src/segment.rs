//! Segmentation in software: what a network card does to a packet that is longer than the wire's.
//!
//! The headers are read from the bytes and checked once; then every segment is a copy of them, patched,
//! and a piece of the payload. Segments are made one at a time, as they are asked for. A packet inside a tunnel is
//! cut too, when the place of its due checksum says that it is meant; each segment gets the tunnel's headers.

use crate::bytes::{be16, be32, set16, set32};
use crate::csum::{self, add, finish, finish_udp, fold, pseudo_v4, pseudo_v6};
use crate::hdr::nest::gre_csum_at;
use crate::hdr::{Chain, Layout, Nest, Tcp, Udp, ipproto, ipv4, ipv6, tcp, udp};
use crate::{Csum, Gso, GsoKind, Packet};

/// Segments that one packet yields at most: 65535 bytes of payload in pieces of one.
pub const MAX_SEGMENTS: usize = 65535;

/// Why a packet cannot be segmented.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadGso {
    /// Segments of no bytes, or fragments of less than eight.
    Size,
    /// Not whole headers of the protocol that the metadata names.
    Headers,
    /// The lengths in the headers are not the packet's.
    Length,
    /// A fragment already.
    Fragment,
    /// More than [`MAX_SEGMENTS`].
    TooMany,
}

/// What to do about the segments' L4 checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum L4Csum {
    /// Compute them.
    Finish,
    /// Leave them to the device: `Csum::Partial`.
    Leave,
}

/// Cuts `packet` as its metadata says. One without GSO comes out as it is.
pub fn segment(packet: Packet, l4_csum: L4Csum) -> Result<Segments, BadGso> {
    let gso = packet.meta().gso;
    if !gso.is_some() {
        return Ok(Segments { whole: Some(packet), plan: None });
    }
    let mut packet = packet;
    let plan = Plan::new(&mut packet, gso, l4_csum)?;
    Ok(Segments { whole: Some(packet), plan: Some(plan) })
}

/// The segments of one packet, in order.
pub struct Segments {
    whole: Option<Packet>,
    plan: Option<Plan>,
}

impl Segments {
    /// How many there will be.
    pub fn remaining(&self) -> usize {
        match (&self.plan, &self.whole) {
            (Some(plan), Some(_)) => plan.count - plan.next,
            (None, Some(_)) => 1,
            _ => 0,
        }
    }
}

impl Iterator for Segments {
    type Item = Packet;

    fn next(&mut self) -> Option<Packet> {
        let Some(plan) = &mut self.plan else { return self.whole.take() };
        let segment = plan.make(self.whole.as_ref()?);
        if plan.next == plan.count {
            self.whole = None;
        }
        Some(segment)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining(), Some(self.remaining()))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    Tcp,
    /// Datagrams.
    Uso,
    /// IP fragments of one datagram.
    Ufo,
}

struct Plan {
    cut: Cut,
    nest: Nest,
    /// The packet that is cut: the nest's innermost.
    l: Layout,
    /// Headers that each segment repeats end here, and the payload begins.
    payload_ofs: usize,
    size: usize,
    count: usize,
    next: usize,
    l4_csum: L4Csum,
    /// Identification of IPv6 fragments, and where the number of the last header stands.
    v6_frag: (u32, usize),
}

impl Plan {
    fn new(packet: &mut Packet, gso: Gso, l4_csum: L4Csum) -> Result<Plan, BadGso> {
        let data = packet.data();
        let outermost = Layout::of(data).ok_or(BadGso::Headers)?;
        let meta = packet.meta();
        let nest = match meta.csum {
            Csum::Partial => Nest::find(data, outermost, meta.csum_start.into()).ok_or(BadGso::Headers)?,
            _ => Nest::plain(outermost),
        };
        let l = *nest.inner();
        if l.fragment {
            return Err(BadGso::Fragment);
        }
        if l.end != data.len() {
            return Err(BadGso::Length);
        }
        let inside = !nest.outer().is_empty();
        // An outer checksum covers the inner one, which therefore cannot be left to the device.
        let l4_csum = if inside { L4Csum::Finish } else { l4_csum };
        let (cut, proto, v6) = match gso.kind {
            GsoKind::Tcp4 => (Cut::Tcp, ipproto::TCP, Some(false)),
            GsoKind::Tcp6 => (Cut::Tcp, ipproto::TCP, Some(true)),
            GsoKind::UdpL4 => (Cut::Uso, ipproto::UDP, None),
            GsoKind::Udp4 => (Cut::Ufo, ipproto::UDP, Some(false)),
            GsoKind::Udp6 => (Cut::Ufo, ipproto::UDP, Some(true)),
            GsoKind::None => return Err(BadGso::Headers),
        };
        if l.proto != proto || v6.is_some_and(|v6| v6 != l.is_v6) || cut == Cut::Ufo && inside {
            return Err(BadGso::Headers);
        }
        let l4 = &data[l.l4_ofs..];
        let payload_ofs = match cut {
            Cut::Tcp => l.l4_ofs + Tcp::parse(l4).ok_or(BadGso::Headers)?.header_len(),
            Cut::Uso | Cut::Ufo => {
                if Udp::parse(l4).ok_or(BadGso::Headers)?.length() != l4.len() {
                    return Err(BadGso::Length);
                }
                if cut == Cut::Uso { l.l4_ofs + udp::LEN } else { l.l4_ofs }
            }
        };
        let size = usize::from(if cut == Cut::Ufo { gso.size & !7 } else { gso.size });
        if size == 0 {
            return Err(BadGso::Size);
        }
        let count = (data.len() - payload_ofs).div_ceil(size).max(1);
        if count > MAX_SEGMENTS {
            return Err(BadGso::TooMany);
        }
        let mut plan = Plan { cut, nest, l, payload_ofs, size, count, next: 0, l4_csum, v6_frag: (0, 0) };
        if cut == Cut::Ufo {
            plan.prepare_fragments(packet)?;
        }
        Ok(plan)
    }

    /// Completes the datagram's own checksum, and for IPv6 finds where the fragment header goes. Its
    /// identification is a hash of the datagram: equal ones only meet in equal datagrams.
    fn prepare_fragments(&mut self, packet: &mut Packet) -> Result<(), BadGso> {
        let sum = csum::pseudo(packet.data(), &self.l);
        let l4 = &mut packet.data_mut()[self.l.l4_ofs..];
        set16(l4, udp::CSUM, 0);
        let csum = finish_udp(add(sum, l4));
        set16(l4, udp::CSUM, csum);
        if self.l.is_v6 {
            let l3 = &packet.data()[self.l.l3_ofs..];
            let chain = Chain::walk(l3).ok_or(BadGso::Headers)?;
            if chain.frag.is_some() {
                return Err(BadGso::Fragment);
            }
            self.v6_frag = (csum::crc32c(l3), self.l.l3_ofs + chain.proto_at);
        }
        Ok(())
    }

    fn make(&mut self, whole: &Packet) -> Packet {
        let i = self.next;
        self.next += 1;
        let at = self.payload_ofs + i * self.size;
        let piece = &whole.data()[at..whole.len().min(at + self.size)];
        let headers = &whole.data()[..self.payload_ofs];
        let frag_len = if self.cut == Cut::Ufo && self.l.is_v6 { ipv6::FRAG_LEN } else { 0 };

        let mut seg = Packet::with_capacity(headers.len() + frag_len + piece.len());
        let room = seg.spare_mut();
        room[..headers.len()].copy_from_slice(headers);
        let body = headers.len() + frag_len;
        room[body..body + piece.len()].copy_from_slice(piece);
        seg.set_len(body + piece.len());
        seg.copy_meta(whole);
        seg.meta_mut().gso = Gso::NONE;
        seg.meta_mut().csum = Csum::Good;

        let last = self.next == self.count;
        if self.l.is_v6 {
            self.patch_ipv6(seg.data_mut(), i, last);
        } else {
            self.patch_ipv4(seg.data_mut(), i, last);
            seg.meta_mut().ip_csum = Csum::Good;
        }
        match self.cut {
            Cut::Ufo => {}
            Cut::Tcp => {
                patch_tcp(&mut seg.data_mut()[self.l.l4_ofs..], i, i * self.size, last);
                self.l4_checksum(&mut seg, tcp::CSUM);
            }
            Cut::Uso => {
                let l4 = &mut seg.data_mut()[self.l.l4_ofs..];
                let len = l4.len() as u16;
                set16(l4, udp::LENGTH, len);
                self.l4_checksum(&mut seg, udp::CSUM);
            }
        }
        for outer in self.nest.outer().iter().rev() {
            patch_outer(seg.data_mut(), outer, i);
        }
        seg
    }

    fn patch_ipv4(&self, data: &mut [u8], i: usize, last: bool) {
        let l3 = &mut data[self.l.l3_ofs..];
        let total = l3.len() as u16;
        set16(l3, ipv4::TOTAL_LEN, total);
        if self.cut == Cut::Ufo {
            let more = if last { 0 } else { ipv4::MF };
            set16(l3, ipv4::FRAG, (i * self.size / 8) as u16 | more);
        } else {
            let id = be16(l3, ipv4::ID).wrapping_add(i as u16);
            set16(l3, ipv4::ID, id);
        }
        ipv4::write_csum(&mut l3[..self.l.l4_ofs - self.l.l3_ofs]);
    }

    fn patch_ipv6(&self, data: &mut [u8], i: usize, last: bool) {
        let payload = (data.len() - self.l.l3_ofs - ipv6::LEN) as u16;
        set16(data, self.l.l3_ofs + ipv6::PAYLOAD_LEN, payload);
        if self.cut == Cut::Ufo {
            let (id, proto_at) = self.v6_frag;
            data[proto_at] = ipproto::FRAGMENT;
            let h = &mut data[self.payload_ofs..self.payload_ofs + ipv6::FRAG_LEN];
            h[0] = self.l.proto;
            h[1] = 0;
            set16(h, 2, (i * self.size) as u16 | u16::from(!last));
            set32(h, 4, id);
        }
    }

    fn l4_checksum(&self, seg: &mut Packet, field: usize) {
        let (l4_ofs, l3_ofs) = (self.l.l4_ofs, self.l.l3_ofs);
        let (data, meta) = seg.parts_mut();
        let len = data.len() - l4_ofs;
        let l3 = &data[l3_ofs..];
        let sum = if self.l.is_v6 {
            let address = |at| crate::bytes::array(l3, at);
            pseudo_v6(&address(ipv6::SRC), &address(ipv6::DST), self.l.proto, len as u32)
        } else {
            pseudo_v4(be32(l3, ipv4::SRC), be32(l3, ipv4::DST), self.l.proto, len as u16)
        };
        let value = if self.l4_csum == L4Csum::Leave {
            meta.csum = Csum::Partial;
            meta.csum_start = l4_ofs as u16;
            meta.csum_offset = field as u16;
            fold(sum)
        } else {
            set16(data, l4_ofs + field, 0);
            let sum = add(sum, &data[l4_ofs..]);
            if field == udp::CSUM { finish_udp(sum) } else { finish(sum) }
        };
        set16(data, l4_ofs + field, value);
    }
}

/// Lengths, identification and checksums of a packet around the one that was cut.
fn patch_outer(data: &mut [u8], outer: &Layout, i: usize) {
    let l = Layout { end: data.len(), ..*outer };
    let l3 = &mut data[l.l3_ofs..];
    let total = l3.len();
    if l.is_v6 {
        set16(l3, ipv6::PAYLOAD_LEN, (total - ipv6::LEN) as u16);
    } else {
        set16(l3, ipv4::TOTAL_LEN, total as u16);
        let id = be16(l3, ipv4::ID).wrapping_add(i as u16);
        set16(l3, ipv4::ID, id);
        ipv4::write_csum(&mut l3[..l.l4_ofs - l.l3_ofs]);
    }
    if l.proto == ipproto::UDP {
        let len = (l.end - l.l4_ofs) as u16;
        set16(data, l.l4_ofs + udp::LENGTH, len);
        if be16(data, l.l4_ofs + udp::CSUM) != 0 {
            set16(data, l.l4_ofs + udp::CSUM, 0);
            let csum = finish_udp(add(csum::pseudo(data, &l), &data[l.l4_ofs..]));
            set16(data, l.l4_ofs + udp::CSUM, csum);
        }
    } else if let Some(at) = gre_csum_at(data, &l) {
        set16(data, at, 0);
        let csum = csum::of(&data[l.l4_ofs..]);
        set16(data, at, csum);
    }
}

/// Sequence number; FIN and PSH on the last segment, CWR on the first alone.
fn patch_tcp(l4: &mut [u8], i: usize, payload_before: usize, last: bool) {
    use tcp::flags::{CWR, FIN, PSH};
    let seq = be32(l4, tcp::SEQ).wrapping_add(payload_before as u32);
    set32(l4, tcp::SEQ, seq);
    let mut ctl = be16(l4, tcp::CTL);
    if i > 0 {
        ctl &= !CWR;
    }
    if !last {
        ctl &= !(FIN | PSH);
    }
    set16(l4, tcp::CTL, ctl);
}

#[cfg(test)]
mod tests;
