//! Tuple space explosion: ordinary packets against three rules that look at single bits of source
//! address and ports make a mask each. What do packets of the same port that have nothing to do with
//! it cost afterwards?

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fv_core::{Clock, DpPort, Nanos};
use fv_datapath::{CacheUse, Dp};
use fv_dpif::Datapath;
use fv_flow::{DpKey, DpMask};
use fv_netdev::Polling;

use crate::common::*;
use crate::measure::{Case, Row, Run, result, ticks};
use crate::ring::{Ring, shuffled};
use crate::turn::{IN_FLIGHT, LATER, PACKETS, io};

/// Number of the first attacking packet; below are the victim's connections.
const ATTACK: u32 = 0x80_0000;
/// Positions of the first bit that differs from a rule's value, in each of three fields.
const BITS: [u32; 3] = [16, 32, 16];
const RULES: [u32; 3] = [80, 0x0a00_0001, 12345];

/// Victims go to port 80; an attacker's packet differs from each rule in one bit.
fn stamp(frame: &mut [u8], flow: u32) {
    let (mut values, mut dst) = ([80, 0x0a00_0002, 4000], flow);
    if flow >= ATTACK {
        let mut n = flow - ATTACK;
        for (value, (rule, bits)) in values.iter_mut().zip(RULES.into_iter().zip(BITS)) {
            *value = rule ^ 1 << (n % bits);
            n /= bits;
        }
        dst = 0;
    }
    frame[26..30].copy_from_slice(&values[1].to_be_bytes());
    frame[30..34].copy_from_slice(&(0x0a00_0000 | dst).to_be_bytes());
    frame[34..36].copy_from_slice(&(values[2] as u16).to_be_bytes());
    frame[36..38].copy_from_slice(&(values[0] as u16).to_be_bytes());
}

/// The bits that tell a value from a rule's: down to the first that differs.
fn prefix(value: u32, rule: u32, bits: u32) -> u32 {
    let all = u32::MAX >> (32 - bits);
    (value ^ rule).checked_ilog2().map_or(all, |first| all & (u32::MAX << first))
}

/// What prefix tracking in a classifier of those rules gives.
fn mask(key: &DpKey) -> DpMask {
    let b = &key.base;
    let mut mask = DpMask::default();
    mask.0.base.dl_type = 0xffff.into();
    mask.0.base.nw_proto = 0xff;
    let dst = u32::from(b.tp_dst.get());
    mask.0.base.tp_dst = (prefix(dst, RULES[0], 16) as u16).into();
    if dst != RULES[0] {
        mask.0.base.nw_src = prefix(b.nw_src.get(), RULES[1], 32).into();
        mask.0.base.tp_src = (prefix(b.tp_src.get().into(), RULES[2], 16) as u16).into();
    }
    mask
}

/// A switch whose port has been sent `attacks` different packets; then only the victim's count.
fn victim(name: &str, base: usize, attacks: u32, cache: CacheUse) -> Case {
    let attacking = Arc::new(AtomicBool::new(attacks > 0));
    let under = attacking.clone();
    let mut n = 0u32;
    let pattern = Box::new(move || {
        n = (n + 1) % (1 << 20);
        if under.load(Ordering::Relaxed) { ATTACK + n % attacks } else { n * 619 % 1000 }
    });
    let ring = Ring::of("p1", IN_FLIGHT, pattern, stamp, Polling::Main);
    let dp: Arc<Dp> = Dp::new("ovs-dummy", "dummy", Clock::stopped(), ticks);
    dp.add_port(ring.clone(), Some(DpPort(1))).unwrap();
    dp.add_port(ring.sink("p2"), Some(DpPort(2))).unwrap();
    dp.set_cache_use(cache);
    dp.set_upcall_handler(Some(Control::new(|key| forward(vec![output(2)], mask(key)))));
    let mut now = LATER.0;
    let mut turns = move |dp: &Dp, packets: usize| {
        let mut got = 0;
        while got < packets {
            now += 1000;
            got += dp.turn_main(Nanos(now), 32).packets;
        }
        got
    };
    turns(&dp, 2 * attacks as usize);
    attacking.store(false, Ordering::Relaxed);
    // Long enough for subtables to be ranked, and for the cache to be chosen.
    turns(&dp, 32 << 20);
    if attacks > 0 {
        println!("{name}: {} masks, {} flows", dp.with_main(|w| w.table_size().1).unwrap_or(0), dp.flow_count());
    }
    Case::new(name, Some(base), move || turns(&dp, PACKETS))
}

pub fn run(run: &Run) {
    let all = BITS.iter().product();
    let cases = vec![
        io("io".into(), shuffled(1000)),
        victim("victim alone", 0, 0, CacheUse::Adaptive),
        victim("victim attacked", 0, all, CacheUse::Adaptive),
        victim("attacked without cache", 0, all, CacheUse::Inverse(0)),
    ];
    // One switch after the other was attacked: nothing to count here.
    let rows: Vec<Row> = Run { callgrind: false, ..run.clone() }.measure(cases);
    let low = |n: usize| rows.get(n).map_or(f64::NAN, |r| r.low);
    let ratios = [("victim_ratio", low(2) / low(1)), ("victim_ratio_without_cache", low(3) / low(1))];
    result(&rows, &ratios.map(|(key, ratio)| (key, format!("{ratio:.2}"))));
}
