//! OpenFlow 1.0 to 1.5 with the Nicira extensions: values, bytes and text. No input or output, no
//! switch logic.

pub mod action;
pub mod error;
pub mod framing;
pub mod matching;
pub mod msg;
pub mod text;
pub mod vendor;
pub mod version;
mod wire;

pub use action::{Action, Actions};
pub use error::OfError;
pub use msg::{Body, Message};
pub use version::{Version, VersionSet};
