//! The rings against a driver that offers buffers in any legal way, and in many illegal ones.
#![allow(unsafe_code)]

mod guest;
#[path = "rings/hostile.rs"]
mod hostile;
#[path = "rings/notify.rs"]
mod notify;
#[path = "rings/offload.rs"]
mod offload;
#[path = "rings/receive.rs"]
mod receive;
#[path = "rings/send.rs"]
mod send;
