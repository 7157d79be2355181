//! What the program says without starting a switch, and how it refuses to start one.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

fn run(name: &str, args: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let mut c = Command::new(env!("CARGO_BIN_EXE_ferroviad"));
    c.arg0(name).args(args).env("OVS_RUNDIR", dir.path()).env("OVS_LOGDIR", dir.path()).env("OVS_DBDIR", dir.path());
    c.env("OVS_SYSLOG_METHOD", "null").output().unwrap()
}

#[test]
fn version_and_help_under_either_name() {
    for name in ["ferroviad", "/usr/sbin/ovs-vswitchd"] {
        let o = run(name, &["--version"]);
        let text = String::from_utf8(o.stdout).unwrap();
        assert!(o.status.success() && o.stderr.is_empty());
        assert_eq!(text.lines().next(), Some("ovs-vswitchd (Open vSwitch) 3.7.1"));
        assert!(text.lines().nth(1).unwrap().starts_with("Ferrovia "));
        let o = run(name, &["-h"]);
        let text = String::from_utf8(o.stdout).unwrap();
        assert!(o.status.success() && text.contains("--embedded-db"));
        assert!(text.lines().all(|l| l.len() <= 80), "lines fit a terminal");
    }
}

#[test]
fn refusals_are_one_line_on_stderr() {
    let check = |args: &[&str], expected: &str| {
        let o = run("ferroviad", args);
        assert_eq!(o.status.code(), Some(1), "{args:?}");
        assert_eq!(String::from_utf8_lossy(&o.stderr), format!("ovs-vswitchd: {expected}\n"), "{args:?}");
        assert!(o.stdout.is_empty());
    };
    check(&["--foo"], "unrecognized option '--foo'");
    check(&["-vfoo"], "processing \"foo\": no destination, level, or module \"foo\"");
    check(&["-vPATTERN:foo:x"], "processing \"PATTERN:foo:x\": unknown destination \"foo\"");
    check(&["--syslog-method=foo"], "unsupported syslog method 'foo'");
    check(&["a", "b"], "at most one non-option argument accepted; use --help for usage");
    check(&["--enable-dummy=x"], "x: unknown dummy level");
    check(&["--dpdk"], "Using --dpdk to configure DPDK is not supported.");
    check(&["--user=no-such-user"], "user no-such-user: no such entry");
    let path = "/nonexistent/p";
    let o = run("ferroviad", &["--pidfile=/nonexistent/p", "--detach"]);
    let text = String::from_utf8_lossy(&o.stderr).into_owned();
    assert!(!o.status.success() && text.contains(path) && text.contains("No such file or directory"), "{text}");
}

/// Every option of the table is explained.
#[test]
fn help_names_every_option() {
    let help = String::from_utf8(run("ferroviad", &["--help"]).stdout).unwrap();
    let source = include_str!("../src/options.rs");
    let table = source.split("const OPTIONS").nth(1).unwrap().split("];").next().unwrap();
    let names: Vec<&str> = table.lines().filter_map(|l| l.trim().strip_prefix("(\"")?.split('"').next()).collect();
    assert!(names.len() > 25);
    for n in names {
        assert!(help.contains(&format!("--{n}")), "--{n}");
    }
}
