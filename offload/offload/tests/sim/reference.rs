//! The reference's algorithm, as its behaviour is known, with operations that take no time.
//!
//! Every three seconds at least: a rate from one sample in whole seconds; then, for each device that
//! has been found full, all flows sorted, those waiting inserted while there is room, then as many of the
//! slowest taken out as are slower than the one waiting at the same rank, then those waiting inserted.

use fv_core::Nanos;

use super::{Inserted, Policy, World};

const PERIOD: Nanos = Nanos::from_secs(3);
const CHURN_MAX: usize = 1024;

#[derive(Clone, Default)]
struct Ukey {
    known: bool,
    offloaded: bool,
    rate: u64,
    time: Nanos,
    packets: u64,
    backlog: u64,
}

#[derive(Default)]
pub struct Reference {
    keys: Vec<Ukey>,
    full: Vec<bool>,
    /// Left over from pass to pass where a device is not processed.
    offload_count: Vec<usize>,
    pending_count: Vec<usize>,
    last: Nanos,
    /// Times that a count left over led past the flows of its device.
    pub misindexed: u64,
}

impl Reference {
    fn start(&mut self, world: &World) {
        let devices = world.capacity.len();
        self.keys = vec![Ukey::default(); world.flows.len()];
        self.full = vec![false; devices];
        (self.offload_count, self.pending_count) = (vec![0; devices], vec![0; devices]);
        self.last = world.now;
    }

    /// A flow's first packet: offloaded at once if there is room.
    fn born(&mut self, world: &mut World, i: usize) {
        let done = world.insert(i);
        if done == Inserted::NoSpace {
            self.full[world.flows[i].device] = true;
        }
        self.keys[i] = Ukey { known: true, offloaded: done == Inserted::Done, time: world.now, ..Ukey::default() };
    }

    fn measure(&mut self, world: &World) {
        for (key, f) in self.keys.iter_mut().zip(&world.flows) {
            let seconds = world.now.saturating_sub(key.time).secs();
            if !key.known || seconds < 3 {
                continue;
            }
            // Counters restart when a flow changes its place; what it had before is its backlog.
            let packets = if f.in_hardware { key.backlog + f.hardware } else { f.software };
            key.rate = packets.saturating_sub(key.packets) / seconds;
            (key.packets, key.time) = (packets, world.now);
            key.offloaded = f.in_hardware;
        }
    }

    fn pass(&mut self, world: &mut World) {
        let mut all: Vec<usize> =
            (0..self.keys.len()).filter(|i| self.keys[*i].known && self.full[world.flows[*i].device]).collect();
        for i in &all {
            let count = if self.keys[*i].offloaded { &mut self.offload_count } else { &mut self.pending_count };
            count[world.flows[*i].device] += 1;
        }
        let keys = &self.keys;
        all.sort_by_key(|i| {
            let (key, rate) = (&keys[*i], keys[*i].rate);
            (world.flows[*i].device, !key.offloaded, if key.offloaded { rate } else { u64::MAX - rate })
        });
        // Devices with nothing offloaded are not counted, but are walked.
        let to_process = self.offload_count.iter().filter(|n| **n > 0).count();
        let mut at = 0;
        for _ in 0..to_process {
            let Some(first) = all.get(at) else { break };
            let device = world.flows[*first].device;
            let offloaded = std::mem::take(&mut self.offload_count[device]);
            let pending = std::mem::take(&mut self.pending_count[device]);
            if at + offloaded + pending > all.len() {
                self.misindexed += 1;
            }
            let out = all[at..(at + offloaded).min(all.len())].to_vec();
            let from = (at + offloaded).min(all.len());
            let waiting = all[from..(from + pending).min(all.len())].to_vec();
            at = from + waiting.len();
            if self.rebalance(world, &out, &waiting) {
                self.full[device] = false;
            }
        }
    }

    /// Says whether everything is in the table.
    fn rebalance(&mut self, world: &mut World, out: &[usize], waiting: &[usize]) -> bool {
        let mut inserted = 0;
        for i in waiting {
            match self.insert(world, *i) {
                Inserted::Done => inserted += 1,
                Inserted::NoSpace => break,
                Inserted::Failed => {}
            }
        }
        if inserted == waiting.len() {
            return true;
        }
        // As if those inserted were the first ones.
        let waiting = &waiting[inserted..];
        let beats = |i: usize| self.keys[waiting[i]].rate > self.keys[out[i]].rate;
        let churn = (0..CHURN_MAX.min(out.len()).min(waiting.len())).take_while(|i| beats(*i)).count();
        if churn == 0 {
            return false;
        }
        for i in &out[..churn] {
            if world.flows[*i].in_hardware {
                world.remove(*i);
                self.keys[*i].offloaded = false;
                self.keys[*i].backlog = world.flows[*i].software;
            }
        }
        let coldest = out.get(churn).map_or(0, |i| self.keys[*i].rate);
        let mut inserted = 0;
        for i in waiting {
            if inserted >= churn && self.keys[*i].rate < coldest {
                break;
            }
            match self.insert(world, *i) {
                Inserted::Done => inserted += 1,
                Inserted::NoSpace => break,
                Inserted::Failed => {}
            }
        }
        false
    }

    fn insert(&mut self, world: &mut World, i: usize) -> Inserted {
        let done = world.insert(i);
        if done == Inserted::Done {
            self.keys[i].offloaded = true;
            self.keys[i].backlog = world.flows[i].software;
        }
        done
    }
}

impl Policy for Reference {
    fn step(&mut self, world: &mut World) {
        if self.keys.is_empty() {
            self.start(world);
        }
        for i in std::mem::take(&mut world.new) {
            self.born(world, i);
        }
        if world.now.saturating_sub(self.last) >= PERIOD {
            self.last = world.now;
            self.measure(world);
            if self.full.contains(&true) {
                self.pass(world);
            }
        }
    }
}
