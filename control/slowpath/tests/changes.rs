//! Rules change under installed flows: rounds that look only at flows which the changes can concern leave
//! every packet what it would get without any flow.
#![allow(dead_code)]

#[path = "../../../dataplane/datapath/tests/common/mod.rs"]
mod common;
#[path = "../benches/slowpath/switch.rs"]
mod switch;

use fv_dpif::Datapath;
use switch::{Bench, NOW, Shape};

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }
}

const MATCHES: &[&str] = &[
    "",
    "ip",
    "ip,nw_src=10.0.0.0/30",
    "ip,nw_src=10.0.0.1",
    "ip,nw_dst=10.0.0.0/31",
    "ip,nw_dst=10.0.0.3",
    "tcp",
    "tcp,tp_dst=1",
    "udp,tp_dst=2",
    "tcp,tp_src=0/2",
    "udp,nw_src=10.0.0.2,tp_dst=3",
    "in_port=1",
    "in_port=2",
    "dl_vlan=5",
    "reg0=0",
    "reg0=1",
    "reg0=0x3/0x3",
    "metadata=0",
    "conj_id=7,ip",
];
const ACTIONS: &[&str] = &[
    "output:2",
    "output:3",
    "drop",
    "resubmit(,1)",
    "resubmit(,1)",
    "resubmit(2,1),output:2",
    "load:1->NXM_NX_REG0[],resubmit(,1)",
    "mod_dl_src:02:00:00:00:00:09,output:3",
    "mod_vlan_vid:5,resubmit(,1)",
    "clone(load:3->NXM_NX_REG0[],resubmit(,1)),output:3",
];
const IP_ACTIONS: &[&str] = &[
    "move:NXM_OF_IP_SRC[0..1]->NXM_NX_REG0[0..1],resubmit(,1)",
    "mod_nw_dst:10.0.0.3,resubmit(,1),output:2",
    "push:NXM_OF_IP_DST[],pop:NXM_NX_REG0[],resubmit(,1)",
    "conjunction(7,1/2)",
    "conjunction(7,2/2)",
];

fn rule(r: &mut Random) -> String {
    let m = r.of(MATCHES);
    let ip = m.starts_with("ip") || m.starts_with("tcp") || m.starts_with("udp");
    let action = match r.below(3) {
        0 if ip => r.of(IP_ACTIONS),
        _ => r.of(ACTIONS),
    };
    let m = if action.starts_with("conj") && m.starts_with("conj") { "ip" } else { m };
    // Each match has its own priorities: which of two rules of one priority wins, nobody says.
    let n = MATCHES.iter().position(|x| *x == m).unwrap_or(0);
    let (table, priority) = (r.below(2), 1 + n * 7 % MATCHES.len() + r.below(2) * MATCHES.len());
    let comma = if m.is_empty() { "" } else { "," };
    format!("table={table},priority={priority},{m}{comma}actions={action}")
}

fn frame(r: &mut Random) -> Vec<u8> {
    let mut f = Shape::Exact.frame(0);
    f[23] = [6, 17][r.below(2)];
    f[26..30].copy_from_slice(&(0x0a00_0000 + r.below(6) as u32).to_be_bytes());
    f[30..34].copy_from_slice(&(0x0a00_0000 + r.below(6) as u32).to_be_bytes());
    f[34..36].copy_from_slice(&(r.below(5) as u16).to_be_bytes());
    f[36..38].copy_from_slice(&(r.below(5) as u16).to_be_bytes());
    if f[23] == 17 {
        f[38..40].copy_from_slice(&26u16.to_be_bytes());
    }
    f
}

/// What leaves at ports 2 and 3 for each packet.
fn outcome(b: &Bench, frames: &[Vec<u8>]) -> Vec<[Vec<Vec<u8>>; 2]> {
    let send = |f: &Vec<u8>| {
        b.devices[0].inject(f);
        while b.dp.turn_main(NOW, 64).busy() {}
        [b.devices[1].sent(), b.devices[2].sent()]
    };
    frames.iter().map(send).collect()
}

fn translations() -> u64 {
    fv_xlate::COUNTERS.iter().find(|c| c.name() == "xlate_actions").map_or(0, |c| c.value())
}

#[test]
fn what_a_change_cannot_concern_need_not_be_looked_at() {
    let cases = if std::env::var_os("FERROVIA_LONG").is_some() { 2000 } else { 25 };
    let (mut spared, mut looked_at) = (0, 0);
    for seed in 1..=cases {
        let mut r = Random(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed));
        let mut b = Bench::new();
        for _ in 0..4 + r.below(12) {
            let text = rule(&mut r);
            b.rule(&text);
        }
        b.commit();
        b.slowpath.round(NOW, &|| NOW);
        let frames: Vec<_> = (0..80).map(|_| frame(&mut r)).collect();
        outcome(&b, &frames);
        for step in 0..6 {
            let mut texts = Vec::new();
            for _ in 0..1 + r.below(3) {
                texts.push(rule(&mut r));
                b.rule(&texts[texts.len() - 1]);
            }
            b.commit();
            let (before, flows) = (translations(), b.dp.flow_count());
            b.slowpath.round(NOW, &|| NOW);
            let translated = (translations() - before) as usize;
            looked_at += translated;
            spared += flows.saturating_sub(translated);
            let cached = outcome(&b, &frames);
            b.slowpath.purge();
            assert_eq!(b.dp.flow_count(), 0);
            let fresh = outcome(&b, &frames);
            for (n, frame) in frames.iter().enumerate() {
                assert_eq!(cached[n], fresh[n], "seed {seed}, step {step}, {texts:?}: {frame:02x?}");
            }
        }
    }
    assert!(spared > 100 && looked_at > 100, "{spared} flows were spared, {looked_at} looked at");
}
