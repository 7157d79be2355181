//! The book of what is where: one entry a flow that is on a NIC's port, and the operations under way.
//!
//! A flow's statistics are what software has counted, plus what its former rules have (`base`), plus what its
//! present rule has. A rule's final count comes with the end of its removal and takes the place of what was told
//! before; so nothing is counted twice or lost, whatever comes late.

mod answers;
mod moves;
mod reports;
mod watch;

use std::collections::VecDeque;
use std::sync::Arc;

use fv_core::{DpPort, Nanos, Ufid};
use fv_dpif::{Datapath, FlowDump, FlowHandle, FlowStats, Marks, Program, Retired};
use fv_flow::{DpKey, DpMask};
use hashbrown::HashMap;

use crate::caps::{Caps, Level, WhyNot};
use crate::order::ProviderOrder;
use crate::provider::{Count, Op, PoolId, Provider, Report, RuleId};
use crate::rebalance::{FlowId, Rebalancer, Settings};
pub use answers::{PoolReport, WhySoft};

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// What is known of one flow.
struct Entry {
    ufid: Ufid,
    key: DpKey,
    mask: DpMask,
    program: Arc<Program>,
    handle: Option<Arc<dyn FlowHandle>>,
    /// Index into [`Book::pools`].
    pool: usize,
    level: Level,
    /// Why not at all (no `id`), or why not wholly.
    why: Option<WhyNot>,
    /// The rebalancer's name, while the flow lives and can be offloaded.
    id: Option<FlowId>,
    state: State,
    rule: Option<RuleId>,
    mark: Option<u32>,
    /// A modification is under way, and with it the mark that is no longer needed when it is done.
    modifying: bool,
    old_mark: Option<u32>,
    /// The flow has changed meanwhile.
    stale: bool,
    /// Counts of former rules, and what is known of the present one's.
    base: Count,
    current: Count,
    /// When the rule came into the table.
    inserted: Nanos,
    /// The newcomer that gets the place when this one is out.
    into: Option<usize>,
    /// It has no name with the rebalancer any more, but a place in the table until the rule is gone.
    holds_place: bool,
    death: Option<Death>,
}

/// A flow that software has no more.
struct Death {
    software: FlowStats,
    done: Option<Retired>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Soft,
    /// For the place of one that leaves.
    Waiting,
    Inserting,
    Hard,
    Removing,
}

/// A NIC's table.
struct Pool {
    provider: usize,
    /// The provider's own name of it.
    id: PoolId,
    caps: Caps,
    name: String,
    ports: Vec<DpPort>,
    /// Its counters are known up to then.
    read: Nanos,
    /// Ends of moves, of the last minute.
    moves: VecDeque<Nanos>,
}

/// Operations that a provider had no room for yet. What frees places or changes rules goes first; a rule's own
/// operations never overlap.
#[derive(Default)]
struct Backlog {
    first: VecDeque<Op>,
    inserts: VecDeque<Op>,
}

pub struct Book {
    enabled: bool,
    providers: Vec<Box<dyn Provider>>,
    backlogs: Vec<Backlog>,
    order: ProviderOrder,
    pools: Vec<Pool>,
    by_port: Map<DpPort, usize>,
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    /// Flows that live.
    by_ufid: Map<Ufid, usize>,
    by_rule: Map<RuleId, usize>,
    /// Entries by the rebalancer's names.
    by_id: Vec<usize>,
    rebalancer: Rebalancer,
    next_rule: u64,
    marks: Arc<Marks>,
    looked: Nanos,
    sampled: Nanos,
    retired: Vec<(Retired, FlowStats)>,
    /// Flows to look at again: something was under way when they changed.
    again: Vec<Ufid>,
    /// Reused.
    reports: Vec<Report>,
}

impl Book {
    pub fn new(marks: Arc<Marks>) -> Book {
        Book {
            enabled: false,
            providers: Vec::new(),
            backlogs: Vec::new(),
            order: ProviderOrder::default(),
            pools: Vec::new(),
            by_port: Map::default(),
            entries: Vec::new(),
            free: Vec::new(),
            by_ufid: Map::default(),
            by_rule: Map::default(),
            by_id: Vec::new(),
            rebalancer: Rebalancer::new(Settings::default()),
            next_rule: 1,
            marks,
            looked: Nanos::ZERO,
            sampled: Nanos::ZERO,
            retired: Vec::new(),
            again: Vec::new(),
            reports: Vec::new(),
        }
    }

    pub fn add_provider(&mut self, provider: Box<dyn Provider>) {
        self.providers.push(provider);
        self.backlogs.push(Backlog::default());
    }

    pub fn set_order(&mut self, order: ProviderOrder) {
        self.order = order;
    }

    pub fn set_rebalance(&mut self, on: bool) {
        self.rebalancer.set_enabled(on);
    }

    pub fn attach(&mut self, port: DpPort, name: &str, own: Option<&ProviderOrder>) -> Option<&'static str> {
        if let Some(pool) = self.by_port.get(&port) {
            return Some(self.providers[self.pools[*pool].provider].name());
        }
        let names: Vec<&str> = self.providers.iter().map(|p| p.name()).collect();
        let order = match own {
            Some(own) => own.sort(&names, true),
            None => self.order.sort(&names, false),
        };
        let (provider, id) = order.into_iter().find_map(|p| Some((p, self.providers[p].attach(port, name)?)))?;
        let known = self.pools.iter().position(|p| p.provider == provider && p.id == id);
        let pool = match known {
            Some(pool) => pool,
            None => {
                let caps = self.providers[provider].caps(id)?.clone();
                let about = self.providers[provider].pools().into_iter().find(|p| p.id == id)?;
                self.rebalancer.set_pool(PoolId(self.pools.len() as u16), about.capacity);
                self.pools.push(Pool {
                    provider,
                    id,
                    caps,
                    name: about.name,
                    ports: Vec::new(),
                    read: Nanos::ZERO,
                    moves: VecDeque::new(),
                });
                self.pools.len() - 1
            }
        };
        self.pools[pool].ports.push(port);
        self.by_port.insert(port, pool);
        Some(self.providers[provider].name())
    }

    /// The port is going. Flows that come from it will be deleted, those that go there changed.
    pub fn detach(&mut self, port: DpPort, now: Nanos) {
        let Some(pool) = self.by_port.remove(&port) else { return };
        self.pools[pool].ports.retain(|p| *p != port);
        self.providers[self.pools[pool].provider].detach(port);
        let gone: Vec<usize> = self.living().filter(|(_, e)| e.key.base.in_port == port.0).map(|(i, _)| i).collect();
        for i in gone {
            self.withdraw(i);
        }
        self.take_reports(now);
    }

    /// Withdraws everything, or lets flows in again, which are to be looked at.
    pub fn set_enabled(&mut self, on: bool) {
        self.enabled = on;
        if !on {
            let all: Vec<usize> = self.living().map(|(i, _)| i).collect();
            all.into_iter().for_each(|i| self.withdraw(i));
        }
    }

    pub fn knows(&self, ufid: Ufid) -> bool {
        self.by_ufid.contains_key(&ufid)
    }

    /// Software's statistics and hardware's.
    pub fn total(&self, ufid: Ufid, software: FlowStats, now: Nanos) -> FlowStats {
        match self.by_ufid.get(&ufid) {
            Some(i) => self.sum(self.entry(*i), software, now),
            None => software,
        }
    }

    pub fn merge(&self, flow: &mut FlowDump, now: Nanos) {
        let Some(entry) = self.by_ufid.get(&flow.ufid).map(|i| self.entry(*i)) else { return };
        flow.stats = self.sum(entry, flow.stats, now);
        flow.offloaded = matches!(entry.state, State::Hard | State::Removing);
        if flow.offloaded && entry.level == Level::Full {
            flow.layer = self.providers[self.pools[entry.pool].provider].name();
        }
    }

    fn sum(&self, entry: &Entry, software: FlowStats, now: Nanos) -> FlowStats {
        let mut sum = software;
        for part in [&entry.base, &entry.current] {
            sum.packets = sum.packets.wrapping_add(part.packets);
            sum.bytes = sum.bytes.wrapping_add(part.bytes);
            sum.used = sum.used.max(part.used);
        }
        // A counter that is read late looks unused since. How long the rule was idle when it was read is what
        // is known; that it went on like that is what can be assumed.
        if matches!(entry.state, State::Hard | State::Removing) {
            let last = entry.inserted.max(entry.current.used.unwrap_or(Nanos::ZERO));
            let idle = self.pools[entry.pool].read.saturating_sub(last);
            if entry.level == Level::Full {
                sum.used = sum.used.max(Some(now.saturating_sub(idle)));
            }
        }
        sum
    }

    pub fn n_offloaded(&self) -> usize {
        self.living().filter(|(_, e)| e.state == State::Hard).count()
    }

    pub fn take_retired(&mut self) -> Vec<(Retired, FlowStats)> {
        std::mem::take(&mut self.retired)
    }

    fn living(&self) -> impl Iterator<Item = (usize, &Entry)> {
        self.entries.iter().enumerate().filter_map(|(i, e)| Some((i, e.as_ref().filter(|e| e.death.is_none())?)))
    }

    /// Indices are of entries that are there: they are given out here and taken back by `drop_entry` alone.
    fn entry(&self, i: usize) -> &Entry {
        self.entries[i].as_ref().expect("an entry that was dropped")
    }

    fn entry_mut(&mut self, i: usize) -> &mut Entry {
        self.entries[i].as_mut().expect("an entry that was dropped")
    }

    fn add_entry(&mut self, entry: Entry) -> usize {
        match self.free.pop() {
            Some(i) => {
                self.entries[i] = Some(entry);
                i
            }
            None => {
                self.entries.push(Some(entry));
                self.entries.len() - 1
            }
        }
    }

    /// A dead flow's last rule is gone.
    fn drop_entry(&mut self, i: usize) {
        let Some(mut entry) = self.entries[i].take() else { return };
        self.free.push(i);
        if entry.holds_place {
            self.rebalancer.freed(self.name_of(entry.pool));
        }
        let Some(mut death) = entry.death.take() else { return };
        if let Some(done) = death.done.take() {
            let mut sum = death.software;
            sum.packets = sum.packets.wrapping_add(entry.base.packets);
            sum.bytes = sum.bytes.wrapping_add(entry.base.bytes);
            sum.used = sum.used.max(entry.base.used);
            self.retired.push((done, sum));
        }
    }

    fn name_of(&self, pool: usize) -> PoolId {
        PoolId(pool as u16)
    }

    fn look_again(&mut self, dp: &dyn Datapath, now: Nanos) {
        let again = std::mem::take(&mut self.again);
        if self.enabled {
            again.into_iter().for_each(|ufid| self.look_at(dp, ufid, now));
        }
    }

    /// A turn: reports, samples, moves, operations. Says when the next has something to do.
    pub fn turn(&mut self, dp: &dyn Datapath, now: Nanos) -> Nanos {
        self.take_reports(now);
        self.look_again(dp, now);
        self.reuse_marks(dp, now);
        if self.enabled {
            self.sample(now);
        }
        self.plan(now);
        self.submit(now);
        self.take_reports(now);
        self.look_again(dp, now);
        self.submit(now);
        self.due(now)
    }
}
