//! The cards as an offload provider.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fv_core::{DpPort, Nanos};
use fv_offload::{Caps, Op, Pool, PoolId, Provider, Report};

use crate::card::{Card, Cards};

/// What `hw-offload-priority` and `dp:` call it.
pub const PROVIDER: &str = "simnic";

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

pub struct SimProvider {
    id: u64,
    cards: Arc<Cards>,
    /// Pools that have been asked for, which stay what they are.
    pools: BTreeMap<PoolId, (Arc<Card>, Caps)>,
}

impl SimProvider {
    pub fn new(cards: Arc<Cards>) -> SimProvider {
        SimProvider { id: NEXT_ID.fetch_add(1, Ordering::Relaxed), cards, pools: BTreeMap::new() }
    }

    fn pool_of_op(&self, op: &Op) -> Option<&Arc<Card>> {
        match op {
            Op::Insert(rule) => self.pools.get(&rule.pool).map(|(card, _)| card),
            op => self.pools.values().map(|(card, _)| card).find(|card| card.knows(op.rule())),
        }
    }
}

impl Drop for SimProvider {
    fn drop(&mut self) {
        self.pools.values().for_each(|(card, _)| card.abandon(self.id));
    }
}

impl Provider for SimProvider {
    fn name(&self) -> &'static str {
        PROVIDER
    }

    fn attach(&mut self, port: DpPort, name: &str) -> Option<PoolId> {
        let card = self.cards.of_port(name)?;
        let pool = PoolId(card.number());
        if !card.attach(self.id, port, name) {
            return None;
        }
        self.pools.entry(pool).or_insert_with(|| (card.clone(), card.config().caps()));
        Some(pool)
    }

    fn detach(&mut self, port: DpPort) {
        self.pools.values().for_each(|(card, _)| card.detach(port));
    }

    fn pools(&self) -> Vec<Pool> {
        let pool = |(id, (card, _)): (&PoolId, &(Arc<Card>, Caps))| Pool {
            id: *id,
            name: card.name().into(),
            capacity: (!card.config().hide_size).then_some(card.config().table_size as u32),
            ports: card.attached(),
        };
        self.pools.iter().map(pool).collect()
    }

    fn caps(&self, pool: PoolId) -> Option<&Caps> {
        self.pools.get(&pool).map(|(_, caps)| caps)
    }

    fn submit(&mut self, now: Nanos, op: Op) -> Result<(), Op> {
        match self.pool_of_op(&op) {
            Some(card) => card.submit(now, op),
            // No card has the rule any more: any will say so.
            None => match self.pools.values().next() {
                Some((card, _)) => card.submit(now, op),
                None => Err(op),
            },
        }
    }

    fn turn(&mut self, now: Nanos, out: &mut Vec<Report>) {
        self.pools.values().for_each(|(card, _)| card.reports(now, out));
    }

    fn due(&self) -> Nanos {
        self.pools.values().map(|(card, _)| card.due()).min().unwrap_or(Nanos::MAX)
    }
}
