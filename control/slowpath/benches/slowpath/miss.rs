//! What a miss costs with a thousand rules, and with more, each for another rule: the whole of it, from the
//! packet's receipt over the flow that is installed to the packet's leaving, and the upcall alone, from the
//! key to the verdict.

use std::time::Instant;

use fv_core::Ufid;
use fv_dpif::{Datapath, UpcallHandler, WorkerId};
use fv_flow::DpKey;
use fv_packet::Packet;

use crate::switch::{Bench, NOW, Shape};
use crate::{callgrind, counted, low};

const FEW: u32 = 1000;
const MANY: u32 = 1_000_000;
/// Misses of one measurement.
const MISSES: u32 = 1000;
const ROUNDS: usize = 41;

/// Rules, and packets that were just received.
struct Case {
    bench: Bench,
    shape: Shape,
    rules: u32,
    asked: Vec<(Packet, DpKey)>,
    next: u64,
    /// Nanoseconds a miss, and an upcall, a value a round.
    whole: Vec<f64>,
    upcall: Vec<f64>,
}

impl Case {
    fn new(shape: Shape, rules: u32) -> Case {
        let mut bench = Bench::new();
        bench.rules(shape, rules, "output:2");
        Case { bench, shape, rules, asked: Vec::new(), next: 0, whole: Vec::new(), upcall: Vec::new() }
    }

    /// Rules in an order without neighbours.
    fn some(&mut self) -> impl Iterator<Item = u32> + use<> {
        let next = self.next..self.next + u64::from(MISSES);
        self.next = next.end;
        let rules = u64::from(self.rules);
        next.map(move |n| (n * 7919 * 13 % rules) as u32)
    }

    /// Packets on port 1, of which the datapath knows none.
    fn receive(&mut self) {
        self.bench.slowpath.purge();
        self.bench.devices[1].sent();
        for i in self.some() {
            self.bench.devices[0].inject(&self.shape.frame(i));
        }
    }

    fn misses(&mut self) -> usize {
        while self.bench.dp.turn_main(NOW, 1024).busy() {}
        MISSES as usize
    }

    fn upcalls(&mut self) -> usize {
        for (packet, key) in &self.asked {
            let s = &self.bench.slowpath;
            std::hint::black_box(s.miss(WorkerId(0), NOW, packet, key));
            s.installed(WorkerId(0), Ufid::default(), key, false);
        }
        self.asked.len()
    }

    fn round(&mut self) {
        self.receive();
        let start = Instant::now();
        let n = self.misses();
        self.whole.push(start.elapsed().as_nanos() as f64 / n as f64);
        assert_eq!(self.bench.dp.flow_count(), n, "each was a miss");
        let shape = self.shape;
        self.asked = self.some().map(|i| shape.key(i)).collect();
        let start = Instant::now();
        let n = self.upcalls();
        self.upcall.push(start.elapsed().as_nanos() as f64 / n as f64);
    }
}

pub fn run(args: &[String]) {
    let many = args.iter().find_map(|a| a.parse().ok()).unwrap_or(MANY);
    // Under callgrind: one shape, one number of rules.
    if let Some([shape, rules]) = args.iter().position(|a| a == "--count").and_then(|at| args.get(at + 1..at + 3)) {
        let shape = Shape::ALL.into_iter().find(|s| s.name() == shape).expect("a shape");
        let mut case = Case::new(shape, rules.parse().expect("a number"));
        case.receive();
        case.misses();
        case.receive();
        println!("DONE {}", counted(&mut || case.misses()));
        return;
    }
    let mut line = format!("RESULT rules={many}");
    for shape in Shape::ALL {
        let mut cases = [Case::new(shape, FEW), Case::new(shape, many)];
        for _ in 0..ROUNDS {
            cases.iter_mut().for_each(Case::round);
        }
        for (what, ns) in [("whole", (|c: &Case| low(&c.whole)) as fn(&Case) -> f64), ("upcall", |c| low(&c.upcall))] {
            let [few, lot] = cases.each_ref().map(ns);
            println!(
                "{:10} {what:6} {few:8.0} ns with {FEW} rules, {lot:8.0} ns with {many}: {:.2}",
                shape.name(),
                lot / few
            );
            line += &format!(" {}_{what}_ratio={:.2}", shape.name(), lot / few);
        }
        drop(cases);
        if !args.iter().any(|a| a == "--no-callgrind") {
            let count = |n: u32| callgrind(&["miss", "--count", shape.name(), &n.to_string()]);
            if let (Some(few), Some(lot)) = (count(FEW), count(many.min(100_000))) {
                println!("{:10} {few:8.0} and {lot:8.0} instructions (with {})", "", many.min(100_000));
                line += &format!(" {}_instructions_ratio={:.2}", shape.name(), lot / few);
            }
        }
    }
    println!("{line}");
}
