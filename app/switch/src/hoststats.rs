//! The host's load for `Open_vSwitch:statistics`, written while `enable-statistics` is on.

use std::collections::BTreeMap;

/// `statistics` column: CPUs, load averages, memory in KiB, this process.
pub fn collect(process: &str) -> BTreeMap<String, String> {
    let mut m = BTreeMap::new();
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    m.insert("cpu".into(), cpus.to_string());
    if let Some(load) = std::fs::read_to_string("/proc/loadavg").ok().as_deref().and_then(load_average) {
        m.insert("load_average".into(), load);
    }
    if let Some(mem) = std::fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(memory) {
        m.insert("memory".into(), mem);
    }
    if let Some(p) = std::fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(own_process) {
        m.insert(format!("process_{process}"), p);
    }
    m
}

/// "1.2,0.9,0.5"
fn load_average(text: &str) -> Option<String> {
    let three: Vec<&str> = text.split_whitespace().take(3).collect();
    (three.len() == 3).then(|| three.join(","))
}

/// Total, used, cached memory and total, used swap, in KiB.
fn memory(text: &str) -> Option<String> {
    let kib = |name: &str| -> Option<u64> {
        let line = text.lines().find(|l| l.strip_prefix(name).is_some_and(|r| r.starts_with(':')))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let (total, free) = (kib("MemTotal")?, kib("MemFree")?);
    let cached = kib("Buffers").unwrap_or(0) + kib("Cached").unwrap_or(0);
    let (swap, swap_free) = (kib("SwapTotal").unwrap_or(0), kib("SwapFree").unwrap_or(0));
    Some(format!("{total},{},{cached},{swap},{}", total.saturating_sub(free), swap.saturating_sub(swap_free)))
}

/// Virtual and resident size in KiB, CPU time in ms, crashes, starts, and uptime in ms.
fn own_process(stat: &str) -> Option<String> {
    // The name may hold anything, but ends at the last parenthesis.
    let f: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let n = |i: usize| f.get(i)?.parse::<u64>().ok();
    let ticks_ms = 10;
    let cpu = (n(11)? + n(12)?) * ticks_ms;
    let uptime: f64 = std::fs::read_to_string("/proc/uptime").ok()?.split_whitespace().next()?.parse().ok()?;
    let age = (uptime * 1000.0) as u64;
    let age = age.saturating_sub(n(19)? * ticks_ms);
    Some(format!("{},{},{cpu},0,{age},{age}", n(20)? / 1024, n(21)? * 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_from_proc() {
        let text =
            "MemTotal: 1000 kB\nMemFree: 300 kB\nBuffers: 10 kB\nCached: 90 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB\n";
        assert_eq!(memory(text).as_deref(), Some("1000,700,100,50,30"));
        assert_eq!(load_average("0.10 0.20 0.30 1/2 3").as_deref(), Some("0.10,0.20,0.30"));
        assert_eq!(memory("x"), None);
        let all = collect("x");
        assert!(all.contains_key("cpu") && all.contains_key("process_x"), "{all:?}");
    }
}
