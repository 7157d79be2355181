//! What counts as equal.

use crate::case::Case;
use crate::pair::Account;
use crate::wider;

/// One text that is not the same on both sides.
#[derive(Clone, Debug)]
pub struct Difference {
    pub what: String,
    pub reference: String,
    pub ours: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "## {}", self.what)?;
        let (a, b): (Vec<&str>, Vec<&str>) = (self.reference.lines().collect(), self.ours.lines().collect());
        let trace = self.what.contains("ofproto/trace");
        for l in &a {
            if !b.contains(l) {
                writeln!(f, "- {l}")?;
            } else if trace {
                writeln!(f, "  {l}")?;
            }
        }
        for l in &b {
            if !a.contains(l) {
                writeln!(f, "+ {l}")?;
            }
        }
        Ok(())
    }
}

/// What differs once everything that may differ has been made equal.
pub fn differences(case: &Case, reference: &Account, ours: &Account) -> Vec<Difference> {
    let flags = case.rules.iter().flatten().any(|r| r.contains("tcp_flags"));
    let learns =
        case.rules.iter().flatten().any(|r| ["learn(", "bundle", "multipath(", "group:"].iter().any(|a| r.contains(a)));
    let priority_tags = case.ports.iter().any(|(_, s)| s.contains("priority-tags"));
    let cuts = case.rules.iter().flatten().any(|r| r.contains("max_len="));
    let mut out = Vec::new();
    for ((what, a), (_, b)) in reference.iter().zip(ours) {
        let (mut a, mut b) = (plain(what, a), plain(what, b));
        if a != b && flags && what.contains("dpctl/dump-flows") {
            (a, b) = (no_later_fragments(&a), no_later_fragments(&b));
        }
        if a != b {
            (a, b) = (once_more(what, &a, &b), once_more(what, &b, &a));
        }
        let by_priority = |t: &str| t.contains("vid=0,") || t.contains("dl_vlan=0,");
        if a != b && (priority_tags || by_priority(&a) || by_priority(&b)) {
            (a, b) = (blank(&a, "pcp=", ",) "), blank(&b, "pcp=", ",) "));
            let without = |t: &str| t.replace(",dl_vlan_pcp=?", "").replace(",pcp=?", "");
            (a, b) = (without(&a), without(&b));
        }
        if a != b && cuts {
            (a, b) = (without_cuts(what, &a), without_cuts(what, &b));
        }
        if learns && (what.contains("trace") && wider::traces(&a, &b) || what.contains("dpctl") && wider::dumps(&a, &b))
        {
            continue;
        }
        if a != b && floods_alike(what, &a, &b) != Some(true) {
            out.push(Difference { what: what.clone(), reference: a, ours: b });
        }
    }
    out
}

/// `t` without what differs for a reason where it differs from `other`; see `tests/differences.md`.
fn once_more(what: &str, t: &str, other: &str) -> String {
    let mut t = blank(t, "set(mpls(", ")").replace("=0x00000000/0x00000100", "=0");
    t = t.replace(",mpls_label=0,mpls_tc=0,mpls_ttl=0", "");
    for zero in [",nw_proto=0", ",arp_op=0", "proto=0,", "op=0,"] {
        t = t.replace(zero, "");
    }
    let partial = |t: &str| t.contains("icmpv6(type=") && t.contains("/0x");
    if what.contains("dpctl/dump-flows") && (partial(&t) || partial(other)) {
        t = lines_without(&t, |l| l.contains("eth_type(0x86dd)") || l.starts_with("flow-dump from"));
    }
    if what.contains("dpctl/dump-flows") {
        // Second passes are left over for another while once no first pass leads to them.
        t = lines_without(&t, |l| l.contains("dp_hash(") || l.starts_with("flow-dump from"));
    }
    if t.contains("\nTranslation failed") {
        // What a translation had looked at when it failed.
        t = lines_without(&t, |l| l.starts_with("Megaflow: "));
    }
    if what.ends_with(".pcap") {
        t = t.lines().map(|l| no_later_payload(l).to_string() + "\n").collect();
    }
    t
}

/// The reference cuts a packet before it gets the tags that it is sent with.
fn without_cuts(what: &str, t: &str) -> String {
    match what {
        w if w.ends_with(".pcap") => t.lines().map(|l| l.get(..120).unwrap_or(l).to_string() + "\n").collect(),
        w if w.contains("dump-ports") => blank(t, "bytes=", ","),
        _ => t.into(),
    }
}

fn lines_without(t: &str, drop: impl Fn(&str) -> bool) -> String {
    t.lines().filter(|l| !drop(l)).collect::<Vec<_>>().join("\n")
}

/// A frame in hexadecimal without what a later fragment of IPv4 carries: the reference updates a
/// checksum there.
fn no_later_payload(frame: &str) -> &str {
    let mut ip = 28;
    while matches!(frame.get(ip - 4..ip), Some("8100" | "88a8")) {
        ip += 8;
    }
    let field = |at: usize| frame.get(ip + at..ip + at + 4).and_then(|s| u16::from_str_radix(s, 16).ok()).unwrap_or(0);
    let later = frame.get(ip - 4..ip) == Some("0800") && field(12) & 0x1fff != 0;
    let header = usize::from(field(0) >> 8 & 15) * 8;
    if later { frame.get(..ip + header).unwrap_or(frame) } else { frame }
}

/// Flows without those of later fragments: the reference installs none for a lookup that has seen
/// TCP flags, which later fragments do not have, and each of their packets is a miss.
fn no_later_fragments(dump: &str) -> String {
    lines_without(dump, |l| l.contains("frag=later") || l.starts_with("flow-dump from"))
}

/// Whether two traces differ only in the order of outputs: the reference's order of ports within
/// a bucket of its hash table depends on how often it was reconfigured.
fn floods_alike(what: &str, a: &str, b: &str) -> Option<bool> {
    if !what.contains("trace") && !what.contains("dump-flows") {
        return None;
    }
    // What is below a patch port is indented by its place among the ports.
    let floods = a.lines().any(|l| matches!(l.trim(), "ALL" | "FLOOD")) && a.contains("bridge(\"br1\")");
    let sorted = |t: &str| -> Vec<String> {
        let mut v: Vec<String> = t.lines().map(|l| unordered(if floods { l.trim() } else { l })).collect();
        if floods || what.contains("dump-flows") {
            v.sort_unstable();
        }
        v
    };
    Some(sorted(a) == sorted(b))
}

/// The datapath actions of a line in alphabetical order.
fn unordered(line: &str) -> String {
    let Some((head, list)) = line.split_once("ctions:") else { return line.into() };
    let (mut items, mut depth, mut start) = (Vec::new(), 0, 0);
    for (i, c) in list.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                items.push(list[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    items.push(list[start..].trim());
    items.sort_unstable();
    format!("{head}ctions:{}", items.join(","))
}

/// A text without what differs from run to run.
fn plain(what: &str, text: &str) -> String {
    let mut t = text.to_string();
    for (name, ends) in
        [("duration=", ","), ("recirc_id=", ","), ("used:", ","), ("xid=", ")"), ("recirc(", ")"), ("recirc_id(", ")")]
    {
        t = blank(&t, name, ends);
    }
    if what.contains("fdb/show") {
        // Ages are whole seconds of clocks that did not start together.
        let mut lines: Vec<&str> =
            t.lines().map(|l| l.rsplit_once(' ').map_or(l, |(head, _)| head.trim_end())).collect();
        lines.sort_unstable();
        t = lines.join("\n");
    }
    if what.contains("trace") {
        // The reference knows its hidden rules only in the bridge that it began in.
        t = t.replace("reg0=0x2, priority 0", "No match.");
        let fragments = "Packets are IP fragments and the fragment handling mode is \"drop\".";
        t = t.replace("reg0=0x3, priority 0", fragments);
    }
    if what.contains("dpctl/dump-flows") {
        t = t.lines().map(|l| flow_line(l) + "\n").collect();
    }
    if what.contains("group") {
        let mut lines: Vec<&str> = t.lines().collect();
        lines.sort_unstable();
        t = lines.join("\n");
    }
    if what.contains("dump-ports") {
        // Two lines a port.
        t = t.replace("\n           ", " ");
    }
    if what.contains("dump-flows") || what.contains("dump-ports") {
        let mut lines: Vec<&str> = t.lines().collect();
        lines.sort_unstable();
        t = lines.join("\n");
    }
    t
}

/// A datapath flow as both can print it: the release that is imitated has another order of the
/// first attributes, and does not take the type of a neighbour discovery option for TCP flags.
fn flow_line(line: &str) -> String {
    let Some((head, rest)) = line.split_once("packet_type(") else { return line.into() };
    let mut attributes: Vec<&str> = head.split_inclusive("),").collect();
    attributes.sort_unstable();
    let mut rest = rest.replace("encap(eth_type(0/0xffff))", "encap()");
    if rest.contains("0x86dd")
        && let Some(at) = rest.find(", flags:")
        && let Some(end) = rest[at + 2..].find(", ")
    {
        rest.replace_range(at..at + 2 + end, "");
    }
    format!("{}packet_type({rest}", attributes.concat())
}

/// `text` with what follows `name` up to one of `ends` replaced.
fn blank(text: &str, name: &str, ends: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(name) {
        let (head, tail) = rest.split_at(at + name.len());
        out.push_str(head);
        let value = &tail[..tail.find(|c: char| ends.contains(c) || c == '\n').unwrap_or(tail.len())];
        // "never" says something.
        out.push_str(if value == "never" { value } else { "?" });
        rest = &tail[value.len()..];
    }
    out + rest
}

/// `new` with each number replaced by how much it grew since `old`.
pub fn grown(old: &str, new: &str) -> String {
    let (a, b) = (tokens(old), tokens(new));
    let mut out = String::new();
    for (i, t) in b.iter().enumerate() {
        let before = a.get(i).and_then(|t| t.parse::<u64>().ok());
        match (t.parse::<u64>(), before) {
            (Ok(n), Some(o)) if a.len() == b.len() => out.push_str(&n.wrapping_sub(o).to_string()),
            _ => out.push_str(t),
        }
    }
    out
}

/// Runs of digits, and what is between them.
fn tokens(s: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut start = 0;
    for (i, w) in s.as_bytes().windows(2).enumerate() {
        if w[0].is_ascii_digit() != w[1].is_ascii_digit() {
            out.push(&s[start..=i]);
            start = i + 1;
        }
    }
    out.push(&s[start..]);
    out
}

/// The packets of a capture from byte `from` on, one a line.
pub fn pcap(bytes: &[u8], from: usize) -> String {
    let mut out = String::new();
    let mut at = from.max(24);
    while let Some(h) = bytes.get(at..at + 16) {
        let len = u32::from_le_bytes([h[8], h[9], h[10], h[11]]) as usize;
        let Some(p) = bytes.get(at + 16..at + 16 + len) else { break };
        out.push_str(&crate::packets::hex(p));
        out.push('\n');
        at += 16 + len;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_fragments_have_headers_only() {
        let frame =
            |frag: &str| format!("{}8100000a08004500002a0009{frag}4006aaaa0a0000010a000002feed", "00".repeat(12));
        assert_eq!(no_later_payload(&frame("0000")), frame("0000"));
        assert_eq!(no_later_payload(&frame("2010")), frame("2010").trim_end_matches("feed"));
        assert_eq!(no_later_payload("feed"), "feed");
    }

    #[test]
    fn numbers_grow() {
        assert_eq!(grown("a 10, b 5", "a 12, b 5"), "a 2, b 0");
        assert_eq!(grown("", "a 12"), "a 12");
        assert_eq!(blank("used:0.1s, used:never, x", "used:", ","), "used:?, used:never, x");
    }
}
