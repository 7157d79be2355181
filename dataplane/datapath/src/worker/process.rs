//! A batch through lookup and execution.
//!
//! Reads: keys, flows. Writes: statistics, transmit buffers. Next: the work list, then the flush.
//! Packets run in the order in which they came, misses after hits: of one flow, either all packets
//! of a batch hit or all miss. Cost: 40 to 60 cycles a packet with what precedes.

use fv_core::DpPort;
use fv_flow::extract::{Extra, extract_into};
use fv_packet::{BATCH_MAX, Batch, Packet};

use super::Worker;
use super::adapt::Plan;
use super::stats::Stat;
use crate::exec::Shape;
use crate::lookup::{Ask, BURST, Burst, CacheUse, Found, NONE, Probe, Tally};

const _: () = assert!(BURST == BATCH_MAX);

/// Packets whose headers are asked for ahead of the one that is looked at.
const AHEAD: usize = 8;

/// The batch in hand.
pub struct Scratch {
    /// Empty between batches.
    pub(super) batch: Batch,
    probes: [Probe; BATCH_MAX],
    /// Of the keys, as far as `hashed` says so.
    hashes: [u64; BATCH_MAX],
    hashed: u32,
    /// Indices of the flows that they hit.
    found: [u32; BATCH_MAX],
    lens: [u32; BATCH_MAX],
    /// Packets that an output cannot take as they are.
    special: u32,
    /// Of all packets.
    bytes: u64,
    tcp_flags: u16,
    missed: Batch,
    missed_at: [u8; BATCH_MAX],
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch {
            batch: Batch::new(),
            probes: [Probe::default(); BATCH_MAX],
            hashes: [0; BATCH_MAX],
            hashed: 0,
            found: [NONE; BATCH_MAX],
            lens: [0; BATCH_MAX],
            special: 0,
            bytes: 0,
            tcp_flags: 0,
            missed: Batch::new(),
            missed_at: [0; BATCH_MAX],
        }
    }
}

impl Scratch {
    /// Fills in the probes of the batch, which has come in by `port` or been there before. Says how
    /// long the shortest packet is.
    pub(super) fn parse(&mut self, vlan_limit: u8, port: Option<DpPort>) -> usize {
        let extra = Extra { vlan_limit, ..Extra::default() };
        let packets = &mut self.batch[..];
        let n = packets.len();
        let (probes, lens) = (&mut self.probes[..n], &mut self.lens[..n]);
        for i in 0..n {
            if let Some(next) = packets.get(i + AHEAD) {
                next.prefetch();
            }
            let probe = &mut probes[i];
            probe.blocks = extract_into(&mut packets[i], &extra, &mut probe.key, probe.blocks);
        }
        // A loop of its own: one of both would not do with the registers.
        let (mut special, mut shortest, mut flags, mut bytes) = (0, usize::MAX, 0, 0);
        for i in 0..n {
            let (packet, probe) = (&mut packets[i], &mut probes[i]);
            if let Some(port) = port {
                probe.key.base.in_port = port.0;
                packet.meta_mut().in_port = port.0;
            }
            let len = packet.len();
            lens[i] = len as u32;
            shortest = shortest.min(len);
            bytes += len as u64;
            flags |= u16::from_ne_bytes(probe.key.base.tcp_flags.to_bytes());
            special |= u32::from(!packet.meta().is_ready()) << i;
        }
        self.hashed = 0;
        (self.special, self.bytes, self.tcp_flags) = (special, bytes, u16::from_be_bytes(flags.to_ne_bytes()));
        shortest
    }

    /// Takes over the hashes that parsed packets have from the pass before.
    fn rehash(&mut self) {
        for (i, (packet, probe)) in self.batch.iter().zip(&self.probes).enumerate() {
            let before = packet.meta().flow_hash;
            if before != 0 {
                self.hashes[i] = probe.hash_again(before);
                self.hashed |= 1 << i;
            }
        }
    }

    /// The flow that a packet of the last batch hit, or [`NONE`].
    pub(super) fn found(&self, i: usize) -> u32 {
        self.found[i]
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
        let burst =
            Burst { probes: &s.probes[..n], hashes: &mut s.hashes, hashed: &mut s.hashed, found: &mut s.found[..n] };
        let tally = self.table.lookup_all(burst, plan.ask);
        let cost = if plan.time { (self.ticks)().wrapping_sub(start) * 16 / n as u64 } else { 0 };
        let (small, settled) = self.table.cache_size();
        if let Some(q) = queue {
            q.adapt.done(n as u64, tally.cache, u32::try_from(cost).unwrap_or(u32::MAX), settled, &q.stats.cache);
        }
        count_tally(&self.env.stats, tally, small && wanted != CacheUse::Always);
    }

    /// All packets of one flow: counted at once.
    fn run_one_flow(&mut self, n: usize, flow: u32, depth: u8) {
        let s = &mut *self.scratch;
        let Some(entry) = self.table.entry(flow) else { return s.batch.clear() };
        self.pressed |= n == BATCH_MAX;
        entry.flow.count(&entry.slot, n as u64, s.bytes, self.env.now, s.tcp_flags);
        if let Shape::Output(port) = entry.shape
            && s.special == 0
        {
            return self.env.output_all(&mut s.batch, port);
        }
        if entry.code.again {
            for (i, packet) in s.batch.iter_mut().enumerate() {
                packet.meta_mut().flow_hash = kept(&s.hashes, s.hashed, i);
            }
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
        for (i, mut packet) in s.batch.drain().enumerate() {
            match self.table.entry(s.found[i]) {
                Some(entry) => {
                    if entry.shape == Shape::Actions && entry.code.again {
                        packet.meta_mut().flow_hash = kept(&s.hashes, s.hashed, i);
                    }
                    self.env.run(packet, entry.shape, &entry.code, depth);
                }
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
            self.scratch.parse(self.env.vlan_limit, None);
            self.scratch.rehash();
            self.process(depth, queue);
        }
    }

    fn load(&mut self, packet: Packet) {
        // Batches are loaded when they are empty, and no further than full.
        let _ = self.scratch.batch.push(packet);
    }
}

/// The hash that packet `i` keeps for its next pass, 0 if none was made.
fn kept(hashes: &[u64; BATCH_MAX], hashed: u32, i: usize) -> u64 {
    if hashed >> i & 1 != 0 { hashes[i] } else { 0 }
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
