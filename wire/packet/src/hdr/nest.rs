//! IP packets inside IP packets: which headers lead to the L4 header that an offload names.
//!
//! A sender that builds tunnels of its own hands over frames whose checksum and segmentation concern the inner
//! packet. Nothing says which tunnel it is, so each that could be there is tried; the place of the L4
//! header, which is known, tells the right one.

use super::eth::ethertype;
use super::layout::{self, Layout};
use super::{ipproto, udp};
use crate::bytes::be16;

/// IP packets around each other at most.
pub const MAX_LEVELS: usize = 4;
const VXLAN_LEN: usize = 8;
const GENEVE_LEN: usize = 8;
const GRE_LEN: usize = 4;
const GRE_CSUM: u16 = 0x8000;
const GRE_KEY: u16 = 0x2000;
const GRE_SEQ: u16 = 0x1000;

/// The layouts of the nested packets, from the outermost inwards; at least one.
#[derive(Clone, Copy, Debug)]
pub struct Nest {
    levels: [Layout; MAX_LEVELS],
    n: usize,
}

impl Nest {
    /// The frame's only packet.
    pub fn plain(outermost: Layout) -> Nest {
        Nest { levels: [outermost; MAX_LEVELS], n: 1 }
    }

    /// Follows `frame` from its outermost packet to the one with its L4 header at `l4_ofs`. All packets reach to
    /// the end of the frame, and none is a fragment but maybe the last.
    pub fn find(frame: &[u8], outermost: Layout, l4_ofs: usize) -> Option<Nest> {
        let mut nest = Nest::plain(outermost);
        nest.descend(frame, l4_ofs).then_some(nest)
    }

    /// The packet with the L4 header that was asked for.
    pub fn inner(&self) -> &Layout {
        &self.levels[self.n - 1]
    }

    /// The packets around it, outermost first.
    pub fn outer(&self) -> &[Layout] {
        &self.levels[..self.n - 1]
    }

    fn descend(&mut self, frame: &[u8], l4_ofs: usize) -> bool {
        let l = *self.inner();
        if l.l4_ofs == l4_ofs {
            return true;
        }
        if l.l4_ofs > l4_ofs || l.fragment || l.end != frame.len() || self.n == MAX_LEVELS {
            return false;
        }
        for (at, kind) in payloads(frame, &l).into_iter().flatten() {
            let Some(inner) = layout_at(frame, at, kind).filter(|i| i.end == frame.len()) else { continue };
            self.levels[self.n] = inner;
            self.n += 1;
            if self.descend(frame, l4_ofs) {
                return true;
            }
            self.n -= 1;
        }
        false
    }
}

/// What a tunnel carries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Payload {
    Ethernet,
    Ip(u16),
    /// Whichever version the first byte says.
    AnyIp,
}

type Guess = Option<(usize, Payload)>;

/// Where the payload begins, under each tunnel that the packet could be.
fn payloads(frame: &[u8], l: &Layout) -> [Guess; 3] {
    let l4 = l.l4_ofs;
    match l.proto {
        ipproto::IPIP => [Some((l4, Payload::Ip(ethertype::IPV4))), None, None],
        ipproto::IPV6 => [Some((l4, Payload::Ip(ethertype::IPV6))), None, None],
        ipproto::GRE => [gre(frame, l4), None, None],
        ipproto::UDP => {
            let inner = l4 + udp::LEN;
            [Some((inner + VXLAN_LEN, Payload::Ethernet)), geneve(frame, inner), Some((inner, Payload::AnyIp))]
        }
        _ => [None; 3],
    }
}

fn gre(frame: &[u8], at: usize) -> Guess {
    let h = frame.get(at..at + GRE_LEN)?;
    let (flags, protocol) = (be16(h, 0), be16(h, 2));
    let optional = [GRE_CSUM, GRE_KEY, GRE_SEQ];
    let len = GRE_LEN + 4 * optional.iter().filter(|f| flags & **f != 0).count();
    if flags & !(GRE_CSUM | GRE_KEY | GRE_SEQ) != 0 {
        return None;
    }
    Some((at + len, carried(protocol)?))
}

/// Where GRE's checksum is, if `l` is GRE with one.
pub(crate) fn gre_csum_at(frame: &[u8], l: &Layout) -> Option<usize> {
    let flags = be16(frame.get(l.l4_ofs..l.l4_ofs + 2)?, 0);
    (l.proto == ipproto::GRE && flags & GRE_CSUM != 0).then_some(l.l4_ofs + GRE_LEN)
}

fn geneve(frame: &[u8], at: usize) -> Guess {
    let h = frame.get(at..at + GENEVE_LEN)?;
    let options = usize::from(h[0] & 0x3f) * 4;
    Some((at + GENEVE_LEN + options, carried(be16(h, 2))?))
}

fn carried(protocol: u16) -> Option<Payload> {
    match protocol {
        ethertype::TEB => Some(Payload::Ethernet),
        ethertype::IPV4 | ethertype::IPV6 => Some(Payload::Ip(protocol)),
        _ => None,
    }
}

fn layout_at(frame: &[u8], at: usize, kind: Payload) -> Option<Layout> {
    match kind {
        Payload::Ip(t) => Layout::of_ip(frame, at, t),
        Payload::AnyIp => match frame.get(at)? >> 4 {
            4 => Layout::of_ip(frame, at, ethertype::IPV4),
            6 => Layout::of_ip(frame, at, ethertype::IPV6),
            _ => None,
        },
        Payload::Ethernet => {
            let (l3, t) = layout::l3(frame.get(at..)?)?;
            Layout::of_ip(frame, at + l3, t)
        }
    }
}
