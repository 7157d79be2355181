//! Daemon processes. This program runs itself in the role of the daemon: `run DIR WHAT OPTIONS`.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::time::{Duration, Instant};

use fv_core::Clock;
use fv_rpc::daemon::{Daemon, Options, Signals, become_user};
use fv_rpc::{Poller, unixctl, vlog};

const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_some_and(|a| a == "run") {
        return daemon(Path::new(&args[2]), &args[3], &args[4..]);
    }
    let tests: &[(&str, fn(&Path))] = &[
        ("detach returns when ready, with the child's status", detach),
        ("the pidfile is locked as the control tools expect", pidfile),
        ("the monitor restarts what crashes and nothing else", monitor),
        ("another user keeps the rights on networks", user),
    ];
    for (name, test) in tests {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        println!("test {name} ...");
        test(dir.path());
    }
    ExitCode::SUCCESS
}

/// The daemon: serves its control socket until a signal or `exit`.
fn daemon(dir: &Path, what: &str, args: &[String]) -> ExitCode {
    let clock = Clock::new();
    vlog::init("d", &clock);
    vlog::set_thread_label("");
    vlog::open_file(&dir.join("d.log")).unwrap();
    let has = |o: &str| args.iter().any(|a| a == o);
    let options = Options {
        detach: has("--detach"),
        no_chdir: has("--no-chdir"),
        pidfile: has("--pidfile").then(|| dir.join("d.pid")),
        overwrite_pidfile: has("--overwrite-pidfile"),
        monitor: has("--monitor"),
    };
    if what == "nobody" {
        become_user("nobody", false).unwrap();
    }
    let mut process = match Daemon::start(&options) {
        Ok(p) => p,
        Err(e) => {
            eprintln!("{e}");
            return ExitCode::FAILURE;
        }
    };
    if what == "fail" {
        return ExitCode::from(7);
    }
    let mut signals = Signals::new().unwrap();
    let mut server = unixctl::Server::open(&dir.join("d.ctl")).unwrap();
    let mut poller = Poller::new().unwrap();
    process.ready();
    while !signals.turn() {
        for r in server.turn(clock.now()) {
            let cwd = std::env::current_dir().unwrap().display().to_string();
            let status = || fs::read_to_string("/proc/self/status").unwrap();
            let reply = match r.command.as_str() {
                "pid" => std::process::id().to_string(),
                "cwd" => cwd,
                "status" => status(),
                "abort" => std::process::abort(),
                "exit" => return ExitCode::from(3),
                c => panic!("{c}"),
            };
            server.reply(r.token, Ok(reply));
        }
        server.want(&mut poller, clock.now());
        signals.want(&mut poller);
        poller.wait(None, &clock).unwrap();
    }
    ExitCode::SUCCESS
}

fn run(dir: &Path, what: &str, options: &[&str]) -> Output {
    let mut c = Command::new(std::env::current_exe().unwrap());
    c.arg("run").arg(dir).arg(what).args(options).current_dir(dir).process_group(0).output().unwrap()
}

fn ask(dir: &Path, command: &str) -> String {
    let answer = unixctl::call(&dir.join("d.ctl"), command, &[], fv_core::Nanos::from_secs(10));
    answer.unwrap().unwrap().trim().to_string()
}

fn wait_for(what: &str, mut f: impl FnMut() -> bool) {
    let start = Instant::now();
    while !f() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn kill(pid: &str, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

fn pid_path(dir: &Path) -> PathBuf {
    dir.join("d.pid")
}

fn detach(dir: &Path) {
    let o = run(dir, "serve", &["--detach"]);
    assert!(o.status.success() && o.stdout.is_empty(), "{o:?}");
    assert_eq!(ask(dir, "cwd"), "/");
    // A hang-up opens the log again, a termination ends it.
    let pid = ask(dir, "pid");
    fs::rename(dir.join("d.log"), dir.join("old.log")).unwrap();
    kill(&pid, rustix::process::Signal::HUP);
    wait_for("no new log", || dir.join("d.log").exists());
    kill(&pid, rustix::process::Signal::TERM);
    wait_for("the socket stays", || !dir.join("d.ctl").exists());

    assert_eq!(run(dir, "fail", &["--detach"]).status.code(), Some(7));
    assert_eq!(run(dir, "fail", &["--detach", "--monitor"]).status.code(), Some(7));
}

fn pidfile(dir: &Path) {
    fs::write(pid_path(dir), "1\n").unwrap();
    assert!(run(dir, "serve", &["--detach", "--no-chdir", "--pidfile"]).status.success());
    let pid = ask(dir, "pid");
    assert_eq!(fs::read_to_string(pid_path(dir)).unwrap(), format!("{pid}\n"));
    assert_eq!(Path::new(&ask(dir, "cwd")), dir);

    let o = run(dir, "serve", &["--pidfile"]);
    let expected = format!("{}: already running as pid {pid}, aborting", pid_path(dir).display());
    assert!(!o.status.success() && String::from_utf8_lossy(&o.stderr).contains(&expected), "{o:?}");

    // Debian's client looks the lock up, then the socket by pid.
    fs::hard_link(dir.join("d.ctl"), dir.join(format!("d.{pid}.ctl"))).unwrap();
    let o = Command::new("ovs-appctl").env("OVS_RUNDIR", dir).args(["-t", "d", "pid"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&o.stdout).trim(), pid, "{o:?}");

    assert!(run(dir, "serve", &["--detach", "--pidfile", "--overwrite-pidfile"]).status.success());
    let second = ask(dir, "pid");
    assert_ne!(second, pid);
    kill(&pid, rustix::process::Signal::TERM);
    wait_for("the first stays", || !Path::new(&format!("/proc/{pid}/exe")).exists());
    assert!(pid_path(dir).exists(), "the pidfile of the second is not the first's to remove");
    kill(&second, rustix::process::Signal::TERM);
    wait_for("the pidfile stays", || !pid_path(dir).exists());
}

fn monitor(dir: &Path) {
    assert!(run(dir, "serve", &["--detach", "--pidfile", "--monitor"]).status.success());
    let pid = ask(dir, "pid");
    let status = ask(dir, "status");
    let parent = status.lines().find_map(|l| l.strip_prefix("PPid:")).unwrap().trim().to_string();
    let title = fs::read_to_string(format!("/proc/{parent}/cmdline")).unwrap();
    assert!(title.contains(&format!("monitoring pid {pid} (healthy)")), "{title}");
    let command_line = |pid: &str| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    let first_line = command_line(&pid);
    assert!(unixctl::call(&dir.join("d.ctl"), "abort", &[], fv_core::Nanos::from_secs(5)).is_err());
    wait_for("no restart", || fs::read_to_string(pid_path(dir)).is_ok_and(|p| p.trim() != pid));
    wait_for("no control socket", || {
        unixctl::call(&dir.join("d.ctl"), "pid", &[], fv_core::Nanos::from_secs(5)).is_ok()
    });
    let log = || fs::read_to_string(dir.join("d.log")).unwrap();
    let crash = format!("daemon_unix(monitor)|ERR|1 crashes: pid {pid} died, killed (Aborted)");
    assert!(log().contains(&crash), "{}", log());
    let second = ask(dir, "pid");
    let whole = |l: &str| l.trim_end_matches('\0').to_string();
    assert_eq!(whole(&command_line(&second)), whole(&first_line), "a new one does not look like its monitor");
    let _ = unixctl::call(&dir.join("d.ctl"), "exit", &[], fv_core::Nanos::from_secs(5));
    wait_for("it goes on", || log().contains(&format!("pid {second} died, exit status 3, exiting")));
}

fn user(dir: &Path) {
    if !rustix::process::getuid().is_root() {
        return;
    }
    assert!(run(dir, "nobody", &["--detach"]).status.success());
    let status = ask(dir, "status");
    let line = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).unwrap().trim().to_string();
    assert!(!line("Uid:").contains('\t') || line("Uid:").split('\t').all(|u| u != "0"), "{status}");
    let caps = u64::from_str_radix(&line("CapEff:"), 16).unwrap();
    let expected = [10, 11, 12, 13, 14, 23].iter().map(|c| 1u64 << c).sum::<u64>();
    assert_eq!(caps, expected);
    kill(&ask(dir, "pid"), rustix::process::Signal::TERM);
    wait_for("it stays", || !dir.join("d.ctl").exists());
}
