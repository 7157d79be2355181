//! Packets for the control plane.

use fv_dpif::{DropReason, Userspace};
use fv_packet::Packet;

use super::Env;
use crate::parse;
use crate::worker::stats::Stat;

impl Env {
    /// The handler gets the packet as it is here, cut by a `trunc` before, with its key here.
    pub(super) fn userspace(&mut self, mut packet: Packet, what: &Userspace) {
        let Some(handler) = self.handler.clone() else {
            return self.drop(packet, DropReason::UserspaceActionError);
        };
        let key = parse::extract(&mut packet, self.vlan_limit);
        super::output::cut(&mut packet);
        self.stats.add(Stat::Punted, 1);
        handler.action(self.worker, self.now, packet, &key, what);
    }
}
