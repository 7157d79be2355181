//! Against the running kernel, in namespaces made here, compared with what `ip -j` prints.
//! Needs root, as the switch does.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use fv_core::{Clock, Nanos};
use fv_hostnet::{Delta, HostNet, Interest, Kind, Neighbours, OperState, Rtnl, netns};
use serde_json::Value;

/// A namespace that goes away with the value, also when the test fails.
struct Ns(String);

impl Ns {
    fn new(tag: &str) -> Ns {
        let ns = Ns(format!("fvh{}{tag}", std::process::id()));
        run("ip", &["netns", "add", &ns.0]);
        ns.ip("link set lo up");
        ns
    }
    fn fd(&self) -> OwnedFd {
        netns::named(&self.0).expect("namespace")
    }
    fn ip(&self, args: &str) -> String {
        let mut all = vec!["-n", &self.0];
        all.extend(args.split(' '));
        run("ip", &all)
    }
    fn json(&self, args: &str) -> Vec<Value> {
        let text = self.ip(&format!("-j {args}"));
        serde_json::from_str(&text).unwrap_or_default()
    }
    fn batch(&self, lines: &str) {
        use std::io::Write;
        let mut c = Command::new("ip")
            .args(["-n", &self.0, "-batch", "-"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("ip");
        c.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("ip reads");
        assert!(c.wait().expect("ip").success());
    }
    fn follow(&self, interest: Interest) -> HostNet {
        let mut h = HostNet::open_in(self.fd().as_fd(), interest).expect("open");
        h.sync(now()).expect("sync");
        h
    }
}

impl Drop for Ns {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

fn run(program: &str, args: &[&str]) -> String {
    let o = Command::new(program).args(args).output().expect("runs");
    assert!(o.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&o.stderr));
    String::from_utf8_lossy(&o.stdout).into_owned()
}

/// One clock for all turns, as in the daemon.
fn now() -> Nanos {
    static CLOCK: std::sync::OnceLock<Clock> = std::sync::OnceLock::new();
    CLOCK.get_or_init(Clock::new).now()
}

/// Turns until `done`, or fails after fifteen seconds.
fn until(h: &mut HostNet, what: &str, done: impl Fn(&HostNet) -> bool) {
    let end = Instant::now() + Duration::from_secs(15);
    loop {
        let t = h.turn(now(), 1000).expect("turn");
        if done(h) && h.is_synced() {
            return;
        }
        assert!(Instant::now() < end, "never: {what}; {:?}, {} routes", h.stats(), h.tables().routes.len());
        if !t.more {
            use rustix::event::{PollFd, PollFlags, Timespec, poll};
            let [a, b] = h.fds();
            let fds = &mut [PollFd::from_borrowed_fd(a, PollFlags::IN), PollFd::from_borrowed_fd(b, PollFlags::IN)];
            poll(fds, Some(&Timespec { tv_sec: 0, tv_nsec: 20_000_000 })).expect("poll");
        }
    }
}

fn everything() -> Interest {
    Interest { addrs: true, route_tables: vec![253, 254, 255, 1000], rules: true, neighbours: Neighbours::All }
}

fn mac_text(mac: Option<[u8; 6]>) -> String {
    mac.unwrap_or_default().map(|b| format!("{b:02x}")).join(":")
}

fn same_links(h: &HostNet, ns: &Ns) {
    let theirs = ns.json("-d link");
    assert_eq!(h.tables().links.len(), theirs.len());
    for t in theirs {
        let l = h.tables().links.get(&(t["ifindex"].as_u64().unwrap() as u32)).expect("by index");
        assert_eq!(l.name, t["ifname"].as_str().unwrap());
        assert_eq!(u64::from(l.mtu), t["mtu"].as_u64().unwrap());
        assert_eq!(l.oper_state.text(), t["operstate"].as_str().unwrap());
        let flag = |f: &str| t["flags"].as_array().unwrap().iter().any(|x| x == f);
        assert_eq!(l.is_up(), flag("UP"), "{}", l.name);
        assert_eq!(l.kind.as_deref(), t["linkinfo"]["info_kind"].as_str());
        assert_eq!(mac_text(l.mac), t["address"].as_str().unwrap());
    }
}

fn same_addrs(h: &HostNet, ns: &Ns) {
    let mut theirs: Vec<String> = Vec::new();
    for l in ns.json("addr") {
        for a in l["addr_info"].as_array().unwrap() {
            theirs.push(format!("{} {}/{}", l["ifindex"], a["local"].as_str().unwrap(), a["prefixlen"]));
        }
    }
    let mut ours: Vec<String> =
        h.tables().addrs.iter().map(|(k, _)| format!("{} {}/{}", k.link, k.ip, k.prefix_len)).collect();
    theirs.sort();
    ours.sort();
    assert_eq!(ours, theirs);
}

/// One line a next hop: `table prefix metric gateway device`.
fn same_routes(h: &HostNet, ns: &Ns, table: u32) {
    let name = |i: u32| h.tables().links.get(&i).map_or("-", |l| &l.name).to_string();
    for (v6, flag) in [(false, "-4"), (true, "-6")] {
        let mut theirs = Vec::new();
        for r in ns.json(&format!("{flag} -N route show table {table}")) {
            let dst = match r["dst"].as_str().unwrap() {
                "default" if v6 => "::/0".into(),
                "default" => "0.0.0.0/0".into(),
                d if d.contains('/') => d.to_string(),
                d => format!("{d}/{}", if v6 { 128 } else { 32 }),
            };
            let metric = r["metric"].as_u64().unwrap_or(0);
            let single = [r.clone()];
            for hop in r["nexthops"].as_array().map_or(&single[..], |v| v) {
                let gw = hop["gateway"].as_str().or(hop["via"]["host"].as_str()).unwrap_or("-");
                theirs.push(format!("{dst} {metric} {gw} {}", hop["dev"].as_str().unwrap_or("-")));
            }
        }
        let mut ours = Vec::new();
        for r in h.tables().routes.table(table, v6) {
            for hop in &r.next_hops {
                let gw = hop.gateway.map_or("-".into(), |g| g.to_string());
                let k = &r.key;
                ours.push(format!("{}/{} {} {gw} {}", k.dst, k.prefix_len, k.priority, name(hop.link)));
            }
            if r.next_hops.is_empty() {
                ours.push(format!("{}/{} {} - -", r.key.dst, r.key.prefix_len, r.key.priority));
            }
        }
        theirs.sort();
        ours.sort();
        assert_eq!(ours, theirs, "table {table} v6={v6}");
    }
}

#[test]
fn replica_equals_what_ip_shows_from_dump_and_from_notifications() {
    let ns = Ns::new("a");
    let mut live = ns.follow(everything());
    ns.batch(
        "link add v0 type veth peer name v1\nlink set v0 up\nlink set v1 up\nlink set v1 mtu 1400\naddr add 198.18.1.1/24 dev v0\naddr add 198.18.2.1/32 peer 198.18.2.9 dev v1\n\
         addr add 2001:2::1/64 dev v0 nodad\nroute add 198.18.9.0/24 via 198.18.1.9\n\
         route append 198.18.9.0/24 via 198.18.1.8\nroute add 198.18.10.0/24 nexthop via 198.18.1.2 nexthop via 198.18.1.3 weight 5\n\
         route add default via 198.18.1.7 metric 50\nroute add blackhole 198.18.77.0/24\n\
         route add 198.18.11.0/24 via inet6 2001:2::99 dev v0\n\
         route add 198.18.50.0/24 dev v1 table 1000\nroute add 2001:2:1::/48 via 2001:2::5\n\
         route append 2001:2:1::/48 via 2001:2::6\nroute add 2001:2:9::/48 via 2001:2::5 table 1000\n\
         rule add from 198.18.1.0/24 fwmark 7 table 1000 prio 100\n\
         neigh add 198.18.1.9 lladdr 02:00:00:00:00:09 dev v0\n",
    );
    ns.ip("-6 rule add not to 2001:2::/32 table 1000 prio 101");
    until(&mut live, "rules and neighbour", |h| {
        h.tables().neighs.iter().any(|(_, n)| n.is_valid()) && h.tables().rules.iter().any(|(r, ())| r.priority == 101)
    });
    // Carrier and addresses of the new links settle while notifications are being read.
    until(&mut live, "links up", |h| {
        h.tables().link_by_name("v0").is_some_and(|l| l.oper_state == OperState::Up)
            && h.tables().addrs.iter().filter(|(_, a)| a.key.ip.is_ipv6() && a.flags & 0x40 == 0).count() >= 4
    });
    let check = |live: &mut HostNet| {
        until(live, "quiet", |_| true);
        let fresh = ns.follow(everything());
        for h in [&fresh, &*live] {
            same_links(h, &ns);
            same_addrs(h, &ns);
            [254, 255, 1000].iter().for_each(|&t| same_routes(h, &ns, t));
        }
        let rules = |h: &HostNet| h.tables().rules.iter().map(|(r, ())| r.clone()).collect::<Vec<_>>();
        assert_eq!(rules(live), rules(&fresh));
        assert_eq!(live.stats().malformed, 0);
    };
    check(&mut live);
    let rules: Vec<_> = live.tables().rules.iter().map(|(r, ())| r.clone()).collect();
    assert!(rules.iter().any(|r| r.fwmark == Some((7, u32::MAX)) && r.table == 1000 && r.src.is_some()));
    assert!(rules.iter().any(|r| r.v6 && r.invert && r.dst.is_some()));

    ns.batch(
        "route del 198.18.9.0/24 via 198.18.1.9\nroute replace 198.18.10.0/24 via 198.18.1.4\nroute del 2001:2:1::/48 via 2001:2::5\n\
         addr del 198.18.2.1/32 peer 198.18.2.9 dev v1\nrule del prio 100\nlink set v0 down\n",
    );
    until(&mut live, "v0 down", |h| h.tables().link_by_name("v0").is_some_and(|l| !l.is_up()));
    check(&mut live);
    ns.ip("link del v0");
    until(&mut live, "v0 gone", |h| h.tables().link_by_name("v0").is_none());
    check(&mut live);
}

#[test]
fn foreign_tables_do_not_reach_the_process() {
    let ns = Ns::new("b");
    ns.ip("link add v0 type veth peer name v1");
    ns.ip("link set v0 up");
    ns.ip("addr add 198.18.1.1/24 dev v0");
    let mut h = ns.follow(Interest { route_tables: vec![254], ..Interest::default() });
    let quiet = |h: &mut HostNet| until(h, "quiet", |_| true);
    quiet(&mut h);
    let (seq, before) = (h.tables().seq(Kind::Routes), h.stats());
    let many: String = (0..20_000)
        .map(|i| format!("route add 10.{}.{}.0/24 dev v0 table {}\n", i / 250 % 250, i % 250, 77 + i / 10_000 * 1000))
        .collect();
    ns.batch(&many);
    quiet(&mut h);
    assert_eq!((h.tables().seq(Kind::Routes), h.stats()), (seq, before), "not even a wake-up");
    ns.ip("route add 198.18.44.0/24 dev v0");
    until(&mut h, "the one that counts", |h| h.tables().seq(Kind::Routes) > seq);
    assert_eq!(h.stats().notifications, before.notifications + 1);
    match h.tables_mut().routes.take_delta() {
        Delta::Keys(k) => assert!(k.iter().any(|k| k.dst == "198.18.44.0".parse::<IpAddr>().unwrap())),
        Delta::All => panic!("few routes"),
    }
}

#[test]
fn an_overflow_is_healed_by_a_dump() {
    let ns = Ns::new("c");
    ns.ip("link add v0 type veth peer name v1");
    ns.ip("link set v0 up");
    ns.ip("addr add 198.18.1.1/24 dev v0");
    let mut h = ns.follow(everything());
    let n = 30_000;
    // Nobody reads meanwhile: more notifications than the socket holds.
    let many: String =
        (0..n).map(|i| format!("route add 10.{}.{}.{}/32 dev v0\n", i >> 16, i >> 8 & 255, i & 255)).collect();
    ns.batch(&many);
    until(&mut h, "all routes", |h| h.tables().routes.table(254, false).count() >= n);
    assert!(h.stats().lost > 0, "the test must overflow the queue: {:?}", h.stats());
    assert_eq!(h.tables_mut().routes.take_delta(), Delta::All);
    ns.ip("route flush table main");
    until(&mut h, "flushed", |h| h.tables().routes.table(254, false).count() == 0);
    same_routes(&h, &ns, 254);
}

#[test]
fn a_turn_is_bounded() {
    let ns = Ns::new("d");
    ns.ip("link add v0 type veth peer name v1");
    ns.ip("link set v0 up");
    ns.batch(&(0..5000).map(|i| format!("route add 10.0.{}.{}/32 dev v0\n", i >> 8, i & 255)).collect::<String>());
    let mut h = HostNet::open_in(ns.fd().as_fd(), everything()).expect("open");
    let (mut turns, mut most) = (0, 0);
    while !h.is_synced() {
        let t = h.turn(Nanos(1), 50).expect("turn");
        most = most.max(t.work);
        turns += 1;
        assert!(turns < 10_000);
    }
    assert!(turns > 5 && most < 1500, "{turns} turns, {most} messages at most");
    same_routes(&h, &ns, 254);
}

#[test]
fn changes_during_a_dump_are_not_lost() {
    let ns = Ns::new("g");
    ns.ip("link add v0 type veth peer name v1");
    ns.ip("link set v0 up");
    ns.batch(&(0..5000).map(|i| format!("route add 10.0.{}.{}/32 dev v0\n", i >> 8, i & 255)).collect::<String>());
    // Links enough for a dump of several parts: theirs the kernel marks when they change in between.
    ns.batch(&(0..40).map(|i| format!("link add y{i} type veth peer name z{i}\n")).collect::<String>());
    let mut h = HostNet::open_in(ns.fd().as_fd(), everything()).expect("open");
    // Changes at both ends of the table at each of the first steps of each dump.
    let mut n = 0;
    for step in 0..200 {
        h.turn(now(), 1).expect("turn");
        if step < 60 && !h.is_synced() {
            n += 1;
            ns.batch(&format!(
                "route add 9.0.0.{n}/32 dev v0\nroute del 10.0.{}.{}/32 dev v0\nroute add 11.0.0.{n}/32 dev v0\n\
                 link add w{n} type veth peer name x{n}\n",
                n >> 8,
                n & 255
            ));
        }
    }
    until(&mut h, "quiet", |_| true);
    assert!(h.stats().torn > 0, "the test must tear a dump: {:?}", h.stats());
    until(&mut h, "all links", |h| h.tables().links.len() == 83 + 2 * n);
    same_links(&h, &ns);
    same_routes(&h, &ns, 254);
}

#[test]
fn link_operations() {
    let ns = Ns::new("e");
    let mut r = Rtnl::open_in(ns.fd().as_fd()).expect("open");
    let missing = r.link_by_name("fvnone").unwrap_err();
    assert!(missing.is_no_device() && missing.to_string().contains("No such device"), "{missing}");
    assert!(r.link_by_name(&"x".repeat(200)).unwrap_err().is_no_device());

    r.create_veth("v0", "v1").expect("veth");
    assert_eq!(r.create_veth("v0", "v2").unwrap_err().errno(), Some(libc::EEXIST));
    let v0 = r.link_by_name("v0").expect("v0");
    assert_eq!((v0.kind.as_deref(), v0.is_up(), v0.hw_type), (Some("veth"), false, 1));
    assert_eq!(r.link_by_index(v0.index).expect("by index").name, "v0");
    r.set_mac(v0.index, [2, 0, 0, 0, 0, 42]).expect("mac");
    r.set_mtu(v0.index, 9000).expect("mtu");
    assert_eq!(r.set_mtu(v0.index, 70_000_000).unwrap_err().errno(), Some(libc::EINVAL));
    r.set_up(v0.index, true).expect("up");
    let v1 = r.link_by_name("v1").expect("v1").index;
    r.set_up(v1, true).expect("up");
    for _ in 0..2 {
        r.add_address(v0.index, "198.18.3.1".parse().unwrap(), 24).expect("address, twice");
    }
    r.add_address(v0.index, "2001:2::7".parse().unwrap(), 64).expect("v6");
    let v0 = r.link_by_name("v0").expect("v0");
    assert_eq!((v0.mac, v0.mtu, v0.is_up(), v0.carrier), (Some([2, 0, 0, 0, 0, 42]), 9000, true, true));
    assert!(v0.stats.is_some_and(|s| s.tx_errors == 0));
    assert_eq!(r.addrs().expect("addrs").iter().filter(|a| a.key.link == v0.index && a.scope == 0).count(), 2);

    let driver = r.driver("v0").expect("driver");
    assert_eq!(driver.name, "veth");
    let text = run("ip", &["netns", "exec", &ns.0, "ethtool", "-i", "v0"]);
    assert!(text.contains(&format!("version: {}", driver.version)), "{text}");
    let speed = r.speed("v0").expect("speed");
    let text = run("ip", &["netns", "exec", &ns.0, "ethtool", "v0"]);
    assert!(text.contains(&format!("Speed: {}Mb/s", speed.mbps.expect("veth tells"))), "{text}");
    assert_eq!(speed.full_duplex, Some(true));
    assert_eq!(r.tx_offloads("v0").expect("features"), (true, true));
    assert_eq!(r.driver("fvnone").unwrap_err().raw_os_error(), Some(libc::ENODEV));

    let other = Ns::new("f");
    r.move_to(v1, other.fd().as_fd()).expect("move");
    let mut there = Rtnl::open_in(other.fd().as_fd()).expect("open");
    assert_eq!(there.link_by_name("v1").expect("there").lower, Some(v0.index));
    r.delete(v0.index).expect("delete");
    assert!(r.delete(v0.index).unwrap_err().is_no_device());
    assert!(there.link_by_name("v1").unwrap_err().is_no_device(), "veth ends go together");
}
