//! Output to a port.

use fv_core::DpPort;
use fv_dpif::DropReason;
use fv_netdev::egress_fixup;
use fv_packet::{Batch, Csum, Gso, Packet};

use super::Env;
use crate::worker::stats::Stat;

impl Env {
    /// Into the port's transmit buffer, after what the device cannot do itself.
    #[inline]
    pub(super) fn output(&mut self, mut packet: Packet, port: DpPort) {
        if packet.meta().trunc_len != 0 {
            cut(&mut packet);
        }
        let meta = packet.meta();
        if meta.csum == Csum::Partial || meta.ip_csum == Csum::Partial || meta.gso.is_some() {
            return self.output_offload(packet, port);
        }
        self.push(packet, port);
    }

    /// A whole batch to one port; none of its packets needs anything done first.
    #[inline]
    pub fn output_all(&mut self, batch: &mut Batch, port: DpPort) {
        if !self.tx.push_all(port, batch, &self.stats) {
            for packet in batch.drain() {
                self.drop(packet, DropReason::InvalidPort);
            }
        }
    }

    fn push(&mut self, packet: Packet, port: DpPort) {
        if let Err(packet) = self.tx.push(port, packet, &self.stats) {
            self.drop(packet, DropReason::InvalidPort);
        }
    }

    /// Checksums and segmentation that the device does not take over.
    #[cold]
    fn output_offload(&mut self, packet: Packet, port: DpPort) {
        let Some(can) = self.tx.offloads(port) else { return self.drop(packet, DropReason::InvalidPort) };
        let (tx, stats) = (&mut self.tx, &self.stats);
        let mut made = 0;
        let done = egress_fixup(packet, &can, &mut |segment| {
            made += 1;
            // The port is there: its offloads were read above.
            let _ = tx.push(port, segment, stats);
        });
        match done {
            Ok(()) => stats.add(Stat::Copied, u64::max(made, 1) - 1),
            // The packet was dropped inside.
            Err(_) => {
                DropReason::BadOffload.count(1);
                stats.add(Stat::Dropped, 1);
            }
        }
    }
}

/// Cuts to what a `trunc` asked for. What is left has no whole checksum and no segments.
pub fn cut(packet: &mut Packet) {
    let max = packet.meta().trunc_len as usize;
    packet.meta_mut().trunc_len = 0;
    if max != 0 && packet.len() > max {
        packet.truncate(max);
        let meta = packet.meta_mut();
        meta.gso = Gso::NONE;
        meta.csum = Csum::Unknown;
        meta.ip_csum = Csum::Unknown;
    }
}

/// What `check_pkt_len` compares: the frame's length without padding that the wire added.
pub fn wire_len(packet: &Packet) -> usize {
    packet.len()
}
