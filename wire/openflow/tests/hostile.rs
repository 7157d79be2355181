//! Bytes that nobody should send: no panic, no hang, no memory out of proportion.

use fv_openflow::msg::{DecodeCx, Message};
use fv_openflow::text::{Lookups, log_line, parse_actions, parse_flow};
use fv_openflow::{OfError, Version, action};

fn corpus() -> Vec<Vec<u8>> {
    let lines = include_str!("data/oracle.txt").lines().chain(include_str!("data/replies.txt").lines());
    let lines = lines.chain(include_str!("data/groups.txt").lines()).chain(include_str!("data/monitors.txt").lines());
    lines
        .filter_map(|l| l.split_once('\t'))
        .map(|(h, _)| (0..h.len()).step_by(2).map(|i| u8::from_str_radix(&h[i..i + 2], 16).unwrap()).collect())
        .collect()
}

struct Rng(u64);
impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// What decodes also encodes, prints, and decodes again to the same.
fn survive(bytes: &[u8]) {
    let cx = DecodeCx::default();
    let Ok(m) = Message::decode(bytes, &cx) else { return };
    let _ = log_line(&m);
    let Ok(again) = m.encode() else { return };
    let _ = Message::decode(&again, &cx);
}

#[test]
fn mutated_messages() {
    let (corpus, mut rng) = (corpus(), Rng(0x9e37_79b9_7f4a_7c15));
    for round in 0..60_000 {
        let mut m = corpus[rng.below(corpus.len())].clone();
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(m.len());
            match rng.below(5) {
                0 => m[at] = rng.next() as u8,
                1 => m[at] ^= 1 << rng.below(8),
                2 => m[at] = [0, 0xff, 0x80, 1, 8][rng.below(5)],
                3 => m.truncate(at.max(8)),
                _ => m.insert(at, rng.next() as u8),
            }
        }
        // Most of the time the header's length is right, so that the body is looked at.
        if round % 8 != 0 && m.len() >= 8 {
            let len = (m.len() as u16).to_be_bytes();
            m[2..4].copy_from_slice(&len);
        }
        survive(&m);
    }
}

#[test]
fn every_truncation_is_an_error_or_a_message() {
    for m in corpus().iter().step_by(7) {
        for n in 0..m.len() {
            let mut cut = m[..n].to_vec();
            if n >= 4 {
                cut[2..4].copy_from_slice(&(n as u16).to_be_bytes());
            }
            survive(&cut);
        }
    }
}

/// `clone(clone(...))` as deep as a message has room for.
#[test]
fn nesting_is_bounded() {
    let mut list = Vec::new();
    for _ in 0..3000 {
        let len = (list.len() + 16) as u16;
        let mut outer = vec![0xff, 0xff];
        outer.extend(len.to_be_bytes());
        outer.extend([0, 0, 0x23, 0x20, 0, 42, 0, 0, 0, 0, 0, 0]);
        outer.extend(&list);
        list = outer;
    }
    assert_eq!(action::decode_actions(&list, Version::V13), Err(OfError::BacTooMany));
    let deep = "clone(".repeat(100_000) + &")".repeat(100_000);
    assert!(parse_actions(&deep, Lookups::default()).is_err());
}

#[test]
fn zero_lengths_end() {
    // An action, a property of controller2 and one of encap, each of length 0.
    let check = |bytes: &[u8], want| assert_eq!(action::decode_actions(bytes, Version::V13), Err(want));
    check(&[0, 0, 0, 0, 0, 0, 0, 0], OfError::BacBadLen);
    let nx = |subtype: u8, body: &[u8]| {
        let mut a = vec![0xff, 0xff, 0, 10 + body.len() as u8, 0, 0, 0x23, 0x20, 0, subtype];
        a.extend(body);
        a
    };
    check(&nx(37, &[0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0]), OfError::BpcBadLen);
    check(&nx(46, &[0, 0, 0, 1, 0x89, 0x4f, 0, 4, 1, 0, 0, 0, 0, 0]), OfError::NxBacBadEdProp);
    // A bundle with more members than it has room for.
    let bundle = [0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 200, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    check(&nx(12, &bundle), OfError::BacBadLen);
}

#[test]
fn odd_texts() {
    let mut rng = Rng(7);
    let seeds = [
        "table=1,priority=10,tcp,tp_dst=80 actions=output:2,resubmit(,3)",
        "actions=learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:0x5->NXM_NX_REG0[0..3])",
        "actions=ct(commit,zone=5,nat(src=10.0.0.1-10.0.0.9:1-2),exec(set_field:1->ct_mark))",
        "actions=bundle_load(eth_src,0,hrw,ofport,NXM_NX_REG0[],members:4,8),check_pkt_larger(1500)->reg0[0]",
        "actions=encap(nsh(md_type=2,tlv(0x1000,10,0x12345678))),sample(probability=5)",
    ];
    for _ in 0..20_000 {
        let mut t: Vec<char> = seeds[rng.below(seeds.len())].chars().collect();
        for _ in 0..1 + rng.below(3) {
            let at = rng.below(t.len());
            match rng.below(3) {
                0 => t[at] = ['(', ')', ',', '[', '=', ':', '-', 'é', '9', ' '][rng.below(10)],
                1 => t.truncate(at.max(1)),
                _ => t.insert(at, ['(', ')', ']', '.', '0'][rng.below(5)]),
            }
        }
        let _ = parse_flow(&t.into_iter().collect::<String>(), Lookups::default());
    }
}
