//! Poll workers: what they did, what they poll, how they sleep.

use std::fmt::Write;

use fv_core::Command;
use fv_datapath::{Deal, INTERVALS, Snapshot, Stat, WorkerHandle, WorkerKind};

use super::Ctx;
use crate::datapaths::DpInst;

pub const COMMANDS: &[Command<Ctx>] = &[
    Command { name: "dpif-netdev/pmd-stats-show", usage: Some("[-pmd core] [dp]"), min: 0, max: 3, run: stats_show },
    Command { name: "dpif-netdev/pmd-stats-clear", usage: Some("[-pmd core] [dp]"), min: 0, max: 3, run: stats_clear },
    Command {
        name: "dpif-netdev/pmd-rxq-show",
        usage: Some("[-pmd core] [-secs secs] [dp]"),
        min: 0,
        max: 5,
        run: rxq_show,
    },
    Command { name: "dpif-netdev/pmd-rxq-rebalance", usage: Some("[dp]"), min: 0, max: 1, run: rebalance },
    Command { name: "dpif-netdev/pmd-sleep-show", usage: Some("[dp]"), min: 0, max: 1, run: sleep_show },
    Command { name: "dpif-netdev/bond-show", usage: Some("[dp]"), min: 0, max: 1, run: bond_show },
];

/// Seconds of one measuring interval, and of all.
const INTERVAL_SECS: u32 = 5;
const ALL_SECS: u32 = INTERVAL_SECS * INTERVALS as u32;

/// What the arguments of a `pmd-*` command say.
pub struct Args<'a> {
    pub core: Option<i32>,
    pub dp: &'a DpInst,
    /// Arguments that mean something to one command alone.
    pub rest: Vec<&'a str>,
}

/// A datapath's name counts if it is known; else the only datapath is meant. Numbers that are none are as
/// if they were not there.
pub fn args<'a>(c: &'a Ctx, args: &[&'a str]) -> Result<Args<'a>, String> {
    let (mut core, mut rest, mut words) = (None, Vec::new(), args.iter());
    while let Some(w) = words.next() {
        match *w {
            "-pmd" => core = words.next().and_then(|n| n.parse().ok()),
            other => rest.push(other),
        }
    }
    let named = rest.last().and_then(|name| c.dp(Some(name)).ok());
    let dp = match named {
        Some(dp) => dp,
        None => c.dp(None).map_err(|_| NO_DP.to_string())?,
    };
    Ok(Args { core, dp, rest })
}

const NO_DP: &str = "please specify an existing datapath";

/// For commands that insist on the name, if one is given.
fn dp<'a>(c: &'a Ctx, args: &[&str]) -> Result<&'a DpInst, String> {
    c.dp(args.first().copied()).map_err(|_| NO_DP.to_string())
}

/// Poll workers by core.
pub fn poll_workers(dp: &DpInst, core: Option<i32>) -> Vec<WorkerHandle> {
    let mut all = dp.dp.workers();
    all.retain(|w| w.kind == WorkerKind::Poll && core.is_none_or(|c| c == w.id.0));
    all.sort_by_key(|w| w.id);
    all
}

/// `pmd thread numa_id 0 core_id 3:`.
pub fn header(w: &WorkerHandle) -> String {
    format!("pmd thread numa_id {} core_id {}:\n", w.numa.unwrap_or(0), w.id.0)
}

pub fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

fn stats_show(c: &mut Ctx, words: &[&str]) -> fv_core::Reply {
    let a = args(c, words)?;
    let mut out = String::new();
    for w in poll_workers(a.dp, a.core) {
        out += &header(&w);
        out += &stats(&w.since_cleared(), true);
    }
    if a.core.is_none() {
        // Event workers are no poll-mode threads: what they do is the main thread's to tools.
        let others = a.dp.dp.workers();
        let others = others.iter().filter(|w| w.kind != WorkerKind::Poll);
        let sum = others.fold(Snapshot::default(), |sum, w| sum.plus(&w.since_cleared()));
        out += "main thread:\n";
        out += &stats(&sum, false);
    }
    Ok(out)
}

fn stats(s: &Snapshot, cycles: bool) -> String {
    let v = |stat| s.value(stat);
    let packets = v(Stat::Received);
    let recirculated = v(Stat::Recirculated);
    let success = v(Stat::Missed).saturating_sub(v(Stat::Lost));
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "  {name}: {value}");
    };
    let two = |x: f64| format!("{x:.2}");
    line("packets received", packets.to_string());
    line("packet recirculations", recirculated.to_string());
    line("avg. datapath passes per packet", two(ratio(packets + recirculated, packets)));
    let hits = Hits::of(s);
    line("phwol hits", hits.phwol.to_string());
    line("mfex opt hits", hits.mfex.to_string());
    line("simple match hits", hits.simple.to_string());
    line("emc hits", hits.emc.to_string());
    line("smc hits", hits.smc.to_string());
    line("megaflow hits", hits.megaflow.to_string());
    line("avg. subtable lookups per megaflow hit", two(ratio(v(Stat::SubtableLookups), hits.megaflow)));
    line("miss with success upcall", success.to_string());
    line("miss with failed upcall", v(Stat::Lost).to_string());
    line("avg. packets per output batch", two(ratio(v(Stat::Sent), v(Stat::SendBatches))));
    let (idle, busy) = (v(Stat::IdleTicks), v(Stat::BusyTicks));
    let total = idle + busy;
    if !cycles || total == 0 {
        return out;
    }
    line("idle cycles", format!("{idle} ({:.2}%)", 100.0 * ratio(idle, total)));
    line("processing cycles", format!("{busy} ({:.2}%)", 100.0 * ratio(busy, total)));
    if packets > 0 {
        line("avg cycles per packet", format!("{:.2} ({total}/{packets})", ratio(total, packets)));
        line("avg processing cycles per packet", format!("{:.2} ({busy}/{packets})", ratio(busy, packets)));
    }
    out
}

/// Hits by the levels that tools know.
pub struct Hits {
    /// Recognised by hardware, which marked the packet.
    pub phwol: u64,
    /// There is one parser, which is not counted apart.
    pub mfex: u64,
    pub simple: u64,
    pub emc: u64,
    pub smc: u64,
    pub megaflow: u64,
}

impl Hits {
    pub fn of(s: &Snapshot) -> Hits {
        let v = |stat| s.value(stat);
        Hits {
            phwol: v(Stat::MarkHit),
            mfex: 0,
            simple: v(Stat::SimpleHit),
            emc: v(Stat::CacheHit),
            smc: v(Stat::BigCacheHit),
            megaflow: v(Stat::SubtableHit),
        }
    }
}

fn stats_clear(c: &mut Ctx, words: &[&str]) -> fv_core::Reply {
    let a = args(c, words)?;
    for w in a.dp.dp.workers() {
        if a.core.is_none_or(|core| core == w.id.0 && w.kind == WorkerKind::Poll) {
            w.clear_stats();
            a.dp.dp.ask(w.id, |w| w.perf().into_iter().for_each(|p| p.clear()));
        }
    }
    Ok(String::new())
}

fn rxq_show(c: &mut Ctx, words: &[&str]) -> fv_core::Reply {
    let a = args(c, words)?;
    let secs = a.rest.iter().position(|w| *w == "-secs").and_then(|at| a.rest.get(at + 1));
    let secs = secs.and_then(|s| s.parse::<u32>().ok()).filter(|s| (1..=ALL_SECS).contains(s)).unwrap_or(ALL_SECS);
    let n = secs.div_ceil(INTERVAL_SECS);
    let workers = poll_workers(a.dp, a.core);
    if workers.is_empty() && a.core.is_some() {
        return Ok(String::new());
    }
    let mut out = format!("Displaying last {} seconds pmd usage %\n", n * INTERVAL_SECS);
    let mut queues = a.dp.dp.queues();
    queues.sort_by(|a, b| (&a.name, a.queue).cmp(&(&b.name, b.queue)));
    let isolate = a.dp.dp.rules().isolate;
    for w in workers {
        let mine: Vec<_> = queues.iter().filter(|q| q.worker == w.id).collect();
        let isolated = isolate && mine.iter().any(|q| q.pinned);
        out += &header(&w);
        let _ = writeln!(out, "  isolated : {isolated}");
        let usage = a.dp.dp.worker_usage(w.id);
        // Not before a whole interval is known, of the queue and of the worker.
        let percent = |part: u64, known: usize| {
            let n = (n as usize).min(known).min(usage.all.known());
            (n > 0).then(|| format!("{:2.0} %", 100.0 * ratio(part, usage.all.sum(n))))
        };
        let text = |p: Option<String>| p.unwrap_or_else(|| "NOT AVAIL".into());
        let mut queues_sum = 0;
        for q in &mine {
            let n = (n as usize).min(usage.all.known());
            let cycles = q.usage.sum(n);
            queues_sum += cycles;
            let _ = writeln!(
                out,
                "  port: {:<16}  queue-id: {:2} {}  pmd usage: {}",
                q.name,
                q.queue,
                if q.enabled { "(enabled) " } else { "(disabled)" },
                text(percent(cycles, q.usage.known()))
            );
        }
        if !mine.is_empty() {
            let busy = usage.busy.sum(n as usize);
            let rest = percent(busy.saturating_sub(queues_sum), INTERVALS);
            let _ = writeln!(out, "  overhead: {}", text(rest));
        }
    }
    Ok(out)
}

fn rebalance(c: &mut Ctx, words: &[&str]) -> fv_core::Reply {
    dp(c, words)?.dp.deal(&Deal::Fresh(WorkerKind::Poll));
    Ok("pmd rxq rebalance requested.\n".into())
}

fn sleep_show(c: &mut Ctx, words: &[&str]) -> fv_core::Reply {
    let a = args(c, words)?;
    let pmd = &c.engine.world.dps.pmd;
    let mut out = format!("Default max sleep: {:4} us\n", pmd.spec.max_sleep_us);
    for w in poll_workers(a.dp, None) {
        let _ = writeln!(out, "{}  max sleep: {:4} us", header(&w), pmd.max_sleep_us(w.id.0));
    }
    Ok(out)
}

/// Bonds are worked off by programs here; none is in the datapath.
fn bond_show(c: &mut Ctx, words: &[&str]) -> fv_core::Reply {
    dp(c, words)?;
    Ok(String::new())
}
