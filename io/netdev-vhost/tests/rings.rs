//! The rings against a driver that offers buffers in any legal way, and in many illegal ones.
#![allow(unsafe_code)]

mod guest;
#[path = "rings/receive.rs"]
mod receive;
#[path = "rings/send.rs"]
mod send;
