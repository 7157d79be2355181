//! A batch through lookup and execution.
//!
//! Reads: keys, flows. Writes: statistics, transmit buffers. Next: the work list, then the flush.
//! Packets run in the order in which they came, misses after hits: of one flow, either all packets
//! of a batch hit or all miss. Cost: 40 to 60 cycles a packet with what precedes.

use fv_packet::{BATCH_MAX, Batch, Csum, Packet};

use super::Worker;
use super::adapt::Plan;
use super::stats::Stat;
use crate::exec::Shape;
use crate::lookup::{Ask, BURST, Burst, CacheUse, Found, NONE, Probe, Tally};
use crate::parse;

const _: () = assert!(BURST == BATCH_MAX);

/// Packets whose headers are asked for ahead of the one that is looked at.
const AHEAD: usize = 8;

/// The batch in hand.
pub struct Scratch {
    /// Empty between batches.
    pub(super) batch: Batch,
    probes: [Probe; BATCH_MAX],
    hashes: [u64; BATCH_MAX],
    /// Indices of the flows that they hit.
    found: [u32; BATCH_MAX],
    lens: [u32; BATCH_MAX],
    /// Packets that an output cannot take as they are.
    special: u32,
    missed: Batch,
    missed_at: [u8; BATCH_MAX],
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch {
            batch: Batch::new(),
            probes: [Probe::default(); BATCH_MAX],
            hashes: [0; BATCH_MAX],
            found: [NONE; BATCH_MAX],
            lens: [0; BATCH_MAX],
            special: 0,
            missed: Batch::new(),
            missed_at: [0; BATCH_MAX],
        }
    }
}

impl Scratch {
    /// Fills in the probes of the batch.
    pub(super) fn parse(&mut self, vlan_limit: u8) {
        self.special = 0;
        for i in 0..self.batch.len() {
            if let Some(next) = self.batch.get(i + AHEAD) {
                next.prefetch();
            }
            let packet = &mut self.batch[i];
            let probe = &mut self.probes[i];
            probe.blocks = parse::extract_into(packet, vlan_limit, &mut probe.key, probe.blocks);
            self.lens[i] = packet.len() as u32;
            let meta = packet.meta();
            let work = meta.trunc_len != 0
                || meta.csum == Csum::Partial
                || meta.ip_csum == Csum::Partial
                || meta.gso.is_some();
            self.special |= u32::from(work) << i;
        }
    }

    /// One flow, if all packets hit it.
    #[inline]
    fn one_flow(&self, n: usize) -> Option<u32> {
        let first = self.found[0];
        let differ = self.found[..n].iter().fold(0, |d, f| d | (f ^ first));
        (differ == 0 && first != NONE).then_some(first)
    }
}

impl Worker {
    /// Runs the scratch's batch, whose packets have been `depth` times recirculated. Probes are
    /// filled in.
    pub(super) fn process(&mut self, depth: u8, queue: Option<usize>) {
        let n = self.scratch.batch.len();
        if n == 0 {
            return;
        }
        self.look_up(n, queue);
        match self.scratch.one_flow(n) {
            Some(flow) => self.run_one_flow(n, flow, depth),
            None => self.run_mixed(n, depth, queue),
        }
    }

    fn look_up(&mut self, n: usize, queue: Option<usize>) {
        let s = &mut *self.scratch;
        let port = s.probes[0].key.base.in_port;
        let wanted = self.table.cache_use();
        let terrain = self.table.terrain(port);
        let mut queue = queue.and_then(|q| self.queues.get_mut(q));
        let plan = match &mut queue {
            Some(q) => q.adapt.plan(wanted, terrain, &q.stats.cache),
            None if terrain.cheap || wanted == CacheUse::Inverse(0) => Plan { ask: Ask::Nothing, time: false },
            None => Plan { ask: Ask::Remember, time: false },
        };
        let start = if plan.time { (self.ticks)() } else { 0 };
        let burst = Burst { probes: &s.probes[..n], hashes: &mut s.hashes, hashed: 0, found: &mut s.found[..n] };
        let tally = self.table.lookup_all(burst, plan.ask);
        let cost = if plan.time { (self.ticks)().wrapping_sub(start) * 16 / n as u64 } else { 0 };
        let (room, small) = self.table.cache_size();
        if let Some(q) = queue {
            let grown = room > self.cache_room;
            q.adapt.done(n as u64, tally.cache, u32::try_from(cost).unwrap_or(u32::MAX), grown, &q.stats.cache);
        }
        self.cache_room = room;
        count_tally(&self.env.stats, tally, small && wanted != CacheUse::Always);
    }

    /// All packets of one flow: counted at once.
    fn run_one_flow(&mut self, n: usize, flow: u32, depth: u8) {
        let s = &mut *self.scratch;
        let Some(entry) = self.table.entry(flow) else { return s.batch.clear() };
        self.pressed |= n == BATCH_MAX;
        let (mut bytes, mut tcp_flags) = (0, 0);
        for i in 0..n {
            bytes += u64::from(s.lens[i]);
            tcp_flags |= s.probes[i].key.base.tcp_flags.get();
        }
        entry.flow.count(&entry.slot, n as u64, bytes, self.env.now, tcp_flags);
        if let Shape::Output(port) = entry.shape
            && s.special == 0
        {
            return self.env.output_all(&mut s.batch, port);
        }
        for packet in s.batch.drain() {
            self.env.run(packet, entry.shape, &entry.code, depth);
        }
    }

    /// Packets of several flows, counted one by one; those without a flow go to the control plane.
    fn run_mixed(&mut self, n: usize, depth: u8, queue: Option<usize>) {
        let s = &mut *self.scratch;
        let mut shapes = [Shape::Actions; BATCH_MAX];
        let mut other = s.special != 0;
        for i in 0..n {
            let Some(entry) = self.table.entry(s.found[i]) else {
                other = true;
                continue;
            };
            let tcp_flags = s.probes[i].key.base.tcp_flags.get();
            entry.flow.count(&entry.slot, 1, s.lens[i].into(), self.env.now, tcp_flags);
            shapes[i] = entry.shape;
            other |= shapes[i] != shapes[0];
        }
        if let Shape::Output(port) = shapes[0]
            && !other
        {
            self.pressed |= n == BATCH_MAX;
            return self.env.output_all(&mut s.batch, port);
        }
        for (i, packet) in s.batch.drain().enumerate() {
            match self.table.entry(s.found[i]) {
                Some(entry) => self.env.run(packet, entry.shape, &entry.code, depth),
                None => {
                    s.missed_at[s.missed.len()] = i as u8;
                    // There is room: as many misses as packets.
                    let _ = s.missed.push(packet);
                }
            }
        }
        let missed = s.missed.len();
        self.pressed |= n == BATCH_MAX && missed < n / 2;
        if missed != 0 {
            self.run_missed(depth, queue);
        }
    }

    #[cold]
    fn run_missed(&mut self, depth: u8, queue: Option<usize>) {
        let mut missed = self.scratch.missed.take();
        let changes = self.table.changes();
        for (m, packet) in missed.drain().enumerate() {
            let probe = self.scratch.probes[usize::from(self.scratch.missed_at[m])];
            self.miss(packet, &probe, depth, queue, changes);
        }
    }

    /// Works off the recirculations, a batch of one depth at a time.
    pub(super) fn finish_work(&mut self, queue: Option<usize>) {
        while let Some(job) = self.env.work.pop(None) {
            let depth = job.depth;
            self.load(job.packet);
            while !self.scratch.batch.is_full()
                && let Some(job) = self.env.work.pop(Some(depth))
            {
                self.load(job.packet);
            }
            self.scratch.parse(self.env.vlan_limit);
            self.process(depth, queue);
        }
    }

    fn load(&mut self, packet: Packet) {
        // Batches are loaded when they are empty, and no further than full.
        let _ = self.scratch.batch.push(packet);
    }
}

fn count_tally(stats: &super::WorkerStats, tally: Tally, small: bool) {
    let hits = if small { Stat::CacheHit } else { Stat::BigCacheHit };
    for (stat, n) in [
        (Stat::SimpleHit, tally.simple),
        (hits, tally.cache),
        (Stat::SubtableHit, tally.subtable),
        (Stat::SubtableLookups, tally.tried),
    ] {
        if n != 0 {
            stats.add(stat, n);
        }
    }
}

/// Counts a lookup that was made alone.
pub(super) fn count_found(stats: &super::WorkerStats, found: Found) {
    match found {
        Found::Subtable(_, tried) => {
            stats.add(Stat::SubtableHit, 1);
            stats.add(Stat::SubtableLookups, tried.into());
        }
        Found::Miss(_) => stats.add(Stat::Missed, 1),
    }
}
