//! `virtio_net_hdr` (virtio 1.2, 5.1.6): how kernels and guests say what is still to be done to a frame.

use crate::csum::l4_csum_offset;
use crate::csum_pseudo;
use crate::hdr::{Layout, Nest, eth, ipproto, tcp, udp};
use crate::{Csum, Gso, GsoKind, Packet};

/// Bytes without the buffer count.
pub const LEN: usize = 10;
/// Bytes with the buffer count.
pub const LEN_MERGED: usize = 12;

pub const NEEDS_CSUM: u8 = 1;
pub const DATA_VALID: u8 = 2;

pub mod gso_type {
    pub const NONE: u8 = 0;
    pub const TCPV4: u8 = 1;
    pub const UDP: u8 = 3;
    pub const TCPV6: u8 = 4;
    pub const UDP_L4: u8 = 5;
    /// Goes with the TCP types.
    pub const ECN: u8 = 0x80;
}

/// The header, in host byte order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VnetHdr {
    pub flags: u8,
    pub gso_type: u8,
    pub hdr_len: u16,
    pub gso_size: u16,
    pub csum_start: u16,
    pub csum_offset: u16,
    /// Receive buffers that hold the frame; only in the long form.
    pub num_buffers: u16,
}

impl VnetHdr {
    /// From the kernel (tap and packet sockets): host byte order, without the buffer count.
    pub fn from_ne_bytes(b: &[u8; LEN]) -> VnetHdr {
        VnetHdr::decode(b, u16::from_ne_bytes)
    }

    /// From a guest (virtio 1): little-endian, with the buffer count.
    pub fn from_le_bytes(b: &[u8; LEN_MERGED]) -> VnetHdr {
        let mut h = VnetHdr::decode(b, u16::from_le_bytes);
        h.num_buffers = u16::from_le_bytes([b[10], b[11]]);
        h
    }

    fn decode(b: &[u8], word: fn([u8; 2]) -> u16) -> VnetHdr {
        let at = |i: usize| word([b[i], b[i + 1]]);
        VnetHdr {
            flags: b[0],
            gso_type: b[1],
            hdr_len: at(2),
            gso_size: at(4),
            csum_start: at(6),
            csum_offset: at(8),
            num_buffers: 0,
        }
    }

    pub fn to_ne_bytes(self) -> [u8; LEN] {
        let mut out = [0; LEN];
        self.encode(&mut out, u16::to_ne_bytes);
        out
    }

    pub fn to_le_bytes(self) -> [u8; LEN_MERGED] {
        let mut out = [0; LEN_MERGED];
        self.encode(&mut out, u16::to_le_bytes);
        out[10..].copy_from_slice(&self.num_buffers.to_le_bytes());
        out
    }

    fn encode(self, out: &mut [u8], word: fn(u16) -> [u8; 2]) {
        out[0] = self.flags;
        out[1] = self.gso_type;
        let words = [self.hdr_len, self.gso_size, self.csum_start, self.csum_offset];
        for (to, v) in out[2..LEN].chunks_exact_mut(2).zip(words) {
            to.copy_from_slice(&word(v));
        }
    }
}

/// How an offload header lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadOffload {
    /// The checksum would be outside the frame or inside its Ethernet header.
    CsumRange,
    /// A segmentation type that does not exist.
    GsoType,
    /// Segments of no bytes.
    GsoSize,
    /// The frame is not of the protocol to be segmented, a fragment already, or its lengths are wrong.
    GsoHeaders,
    /// The checksum to be computed is not that of the protocol to be segmented.
    GsoCsum,
}

/// Takes over what `hdr` says of `packet`, which holds the frame. The caller drops the packet on an error.
/// Without segmentation this costs a few comparisons; with it the headers are read.
pub fn from_vnet_hdr(hdr: &VnetHdr, packet: &mut Packet) -> Result<(), BadOffload> {
    let (csum, start, offset) = checksum(hdr, packet.len())?;
    if hdr.gso_type != gso_type::NONE {
        return segmentation(hdr, packet);
    }
    let meta = packet.meta_mut();
    meta.gso = Gso::NONE;
    meta.csum = csum;
    meta.csum_start = start;
    meta.csum_offset = offset;
    Ok(())
}

fn checksum(hdr: &VnetHdr, len: usize) -> Result<(Csum, u16, u16), BadOffload> {
    if hdr.flags & NEEDS_CSUM == 0 {
        let valid = hdr.flags & DATA_VALID != 0;
        return Ok((if valid { Csum::Good } else { Csum::Unknown }, 0, 0));
    }
    let (start, offset) = (usize::from(hdr.csum_start), usize::from(hdr.csum_offset));
    let end = start + offset + if offset == crate::hdr::sctp::CSUM { 4 } else { 2 };
    if start < eth::LEN || end > len {
        return Err(BadOffload::CsumRange);
    }
    Ok((Csum::Partial, hdr.csum_start, hdr.csum_offset))
}

fn segmentation(hdr: &VnetHdr, packet: &mut Packet) -> Result<(), BadOffload> {
    let ecn = hdr.gso_type & gso_type::ECN != 0;
    let kind = hdr.gso_type & !gso_type::ECN;
    let proto = match kind {
        gso_type::TCPV4 | gso_type::TCPV6 => ipproto::TCP,
        gso_type::UDP | gso_type::UDP_L4 if !ecn => ipproto::UDP,
        _ => return Err(BadOffload::GsoType),
    };
    if hdr.gso_size == 0 {
        return Err(BadOffload::GsoSize);
    }
    let outermost = Layout::of(packet.data()).ok_or(BadOffload::GsoHeaders)?;
    let due = hdr.flags & NEEDS_CSUM != 0;
    // Without the place of the checksum the outermost packet is meant.
    let nest = match due {
        true => Nest::find(packet.data(), outermost, hdr.csum_start.into()).ok_or(BadOffload::GsoCsum)?,
        false => Nest::plain(outermost),
    };
    let l = *nest.inner();
    let header_end = l4_header_end(packet.data(), &l).ok_or(BadOffload::GsoHeaders)?;
    let version_fits = match kind {
        gso_type::TCPV4 => !l.is_v6,
        gso_type::TCPV6 => l.is_v6,
        _ => true,
    };
    let fragments_inside = kind == gso_type::UDP && !nest.outer().is_empty();
    if l.proto != proto || l.fragment || !version_fits || fragments_inside || l.end != packet.len() {
        return Err(BadOffload::GsoHeaders);
    }
    let field = l4_csum_offset(proto).unwrap_or(tcp::CSUM);
    if !due {
        // A complete checksum over what will be cut is of no use: make it one to be computed.
        csum_pseudo::write(packet.data_mut(), &l, field);
    } else if usize::from(hdr.csum_offset) != field {
        return Err(BadOffload::GsoCsum);
    }
    // A UFO size counts the UDP header, which the first fragment has.
    let payload = l.end - if kind == gso_type::UDP { l.l4_ofs } else { header_end };
    let kind = match (kind, l.is_v6) {
        (gso_type::TCPV4, _) => GsoKind::Tcp4,
        (gso_type::TCPV6, _) => GsoKind::Tcp6,
        (gso_type::UDP_L4, _) => GsoKind::UdpL4,
        (_, false) => GsoKind::Udp4,
        (_, true) => GsoKind::Udp6,
    };
    let meta = packet.meta_mut();
    meta.csum = Csum::Partial;
    meta.csum_start = l.l4_ofs as u16;
    meta.csum_offset = field as u16;
    let whole = payload <= usize::from(hdr.gso_size);
    meta.gso = if whole { Gso::NONE } else { Gso { kind, ecn, size: hdr.gso_size } };
    Ok(())
}

/// Where the L4 header of TCP or UDP ends, if it is whole.
fn l4_header_end(frame: &[u8], l: &Layout) -> Option<usize> {
    let l4 = frame.get(l.l4_ofs..l.end)?;
    let len = match l.proto {
        ipproto::TCP => tcp::Tcp::parse(l4)?.header_len(),
        _ => (l4.len() >= udp::LEN).then_some(udp::LEN)?,
    };
    Some(l.l4_ofs + len)
}

/// The header to send in front of `packet`, whose metadata was filled by us and is true.
pub fn to_vnet_hdr(packet: &Packet) -> VnetHdr {
    let meta = packet.meta();
    let mut h = VnetHdr::default();
    match meta.csum {
        Csum::Partial => {
            h.flags = NEEDS_CSUM;
            h.csum_start = meta.csum_start;
            h.csum_offset = meta.csum_offset;
        }
        Csum::Good => h.flags = DATA_VALID,
        Csum::Unknown | Csum::Bad => {}
    }
    if !meta.gso.is_some() {
        return h;
    }
    let l4_header = |from: usize| match meta.gso.kind {
        GsoKind::Tcp4 | GsoKind::Tcp6 => {
            packet.data().get(from + tcp::CTL).map_or(tcp::MIN_LEN, |b| usize::from(b >> 4) * 4)
        }
        _ => udp::LEN,
    };
    let start = usize::from(meta.csum_start);
    h.hdr_len = start.saturating_add(l4_header(start)).min(packet.len()).min(0xffff) as u16;
    h.gso_size = meta.gso.size;
    h.gso_type = match meta.gso.kind {
        GsoKind::None => gso_type::NONE,
        GsoKind::Tcp4 => gso_type::TCPV4,
        GsoKind::Tcp6 => gso_type::TCPV6,
        GsoKind::Udp4 | GsoKind::Udp6 => gso_type::UDP,
        GsoKind::UdpL4 => gso_type::UDP_L4,
    };
    if meta.gso.ecn {
        h.gso_type |= gso_type::ECN;
    }
    h
}

#[cfg(test)]
mod tests;
