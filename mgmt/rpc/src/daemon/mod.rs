//! What makes a process a daemon: detaching, the pidfile, the monitor that restarts it, another
//! user, signals.
//!
//! The order for a program: parse options, `become_user`, `Daemon::start` (forks: no threads
//! before it), set up, `Daemon::ready`.

mod fork;
mod pidfile;
mod signals;
mod user;

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

pub use pidfile::Pidfile;
pub use signals::Signals;
pub use user::{become_user, give_file};

/// A process smaller than this keeps what it has.
const TRIM_FROM_BYTES: usize = 32 << 20;

/// After a storm the allocator keeps memory that is free but scattered; this gives it back. It
/// costs milliseconds a hundred megabytes, in which other threads may wait to allocate: for a
/// background thread, twice a minute.
pub fn return_free_memory() {
    if resident_bytes().is_some_and(|n| n >= TRIM_FROM_BYTES) {
        crate::sys::trim_heap();
    }
}

fn resident_bytes() -> Option<usize> {
    let pages: usize = std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size())
}

use crate::vlog::{self, Destination, Level};

/// What the command line says about it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Run in the background; the parent exits when the child is ready.
    pub detach: bool,
    /// Stay in the current directory when detached.
    pub no_chdir: bool,
    pub pidfile: Option<PathBuf>,
    /// Replace the pidfile of a process that runs.
    pub overwrite_pidfile: bool,
    /// Keep a process that restarts this one after a crash.
    pub monitor: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}: already running as pid {1}, aborting")]
    AlreadyRunning(String, i32),
    #[error("{0}: {1} failed ({2})")]
    Pidfile(String, &'static str, String),
    #[error("{0} failed ({1})")]
    System(&'static str, String),
    #[error("{0}")]
    User(String),
}

/// The running daemon. Dropping it removes the pidfile.
pub struct Daemon {
    options: Options,
    /// Whoever waits for us to be ready.
    notify: Option<OwnedFd>,
    _pidfile: Option<Pidfile>,
}

impl Daemon {
    /// Forks as asked. Returns in the process that does the work; the others never return.
    /// There must be no other thread.
    pub fn start(options: &Options) -> Result<Daemon, Error> {
        // Before the forks, so that the error is the caller's.
        if let Some(p) = options.pidfile.as_ref().filter(|_| !options.overwrite_pidfile) {
            pidfile::check(p)?;
        }
        // The runtime's handlers return once from a fault that somebody else sent: then the process
        // would live on, where a monitor, or a script, expects its end.
        [libc::SIGSEGV, libc::SIGBUS].into_iter().for_each(crate::sys::default_signal);
        let mut notify = None;
        if options.detach {
            notify = Some(fork::detach()?);
        }
        if options.monitor {
            notify = Some(fork::monitor(notify, options)?);
        }
        let file = options.pidfile.as_ref().map(|p| Pidfile::create(p, options.overwrite_pidfile)).transpose()?;
        Ok(Daemon { options: options.clone(), notify, _pidfile: file })
    }

    /// The work has begun: lets the waiting parent exit with success, and leaves the terminal.
    pub fn ready(&mut self) {
        if let Some(fd) = self.notify.take() {
            fork::notify(fd);
        }
        if self.options.detach {
            leave_terminal(&self.options);
        }
    }
}

/// Closes the standard streams and the log's console; goes to `/`.
fn leave_terminal(options: &Options) {
    if !options.no_chdir {
        let _ = std::env::set_current_dir("/");
    }
    vlog::set_level(None, Some(Destination::Console), Level::Off);
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        crate::sys::replace_standard_streams(&null);
    }
}

/// Locks the process's memory, present and future, into RAM.
pub fn lock_memory() {
    use rustix::mm::{MlockAllFlags, mlockall};
    if let Err(e) = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE) {
        log::error!(target: "vswitchd", "mlockall failed: {}", text(e));
    }
}

fn text(e: impl Into<io::Error>) -> String {
    crate::stream::errno_text(&e.into())
}

fn display(p: &Path) -> String {
    p.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_memory_between_what_is_in_use_is_returned() {
        let mut all: Vec<Option<Box<[u8; 3000]>>> = (0..40_000).map(|_| Some(Box::new([1; 3000]))).collect();
        let full = resident_bytes().unwrap();
        all.iter_mut().enumerate().filter(|(i, _)| i % 100 != 0).for_each(|(_, b)| *b = None);
        return_free_memory();
        let left = resident_bytes().unwrap();
        assert!(left + (60 << 20) < full, "{full} -> {left}");
    }
}
