//! Every verb of `ovs-ofctl` in every version of OpenFlow, against the reference and ours: what is
//! printed, on both streams, and the exit status must be the same.

mod same;

use same::{same, with_bridge};

const VERBS: &str = include_str!("same/verbs.txt");

/// Files that the commands read: what `write` makes of them.
const FILES: &str = "
    write flows.txt table=70,priority=1,actions=1;table=70,priority=2,in_port=2,actions=2;delete table=0;modify table=70,actions=3
    write repl.txt table=71,priority=1,cookie=4,actions=1;table=71,priority=2,in_port=2,idle_timeout=60,actions=2;table=0,priority=3,tcp,actions=drop
    write bundle.txt flow add table=72,priority=1,actions=1;group add group_id=9,type=all,bucket=output:1;flow delete table=71;flow modify table=72,actions=2;packet-out in_port=1,packet=505400000001505400000002080045000014000000004001f97a01020304010203050000,actions=2
    write badbundle.txt flow add table=73,priority=1,actions=1;group add group_id=9,type=all,bucket=output:1;flow add table=254,priority=1,actions=1
";

/// What the reference gets wrong in one version: there, settings for misses add up in the tables.
fn is_accepted(version: &str, line: &str) -> bool {
    let miss = ["controller", "continue", "drop"].iter().any(|m| line.ends_with(m));
    version == "OpenFlow11" && line.starts_with("mod-table") && miss
}

fn verbs_in(version: &str) {
    let mut script = FILES.to_string();
    let lines = VERBS.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    for line in lines.filter(|l| !is_accepted(version, l)) {
        let (order, line) = line.strip_prefix("~ ").map_or(("", line), |l| ("~ ", l));
        script += &format!("{order}ofctl -O {version} {line}\n");
    }
    same(&with_bridge(&script));
}

#[test]
fn verbs_of_openflow_1_0() {
    verbs_in("OpenFlow10");
}

#[test]
fn verbs_of_openflow_1_1() {
    verbs_in("OpenFlow11");
}

#[test]
fn verbs_of_openflow_1_2() {
    verbs_in("OpenFlow12");
}

#[test]
fn verbs_of_openflow_1_3() {
    verbs_in("OpenFlow13");
}

#[test]
fn verbs_of_openflow_1_4() {
    verbs_in("OpenFlow14");
}

#[test]
fn verbs_of_openflow_1_5() {
    verbs_in("OpenFlow15");
}
