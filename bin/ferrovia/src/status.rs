//! `ferrovia status`: every part of the daemon is asked something it must answer.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::cli::{Status, Target};
use crate::datapath::{Datapath, parse};
use crate::human::{print, span};
use crate::socket::{Daemon, EXIT_SICK, Error};

/// What is asked, and what it proves.
const CHECKS: &[(&str, &[&str], &str)] = &[
    ("version", &[], "control socket"),
    ("dpctl/show", &["-s"], "datapaths"),
    ("revalidator/wait", &[], "revalidation"),
];

pub fn run(target: &Target, o: &Status) -> Result<ExitCode> {
    let (text, code) = match Daemon::find(target) {
        Err(e) => (format!("daemon: not running: {e}\n"), e.exit_status()),
        Ok(d) => report(&d),
    };
    if !o.quiet {
        print(&text)?;
    }
    Ok(ExitCode::from(code))
}

/// The text, and the exit status.
fn report(d: &Daemon) -> (String, u8) {
    let mut lines = String::new();
    let mut sick = Vec::new();
    let mut datapaths = Vec::new();
    for (command, args, part) in CHECKS {
        let t = Instant::now();
        match d.call_if_offered(command, args) {
            Ok(answer) => {
                let ms = t.elapsed().as_secs_f64() * 1e3;
                let said = answer.is_some();
                let _ = match said {
                    true => writeln!(lines, "{part:<16} answers in {ms:.1} ms"),
                    false => writeln!(lines, "{part:<16} cannot be asked: no command {command}"),
                };
                if *command == "dpctl/show" {
                    datapaths = parse(&answer.unwrap_or_default());
                }
            }
            Err(e) => {
                let _ = writeln!(lines, "{part:<16} {}", trouble(&e));
                sick.push(*part);
                if matches!(e, Error::Silent(_)) {
                    break;
                }
            }
        }
    }
    let mut text = String::new();
    let state = if sick.is_empty() { "well".to_string() } else { format!("NOT WELL ({})", sick.join(", ")) };
    let _ = writeln!(text, "daemon: {state}{}", d.pid.map(process).unwrap_or_default());
    text += &lines;
    datapaths.iter().for_each(|dp| datapath(&mut text, dp));
    if let Some(pid) = d.pid {
        threads(&mut text, pid);
    }
    (text, if sick.is_empty() { 0 } else { EXIT_SICK })
}

fn trouble(e: &Error) -> String {
    match e {
        Error::Refused(m) => format!("answers with an error: {}", m.trim_end()),
        e => e.to_string(),
    }
}

fn datapath(out: &mut String, dp: &Datapath) {
    let seen = dp.hit + dp.missed;
    let share = if seen > 0 { format!(", hit {:.1} %", 100.0 * dp.hit as f64 / seen as f64) } else { String::new() };
    let _ = writeln!(
        out,
        "{:<16} ports {}, flows {}, packets {seen}{share}, lost {}",
        dp.name,
        dp.ports.len(),
        dp.flows,
        dp.lost
    );
}

/// `, pid N, up T, RSS`, as far as the system tells.
fn process(pid: u32) -> String {
    let mut out = format!(", pid {pid}");
    if let Some(d) = uptime(pid) {
        let _ = write!(out, ", up {}", span(d));
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    if let Some(kib) = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).and_then(first_number) {
        let _ = write!(out, ", {} MiB resident", kib / 1024);
    }
    out
}

fn first_number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

/// Fields of a `stat` file from the third on; the name before may hold anything.
fn stat_fields(path: &str) -> Vec<u64> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let rest = text.rsplit(')').next().unwrap_or_default().to_string();
    rest.split_whitespace().map(|x| x.parse().unwrap_or(0)).collect()
}

fn uptime(pid: u32) -> Option<Duration> {
    let started = *stat_fields(&format!("/proc/{pid}/stat")).get(19)? as f64 / ticks_per_sec();
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    let now: f64 = text.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64((now - started).max(0.0)).ok()
}

fn ticks_per_sec() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// One line: each thread's name and the processor time it has used.
fn threads(out: &mut String, pid: u32) {
    let dir = format!("/proc/{pid}/task");
    let mut all: Vec<(u64, String)> = std::fs::read_dir(&dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|t| {
            let at = t.path().display().to_string();
            let name = std::fs::read_to_string(format!("{at}/comm")).unwrap_or_default();
            let used = stat_fields(&format!("{at}/stat")).iter().skip(11).take(2).sum();
            (used, name.trim().to_string())
        })
        .collect();
    all.sort_by(|a, b| b.cmp(a));
    let list: Vec<String> = all.iter().map(|(t, n)| format!("{n} {:.1} s", *t as f64 / ticks_per_sec())).collect();
    let _ = writeln!(out, "{:<16} {}: {}", "threads", all.len(), list.join(", "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_threads_and_an_age() {
        let pid = std::process::id();
        let mut out = String::new();
        threads(&mut out, pid);
        assert!(out.starts_with("threads ") && out.contains(" s"), "{out}");
        assert!(uptime(pid).unwrap() < Duration::from_secs(3600));
        assert!(process(pid).contains("MiB resident"));
    }

    #[test]
    fn silence_is_not_well() {
        let d = Daemon::at("/nonexistent.ctl".into(), std::process::id(), Duration::from_millis(50));
        let (text, code) = report(&d);
        assert_eq!(code, EXIT_SICK);
        assert!(text.starts_with("daemon: NOT WELL (control socket)"), "{text}");
    }
}
