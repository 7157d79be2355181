//! Follows the kernel's tables and says what changed: `follow [TABLE...]` (default 254 255).

use std::time::Duration;

use fv_core::Clock;
use fv_hostnet::{HostNet, Interest, Kind, Neighbours};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

fn main() {
    let tables: Vec<u32> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let route_tables = if tables.is_empty() { vec![254, 255] } else { tables };
    let interest = Interest { addrs: true, route_tables, rules: true, neighbours: Neighbours::All };
    let mut net = HostNet::open(interest).expect("rtnetlink");
    let clock = Clock::new();
    let mut seen = 0;
    loop {
        let turn = net.turn(clock.now(), 1000).expect("turn");
        let t = net.tables();
        if t.total_seq() != seen && net.is_synced() {
            seen = t.total_seq();
            let seqs = [Kind::Links, Kind::Addrs, Kind::Routes, Kind::Rules, Kind::Neighbours].map(|k| t.seq(k));
            println!(
                "links {} addrs {} routes {} rules {} neighbours {}; sequences {seqs:?}; {:?}",
                t.links.len(),
                t.addrs.len(),
                t.routes.len(),
                t.rules.len(),
                t.neighs.len(),
                net.stats()
            );
        }
        if !turn.more {
            let wait = turn.wake_at.map(|w| Duration::from(w.saturating_sub(clock.now())));
            let wait = wait.map(|w| Timespec { tv_sec: w.as_secs() as i64, tv_nsec: w.subsec_nanos().into() });
            let [a, b] = net.fds();
            let mut fds = [PollFd::from_borrowed_fd(a, PollFlags::IN), PollFd::from_borrowed_fd(b, PollFlags::IN)];
            let _ = poll(&mut fds, wait.as_ref());
        }
    }
}
