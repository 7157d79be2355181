//! Signals as readable input of the main loop.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::poll::{Interest, Poller, SourceId};
use crate::{sys, vlog};

/// SIGTERM, SIGINT, SIGHUP. Make it before any other thread exists: they inherit the mask, so
/// that only this sees the signals.
pub struct Signals {
    fd: OwnedFd,
    source: SourceId,
    terminate: bool,
}

impl Signals {
    pub fn new() -> io::Result<Signals> {
        let fd = sys::signal_fd(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP])?;
        Ok(Signals { fd, source: SourceId::fresh(), terminate: false })
    }

    /// True once the process was asked to end. A hang-up opens the log file again.
    pub fn turn(&mut self) -> bool {
        while let Some(signal) = sys::read_signal(&self.fd) {
            match signal {
                libc::SIGHUP => {
                    let _ = vlog::reopen_file();
                }
                _ => self.terminate = true,
            }
        }
        self.terminate
    }

    pub fn want(&self, poller: &mut Poller) {
        if self.terminate {
            poller.wake_now();
        } else {
            poller.want(self.source, self.fd.as_fd(), Interest::READ);
        }
    }
}
