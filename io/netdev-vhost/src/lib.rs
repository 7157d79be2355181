//! Ports of virtual machines: vhost-user.
//!
//! A front end (a virtual machine monitor, or a program in a container) hands over its memory and tells where
//! its rings are; this crate maps the one and drives the other. Both are hostile until checked.

mod conn;
mod device;
mod hub;
mod link;
mod live;
pub mod mapping;
pub mod memory;
pub mod message;
pub mod offer;
mod port;
pub mod ring;
pub mod seat;
pub mod session;

pub use device::{VhostDevice, register};
pub use hub::{Hub, Hubs, hub};
