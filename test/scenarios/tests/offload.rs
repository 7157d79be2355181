//! Hardware offload with an emulated NIC between namespaces.

use fv_testkit::{Env, Netns, Veth, unique, wait_until};

/// A bridge whose ports are those of one emulated card, with a namespace behind each.
struct Lan {
    env: Env,
    bridge: String,
    hosts: Vec<(Netns, Veth)>,
}

impl Lan {
    /// `options` of the card.
    fn new(options: &str) -> Lan {
        let env = Env::system();
        let bridge = unique("fvb");
        env.vsctl("set Open_vSwitch . other_config:hw-offload=true other_config:offload-rebalance=true");
        env.vsctl(&format!("add-br {bridge} -- set bridge {bridge} datapath_type=netdev"));
        let mut hosts = Vec::new();
        for n in 1..=2 {
            let ns = Netns::new();
            let v = Veth::new(&ns, &[&format!("198.18.0.{n}/24")]);
            let lower = v.outer();
            env.vsctl(&format!(
                "add-port {bridge} nic{n} -- set interface nic{n} type=simnic options:lower={lower} options:card=c0 {options}"
            ));
            hosts.push((ns, v));
        }
        Lan { env, bridge, hosts }
    }

    fn flows(&self, kind: &str) -> Vec<String> {
        let all = self.env.appctl(&format!("dpctl/dump-flows -m type={kind}"));
        all.lines().filter(|l| l.contains("eth_type(0x0800)")).map(str::to_string).collect()
    }

    fn ping(&self, count: u32) {
        assert!(self.hosts[0].0.ping("198.18.0.2", count), "pings are lost");
    }

    /// Packets that the OpenFlow rule for IP has seen.
    fn counted(&self) -> u64 {
        let rules = self.env.ofctl(&format!("dump-flows {} ip", self.bridge));
        let n = rules.split("n_packets=").nth(1).and_then(|r| r.split(',').next()).and_then(|n| n.parse().ok());
        n.unwrap_or_else(|| panic!("no count in {rules}"))
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        // The bridge's own device goes with a daemon that ends in order.
        let _ = self.env.run("ovs-appctl", "--timeout=5 exit --cleanup");
    }
}

#[test]
fn flows_go_to_the_nic_and_every_packet_is_counted_once() {
    let mut lan = Lan::new("options:stats-delay-ms=200 options:op-latency-us=500");
    lan.env.ofctl(&format!("add-flow {} ip,actions=NORMAL", lan.bridge));
    lan.hosts[0].0.wait_ping("198.18.0.2", 10);
    let before = lan.counted();
    lan.ping(20);
    wait_until("flows are in the NIC", 10, || lan.flows("offloaded").len() >= 2);
    lan.ping(30);
    // A hundred packets of requests and replies, wherever they were forwarded.
    wait_until("all packets are counted", 10, || lan.counted() - before >= 100);
    assert_eq!(lan.counted() - before, 100);
    let flow = lan.flows("simnic").remove(0);
    assert!(flow.contains("offloaded:yes, dp:simnic"), "{flow}");
    let ufid = flow.split([':', ',']).nth(1).unwrap().to_string();
    assert_eq!(lan.env.appctl(&format!("ferrovia/why-not-offloaded {ufid}")).trim(), "the flow is offloaded");
    assert!(lan.env.appctl("upcall/show").contains("offloaded flows : "));
    let table = lan.env.appctl("ferrovia/offload");
    assert!(table.contains("simnic c0 (nic1 nic2)") && table.contains("of 1024"), "{table}");
    let shown = lan.env.appctl("dpif/offload/show");
    assert!(shown.contains("Globally enabled: true") && shown.contains("  - nic1: port_no: "), "{shown}");
    assert!(lan.env.appctl("dpctl/offload-stats-show").contains("Inserted offloads:"));

    // Other actions replace those in the NIC.
    lan.env.ofctl(&format!("add-flow {} ip,actions=dec_ttl,NORMAL", lan.bridge));
    lan.ping(5);

    // Switched off, and on again.
    lan.env.vsctl("set Open_vSwitch . other_config:hw-offload=false");
    wait_until("flows are in software", 10, || lan.flows("offloaded").is_empty());
    lan.ping(5);
    let ufid_flow = lan.flows("ovs").remove(0);
    let ufid = ufid_flow.split([':', ',']).nth(1).unwrap().to_string();
    let why = lan.env.appctl(&format!("ferrovia/why-not-offloaded {ufid}"));
    assert_eq!(why.trim(), "hardware offload is disabled");
    lan.env.vsctl("set Open_vSwitch . other_config:hw-offload=true");
    wait_until("flows are in the NIC again", 10, || !lan.flows("offloaded").is_empty());
    lan.ping(5);

    // A port that goes, and comes back.
    lan.env.vsctl("del-port nic2");
    let lower = lan.hosts[1].1.outer().to_string();
    lan.env.vsctl(&format!(
        "add-port {} nic2 -- set interface nic2 type=simnic options:lower={lower} options:card=c0",
        lan.bridge
    ));
    lan.hosts[0].0.wait_ping("198.18.0.2", 10);
    lan.env.healthy(&[]);
}

#[test]
fn a_nic_that_only_marks_says_which_flow_a_packet_is_of() {
    let mut lan = Lan::new("options:actions=drop");
    lan.hosts[0].0.wait_ping("198.18.0.2", 10);
    lan.ping(10);
    wait_until("flows are marked", 10, || lan.flows("partially-offloaded").len() >= 2);
    lan.ping(10);
    let flow = lan.flows("partially-offloaded").remove(0);
    assert!(flow.contains("offloaded:partial, dp:ovs"), "{flow}");
    let ufid = flow.split([':', ',']).nth(1).unwrap().to_string();
    let why = lan.env.appctl(&format!("ferrovia/why-not-offloaded {ufid}"));
    assert_eq!(why.trim(), "partially offloaded: the NIC cannot do output");
    assert!(lan.env.appctl("ferrovia/offload").contains("0 forwarded, "));
    lan.env.healthy(&[]);
}

#[test]
fn a_bad_option_of_a_card_is_the_rows_error() {
    let env = Env::system();
    let bridge = unique("fvb");
    env.vsctl(&format!("add-br {bridge} -- set bridge {bridge} datapath_type=netdev"));
    env.vsctl(&format!("add-port {bridge} nic1 -- set interface nic1 type=simnic"));
    assert!(env.value("interface", "nic1", "error").contains("lower"), "{}", env.value("interface", "nic1", "error"));
    let _ = env.run("ovs-appctl", "--timeout=5 exit --cleanup");
}
