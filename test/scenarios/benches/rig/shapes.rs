//! Rule sets of a few shapes, as `ovs-ofctl` reads them.

use std::fmt::Write;
use std::io::{BufWriter, Result, Write as _};
use std::path::Path;

/// One in so many rules differs between the two versions of a set.
const CHANGED_ONE_IN: usize = 100;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Both addresses, protocol, both ports: one subtable.
    Exact,
    /// Sixteen combinations of fields and masks, many priorities.
    Masks,
    /// A routing table: destination prefixes of four lengths, which are the priorities.
    Prefixes,
}

impl Shape {
    pub const ALL: [Shape; 3] = [Shape::Exact, Shape::Masks, Shape::Prefixes];

    pub fn name(self) -> &'static str {
        match self {
            Shape::Exact => "exact",
            Shape::Masks => "masks",
            Shape::Prefixes => "prefixes",
        }
    }

    /// The `i`-th rule; all differ in match or priority.
    fn rule(self, i: usize, version: usize, out: &mut String) {
        let port = if version > 0 && i.is_multiple_of(CHANGED_ONE_IN) { 3 } else { 2 };
        let [_, b, c, d] = (i as u32).to_be_bytes();
        let n = 1 + i % 0xfff0;
        match self {
            Shape::Exact => {
                let _ =
                    write!(out, "priority=100,tcp,nw_src=10.{b}.{c}.{d},nw_dst=198.18.{c}.{d},tp_src={n},tp_dst=80");
            }
            Shape::Masks => mask(i, b, c, d, n, out),
            Shape::Prefixes => {
                let k = (i / 4) as u32;
                let (a, len) = match i % 4 {
                    0 => (0x0a00_0000 + k, 32),
                    1 => (0x2000_0000 + (k << 8), 24),
                    2 => (0x4000_0000 + (k << 4), 28),
                    _ => (0x8000_0000 + (k << 12), 20),
                };
                let [a, b, c, d] = a.to_be_bytes();
                let _ = write!(out, "priority={len},ip,nw_dst={a}.{b}.{c}.{d}/{len}");
            }
        }
        let _ = writeln!(out, ",actions=output:{port}");
    }

    /// Writes `n` rules; version 1 has other actions in one of a hundred.
    pub fn write(self, path: &Path, n: usize, version: usize) -> Result<()> {
        let mut f = BufWriter::new(std::fs::File::create(path)?);
        let mut line = String::new();
        for i in 0..n {
            line.clear();
            self.rule(i, version, &mut line);
            f.write_all(line.as_bytes())?;
        }
        f.flush()
    }
}

fn mask(i: usize, b: u8, c: u8, d: u8, n: usize, out: &mut String) {
    let p = 1 + i % 1000;
    let _ = write!(out, "priority={p},");
    let _ = match i % 16 {
        0 => write!(out, "in_port=1,dl_src=02:00:00:{b:02x}:{c:02x}:{d:02x}"),
        1 => write!(out, "dl_dst=02:00:00:{b:02x}:{c:02x}:{d:02x}"),
        2 => write!(out, "dl_vlan={},dl_src=02:00:00:{b:02x}:{c:02x}:{d:02x}", 1 + i % 4094),
        3 => write!(out, "ip,nw_src=10.{b}.{c}.{d}"),
        4 => write!(out, "ip,nw_src=10.{b}.{c}.{d},nw_dst=198.18.0.0/16"),
        5 => write!(out, "udp,nw_dst=10.{b}.{c}.{d},tp_dst={n}"),
        6 => write!(out, "tcp,nw_dst=10.{b}.{c}.{d},tp_dst={n}"),
        7 => write!(out, "tcp,nw_src=10.{b}.{c}.{d},tp_src={n}"),
        8 => write!(out, "tcp,nw_src=10.{b}.{c}.{d},nw_dst=198.18.{c}.{d},tp_dst={n}"),
        9 => write!(out, "in_port=1,tcp,nw_src=10.{b}.{c}.{d},tcp_flags=+syn-ack"),
        10 => write!(out, "arp,arp_tpa=10.{b}.{c}.{d}"),
        11 => write!(out, "ipv6,ipv6_src=2001:db8::{b:x}{c:02x}:{d:x}"),
        12 => write!(out, "ipv6,ipv6_dst=2001:db8:{b:x}{c:02x}:{d:x}::/64"),
        13 => write!(out, "tcp6,ipv6_dst=2001:db8::{b:x}{c:02x}:{d:x},tp_dst={n}"),
        14 => write!(out, "ip,reg0=0x{i:x},nw_dst=10.{b}.0.0/16"),
        _ => write!(out, "metadata=0x{i:x},dl_type=0x0800,nw_tos=32"),
    };
}
