//! The operator's tool against a running switch.

use std::time::{Duration, Instant};

use fv_testkit::{Daemon, Env, Out, built, ip, run, wait_until};
use rustix::process::Signal;

fn tool(e: &Env, line: &str) -> Out {
    run(&e.command(built("ferrovia"), line), 60)
}

fn env() -> Env {
    let e = Env::dummy(Daemon::Ours);
    e.add_dummy_bridge("br0", 1..=2);
    e
}

// UP-115: a daemon that hangs is not called healthy.
#[test]
fn status_tells_the_truth() {
    let mut e = env();
    let o = tool(&e, "status");
    assert!(o.ok() && o.stdout.starts_with("daemon: well, pid"), "{o:?}");
    assert!(o.stdout.contains("dummy@ovs-dummy") && o.stdout.contains("threads"), "{o:?}");
    assert_eq!(tool(&e, "status --quiet").stdout, "");

    e.proc("daemon").signal(Signal::STOP);
    let begin = Instant::now();
    let o = tool(&e, "--timeout 1 status");
    assert_eq!(o.status, 2, "{o:?}");
    assert!(o.stdout.contains("NOT WELL"), "{o:?}");
    assert!(begin.elapsed() < Duration::from_secs(5));
    e.proc("daemon").signal(Signal::CONT);
    assert!(tool(&e, "status").ok());

    e.proc("daemon").kill();
    let o = tool(&e, "status");
    assert_eq!(o.status, 3, "{o:?}");
    assert!(o.stdout.contains("not running"), "{o:?}");
}

#[test]
fn why_names_the_rule() {
    let e = env();
    e.ofctl("add-flow br0 priority=10,in_port=1,tcp,tp_dst=80,actions=drop");
    e.ofctl("add-flow br0 priority=5,in_port=1,actions=resubmit(,2)");
    e.ofctl("add-flow br0 table=2,priority=1,udp,actions=2");
    let check = |flow: &str, expected: &[&str]| {
        let o = tool(&e, &format!("why --bridge br0 {flow}"));
        assert!(o.ok(), "{o:?}");
        expected.iter().for_each(|x| assert!(o.stdout.contains(x), "{flow}: no {x:?} in {}", o.stdout));
    };
    check("in_port=1,tcp,tp_dst=80", &["DROPPED in table 0 of bridge br0", "priority 10\" says drop"]);
    check("in_port=1,arp", &["DROPPED in table 2 of bridge br0", "no rule there matches it"]);
    check("in_port=1,udp", &["FORWARDED", "What is done with it: 2", "priority 5\" matched"]);
    let o = tool(&e, "why --bridge nosuch in_port=1");
    assert!(o.status != 0 && o.stderr.contains("nosuch"), "{o:?}");

    let frame = "in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(proto=6,frag=no),tcp(dst=80)";
    assert!(tool(&e, &format!("why '{frame}'")).stdout.contains("DROPPED in table 0"));
    e.appctl(&format!("netdev-dummy/receive p1 '{frame}' '{frame}'"));
    let o = tool(&e, "why --bridge br0");
    assert!(o.stdout.contains("Flows that drop") && o.stdout.contains("tcp(dst=80)"), "{o:?}");
    assert!(o.stdout.contains("2 drop_action_of_pipeline"), "{o:?}");
}

#[test]
fn top_shows_rates() {
    let mut e = env();
    e.ofctl("add-flow br0 in_port=1,actions=2");
    let cmd = e.command(built("ferrovia"), "top --once --interval 1");
    e.spawn("top", &cmd);
    let frame = "in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x1234)";
    while e.proc("top").running() {
        e.appctl(&format!("netdev-dummy/receive p1 '{frame}'"));
    }
    assert_eq!(e.proc("top").wait(5), Some(0));
    let text = std::fs::read_to_string(e.path("top.out")).unwrap();
    assert!(text.starts_with("dummy@ovs-dummy: flows "), "{text}");
    let p1 = text.lines().find(|l| l.trim_start().starts_with("p1 ")).unwrap();
    assert_ne!(p1.split_whitespace().nth(2), Some("0"), "no rate: {text}");
}

#[test]
fn call_is_like_appctl() {
    let e = env();
    assert_eq!(tool(&e, "call dpif/show").stdout, e.appctl("dpif/show"));
    assert!(tool(&e, "call fdb/show br0").ok());
    let o = tool(&e, "call no/such");
    assert!(o.status == 2 && o.stderr.contains("is not a valid command"), "{o:?}");
    for command in ["demo", "status", "top", "why", "call"] {
        let o = tool(&e, &format!("{command} --help"));
        assert!(o.ok() && o.stdout.contains("Usage: ferrovia"), "{o:?}");
    }
}

/// What a demo of that process id would have left.
fn left_over(pid: u32) -> bool {
    let tag = format!("fvd{pid}");
    let ns = format!("fvdemo{pid}");
    ip("-o link show").contains(&tag)
        || ip("netns list").contains(&ns)
        || std::path::Path::new(&format!("/tmp/ferrovia-demo.{pid}")).exists()
}

#[test]
fn the_demo_works_and_leaves_nothing() {
    let mut e = Env::new();
    let cmd = e.command(built("ferrovia"), &format!("demo --seconds 1 --daemon {}", built("ferroviad").display()));
    let mut cmd = cmd;
    cmd.env("TMPDIR", "/tmp");
    let pid = e.spawn("demo", &cmd).pid();
    let status = e.proc("demo").wait(60);
    let out = std::fs::read_to_string(e.path("demo.out")).unwrap();
    let err = std::fs::read_to_string(e.path("demo.err")).unwrap();
    assert_eq!(status, Some(0), "{out}{err}");
    for x in [
        "Pinging",
        "bit/s arrived",
        "actions=NORMAL",
        "with the rule: 5201 at",
        "5202 at 0 bit/s",
        "All of it is removed",
    ] {
        assert!(out.contains(x), "no {x:?} in {out}");
    }
    assert!(!left_over(pid), "the demo left something behind");
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    for (signal, wait_for) in [(Signal::INT, "4. Pinging"), (Signal::TERM, "7. Two connections")] {
        let mut e = Env::new();
        let mut cmd =
            e.command(built("ferrovia"), &format!("demo --seconds 1 --daemon {}", built("ferroviad").display()));
        cmd.env("TMPDIR", "/tmp");
        let pid = e.spawn("demo", &cmd).pid();
        wait_until(wait_for, 40, || std::fs::read_to_string(e.path("demo.out")).unwrap_or_default().contains(wait_for));
        e.proc("demo").signal(signal);
        assert_eq!(e.proc("demo").wait(20), Some(130));
        assert!(!left_over(pid), "the demo left something behind");
        assert!(std::fs::read_to_string(e.path("demo.err")).unwrap().contains("interrupted"));
    }
}
