//! Programs: run to their end within a limit, or kept in the background until dropped.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::wait_value;

/// What a program left behind.
#[derive(Clone, Debug)]
pub struct Out {
    /// Exit status; -1 if a signal ended it.
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Out {
    pub fn ok(&self) -> bool {
        self.status == 0
    }
}

/// Runs `cmd` for at most `secs`; afterwards it is killed and the status is 124 or 137.
pub fn run(cmd: &Command, secs: u64) -> Out {
    let mut c = Command::new("timeout");
    c.args(["-k", "1", &secs.to_string()]).arg(cmd.get_program()).args(cmd.get_args());
    for (k, v) in cmd.get_envs() {
        match v {
            Some(v) => c.env(k, v),
            None => c.env_remove(k),
        };
    }
    if let Some(d) = cmd.get_current_dir() {
        c.current_dir(d);
    }
    let o = c.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("cannot run {cmd:?}: {e}"));
    Out {
        status: o.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&o.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&o.stderr).into_owned(),
    }
}

/// A program in the background. Dropping it kills it and waits for its end.
pub struct Proc {
    child: Child,
    name: String,
}

impl Proc {
    /// Starts `cmd` with its output in files; it dies with the thread that started it.
    pub fn spawn(name: &str, cmd: &Command, stdout: &Path, stderr: &Path) -> Proc {
        let file = |p: &Path| std::fs::File::options().create(true).append(true).open(p).expect("output file");
        let mut c = Command::new("setpriv");
        c.args(["--pdeathsig", "KILL", "--"]).arg(cmd.get_program()).args(cmd.get_args());
        for (k, v) in cmd.get_envs() {
            if let Some(v) = v {
                c.env(k, v);
            }
        }
        if let Some(d) = cmd.get_current_dir() {
            c.current_dir(d);
        }
        c.stdin(Stdio::null()).stdout(file(stdout)).stderr(file(stderr));
        let child = c.spawn().unwrap_or_else(|e| panic!("cannot start {cmd:?}: {e}"));
        Proc { child, name: name.into() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    pub fn signal(&self, s: Signal) {
        signal(self.pid(), s);
    }

    /// kill -9, and waits for the end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The exit status when the program ends within `secs`: Some(-1) if a signal ended it.
    pub fn wait(&mut self, secs: u64) -> Option<i32> {
        wait_value(secs, || self.child.try_wait().ok().flatten()).map(|s| s.code().unwrap_or(-1))
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a signal to one process; one that is gone is fine.
pub fn signal(pid: u32, s: Signal) {
    if let Some(p) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(p, s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_within_its_limit() {
        let o = run(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]), 5);
        assert_eq!((o.status, o.stdout.as_str(), o.stderr.as_str()), (3, "out\n", "err\n"));
        assert_eq!(run(Command::new("sleep").arg("9"), 1).status, 124);
    }

    #[test]
    fn a_dropped_program_is_gone() {
        let null = Path::new("/dev/null");
        let p = Proc::spawn("s", Command::new("sleep").arg("99"), null, null);
        let path = format!("/proc/{}", p.pid());
        assert!(Path::new(&path).exists());
        drop(p);
        assert!(!Path::new(&path).exists());
    }
}
