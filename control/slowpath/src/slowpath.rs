//! The slow path's state, and its round.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use fv_core::{Nanos, RecircId, Ufid};
use fv_dpif::action::SlowReasons;
use fv_dpif::{Datapath, FlowDump, FlowPut, FlowStats};
use fv_ofproto::RuleRef;
use fv_ofproto::packet_in::PacketInQueue;
use fv_ofproto::view::{BridgeId, View};
use fv_xlate::{Credit, Looked};
use parking_lot::{Condvar, Mutex};

use crate::changes::Changes;
use crate::frozen::FrozenStates;
use crate::limit::{Config, Limit};
use crate::pull;
use crate::ukey::{Ukey, UkeyState, Ukeys};
use crate::upcall::{PendingList, dp_program, with_absent_tags};

/// Rounds in a row in which a flow may be missing from the datapath before it is forgotten.
const MAX_MISSING: u32 = 4;

/// One datapath's slow path.
pub struct Slowpath {
    pub(crate) dp: Arc<dyn Datapath>,
    pub(crate) view: Arc<ArcSwap<View>>,
    pub(crate) packet_ins: Arc<PacketInQueue>,
    /// Control has packet-ins to send.
    pub(crate) wake_control: Box<dyn Fn() + Send + Sync>,
    pub frozen: FrozenStates,
    pub patch: pull::PatchCounters,
    pub(crate) ukeys: Ukeys,
    pub(crate) pending: PendingList,
    pub(crate) held: crate::held::Held,
    seq: AtomicU64,
    changes: Mutex<Changes>,
    limit: AtomicU64,
    n_flows: AtomicU64,
    restore_wait: AtomicBool,
    megaflows: AtomicBool,
    config: Mutex<Config>,
    round: Mutex<Round>,
    later: Mutex<Vec<RecircId>>,
    /// Deleted flows whose final statistics are known.
    retired: Arc<Mutex<Vec<(Arc<Ukey>, FlowStats)>>>,
    wake: (Mutex<Wake>, Condvar),
    pub(crate) timers: crate::timers::Timers,
}

#[derive(Default)]
struct Wake {
    asked: bool,
    paused: bool,
    stop: bool,
    /// Rounds that have ended.
    rounds: u64,
}

#[derive(Default)]
struct Round {
    avg: u64,
    max: u64,
    duration: Nanos,
    /// Numbers to give back when one more round has passed.
    older: Vec<RecircId>,
    missing: hashbrown::HashMap<Ufid, u32>,
    /// Of the pass under way.
    number: u32,
}

/// What one pass over the flows goes by.
struct Pass<'a> {
    view: &'a View,
    now: Nanos,
    max_idle: Nanos,
    number: u32,
    /// As of `seq`.
    changes: Changes,
    seq: u64,
}

/// What `upcall/show` prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowLimitInfo {
    pub current: u64,
    pub avg: u64,
    pub max: u64,
    pub limit: u64,
    pub dump_duration: Nanos,
    pub keys: usize,
}

enum Outcome {
    Keep,
    Delete,
}

impl Slowpath {
    pub fn new(
        dp: Arc<dyn Datapath>,
        view: Arc<ArcSwap<View>>,
        packet_ins: Arc<PacketInQueue>,
        wake_control: Box<dyn Fn() + Send + Sync>,
    ) -> Slowpath {
        let config = Config::default();
        Slowpath {
            dp,
            view,
            packet_ins,
            wake_control,
            frozen: FrozenStates::default(),
            patch: Default::default(),
            ukeys: Ukeys::default(),
            pending: PendingList::default(),
            held: Default::default(),
            seq: AtomicU64::new(1),
            changes: Mutex::default(),
            limit: AtomicU64::new(Limit::new(&config).now),
            n_flows: AtomicU64::new(0),
            restore_wait: AtomicBool::new(false),
            megaflows: AtomicBool::new(true),
            config: Mutex::new(config),
            round: Mutex::default(),
            later: Mutex::default(),
            retired: Arc::default(),
            wake: Default::default(),
            timers: Default::default(),
        }
    }

    pub fn datapath(&self) -> &Arc<dyn Datapath> {
        &self.dp
    }

    pub fn configure(&self, c: Config) {
        let mut now = self.config.lock();
        if *now != c {
            *now = c;
            let limit = self.limit.load(Ordering::Relaxed).min(c.flow_limit.max(1));
            self.limit.store(limit, Ordering::Relaxed);
            drop(now);
            self.kick();
        }
    }

    /// While on, every miss is dropped and no flow is installed or expired.
    pub fn set_restore_wait(&self, on: bool) {
        self.restore_wait.store(on, Ordering::Release);
    }

    pub(crate) fn restore_wait(&self) -> bool {
        self.restore_wait.load(Ordering::Acquire)
    }

    pub fn set_megaflows(&self, on: bool) {
        self.megaflows.store(on, Ordering::Release);
        self.purge();
    }

    pub(crate) fn megaflows(&self) -> bool {
        self.megaflows.load(Ordering::Acquire)
    }

    pub fn set_flow_limit(&self, n: u64) {
        self.limit.store(n, Ordering::Relaxed);
    }

    /// Something on which translations depend has changed: every flow is looked at again, soon.
    pub fn model_changed(&self) {
        let mut changes = self.changes.lock();
        let seq = self.seq.fetch_add(1, Ordering::AcqRel) + 1;
        changes.forget(seq);
        drop(changes);
        self.kick();
    }

    /// Rules of `bridge` have come or gone, and nothing else: flows that they may concern are looked at.
    pub fn rules_changed(&self, bridge: BridgeId, rules: &[RuleRef]) {
        let mut changes = self.changes.lock();
        let seq = self.seq.fetch_add(1, Ordering::AcqRel) + 1;
        changes.add(seq, bridge, rules);
        drop(changes);
        self.kick();
    }

    pub fn seq(&self) -> u64 {
        self.seq.load(Ordering::Acquire)
    }

    pub(crate) fn may_install(&self) -> bool {
        let ok = self.dp.flow_count() as u64 <= self.limit.load(Ordering::Relaxed);
        if !ok {
            crate::LIMIT_HIT.inc();
        }
        ok
    }

    /// Gives numbers back after the next round: packets in flight may still need them.
    pub fn release_later(&self, ids: Vec<RecircId>) {
        if !ids.is_empty() {
            self.later.lock().extend(ids);
        }
    }

    // The thread that calls `round`.

    /// Has a round done soon.
    pub fn kick(&self) {
        self.wake.0.lock().asked = true;
        self.wake.1.notify_all();
    }

    /// Waits until a round is due or asked for. `timeout` is real time; None once `stop` was called.
    pub fn wait_for_work(&self, timeout: std::time::Duration) -> Option<()> {
        let mut w = self.wake.0.lock();
        if !w.asked && !w.stop {
            self.wake.1.wait_for(&mut w, timeout);
        }
        w.asked = false;
        (!w.stop).then_some(())
    }

    pub fn stop(&self) {
        self.wake.0.lock().stop = true;
        self.wake.1.notify_all();
    }

    pub fn set_paused(&self, on: bool) {
        self.wake.0.lock().paused = on;
        if !on {
            self.kick();
        }
    }

    pub fn round_period(&self) -> Nanos {
        let c = self.config.lock();
        Nanos::from_ms(c.max_idle_ms.min(c.max_revalidator_ms))
    }

    /// Rounds done so far: `revalidator/wait` waits until it has grown by two.
    pub fn rounds(&self) -> u64 {
        self.wake.0.lock().rounds
    }

    /// One pass over all flows: credits, retranslation, expiry.
    pub fn round(&self, now: Nanos, cpu: &dyn Fn() -> Nanos) {
        if self.wake.0.lock().paused {
            return;
        }
        let mut r = self.round.lock();
        let start = cpu();
        let config = *self.config.lock();
        let flows = self.dp.flow_count() as u64;
        self.note_flows(&mut r, flows);
        let limit = Limit { now: self.limit.load(Ordering::Relaxed) };
        let max_idle = limit.max_idle(&config, flows);
        let view = self.view.load();
        self.settle(now);
        let mut doomed = Vec::new();
        let mut seen = 0;
        r.number = r.number.wrapping_add(1).max(1);
        let round = {
            let changes = self.changes.lock();
            Pass { view: &view, now, max_idle, number: r.number, changes: changes.clone(), seq: self.seq() }
        };
        self.dp.flow_stats(&mut |ufid, stats| {
            seen += 1;
            if let Outcome::Delete = self.revalidate(&round, ufid, stats) {
                doomed.push(ufid);
            }
            true
        });
        doomed.iter().for_each(|u| self.delete(*u, now));
        // In most rounds nobody is missing, and nobody needs to be looked for.
        if self.ukeys.len() + doomed.len() != seen || !r.missing.is_empty() {
            self.forget_missing(&mut r);
        }
        self.release_old(&mut r);
        self.held.expire(now);
        let busy = cpu().saturating_sub(start);
        r.duration = busy;
        let mut limit = Limit { now: self.limit.load(Ordering::Relaxed) };
        limit.after_round(&config, flows, busy);
        self.limit.store(limit.now, Ordering::Relaxed);
        drop(r);
        self.wake.0.lock().rounds += 1;
    }

    fn note_flows(&self, r: &mut Round, flows: u64) {
        self.n_flows.store(flows, Ordering::Relaxed);
        r.avg = (r.avg + flows) / 2;
        r.max = r.max.max(flows);
    }

    fn revalidate(&self, pass: &Pass<'_>, ufid: Ufid, stats: &FlowStats) -> Outcome {
        let (view, now) = (pass.view, pass.now);
        crate::REVALIDATED.inc();
        let ukey = match self.ukeys.find(ufid) {
            Some(k) => k,
            None => match self.dp.flow_get(ufid).map(|f| self.adopt(view, &f, now)) {
                Some(Some(k)) => k,
                Some(None) => return Outcome::Delete,
                // It is gone.
                None => return Outcome::Keep,
            },
        };
        ukey.seen.store(pass.number, Ordering::Relaxed);
        let mut s = ukey.state.lock();
        self.push(&mut s, stats, now);
        let used = stats.used.unwrap_or(Nanos::ZERO).max(ukey.created).max(s.pushed.used.unwrap_or(Nanos::ZERO));
        if now.saturating_sub(used) > pass.max_idle && !self.restore_wait() {
            crate::EXPIRED.inc();
            return Outcome::Delete;
        }
        let seq = self.seq();
        if s.seq == seq {
            return Outcome::Keep;
        }
        if s.seq <= pass.seq && pass.changes.spare(view, &ukey, s.looked, s.seq) {
            s.seq = pass.seq;
            return Outcome::Keep;
        }
        self.retranslate(view, &ukey, &mut s, seq, now)
    }

    /// A flow that somebody else put: it is kept if it is what translation would have made.
    fn adopt(&self, view: &View, f: &FlowDump, now: Nanos) -> Option<Arc<Ukey>> {
        let (credits, frozen, slow, looked) = match self.translate(view, &f.key, None, now) {
            Some(out) => (out.credits, out.frozen, out.slow, out.looked),
            // A flow that drops what comes from a port without a bridge goes only when it is idle:
            // deleted each round, it would cost a miss each round.
            None if f.program.actions.is_empty() => (Vec::new(), Vec::new(), SlowReasons::default(), Looked::ALL),
            None => return None,
        };
        let state = UkeyState {
            program: f.program.clone(),
            credits,
            frozen,
            slow,
            looked,
            seq: 0,
            pushed: FlowStats::default(),
            seen: FlowStats::default(),
        };
        let k = Arc::new(Ukey::new(f.ufid, &f.key, &f.mask, now, state));
        if let Some(old) = self.ukeys.insert(k.clone()) {
            self.release_later(std::mem::take(&mut old.state.lock().frozen));
        }
        Some(k)
    }

    fn retranslate(&self, view: &View, ukey: &Ukey, s: &mut UkeyState, seq: u64, now: Nanos) -> Outcome {
        let (key, mask) = (ukey.key.key(), ukey.mask.mask());
        let Some(out) = self.translate(view, &key, None, now) else {
            if s.program.actions.is_empty() && s.credits.is_empty() {
                s.seq = seq;
                return Outcome::Keep;
            }
            crate::DELETED_STALE.inc();
            return Outcome::Delete;
        };
        let wider_needed = |want: &fv_flow::DpMask| {
            // Bits that the rules now look at but the flow does not match.
            want.0.words().iter().zip(mask.0.words()).any(|(w, have)| w & !have != 0)
        };
        if out.error.is_some() || !out.unresolved.is_empty() {
            // The next packet tells whether it is still so, or waits for what is not known any more.
            crate::DELETED_STALE.inc();
            self.release_later(out.frozen);
            return Outcome::Delete;
        }
        // Not as the datapath would take it: what it adds by itself no rule asked for.
        if wider_needed(&out.mask.dp()) {
            crate::DELETED_STALE.inc();
            self.release_later(out.frozen);
            return Outcome::Delete;
        }
        let program = dp_program(&out);
        if *program != *s.program {
            let put = FlowPut {
                key,
                mask: with_absent_tags(mask),
                program: program.clone(),
                ufid: Some(ukey.ufid),
                create: false,
                modify: true,
                worker: None,
            };
            if self.dp.flow_put(put).is_err() {
                self.release_later(out.frozen);
                return Outcome::Delete;
            }
            crate::MODIFIED.inc();
        }
        s.program = program;
        s.credits = out.credits;
        s.slow = out.slow;
        s.looked = out.looked;
        s.seq = seq;
        self.release_later(std::mem::replace(&mut s.frozen, out.frozen));
        Outcome::Keep
    }

    fn push(&self, s: &mut UkeyState, stats: &FlowStats, now: Nanos) {
        let d = pull::delta(stats, &s.seen);
        // Hardware tells that a flow goes on before it tells how many packets that were.
        if d.packets > 0 || stats.used > s.pushed.used {
            self.credit(&s.credits, &d, now);
            s.seen = *stats;
            s.pushed.used = stats.used;
        }
    }

    fn delete(&self, ufid: Ufid, now: Nanos) {
        let Some(k) = self.ukeys.remove(ufid) else {
            // Nobody is credited. It may have gone by itself meanwhile.
            let _ = self.dp.flow_del(ufid);
            return;
        };
        let (retired, key) = (self.retired.clone(), k.clone());
        let done = move |stats| retired.lock().push((key, stats));
        if self.dp.flow_retire(ufid, Box::new(done)).is_err() {
            self.release_later(std::mem::take(&mut k.state.lock().frozen));
        }
        self.settle(now);
    }

    /// Credits the last packets of deleted flows; where hardware forwarded them too these come late.
    fn settle(&self, now: Nanos) {
        let retired = std::mem::take(&mut *self.retired.lock());
        for (k, stats) in retired {
            let mut s = k.state.lock();
            self.push(&mut s, &stats, now);
            self.release_later(std::mem::take(&mut s.frozen));
        }
    }

    /// Flows that the datapath lost without us.
    fn forget_missing(&self, r: &mut Round) {
        let mut gone = Vec::new();
        let mut missing = hashbrown::HashMap::new();
        self.ukeys.for_each(|k| {
            if k.seen.load(Ordering::Relaxed) != r.number {
                let n = r.missing.get(&k.ufid).copied().unwrap_or(0) + 1;
                if n >= MAX_MISSING {
                    gone.push(k.ufid);
                } else {
                    missing.insert(k.ufid, n);
                }
            }
        });
        r.missing = missing;
        for u in gone {
            crate::MISSING.inc();
            if let Some(k) = self.ukeys.remove(u) {
                self.release_later(std::mem::take(&mut k.state.lock().frozen));
            }
        }
    }

    fn release_old(&self, r: &mut Round) {
        self.frozen.release(&r.older);
        r.older = std::mem::take(&mut *self.later.lock());
    }

    // Commands and requests.

    /// Credits all packets forwarded so far: a statistics request calls this first.
    pub fn pull(&self, now: Nanos) {
        self.settle(now);
        self.dp.flow_stats(&mut |ufid, stats| {
            if let Some(k) = self.ukeys.find(ufid) {
                self.push(&mut k.state.lock(), stats, now);
            }
            true
        });
    }

    /// Removes every flow; they come back with traffic.
    pub fn purge(&self) {
        let mut all = Vec::new();
        self.dp.flow_stats(&mut |ufid, _| {
            all.push(ufid);
            true
        });
        all.into_iter().for_each(|u| self.delete(u, Nanos::ZERO));
    }

    pub fn info(&self) -> FlowLimitInfo {
        let r = self.round.lock();
        FlowLimitInfo {
            current: self.dp.flow_count() as u64,
            avg: r.avg,
            max: r.max,
            limit: self.limit.load(Ordering::Relaxed),
            dump_duration: r.duration,
            keys: self.ukeys.len(),
        }
    }

    /// The rules that a flow was made of, in the order in which they were met.
    pub fn rules_of(&self, ufid: Ufid) -> Option<Vec<RuleRef>> {
        let k = self.ukeys.find(ufid)?;
        let s = k.state.lock();
        let rule = |c: &Credit| if let Credit::Rule(r) = c { Some(r.clone()) } else { None };
        Some(s.credits.iter().filter_map(rule).collect())
    }

    /// Why a flow takes the slow path.
    pub fn slow_reasons(&self, ufid: Ufid) -> Option<SlowReasons> {
        self.ukeys.find(ufid).map(|k| k.state.lock().slow)
    }
}
