//! Tunnels as values and tables, without I/O: which port a tunnelled packet belongs to, what goes in front of a
//! packet on its way out, how the outer packet finds its way.
//!
//! * [`Config`]: one tunnel port's options.
//! * [`Endpoints`]: tunnel metadata -> port.
//! * [`Listeners`]: which outer packets are ours to open.
//! * [`Routes`], [`Neighbours`]: the outer packet's next hop and its address.
//! * [`header`]: the outer headers; [`request`]: questions to neighbours.

mod config;
mod endpoints;
pub mod header;
mod listeners;
mod neigh;
mod options;
pub mod request;
mod routes;
mod send;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::RwLock;

pub use config::{Address, Config, Inner, Key, Origin};
pub use endpoints::Endpoints;
pub use listeners::{Listeners, Local};
pub use neigh::{MAX_AGING_S, NeighRow, Neighbours, Resolved};
pub use options::parse;
pub use routes::{Found, Prefix, Route, Routes};
pub use send::{ecn_in, receive_mask};

fv_core::counters! {
    pub NEIGHBOUR_FULL = "tunnel_neighbour_full",
    pub NEIGHBOUR_REQUESTS = "tunnel_neighbour_requests",
}

/// What all bridges of a process share: how outer packets find their way.
#[derive(Default)]
pub struct Net {
    pub routes: RwLock<Routes>,
    pub neighbours: Neighbours,
}

/// What translation reads of tunnels.
#[derive(Clone, Default)]
pub struct Tunnels {
    pub endpoints: Arc<Endpoints>,
    pub listeners: Arc<Listeners>,
    pub net: Arc<Net>,
}

/// An address from the two forms in which keys hold it.
pub fn address(v4: u32, v6: &[u8; 16]) -> IpAddr {
    if v4 == 0 && *v6 != [0; 16] { Ipv6Addr::from(*v6).into() } else { Ipv4Addr::from(v4).into() }
}
