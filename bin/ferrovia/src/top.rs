//! `ferrovia top`: rates between two readings of the counters.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::cli::{Target, Top};
use crate::datapath::{Datapath, Port, parse};
use crate::human::{print, rate};
use crate::socket::{Daemon, fail};

/// Cursor to the corner and everything below it gone.
const CLEAR: &str = "\x1b[H\x1b[J";

pub fn run(target: &Target, o: &Top) -> Result<ExitCode> {
    if !(0.1..=3600.0).contains(&o.interval) {
        bail!("--interval {}: between 0.1 and 3600 seconds", o.interval);
    }
    let daemon = match Daemon::find(target) {
        Ok(d) => d,
        Err(e) => return Ok(fail(&e)),
    };
    let read = || daemon.call("dpctl/show", &["-s"]).map(|t| (Instant::now(), parse(&t)));
    let mut before = match read() {
        Ok(v) => v,
        Err(e) => return Ok(fail(&e)),
    };
    loop {
        std::thread::sleep(Duration::from_secs_f64(o.interval));
        let after = match read() {
            Ok(v) => v,
            Err(e) => return Ok(fail(&e)),
        };
        let view = view(&before.1, &after.1, after.0.duration_since(before.0).as_secs_f64());
        if o.once {
            print(&view)?;
            return Ok(ExitCode::SUCCESS);
        }
        print(&format!("{CLEAR}{view}\nCtrl-C ends.\n"))?;
        before = after;
    }
}

/// One screen: what changed from `before` to `after` in `secs`.
fn view(before: &[Datapath], after: &[Datapath], secs: f64) -> String {
    let mut out = String::new();
    if after.is_empty() {
        out.push_str("no datapath: no bridge is configured\n");
    }
    for dp in after {
        let none = Datapath::default();
        let old = before.iter().find(|d| d.name == dp.name).unwrap_or(&none);
        head(&mut out, old, dp, secs);
        for p in &dp.ports {
            let old = old.ports.iter().find(|q| q.name == p.name).unwrap_or(p);
            port(&mut out, old, p, secs);
        }
        out.push('\n');
    }
    out
}

fn head(out: &mut String, old: &Datapath, new: &Datapath, secs: f64) {
    let per_sec = |a: u64, b: u64| b.saturating_sub(a) as f64 / secs;
    let (hit, missed) = (per_sec(old.hit, new.hit), per_sec(old.missed, new.missed));
    let share = if hit + missed > 0.0 { format!("{:.1} %", 100.0 * hit / (hit + missed)) } else { "-".into() };
    let _ = writeln!(
        out,
        "{}: flows {}, hit {share}, missed {}/s, lost {}/s",
        new.name,
        new.flows,
        rate(missed),
        rate(per_sec(old.lost, new.lost)),
    );
    let _ = writeln!(
        out,
        "  {:<16} {:<10} {:>10} {:>12} {:>10} {:>12} {:>8}",
        "port", "type", "rx pkt/s", "rx bit/s", "tx pkt/s", "tx bit/s", "bad/s"
    );
}

fn port(out: &mut String, old: &Port, new: &Port, secs: f64) {
    let per_sec = |a: u64, b: u64, unit: f64| rate(b.saturating_sub(a) as f64 * unit / secs);
    let _ = writeln!(
        out,
        "  {:<16} {:<10} {:>10} {:>12} {:>10} {:>12} {:>8}",
        new.name,
        new.kind,
        per_sec(old.rx_packets, new.rx_packets, 1.0),
        per_sec(old.rx_bytes, new.rx_bytes, 8.0),
        per_sec(old.tx_packets, new.tx_packets, 1.0),
        per_sec(old.tx_bytes, new.tx_bytes, 8.0),
        per_sec(old.bad, new.bad, 1.0),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_differences_over_time() {
        let at = |hit, rx| {
            let p =
                Port { name: "p1".into(), kind: "dummy".into(), rx_packets: rx, rx_bytes: rx * 100, ..Port::default() };
            vec![Datapath { name: "d".into(), hit, missed: 10, flows: 4, ports: vec![p], ..Datapath::default() }]
        };
        let text = view(&at(0, 0), &at(3000, 3000), 2.0);
        assert!(text.contains("d: flows 4, hit 100.0 %, missed 0/s, lost 0/s"), "{text}");
        assert!(text.contains("1.50 k"), "{text}");
        assert!(text.contains("1.20 M"), "{text}");
    }

    #[test]
    fn counters_that_restart_and_ports_that_come_are_no_rates() {
        let p = Port { name: "p".into(), rx_packets: 5, ..Port::default() };
        let dp = |hit, ports| vec![Datapath { name: "d".into(), hit, ports, ..Datapath::default() }];
        let text = view(&dp(9, vec![]), &dp(1, vec![p]), 1.0);
        assert!(text.contains("hit -"), "{text}");
        assert!(!text.contains('5'), "{text}");
        assert!(view(&[], &[], 1.0).contains("no datapath"));
    }
}
