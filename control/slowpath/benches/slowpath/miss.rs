//! What a miss costs with a thousand rules, and with more: the upcall from the packet's key to the
//! verdict, each for another rule.

use std::time::Instant;

use fv_core::Ufid;
use fv_dpif::{UpcallHandler, WorkerId};
use fv_flow::DpKey;
use fv_packet::Packet;

use crate::switch::{Bench, NOW, Shape};
use crate::{callgrind, counted, low};

const FEW: u32 = 1000;
const MANY: u32 = 1_000_000;
/// Misses of one measurement.
const MISSES: u32 = 2000;
const ROUNDS: usize = 41;

/// Rules, and packets that were just received.
struct Case {
    bench: Bench,
    shape: Shape,
    rules: u32,
    asked: Vec<(Packet, DpKey)>,
    next: u64,
    ns: Vec<f64>,
}

impl Case {
    fn new(shape: Shape, rules: u32) -> Case {
        let mut bench = Bench::new();
        bench.rules(shape, rules, "output:2");
        Case { bench, shape, rules, asked: Vec::new(), next: 0, ns: Vec::new() }
    }

    /// Packets for rules in an order without neighbours.
    fn receive(&mut self) {
        let next = self.next..self.next + u64::from(MISSES);
        self.next = next.end;
        self.asked.clear();
        self.asked.extend(next.map(|n| self.shape.key((n * 7919 * 13 % u64::from(self.rules)) as u32)));
    }

    fn misses(&mut self) -> usize {
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
        self.ns.push(start.elapsed().as_nanos() as f64 / n as f64);
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
        let [few, lot] = cases.each_ref().map(|c| low(&c.ns));
        println!("{:10} {few:8.0} ns with {FEW} rules, {lot:8.0} ns with {many}: {:.2}", shape.name(), lot / few);
        line += &format!(" {}_ratio={:.2}", shape.name(), lot / few);
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
