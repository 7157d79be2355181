//! What a controller sets on ports and tables, and what comes of it, beside the reference.

mod same;

use same::{same, with_bridge};

/// A broadcast from port 1, a unicast to port 2, and what left by each port.
const PACKETS: &str = "
    appctl revalidator/wait
    appctl netdev-dummy/receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=ff:ff:ff:ff:ff:ff),eth_type(0x1234)'
    appctl netdev-dummy/receive p2 'in_port(2),eth(src=50:54:00:00:00:02,dst=50:54:00:00:00:01),eth_type(0x1235)'
    appctl netdev-dummy/receive p1 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x1236)'
    ofctl dump-ports br0
    ofctl dump-ports-desc br0
";

#[test]
fn settings_of_ports() {
    let mut s = String::new();
    for rule in ["actions=normal", "actions=flood", "actions=all", "actions=1,2,3", "actions=in_port,local,3"] {
        s += &format!("ofctl del-flows br0\nofctl add-flow br0 {rule}\n");
        for setting in ["no-flood", "no-forward", "no-receive", "no-packet-in", "down"] {
            let back = if setting == "down" { "up" } else { &setting[3..] };
            for port in ["p2", "p1"] {
                s += &format!("ofctl mod-port br0 {port} {setting}\n{PACKETS}ofctl mod-port br0 {port} {back}\n");
            }
        }
    }
    same(&with_bridge(&s));
}

#[test]
fn traces_over_ports_with_settings() {
    let mut s = String::from(
        "ofctl add-flow br0 priority=1,actions=normal\nofctl add-flow br0 priority=2,dl_type=0x1234,actions=all,2\n",
    );
    for setting in ["no-flood", "no-forward", "no-receive", "no-packet-in", "down"] {
        let back = if setting == "down" { "up" } else { &setting[3..] };
        s += &format!("ofctl mod-port br0 p2 {setting}\n");
        for flow in
            ["in_port=2", "in_port=1,dl_type=0x1234", "in_port=2,dl_type=0x1234", "in_port=1,dl_dst=ff:ff:ff:ff:ff:ff"]
        {
            s += &format!("appctl ofproto/trace br0 {flow},dl_src=50:54:00:00:00:05\n");
        }
        s += &format!("ofctl mod-port br0 p2 {back}\n");
    }
    same(&with_bridge(&s));
}

/// A table of five flows: what goes to make room for the sixth, and what is refused.
#[test]
fn full_tables() {
    let mut s = String::new();
    for table in [
        "flow_limit=5 overflow_policy=evict",
        "flow_limit=5 overflow_policy=evict 'groups=\"NXM_OF_IN_PORT[]\"'",
        "flow_limit=5 overflow_policy=refuse",
    ] {
        s += &format!(
            "vsctl clear Bridge br0 flow_tables\nofctl del-flows br0\nvsctl -- --id=@t create Flow_Table {table} -- set Bridge br0 flow_tables:3=@t\n"
        );
        // Different importances and lifetimes make it clear which goes first.
        for (n, rest) in [
            "in_port=1,importance=5",
            "in_port=1,importance=1",
            "in_port=1,importance=3",
            "in_port=2,importance=0",
            "in_port=3,importance=9",
        ]
        .iter()
        .enumerate()
        {
            s += &format!(
                "ofctl -O OpenFlow14 add-flow br0 table=3,priority={n},hard_timeout={},{rest},actions=2\n",
                1000 - 100 * n
            );
        }
        s += "~ ofctl -O OpenFlow14 dump-flows br0 table=3\n";
        for n in 10..14 {
            s += &format!(
                "ofctl -O OpenFlow14 add-flow br0 table=3,priority={n},in_port=1,importance={n},hard_timeout=900,actions=3\n"
            );
            s += "~ ofctl -O OpenFlow14 dump-flows br0 table=3\n";
        }
        s += "ofctl -O OpenFlow14 dump-table-desc br0\n";
        s += "ofctl -O OpenFlow14 --bundle add-flow br0 table=3,priority=20,in_port=1,importance=20,actions=3\n";
        s += "ofctl -O OpenFlow14 mod-table br0 3 evict\nofctl -O OpenFlow14 add-flow br0 table=3,priority=21,actions=1\n";
        s += "~ ofctl -O OpenFlow14 dump-flows br0 table=3\nofctl -O OpenFlow14 mod-table br0 3 noevict\n";
        // Of groups of one size any may lose a flow.
        if !table.contains("groups") {
            s += "ofctl -O OpenFlow14 add-flow br0 table=3,priority=22,actions=1\n~ ofctl -O OpenFlow14 dump-flows br0 table=3\n";
        }
    }
    same(&with_bridge(&s));
}
