//! The process's logger, as its commands show it. One test: there is one logger.

use std::os::unix::net::UnixDatagram;

use fv_core::{Clock, Registry};
use fv_rpc::vlog;

#[test]
fn levels_patterns_files_and_syslog() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.log");
    vlog::init("prog", &Clock::new());
    vlog::set_thread_label("");
    vlog::register_modules(&["jsonrpc", "a_module_with_a_long_name", "vlog"]);
    vlog::set("console:off").unwrap();
    let mut r: Registry<()> = Registry::default();
    r.add(&vlog::commands());
    let run = |cmd: &str, args: &[&str]| r.run(&mut (), cmd, args);

    assert_eq!(run("vlog/reopen", &[]), Err("Logging to file not configured".into()));
    vlog::open_file(&file).unwrap();
    let log = |f: &std::path::Path| std::fs::read_to_string(f).unwrap();

    run("vlog/set", &["jsonrpc:file:dbg", "jsonrpc:syslog:err"]).unwrap();
    assert!(run("vlog/set", &["nope"]).is_err());
    assert_eq!(
        run("vlog/list", &[]).unwrap(),
        "                 console    syslog    file\n                 -------    ------    ------\n\
         a_module_with_a_long_name   OFF       INFO       INFO\n\
         jsonrpc            OFF        ERR        DBG\n\
         vlog               OFF       INFO       INFO\n"
    );
    run("vlog/disable-rate-limit", &["vlog"]).unwrap();
    assert!(
        run("vlog/list", &[])
            .unwrap()
            .contains("vlog               OFF       INFO       INFO    (rate limiting disabled)\n")
    );
    assert_eq!(run("vlog/enable-rate-limit", &["nope"]), Err("unknown module".into()));
    assert_eq!(
        run("vlog/list-pattern", &[]).unwrap(),
        "         prefix                            format\n         ------                            ------\n\
         SYSLOG   <%B> %D{%h %e %T} %E %A:          ovs|%05N|%c%T|%p|%m\n\
         CONSOLE  none                              %D{%Y-%m-%dT%H:%M:%SZ}|%05N|%c%T|%p|%m\n\
         FILE     none                              %D{%Y-%m-%dT%H:%M:%S.###Z}|%05N|%c%T|%p|%m\n"
    );

    run("vlog/set", &["PATTERN:file:%c%T|%p|%m"]).unwrap();
    log::debug!(target: "jsonrpc", "shown");
    log::debug!(target: "vlog", "not shown");
    log::info!(target: "fv_some::deep::jsonrpc", "last part");
    std::thread::Builder::new().name("pmd-1".into()).spawn(|| log::warn!(target: "vlog", "x")).unwrap().join().unwrap();
    std::thread::spawn(|| {
        vlog::defer_output();
        log::info!(target: "vlog", "deferred");
    })
    .join()
    .unwrap();
    assert!(!log(&file).contains("deferred"));
    vlog::drain(std::time::Duration::ZERO);
    vlog::emer("vlog", format_args!("end"));
    let text = log(&file);
    let lines: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(
        lines,
        ["jsonrpc|DBG|shown", "jsonrpc|INFO|last part", "vlog(pmd-1)|WARN|x", "vlog|INFO|deferred", "vlog|EMER|end"]
    );

    // A rotation.
    let old = dir.path().join("old.log");
    std::fs::rename(&file, &old).unwrap();
    run("vlog/reopen", &[]).unwrap();
    run("vlog/message", &["after"]).unwrap();
    assert!(log(&old).ends_with("closing log file\n") && log(&file).ends_with("vlog|INFO|after\n"));
    run("vlog/close", &[]).unwrap();
    run("vlog/message", &["gone"]).unwrap();
    assert!(!log(&file).contains("gone"));

    // Warnings that repeat are limited.
    vlog::open_file(&file).unwrap();
    (0..1000).for_each(|i| log::warn!(target: "jsonrpc", "again {i}"));
    let n = log(&file).matches("again").count();
    assert!((1..100).contains(&n), "{n}");

    // Syslog, and one that is restarted under us.
    let path = dir.path().join("dev-log");
    vlog::set_syslog_method(&format!("unix:{}", path.display())).unwrap();
    log::info!(target: "vlog", "nobody listens");
    for _ in 0..2 {
        let _ = std::fs::remove_file(&path);
        let s = UnixDatagram::bind(&path).unwrap();
        log::info!(target: "vlog", "to syslog");
        let mut b = [0; 512];
        let n = s.recv(&mut b).unwrap();
        let text = std::str::from_utf8(&b[..n]).unwrap();
        assert!(
            text.starts_with("<30> ") && text.contains(" prog: ovs|") && text.ends_with("|vlog|INFO|to syslog"),
            "{text}"
        );
    }
    assert_eq!(vlog::set_syslog_method("foo"), Err("unsupported syslog method 'foo'".into()));
}
