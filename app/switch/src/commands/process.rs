//! The process itself: version, exit, memory, coverage counters.

use std::collections::{BTreeMap, VecDeque};

use fv_core::{Command, Counter, Nanos};

use super::Ctx;
use crate::report::VERSION;

pub const COMMANDS: &[Command<Ctx>] = &[
    Command { name: "list-commands", usage: Some(""), min: 0, max: 0, run: |c, _| Ok(c.list.clone()) },
    Command {
        name: "version",
        usage: Some(""),
        min: 0,
        max: 0,
        run: |_, _| Ok(format!("ovs-vswitchd (Open vSwitch) {VERSION}")),
    },
    Command { name: "exit", usage: Some("[--cleanup]"), min: 0, max: 1, run: exit },
    Command { name: "memory/show", usage: Some(""), min: 0, max: 0, run: memory },
    Command { name: "coverage/show", usage: Some(""), min: 0, max: 0, run: |c, _| Ok(c.coverage.show()) },
    Command { name: "coverage/read-counter", usage: Some("COUNTER"), min: 1, max: 1, run: read_counter },
];

fn exit(c: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    match args.first() {
        None => c.exit = Some(false),
        Some(&"--cleanup") => c.exit = Some(true),
        Some(other) => return Err(format!("{other}: unknown option")),
    }
    Ok(String::new())
}

fn memory(c: &mut Ctx, _: &[&str]) -> fv_core::Reply {
    let e = &c.engine;
    let conns: usize = e.bridges.values().map(|b| b.of.conns().info().len()).sum();
    let ports: usize = e.world.bridges.values().map(|p| p.ifaces.len()).sum();
    let rules: usize = e.bridges.values().map(|b| b.of.all_rules().len()).sum();
    let (mut keys, mut revalidators) = (0, 0);
    for (_, i) in e.world.dps.iter() {
        keys += i.slowpath.info().keys;
        revalidators += 1;
    }
    let mut parts: Vec<(&str, usize)> = vec![("handlers", usize::from(revalidators > 0))];
    for (name, n) in
        [("ofconns", conns), ("ports", ports), ("revalidators", revalidators), ("rules", rules), ("udpif keys", keys)]
    {
        if n > 0 {
            parts.push((name, n));
        }
    }
    Ok(parts.iter().map(|(k, n)| format!("{k}:{n}")).collect::<Vec<_>>().join(" "))
}

/// Every counter of the process.
pub fn counters() -> impl Iterator<Item = &'static Counter> {
    let lists: [&[&'static Counter]; 3] = [fv_xlate::COUNTERS, fv_slowpath::COUNTERS, fv_tunnel::COUNTERS];
    lists.into_iter().flatten().copied().chain(fv_dpif::DropReason::ALL.iter().map(|r| r.counter()))
}

/// Counters of the same name are shown as one.
fn totals() -> BTreeMap<&'static str, u64> {
    let mut t = BTreeMap::new();
    for c in counters() {
        *t.entry(c.name()).or_default() += c.value();
    }
    t
}

fn read_counter(_: &mut Ctx, args: &[&str]) -> fv_core::Reply {
    totals().get(args[0]).map(u64::to_string).ok_or_else(|| "No such counter".into())
}

/// Sampling period, and how many samples make a minute and an hour.
const PERIOD: Nanos = Nanos::from_secs(5);
const PER_MINUTE: usize = 12;
const PER_HOUR: usize = 720;

/// Rates of the counters over the last period, minute and hour.
pub struct Coverage {
    last: BTreeMap<&'static str, u64>,
    /// Increments per period, the newest first.
    deltas: VecDeque<BTreeMap<&'static str, u64>>,
    next: Nanos,
}

impl Coverage {
    pub fn new(now: Nanos) -> Coverage {
        Coverage { last: totals(), deltas: VecDeque::new(), next: now + PERIOD }
    }

    /// Takes a sample when one is due.
    pub fn turn(&mut self, now: Nanos) {
        if now < self.next {
            return;
        }
        let due = now.saturating_sub(self.next).0 / PERIOD.0 + 1;
        self.next += Nanos(due.saturating_mul(PERIOD.0));
        // After a jump of time, its first period has got all and the others nothing; samples that
        // would be forgotten again are not taken.
        for _ in 0..due.min(PER_HOUR as u64) {
            let t = totals();
            let d = t.iter().map(|(k, v)| (*k, v - self.last.get(k).copied().unwrap_or(0))).filter(|(_, d)| *d > 0);
            self.deltas.push_front(d.collect());
            self.deltas.truncate(PER_HOUR);
            self.last = t;
        }
    }

    fn show(&self) -> String {
        let all = totals();
        let hit: Vec<_> = all.iter().filter(|(_, v)| **v > 0).collect();
        let hash = hit
            .iter()
            .flat_map(|(k, _)| k.bytes())
            .fold(0x811c_9dc5u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
        let mut out =
            format!("Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash={hash:08x}:\n");
        for (name, total) in &hit {
            let sum = |n: usize| self.deltas.iter().take(n).filter_map(|d| d.get(*name)).sum::<u64>() as f64;
            out.push_str(&format!(
                "{name:<24} {:5.1}/sec {:9.3}/sec {:13.4}/sec   total: {total}\n",
                sum(1) / 5.0,
                sum(PER_MINUTE) / 60.0,
                sum(PER_HOUR) / 3600.0
            ));
        }
        out.push_str(&format!("{} events never hit\n", all.len() - hit.len()));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_of_time_costs_an_hours_samples_at_most() {
        let mut c = Coverage::new(Nanos::ZERO);
        c.turn(PERIOD);
        assert_eq!(c.deltas.len(), 1);
        c.turn(Nanos(PERIOD.0 * 4 - 1));
        assert_eq!((c.deltas.len(), c.next), (3, Nanos(PERIOD.0 * 4)));
        c.turn(Nanos(u64::MAX / 2));
        assert_eq!(c.deltas.len(), PER_HOUR);
        assert!(c.next > Nanos(u64::MAX / 2));
    }
}
