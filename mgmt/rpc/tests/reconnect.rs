//! Golden traces of the reconnect state machine: what was told, what it logged and decided, taken
//! from the reference's Python library (`ovs.reconnect`), by hand and at random.
//! `advance` moves time in milliseconds; a number after an event is the system's error, -1 the
//! end of the stream.

use std::cell::RefCell;
use std::fmt::Write;

use fv_core::Nanos;
use fv_rpc::reconnect::{Action, Cause, Reconnect};

thread_local!(static LOG: RefCell<String> = const { RefCell::new(String::new()) });

struct Capture;

impl log::Log for Capture {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, r: &log::Record<'_>) {
        let level = match r.level() {
            log::Level::Error => "ERR",
            log::Level::Warn => "WARN",
            log::Level::Info => "INFO",
            _ => return,
        };
        assert_eq!(r.target(), "reconnect");
        LOG.with_borrow_mut(|l| writeln!(l, "  {level}|{}", r.args()).unwrap());
    }
    fn flush(&self) {}
}

fn cause(word: Option<&&str>) -> Cause<'static> {
    match word.copied() {
        None => Cause::Ours,
        Some("-1") => Cause::Eof,
        Some("111") => Cause::Error("Connection refused"),
        Some("104") => Cause::Error("Connection reset by peer"),
        Some("98") => Cause::Error("Address already in use"),
        Some(w) => panic!("error {w}"),
    }
}

fn step(r: &mut Reconnect, now: &mut Nanos, line: &str, out: &mut String) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let n = || words[1].parse::<u64>().unwrap();
    let ms = |i: usize| Nanos::from_ms(words[i].parse().unwrap());
    match words[0] {
        "advance" => *now += Nanos::from_ms(n()),
        "run" => match r.run(*now) {
            Some(Action::Connect) => out.push_str("  run: connect\n"),
            Some(Action::Disconnect) => out.push_str("  run: disconnect\n"),
            Some(Action::Probe) => out.push_str("  run: probe\n"),
            None => {}
        },
        "timeout" => match r.wake_at() {
            Nanos::MAX => out.push_str("  timeout: None\n"),
            t => writeln!(out, "  timeout: {}", t.saturating_sub(*now).ms()).unwrap(),
        },
        "enable" => r.enable(*now),
        "disable" => r.disable(*now),
        "force" => r.force_reconnect(*now),
        "connecting" => r.connecting(*now),
        "listening" => r.listening(*now),
        "connected" => r.connected(*now),
        "fail" => r.connect_failed(*now, cause(words.get(1))),
        "disconnected" => r.disconnected(*now, cause(words.get(1))),
        "listen_error" => r.listen_error(*now, "Address already in use"),
        "activity" => r.activity(*now),
        "passive" => r.set_passive(n() == 1, *now),
        "tries" => r.set_max_tries(Some(n() as u32)),
        "free" => r.set_backoff_free_tries(n() as u32),
        "backoff" => r.set_backoff(ms(1), ms(2)),
        "probe" => r.set_probe_interval(ms(1)),
        "quiet" => r.set_quiet(true),
        w => panic!("{w}"),
    }
    out.push_str(&LOG.with_borrow_mut(std::mem::take));
    writeln!(out, "  state {} backoff {}", r.state(), r.backoff().ms()).unwrap();
}

#[test]
fn golden_traces() {
    log::set_logger(&Capture).unwrap();
    log::set_max_level(log::LevelFilter::Debug);
    let golden = [include_str!("data/reconnect.txt"), include_str!("data/reconnect-random.txt")];
    for (i, trace) in golden.iter().flat_map(|g| g.split("----\n")).enumerate() {
        let mut now = Nanos::from_ms(1000);
        let mut r = Reconnect::new("remote", now);
        let mut out = String::new();
        for line in trace.lines().filter_map(|l| l.strip_prefix("> ")) {
            writeln!(out, "> {line}").unwrap();
            step(&mut r, &mut now, line, &mut out);
        }
        if out != trace {
            let bad = out.lines().zip(trace.lines()).position(|(a, b)| a != b).unwrap_or(0);
            let show = |s: &str| s.lines().skip(bad.saturating_sub(6)).take(10).collect::<Vec<_>>().join("\n");
            panic!("trace {i}, line {bad}:\n{}\n--- expected\n{}", show(&out), show(trace));
        }
    }
}
