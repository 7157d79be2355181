//! `ferrovia why`: a trace in plain words.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{Target, Why};
use crate::human::print;
use crate::socket::{Daemon, Error, fail};

pub fn run(target: &Target, o: &Why) -> Result<ExitCode> {
    match Daemon::find(target).and_then(|d| explain(&d, o)) {
        Ok(text) => {
            print(&text)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(e) => Ok(fail(&e)),
    }
}

fn explain(d: &Daemon, o: &Why) -> Result<String, Error> {
    let mut out = String::new();
    if let Some(flow) = &o.flow {
        let text = match &o.bridge {
            Some(b) => d.call("ofproto/trace", &[b, flow])?,
            None => d.call("ofproto/trace", &[flow])?,
        };
        out += &verdict(&text);
        if o.trace {
            let _ = writeln!(out, "\nThe trace:\n{text}");
        }
    } else if let Some(b) = &o.bridge {
        // A bridge that does not exist must be an error, not "nothing was dropped".
        let flows = d.call("dpif/dump-flows", &[b])?;
        out += &dropping_flows(&flows);
    }
    out += &drop_counters(&d.call("coverage/show", &[])?);
    Ok(out)
}

/// A rule that was looked up, and what came of it.
#[derive(Debug, PartialEq)]
struct Step<'a> {
    bridge: &'a str,
    table: &'a str,
    /// The rule's match, priority and more; None if no rule matched.
    rule: Option<&'a str>,
    actions: Vec<&'a str>,
}

/// The lookups of a trace, in order, however deep.
fn steps(trace: &str) -> Vec<Step<'_>> {
    let mut out: Vec<Step> = Vec::new();
    let mut bridge = "?";
    for line in trace.lines() {
        let t = line.trim();
        if let Some(b) = t.strip_prefix("bridge(\"").and_then(|r| r.strip_suffix("\")")) {
            bridge = b;
        } else if let Some((table, rule)) = lookup(t) {
            let rule = (!rule.starts_with("No match")).then_some(rule);
            out.push(Step { bridge, table, rule, actions: Vec::new() });
        } else if line.starts_with(' ')
            && !t.is_empty()
            && let Some(s) = out.last_mut()
        {
            s.actions.push(t);
        }
    }
    out
}

/// `0. tcp,in_port=1, priority 10` -> (0, rest).
fn lookup(line: &str) -> Option<(&str, &str)> {
    let (n, rest) = line.split_once(". ").or_else(|| line.strip_suffix('.').map(|n| (n, "")))?;
    (!n.is_empty() && n.chars().all(|c| c.is_ascii_digit())).then_some((n, rest))
}

/// What the last pass of a trace ends with.
fn datapath_actions(trace: &str) -> Option<&str> {
    trace.lines().rev().find_map(|l| l.strip_prefix("Datapath actions: "))
}

fn verdict(trace: &str) -> String {
    let mut out = String::new();
    let all = steps(trace);
    let actions = datapath_actions(trace).unwrap_or("unknown");
    let slow = trace.contains("This flow is handled by the userspace slow path");
    let decided = all.last();
    let _ = match (actions, decided) {
        ("drop", Some(s)) => writeln!(out, "The packet is DROPPED {}", dropped_by(s)),
        ("drop", None) => writeln!(out, "The packet is DROPPED before any table: {}", before_tables(trace)),
        ("unknown", _) => writeln!(out, "The trace does not say what happens to the packet."),
        (a, _) => writeln!(out, "The packet is FORWARDED. What is done with it: {a}"),
    };
    if slow {
        out += "It is not handled by a cached flow alone: the slow path sees each such packet.\n";
    }
    if !all.is_empty() {
        out += "How it came to that:\n";
    }
    for (n, s) in all.iter().enumerate() {
        let _ = match s.rule {
            Some(r) => writeln!(out, "  {}. bridge {}, table {}: the rule \"{r}\" matched", n + 1, s.bridge, s.table),
            None => writeln!(out, "  {}. bridge {}, table {}: no rule matched", n + 1, s.bridge, s.table),
        };
        for a in &s.actions {
            let _ = writeln!(out, "       {}", in_words(a));
        }
    }
    if let Some(m) = trace.lines().rev().find_map(|l| l.strip_prefix("Megaflow: ")) {
        let _ = writeln!(out, "All packets with {m} are treated the same.");
    }
    out
}

fn dropped_by(s: &Step) -> String {
    let place = format!("in table {} of bridge {}", s.table, s.bridge);
    let asked = s.actions.contains(&"drop");
    match s.rule {
        None => format!("{place}: no rule there matches it, and the table drops what it does not know."),
        Some(r) if asked => format!("{place}: the rule \"{r}\" says drop."),
        Some(r) => match s.actions.iter().rev().find_map(|a| a.strip_prefix("-> ").or(a.strip_prefix(">> "))) {
            Some(reason) => format!("{place}: the rule \"{r}\" decided, and then: {reason}."),
            None => {
                format!("{place}: the rule \"{r}\" sends it nowhere (for example only back to where it came from).")
            }
        },
    }
}

/// A message that the translation gave instead of looking up.
fn before_tables(trace: &str) -> String {
    let message = trace.lines().find_map(|l| {
        let t = l.trim();
        t.strip_prefix("-> ").or(t.strip_prefix(">> "))
    });
    message.unwrap_or("the port or the packet is not acceptable").to_string()
}

/// One line of a trace below a rule.
fn in_words(action: &str) -> String {
    let note = action.strip_prefix("-> ").or(action.strip_prefix(">> "));
    match note {
        Some(n) => format!("note: {n}"),
        None if action == "NORMAL" => "NORMAL: forwarded like a learning switch".into(),
        None if action == "drop" => "drop: nothing more is done".into(),
        None => action.into(),
    }
}

/// The datapath flows that drop, most packets first.
fn dropping_flows(dump: &str) -> String {
    let packets = |l: &str| -> u64 {
        let rest = l.split_once("packets:").map_or("", |x| x.1);
        rest.split(',').next().unwrap_or_default().parse().unwrap_or(0)
    };
    let mut drops: Vec<&str> = dump.lines().filter(|l| l.trim_end().ends_with("actions:drop")).collect();
    drops.sort_by_key(|l| std::cmp::Reverse(packets(l)));
    if drops.is_empty() {
        return "No flow of the bridge drops at the moment.\n".into();
    }
    let mut out = String::from("Flows that drop at the moment (explain one with `ferrovia why FLOW'):\n");
    for l in drops {
        let key = l.split(", packets:").next().unwrap_or(l).trim();
        let _ = writeln!(out, "  {:>10} packets  {key}", packets(l));
    }
    out
}

/// Counters of drops that are not zero: `name ... total: N`.
fn drop_counters(coverage: &str) -> String {
    let mut out = String::new();
    for line in coverage.lines() {
        let Some(name) = line.split_whitespace().next() else { continue };
        let total: u64 = line.rsplit("total: ").next().and_then(|t| t.trim().parse().ok()).unwrap_or(0);
        if name.contains("drop") && line.contains("total: ") && total > 0 {
            let _ = writeln!(out, "  {total:>10} {}", counter_in_words(name));
        }
    }
    match out.is_empty() {
        true => "No drop counter has moved since the daemon started.\n".into(),
        false => format!("Packets dropped since the daemon started, by reason:\n{out}"),
    }
}

fn counter_in_words(name: &str) -> String {
    let known = match name {
        "drop_action_of_pipeline" => "a rule said drop, or none sent them anywhere",
        "drop_action_bridge_not_found" => "the bridge is gone",
        "drop_action_recursion_too_deep" => "tables, groups or patch ports nest too deeply",
        "drop_action_too_many_resubmit" => "too many resubmits",
        "drop_action_stack_too_deep" => "the stack of the actions is full",
        "drop_action_no_recirculation_context" => "the state of an interrupted translation is gone",
        "drop_action_recirculation_conflict" => "two reasons to interrupt the translation at once",
        "drop_action_too_many_mpls_labels" => "too many MPLS labels",
        "drop_action_invalid_tunnel_metadata" => "tunnel metadata makes no sense",
        "drop_action_unsupported_packet_type" => "unsupported packet type",
        "drop_action_congestion" => "marked for congestion, but not ECN-capable",
        "drop_action_forwarding_disabled" => "the port does not forward",
        "datapath_drop_upcall_error" => "could not be translated",
        "datapath_drop_lock_error" => "the lock was taken",
        "datapath_drop_rx_invalid_packet" => "malformed packets",
        "datapath_drop_invalid_port" => "the output port is gone",
        "datapath_drop_meter" => "over a meter's rate",
        _ => return name.into(),
    };
    format!("{name}: {known}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DROP: &str = "Flow: tcp,in_port=1\n\nbridge(\"br0\")\n-------------\n 0. in_port=1, priority 5\n    resubmit(,2)\n \
        2. tcp,tp_dst=80, priority 10\n    drop\n\nFinal flow: unchanged\nMegaflow: recirc_id=0,tcp,in_port=1\nDatapath actions: drop\n";

    #[test]
    fn names_the_rule_that_decided() {
        let text = verdict(DROP);
        assert!(
            text.starts_with(
                "The packet is DROPPED in table 2 of bridge br0: the rule \"tcp,tp_dst=80, priority 10\" says drop."
            ),
            "{text}"
        );
        assert!(text.contains("1. bridge br0, table 0: the rule \"in_port=1, priority 5\" matched"), "{text}");
        assert!(text.contains("All packets with recirc_id=0,tcp,in_port=1 are treated the same."), "{text}");
    }

    #[test]
    fn a_miss_and_a_note_are_reasons() {
        let miss = "bridge(\"b\")\n---\n 0. No match.\n    drop\n\nDatapath actions: drop\n";
        assert!(verdict(miss).starts_with("The packet is DROPPED in table 0 of bridge b: no rule there matches it"));
        let note = "bridge(\"b\")\n---\n 0. priority 0\n    NORMAL\n     -> dropping packet tagged with VLAN 3\n\nDatapath actions: drop\n";
        assert!(verdict(note).contains("and then: dropping packet tagged with VLAN 3."), "{}", verdict(note));
        let back = "bridge(\"b\")\n---\n 0. priority 0\n    output:1\n\nDatapath actions: drop\n";
        assert!(verdict(back).contains("sends it nowhere"));
    }

    #[test]
    fn forwarding_says_where() {
        let text = verdict(
            "bridge(\"b\")\n---\n 0. priority 0\n    NORMAL\n     -> forwarding to learned port\n\nDatapath actions: 2\n",
        );
        assert!(text.starts_with("The packet is FORWARDED. What is done with it: 2"), "{text}");
        assert!(text.contains("note: forwarding to learned port"), "{text}");
        assert_eq!(verdict(""), "The trace does not say what happens to the packet.\n");
    }

    #[test]
    fn only_drop_counters_that_moved() {
        let coverage = "Event coverage, avg rate over last: 5 seconds\n\
            datapath_drop_meter        0.0/sec     0.000/sec        0.0000/sec   total: 7\n\
            drop_action_of_pipeline    0.0/sec     0.000/sec        0.0000/sec   total: 0\n\
            rev_flow_table             0.0/sec     0.000/sec        0.0000/sec   total: 3\n12 events never hit\n";
        let text = drop_counters(coverage);
        assert!(text.contains("7 datapath_drop_meter: over a meter's rate"), "{text}");
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(drop_counters("").starts_with("No drop counter"));
    }

    #[test]
    fn dropping_flows_by_packets() {
        let dump = "a(1), packets:1, bytes:2, used:1s, actions:drop\nb(2), packets:9, bytes:2, used:1s, actions:drop\nc, packets:5, actions:2\n";
        let text = dropping_flows(dump);
        let b = text.find("b(2)").unwrap();
        assert!(b < text.find("a(1)").unwrap() && !text.contains("c,"), "{text}");
    }
}
