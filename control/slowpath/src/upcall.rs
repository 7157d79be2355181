//! Answers to the datapath's upcalls.

use std::sync::Arc;

use fv_core::{Nanos, RecircId, Ufid};
use fv_dpif::action::{ControllerUpcall, SlowReasons};
use fv_dpif::{DpAction, DropReason, FlowStats, Program, UpcallHandler, Userspace, Verdict, WorkerId};
use fv_flow::tun_table::UnknownCritical;
use fv_flow::{DpKey, DpMask, FlowKey, FlowMask, Match, TunLayout};
use fv_ofproto::packet_in::PacketInJob;
use fv_ofproto::view::{BridgeView, View};
use fv_openflow::action::PacketInReason;
use fv_openflow::msg::packet::PacketIn;
use fv_packet::Packet;
use fv_xlate::{Credit, Effect, Input, Output, Start, XlateError};
use parking_lot::Mutex;

use crate::pull::{self, Applied};
use crate::slowpath::Slowpath;
use crate::ukey::{Ukey, UkeyState};

/// A translation whose flow is about to be installed.
pub(crate) struct Pending {
    worker: WorkerId,
    key: DpKey,
    mask: DpMask,
    state: UkeyState,
    now: Nanos,
}

/// Most translations of one worker between verdict and installation.
const MAX_PENDING: usize = 256;

pub(crate) type PendingList = Mutex<Vec<Pending>>;

/// The bridge that has the packet's port, and the pipeline's key; None if no bridge has it. The key
/// says whether the tunnel's options could be understood.
pub fn receive<'a>(view: &'a View, key: &DpKey) -> Option<(&'a BridgeView, FlowKey, Result<(), UnknownCritical>)> {
    let (bridge, port) = view.origin(key)?;
    let bridge = view.bridges.get(&bridge)?;
    let mut k = FlowKey { dp: *key, ..FlowKey::default() };
    k.dp.base.in_port = port.0;
    let understood = bridge.tun_options.receive(&mut k);
    Some((bridge, k, understood))
}

/// The mask's options in the form in which the datapath has them.
fn to_wire(bridge: &BridgeView, key: &DpKey, mask: &mut FlowMask) {
    if mask.0.pipe.tun_present != 0 {
        mask.0.dp = bridge.tun_options.mask(mask, key).0;
    }
}

/// The mask as the datapath takes it.
pub(crate) fn dp_mask(mask: &FlowMask) -> DpMask {
    with_absent_tags(own_mask(mask))
}

/// The bits that translation looked at.
pub(crate) fn own_mask(mask: &FlowMask) -> DpMask {
    let mut m = mask.dp();
    m.0.base.in_port = u32::MAX;
    m
}

/// Absent tags are always matched.
pub(crate) fn with_absent_tags(mut m: DpMask) -> DpMask {
    let tci = &mut m.0.base.vlans[0].tci;
    if tci.get() == 0 {
        *tci = 0x1fff.into();
    }
    m
}

/// What the datapath runs for a translation: the program, or the way back to us.
pub(crate) fn dp_program(out: &Output) -> Arc<Program> {
    if out.slow.is_empty() || out.error.is_some() {
        return Arc::new(out.program.clone());
    }
    Arc::new(slow_program(out.slow))
}

fn slow_program(why: SlowReasons) -> Program {
    Program::new(vec![DpAction::Userspace {
        what: Userspace::SlowPath(why),
        pid: 0,
        with_actions: false,
        tunnel_out_port: None,
    }])
}

impl Slowpath {
    /// Translates the packet with `key` as received now; `packet` None for a revalidation.
    pub(crate) fn translate(&self, view: &View, key: &DpKey, packet: Option<&Packet>, now: Nanos) -> Option<Output> {
        let (bridge, flow, understood) = receive(view, key)?;
        let frozen = match key.base.recirc_id {
            0 => None,
            id => Some(self.frozen.find(RecircId(id))?),
        };
        let freeze = |s| self.frozen.freeze(s);
        let input = Input {
            view,
            bridge: frozen.as_ref().map_or(bridge.id, |f| f.bridge),
            key: flow,
            packet,
            start: frozen.as_deref().map_or(Start::Tables, Start::Thaw),
            freeze: &freeze,
            now,
            trace: false,
            names: false,
        };
        let mut out = match understood {
            Ok(()) => fv_xlate::translate(&input),
            Err(UnknownCritical) => {
                let mut out = fv_xlate::failed(&input, XlateError::InvalidTunnelMetadata);
                // Which options there are is what decides.
                out.mask.0.pipe.tun_present = u64::MAX;
                out
            }
        };
        to_wire(bridge, key, &mut out.mask);
        Some(out)
    }

    fn one_packet(packet: &Packet, now: Nanos, key: &DpKey) -> FlowStats {
        FlowStats {
            packets: 1,
            bytes: packet.len() as u64,
            used: Some(now),
            tcp_flags: key.base.tcp_flags.get() & 0xfff,
        }
    }

    /// Applies a translation's effects and credits one packet of `len` bytes: for packets that
    /// control executes itself.
    pub fn account(&self, out: &Output, len: usize, tcp_flags: u16, now: Nanos) {
        self.effects(out, now);
        let stats = FlowStats { packets: 1, bytes: len as u64, used: Some(now), tcp_flags: tcp_flags & 0xfff };
        self.credit(&out.credits, &stats, now);
    }

    pub(crate) fn credit(&self, credits: &[Credit], stats: &FlowStats, now: Nanos) {
        for c in credits {
            if let Credit::NeighbourAgain(e) = c
                && stats.packets > 0
            {
                self.neighbour(e, now);
            }
        }
        self.follow(pull::credit(&self.patch, credits, stats, now));
    }

    /// What the packet of a translation does once. True if that changes what packets get.
    pub fn effects(&self, out: &Output, now: Nanos) -> bool {
        let mut done = Applied::default();
        for e in &out.effects {
            self.neighbour(e, now);
            done |= pull::apply(e, now);
        }
        self.follow(done);
        done.forwarding
    }

    /// A flow that a packet has just taught may make lookups look at more of the next. The flow to be installed
    /// looks at that already, or the first round would delete it.
    fn see_what_was_taught(&self, view: &View, key: &DpKey, out: &mut Output, now: Nanos) {
        let Some(next) = self.translate(view, key, None, now) else { return };
        if next.program == out.program {
            out.mask.0.words_mut().iter_mut().zip(next.mask.0.words()).for_each(|(m, n)| *m |= n);
        }
        self.release_later(next.frozen);
    }

    fn follow(&self, done: Applied) {
        if done.forwarding {
            self.model_changed();
        }
        if done.for_control {
            (self.wake_control)();
        }
        if done.for_timers {
            self.timers.kick();
        }
    }

    fn controller(&self, packet: &Packet, c: &ControllerUpcall) {
        let Some(f) = self.frozen.find(RecircId(c.recirc_id)) else {
            DropReason::UserspaceActionError.count(1);
            return;
        };
        let packet_in = PacketIn {
            packet: packet.data().to_vec(),
            total_len: packet.len() as u32,
            reason: reason_of(c.reason),
            table: f.table,
            cookie: c.rule_cookie,
            metadata: metadata_match(&f.key, self.options_of(f.bridge)),
            userdata: f.userdata.clone(),
            continuation: f.pause.then(|| Box::new(crate::resume::continuation(&f, packet.meta().in_port))),
            ..PacketIn::default()
        };
        let job = PacketInJob { bridge: f.bridge, packet_in, controller_id: c.controller_id, max_len: c.max_len };
        if self.packet_ins.push(job) {
            (self.wake_control)();
        } else {
            crate::PACKET_IN_OVERFLOW.inc();
        }
    }

    /// Where a bridge's options of tunnels are.
    fn options_of(&self, bridge: fv_ofproto::view::BridgeId) -> TunLayout {
        self.view.load().bridge(bridge).map(|b| *b.tun_options.layout()).unwrap_or_default()
    }

    /// What comes from nobody's port is dropped by one flow a port; what comes out of nobody's tunnel by one a tunnel.
    fn drop_flow(key: &DpKey) -> Verdict {
        let mut m = FlowMask::default();
        let b = &mut m.0.dp.base;
        (b.in_port, b.recirc_id, b.dl_type) = (u32::MAX, u32::MAX, u16::MAX.into());
        b.nw_frag = 3;
        if key.tun.dst != 0 || key.tun.ipv6_dst != [0; 16] {
            let t = &mut m.0.dp.tun;
            (t.id, t.src, t.dst) = (u64::MAX.into(), u32::MAX.into(), u32::MAX.into());
            (t.ipv6_src, t.ipv6_dst) = ([0xff; 16], [0xff; 16]);
        }
        Verdict::Forward { program: Arc::new(Program::default()), mask: dp_mask(&m), install: true }
    }
}

impl UpcallHandler for Slowpath {
    fn miss(&self, worker: WorkerId, now: Nanos, packet: &Packet, key: &DpKey) -> Verdict {
        crate::UPCALLS.inc();
        if self.restore_wait() {
            return Verdict::Drop(DropReason::FlowRestoreWait);
        }
        let seq = self.seq();
        let view = self.view.load();
        let Some(mut out) = self.translate(&view, key, Some(packet), now) else {
            crate::UNASSOCIATED_PORT.inc();
            return if key.base.recirc_id == 0 {
                Self::drop_flow(key)
            } else {
                Verdict::Drop(DropReason::NoRecirculationContext)
            };
        };
        let teaches = out.effects.iter().any(|e| matches!(e, Effect::Learn { .. }));
        if self.effects(&out, now) && teaches {
            self.see_what_was_taught(&view, key, &mut out, now);
        }
        let stats = Self::one_packet(packet, now, key);
        self.credit(&out.credits, &stats, now);
        let own = if self.megaflows() { own_mask(&out.mask) } else { exact_mask(key) };
        let mask = with_absent_tags(own);
        let program = dp_program(&out);
        // While packets wait for a neighbour the next of their flow is to wait, too.
        let waits = !out.unresolved.is_empty() && self.hold(&out, packet, key, now);
        let install = !waits && self.may_install();
        let frozen = std::mem::take(&mut out.frozen);
        if install {
            let state = UkeyState {
                program: program.clone(),
                credits: out.credits,
                frozen,
                slow: out.slow,
                looked: out.looked,
                seq,
                pushed: stats,
                seen: FlowStats::default(),
            };
            let mut list = self.pending.lock();
            if list.len() >= MAX_PENDING {
                let old = list.remove(0);
                self.frozen.release(&old.state.frozen);
            }
            list.push(Pending { worker, key: *key, mask: own, state, now });
        } else {
            // The program runs once; its numbers are given back a round later.
            self.release_later(frozen);
        }
        Verdict::Forward { program, mask, install }
    }

    fn installed(&self, worker: WorkerId, ufid: Ufid, key: &DpKey, ok: bool) {
        let found = {
            let mut list = self.pending.lock();
            list.iter().position(|p| p.worker == worker && p.key == *key).map(|i| list.swap_remove(i))
        };
        let Some(p) = found else { return };
        if !ok {
            self.release_later(p.state.frozen);
            return;
        }
        let ukey = Ukey::new(ufid, &p.key, &p.mask, p.now, p.state);
        if let Some(old) = self.ukeys.insert(Arc::new(ukey)) {
            crate::UKEY_REPLACED.inc();
            self.release_later(std::mem::take(&mut old.state.lock().frozen));
        }
    }

    fn action(&self, _worker: WorkerId, now: Nanos, packet: Packet, key: &DpKey, what: &Userspace) {
        match what {
            Userspace::Controller(c) => self.controller(&packet, c),
            Userspace::SlowPath(_) => {
                let view = self.view.load();
                let Some(mut out) = self.translate(&view, key, Some(&packet), now) else { return };
                self.effects(&out, now);
                if !out.unresolved.is_empty() {
                    self.hold(&out, &packet, key, now);
                }
                let frozen = std::mem::take(&mut out.frozen);
                self.dp.execute(packet, key, &out.program);
                self.release_later(frozen);
            }
            // Samples have no collector yet and opaque data no reader: they end here, counted.
            Userspace::SFlow { .. } | Userspace::FlowSample { .. } | Userspace::Ipfix { .. } | Userspace::Data(_) => {
                DropReason::UserspaceActionError.count(1);
            }
        }
    }
}

/// Every bit that the packet's key has: `upcall/disable-megaflows`.
fn exact_mask(_key: &DpKey) -> DpMask {
    let mut m = DpMask::default();
    m.0.words_mut().fill(u64::MAX);
    m
}

fn reason_of(n: u8) -> PacketInReason {
    use PacketInReason::*;
    [NoMatch, Action, InvalidTtl, ActionSet, Group, PacketOut, ExplicitMiss, ImplicitMiss]
        .into_iter()
        .find(|r| *r as u8 == n)
        .unwrap_or(Action)
}

/// The fields that a packet-in names: those with a value.
fn metadata_match(key: &FlowKey, layout: TunLayout) -> Match {
    let mut m = Match { key: *key, layout, ..Match::default() };
    for o in layout.iter().filter(|o| o.is_in(key)) {
        m.mask.set_field(fv_flow::Field::TunMetadata(o));
    }
    m.key.pipe.actset_output = 0;
    m.mask.0.dp.base.in_port = u32::MAX;
    for f in fv_flow::Field::all() {
        // Wider registers are made of narrower ones, which would all be named.
        let wide = f.name().starts_with("xreg") || f.name().starts_with("xxreg");
        let wanted = f != fv_flow::Field::InPort && f != fv_flow::Field::ActsetOutput && !wide;
        if wanted && !f.is_zero(&m.key) {
            m.mask.set_field(f);
        }
    }
    m
}
