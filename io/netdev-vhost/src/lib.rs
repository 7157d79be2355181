//! Ports of virtual machines: vhost-user.
//!
//! A front end (a virtual machine monitor, or a program in a container) hands over its memory and tells where
//! its rings are; this crate maps the one and drives the other. Both are hostile until checked.

pub mod mapping;
pub mod memory;
pub mod ring;
pub mod seat;
