//! What all workers of a datapath see.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwap;
use fv_dpif::{Marks, Meter, UpcallHandler};
use parking_lot::RwLock;

use crate::registry::Registry;
use crate::tunnel::{Tunnel, TunnelPorts};

#[derive(Default)]
pub struct Shared {
    /// The datapath's name.
    pub name: String,
    pub registry: Registry,
    /// By number.
    pub meters: ArcSwap<Vec<Option<Arc<Meter>>>>,
    /// Ports of tunnels, by number.
    pub tunnels: ArcSwap<Vec<Option<Arc<Tunnel>>>>,
    /// UDP source ports of tunnels: the lowest, and how many.
    pub tunnel_ports: TunnelPorts,
    handler: RwLock<Option<Arc<dyn UpcallHandler>>>,
    marks: RwLock<Option<Arc<Marks>>>,
    /// Moves with each change of the handler or the marks, so that workers look at the lock only then.
    handler_seq: AtomicU32,
}

impl Shared {
    pub fn new(name: &str) -> Shared {
        Shared { name: name.into(), ..Shared::default() }
    }

    pub fn set_handler(&self, handler: Option<Arc<dyn UpcallHandler>>) {
        *self.handler.write() = handler;
        self.handler_seq.fetch_add(1, Ordering::Release);
    }

    pub fn set_marks(&self, marks: Arc<Marks>) {
        *self.marks.write() = Some(marks);
        self.handler_seq.fetch_add(1, Ordering::Release);
    }

    pub fn marks(&self) -> Option<Arc<Marks>> {
        self.marks.read().clone()
    }

    pub fn handler_seq(&self) -> u32 {
        self.handler_seq.load(Ordering::Acquire)
    }

    pub fn handler(&self) -> Option<Arc<dyn UpcallHandler>> {
        self.handler.read().clone()
    }
}
