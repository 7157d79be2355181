//! Misses: asking the control plane, installing what it says, and waiting when there are too many.
//!
//! Reads: the packet, its key. Writes: the registry, the worker's table, the queue's waiting list.
//! Cost: the upcall.

use std::sync::Arc;

use fv_core::Ufid;
use fv_dpif::{DropReason, Program, Verdict};
use fv_flow::{DpKey, DpMask};
use fv_packet::Packet;

use super::Worker;
use super::process::count_found;
use super::rxq::{WAITING_MAX, Waiting};
use super::stats::Stat;
use crate::assign::WorkerKind;
use crate::flow::Flow;
use crate::lookup::dpcls::Mask;
use crate::lookup::{Found, Probe, State};
use crate::trace;

impl Worker {
    /// A packet that no flow covered when its batch was looked up.
    /// Flows have been put since, if the table's changes are not `changes`.
    pub(super) fn miss(&mut self, packet: Packet, probe: &Probe, depth: u8, queue: Option<usize>, changes: u64) {
        // An earlier miss of the batch may have brought the flow.
        let packet = match self.table.changes() == changes {
            true => packet,
            false => match self.try_hit(packet, probe, depth) {
                Some(packet) => packet,
                None => return,
            },
        };
        if !self.may_ask(queue) {
            return self.defer(packet, probe, depth, queue);
        }
        self.ask(packet, probe, depth, queue);
    }

    /// Runs the packet if a flow covers it now, else gives it back.
    fn try_hit(&mut self, packet: Packet, probe: &Probe, depth: u8) -> Option<Packet> {
        let found = self.table.lookup(probe);
        let Some(entry) = found.index().and_then(|index| self.table.entry_mut(index)) else { return Some(packet) };
        count_found(&self.env.stats, found);
        if entry.state() == State::Changed {
            entry.refresh();
        }
        let tcp_flags = probe.key.base.tcp_flags.get();
        entry.flow.count(&entry.slot, 1, packet.len() as u64, self.env.now, tcp_flags);
        self.env.run(packet, entry.shape, &entry.code, depth);
        None
    }

    /// The control thread asks at once; others as long as the queue's budget lasts and nobody waits.
    fn may_ask(&mut self, queue: Option<usize>) -> bool {
        let Some(queue) = queue.and_then(|q| self.queues.get_mut(q)) else { return true };
        if self.handle.kind == WorkerKind::Main {
            return true;
        }
        queue.budget.has_some() && queue.waiting.is_empty()
    }

    fn defer(&mut self, packet: Packet, probe: &Probe, depth: u8, queue: Option<usize>) {
        let Some(queue) = queue.and_then(|q| self.queues.get_mut(q)) else { return };
        if queue.waiting.len() < WAITING_MAX {
            queue.waiting.push_back(Waiting { packet, probe: *probe, depth });
            self.env.stats.add(Stat::Deferred, 1);
            return;
        }
        queue.stats.overflowed();
        self.lost(packet, DropReason::UpcallQueueFull);
    }

    fn lost(&mut self, packet: Packet, reason: DropReason) {
        count_found(&self.env.stats, Found::Miss(0));
        self.env.stats.add(Stat::Lost, 1);
        self.env.drop(packet, reason);
    }

    /// Serves a queue's waiting misses in order, as far as its budget goes.
    pub(super) fn serve_waiting(&mut self, q: usize) {
        while self.queues[q].budget.has_some()
            && let Some(w) = self.queues[q].waiting.pop_front()
        {
            if let Some(packet) = self.try_hit(w.packet, &w.probe, w.depth) {
                self.ask(packet, &w.probe, w.depth, Some(q));
            }
            self.finish_work(Some(q));
        }
    }

    /// The upcall, with all that it leads to.
    fn ask(&mut self, packet: Packet, probe: &Probe, depth: u8, queue: Option<usize>) {
        let start = (self.ticks)();
        self.answer(packet, probe, depth);
        let spent = (self.ticks)().wrapping_sub(start);
        self.env.stats.add(Stat::UpcallTicks, spent);
        if let Some(queue) = queue.and_then(|q| self.queues.get_mut(q)) {
            queue.budget.spend(spent);
        }
    }

    fn answer(&mut self, packet: Packet, probe: &Probe, depth: u8) {
        let Some(handler) = self.env.handler.clone() else { return self.lost(packet, DropReason::UpcallError) };
        trace::miss(&self.shared.name, &packet, &probe.key);
        match handler.miss(self.handle.id, self.env.now, &packet, &probe.key) {
            Verdict::Drop(reason) => self.lost(packet, reason),
            Verdict::Forward { program, install: false, .. } => {
                count_found(&self.env.stats, Found::Miss(0));
                self.env.run_program(packet, &program, depth);
            }
            Verdict::Forward { program, mask, install: true } => {
                count_found(&self.env.stats, Found::Miss(0));
                let Some(mask) = self.table.admit(&probe.key, &mask) else {
                    // The port has its share of flows: this packet is forwarded, the next asks again.
                    handler.installed(self.handle.id, Ufid::default(), &probe.key, false);
                    self.env.stats.add(Stat::Refused, 1);
                    return self.env.run_program(packet, &program, depth);
                };
                let (flow, new) = self.install(&probe.key, &mask, program.clone());
                handler.installed(self.handle.id, flow.ufid, &probe.key, new);
                self.env.run_program(packet, &program, depth);
                self.release(&flow);
            }
        }
    }

    /// Puts a flow, or finds the one that another worker was faster to put.
    fn install(&mut self, key: &DpKey, mask: &DpMask, program: Arc<Program>) -> (Arc<Flow>, bool) {
        let flow = Flow::new(key, mask, None, program, Some(self.handle.id));
        let (flow, new) = match self.shared.registry.insert(flow.clone()) {
            Ok(()) => {
                trace::flow_added(&flow);
                (flow, true)
            }
            Err(there) => (there, false),
        };
        // Only a flow that covers this packet: one that merely has the same ufid may not.
        if flow.covers(key) {
            self.table.insert(&flow, self.handle.id);
        }
        (flow, new)
    }

    /// Takes over a flow that control put.
    pub(super) fn learn(&mut self, flow: &Arc<Flow>) {
        if !flow.is_dead() {
            self.table.insert(flow, self.handle.id);
            self.release(flow);
        }
    }

    /// Runs the waiting packets of a flow that there is now, before any later packet can overtake them.
    fn release(&mut self, flow: &Flow) {
        let mut like = None;
        for q in 0..self.queues.len() {
            if self.queues[q].waiting.is_empty() {
                continue;
            }
            let (mask, value) = like.get_or_insert_with(|| (Mask::new(&flow.mask()), flow.key()));
            let freed = self.queues[q].take_waiting(|probe| mask.matches(probe.key.words(), value.words()));
            for w in freed {
                if let Some(packet) = self.try_hit(w.packet, &w.probe, w.depth) {
                    self.defer(packet, &w.probe, w.depth, Some(q));
                }
            }
        }
    }
}
