//! A private place for one switch: directories, database server, daemon, and the programs that talk to them.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::proc::signal;
use crate::{LogCheck, Out, Proc, run, wait_value, words};

/// Debian's daemon.
pub const REFERENCE: &str = "/usr/lib/openvswitch-switch/ovs-vswitchd";
/// Debian's database server and schema.
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Longest time for a daemon to answer, or to end.
const START_SECS: u64 = 30;
const PROGRAM_SECS: u64 = 40;
/// Lines of the log that are shown when a test fails.
const LOG_TAIL: usize = 40;

/// Which daemon, by what path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Daemon {
    /// The one built here: `$FERROVIAD`, or beside the test (release first, then debug).
    Ours,
    Reference,
}

impl Daemon {
    pub fn path(&self) -> PathBuf {
        match self {
            Daemon::Reference => REFERENCE.into(),
            Daemon::Ours => built("ferroviad"),
        }
    }
}

/// A binary of this build: by a variable of its name in capitals, or where tests lie, in
/// TARGET/PROFILE/deps.
pub fn built(name: &str) -> PathBuf {
    if let Some(p) = std::env::var_os(name.to_uppercase()) {
        return p.into();
    }
    let exe = std::env::current_exe().expect("path of the test");
    let target = exe.ancestors().nth(3).expect("target directory");
    let found = ["release", "debug"].iter().map(|p| target.join(p).join(name)).find(|p| p.exists());
    found.unwrap_or_else(|| panic!("{name} is not built: cargo build --release --bin {name}"))
}

/// Directories and processes of one switch.
pub struct Env {
    procs: Vec<Proc>,
    dir: TempDir,
}

impl Env {
    /// An empty place: no database, no daemon.
    pub fn new() -> Env {
        let dir = tempfile::Builder::new().prefix("fv").tempdir().expect("temporary directory");
        // Programs that change their user must still get here.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path(), mode).expect("mode of the directory");
        Env { procs: Vec::new(), dir }
    }

    /// Debian's database server, and `daemon` in the dummy world.
    #[track_caller]
    pub fn dummy(daemon: Daemon) -> Env {
        let mut e = Env::new();
        e.start_db();
        e.start(daemon, DUMMY_ARGS);
        e
    }

    /// Debian's database server and our daemon with the system's devices.
    #[track_caller]
    pub fn system() -> Env {
        let mut e = Env::new();
        e.start_db();
        e.start(Daemon::Ours, "");
        e
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `name` inside the directory, as text.
    pub fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// A command with the directories of this place.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>, line: &str) -> Command {
        let mut c = Command::new(program);
        c.args(words(line)).current_dir(self.dir());
        for k in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            c.env(k, self.dir());
        }
        c.env("OVS_SYSLOG_METHOD", "null").env("LC_ALL", "C");
        c
    }

    pub fn run(&self, program: &str, line: &str) -> Out {
        run(&self.command(program, line), PROGRAM_SECS)
    }

    /// Like `run`; panics unless the program ends with status 0.
    #[track_caller]
    pub fn must(&self, program: &str, line: &str) -> String {
        self.must_within(program, line, PROGRAM_SECS)
    }

    /// Like `must`, for a program that may take `secs`.
    #[track_caller]
    pub fn must_within(&self, program: &str, line: &str, secs: u64) -> String {
        let o = run(&self.command(program, line), secs);
        assert!(o.ok(), "{program} {line}: status {}\n{}{}", o.status, o.stdout, o.stderr);
        o.stdout
    }

    #[track_caller]
    pub fn vsctl(&self, line: &str) -> String {
        self.must("ovs-vsctl", &format!("--timeout=25 {line}"))
    }

    #[track_caller]
    pub fn ofctl(&self, line: &str) -> String {
        self.must("ovs-ofctl", &format!("--timeout=25 {line}"))
    }

    #[track_caller]
    pub fn appctl(&self, line: &str) -> String {
        self.must("ovs-appctl", &format!("--timeout=25 {line}"))
    }

    /// One value of the database without quotes around it.
    #[track_caller]
    pub fn value(&self, table: &str, record: &str, column: &str) -> String {
        self.vsctl(&format!("get {table} {record} {column}")).trim().trim_matches('"').to_string()
    }

    /// Starts a program in the background; it ends with this place.
    pub fn spawn(&mut self, name: &str, cmd: &Command) -> &mut Proc {
        let out = self.path(&format!("{name}.out"));
        let p = Proc::spawn(name, cmd, &out, &self.path(&format!("{name}.err")));
        self.procs.push(p);
        self.procs.last_mut().expect("just pushed")
    }

    /// The latest background program of that name.
    #[track_caller]
    pub fn proc(&mut self, name: &str) -> &mut Proc {
        self.procs.iter_mut().rev().find(|p| p.name() == name).unwrap_or_else(|| panic!("{name} was not started"))
    }

    /// Forgets and ends the background program of that name.
    pub fn stop(&mut self, name: &str) {
        if let Some(at) = self.procs.iter().rposition(|p| p.name() == name) {
            self.procs.remove(at);
        }
    }

    /// Makes `conf.db` unless it is there, and starts Debian's database server on it.
    #[track_caller]
    pub fn start_db(&mut self) {
        let fresh = !self.path("conf.db").exists();
        if fresh {
            self.must("ovsdb-tool", &format!("create conf.db {SCHEMA}"));
        }
        let remotes = "--remote=punix:db.sock --remote=db:Open_vSwitch,Open_vSwitch,manager_options";
        let tls = "--private-key=db:Open_vSwitch,SSL,private_key --certificate=db:Open_vSwitch,SSL,certificate \
                   --ca-cert=db:Open_vSwitch,SSL,ca_cert";
        let cmd = self.command("ovsdb-server", &format!("conf.db {remotes} {tls} --pidfile --log-file -vconsole:off"));
        self.spawn("ovsdb-server", &cmd);
        self.wait_answer("ovsdb-server", "ovsdb-server");
        if fresh {
            self.vsctl("--no-wait init");
        }
    }

    /// Starts `daemon` in the foreground of a background process, and waits until it answers commands.
    #[track_caller]
    pub fn start(&mut self, daemon: Daemon, args: &str) {
        let db = format!("unix:{}", self.file("db.sock"));
        self.start_args(daemon, &format!("{db} {args}"));
    }

    /// Our daemon without DATABASE: it serves `conf.db` itself.
    #[track_caller]
    pub fn start_embedded(&mut self, args: &str) {
        self.start_args(Daemon::Ours, args);
        let there = wait_value(START_SECS, || self.path("db.sock").exists().then_some(()));
        assert!(there.is_some(), "no db.sock");
    }

    #[track_caller]
    fn start_args(&mut self, daemon: Daemon, args: &str) {
        let line = format!("--pidfile --log-file {args} -vconsole:off");
        let cmd = self.command(daemon.path(), &line);
        self.spawn("daemon", &cmd);
        self.wait_answer("daemon", "ovs-vswitchd");
    }

    #[track_caller]
    fn wait_answer(&mut self, name: &str, target: &str) {
        let ready = wait_value(START_SECS, || {
            if !self.proc(name).running() {
                return Some(false);
            }
            let o = self.run("ovs-appctl", &format!("--timeout=5 -t {target} version"));
            o.ok().then_some(true)
        });
        if ready != Some(true) {
            let err = std::fs::read_to_string(self.path(&format!("{name}.err"))).unwrap_or_default();
            panic!("{name} does not answer\n{err}\n{}", self.log_tail());
        }
    }

    pub fn daemon_pid(&self) -> u32 {
        let text = std::fs::read_to_string(self.path("ovs-vswitchd.pid")).unwrap_or_default();
        text.trim().parse().expect("pid of the daemon")
    }

    /// User and system time of the daemon so far, in clock ticks (10 ms).
    pub fn daemon_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.daemon_pid())).expect("stat of the daemon");
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        after_name.split_whitespace().skip(11).take(2).filter_map(|x| x.parse::<u64>().ok()).sum()
    }

    /// Resident memory of the daemon in KiB.
    pub fn daemon_rss_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.daemon_pid())).expect("status");
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("VmRSS");
        line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("ovs-vswitchd.log")).unwrap_or_default()
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL)..].join("\n")
    }

    /// The daemon is still alive and logged nothing unexpected; lines with one of `allowed` are fine.
    #[track_caller]
    pub fn healthy(&mut self, allowed: &[&str]) {
        assert!(self.proc("daemon").running(), "the daemon is gone\n{}", self.log_tail());
        let log = self.log();
        allowed.iter().fold(LogCheck::new(&log), |c, a| c.allow(a)).check();
        let err = std::fs::read_to_string(self.path("daemon.err")).unwrap_or_default();
        assert!(!err.contains("panicked"), "{err}");
    }

    /// A bridge of dummy ports p1..pN with OpenFlow ports 1..N, without rules of its own.
    #[track_caller]
    pub fn add_dummy_bridge(&self, bridge: &str, ports: std::ops::RangeInclusive<u32>) {
        let mut line = format!(
            "add-br {bridge} -- set bridge {bridge} datapath-type=dummy fail-mode=secure \
             protocols=OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15"
        );
        for n in ports {
            line += &format!(" -- add-port {bridge} p{n} -- set Interface p{n} type=dummy ofport_request={n}");
        }
        self.vsctl(&line);
    }
}

/// Arguments of the dummy world.
const DUMMY_ARGS: &str = "--enable-dummy --disable-system --disable-system-route -vvconn -vofproto_dpif -vunixctl";

impl Default for Env {
    fn default() -> Env {
        Env::new()
    }
}

impl Drop for Env {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let err = std::fs::read_to_string(self.path("daemon.err")).unwrap_or_default();
            eprintln!("--- daemon.err\n{err}--- end of ovs-vswitchd.log\n{}\n---", self.log_tail());
        }
        while let Some(p) = self.procs.pop() {
            drop(p);
        }
        kill_detached(self.dir());
    }
}

/// Ends daemons that went to the background: those whose pidfile is here and whose environment names this place.
fn kill_detached(dir: &Path) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for path in entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|x| x == "pid")) {
        let Some(pid) = std::fs::read_to_string(&path).ok().and_then(|t| t.trim().parse::<u32>().ok()) else {
            continue;
        };
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mine = format!("OVS_RUNDIR={}", dir.display());
        if environ.split(|b| *b == 0).any(|v| v == mine.as_bytes()) {
            signal(pid, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_runs_here() {
        let mut e = Env::dummy(Daemon::Reference);
        e.add_dummy_bridge("br0", 1..=2);
        assert_eq!(e.value("Interface", "p2", "ofport"), "2");
        assert!(e.appctl("dpif/show").contains("p1 1/1: (dummy)"), "{}", e.appctl("dpif/show"));
        e.healthy(&["dpdk"]);
    }
}
