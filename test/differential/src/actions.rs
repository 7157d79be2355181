//! Lists of actions in the syntax of `ovs-ofctl`.

use crate::case::Dialect;
use crate::packets::{IP6S, IPS, MACS, PORTS, VIDS};
use crate::rng::Rng;
use crate::rules::{Kind, L3, L4, TABLES};

/// Deepest nesting of `clone`.
const MAX_NESTING: u32 = 2;

/// The actions of a rule in `table`.
pub fn list(r: &mut Rng, d: Dialect, table: u8, kind: Kind, ports: &[u32]) -> String {
    if r.one_in(12) {
        return "drop".into();
    }
    let mut out = apply(r, d, table, kind, ports, 0);
    if d != Dialect::Of10 {
        if r.one_in(10) {
            out.push(write_actions(r, kind, ports));
        }
        if r.one_in(10) {
            out.push(format!("write_metadata:0x{:x}{}", r.below(3), r.pick(&["", "/0x1"])));
        }
        if table + 1 < TABLES && r.one_in(3) {
            out.push(format!("goto_table:{}", u64::from(table) + 1 + r.below(u64::from(TABLES - table - 1))));
        }
    }
    if out.is_empty() { "drop".into() } else { out.join(",") }
}

/// Actions of one list. A packet of `kind` has what they need.
fn apply(r: &mut Rng, d: Dialect, table: u8, kind: Kind, ports: &[u32], nesting: u32) -> Vec<String> {
    let mut kind = kind;
    let mut out = Vec::new();
    for _ in 0..1 + r.below(4) {
        let a = match r.below(12) {
            0..=2 => output(r, ports),
            3 => vlan(r, d, &mut kind),
            4..=6 => header(r, d, &mut kind),
            7 | 8 => register(r),
            9 => resubmit(r, table, ports),
            10 if nesting < MAX_NESTING && r.one_in(2) => {
                format!("clone({})", apply(r, d, table, kind, ports, nesting + 1).join(","))
            }
            10 => mpls(r, &mut kind),
            _ => odd(r),
        };
        if !a.is_empty() {
            out.push(a);
        }
    }
    out
}

fn output(r: &mut Rng, ports: &[u32]) -> String {
    match r.below(20) {
        0..=8 => format!("output:{}", r.of(ports)),
        9..=11 => "NORMAL".into(),
        12 => "FLOOD".into(),
        13 => "ALL".into(),
        14 => "IN_PORT".into(),
        15 => "LOCAL".into(),
        16 => r.pick(&["CONTROLLER:65535", "CONTROLLER:64", "controller(reason=no_match,max_len=128,id=5)"]).into(),
        17 => format!("output(port={},max_len={})", r.of(ports), r.of(&[64, 100])),
        18 => format!("output:NXM_NX_REG{}[]", r.below(3)),
        _ => format!("enqueue:{}:{}", r.of(ports), r.below(3)),
    }
}

fn vlan(r: &mut Rng, d: Dialect, kind: &mut Kind) -> String {
    let old = d == Dialect::Of10;
    match r.below(5) {
        0 if old || kind.tagged => format!("mod_vlan_vid:{}", r.of(&VIDS)),
        1 if old || kind.tagged => format!("mod_vlan_pcp:{}", r.below(8)),
        2 if old || kind.tagged => {
            kind.tagged = false;
            "strip_vlan".into()
        }
        3 if !old => {
            kind.tagged = true;
            format!("push_vlan:0x{},set_field:{}->vlan_vid", r.pick(&["8100", "8100", "88a8"]), 4096 + r.of(&VIDS))
        }
        4 if !old => {
            kind.tagged = true;
            "push_vlan:0x8100".into()
        }
        _ => String::new(),
    }
}

fn header(r: &mut Rng, d: Dialect, kind: &mut Kind) -> String {
    let v10 = d == Dialect::Of10;
    match (r.below(9), kind.l3, kind.l4) {
        (0, ..) => format!("mod_dl_src:{}", r.pick(&MACS[..3])),
        (1, ..) => format!("mod_dl_dst:{}", r.pick(&MACS[..3])),
        (2, L3::V4, _) => format!("mod_nw_{}:{}", r.pick(&["src", "dst"]), r.pick(&IPS)),
        (2, L3::V6, _) if !v10 => format!("set_field:{}->ipv6_{}", r.pick(&IP6S), r.pick(&["src", "dst"])),
        (3 | 4, L3::V4 | L3::V6, _) if !v10 && r.one_in(2) => {
            format!("set_field:{}->{}", r.of(&[0, 1, 3]), r.pick(&["nw_ecn", "ip_ecn"]))
        }
        (3, L3::V4 | L3::V6, _) => format!("mod_nw_tos:{}", r.of(&[0, 32, 184])),
        (4, L3::V4 | L3::V6, _) => r.pick(&["dec_ttl", "dec_ttl", "dec_ttl(1,2)", "mod_nw_ttl:9"]).into(),
        (5 | 6, L3::V4 | L3::V6, L4::Tcp | L4::Udp | L4::Sctp) => {
            format!("mod_tp_{}:{}", r.pick(&["src", "dst"]), r.of(&PORTS))
        }
        (5, L3::V4, L4::Icmp) => format!("set_field:{}->icmp_{}", r.below(4), r.pick(&["type", "code"])),
        (5, L3::Arp, _) => match r.below(4) {
            0 => format!("set_field:{}->arp_{}", r.pick(&MACS[..3]), r.pick(&["sha", "tha"])),
            1 => format!("set_field:{}->arp_{}", r.pick(&IPS), r.pick(&["spa", "tpa"])),
            2 => format!("set_field:{}->arp_op", r.of(&[1, 2])),
            _ => "move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[]".into(),
        },
        (7, L3::V4, _) => "move:NXM_OF_IP_SRC[]->NXM_OF_IP_DST[]".into(),
        (8, ..) => match r.below(4) {
            0 => "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]".into(),
            1 => format!("load:0x{:x}->NXM_OF_ETH_DST[0..7]", r.below(256)),
            2 => format!("set_field:00:00:00:00:00:0{0}/00:00:00:00:00:0f->eth_dst", r.below(9)),
            _ => format!("set_field:0x{:x}->pkt_mark", r.below(3)),
        },
        _ => String::new(),
    }
}

fn register(r: &mut Rng) -> String {
    let n = r.below(3);
    match r.below(9) {
        0 => format!("load:0x{:x}->NXM_NX_REG{n}[]", 1 + r.below(5)),
        1 => format!("load:0x{:x}->NXM_NX_REG{n}[0..3]", r.below(8)),
        2 => format!("set_field:0x{:x}->reg{n}", 1 + r.below(5)),
        3 => format!("set_field:0x{:x}/0x{:x}->reg{n}", r.below(4), 3),
        4 => format!("move:NXM_NX_REG{n}[]->NXM_NX_REG{}[]", r.below(3)),
        5 => format!("move:NXM_OF_IN_PORT[]->NXM_NX_REG{n}[0..15]"),
        6 => format!("move:NXM_OF_ETH_SRC[0..31]->NXM_NX_REG{n}[]"),
        7 => format!("push:NXM_NX_REG{n}[],pop:NXM_NX_REG{}[]", r.below(3)),
        _ => format!("move:NXM_OF_VLAN_TCI[0..11]->NXM_NX_REG{n}[0..11]"),
    }
}

fn resubmit(r: &mut Rng, table: u8, ports: &[u32]) -> String {
    let deeper = u64::from(table) + 1 + r.below(u64::from(TABLES));
    match r.below(24) {
        0 => format!("resubmit({},{deeper})", r.of(ports)),
        1 => format!("resubmit({},)", r.of(ports)),
        2 if r.one_in(5) => format!("resubmit(,{table})"),
        3 => format!("load:{}->NXM_OF_IN_PORT[],resubmit(,{deeper})", r.of(ports)),
        _ => format!("resubmit(,{deeper})"),
    }
}

fn mpls(r: &mut Rng, kind: &mut Kind) -> String {
    match (r.below(4), kind.l3) {
        (0, _) if !matches!(kind.l3, L3::Arp) && r.one_in(3) => {
            kind.l3 = L3::Mpls;
            format!("push_mpls:0x{}", r.pick(&["8847", "8847", "8848"]))
        }
        (1, L3::Mpls) => format!("set_mpls_label:{}", r.of(&[7, 100, 1000])),
        (2, L3::Mpls) => r.pick(&["dec_mpls_ttl", "set_mpls_ttl:9", "set_mpls_tc:3"]).into(),
        (3, L3::Mpls) => {
            let inner = r.pick(&["0800", "8847", "86dd"]);
            kind.l3 = if inner == "8847" { L3::Mpls } else { L3::Any };
            kind.l4 = L4::Any;
            format!("pop_mpls:0x{inner}")
        }
        _ => String::new(),
    }
}

fn odd(r: &mut Rng) -> String {
    match r.below(10) {
        0 => "exit".into(),
        1 => "note:01.02.03".into(),
        2 => format!("set_queue:{}", r.below(3)),
        3 => "pop_queue".into(),
        4 => format!("set_field:0x{:x}->tun_id", r.below(9)),
        _ => String::new(),
    }
}

fn write_actions(r: &mut Rng, kind: Kind, ports: &[u32]) -> String {
    if r.one_in(5) {
        return "clear_actions".into();
    }
    let mut out = Vec::new();
    if r.one_in(3) {
        out.push(format!("set_field:{}->eth_dst", r.pick(&MACS[..3])));
    }
    if r.one_in(4) {
        out.push("push_vlan:0x8100".into());
    }
    if matches!(kind.l3, L3::V4 | L3::V6) && r.one_in(4) {
        out.push("dec_ttl".into());
    }
    if !r.one_in(5) {
        out.push(match r.below(4) {
            0 => "NORMAL".into(),
            1 => "IN_PORT".into(),
            _ => format!("output:{}", r.of(ports)),
        });
    }
    format!("write_actions({})", out.join(","))
}
