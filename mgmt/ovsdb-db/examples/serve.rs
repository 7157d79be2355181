//! Serves the switch's database: `serve DATABASE-FILE REMOTE...`. For trying things by hand.

use fv_core::Clock;
use fv_ovsdb_db::log::LogFile;
use fv_ovsdb_db::remote::ServerDriver;
use fv_ovsdb_db::server::{Now, Server};
use fv_rpc::{Poller, Tls};
use std::path::Path;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let clock = Clock::new();
    let schema = fv_ovsdb::vswitch::vswitch_schema();
    let (log, db) = LogFile::open(Path::new(&args[1]), &schema, clock.wall().ms()).unwrap_or_else(|e| panic!("{e}"));
    let mut driver = ServerDriver::new(Server::new(vec![(db, Some(Box::new(log)))]), Tls::default());
    for remote in &args[2..] {
        driver.add_remote(remote, clock.now()).unwrap_or_else(|e| panic!("{e}"));
    }
    let mut poller = Poller::new().unwrap_or_else(|e| panic!("{e}"));
    loop {
        driver.turn(Now::of(&clock));
        driver.want(&mut poller, clock.now());
        if let Err(e) = poller.wait(None, &clock) {
            panic!("{e}");
        }
    }
}
