//! What one seed stands for.

use crate::packets::{hex, packet};
use crate::rng::Rng;
use crate::rules::{matching, rule};

/// Bridges of the test bed with the OpenFlow ports of their dummy ports. Port 9 of either is the patch.
pub const BRIDGES: [(&str, &[u32]); 2] = [("br0", &[1, 2, 3, 4, 5, 6]), ("br1", &[11, 12, 13])];
pub const PATCH: u32 = 9;

/// The version that rules are given in; it decides how VLAN actions are meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    Of10,
    Of13,
    Of15,
}

impl Dialect {
    pub fn option(self) -> &'static str {
        match self {
            Dialect::Of10 => "OpenFlow10",
            Dialect::Of13 => "OpenFlow13",
            Dialect::Of15 => "OpenFlow15",
        }
    }

    /// The version that bundles are given in: 1.0 has none.
    pub fn bundles(self) -> &'static str {
        match self {
            Dialect::Of10 => "OpenFlow13",
            d => d.option(),
        }
    }
}

/// One thing that is done to both.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// `ofproto/trace BRIDGE in_port=N PACKET`: (bridge, port, packet).
    Trace(usize, u32, String),
    /// `ofproto/trace` of a flow without a packet.
    TraceFlow(usize, String),
    /// `netdev-dummy/receive`.
    Receive(u32, String),
    /// `ovs-ofctl packet-out`: bridge, in_port, actions, packet.
    PacketOut(usize, String, String, String),
    /// `ovs-ofctl mod-flows|del-flows|add-flow`.
    Ofctl(usize, String),
    /// `ovs-ofctl --bundle add-flows br0` of these lines.
    Bundle(Vec<String>),
    /// `ovs-ofctl mod-group|insert-buckets|...` over 1.5.
    Group(String),
    /// `time/warp`.
    Warp(u64),
}

/// Everything that is done for a seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    pub seed: u64,
    pub dialect: Dialect,
    /// Columns of ports: (port, settings).
    pub ports: Vec<(String, String)>,
    /// `ovs-ofctl mod-port`: (bridge, port, setting).
    pub port_mods: Vec<(usize, u32, String)>,
    pub frags: &'static str,
    /// Groups of the first bridge.
    pub groups: Vec<String>,
    /// Rules of each bridge.
    pub rules: [Vec<String>; 2],
    pub steps: Vec<Step>,
}

impl Case {
    pub fn new(seed: u64) -> Case {
        let r = &mut Rng::new(seed);
        let dialect = r.of(&[Dialect::Of10, Dialect::Of13, Dialect::Of13, Dialect::Of15]);
        let ports = vlans(r);
        let port_mods = port_mods(r);
        let frags = r.pick(&["normal", "normal", "normal", "drop", "nx-match"]);
        let of = |b: usize| -> Vec<u32> { BRIDGES[b].1.iter().copied().chain([PATCH]).collect() };
        let counts = [6 + r.below(25), 2 + r.below(6)];
        let rules = [0, 1].map(|b| {
            let mut list: Vec<String> = (0..counts[b]).map(|n| rule(r, dialect, &of(b), n as u32)).collect();
            list.extend(last(r));
            list
        });
        let mut c = Case { seed, dialect, ports, port_mods, frags, groups: Vec::new(), rules, steps: Vec::new() };
        c.steps = steps(r, &c);
        crate::extras::add(&mut c);
        crate::groups::add(&mut c);
        c
    }
}

/// Often something catches what no rule did.
fn last(r: &mut Rng) -> Option<String> {
    let a = r.pick(&["NORMAL", "NORMAL", "", "drop", "resubmit(,1)", "CONTROLLER"]);
    (!a.is_empty()).then(|| format!("table=0,priority=0,actions={a}"))
}

fn vlans(r: &mut Rng) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for (_, ports) in BRIDGES {
        for p in ports.iter() {
            let set = match r.below(12) {
                0 => "tag=10".into(),
                1 => "tag=20".into(),
                2 => "trunks=10,20".into(),
                3 => "trunks=10,30,100 tag=20 vlan_mode=native-untagged".into(),
                4 => "trunks=10,30 tag=10 vlan_mode=native-tagged".into(),
                5 => "tag=10 vlan_mode=dot1q-tunnel".into(),
                6 => "tag=100 vlan_mode=dot1q-tunnel cvlans=10,20 other_config:qinq-ethtype=802.1q".into(),
                7 => format!("tag=10 other_config:priority-tags={}", r.pick(&["always", "if-nonzero", "never"])),
                8 if r.one_in(3) => "protected=true".into(),
                _ => String::new(),
            };
            if !set.is_empty() {
                out.push((format!("p{p}"), set));
            }
        }
    }
    out
}

fn port_mods(r: &mut Rng) -> Vec<(usize, u32, String)> {
    let mut out = Vec::new();
    if r.one_in(3) {
        let b = r.below(2) as usize;
        let p = r.of(BRIDGES[b].1);
        out.push((b, p, r.pick(&["no-flood", "no-forward", "no-receive", "no-packet-in", "down"]).into()));
    }
    out
}

fn steps(r: &mut Rng, c: &Case) -> Vec<Step> {
    let mut out = Vec::new();
    let mut some: Vec<(usize, u32, String)> = Vec::new();
    for _ in 0..10 {
        let b = usize::from(r.one_in(5));
        let p = (b, r.of(BRIDGES[b].1), hex(&packet(r)));
        out.push(Step::Trace(p.0, p.1, p.2.clone()));
        some.push(p);
    }
    for _ in 0..3 {
        let b = usize::from(r.one_in(5));
        let port = r.of(BRIDGES[b].1);
        let m = matching(r, &[port]).0;
        let mut fields: Vec<String> = m.into_iter().filter(|f| !f.contains('/') && !f.contains('+')).collect();
        if !fields.iter().any(|f| f.starts_with("in_port")) {
            fields.insert(0, format!("in_port={port}"));
        }
        if fields.iter().any(|f| f.starts_with("sctp") || f.starts_with("udp")) {
            fields.retain(|f| !f.starts_with("tp_"));
        }
        if fields.iter().any(|f| f == "icmp6") {
            fields.retain(|f| !f.starts_with("icmp_") && !f.starts_with("nd_"));
        }
        fields.retain(|f| !f.contains("yes") && !f.contains("not_later"));
        out.push(Step::TraceFlow(b, fields.join(",")));
    }
    for round in 0..3 {
        for _ in 0..6 {
            let (_, port, p) = &some[r.below(some.len() as u64) as usize];
            out.push(Step::Receive(*port, p.clone()));
        }
        if round == 0 {
            let (b, _, p) = &some[r.below(some.len() as u64) as usize];
            let from = r.pick(&["1", "CONTROLLER", "LOCAL", "NONE"]);
            let act =
                r.pick(&["TABLE", "NORMAL", "FLOOD", "resubmit(,1)", "mod_dl_src:50:54:00:00:00:09,2", "3,IN_PORT"]);
            out.push(Step::PacketOut(*b, from.into(), act.into(), p.clone()));
        }
        if round < 2 {
            out.push(change(r, c));
        }
    }
    out
}

/// Something that makes installed flows wrong.
fn change(r: &mut Rng, c: &Case) -> Step {
    let ports: Vec<u32> = BRIDGES[0].1.to_vec();
    let known = c.rules[0][r.below(c.rules[0].len() as u64) as usize].clone();
    let (head, _) = known.split_once(",actions=").unwrap_or((&known, ""));
    let loose: String = head
        .split(',')
        .filter(|f| !f.starts_with("priority") && !f.starts_with("cookie"))
        .collect::<Vec<_>>()
        .join(",");
    match r.below(6) {
        0 => Step::Ofctl(0, format!("del-flows br0 {loose}")),
        1 => Step::Ofctl(0, format!("mod-flows br0 {loose},actions=output:{}", r.of(&ports))),
        2 => Step::Ofctl(0, format!("add-flow br0 {}", rule(r, c.dialect, &ports, 99))),
        3 => Step::Ofctl(0, format!("--strict del-flows br0 {}", strict(head))),
        4 => Step::Warp(r.of(&[100, 1000, 6000, 12_000])),
        _ => Step::Ofctl(0, "add-flow br0 table=0,priority=65535,actions=drop".to_string()),
    }
}

fn strict(head: &str) -> String {
    head.split(',').filter(|f| !f.starts_with("cookie")).collect::<Vec<_>>().join(",")
}
