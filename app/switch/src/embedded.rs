//! Which database: a server's, or our own on a thread of its own.
//!
//! Without being told, the switch looks for a server that answers at the usual socket, or that holds
//! the database file; only if there is neither does it serve the file itself.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use fv_core::Clock;
use fv_ovsdb::vswitch::vswitch_schema;
use fv_ovsdb_db::log::{self, LogFile};
use fv_ovsdb_db::remote::ServerDriver;
use fv_ovsdb_db::server::{Now, Server};
use fv_rpc::{Poller, Tls, Waker};

use crate::options::SwitchOptions;
use crate::run::Error;

/// The database server inside this process. Dropping it ends its thread and closes the file.
pub struct Embedded {
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

/// The remote to be a client of, and the server to run for it.
pub fn choose(opts: &SwitchOptions, clock: &Clock, tls: &Tls) -> Result<(String, Option<Embedded>), Error> {
    let socket = opts.rundir.join("db.sock");
    let remote = format!("unix:{}", socket.display());
    if let Some(db) = &opts.database {
        if opts.embedded_db {
            return Err(Error::Start(format!("--embedded-db and a database to connect to ({db}) exclude each other")));
        }
        return Ok((db.clone(), None));
    }
    if opts.always_client && !opts.embedded_db {
        return Ok((remote, None));
    }
    let file = opts.dbdir.join("conf.db");
    let answers = UnixStream::connect(&socket).is_ok();
    let locked = log::is_locked(&file);
    match (opts.embedded_db, answers, locked) {
        (true, true, _) => Err(Error::Start(format!(
            "--embedded-db: a database server answers at {} already; stop it first",
            socket.display()
        ))),
        (true, _, true) => Err(Error::Start(format!("--embedded-db: {} is locked by another process", file.display()))),
        (false, true, _) | (false, _, true) => Ok((remote, None)),
        _ => Ok((remote, Some(Embedded::start(&socket, &file, clock, tls)?))),
    }
}

impl Embedded {
    fn start(socket: &Path, file: &Path, clock: &Clock, tls: &Tls) -> Result<Embedded, Error> {
        for dir in [socket, file].into_iter().filter_map(Path::parent) {
            std::fs::create_dir_all(dir).map_err(|e| Error::Start(format!("cannot create {}: {e}", dir.display())))?;
        }
        let wall_ms = clock.wall().ms();
        let (journal, db) = LogFile::open(file, &vswitch_schema(), wall_ms)
            .map_err(|e| Error::Start(format!("database {}: {e}", file.display())))?;
        ::log::info!(target: "ovsdb_server", "serving {} at {}", file.display(), socket.display());
        let server = Server::new(vec![(db, Some(Box::new(journal)))]);
        let mut driver = ServerDriver::new(server, tls.clone());
        driver.add_remote(&format!("punix:{}", socket.display()), clock.now()).map_err(Error::Start)?;
        let mut poller = Poller::new()?;
        let (stop, waker) = (Arc::new(AtomicBool::new(false)), poller.waker());
        let (s, clock) = (stop.clone(), clock.clone());
        let thread = std::thread::Builder::new().name("ovsdb".into()).spawn(move || {
            let _guard = crate::threads::AbortOnPanic;
            while !s.load(Ordering::Acquire) {
                let now = Now::of(&clock);
                driver.turn(now);
                driver.want(&mut poller, now.mono);
                if let Err(e) = poller.wait(None, &clock) {
                    ::log::error!(target: "ovsdb_server", "cannot wait: {e}");
                    return;
                }
            }
        })?;
        Ok(Embedded { stop, waker, thread: Some(thread) })
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
    }
}
