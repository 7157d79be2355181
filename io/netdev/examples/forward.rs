//! Moves frames between two kernel devices and does nothing else: what the switch's kernel ports can
//! reach at most.
//!
//! `forward DEV0 DEV1 [--spin US [--yield]]`; a name with a leading `+` is made as a tap. Runs until killed.

use std::time::{Duration, Instant};

use fv_netdev::{Device, SystemDevice, TapDevice};
use fv_packet::Batch;
use rustix::event::{PollFd, PollFlags, poll};

fn open(name: &str) -> Box<dyn Device> {
    let opened = match name.strip_prefix('+') {
        Some(tap) => TapDevice::open(tap, "tap").map(|d| Box::new(d) as Box<dyn Device>),
        None => SystemDevice::open(name).map(|d| Box::new(d) as Box<dyn Device>),
    };
    opened.unwrap_or_else(|e| {
        eprintln!("{name}: {e}");
        std::process::exit(1);
    })
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let spin_us = args.iter().position(|a| a == "--spin").and_then(|i| args.get(i + 1)?.parse().ok()).unwrap_or(0);
    let yields = args.iter().any(|a| a == "--yield");
    let spin = Duration::from_micros(spin_us);
    if args.len() < 2 {
        eprintln!("usage: forward DEV0 DEV1 [--spin US [--yield]]");
        std::process::exit(2);
    }
    let devices = [open(&args[0]), open(&args[1])];
    let mut rx = devices.each_ref().map(|d| d.open_rxq(0).expect("receive queue"));
    let mut tx = devices.each_ref().map(|d| d.open_txq(0).expect("transmit queue"));
    let mut batch = Batch::new();
    let mut last = Instant::now();
    loop {
        let mut moved = 0;
        for i in 0..2 {
            match rx[i].recv(&mut batch) {
                Ok(0) => {}
                Ok(n) => {
                    moved += n;
                    tx[1 - i].send(&mut batch);
                }
                Err(e) => eprintln!("{}: {e}", devices[i].name()),
            }
        }
        if moved > 0 {
            last = Instant::now();
        } else if last.elapsed() >= spin {
            let mut fds = rx.each_ref().map(|q| PollFd::from_borrowed_fd(q.fd().expect("descriptor"), PollFlags::IN));
            let _ = poll(&mut fds, None);
        } else if yields {
            std::thread::yield_now();
        }
    }
}
