//! What the differential test has found, each as few commands as show it.

mod same;

use same::{same, with_bridge};

/// A frame of TCP from 50:54:00:00:00:03 to :02, untagged.
const TCP: &str = "50540000000250540000000308004500003200090000400666ba0a0000020a0000020035005000000001000000025002ffff8734000000010203040506070809";

#[test]
fn normal_and_packets_from_controllers() {
    same(&with_bridge(&format!(
        "
        ofctl add-flow br0 actions=NORMAL
        ofctl mod-port br0 p2 no-flood
        appctl ofproto/trace br0 in_port=1 {TCP}
        ofctl mod-port br0 p2 flood
        # Not even what it teaches itself decides where a packet of a controller goes.
        appctl fdb/flush
        ofctl packet-out br0 in_port=1,packet=5054000000025054000000020800,actions=NORMAL
        appctl fdb/show br0
        ofctl mod-port br0 p1 no-receive
        ofctl packet-out br0 in_port=1,packet={TCP},actions=3
        appctl ofproto/trace br0 in_port=1,dl_dst=01:80:c2:00:00:00
        ofctl mod-port br0 p1 receive
        ofctl -O OpenFlow10 dump-ports br0 p3
        # Translation fails: an error, and nothing is counted.
        ofctl add-flow br0 table=1,actions=resubmit(1,1)
        ofctl packet-out br0 in_port=1,packet={TCP},actions=resubmit(,1)
        ofctl -O OpenFlow13 packet-out br0 in_port=1,packet={TCP},actions=resubmit(,1)
        ~ ofctl dump-flows br0
        "
    )));
}

#[test]
fn traces_and_masks() {
    same(&with_bridge(
        "
        ofctl -O OpenFlow13 add-flow br0 in_port=1,ip,actions=clone(drop),clone(clone(2,resubmit(,3)),resubmit(,4)),load:1->NXM_NX_REG0[]
        ofctl -O OpenFlow13 add-flow br0 table=3,actions=resubmit(,4),clone(resubmit(,4))
        ofctl -O OpenFlow13 add-flow br0 table=4,actions=3
        appctl ofproto/trace br0 in_port=1,tcp
        ofctl -O OpenFlow13 add-flow br0 in_port=1,ip,actions=clone(output(port=2,max_len=64),clone(output(port=3,max_len=64),2)),clone(output(port=3,max_len=64))
        appctl ofproto/trace br0 in_port=1,tcp
        ofctl -O OpenFlow13 add-flow br0 in_port=1,ip,actions=mod_nw_tos:32,2
        appctl ofproto/trace br0 in_port=1,tcp
        ofctl -O OpenFlow13 add-flow br0 in_port=1,icmp,priority=40000,actions=set_field:1->icmp_code,2
        appctl ofproto/trace br0 in_port=1,icmp
        ofctl -O OpenFlow13 add-flow br0 in_port=1,arp,actions=set_field:10.0.0.1->arp_tpa,2
        ofctl -O OpenFlow13 add-flow br0 in_port=1,rarp,actions=set_field:10.0.0.1->arp_tpa,2
        appctl ofproto/trace br0 in_port=1,arp,arp_op=1
        appctl ofproto/trace br0 in_port=1,rarp,arp_op=3
        ofctl -O OpenFlow13 add-flow br0 in_port=1,mpls,actions=pop_mpls:0x0800,dec_ttl,2
        appctl ofproto/trace br0 in_port=1,mpls,mpls_label=1000,mpls_bos=1
        ofctl -O OpenFlow13 add-flow br0 in_port=1,mpls,actions=clone(3,pop_mpls:0x0800),resubmit(,4)
        appctl ofproto/trace br0 in_port=1,mpls,mpls_label=1000,mpls_bos=1
        ofctl -O OpenFlow13 add-flow br0 in_port=1,mpls,actions=pop_mpls:0x8847,2
        appctl ofproto/trace br0 in_port=1,mpls,mpls_label=1000,mpls_bos=1
        ofctl -O OpenFlow13 add-flow br0 in_port=1,udp,priority=40000,actions=mod_tp_src:7,2
        appctl ofproto/trace br0 in_port=1,udp
        ofctl -O OpenFlow13 add-flow br0 in_port=2,cookie=0x77,ip,actions=write_actions(dec_ttl,output:3)
        appctl ofproto/trace br0 in_port=2,ip,nw_ttl=1
        ofctl -O OpenFlow13 add-flow br0 in_port=3,actions=write_actions(dec_ttl,strip_vlan,output:1)
        ofctl -O OpenFlow13 add-flow br0 in_port=3,actions=write_actions(set_field:1.2.3.4->ip_src)
        appctl ofproto/trace br0 in_port=3,icmp6,ip_frag=later
        ",
    ));
}

/// Only what a bucket sends itself is sent by a group.
#[test]
fn why_a_controller_gets_a_packet() {
    same(&with_bridge(
        "
        ofctl -O OpenFlow15 add-group br0 group_id=1,type=all,bucket=actions=controller,bucket=actions=resubmit(,1),bucket=actions=clone(controller)
        ofctl -O OpenFlow13 add-flow br0 in_port=1,ip,actions=group:1
        ofctl -O OpenFlow13 add-flow br0 in_port=2,ip,actions=write_actions(group:1)
        ofctl -O OpenFlow13 add-flow br0 table=1,actions=CONTROLLER:64
        appctl ofproto/trace br0 in_port=1,tcp
        appctl ofproto/trace br0 in_port=2,tcp
        ",
    ));
}

#[test]
fn flows_stay() {
    same(&with_bridge(&format!(
        "
        # What a packet teaches makes lookups look at more: its own flow does so from the start.
        ofctl add-flow br0 ip,actions=learn(table=7,eth_type=0x800,NXM_OF_IP_DST[]=NXM_OF_IP_SRC[],output:NXM_OF_IN_PORT[]),resubmit(,7)
        appctl netdev-dummy/receive p1 {TCP}
        appctl revalidator/wait
        ~ appctl dpctl/dump-flows
        # Removed rules are no longer looked at when flows are looked at again.
        ofctl del-flows br0
        ofctl add-flow br0 priority=1,actions=2
        ofctl add-flow br0 priority=9,dl_dst=00:00:00:00:00:09,actions=3
        ofctl del-flows br0 dl_dst=00:00:00:00:00:09
        appctl revalidator/wait
        appctl netdev-dummy/receive p1 {TCP}
        appctl revalidator/wait
        ~ appctl dpctl/dump-flows
        "
    )));
}
