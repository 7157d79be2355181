//! What `dpctl/show -s` says, as numbers.

/// Counters of one port; what a device does not count is zero.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Port {
    pub name: String,
    pub kind: String,
    pub rx_packets: u64,
    pub rx_bytes: u64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
    /// Errors and drops of both directions.
    pub bad: u64,
}

/// One datapath.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Datapath {
    pub name: String,
    pub hit: u64,
    pub missed: u64,
    pub lost: u64,
    pub flows: u64,
    pub ports: Vec<Port>,
}

/// Lines that it does not know are passed over.
pub fn parse(text: &str) -> Vec<Datapath> {
    let mut out: Vec<Datapath> = Vec::new();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let line = line.trim();
        if indent == 0 {
            if let Some(name) = line.strip_suffix(':') {
                out.push(Datapath { name: name.into(), ..Datapath::default() });
            }
            continue;
        }
        let Some(dp) = out.last_mut() else { continue };
        if let Some(rest) = line.strip_prefix("lookups:") {
            (dp.hit, dp.missed, dp.lost) = (field(rest, "hit:"), field(rest, "missed:"), field(rest, "lost:"));
        } else if let Some(rest) = line.strip_prefix("flows:") {
            dp.flows = rest.trim().parse().unwrap_or(0);
        } else if let Some(rest) = line.strip_prefix("port ") {
            dp.ports.extend(port(rest));
        } else if let Some(p) = dp.ports.last_mut() {
            counters(p, line);
        }
    }
    out
}

/// `1: p1 (dummy: n_rxq=1)`.
fn port(rest: &str) -> Option<Port> {
    let (_, rest) = rest.split_once(": ")?;
    let (name, kind) = rest.split_once(" (").unwrap_or((rest, "system"));
    let kind = kind.trim_end_matches(')').split(':').next().unwrap_or_default();
    Some(Port { name: name.into(), kind: kind.into(), ..Port::default() })
}

fn counters(p: &mut Port, line: &str) {
    if let Some(rest) = line.strip_prefix("RX packets:") {
        p.rx_packets = field(line, "packets:");
        p.bad += field(rest, "errors:") + field(rest, "dropped:");
    } else if let Some(rest) = line.strip_prefix("TX packets:") {
        p.tx_packets = field(line, "packets:");
        p.bad += field(rest, "errors:") + field(rest, "dropped:");
    } else if line.starts_with("RX bytes:") {
        p.rx_bytes = field(line, "RX bytes:");
        p.tx_bytes = field(line, "TX bytes:");
    }
}

/// The number after `name`; 0 if there is none.
fn field(text: &str, name: &str) -> u64 {
    let Some((_, rest)) = text.split_once(name) else { return 0 };
    let digits = rest.find(|c: char| !c.is_ascii_digit()).map_or(rest, |n| &rest[..n]);
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_daemon_prints() {
        let text = "netdev@ovs-netdev:\n  lookups: hit:7 missed:1 lost:2\n  flows: 3\n  port 0: ovs-netdev (tap)\n\
                    \x20   RX packets:0 errors:? dropped:? overruns:? frame:?\n  port 1: v0\n\
                    \x20   RX packets:5 errors:1 dropped:2 overruns:0 frame:0\n\
                    \x20   TX packets:6 errors:3 dropped:4 aborted:0 carrier:0\n    collisions:0\n\
                    \x20   RX bytes:500 (0.5 KiB)  TX bytes:600\n  port 2: p2 (dummy-pmd: n_rxq=1, n_txq=1)\n";
        let got = parse(text);
        assert_eq!(got.len(), 1);
        let d = &got[0];
        assert_eq!((d.name.as_str(), d.hit, d.missed, d.lost, d.flows), ("netdev@ovs-netdev", 7, 1, 2, 3));
        let names: Vec<_> = d.ports.iter().map(|p| (p.name.as_str(), p.kind.as_str())).collect();
        assert_eq!(names, [("ovs-netdev", "tap"), ("v0", "system"), ("p2", "dummy-pmd")]);
        let v = &d.ports[1];
        assert_eq!((v.rx_packets, v.rx_bytes, v.tx_packets, v.tx_bytes, v.bad), (5, 500, 6, 600, 10));
    }

    #[test]
    fn nonsense_gives_nothing() {
        assert!(parse("  port 1: x\nwhat\n").is_empty());
        assert_eq!(parse("a:\n  port\n  port 1\n").pop().unwrap().ports, []);
    }
}
