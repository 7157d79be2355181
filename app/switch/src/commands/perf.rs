//! How poll workers spend their time.

use std::fmt::Write;

use fv_core::Command;
use fv_datapath::{LogRules, Perf, Snapshot, Stat};

use super::Ctx;
use super::pmd::{Hits, args, header, poll_workers, ratio};
use crate::datapaths::TICKS_PER_SECOND;

pub const COMMANDS: &[Command<Ctx>] = &[
    Command {
        name: "dpif-netdev/pmd-perf-show",
        usage: Some("[-nh] [-it iter-history-len] [-ms ms-history-len] [-pmd core] [dp]"),
        min: 0,
        max: 8,
        run: show,
    },
    Command {
        name: "dpif-netdev/pmd-perf-log-set",
        usage: Some("on|off [-b before] [-a after] [-e|-ne] [-us usec] [-q qlen]"),
        min: 0,
        max: 10,
        run: log_set,
    },
];

fn show(c: &mut Ctx, words: &[&str]) -> fv_core::Reply {
    let a = args(c, words)?;
    let wall = c.engine.clock.wall();
    let mut out = String::new();
    for w in poll_workers(a.dp, a.core) {
        let s = w.since_cleared();
        let seconds = seconds(s.value(Stat::IdleTicks) + s.value(Stat::BusyTicks));
        let _ =
            write!(out, "\nTime: {}\nMeasurement duration: {seconds:.3} s\n\n{}\n", time_of_day(wall.0), header(&w));
        overall(&s, seconds, &mut out);
        // Sampled turns are the worker's own: it hands out a copy.
        let Some(perf) = a.dp.dp.ask(w.id, |w| w.perf().cloned()).flatten() else { continue };
        let length = |flag: &str| {
            let at = a.rest.iter().position(|w| *w == flag)?;
            a.rest.get(at + 1)?.parse::<usize>().ok()
        };
        if !a.rest.contains(&"-nh") {
            histograms(&perf, &mut out);
        }
        turns(&perf, length("-it").unwrap_or(0), &mut out);
        milliseconds(&perf, length("-ms").unwrap_or(0), &mut out);
    }
    Ok(out)
}

const COLUMNS: [&str; 7] =
    ["cycles/it", "packets/it", "cycles/pkt", "pkts/batch", "max vhost qlen", "upcalls/it", "cycles/upcall"];

fn row(out: &mut String, cells: impl Iterator<Item = String>) {
    let cells: Vec<String> = cells.map(|c| format!("{c:<21}")).collect();
    let _ = writeln!(out, "   {}", cells.join("  "));
}

fn histograms(p: &Perf, out: &mut String) {
    out.push_str("\nHistograms\n");
    row(out, COLUMNS.iter().map(|c| c.to_string()));
    for bin in 0..p.histograms[0].bins.len() {
        row(
            out,
            p.histograms.iter().map(|h| match h.walls[bin] {
                u64::MAX => format!("{:<9} {:<11}", ">", h.bins[bin]),
                wall => format!("{wall:<9} {:<11}", h.bins[bin]),
            }),
        );
    }
    let t = &p.total;
    if t.turns == 0 {
        return;
    }
    let _ = writeln!(out, "{}", "-".repeat(154));
    row(out, COLUMNS.iter().map(|c| c.trim_start_matches("max ").to_string()));
    let whole = |a, b| format!("{:.0}", ratio(a, b));
    let parts = |a, b| format!("{:.5}", ratio(a, b));
    let cells = [
        whole(t.ticks, t.turns),
        parts(t.packets, t.turns),
        whole(t.ticks, t.packets),
        parts(t.packets, t.bursts),
        parts(t.queued, t.turns),
        parts(t.upcalls, t.turns),
        whole(t.upcall_ticks, t.upcalls),
    ];
    row(out, cells.into_iter());
}

fn per(a: u64, b: u64) -> u64 {
    a.checked_div(b).unwrap_or(0)
}

fn turns(p: &Perf, n: usize, out: &mut String) {
    if n == 0 {
        return;
    }
    out.push_str(
        "\n   iter                cycles       packets      cycles/pkt   pkts/batch   vhost qlen   upcalls      cycles/upcall\n",
    );
    for s in p.last_turns(n) {
        let cells = [
            s.ticks,
            s.packets,
            per(s.ticks, s.packets),
            per(s.packets, s.bursts),
            s.queued,
            s.upcalls,
            per(s.upcall_ticks, s.upcalls),
        ];
        let _ = writeln!(out, "   {:<17}   {}", s.at, cells.map(|c| format!("{c:<11}")).join("  "));
    }
}

fn milliseconds(p: &Perf, n: usize, out: &mut String) {
    if n == 0 {
        return;
    }
    out.push_str(
        "\n   ms             iterations   cycles/it    Kpps         cycles/pkt   pkts/batch   vhost qlen   upcalls      cycles/upcall\n",
    );
    for s in p.last_ms(n) {
        // Packets of a millisecond are thousands a second.
        let cells = [
            s.turns,
            per(s.ticks, s.turns),
            s.packets,
            per(s.ticks, s.packets),
            per(s.packets, s.bursts),
            s.queued,
            s.upcalls,
            per(s.upcall_ticks, s.upcalls),
        ];
        let _ = writeln!(out, "   {:<12}   {}", s.at, cells.map(|c| format!("{c:<11}")).join("  "));
    }
}

const LOG_USAGE: &str =
    "Usage: ovs-appctl dpif-netdev/pmd-perf-log-set [on|off] [-b before] [-a after] [-e|-ne] [-us usec] [-q qlen]";

/// Which turns of sampled workers are told to the log.
fn log_set(c: &mut Ctx, words: &[&str]) -> fv_core::Reply {
    let (mut on, mut us) = (false, 250);
    let mut rules = LogRules { before: 5, after: 5, extend: false, ticks: 0, queued: 128 };
    let mut words = words.iter();
    while let Some(w) = words.next() {
        let mut number = |max: u64| -> Result<u64, String> {
            let n = words.next().and_then(|n| n.parse::<u64>().ok());
            n.map(|n| n.min(max)).ok_or_else(|| LOG_USAGE.to_string())
        };
        match *w {
            "on" => on = true,
            "off" => on = false,
            "-e" => rules.extend = true,
            "-ne" => rules.extend = false,
            "-b" => rules.before = number(100)? as usize,
            "-a" => rules.after = number(100)? as usize,
            "-us" => us = number(1_000_000)?,
            "-q" => rules.queued = number(u64::MAX)?,
            _ => return Err(LOG_USAGE.into()),
        }
    }
    rules.ticks = us * (TICKS_PER_SECOND / 1_000_000);
    let rules = on.then_some(rules);
    for (_, i) in c.engine.world.dps.iter() {
        for w in poll_workers(i, None) {
            i.dp.ask(w.id, move |w| w.set_perf_log(rules));
        }
    }
    c.engine.world.dps.pmd.perf_log = rules;
    Ok(String::new())
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / TICKS_PER_SECOND as f64
}

/// `HH:MM:SS.mmm`, UTC.
fn time_of_day(wall_ns: u64) -> String {
    let ms = wall_ns / 1_000_000;
    let s = ms / 1000;
    format!("{:02}:{:02}:{:02}.{:03}", s / 3600 % 24, s / 60 % 60, s % 60, ms % 1000)
}

fn overall(s: &Snapshot, seconds: f64, out: &mut String) {
    let v = |stat| s.value(stat);
    let percent = |a, b| 100.0 * ratio(a, b);
    let mut line = |name: &str, value: u64, more: String| {
        let _ = writeln!(out, "  {name:<20}{value:12}{more}");
    };
    let (idle, busy) = (v(Stat::IdleTicks), v(Stat::BusyTicks));
    let used = idle + busy;
    let turns = v(Stat::IdleTurns) + v(Stat::BusyTurns);
    let us = |ticks: u64| ticks as f64 * 1e6 / TICKS_PER_SECOND as f64;
    line("Iterations:", turns, format!("  ({:.2} us/it)", us(used) / turns.max(1) as f64));
    line("- Used TSC cycles:", used, format!("  ({:5.1} % of total cycles)", percent(used, used)));
    line("- idle iterations:", v(Stat::IdleTurns), format!("  ({:5.1} % of used cycles)", percent(idle, used)));
    line("- busy iterations:", v(Stat::BusyTurns), format!("  ({:5.1} % of used cycles)", percent(busy, used)));
    let sleeps = v(Stat::SleepTurns);
    line("- sleep iterations:", sleeps, format!("  ({:5.1} % of iterations)", percent(sleeps, turns)));
    let slept_us = v(Stat::SleepNanos) / 1000;
    line("Sleep time (us):", slept_us, format!("  ({:3.0} us/iteration avg.)", ratio(slept_us, sleeps)));
    let kpps = |n: u64| if seconds > 0.0 { n as f64 / seconds / 1000.0 } else { 0.0 };
    let packets = v(Stat::Received);
    if packets == 0 {
        line("Rx packets:", 0, String::new());
    } else {
        let passes = packets + v(Stat::Recirculated);
        let per_packet = ratio(busy, packets);
        line("Rx packets:", packets, format!("  ({:.0} Kpps, {per_packet:.0} cycles/pkt)", kpps(packets)));
        line("Datapath passes:", passes, format!("  ({:.2} passes/pkt)", ratio(passes, packets)));
        let hits = Hits::of(s);
        let of_passes = |n| format!("  ({:5.1} %)", percent(n, passes));
        line("- PHWOL hits:", hits.phwol, of_passes(hits.phwol));
        line("- MFEX Opt hits:", hits.mfex, of_passes(hits.mfex));
        line("- Simple Match hits:", hits.simple, of_passes(hits.simple));
        line("- EMC hits:", hits.emc, of_passes(hits.emc));
        line("- SMC hits:", hits.smc, of_passes(hits.smc));
        let lookups = ratio(v(Stat::SubtableLookups), hits.megaflow);
        let megaflow = format!("  ({:5.1} %, {lookups:.2} subtbl lookups/hit)", percent(hits.megaflow, passes));
        line("- Megaflow hits:", hits.megaflow, megaflow);
        let upcalls = v(Stat::Missed);
        let each = us(v(Stat::UpcallTicks)) / upcalls.max(1) as f64;
        line("- Upcalls:", upcalls, format!("  ({:5.1} %, {each:.1} us/upcall)", percent(upcalls, passes)));
        line("- Lost upcalls:", v(Stat::Lost), of_passes(v(Stat::Lost)));
    }
    let sent = v(Stat::Sent);
    if sent == 0 {
        line("Tx packets:", 0, "\n".into());
    } else {
        line("Tx packets:", sent, format!("  ({:.0} Kpps)", kpps(sent)));
        let batches = v(Stat::SendBatches);
        line("Tx batches:", batches, format!("  ({:.2} pkts/batch)", ratio(sent, batches)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_worker() {
        let mut out = String::new();
        overall(&Snapshot::default(), 0.0, &mut out);
        let want = "  Iterations:                    0  (0.00 us/it)
  - Used TSC cycles:             0  (  0.0 % of total cycles)
  - idle iterations:             0  (  0.0 % of used cycles)
  - busy iterations:             0  (  0.0 % of used cycles)
  - sleep iterations:            0  (  0.0 % of iterations)
  Sleep time (us):               0  (  0 us/iteration avg.)
  Rx packets:                    0
  Tx packets:                    0

";
        assert_eq!(out, want);
        assert_eq!(time_of_day(1_000_000_000 * 86_399 + 7_000_000), "23:59:59.007");
    }
}
