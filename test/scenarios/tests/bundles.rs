//! Bundles beside the reference: a packet in a bundle sees the tables and groups as of its place.

mod same;

use same::{same, with_bridge};

const PACKET: &str = "packet-out in_port=controller,packet=505400000001505400000002080045000014000000004001f97a01020304010203050000,actions=table";

/// What is in the tables before, then the bundle's lines; `PACKET` is a packet that the tables decide about.
const BUNDLES: &[&[&str]] = &[
    &["flow add table=0,priority=9,actions=1", "PACKET"],
    &["PACKET", "flow add table=0,priority=9,actions=1"],
    &[
        "flow add table=0,priority=9,actions=1",
        "PACKET",
        "flow add table=0,priority=9,actions=2",
        "PACKET",
        "flow delete table=0",
        "PACKET",
    ],
    &[
        "group add group_id=5,type=all,bucket=output:2",
        "flow add table=0,priority=9,actions=group:5",
        "PACKET",
        "group modify group_id=5,type=all,bucket=output:3",
        "PACKET",
    ],
    &["flow add table=0,priority=9,actions=1", "PACKET", "flow add table=0,priority=9,actions=group:77"],
    &["flow delete table=0", "PACKET"],
    &[
        "flow add table=0,priority=9,ip,nw_dst=1.2.3.5,actions=resubmit(,7)",
        "PACKET",
        "flow add table=7,icmp,actions=2",
        "PACKET",
        "flow modify table=7,actions=1",
        "PACKET",
    ],
    &[
        "flow add table=0,priority=9,actions=learn(table=8,NXM_OF_ETH_TYPE[],output:NXM_NX_REG0[0..15]),1",
        "PACKET",
        "PACKET",
    ],
];

#[test]
fn packets_in_bundles_see_the_tables_of_their_place() {
    let mut s = String::new();
    for lines in BUNDLES {
        let lines = lines.join(";").replace("PACKET", PACKET);
        s += &format!(
            "
            ofctl del-flows br0
            ofctl -O OpenFlow13 del-groups br0
            ofctl add-flow br0 priority=1,actions=3
            write bundle {lines}
            ofctl -O OpenFlow14 bundle br0 bundle
            ofctl dump-ports br0
            ~ ofctl -O OpenFlow14 dump-flows br0
            ~ ofctl -O OpenFlow14 dump-groups br0
            "
        );
    }
    same(&with_bridge(&s));
}
