//! Groups of every type, rules that use them, and changes of them. Every fifth case has some.

use crate::case::{BRIDGES, Case, Dialect, Step};
use crate::packets::MACS;
use crate::rng::Rng;

/// Rules with groups are of higher priority than others, each of its own.
const PRIORITY: u64 = 42_000;

pub fn add(case: &mut Case) {
    if !case.seed.is_multiple_of(5) {
        return;
    }
    let r = &mut Rng::new(case.seed ^ 0x6772_6f75_7073);
    // In 1.0 nothing names a group.
    if case.dialect == Dialect::Of10 {
        case.dialect = Dialect::Of13;
        case.rules.iter_mut().for_each(Vec::clear);
        case.rules[0].push("table=0,priority=0,actions=NORMAL".into());
        case.rules[1].push("table=0,priority=0,actions=NORMAL".into());
    }
    let n = 1 + r.below(3);
    case.groups = (1..=n).map(|id| group(r, id)).collect();
    for i in 0..1 + r.below(3) {
        let m = r.pick(&["", ",ip", ",tcp", ",udp", ",ipv6", ",arp", ",in_port=1", ",in_port=2,ip", ",in_port=3"]);
        let before = r.pick(&["", "", "mod_dl_src:50:54:00:00:00:03,", "load:0x3->NXM_NX_REG0[],"]);
        let after = r.pick(&["", "", ",NORMAL", ",resubmit(,1)", ",output:2"]);
        let a = match r.below(4) {
            0 => format!("write_actions(group:{})", 1 + r.below(n)),
            _ => format!("{before}group:{}{after}", 1 + r.below(n)),
        };
        case.rules[0].push(format!(
            "table=0,priority={},{}actions={a}",
            PRIORITY + i,
            &format!("{m},")[1..].replace(",,", ",")
        ));
    }
    for _ in 0..1 + r.below(2) {
        let at = case.steps.len() - 2 - r.below(14) as usize;
        let step = change(r, n, &case.groups);
        case.steps.insert(at, step);
    }
}

fn port(r: &mut Rng) -> u32 {
    r.of(BRIDGES[0].1)
}

fn group(r: &mut Rng, id: u64) -> String {
    let kind = r.pick(&["all", "all", "indirect", "select", "select", "ff"]);
    let buckets = if kind == "indirect" { 1 } else { r.below(4) };
    let list: String = (0..buckets).map(|n| bucket(r, kind, n)).collect();
    let method = match kind {
        "select" => r.pick(&[
            "",
            ",selection_method=dp_hash",
            ",selection_method=hash,fields(ip_src)",
            ",selection_method=hash,fields(eth_src,eth_dst)",
            ",selection_method=hash,selection_method_param=7,fields(ip_dst,tcp_src)",
        ]),
        _ => "",
    };
    format!("group_id={id},type={kind}{method}{list}")
}

fn bucket(r: &mut Rng, kind: &str, id: u64) -> String {
    let weight = if kind == "select" { format!("weight:{},", r.of(&[0, 1, 1, 2, 50])) } else { String::new() };
    let watch = if kind == "ff" { format!("watch_port:{},", port(r)) } else { String::new() };
    let mut actions = Vec::new();
    match r.below(6) {
        0 => actions.push(format!("mod_dl_dst:{}", r.pick(&MACS[..3]))),
        1 => actions.push("push_vlan:0x8100".into()),
        3 => actions.push(format!("load:{}->NXM_NX_REG1[]", r.below(4))),
        _ => {}
    }
    actions.push(match r.below(8) {
        0 => "NORMAL".into(),
        1 => "IN_PORT".into(),
        2 => "resubmit(,1)".into(),
        _ => format!("output:{}", port(r)),
    });
    format!(",bucket=bucket_id:{id},{weight}{watch}actions={}", actions.join(","))
}

fn change(r: &mut Rng, n: u64, groups: &[String]) -> Step {
    let (id, new) = (1 + r.below(n), 1 + r.below(n + 1));
    // Which hash chooses after the reference has changed buckets of a selecting group depends on their number.
    let selects = groups[id as usize - 1].contains("type=select");
    let line = match r.below(5) {
        0..=2 if selects => format!("mod-group br0 {}", group(r, id)),
        0 => format!("mod-group br0 {}", group(r, id)),
        1 => format!("insert-buckets br0 group_id={id},command_bucket_id=last{}", bucket(r, "all", 7)),
        2 => format!("remove-buckets br0 group_id={id},command_bucket_id={}", r.pick(&["first", "all", "1"])),
        3 => format!("del-groups br0 group_id={id}"),
        _ => format!("add-group br0 {}", group(r, new)),
    };
    Step::Group(line)
}
