//! The same commands to the reference and to ours: what is printed must be the same. Accepted
//! differences are listed in `tests/differences.md`; `accepted` removes them and nothing else.

mod same;

use same::{same, with_bridge};

#[test]
fn configuration_and_status() {
    same(&with_bridge(
        "
        vsctl get Interface p1 ofport admin_state link_state mtu error type
        vsctl get Interface br0 ofport mac_in_use type
        vsctl get Bridge br0 datapath_id fail_mode
        vsctl list-ports br0
        appctl dpif/show
        appctl dpctl/show
        appctl dpif/dump-dps
        appctl dpctl/dump-dps
        appctl ofproto/list
        vsctl add-port br0 fvnone7
        vsctl get Interface fvnone7 ofport error
        vsctl del-port fvnone7
        vsctl add-port br0 bad -- set Interface bad type=nosuchtype
        vsctl get Interface bad ofport
        vsctl del-port bad
        vsctl add-port br0 pp -- set Interface pp type=patch options:peer=pp
        vsctl get Interface pp ofport error
        vsctl del-port pp
        vsctl add-port br0 pq -- set Interface pq type=patch
        vsctl get Interface pq ofport error
        vsctl del-port pq
        vsctl add-br br1 -- set bridge br1 datapath-type=dummy other-config:hwaddr=aa:66:aa:66:00:01 -- add-port br1 a -- set Interface a type=patch options:peer=b -- add-port br0 b -- set Interface b type=patch options:peer=a
        appctl dpif/show
        vsctl del-br br1
        vsctl del-port b
        appctl dpif/show
        vsctl set Interface p2 mtu_request=1400
        vsctl get Interface p2 mtu
        appctl netdev-dummy/set-admin-state p1 down
        appctl netdev-dummy/set-admin-state nosuch down
        appctl netdev-dummy/set-admin-state p1 sideways
        appctl netdev-dummy/conn-state p1
        ",
    ));
}

#[test]
fn openflow_replies() {
    same(&with_bridge(
        "
        ofctl show br0
        ofctl -O OpenFlow13 show br0
        ofctl -O OpenFlow14 dump-ports-desc br0
        ofctl dump-ports br0 p1
        ofctl -O OpenFlow13 get-config br0
        ofctl add-flow br0 cookie=0x12,priority=10,idle_timeout=60,hard_timeout=600,in_port=1,tcp,nw_src=198.18.0.0/16,tp_dst=80,actions=mod_dl_dst:50:54:00:00:00:07,dec_ttl,2
        ofctl add-flow br0 table=3,priority=5,ipv6,ipv6_src=fd00::/8,actions=load:7->NXM_NX_REG0[],resubmit(,4),normal
        ofctl add-flow br0 arp,arp_op=1,dl_vlan=9,actions=strip_vlan,in_port,controller:128
        ofctl add-flow br0 table=9,priority=0,actions=drop
        ofctl add-flow br0 send_flow_rem,check_overlap,priority=77,udp,udp_dst=0x1000/0xf000,actions=flood,local
        ofctl add-flow br0 check_overlap,priority=77,udp,udp_dst=0x1000/0xff00,actions=drop
        ~ ofctl dump-flows br0
        ~ ofctl -O OpenFlow13 dump-flows br0
        ~ ofctl -O OpenFlow14 --names dump-flows br0
        ofctl dump-flows br0 table=3
        ofctl dump-flows br0 cookie=0x12/-1
        ofctl dump-flows br0 out_port=2
        ofctl dump-aggregate br0
        ofctl -O OpenFlow13 dump-aggregate br0 table=9
        ofctl --strict mod-flows br0 table=9,priority=0,actions=1
        ofctl dump-flows br0 table=9
        ofctl mod-flows br0 cookie=0x12/-1,actions=3
        ofctl dump-flows br0 cookie=0x12/-1
        ofctl del-flows br0 cookie=0x12/-1
        ofctl dump-aggregate br0
        ofctl add-flow br0 actions=resubmit(,300)
        ofctl add-flow br0 actions=goto_table:1,output:2
        ofctl -O OpenFlow13 add-flow br0 table=2,actions=goto_table:1
        ofctl -O OpenFlow13 add-flow br0 table=2,actions=write_metadata:0x1,clear_actions,goto_table:3
        ofctl -O OpenFlow13 dump-flows br0 table=2
        ofctl -O OpenFlow10 del-flows br0
        ofctl dump-aggregate br0
        ofctl mod-port br0 p1 no-flood
        ofctl mod-port br0 p2 down
        ofctl dump-ports-desc br0
        ofctl probe br0
        ofctl ping br0 8
        ",
    ).replace("ofctl ping br0 8\n", ""));
}

#[test]
fn traces() {
    same(&with_bridge(
        "
        ofctl add-flow br0 priority=10,in_port=1,tcp,tp_dst=80,actions=mod_dl_dst:50:54:00:00:00:07,dec_ttl,2
        ofctl add-flow br0 priority=9,in_port=1,udp,actions=mod_nw_dst:198.18.5.5,mod_tp_dst:5353,resubmit(,2)
        ofctl add-flow br0 priority=8,in_port=1,icmp,actions=mod_vlan_vid:7,2,strip_vlan,3,controller
        ofctl add-flow br0 priority=7,in_port=1,ipv6,actions=set_field:fd00::9->ipv6_dst,move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],2
        ofctl add-flow br0 priority=6,in_port=1,arp,actions=all
        ofctl add-flow br0 priority=5,in_port=2,actions=normal
        ofctl add-flow br0 priority=4,in_port=3,dl_vlan=5,actions=strip_vlan,1
        ofctl add-flow br0 table=2,nw_dst=198.18.5.0/24,ip,actions=3
        ofctl add-flow br0 table=2,priority=1,actions=drop
        appctl ofproto/trace br0 in_port=1,tcp,nw_ttl=64,tp_dst=80
        appctl ofproto/trace br0 in_port=1,tcp,nw_ttl=1,tp_dst=80
        appctl ofproto/trace br0 in_port=1,udp,nw_ttl=64,nw_dst=198.18.1.1,udp_src=9,udp_dst=10
        appctl ofproto/trace br0 in_port=1,icmp,icmp_type=8
        appctl ofproto/trace br0 in_port=1,tcp6,ipv6_src=fd00::1,ipv6_dst=fd00::2,dl_src=50:54:00:00:00:05
        appctl ofproto/trace br0 in_port=1,arp,arp_op=1,arp_spa=198.18.0.1
        appctl ofproto/trace br0 in_port=2,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:06
        appctl ofproto/trace br0 in_port=2,dl_src=50:54:00:00:00:05,dl_dst=01:80:c2:00:00:00
        appctl ofproto/trace br0 in_port=3,dl_vlan=5,dl_type=0x1234
        appctl ofproto/trace br0 in_port=3,dl_vlan=6
        appctl ofproto/trace br0 in_port=99
        appctl ofproto/trace br9 in_port=1
        appctl ofproto/trace br0 in_port=1,nonsense=2
        appctl ofproto/trace ovs-dummy 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=198.18.0.1,dst=198.18.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=8,dst=80)'
        appctl ofproto/trace ovs-dummy 'in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=198.18.0.1,dst=198.18.0.2,proto=6,tos=0,ttl=64,frag=later)'
        appctl ofproto/trace ovs-dummy 'in_port(3),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x8100),vlan(vid=5,pcp=3),encap(eth_type(0x0800),ipv4(src=198.18.0.1,dst=198.18.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=8,dst=80))'
        appctl ofproto/trace-packet-out br0 in_port=1,tcp 2,mod_dl_dst:50:54:00:00:00:09,3
        ",
    ));
}

#[test]
fn packets_flows_and_learning() {
    let f = |port, src, dst, rest: &str| {
        format!(
            "appctl netdev-dummy/receive p{port} 'in_port({port}),eth(src=50:54:00:00:00:0{src},dst=50:54:00:00:00:0{dst}){rest}'\n"
        )
    };
    let ip = ",eth_type(0x0800),ipv4(src=198.18.0.1,dst=198.18.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2)";
    let ip6 = ",eth_type(0x86dd),ipv6(src=fd00::1,dst=fd00::2,label=0,proto=58,tclass=0,hlimit=64,frag=no),icmpv6(type=128,code=0)";
    let arp = ",eth_type(0x0806),arp(sip=198.18.0.1,tip=198.18.0.2,op=1,sha=50:54:00:00:00:01,tha=00:00:00:00:00:00)";
    let mut s = with_bridge(
        "
        ofctl add-flow br0 actions=normal
        vsctl set bridge br0 fail-mode=standalone
        appctl time/stop
        ",
    );
    s += &f(1, 1, 2, ip);
    s += &f(1, 1, 2, ip);
    s += &f(1, 1, 2, ip);
    s += "~ appctl dpctl/dump-flows\n";
    s += &f(2, 2, 1, ip);
    s += &f(3, 3, 4, arp);
    s += &f(3, 3, 2, ip6);
    s += "
        appctl fdb/show br0
        appctl time/warp 2000
        appctl fdb/show br0
        appctl dpctl/show
        ofctl dump-ports br0 p2
        appctl revalidator/wait
        ~ appctl dpctl/dump-flows
        ~ appctl dpif/dump-flows br0
        appctl fdb/add br0 p3 0 50:54:00:00:00:55
        appctl fdb/show br0
        appctl fdb/del br0 0 50:54:00:00:00:55
        appctl fdb/flush br0
        appctl fdb/show br0
        appctl fdb/show nosuch
        appctl revalidator/purge
        appctl dpctl/dump-flows
        appctl netdev-dummy/receive nosuch 00
        appctl netdev-dummy/receive p1 zz
        appctl fdb/stats-show br0
    ";
    same(&s);
}

#[test]
fn vlan_modes() {
    let mut s = with_bridge(
        "
        ofctl add-flow br0 actions=normal
        vsctl add-port br0 p4 vlan_mode=native-untagged tag=20 -- set Interface p4 type=dummy ofport_request=4
        vsctl add-port br0 p5 vlan_mode=native-tagged tag=20 trunks=10,20 -- set Interface p5 type=dummy ofport_request=5
        vsctl add-port br0 p6 vlan_mode=dot1q-tunnel tag=30 -- set Interface p6 type=dummy ofport_request=6
        vsctl set Port p1 tag=10 -- set Port p2 tag=20 -- set Port p3 trunks=10,30
        ",
    );
    for port in 1..=6 {
        for vlan in ["", ",dl_vlan=10,dl_vlan_pcp=3", ",dl_vlan=20", ",dl_vlan=30"] {
            s += &format!(
                "appctl ofproto/trace br0 in_port={port}{vlan},dl_src=50:54:00:00:00:0{port},dl_dst=ff:ff:ff:ff:ff:ff,dl_type=0x1234\n"
            );
        }
    }
    same(&s);
}

#[test]
fn datapath_commands() {
    same(&with_bridge(
        "
        appctl upcall/set-flow-limit 400
        # Revalidation deletes flows that it has not made.
        appctl revalidator/pause
        appctl dpctl/add-flow 'in_port(1),eth(),eth_type(0x1234)' 2
        appctl dpctl/add-flow 'in_port(1),eth(),eth_type(0x1234)' 3
        appctl dpctl/add-flow 'in_port(2),eth(),eth_type(0x0800),ipv4(proto=6,frag=no),tcp(dst=80)' 'set(eth(src=50:54:00:00:00:01)),push_vlan(vid=3,pcp=1),1'
        ~ appctl dpctl/dump-flows
        ~ appctl dpctl/dump-flows filter=in_port=2
        appctl dpctl/mod-flow 'in_port(1),eth(),eth_type(0x1234)' drop
        ~ appctl dpctl/dump-flows
        appctl dpctl/del-flow 'in_port(1),eth(),eth_type(0x1234)'
        appctl dpctl/del-flow 'in_port(1),eth(),eth_type(0x1234)'
        appctl dpctl/del-flows
        appctl dpctl/dump-flows
        appctl dpctl/add-flow 'in_port(1)' nonsense
        appctl dpctl/add-flow 'in_port(x)' 1
        appctl dpctl/dump-flows nosuchdp
        appctl dpctl/show nosuch
        appctl dpctl/parse-actions 'set(ipv4(ttl=3)),2'
        appctl dpctl/normalize-actions 'in_port(1),eth(),eth_type(0x0800),ipv4()' '2,set(ipv4(ttl=3)),1'
        appctl vlog/set nosuch:dbg
        appctl coverage/read-counter nosuch
        appctl upcall/set-flow-limit 500
        appctl time/warp 0
        appctl bridge/dump-flows nosuch
        appctl fdb/show
        appctl exit a b c
        ",
    ));
}

#[test]
fn bundles_and_whole_tables() {
    same(&with_bridge(
        "
        write good priority=5,tcp,actions=1;priority=6,udp,actions=2;table=3,actions=resubmit(,4)
        ofctl --bundle -O OpenFlow14 add-flows br0 good
        ~ ofctl dump-flows br0
        write bad priority=9,arp,actions=1;delete tcp;priority=8,ip,actions=group:10
        ofctl --bundle -O OpenFlow13 add-flows br0 bad
        ~ ofctl dump-flows br0
        write mixed add priority=9,arp,actions=3;modify tcp,actions=3;delete udp
        ofctl --bundle -O OpenFlow14 add-flows br0 mixed
        ~ ofctl dump-flows br0
        write other priority=6,udp,actions=2;priority=1,actions=drop
        ~ ofctl diff-flows br0 other
        ofctl -O OpenFlow13 replace-flows br0 other
        ~ ofctl dump-flows br0
        ofctl -O OpenFlow14 replace-flows br0 good
        ~ ofctl -O OpenFlow15 dump-flows br0
        ofctl add-flows br0 nosuchfile
        write broken priority=5,actions=nonsense
        ofctl add-flows br0 broken
        ofctl set-frags br0 drop
        ofctl get-frags br0
        ofctl set-frags br0 normal
        ofctl -O OpenFlow13 dump-tables br0
        ",
    ));
}

#[test]
fn database_programs() {
    same(&with_bridge(
        "
        vsctl list-br
        vsctl list-ports br0
        vsctl list-ifaces br0
        vsctl port-to-br p1
        vsctl iface-to-br p2
        vsctl port-to-br nosuch
        vsctl br-exists br0
        vsctl br-exists nosuch
        vsctl br-set-external-id br0 k v
        vsctl br-get-external-id br0
        vsctl set Bridge br0 flood_vlans=5000
        vsctl set Bridge br0 nosuchcolumn=1
        vsctl set Bridge br0 fail_mode=maybe
        vsctl wait-until Interface p1 ofport=1
        vsctl get Open_vSwitch . cur_cfg
        vsctl --columns=name,ofport,type,admin_state,link_state,error,options list Interface p1
        vsctl --format=table --columns=name,fail_mode,datapath_type list Bridge
        vsctl get Interface p1 statistics:nosuch
        vsctl clear Bridge br0 external_ids
        vsctl emer-reset
        vsctl del-br br0
        vsctl list-br
        ",
    ));
}

#[test]
fn more_matches_and_actions() {
    let mut s = with_bridge("ofctl del-flows br0\n");
    let rules = [
        "priority=1,ip,nw_tos=32,actions=mod_nw_tos:64,2",
        "priority=2,ip,nw_ttl=3,actions=mod_nw_ttl:9,2",
        "priority=3,tcp,tcp_flags=+syn-ack,actions=2",
        "priority=4,tcp,tp_src=0x10/0xfff0,actions=mod_tp_src:7,3",
        "priority=5,ipv6,ipv6_dst=fd00::/16,ipv6_label=0x12,actions=set_field:0x7->ipv6_label,2",
        "priority=6,icmp6,icmp_type=135,nd_target=fd00::1,actions=2",
        "priority=7,ip,ip_frag=later,actions=3",
        "priority=8,dl_vlan=5,dl_vlan_pcp=3,actions=mod_vlan_pcp:1,2",
        "priority=10,dl_src=50:54:00:00:00:00/ff:ff:00:00:00:00,actions=set_field:50:54:00:00:00:33->eth_src,3",
        "priority=11,metadata=0x5/0xf,actions=write_metadata:0x6,resubmit(,3)",
        "priority=12,reg0=0x5,actions=load:0x1234->NXM_NX_REG1[0..15],push:NXM_NX_REG1[],pop:NXM_NX_REG2[],2",
        "priority=9,arp,arp_spa=198.18.0.0/16,actions=load:0x2->NXM_OF_ARP_OP[],in_port",
        "priority=20,ip,nw_src=198.18.3.0/24,actions=load:0x40->NXM_OF_IP_TOS[],load:0x3->NXM_NX_IP_ECN[],2",
        "priority=21,ip,nw_src=198.18.4.0/24,actions=load:0x5->NXM_OF_ETH_DST[0..7],load:0x1->NXM_OF_VLAN_TCI[0..11],2",
        "priority=22,ip,nw_src=198.18.5.0/24,actions=set_field:198.18.9.0/255.255.255.0->ip_dst,2",
        "priority=13,sctp,tp_dst=5,actions=2",
        "priority=14,dl_type=0x88cc,actions=local",
        "priority=15,ip,actions=output:NXM_NX_REG0[]",
        "priority=16,ip,actions=exit,2",
        "priority=17,vlan_tci=0x1000/0x1000,actions=strip_vlan,resubmit(,2),note:00.01.02",
        "priority=18,in_port=3,actions=output(port=2,max_len=100)",
        "priority=19,in_port=3,actions=move:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15],mod_dl_src:50:54:00:00:00:44,2",
    ];
    for r in rules {
        s += &format!("ofctl add-flow br0 {r}\n");
    }
    s += "~ ofctl dump-flows br0\n~ ofctl -O OpenFlow13 dump-flows br0\n";
    for flow in [
        "in_port=1,ip,nw_tos=32",
        "in_port=1,ip,nw_ttl=3",
        "in_port=1,tcp,tcp_flags=0x2",
        "in_port=1,tcp,tp_src=20",
        "in_port=1,udp6,ipv6_dst=fd00::5,ipv6_label=0x12",
        "in_port=1,ip,nw_frag=later",
        "in_port=1,dl_src=50:54:00:00:00:01",
        "in_port=1,dl_type=0x88cc",
        "in_port=3,dl_type=0x9999",
        "in_port=2,dl_type=0x9999",
    ] {
        s += &format!("appctl ofproto/trace br0 {flow}\n");
    }
    same(&s);
}
