//! Finds the daemon and talks to its control socket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, anyhow};
use fv_core::Nanos;
use fv_rpc::unixctl::{self, CallError};

use crate::cli::Target;

/// Name of the daemon's runtime files, whatever the program is called.
const PROGRAM: &str = "ovs-vswitchd";
const DEFAULT_RUNDIR: &str = "/var/run/openvswitch";
/// Exit statuses beside success and failure.
pub const EXIT_SICK: u8 = 2;
pub const EXIT_ABSENT: u8 = 3;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no daemon: {0}")]
    Absent(String),
    #[error("the daemon does not answer: {0}")]
    Silent(#[from] CallError),
    #[error("{0}")]
    Refused(String),
}

impl Error {
    pub fn exit_status(&self) -> u8 {
        match self {
            Error::Absent(_) => EXIT_ABSENT,
            Error::Silent(_) | Error::Refused(_) => EXIT_SICK,
        }
    }
}

/// A daemon whose socket is known.
pub struct Daemon {
    pub socket: PathBuf,
    /// None if the socket was given by its path.
    pub pid: Option<u32>,
    timeout: Nanos,
}

impl Daemon {
    /// By `--target`, else by the pidfile in the runtime directory.
    pub fn find(target: &Target) -> Result<Daemon, Error> {
        let rundir = std::env::var_os("OVS_RUNDIR").map_or_else(|| PathBuf::from(DEFAULT_RUNDIR), PathBuf::from);
        Daemon::find_in(&rundir, target)
    }

    fn find_in(rundir: &Path, target: &Target) -> Result<Daemon, Error> {
        let timeout = Nanos::from(Duration::from_secs(target.timeout));
        let pid = match target.target.as_deref() {
            Some(t) => match t.parse() {
                Ok(pid) => pid,
                Err(_) => return Ok(Daemon { socket: rundir.join(t), pid: None, timeout }),
            },
            None => pid_from(&rundir.join(format!("{PROGRAM}.pid")))?,
        };
        if !Path::new(&format!("/proc/{pid}")).exists() {
            return Err(Error::Absent(format!("process {pid} is gone; start ferroviad again")));
        }
        Ok(Daemon { socket: unixctl::default_path(rundir, PROGRAM, pid), pid: Some(pid), timeout })
    }

    #[cfg(test)]
    pub fn at(socket: PathBuf, pid: u32, timeout: Duration) -> Daemon {
        Daemon { socket, pid: Some(pid), timeout: Nanos::from(timeout) }
    }

    /// Runs a command; an error of the command is `Refused`.
    pub fn call(&self, command: &str, args: &[&str]) -> Result<String, Error> {
        unixctl::call(&self.socket, command, args, self.timeout)?.map_err(Error::Refused)
    }

    /// Like `call`; None if the daemon has no such command.
    pub fn call_if_offered(&self, command: &str, args: &[&str]) -> Result<Option<String>, Error> {
        match self.call(command, args) {
            Err(Error::Refused(e)) if e.contains("is not a valid command") => Ok(None),
            r => r.map(Some),
        }
    }
}

fn pid_from(file: &Path) -> Result<u32, Error> {
    let hint = "is ferroviad running? (OVS_RUNDIR or --target tell where)";
    let text = std::fs::read_to_string(file).map_err(|e| Error::Absent(format!("{}: {e}; {hint}", file.display())))?;
    text.trim().parse().map_err(|_| Error::Absent(format!("{}: no process id in it", file.display())))
}

/// For commands that only work with an answer: the exit status goes with the message.
pub fn fail(e: &Error) -> std::process::ExitCode {
    eprintln!("ferrovia: {}", anyhow!("{e}"));
    std::process::ExitCode::from(e.exit_status())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(t: Option<&str>) -> Target {
        Target { target: t.map(Into::into), timeout: 1 }
    }

    #[test]
    fn tells_apart_what_is_missing() {
        let dir = std::env::temp_dir().join(format!("fvsock{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let absent = |t| matches!(Daemon::find_in(&dir, &target(t)), Err(Error::Absent(_)));
        assert!(absent(None));
        std::fs::write(dir.join("ovs-vswitchd.pid"), "nonsense\n").unwrap();
        assert!(absent(None));
        assert!(absent(Some("999999999")));
        std::fs::write(dir.join("ovs-vswitchd.pid"), format!("{}\n", std::process::id())).unwrap();
        let d = Daemon::find_in(&dir, &target(None)).unwrap();
        assert_eq!(d.socket, dir.join(format!("ovs-vswitchd.{}.ctl", std::process::id())));
        assert!(matches!(d.call("version", &[]), Err(Error::Silent(_))));
        let d = Daemon::find_in(&dir, &target(Some("x.ctl"))).unwrap();
        assert_eq!((d.socket, d.pid), (dir.join("x.ctl"), None));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
