//! Processes that wait for the one that works.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};

use super::{Error, Options, text};
use crate::sys::{self, Fork, Status};
use crate::vlog;

/// Signals of a crash: the monitor restarts what died of them.
const CRASHES: &[i32] = &[
    libc::SIGABRT,
    libc::SIGALRM,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGPIPE,
    libc::SIGSEGV,
    libc::SIGXCPU,
    libc::SIGXFSZ,
];
/// Restarts come no faster than this.
const RESTART_INTERVAL: Duration = Duration::from_secs(10);

/// Goes to the background. Returns in the child, with what `notify` takes; the parent exits
/// when the child is ready, or with the child's status.
pub fn detach() -> Result<OwnedFd, Error> {
    let (reader, writer) = pipe()?;
    match sys::fork().map_err(|e| Error::System("fork", text(e)))? {
        Fork::Child => {
            drop(reader);
            let _ = rustix::process::setsid();
            Ok(writer)
        }
        Fork::Parent(pid) => {
            drop(writer);
            if wait_ready(reader) {
                std::process::exit(0);
            }
            let code = match sys::wait(pid) {
                Ok(s) if s.code == Some(0) => {
                    eprintln!("child exited before it was ready");
                    1
                }
                Ok(s) => {
                    if s.signal.is_some() {
                        eprintln!("child died before it was ready ({})", describe(&s));
                    }
                    s.code.unwrap_or(1)
                }
                Err(_) => 1,
            };
            std::process::exit(code);
        }
    }
}

/// Splits off the process that works and watches it. Returns in that process, also in each
/// new one after a crash.
pub fn monitor(upwards: Option<OwnedFd>, options: &Options) -> Result<OwnedFd, Error> {
    let mut upwards = upwards;
    let command_line = sys::command_line();
    let mut crashes = 0u32;
    let mut health = "healthy".to_string();
    let mut started = Instant::now();
    loop {
        let (reader, writer) = pipe()?;
        let pid = match sys::fork().map_err(|e| Error::System("fork", text(e)))? {
            Fork::Child => {
                // This may be a copy of a monitor that has been at work.
                sys::set_command_line(&command_line);
                vlog::set_thread_label("");
                return Ok(writer);
            }
            Fork::Parent(pid) => pid,
        };
        drop(writer);
        vlog::set_thread_label("monitor");
        if wait_ready(reader)
            && let Some(fd) = upwards.take()
        {
            notify(fd);
            super::leave_terminal(options);
        }
        let program = command_line.split(|b| *b == 0).next().unwrap_or_default();
        let program = String::from_utf8_lossy(program.rsplit(|b| *b == b'/').next().unwrap_or_default());
        sys::set_command_line(format!("{program}: monitoring pid {pid} ({health})").as_bytes());
        let status = match sys::wait(pid) {
            Ok(s) => s,
            Err(e) => return Err(Error::System("waitpid", text(e))),
        };
        if !status.signal.is_some_and(|s| CRASHES.contains(&s)) {
            log::info!(target: "daemon_unix", "pid {pid} died, {}, exiting", describe(&status));
            std::process::exit(status.code.unwrap_or(1));
        }
        crashes += 1;
        health = format!("{crashes} crashes: pid {pid} died, {}", describe(&status));
        log::error!(target: "daemon_unix", "{health}, restarting");
        let since = started.elapsed();
        if since < RESTART_INTERVAL {
            log::info!(
                target: "daemon_unix",
                "waiting until {} seconds since last restart",
                RESTART_INTERVAL.as_secs()
            );
            std::thread::sleep(RESTART_INTERVAL - since);
        }
        started = Instant::now();
    }
}

/// Tells the process at the other end that we are ready.
pub fn notify(fd: OwnedFd) {
    let _ = std::fs::File::from(fd).write_all(&[0]);
}

fn pipe() -> Result<(OwnedFd, OwnedFd), Error> {
    pipe_with(PipeFlags::CLOEXEC).map_err(|e| Error::System("pipe", text(e)))
}

/// False if the other end died without a word.
fn wait_ready(fd: OwnedFd) -> bool {
    let mut f = std::fs::File::from(fd);
    f.read_exact(&mut [0]).is_ok()
}

fn describe(s: &Status) -> String {
    let core = if s.core { ", core dumped" } else { "" };
    match (s.code, s.signal) {
        (Some(c), _) => format!("exit status {c}"),
        (_, Some(n)) => format!("killed ({}){core}", sys::signal_name(n)),
        _ => "terminated abnormally".into(),
    }
}
