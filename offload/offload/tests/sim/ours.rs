//! Our rebalancer in the simulation, with a NIC that takes its time.

use std::collections::VecDeque;

use fv_core::Nanos;
use fv_offload::rebalance::Refusal;
use fv_offload::{FlowId, Move, Place, PoolId, Rebalancer, Settings};

use super::{Inserted, Policy, World};

/// Steps between two looks at all counters.
const SAMPLE_STEPS: u64 = 5;
/// Operations that the NIC does in a step.
const OPS_PER_STEP: usize = 200;

enum Todo {
    Insert(FlowId),
    Remove { out: FlowId, into: FlowId },
}

pub struct Ours {
    pub rebalancer: Rebalancer,
    /// Whether the rebalancer is told how large the tables are.
    pub knows_capacity: bool,
    started: bool,
    /// Flow numbers of ids, and back.
    flows: Vec<usize>,
    ids: Vec<Option<FlowId>>,
    todo: VecDeque<Todo>,
}

impl Default for Ours {
    fn default() -> Ours {
        Ours {
            rebalancer: Rebalancer::new(Settings::default()),
            knows_capacity: true,
            started: false,
            flows: Vec::new(),
            ids: Vec::new(),
            todo: VecDeque::new(),
        }
    }
}

impl Ours {
    fn start(&mut self, world: &World) {
        self.started = true;
        self.ids = vec![None; world.flows.len()];
        for (device, capacity) in world.capacity.iter().enumerate() {
            let capacity = self.knows_capacity.then_some(*capacity as u32);
            self.rebalancer.set_pool(PoolId(device as u16), capacity);
        }
    }

    fn sample(&mut self, world: &World) {
        for (i, id) in self.ids.iter().enumerate() {
            let Some(id) = id else { continue };
            let f = &world.flows[i];
            match self.rebalancer.place(*id) {
                Place::Software => self.rebalancer.sample(*id, world.now, f.software),
                Place::Hardware => self.rebalancer.sample(*id, f.told.0, f.told.1),
                _ => {}
            }
        }
    }

    fn plan(&mut self, world: &World) {
        let mut moves = Vec::new();
        for device in 0..world.capacity.len() {
            self.rebalancer.plan(world.now, PoolId(device as u16), &mut moves);
        }
        self.todo.extend(moves.into_iter().map(|m| match m {
            Move::Insert(id) => Todo::Insert(id),
            Move::Swap { out, into } => Todo::Remove { out, into },
        }));
    }

    /// What was asked for in the last step is done in this one.
    fn work(&mut self, world: &mut World) {
        let mut then = Vec::new();
        for _ in 0..OPS_PER_STEP {
            match self.todo.pop_front() {
                Some(Todo::Remove { out, into }) => {
                    world.remove(self.flows[out.0 as usize]);
                    self.rebalancer.left(out, world.now);
                    then.push(Todo::Insert(into));
                }
                Some(Todo::Insert(id)) => match world.insert(self.flows[id.0 as usize]) {
                    Inserted::Done => self.rebalancer.entered(id, world.now),
                    Inserted::NoSpace => self.rebalancer.refused(id, world.now, Refusal::OutOfRoom),
                    Inserted::Failed => self.rebalancer.refused(id, world.now, Refusal::Cannot),
                },
                None => break,
            }
        }
        then.into_iter().rev().for_each(|t| self.todo.push_front(t));
    }
}

impl Policy for Ours {
    fn step(&mut self, world: &mut World) {
        if !self.started {
            self.start(world);
        }
        self.work(world);
        for i in &world.new {
            let id = self.rebalancer.add(world.now, PoolId(world.flows[*i].device as u16), 1.0);
            assert_eq!(id.0 as usize, self.flows.len());
            self.flows.push(*i);
            self.ids[*i] = Some(id);
            self.rebalancer.sample(id, Nanos(world.now.0 - super::STEP.0), 0);
        }
        if world.step_number().is_multiple_of(SAMPLE_STEPS) {
            self.sample(world);
            self.plan(world);
        }
    }
}
