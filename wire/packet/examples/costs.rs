//! What the common operations on packets cost, in nanoseconds: `cargo run --release -p fv-packet --example costs`.

use std::hint::black_box;
use std::time::Instant;

use fv_packet::compose::{Compose, make_partial};
use fv_packet::hdr::vlan::Tag;
use fv_packet::hdr::{ipv4, tcp};
use fv_packet::{Batch, GsoKind, L4Csum, Packet, csum, finish_checksum, segment, set, vlan};

/// The lowest of many rounds of `n` calls.
fn time(name: &str, mut f: impl FnMut()) {
    const N: u32 = 2000;
    let best = (0..50)
        .map(|_| {
            let t = Instant::now();
            (0..N).for_each(|_| f());
            t.elapsed().as_nanos() as f64 / f64::from(N)
        })
        .fold(f64::MAX, f64::min);
    println!("{name:40} {best:9.1}");
}

fn main() {
    let f = ipv4::Fields { src: 0x0a000001, dst: 0x0a000002, ..Default::default() };
    let frame = |n| Compose::payload_len(n).tcp(&tcp::Fields::default()).ipv4(&f).eth([2; 6], [4; 6]);
    let bytes = vec![7u8; 65536];
    time("take and give back a buffer", || drop(black_box(Packet::with_capacity(1500))));
    time("a batch of 32 buffers", || {
        let mut batch = Batch::new();
        while batch.push(Packet::with_capacity(1500)).is_ok_and(|()| !batch.is_full()) {}
        black_box(&batch);
    });
    time("copy 60 bytes in", || drop(black_box(Packet::from_slice(&bytes[..60]))));
    time("copy 1500 bytes in", || drop(black_box(Packet::from_slice(&bytes[..1500]))));
    for n in [20, 64, 1460, 65536] {
        time(&format!("checksum {n} bytes"), || {
            black_box(csum::of(black_box(&bytes[..n])));
        });
    }
    time("crc32c 1460 bytes", || {
        black_box(csum::crc32c(black_box(&bytes[..1460])));
    });
    let mut p = frame(1000);
    time("push and pop a tag", || {
        vlan::push(&mut p, Tag { tpid: 0x8100, tci: 1 });
        vlan::pop(&mut p);
    });
    p.meta_mut().l3_ofs = 14;
    let mut n = 0u32;
    time("set ipv4 source", || {
        n += 1;
        set::ipv4_src(&mut p, n, !0);
    });
    time("set tcp source", || {
        n += 1;
        set::l4_src(&mut p, n as u16, !0);
    });
    time("finish a due checksum of 1448", || {
        let mut p = frame(0);
        p.put_back(1448);
        make_partial(&mut p, GsoKind::None, 0);
        let _ = finish_checksum(&mut p);
    });
    let mut large = frame(64_000);
    make_partial(&mut large, GsoKind::Tcp4, 1448);
    time("copy 64 kB", || drop(black_box(large.duplicate())));
    for how in [L4Csum::Leave, L4Csum::Finish] {
        time(&format!("copy and segment 64 kB, {how:?}"), || {
            segment(large.duplicate(), how).into_iter().flatten().for_each(|p| drop(black_box(p)));
        });
    }
}
