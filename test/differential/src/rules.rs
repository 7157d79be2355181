//! Rules in the syntax of `ovs-ofctl`.

use crate::actions;
use crate::case::Dialect;
use crate::packets::{IP6S, IPS, LABELS, MACS, PORTS, VIDS};
use crate::rng::Rng;

/// Highest table that rules are put in.
pub const TABLES: u8 = 5;

/// One line for `ovs-ofctl add-flows`: the `n`th of its bridge. No two rules have the same priority,
/// as OpenFlow does not say which of them wins.
pub fn rule(r: &mut Rng, d: Dialect, ports: &[u32], n: u32) -> String {
    let table = if r.one_in(2) { 0 } else { r.below(u64::from(TABLES)) as u8 };
    let mut s = format!("table={table},priority={}", r.of(&[100u32, 1000, 1000, 2000, 10_000, 32_768]) + n);
    if r.one_in(4) {
        s += &format!(",cookie=0x{:x}", r.below(0x1_0000));
    }
    let (m, kind) = matching(r, ports);
    for f in m {
        s.push(',');
        s += &f;
    }
    s + ",actions=" + &actions::list(r, d, table, kind, ports)
}

/// What is known of the packets that a rule matches: decides which actions may stand in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    pub l3: L3,
    pub l4: L4,
    pub tagged: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum L3 {
    Any,
    Arp,
    V4,
    V6,
    Mpls,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum L4 {
    Any,
    Tcp,
    Udp,
    Sctp,
    Icmp,
}

/// The fields of a match, and the kind of packet that has them.
pub fn matching(r: &mut Rng, ports: &[u32]) -> (Vec<String>, Kind) {
    let mut m: Vec<String> = Vec::new();
    let mut kind = Kind { l3: L3::Any, l4: L4::Any, tagged: false };
    if r.one_in(10) {
        return (m, kind);
    }
    if r.one_in(4) {
        m.push(format!("in_port={}", r.of(ports)));
    }
    kind.tagged = vlan(r, &mut m);
    if r.one_in(6) {
        m.push(format!("dl_src={}", mac(r)));
    }
    if r.one_in(5) {
        m.push(format!("dl_dst={}", mac(r)));
    }
    match r.below(12) {
        0..=5 => {
            kind.l3 = L3::V4;
            kind.l4 = proto(r, &mut m, ["ip", "tcp", "udp", "sctp", "icmp"]);
            ipv4(r, &mut m);
            transport(r, &mut m, kind);
        }
        6 | 7 => {
            kind.l3 = L3::V6;
            kind.l4 = proto(r, &mut m, ["ipv6", "tcp6", "udp6", "sctp6", "icmp6"]);
            ipv6(r, &mut m, kind);
            transport(r, &mut m, kind);
        }
        8 => {
            kind.l3 = L3::Arp;
            arp(r, &mut m);
        }
        9 => {
            kind.l3 = L3::Mpls;
            mpls(r, &mut m);
        }
        10 => m.push(format!("dl_type=0x{}", r.pick(&["1234", "05ff", "88cc"]))),
        _ => {}
    }
    pipeline(r, &mut m);
    (m, kind)
}

fn pipeline(r: &mut Rng, m: &mut Vec<String>) {
    if r.one_in(9) {
        let n = r.below(3);
        let mask = r.pick(&["", "/0xf", "/0x3"]);
        m.push(format!("reg{n}=0x{:x}{mask}", r.below(4)));
    }
    if r.one_in(25) {
        m.push(format!("metadata=0x{:x}", r.below(3)));
    }
}

fn mac(r: &mut Rng) -> String {
    match r.below(6) {
        0 => "01:00:00:00:00:00/01:00:00:00:00:00".into(),
        1 => "00:00:00:00:00:00/01:00:00:00:00:00".into(),
        2 => "50:54:00:00:00:02/ff:ff:ff:ff:ff:fe".into(),
        _ => r.pick(&MACS).into(),
    }
}

fn vlan(r: &mut Rng, m: &mut Vec<String>) -> bool {
    match r.below(16) {
        0 | 1 => {
            m.push(format!("dl_vlan={}", r.of(&VIDS)));
            if r.one_in(3) {
                m.push(format!("dl_vlan_pcp={}", r.of(&[0, 3, 7])));
            }
            true
        }
        2 => {
            m.push("vlan_tci=0x0000".into());
            false
        }
        3 => {
            m.push("vlan_tci=0x1000/0x1000".into());
            true
        }
        4 => {
            m.push(format!("vlan_tci=0x{:04x}/0x{:04x}", 0x1000 | r.of(&VIDS), r.of(&[0x1fff, 0x1ffe, 0x100f])));
            true
        }
        5 => {
            m.push("dl_vlan=0xffff".into());
            false
        }
        _ => false,
    }
}

fn proto(r: &mut Rng, m: &mut Vec<String>, names: [&str; 5]) -> L4 {
    let i = r.of(&[0usize, 0, 1, 1, 1, 2, 2, 3, 4, 4]);
    m.push(names[i].into());
    [L4::Any, L4::Tcp, L4::Udp, L4::Sctp, L4::Icmp][i]
}

fn ipv4(r: &mut Rng, m: &mut Vec<String>) {
    for f in ["nw_src", "nw_dst"] {
        if r.one_in(3) {
            let mask = r.pick(&["", "", "/24", "/16", "/8", "/31", "/255.0.255.0"]);
            m.push(format!("{f}={}{mask}", r.pick(&IPS)));
        }
    }
    ip_common(r, m);
}

fn ip_common(r: &mut Rng, m: &mut Vec<String>) {
    match r.below(14) {
        0 => m.push(format!("nw_tos={}", r.of(&[0, 32, 184]))),
        1 => m.push(format!("nw_ecn={}", r.of(&[0, 1, 3]))),
        2 => m.push(format!("nw_ttl={}", r.of(&[64, 1, 2]))),
        3 => m.push(format!("ip_frag={}", r.pick(&["no", "yes", "first", "later", "not_later"]))),
        _ => {}
    }
}

fn ipv6(r: &mut Rng, m: &mut Vec<String>, kind: Kind) {
    // Not by destination: the reference can be told to have tries for three fields only.
    if r.one_in(2) {
        m.push(format!("ipv6_src={}{}", r.pick(&IP6S), r.pick(&["", "/64", "/32", "/127"])));
    }
    if r.one_in(10) {
        m.push(format!("ipv6_label=0x{}", r.pick(&["0", "abcde", "a0000/0xf0000"])));
    }
    ip_common(r, m);
    if kind.l4 == L4::Icmp && r.one_in(3) {
        m.push(format!("icmp_type={}", r.of(&[135, 136])));
        m.push("icmp_code=0".into());
        m.push(format!("nd_target={}{}", r.pick(&IP6S), r.pick(&["", "/64"])));
    }
}

fn transport(r: &mut Rng, m: &mut Vec<String>, kind: Kind) {
    match kind.l4 {
        L4::Tcp | L4::Udp | L4::Sctp => {
            for f in ["tp_src", "tp_dst"] {
                if r.one_in(3) {
                    m.push(format!("{f}={}", port(r)));
                }
            }
            if kind.l4 == L4::Tcp && r.one_in(5) {
                m.push(format!("tcp_flags={}", r.pick(&["+syn", "+syn-ack", "+ack", "+psh", "0x12/0x17"])));
            }
        }
        L4::Icmp if m.iter().all(|f| !f.starts_with("icmp_type")) && r.one_in(3) => {
            let v6 = kind.l3 == L3::V6;
            m.push(format!("icmp_type={}", if v6 { r.of(&[128, 129, 135]) } else { r.of(&[8, 0, 3]) }));
            if r.one_in(2) {
                m.push("icmp_code=0".into());
            }
        }
        _ => {}
    }
}

fn port(r: &mut Rng) -> String {
    match r.below(5) {
        0 => format!("{}/0x{:x}", r.of(&[0x3e8, 0x3f0, 0x50]), r.of(&[0xfff8u32, 0xfff0, 0xfffe, 0xff00]))
            .replace("1000/0xff00", "768/0xff00"),
        _ => r.of(&PORTS).to_string(),
    }
}

fn arp(r: &mut Rng, m: &mut Vec<String>) {
    m.push(r.pick(&["arp", "arp", "rarp"]).into());
    if r.one_in(3) {
        m.push(format!("arp_op={}", r.of(&[1, 2])));
    }
    for f in ["arp_spa", "arp_tpa"] {
        if r.one_in(4) {
            m.push(format!("{f}={}{}", r.pick(&IPS), r.pick(&["", "/24"])));
        }
    }
    for f in ["arp_sha", "arp_tha"] {
        if r.one_in(5) {
            m.push(format!("{f}={}", r.pick(&MACS)));
        }
    }
}

fn mpls(r: &mut Rng, m: &mut Vec<String>) {
    m.push(r.pick(&["mpls", "mpls", "mplsm"]).into());
    if r.one_in(2) {
        m.push(format!("mpls_label={}", r.of(&LABELS)));
    }
    if r.one_in(4) {
        m.push(format!("mpls_tc={}", r.of(&[0, 5])));
    }
    if r.one_in(4) {
        m.push(format!("mpls_bos={}", r.of(&[0, 1])));
    }
}
