//! The datapath's port of a kind of tunnel: a number and a name, no queues. Packets come from it when their headers are
//! taken off.

use fv_dpif::{TunnelKind, Vport};

use fv_netdev::{
    Changed, Device, DeviceError, DeviceStatus, Options, Polling, PortStats, RxQueue, TxOffloads, TxQueue,
};

pub struct VportDevice {
    vport: Vport,
    name: String,
}

impl VportDevice {
    pub fn new(vport: Vport) -> VportDevice {
        VportDevice { name: vport.name(), vport }
    }
}

impl Device for VportDevice {
    fn name(&self) -> &str {
        &self.name
    }
    fn kind(&self) -> &'static str {
        self.vport.kind.name()
    }
    fn polling(&self) -> Polling {
        Polling::Main
    }
    fn n_rxq(&self) -> usize {
        0
    }
    fn n_txq(&self) -> usize {
        0
    }
    fn numa_id(&self) -> Option<i32> {
        None
    }
    fn open_rxq(&self, q: usize) -> Result<Box<dyn RxQueue>, DeviceError> {
        Err(DeviceError::NoQueue(q))
    }
    fn open_txq(&self, q: usize) -> Result<Box<dyn TxQueue>, DeviceError> {
        Err(DeviceError::NoQueue(q))
    }
    fn status(&self) -> DeviceStatus {
        let standard = match self.vport.kind {
            TunnelKind::Vxlan => 4789,
            TunnelKind::Geneve => 6081,
            TunnelKind::Gtpu => 2152,
            TunnelKind::Bareudp => 6635,
            _ => 0,
        };
        let mut config = Vec::new();
        if self.vport.dst_port != standard {
            config.push(("dst_port".into(), self.vport.dst_port.to_string()));
        }
        if self.vport.kind.is_erspan() {
            config.push(("erspan_ver".into(), "0".into()));
        }
        config.push(("packet_type".into(), "ptap".into()));
        DeviceStatus { admin_up: true, link_up: true, config, ..DeviceStatus::default() }
    }
    fn stats(&self) -> PortStats {
        PortStats::default()
    }
    fn change_seq(&self) -> u64 {
        0
    }
    fn offloads(&self) -> TxOffloads {
        TxOffloads::ALL
    }
    fn set_mac(&self, _: [u8; 6]) -> Result<(), DeviceError> {
        Err(DeviceError::Unsupported)
    }
    fn set_mtu(&self, _: u32) -> Result<(), DeviceError> {
        Err(DeviceError::Unsupported)
    }
    fn set_admin_up(&self, _: bool) -> Result<(), DeviceError> {
        Ok(())
    }
    fn set_options(&self, _: &Options) -> Result<Changed, DeviceError> {
        Ok(Changed::Nothing)
    }
    fn remove(&self) {}
}
