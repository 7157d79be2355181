//! Runs programs to their end, within a limit and until a signal arrives.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use fv_rpc::daemon::Signals;

/// Pause between two looks at a program.
const STEP: Duration = Duration::from_millis(20);

/// The user wants an end.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Prints, runs and waits; each of the three fails when the user interrupts.
pub struct Runner {
    signals: RefCell<Signals>,
}

impl Runner {
    pub fn new() -> Result<Runner> {
        Ok(Runner { signals: RefCell::new(Signals::new().context("cannot receive signals")?) })
    }

    pub fn say(&self, text: &str) -> Result<()> {
        self.check()?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{text}").and_then(|()| out.flush()).context("cannot print")
    }

    /// An error once a signal has arrived.
    pub fn check(&self) -> Result<()> {
        if self.signals.borrow_mut().turn() { Err(Interrupted.into()) } else { Ok(()) }
    }

    /// Waits until `f` gives a value; None after `limit`.
    pub fn wait<T>(&self, limit: Duration, mut f: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
        let end = Instant::now() + limit;
        loop {
            self.check()?;
            if let Some(v) = f()? {
                return Ok(Some(v));
            }
            if Instant::now() >= end {
                return Ok(None);
            }
            std::thread::sleep(STEP);
        }
    }

    /// Runs a program; its output if it succeeds within `limit`, else an error that quotes it.
    pub fn run(&self, program: &str, args: &[&str], rundir: &Path, limit: Duration) -> Result<String> {
        let shown = format!("{program} {}", args.join(" "));
        let mut c = command(program, args, rundir);
        c.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Background(c.spawn().with_context(|| format!("cannot run {program}"))?);
        // Each output is read by a thread: a full pipe would stop the program.
        let out = reader(child.0.stdout.take());
        let err = reader(child.0.stderr.take());
        let status = self.wait(limit, || Ok(child.0.try_wait()?))?;
        let Some(status) = status else {
            bail!("`{shown}' did not end within {} s", limit.as_secs());
        };
        let text = |h: std::thread::JoinHandle<String>| h.join().unwrap_or_default();
        let (out, err) = (text(out), text(err));
        if !status.success() {
            let said = if err.trim().is_empty() { out } else { err };
            return Err(anyhow!("`{shown}' failed: {}", said.trim()));
        }
        Ok(out)
    }

    pub fn pause(&self, d: Duration) -> Result<()> {
        self.wait(d, || Ok(None::<()>)).map(|_| ())
    }
}

fn reader(stream: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut s) = stream {
            let _ = s.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// A command that finds the demo's switch, not another one on this machine.
pub fn command(program: &str, args: &[&str], rundir: &Path) -> Command {
    let mut c = Command::new(program);
    c.args(args).env("LC_ALL", "C");
    for k in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
        c.env(k, rundir);
    }
    c
}

/// A program that ends when its value is dropped.
pub struct Background(pub Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
