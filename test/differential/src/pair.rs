//! Both daemons, and how a case is run on one of them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fv_testkit::{Daemon, Env};

use crate::case::{BRIDGES, Case, PATCH, Step};
use crate::compare;
use crate::ctl::Ctl;
use crate::rules::TABLES;

/// Quiet logs: a case leaves thousands of lines at debug level.
const ARGS: &str = "--enable-dummy --disable-system --disable-system-route -vfile:info";

/// What one side said: a label and a text each.
pub type Account = Vec<(String, String)>;

/// One daemon with its database, and the bridges of the test bed.
pub struct Side {
    pub env: Env,
    ctl: Ctl,
}

/// The reference and ours.
pub struct Pair {
    pub reference: Side,
    pub ours: Side,
}

impl Pair {
    pub fn new() -> Pair {
        Pair { reference: Side::new(Daemon::Reference), ours: Side::new(Daemon::Ours) }
    }

    /// Runs the case on both, at the same time, and returns what differs.
    pub fn run(&mut self, case: &Case) -> Vec<compare::Difference> {
        let (reference, ours) = std::thread::scope(|s| {
            let reference = s.spawn(|| self.reference.run(case));
            let ours = self.ours.run(case);
            (reference.join().expect("the reference's side"), ours)
        });
        compare::differences(case, &reference, &ours)
    }
}

impl Default for Pair {
    fn default() -> Self {
        Pair::new()
    }
}

fn ports() -> impl Iterator<Item = u32> {
    BRIDGES.iter().flat_map(|(_, p)| p.iter().copied())
}

impl Side {
    pub fn new(daemon: Daemon) -> Side {
        let mut env = Env::new();
        env.start_db();
        let reference = daemon == Daemon::Reference;
        env.start(daemon, ARGS);
        let ctl = Ctl::connect(&env.path(&format!("ovs-vswitchd.{}.ctl", env.daemon_pid())));
        let mut s = Side { env, ctl };
        s.build(reference);
        s
    }

    /// Ports are added one by one: the reference floods in the order in which it came to know them.
    fn build(&mut self, reference: bool) {
        for (n, (br, _)) in BRIDGES.iter().enumerate() {
            self.env.vsctl(&format!(
                "add-br {br} -- set bridge {br} datapath-type=dummy fail-mode=secure \
                 other-config:datapath-id=fedcba987654321{n} other-config:hwaddr=aa:55:aa:55:00:0{n} \
                 protocols=OpenFlow10,OpenFlow13,OpenFlow15"
            ));
        }
        for (br, list) in BRIDGES {
            for p in list.iter() {
                self.env.vsctl(&format!(
                    "add-port {br} p{p} -- set Interface p{p} type=dummy ofport_request={p} options:tx_pcap=p{p}.pcap"
                ));
            }
        }
        for (a, b) in [("br0", "br1"), ("br1", "br0")] {
            self.env.vsctl(&format!(
                "add-port {a} to-{b} -- set Interface to-{b} type=patch ofport_request={PATCH} options:peer=to-{a}"
            ));
        }
        if reference {
            // As ours are without being told.
            let mut line = "--id=@t create Flow_Table prefixes=ip_dst,ip_src,ipv6_src".to_string();
            for (br, _) in BRIDGES {
                for t in 0..=2 * TABLES {
                    line += &format!(" -- set Bridge {br} flow_tables:{t}=@t");
                }
            }
            self.env.vsctl(&line);
        }
        self.call("time/stop", &[]);
    }

    /// The reply of a command, or "error: ..." .
    pub fn call(&mut self, method: &str, params: &[&str]) -> String {
        match self.ctl.call(method, params) {
            Ok(s) => s,
            Err(e) => format!("error: {e}"),
        }
    }

    /// Two rounds of revalidation: the reference takes a packet only after the command that brought
    /// it, perhaps after the first round began. A change of the MAC table makes it begin one at once.
    fn settle(&mut self) {
        const MAC: &str = "50:00:00:00:00:09";
        self.call("fdb/add", &[BRIDGES[1].0, "p11", "4000", MAC]);
        self.call("revalidator/wait", &[]);
        self.call("fdb/del", &[BRIDGES[1].0, "4000", MAC]);
        self.call("revalidator/wait", &[]);
    }

    /// All that is said by `ovs-ofctl`.
    fn ofctl(&self, line: &str) -> String {
        let o = self.env.run("ovs-ofctl", &format!("--timeout=20 -vconsole:off {line}"));
        let dir = self.env.dir().display().to_string();
        format!("{}{}", o.stdout, o.stderr).replace(&dir, "DIR")
    }

    fn prepare(&mut self, case: &Case) -> Account {
        let mut line = "set Open_vSwitch . other_config:max-idle=10000".to_string();
        for p in ports() {
            line += &format!(
                " -- clear Port p{p} tag -- clear Port p{p} trunks -- clear Port p{p} vlan_mode \
                 -- clear Port p{p} cvlans -- clear Port p{p} other_config -- set Port p{p} protected=false"
            );
        }
        for (p, set) in &case.ports {
            line += &format!(" -- set Port {p} {set}");
        }
        self.env.vsctl(&line);
        let mut out = Vec::new();
        // The order in which the reference tries rules of one priority depends on rules that were there before.
        for (br, _) in BRIDGES {
            self.ofctl(&format!("del-flows {br}"));
        }
        self.settle();
        if !case.groups.is_empty() {
            std::fs::write(self.env.path("groups"), case.groups.join("\n") + "\n").expect("groups' file");
            let line = "-O OpenFlow15 add-groups br0 groups";
            out.push((line.into(), self.ofctl(line)));
        }
        for (b, (br, _)) in BRIDGES.iter().enumerate() {
            let file = self.env.path(&format!("{br}.flows"));
            std::fs::write(&file, case.rules[b].join("\n") + "\n").expect("rules' file");
            let line = format!("-O {} add-flows {br} {br}.flows", case.dialect.option());
            out.push((line.clone(), self.ofctl(&line)));
        }
        if case.frags != "normal" {
            self.ofctl(&format!("-O OpenFlow10 set-frags br0 {}", case.frags));
        }
        for (b, p, set) in &case.port_mods {
            self.ofctl(&format!("mod-port {} {p} {set}", BRIDGES[*b].0));
        }
        // Flows that go refresh what they learnt.
        for c in ["revalidator/purge", "fdb/flush"] {
            self.call(c, &[]);
            self.settle();
        }
        out
    }

    fn restore(&mut self, case: &Case) {
        if !case.groups.is_empty() {
            self.ofctl("-O OpenFlow15 del-groups br0");
        }
        if case.frags != "normal" {
            self.ofctl("-O OpenFlow10 set-frags br0 normal");
        }
        for (b, p, set) in &case.port_mods {
            let undo = match set.as_str() {
                "down" => "up".into(),
                s => s.trim_start_matches("no-").to_string(),
            };
            self.ofctl(&format!("mod-port {} {p} {undo}", BRIDGES[*b].0));
        }
    }

    /// Does all that the case says.
    pub fn run(&mut self, case: &Case) -> Account {
        let mut out = self.prepare(case);
        let (sizes, counters) = (self.pcap_sizes(), self.counters());
        for (i, s) in case.steps.iter().enumerate() {
            self.step(case, i, s, &mut out);
        }
        for (br, _) in BRIDGES {
            let line = format!("-O OpenFlow13 dump-flows --no-names {br}");
            out.push((line.clone(), self.ofctl(&line)));
            out.push((format!("fdb/show {br}"), self.call("fdb/show", &[br])));
        }
        if !case.groups.is_empty() {
            for line in ["-O OpenFlow15 dump-groups br0", "-O OpenFlow15 dump-group-stats br0"] {
                out.push((line.into(), self.ofctl(line)));
            }
        }
        for ((what, old), (_, new)) in counters.iter().zip(&self.counters()) {
            out.push((what.clone(), compare::grown(old, new)));
        }
        for p in ports() {
            let old = sizes.get(&p).copied().unwrap_or(0);
            out.push((format!("p{p}.pcap"), compare::pcap(&self.pcap(p), old)));
        }
        self.restore(case);
        out
    }

    fn step(&mut self, case: &Case, i: usize, s: &Step, out: &mut Account) {
        match s {
            Step::Trace(b, port, p) => {
                let args = [BRIDGES[*b].0, &format!("in_port={port}"), p];
                let text = self.call("ofproto/trace", &args);
                out.push((format!("{i}: ofproto/trace {}", args.join(" ")), text));
            }
            Step::TraceFlow(b, flow) => {
                let text = self.call("ofproto/trace", &[BRIDGES[*b].0, flow]);
                out.push((format!("{i}: ofproto/trace {} {flow}", BRIDGES[*b].0), text));
            }
            Step::Receive(port, p) => {
                let text = self.call("netdev-dummy/receive", &[&format!("p{port}"), p]);
                self.settle();
                let flows = self.call("dpctl/dump-flows", &[]);
                out.push((format!("{i}: receive p{port} {p}, dpctl/dump-flows"), format!("{text}{flows}")));
            }
            Step::PacketOut(b, from, actions, p) => {
                let line = format!("packet-out {} 'in_port={from},packet={p},actions={actions}'", BRIDGES[*b].0);
                let text = self.ofctl(&line);
                self.settle();
                out.push((format!("{i}: {line}"), text));
            }
            Step::Ofctl(_, line) => {
                let line = format!("-O {} {}", case.dialect.option(), quote_last(line));
                let text = self.ofctl(&line);
                self.settle();
                let flows = self.call("dpctl/dump-flows", &[]);
                out.push((format!("{i}: {line}, dpctl/dump-flows"), format!("{text}{flows}")));
            }
            Step::Group(line) => {
                let line = format!("-O OpenFlow15 {}", quote_last(line));
                let text = self.ofctl(&line);
                self.settle();
                let flows = self.call("dpctl/dump-flows", &[]);
                out.push((format!("{i}: {line}, dpctl/dump-flows"), format!("{text}{flows}")));
            }
            Step::Bundle(list) => {
                std::fs::write(self.env.path("bundle.flows"), list.join("\n") + "\n").expect("flows' file");
                let line = format!("-O {} --bundle add-flows br0 bundle.flows", case.dialect.bundles());
                let text = self.ofctl(&line);
                self.settle();
                let flows = self.call("dpctl/dump-flows", &[]);
                out.push((format!("{i}: {line}, dpctl/dump-flows"), format!("{text}{flows}")));
            }
            Step::Warp(ms) => {
                self.call("time/warp", &[&ms.to_string(), "500"]);
                self.settle();
                let flows = self.call("dpctl/dump-flows", &[]);
                out.push((format!("{i}: time/warp {ms}, dpctl/dump-flows"), flows));
            }
        }
    }

    /// Texts of counters, compared by growth.
    fn counters(&mut self) -> Account {
        let mut out = Vec::new();
        for (br, _) in BRIDGES {
            for what in ["dump-tables", "dump-ports"] {
                let line = format!("-O OpenFlow10 {what} {br}");
                out.push((line.clone(), self.ofctl(&line)));
            }
        }
        out
    }

    fn pcap(&self, port: u32) -> Vec<u8> {
        std::fs::read(self.pcap_path(port)).unwrap_or_default()
    }

    fn pcap_path(&self, port: u32) -> PathBuf {
        self.env.path(&format!("p{port}.pcap"))
    }

    fn pcap_sizes(&self) -> BTreeMap<u32, usize> {
        ports().map(|p| (p, self.pcap(p).len())).collect()
    }
}

/// The last word of a line, which holds no blanks but may hold parentheses, in quotes.
fn quote_last(line: &str) -> String {
    match line.rsplit_once(' ') {
        Some((head, last)) => format!("{head} '{last}'"),
        None => line.into(),
    }
}
