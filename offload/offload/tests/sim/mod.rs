//! Flows with Poisson traffic and a NIC with a table that is too small for them, in steps of a tenth of
//! a second, for whatever policy decides who is in the table.
#![allow(dead_code)]

pub mod ours;
pub mod random;
pub mod reference;

use fv_core::Nanos;

pub use random::Random;

pub const STEP: Nanos = Nanos::from_ms(100);
const STEPS_PER_S: u64 = 10;
/// Steps after which the NIC tells what its counters were.
const STATS_DELAY_STEPS: usize = 10;
const STATS_EVERY_STEPS: u64 = 5;

/// How an insertion ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inserted {
    Done,
    NoSpace,
    Failed,
}

pub struct FlowSim {
    /// Packets a second, in truth.
    pub rate: f64,
    pub device: usize,
    pub in_hardware: bool,
    /// The NIC fails to insert it, always.
    pub failing: bool,
    /// Its first packet has come.
    pub seen: bool,
    pub software: u64,
    pub hardware: u64,
    /// Time and value of the hardware counter that the NIC has told.
    pub told: (Nanos, u64),
    history: Vec<(Nanos, u64)>,
}

pub struct World {
    pub now: Nanos,
    pub flows: Vec<FlowSim>,
    /// Entries of each device's table, and those taken.
    pub capacity: Vec<usize>,
    pub used: Vec<usize>,
    /// Flows whose first packet came in this step.
    pub new: Vec<usize>,
    pub insertions: u64,
    pub removals: u64,
    /// Packets sent in all.
    pub sent: u64,
    step: u64,
    pub random: Random,
}

/// A second of the run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Second {
    pub packets: u64,
    pub in_hardware: u64,
    /// What the best choice of flows would have had in hardware.
    pub best: f64,
    /// Insertions and removals.
    pub moves: u64,
}

impl Second {
    pub fn share_of_best(&self) -> f64 {
        self.in_hardware as f64 / self.best
    }
}

/// Decides who is in the table.
pub trait Policy {
    fn step(&mut self, world: &mut World);
}

/// Rates of `n` flows that follow Zipf's law with exponent `s`, `total` packets a second together.
pub fn zipf(n: usize, s: f64, total: f64) -> Vec<f64> {
    let weights: Vec<f64> = (1..=n).map(|rank| (rank as f64).powf(-s)).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|w| w / sum * total).collect()
}

impl World {
    pub fn new(rates: &[f64], capacity: usize, seed: u64) -> World {
        World {
            now: Nanos::from_secs(1000),
            flows: rates.iter().map(|rate| FlowSim::new(*rate)).collect(),
            capacity: vec![capacity],
            used: vec![0],
            new: Vec::new(),
            insertions: 0,
            removals: 0,
            sent: 0,
            step: 0,
            random: Random(seed),
        }
    }

    /// A second NIC, with a table of its own, that has the flows from `from` on.
    pub fn split(mut self, from: usize, capacity: usize) -> World {
        self.flows[from..].iter_mut().for_each(|f| f.device = 1);
        self.capacity.push(capacity);
        self.used.push(0);
        self
    }

    pub fn shuffle(&mut self) {
        for i in (1..self.flows.len()).rev() {
            let j = self.random.below(i as u64 + 1) as usize;
            let (a, b) = (self.flows[i].rate, self.flows[j].rate);
            (self.flows[i].rate, self.flows[j].rate) = (b, a);
        }
    }

    pub fn insert(&mut self, flow: usize) -> Inserted {
        let f = &mut self.flows[flow];
        if f.failing || f.in_hardware {
            return Inserted::Failed;
        }
        if self.used[f.device] == self.capacity[f.device] {
            return Inserted::NoSpace;
        }
        self.used[f.device] += 1;
        self.insertions += 1;
        f.in_hardware = true;
        f.hardware = 0;
        f.history.clear();
        f.told = (self.now, 0);
        Inserted::Done
    }

    pub fn remove(&mut self, flow: usize) {
        let f = &mut self.flows[flow];
        assert!(f.in_hardware, "flow {flow} is not in hardware");
        self.used[f.device] -= 1;
        self.removals += 1;
        f.in_hardware = false;
        // The removal tells the final count; software goes on from there.
        f.software += f.hardware;
    }

    /// A tenth of a second of traffic: packets, and those of them in hardware.
    fn traffic(&mut self) -> (u64, u64) {
        self.now += STEP;
        self.step += 1;
        self.new.clear();
        let (mut packets, mut in_hardware) = (0, 0);
        for (i, f) in self.flows.iter_mut().enumerate() {
            let n = self.random.poisson(f.rate / STEPS_PER_S as f64);
            packets += n;
            if f.in_hardware {
                f.hardware += n;
                in_hardware += n;
            } else {
                f.software += n;
            }
            if n > 0 && !f.seen {
                f.seen = true;
                self.new.push(i);
            }
            if f.in_hardware && self.step.is_multiple_of(STATS_EVERY_STEPS) {
                f.tell(self.now);
            }
        }
        self.sent += packets;
        (packets, in_hardware)
    }

    /// Packets a second that the best choice has in hardware.
    pub fn best(&self) -> f64 {
        (0..self.capacity.len())
            .map(|device| {
                let on = self.flows.iter().filter(|f| f.device == device && !f.failing);
                let mut rates: Vec<f64> = on.map(|f| f.rate).collect();
                rates.sort_by(|a, b| b.total_cmp(a));
                rates.iter().take(self.capacity[device]).sum::<f64>()
            })
            .sum()
    }

    pub fn second(&mut self, policy: &mut dyn Policy) -> Second {
        let best = self.best();
        let mut second = Second { best, ..Second::default() };
        let moves = self.insertions + self.removals;
        for _ in 0..STEPS_PER_S {
            let (packets, in_hardware) = self.traffic();
            second.packets += packets;
            second.in_hardware += in_hardware;
            policy.step(self);
        }
        second.moves = self.insertions + self.removals - moves;
        second
    }

    pub fn run(&mut self, policy: &mut dyn Policy, seconds: usize) -> Vec<Second> {
        let run = (0..seconds).map(|_| self.second(policy)).collect();
        let counted = self.flows.iter().map(|f| f.software + if f.in_hardware { f.hardware } else { 0 }).sum::<u64>();
        assert_eq!(counted, self.sent, "each packet is counted once");
        for (device, used) in self.used.iter().enumerate() {
            assert_eq!(*used, self.flows.iter().filter(|f| f.device == device && f.in_hardware).count());
        }
        run
    }

    pub fn step_number(&self) -> u64 {
        self.step
    }
}

impl FlowSim {
    fn new(rate: f64) -> FlowSim {
        FlowSim {
            rate,
            device: 0,
            in_hardware: false,
            failing: false,
            seen: false,
            software: 0,
            hardware: 0,
            told: (Nanos::ZERO, 0),
            history: Vec::new(),
        }
    }

    fn tell(&mut self, now: Nanos) {
        self.history.push((now, self.hardware));
        let old = Nanos(STEP.0 * STATS_DELAY_STEPS as u64);
        while let Some(first) = self.history.first().filter(|h| h.0 + old <= now) {
            self.told = *first;
            self.history.remove(0);
        }
    }
}
