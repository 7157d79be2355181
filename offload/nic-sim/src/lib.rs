//! An emulated NIC with a finite flow table, for tests, demonstrations and trying policies without hardware.
//!
//! A card has several ports, each in front of a real device (a veth, a tap, one in memory) that is its
//! wire. What comes off the wire is matched against the card's table: a rule either marks the packet, which then
//! goes to the port's receive queues, or forwards it to another port's wire without the switch seeing it.
//! The table is programmed through [`SimProvider`]; it has a size, and operations take the time that the
//! card's configuration says. No packet is faster for it: this is software that behaves like hardware.
//!
//! No thread is started here: whoever owns the cards calls [`Cards::turn`].

mod card;
mod config;
mod forward;
mod port;
mod provider;
mod ring;
mod table;

pub use card::{Card, Cards, PortCount};
pub use config::CardConfig;
pub use port::SimPort;
pub use provider::{PROVIDER, SimProvider};
