//! Which flows belong in a table that is too small for all: returns moves, never calls hardware.
//!
//! Reads: samples of counters, how moves ended, the time. Writes: its own book. Cost: a sample touches one
//! flow, a plan the flows that may move.
//!
//! A swap must pay. Its gain is what the newcomer has at least and the leaver at most; it must exceed a
//! margin, what the move costs over the time that the newcomer is expected to live, and a share of what a
//! table entry carries on average. The last bounds what is given up: refusing every gain below
//! `slack` of the average entry costs at most `slack` of the hardware's traffic. And all swaps of a plan
//! together must gain something that matters: what is left of a choice that is nearly the best is noise.

mod lists;
mod rate;

use std::collections::BTreeMap;

use fv_core::Nanos;

use crate::provider::PoolId;
use lists::{IDLE, LOW, Links, Lists, NONE, Nodes, class_of, end_of};
pub use rate::Rate;

/// The rebalancer's name of a flow, from [`Rebalancer::add`] to [`Rebalancer::remove`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowId(pub u32);

/// Where a flow is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Software,
    Entering,
    Hardware,
    Leaving,
    /// The NIC cannot do it.
    Barred,
}

/// Why a flow did not get into the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    Cannot,
    OutOfRoom,
    /// Or lost: may be tried again after a while.
    Busy,
    /// There is no mark to give it: there will be one in a moment.
    NoMark,
}

/// What to do. A flow always has its software flow: one that leaves the table is forwarded there, and the
/// newcomer is inserted as soon as its place is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    Insert(FlowId),
    Swap { out: FlowId, into: FlowId },
}

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// A newcomer must have this much more than the leaver, of the leaver's.
    pub margin: f32,
    /// Packets in software that cost as much as a swap.
    pub move_cost: f32,
    /// A flow is expected to live as long as it has lived already, within these bounds.
    pub horizon_min: Nanos,
    pub horizon_max: Nanos,
    /// What need not be gained, of an average entry's traffic.
    pub slack: f32,
    /// What all swaps of a plan together must gain, of what the table carries.
    pub worthwhile: f64,
    /// After a move a flow stays, unless the other has four times as much.
    pub stay_min: Nanos,
    /// Moves of one plan, a swap being one.
    pub moves_max: usize,
    /// Wait before a table that was full is tried again; doubles up to sixteen times this.
    pub probe_after: Nanos,
    /// Wait before a flow is tried again that the NIC was too busy for; doubles likewise.
    pub retry_after: Nanos,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            margin: 0.25,
            move_cost: 500.0,
            horizon_min: Nanos::from_ms(500),
            horizon_max: Nanos::from_secs(30),
            slack: 0.04,
            worthwhile: 0.005,
            stay_min: Nanos::from_secs(3),
            moves_max: 256,
            probe_after: Nanos::from_secs(10),
            retry_after: Nanos::from_ms(250),
        }
    }
}

/// Flows that one plan looks at without moving them, at most.
const LOOKS_MAX: usize = 8192;
/// Leavers that a newcomer is compared with before the next newcomer is tried.
const VICTIMS: usize = 8;
/// Wait for a mark.
const NO_MARK_WAIT: Nanos = Nanos::from_ms(2);
/// Longest wait, in doublings of the first.
const DOUBLINGS: u8 = 4;

struct Flow {
    rate: Rate,
    /// Cost of a packet in software, 1 being an ordinary one.
    weight: f32,
    /// Of the last move, or birth.
    since: Nanos,
    born: Nanos,
    /// No earlier try.
    not_before: Nanos,
    links: Links,
    pool: PoolId,
    place: Place,
    tries: u8,
}

impl Flow {
    fn value(&self) -> f32 {
        self.rate.estimate() * self.weight
    }
    fn class(&self) -> u8 {
        if self.rate.is_known() { class_of(self.value()) } else { LOW }
    }
}

#[derive(Default)]
struct Slab(Vec<Flow>);

impl Nodes for Slab {
    fn links(&mut self, node: u32) -> &mut Links {
        &mut self.0[node as usize].links
    }
}

#[derive(Default)]
struct Pool {
    capacity: Option<u32>,
    /// Rules that fitted when the NIC last said that there is no room.
    learned: Option<u32>,
    probe_at: Nanos,
    probes: u8,
    /// Entries taken, those on their way in or out included.
    used: u32,
    hardware: Lists,
    software: Lists,
    /// Sum of the values of flows in hardware.
    carried: f64,
    swaps: u64,
    inserts: u64,
}

impl Pool {
    fn limit(&self) -> u32 {
        self.learned.unwrap_or(u32::MAX).min(self.capacity.unwrap_or(u32::MAX))
    }
}

/// What can be said about a pool.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PoolInfo {
    pub used: u32,
    /// As far as is known.
    pub limit: Option<u32>,
    /// Packets a second in hardware, weighted.
    pub carried: f64,
    /// Moves since the beginning.
    pub inserts: u64,
    pub swaps: u64,
}

pub struct Rebalancer {
    settings: Settings,
    enabled: bool,
    flows: Slab,
    free: Vec<u32>,
    pools: BTreeMap<PoolId, Pool>,
}

impl Rebalancer {
    pub fn new(settings: Settings) -> Rebalancer {
        Rebalancer { settings, enabled: true, flows: Slab::default(), free: Vec::new(), pools: BTreeMap::new() }
    }

    /// `offload-rebalance`. While off, flows only fill what room there is.
    pub fn set_enabled(&mut self, on: bool) {
        self.enabled = on;
    }

    /// A table, or what it holds now.
    pub fn set_pool(&mut self, pool: PoolId, capacity: Option<u32>) {
        let pool = self.pools.entry(pool).or_default();
        if pool.capacity != capacity {
            (pool.capacity, pool.learned) = (capacity, None);
        }
    }

    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    pub fn info(&self, pool: PoolId) -> PoolInfo {
        self.pools.get(&pool).map_or_else(PoolInfo::default, |p| PoolInfo {
            used: p.used,
            limit: (p.limit() != u32::MAX).then_some(p.limit()),
            carried: p.carried.max(0.0),
            inserts: p.inserts,
            swaps: p.swaps,
        })
    }

    pub fn place(&self, id: FlowId) -> Place {
        self.flows.0[id.0 as usize].place
    }

    pub fn rate(&self, id: FlowId) -> &Rate {
        &self.flows.0[id.0 as usize].rate
    }

    /// A flow that software forwards. `weight` is what a packet of it costs there, an ordinary one being 1.
    pub fn add(&mut self, now: Nanos, pool: PoolId, weight: f32) -> FlowId {
        let flow = Flow {
            rate: Rate::default(),
            weight: weight.max(0.01),
            since: now,
            born: now,
            not_before: Nanos::ZERO,
            links: Links::default(),
            pool,
            place: Place::Software,
            tries: 0,
        };
        self.pools.entry(pool).or_default();
        let id = match self.free.pop() {
            Some(id) => {
                self.flows.0[id as usize] = flow;
                id
            }
            None => {
                self.flows.0.push(flow);
                (self.flows.0.len() - 1) as u32
            }
        };
        self.list(id);
        FlowId(id)
    }

    /// The flow is gone, and `id` may name another one. If it was not in software, its entry counts as taken
    /// until [`Rebalancer::freed`].
    pub fn remove(&mut self, id: FlowId) -> Place {
        self.unlist(id.0);
        self.free.push(id.0);
        let flow = &mut self.flows.0[id.0 as usize];
        std::mem::replace(&mut flow.place, Place::Barred)
    }

    /// An entry is free again that a removed flow had.
    pub fn freed(&mut self, pool: PoolId) {
        if let Some(p) = self.pools.get_mut(&pool) {
            p.used = p.used.saturating_sub(1);
        }
    }

    /// The flow's counter, that of its present place, was `count` at `at`.
    pub fn sample(&mut self, id: FlowId, at: Nanos, count: u64) {
        let flow = &mut self.flows.0[id.0 as usize];
        let before = flow.value();
        if !flow.rate.sample(at, count) {
            return;
        }
        let (value, class) = (flow.value(), flow.class());
        if flow.place == Place::Hardware
            && let Some(p) = self.pools.get_mut(&flow.pool)
        {
            p.carried += f64::from(value) - f64::from(before);
        }
        if class != flow.links.class && matches!(flow.place, Place::Software | Place::Hardware) {
            self.unlink(id.0);
            self.link(id.0);
        }
    }

    /// The flow is in the table.
    pub fn entered(&mut self, id: FlowId, now: Nanos) {
        self.settle(id, now, Place::Hardware);
    }

    /// The flow is out of the table, by a swap or by itself. Its place is free, or promised to the newcomer.
    pub fn left(&mut self, id: FlowId, now: Nanos) {
        let flow = &self.flows.0[id.0 as usize];
        if flow.place == Place::Hardware {
            self.freed(flow.pool);
        }
        self.settle(id, now, Place::Software);
    }

    /// A newcomer did not get in. A place that was promised to it is free.
    pub fn refused(&mut self, id: FlowId, now: Nanos, why: Refusal) {
        let s = self.settings;
        let flow = &mut self.flows.0[id.0 as usize];
        let pool = flow.pool;
        match why {
            Refusal::Cannot => {
                self.unlist(id.0);
                self.flows.0[id.0 as usize].place = Place::Barred;
            }
            Refusal::Busy => {
                flow.not_before = now + Nanos(s.retry_after.0 << flow.tries);
                flow.tries = (flow.tries + 1).min(DOUBLINGS);
                self.settle(id, now, Place::Software);
            }
            Refusal::NoMark => {
                flow.not_before = now + NO_MARK_WAIT;
                self.settle(id, now, Place::Software);
            }
            Refusal::OutOfRoom => {
                flow.not_before = now + s.retry_after;
                self.settle(id, now, Place::Software);
            }
        }
        let Some(p) = self.pools.get_mut(&pool) else { return };
        p.used = p.used.saturating_sub(1);
        if why == Refusal::OutOfRoom {
            p.learned = Some(p.used);
            p.probe_at = now + Nanos(s.probe_after.0 << p.probes);
            p.probes = (p.probes + 1).min(DOUBLINGS);
        }
    }

    /// What a packet of the flow costs in software has changed, or a barred flow is another one now.
    pub fn changed(&mut self, id: FlowId, weight: f32) {
        self.unlist(id.0);
        let flow = &mut self.flows.0[id.0 as usize];
        flow.weight = weight.max(0.01);
        if flow.place == Place::Barred {
            flow.place = Place::Software;
        }
        self.list(id.0);
    }

    fn settle(&mut self, id: FlowId, now: Nanos, place: Place) {
        self.unlist(id.0);
        let flow = &mut self.flows.0[id.0 as usize];
        let moved = match place {
            Place::Hardware => flow.place == Place::Entering,
            _ => matches!(flow.place, Place::Hardware | Place::Leaving),
        };
        if moved {
            // It has another counter now.
            flow.rate.rebase();
            flow.since = now;
        }
        if place == Place::Hardware {
            flow.tries = 0;
        }
        flow.place = place;
        self.list(id.0);
    }

    fn list(&mut self, id: u32) {
        self.carry(id, 1.0);
        self.link(id);
    }

    fn unlist(&mut self, id: u32) {
        self.carry(id, -1.0);
        self.unlink(id);
    }

    fn carry(&mut self, id: u32, sign: f64) {
        let flow = &self.flows.0[id as usize];
        if flow.place == Place::Hardware
            && let Some(pool) = self.pools.get_mut(&flow.pool)
        {
            pool.carried += sign * f64::from(flow.value());
        }
    }

    fn link(&mut self, id: u32) {
        let flow = &self.flows.0[id as usize];
        let (class, place) = (flow.class(), flow.place);
        let Some(pool) = self.pools.get_mut(&flow.pool) else { return };
        match place {
            Place::Software => pool.software.put(&mut self.flows, id, class),
            Place::Hardware => pool.hardware.put(&mut self.flows, id, class),
            _ => {}
        }
    }

    fn unlink(&mut self, id: u32) {
        let flow = &self.flows.0[id as usize];
        let Some(pool) = self.pools.get_mut(&flow.pool) else { return };
        match flow.place {
            Place::Software => pool.software.take(&mut self.flows, id),
            Place::Hardware => pool.hardware.take(&mut self.flows, id),
            _ => {}
        }
    }

    /// Appends what should move in `pool` now. Each move counts as under way until it is reported:
    /// for those that enter by `entered` or `refused`, for those that leave by `left`.
    pub fn plan(&mut self, now: Nanos, pool: PoolId, out: &mut Vec<Move>) {
        let Some(p) = self.pools.get_mut(&pool) else { return };
        if p.learned.is_some() && now >= p.probe_at {
            p.learned = None;
        }
        let room = p.limit().saturating_sub(p.used) as usize;
        let mut left = self.settings.moves_max;
        left -= self.fill(now, pool, room.min(left), out);
        if self.enabled && left > 0 {
            self.swap(now, pool, left, out);
        }
    }

    /// The best that are not idle into what room there is.
    fn fill(&mut self, now: Nanos, pool: PoolId, room: usize, out: &mut Vec<Move>) -> usize {
        let mut filled = 0;
        let mut walk = Walk::down();
        for _ in 0..LOOKS_MAX {
            let Some(p) = self.pools.get(&pool).filter(|_| filled < room) else { break };
            let Some(id) = walk.next(&p.software, &self.flows) else { break };
            if walk.class == IDLE {
                break;
            }
            if self.flows.0[id as usize].not_before <= now {
                self.start(id, Place::Entering);
                out.push(Move::Insert(FlowId(id)));
                filled += 1;
            }
        }
        if let Some(p) = self.pools.get_mut(&pool) {
            p.used += filled as u32;
            p.inserts += filled as u64;
        }
        filled
    }

    fn swap(&mut self, now: Nanos, pool: PoolId, max: usize, out: &mut Vec<Move>) {
        let mut newcomers = Walk::down();
        let mut victims = Victims::default();
        let (mut swaps, mut gains) = (Vec::new(), 0.0);
        let gain = self.pools.get(&pool).map_or(0.0, |p| self.gain_min(p));
        for _ in 0..LOOKS_MAX {
            let Some(p) = self.pools.get(&pool).filter(|_| swaps.len() < max) else { break };
            let Some(id) = newcomers.next(&p.software, &self.flows) else { break };
            let bar = victims.lowest(&p.hardware, &self.flows).map(|v| self.flows.0[v as usize].value());
            if bar.is_none_or(|v| end_of(newcomers.class) <= v * (1.0 + self.settings.margin) + gain) {
                // Nor will any that follows.
                break;
            }
            let newcomer = &self.flows.0[id as usize];
            if newcomer.not_before > now || !newcomer.rate.is_known() {
                continue;
            }
            let pays = |v: u32| self.pays(now, newcomer, &self.flows.0[v as usize], gain);
            let Some(victim) = victims.find(&p.hardware, &self.flows, pays) else { continue };
            gains += f64::from(newcomer.value() - self.flows.0[victim as usize].value());
            swaps.push((victim, id));
        }
        let Some(p) = self.pools.get_mut(&pool).filter(|p| gains >= self.settings.worthwhile * p.carried) else {
            return;
        };
        p.swaps += swaps.len() as u64;
        for (victim, id) in swaps {
            self.start(id, Place::Entering);
            self.start(victim, Place::Leaving);
            out.push(Move::Swap { out: FlowId(victim), into: FlowId(id) });
        }
    }

    /// Least gain of a swap, from the average of what an entry carries.
    fn gain_min(&self, p: &Pool) -> f32 {
        self.settings.slack * (p.carried / f64::from(p.used.max(1))).max(0.0) as f32
    }

    fn pays(&self, now: Nanos, newcomer: &Flow, victim: &Flow, gain_min: f32) -> bool {
        let s = &self.settings;
        let has = newcomer.rate.at_least() * newcomer.weight;
        let loses = victim.rate.at_most() * victim.weight;
        // A flow that was never moved may enter at once, however young it is.
        let came = if newcomer.born < newcomer.since { newcomer.since } else { Nanos::ZERO };
        let staying = now.saturating_sub(came.max(victim.since)) < s.stay_min;
        if staying && has < 4.0 * loses {
            return false;
        }
        let horizon = now.saturating_sub(newcomer.born).clamp(s.horizon_min, s.horizon_max);
        let cost = s.move_cost / (horizon.0 as f32 * 1e-9);
        has > loses * (1.0 + s.margin) && has - loses > gain_min.max(cost)
    }

    fn start(&mut self, id: u32, place: Place) {
        self.unlist(id);
        self.flows.0[id as usize].place = place;
    }
}

/// Goes through lists while flows are taken out behind it.
struct Walk {
    class: u8,
    /// What comes next in this class, if the class has begun.
    next: Option<u32>,
}

impl Walk {
    fn down() -> Walk {
        Walk { class: 127, next: None }
    }

    /// From the highest class to the lowest.
    fn next(&mut self, lists: &Lists, flows: &Slab) -> Option<u32> {
        loop {
            match self.next {
                Some(NONE) => {
                    self.class = lists.highest_below(self.class)?;
                    self.next = Some(lists.head(self.class));
                }
                None => {
                    self.next = Some(lists.head(self.class));
                }
                Some(id) => {
                    self.next = Some(flows.0[id as usize].links.next);
                    return Some(id);
                }
            }
        }
    }
}

/// The flows in hardware from the least on, a few at a time.
#[derive(Default)]
struct Victims {
    window: Vec<u32>,
    class: Option<u8>,
    next: Option<u32>,
}

impl Victims {
    fn fill(&mut self, lists: &Lists, flows: &Slab) {
        while self.window.len() < VICTIMS {
            match self.next {
                Some(id) if id != NONE => {
                    self.next = Some(flows.0[id as usize].links.next);
                    self.window.push(id);
                }
                _ => {
                    let Some(class) = lists.lowest_from(self.class.map_or(0, |c| c + 1)) else { return };
                    self.class = Some(class);
                    self.next = Some(lists.head(class));
                }
            }
        }
    }

    fn lowest(&mut self, lists: &Lists, flows: &Slab) -> Option<u32> {
        self.fill(lists, flows);
        self.window.first().copied()
    }

    /// Takes out the first that will do.
    fn find(&mut self, lists: &Lists, flows: &Slab, will_do: impl Fn(u32) -> bool) -> Option<u32> {
        self.fill(lists, flows);
        let at = self.window.iter().position(|v| will_do(*v))?;
        Some(self.window.remove(at))
    }
}
