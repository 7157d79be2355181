//! Actions beyond rewriting and output, by the reference's own values.

mod same;

use fv_testkit::{Daemon, Env, normalise, wait_until};
use same::{same, with_bridge};

#[test]
fn links_and_members() {
    same(&with_bridge(
        "
        ofctl add-flow br0 priority=1,ip,actions=multipath(symmetric_l4,50,modulo_n,7,0,NXM_NX_REG1[0..7]),2
        ofctl add-flow br0 priority=2,ip,dl_src=00:00:00:00:00:02,actions=multipath(eth_src,50,hrw,12,0,NXM_NX_REG1[0..7]),2
        ofctl add-flow br0 priority=3,ip,dl_src=00:00:00:00:00:03,actions=multipath(nw_src,5,hash_threshold,12,0,NXM_NX_REG1[0..7]),multipath(symmetric_l3l4+udp,5,iter_hash,3,9,NXM_NX_REG2[]),multipath(symmetric_l3,5,iter_hash,1,1,NXM_NX_REG3[]),2
        ofctl add-flow br0 priority=4,ip,dl_dst=00:00:00:00:00:04,actions=bundle(eth_src,50,hrw,ofport,members:1,2,3)
        ofctl add-flow br0 priority=5,ip,dl_dst=00:00:00:00:00:05,actions=bundle(nw_dst,50,active_backup,ofport,members:2,3),bundle_load(symmetric_l4,60,hrw,ofport,NXM_NX_REG0[0..15],members:2,3),bundle_load(symmetric_l4,60,hrw,ofport,NXM_NX_REG0[0..15],members:3),output:NXM_NX_REG0[]
        ofctl add-flow br0 priority=6,ip,dl_dst=00:00:00:00:00:06,actions=bundle(nw_dst,50,active_backup,ofport,members:controller,9,LOCAL,normal)
        ~ ofctl dump-flows br0
        appctl ofproto/trace br0 in_port=1,tcp,nw_src=1.2.3.4,nw_dst=4.5.6.7,tp_src=5,tp_dst=6
        appctl ofproto/trace br0 in_port=1,tcp,nw_src=1.2.3.5,nw_dst=4.5.6.7,tp_src=5,tp_dst=6
        appctl ofproto/trace br0 in_port=1,tcp,dl_src=00:00:00:00:00:02,nw_src=1.2.3.4,tp_src=5,tp_dst=6
        appctl ofproto/trace br0 in_port=1,tcp,dl_src=00:00:00:00:00:03,nw_src=1.2.3.4,tp_src=5,tp_dst=6
        appctl ofproto/trace br0 in_port=1,ip,dl_src=00:00:00:00:00:01,dl_dst=00:00:00:00:00:04
        appctl ofproto/trace br0 in_port=1,ip,dl_src=00:00:00:00:00:02,dl_dst=00:00:00:00:00:04
        appctl ofproto/trace br0 in_port=1,ip,dl_src=00:00:00:00:00:03,dl_dst=00:00:00:00:00:04 --names
        appctl ofproto/trace br0 in_port=1,tcp,dl_dst=00:00:00:00:00:06
        appctl ofproto/trace br0 in_port=1,tcp,dl_dst=00:00:00:00:00:05,nw_src=1.2.3.4,tp_dst=6
        appctl netdev-dummy/receive p1 in_port(1),eth(src=00:00:00:00:00:01,dst=00:00:00:00:00:05),eth_type(0x0800),ipv4(src=1.2.3.4,dst=5.6.7.8,proto=6,tos=0,ttl=64,frag=no),tcp(src=8,dst=9),tcp_flags(ack)
        ~ appctl dpctl/dump-flows
        appctl netdev-dummy/set-admin-state p2 down
        appctl revalidator/wait
        ~ appctl dpctl/dump-flows
        appctl ofproto/trace br0 in_port=1,tcp,dl_dst=00:00:00:00:00:05,nw_src=1.2.3.4,tp_dst=6
        ofctl mod-port br0 p3 down
        appctl ofproto/trace br0 in_port=1,tcp,dl_dst=00:00:00:00:00:05,nw_src=1.2.3.4,tp_dst=6
        ofctl add-flow br0 actions=multipath(symmetric_l4,50,modulo_n,257,0,NXM_NX_REG1[0..7])
        ofctl add-flow br0 actions=multipath(nosuch,50,modulo_n,2,0,NXM_NX_REG1[0..7])
        ofctl add-flow br0 actions=bundle_load(eth_src,0,hrw,ofport,NXM_NX_REG0[0..14],members:1)
        ",
    ));
}

#[test]
fn flows_are_learned_and_kept() {
    same(&with_bridge(
        "
        appctl time/stop
        ofctl add-flow br0 table=0,actions=learn(table=1,hard_timeout=60,NXM_OF_VLAN_TCI[0..11],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),resubmit(,1)
        ofctl add-flow br0 table=1,priority=0,actions=3
        ~ ofctl dump-flows br0
        appctl ofproto/trace br0 in_port=3,vlan_tci=0,dl_src=50:54:00:00:00:05,dl_dst=ff:ff:ff:ff:ff:ff
        ~ ofctl dump-flows br0 table=1
        appctl netdev-dummy/receive p1 in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x1234)
        appctl netdev-dummy/receive p2 in_port(2),eth(src=50:54:00:00:00:02,dst=50:54:00:00:00:01),eth_type(0x1234)
        appctl time/warp 1000
        appctl netdev-dummy/receive p1 in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x1234) in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x1234)
        appctl time/warp 1000
        ~ ofctl dump-flows br0
        appctl time/warp 50000 1000
        appctl netdev-dummy/receive p1 in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x1234)
        appctl time/warp 20000 1000
        ~ ofctl --no-stats dump-flows br0
        appctl time/warp 50000 1000
        ~ ofctl --no-stats dump-flows br0
        ",
    ));
}

#[test]
fn a_learned_flow_comes_back_while_its_packets_flow() {
    same(&with_bridge(
        "
        appctl time/stop
        ofctl add-flow br0 table=0,in_port=1,actions=learn(table=1,priority=7,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),2
        appctl netdev-dummy/receive p1 in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x1234)
        ~ ofctl --no-stats dump-flows br0 table=1
        appctl time/warp 1000
        ofctl del-flows br0 table=1
        ~ ofctl --no-stats dump-flows br0 table=1
        appctl time/warp 1000
        appctl netdev-dummy/receive p1 in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x1234)
        appctl time/warp 2000 500
        ~ ofctl --no-stats dump-flows br0 table=1
        ",
    ));
}

#[test]
fn learning_in_all_its_forms() {
    same(&with_bridge(
        "
        appctl time/stop
        ofctl add-flow br0 cookie=0x7,table=0,tcp,actions=learn(table=3,idle_timeout=5,hard_timeout=60,fin_idle_timeout=2,fin_hard_timeout=3,priority=99,cookie=0x123,send_flow_rem,delete_learned,eth_type=0x800,nw_proto=6,NXM_OF_IP_SRC[]=NXM_OF_IP_DST[],NXM_OF_TCP_DST[]=NXM_OF_TCP_SRC[],load:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15],load:5->NXM_NX_REG1[0..3],output:NXM_OF_IN_PORT[]),2
        ofctl dump-flows br0
        appctl ofproto/trace ovs-dummy in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=1.1.1.1,dst=2.2.2.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=80,dst=90),tcp_flags(syn) -generate
        appctl netdev-dummy/receive p1 in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=1.1.1.1,dst=2.2.2.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=81,dst=90),tcp_flags(fin)
        ~ ofctl --no-stats dump-flows br0
        ofctl add-flow br0 table=0,tcp,actions=2
        ~ ofctl --no-stats dump-flows br0
        ofctl del-flows br0
        ofctl add-flow br0 table=0,udp,actions=learn(table=4,cookie=0x55,limit=2,result_dst=NXM_NX_REG0[3],eth_type=0x800,nw_proto=17,NXM_OF_UDP_DST[]=NXM_OF_UDP_SRC[],load:0->NXM_OF_IN_PORT[]),output:NXM_NX_REG0[0..15]
        ofctl add-flow br0 table=4,cookie=0x55,actions=drop
        appctl ofproto/trace ovs-dummy in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=1.1.1.1,dst=2.2.2.2,proto=17,tos=0,ttl=64,frag=no),udp(src=80,dst=90) -generate
        appctl ofproto/trace ovs-dummy in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=1.1.1.1,dst=2.2.2.2,proto=17,tos=0,ttl=64,frag=no),udp(src=80,dst=91) -generate
        appctl ofproto/trace ovs-dummy in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=1.1.1.1,dst=2.2.2.2,proto=17,tos=0,ttl=64,frag=no),udp(src=81,dst=90) -generate
        ~ ofctl --no-stats dump-flows br0
        ofctl del-flows br0
        ofctl add-flow br0 table=0,udp,actions=learn(table=4,delete_learned,limit=3,NXM_OF_IN_PORT[],NXM_NX_REG3[4..8]=NXM_NX_REG4[2..6])
        ofctl add-flow br0 table=1,udp,actions=learn(table=4,delete_learned,eth_type=0x800,ip_proto=17,udp_dst=77,ip_dst=1.2.3.4,dl_src=00:00:00:00:00:01,in_port=7,load:0x1234->NXM_NX_XXREG0[0..100],output:NXM_NX_REG4[0..15])
        ofctl add-flow br0 table=2,priority=9,actions=learn(table=5,cookie=9,delete_learned,NXM_OF_IN_PORT[]),resubmit(,1)
        appctl ofproto/trace ovs-dummy in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=1.1.1.1,dst=2.2.2.2,proto=17,tos=0,ttl=64,frag=no),udp(src=81,dst=90) -generate
        appctl ofproto/trace-packet-out br0 in_port=1,udp,nw_src=1.2.3.4 -generate resubmit(,2)
        ~ ofctl --no-stats -O OpenFlow13 dump-flows br0
        ofctl --strict del-flows br0 table=2,priority=9
        ~ ofctl --no-stats -O OpenFlow13 dump-flows br0
        ofctl del-flows br0 table=0
        ~ ofctl --no-stats -O OpenFlow13 dump-flows br0
        ofctl del-flows br0 table=1
        ~ ofctl --no-stats -O OpenFlow13 dump-flows br0
        ofctl del-flows br0
        ofctl add-flow br0 table=0,actions=learn(table=254,NXM_OF_IN_PORT[],load:1->NXM_NX_REG3[]),2
        appctl ofproto/trace br0 in_port=1,arp -generate
        appctl netdev-dummy/receive p1 in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x1234)
        ~ appctl bridge/dump-flows br0
        vsctl set bridge br0 flow_tables:7=@ft -- --id=@ft create Flow_Table flow_limit=1 name=seven
        ofctl add-flow br0 table=0,actions=learn(table=7,NXM_OF_ETH_SRC[]),2
        appctl ofproto/trace br0 in_port=1,arp -generate
        appctl ofproto/trace br0 in_port=1,arp,dl_src=00:00:00:00:00:05 -generate
        ~ ofctl --no-stats dump-flows br0
        ofctl add-flow br0 table=0,udp,actions=learn(table=300)
        ofctl add-flow br0 table=0,actions=learn(tcp_dst=5)
        ofctl add-flow br0 table=0,actions=learn(eth_type=0x800,NXM_OF_IP_DST[]=NXM_OF_IP_SRC[])
        ofctl add-flow br0 table=0,actions=learn(NXM_OF_VLAN_TCI[0..11]=NXM_NX_REG0[])
        ofctl add-flow br0 table=0,actions=learn(load:5->NXM_OF_IP_DST[])
        ",
    ));
}

#[test]
fn timeouts_shrink_when_a_connection_ends() {
    same(&with_bridge(
        "
        appctl time/stop
        ofctl add-flow br0 priority=1,tcp,idle_timeout=100,hard_timeout=1000,actions=fin_timeout(idle_timeout=5,hard_timeout=7),2
        appctl netdev-dummy/receive p1 in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=1.1.1.1,dst=2.2.2.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=81,dst=90),tcp_flags(ack)
        ofctl --no-stats dump-flows br0
        appctl netdev-dummy/receive p1 in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=1.1.1.1,dst=2.2.2.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=81,dst=90),tcp_flags(fin|ack)
        appctl time/warp 1000
        ofctl --no-stats dump-flows br0
        appctl time/warp 10000 1000
        ofctl dump-flows br0
        ",
    ));
}

#[test]
fn packets_branch_by_their_size() {
    same(&with_bridge(
        "
        ofctl add-flow br0 priority=6,in_port=1,actions=check_pkt_larger(100)->NXM_NX_REG0[0],resubmit(,5),output:3
        ofctl add-flow br0 table=5,priority=6,reg0=1,actions=mod_dl_src:00:00:00:00:00:01,output:2
        ofctl add-flow br0 table=5,priority=6,reg0=0,actions=LOCAL
        ofctl add-flow br0 priority=6,in_port=2,actions=clone(check_pkt_larger(100)->NXM_NX_REG0[0],resubmit(,6)),output:3
        ofctl add-flow br0 table=6,priority=6,reg0=1,actions=mod_dl_src:00:00:00:00:00:01,output:2
        ofctl add-flow br0 table=6,priority=6,reg0=0,actions=mod_nw_tos:8,check_pkt_larger(50)->NXM_NX_REG1[1],move:NXM_NX_REG1[]->NXM_NX_REG3[],LOCAL
        ofctl -O OpenFlow13 add-flow br0 in_port=3,ip,actions=check_pkt_larger(1500)->NXM_NX_REG0[0],write_actions(set_field:00:00:00:00:00:03->eth_dst,output:3),goto_table:7
        ofctl add-flow br0 table=7,reg0=1,actions=exit,5
        ofctl add-flow br0 table=7,actions=dec_ttl
        appctl ofproto/trace br0 in_port=1,tcp,dl_src=00:00:00:00:00:04,nw_src=1.2.3.4
        appctl ofproto/trace br0 in_port=2,tcp,dl_src=00:00:00:00:00:04,nw_src=1.2.3.4
        appctl ofproto/trace br0 in_port=3,tcp,dl_src=00:00:00:00:00:04,nw_src=1.2.3.4,nw_ttl=9
        appctl netdev-dummy/receive p1 in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=1.1.1.1,dst=2.2.2.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=81,dst=90),tcp_flags(ack)
        appctl netdev-dummy/receive p1 in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),ipv4(src=1.1.1.1,dst=2.2.2.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=81,dst=90),tcp_flags(ack) --len 300
        appctl revalidator/wait
        ~ appctl dpctl/dump-flows
        ofctl dump-ports br0 p2
        ofctl dump-ports br0 p3
        ofctl dump-ports br0 LOCAL
        ",
    ));
}

/// What a controller sees of a paused packet, which it lets go on at once.
fn paused(daemon: Daemon) -> String {
    let mut e = Env::dummy(daemon);
    e.add_dummy_bridge("br0", 1..=3);
    for flow in [
        "cookie=0x1,arp,actions=load:5->NXM_NX_REG3[],push:NXM_NX_REG3[],resubmit(,9),mod_dl_src:00:00:00:00:00:09,resubmit(,3)",
        "cookie=0x9,table=9,actions=push:NXM_NX_REG3[0..3],mod_dl_dst:00:00:00:00:00:07,controller(userdata=01.02.03,pause),pop:NXM_NX_REG4[0..3],controller:20,pop:NXM_NX_REG5[]",
        "cookie=0x3,table=3,reg4=5,reg5=5,actions=2",
        "cookie=0x3,table=3,priority=1,actions=3",
    ] {
        e.ofctl(&format!("add-flow br0 '{flow}'"));
    }
    let monitor = e.command("ovs-ofctl", "-O OpenFlow13 monitor br0 resume");
    e.spawn("monitor", &monitor);
    // Only a controller that is there is asked.
    let text = |e: &Env| std::fs::read_to_string(e.path("monitor.err")).unwrap_or_default();
    let arp = "in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0806),\
               arp(sip=1.2.3.4,tip=1.2.3.5,op=1,sha=00:00:00:00:00:01,tha=00:00:00:00:00:02)";
    wait_until("a packet went on", 20, || {
        e.appctl(&format!("netdev-dummy/receive p1 '{arp}'"));
        !text(&e).is_empty() && !e.ofctl("dump-ports br0 p2").contains("tx pkts=0,")
    });
    wait_until("both packet-ins", 20, || text(&e).matches("data_len").count() >= 3);
    let ports = e.ofctl("dump-ports br0 p3");
    let bridge = |l: &str| if l.starts_with(" continuation.bridge=") { " bridge".into() } else { l.to_owned() };
    // The first packet-in, what was sent back, and the packet-in of what went on.
    let mut messages = 0;
    let first = normalise(&text(&e));
    let first = first.lines().map(bridge).take_while(|l| {
        messages += usize::from(l.contains("data_len"));
        messages <= 3
    });
    e.healthy(&[]);
    format!("{}\n{ports}", first.collect::<Vec<_>>().join("\n"))
}

#[test]
fn a_paused_packet_goes_on_where_it_stopped() {
    let strip = |s: String| normalise(&s);
    assert_eq!(strip(paused(Daemon::Ours)), strip(paused(Daemon::Reference)));
}

#[test]
fn fields_of_every_form_are_written() {
    same(&with_bridge(
        "
        ofctl -O OpenFlow13 add-flow br0 table=1,actions=load:1->NXOXM_ET_ERSPAN_IDX[0],set_field:3->tun_erspan_ver,set_field:3/7->tun_erspan_idx
        ofctl -O OpenFlow15 add-flow br0 table=2,actions=load:1->NXM_OF_IN_PORT[0..3]
        ofctl -O OpenFlow15 add-flow br0 table=3,actions=load:5->OXM_OF_IN_PORT[0..3]
        ofctl -O OpenFlow15 add-flow br0 table=4,mpls,actions=load:1->OXM_OF_MPLS_LABEL[0],load:1->OXM_OF_MPLS_TC[0],load:3->NXM_NX_MPLS_TTL[0..2]
        ofctl -O OpenFlow15 add-flow br0 table=6,dl_vlan=5,actions=load:1->OXM_OF_VLAN_VID[0]
        ofctl -O OpenFlow15 add-flow br0 table=7,dl_vlan=5,actions=load:0x1005->OXM_OF_VLAN_VID[]
        ~ ofctl dump-flows br0
        ~ ofctl -O OpenFlow13 dump-flows br0
        ~ ofctl -O OpenFlow15 dump-flows br0
        ",
    ));
}

#[test]
fn tunnel_options_are_mapped_to_fields() {
    same(&with_bridge(
        "
        ofctl dump-tlv-map br0
        ofctl add-tlv-map br0 {class=0xffff,type=0,len=4}->tun_metadata0
        ofctl add-tlv-map br0 {class=0xffff,type=1,len=8}->tun_metadata1,{class=0xffff,type=2,len=124}->tun_metadata3
        ofctl dump-tlv-map br0
        ofctl add-tlv-map br0 {class=0xffff,type=1,len=8}->tun_metadata5
        ofctl add-tlv-map br0 {class=0xffff,type=9,len=8}->tun_metadata1
        ofctl add-tlv-map br0 {class=0xffff,type=9,len=5}->tun_metadata6
        ofctl add-tlv-map br0 {class=0xffff,type=9,len=128}->tun_metadata6
        ofctl add-tlv-map br0 {class=0xffff,type=9,len=4}->tun_metadata64
        ofctl add-tlv-map br0 {class=0xffff,type=3,len=4}->tun_metadata7,{class=0xffff,type=10,len=124}->tun_metadata6
        ofctl dump-tlv-map br0
        ofctl del-tlv-map br0 {class=0xffff,type=1,len=8}->tun_metadata1
        ofctl del-tlv-map br0 {class=0xffff,type=5,len=8}->tun_metadata1
        ofctl -O OpenFlow13 dump-tlv-map br0
        ofctl -O OpenFlow15 del-tlv-map br0
        ofctl -O OpenFlow15 dump-tlv-map br0
        ",
    ));
}

#[test]
fn tunnel_options_are_matched_and_written() {
    const TUNNEL: &str = "tun_id=3,tun_src=1.1.1.1,tun_dst=1.1.1.2,tun_ttl=64,dl_type=0x1234";
    same(&with_bridge(&format!(
        "
        ofctl add-flow br0 tun_metadata0=1,actions=drop
        ofctl add-tlv-map br0 {{class=0xffff,type=0,len=4}}->tun_metadata0,{{class=0xffff,type=1,len=8}}->tun_metadata1,{{class=0xffff,type=2,len=24}}->tun_metadata2
        ofctl add-flow br0 actions=set_field:1->tun_metadata9
        ofctl add-flow br0 actions=move:tun_metadata9[0..3]->NXM_NX_REG0[0..3]
        ofctl add-flow br0 actions=pop:tun_metadata1[]
        ofctl add-flow br0 actions=move:tun_metadata0[16..47]->NXM_NX_REG0[]
        ofctl add-flow br0 'actions=learn(table=1,tun_metadata0[0..63]=NXM_NX_XREG0[])'
        ofctl dump-flows br0 tun_metadata9=5
        ofctl add-flow br0 priority=5,tun_metadata0=0,actions=3
        ofctl add-flow br0 priority=6,tun_metadata0=0x1234567890,actions=3
        ofctl add-flow br0 priority=7,tun_metadata1,tun_metadata2=0x1234567890112233445566778899aabbccddeeff,actions=3
        ofctl add-flow br0 priority=8,tun_metadata0=0x5,actions=set_field:0x7->tun_metadata1,move:tun_metadata0[0..31]->tun_metadata1[32..63],load:5->tun_metadata2[100..110],push:tun_metadata2[0..159],pop:tun_metadata1[0..63],3,delete_field:tun_metadata0
        ofctl add-flow br0 priority=9,tun_metadata0=0x60/0xf0,actions=set_field:0x6/0xf->tun_metadata0,set_field:0x112233445566778899aabbccddeeff001122334455667788->tun_metadata2,3
        ofctl add-flow br0 'priority=10,tun_metadata0=0x100/0xff00,actions=learn(table=1,tun_metadata0[0..31],tun_metadata1[0..63]=0x55,load:tun_metadata0[0..31]->NXM_NX_REG1[],load:7->tun_metadata2[70..80])'
        ofctl add-flow br0 table=1,reg1=7,actions=output:tun_metadata0[0..15]
        ~ ofctl dump-flows br0
        ~ ofctl -O OpenFlow13 dump-flows br0
        ~ ofctl -O OpenFlow15 dump-flows br0
        ~ ofctl dump-flows br0 tun_metadata0=0x5
        ~ ofctl dump-flows br0 tun_metadata1
        ofctl del-tlv-map br0 {{class=0xffff,type=0,len=4}}->tun_metadata0
        ofctl del-tlv-map br0
        appctl ofproto/trace br0 in_port=1
        appctl ofproto/trace br0 in_port=1,{TUNNEL}
        appctl ofproto/trace br0 in_port=1,{TUNNEL},tun_metadata0=0
        appctl ofproto/trace br0 in_port=1,{TUNNEL},tun_metadata0=5
        appctl ofproto/trace br0 in_port=1,{TUNNEL},tun_metadata0=5,tun_metadata2=0x112233445566778899aabbccddeeff001122334455667788
        appctl ofproto/trace br0 in_port=1,{TUNNEL},tun_metadata0=0xff6f
        appctl ofproto/trace br0 in_port=1,{TUNNEL},tun_metadata1=5,tun_metadata2=0x1234567890112233445566778899aabbccddeeff
        appctl ofproto/trace br0 in_port=1,{TUNNEL},tun_metadata0=0x101,tun_metadata1=9
        appctl ofproto/trace br0 in_port=1,{TUNNEL},tun_metadata0=0x101,tun_metadata1=9 -generate
        ~ ofctl dump-flows br0 table=1
        ofctl -O OpenFlow15 --strict mod-flows br0 priority=5,tun_metadata0=0,actions=2
        ofctl --strict del-flows br0 priority=6,tun_metadata0=0x12345678
        ofctl del-flows br0 tun_metadata1
        ~ ofctl dump-flows br0
        ofctl add-group br0 group_id=1,type=indirect,bucket=set_field:5->tun_metadata1,2
        ofctl del-flows br0
        ofctl add-flow br0 delete_field:reg0
        ofctl del-groups br0
        ",
    )));
}

/// In a poll worker too, the packet behind the one that teaches meets the flow.
#[test]
fn the_next_packet_meets_what_was_learned() {
    let frame = |src: u32, dst: u32| {
        format!("'in_port(8),eth(src=50:54:00:00:00:0{src},dst=50:54:00:00:00:0{dst}),eth_type(0x1234)'")
    };
    let mut e = Env::dummy(Daemon::Ours);
    e.add_dummy_bridge("br0", 1..=2);
    e.vsctl("add-port br0 p8 -- set Interface p8 type=dummy-pmd ofport_request=8");
    e.ofctl("add-flow br0 'actions=learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:2->NXM_NX_REG0[0..15]),resubmit(,1),output:NXM_NX_REG0[0..15]'");
    e.ofctl("add-flow br0 table=1,priority=0,actions=load:1->NXM_NX_REG0[0..15]");
    // Each teaches what the next one needs; only the first goes to port 1.
    let frames: Vec<String> = (1..9).map(|n| frame(n, n - 1)).collect();
    e.appctl(&format!("netdev-dummy/receive p8 {}", frames.join(" ")));
    wait_until("all packets are out", 20, || {
        let ports = [e.ofctl("dump-ports br0 p1"), e.ofctl("dump-ports br0 p2")];
        ports[0].contains("tx pkts=1,") && ports[1].contains("tx pkts=7,")
    });
    e.healthy(&[]);
}
