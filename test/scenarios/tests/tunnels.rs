//! Tunnels: by the reference's own values in the dummy world, and with the kernel at the other end.

mod same;

use fv_testkit::{Env, Netns, Veth, ip, unique, wait_until};
use same::{same, with_bridge};

/// A bridge with an address and a way out, one with tunnels and a port, and neighbours that are known.
fn world(script: &str) -> String {
    format!(
        "
        vsctl add-br br0 -- set bridge br0 datapath-type=dummy fail-mode=secure other-config:hwaddr=aa:55:aa:55:00:00 -- add-port br0 p1 -- set Interface p1 type=dummy ofport_request=1
        vsctl add-br br1 -- set bridge br1 datapath-type=dummy fail-mode=secure other-config:hwaddr=aa:55:aa:55:00:01 -- add-port br1 p90 -- set Interface p90 type=dummy ofport_request=90
        appctl netdev-dummy/ip4addr br0 1.1.2.88/24
        appctl netdev-dummy/ip6addr br0 2001:cafe::88/24
        appctl ovs/route/add 1.1.2.92/24 br0
        appctl ovs/route/add 2001:cafe::92/24 br0
        appctl tnl/neigh/set br0 1.1.2.92 f8:bc:12:44:34:b6
        appctl tnl/neigh/set br0 2001:cafe::92 f8:bc:12:44:34:b8
        ofctl add-flow br0 action=normal
        {script}
        "
    )
}

const INNER: &str = "in_port(90),eth(src=f8:bc:12:44:34:b6,dst=aa:55:aa:55:00:00),eth_type(0x0800),ipv4(src=1.1.3.88,dst=1.1.3.112,proto=47,tos=0x5,ttl=63,frag=no)";

fn outer(what: &str) -> String {
    format!("in_port(1),eth(src=f8:bc:12:44:34:b6,dst=aa:55:aa:55:00:00),eth_type(0x0800),ipv4(src=1.1.2.92,{what}")
}

/// One tunnel port, a packet out of it, and packets in.
fn one_kind(options: &str, set: &str, dp_port: &str, incoming: &str, key: &str) -> String {
    world(&format!(
        "
        vsctl add-port br1 t1 -- set Interface t1 ofport_request=5 {options}
        appctl tnl/ports/show
        ~ appctl tnl/ports/show -v
        appctl ofproto/list-tunnels
        ~ appctl dpif/show
        ofctl add-flow br1 in_port=90,actions={set}5
        ofctl add-flow br1 priority=1,actions=90
        appctl ofproto/trace ovs-dummy {INNER}
        appctl ofproto/trace ovs-dummy {incoming}
        appctl ofproto/trace ovs-dummy tunnel({key}),in_port({dp_port}),eth(src=f8:bc:12:44:34:b6,dst=aa:55:aa:55:00:00),eth_type(0x0800),ipv4(src=1.1.3.88,dst=1.1.3.112,proto=47,tos=0x5,ttl=63,frag=no)
        appctl ofproto/trace ovs-dummy tunnel(tos=3,{key}),in_port({dp_port}),eth(src=f8:bc:12:44:34:b6,dst=aa:55:aa:55:00:00),eth_type(0x0800),ipv4(src=1.1.3.88,dst=1.1.3.112,proto=47,tos=0x5,ttl=63,frag=no)
        appctl ofproto/trace ovs-dummy tunnel(tos=3,{key}),in_port({dp_port}),eth(src=f8:bc:12:44:34:b6,dst=aa:55:aa:55:00:00),eth_type(0x0800),ipv4(src=1.1.3.88,dst=1.1.3.112,proto=47,tos=0x4,ttl=63,frag=no)
        appctl dpif/set-dp-features br1 tnl_push_pop false
        appctl ofproto/trace ovs-dummy {INNER}
        "
    ))
}

const KEY: &str = "tun_id=0x7b,src=1.1.2.92,dst=1.1.2.88,ttl=64,flags(-df-csum+key)";

#[test]
fn vxlan() {
    let incoming = outer("dst=1.1.2.88,proto=17,tos=0,ttl=64,frag=no),udp(src=51283,dst=4789)");
    same(&one_kind("type=vxlan options:remote_ip=1.1.2.92 options:key=123", "", "4789", &incoming, KEY));
    let flow = "type=vxlan options:remote_ip=flow options:key=flow options:csum=true options:tos=inherit options:ttl=inherit options:df_default=false";
    same(&one_kind(flow, "set_tunnel:0x55,set_field:1.1.2.92->tun_dst,", "4789", &incoming, KEY));
    let other = outer("dst=1.1.2.88,proto=17,tos=0,ttl=64,frag=first),udp(src=51283,dst=4790)");
    same(&one_kind(
        "type=vxlan options:remote_ip=1.1.2.92 options:out_key=flow options:in_key=77 options:dst_port=4790",
        "set_tunnel:0x44,",
        "4790",
        &other,
        &KEY.replace("0x7b", "0x4d"),
    ));
}

#[test]
fn gre_and_erspan() {
    let incoming = outer("dst=1.1.2.88,proto=47,tos=0,ttl=64,frag=no)");
    for options in [
        "type=gre options:remote_ip=1.1.2.92 options:key=123",
        "type=gre options:remote_ip=1.1.2.92 options:in_key=flow options:out_key=123 options:csum=true options:seq=true",
        "type=gre options:remote_ip=1.1.2.92",
        "type=erspan options:remote_ip=1.1.2.92 options:key=123 options:erspan_ver=1 options:erspan_idx=3",
        "type=erspan options:remote_ip=1.1.2.92 options:key=123 options:erspan_ver=2 options:erspan_dir=1 options:erspan_hwid=4",
    ] {
        same(&one_kind(options, "", "2", &incoming, KEY));
    }
}

#[test]
fn geneve_gtpu_and_ipv6() {
    let udp = |port: u16| outer(&format!("dst=1.1.2.88,proto=17,tos=0,ttl=64,frag=no),udp(src=51283,dst={port})"));
    same(&one_kind("type=geneve options:remote_ip=1.1.2.92 options:key=123", "", "6081", &udp(6081), KEY));
    same(&one_kind("type=gtpu options:remote_ip=1.1.2.92 options:key=123", "", "2152", &udp(2152), KEY));
    let v6 = "in_port(1),eth(src=f8:bc:12:44:34:b6,dst=aa:55:aa:55:00:00),eth_type(0x86dd),ipv6(src=2001:cafe::92,dst=2001:cafe::88,label=0,proto=17,tclass=0,hlimit=64,frag=no),udp(src=51283,dst=4789)";
    let key = "tun_id=0x7b,ipv6_src=2001:cafe::92,ipv6_dst=2001:cafe::88,ttl=64,flags(-df-csum+key)";
    for options in [
        "type=vxlan options:remote_ip=2001:cafe::92 options:key=123 options:local_ip=2001:cafe::88",
        "type=vxlan options:remote_ip=2001:cafe::92 options:key=123",
    ] {
        same(&one_kind(options, "", "4789", v6, key));
    }
}

#[test]
fn nothing_without_tunnels() {
    same(&with_bridge(
        "
        appctl tnl/ports/show
        appctl ofproto/list-tunnels
        appctl tnl/neigh/show
        appctl ovs/route/show
        appctl ovs/route/lookup 1.2.3.4
        ",
    ));
}

#[test]
fn routes_neighbours_and_their_errors() {
    same(&world(
        "
        appctl ovs/route/add 9.0.0.0/8 br0 1.1.2.1
        appctl ovs/route/add 9.1.0.0/16 br0 1.1.2.1 pkt_mark=7
        appctl ovs/route/lookup 9.9.9.9
        appctl ovs/route/lookup 9.1.9.9 pkt_mark=7
        appctl ovs/route/lookup foo
        appctl ovs/route/add foo br0
        appctl ovs/route/add 9.2.0.0/16 nodev
        appctl ovs/route/del 9.3.0.0/16
        appctl ovs/route/del foo
        appctl tnl/egress_port_range
        appctl tnl/egress_port_range 40000 50000
        appctl tnl/egress_port_range
        appctl tnl/neigh/aging
        appctl tnl/neigh/aging 0
        appctl tnl/neigh/aging 3601
        appctl tnl/neigh/aging 800
        appctl tnl/arp/aging
        appctl tnl/neigh/set br0 1.1.2 aa:aa:aa:aa:aa:aa
        appctl tnl/neigh/set br0 1.1.2.2 aa:aa:aa:aa:aa:
        ofctl add-flow br0 priority=9,arp,actions=local
        appctl netdev-dummy/receive p1 in_port(1),eth(src=f8:bc:12:44:34:b9,dst=ff:ff:ff:ff:ff:ff),eth_type(0x0806),arp(sip=1.1.2.93,tip=1.1.2.93,op=1,sha=f8:bc:12:44:34:b9,tha=00:00:00:00:00:00)
        ~ appctl tnl/arp/show
        appctl netdev-dummy/receive p1 in_port(1),eth(src=f8:bc:12:44:34:ba,dst=aa:55:aa:55:00:00),eth_type(0x0806),arp(sip=1.1.2.93,tip=1.1.2.88,op=2,sha=f8:bc:12:44:34:ba,tha=aa:55:aa:55:00:00)
        ~ appctl tnl/neigh/show
        appctl tnl/neigh/flush
        appctl tnl/neigh/show
        ",
    ));
}

/// A bridge with an address of its own, whose other side is a namespace with a VXLAN device, and a bridge behind it with
/// a host.
struct Underlay {
    env: Env,
    phy: String,
    int: String,
    peer: Netns,
    host: Netns,
    _veths: (Veth, Veth),
}

impl Underlay {
    fn new(net: u8, tunnel: &str, device: &str) -> Underlay {
        let env = Env::system();
        let (phy, int) = (unique("fvp"), unique("fvi"));
        let (peer, host) = (Netns::new(), Netns::new());
        let outer = Veth::new(&peer, &[&format!("198.18.{net}.1/24"), &format!("fd00:c612:{net}::1/64")]);
        let inner = Veth::new(&host, &["198.19.0.2/24"]);
        host.ip("link set eth0 mtu 1400");
        env.vsctl(&format!(
            "add-br {phy} -- set bridge {phy} datapath_type=netdev -- add-port {phy} {}",
            outer.outer()
        ));
        ip(&format!("addr add 198.18.{net}.2/24 dev {phy}"));
        ip(&format!("addr add fd00:c612:{net}::2/64 dev {phy} nodad"));
        ip(&format!("link set {phy} up"));
        let t = unique("fvt");
        env.vsctl(&format!(
            "add-br {int} -- set bridge {int} datapath_type=netdev -- add-port {int} {} -- add-port {int} {t} -- set Interface {t} {tunnel}",
            inner.outer()
        ));
        peer.ip(&format!("link add vx0 {device}"));
        peer.ip("addr add 198.19.0.1/24 dev vx0");
        peer.ip("link set vx0 up mtu 1400");
        let u = Underlay { env, phy, int, peer, host, _veths: (outer, inner) };
        wait_until("a route to the peer", 10, || {
            u.env.appctl(&format!("ovs/route/lookup 198.18.{net}.1")).contains(&u.phy)
        });
        u
    }

    fn counter(&self, name: &str) -> u64 {
        let text = self.env.appctl("coverage/show");
        let line = text.lines().find(|l| l.split_whitespace().next() == Some(name));
        line.and_then(|l| l.rsplit("total: ").next()?.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for Underlay {
    fn drop(&mut self) {
        let _ = self.env.run("ovs-appctl", "--timeout=5 exit --cleanup");
    }
}

// UP-64: the first packet over a tunnel whose other end nobody has asked for yet arrives.
#[test]
fn the_first_packet_over_a_cold_tunnel_is_held() {
    let mut u = Underlay::new(
        81,
        "type=vxlan options:remote_ip=198.18.81.1 options:key=123",
        "type vxlan id 123 remote 198.18.81.2 local 198.18.81.1 dstport 4789 dev eth0",
    );
    // Both ends of the inner network know each other, so that the first packet is the ping itself.
    let mac = |ns: &Netns, dev: &str| ns.run(&format!("cat /sys/class/net/{dev}/address"), 5).stdout.trim().to_string();
    u.host.ip(&format!("neigh replace 198.19.0.1 lladdr {} dev eth0", mac(&u.peer, "vx0")));
    u.peer.ip(&format!("neigh replace 198.19.0.2 lladdr {} dev vx0", mac(&u.host, "eth0")));
    // What is counted late, or else is sent, may make the peer known again before the ping.
    for _ in 0..20 {
        u.env.appctl("revalidator/wait");
        u.env.appctl("tnl/neigh/flush");
        u.env.appctl("revalidator/wait");
        assert!(u.host.ping("198.19.0.1", 1), "{}", u.env.appctl("tnl/neigh/show"));
        if u.counter("tunnel_packets_held_sent") > 0 {
            break;
        }
    }
    assert!(u.counter("tunnel_packets_held_sent") > 0);
    assert!(u.host.ping("198.19.0.1", 20));
    u.env.healthy(&[]);
}

// UP-65: however much traffic wants a silent neighbour, it is asked once a second.
#[test]
fn a_silent_neighbour_is_asked_once_a_second() {
    let mut u = Underlay::new(
        82,
        "type=vxlan options:remote_ip=198.18.82.77 options:key=123",
        "type vxlan id 123 remote 198.18.82.2 local 198.18.82.1 dstport 4789 dev eth0",
    );
    u.host.ip("neigh replace 198.19.0.1 lladdr 02:00:00:00:00:09 dev eth0");
    let before = u.counter("tunnel_neighbour_requests");
    let start = std::time::Instant::now();
    let _ = u.host.run("ping -n -q -f -w 3 198.19.0.1", 20);
    let seconds = start.elapsed().as_secs() + 2;
    let asked = u.counter("tunnel_neighbour_requests") - before;
    assert!((1..=seconds).contains(&asked), "asked {asked} times in {seconds} s");
    u.env.healthy(&[]);
}

// A changed MAC heals within a second of the gratuitous ARP; UP-67: a port that goes leaves the others.
#[test]
fn neighbours_move_and_ports_go() {
    let mut u = Underlay::new(
        83,
        "type=vxlan options:remote_ip=198.18.83.1 options:key=123",
        "type vxlan id 123 remote 198.18.83.2 local 198.18.83.1 dstport 4789 dev eth0",
    );
    u.host.wait_ping("198.19.0.1", 10);
    let extra = unique("fvx");
    u.env.vsctl(&format!(
        "add-port {} {extra} -- set Interface {extra} type=vxlan options:remote_ip=198.18.83.9 options:key=9",
        u.int
    ));
    assert!(u.env.appctl("tnl/ports/show").contains("ref_cnt=2"));
    u.env.vsctl(&format!("del-port {extra}"));
    assert!(u.env.appctl("tnl/ports/show").contains("ref_cnt=1"));
    assert!(u.host.ping("198.19.0.1", 5));
    u.peer.ip("link set eth0 down");
    u.peer.ip("link set eth0 address 02:00:00:00:83:01");
    u.peer.ip("link set eth0 up");
    let o = u.peer.run("ping -n -q -c 1 -W 1 198.18.83.2", 5);
    let told = std::time::Instant::now();
    wait_until("the new address is known", 3, || u.env.appctl("tnl/neigh/show").contains("02:00:00:00:83:01"));
    u.host.wait_ping("198.19.0.1", 5);
    assert!(told.elapsed().as_millis() < 2500, "{:?} {o:?}", told.elapsed());
    u.env.healthy(&[]);
}

/// Received Mbit/s.
fn iperf(u: &mut Underlay, extra: &str) -> f64 {
    let name = unique("iperf");
    let server = u.peer.command("iperf3 -s -1 --forceflush");
    u.env.spawn(&name, &server);
    wait_until("iperf3 listens", 10, || {
        std::fs::read_to_string(u.env.path(&format!("{name}.out"))).unwrap_or_default().contains("listening")
    });
    let o = u.host.run(&format!("iperf3 -J -c 198.19.0.1 -t 1 {extra}"), 20);
    u.env.stop(&name);
    let v: serde_json::Value = serde_json::from_str(&o.stdout).unwrap_or_default();
    v["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or(0.0) / 1e6
}

// UP-72 and UP-75: TCP with the kernel's default offloads, both ways, with and without outer checksums, over IPv4 and IPv6.
#[test]
fn tcp_through_a_kernel_peer() {
    for (net, v6, csum) in [(84, false, false), (85, false, true), (86, true, false)] {
        let (near, far) = if v6 {
            (format!("fd00:c612:{net}::2"), format!("fd00:c612:{net}::1"))
        } else {
            (format!("198.18.{net}.2"), format!("198.18.{net}.1"))
        };
        // Datagrams over IPv6 have one unless it is forbidden.
        let own = if csum { " options:csum=true" } else { "" };
        let sum = if csum { " udpcsum" } else { "" };
        let mut u = Underlay::new(
            net,
            &format!("type=vxlan options:remote_ip={far} options:key=123{own}"),
            &format!("type vxlan id 123 remote {near} local {far} dstport 4789 dev eth0{sum}"),
        );
        u.host.wait_ping("198.19.0.1", 10);
        assert!(u.host.ping("198.19.0.1", 20));
        for way in ["", "-R"] {
            let mbit = iperf(&mut u, way);
            assert!(mbit > 20.0, "{far} csum {csum} {way}: {mbit} Mbit/s");
        }
        let bad = u.peer.run("nstat -az UdpInCsumErrors Udp6InCsumErrors TcpInCsumErrors", 5).stdout;
        assert!(bad.lines().skip(1).all(|l| l.split_whitespace().nth(1) == Some("0")), "{bad}");
        assert_eq!(u.counter("datapath_drop_bad_offload"), 0);
        u.env.healthy(&[]);
    }
}

// A key that no port has: one flow drops it, and goes when it is idle.
#[test]
fn unknown_keys_have_one_flow() {
    let mut u = Underlay::new(
        87,
        "type=vxlan options:remote_ip=198.18.87.1 options:key=123",
        "type vxlan id 124 remote 198.18.87.2 local 198.18.87.1 dstport 4789 dev eth0",
    );
    u.peer.ip("neigh replace 198.19.0.2 lladdr 02:00:00:00:00:09 dev vx0");
    let _ = u.peer.run("ping -n -q -i 0.05 -c 20 -W 1 198.19.0.2", 20);
    let flows = u.env.appctl("dpctl/dump-flows");
    let lines: Vec<&str> = flows.lines().filter(|l| l.contains("tun_id=0x7c")).collect();
    let drops = lines.iter().filter(|l| l.contains("actions:drop")).count();
    assert!((1..=3).contains(&drops) && drops == lines.len(), "{flows}");
    u.env.healthy(&[]);
}
