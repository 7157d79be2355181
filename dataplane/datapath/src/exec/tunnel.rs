//! Tunnels: pushing a prepared outer header and taking one off.

use fv_core::DpPort;
use fv_dpif::DropReason;
use fv_dpif::action::TunnelPush;
use fv_packet::Packet;

use super::Env;

impl Env {
    /// Encapsulations are not attached yet.
    pub(super) fn tunnel_push(&mut self, packet: Packet, _: &TunnelPush, _depth: u8) {
        self.drop(packet, DropReason::TunnelPushError);
    }

    pub(super) fn tunnel_pop(&mut self, packet: Packet, _: DpPort, _depth: u8) {
        self.drop(packet, DropReason::TunnelPopError);
    }
}
