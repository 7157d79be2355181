//! What the demo makes on this machine, and how it goes away again.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::run::{Background, Runner, command};

/// Longest time for the switch to start or to end, and for one `ip` command.
const START: Duration = Duration::from_secs(15);
const END: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_secs(10);
const LOG_LINES: usize = 15;

/// One of the two hosts: a namespace and its end of a veth pair.
#[derive(Clone)]
pub struct Host {
    pub ns: String,
    /// The device in the switch's namespace, which becomes a port.
    pub port: String,
    pub address: &'static str,
}

pub struct Stage {
    pub dir: PathBuf,
    pub hosts: [Host; 2],
    made: Vec<Made>,
    daemon: Option<Background>,
    background: Vec<Background>,
}

/// Something that outlives this process unless it is removed.
enum Made {
    Namespace(String),
    Device(String),
    Dir(PathBuf),
}

impl Stage {
    /// The temporary directory; nothing else yet. Names carry this process's id.
    pub fn new(r: &Runner) -> Result<Stage> {
        r.check()?;
        let id = std::process::id();
        let dir = std::env::temp_dir().join(format!("ferrovia-demo.{id}"));
        std::fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let host = |c, address| Host { ns: format!("fvdemo{id}{c}"), port: format!("fvd{id}{c}"), address };
        let hosts = [host('a', "198.18.0.1"), host('b', "198.18.0.2")];
        Ok(Stage { made: vec![Made::Dir(dir.clone())], dir, hosts, daemon: None, background: Vec::new() })
    }

    /// Starts the switch and waits until it answers.
    pub fn start_switch(&mut self, r: &Runner, daemon: &Path) -> Result<()> {
        let program = daemon.display().to_string();
        let args = ["--embedded-db", "--pidfile", "--log-file", "-vconsole:off", "-vsyslog:off"];
        let output =
            std::fs::File::create(self.dir.join("output")).context("cannot write to the temporary directory")?;
        let child = command(&program, &args, &self.dir)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        self.daemon = Some(Background(child));
        let socket = self.dir.join("db.sock");
        let up = r.wait(START, || {
            if let Some(d) = &mut self.daemon
                && let Some(status) = d.0.try_wait()?
            {
                let said = std::fs::read_to_string(self.dir.join("output")).unwrap_or_default();
                bail!("the switch ended at once ({status}): {}", said.trim());
            }
            Ok((socket.exists() && self.dir.join("ovs-vswitchd.pid").exists()).then_some(()))
        })?;
        if up.is_none() {
            bail!("the switch did not start within {} s", START.as_secs());
        }
        Ok(())
    }

    /// Both namespaces with their pairs. Offload settings stay as the kernel makes them.
    pub fn make_hosts(&mut self, r: &Runner) -> Result<()> {
        for h in self.hosts.clone() {
            self.made.push(Made::Namespace(h.ns.clone()));
            self.ip(r, &["netns", "add", &h.ns])?;
            self.made.push(Made::Device(h.port.clone()));
            self.ip(r, &["link", "add", &h.port, "type", "veth", "peer", "name", "eth0", "netns", &h.ns])?;
            self.ip(r, &["-n", &h.ns, "addr", "add", &format!("{}/24", h.address), "dev", "eth0"])?;
            self.ip(r, &["-n", &h.ns, "link", "set", "eth0", "up"])?;
            self.ip(r, &["link", "set", &h.port, "up"])?;
        }
        Ok(())
    }

    fn ip(&self, r: &Runner, args: &[&str]) -> Result<String> {
        r.run("ip", args, &self.dir, STEP)
    }

    /// Runs a program inside a host.
    pub fn inside(&self, r: &Runner, host: usize, args: &[&str], limit: Duration) -> Result<String> {
        let mut all = vec!["netns", "exec", &self.hosts[host].ns];
        all.extend(args);
        r.run("ip", &all, &self.dir, limit)
    }

    /// Starts a program inside a host with its output in `file` of the directory.
    pub fn inside_background(&mut self, host: usize, args: &[&str], file: &str) -> Result<()> {
        let mut all = vec!["netns", "exec", &self.hosts[host].ns];
        all.extend(args);
        let out = std::fs::File::create(self.dir.join(file)).context("cannot write to the temporary directory")?;
        let child = command("ip", &all, &self.dir)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .context("cannot run ip")?;
        self.background.push(Background(child));
        Ok(())
    }

    pub fn end_background(&mut self) {
        self.background.clear();
    }

    pub fn output(&self, file: &str) -> String {
        std::fs::read_to_string(self.dir.join(file)).unwrap_or_default()
    }

    pub fn log_tail(&self) -> String {
        let log = self.output("ovs-vswitchd.log");
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    /// Removes everything, latest first. Goes on after an error and reports the first.
    pub fn clear(&mut self) -> Result<()> {
        self.background.clear();
        self.end_switch();
        let mut first = Ok(());
        while let Some(m) = self.made.pop() {
            let done = m.remove();
            if first.is_ok() {
                first = done;
            }
        }
        first
    }

    /// Asks the switch to end and remove its devices; a switch that does not is killed.
    fn end_switch(&mut self) {
        let Some(mut d) = self.daemon.take() else { return };
        let _ = command("ovs-appctl", &["--timeout=5", "exit", "--cleanup"], &self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        let end = Instant::now() + END;
        while Instant::now() < end && matches!(d.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Err(e) = self.clear() {
            eprintln!("ferrovia: not removed: {e:#}");
        }
    }
}

impl Made {
    fn remove(&self) -> Result<()> {
        match self {
            Made::Namespace(n) => gone("ip", &["netns", "del", n], Path::new("/run/netns").join(n)),
            Made::Device(n) => gone("ip", &["link", "del", n], Path::new("/sys/class/net").join(n)),
            Made::Dir(d) => std::fs::remove_dir_all(d).with_context(|| format!("cannot remove {}", d.display())),
        }
    }
}

/// Runs a removing command if `path` is there.
fn gone(program: &str, args: &[&str], path: PathBuf) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let o = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    // The device goes with its peer's namespace, which may happen in between.
    if !o.status.success() && path.exists() {
        bail!("`{program} {}' failed: {}", args.join(" "), String::from_utf8_lossy(&o.stderr).trim());
    }
    Ok(())
}
