//! The steps of the demo, each explained in a line.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::run::Runner;
use super::stage::Stage;
use crate::human::rate;

const STEP: Duration = Duration::from_secs(15);
const BRIDGE: &str = "demo";
/// TCP ports of the two connections of the last act; the second is dropped.
const KEPT: &str = "5201";
const DROPPED: &str = "5202";
/// Seconds that the two connections have before, during and after the drop, and the pace of their reports.
const BEFORE: Duration = Duration::from_millis(2000);
const DURING: Duration = Duration::from_millis(2500);
const AFTER: Duration = Duration::from_secs(10);
const CONNECTIONS_SECS: &str = "30";

pub fn tell(r: &Runner, s: &mut Stage, daemon: &Path, seconds: u64) -> Result<()> {
    r.say(&format!("1. Starting a switch with an embedded database; all its files are in {}.", s.dir.display()))?;
    s.start_switch(r, daemon)?;

    let [a, b] = s.hosts.clone();
    r.say(&format!(
        "\n2. Making two hosts: namespaces {} ({}) and {} ({}), each with a veth pair.",
        a.ns, a.address, b.ns, b.address
    ))?;
    s.make_hosts(r)?;
    show_offloads(r, s)?;

    r.say(&format!("\n3. Configuring bridge `{BRIDGE}' with the other ends as its ports, by ovs-vsctl."))?;
    configure(r, s)?;

    r.say("\n4. Pinging from one host to the other, through the switch.")?;
    ping(r, s)?;

    r.say(&format!("\n5. Measuring TCP between them with iperf3 for {seconds} s."))?;
    let bits = measure(r, s, seconds)?;
    r.say(&format!("   {} arrived.", bits_per_sec(bits)))?;

    r.say("\n6. These flows did it: what the datapath has learnt to do without asking (dpctl/dump-flows),")?;
    show(r, &dump_flows(r, s)?)?;
    r.say("   and the OpenFlow rule they were made from, with its counters (ovs-ofctl dump-flows).")?;
    show(r, &ofctl(r, s, &["dump-flows", BRIDGE])?)?;

    drop_one(r, s)
}

fn bits_per_sec(x: f64) -> String {
    format!("{} bit/s", rate(x))
        .replace("  ", " ")
        .replace(" G bit", " Gbit")
        .replace(" M bit", " Mbit")
        .replace(" k bit", " kbit")
}

fn show(r: &Runner, text: &str) -> Result<()> {
    text.lines().filter(|l| !l.trim().is_empty()).try_for_each(|l| r.say(&format!("     {}", l.trim_end())))
}

fn vsctl(r: &Runner, s: &Stage, args: &[&str]) -> Result<String> {
    let mut all = vec!["--timeout=10"];
    all.extend(args);
    r.run("ovs-vsctl", &all, &s.dir, STEP)
}

fn ofctl(r: &Runner, s: &Stage, args: &[&str]) -> Result<String> {
    let mut all = vec!["--timeout=10"];
    all.extend(args);
    r.run("ovs-ofctl", &all, &s.dir, STEP)
}

fn appctl(r: &Runner, s: &Stage, args: &[&str]) -> Result<String> {
    let mut all = vec!["--timeout=10"];
    all.extend(args);
    r.run("ovs-appctl", &all, &s.dir, STEP)
}

fn show_offloads(r: &Runner, s: &Stage) -> Result<()> {
    let all = s.inside(r, 0, &["ethtool", "-k", "eth0"], STEP)?;
    let wanted = ["tx-checksumming:", "tcp-segmentation-offload:", "generic-receive-offload:"];
    let mut lines: Vec<&str> = all.lines().filter(|l| wanted.iter().any(|w| l.starts_with(w))).collect();
    lines.sort_unstable();
    r.say(&format!("   Offloads stay as the kernel sets them: {}.", lines.join(", ")))
}

fn configure(r: &Runner, s: &Stage) -> Result<()> {
    let [a, b] = &s.hosts;
    let add = ["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev"];
    vsctl(r, s, &add)?;
    for h in [a, b] {
        vsctl(r, s, &["add-port", BRIDGE, &h.port])?;
    }
    show(r, &vsctl(r, s, &["show"])?)
}

fn ping(r: &Runner, s: &Stage) -> Result<()> {
    let to = s.hosts[1].address;
    let text =
        s.inside(r, 0, &["ping", "-n", "-c", "5", "-i", "0.2", "-W", "3", to], STEP).context("no answer to ping")?;
    let end: Vec<&str> = text.lines().filter(|l| l.contains("packets transmitted") || l.starts_with("rtt")).collect();
    show(r, &end.join("\n"))
}

/// Bits per second that arrived.
fn measure(r: &Runner, s: &mut Stage, seconds: u64) -> Result<f64> {
    serve(r, s, KEPT)?;
    let to = s.hosts[1].address;
    let limit = Duration::from_secs(seconds) + STEP;
    let text = s.inside(r, 0, &["iperf3", "-c", to, "-p", KEPT, "-t", &seconds.to_string(), "-f", "k"], limit)?;
    s.end_background();
    let line = text.lines().rev().find(|l| l.contains("receiver")).context("iperf3 reports no rate")?;
    let bits = line_rate(line).context("iperf3 reports no rate")?;
    if bits <= 0.0 {
        bail!("no TCP data arrived");
    }
    Ok(bits)
}

/// `... 1234 Kbits/sec ...` in bits per second.
fn line_rate(line: &str) -> Option<f64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|w| *w == "Kbits/sec")?;
    let value: f64 = words.get(at.checked_sub(1)?)?.parse().ok()?;
    Some(value * 1e3)
}

/// Starts a server in the second host that reports twice a second, and waits until it listens.
fn serve(r: &Runner, s: &mut Stage, port: &str) -> Result<()> {
    let file = format!("server{port}");
    let args = ["iperf3", "-s", "-1", "-p", port, "-i", "0.5", "-f", "k", "--forceflush"];
    s.inside_background(1, &args, &file)?;
    let up = r.wait(STEP, || Ok(s.output(&file).contains("Server listening").then_some(())))?;
    up.with_context(|| format!("iperf3 does not listen: {}", s.output(&file).trim()))
}

fn dump_flows(r: &Runner, s: &Stage) -> Result<String> {
    let all = appctl(r, s, &["dpctl/dump-flows", "--names"]).or_else(|_| appctl(r, s, &["dpctl/dump-flows"]))?;
    Ok(all.lines().filter(|l| !l.contains("eth_type(0x86dd)")).collect::<Vec<_>>().join("\n"))
}

/// Two connections; a rule drops one of them, the other goes on; without the rule it comes back.
fn drop_one(r: &Runner, s: &mut Stage) -> Result<()> {
    r.say(&format!("\n7. Two connections at once, to TCP ports {KEPT} and {DROPPED}."))?;
    let to = s.hosts[1].address;
    for port in [KEPT, DROPPED] {
        serve(r, s, port)?;
    }
    for port in [KEPT, DROPPED] {
        let args = ["iperf3", "-c", to, "-p", port, "-t", CONNECTIONS_SECS];
        s.inside_background(0, &args, &format!("client{port}"))?;
    }
    r.pause(BEFORE)?;
    let mut seen = both(r, s, "now")?;

    let rule = format!("priority=100,tcp,tp_dst={DROPPED},actions=drop");
    r.say(&format!("   Dropping the second: ovs-ofctl add-flow {BRIDGE} {rule}"))?;
    ofctl(r, s, &["add-flow", BRIDGE, &rule])?;
    r.pause(DURING)?;
    seen = both_since(r, s, "with the rule", seen)?;
    if seen.last_rate(1) > 0.0 || seen.last_rate(0) <= 0.0 {
        bail!("the rule should have stopped the connection to {DROPPED} and no other");
    }
    r.say("   The rule has counted what it dropped, and the datapath drops it without asking:")?;
    show(r, &ofctl(r, s, &["dump-flows", BRIDGE, &format!("tcp,tp_dst={DROPPED}")])?)?;
    let drops: Vec<String> =
        dump_flows(r, s)?.lines().filter(|l| l.ends_with("actions:drop")).map(Into::into).collect();
    show(r, &drops.join("\n"))?;

    r.say(&format!("   Deleting the rule: ovs-ofctl --strict del-flows {BRIDGE} priority=100,tcp,tp_dst={DROPPED}"))?;
    ofctl(r, s, &["--strict", "del-flows", BRIDGE, &format!("priority=100,tcp,tp_dst={DROPPED}")])?;
    let file = format!("server{DROPPED}");
    let reports = intervals(&s.output(&file)).len();
    let back = r.wait(AFTER, || Ok(intervals(&s.output(&file))[reports..].iter().any(|x| *x > 0.0).then_some(())))?;
    back.context("the connection did not go on after the rule was deleted")?;
    r.pause(Duration::from_millis(1100))?;
    both(r, s, "without it")?;
    s.end_background();
    Ok(())
}

/// Rates of both servers' reports so far.
struct Seen([Vec<f64>; 2]);

impl Seen {
    /// Of the latest whole interval.
    fn last_rate(&self, n: usize) -> f64 {
        self.0[n].last().copied().unwrap_or(0.0)
    }
}

fn both(r: &Runner, s: &Stage, when: &str) -> Result<Seen> {
    let seen = Seen([KEPT, DROPPED].map(|p| intervals(&s.output(&format!("server{p}")))));
    r.say(&format!(
        "   {when}: {KEPT} at {}, {DROPPED} at {}",
        bits_per_sec(seen.last_rate(0)),
        bits_per_sec(seen.last_rate(1))
    ))?;
    Ok(seen)
}

/// Like `both`, but waits for reports that are newer than `before`.
fn both_since(r: &Runner, s: &Stage, when: &str, before: Seen) -> Result<Seen> {
    let more = |n: usize, p: &str| intervals(&s.output(&format!("server{p}"))).len() > before.0[n].len();
    r.wait(STEP, || Ok((more(0, KEPT) && more(1, DROPPED)).then_some(())))?;
    both(r, s, when)
}

/// The rates of a server's interval reports: lines like `[  5]  0.50-1.00  sec  9 KBytes  150 Kbits/sec`.
fn intervals(text: &str) -> Vec<f64> {
    text.lines()
        .filter(|l| l.starts_with('[') && !l.contains("receiver") && !l.contains("sender"))
        .filter_map(line_rate)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_one_unit() {
        assert_eq!([0.0, 2e3, 12.3e9].map(bits_per_sec), ["0 bit/s", "2.00 kbit/s", "12.3 Gbit/s"]);
    }

    #[test]
    fn reads_reports_of_iperf3() {
        let text = "Server listening on 5201 (test #1)\n[ ID] Interval           Transfer     Bitrate\n\
            [  5]   0.00-0.50   sec  1.20 GBytes  20585731 Kbits/sec                  \n\
            [  5]   0.50-1.00   sec  0.00 Bytes  0.00 Kbits/sec                  \n\
            [  5]   0.00-1.00   sec  1.20 GBytes  10292865 Kbits/sec                  receiver\n";
        assert_eq!(intervals(text), [20_585_731_000.0, 0.0]);
        assert_eq!(line_rate("nothing"), None);
        assert_eq!(line_rate("Kbits/sec"), None);
    }
}
