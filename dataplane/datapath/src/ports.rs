//! The ports of a datapath: numbers, devices, queues and where they are polled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fv_core::DpPort;
use fv_dpif::{DpError, DpPortInfo, WorkerId};
use fv_netdev::{Device, Polling};

use crate::usage::{Enabled, Usage};
use crate::worker::mailbox::Ack;
use crate::worker::stats::QueueStats;
use crate::worker::tx::PortTx;

/// Port numbers are at most this, so that they fit 16 bits and tables indexed by them stay small.
pub const PORT_MAX: u32 = 65535;

/// One receive queue of a port.
pub struct PortQueue {
    pub stats: Arc<QueueStats>,
    pub worker: WorkerId,
    pub pinned: Option<WorkerId>,
    /// What it has cost lately.
    pub usage: Usage,
    /// How much of the time it was worth polling.
    pub enabled: Enabled,
    /// Set when it is taken away.
    pub closed: Arc<AtomicBool>,
}

impl PortQueue {
    /// New queues start with the control thread and move from there to where they belong.
    pub fn new(stats: Arc<QueueStats>, closed: Arc<AtomicBool>) -> PortQueue {
        PortQueue {
            stats,
            worker: WorkerId::MAIN,
            pinned: None,
            usage: Usage::default(),
            enabled: Enabled::default(),
            closed,
        }
    }
}

pub struct Port {
    pub number: DpPort,
    pub device: Arc<dyn Device>,
    pub tx: Arc<PortTx>,
    pub queues: Vec<PortQueue>,
    /// Done when its queues are closed.
    pub ack: Arc<Ack>,
}

impl Port {
    pub fn info(&self) -> DpPortInfo {
        DpPortInfo { port: self.number, name: self.device.name().into(), kind: self.device.kind().into() }
    }

    pub fn polling(&self) -> Polling {
        self.device.polling()
    }

    /// Whether a queue is worth polling just now.
    pub fn is_enabled(&self, queue: usize) -> bool {
        self.device.enabled_rxqs().is_none_or(|e| e.is_enabled(queue))
    }
}

#[derive(Default)]
pub struct PortTable {
    ports: BTreeMap<DpPort, Port>,
}

impl PortTable {
    /// The number for a new port: as wanted, else the one in its name (on a dummy datapath), else
    /// the lowest that is free.
    pub fn choose(&self, name: &str, wanted: Option<DpPort>, by_name: bool) -> Result<DpPort, DpError> {
        if self.by_name(name).is_some() {
            return Err(DpError::Exists);
        }
        if let Some(port) = wanted {
            if port.0 > PORT_MAX {
                return Err(DpError::Invalid);
            }
            return if self.ports.contains_key(&port) { Err(DpError::Exists) } else { Ok(port) };
        }
        let named = number_in_name(name).filter(|n| by_name && !self.ports.contains_key(n));
        let free = || (1..=PORT_MAX).map(DpPort).find(|n| !self.ports.contains_key(n));
        named.or_else(free).ok_or(DpError::NoSpace)
    }

    pub fn insert(&mut self, port: Port) {
        self.ports.insert(port.number, port);
    }

    pub fn remove(&mut self, port: DpPort) -> Option<Port> {
        self.ports.remove(&port)
    }

    pub fn find_mut(&mut self, port: DpPort) -> Option<&mut Port> {
        self.ports.get_mut(&port)
    }

    pub fn find(&self, port: DpPort) -> Option<&Port> {
        self.ports.get(&port)
    }

    pub fn by_name(&self, name: &str) -> Option<&Port> {
        self.ports.values().find(|p| p.device.name() == name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Port> {
        self.ports.values()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Port> {
        self.ports.values_mut()
    }
}

/// The first run of digits in a name; 100 more for names that begin with "br".
fn number_in_name(name: &str) -> Option<DpPort> {
    let start = name.find(|c: char| c.is_ascii_digit())?;
    let digits = name[start..].split(|c: char| !c.is_ascii_digit()).next()?;
    let base = if name.starts_with("br") { 100 } else { 0 };
    let number = digits.parse::<u32>().ok()?.checked_add(base)?;
    (1..=PORT_MAX).contains(&number).then_some(DpPort(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names() {
        for (name, expected) in [
            ("p7", Some(7)),
            ("br0", Some(100)),
            ("br1", Some(101)),
            ("eth12x3", Some(12)),
            ("p0", None),
            ("p07", Some(7)),
            ("ovs-dummy", None),
            ("p99999", None),
            ("p99999999999", None),
            ("p65535", Some(65535)),
        ] {
            assert_eq!(number_in_name(name).map(|n| n.0), expected, "{name}");
        }
    }
}
