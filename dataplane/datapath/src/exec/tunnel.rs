//! Tunnels: pushing a prepared outer header and taking one off.

use std::sync::Arc;

use fv_core::DpPort;
use fv_dpif::action::TunnelPush;
use fv_dpif::{DpAction, DropReason};
use fv_packet::{L4Csum, Packet, segment};

use super::{Env, RECIRC_DEPTH_MAX, output};
use crate::tunnel::{Tunnel, open, push};
use crate::worker::stats::Stat;

impl Env {
    fn tunnel(&self, port: DpPort) -> Option<Arc<Tunnel>> {
        self.shared.tunnels.load().get(port.0 as usize).cloned().flatten()
    }

    /// The actions that follow are of the packet with its outer headers.
    pub(super) fn tunnel_push(&mut self, packet: &mut Packet, header: &TunnelPush) -> Result<(), DropReason> {
        let Some(tunnel) = self.tunnel(header.tnl_port) else { return Err(DropReason::TunnelPushError) };
        output::cut(packet);
        let hash = push::flow_hash(packet, self.vlan_limit);
        let source = self.shared.tunnel_ports.of_hash(hash);
        push::push(packet, header, &tunnel, source, self.now)
    }

    /// A packet whose lengths have no room for the outer headers is cut into its segments first.
    #[cold]
    pub(super) fn in_pieces(&mut self, packet: Packet, actions: &[DpAction], depth: u8) {
        match segment(packet, L4Csum::Finish) {
            Ok(segments) => {
                for (i, segment) in segments.enumerate() {
                    self.stats.add(Stat::Copied, u64::from(i > 0));
                    self.actions(segment, actions, depth);
                }
            }
            Err(_) => {
                // The packet was dropped inside.
                DropReason::BadOffload.count(1);
                self.stats.add(Stat::Dropped, 1);
            }
        }
    }

    /// The packet comes round again without its outer headers, as from the tunnel's port.
    pub(super) fn tunnel_pop(&mut self, mut packet: Packet, port: DpPort, depth: u8) {
        let Some(tunnel) = self.tunnel(port) else { return self.drop(packet, DropReason::InvalidTunnelPort) };
        if depth >= RECIRC_DEPTH_MAX {
            return self.drop(packet, DropReason::RecircError);
        }
        if let Err(reason) = open::open(&mut packet, &tunnel.vport) {
            DropReason::TunnelPopError.count(1);
            return self.drop(packet, reason);
        }
        packet.meta_mut().in_port = port.0;
        self.again(packet, depth);
    }
}
