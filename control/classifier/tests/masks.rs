//! Megaflow masks equal the reference's: tables, packets and masks recorded from it.

use std::sync::Arc;

use fv_classifier::{Classifier, ClsRule, DEFAULT_PREFIXES, MiniMatch, Version};
use fv_flow::{FlowMask, Match};
use zerocopy::byteorder::network_endian::{U16, U32};

fn mac(v: u64) -> [u8; 6] {
    let b = v.to_be_bytes();
    [b[2], b[3], b[4], b[5], b[6], b[7]]
}

fn of_mac(b: [u8; 6]) -> u64 {
    b.iter().fold(0, |a, x| a << 8 | u64::from(*x))
}

/// The match of `field=value/mask` words (no mask: exact), and the priority.
fn parse(words: &str) -> (Match, i32) {
    let (mut m, mut priority) = (Match::default(), 0);
    for w in words.split_whitespace() {
        let (field, rest) = w.split_once('=').unwrap();
        let (value, mask) = rest.split_once('/').unwrap_or((rest, "ffffffffffff"));
        let (v, x) = (u64::from_str_radix(value, 16).unwrap(), u64::from_str_radix(mask, 16).unwrap());
        let (k, w) = (&mut m.key.dp.base, &mut m.mask.0.dp.base);
        match field {
            "prio" => priority = v as i32,
            "in_port" => (k.in_port, w.in_port) = (v as u32, x as u32),
            "dl_src" => (k.dl_src, w.dl_src) = (mac(v), mac(x)),
            "dl_dst" => (k.dl_dst, w.dl_dst) = (mac(v), mac(x)),
            "dl_type" => (k.dl_type, w.dl_type) = (U16::new(v as u16), U16::new(x as u16)),
            "nw_src" => (k.nw_src, w.nw_src) = (U32::new(v as u32), U32::new(x as u32)),
            "nw_dst" => (k.nw_dst, w.nw_dst) = (U32::new(v as u32), U32::new(x as u32)),
            "nw_proto" => (k.nw_proto, w.nw_proto) = (v as u8, x as u8),
            "tp_src" => (k.tp_src, w.tp_src) = (U16::new(v as u16), U16::new(x as u16)),
            "tp_dst" => (k.tp_dst, w.tp_dst) = (U16::new(v as u16), U16::new(x as u16)),
            "tcp_flags" => (k.tcp_flags, w.tcp_flags) = (U16::new(v as u16), U16::new(x as u16)),
            f => panic!("field {f}"),
        }
    }
    (m, priority)
}

#[test]
fn masks_equal_the_recorded_ones() {
    let mut cls = Classifier::new();
    let mut n = 0;
    for line in include_str!("masks.txt").lines() {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("T", _) => {
                cls = Classifier::new();
                cls.set_prefixes(&DEFAULT_PREFIXES[..2]);
            }
            ("R", words) => {
                let (m, priority) = parse(words);
                cls.insert(Arc::new(ClsRule::new(MiniMatch::new(&m), priority, ())), Version(1));
            }
            ("P", words) => {
                let (packet, want) = words.split_once(" => ").unwrap();
                let mut wc = FlowMask::default();
                let found = cls.lookup(Version(1), &parse(packet).0.key, Some(&mut wc));
                let w = &wc.0.dp.base;
                let got = format!(
                    "{} dl_src={:x} dl_dst={:x} nw_src={:x} nw_dst={:x} nw_tos={:x} tp_src={:x} tp_dst={:x} tcp_flags={:x}",
                    found.map_or(-1, |r| r.priority()),
                    of_mac(w.dl_src),
                    of_mac(w.dl_dst),
                    w.nw_src.get(),
                    w.nw_dst.get(),
                    w.nw_tos,
                    w.tp_src.get(),
                    w.tp_dst.get(),
                    w.tcp_flags.get()
                );
                assert_eq!(got, want, "{packet}");
                n += 1;
            }
            _ => {}
        }
    }
    assert!(n > 80, "{n}");
}
