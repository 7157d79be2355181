//! Tunnels on packets: [`push`] and [`open`], pure functions of packet and header.

pub mod open;
pub mod push;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU32, Ordering};

use fv_dpif::Vport;

/// UDP source ports of tunnels until somebody says otherwise.
pub const SOURCE_MIN: u16 = 32768;
pub const SOURCE_MAX: u16 = 61000;

/// A port that is a tunnel.
#[derive(Debug)]
pub struct Tunnel {
    pub vport: Vport,
    /// Sequence number of the last packet sent.
    sequence: AtomicU32,
}

impl Tunnel {
    pub fn new(vport: Vport) -> Tunnel {
        Tunnel { vport, sequence: AtomicU32::new(0) }
    }

    fn next_sequence(&self) -> u32 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }
}

/// The range of UDP source ports, as one value.
#[derive(Debug)]
pub struct TunnelPorts(AtomicU32);

impl Default for TunnelPorts {
    fn default() -> TunnelPorts {
        let ports = TunnelPorts(AtomicU32::new(0));
        ports.set(SOURCE_MIN, SOURCE_MAX);
        ports
    }
}

impl TunnelPorts {
    pub fn set(&self, min: u16, max: u16) {
        self.0.store(u32::from(min) << 16 | u32::from(max), Ordering::Relaxed);
    }

    /// One flow has one port, always.
    pub fn of_hash(&self, hash: u32) -> u16 {
        let range = self.0.load(Ordering::Relaxed);
        let (min, max) = ((range >> 16) as u16, range as u16);
        let count = u64::from(max.saturating_sub(min));
        min + ((u64::from(hash) * count) >> 32) as u16
    }
}
