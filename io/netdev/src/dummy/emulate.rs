//! Offloads that a dummy pretends to have, on either side.

use fv_packet::compose::make_partial;
use fv_packet::hdr::{Layout, Tcp, ipproto, layout};
use fv_packet::{Csum, GsoKind, Packet, finish_checksum};

use crate::device::{DeviceError, TxOffloads};
use crate::dummy::config::number;
use crate::registry::Options;

/// One layer of checksums on transmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TxCsum {
    /// The device says that it computes them,
    pub offered: bool,
    /// and does not, so that a capture shows what it was given.
    pub disabled: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Emulation {
    /// What the device reports of received checksums.
    pub rx_ip: Csum,
    pub rx_l4: Csum,
    pub tx_ip: TxCsum,
    pub tx_l4: TxCsum,
    pub tx_outer_ip: TxCsum,
    pub tx_outer_udp: TxCsum,
    /// TCP packets with more payload come as large segments of this size; 0 for none.
    pub tso_segsz: u16,
}

impl Emulation {
    pub fn parse(options: &Options) -> Result<Emulation, DeviceError> {
        let on = |key: &str| options.get(key).is_some_and(|v| v == "true");
        let rx = |layer: &str| {
            let set = |state: &str| on(&format!("ol_{layer}_rx_csum_set_{state}"));
            match (set("good"), set("bad"), set("partial")) {
                (true, ..) => Csum::Good,
                (_, true, _) => Csum::Bad,
                (.., true) => Csum::Partial,
                _ => Csum::Unknown,
            }
        };
        let tx = |layer: &str| {
            let disabled = on(&format!("ol_{layer}_tx_csum_disabled"));
            TxCsum { offered: disabled || on(&format!("ol_{layer}_tx_csum")), disabled }
        };
        Ok(Emulation {
            rx_ip: rx("ip"),
            rx_l4: rx("l4"),
            tx_ip: tx("ip"),
            tx_l4: tx("l4"),
            tx_outer_ip: tx("out_ip"),
            tx_outer_udp: tx("out_udp"),
            tso_segsz: number(options, "ol_tso_segsz")?.unwrap_or(0),
        })
    }

    pub fn offloads(&self) -> TxOffloads {
        TxOffloads { ip_csum: self.tx_ip.offered, l4_csum: self.tx_l4.offered, ..TxOffloads::default() }
    }

    /// What a card would say of a packet it received.
    pub fn received(&self, packet: &mut Packet) {
        if *self == Emulation::default() {
            return;
        }
        let Some(l) = Layout::of(packet.data()) else { return };
        if self.rx_ip != Csum::Unknown && !l.is_v6 {
            packet.meta_mut().ip_csum = self.rx_ip;
        }
        let has_csum = matches!(l.proto, ipproto::TCP | ipproto::UDP | ipproto::SCTP) && !l.fragment;
        match self.rx_l4 {
            Csum::Unknown => {}
            Csum::Partial if has_csum => {
                make_partial(packet, GsoKind::None, 0);
            }
            state if has_csum => packet.meta_mut().csum = state,
            _ => {}
        }
        self.large_segment(packet, &l);
    }

    fn large_segment(&self, packet: &mut Packet, l: &Layout) {
        if self.tso_segsz == 0 || l.proto != ipproto::TCP || l.fragment || l.end != packet.len() {
            return;
        }
        let Some(tcp) = Tcp::parse(&packet.data()[l.l4_ofs..]) else { return };
        if l.end - l.l4_ofs - tcp.header_len() > usize::from(self.tso_segsz) {
            let kind = if l.is_v6 { GsoKind::Tcp6 } else { GsoKind::Tcp4 };
            make_partial(packet, kind, self.tso_segsz);
        }
    }

    /// What a card does to a packet that it was given with work left.
    pub fn transmitted(&self, packet: &mut Packet) {
        if packet.meta().ip_csum == Csum::Partial && self.tx_ip.disabled {
            packet.meta_mut().ip_csum = Csum::Unknown;
        }
        if packet.meta().csum == Csum::Partial && self.tx_l4.disabled {
            packet.meta_mut().csum = Csum::Unknown;
        }
        // A packet whose metadata lies goes out as it is.
        let _ = finish_checksum(packet);
    }
}

/// Whether a frame has a VLAN tag, which may exceed the MTU.
pub fn is_tagged(frame: &[u8]) -> bool {
    layout::l3(frame).is_some_and(|(ofs, _)| ofs > 14)
}

/// The address that an ARP request for Ethernet asks for, with who asks.
pub fn arp_request(frame: &[u8]) -> Option<fv_packet::hdr::Arp<'_>> {
    use fv_packet::hdr::{Arp, arp, eth::ethertype};
    let (ofs, t) = layout::l3(frame)?;
    let request = Arp::parse(frame.get(ofs..)?)?;
    (t == ethertype::ARP && request.op() == arp::OP_REQUEST).then_some(request)
}
