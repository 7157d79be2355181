//! Sends frames to a kernel device as fast as it takes them, to load `forward` from a far end.
//!
//! `flood DEV LEN SECONDS`: frames of LEN bytes of a local experimental type. Prints how many were sent.

use std::time::{Duration, Instant};

use fv_netdev::{Device, SystemDevice};
use fv_packet::{Batch, Packet};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, len, seconds] = &args[..] else {
        eprintln!("usage: flood DEV LEN SECONDS");
        std::process::exit(2);
    };
    let number = |s: &String| s.parse::<usize>().expect("a number");
    let device = SystemDevice::open(name).expect("device");
    let mut tx = device.open_txq(0).expect("queue");
    let mut frame = vec![0; number(len).max(14)];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    let end = Instant::now() + Duration::from_secs(number(seconds) as u64);
    let (mut sent, mut dropped) = (0, 0);
    let mut batch = Batch::new();
    while Instant::now() < end {
        while !batch.is_full() {
            let _ = batch.push(Packet::from_slice(&frame));
        }
        let s = tx.send(&mut batch);
        sent += u64::from(s.packets);
        dropped += u64::from(s.dropped);
    }
    println!("sent {sent} dropped {dropped}");
}
