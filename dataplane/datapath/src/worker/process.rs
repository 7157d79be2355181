//! A batch through lookup, grouping and execution.
//!
//! Reads: keys, flows. Writes: statistics, transmit buffers. Next: the work list, then the flush.
//! Packets of one flow keep their order: hits of a batch run flow by flow, then its misses in order.

use fv_packet::{BATCH_MAX, Packet};

use super::Worker;
use super::stats::Stat;
use crate::lookup::{Found, NONE, Probe};
use crate::parse;

/// The batch in hand.
pub struct Scratch {
    slots: [Option<Packet>; BATCH_MAX],
    probes: [Probe; BATCH_MAX],
    /// Indices of the flows that they hit.
    found: [u32; BATCH_MAX],
    /// The next packet of the same flow.
    next: [u8; BATCH_MAX],
    groups: [Group; BATCH_MAX],
    missed: [u8; BATCH_MAX],
    /// Number of the batch, which tells a flow's group of this batch from one of before.
    batch: u64,
}

/// Packets of a batch that share a flow.
#[derive(Clone, Copy, Default)]
struct Group {
    flow: u32,
    first: u8,
    last: u8,
    packets: u8,
    tcp_flags: u16,
    bytes: u64,
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch {
            slots: [const { None }; BATCH_MAX],
            probes: [Probe::default(); BATCH_MAX],
            found: [NONE; BATCH_MAX],
            next: [0; BATCH_MAX],
            groups: [Group::default(); BATCH_MAX],
            missed: [0; BATCH_MAX],
            batch: 0,
        }
    }
}

impl Scratch {
    /// Makes `packet` the `i`-th of the batch.
    #[inline]
    pub(super) fn load(&mut self, i: usize, mut packet: Packet, vlan_limit: u8) {
        let probe = &mut self.probes[i];
        probe.blocks = parse::extract_into(&mut packet, vlan_limit, &mut probe.key, probe.blocks);
        self.slots[i] = Some(packet);
    }
}

impl Worker {
    /// Runs the first `n` packets of the scratch, which have been `depth` times recirculated.
    pub(super) fn process(&mut self, n: usize, depth: u8, queue: Option<usize>) {
        let (groups, missed) = self.group(n);
        for g in 0..groups {
            let group = self.scratch.groups[g];
            let Some(entry) = self.table.entry(group.flow) else { continue };
            let (packets, bytes) = (group.packets.into(), group.bytes);
            entry.flow.count(&entry.slot, packets, bytes, self.env.now, group.tcp_flags);
            let mut i = group.first;
            loop {
                if let Some(packet) = self.scratch.slots[usize::from(i)].take() {
                    self.env.run(packet, entry.shape, &entry.code, depth);
                }
                if i == group.last {
                    break;
                }
                i = self.scratch.next[usize::from(i)];
            }
        }
        for m in 0..missed {
            let i = usize::from(self.scratch.missed[m]);
            if let Some(packet) = self.scratch.slots[i].take() {
                let probe = self.scratch.probes[i];
                self.miss(packet, &probe, depth, queue);
            }
        }
    }

    /// Looks up and groups; returns how many groups and how many misses there are.
    fn group(&mut self, n: usize) -> (usize, usize) {
        let s = &mut *self.scratch;
        s.batch += 1;
        let (mut groups, mut missed) = (0, 0);
        let tally = self.table.lookup_burst(&s.probes[..n], &mut s.found[..n]);
        for i in 0..n {
            let index = s.found[i];
            let Some(entry) = self.table.entry_mut(index) else {
                s.missed[missed] = i as u8;
                missed += 1;
                continue;
            };
            let bytes = s.slots[i].as_ref().map_or(0, |p| p.len() as u64);
            let tcp_flags = s.probes[i].key.base.tcp_flags.get();
            if entry.batch == s.batch {
                let group = &mut s.groups[usize::from(entry.group)];
                s.next[usize::from(group.last)] = i as u8;
                group.last = i as u8;
                group.packets += 1;
                group.bytes += bytes;
                group.tcp_flags |= tcp_flags;
            } else {
                entry.batch = s.batch;
                entry.group = groups as u8;
                entry.refresh();
                let i = i as u8;
                s.groups[groups] = Group { flow: index, first: i, last: i, packets: 1, tcp_flags, bytes };
                groups += 1;
            }
        }
        self.env.stats.add(Stat::CacheHit, tally.cache);
        self.env.stats.add(Stat::SubtableHit, tally.subtable);
        self.env.stats.add(Stat::SubtableLookups, tally.tried);
        (groups, missed)
    }

    /// Works off the recirculations, a batch of one depth at a time.
    pub(super) fn finish_work(&mut self, queue: Option<usize>) {
        while let Some(job) = self.env.work.pop(None) {
            let depth = job.depth;
            self.scratch.load(0, job.packet, self.env.vlan_limit);
            let mut n = 1;
            while n < BATCH_MAX
                && let Some(job) = self.env.work.pop(Some(depth))
            {
                self.scratch.load(n, job.packet, self.env.vlan_limit);
                n += 1;
            }
            self.process(n, depth, queue);
        }
    }
}

/// Counts a lookup by what answered it.
pub(super) fn count_found(stats: &super::WorkerStats, found: Found) {
    match found {
        Found::Cache(_) => stats.add(Stat::CacheHit, 1),
        Found::Subtable(_, tried) => {
            stats.add(Stat::SubtableHit, 1);
            stats.add(Stat::SubtableLookups, tried.into());
        }
        Found::Miss(_) => stats.add(Stat::Missed, 1),
    }
}
