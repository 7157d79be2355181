//! [`Flow`]: the shared object that the registry owns and the workers' structures point to.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use fv_core::{Nanos, Ufid};
use fv_dpif::{FlowDump, FlowHandle, FlowStats, Program, WorkerId};
use fv_flow::key::{Base, eth, ipproto};
use fv_flow::{DpKey, DpMask, Packed};
use parking_lot::Mutex;

use crate::exec::Code;
use crate::hash::FlowNames;

/// Set in a flow's state word once it is deleted; the other bits count program changes.
const DEAD: u32 = 1;
/// No worker has taken the flow's own slot yet.
const NOBODY: i32 = i32::MIN;

/// Statistics of one flow on one worker. One writer, any reader: plain loads and stores.
#[derive(Default, Debug)]
pub struct Slot {
    packets: AtomicU64,
    bytes: AtomicU64,
    /// Nanoseconds; 0 is never.
    used: AtomicU64,
    tcp_flags: AtomicU32,
}

impl Slot {
    #[inline]
    pub fn add(&self, packets: u64, bytes: u64, now: Nanos, tcp_flags: u16) {
        use Ordering::Relaxed;
        self.packets.store(self.packets.load(Relaxed).wrapping_add(packets), Relaxed);
        self.bytes.store(self.bytes.load(Relaxed).wrapping_add(bytes), Relaxed);
        self.used.store(now.0, Relaxed);
        let flags = self.tcp_flags.load(Relaxed);
        if flags | u32::from(tcp_flags) != flags {
            self.tcp_flags.store(flags | u32::from(tcp_flags), Relaxed);
        }
    }

    fn add_to(&self, sum: &mut FlowStats) {
        use Ordering::Relaxed;
        sum.packets = sum.packets.wrapping_add(self.packets.load(Relaxed));
        sum.bytes = sum.bytes.wrapping_add(self.bytes.load(Relaxed));
        sum.tcp_flags |= self.tcp_flags.load(Relaxed) as u16;
        let used = self.used.load(Relaxed);
        if used != 0 {
            sum.used = sum.used.max(Some(Nanos(used)));
        }
    }
}

/// Where a worker counts a flow: in the flow itself for the first worker that has it, else beside.
#[derive(Clone, Debug)]
pub enum SlotRef {
    Own,
    Extra(Arc<Slot>),
}

/// A megaflow. Everything but state, program and statistics is fixed at birth. What a hit touches,
/// the state and the first worker's slot, is in the first line. Key and mask are packed: there may be
/// millions of flows, and workers have of theirs what packets are compared with.
#[repr(C, align(64))]
pub struct Flow {
    state: AtomicU32,
    owner: AtomicI32,
    own: Slot,
    /// Some of its packets may be TCP.
    pub tcp: bool,
    pub ufid: Ufid,
    /// Equal for two flows exactly if masked key and mask are.
    pub megaflow: u128,
    /// As it was put: a packet's full key.
    key: Packed,
    mask: Packed,
    pub in_port: u32,
    /// Under whose header the flow is listed.
    pub worker: WorkerId,
    /// Put for every worker, not found by one.
    pub everywhere: bool,
    /// With the first line, all that a round over all flows touches.
    code: ArcSwap<Code>,
    extra: Mutex<Option<Box<Extras>>>,
}

fn may_be_tcp(key: &Base, mask: &Base) -> bool {
    let ip = matches!(key.dl_type.get(), eth::IP | eth::IPV6);
    mask.dl_type.get() != u16::MAX || ip && (mask.nw_proto != u8::MAX || key.nw_proto == ipproto::TCP)
}

/// What other workers than the first count.
type Extras = Vec<(WorkerId, Arc<Slot>)>;

impl Flow {
    pub fn new(
        key: &DpKey,
        mask: &DpMask,
        ufid: Option<Ufid>,
        program: Arc<Program>,
        worker: Option<WorkerId>,
    ) -> Arc<Flow> {
        let names = FlowNames::process();
        let mut mask = *mask;
        mask.0.base.in_port = u32::MAX;
        mask.0.base.recirc_id = u32::MAX;
        let masked = mask.apply(key);
        Arc::new(Flow {
            state: AtomicU32::new(0),
            owner: AtomicI32::new(NOBODY),
            own: Slot::default(),
            tcp: may_be_tcp(&key.base, &mask.0.base),
            ufid: ufid.unwrap_or_else(|| names.ufid(key, &mask)),
            megaflow: names.megaflow(&masked, &mask),
            key: Packed::new(key),
            mask: Packed::from(&mask),
            in_port: key.base.in_port,
            worker: worker.unwrap_or(WorkerId::MAIN),
            everywhere: worker.is_none(),
            code: ArcSwap::new(Code::compile(program)),
            extra: Mutex::new(None),
        })
    }

    pub fn key(&self) -> DpKey {
        self.key.key()
    }

    pub fn mask(&self) -> DpMask {
        self.mask.mask()
    }

    /// Whether packets of this key are the flow's.
    pub fn covers(&self, key: &DpKey) -> bool {
        self.mask().equal(&self.key(), key)
    }

    /// Changes whenever the program does; None once the flow is dead.
    #[inline]
    pub fn version(&self) -> Option<u32> {
        let state = self.state.load(Ordering::Acquire);
        (state & DEAD == 0).then_some(state)
    }

    pub fn is_dead(&self) -> bool {
        self.version().is_none()
    }

    /// No packet that is looked up afterwards gets this flow.
    pub fn kill(&self) {
        self.state.fetch_or(DEAD, Ordering::AcqRel);
    }

    /// The compiled program; a worker keeps it until [`Flow::version`] changes.
    pub fn code(&self) -> Arc<Code> {
        self.code.load_full()
    }

    pub fn set_program(&self, program: Arc<Program>) {
        self.code.store(Code::compile(program));
        self.state.fetch_add(2, Ordering::AcqRel);
    }

    /// The slot in which `worker` counts. Only one live worker has an id, so each slot has one writer.
    pub fn slot_of(&self, worker: WorkerId) -> SlotRef {
        let owner = self.owner.compare_exchange(NOBODY, worker.0, Ordering::AcqRel, Ordering::Acquire);
        if owner.is_ok() || owner == Err(worker.0) {
            return SlotRef::Own;
        }
        let mut extra = self.extra.lock();
        let extra = extra.get_or_insert_default();
        if let Some((_, slot)) = extra.iter().find(|(w, _)| *w == worker) {
            return SlotRef::Extra(slot.clone());
        }
        let slot = Arc::new(Slot::default());
        extra.push((worker, slot.clone()));
        SlotRef::Extra(slot)
    }

    #[inline]
    pub fn count(&self, slot: &SlotRef, packets: u64, bytes: u64, now: Nanos, tcp_flags: u16) {
        match slot {
            SlotRef::Own => self.own.add(packets, bytes, now, tcp_flags),
            SlotRef::Extra(slot) => slot.add(packets, bytes, now, tcp_flags),
        }
    }

    /// Over all workers.
    pub fn stats(&self) -> FlowStats {
        let mut sum = FlowStats::default();
        self.own.add_to(&mut sum);
        for (_, slot) in self.extra.lock().iter().flat_map(|e| e.iter()) {
            slot.add_to(&mut sum);
        }
        sum
    }

    pub fn dump(&self) -> FlowDump {
        FlowDump {
            ufid: self.ufid,
            key: self.key(),
            mask: self.mask(),
            program: self.code.load().source.clone(),
            stats: self.stats(),
            worker: self.worker,
            offloaded: false,
            layer: "ovs",
        }
    }
}

impl FlowHandle for Flow {
    fn stats(&self) -> FlowStats {
        Flow::stats(self)
    }
}

impl std::fmt::Debug for Flow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Flow({}{})", self.ufid, if self.is_dead() { ", dead" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_count_apart_and_sum_up() {
        let flow = Flow::new(&DpKey::default(), &DpMask::default(), None, Arc::default(), Some(WorkerId(3)));
        let (a, b) = (flow.slot_of(WorkerId(3)), flow.slot_of(WorkerId(4)));
        assert!(matches!(a, SlotRef::Own) && matches!(flow.slot_of(WorkerId(3)), SlotRef::Own));
        assert_eq!(flow.stats().used, None);
        flow.count(&a, 2, 120, Nanos(50), 2);
        flow.count(&b, 1, 60, Nanos(40), 16);
        flow.count(&flow.slot_of(WorkerId(4)), 1, 60, Nanos(45), 0);
        assert_eq!(flow.stats(), FlowStats { packets: 4, bytes: 240, used: Some(Nanos(50)), tcp_flags: 18 });
    }

    #[test]
    fn programs_and_death_show_in_the_version() {
        let flow = Flow::new(&DpKey::default(), &DpMask::default(), None, Arc::default(), None);
        let v = flow.version();
        flow.set_program(Arc::default());
        assert_ne!(flow.version(), v);
        flow.kill();
        flow.set_program(Arc::default());
        assert_eq!(flow.version(), None);
    }
}
