//! Groups: the same commands to the reference and to ours, and the same packets through both.

use fv_testkit::{Daemon, Env, normalise, sorted};

/// One daemon with a bridge and five ports.
struct Side {
    env: Env,
    /// The recirculation id that was printed last.
    recirc: String,
}

impl Side {
    fn new(daemon: Daemon) -> Side {
        let env = Env::dummy(daemon);
        env.vsctl(
            "add-br br0 -- set bridge br0 datapath-type=dummy fail-mode=secure other-config:hwaddr=aa:66:aa:66:00:00 \
             protocols=OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15",
        );
        for p in 1..=5 {
            env.vsctl(&format!("add-port br0 p{p} -- set Interface p{p} type=dummy ofport_request={p}"));
        }
        env.appctl("time/stop");
        Side { env, recirc: String::new() }
    }

    /// `of LINE`: ovs-ofctl with OpenFlow 1.5; `ofN LINE` with 1.N; `trace FLOW`; `send N FLOW`: N packets of
    /// [`FLOW`] and FLOW after them; else ovs-appctl. `$R` is the last recirculation id. Lines after `~` have no order.
    fn perform(&mut self, line: &str) -> String {
        let (any_order, line) = line.strip_prefix("~ ").map_or((false, line), |l| (true, l));
        let line = line.replace("$R", &self.recirc);
        let (verb, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let o = match verb {
            "of" => self.env.run("ovs-ofctl", &format!("--timeout=15 -O OpenFlow15 {rest}")),
            v if v.len() == 3 && v.starts_with("of") => {
                self.env.run("ovs-ofctl", &format!("--timeout=15 -O OpenFlow1{} {rest}", &v[2..]))
            }
            "trace" => self.env.run("ovs-appctl", &format!("--timeout=15 ofproto/trace br0 '{rest}'")),
            "send" => {
                let n = rest.parse().expect("a number");
                for _ in 0..n {
                    self.env.appctl(&format!("netdev-dummy/receive p1 '{PACKET}'"));
                }
                // Long enough for statistics to be pulled.
                self.env.appctl("time/warp 2000 100");
                return String::new();
            }
            _ => self.env.run("ovs-appctl", &format!("--timeout=15 {line}")),
        };
        // The reference prints the mask of a label that is matched whole.
        let out = normalise(&o.stdout).replace("/0xfffff,", ",");
        if let Some(at) = out.find("recirc(0x") {
            self.recirc = out[at + 7..].chars().take_while(|c| *c != ')').collect();
        }
        let out = if any_order { sorted(&out) } else { out };
        let text = format!("{out}{}status {}\n", normalise(&o.stderr), o.status);
        ["recirc(0x", "recirc_id(0x", "recirc_id=", "for ID "].iter().fold(text, |t, name| blank(&t, name))
    }
}

/// Numbers after `name` replaced, but for a lone zero.
fn blank(text: &str, name: &str) -> String {
    let mut parts = text.split(name);
    let mut out = parts.next().unwrap_or_default().to_string();
    for p in parts {
        out += name;
        let end = p.find([',', ')', ' ', '\n']).unwrap_or(p.len());
        out += if &p[..end] == "0" { "0" } else { "?" };
        out += &p[end..];
    }
    out
}

const PACKET: &str = "in_port(1),eth(src=50:00:00:00:00:01,dst=50:00:00:00:00:02),eth_type(0x0800),\
    ipv4(src=198.18.0.1,dst=198.18.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2)";
/// The same in the other syntax.
const FLOW: &str = "in_port=1,udp,dl_src=50:00:00:00:00:01,dl_dst=50:00:00:00:00:02,nw_src=198.18.0.1,nw_dst=198.18.0.2,\
    nw_ttl=64,udp_src=1,udp_dst=2";

/// Runs the script against both daemons and shows every step that differs. `FLOW` in it is [`FLOW`].
#[track_caller]
fn same(script: &str) {
    let (mut reference, mut ours) = (Side::new(Daemon::Reference), Side::new(Daemon::Ours));
    let mut bad = String::new();
    for line in script.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let line = line.replace("FLOW", FLOW);
        let (want, got) = (reference.perform(&line), ours.perform(&line));
        if want != got {
            bad += &format!("### {line}\n--- reference\n{want}--- ours\n{got}");
        }
    }
    assert!(bad.is_empty(), "outputs differ:\n{bad}");
    ours.env.healthy(&[]);
}

#[test]
fn all_and_indirect() {
    same(
        "
        of add-group br0 group_id=1,type=all,bucket=set_field:198.18.3.90->ip_src,output:2,bucket=output:3,bucket=output:1
        of add-flow br0 in_port=1,actions=group:1,output:4
        trace FLOW
        send 3
        of dump-group-stats br0 1
        of add-group br0 group_id=2,type=indirect,bucket=set_field:198.18.3.90->ip_src,group:1
        of add-flow br0 in_port=1,actions=write_actions(group:2,output:3)
        trace FLOW
        of add-group br0 group_id=12,type=all
        of add-flow br0 in_port=1,actions=group:12,output:4
        trace FLOW
        send 2
        of dump-group-stats br0 12
        # Tables and the action set inside buckets; what a bucket ends with ends only the bucket.
        of add-group br0 group_id=3,type=all,bucket=resubmit(,1),bucket=set_field:1->reg0,output:3,output:4
        of add-flow br0 table=1,actions=output:2,resubmit(,2),output:5
        of add-flow br0 table=2,actions=output:4,exit
        of add-flow br0 in_port=1,actions=resubmit(,3),output:5
        of add-flow br0 table=3,actions=group:3,output:5
        trace FLOW
        of add-flow br0 table=1,actions=write_actions(group:1,set_field:2->reg1)
        trace FLOW
        of add-group br0 group_id=6,type=all,bucket=clone(output:2),bucket=note:01.02,output:3
        of add-flow br0 in_port=1,actions=group:6
        trace FLOW
        # Why a packet went to a controller.
        of add-group br0 group_id=11,type=all,bucket=controller,bucket=output:controller
        of add-flow br0 in_port=1,actions=group:11
        send 1
        dpctl/dump-flows
        of add-flow br0 in_port=1,actions=group:99
        of packet-out br0 'in_port=1 packet=50000000000250000000000108004500001c00000000401166cf0a0000010a0000020001000200080000 actions=group:99'
        ofproto/trace-packet-out br0 FLOW group:1,output:3
        ofproto/trace-packet-out br0 FLOW group:99
        # Rules go with their group.
        of11 add-flow br0 table=7,tcp,actions=group:1
        of12 add-flow br0 table=7,udp,actions=write_actions(group:1)
        of13 add-flow br0 table=7,icmp,actions=clone(group:1)
        of dump-flows br0 table=7
        of dump-group-stats br0 1
        of del-groups br0 group_id=1
        of dump-flows br0 table=7
        ",
    );
}

#[test]
fn chains_of_groups() {
    let mut s = String::new();
    for i in 20..=90 {
        s += &format!("of add-group br0 group_id={i},type=indirect,bucket=group:{}\n", i + 1);
    }
    s += "of add-group br0 group_id=91,type=indirect,bucket=output:2
        of add-flow br0 in_port=1,actions=group:20,output:3
        trace FLOW
        of add-flow br0 in_port=1,actions=group:27,output:3
        trace FLOW
        of add-flow br0 in_port=1,actions=group:28,output:3
        trace FLOW";
    same(&s);
}

#[test]
fn select_by_the_datapaths_hash() {
    let mut s = String::from(
        "
        of add-group br0 group_id=3,type=select,bucket=output:2,bucket=output:3
        of add-flow br0 in_port=1,actions=group:3,output:5
        trace FLOW
        send 4
        of dump-group-stats br0
        # The packet has its hash, and a chain of groups asks for none again.
        of add-group br0 group_id=8,type=select,bucket=output:2,group:3,bucket=group:3
        of add-flow br0 table=1,in_port=1,actions=set_field:1->reg1,group:8,note:01.02,dec_ttl,output:5,goto_table:2
        of add-flow br0 in_port=1,actions=push_vlan:0x8100,write_actions(output:5),goto_table:1
        send 1
        trace FLOW
        trace recirc_id=$R,dp_hash=0x1,FLOW
        trace recirc_id=$R,dp_hash=0x2,vlan_tci=0x1000,FLOW
        # In a bucket of another group the rest goes on without it.
        of add-group br0 group_id=4,type=all,bucket=output:4,bucket=set_field:9.9.9.9->ip_src,group:3,bucket=output:5
        of add-flow br0 in_port=1,actions=group:4,output:3
        trace FLOW
        of add-flow br0 in_port=1,actions=clone(group:3,output:4),output:5
        trace FLOW
        of packet-out br0 'in_port=1 packet=50000000000250000000000108004500001c00000000401166cf0a0000010a0000020001000200080000 actions=group:3'
        time/warp 2000 100
        of dump-group-stats br0 3
        of add-flow br0 in_port=1,actions=group:7
        trace recirc_id=0x9999,FLOW
        ",
    );
    for buckets in [
        "bucket=output:2,bucket=output:3",
        "bucket=output:2,bucket=output:3,bucket=output:4",
        "bucket=weight:10,output:2,bucket=weight:3,output:3,bucket=weight:1,output:4",
        "bucket=weight:10,output:2,bucket=weight:0,output:3,bucket=weight:1,output:4",
        "bucket=weight:100,output:2,bucket=weight:1,output:3",
        "bucket=watch_port:9,output:2,bucket=watch_port:3,output:3",
        "selection_method=dp_hash,bucket=weight:200,output:2,bucket=weight:1,output:3",
        "selection_method=dp_hash,selection_method_param=0x100000002,bucket=output:2,bucket=output:3",
        "selection_method=dp_hash,selection_method_param=0x200000005,bucket=output:2",
        // No table of slots expresses these.
        "bucket=weight:1000,output:2,bucket=weight:1,output:3",
        "bucket=weight:0,output:2,bucket=output:3,weight:0",
        "",
    ] {
        s += &format!(
            "of mod-group br0 --may-create group_id=7,type=select,{buckets}\nof add-flow br0 in_port=1,actions=group:7\n\
             revalidator/purge\nsend 1\ntrace FLOW\n"
        );
        for h in [1, 2, 3, 7, 11, 15, 0x1391_fe4du32] {
            s += &format!("trace recirc_id=$R,dp_hash={h},FLOW\n");
        }
    }
    same(&s);
}

#[test]
fn select_by_header_fields() {
    let mut s = String::new();
    let methods = [
        "",
        "fields(eth_dst,ip_src),",
        "selection_method_param=5,fields(ip_src=255.255.0.0,tcp_dst,udp_dst),",
        "selection_method_param=0x123456789a,fields(ipv6_src,vlan_vid,metadata,tun_id,reg1=0x10,in_port,xxreg1),",
        "fields(arp_spa,ipv6_dst,ipv6_label,nw_proto,eth_type,pkt_mark,icmp_type),",
    ];
    for (i, m) in methods.iter().enumerate() {
        s += &format!(
            "of add-group br0 'group_id={i},type=select,selection_method=hash,{m}\
             bucket=output:2,bucket=bucket_id=77,weight:3,output:3,bucket=output:4,weight=0'\n"
        );
    }
    for i in 0..methods.len() {
        s += &format!("of add-flow br0 'in_port=1,actions=set_field:0x11->reg1,group:{i},output:5'\n");
        for flow in [
            "FLOW",
            "in_port=1,tcp6,ipv6_src=fd00::1,ipv6_dst=fd00::2,ipv6_label=0x7,tcp_src=5,tcp_dst=6,pkt_mark=3",
            "in_port=1,arp,arp_spa=198.18.0.1,dl_vlan=7",
            "in_port=1,sctp,sctp_src=3,sctp_dst=4,metadata=0x1234567890,tun_id=0x55",
        ] {
            s += &format!("trace {flow}\n");
        }
    }
    s += "send 3\n~ of dump-group-stats br0\n~ of dump-groups br0\n";
    same(&s);
}

#[test]
fn failover_follows_ports_and_groups() {
    same(
        "
        of add-group br0 group_id=5,type=ff,bucket=watch_port:2,output:2,bucket=watch_port:3,output:3
        of add-flow br0 in_port=1,actions=group:5,output:5
        trace FLOW
        send 2
        of mod-port br0 p2 down
        revalidator/wait
        send 2
        ~ dpctl/dump-flows
        trace FLOW
        netdev-dummy/set-admin-state p3 down
        time/warp 2000 100
        revalidator/wait
        send 2
        ~ dpctl/dump-flows
        trace FLOW
        of mod-port br0 p2 up
        time/warp 200 100
        revalidator/wait
        send 2
        ~ dpctl/dump-flows
        of dump-group-stats br0
        # A group is alive as long as it has a bucket that is.
        of add-group br0 group_id=3,type=select,bucket=output:2,bucket=output:3
        of mod-group br0 group_id=5,type=ff,bucket=watch_group:3,group:3,bucket=watch_port:4,output:4
        trace FLOW
        of mod-group br0 group_id=3,type=select,bucket=weight:0,output:2
        trace FLOW
        of mod-group br0 group_id=3,type=ff,bucket=watch_port:9,output:2
        trace FLOW
        of mod-group br0 group_id=3,type=all
        trace FLOW
        of mod-group br0 group_id=5,type=ff,bucket=watch_group:77,output:3,bucket=watch_port:4,output:4
        trace FLOW
        of mod-group br0 group_id=5,type=ff,bucket=watch_group:77,watch_port:4,output:3,bucket=watch_port:9,output:4
        trace FLOW
        ",
    );
}

#[test]
fn counters_through_changes() {
    same(
        "
        of add-group br0 group_id=3,type=all,bucket=bucket_id:10,output:2,bucket=bucket_id=20,output:3
        of add-flow br0 in_port=1,actions=group:3
        send 3
        revalidator/wait
        of insert-buckets br0 group_id=3,command_bucket_id=first,bucket=bucket_id=5,output:4
        revalidator/wait
        send 3
        of dump-group-stats br0
        of remove-buckets br0 group_id=3,command_bucket_id=20
        revalidator/wait
        send 3
        of dump-group-stats br0
        of insert-buckets br0 group_id=3,command_bucket_id=5,bucket=bucket_id=10,output:4
        of insert-buckets br0 group_id=3,command_bucket_id=77,bucket=bucket_id=11,output:4
        of remove-buckets br0 group_id=3,command_bucket_id=77
        of mod-group br0 group_id=3,type=all,bucket=bucket_id:10,output:2,bucket=bucket_id=20,output:3
        revalidator/wait
        of dump-group-stats br0
        send 3
        of dump-group-stats br0
        of mod-group br0 group_id=3,type=select,bucket=bucket_id:10,output:2,bucket=bucket_id=20,output:3
        revalidator/wait
        send 3
        of dump-group-stats br0
        of remove-buckets br0 group_id=3,command_bucket_id=all
        send 1
        of13 dump-group-stats br0
        of14 dump-groups br0
        of15 dump-groups br0 3
        of13 dump-group-features br0
        ",
    );
}
