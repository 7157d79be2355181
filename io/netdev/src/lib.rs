//! Network devices: what the switch receives from and sends to.
//!
//! A device moves packet buffers; it knows no flows. Kinds that need nothing but memory and
//! files live here; the others implement [`Device`] elsewhere.

mod device;
pub mod dummy;
mod egress;
mod enabled;
pub mod pair;
pub mod pcap;
mod registry;
mod socket;
mod tap;
pub mod wrap;

pub use device::{
    Changed, Device, DeviceError, DeviceStatus, Duplex, Polling, PortStats, RxQueue, Sent, TxOffloads, TxQueue,
};
pub use egress::{EgressError, egress_fixup};
pub use enabled::EnabledQueues;
pub use registry::{Env, Factory, Options, Registry};
pub use socket::SystemDevice;
pub use tap::TapDevice;
