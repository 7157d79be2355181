//! What makes flows of flows: learning, conjunctive matches, choices by hash, and changes of many
//! flows at once. Every second case has some, made from numbers of its own.

use crate::case::{BRIDGES, Case, Dialect, Step};
use crate::packets::{IPS, MACS, PORTS, VIDS};
use crate::rng::Rng;
use crate::rules::rule;

/// Where learnt flows go: above the tables of other rules.
const LEARNT: u8 = 7;
/// Rules of extras are of higher priority than others, each of its own.
const PRIORITY: u64 = 40_000;

pub fn add(case: &mut Case) {
    if case.seed.is_multiple_of(2) {
        return;
    }
    let r = &mut Rng::new(case.seed ^ 0x6578_7472_6173);
    let mut more = Vec::new();
    for _ in 0..1 + r.below(3) {
        match r.below(6) {
            0 | 1 => more.extend(learning(r)),
            2 => more.extend(conjunctive(r)),
            3 | 4 => more.extend(choosing(r)),
            _ => more.extend(stacking(r)),
        }
    }
    let priority = |(i, s): (usize, String)| s.replacen("PRIO", &(PRIORITY + i as u64).to_string(), 1);
    case.rules[0].extend(more.into_iter().enumerate().map(priority));
    let d = case.dialect;
    for _ in 0..1 + r.below(2) {
        // Behind the traces, among packets.
        let at = case.steps.len() - 2 - r.below(14) as usize;
        let step = change(r, d);
        // The reference does not count cut outputs among those to a port.
        let cut = |s: &Step| matches!(s, Step::Ofctl(_, l) if l.contains("out_port="));
        if !(cut(&step) && case.rules[0].iter().any(|r| r.contains("max_len="))) {
            case.steps.insert(at, step);
        }
    }
}

fn port(r: &mut Rng) -> u32 {
    r.of(BRIDGES[0].1)
}

/// Which packets an extra rule takes, not too few.
fn some(r: &mut Rng) -> &'static str {
    r.pick(&["", ",ip", ",tcp", ",udp", ",ipv6", ",arp", ",in_port=1", ",in_port=2", ",in_port=3,ip"])
}

/// A rule that learns, and the way to what it learnt.
fn learning(r: &mut Rng) -> Vec<String> {
    let to = if r.one_in(4) { 0 } else { LEARNT };
    let (m, specs): (&str, &[&str]) = match r.below(5) {
        0 => ("", &["NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]", "output:NXM_OF_IN_PORT[]"]),
        1 => (
            "",
            &[
                "NXM_OF_VLAN_TCI[0..11]",
                "NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]",
                "load:NXM_OF_IN_PORT[]->NXM_NX_REG2[0..15]",
            ],
        ),
        2 => (
            "tcp",
            &[
                "eth_type=0x800",
                "nw_proto=6",
                "NXM_OF_IP_SRC[]=NXM_OF_IP_DST[]",
                "NXM_OF_TCP_DST[]=NXM_OF_TCP_SRC[]",
                "output:NXM_OF_IN_PORT[]",
            ],
        ),
        3 => (
            "ip",
            &[
                "eth_type=0x800",
                "NXM_OF_IP_DST[]=NXM_OF_IP_SRC[]",
                "load:0x3->NXM_NX_REG1[]",
                "output:NXM_NX_REG1[0..15]",
            ],
        ),
        _ => ("", &["NXM_OF_IN_PORT[]", "NXM_OF_ETH_SRC[]", "load:0x5->NXM_NX_REG0[0..3]"]),
    };
    let mut options = vec![format!("table={to}"), format!("priority={}", 50 + r.below(3))];
    for o in ["idle_timeout=5", "hard_timeout=8", "cookie=0x1234", "send_flow_rem", "delete_learned"] {
        if r.one_in(5) {
            options.push(o.into());
        }
    }
    let before = if specs.iter().any(|s| s.contains("NXM_NX_REG1")) {
        format!("load:{}->NXM_NX_REG1[],", port(r))
    } else {
        String::new()
    };
    let m = if m.is_empty() { some(r).trim_start_matches(',') } else { m };
    let m = if m.is_empty() { String::new() } else { format!(",{m}") };
    let after =
        r.pick(&["NORMAL", "resubmit(,7)", "resubmit(,7),output:NXM_NX_REG2[0..15]", "resubmit(,1)", "output:4"]);
    let mut out = vec![format!(
        "table=0,priority=PRIO{m},actions={before}learn({},{}),{after}",
        options.join(","),
        specs.join(",")
    )];
    if r.one_in(2) {
        out.push(format!(
            "table={LEARNT},priority={},actions={}",
            1 + r.below(9),
            r.pick(&["FLOOD", "drop", "output:5", "NORMAL"])
        ));
    }
    out
}

/// Clauses of a conjunctive match in one table, and what it does.
fn conjunctive(r: &mut Rng) -> Vec<String> {
    let (id, table) = (10 + r.below(90), r.of(&[0u8, 0, 1, 2]));
    let n = 2 + r.below(2);
    let prio = 33_000 + r.below(50) * 10;
    let mut out = Vec::new();
    for k in 1..=n {
        for _ in 0..1 + r.below(2) {
            let m = match (k + r.below(2)) % 3 {
                0 => format!("ip,nw_src={}{}", r.pick(&IPS), r.pick(&["", "/24", "/8"])),
                1 => format!("ip,nw_dst={}{}", r.pick(&IPS), r.pick(&["", "/24", "/8"])),
                _ => {
                    r.pick(&["tcp,tp_dst=80", "tcp", "udp", "udp,tp_src=53", "ip,nw_ttl=64", "ip,nw_ecn=0"]).to_string()
                }
            };
            out.push(format!("table={table},priority={prio},{m},actions=conjunction({id},{k}/{n})"));
        }
    }
    out.push(format!(
        "table={table},priority={prio},conj_id={id},{}actions={}",
        r.pick(&["", "ip,", "tcp,"]),
        r.pick(&[
            "output:2",
            "NORMAL",
            "load:0x3->NXM_NX_REG0[],resubmit(,3)",
            "mod_dl_dst:50:54:00:00:00:03,output:5"
        ])
    ));
    out
}

/// One of several ports or numbers, by a hash of the packet.
fn choosing(r: &mut Rng) -> Vec<String> {
    let fields = r.pick(&[
        "eth_src",
        "symmetric_l4",
        "symmetric_l3l4",
        "symmetric_l3l4+udp",
        "nw_src",
        "nw_dst",
        "symmetric_l3",
    ]);
    let basis = r.of(&[0u32, 50, 1024]);
    let a = match r.below(4) {
        0 => format!("bundle({fields},{basis},active_backup,ofport,members:{},{},{})", port(r), port(r), port(r)),
        1 => format!("bundle({fields},{basis},hrw,ofport,members:{},{},{})", port(r), port(r), port(r)),
        2 => format!(
            "bundle_load({fields},{basis},hrw,ofport,NXM_NX_REG0[0..15],members:{},{}),output:NXM_NX_REG0[0..15]",
            port(r),
            port(r)
        ),
        _ => format!(
            "multipath({fields},{basis},{},{},0,NXM_NX_REG1[0..3]),output:NXM_NX_REG1[0..3]",
            r.pick(&["modulo_n", "hash_threshold", "hrw", "iter_hash"]),
            2 + r.below(4)
        ),
    };
    // The reference's masks miss what this hash takes of packets that are not IP.
    let m = if fields.starts_with("symmetric_l3l4") { r.pick(&[",ip", ",tcp", ",ipv6"]) } else { some(r) };
    vec![format!("table=0,priority=PRIO{m},actions={a}{}", r.pick(&["", ",NORMAL", ",resubmit(,2)"]))]
}

/// The stack, metadata and wide registers.
fn stacking(r: &mut Rng) -> Vec<String> {
    let a = match r.below(5) {
        0 => "push:NXM_OF_ETH_SRC[],push:NXM_OF_ETH_DST[],pop:NXM_OF_ETH_SRC[],pop:NXM_OF_ETH_DST[]".to_string(),
        1 => "push:NXM_OF_IN_PORT[],load:0x7->NXM_NX_REG0[],pop:NXM_NX_REG0[0..15]".into(),
        2 => format!("set_field:0x{:x}->xreg0,move:NXM_NX_REG1[]->NXM_NX_REG2[]", r.value() >> 33),
        3 => format!("set_field:0x{:x}/0xff->metadata,move:OXM_OF_METADATA[0..15]->NXM_NX_REG2[0..15]", r.below(256)),
        _ => "pop:NXM_NX_REG0[],push:NXM_NX_REG1[5..9]".into(),
    };
    let after = r.pick(&["resubmit(,1)", "NORMAL", "output:NXM_NX_REG0[]", "resubmit(,2),IN_PORT"]);
    vec![format!("table=0,priority=PRIO{},actions={a},{after}", some(r))]
}

/// Changes of flows that were not made by the other generator.
fn change(r: &mut Rng, d: Dialect) -> Step {
    let ports = BRIDGES[0].1;
    match r.below(7) {
        0 => Step::Ofctl(
            0,
            format!("mod-flows br0 cookie=0x{:x}/0x{:x},actions=output:{}", r.below(16), r.of(&[1, 3, 0xf]), port(r)),
        ),
        1 => Step::Ofctl(0, format!("del-flows br0 cookie=0x{:x}/0x{:x}", r.below(16), r.of(&[1, 3, 0xf]))),
        2 => Step::Ofctl(
            0,
            format!(
                "add-flow br0 check_overlap,table=0,priority={},dl_src={},actions=drop",
                r.of(&[100, 1000, 40_000]),
                r.pick(&MACS[..3])
            ),
        ),
        3 => Step::Ofctl(0, format!("del-flows br0 out_port={}", port(r))),
        4 => Step::Ofctl(
            0,
            format!(
                "add-flow br0 table={LEARNT},idle_timeout=3,hard_timeout=9,priority=5,ip,nw_dst={},actions=output:{}",
                r.pick(&IPS),
                port(r)
            ),
        ),
        _ => {
            let mut list = Vec::new();
            for n in 0..2 + r.below(4) {
                list.push(match r.below(6) {
                    0 => format!("delete table={}", r.below(5)),
                    1 => format!("modify table=0,tcp,tp_dst={},actions=output:{}", r.of(&PORTS), port(r)),
                    2 => "delete_strict table=0,priority=0".to_string(),
                    3 => format!("add table=0,priority=41000,dl_vlan={},actions=resubmit(,1)", r.of(&VIDS)),
                    // Sometimes one is refused, and with it all.
                    4 if r.one_in(3) => {
                        "add table=0,priority=1,actions=output:NXM_OF_ETH_SRC[],goto_table:0".to_string()
                    }
                    _ => format!("add {}", rule(r, d, ports, 300 + n as u32)),
                });
            }
            // The reference's deletions do not meet what the same bundle has just added, if nothing else
            // has such a match.
            list.sort_by_key(|l| l.starts_with("add "));
            Step::Bundle(list)
        }
    }
}
