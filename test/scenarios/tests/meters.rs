//! Meters: the same commands and packets to the reference and to ours, under a clock that stands still.

use fv_testkit::{Daemon, Env, normalise};

const PACKET: &str = "in_port(1),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),\
                      ipv4(src=198.18.0.1,dst=198.18.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2) --len 125";

fn side(daemon: Daemon) -> Env {
    let env = Env::dummy(daemon);
    env.vsctl(
        "add-br br0 -- set bridge br0 datapath-type=dummy fail-mode=secure other-config:hwaddr=aa:66:aa:66:00:00 \
         protocols=OpenFlow10,OpenFlow13,OpenFlow14,OpenFlow15",
    );
    for p in 1..=3 {
        env.vsctl(&format!("add-port br0 p{p} -- set Interface p{p} type=dummy ofport_request={p}"));
    }
    env.appctl("time/stop");
    env
}

/// `of LINE`: ovs-ofctl with OpenFlow 1.3; `send N`: N packets of [`PACKET`]; else ovs-appctl.
fn perform(env: &Env, line: &str) -> String {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let o = match verb {
        "of" => env.run("ovs-ofctl", &format!("--timeout=15 -O OpenFlow13 {rest}")),
        "of5" => env.run("ovs-ofctl", &format!("--timeout=15 -O OpenFlow15 {rest}")),
        "send" => {
            for _ in 0..rest.parse::<u32>().expect("a number") {
                env.appctl(&format!("netdev-dummy/receive p1 {PACKET}"));
            }
            return String::new();
        }
        _ => env.run("ovs-appctl", &format!("--timeout=15 {line}")),
    };
    let text = format!("{}{}status {}\n", normalise(&o.stdout), normalise(&o.stderr), o.status);
    // Ids of recirculations are each side's own.
    let mut parts = text.split("recirc_id=");
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |t, p| t + "recirc_id=" + p.trim_start_matches(|c: char| c.is_ascii_digit()))
}

#[track_caller]
fn same(script: &str) {
    let (ours, theirs) = (side(Daemon::Ours), side(Daemon::Reference));
    for line in script.lines().map(str::trim).filter(|l| !l.is_empty()) {
        assert_eq!(perform(&ours, line), perform(&theirs, line), "left ours, right theirs, after: {line}");
    }
}

#[test]
fn packets_a_second() {
    same(
        "
        of add-meter br0 meter=1,pktps,burst,stats,bands=type=drop,rate=1,burst_size=2
        of add-flow br0 in_port=1,actions=meter:1,2
        ofproto/trace br0 in_port=1,udp
        send 6
        of meter-stats br0 meter=1
        time/warp 1000
        send 3
        time/warp 5000
        send 4
        of meter-stats br0
        of dump-ports br0 2
        coverage/read-counter datapath_drop_meter
        revalidator/wait
        dpctl/dump-flows
        of mod-meter br0 meter=1,pktps,stats,bands=type=drop,rate=3
        of meter-stats br0
        send 5
        of meter-stats br0
        revalidator/wait
        of dump-flows br0
        revalidator/wait
        of del-meter br0 meter=1
        revalidator/wait
        of dump-flows br0
        of meter-stats br0
        send 2
        of dump-ports br0 2
        ",
    );
}

#[test]
fn kilobits_and_several_bands() {
    same(
        "
        of add-meter br0 meter=5,kbps,burst,stats,bands=type=drop,rate=1,burst_size=4,type=drop,rate=2,burst_size=3
        of add-meter br0 meter=2,kbps,stats,bands=type=drop,rate=8
        of add-flow br0 in_port=1,ip,actions=meter:5,resubmit(,1)
        of add-flow br0 table=1,actions=meter:2,2,3
        ofproto/trace br0 in_port=1,udp
        send 8
        time/warp 1000
        send 3
        of meter-stats br0 meter=5
        of meter-stats br0 meter=2
        of dump-meters br0 meter=5
        revalidator/wait
        of5 add-flow br0 table=1,udp,actions=2,meter:5,3
        ofproto/trace br0 in_port=1,udp
        revalidator/wait
        of5 dump-flows br0
        of5 add-flow br0 table=1,tcp,actions=meter:7,3
        of add-flow br0 table=1,tcp,actions=write_actions(meter:5,output:3)
        of meter-features br0
        ",
    );
}

#[test]
fn what_goes_to_controllers() {
    same(
        "
        of add-meter br0 meter=5,pktps,burst,stats,bands=type=drop,rate=1,burst_size=2
        of add-flow br0 in_port=1,actions=controller(meter_id=5,max_len=20),2
        of add-flow br0 in_port=2,actions=controller(meter_id=9,max_len=20)
        ofproto/trace br0 in_port=1,udp
        ofproto/trace br0 in_port=2,udp
        send 5
        of meter-stats br0 meter=5
        revalidator/wait
        of dump-ports br0 2
        of dump-flows br0 in_port=1
        of dump-flows br0 in_port=2
        of del-meter br0 meter=5
        of dump-flows br0 in_port=1
        of dump-flows br0 in_port=2
        ",
    );
}

/// The reference goes on with the number, which the next meter gets.
#[test]
fn a_meter_that_is_gone_limits_no_controller() {
    let e = side(Daemon::Ours);
    let trace = |line: &str| {
        perform(&e, line);
        perform(&e, "ofproto/trace br0 in_port=1,udp")
    };
    perform(&e, "of add-flow br0 in_port=1,actions=controller(meter_id=5)");
    let limited = |n: u32| format!("sample(sample=100.0%,actions(meter({n}),userspace(");
    assert!(trace("of add-meter br0 meter=5,pktps,bands=type=drop,rate=1").contains(&limited(0)));
    assert!(!trace("of del-meter br0 meter=5").contains("meter("));
    assert!(!trace("of add-meter br0 meter=6,pktps,bands=type=drop,rate=1").contains("meter("));
    assert!(trace("of add-meter br0 meter=5,pktps,bands=type=drop,rate=1").contains(&limited(1)));
}
