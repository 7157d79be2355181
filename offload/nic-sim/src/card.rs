//! A card: ports, a table, operations that take their time.
//!
//! Everything is under one lock, held for a turn, for an operation's submission or for taking reports. The
//! switch's threads meet the card only in the ports' rings.

mod ops;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use fv_core::{DpPort, Nanos};
use fv_netdev::{Device, DeviceError, Options};
use fv_offload::{Op, PoolId, Report, RuleId};
use parking_lot::Mutex;

use crate::config::CardConfig;
use crate::port::SimPort;
use crate::ring::Ring;
use crate::table::Table;
use ops::Ops;
use wire::Wire;

/// All cards of the switch.
#[derive(Default)]
pub struct Cards {
    by_name: Mutex<BTreeMap<String, Arc<Card>>>,
    next: AtomicU16,
}

pub struct Card {
    name: String,
    number: u16,
    config: CardConfig,
    state: Mutex<State>,
}

struct State {
    ports: Vec<Wire>,
    table: Table,
    /// Which provider programs it.
    owner: Option<u64>,
    ops: Ops,
    reports: Vec<Report>,
    /// Packets that are matched and not yet in a queue: when, port index and queue.
    pipeline: wire::Pipeline,
}

/// What a port has had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortCount {
    pub received: u64,
    pub forwarded: u64,
    pub marked: u64,
    pub missed: u64,
    pub sent: u64,
}

impl Cards {
    pub fn new() -> Arc<Cards> {
        Arc::default()
    }

    /// Plugs a new port `name` with the wire `lower` into the card that `options` names (`card`, else one of
    /// the port's own name), which is made if need be with the properties that they say.
    pub fn plug(&self, name: &str, options: &Options, lower: Arc<dyn Device>) -> Result<Arc<SimPort>, DeviceError> {
        let config = CardConfig::from_options(options)?;
        let card_name = options.get("card").map_or(name, String::as_str);
        let mut cards = self.by_name.lock();
        let card = match cards.get(card_name) {
            Some(card) => {
                // A port may say nothing about the card, or the same; its queues are its own.
                let alike = |other: &CardConfig| {
                    let queues = CardConfig { n_rxq: other.n_rxq, ring_size: other.ring_size, ..config.clone() };
                    queues == *other
                };
                if !alike(&card.config) && !alike(&CardConfig::default()) {
                    let why = "the card exists, with other properties";
                    return Err(DeviceError::bad_option("card", card_name, why));
                }
                card.clone()
            }
            None => {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                Arc::new(Card::new(card_name, number, config.clone()))
            }
        };
        let port = SimPort::new(name, card.clone(), config, lower)?;
        card.add_port(&port)?;
        cards.insert(card_name.into(), card);
        Ok(port)
    }

    pub fn of_port(&self, port: &str) -> Option<Arc<Card>> {
        self.all().into_iter().find(|card| card.has_port(port))
    }

    pub fn find(&self, name: &str) -> Option<Arc<Card>> {
        self.by_name.lock().get(name).cloned()
    }

    pub fn all(&self) -> Vec<Arc<Card>> {
        self.by_name.lock().values().cloned().collect()
    }

    /// A turn of every card; says how many packets went through.
    pub fn turn(&self, now: Nanos, budget: usize) -> usize {
        let all = self.all();
        let moved = all.iter().map(|card| card.turn(now, budget)).sum();
        if all.iter().any(|card| card.is_empty()) {
            self.by_name.lock().retain(|_, card| !card.is_empty());
        }
        moved
    }

    /// When the next turn has something to do, packets apart.
    pub fn due(&self) -> Nanos {
        let due = |card: &Arc<Card>| {
            let state = card.state.lock();
            state.ops.due().min(state.pipeline.due())
        };
        self.all().iter().map(due).min().unwrap_or(Nanos::MAX)
    }
}

impl Card {
    fn new(name: &str, number: u16, config: CardConfig) -> Card {
        let state = State {
            ports: Vec::new(),
            table: Table::default(),
            owner: None,
            ops: Ops::new(u64::from(number) + 1),
            reports: Vec::new(),
            pipeline: Default::default(),
        };
        Card { name: name.into(), number, config, state: Mutex::new(state) }
    }

    pub fn name(&self) -> &str {
        &self.name
    }
    pub fn number(&self) -> u16 {
        self.number
    }
    pub fn config(&self) -> &CardConfig {
        &self.config
    }

    /// Rules in the table.
    pub fn rules(&self) -> usize {
        self.state.lock().table.len()
    }

    pub fn counts(&self, port: &str) -> Option<PortCount> {
        self.state.lock().ports.iter().find(|p| p.name == port).map(Wire::counts)
    }

    fn add_port(&self, port: &Arc<SimPort>) -> Result<(), DeviceError> {
        let mut state = self.state.lock();
        if state.ports.iter().any(|p| p.name == fv_netdev::Device::name(&**port)) {
            return Err(DeviceError::Exists(fv_netdev::Device::name(&**port).into()));
        }
        state.ports.push(Wire::open(port)?);
        Ok(())
    }

    /// Takes the port with these queues out; another of its name may be there already.
    pub(crate) fn unplug(&self, queues: &Arc<Ring>) {
        let number = {
            let state = self.state.lock();
            state.ports.iter().find(|p| p.is(queues)).and_then(|p| p.dp_port)
        };
        number.into_iter().for_each(|n| self.detach(n));
        let mut state = self.state.lock();
        if let Some(at) = state.ports.iter().position(|p| p.is(queues)) {
            state.ports.remove(at);
            state.pipeline.clear();
        }
    }

    fn is_empty(&self) -> bool {
        self.state.lock().ports.is_empty()
    }

    fn has_port(&self, port: &str) -> bool {
        self.state.lock().ports.iter().any(|p| p.name == port)
    }

    // What the provider calls.

    /// False if another provider has the card.
    pub(crate) fn attach(&self, provider: u64, number: DpPort, port: &str) -> bool {
        let mut state = self.state.lock();
        let taken = state.owner.is_some_and(|o| o != provider) && state.ports.iter().any(|p| p.dp_port.is_some());
        match state.ports.iter_mut().find(|p| p.name == port) {
            Some(p) if !taken => p.dp_port = Some(number),
            _ => return false,
        }
        state.owner = Some(provider);
        true
    }

    /// The provider is no more.
    pub(crate) fn abandon(&self, provider: u64) {
        let mut state = self.state.lock();
        if state.owner != Some(provider) {
            return;
        }
        state.owner = None;
        state.ports.iter_mut().for_each(|p| p.dp_port = None);
        state.table = Table::default();
        state.ops = Ops::new(u64::from(self.number) + 1);
        state.reports.clear();
    }

    pub(crate) fn detach(&self, number: DpPort) {
        let mut state = self.state.lock();
        let State { ports, table, reports, .. } = &mut *state;
        let Some(port) = ports.iter_mut().find(|p| p.dp_port == Some(number)) else { return };
        port.dp_port = None;
        for rule in table.of_port(number) {
            let last = table.remove(rule).unwrap_or_default();
            reports.push(Report::Evicted { rule, last });
        }
    }

    pub(crate) fn attached(&self) -> Vec<DpPort> {
        self.state.lock().ports.iter().filter_map(|p| p.dp_port).collect()
    }

    pub(crate) fn knows(&self, rule: RuleId) -> bool {
        let mut state = self.state.lock();
        state.table.find(rule).is_some() || state.ops.knows(rule)
    }

    pub(crate) fn submit(&self, now: Nanos, op: Op) -> Result<(), Op> {
        self.state.lock().ops.submit(&self.config, now, op)
    }

    pub(crate) fn reports(&self, now: Nanos, out: &mut Vec<Report>) {
        let mut state = self.state.lock();
        state.operate(&self.config, PoolId(self.number), now);
        out.append(&mut state.reports);
    }

    pub(crate) fn due(&self) -> Nanos {
        let state = self.state.lock();
        if state.reports.is_empty() { state.ops.due() } else { Nanos::ZERO }
    }

    /// Packets and operations. Says how many packets were moved.
    pub fn turn(&self, now: Nanos, budget: usize) -> usize {
        let mut state = self.state.lock();
        state.operate(&self.config, PoolId(self.number), now);
        let moved = state.move_packets(&self.config, now, budget);
        state.operate(&self.config, PoolId(self.number), now);
        moved
    }

    /// The card loses its table, as at a firmware's restart. Its counters can still be read.
    pub fn reset(&self) {
        let mut state = self.state.lock();
        for rule in state.table.ids() {
            let last = state.table.remove(rule).unwrap_or_default();
            state.reports.push(Report::Evicted { rule, last });
        }
        let State { ops, reports, .. } = &mut *state;
        ops.lose_all(reports);
        reports.push(Report::Reset(PoolId(self.number)));
    }

    /// The card throws a rule out, for reasons of its own.
    pub fn evict_one(&self) -> bool {
        let mut state = self.state.lock();
        let Some(rule) = state.table.ids().into_iter().min() else { return false };
        let last = state.table.remove(rule).unwrap_or_default();
        state.reports.push(Report::Evicted { rule, last });
        true
    }
}
