//! The same configuration, rules and packets for the reference and for our daemon, side by side.
//!
//! A [`Case`] is made from a seed; [`Pair`] holds both daemons and runs a case on each;
//! what they said is compared text by text, and a case that differs is made small before it is shown.

mod actions;
mod case;
mod compare;
mod ctl;
mod extras;
mod groups;
mod minimise;
mod packets;
mod pair;
mod rng;
mod rules;
mod wider;

pub use case::{Case, Step};
pub use compare::{Difference, differences};
pub use ctl::Ctl;
pub use minimise::minimise;
pub use pair::{Pair, Side};
pub use rng::Rng;
