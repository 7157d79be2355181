//! What is remembered of each installed flow.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use fv_core::{Nanos, RecircId, Ufid};
use fv_dpif::action::SlowReasons;
use fv_dpif::{FlowStats, Program};
use fv_flow::{DpKey, DpMask, Packed};
use fv_xlate::{Credit, Looked};
use hashbrown::HashMap;
use parking_lot::Mutex;

const SHARDS: usize = 64;

/// One installed flow.
pub struct Ukey {
    pub ufid: Ufid,
    /// As a packet had it.
    pub key: Packed,
    /// The bits that translation looked at.
    pub mask: Packed,
    pub created: Nanos,
    /// The number of the last round that found it in the datapath.
    pub seen: AtomicU32,
    pub state: Mutex<UkeyState>,
}

impl Ukey {
    pub fn new(ufid: Ufid, key: &DpKey, mask: &DpMask, created: Nanos, state: UkeyState) -> Ukey {
        let (key, mask) = (Packed::new(key), Packed::from(mask));
        Ukey { ufid, key, mask, created, seen: AtomicU32::new(0), state: Mutex::new(state) }
    }
}

/// The part that changes.
pub struct UkeyState {
    /// What translation returned; what the datapath runs may be the slow path in its place.
    pub program: Arc<Program>,
    pub credits: Vec<Credit>,
    pub frozen: Vec<RecircId>,
    pub slow: SlowReasons,
    pub looked: Looked,
    /// Model sequence number of the translation.
    pub seq: u64,
    /// What has been credited so far.
    pub pushed: FlowStats,
    /// The datapath's counters at the last pull.
    pub seen: FlowStats,
}

/// All of them, by ufid. Short locks only; workers insert, revalidators walk.
pub struct Ukeys {
    shards: Vec<Mutex<HashMap<Ufid, Arc<Ukey>, foldhash::fast::RandomState>>>,
}

impl Default for Ukeys {
    fn default() -> Self {
        Ukeys { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl Ukeys {
    fn shard(&self, u: Ufid) -> &Mutex<HashMap<Ufid, Arc<Ukey>, foldhash::fast::RandomState>> {
        &self.shards[(u.0 >> 64) as usize % SHARDS]
    }

    /// The one that was there before, if any.
    pub fn insert(&self, k: Arc<Ukey>) -> Option<Arc<Ukey>> {
        self.shard(k.ufid).lock().insert(k.ufid, k)
    }

    pub fn find(&self, u: Ufid) -> Option<Arc<Ukey>> {
        self.shard(u).lock().get(&u).cloned()
    }

    pub fn remove(&self, u: Ufid) -> Option<Arc<Ukey>> {
        self.shard(u).lock().remove(&u)
    }

    pub fn len(&self) -> usize {
        self.shards.iter().map(|s| s.lock().len()).sum()
    }

    /// A snapshot shard by shard.
    pub fn for_each(&self, mut f: impl FnMut(&Arc<Ukey>)) {
        for s in &self.shards {
            let list: Vec<_> = s.lock().values().cloned().collect();
            list.iter().for_each(&mut f);
        }
    }
}
