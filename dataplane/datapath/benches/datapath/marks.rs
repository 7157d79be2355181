//! Packets whose flow a NIC has recognised, against the lookups that this spares.

use std::sync::Arc;

use fv_core::Nanos;
use fv_datapath::{CacheUse, Dp};
use fv_dpif::{Datapath, Marks};

use crate::common::output;
use crate::measure::{Case, Run, result};
use crate::ring::{Ring, shuffled};
use crate::turn::{IN_FLIGHT, LATER, PACKETS, Rules, case, io, switch};

/// Gives every flow a mark, and the packets theirs.
fn mark_all(dp: &Dp, ring: &Ring, flows: u32) -> Arc<Marks> {
    let marks = Marks::new();
    dp.set_marks(marks.clone());
    let mut by_flow = vec![0; flows as usize];
    dp.flow_dump(&mut |flow| {
        if let Some(mark) = by_flow.get_mut((flow.key.base.nw_dst.get() & 0xff_ffff) as usize) {
            *mark = marks.take(24, flow.ufid).unwrap_or(0);
        }
        true
    });
    *ring.marks.lock() = by_flow;
    marks
}

fn marked(name: String, base: usize, rules: Rules, flows: u32) -> Case {
    let ring = Ring::new("p1", IN_FLIGHT, shuffled(flows));
    let mut dp = None;
    let mut turn = 0;
    Case::new(name, Some(base), move || {
        let (dp, _marks) = dp.get_or_insert_with(|| {
            let dp = switch(&ring, rules, vec![output(2)], CacheUse::Adaptive, flows);
            let marks = mark_all(&dp, &ring, flows);
            // Each mark is met once, and looked up.
            for t in 0..u64::from(flows / 8 + 64) {
                dp.turn_main(Nanos(LATER.0 / 2 + t), 32);
            }
            (dp, marks)
        });
        let mut got = 0;
        while got < PACKETS {
            turn += 1000;
            got += dp.turn_main(Nanos(LATER.0 + turn), 32).packets;
        }
        got
    })
}

pub fn run(run: &Run) {
    let mut cases = Vec::new();
    for n in [1_000u32, 10_000] {
        let base = cases.len();
        let rules = Rules::Exact(16);
        cases.push(io(format!("io {n}"), shuffled(n)));
        cases.push(case(format!("cache {n}"), base, shuffled(n), rules, vec![output(2)], CacheUse::Adaptive, n));
        cases.push(case(format!("subtables {n}"), base, shuffled(n), rules, vec![output(2)], CacheUse::Inverse(0), n));
        cases.push(marked(format!("marks {n}"), base, rules, n));
    }
    let rows = run.measure(cases);
    let of = |name: &str| rows.iter().find(|r| r.name == name);
    let mut more = Vec::new();
    for (key, soft) in [("plain_ratio", "cache"), ("vs_subtables_ratio", "subtables")] {
        if let (Some(a), Some(b)) = (of(&format!("{soft} 1000")), of("marks 1000")) {
            more.push((key, format!("{:.2}", a.low / b.low)));
            if let (Some(a), Some(b)) = (a.instructions, b.instructions) {
                let key =
                    if key == "plain_ratio" { "plain_instructions_ratio" } else { "vs_subtables_instructions_ratio" };
                more.push((key, format!("{:.2}", a / b)));
            }
        }
    }
    result(&rows, &more);
}
