//! All flows of a datapath, by ufid and by megaflow: what put, get, del and dump use.
//!
//! Written on the miss path and by control; no packet that hits comes here. Locks are per shard and
//! held for one map operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fv_core::Ufid;
use hashbrown::HashTable;
use parking_lot::{Mutex, RwLock};

use crate::flow::Flow;
use crate::hash::BlockHash;

const SHARDS: usize = 64;

/// Flows by a name that they hold themselves.
type Flows = HashTable<Arc<Flow>>;

/// Megaflow names are hashes with a secret key.
fn hash_of_megaflow(megaflow: u128) -> u64 {
    (megaflow >> 64) as u64
}

/// Ufids may be anything that a caller names a flow.
fn hash_of_ufid(ufid: Ufid) -> u64 {
    BlockHash::process().name(ufid.0)
}

/// The flows, sharded twice. A flow is in both maps or, while it is being put or removed, in the
/// megaflow map alone, whose shard lock orders all who want the same megaflow.
pub struct Registry {
    by_ufid: Box<[RwLock<Flows>]>,
    by_megaflow: Box<[Mutex<Flows>]>,
    count: AtomicUsize,
}

impl Default for Registry {
    fn default() -> Registry {
        Registry {
            by_ufid: (0..SHARDS).map(|_| RwLock::default()).collect(),
            by_megaflow: (0..SHARDS).map(|_| Mutex::default()).collect(),
            count: AtomicUsize::new(0),
        }
    }
}

impl Registry {
    fn ufid_shard(&self, ufid: Ufid) -> &RwLock<Flows> {
        // Bits that neither the UUID version nor its variant fixes; a caller's own ufid may be anything.
        &self.by_ufid[((ufid.0 ^ (ufid.0 >> 96)) as usize) % SHARDS]
    }

    /// Adds a flow. If its megaflow or its ufid is taken, returns the flow that has it.
    pub fn insert(&self, flow: Arc<Flow>) -> Result<(), Arc<Flow>> {
        let mut megaflows = self.by_megaflow[(flow.megaflow as usize) % SHARDS].lock();
        let megaflow_hash = hash_of_megaflow(flow.megaflow);
        if let Some(there) = megaflows.find(megaflow_hash, |f| f.megaflow == flow.megaflow) {
            return Err(there.clone());
        }
        {
            let mut ufids = self.ufid_shard(flow.ufid).write();
            let hash = hash_of_ufid(flow.ufid);
            if let Some(there) = ufids.find(hash, |f| f.ufid == flow.ufid) {
                return Err(there.clone());
            }
            ufids.insert_unique(hash, flow.clone(), |f| hash_of_ufid(f.ufid));
        }
        megaflows.insert_unique(megaflow_hash, flow, |f| hash_of_megaflow(f.megaflow));
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Takes a flow out and kills it; when this returns no later lookup finds it.
    pub fn remove(&self, ufid: Ufid) -> Option<Arc<Flow>> {
        let flow = self.find(ufid)?;
        let mut megaflows = self.by_megaflow[(flow.megaflow as usize) % SHARDS].lock();
        {
            let mut ufids = self.ufid_shard(ufid).write();
            // Someone else may have removed it, and put another of that name, in between.
            ufids.find_entry(hash_of_ufid(ufid), |there| Arc::ptr_eq(there, &flow)).ok()?.remove();
        }
        flow.kill();
        if let Ok(there) = megaflows.find_entry(hash_of_megaflow(flow.megaflow), |there| Arc::ptr_eq(there, &flow)) {
            there.remove();
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(flow)
    }

    pub fn find(&self, ufid: Ufid) -> Option<Arc<Flow>> {
        self.ufid_shard(ufid).read().find(hash_of_ufid(ufid), |f| f.ufid == ufid).cloned()
    }

    pub fn find_megaflow(&self, megaflow: u128) -> Option<Arc<Flow>> {
        let shard = self.by_megaflow[(megaflow as usize) % SHARDS].lock();
        shard.find(hash_of_megaflow(megaflow), |f| f.megaflow == megaflow).cloned()
    }

    /// Calls `f` for each flow until it returns false, holding no lock meanwhile.
    pub fn each(&self, mut f: impl FnMut(&Arc<Flow>) -> bool) {
        let mut flows = Vec::new();
        for shard in &self.by_ufid {
            flows.extend(shard.read().iter().cloned());
            for flow in flows.drain(..) {
                if !f(&flow) {
                    return;
                }
            }
        }
    }

    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fv_flow::{DpKey, DpMask};

    fn flow(port: u32, dst: u32, mask_dst: u32) -> Arc<Flow> {
        let mut key = DpKey::default();
        key.base.in_port = port;
        key.base.nw_dst = dst.into();
        let mut mask = DpMask::default();
        mask.0.base.nw_dst = mask_dst.into();
        Flow::new(&key, &mask, None, Arc::default(), None)
    }

    #[test]
    fn one_megaflow_once() {
        let r = Registry::default();
        let a = flow(1, 0x0a000001, 0xffffff00);
        let b = flow(1, 0x0a000002, 0xffffff00);
        assert_ne!(a.ufid, b.ufid);
        r.insert(a.clone()).unwrap();
        assert!(Arc::ptr_eq(&r.insert(b.clone()).unwrap_err(), &a));
        r.insert(flow(2, 0x0a000002, 0xffffff00)).unwrap();
        r.insert(flow(1, 0x0a000002, 0xffffffff)).unwrap();
        assert_eq!(r.len(), 3);
        assert!(r.find(b.ufid).is_none());
        assert!(Arc::ptr_eq(&r.remove(a.ufid).unwrap(), &a));
        assert!(a.is_dead() && r.remove(a.ufid).is_none());
        r.insert(b).unwrap();
        let mut n = 0;
        r.each(|_| {
            n += 1;
            true
        });
        assert_eq!((n, r.len()), (3, 3));
    }

    #[test]
    fn a_ufid_that_is_taken_is_refused() {
        let r = Registry::default();
        let a = flow(1, 1, u32::MAX);
        let mut key = DpKey::default();
        key.base.in_port = 7;
        let b = Flow::new(&key, &DpMask::default(), Some(a.ufid), Arc::default(), None);
        r.insert(a).unwrap();
        assert!(r.insert(b.clone()).is_err());
        assert!(r.find_megaflow(b.megaflow).is_none());
    }
}
