//! What a bridge asks of the rest of the switch.

use std::sync::Arc;

use fv_core::OfPort;
use fv_openflow::OfError;
use fv_openflow::msg::packet::{PacketOut, Resume};
use fv_openflow::msg::port::{PortStats, QueueStats};

use crate::view::{BridgeId, BridgeView};

/// Called on control's thread, from within the bridge's own calls. None of it may block for long.
pub trait Host {
    /// Credits the rules with what the datapath has counted until now.
    fn pull_stats(&mut self, bridge: BridgeId);

    /// None if the port's counters cannot be read.
    fn port_stats(&mut self, bridge: BridgeId, port: OfPort) -> Option<PortStats>;

    /// Of one port; empty if it has none.
    fn queue_stats(&mut self, bridge: BridgeId, port: OfPort) -> Vec<QueueStats>;

    /// Ports, bundles or settings changed: the next packet must see this.
    fn publish(&mut self, view: Arc<BridgeView>);

    /// Runs the actions on the packet before it returns.
    fn packet_out(&mut self, bridge: BridgeId, packet: &PacketOut) -> Result<(), OfError>;

    /// Finds out what the actions of a packet in a bundle do as `view` sees the bridge, and keeps it
    /// until [`Host::end_packet_outs`].
    fn hold_packet_out(&mut self, bridge: BridgeId, packet: &PacketOut, view: Arc<BridgeView>) -> Result<(), OfError>;

    /// Runs what was held, in order, or forgets it.
    fn end_packet_outs(&mut self, run: bool);

    /// Goes on with a paused packet.
    fn resume(&mut self, bridge: BridgeId, resume: &Resume) -> Result<(), OfError>;

    /// A controller takes a port up or down. Whether its link is up now, if that is known at once.
    fn set_admin_state(&mut self, bridge: BridgeId, port: OfPort, up: bool) -> Option<bool>;
}
