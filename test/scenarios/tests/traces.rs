//! `ofproto/trace` and what stops a translation, by the reference's own values.

mod same;

use fv_testkit::{Daemon, Env};
use same::{same, with_bridge};

const ARP: &str = "in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0806),\
    arp(sip=1.2.3.4,tip=1.2.3.5,op=1,sha=00:00:00:00:00:01,tha=00:00:00:00:00:02)";

#[test]
fn what_a_recirculation_comes_back_to() {
    same(&with_bridge(&format!(
        "
        appctl time/stop
        ofctl add-flow br0 cookie=0x1,arp,actions=load:5->NXM_NX_REG3[],resubmit(,9),resubmit(,3)
        ofctl add-flow br0 cookie=0x9,table=9,actions=push:NXM_NX_REG3[],debug_recirc,pop:NXM_NX_REG4[],controller,resubmit(,3)
        ofctl add-flow br0 cookie=0x3,table=3,actions=2
        appctl netdev-dummy/receive p1 {ARP}
        appctl ofproto/trace ovs-dummy recirc_id(0x1),{ARP}
        appctl ofproto/trace br0 recirc_id=0x1,in_port=1,arp
        appctl ofproto/trace br0 recirc_id=99,in_port=1,arp
        appctl ofproto/trace ovs-dummy recirc_id(0x99),{ARP}
        ofctl add-flow br0 mpls,actions=pop_mpls:0x0800,mod_nw_tos:8,resubmit(,3)
        appctl ofproto/trace br0 in_port=1,mpls,mpls_label=5,mpls_bos=1,mpls_ttl=64
        ofctl dump-ports br0 p2
        "
    )));
}

#[test]
fn options_and_their_errors() {
    same(&with_bridge(
        "
        ofctl add-flow br0 ip,actions=2
        appctl ofproto/trace br0 in_port=1,tcp --l7 hello -generate
        appctl ofproto/trace br0 in_port=1,tcp --l7-len 5 -generate
        appctl ofproto/trace br0 in_port=1,tcp --l7-len -5 -generate
        appctl ofproto/trace br0 in_port=1,tcp --l7-len 99999 -generate
        appctl ofproto/trace br0 in_port=1,tcp --l7
        appctl ofproto/trace br0 in_port=1,tcp --foo
        appctl ofproto/trace br0 in_port=1,tcp -foo
        appctl ofproto/trace br0 in_port=1,tcp 0102
        appctl ofproto/trace br0 in_port=1,tcp zz
        appctl ofproto/trace br0 in_port=1 50540000000250540000000108004500002e000000004006aaaa0a0000010a000002001000160000000000000000501200000000000000000000000000000000
        appctl ofproto/trace br0 in_port=1,tcp -generate 50540000000250540000000108004500002e000000004006aaaa0a0000010a000002001000160000000000000000501200000000000000000000000000000000
        appctl ofproto/trace in_port(99),eth_type(0x800)
        appctl ofproto/trace a b c d
        ofctl add-flow br0 priority=0,actions=3,NORMAL
        appctl ofproto/trace in_port(1),eth_type(0x86dd)
        appctl ofproto/trace --names br0 in_port=p1,tcp
        appctl ofproto/trace br0 in_port=1,tcp --ct-next trk,new --ct-next trk,est
        appctl ofproto/trace br0 in_port=1,tcp --ct-next new,est
        appctl ofproto/trace br0 in_port=1,tcp --ct-next trk,inv,est
        appctl ofproto/trace br0 in_port=1,tcp --ct-next trk,new,rpl
        appctl ofproto/trace br0 in_port=1,tcp --ct-next +trk
        appctl ofproto/trace-packet-out br0 in_port=1,tcp mod_nw_tos:4,2
        appctl ofproto/trace-packet-out -consistent br0 in_port=1 mod_nw_tos:4,2
        appctl ofproto/trace-packet-out br0 in_port=1 mod_nw_tos:4,2
        appctl ofproto/trace-packet-out br0 in_port=1 set_field:1.2.3.4->ip_dst
        appctl ofproto/trace-packet-out br0 in_port=1,tcp drop
        appctl ofproto/trace-packet-out br0 in_port=1,tcp controller
        appctl ofproto/trace-packet-out br0 in_port=1,tcp goto_table:3
        appctl ofproto/trace-packet-out br0 in_port=1,tcp write_metadata:5
        appctl ofproto/trace-packet-out br0 in_port=1,tcp group:3
        appctl ofproto/trace-packet-out br0 in_port=1,tcp output:65300
        appctl ofproto/trace-packet-out br0 in_port=1,tcp foo
        ",
    ));
}

/// A flow for each table that goes to the next one; the last is number `n`.
fn chain(n: u32, actions: impl Fn(u32) -> String) -> String {
    (0..=n).map(|t| format!("table={t},priority=1,actions={};", actions(t))).collect()
}

#[test]
fn limits_and_what_counts_them() {
    let twice = chain(20, |t| format!("resubmit(,{0}),resubmit(,{0})", t + 1));
    let push = ["push:NXM_NX_XXREG0[]"; 130].join(",");
    let stack = chain(40, |t| format!("{push},resubmit(,{})", t + 1));
    let receive = |port: u32| {
        format!(
            "appctl netdev-dummy/receive p{port} in_port({port}),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x1234)"
        )
    };
    let (one, two) = (receive(1), receive(2));
    let counters = [
        "of_pipeline",
        "recursion_too_deep",
        "too_many_resubmit",
        "stack_too_deep",
        "too_many_mpls_labels",
        "no_recirculation_context",
        "recirculation_conflict",
        "invalid_tunnel_metadata",
        "unsupported_packet_type",
        "congestion",
        "forwarding_disabled",
    ];
    let counters: String = counters.iter().map(|c| format!("appctl coverage/read-counter drop_action_{c}\n")).collect();
    same(&with_bridge(&format!(
        "
        appctl time/stop
        ofctl add-flow br0 table=0,priority=9,in_port=1,actions=resubmit(,0)
        appctl ofproto/trace br0 in_port=1,tcp
        {one}
        {one}
        {two}
        write twice {twice}
        write stack {stack}
        ofctl del-flows br0
        ofctl add-flows br0 twice
        appctl revalidator/purge
        {two}
        appctl revalidator/purge
        ofctl del-flows br0
        ofctl add-flows br0 stack
        appctl revalidator/purge
        appctl ofproto/trace br0 in_port=1,arp
        {one}
        ofctl del-flows br0
        ofctl add-flow br0 mpls,actions=push_mpls:0x8847,push_mpls:0x8847,push_mpls:0x8847,2
        appctl ofproto/trace br0 in_port=1,mpls,mpls_label=5,mpls_bos=1,mpls_ttl=64
        appctl netdev-dummy/receive p1 in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x8847),mpls(label=5,tc=0,ttl=64,bos=1)
        ofctl packet-out br0 in_port=1,packet=505400000002505400000001123445000000000000000000,actions=drop
        appctl time/warp 20000 1000
        {counters}
        "
    )));
}

/// 3.1 does not have the command.
#[test]
fn a_flow_tells_its_rules() {
    let mut e = Env::dummy(Daemon::Ours);
    e.add_dummy_bridge("br0", 1..=2);
    e.ofctl("add-flow br0 cookie=0x12,priority=9,arp,actions=load:5->NXM_NX_REG3[],resubmit(,9)");
    e.ofctl("add-flow br0 table=9,reg3=5,actions=2");
    e.appctl(&format!("netdev-dummy/receive p1 {ARP}"));
    let flows = e.appctl("dpctl/dump-flows -m");
    let ufid = flows.split("ufid:").nth(1).and_then(|t| t.split(',').next()).expect("a flow").to_owned();
    let rules = "cookie=0x12, table=0 priority=9,arp,actions=load:0x5->NXM_NX_REG3[],resubmit(,9)\n\
                 cookie=0x0, table=9 reg3=0x5,actions=output:2\n";
    for args in [ufid.clone(), format!("ufid:{ufid}"), format!("{ufid} pmd=-1")] {
        assert_eq!(e.appctl(&format!("ofproto/detrace {args}")), rules, "{args}");
    }
    for (args, error) in [
        ("x".to_owned(), "failed to parse ufid".to_owned()),
        (format!("{ufid} pmd=7"), format!("UFID was not found for {ufid}")),
        (format!("{ufid} foo"), "Invalid pmd argument format.".to_owned()),
    ] {
        let o = e.run("ovs-appctl", &format!("ofproto/detrace {args}"));
        assert!(!o.ok() && o.stderr.starts_with(&error), "{args}: {o:?}");
    }
    e.healthy(&[]);
}

#[test]
fn features_taken_from_the_datapath() {
    same(&with_bridge(
        "
        ofctl add-flow br0 in_port=1,actions=output(port=2,max_len=100)
        appctl ofproto/trace br0 in_port=1,tcp
        appctl dpif/set-dp-features br0 trunc false
        appctl dpif/set-dp-features br0 trunc
        appctl ofproto/trace br0 in_port=1,tcp
        appctl dpif/set-dp-features br0 trunc true
        appctl ofproto/trace br0 in_port=1,tcp
        ofctl add-flow br0 in_port=1,actions=clone(output(port=2,max_len=60)),3
        appctl ofproto/trace br0 in_port=1,tcp
        appctl dpif/set-dp-features br0 clone false
        appctl ofproto/trace br0 in_port=1,tcp
        appctl dpif/set-dp-features br0 clone maybe
        appctl dpif/set-dp-features br0 clone
        appctl dpif/set-dp-features br0 foo
        appctl dpif/set-dp-features br9 clone
        appctl dpif/set-dp-features br0 max_mpls_depth many
        ",
    ));
}
