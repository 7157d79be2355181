//! The daemon as a process: start, readiness, end.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use fv_testkit::{Daemon, Env, wait_until, wait_value};

const DUMMY: &str = "--enable-dummy --disable-system --disable-system-route";

fn detached(e: &Env, args: &str) -> fv_testkit::Out {
    let line = format!("unix:db.sock {DUMMY} --detach --no-chdir --pidfile --log-file {args}");
    fv_testkit::run(&e.command(Daemon::Ours.path(), &line), 30)
}

fn gone(pid: u32) -> bool {
    // The daemon's parent may be a process that does not collect it: a zombie is gone too.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.rsplit(')').next().is_some_and(|s| s.trim_start().starts_with('Z'))
}

#[test]
fn detach_returns_after_the_first_configuration() {
    let mut e = Env::new();
    e.start_db();
    e.vsctl(
        "--no-wait add-br br0 -- set bridge br0 datapath_type=dummy -- add-port br0 p1 -- set Interface p1 type=dummy",
    );
    let o = detached(&e, "");
    assert!(o.ok(), "{o:?}");
    assert_eq!(o.stdout, "");
    assert!(o.stderr.lines().all(|l| l.contains("|INFO|")), "{}", o.stderr);
    // No wait in between: the configuration is there already.
    let show = e.appctl("dpif/show");
    assert!(show.contains("p1 1/1: (dummy)"), "{show}");
    let pid = e.daemon_pid();
    assert!(e.path(&format!("ovs-vswitchd.{pid}.ctl")).exists());
    for socket in ["br0.mgmt", "br0.snoop"] {
        assert!(std::fs::metadata(e.path(socket)).unwrap().file_type().is_socket(), "{socket}");
    }

    let o = detached(&e, "");
    assert!(!o.ok() && o.stderr.contains("already running"), "a second daemon: {o:?}");
    e.appctl("exit");
    wait_until("the end", 10, || gone(pid));
    assert!(!e.path("ovs-vswitchd.pid").exists());
    assert!(!e.path(&format!("ovs-vswitchd.{pid}.ctl")).exists());
}

#[test]
fn a_signal_ends_it_cleanly() {
    use rustix::process::Signal;
    for signal in [Signal::TERM, Signal::INT] {
        let mut e = Env::dummy(Daemon::Ours);
        e.add_dummy_bridge("br0", 1..=2);
        e.healthy(&[]);
        e.proc("daemon").signal(signal);
        let status = e.proc("daemon").wait(10);
        assert!(status.is_some_and(|s| s == 0 || s == -1), "{status:?}");
        assert!(!e.path("ovs-vswitchd.pid").exists());
        fv_testkit::LogCheck::new(&e.log()).check();
    }
}

#[test]
fn exit_with_cleanup_removes_the_datapath() {
    let mut e = Env::dummy(Daemon::Ours);
    e.add_dummy_bridge("br0", 1..=2);
    e.appctl("exit --cleanup");
    assert_eq!(e.proc("daemon").wait(10), Some(0));
    // It comes back with the same configuration.
    e.start(Daemon::Ours, DUMMY);
    wait_until("the ports again", 10, || e.appctl("dpif/show").contains("p2 2/2: (dummy)"));
}

#[test]
fn version_and_commands() {
    let e = Env::dummy(Daemon::Ours);
    assert_eq!(e.appctl("version"), "ovs-vswitchd (Open vSwitch) 3.7.1\n");
    let list = e.appctl("list-commands");
    assert!(list.starts_with("The available commands are:\n"), "{list}");
    let names: Vec<&str> = list.lines().skip(1).filter_map(|l| l.split_whitespace().next()).collect();
    assert!(names.is_sorted(), "{names:?}");
    for c in COMMANDS {
        assert!(names.contains(c), "no command {c}");
    }
    let o = e.run("ovs-appctl", "no/such");
    assert_eq!(o.status, 2);
    assert!(o.stderr.contains("\"no/such\" is not a valid command"), "{o:?}");
    let o = e.run("ovs-appctl", "fdb/show");
    assert!(o.stderr.contains("\"fdb/show\" command requires at least 1 arguments"), "{o:?}");
    let v = e.run("ovs-appctl", "--version");
    assert!(v.ok());
}

const COMMANDS: &[&str] = &[
    "bridge/dump-flows",
    "bridge/reconnect",
    "coverage/read-counter",
    "coverage/show",
    "dpctl/add-dp",
    "dpctl/add-flow",
    "dpctl/add-if",
    "dpctl/del-dp",
    "dpctl/del-flow",
    "dpctl/del-flows",
    "dpctl/del-if",
    "dpctl/dump-dps",
    "dpctl/dump-flows",
    "dpctl/get-flow",
    "dpctl/mod-flow",
    "dpctl/normalize-actions",
    "dpctl/parse-actions",
    "dpctl/show",
    "dpif/dump-dps",
    "dpif/dump-flows",
    "dpif/set-dp-features",
    "dpif/show",
    "dpif/show-dp-features",
    "exit",
    "fdb/add",
    "fdb/del",
    "fdb/flush",
    "fdb/show",
    "fdb/stats-clear",
    "fdb/stats-show",
    "list-commands",
    "memory/show",
    "netdev-dummy/conn-state",
    "netdev-dummy/receive",
    "netdev-dummy/set-admin-state",
    "ofproto/list",
    "ofproto/trace",
    "ofproto/trace-packet-out",
    "revalidator/purge",
    "revalidator/wait",
    "time/stop",
    "time/warp",
    "upcall/disable-megaflows",
    "upcall/enable-megaflows",
    "upcall/set-flow-limit",
    "upcall/show",
    "version",
    "vlog/list",
    "vlog/reopen",
    "vlog/set",
];

#[test]
fn called_as_the_reference_it_is_a_client() {
    let mut e = Env::new();
    std::os::unix::fs::symlink(Daemon::Ours.path(), e.path("ovs-vswitchd")).unwrap();
    let program = e.file("ovs-vswitchd");
    let v = e.must(&program, "--version");
    assert_eq!(v.lines().next(), Some("ovs-vswitchd (Open vSwitch) 3.7.1"));
    // Without a database it waits for one, and does not make one.
    let cmd = e.command(&program, &format!("{DUMMY} --pidfile --log-file -vconsole:off"));
    e.spawn("daemon", &cmd);
    wait_until("an answer", 10, || e.run("ovs-appctl", "--timeout=5 version").ok());
    assert!(!e.path("conf.db").exists() && !e.path("db.sock").exists());
    e.start_db();
    e.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy");
    assert!(e.appctl("dpif/show").contains("br0"));
}

#[test]
fn bad_options_are_refused_with_a_hint() {
    let e = Env::new();
    for line in ["--nonsense", "--unixctl", "-vnosuchmodule:nolevel", "a b", "--dpdk"] {
        let o = fv_testkit::run(&e.command(Daemon::Ours.path(), line), 10);
        assert!(o.status == 1 && !o.stderr.is_empty(), "{line}: {o:?}");
        assert!(!o.stderr.contains("panicked"), "{line}: {o:?}");
    }
    let o = fv_testkit::run(&e.command(Daemon::Ours.path(), "--help"), 10);
    assert!(o.ok() && o.stdout.contains("--detach"));
}

#[test]
fn a_second_daemon_on_the_same_database_waits() {
    let mut e = Env::dummy(Daemon::Ours);
    e.add_dummy_bridge("br0", 1..=1);
    let socket = e.file("second.ctl");
    let db = e.file("db.sock");
    let line = format!("unix:{db} {DUMMY} --unixctl={socket} --log-file=second.log --pidfile=second.pid -vconsole:off");
    let cmd = e.command(Daemon::Ours.path(), &line);
    e.spawn("second", &cmd);
    wait_until("the second one says so", 15, || {
        let log = std::fs::read_to_string(e.path("second.log")).unwrap_or_default();
        log.contains("another ovs-vswitchd process is running, disabling this process")
    });
    // The first one goes; the second one takes over.
    e.proc("daemon").kill();
    let ok = wait_value(20, || {
        let o = e.run("ovs-appctl", &format!("--timeout=5 -t {socket} dpif/show"));
        o.stdout.contains("p1 1/1").then_some(())
    });
    assert!(ok.is_some(), "the second daemon did not take over");
    assert!(Path::new(&socket).exists());
}

#[test]
fn flow_restore_wait_holds_traffic_until_the_rules_are_there() {
    let mut e = Env::new();
    e.start_db();
    e.vsctl("--no-wait set Open_vSwitch . other_config:flow-restore-wait=true");
    e.vsctl(
        "--no-wait add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=standalone \
         -- add-port br0 p1 -- set Interface p1 type=dummy -- add-port br0 p2 -- set Interface p2 type=dummy",
    );
    e.start(Daemon::Ours, DUMMY);
    wait_until("the bridge", 10, || e.appctl("dpif/show").contains("p2 "));
    let frame = "in_port(1),eth(src=00:00:00:00:00:01,dst=00:00:00:00:00:02),eth_type(0x1234)";
    e.appctl(&format!("netdev-dummy/receive p1 '{frame}'"));
    assert!(e.ofctl("dump-ports br0 p2").contains("tx pkts=0"), "{}", e.ofctl("dump-ports br0 p2"));
    e.ofctl("add-flow br0 in_port=1,actions=2");
    e.vsctl("remove Open_vSwitch . other_config flow-restore-wait");
    e.appctl(&format!("netdev-dummy/receive p1 '{frame}'"));
    wait_until("the frame passes", 5, || e.ofctl("dump-ports br0 p2").contains("tx pkts=1"));
    assert!(e.ofctl("dump-flows br0").contains("actions=output:2"));
}

#[test]
fn a_monitored_daemon_is_started_again_after_a_crash() {
    use rustix::process::Signal;
    let mut e = Env::new();
    e.start_db();
    e.vsctl("--no-wait add-br br0 -- set bridge br0 datapath_type=dummy");
    let o = detached(&e, "--monitor");
    assert!(o.ok(), "{o:?}");
    let first = e.daemon_pid();
    fv_testkit::signal(first, Signal::SEGV);
    let pid =
        || std::fs::read_to_string(e.path("ovs-vswitchd.pid")).unwrap_or_default().trim().parse().unwrap_or(first);
    wait_until("another process", 20, || pid() != first);
    wait_until("its bridge", 20, || e.run("ovs-appctl", "--timeout=5 ofproto/list").stdout.contains("br0"));
    e.appctl("exit");
    wait_until("the end of both", 15, || !e.path("ovs-vswitchd.pid").exists());
}

#[test]
fn the_log_can_be_rotated() {
    let mut e = Env::dummy(Daemon::Ours);
    std::fs::rename(e.path("ovs-vswitchd.log"), e.path("old.log")).unwrap();
    e.appctl("vlog/reopen");
    e.appctl("vlog/set dbg");
    e.add_dummy_bridge("br0", 1..=1);
    wait_until("the new file", 5, || e.log().contains("br0"));
    e.proc("daemon").signal(rustix::process::Signal::HUP);
    e.vsctl("del-br br0");
    assert!(e.proc("daemon").running(), "a hang-up must not end it");
}
